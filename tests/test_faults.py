"""Faults in running processes: signals, killed workers, two runs at once, closed pipes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import CLEAN, Run
from processes import family, wait_for

ROWS = 20_000  # far more than a run gets through before the fault is made


@pytest.fixture
def long_list(tmp_path: Path) -> Path:
    """A list that takes far longer to pack than any test waits, in a folder with an older set."""
    path = tmp_path / "set.lst"
    rows = [f"{number}\t0\tdog/dog_{number % 3}.jpg\n" for number in range(ROWS)]
    path.write_text("".join(rows), encoding="utf-8")
    (tmp_path / "set.rec").write_bytes(b"older")
    (tmp_path / "set.idx").write_bytes(b"older index")
    return path


@pytest.fixture
def packing(long_list: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in the middle of packing `long_list`."""
    process = start_packing(long_list)
    yield process
    process.kill()
    process.wait()
    if process.stderr:
        process.stderr.close()


def start_packing(long_list: Path, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "im2rec", "pack", "set", str(CLEAN), "--workers", "2", *options],
        cwd=long_list.parent,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # so that the whole family can be looked for
    )
    wait_for(lambda: joined(long_list.parent) > 0, "the run never joined a part")
    return process


def joined(folder: Path) -> int:
    """Bytes of the set that is being written."""
    return sum(path.stat().st_size for path in (folder / ".set.im2rec").glob("*.rec"))


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the run's session that are alive, itself excepted."""
    return [pid for pid in family(process.pid) if pid != process.pid]


