"""Holds back, for a short stretch that must be done whole, the signals that would end the run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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
    try:
        # The handlers are replaced before and restored after the signals are blocked, for at both
        # moments those that wait are handled, and an exception would leave them blocked for ever.
        with ExitStack() as restore:
            if threading.current_thread() is threading.main_thread():  # where alone handlers run
                for number in HELD:
                    handler = signal.getsignal(number)
                    if handler not in (signal.SIG_IGN, None):
                        restore.callback(signal.signal, number, handler)
                        signal.signal(number, lambda number, _: came.append(number))
            if hasattr(signal, "pthread_sigmask"):  # not on Windows
                old = signal.pthread_sigmask(signal.SIG_BLOCK, ())
                restore.callback(signal.pthread_sigmask, signal.SIG_SETMASK, old)
                signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)
