"""Worker processes: order, what is in flight, and that no death goes unnoticed or leaves anything.

What the workers run stands in this module, for a process that is not forked imports it by name.
The pools themselves stand in a process of their own, for that of the tests may have threads, which
forbid to fork.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from processes import family, wait_for

from im2rec import pool
from im2rec.errors import ImageError, InputError, OptionError, WorkerError

FOREVER = 1000  # seconds; a test that waits for it fails
DIED = "a worker process died (killed, out of memory, or a crashing decoder)"
KILLED_AT = 13  # the number at which a worker ends

every_start_method = pytest.mark.parametrize("method", pool.START_METHODS)


# --- what workers run -------------------------------------------------------------------------


def no_setup() -> None:
    pass


def square(number: int) -> int:
    pool.note(number)
    time.sleep(number * 7 % 5 / 1000)  # so that they end in another order
    pool.note(None)
    return number * number


def sleep_forever(number: int) -> None:
    pool.note(number)
    time.sleep(FOREVER)


def die_by_signal(number: int) -> int:
    pool.note(number)
    if number == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_by_exit(number: int) -> int:
    pool.note(number)
    if number == KILLED_AT:
        os._exit(0)
    return number


def die_in_hand_of_nothing(number: int) -> int:
    pool.note(number)
    pool.note(None)
    if number == KILLED_AT:
        os._exit(0)
    return number


def one_dies_while_others_work(number: int) -> None:
    pool.note(number)
    if number == 1:
        time.sleep(1)  # number 0 was handed out before, but may not be noted yet
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(FOREVER)


def refuse(number: int) -> int:
    if number == KILLED_AT:
        raise ImageError("truncated")
    return number


def run_out_of_memory(number: int) -> int:
    raise WorkerError("a worker ran out of memory", (f"{number}.jpg",))


def setup_raises() -> None:
    raise ImportError("libGL.so.1: no such file\nsee the manual")


def setup_exits() -> None:
    os._exit(3)


def signals_of_worker(_: int) -> tuple[object, ...]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return not mask & set(held), *map(signal.getsignal, held)


def forty() -> Iterable[int]:
    return range(40)


def nothing() -> Iterable[int]:
    return ()


def twenty_then_an_error() -> Iterator[int]:
    yield from range(20)
    raise InputError("a.lst", "is cut")


def three_then_ctrl_c() -> Iterator[int]:
    yield from range(3)
    raise KeyboardInterrupt


# --- where pools run --------------------------------------------------------------------------

Results = list[tuple[int, object]]
Run = Callable[..., Results]


def run_pool(
    function: Callable[[int], object],
    folder: str,
    method: str | None = None,
    workers: int = 2,
    setup: Callable[[], None] = no_setup,
    specs: Callable[[], Iterable[int]] = forty,
) -> Results:
    """All the results; asserts that nothing is left afterwards, however it ended."""
    try:
        with pool.Pool(
            function,
            setup=setup,
            workers=workers,
            start_method=method,
            name=lambda number: f"number {number}",
            folder=folder,
        ) as workers_pool:
            return list(workers_pool.results(specs()))
    finally:
        assert multiprocessing.active_children() == []
        assert os.listdir(folder) == []


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process with one thread."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield executor
        for child in multiprocessing.active_children():  # should a pool in it hang
            child.kill()


@pytest.fixture
def run(process: ProcessPoolExecutor, tmp_path: Path) -> Run:
    """Runs `run_pool` in that process."""

    def run(function: Callable[[int], object], *arguments: object, **more: object) -> Results:
        job = process.submit(run_pool, function, str(tmp_path), *arguments, **more)  # type: ignore[arg-type]
        return job.result(timeout=100)

    return run


def command(function: Callable[..., None], *arguments: object) -> list[str]:
    """The command line of a process that runs one of this module's functions."""
    code = f"import sys, test_pool; test_pool.{function.__name__}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def output_of(function: Callable[..., None], *arguments: object) -> str:
    """What such a process prints, errors included."""
    return subprocess.run(
        command(function, *arguments),
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=True,
    ).stdout


# --- order and bounds -------------------------------------------------------------------------


@every_start_method
@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_with_their_specs_in_order(method: str, workers: int, run: Run) -> None:
    assert run(square, method, workers) == [(number, number * number) for number in range(40)]


def test_no_specs_no_results(run: Run) -> None:
    assert run(square, specs=nothing) == []


