"""Signals at each stage of a run, made to come right there: by a hook on what Python tells of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import CLEAN, Run
from processes import family, wait_for

# Does something to the process in which an event of Python's audit (sys.addaudithook) comes whose
# arguments have a word in them, once. WHO is "parent" or "worker".
HOOK = """
import os, signal, sys
event, word, who, deed = os.environ["AT"].split("|")
first = os.environ.setdefault("PARENT", str(os.getpid()))
done = []

class Finalizer:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def hook(name, arguments):
    if name == event and not done and word in repr(arguments):
        if (who == "parent") == (first == str(os.getpid())):
            done.append(name)
            exec(deed)

sys.addaudithook(hook)
"""
SEND = "os.kill(os.getpid(), signal.{})"
SET = [f"set_{number:03d}.{ending}" for number in range(4) for ending in ("rec", "idx")]
SET += ["set.idx", "set.manifest.json"]

Hooked = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Hooked]:
    """Starts the command line with the hook, beside an older set of files."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "temporary").mkdir()
    rows = [f"{number}\t0\tdog/dog_{number % 3}.jpg\n" for number in range(24)]
    (work / "set.lst").write_text("".join(rows), encoding="utf-8")
    for name in SET:
        (work / name).write_bytes(b"older")
    started: list[subprocess.Popen[str]] = []

    def start(at: str, *arguments: object) -> subprocess.Popen[str]:
        path = f"{tmp_path / 'hook'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        temporary = str(tmp_path / "temporary")
        process = subprocess.Popen(
            [sys.executable, "-m", "im2rec", *map(str, arguments)],
            cwd=work,
            env={**os.environ, "PYTHONPATH": path, "AT": at, "TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for survivor in family(process.pid):
            os.kill(survivor, signal.SIGKILL)
        process.kill()
        process.communicate()


def assert_ended(process: subprocess.Popen[str], code: int, folder: Path) -> str:
    """What it said; asserts that it ends with this code and leaves neither process nor file."""
    out, err = process.communicate(timeout=20)
    # the fork server ends by itself, behind its parent
    wait_for(lambda: not family(process.pid), "a process is left", 10)
    assert (process.returncode, "Traceback" in err, out) == (code, False, ""), err
    assert list((folder / "temporary").iterdir()) == []
    assert [name for name in os.listdir(folder / "work") if name.startswith(".")] == []
    return err


def assert_ends_by(
    name: str, event: str, word: str, hooked: Hooked, folder: Path, *arguments: object
) -> str:
    """What a command says that gets a signal at an event, as `assert_ended`."""
    process = hooked(f"{event}|{word}|parent|{SEND.format(name)}", *arguments)
    return assert_ended(process, 128 + getattr(signal, name), folder)


PACK = ("pack", "set", CLEAN, "--shards", "4", "--workers", "2", "-q")
BEFORE = [  # event of the audit, word in its arguments
    ("import", "'im2rec.shards'"),
    ("open", "set.lst"),
    ("os.mkdir", ".set.im2rec"),
    ("open", ".set.im2rec/lock"),
    ("open", "joint.idx"),
    ("import", "'cv2'"),
    ("tempfile.mkdtemp", "notes"),
    ("os.fork", ""),
    ("open", ".0.idx"),
    ("open", "manifest.json"),
]
WHILE = [  # it is published: all the new files get their names
    ("os.rename", ".0.rec', 'set_000.rec'"),
    ("os.link", "set_002.idx"),
    ("os.rename", "set.manifest.json"),
    ("os.remove", "older/set_001.rec"),
    ("os.rmdir", "'.set.im2rec'"),
]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("event", "word"), BEFORE)
def test_before_publishing_the_older_set_stays(
    event: str, word: str, name: str, hooked: Hooked, tmp_path: Path
) -> None:
    said = assert_ends_by(name, event, word, hooked, tmp_path, *PACK)
    assert said == f"im2rec: error: ended by {name}; nothing was left half-written\n"
    assert {(tmp_path / "work" / each).read_bytes() for each in SET} == {b"older"}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("event", "word"), WHILE)
def test_what_is_being_published_is_published_whole(
    event: str, word: str, name: str, hooked: Hooked, tmp_path: Path
) -> None:
    assert_ends_by(name, event, word, hooked, tmp_path, *PACK)
    assert b"older" not in {(tmp_path / "work" / each).read_bytes() for each in SET}


