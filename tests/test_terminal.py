"""What is said on a terminal and where there is none: counts, sizes, progress."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from im2rec import terminal
from im2rec.terminal import Progress, Talk, count_text, size_text


def test_counts_and_sizes_in_words() -> None:
    assert [count_text(n, "class") for n in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert [size_text(n) for n in (0, 1023, 1024, 5 * 2**30, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


# Sends a signal at the event of that number, from 0, of those that a profiler is told of from the
# moment when the program returns.
SIGNAL_AT = """
import os, signal, sys
from im2rec import terminal

at, code = int(sys.argv[1]), int(sys.argv[2])
count = 0

def look(frame, event, argument):
    global count
    if count == at:
        sys.setprofile(None)
        where = frame.f_code.co_name, event
        print(*where, file=sys.__stderr__)
        os.kill(os.getpid(), signal.SIGTERM)
    count += 1

def program():
    print("data")
    sys.setprofile(look)
    return code

try:
    terminal.run(program)
finally:
    sys.setprofile(None)
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_signal_after_the_last_deed_changes_no_exit_code(code: int) -> None:
    """It comes ever a little later, until signals are ignored."""
    ended = "im2rec: error: ended by SIGTERM; nothing was left half-written"
    outcomes = []
    for moment in range(100):
        done = subprocess.run(
            [sys.executable, "-c", SIGNAL_AT, str(moment), str(code)],
            capture_output=True,
            encoding="utf-8",
            timeout=30,
            check=False,
        )
        where, *said = done.stderr.splitlines()
        assert (done.returncode, said) in ((code, []), (143, [ended]))
        assert done.stdout == "data\n"
        outcomes.append((where, done.returncode))
        if where == "_ignore_signals call":  # from here on, none comes through
            break
    changed = [number for number, (_, found) in enumerate(outcomes) if found != code]
    assert changed == list(range(len(changed)))  # once it is done, it stays so
    assert ("_code_of return", code) in outcomes
    assert ("_ignore_signals call", code) in outcomes


def test_a_warning_of_a_part_of_the_program_is_a_line_of_its_own() -> None:
    code = (
        "import warnings; from im2rec import terminal\n"
        "terminal.run(lambda: warnings.warn('one\\ntwo', RuntimeWarning))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stderr == "im2rec: warning: one\\ntwo\n"


def test_progress_without_a_terminal_is_a_plain_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL", 0.0)
    with Progress("pack set.lst", "images", Talk(False, False)) as progress:
        progress.update(50, 200)
    with Progress("verify set", "B", Talk(False, False)) as progress:
        progress.update(2**20, 2**21)
    with Progress("verify set", "B", Talk(True, False)) as progress:
        progress.update(2**20, 2**21)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"pack set\.lst: 50 of 200 images \(25 %\), \d+ images/s, \d+ s left", first
    )
    assert second.startswith("verify set: 1.0 MiB of 2.0 MiB (50 %), ")