def drawn_ahead(workers: int, folder: str) -> list[int]:
    """How many more specs had been drawn than results consumed, at each of 50 results."""
    drawn: list[int] = []

    def specs() -> Iterator[int]:
        for number in range(50):
            drawn.append(number)
            yield number

    with pool.Pool(square, setup=no_setup, workers=workers, folder=folder) as workers_pool:
        results = workers_pool.results(specs())
        return [len(drawn) - consumed for consumed, _ in enumerate(results)]


@pytest.mark.parametrize("workers", [1, 3])
def test_specs_are_drawn_no_further_than_the_bound(
    workers: int, process: ProcessPoolExecutor, tmp_path: Path
) -> None:
    ahead = process.submit(drawn_ahead, workers, str(tmp_path)).result()
    assert ahead[-1] == 1
    assert workers <= max(ahead) <= workers * pool.IN_FLIGHT


def first_is_slow(number: int) -> int:
    time.sleep(0 if number else 0.5)
    return number


def drawn_meanwhile(folder: str) -> int:
    """How many tasks were drawn while the first of them took its time."""
    drawn: list[int] = []
    tasks = (drawn.append(number) or number for number in range(50))  # type: ignore[func-returns-value]
    with pool.Pool(first_is_slow, setup=no_setup, workers=2, folder=folder) as workers_pool:
        next(workers_pool.results(tasks))
        return len(drawn)


def test_behind_a_slow_task_others_are_done_up_to_the_bound(
    process: ProcessPoolExecutor, tmp_path: Path
) -> None:
    assert process.submit(drawn_meanwhile, str(tmp_path)).result() == 2 * pool.IN_FLIGHT


@every_start_method
def test_a_worker_ignores_the_terminal_s_signals_and_ends_by_sigterm(method: str, run: Run) -> None:
    ready = (True, signal.SIG_IGN, signal.SIG_DFL, signal.SIG_IGN)
    assert {result for _, result in run(signals_of_worker, method)} == {ready}


def test_a_note_outside_a_worker_does_nothing() -> None:
    pool.note(5)
    assert pool._note is None


# --- what the function raises -----------------------------------------------------------------


@every_start_method
def test_what_the_function_raises_is_raised(method: str, run: Run) -> None:
    with pytest.raises(ImageError) as refused:
        run(refuse, method)
    assert str(refused.value) == "truncated"
    with pytest.raises(WorkerError) as died:
        run(run_out_of_memory, method, workers=1)
    assert str(died.value) == "a worker ran out of memory; in hand: 0.jpg"


