"""Worker processes that run one function for many tasks; a death is an error at once.

The error names what the workers had in hand: each worker notes the number it is working on in a
file of its own, which outlives it. Knows no images.
"""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar

from im2rec.errors import OptionError, WorkerError, printable
from im2rec.interrupts import HELD, signals_held

Task = TypeVar("Task")
Answer = TypeVar("Answer")

IN_FLIGHT = 4  # tasks per worker drawn and not yet consumed; hides a slow one behind others
WORKERS_PER_CPU = 2  # at most; 64 on 2 CPUs, which take each other's caches, took a fifth longer
MAX_WORKERS_WINDOWS = 61  # more handles than WaitForMultipleObjects takes
END_SECONDS = 10.0  # that a worker may take to end by itself, with nothing left to do
KILL_SECONDS = 5.0  # and to end when it is killed; one that waits for storage that hangs never does
LOOK_EVERY = 1.0  # seconds between two looks at what the workers have in hand
_NOTE = struct.Struct("<Q?Q")  # notes so far; whether something is in hand, and its number
_COUNT = struct.Struct("<Q")  # its beginning

_Pipe: TypeAlias = "connection.Connection[Any, Any]"

START_METHODS = ("fork", "forkserver", "spawn")


def available_cpus() -> int:
    """How many CPUs this process may use: its affinity, and its control group's quota (Linux)."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cpus = os.cpu_count() or 1
    quota = _cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(1, min(cpus, int(quota) if quota else cpus))


def worker_count(asked: int | None) -> int:
    """How many workers to start where so many were asked for, or None: one for each CPU that this
    process may use; more where asked for, up to WORKERS_PER_CPU each."""
    cpus = available_cpus()
    return min(asked, WORKERS_PER_CPU * cpus) if asked else cpus


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
    for _ in range(10):  # one that has been joined may yet take a moment to go
        try:
            threads = len(os.listdir("/proc/self/task"))
        except OSError:
            return threading.active_count()
        if threads == 1 or threading.active_count() > 1:
            break
        time.sleep(0.001)
    return threads


class Pool(Generic[Task, Answer]):
    """Worker processes that run one function, each for one task at a time.

    function: picklable, from task (not None) to answer; what it keeps is its worker's alone.
    setup: run once in each worker before its first task. preload: run in this process before
    workers are forked off it, so that they need not each load the same. workers: processes at most,
    numbered from 0; each starts with its first task. start_method: of multiprocessing; None =
    `default_start_method`. name: turns a number that a worker noted into words for an error.
    folder: where the workers' notes lie; None = the system's folder for temporary files.
    seconds: how long a worker may have one number in hand, to LOOK_EVERY or two of them; None = for
    ever. Leaving the context ends every worker: at once if by an exception. Where one does not end
    although it is killed, it is left, and a LeftRunning warning names it.
    """

    def __init__(
        self,
        function: Callable[[Task], Answer],
        *,
        setup: Callable[[], None],
        workers: int,
        preload: Callable[[], None] | None = None,
        start_method: str | None = None,
        name: Callable[[int], str] = str,
        folder: str | None = None,
        seconds: float | None = None,
    ) -> None:
        method = start_method or default_start_method()
        if method not in multiprocessing.get_all_start_methods():
            raise OptionError(f"start method {method!r} does not exist on this platform")
        if method == "fork" and preload and _threads() == 1:
            try:
                with signals_held():  # an exception amid an import may become another
                    preload()
            except Exception as error:  # a library that cannot be loaded
                found = f"cannot start worker processes: {_words(error)}"
                raise WorkerError(found, ()) from error
            method = start_method or default_start_method()
        if method == "fork" and _threads() > 1:
            raise OptionError(
                "start method 'fork' would hang: this process has threads; use forkserver or spawn"
            )
        if sys.platform == "win32":
            workers = min(workers, MAX_WORKERS_WINDOWS)
        self._function = function
        self._setup = setup
        self._context: Any = multiprocessing.get_context(method)
        self._name = name
        self._most = workers
        self._seconds = seconds
        self._looked = time.monotonic()
        self._workers: list[_Worker[Task]] = []
        try:
            self._notes = tempfile.TemporaryDirectory(
                prefix="im2rec-notes-", dir=folder, ignore_cleanup_errors=True
            )
        except OSError as error:
            raise _cannot_start(error) from error

    def __enter__(self) -> Pool[Task, Answer]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self._workers:
            if kind is not None or worker.task is not None:
                worker.process.kill()
            else:
                with suppress(OSError):  # it has died meanwhile
                    worker.pipe.send(None)
        left = self._left_running(END_SECONDS if kind is None else KILL_SECONDS)
        for worker in self._workers:
            with suppress(ValueError):  # where SIGCHLD is ignored, no end of a process is told
                worker.process.close()
            worker.pipe.close()
        self._notes.cleanup()
        if left:
            warnings.warn(left, LeftRunning, stacklevel=2)

    def _left_running(self, seconds: float) -> str:
        """Waits until all workers have ended, and kills those that take more than some seconds.
        What is left even so, in words; it is waited for no more, not even at the end of Python."""
        rest = _not_ended([worker.process for worker in self._workers], seconds)
        if rest and seconds != KILL_SECONDS:
            for process in rest:
                process.kill()
            rest = _not_ended(rest, KILL_SECONDS)
        if not rest:
            return ""
        for process in rest:
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
        pids = ", ".join(str(process.pid) for process in rest)
        one = len(rest) == 1
        what = f"process {pids} has" if one else f"processes {pids} have"
        notes = [note for process in rest if (note := self._noted(process.pid))]
        held = ", ".join(printable(self._name(number)) for _, number in notes)
        in_hand = f"; in hand: {held}" if held else ""
        left = f"not ended although killed, and {'is' if one else 'are'} left"
        return f"{what} {left}{in_hand}; does the storage hang?"

    def idle(self) -> list[int]:
        """The workers that have no task, those not yet started included."""
        started = [number for number, worker in enumerate(self._workers) if worker.task is None]
        return started + list(range(len(self._workers), self._most))

    @property
    def is_busy(self) -> bool:
        """Whether any worker has a task."""
        return any(worker.task is not None for worker in self._workers)

    def start(self, worker: int, task: Task) -> None:
        """Gives an idle worker a task. Raises WorkerError where it is dead or cannot start."""
        while worker >= len(self._workers):
            self._hire()
        self._workers[worker].task = task
        try:
            self._workers[worker].pipe.send(task)
        except OSError:  # the other end is closed; what it said last is told
            self.wait()
            raise self._death() from None

    def wait(self) -> list[tuple[int, Task, Answer]]:
        """Waits until one of the workers has an answer, or several have: worker, task, answer.

        Raises WorkerError when a worker dies, or has one number in hand for too long; what the
        function raises is raised here.
        """
        busy = {worker.pipe: n for n, worker in enumerate(self._workers) if worker.task is not None}
        answers = []
        for pipe in self._ready(list(busy)):
            number = busy[pipe]
            try:
                error, answer = self._workers[number].pipe.recv()
            except (EOFError, OSError):  # even in the middle of its answer
                raise self._death() from None
            if error is not None:
                raise error from _Traceback(answer)
            task, self._workers[number].task = self._workers[number].task, None
            assert task is not None
            answers.append((number, task, answer))
        return answers

    def _ready(self, pipes: list[_Pipe]) -> list[_Pipe]:
        """Waits until there is something to read from some of the pipes; these."""
        if self._seconds is None:
            return connection.wait(pipes)  # type: ignore[return-value]
        while True:
            ready = connection.wait(pipes, LOOK_EVERY)
            if time.monotonic() - self._looked >= LOOK_EVERY:
                self._look()
            if ready:
                return ready  # type: ignore[return-value]

    def _look(self) -> None:
        """Raises WorkerError where a worker has had one number in hand for too long."""
        assert self._seconds is not None
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        # For so long, this process was not running either: suspended, stopped, or out of its turn.
        is_whole = passed < 2 * LOOK_EVERY
        for worker in self._workers:
            note = self._noted(worker.process.pid)
            is_same = note and note == worker.note and is_whole
            worker.seconds = worker.seconds + passed if is_same else 0.0
            worker.note = note
            if note and worker.seconds >= self._seconds:
                found = f"a worker has had one thing in hand for {self._seconds:g} s"
                hint = "leave it out, or allow more with --image-timeout"
                raise WorkerError(found, (self._name(note[1]),), hint)

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer]]:
        """Each task with its answer, in the order of the tasks, which are drawn as needed.

        Raises as `wait` does.
        """
        source = iter(tasks)
        numbers: dict[int, int] = {}  # of the task that each worker has
        ready: dict[int, tuple[Task, Answer]] = {}
        drawn = following = 0
        is_drained = False
        while True:
            for worker in self.idle():
                if is_drained or drawn - following >= self._most * IN_FLIGHT:
                    break
                task = next(source, None)
                if task is None:
                    is_drained = True
                    break
                numbers[worker] = drawn
                drawn += 1
                self.start(worker, task)
            if following in ready:
                yield ready.pop(following)
                following += 1
            elif following == drawn:
                return
            else:
                for worker, task, answer in self.wait():
                    ready[numbers[worker]] = task, answer

    def in_hand(self) -> list[int]:
        """The numbers that workers noted and have not finished."""
        noted = [self._noted(worker.process.pid) for worker in self._workers]
        return sorted(note[1] for note in noted if note)

    def _noted(self, pid: int) -> tuple[int, int] | None:
        """A worker's note if it has something in hand: which of its notes, and the number."""
        with suppress(OSError):  # none yet
            data = Path(self._notes.name, str(pid)).read_bytes()
            if len(data) == _NOTE.size:
                count, busy, number = _NOTE.unpack(data)
                return (count, number) if busy else None
        return None

    def _hire(self) -> None:
        """Starts one more worker."""
        if self._context.get_start_method() != "fork" and sys.platform != "win32":
            # Were it started together with the worker, it would unblock the signals before that.
            with signals_held(), suppress(OSError):  # where it cannot start, nor can a worker
                resource_tracker.ensure_running()
        # An exception amid that would leave a process that nothing knows of, and a new worker must
        # not get the terminal's Ctrl-C.
        with signals_held():
            try:
                ours, theirs = self._context.Pipe()
                process = self._context.Process(
                    target=_work,
                    args=(theirs, self._function, self._setup, self._notes.name),
                    daemon=True,
                )
                try:
                    with _no_main():
                        process.start()
                except BaseException:
                    ours.close()
                    raise
                finally:
                    theirs.close()
            except EOFError as error:
                found = "cannot start worker processes: the process that starts them died"
                raise WorkerError(found, ()) from error
            except OSError as error:
                raise _cannot_start(error) from error
            self._workers.append(_Worker(process, ours))

    def _death(self) -> WorkerError:
        """The error for a worker that has ended unasked."""
        found = "a worker process died (killed, out of memory, or a crashing decoder)"
        return WorkerError(found, tuple(map(self._name, self.in_hand())))


