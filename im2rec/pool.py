"""Runs a function over many specs on worker processes, in order, with a bound on what is in flight.

A worker that dies is an error at once, and the error names what the workers had in hand: each
worker notes the number it is working on in a file of its own, which outlives it. Knows no images.
"""

from __future__ import annotations

import errno
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
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from im2rec.errors import OptionError, WorkerError
from im2rec.interrupts import HELD, signals_held

Spec = TypeVar("Spec")
Result = TypeVar("Result")

IN_FLIGHT = 4  # specs per worker handed out and not yet consumed; hides a slow spec behind others
MAX_WORKERS_WINDOWS = 61  # more handles than WaitForMultipleObjects takes
_NOTE = struct.Struct("<?Q")  # whether something is in hand, and its number
_FAILURE = "failure"  # the file, beside the notes, where a worker says why its setup failed

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
        text = membership.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    quotas = []
    for line in text.splitlines():
        controllers, _, group = line.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = mount / "cpu" if controllers else mount
        folder = top / group.lstrip("/")
        for level in (folder, *folder.parents):  # what a parent grants is shared by its groups
            if not level.is_relative_to(top):
                break
            with suppress(OSError, ValueError, ZeroDivisionError):
                if controllers:  # version 1
                    files = level / "cpu.cfs_quota_us", level / "cpu.cfs_period_us"
                    words = [file.read_text(encoding="ascii") for file in files]
                else:  # version 2: "150000 100000", or "max 100000": no number, no limit
                    words = (level / "cpu.max").read_text(encoding="ascii").split()
                quota, period = map(int, words)
                if quota > 0:
                    quotas.append(quota / period)
    return min(quotas, default=None)


def default_start_method() -> str:
    """fork where it is safe, for it starts fastest; else the one that is safe on this platform."""
    if sys.platform == "linux":
        return "fork" if _threads() == 1 else "forkserver"
    return "spawn"


def _threads() -> int:
    """The threads of this process, those of OpenCV or OpenBLAS included where the system tells.

    A forked process has none of them, and waits for ever for what they would have done.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


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
        if method == "fork" and _threads() > 1:
            raise OptionError(
                "start method 'fork' would hang: this process has threads; use forkserver or spawn"
            )
        self._function = function
        if sys.platform == "win32":
            workers = min(workers, MAX_WORKERS_WINDOWS)
        self._name = name
        self._in_flight = workers * IN_FLIGHT
        self._notes = tempfile.TemporaryDirectory(
            prefix="im2rec-notes-", dir=folder, ignore_cleanup_errors=True
        )
        try:
            with signals_held():  # multiprocessing's resource tracker may start here
                self._executor = ProcessPoolExecutor(
                    workers,
                    multiprocessing.get_context(method),
                    initializer=_start_worker,
                    initargs=(self._notes.name, setup),
                )
        except OSError as error:
            self._notes.cleanup()
            raise _cannot_start(error) from error

    def __enter__(self) -> Pool[Spec, Result]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A private name, but Python 3.14's kill_workers, too, looks there for what must end.
        workers = list((self._executor._processes or {}).values())
        if kind is not None:
            for worker in workers:
                worker.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.join()
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
            failure = Path(self._notes.name) / _FAILURE
            if failure.exists():
                found = f"a worker process cannot start: {failure.read_text(encoding='utf-8')}"
            else:
                found = "a worker process died (killed, out of memory, or a crashing decoder)"
            raise WorkerError(found, tuple(map(self._name, self.in_hand()))) from error

    def in_hand(self) -> list[int]:
        """The numbers that workers noted and have not finished."""
        numbers = []
        for note in Path(self._notes.name).iterdir():
            with suppress(FileNotFoundError):  # its worker has just made it the failure
                data = note.read_bytes()
                if note.name.isdigit() and len(data) == _NOTE.size:
                    busy, number = _NOTE.unpack(data)
                    if busy:
                        numbers.append(number)
        return sorted(numbers)

    def _submit(self, spec: Spec) -> Future[Result]:
        # Workers start here: an exception amid that would leave some that nothing knows of, and a
        # new worker must not get the terminal's Ctrl-C.
        with signals_held():
            try:
                return self._executor.submit(self._function, spec)
            except OSError as error:
                raise _cannot_start(error) from error


def _cannot_start(error: OSError) -> WorkerError:
    hints = {
        errno.EMFILE: "raise the limit of open files (ulimit -n) or use fewer workers",
        errno.EAGAIN: "raise the limit of processes (ulimit -u) or use fewer workers",
        errno.ENOMEM: "use fewer workers",
        errno.ENOENT: "is /dev/shm there?",
        errno.EACCES: "is /dev/shm there?",
    }
    hint = hints.get(error.errno or 0, "")
    return WorkerError(f"cannot start worker processes: {error.strerror}", (), hint)


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
    for name in ("SIGINT", "SIGHUP"):  # a terminal sends them to all: the parent decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    path = Path(notes) / str(os.getpid())
    try:
        _note_fd = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        note(None)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        setup()
    except Exception as error:  # whatever it is, it must be told, and without a traceback
        with suppress(OSError):  # no room even for that
            text = " ".join(f"{type(error).__name__}: {error}".split())
            path.write_text(text, encoding="utf-8", errors="replace")
            path.replace(Path(notes) / _FAILURE)  # so that it is there whole before this one ends
        os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