class Untold(Exception):
    """It cannot travel: unpickling calls it with too few arguments."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)


def fail_untold(number: int) -> int:
    raise Untold("no luck", number)


def test_an_error_that_cannot_travel_is_told_in_words(run: Run) -> None:
    with pytest.raises(WorkerError) as caught:
        run(fail_untold, workers=1)
    assert str(caught.value) == "a worker failed: Untold: no luck"


def test_what_the_specs_raise_is_raised(run: Run) -> None:
    with pytest.raises(InputError) as caught:
        run(square, specs=twenty_then_an_error)
    assert str(caught.value) == "a.lst: is cut"


@every_start_method
def test_leaving_by_an_exception_ends_workers_in_the_middle_of_their_work(
    method: str, run: Run
) -> None:
    """Even those that have hardly been started."""
    with pytest.raises(KeyboardInterrupt):
        run(sleep_forever, method, workers=4, specs=three_then_ctrl_c)


# --- workers that do not come to an end -------------------------------------------------------


def hold_third(number: int) -> int:
    """Never returns from the regular expression, nor lets another thread run meanwhile."""
    pool.note(number)
    if number == 3:
        re.fullmatch("(a|a)*", "a" * 60 + "b")
    pool.note(None)
    return number


def stop_third(number: int) -> int:
    pool.note(number)
    if number == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    pool.note(None)
    return number


def take_half_a_second_each(number: int) -> int:
    for step in range(6):
        pool.note(10 * number + step)
        time.sleep(0.5)
    pool.note(None)
    time.sleep(2)  # with nothing in hand, it may take what it needs
    return number


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("function", [hold_third, stop_third])
def test_a_number_that_is_in_hand_for_too_long_is_an_error_that_names_it(
    function: Callable[[int], int], workers: int, tmp_path: Path
) -> None:
    others = multiprocessing.active_children()
    begin = time.monotonic()
    with pytest.raises(WorkerError) as caught, pool.Pool(
        function,
        setup=no_setup,
        workers=workers,
        name=lambda number: f"number {number}",
        folder=str(tmp_path),
        seconds=1.5,
    ) as crew:  # fmt: skip
        list(crew.results(range(1000)))
    assert str(caught.value) == (
        "a worker has had one thing in hand for 1.5 s; in hand: number 3; "
        "leave it out, or allow more with --image-timeout"
    )
    assert time.monotonic() - begin < 10
    assert multiprocessing.active_children() == others
    assert os.listdir(tmp_path) == []


def test_many_numbers_may_take_longer_together(tmp_path: Path) -> None:
    with pool.Pool(
        take_half_a_second_each, setup=no_setup, workers=2, folder=str(tmp_path), seconds=1.6
    ) as crew:
        assert [answer for _, answer in crew.results(range(2))] == [0, 1]


def identity(number: int) -> int:
    return number


def stop_idle_workers(folder: str) -> None:
    """Leaves a pool one worker of which is stopped while it has nothing to do."""
    pool.END_SECONDS = 0.5
    with pool.Pool(identity, setup=no_setup, workers=2, folder=folder) as crew:
        answers = list(crew.results(range(9)))
        os.kill(crew._workers[0].process.pid, signal.SIGSTOP)
    print(len(answers), multiprocessing.active_children())


def test_an_idle_worker_that_does_not_end_is_killed(tmp_path: Path) -> None:
    assert output_of(stop_idle_workers, tmp_path) == "9 []\n"
    assert os.listdir(tmp_path) == []


TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
seized = libc.ptrace(0x4206, int(sys.argv[1]), None, None)  # PTRACE_SEIZE
print(seized, flush=True)
time.sleep(1000)
"""


def be_traced(number: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(0x59616D61, -1, 0, 0, 0)  # PR_SET_PTRACER, by anyone
    sleep_forever(number)


def leave_one_that_does_not_end(folder: str) -> None:
    """A process of which another one is the tracer cannot be reaped before that one looks."""
    pool.KILL_SECONDS = 0.5
    crew = pool.Pool(
        be_traced, setup=no_setup, workers=2, folder=folder, name=lambda number: f"number {number}"
    )
    try:
        with crew:
            crew.start(0, 7)
            crew.start(1, 8)
            wait_for(lambda: crew.in_hand() == [7, 8], "no notes", 30)
            pid = crew._workers[1].process.pid
            tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdout=-1)
            assert tracer.stdout
            print(tracer.pid, pid, tracer.stdout.readline().decode().strip(), flush=True)
            raise KeyError("what ends it")
    except KeyError as error:
        print(error, flush=True)


