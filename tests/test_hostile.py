"""Lists and files made to do harm: the real command line says one clear thing, in little memory."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN

from im2rec.cli.verify import _problem_text
from im2rec.errors import Im2recError, InputError, ListError
from im2rec.framing import (
    HEAD,
    MAGIC,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    Record,
    RecordReader,
    frame,
    framed_size,
)
from im2rec.image_ops import ImageOptions
from im2rec.image_record import HEADER, encode
from im2rec.index import MAX_FAULTS, parse_index
from im2rec.inspection import Summary, inspect_set
from im2rec.list_family import find_lists
from im2rec.lst import MAX_PATH, MAX_ROW, Entry, ImageList, parse_row
from im2rec.pack import PackOptions, pack_list
from im2rec.record_set import find_set
from im2rec.verify import MAX_LISTED, VerifyOptions, verify_set

MEMORY = 600 << 20  # bytes of address space; the libraries of `verify` take 400 of them
LITTLE = 400 << 20  # bytes of it for what runs in the tests' own process
SECONDS = 30  # more than enough on a slow machine; what this file is about would take hours
DOG = CLEAN / "dog" / "dog_0.jpg"
RECORD = frame(encode(7, [1], b"image"))
SOME = "a.rec"


class Files:
    """A folder of files, and the command line run in it with little memory and time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, **files: bytes) -> None:
        for name, data in files.items():
            (self.folder / name.replace("_", ".")).write_bytes(data)

    def run(self, *arguments: str, memory: int = MEMORY) -> tuple[int, str, str]:
        """The exit code, stdout and stderr."""
        done = subprocess.run(
            [sys.executable, "-m", "im2rec", *arguments],
            cwd=self.folder,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    def pack(self, rows: bytes, **options: Any) -> tuple[int, str]:
        """How many images were packed, and what the command line would say, in this process."""
        (self.folder / "a.lst").write_bytes(rows)
        try:
            with little_memory():
                lists = find_lists("a")
                report = pack_list(*lists, "root", PackOptions(workers=1, fsync=False, **options))
        except Im2recError as error:
            return 0, "".join(f"im2rec: error: {line}\n" for line in str(error).split("\n"))
        return report.packed, ""

    def verify(self, name: str, list_path: str | None = None) -> list[str]:
        """What verify finds, in this process."""
        with little_memory():
            report = verify_set(find_set(name), VerifyOptions(list_path))
        return [_problem_text(problem) for problem in report.problems]

    def inspect(self, name: str) -> Summary | str:
        """What inspect finds or says, in this process."""
        try:
            with little_memory():
                return inspect_set(find_set(name))
        except Im2recError as error:
            return str(error)


@contextmanager
def little_memory() -> Iterator[None]:
    """For a while, this process can take no more than LITTLE beside what it has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (has + LITTLE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "dog.jpg").write_bytes(DOG.read_bytes())
    return Files(tmp_path)


# --- lists ------------------------------------------------------------------------------------

ERROR = "im2rec: error: a.lst"
ROWS = {
    "ids past both ends": (
        b"-1\t0\tx\n18446744073709551616\t0\tx\n" + b"9" * 5000 + b"\t0\tx\n+1\t0\tx\n1e3\t0\tx\n",
        f"{ERROR}:1: id '-1', expected a whole number from 0 to 2**64-1\n"
        f"{ERROR}:2: id 18446744073709551616, expected at most 18446744073709551615 (2**64-1)\n"
        f"{ERROR}:3: id '{'9' * 40}'..., expected a whole number from 0 to 2**64-1\n"
        f"{ERROR}:4: id '+1', expected a whole number from 0 to 2**64-1\n"
        f"{ERROR}:5: id '1e3', expected a whole number from 0 to 2**64-1\n",
    ),
    "digits that are not ASCII": (
        "١\t0\tx\n1\t١\tx\n".encode(),
        f"{ERROR}:1: id '١', expected a whole number from 0 to 2**64-1\n"
        f"{ERROR}:2: label '١', expected a number\n",
    ),
    "NUL at the start": (b"\0\t1\tx\n", f"{ERROR}: a binary file, expected a list (.lst)\n"),
    "NUL in a path": (
        b"1\t1\tdogs/dog.jpg\n2\t1\tdo\0g\n",
        f"{ERROR}:2: the path 'do\\x00g' has a NUL byte\n",
    ),
    "NUL in a label": (
        b"1\t1\tdogs/dog.jpg\n2\t1\0\tdog\n",
        f"{ERROR}:2: label '1\\x00', expected a number\n",
    ),
    "paths that are not UTF-8": (
        b"1\t1\t\xff\xfe.jpg\n2\t1\t\xed\xa0\x80.jpg\n3\t1\t\xc0\xaf\n4\t1\tgl\xfch\n",
        f"{ERROR}:1: the path '\\xff\\xfe.jpg' is not UTF-8\n"
        f"{ERROR}:2: the path '\\xed\\xa0\\x80.jpg' is not UTF-8\n"
        f"{ERROR}:3: the path '\\xc0\\xaf' is not UTF-8\n"
        f"{ERROR}:4: the path 'gl\\xfch' is not UTF-8\n",
    ),
    "UTF-16": (
        "1\t0\ta\n".encode("utf-16"),
        f"{ERROR}: the list is UTF-16, expected UTF-8; save it as UTF-8\n",
    ),
    "UTF-16 without its mark": (
        "1\t0\ta\n".encode("utf-16-be"),
        f"{ERROR}: a binary file, expected a list (.lst)\n",
    ),
    "a label of 5 MB": (
        b"1\t" + b"1" * 5_000_000 + b"\tx\n",
        f"{ERROR}:1: label '{'1' * 40}'..., expected a number that float32 can hold\n",
    ),
    "a path of 5 MB": (
        b"1\t1\t" + b"../" * 1_600_000 + b"x\n",
        f"{ERROR}:1: the path '{'../' * 13}.'... has 4800001 bytes, expected at most 32767\n",
    ),
    "control characters and line ends of Unicode": (
        "1\t0\t../\x1b[2J\u2028\x85\x0b\x7f\u202e\n".encode(),
        f"{ERROR}: paths that leave ROOT: line 1 (../\\x1b[2J\\u2028\\x85\\x0b\\x7f\\u202e); "
        "make them relative to ROOT, or use --allow-outside-root\n",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_hostile_row_is_told_with_its_line(files: Files, name: str) -> None:
    rows, told = ROWS[name]
    assert files.pack(rows) == (0, told)
    assert sorted(os.listdir(files.folder)) == ["a.lst", "root"]


def test_ids_at_both_ends_are_packed(files: Files) -> None:
    assert files.pack(b"0\t1\tdog.jpg\n18446744073709551615\t1\tdog.jpg\n") == (2, "")
    assert files.verify("a", "a.lst") == []
    assert inspect_set(find_set(f"{files.folder}/a")).ids == (0, 2**64 - 1)


def test_a_million_labels_are_packed(files: Files) -> None:
    files.write(a_lst=b"1\t" + b"1\t" * 1_000_000 + b"dog.jpg\n")
    assert files.run("pack", "a", "root", "--workers", "1")[0] == 0
    data = (files.folder / "a.rec").read_bytes()
    assert HEADER.unpack_from(data, HEAD.size) == (1_000_000, 0, 1, 0)


def long_row(size: int) -> bytes:
    row = b"2\t" + b"1\t" * (size // 2 - 5) + b"dog.jpg"
    return row + b"x" * (size - len(row))


@pytest.mark.parametrize(
    ("first", "last"), [(b"", b""), (b"1\t1\tdog.jpg\r\n", b"\n3\t1\tx")], ids=["alone", "second"]
)
def test_a_row_of_100_mb_is_told_in_little_memory(files: Files, first: bytes, last: bytes) -> None:
    line = 1 + bool(first)
    told = f"{ERROR}:{line}: a row of more than 16777216 bytes, expected id TAB label TAB path\n"
    files.write(a_lst=first + long_row(100_000_000) + last)
    assert files.run("pack", "a", "root") == (2, "", told)


@pytest.mark.parametrize(
    ("mark", "end"), [(b"", b""), (b"", b"\n9\t1\tx\n"), (b"\xef\xbb\xbf", b"\r\n")]
)
def test_the_longest_row_is_read_and_the_next_is_not(mark: bytes, end: bytes) -> None:
    row = b"2\t0." + b"1" * (MAX_ROW - 12) + b"\tdog.jpg"
    assert len(row) == MAX_ROW
    entries = list(ImageList("a.lst", mark + row + end))
    assert entries[0].id == 2
    assert len(entries) == 1 + (b"9" in end)
    with pytest.raises(ListError, match=r"^a.lst:1: a row of more than 16777216 bytes, [^\n]*$"):
        ImageList("a.lst", mark + row + b"g" + end)


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u732b", "\U0001f41b"])
def test_the_longest_path_is_read_and_the_next_is_not(letter: str) -> None:
    path = letter * (MAX_PATH // len(letter.encode()))
    path += "y" * (MAX_PATH - len(path.encode()))
    assert list(ImageList("a.lst", f"1\t0\t{path}\n".encode())) == [Entry(1, (0.0,), path)]
    with pytest.raises(ListError, match="has 32768 bytes, expected at most 32767"):
        ImageList("a.lst", f"1\t0\t{path}z\n".encode())
    with pytest.raises(ValueError, match="has 32768 bytes"):
        parse_row(f"1\t0\t{path}z".encode())


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: os.mkfifo(path), "a.lst: not a regular file"),
        (lambda path: os.symlink("/dev/zero", path), "a.lst: not a regular file"),
        (lambda path: os.symlink("a.lst", path), "a.lst: not a regular file"),
    ],
    ids=["FIFO", "device", "loop"],
)
def test_what_is_no_file_is_no_list(files: Files, make: Callable[[Path], None], told: str) -> None:
    make(files.folder / "a.lst")
    with pytest.raises(InputError, match=told):
        find_lists("a.lst" if os.path.exists("a.lst") else "a")


def test_a_device_is_no_list_to_verify_by(files: Files) -> None:
    files.write(a_rec=RECORD)
    code, _, told = files.run("verify", "a", "--list", "/dev/urandom")
    assert (code, told) == (2, "im2rec: error: /dev/urandom: a device, expected a list (.lst)\n")


def test_a_list_from_a_pipe_is_read(files: Files) -> None:
    files.write(a_rec=RECORD)
    command = f"printf '7\\t1\\tx\\n' | {sys.executable} -m im2rec verify a --list /dev/stdin"
    subprocess.run(command, shell=True, cwd=files.folder, check=True, timeout=SECONDS)


# --- paths ------------------------------------------------------------------------------------


@pytest.fixture
def links(files: Files) -> Files:
    """Beside ROOT a secret image; in it links out of it and inside it."""
    (files.folder / "secret").mkdir()
    (files.folder / "secret" / "s.jpg").write_bytes(DOG.read_bytes())
    root = files.folder / "root"
    for name in ("sub/deep", "x"):
        (root / name).mkdir(parents=True)
    for name in ("sub", "x", "..b"):
        (root / f"{name}.jpg").write_bytes(DOG.read_bytes())
    (root / "sub" / "..b.jpg").write_bytes(DOG.read_bytes())
    (root / "out").symlink_to("../secret")
    (root / "in").symlink_to("sub/deep")
    (root / "loop").symlink_to("loop")
    (root / "top").symlink_to(".")
    return files


@pytest.mark.parametrize(
    "path",
    [
        "../secret/s.jpg",
        "sub/../../secret/s.jpg",
        "out/../secret/s.jpg",
        "out/../root/dog.jpg/../../secret/s.jpg",
        "in/../../../secret/s.jpg",
        "top/../secret/s.jpg",
        "top/top/top/../secret/s.jpg",
        "./.././secret/s.jpg",
        "//../secret/s.jpg",
        "x/..//..//secret/s.jpg",
        "..",
        "out/..",
        "/etc/passwd",
        "ABOVE/secret/s.jpg",
        "../" * 10_000 + "etc/passwd",
    ],
)
def test_a_path_out_of_root_is_refused(links: Files, path: str) -> None:
    path = path.replace("ABOVE", str(links.folder))
    assert links.pack(f"5\t0\tdog.jpg\n1\t0\t{path}\n".encode()) == (
        0,
        f"{ERROR}: paths that leave ROOT: line 2 ({path[:80]}); "
        "make them relative to ROOT, or use --allow-outside-root\n",
    )


def test_a_path_that_stays_in_root_is_packed(links: Files) -> None:
    """Whatever points are in its names; a link that stands in ROOT may lead anywhere."""
    paths = [
        "sub/../dog.jpg",
        "in/../..b.jpg",
        "x/../..b.jpg",
        "..b.jpg",
        "in/../../dog.jpg",
        f"{links.folder}/root/dog.jpg",
        "out/s.jpg",
    ]
    rows = "".join(f"{number}\t0\t{path}\n" for number, path in enumerate(paths))
    assert links.pack(rows.encode()) == (len(paths), "")


def test_what_is_no_image_file_is_left_out(links: Files) -> None:
    """None is waited for or read to an end that never comes."""
    root = links.folder / "root"
    os.mkfifo(root / "fifo")
    for name in ("zero", "urandom", "null", "full"):
        (root / name).symlink_to(f"/dev/{name}")
    (root / "mem").symlink_to("/proc/self/mem")
    with open(root / "sparse.jpg", "wb") as file:
        file.truncate(1 << 40)
    odd = {
        "fifo": "not a regular file but a FIFO",
        "zero": "not a regular file but a device",
        "urandom": "not a regular file but a device",
        "null": "not a regular file but a device",
        "full": "not a regular file but a device",
        "sub": "not a regular file but a folder",
        "x/..": "not a regular file but a folder",
        "loop": "unreadable: too many levels of symbolic links",
        "dog.jpg/x": "unreadable: not a directory",
        "n" * 300: "unreadable: file name too long",
        "y/" * 3000: "unreadable: file name too long",
        "sparse.jpg": "too large: a file of 1099511627776 bytes",
        "\x1b[2J\u2028\u202e": "missing: there is no such file",
        "caf\u00e9": "missing: there is no such file",
        "cafe\u0301": "missing: there is no such file",
    }
    rows = "".join(f"{number}\t0\t{path}\n" for number, path in enumerate(odd))
    links.write(a_lst=(rows + "99\t0\tdog.jpg\n").encode())
    code, _, told = links.run("pack", "a", "root", "--max-failures", "99")
    assert code == 0, told
    lines = told.splitlines()[:-2]
    shown = {"\x1b[2J\u2028\u202e": "\\x1b[2J\\u2028\\u202e"}
    assert lines == [f"{shown.get(path, path)}: {reason}" for path, reason in odd.items()]
    failures = (links.folder / "a.failures.tsv").read_text("utf-8").removesuffix("\n").split("\n")
    assert [line.split("\t")[1:] for line in failures] == [list(each) for each in odd.items()]


# --- record files -----------------------------------------------------------------------------


def head(cflag: int, length: int) -> bytes:
    return HEAD.pack(MAGIC, cflag << 29 | length)


@pytest.mark.parametrize(
    ("rec", "found"),
    [
        (
            head(0, MAX_PAYLOAD),
            "a.rec:0: truncated: a record of 536870911 bytes, padded to 536870912, but the file "
            "ends after 0; 8 bytes from 0 on are lost, to the end of the file",
        ),
        (
            head(1, MAX_PAYLOAD) + bytes(100),
            "a.rec:0: truncated: a record of 536870911 bytes, padded to 536870912, but the file "
            "ends after 100; 108 bytes from 0 on are lost, to the end of the file",
        ),
        (
            RECORD + head(1, 0) + head(2, 1 << 28),
            f"a.rec:{len(RECORD) + 8}: truncated: a record of 268435456 bytes, padded to "
            f"268435456, but the file ends after 0; 16 bytes from {len(RECORD)} on are lost, to "
            "the end of the file",
        ),
        (
            frame(struct.pack("<IfQQ", 2**32 - 1, 0, 1, 0) + b"xx"),
            "a.rec:0: header: the header announces 4294967295 labels (17179869180 bytes), but 2 "
            "bytes follow",
        ),
        (
            head(0, 4) + b"\xff" * 4 + head(7, 0),
            "a.rec:0: header: 4 bytes, expected at least the 24 of an image record's header",
        ),
    ],
    ids=["claim", "claim of a part", "claim of a later part", "labels", "short"],
)
def test_a_length_that_lies_takes_no_memory(files: Files, rec: bytes, found: str) -> None:
    files.write(a_rec=rec)
    assert found in files.verify(SOME)
    summary = files.inspect(SOME)
    assert isinstance(summary, Summary)
    assert summary.records == summary.unreadable + (RECORD in rec)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"7\t-8", "index-line: line 1: found '7\\t-8', expected key TAB offset"),
        (b"-7\t0", "index-line: line 1: found '-7\\t0', expected key TAB offset"),
        (b"7\t40", "index-offset: id 7: line 1: key 7, offset 40: no record begins there"),
        (
            b"7\t9223372036854775808",
            "index-offset: id 7: line 1: key 7, offset 9223372036854775808: no record begins there",
        ),
        (b"7\t" + b"9" * 40, f"index-line: line 1: found '7\\t{'9' * 38}'..., expected key TAB "),
        (b"\0\t\0", "index-line: line 1: found '\\x00\\t\\x00', expected key TAB offset"),
        (b"7\t0x0", "index-line: line 1: found '7\\t0x0', expected key TAB offset"),
        (b"7" * 900_000, f"index-line: line 1: found '{'7' * 40}'..., expected key TAB offset"),
    ],
)
def test_a_hostile_line_of_an_index_is_told(files: Files, line: bytes, found: str) -> None:
    files.write(a_rec=RECORD, a_idx=line + b"\n")
    told = files.verify("a")
    assert told[0].startswith(f"a.idx: {found}")
    assert told[-1] == "a.idx: index-missing: id 7: no line for the record at offset 0"
    assert isinstance(files.inspect("a"), Summary)


def test_an_index_far_too_large_is_not_read(files: Files) -> None:
    files.write(a_rec=RECORD)
    with open(files.folder / "a.idx", "wb") as file:
        file.truncate(1 << 40)
    assert files.verify("a") == [
        "a.idx: index-unreadable: 1099511627776 bytes are no index of 1 records; it was not read"
    ]
    code, shown, _ = files.run("inspect", "a")
    assert code == 0
    assert "1099511627776 bytes, too many for 1 records" in shown


@pytest.mark.parametrize("data", [b"\n" * 1_000_000, b"x\n" * 500_000], ids=["blank", "x"])
def test_an_index_of_malformed_lines_is_read_no_further(files: Files, data: bytes) -> None:
    files.write(a_rec=RECORD, a_idx=data)
    found = files.verify("a")
    assert len(found) == MAX_FAULTS + 2
    assert found[-2] == (
        "a.idx: index-line: line 10001: more than 10000 lines are malformed, so the rest is not "
        "read"
    )
    summary = files.inspect("a")
    assert isinstance(summary, Summary)
    assert summary.index == ["malformed at line 1"]


def test_a_large_index_of_a_large_file_is_read() -> None:
    entries, faults = parse_index(b"x\n" * MAX_FAULTS + b"1\t2\n", "a.idx")
    assert (entries, len(faults)) == ([(1, 2)], MAX_FAULTS)


BESIDE = ("a.manifest.json", "a.classes.txt", "a.idx", "a.failures.tsv")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 29 if path.suffix == ".tsv" else 1 << 40)


@pytest.mark.parametrize("make", [fifo, endless, sparse])
@pytest.mark.parametrize("name", BESIDE)
def test_hostile_files_beside_a_set_are_not_read_or_waited_for(
    files: Files, name: str, make: Callable[[Path], None]
) -> None:
    files.write(a_rec=RECORD, l_lst=b"7\t1\tx\n")
    make(files.folder / name)
    summary = files.inspect("a")
    if name == "a.classes.txt":
        reason = "not a regular file"
        if make is sparse:
            reason = "cannot read the class map: it has more than 67108864 bytes"
        assert summary == f"a.classes.txt: {reason}"
    else:
        assert isinstance(summary, Summary)
        assert summary.records == 1
    found = files.verify("a", "l.lst")
    reason = "not a regular file"
    if name == "a.manifest.json":
        if make is sparse:
            reason = "it has more than 67108864 bytes"
        assert found == [f"a.manifest.json: manifest: not a manifest: {reason}"]
    elif name == "a.idx" and make is not sparse:
        assert found == ["a.idx: index-unreadable: not a regular file"]
    else:
        assert bool(found) == (name == "a.idx")
    packed, _ = files.pack(b"7\t1\tdog.jpg\n")  # what is only replaced is not read
    assert packed == (name != "a.classes.txt")


def test_a_manifest_cannot_take_the_time_of_many_files(files: Files) -> None:
    shard = {"rec": "a.rec", "idx": "a.idx", "records": 1, "bytes": 40, "sha256": "0" * 64}
    files.write(a_rec=RECORD, a_manifest_json=b"")
    manifest = {"shards": [shard] * 10_000, "rows": int("9" * 4000), "packed": 10**4200}
    (files.folder / "a.manifest.json").write_text(json.dumps(manifest), "utf-8")
    summary = files.inspect("a")
    assert isinstance(summary, Summary)
    assert (summary.records, summary.files) == (1, ["a.rec"])
    assert "a.manifest.json: manifest: 'rows' is not there, or not what it should be" in (
        files.verify("a")
    )


def tangle(kind: str, count: int) -> bytes:
    """Heads one behind the other, each of which leads to the same end."""
    end = 8 * count
    if kind == "parts":
        half = 4 * count
        firsts = b"".join(head(1, half - at - 8) for at in range(0, half, 8))
        return firsts + head(2, 0) * (count // 2)
    lengths = [end - at - 8 for at in range(0, end, 8)]
    if kind == "padding":
        return b"".join(head(0, max(length - 3, 0)) for length in lengths) + b"\1" * 4
    if kind == "cut":
        return b"".join(head(1, length) for length in lengths) + head(7, 0)
    return b"".join(head(0, length) for length in lengths)


@pytest.mark.parametrize("kind", ["parts", "padding", "cut", "whole"])
def test_records_that_all_lead_to_one_end_take_no_time_of_each_other(
    files: Files, kind: str
) -> None:
    """Each head read anew to its end would be 4 GB for these 256 KB, and four times that for twice
    as much."""
    data = tangle(kind, 1 << 15) + RECORD
    files.write(a_rec=data)
    told = files.verify(SOME)
    assert f"{len(data)} bytes" not in "".join(told)
    with open(SOME, "rb") as stream:
        records = list(RecordReader(stream, SOME).salvage(lambda _, __: None))
    assert isinstance(records[-1], Record)
    assert records[-1].payload == encode(7, [1], b"image")  # what stands behind the tangle is found


def test_sound_records_inside_a_small_tangle_are_all_found(tmp_path: Path) -> None:
    path = tmp_path / SOME
    path.write_bytes(tangle("cut", 20)[:-8] + head(1, 0) + RECORD * 3)
    with open(path, "rb") as stream:
        records = list(RecordReader(stream, SOME).salvage(lambda _, __: None))
    assert [each.offset for each in records] == [168, 208, 248]


def test_a_cut_record_longer_than_any_is_not_put_together(tmp_path: Path) -> None:
    size = 1 << 29
    with open(tmp_path / SOME, "wb") as file:
        file.write(head(1, size - 8))
        file.seek(size)
        file.write(head(3, 8) + b"too much" + RECORD)
    faults = []
    with open(tmp_path / SOME, "rb") as stream:
        reader = RecordReader(stream, SOME)
        records = list(reader.salvage(lambda error, head: faults.append((error.found, head))))
    found = "a cut record of more than 536870911 bytes, which the format cannot hold"
    assert faults == [(found, size + 16)]
    assert [each.offset for each in records if isinstance(each, Record)] == [size + 16]


@pytest.mark.parametrize("payload", [b"", b"x", MAGIC_BYTES, MAGIC_BYTES * 9 + b"y", b"z" * 9])
def test_the_size_of_a_record_is_known_without_it(payload: bytes) -> None:
    assert framed_size(payload) == len(frame(payload))


def test_an_image_of_nothing_but_magics_is_packed(files: Files) -> None:
    """Each of them is a cut; pieces of Python would be 40 times the file."""
    image = DOG.read_bytes()
    image += bytes(-len(image) % 4) + MAGIC_BYTES * 200_000
    (files.folder / "root" / "magics.jpg").write_bytes(image)
    image_options = ImageOptions(pass_through=True)
    assert files.pack(b"1\t0\tmagics.jpg\n", image=image_options) == (1, "")
    with open(files.folder / SOME, "rb") as stream:
        record = RecordReader(stream, SOME).read()
    assert record is not None
    assert record.payload == encode(1, [0], image)
    assert record.parts == 200_001


def test_more_problems_than_anyone_reads_are_counted(tmp_path: Path) -> None:
    (tmp_path / SOME).write_bytes(frame(b"") * (MAX_LISTED + 5))
    report = verify_set(find_set(str(tmp_path / SOME)), VerifyOptions())
    assert len(report.problems) == MAX_LISTED + 1
    last = report.problems[-1]
    assert (last.code, last.offset) == ("header", None)
    assert last.sentence == "5 more problems of this kind, too many to list"


def test_what_a_codec_says_cannot_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(b"P6 \x1b[2J\x07\t9 255\n")
    (tmp_path / "dog.jpg").write_bytes(DOG.read_bytes())
    (tmp_path / "a.lst").write_bytes(b"1\t0\ta.ppm\n2\t0\tdog.jpg\n")
    options = PackOptions(max_failures=1, workers=1, fsync=False)
    report = pack_list(str(tmp_path / "a.lst"), str(tmp_path), options)
    assert report.failures[0].reason.isprintable()
