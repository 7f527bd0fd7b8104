"""Dependency files, as Make and Ninja themselves read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import CLEAN, Run
from hypothesis import given
from hypothesis import strategies as st

from im2rec.dependencies import dependency_file
from im2rec.depfile import format_rule, is_rules, writable

NAMES = [
    "plain", "a b", "a  b", " lead", "a#b", "a$b", "a:b", "$(x)", "a\\b", "a\\ b", "a\\\\ b",
    "a\\#b", "a[1].jpg", "a~b", "~a", "é", "a*b", "a?b", "a'b", 'a"b', "a&b", "(a)", "a,b", "a!b",
    "a@b", "{a}", "<a>", "^a", "a`b", "中文", "a+b", "-a",
]  # fmt: skip
UNWRITABLE = ["a;b", "a|b", "a=b", "a%b", "a\tb", "a\nb", "end\n", "a\r", "end\\", "end ", "a\\b *"]
MAKEFILE = "OUT:\n\ttouch OUT; echo made >> log\n-include deps\n"
NINJA = (
    "rule make\n  command = cp deps OUT.d && touch OUT && echo made >> log\n  depfile = OUT.d\n"
    "build OUT: make\n"
)


NINJA_PROGRAM = Path(sys.executable).parent / "ninja"  # from its package on PyPI


class Tool:
    """One of the two, in a folder whose file OUT depends on a file of some name."""

    def __init__(self, name: str, folder: Path, source: str) -> None:
        self.name, self.folder, self.source = name, folder, folder / source
        (folder / "Makefile").write_text(MAKEFILE, encoding="utf-8")
        (folder / "build.ninja").write_text(NINJA, encoding="utf-8")
        (folder / "list").touch()
        self.source.touch()
        (folder / "a1.jpg").touch()  # what a[1].jpg would stand for as a pattern
        lines = format_rule("OUT", ["list", source])
        (folder / "deps").write_text("".join(lines), encoding="utf-8", newline="\n")

    def makes(self) -> bool:
        """Whether it finds something to do."""
        log = self.folder / "log"
        before = log.stat().st_size if log.exists() else 0
        done = subprocess.run(
            ["make", "OUT"] if self.name == "make" else [str(NINJA_PROGRAM)],
            cwd=self.folder,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return log.stat().st_size > before


# Not every version of Ninja takes these for a part of a name, nor Make an archive's member: they
# may then find something to do where there is nothing, but never too little.
NOT_FOR_NINJA = set("*?'\"&<>^`") | {"a\\#b", "a\\:b", "a[1].jpg"}
NOT_FOR_MAKE = {"$(x)"}


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("name", ["make", "ninja"])
def test_what_depends_on_a_file_is_made_again_when_that_has_changed(
    name: str, source: str, tmp_path: Path
) -> None:
    assert writable(source)
    tool = Tool(name, tmp_path, source)
    assert tool.makes()
    odd = NOT_FOR_NINJA if name == "ninja" else NOT_FOR_MAKE
    if source not in odd and not set(source) & odd:
        assert not tool.makes()
    time.sleep(0.02)
    os.utime(tool.source)
    assert tool.makes()
    tool.source.unlink()
    assert tool.makes()


@pytest.mark.parametrize("source", UNWRITABLE)
def test_some_names_cannot_be_written(source: str) -> None:
    assert not writable(source)


WRITABLE = st.text(st.sampled_from("ab .:#$\\\\*[é"), min_size=1).filter(writable)
RULES = st.lists(st.tuples(WRITABLE, st.lists(WRITABLE, min_size=1)), min_size=1)


@given(rules=RULES)
def test_what_is_written_is_known_again(rules: list[tuple[str, list[str]]]) -> None:
    lines = "".join("".join(format_rule(*rule)) for rule in rules).encode().splitlines(True)
    assert is_rules(lines)


@given(rules=RULES, data=st.data(), odd=st.sampled_from([b"\ttouch x\n", b"all: a\n", b"# a\n"]))
def test_rules_with_anything_else_in_them_are_another_s(
    rules: list[tuple[str, list[str]]], data: st.DataObject, odd: bytes
) -> None:
    lines = "".join("".join(format_rule(*rule)) for rule in rules).encode().splitlines(True)
    at = data.draw(st.integers(0, len(lines)))
    assert not is_rules([*lines[:at], odd, *lines[at:]])


@pytest.mark.parametrize(
    "text",
    [
        b"all: \\\n  set.rec\n\ttouch x\n",
        b"all: \\\n  set.rec\n",
        b"all: \\\n  set.rec\n\nset.rec:\n\ttouch set.rec\n",
        b"all: \\\n  set.rec\n\nset.lst:\n",
        b"all: \\\n  a \\\n  b\n\na:\n",
        b"all: \\\n  a\n\na",
        b"all: \\\nall: \\\n",
        b"# all: \\\n",
        b"a.o: a.c a.h\n\na.h:\n",
        b"\xff\xd8\xff",
        b"\n",
    ],
)
def test_what_others_write_is_no_such_rule(text: bytes) -> None:
    assert not is_rules(text.splitlines(True))


# --- pack --depfile ---------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path, im2rec: Run) -> Path:
    shutil.copytree(CLEAN, tmp_path / "my photos")
    im2rec("make-list", "--train-ratio", "0.5", "set", "my photos")
    return tmp_path / "my photos"


def sources(photos: Path, name: str) -> list[str]:
    rows = (photos.parent / f"{name}.lst").read_text("utf-8").splitlines()
    return [f"my\\ photos/{row.split(chr(9))[2]}" for row in rows]


def test_each_set_depends_on_its_list_the_classes_and_its_images(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    im2rec("pack", "--depfile", "deps", "set", "my photos")
    rules = []
    for name in ("set_train", "set_val"):
        names = [f"{name}.lst", "set.classes.txt", *sources(photos, name)]
        rules.append(
            f"{name}.manifest.json: \\\n  "
            + " \\\n  ".join(names)
            + "\n"
            + "".join(f"\n{each}:\n" for each in names)
        )
    assert (tmp_path / "deps").read_bytes().decode() == "".join(rules)


def test_the_target_can_be_named(photos: Path, im2rec: Run, tmp_path: Path) -> None:
    im2rec("pack", "--depfile", "deps", "--depfile-target", "a stamp", "set_val", "my photos")
    assert (tmp_path / "deps").read_bytes().startswith(b"a\\ stamp: \\\n  set_val.lst \\\n")
    done = im2rec("pack", "--depfile-target", "stamp", "set_val", "my photos", code=2)
    assert done.stderr == ("im2rec: error: --depfile-target means nothing without --depfile\n")


def test_a_run_that_fails_leaves_the_older_one(photos: Path, im2rec: Run, tmp_path: Path) -> None:
    (tmp_path / "deps").write_bytes(b"older: \\\n")
    (photos / sources(photos, "set_train")[0].removeprefix("my\\ photos/")).unlink()
    im2rec("pack", "--depfile", "deps", "set_train", "my photos", code=1)
    assert (tmp_path / "deps").read_bytes() == b"older: \\\n"
    assert not list(tmp_path.glob(".*"))


def test_a_file_that_cannot_be_written_is_found_before_the_work(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    done = im2rec("pack", "--depfile", "none/deps", "set_val", "my photos", code=2)
    assert done.stderr == (
        "im2rec: error: none/deps: cannot write: there is no folder 'none'; make it\n"
    )
    assert not (tmp_path / "set_val.rec").exists()


def test_a_file_that_is_no_dependency_file_is_not_replaced(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    image = photos / "ant" / "ant_0.jpg"
    (tmp_path / "Makefile").write_text("all: set_val.rec\n", encoding="utf-8")
    before = image.read_bytes()
    for name in ("my photos/ant/ant_0.jpg", "Makefile", "/dev/null"):
        done = im2rec("pack", "--depfile", name, "set_val", "my photos", code=2)
        assert done.stderr == (
            f"im2rec: error: {name}: cannot write: it is there, and is no dependency file; "
            "name another\n"
        )
    assert image.read_bytes() == before
    (tmp_path / "lock").touch()
    for _ in range(2):  # any other name will do
        im2rec("pack", "--depfile", "lock", "set_val", "my photos")
        assert (tmp_path / "lock").read_bytes().startswith(b"set_val.manifest.json: \\\n")
        assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("target", ["a file", "/dev/null", "nothing"])
def test_a_symbolic_link_is_not_replaced(
    target: str, photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    """As root, that might be /dev/stdout."""
    (tmp_path / "a file").touch()
    (tmp_path / "deps").symlink_to(target)
    done = im2rec("pack", "--depfile", "deps", "set_val", "my photos", code=2)
    assert done.stderr == (
        "im2rec: error: deps: cannot write: it is a symbolic link; name a file\n"
    )
    assert os.readlink(tmp_path / "deps") == target
    assert (tmp_path / "a file").read_bytes() == b""
    assert not (tmp_path / "set_val.rec").exists()


def test_a_makefile_that_begins_as_a_dependency_file_is_not_replaced(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    text = b"all: \\\n  set_val.rec\n\nset_val.rec:\n\tim2rec pack set_val photos\n"
    (tmp_path / "Makefile").write_bytes(text)
    done = im2rec("pack", "--depfile", "Makefile", "set_val", "my photos", code=2)
    assert done.stderr == (
        "im2rec: error: Makefile: cannot write: it is there, and is no dependency file; "
        "name another\n"
    )
    assert (tmp_path / "Makefile").read_bytes() == text


def test_one_of_other_sets_and_another_target_is_replaced(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    im2rec("pack", "--depfile", "deps", "set", "my photos")
    im2rec("pack", "--depfile", "deps", "--depfile-target", "stamp", "set_val", "my photos")
    assert (tmp_path / "deps").read_bytes().startswith(b"stamp: \\\n  set_val.lst \\\n")


@pytest.mark.parametrize("depfile", ["./set_val", "link/set_val", "my photos/../set_val"])
def test_the_set_s_own_name_is_known_in_any_spelling(
    depfile: str, photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    done = im2rec("pack", "--depfile", depfile, "set_val", "my photos", code=2)
    assert done.stderr == (
        f"im2rec: error: --depfile '{depfile}' would be one of the set's files; choose another\n"
    )


@pytest.mark.parametrize("depfile", ["out/new", "out/../out/new", "out/property"])
def test_what_the_set_is_written_to_is_known_too(
    depfile: str, photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    layout = ["--layout", "insightface"] if "property" in depfile else []
    options = ["--depfile", depfile, "--output", "out/new", *layout]
    done = im2rec("pack", *options, "set_val", "my photos", code=2)
    assert done.stderr == (
        f"im2rec: error: --depfile '{depfile}' would be one of the set's files; choose another\n"
    )
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("name", ["make", "ninja"])
@pytest.mark.parametrize("prefix", ["./data/set", "data//set", "data/./set"])
def test_the_target_is_spelled_as_the_prefix(
    name: str, prefix: str, photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    """So what Make was told and what pack was told are the same name."""
    (tmp_path / "data").mkdir()
    (tmp_path / "set_val.lst").rename(tmp_path / "data" / "set.lst")
    im2rec("pack", "--depfile", "deps", prefix, "my photos")
    out = f"{prefix}.manifest.json"
    (tmp_path / "Makefile").write_text(MAKEFILE.replace("OUT", out), encoding="utf-8")
    (tmp_path / "build.ninja").write_text(NINJA.replace("OUT", out), encoding="utf-8")
    program = ["make", out] if name == "make" else [str(NINJA_PROGRAM)]

    def made() -> int:
        time.sleep(0.02)
        subprocess.run(program, cwd=tmp_path, check=True, capture_output=True)
        log = tmp_path / "log"
        return len(log.read_text("utf-8").splitlines()) if log.exists() else 0

    before = made()
    assert made() == before
    os.utime(photos / sources(photos.parent / "data" / "x", "set")[0].removeprefix("my\\ photos/"))
    assert made() == before + 1


@pytest.mark.parametrize("name", ["set_val.lst", "set_val.rec", "set_val", "my photos"])
def test_what_is_something_else_is_not_overwritten(
    name: str, photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    before = (tmp_path / "set_val.lst").read_bytes()
    done = im2rec("pack", "--depfile", name, "set_val", "my photos", code=2)
    assert done.stderr == (
        "im2rec: error: my photos: cannot write: there is a folder of this name; move it away\n"
        if name == "my photos"
        else f"im2rec: error: --depfile '{name}' would be one of the set's files; choose another\n"
    )
    assert (tmp_path / "set_val.lst").read_bytes() == before
    assert not (tmp_path / "set_val.rec").exists()


def test_names_that_cannot_be_written_are_told(photos: Path, im2rec: Run, tmp_path: Path) -> None:
    for name in UNWRITABLE:
        if "\t" not in name and "\n" not in name:
            shutil.copy(CLEAN / "ant/ant_0.jpg", photos / f"{name}")
    rows = [f"{at}\t0\t{name}\n" for at, name in enumerate(["a=b", "a;b", "ant/ant_0.jpg"])]
    (tmp_path / "odd.lst").write_text("".join(rows), encoding="utf-8")
    done = im2rec("pack", "--depfile", "deps", "odd", "my photos")
    assert done.stderr == (
        "im2rec: warning: my photos/a=b: no dependency file can hold this name; that the image "
        "changes will not be noticed\n"
        "im2rec: warning: my photos/a;b: no dependency file can hold this name; that the image "
        "changes will not be noticed\n"
        "odd: 3 of 3 images packed, 26.6 KiB\n"
    )
    assert b"a=b" not in (tmp_path / "deps").read_bytes()
    (tmp_path / "a=b.lst").write_text("0\t0\tant/ant_0.jpg\n", encoding="utf-8")
    done = im2rec("pack", "--depfile", "deps", "a=b", "my photos", code=2)
    assert done.stderr == (
        "im2rec: error: no dependency file can hold the name 'a=b.lst'; choose another\n"
    )


def test_a_root_whose_name_is_not_utf_8(photos: Path, im2rec: Run, tmp_path: Path) -> None:
    root = os.fsdecode(b"odd\xff")
    os.rename(photos, tmp_path / root)
    im2rec("pack", "--depfile", "deps", "set_val", root)
    assert b"\n  odd\xff/" in (tmp_path / "deps").read_bytes()


def test_a_root_that_no_dependency_file_can_hold(photos: Path, im2rec: Run, tmp_path: Path) -> None:
    photos.rename(tmp_path / "two\nlines")
    done = im2rec("pack", "--depfile", "deps", "set_val", "two\nlines", code=2)
    assert done.stderr == (
        "im2rec: error: no dependency file can hold the name 'two\\nlines/'; choose another\n"
    )


def test_of_names_that_cannot_be_written_the_first_are_kept_and_all_counted(tmp_path: Path) -> None:
    rows = [f"{at}\t0\t{at}{'=' * (at % 3 > 0)}\n" for at in range(99)]
    (tmp_path / "odd.lst").write_text("".join(rows), encoding="utf-8")
    for most, count in ((5, 5), (None, 66), (0, 0)):
        lists = [str(tmp_path / "odd.lst")]
        with dependency_file(str(tmp_path / "deps"), lists, "a", None, most) as unnamed:
            pass
        assert unnamed.first == [f"a/{at}=" for at in range(99) if at % 3][:count]
        assert unnamed.count == 66


def test_many_names_that_cannot_be_written_are_counted(
    photos: Path, im2rec: Run, tmp_path: Path
) -> None:
    shutil.copytree(photos, tmp_path / "a=b")
    for flag, count in (((), 20), (("-v",), 24)):
        rows = [path.relative_to(tmp_path / "a=b") for path in (tmp_path / "a=b").rglob("*.*")]
        (photos / "a=b").unlink(missing_ok=True)
        (photos / "a=b").symlink_to(tmp_path / "a=b")
        text = "".join(f"{at}\t0\ta=b/{name}\n" for at, name in enumerate(rows))
        (tmp_path / "odd.lst").write_text(text, encoding="utf-8")
        said = im2rec("pack", *flag, "--depfile", "deps", "odd", "my photos").stderr
        assert said.count("no dependency file can hold this name") == count
        assert ("im2rec: warning: 4 more such names; -v names them all\n" in said) == (not flag)