def test_a_worker_that_does_not_end_although_killed_is_named_and_left(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as stderr:  # a pipe would stay open in the one left
        process = subprocess.Popen(
            command(leave_one_that_does_not_end, tmp_path),
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout
    tracer, pid, seized = map(int, process.stdout.readline().split())
    try:
        if seized != 0:
            pytest.skip("no process may be traced here")
        assert process.stdout.readline() == b"'what ends it'\n"
        assert process.wait(10) == 0
    finally:
        process.kill()
        os.kill(tracer, signal.SIGKILL)
        process.communicate()
    assert (
        f"LeftRunning: process {pid} has not ended although killed, and is left; "
        "in hand: number 8; does the storage hang?\n"
    ) in (tmp_path / "stderr").read_text("utf-8")
    assert os.listdir(tmp_path) == ["stderr"]


# --- workers that die -------------------------------------------------------------------------


@every_start_method
@pytest.mark.parametrize("function", [die_by_signal, die_by_exit])
def test_a_dead_worker_is_an_error_that_names_what_it_had(
    method: str, function: Callable[[int], int], run: Run
) -> None:
    with pytest.raises(WorkerError) as caught:
        run(function, method, workers=1)
    assert str(caught.value) == f"{DIED}; in hand: number {KILLED_AT}"
    assert caught.value.in_hand == (f"number {KILLED_AT}",)


def test_a_worker_that_dies_between_two_specs_has_nothing_in_hand(run: Run) -> None:
    with pytest.raises(WorkerError) as caught:
        run(die_in_hand_of_nothing, workers=1)
    assert str(caught.value) == DIED


@every_start_method
def test_the_error_names_what_all_workers_had(method: str, run: Run) -> None:
    with pytest.raises(WorkerError) as caught:
        run(one_dies_while_others_work, method)
    assert str(caught.value) == f"{DIED}; in hand: number 0, number 1"


def fail_in_setup(folder: str, method: str) -> None:
    try:
        run_pool(square, folder, method, setup=setup_raises)
    except WorkerError as error:
        print(error)


@every_start_method
def test_a_setup_that_raises_is_told_and_nothing_else(method: str, tmp_path: Path) -> None:
    assert output_of(fail_in_setup, tmp_path, method) == (
        "a worker process cannot start: ImportError: libGL.so.1: no such file see the manual\n"
    )


def fail_to_preload(folder: str) -> None:
    try:
        pool.Pool(square, setup=no_setup, preload=setup_raises, workers=1, folder=folder)
    except WorkerError as error:
        print(error, os.listdir(folder))


def test_what_cannot_be_loaded_before_forking_is_told(tmp_path: Path) -> None:
    assert output_of(fail_to_preload, tmp_path) == (
        "cannot start worker processes: ImportError: libGL.so.1: no such file see the manual []\n"
    )


def kill_the_server(folder: str) -> None:
    from multiprocessing import forkserver

    forkserver.ensure_running()
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    os.kill(server, signal.SIGSTOP)
    killer = threading.Timer(0.5, os.kill, (server, signal.SIGKILL))
    killer.start()
    try:
        run_pool(square, folder, "forkserver")
    except WorkerError as error:
        print(error)
    killer.join()


def test_a_dead_fork_server_is_told(tmp_path: Path) -> None:
    assert output_of(kill_the_server, tmp_path) == (
        "cannot start worker processes: the process that starts them died\n"
    )


@every_start_method
def test_a_setup_that_dies_is_told(method: str, run: Run) -> None:
    with pytest.raises(WorkerError) as caught:
        run(square, method, setup=setup_exits)
    assert str(caught.value) == DIED


def few_open_files(folder: str, method: str) -> None:
    """Runs pools in a process that may open ever more files until one gets through; prints what
    comes of each."""
    used = max(map(int, os.listdir("/proc/self/fd")))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for more in range(8, 48, 3):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, limits[1]))
        try:
            with pool.Pool(
                square, setup=no_setup, workers=4, start_method=method, folder=folder
            ) as workers_pool:
                assert len(list(workers_pool.results(range(9)))) == 9
                outcome = "done"
        except WorkerError as error:
            outcome = str(error)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        print(outcome, *multiprocessing.active_children())
        if outcome == "done":
            return


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_too_few_open_files_are_an_error_that_leaves_no_worker(method: str, tmp_path: Path) -> None:
    *failures, last = output_of(few_open_files, tmp_path, method).splitlines()
    assert failures
    for failure in failures:  # of the parent, or of a worker
        assert re.match(r"(cannot start worker processes|a worker process cannot start):", failure)
        assert "Too many open files" in failure
    assert last == "done"


# --- parents that die -------------------------------------------------------------------------


def work_forever(folder: str, method: str) -> None:
    """A parent of two workers; says so when both are at work."""
    with pool.Pool(
        sleep_forever, setup=no_setup, workers=2, start_method=method, folder=folder
    ) as workers_pool:
        workers_pool.start(0, 0)
        workers_pool.start(1, 1)
        wait_for(lambda: workers_pool.in_hand() == [0, 1], "no notes of both", 30)
        print("working", flush=True)
        workers_pool.wait()


