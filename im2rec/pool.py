"""Runs a function over many specs on worker processes, in order, with a bound on what is in flight.

A worker that dies is an error at once, and the error names what the workers had in hand: each
worker notes the number it is working on in a file of its own, which outlives it. Knows no images.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from im2rec.errors import OptionError, WorkerError

Spec = TypeVar("Spec")
Result = TypeVar("Result")

IN_FLIGHT = 4  # specs per worker handed out and not yet consumed; hides a slow spec behind others
MAX_WORKERS_WINDOWS = 61  # more handles than WaitForMultipleObjects takes
_NOTE = struct.Struct("<?Q")  # whether something is in hand, and its number

START_METHODS = ("fork", "forkserver", "spawn")


def available_cpus() -> int:
    """How many CPUs this process may use: its affinity, and its control group's quota (Linux)."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cpus = os.cpu_count() or 1
    quota = _cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(1, min(cpus, int(quota) if quota else cpus))


def _cgroup_quota(membership: Path, mount: Path) -> float | None:
    """CPUs' worth of time that the control groups, version 2 or 1, grant; None for no limit."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:  # version 2: "max 100000" or "150000 100000", and every parent counts
            folders = [mount / group.lstrip("/"), *(mount / group.lstrip("/")).parents]
            files = [folder / "cpu.max" for folder in folders if folder.is_relative_to(mount)]
        elif "cpu" in controllers.split(","):
            base = mount / "cpu" / group.lstrip("/")
            files = [base, mount / "cpu"]
        else:
            continue
        for file in files:
            with suppress(OSError, ValueError, ZeroDivisionError):
                if controllers:
                    quota = int((file / "cpu.cfs_quota_us").read_text(encoding="ascii"))
                    period = int((file / "cpu.cfs_period_us").read_text(encoding="ascii"))
                else:
                    first, second = file.read_text(encoding="ascii").split()
                    quota, period = int(first), int(second)  # "max" is no number: no limit
                if quota > 0:
                    quotas.append(quota / period)
    return min(quotas, default=None)


def default_start_method() -> str:
    """fork where it is safe (Linux, one thread), for it starts fastest; else the platform's own."""
    if sys.platform == "linux":
        return "fork" if threading.active_count() == 1 else "forkserver"
    return "spawn"


class Pool(Generic[Spec, Result]):
    """Worker processes that run one function.

    function: picklable, from spec to result. setup: run once in each worker before its first spec.
    workers: processes at most. start_method: of multiprocessing; None = `default_start_method`.
    name: turns a number that a worker noted into words for an error. folder: where the workers'
    notes lie; None = the system's folder for temporary files. Leaving the context ends every
    worker: at once if by an exception.
    """

    def __init__(
        self,
        function: Callable[[Spec], Result],
        *,
        setup: Callable[[], None],
        workers: int,
        start_method: str | None = None,
        name: Callable[[int], str] = str,
        folder: str | None = None,
    ) -> None:
        method = start_method or default_start_method()
        if method not in multiprocessing.get_all_start_methods():
            raise OptionError(f"start method {method!r} does not exist on this platform")
        self._function = function
        if sys.platform == "win32":
            workers = min(workers, MAX_WORKERS_WINDOWS)
        self._name = name
        self._in_flight = workers * IN_FLIGHT
        self._notes = tempfile.TemporaryDirectory(prefix="im2rec-notes-", dir=folder)
        try:
            self._executor = ProcessPoolExecutor(
                workers,
                multiprocessing.get_context(method),
                initializer=_start_worker,
                initargs=(self._notes.name, setup),
            )
        except OSError as error:
            self._notes.cleanup()
            raise WorkerError(
                f"cannot start worker processes: {error.strerror}", (), "is /dev/shm there?"
            ) from error

    def __enter__(self) -> Pool[Spec, Result]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._notes.cleanup()

    def results(self, specs: Iterable[Spec]) -> Iterator[tuple[Spec, Result]]:
        """Each spec with its result, in the order of the specs, which are drawn as needed.

        Raises WorkerError when a worker dies; what the function raises is raised here.
        """
        pending: deque[tuple[Spec, Future[Result]]] = deque()
        try:
            for spec in specs:
                pending.append((spec, self._submit(spec)))
                if len(pending) == self._in_flight:
                    first, future = pending.popleft()
                    yield first, future.result()
            while pending:
                first, future = pending.popleft()
                yield first, future.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "a worker process died (killed, out of memory, or a crashing decoder)",
                tuple(map(self._name, self.in_hand())),
            ) from error

    def in_hand(self) -> list[int]:
        """The numbers that workers noted and have not finished."""
        numbers = []
        for note in Path(self._notes.name).iterdir():
            data = note.read_bytes()
            if len(data) == _NOTE.size:
                busy, number = _NOTE.unpack(data)
                if busy:
                    numbers.append(number)
        return sorted(numbers)

    def _submit(self, spec: Spec) -> Future[Result]:
        with _interrupts_held():  # a worker that starts here must not get the terminal's Ctrl-C
            return self._executor.submit(self._function, spec)

    def _kill(self) -> None:
        """Ends workers in the middle of their work; the executor sees it and ends the others."""
        for note in Path(self._notes.name).iterdir():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(note.name), getattr(signal, "SIGKILL", signal.SIGTERM))


_note_fd = -1


def note(number: int | None) -> None:
    """Says, in a worker, what it works on from now on: a number (u64), or None for nothing.

    Outside a worker it does nothing.
    """
    if _note_fd != -1:
        _write_note(_NOTE.pack(number is not None, number or 0))


def _write_note(data: bytes) -> None:
    os.lseek(_note_fd, 0, os.SEEK_SET)
    os.write(_note_fd, data)


def _start_worker(notes: str, setup: Callable[[], None]) -> None:
    global _note_fd
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    path = Path(notes) / str(os.getpid())
    _note_fd = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    note(None)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Holds SIGINT back for a moment; processes started meanwhile never get it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
