"""Files written whole or not at all, and one run at a time on a prefix."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from conftest import INTERRUPTER, names, put

from im2rec.errors import BusyError, OutputError
from im2rec.output import Output, kept_count


@pytest.mark.parametrize("fsync", [True, False])
def test_files_are_published_and_stale_ones_removed(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, "set.rec", "set_000.rec", "set_001.rec", "other.rec", content="older")
    with Output(prefix, fsync=fsync) as output:
        files = {
            "set.rec": output.write("other name", b"new rec"),
            "set.idx": output.write("set.idx", b"new idx"),
        }
        assert (tmp_path / "set.rec").read_bytes() == b"older"
        stale = ["set.rec", "set_000.rec", "set_001.rec", "set_002.rec"]
        assert output.publish(files, stale) == ["set.rec", "set.idx"]
    assert names(tmp_path) == ["other.rec", "set.idx", "set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"new rec"
    assert (tmp_path / "set.idx").read_bytes() == b"new idx"


@pytest.mark.parametrize("fsync", [True, False])
def test_what_has_the_same_bytes_is_left_alone_if_asked(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    older = {"same": b"abc", "other": b"abd", "longer": b"abcd", "shorter": b"ab", "empty": b""}
    for name, content in older.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (0, 0))
    wanted = {**dict.fromkeys(older, b"abc"), "empty": b"", "new": b"abc"}
    with Output(prefix, fsync=fsync) as output:
        files = {name: output.write(name, content) for name, content in wanted.items()}
        changed = output.publish(files, stale=["same"], if_changed=True)
    assert changed == ["other", "longer", "shorter", "new"]
    for name, content in wanted.items():
        assert (tmp_path / name).read_bytes() == content
        assert ((tmp_path / name).stat().st_mtime == 0) == (name not in changed)
    assert names(tmp_path) == sorted(wanted)


def test_new_files_replace_nothing_that_came_meanwhile(prefix: str, tmp_path: Path) -> None:
    with Output(prefix, fsync=False) as output:
        files = {name: output.write(name, b"new") for name in ("set.rec", "set.idx")}
        put(tmp_path, "set.idx")
        with pytest.raises(OutputError, match=r"set\.idx: cannot write: there is a file of this"):
            output.publish(files, new=True)
    assert names(tmp_path) == ["set.idx"]
    assert (tmp_path / "set.idx").read_text() == "set.idx"


def test_what_is_noted_stays_until_something_is_published(prefix: str, tmp_path: Path) -> None:
    def run(*, keep: bool, publish: bool = False) -> dict[str, bytes]:
        with Output(prefix, fsync=False, keep=keep) as output:
            notes = output.notes()
            for name in ("one.rec", "one.idx", "two.rec", "two.idx"):
                output.write(name, b"new")
            output.keep_note("one", b"is whole")
            if publish:
                output.publish({"set.rec": output.path("two.rec")})
        return notes

    assert run(keep=False) == {}
    assert names(tmp_path) == []
    kept = [".set.im2rec"] + [f".set.im2rec/one{end}" for end in (".idx", ".rec", ".whole")]
    for _ in range(2):
        run(keep=True)
        assert names(tmp_path) == kept
        assert kept_count(prefix) == 1
    with Output(prefix, fsync=False, keep=True) as output:
        assert output.notes() == {"one": b"is whole"}
        output.forget("one")
        output.forget("two")
        assert output.notes() == {}
    assert names(tmp_path) == []
    run(keep=True)
    assert run(keep=True, publish=True) == {"one": b"is whole"}
    assert names(tmp_path) == ["set.rec"]
    assert kept_count(prefix) == 0


@pytest.mark.parametrize("fails", ["set.rec", "set.idx"])
def test_without_links_an_older_set_stays_where_publishing_fails(
    fails: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on FAT: an older file is set aside by renaming it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    put(tmp_path, "set.rec", "set.idx")
    with Output(prefix, fsync=False) as output:
        files = {name: output.write(name, b"new") for name in ("set.rec", "set.idx")}
        os.unlink(files[fails])
        with pytest.raises(OutputError):
            output.publish(files)
    assert names(tmp_path) == ["set.idx", "set.rec"]
    for name in ("set.rec", "set.idx"):
        assert (tmp_path / name).read_text(encoding="utf-8") == name
    with Output(prefix, fsync=False) as output:
        output.publish({name: output.write(name, b"new") for name in ("set.rec", "set.idx")})
    assert (tmp_path / "set.rec").read_bytes() == (tmp_path / "set.idx").read_bytes() == b"new"


def test_without_links_what_could_not_be_published_is_kept_where_it_lay(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    test_what_could_not_be_published_is_kept_where_it_lay(prefix, tmp_path)


def publish_and_be_killed(prefix: str, links: str, moment: str) -> None:
    """In a process of its own: is killed before the renaming of that number, from 0; says so when
    it is not."""
    calls = 0
    rename = os.replace

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def replace(old: str, new: str) -> None:
        nonlocal calls
        if calls == int(moment):
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        rename(old, new)

    os.replace = replace  # type: ignore[assignment]
    if links == "without":
        os.link = refuse
    with Output(prefix, fsync=False) as output:
        output.publish({name: output.write(name, b"new") for name in PUBLISHED})
    print("published")


PUBLISHED = ["set.rec", "set.idx", "set.manifest.json"]


@pytest.mark.parametrize("links", ["with", "without"])
def test_killed_amid_the_renaming_no_older_file_is_lost(
    links: str, prefix: str, tmp_path: Path
) -> None:
    """One of them may have no name when the run is killed; the next run gives it back."""
    code = "import sys, test_output; test_output.publish_and_be_killed(*sys.argv[1:])"
    command = [sys.executable, "-c", code, prefix, links]
    gone = 0
    for moment in range(100):
        put(tmp_path, *PUBLISHED, content="older")
        said = subprocess.run(
            [*command, str(moment)], cwd=Path(__file__).parent, stdout=subprocess.PIPE, check=False
        )
        if said.stdout:
            break
        gone += len(PUBLISHED) - len(list(tmp_path.glob("set*")))
        with Output(prefix, fsync=False):
            pass
        assert names(tmp_path) == sorted(PUBLISHED)
        contents = [(tmp_path / name).read_bytes() for name in PUBLISHED]
        new = contents.count(b"new")
        assert contents == [b"new"] * new + [b"older"] * (len(contents) - new)
    assert moment == len(PUBLISHED) * (1 if links == "with" else 2)
    assert gone == (0 if links == "with" else len(PUBLISHED))
    assert names(tmp_path) == sorted(PUBLISHED)
    assert {(tmp_path / name).read_bytes() for name in PUBLISHED} == {b"new"}


def test_a_file_that_was_removed_after_a_kill_does_not_come_back(
    prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, *PUBLISHED, content="older")
    code = "import sys, test_output; test_output.publish_and_be_killed(*sys.argv[1:])"
    command = [sys.executable, "-c", code, prefix, "with", "1"]
    subprocess.run(command, cwd=Path(__file__).parent, check=False)
    for name in PUBLISHED:
        (tmp_path / name).unlink()
    with Output(prefix, fsync=False):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("links", ["with", "without"])
def test_a_name_may_be_as_long_as_the_file_system_takes(
    links: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if links == "without":
        monkeypatch.setattr(os, "link", refuse)
    stem = "s" * 241
    files = [f"{stem}{ending}" for ending in (".rec", ".idx", ".manifest.json")]
    for content in (b"older", b"new"):
        with Output(str(tmp_path / stem), fsync=False, longest=".manifest.json") as output:
            written = {name: output.write(str(n), content) for n, name in enumerate(files)}
            output.publish(written)
        assert names(tmp_path) == sorted(files)
        assert {(tmp_path / name).read_bytes() for name in files} == {content}
    longer = str(tmp_path / (stem + "s"))
    with pytest.raises(OutputError) as caught:
        Output(longer, fsync=False, longest=".manifest.json").__enter__()
    assert str(caught.value) == (
        f"{longer}: cannot write: the name with '.manifest.json' behind it is too long; "
        "choose a shorter PREFIX"
    )
    assert names(tmp_path) == sorted(files)


def test_what_could_not_be_published_is_kept_where_it_lay(prefix: str, tmp_path: Path) -> None:
    put(tmp_path, "set.rec")
    with Output(prefix, fsync=False, keep=True) as output:
        files = {"set.rec": output.write("one.rec", b"new"), "none": output.path("never written")}
        output.write("one.idx", b"")
        output.keep_note("one", b"")
        with pytest.raises(OutputError):
            output.publish(files)
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"
    assert (tmp_path / ".set.im2rec" / "one.rec").read_bytes() == b"new"


def test_an_exception_leaves_the_older_set_untouched(prefix: str, tmp_path: Path) -> None:
    put(tmp_path, "set.rec", "set.idx")

    def run() -> None:
        with Output(prefix, fsync=True) as output:
            output.write("set.rec", b"new")
            (Path(output.work) / "a folder").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert names(tmp_path) == ["set.idx", "set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"


def test_what_is_not_published_leaves_no_file(prefix: str, tmp_path: Path) -> None:
    with Output(prefix, fsync=True) as output:
        output.write("set.rec", b"new")
        assert names(tmp_path) == [".set.im2rec", ".set.im2rec/lock", ".set.im2rec/set.rec"]
    assert names(tmp_path) == []


def test_a_prefix_without_a_folder_is_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Output("set", fsync=True) as output:
        output.publish({"set.rec": output.write("set.rec", b"new")})
    assert names(tmp_path) == ["set.rec"]


def publish_error(prefix: str, published: Sequence[str], fsync: bool) -> str:
    with Output(prefix, fsync=fsync) as output:
        output.write("set.rec", b"new")
        output.write("set.idx", b"new")
        files = {name: output.path(name) for name in published}
        with pytest.raises(OutputError) as caught:
            output.publish(files, stale=["set_000.rec"])
    return str(caught.value)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_folder_in_the_way_is_found_before_anything_is_renamed(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, "set.rec", "set_000.rec")
    (tmp_path / "set.idx").mkdir()
    assert publish_error(prefix, ["set.rec", "set.idx"], fsync) == (
        f"{prefix}.idx: cannot write: there is a folder of this name; move it away"
    )
    assert names(tmp_path) == ["set.idx", "set.rec", "set_000.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"


@pytest.mark.parametrize("older", [["set.rec", "set.idx"], ["set.rec"], ["set.idx"], []])
@pytest.mark.parametrize("fsync", [True, False])
def test_where_one_file_cannot_be_published_none_is(
    fsync: bool, older: list[str], prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, *older)
    assert publish_error(prefix, ["set.rec", "set.idx", "never written"], fsync) == (
        f"{tmp_path / 'never written'}: cannot write: no such file or directory"
    )
    assert names(tmp_path) == sorted(older)
    for name in older:
        assert (tmp_path / name).read_text(encoding="utf-8") == name


def publish_and_be_interrupted(prefix: str) -> None:
    """In a process of its own, which another one interrupts ever a little later: publishes 100
    files, and says how many are there then."""
    files = [f"set{number}" for number in range(100)]

    def run(interrupter: IO[bytes], delay: float) -> None:
        with Output(prefix, fsync=False) as output:
            written = {name: output.write(name, b"new") for name in files}
            interrupter.write(b"%f\n" % delay)
            interrupter.flush()
            output.publish(written)
        while True:
            time.sleep(0.1)

    with subprocess.Popen([sys.executable, "-c", INTERRUPTER], stdin=subprocess.PIPE) as process:
        assert process.stdin
        for step in range(50):
            with pytest.raises(KeyboardInterrupt):
                run(process.stdin, step / 10_000)
            there = list(Path(prefix).parent.glob("set*"))
            print(len(there))
            for path in there:
                path.unlink()


def test_a_signal_ends_the_run_before_or_after_it_publishes(prefix: str) -> None:
    code = "import sys, test_output; test_output.publish_and_be_interrupted(sys.argv[1])"
    said = subprocess.run(
        [sys.executable, "-c", code, prefix],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        timeout=100,
        check=True,
    )
    counts = said.stdout.split()
    assert len(counts) == 50
    assert set(counts) <= {b"0", b"100"}


def open_error(prefix: str) -> str:
    with pytest.raises(OutputError) as caught:
        Output(prefix, fsync=True).__enter__()
    return str(caught.value)


def test_a_prefix_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    assert open_error(f"{tmp_path}/") == (
        f"{tmp_path}/: cannot write: the prefix ends with no name; give PREFIX a name"
    )
    assert open_error(f"{tmp_path}/none/set") == (
        f"{tmp_path}/none/set: cannot write: there is no folder '{tmp_path}/none'; make it"
    )
    put(tmp_path, "file", ".set.im2rec")
    assert open_error(f"{tmp_path}/file/set").endswith(
        f"there is no folder '{tmp_path}/file'; make it"
    )
    assert open_error(f"{tmp_path}/set") == (
        f"{tmp_path}/.set.im2rec: cannot write: not a folder; remove it"
    )
    assert open_error(f"{tmp_path}/{'s' * 250}").endswith("cannot write: file name too long")
    assert open_error(f"{tmp_path}/caf\udce9").endswith("the name is not UTF-8; choose another")
    assert names(tmp_path) == [".set.im2rec", "file"]


def test_a_folder_that_may_not_be_written_says_so() -> None:
    found = open_error("/proc/self/set")  # not even root may
    assert found == "/proc/self/.set.im2rec: cannot write: no such file or directory"


# --- two runs at once -------------------------------------------------------------------------


def hold(prefix: str) -> None:
    """In a process of its own: holds a prefix, with something in hand, until it is killed."""
    with Output(prefix, fsync=True) as output:
        output.write("set.rec", b"half")
        os.mkdir(output.path("notes"))
        Path(output.path("notes"), "1").touch()
        print("held", flush=True)
        sys.stdin.read()


@pytest.fixture
def holder(prefix: str) -> Iterator[subprocess.Popen[str]]:
    code = "import sys, test_output; test_output.hold(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, prefix],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_run_on_the_prefix_is_refused_and_harms_nothing(
    holder: subprocess.Popen[str], prefix: str, tmp_path: Path
) -> None:
    before = names(tmp_path)
    for same in (prefix, f"{tmp_path}/../{tmp_path.name}/set"):
        with pytest.raises(BusyError) as caught:
            Output(same, fsync=True).__enter__()
        assert str(caught.value) == (
            f"{same}: another im2rec run is writing it; wait until it ends, or choose another name"
        )
    assert names(tmp_path) == before
    with Output(f"{prefix}2", fsync=True):  # another prefix is free
        pass
    holder.communicate("")
    assert holder.returncode == 0
    with Output(prefix, fsync=True):
        pass
    assert names(tmp_path) == []


def test_the_lock_dies_with_its_holder_and_what_it_left_is_cleared(
    holder: subprocess.Popen[str], prefix: str, tmp_path: Path
) -> None:
    holder.kill()
    holder.wait()
    assert ".set.im2rec/notes/1" in names(tmp_path)
    with Output(prefix, fsync=True):
        assert names(tmp_path) == [".set.im2rec", ".set.im2rec/lock"]
    assert names(tmp_path) == []


def race(prefix: str, rounds: str) -> None:
    """In a process of its own: takes the prefix again and again, and checks that it is its own."""
    taken = 0
    while taken < int(rounds):
        try:
            with Output(prefix, fsync=False) as output:
                output.write("mine", str(os.getpid()).encode())
                output.write("set.rec", b"")
                assert Path(output.path("mine")).read_bytes() == str(os.getpid()).encode()
                output.publish({"mine": output.path("mine")})
                taken += 1
        except BusyError:
            continue


def test_two_runs_never_hold_the_prefix_together(prefix: str, tmp_path: Path) -> None:
    code = "import sys, test_output; test_output.race(*sys.argv[1:])"
    command = [sys.executable, "-c", code, prefix, "100"]
    racers = [subprocess.Popen(command, cwd=Path(__file__).parent) for _ in range(3)]
    assert [racer.wait() for racer in racers] == [0, 0, 0]
    assert names(tmp_path) == ["mine"]
