"""Signals that would end the run wait while something is done whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from conftest import INTERRUPTER

from im2rec.interrupts import HELD, signals_held


class Ended(BaseException):
    """What the command line's handler raises."""


@pytest.fixture
def ending() -> Iterator[list[int]]:
    """The signals that came, each of which raises Ended, as on the command line."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        raise Ended

    old = {number: signal.signal(number, end) for number in HELD}
    yield came
    for number, handler in old.items():
        signal.signal(number, handler)


def state() -> tuple[object, ...]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return mask, *(signal.getsignal(number) for number in HELD)


@pytest.mark.parametrize("number", HELD)
def test_a_signal_takes_effect_at_the_end(number: signal.Signals, ending: list[int]) -> None:
    before = state()
    done = []

    def hold() -> None:
        with signals_held():
            os.kill(os.getpid(), number)
            done.append(list(ending))

    with pytest.raises(Ended):
        hold()
    assert (done, ending) == ([[]], [number])
    assert state() == before


@pytest.mark.parametrize("number", HELD)
def test_a_signal_that_another_thread_takes_waits_too(
    number: signal.Signals, ending: list[int]
) -> None:
    """Threads that a C library started do not block it."""
    held, sent, release = threading.Event(), threading.Event(), threading.Event()
    done = []

    def take() -> None:
        held.wait()
        signal.pthread_kill(threading.get_ident(), number)
        sent.set()
        release.wait()

    def hold() -> None:
        with signals_held():
            held.set()
            sent.wait()
            done.extend(list(ending) for _ in range(10_000))  # time enough for a handler

    thread = threading.Thread(target=take)
    thread.start()
    with pytest.raises(Ended):
        hold()
    release.set()
    thread.join()
    assert (done, ending) == ([[]] * 10_000, [number])


def hold_until_interrupted() -> None:
    """In a process of its own, which another one interrupts ever a little later."""

    def hold(interrupter: IO[bytes], delay: float) -> None:
        interrupter.write(b"%f\n" % delay)
        interrupter.flush()
        while True:
            with signals_held():
                pass

    before = state()
    with subprocess.Popen([sys.executable, "-c", INTERRUPTER], stdin=subprocess.PIPE) as process:
        assert process.stdin
        for step in range(500):
            with pytest.raises(KeyboardInterrupt):
                hold(process.stdin, step / 1_000_000)
            assert state() == before


def test_all_is_as_before_whenever_a_signal_comes() -> None:
    code = "import test_interrupts; test_interrupts.hold_until_interrupted()"
    folder = Path(__file__).parent
    subprocess.run([sys.executable, "-c", code], cwd=folder, timeout=60, check=True)


def test_all_is_as_before_after_an_exception(ending: list[int]) -> None:
    before = state()
    with pytest.raises(KeyError), signals_held():
        raise KeyError
    assert state() == before
    assert ending == []


def test_an_ignored_signal_stays_ignored() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_held():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)


def test_another_thread_holds_what_it_can() -> None:
    masks = []

    def hold() -> None:
        with signals_held():
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert masks[0] >= set(HELD)
    assert not masks[1] & set(HELD)


def test_a_process_started_meanwhile_begins_with_the_signals_blocked() -> None:
    code = "import signal; print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    with signals_held():
        said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert set(map(int, said.stdout.split())) >= set(HELD)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_without_a_handler_ends_the_process_at_the_end(number: signal.Signals) -> None:
    code = (
        "import os; from im2rec.interrupts import signals_held\n"
        f"with signals_held(): os.kill(os.getpid(), {int(number)}); print('done', flush=True)\n"
        "print('never')"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert (said.stdout, said.returncode) == (b"done\n", -number)
