"""Fixtures and paths that the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is loaded: a process that has threads

import cv2
import pytest
from hypothesis import settings

cv2.setNumThreads(1)  # must not be forked, and forking is what most tests of workers do

# What a script's `&` or nohup has made ignored would be ignored in all that tests start.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"  # written by the real MXNet; golden/README.md has the options of each
CLEAN = DATA / "corpus" / "clean"
ODD = DATA / "corpus" / "odd"
BAD = DATA / "corpus" / "bad"

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")

# A child that interrupts its parent each time it is told a number of seconds.
INTERRUPTER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGINT)
"""


def names(folder: Path) -> list[str]:
    """All that is in a folder, and in those in it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def put(folder: Path, *files: str, content: str = "") -> None:
    """Makes files, each with its name in it where nothing else is said."""
    for name in files:
        (folder / name).write_text(content or name, encoding="utf-8")


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "set")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def _no_options_from_outside() -> None:
    """Keeps IM2REC_* variables of the machine out of the tests."""
    for name in [name for name in os.environ if name.startswith("IM2REC_")]:
        del os.environ[name]


@pytest.fixture
def im2rec(tmp_path: Path) -> Run:
    """Runs the command line in a process of its own, in tmp_path.

    Keyword arguments: code, the exit code expected (default 0); env, variables to add.
    """

    def run(
        *arguments: object, code: int = 0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "im2rec", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run