@contextmanager
def _no_main() -> Iterator[None]:
    """Hides the program's main module: a worker needs nothing of it, and one that is not forked
    would import it anew, so that a script without an `if __name__ == "__main__"` ran once more."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass
class _Worker(Generic[Task]):
    """A worker process, our end of the pipe to it, and the task that it has.

    note, seconds: what it had in hand at the last look, and for how long.
    """

    process: Any
    pipe: _Pipe
    task: Task | None = None
    note: tuple[int, int] | None = None
    seconds: float = 0.0


class LeftRunning(RuntimeWarning):
    """A worker process did not end, not even when it was killed."""


def _not_ended(processes: list[Any], seconds: float) -> list[Any]:
    """Those of the processes that have not ended after so many seconds; all are waited for that
    long together."""
    deadline = time.monotonic() + seconds
    return [process for process in processes if not _ends(process, deadline)]


def _ends(process: Any, deadline: float) -> bool:
    """Whether a process ends in time. `join` with a timeout waits without one for a process that
    has ended and cannot be reaped, as while another process traces it."""
    while process.is_alive():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if connection.wait([process.sentinel], left):
            if not _exists(process.pid):  # where SIGCHLD is ignored
                return True
            time.sleep(0.001)
    return True


def _exists(pid: int) -> bool:
    if sys.platform == "win32":  # where the signal 0 would be another one
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class _Traceback(Exception):
    """The place in a worker where an error was raised."""


def _cannot_start(error: OSError) -> WorkerError:
    hints = {
        errno.EMFILE: "raise the limit of open files (ulimit -n) or use fewer workers",
        errno.EAGAIN: "raise the limit of processes (ulimit -u) or use fewer workers",
        errno.ENOMEM: "use fewer workers",
        errno.ENOENT: "is /dev/shm there?",
        errno.EACCES: "is /dev/shm there?",
    }
    hint = hints.get(error.errno or 0, "")
    if "AF_UNIX path too long" in str(error):  # of the fork server's socket
        hint = "set TMPDIR to a shorter path, or use --start-method spawn"
    return WorkerError(f"cannot start worker processes: {error.strerror or error}", (), hint)


_note: mmap.mmap | None = None  # memory that is a file: as fast as the one, it stays as the other


def note(number: int | None) -> None:
    """Says, in a worker, what it works on from now on: a number (u64), or None for nothing.

    Outside a worker it does nothing.
    """
    if _note is not None:
        (count,) = _COUNT.unpack_from(_note)
        _NOTE.pack_into(_note, 0, count + 1, number is not None, number or 0)


def _work(
    pipe: _Pipe,
    function: Callable[[Any], Any],
    setup: Callable[[], None],
    notes: str,
) -> None:
    """What a worker does all its life: tasks in, answers out, until it is told None."""
    try:
        _start_worker(notes, setup)
    except Exception as error:  # whatever it is, it must be told, and without a traceback
        told = WorkerError(f"a worker process cannot start: {_words(error)}", ())
        with suppress(OSError):  # the parent is no more
            pipe.send((told, traceback.format_exc()))
        os._exit(1)
    with suppress(EOFError, BrokenPipeError):  # the parent is no more
        while (task := pipe.recv()) is not None:
            try:
                answer: tuple[Exception | None, Any] = None, function(task)
            except Exception as error:
                answer = _sendable(error), traceback.format_exc()
            pipe.send(answer)


def _sendable(error: Exception) -> Exception:
    """The error, or its words where it cannot travel."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return WorkerError(f"a worker failed: {_words(error)}", ())
    return error


def _start_worker(notes: str, setup: Callable[[], None]) -> None:
    global _note
    for name in ("SIGINT", "SIGHUP"):  # a terminal sends them to all: the parent decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    with open(Path(notes) / str(os.getpid()), "w+b") as file:
        file.write(_NOTE.pack(0, False, 0))
        file.flush()
        _note = mmap.mmap(file.fileno(), _NOTE.size)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    setup()


def _words(error: Exception) -> str:
    """The error's kind and what it says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def _end_with_parent() -> None:
    born = os.getppid()  # the parent's number, or that of the fork server
    parent = multiprocessing.parent_process()
    if parent is not None:
        # That the parent is gone shows at once, but only if all workers that were forked after this
        # one have gone, too: one that hangs must not keep the others.
        while parent.is_alive() and os.getppid() == born:
            parent.join(1)
        os._exit(1)
