"""Worker processes: order, what is in flight, and that no death goes unnoticed or leaves anything.

What the workers run stands in this module, for a process that is not forked imports it by name.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from im2rec import pool
from im2rec.errors import ImageError, InputError, OptionError, WorkerError

FOREVER = 1000  # seconds; a test that waits for it ends by its time limit
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
        time.sleep(0.1)  # number 0 was handed out before, but may not be noted yet
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


# --- helpers ----------------------------------------------------------------------------------


def run(
    function: Callable[[int], object],
    folder: Path,
    *,
    method: str | None = None,
    workers: int = 2,
    setup: Callable[[], None] = no_setup,
    specs: Iterator[int] | range = range(40),
) -> list[tuple[int, object]]:
    """All the results; asserts that nothing is left afterwards, however it ended."""
    try:
        with pool.Pool(
            function,
            setup=setup,
            workers=workers,
            start_method=method,
            name=lambda number: f"number {number}",
            folder=str(folder),
        ) as workers_pool:
            return list(workers_pool.results(specs))
    finally:
        assert multiprocessing.active_children() == []
        assert list(folder.iterdir()) == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- order and bounds -------------------------------------------------------------------------


@every_start_method
@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_with_their_specs_in_order(method: str, workers: int, tmp_path: Path) -> None:
    expected = [(number, number * number) for number in range(40)]
    assert run(square, tmp_path, method=method, workers=workers) == expected


def test_no_specs_no_results(tmp_path: Path) -> None:
    assert run(square, tmp_path, specs=range(0)) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_specs_are_drawn_no_further_than_the_bound(workers: int, tmp_path: Path) -> None:
    drawn: list[int] = []

    def specs() -> Iterator[int]:
        for number in range(50):
            drawn.append(number)
            yield number

    ahead = []
    with pool.Pool(square, setup=no_setup, workers=workers, folder=str(tmp_path)) as workers_pool:
        for consumed, _ in enumerate(workers_pool.results(specs())):
            ahead.append(len(drawn) - consumed)
    bound = workers * pool.IN_FLIGHT
    assert ahead == [bound] * (50 - bound) + list(range(bound, 0, -1))


def test_a_worker_ignores_the_terminal_s_signals_and_ends_by_sigterm(tmp_path: Path) -> None:
    ready = (True, signal.SIG_IGN, signal.SIG_DFL, signal.SIG_IGN)
    for method in pool.START_METHODS:
        results = run(signals_of_worker, tmp_path, method=method, specs=range(4))
        assert results == [(number, ready) for number in range(4)]


def test_a_note_outside_a_worker_does_nothing() -> None:
    pool.note(5)
    assert pool._note_fd == -1


# --- what the function raises -----------------------------------------------------------------


@every_start_method
def test_what_the_function_raises_is_raised(method: str, tmp_path: Path) -> None:
    with pytest.raises(ImageError) as refused:
        run(refuse, tmp_path, method=method)
    assert str(refused.value) == "truncated"
    with pytest.raises(WorkerError) as died:
        run(run_out_of_memory, tmp_path, method=method)
    assert str(died.value) == "a worker ran out of memory; in hand: 0.jpg"


def test_what_the_specs_raise_is_raised(tmp_path: Path) -> None:
    def specs() -> Iterator[int]:
        yield from range(20)
        raise InputError("a.lst", "is cut")

    with pytest.raises(InputError) as caught:
        run(square, tmp_path, specs=specs())
    assert str(caught.value) == "a.lst: is cut"


@every_start_method
def test_leaving_by_an_exception_ends_workers_in_the_middle_of_their_work(
    method: str, tmp_path: Path
) -> None:
    """Even those that have hardly been started."""

    def specs() -> Iterator[int]:
        yield from range(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sleep_forever, tmp_path, method=method, specs=specs())


# --- workers that die -------------------------------------------------------------------------


@every_start_method
@pytest.mark.parametrize("function", [die_by_signal, die_by_exit])
def test_a_dead_worker_is_an_error_that_names_what_it_had(
    method: str, function: Callable[[int], int], tmp_path: Path
) -> None:
    with pytest.raises(WorkerError) as caught:
        run(function, tmp_path, method=method, workers=1)
    assert str(caught.value) == f"{DIED}; in hand: number {KILLED_AT}"
    assert caught.value.in_hand == (f"number {KILLED_AT}",)


def test_a_worker_that_dies_between_two_specs_has_nothing_in_hand(tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        run(die_in_hand_of_nothing, tmp_path, workers=1)
    assert str(caught.value) == DIED


@every_start_method
def test_the_error_names_what_all_workers_had(method: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        run(one_dies_while_others_work, tmp_path, method=method, workers=2, specs=range(9))
    assert str(caught.value) == f"{DIED}; in hand: number 0, number 1"


@every_start_method
def test_a_setup_that_raises_is_told(
    method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerError) as caught:
        run(square, tmp_path, method=method, setup=setup_raises)
    assert str(caught.value) == (
        "a worker process cannot start: ImportError: libGL.so.1: no such file see the manual"
    )
    assert capfd.readouterr().err == ""


@every_start_method
def test_a_setup_that_dies_is_told(method: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        run(square, tmp_path, method=method, setup=setup_exits)
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
    *failures, last = in_other_process(few_open_files, tmp_path, method).splitlines()
    assert set(failures) == {
        "cannot start worker processes: Too many open files; "
        "raise the limit of open files (ulimit -n) or use fewer workers"
    }
    assert last == "done"


# --- parents that die -------------------------------------------------------------------------


def command(function: Callable[..., None], *arguments: object) -> list[str]:
    """The command line of a process that runs one of this module's functions."""
    code = f"import sys, test_pool; test_pool.{function.__name__}(*sys.argv[1:])"
    return [sys.executable, "-c", code, *map(str, arguments)]