@pytest.fixture
def parent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for its workers, in a session of its own."""
    with subprocess.Popen(
        command(work_forever, tmp_path, request.param),
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            for survivor in family(process.pid):
                os.kill(survivor, signal.SIGKILL)


every_parent = pytest.mark.parametrize("parent", pool.START_METHODS, indirect=True)


@every_parent
def test_workers_end_with_a_parent_that_is_killed(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert len(family(parent.pid)) >= 3
    assert [len(list(folder.iterdir())) for folder in tmp_path.iterdir()] == [2]
    parent.kill()
    _, stderr = parent.communicate()
    wait_for(lambda: family(parent.pid) == [], "workers outlive their parent", 30)
    assert "Traceback" not in stderr


@every_parent
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
def test_ctrl_c_ends_all(parent: subprocess.Popen[str], whole_group: bool, tmp_path: Path) -> None:
    if whole_group:  # as a terminal does
        os.killpg(parent.pid, signal.SIGINT)
    else:
        parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate()
    assert parent.returncode == -signal.SIGINT
    assert stderr.endswith("KeyboardInterrupt\n")
    assert stderr.count("Traceback") == 1  # the parent's own
    wait_for(lambda: family(parent.pid) == [], "workers outlive their parent", 30)
    assert list(tmp_path.iterdir()) == []


# --- start methods and CPUs -------------------------------------------------------------------


def test_an_unknown_start_method_is_an_option_error(run: Run) -> None:
    with pytest.raises(OptionError) as caught:
        run(square, "thread")
    assert str(caught.value) == "start method 'thread' does not exist on this platform"


def start_beside_a_thread(folder: str) -> None:
    print(pool.default_start_method())
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    print(pool.default_start_method())
    try:
        run_pool(square, folder, "fork")
    except OptionError as error:
        print(error)
    print(len(run_pool(square, folder)))
    release.set()
    thread.join()


def test_only_a_process_with_one_thread_is_forked(tmp_path: Path) -> None:
    assert output_of(start_beside_a_thread, tmp_path).splitlines() == [
        "fork",
        "forkserver",
        "start method 'fork' would hang: this process has threads; use forkserver or spawn",
        "40",
    ]


def test_no_more_cpus_than_the_affinity_allows() -> None:
    code = (
        "import os; from im2rec.pool import available_cpus\n"
        "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); print(available_cpus())"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert said.stdout == b"1\n"
    assert 1 <= pool.available_cpus() <= len(os.sched_getaffinity(0))


def test_no_more_workers_than_two_for_each_cpu() -> None:
    cpus = pool.available_cpus()
    counts = [pool.worker_count(asked) for asked in (None, 1, 2 * cpus, 1000)]
    assert counts == [cpus, 1, 2 * cpus, 2 * cpus]


V1 = "12:cpuset:/set\n4:cpu,cpuacct:/a/b\n2:memory:/a/b\n"
V1_FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/b": "max 100000"}, None),
        ("0::/a/b\n", {"a/b": "max 100000", "a": "50000 100000"}, 0.5),
        ("0::/a/b\n", {"a/b": "400000 100000", "a": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/b": "400000 100000", "a": "500000 100000"}, 4),
        ("0::/\n", {"": "200000 100000"}, 2),
        ("0::/a/b\n", {"a/c": "100000 100000"}, None),
        ("0::/a/b\n", {"a/b": "100000 0"}, None),
        ("0::/a/b\n", {"a/b": ""}, None),
        ("0::/a/b\n", {"..": "100000 100000"}, None),  # above the mount
        (V1, {"cpu/a/b": "150000 100000"}, 1.5),
        (V1, {"cpu/a/b": "-1 100000"}, None),
        (V1, {"cpu/a/b": "-1 100000", "cpu/a": "250000 100000"}, 2.5),
        (V1, {"cpu": "100000 50000"}, 2),  # a container sees its own group as the top
        (V1, {"cpu/set": "100000 50000"}, None),
        (V1 + "0::/\n", {"cpu/a/b": "150000 100000", "": "100000 100000"}, 1),
        ("", {"": "100000 100000"}, None),
        ("nonsense\n", {"a": "100000 100000"}, None),
    ],
)
def test_the_control_group_s_quota(
    membership: str, limits: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    mount = tmp_path / "mount"
    for group, limit in limits.items():
        folder = mount / group
        folder.mkdir(parents=True, exist_ok=True)
        if group.startswith("cpu"):
            for name, number in zip(V1_FILES, limit.split(), strict=True):
                (folder / name).write_text(number + "\n", encoding="ascii")
        else:
            (folder / "cpu.max").write_text(limit + "\n", encoding="ascii")
    (tmp_path / "cgroup").write_text(membership, encoding="utf-8")
    assert pool._cgroup_quota(tmp_path / "cgroup", mount) == expected


def test_a_control_group_may_have_any_name_or_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_bytes(b"0::/caf\xe9\n")
    folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"mount/caf\xe9")))
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("300000 100000\n", encoding="ascii")
    assert pool._cgroup_quota(tmp_path / "cgroup", tmp_path / "mount") == 3
    assert pool._cgroup_quota(tmp_path / "none", tmp_path / "mount") is None
