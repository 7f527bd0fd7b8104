"""The command line: what is printed where, exit codes, help, and mistakes that users make."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest
from conftest import BAD, CLEAN, GOLDEN, Run

from im2rec import cli, recordio
from im2rec.cli.options import Size
from im2rec.cli.pack import INTERPOLATION_NAMES, INTERPOLATION_NUMBERS, _Failures

COMMANDS = ["make-list", "pack", "inspect", "verify", "index", "unpack"]


@pytest.mark.parametrize("command", [[], *[[name] for name in COMMANDS]])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_goes_to_stdout_and_ends_with_an_example(
    command: list[str], option: str, im2rec: Run
) -> None:
    done = im2rec(*command, option)
    assert done.stderr == ""
    assert re.search(r"\n  Example:\n(?:    .*\n|  .*\n)+$", done.stdout)
    assert " ".join(["Usage: im2rec", *command]) in done.stdout


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom im2rec.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'cv2', 'numpy', 'PIL', 'tqdm', 'asyncio', 'multiprocessing'}\n"
        "print(sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.endswith("\n[]\n")


def test_version(im2rec: Run) -> None:
    from importlib.metadata import version

    import im2rec as package

    assert im2rec("--version").stdout == f"im2rec {version('im2rec')}\n"
    assert package.__version__ == version("im2rec")


def test_each_option_has_a_variable_of_its_first_name(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "set", CLEAN)
    (tmp_path / "other.lst").write_text("99\t0\tx.jpg\n", encoding="utf-8")
    done = im2rec("verify", "set", env={"IM2REC_VERIFY_LIST": "other.lst"}, code=1)
    assert "other.lst: list-missing: id 99: x.jpg has no record" in done.stdout
    assert json.loads(im2rec("inspect", "set", env={"IM2REC_INSPECT_JSON": "1"}).stdout)
    for command in cli.cli.commands.values():
        for option in command.params:
            if isinstance(option, click.Option):
                prefix = f"IM2REC_{command.name}_".upper().replace("-", "_")
                names = [prefix + name[2:].upper().replace("-", "_") for name in option.opts]
                assert (option.envvar or f"{prefix}{option.name}".upper()) in names


def test_no_command_shows_the_help(im2rec: Run) -> None:
    done = im2rec(code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("Usage: im2rec [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["pakc"],
            "No such command 'pakc'.",  # newer versions of click ask which was meant
        ),
        (["pack", "set"], "Missing argument 'ROOT'. See 'im2rec pack --help'."),
        (["pack", "--resiz", "3", "set", "."], "No such option"),
        (
            ["pack", "--resize", "big", "set", "."],
            "'big', expected a whole number of at least 0. See",
        ),
        (
            ["pack", "--resize", "-3", "set", "."],
            "'--resize': -3, expected a whole number of at least 0",
        ),
        (["pack", "--quality", "1.5", "set", "."], "'1.5', expected a whole number. See"),
        (
            ["pack", "--max-pixels", "0", "a", "."],
            "0, expected a whole number from 1 to 1073741824.",
        ),
        (["pack", "--image-timeout", "-1", "a", "."], "-1.0, expected a number of at least 0"),
        (["pack", "--encoding", "gif", "a", "."], "'.gif', expected one of .jpg, .png. See"),
        (
            ["pack", "--start-method", "a is not one of b", "a", "."],
            "'a is not one of b', expected",
        ),
        (["make-list", "--ids", "x", "a", "."], "'--ids': 'x', expected one of run, per-list. See"),
        (["make-list", "--train-ratio", "half", "a", "."], "'half', expected a number. See"),
        (["verify", "--list"], "Option '--list' needs a value"),
        (["pack", "--resiz", "3", "set", "."], "--shard-size"),
        (["pack", "--shard-size", "1QB", "set", "."], "'1QB' is no size; expected 500000, 64K"),
        (["pack", "--max-failures", "-1", "set", "."], "'-1', expected a number of images, or"),
        (["pack", "--max-failures", "101%", "set", "."], "'101%', expected a number of images"),
        (["pack", "--pass-through", "--resize", "3", "set", "."], "it excludes --resize"),
        (["pack", "--no-upscale", "set", "."], "--no-upscale means nothing without --resize"),
        (["pack", "set", "."], "set: there is no set.lst, nor set_train.lst and the like"),
        (["make-list", "set", "nowhere"], "nowhere: ROOT: there is no such folder; the order is"),
        (["make-list", "none/set", "."], "none/set: cannot write: there is no folder 'none'"),
        (["make-list", "--train-ratio", "2", "set", "."], "--train-ratio 2.0, expected 0 to 1"),
        (["inspect", "set"], "set: there is no such file, and no set with this prefix; expected"),
        (["verify", "set.rec"], "set.rec: there is no such file"),
        (["verify", "--list", "a.lst", "set", "set"], "one --list goes with one REC"),
        (["verify", "--list", "a", "--list", "b", "set"], "one --list goes with one REC"),
        (
            ["--list", "set", "."],
            "Coming from im2rec.py? `--list PREFIX ROOT` is",
        ),
        (["set", "."], "`PREFIX ROOT` is `im2rec pack PREFIX ROOT`; im2rec-legacy takes the old"),
        (["make-list", "my", "set", "."], "quote names that have spaces, separate --exts by comma"),
        (["pack", ".", "set"], "set: ROOT: there is no such folder; the order is PREFIX ROOT"),
        (["pack", "set.rec", "."], "set.rec: PREFIX is a list or a prefix; did you mean set?"),
        (["verify", "."], ".: is a folder; name a .rec file or a prefix"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(arguments: list[str], message: str, im2rec: Run) -> None:
    if "make-list" in arguments and "." in arguments and "none/set" in arguments:
        arguments = [*arguments[:-1], str(CLEAN)]
    done = im2rec(*arguments, code=2)
    assert done.stdout == ""
    assert re.fullmatch(r"im2rec: error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_a_variable_that_is_no_flag_is_one_line(im2rec: Run) -> None:
    done = im2rec("pack", "set", ".", code=2, env={"IM2REC_PACK_RESUME": "maybe"})
    assert done.stderr == (
        "im2rec: error: Invalid value for '--resume': 'maybe', expected 1 or 0. "
        "See 'im2rec pack --help'.\n"
    )


def test_a_malformed_list_names_its_lines(tmp_path: Path, im2rec: Run) -> None:
    rows = ["0\t0\ta.jpg", "", "x\t0\tb.jpg", "1 0 c.jpg", "0\tcat\td.jpg", "0\t1\te.jpg"]
    (tmp_path / "set.lst").write_text("\n".join(rows), encoding="utf-8")
    assert im2rec("pack", "set", CLEAN, code=2).stderr.splitlines() == [
        "im2rec: error: set.lst:3: id 'x', expected a whole number from 0 to 2**64-1",
        "im2rec: error: set.lst:4: 1 field, expected id TAB label TAB path "
        "(separated by TAB, not by spaces)",
        "im2rec: error: set.lst:5: label 'cat', expected a number",
        "im2rec: error: set.lst:6: id 0 stands in line 1 already",
    ]


def test_nothing_on_stdout_but_data_and_nothing_at_all_with_q(tmp_path: Path, im2rec: Run) -> None:
    done = im2rec("make-list", "set", CLEAN)
    assert (done.stdout, done.stderr) == (
        "",
        "set.lst: 24 images\nset.classes.txt: 4 classes\n",
    )
    done = im2rec("pack", "set", CLEAN, "--resize", "8")
    assert done.stdout == ""
    assert re.fullmatch(r"set: 24 of 24 images packed, [0-9.]+ KiB\n", done.stderr)
    done = im2rec("verify", "set")
    assert done.stdout == ""
    assert re.fullmatch(r"set: 24 records, [0-9.]+ KiB: no problem\n", done.stderr)
    for command in (["make-list", "set", CLEAN], ["pack", "set", CLEAN], ["verify", "set"]):
        done = im2rec(*command, "-q")
        assert (done.stdout, done.stderr) == ("", "")
    assert im2rec("inspect", "-q", "set").stdout.startswith("set\n  records        24\n")


def test_failures_are_named_the_first_twenty_then_counted(tmp_path: Path, im2rec: Run) -> None:
    rows = [f"{n}\t0\tant/{'ant_0' if n == 0 else f'no_{n}'}.jpg\n" for n in range(31)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    done = im2rec("pack", "set", CLEAN, "--max-failures", "99%")
    lines = done.stderr.splitlines()
    assert lines[:20] == [f"ant/no_{n}.jpg: missing: there is no such file" for n in range(1, 21)]
    assert lines[20] == "10 more images failed; -v names them all"
    assert re.fullmatch(r"set: 1 of 31 images packed, [0-9.]+ KiB", lines[21])
    assert lines[22] == "im2rec: warning: left out: 30 images, listed in set.failures.tsv"
    lines = im2rec("pack", "set", CLEAN, "--max-failures", "99%", "-v").stderr.splitlines()
    assert len([line for line in lines if "missing" in line]) == 30


def test_too_many_failures_exit_1(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", BAD, "--include-hidden")
    done = im2rec("pack", "set", BAD, "--max-failures", "3", code=1)
    assert done.stderr.splitlines()[-1] == (
        "im2rec: error: set.lst: stopped after 4 of 12 images that cannot be packed, 3 allowed; "
        "nothing was written; mend them, list anew where files have gone, "
        "or leave them out with --max-failures N or P%; 100% lists all of them in "
        "PREFIX.failures.tsv"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set.classes.txt", "set.lst"]
    im2rec("pack", "set", BAD, "--max-failures", "100%")  # as it says
    failures = (tmp_path / "set.failures.tsv").read_text(encoding="utf-8").splitlines()
    assert len(failures) > 4


def test_a_family_of_lists_is_packed_and_its_empty_lists_are_not(
    tmp_path: Path, im2rec: Run
) -> None:
    im2rec("make-list", "set", CLEAN, "--train-ratio", "0.9", "--test-ratio", "0.01")
    assert (tmp_path / "set_test.lst").read_bytes() == b""
    done = im2rec("pack", "set", CLEAN)
    assert done.stderr.splitlines()[0] == (
        "im2rec: warning: set_test.lst: an empty list, passed over"
    )
    recs = sorted(path.name for path in tmp_path.glob("*.rec"))
    assert recs == ["set_train.rec", "set_val.rec"]
    manifest = json.loads((tmp_path / "set_val.manifest.json").read_bytes())
    assert manifest["classes"] == ["ant", "bee", "cat", "dog"]


def test_names_that_a_list_cannot_hold_exit_1(tmp_path: Path, im2rec: Run) -> None:
    root = os.fsencode(tmp_path / "root")
    os.makedirs(root + b"/a")
    image = (CLEAN / "ant/ant_0.jpg").read_bytes()
    for name in (b"tab\t.jpg", b"latin-\xe9.jpg", b"good \xc3\xa9.jpg"):
        with open(root + b"/a/" + name, "wb") as file:
            file.write(image)
    done = im2rec("make-list", "set", "root", code=1)
    assert "im2rec: error: a/latin-\\xe9.jpg: passed over: not UTF-8 in the name; rename it\n" in (
        done.stderr
    )
    assert "im2rec: error: a/tab\\t.jpg: passed over: a TAB in the name; rename it\n" in done.stderr
    assert (tmp_path / "set.lst").read_bytes() == "0\t0\ta/good é.jpg\n".encode()


def test_an_ascii_locale_changes_nothing(tmp_path: Path, im2rec: Run) -> None:
    root = tmp_path / "root"
    (root / "größe").mkdir(parents=True)
    (root / "größe" / "ñ.jpg").write_bytes((CLEAN / "ant/ant_0.jpg").read_bytes())
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    im2rec("make-list", "set", "root", env=plain)
    assert (tmp_path / "set.lst").read_bytes() == "0\t0\tgröße/ñ.jpg\n".encode()
    im2rec("pack", "set", "root", env=plain)
    assert "class 0        1  größe\n" in im2rec("inspect", "set", env=plain).stdout
    im2rec("verify", "--list", "set.lst", "set", env=plain)


def test_variables_set_defaults(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN, env={"IM2REC_MAKE_LIST_EXTS": ".png"})
    assert len((tmp_path / "set.lst").read_bytes().splitlines()) == 4
    im2rec("pack", "set", CLEAN, env={"IM2REC_PACK_RESIZE": "16", "IM2REC_PACK_SHARDS": "2"})
    options = json.loads((tmp_path / "set.manifest.json").read_bytes())["options"]
    assert (options["resize"], options["shards"]) == (16, 2)


@pytest.mark.parametrize(
    ("spelling", "stored"),
    [
        (["--inter-method", "3"], ("interpolation", "area")),
        (["--interpolation", "auto"], ("interpolation", "auto")),
        (["--unchanged"], ("pass_through", True)),
        (["--encoding", "PNG"], ("quality", 3)),
        (["--encoding", ".jpg"], ("quality", 95)),
        (["--color", "-1"], ("color", -1)),
        (["--num-thread", "2"], ("shards", None)),
        (["--shard-size", "1K"], ("shard_size", 1024)),
        (["--no-pack-label"], ("pack_label", False)),
    ],
)
def test_spellings_of_options(
    spelling: list[str], stored: tuple[str, object], tmp_path: Path, im2rec: Run
) -> None:
    (tmp_path / "set.lst").write_text("0\t0\tbee/bee_4.JPEG\n", encoding="utf-8")
    im2rec("pack", *spelling, "set", CLEAN)
    options = json.loads((tmp_path / "set.manifest.json").read_bytes())["options"]
    assert options[stored[0]] == stored[1]


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64K", 65536), ("64k", 65536), ("64KiB", 65536), ("64kB", 64000), ("1.5M", 1572864)]
    + [("2GB", 2 * 10**9), ("1GiB", 2**30), ("1 TiB", 2**40), ("10B", 10)],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize(("text", "value"), [("3", (3, False)), ("0.5%", (0.5, True))])
def test_failures(text: str, value: tuple[float, bool]) -> None:
    assert _Failures().convert(text, None, None) == value


# --- progress ---------------------------------------------------------------------------------


def test_progress_on_a_terminal_is_a_bar(tmp_path: Path) -> None:
    rows = [f"{n}\t0\tdog/dog_0.jpg\n" for n in range(600)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "im2rec", "pack", "set", str(CLEAN), "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=child, stdout=child)
    os.close(child)
    seen = b""
    while chunk := _read(parent):
        seen += chunk
    os.close(parent)
    assert process.wait() == 0
    assert re.search(rb"pack set\.lst: +\d+%\|.*\| \d+/600 \[.*images/s\]", seen)
    assert seen.splitlines()[-1].endswith(b"set: 600 of 600 images packed, 11.0 MiB")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # EIO: the other side of the terminal is closed
        return b""


# --- inspect and verify -----------------------------------------------------------------------


def test_inspect_json_is_one_array(im2rec: Run) -> None:
    packs = GOLDEN / "packs"
    done = im2rec("inspect", "--json", packs / "png/set.rec", packs / "multi_label/set")
    first, second = json.loads(done.stdout)
    assert (first["records"], first["kinds"], first["num_classes"]) == (24, {"png": 24}, 4)
    assert (second["label_width"], second["num_classes"]) == (3, None)


def test_inspect_records_as_lines_and_as_json(im2rec: Run) -> None:
    rec = GOLDEN / "packs/resize64/set.rec"
    lines = im2rec("inspect", "--records", rec).stdout.splitlines()
    as_json = [
        json.loads(line)
        for line in im2rec("inspect", "--records", "--json", rec).stdout.splitlines()
    ]
    assert len(lines) == len(as_json) == 24
    for line, record in zip(lines, as_json, strict=True):
        fields = line.split("\t")
        assert fields[:5] == [
            str(record[key]) for key in ("file", "offset", "length", "parts", "id")
        ]
        assert fields[5:] == [f"{record['labels'][0]:g}"] + [
            str(record[key]) for key in ("kind", "width", "height", "image_bytes")
        ]


def test_verify_prints_a_line_for_each_problem_and_exits_1(tmp_path: Path, im2rec: Run) -> None:
    data = bytearray((GOLDEN / "packs/resize64/set.rec").read_bytes())
    data[1] ^= 1
    (tmp_path / "set.rec").write_bytes(data)
    (tmp_path / "set.idx").write_bytes((GOLDEN / "packs/resize64/set.idx").read_bytes())
    done = im2rec("verify", "set", code=1)
    assert done.stdout.startswith("set.rec:0: magic: found 0a 22 d7 ce, expected the magic 0a 23")
    problems = json.loads(im2rec("verify", "--json", "set", code=1).stdout)[0]["problems"]
    assert len(problems) == len(done.stdout.splitlines())
    assert problems[0]["code"] == "magic"
    assert problems[0]["offset"] == 0


def test_labels_that_are_no_numbers_are_strings_in_json(tmp_path: Path, im2rec: Run) -> None:
    writer = recordio.MXRecordIO(tmp_path / "set.rec", "w")
    writer.write(recordio.pack(recordio.IRHeader(0, float("nan"), 1, 0), b"x"))
    writer.close()
    line = im2rec("inspect", "--records", "--json", "set").stdout
    assert json.loads(line, parse_constant=pytest.fail)["labels"] == ["nan"]


def test_lists_of_an_earlier_run_are_named(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN, "--chunks", "3")
    assert im2rec("make-list", "set", CLEAN, "--chunks", "2").stderr.splitlines()[3] == (
        "im2rec: warning: set_2.lst: of an earlier run; remove it, or `im2rec pack` may take it"
    )


def test_a_set_beside_its_parts_is_packed_alone_and_says_so(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("make-list", "set", CLEAN, "--train-ratio", "0.5")
    assert im2rec("pack", "set", CLEAN).stderr.startswith(
        "im2rec: warning: set.lst is packed; beside it and not packed: set_train.lst, set_val.lst\n"
    )


def test_parts_of_two_runs_are_not_packed_together(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN, "--train-ratio", "0.5", "--test-ratio", "0.25")
    im2rec("make-list", "set", CLEAN, "--train-ratio", "0.8")
    assert "remove lists of an earlier run" in im2rec("pack", "set", CLEAN, code=2).stderr
    assert list(tmp_path.glob("*.rec")) == []


def test_a_root_one_level_too_high_is_noticed(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "photos").symlink_to(CLEAN)
    assert "one class, with images in 4 folders below it: is ROOT one level too high?" in (
        im2rec("make-list", "set", "parent").stderr
    )


def test_a_prefix_that_is_a_folder_too_still_means_its_lists(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "photos").symlink_to(CLEAN)
    im2rec("make-list", "photos", "photos", "--train-ratio", "0.5")
    im2rec("pack", "photos", "photos")
    assert sorted(path.name for path in tmp_path.glob("*.rec")) == [
        "photos_train.rec",
        "photos_val.rec",
    ]


def test_what_is_no_record_file_is_not_inspected(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "notes.txt").write_text("no records here, none at all", encoding="utf-8")
    assert im2rec("inspect", "notes.txt", code=2).stderr == (
        "im2rec: error: notes.txt: there is no record in it, so it is no record file; "
        "name a .rec file\n"
    )
    im2rec("make-list", "set", CLEAN, "--train-ratio", "0.5")
    im2rec("pack", "set", CLEAN)
    assert (
        "name set_train or set_val, which are beside it" in im2rec("verify", "set", code=2).stderr
    )


def test_a_variable_named_like_version_does_nothing(im2rec: Run, tmp_path: Path) -> None:
    im2rec("make-list", "set", CLEAN, env={"IM2REC_VERSION": "1.0.0"})
    assert (tmp_path / "set.lst").exists()


def test_a_variable_for_resize_does_not_forbid_pass_through(im2rec: Run, tmp_path: Path) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--pass-through", "set", CLEAN, env={"IM2REC_PACK_RESIZE": "64"})


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(closed: str, im2rec: Run, tmp_path: Path) -> None:
    im2rec("make-list", "set", CLEAN)
    for command in (f"pack --resize 8 set {CLEAN}", "verify set"):
        line = f"{sys.executable} -m im2rec {command} {closed}"
        assert subprocess.run(["bash", "-c", line], cwd=tmp_path, check=False).returncode == 0


def test_a_reader_of_stderr_that_leaves_does_not_stop_the_run(im2rec: Run, tmp_path: Path) -> None:
    rows = [f"{n}\t0\tant/{'ant_0' if n % 2 else 'none'}.jpg\n" for n in range(60)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    command = f"{sys.executable} -m im2rec pack -v --max-failures 30 set {CLEAN} 2>&1 | true"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=tmp_path, check=False, timeout=60
    )
    assert done.returncode == 0
    assert (tmp_path / "set.rec").exists()


def test_large_labels_are_shown_whole(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "set.lst").write_text("0\t1234567\tant/ant_0.jpg\n", encoding="utf-8")
    im2rec("pack", "set", CLEAN)
    assert im2rec("inspect", "--records", "set").stdout.split("\t")[5] == "1234567"


def test_the_numbers_that_help_states_are_those_of_the_library() -> None:
    from im2rec import image_ops, make_list

    parameters = {
        parameter.name: parameter
        for command in cli.cli.commands.values()
        for parameter in command.params
    }
    assert parameters["max_pixels"].default == image_ops.MAX_PIXELS
    assert parameters["max_pixels"].type.max == image_ops.OPENCV_MAX_PIXELS  # type: ignore[attr-defined]
    assert parameters["seed"].default == make_list.DEFAULT_SEED
    assert tuple(image_ops.INTERPOLATIONS) == INTERPOLATION_NAMES
    numbers = {name: int(number) for number, name in INTERPOLATION_NUMBERS.items()}
    assert numbers == image_ops.INTERPOLATIONS
    assert ",".join(make_list.DEFAULT_EXTENSIONS) in (parameters["exts"].help or "")  # type: ignore[attr-defined]


def test_dct_scaling_goes_on_by_area(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--dct-scaling", "--resize", "16", "set", CLEAN)
    options = json.loads((tmp_path / "set.manifest.json").read_text("utf-8"))["options"]
    assert (options["dct_scaling"], options["interpolation"]) == (True, "area")
    scaled = (tmp_path / "set.rec").read_bytes()
    im2rec("pack", "--interpolation", "area", "--resize", "16", "set", CLEAN)
    assert (tmp_path / "set.rec").read_bytes() != scaled
    refused = im2rec(
        "pack", "--dct-scaling", "--resize", "16", "--interpolation", "linear", "set", CLEAN, code=2
    )
    assert refused.stderr == "im2rec: error: --dct-scaling reduces by area, not by linear\n"
    refused = im2rec("pack", "--dct-scaling", "--pass-through", "set", CLEAN, code=2)
    assert "excludes --dct-scaling" in refused.stderr


def test_numpy_starts_no_threads_that_would_forbid_to_fork(im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    threads = {"OPENBLAS_NUM_THREADS": "4"}
    im2rec("pack", "--start-method", "fork", "set", CLEAN, env=threads)
    im2rec("verify", "--decode", "--start-method", "fork", "set", env=threads)


def test_too_many_workers_are_told_of(im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    said = im2rec("pack", "--workers", "1000", "set", CLEAN).stderr
    assert "for each CPU would only be slower\n" in said
    assert "CPU" not in im2rec("pack", "--workers", "1", "set", CLEAN).stderr
    assert im2rec("pack", "-q", "--workers", "1000", "set", CLEAN).stderr == ""
    assert "CPU" in im2rec("verify", "--decode", "--workers", "1000", "set").stderr


def test_output_is_where_the_set_goes(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "set", CLEAN, "--resize", "8")
    (tmp_path / "out").mkdir()
    for name in ("out/one", "out/two.rec"):
        im2rec("pack", "set", CLEAN, "--resize", "8", "-o", name, "--depfile", f"{name}.d")
        stem = name.removesuffix(".rec")
        for ending in ("rec", "idx"):
            made = (tmp_path / f"{stem}.{ending}").read_bytes()
            assert made == (tmp_path / f"set.{ending}").read_bytes()
        rule = (tmp_path / f"{name}.d").read_text(encoding="utf-8")
        assert rule.startswith(f"{stem}.manifest.json:")
    im2rec("verify", "--list", "set.lst", "out/one")


def test_output_is_of_one_list(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN, "--chunks", "2")
    done = im2rec("pack", "set", CLEAN, "--output", "new", code=2)
    assert "--output goes with one list, and here are 2; name one" in done.stderr
    assert not list(tmp_path.glob("*.rec"))