def in_other_process(function: Callable[..., None], *arguments: object) -> str:
    return subprocess.run(
        command(function, *arguments),
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    ).stdout


def work_forever(folder: str, method: str) -> None:
    """A parent of two workers; says so when both are at work."""
    with pool.Pool(
        sleep_forever, setup=no_setup, workers=2, start_method=method, folder=folder
    ) as workers_pool:
        waiting = threading.Thread(
            target=lambda: (
                wait_for(lambda: workers_pool.in_hand() == [0, 1]),
                print("working", flush=True),
            ),
            daemon=True,
        )
        waiting.start()
        list(workers_pool.results(range(100)))


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


def family(session: int) -> list[int]:
    """The processes of a session that are alive."""
    alive = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text("utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            alive.append(int(name))
    return alive


every_parent = pytest.mark.parametrize("parent", pool.START_METHODS, indirect=True)


@every_parent
def test_workers_end_with_a_parent_that_is_killed(
    parent: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert len(family(parent.pid)) >= 3
    assert [len(list(folder.iterdir())) for folder in tmp_path.iterdir()] == [2]
    parent.kill()
    _, stderr = parent.communicate()
    wait_for(lambda: family(parent.pid) == [])
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
    wait_for(lambda: family(parent.pid) == [])
    assert list(tmp_path.iterdir()) == []


# --- start methods and CPUs -------------------------------------------------------------------


def test_an_unknown_start_method_is_an_option_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        run(square, tmp_path, method="thread")
    assert str(caught.value) == "start method 'thread' does not exist on this platform"


def test_fork_is_the_default_while_there_is_one_thread() -> None:
    assert pool.default_start_method() == "fork"
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert pool.default_start_method() == "forkserver"
    finally:
        release.set()
        thread.join()


def test_no_more_cpus_than_the_affinity_allows() -> None:
    code = (
        "import os; from im2rec.pool import available_cpus\n"
        "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); print(available_cpus())"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert said.stdout == b"1\n"
    assert 1 <= pool.available_cpus() <= len(os.sched_getaffinity(0))


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
        ("0::/a/b\n", {"../outside": "100000 100000"}, None),
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