def assert_older_set_untouched(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["set.idx", "set.lst", "set.rec"]
    assert (folder / "set.rec").read_bytes() == b"older"
    assert (folder / "set.idx").read_bytes() == b"older index"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
def test_a_signal_ends_the_run_and_leaves_nothing(
    packing: subprocess.Popen[str],
    number: signal.Signals,
    code: int,
    whole_group: bool,
    tmp_path: Path,
) -> None:
    if whole_group:  # as a terminal does with Ctrl-C
        os.killpg(packing.pid, number)
    else:
        packing.send_signal(number)
    _, stderr = packing.communicate(timeout=10)
    assert packing.returncode == code
    last = stderr.splitlines()[-1]
    assert last == f"im2rec: error: ended by {number.name}; nothing was left half-written"
    assert "Traceback" not in stderr
    assert workers_of(packing) == []
    assert_older_set_untouched(tmp_path)


def test_a_killed_worker_is_an_error_that_names_the_images_in_hand(
    packing: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.kill(workers_of(packing)[-1], signal.SIGKILL)
    _, stderr = packing.communicate(timeout=10)
    assert packing.returncode == 2
    last = stderr.splitlines()[-1]
    assert last.startswith(
        "im2rec: error: a worker process died (killed, out of memory, or a crashing decoder); "
        "in hand: dog/dog_"
    )
    assert workers_of(packing) == []
    assert_older_set_untouched(tmp_path)


def test_workers_end_with_a_killed_parent_and_the_next_run_clears_up(
    packing: subprocess.Popen[str], tmp_path: Path, im2rec: Run
) -> None:
    packing.kill()
    packing.wait()
    wait_for(lambda: workers_of(packing) == [], "workers outlive their parent")
    assert (tmp_path / ".set.im2rec").exists()
    rows = (tmp_path / "set.lst").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "set.lst").write_text("".join(rows[:5]), encoding="utf-8")
    im2rec("pack", "set", CLEAN)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["set.idx", "set.lst", "set.manifest.json", "set.rec"]
    im2rec("verify", "set", "--decode", "--list", "set.lst")


def test_a_second_run_on_the_same_prefix_fails_at_once(
    packing: subprocess.Popen[str], im2rec: Run
) -> None:
    done = im2rec("pack", "set", CLEAN, code=2)
    assert done.stderr == (
        "im2rec: error: set: another im2rec run is writing it; "
        "wait until it ends, or choose another name\n"
    )
    assert packing.poll() is None


def test_a_closed_pipe_ends_inspect_in_silence(long_list: Path, im2rec: Run) -> None:
    rows = [f"{number}\t0\tdog/dog_4.JPEG\n" for number in range(5000)]
    long_list.write_text("".join(rows), encoding="utf-8")
    im2rec("pack", "set", CLEAN, "--pass-through")
    command = f"{sys.executable} -m im2rec inspect --records set | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=long_list.parent,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stdout == "set.rec\t0\t1784\t1\t0\t0\tjpeg\t70\t70\t1750\n"
    assert done.stderr == ""
    assert done.returncode == 141


def test_a_full_disk_is_an_error_that_names_the_file(long_list: Path) -> None:
    limit = 3_000_000  # bytes a file may have; the set would be far larger
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "from im2rec.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "pack", "set", str(CLEAN)],
        cwd=long_list.parent,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "im2rec: error: set: cannot write: file too large\n"
    assert_older_set_untouched(long_list.parent)


def test_a_hundred_thousand_rows_hold_few_images_in_memory(tmp_path: Path) -> None:
    rows = [f"{number}\t0\tdog/dog_{number % 2}.jpg\n" for number in range(100_000)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")  # 1.5 GB of images
    code = (
        "import resource, subprocess, sys;"
        "subprocess.run([sys.executable, '-m', 'im2rec', *sys.argv[1:]], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    arguments = ["pack", "set", str(CLEAN), "--pass-through", "--no-fsync", "--workers", "2"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=200,
        check=True,
    )
    largest_process = int(done.stdout) * 1024
    assert (tmp_path / "set.rec").stat().st_size > 1_500_000_000
    assert largest_process < 150_000_000
    (tmp_path / "set.rec").unlink()


def test_a_link_in_the_place_of_the_work_folder_is_refused(tmp_path: Path, im2rec: Run) -> None:
    """It must be followed neither to wait for what is not there nor to clear what is."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "set.lst").write_text("0\t0\tant/ant_0.jpg\n", encoding="utf-8")
    for target in ("nowhere", "precious"):
        (tmp_path / ".set.im2rec").symlink_to(target)
        assert im2rec("pack", "set", CLEAN, code=2).stderr == (
            "im2rec: error: .set.im2rec: cannot write: not a folder; remove it\n"
        )
        (tmp_path / ".set.im2rec").unlink()
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["file"]


def test_an_interrupt_while_the_program_loads_ends_it_in_silence() -> None:
    code = (
        "import os, signal, sys, time\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(5)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from im2rec.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_jpeg_whose_end_is_zeros_is_truncated(tmp_path: Path, im2rec: Run) -> None:
    """As a torn download leaves it: zeros read as codes, so that libjpeg sees no end."""
    for share in (0.3, 0.6, 0.9):
        whole = (CLEAN / "dog/dog_1.jpg").read_bytes()
        torn = whole[: int(share * len(whole))] + bytes(10 * len(whole))
        (tmp_path / "torn.jpg").write_bytes(torn)
        (tmp_path / "set.lst").write_text("0\t0\ttorn.jpg\n", encoding="utf-8")
        done = im2rec("pack", "set", ".", code=1)
        assert done.stderr.startswith("torn.jpg: truncated: no end-of-image marker\n")


def test_numbers_of_any_length_are_no_traceback(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "set.lst").write_text("0\t0\tant/ant_0.jpg\n", encoding="utf-8")
    im2rec("pack", "--shard-size", "9" * 400, "--max-failures", "9" * 400, "set", CLEAN)
    im2rec("pack", "--resize", "4294967297", "set", CLEAN, code=2)
    im2rec("pack", "--resize", "65501", "--max-pixels", "1073741824", "set", CLEAN, code=2)


def pack_after(
    preparation: str, folder: Path, *options: str, root: str = str(CLEAN)
) -> subprocess.CompletedProcess[str]:
    """Packs the first 50 rows, from a process in which this Python code has run first."""
    rows = (folder / "set.lst").read_text("utf-8").splitlines(keepends=True)
    (folder / "set.lst").write_text("".join(rows[:50]), encoding="utf-8")
    arguments = ["-m", "im2rec", "pack", "set", root, "--workers", "2", *options]
    code = (
        f"import os, resource, signal, sys; {preparation};"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize(
    "preparation",
    [
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    ],
    ids=["ignored", "blocked"],
)
def test_signals_that_the_parent_ignores_or_blocks_change_nothing(
    preparation: str, method: str, long_list: Path
) -> None:
    done = pack_after(preparation, long_list.parent, "--start-method", method)
    assert (done.returncode, done.stderr[:22]) == (0, "set: 50 of 50 images p")


def test_a_signal_that_the_parent_blocks_ends_the_run(long_list: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = start_packing(long_list)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert_older_set_untouched(long_list.parent)


@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_worker_that_hangs_keeps_neither_the_others_nor_the_lock(
    packing: subprocess.Popen[str], which: int, tmp_path: Path, im2rec: Run
) -> None:
    """When the parent is killed."""
    hanging = sorted(workers_of(packing))[which]
    os.kill(hanging, signal.SIGSTOP)
    packing.kill()
    packing.wait()
    try:
        wait_for(lambda: workers_of(packing) == [hanging], "workers outlive their parent")
        (tmp_path / "set.lst").write_text("0\t0\tdog/dog_0.jpg\n", encoding="utf-8")
        im2rec("pack", "set", CLEAN)
    finally:
        os.kill(hanging, signal.SIGKILL)


def test_a_worker_that_finds_no_room_for_its_note_says_so(long_list: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))"  # bytes
    done = pack_after(limit, long_list.parent)
    assert (done.returncode, done.stderr) == (
        2,
        "im2rec: error: a worker process cannot start: OSError: [Errno 27] File too large\n",
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("{im2rec} make-list list {clean} 2>/dev/full", 0),
        ("{im2rec} pack nowhere {clean} 2>/dev/full", 2),
        ("{im2rec} inspect nowhere >/dev/full 2>/dev/full", 2),
        ("{im2rec} --help >/dev/full", 2),
        ("{im2rec} --help | true", 141),
        ("{im2rec} make-list list {clean} 2>&1 | true", 0),
    ],
)
def test_what_cannot_be_told_changes_no_exit_code(command: str, code: int, tmp_path: Path) -> None:
    line = command.format(im2rec=f"{sys.executable} -m im2rec", clean=CLEAN)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", ["", "--records", "--json"])
def test_a_full_disk_under_stdout_is_named(options: str, im2rec: Run, tmp_path: Path) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "set", CLEAN)
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m im2rec inspect {options} set >/dev/full"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "im2rec: error: stdout: No space left on device\n"


def test_an_image_that_comes_to_no_end_is_an_error_that_names_it(long_list: Path) -> None:
    packing = start_packing(long_list, "--image-timeout", "2")
    try:
        os.kill(workers_of(packing)[-1], signal.SIGSTOP)
        begin = time.monotonic()
        _, stderr = packing.communicate(timeout=30)
    finally:
        packing.kill()
    assert re.fullmatch(
        r"im2rec: error: a worker has had one thing in hand for 2 s; in hand: dog/dog_\d.jpg; "
        r"leave it out, or allow more with --image-timeout\n",
        stderr,
    )
    assert packing.returncode == 2
    assert time.monotonic() - begin < 10
    assert workers_of(packing) == []
    assert_older_set_untouched(long_list.parent)


def test_a_worker_that_runs_out_of_memory_names_its_image(long_list: Path) -> None:
    large = np.zeros((12_000, 12_000, 3), np.uint8)  # 432 MB
    cv2.imwrite(str(long_list.parent / "large.png"), large)
    long_list.write_text("0\t0\tlarge.png\n", encoding="utf-8")
    limit = "resource.setrlimit(resource.RLIMIT_AS, (700_000_000, 700_000_000))"
    done = pack_after(limit, long_list.parent, root=".")
    assert (done.returncode, done.stderr) == (
        2,
        "im2rec: error: a worker ran out of memory; in hand: large.png\n",
    )
    (long_list.parent / "large.png").unlink()
    assert_older_set_untouched(long_list.parent)


@pytest.mark.parametrize("room", [0, 100_000, 1_000_000])  # bytes beside the list
def test_a_full_file_system_is_an_error_and_leaves_nothing(room: int, long_list: Path) -> None:
    """A real one, where this machine lets a user mount it; else a bound on each file."""
    folder = long_list.parent / "small"
    folder.mkdir()
    rows = long_list.read_text("utf-8").splitlines(keepends=True)[:1000]
    long_list.write_text("".join(rows), encoding="utf-8")
    pack = f"{sys.executable} -m im2rec pack small/set {CLEAN} --workers 2"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        shutil.copy(long_list, folder)
        command = ["sh", "-c", f"trap '' XFSZ; ulimit -f {max(1, room // 512)}; {pack}"]
    else:
        used = 2_000_000 - long_list.stat().st_size - room
        mount = "mount -t tmpfs -o size=2000000 none small && cp set.lst small"
        fill = f"head -c {used} /dev/zero >small/other 2>/dev/null"  # as far as there is room
        script = f"{mount} && {{ {fill}; {pack}; code=$?; ls -A small; exit $code; }}"
        command = ["unshare", "-rm", "sh", "-c", script]
    done = subprocess.run(
        command,
        cwd=long_list.parent,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("im2rec: error: ")
    assert line.endswith(("o space left on device", "ile too large"))
    assert set(done.stdout.split()) <= {"set.lst", "other"}


NO_SEMAPHORES = """
import _multiprocessing, errno
class SemLock(_multiprocessing.SemLock):
    def __new__(cls, *_):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")
_multiprocessing.SemLock = SemLock
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_without_shared_memory_the_work_is_done(method: str, long_list: Path, im2rec: Run) -> None:
    """As where there is no /dev/shm, which semaphores need."""
    (long_list.parent / "python").mkdir()
    (long_list.parent / "python" / "sitecustomize.py").write_text(NO_SEMAPHORES, encoding="utf-8")
    rows = long_list.read_text("utf-8").splitlines(keepends=True)[:50]
    long_list.write_text("".join(rows), encoding="utf-8")
    path = os.pathsep.join([str(long_list.parent / "python"), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": path}
    im2rec("pack", "set", CLEAN, "--start-method", method, "--workers", "2", env=env)
    im2rec("verify", "set", "--decode", "--start-method", method, "--workers", "2", env=env)


def test_a_work_folder_that_vanishes_is_an_error(
    packing: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / ".set.im2rec").rename(tmp_path / "elsewhere")
    _, stderr = packing.communicate(timeout=20)
    assert packing.returncode == 2
    assert stderr == "im2rec: error: set: cannot write: no such file or directory\n"
    assert workers_of(packing) == []
    assert (tmp_path / "set.rec").read_bytes() == b"older"


def test_a_long_name_of_the_folder_for_temporary_files_is_told(
    tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fork server's socket lies there, and a socket's path has at most 107 bytes."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("TMPDIR", str(deep))
    im2rec("make-list", "set", CLEAN)
    done = im2rec("pack", "--start-method", "forkserver", "set", CLEAN, code=2)
    assert done.stderr.splitlines()[-1] == (
        "im2rec: error: cannot start worker processes: AF_UNIX path too long; "
        "set TMPDIR to a shorter path, or use --start-method spawn"
    )