@pytest.mark.parametrize("name", ["set_001.rec", "set_000.idx", "set.idx", "set.manifest.json"])
def test_killed_amid_the_renaming_there_is_a_mixture_that_verify_names(
    name: str, hooked: Hooked, tmp_path: Path, im2rec: Run
) -> None:
    """Only then: before the first and behind the last one it is the older or the new set."""
    work = tmp_path / "work"
    for each in SET:
        (work / each).unlink()
    im2rec("pack", "work/set", CLEAN, "--shards", "4", "--quality", "80", "-q")
    older = {each: (work / each).read_bytes() for each in SET}
    process = hooked(f"os.rename|'{name}'|parent|{SEND.format('SIGKILL')}", *PACK)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: not family(process.pid), "a worker is left", 10)
    is_new = [(work / each).read_bytes() != older[each] for each in sorted(SET, key=_order)]
    assert is_new == sorted(is_new, reverse=True)
    assert is_new.count(True) == sorted(SET, key=_order).index(name)
    assert im2rec("verify", "work/set", code=1).stdout
    im2rec("pack", "work/set", CLEAN, "--shards", "4", "-q")
    im2rec("verify", "work/set")
    assert [each for each in os.listdir(work) if each.startswith(".")] == []


def _order(name: str) -> tuple[int, str]:
    """Where a file of a set stands among those that are renamed."""
    kinds = (".rec", ".idx")
    return (kinds.index(name[-4:]) if name.startswith("set_") else 2, name)


def test_a_second_signal_does_not_cut_the_clean_up_short(hooked: Hooked, tmp_path: Path) -> None:
    """It comes while the workers' notes are removed, the set's own files not yet."""
    second = f"sys.addaudithook(lambda name, _: name == 'os.rmdir' and {SEND.format('SIGTERM')})"
    deed = f"{SEND.format('SIGINT')}; {second}"
    assert_ended(hooked(f"open|.0.idx|parent|{deed}", *PACK), 130, tmp_path)
    assert {(tmp_path / "work" / each).read_bytes() for each in SET} == {b"older"}


def test_a_signal_that_falls_into_a_finalizer_is_not_lost(hooked: Hooked, tmp_path: Path) -> None:
    process = hooked("open|joint.idx|parent|Finalizer()", *PACK)
    assert_ended(process, 143, tmp_path)
    assert {(tmp_path / "work" / each).read_bytes() for each in SET} == {b"older"}


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_ctrl_c_does_not_reach_processes_that_are_starting(
    method: str, hooked: Hooked, tmp_path: Path
) -> None:
    """Each time that one starts, the terminal's Ctrl-C comes to the whole group."""
    deed = "import threading; threading.Timer(0.02, os.killpg, (0, signal.SIGINT)).start()"
    process = hooked(f"import|'threading'|worker|{deed}", *PACK, "--start-method", method)
    assert_ended(process, 130, tmp_path)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(
    ("event", "word", "arguments"),
    [
        ("os.scandir", "ant", ("make-list", "set", CLEAN)),
        ("open", "set.lst", ("make-list", "set", CLEAN)),
        ("os.rename", "set.lst", ("make-list", "set", CLEAN)),
        ("import", "'numpy'", ("inspect", "set")),
        ("import", "'im2rec.verify'", ("verify", "set", "--decode")),
    ],
)
def test_other_commands_end_the_same_way(
    event: str, word: str, arguments: tuple[str, ...], name: str, hooked: Hooked, tmp_path: Path
) -> None:
    assert_ends_by(name, event, word, hooked, tmp_path, *arguments)


@pytest.mark.parametrize(
    ("event", "word", "method"),
    [
        ("import", "'cv2'", "spawn"),
        ("import", "'cv2'", "forkserver"),
        ("open", "dog_1", "fork"),
        ("open", ".rec', 'r+'", "fork"),  # a part gets its place
        ("open", ".rec', 'r'", "fork"),  # a file is read for its digest
    ],
)
def test_a_worker_killed_at_each_stage_is_an_error(
    event: str, word: str, method: str, hooked: Hooked, tmp_path: Path
) -> None:
    at = f"{event}|{word}|worker|{SEND.format('SIGKILL')}"
    said = assert_ended(hooked(at, *PACK, "--start-method", method), 2, tmp_path)
    assert said.startswith("im2rec: error: a worker process died (killed, out of memory, or a")
    assert said.count("\n") == 1
    assert {(tmp_path / "work" / each).read_bytes() for each in SET} == {b"older"}
