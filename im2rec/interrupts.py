"""Holds back, for a short stretch that must be done whole, the signals that would end the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HELD = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def signals_held() -> Iterator[None]:
    """Makes those signals wait until the end of the context, where they take effect.

    Processes started meanwhile begin with the signals blocked. Blocking alone would not hold them:
    the system gives a signal to any thread that does not block it (OpenBLAS starts some behind
    Python's back), and its handler then runs in the main thread all the same.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # where alone handlers run
        handlers = {number: signal.getsignal(number) for number in HELD}
    mask = None
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        for number, handler in handlers.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in came[:1]:
            signal.raise_signal(number)
