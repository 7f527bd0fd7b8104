"""Parts: pack_shard as any engine would call it, and reading ahead where storage is slow."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import CLEAN

from im2rec import part
from im2rec.errors import ImageError
from im2rec.framing import RecordReader
from im2rec.image_ops import ImageOptions
from im2rec.image_record import decode
from im2rec.lst import Entry, format_list
from im2rec.part import ImageReader, ShardSpec, pack_shard, read_image, state_of

PHOTOS = sorted(
    str(path.relative_to(CLEAN)) for path in CLEAN.rglob("*") if path.suffix in (".jpg", ".png")
)


def spec_of(paths: list[str], image: ImageOptions) -> ShardSpec:
    entries = [Entry(7 + at, (at, 0.5), path) for at, path in enumerate(paths)]
    return ShardSpec(format_list(entries), 3, str(CLEAN), image, True)


def test_pack_shard_is_a_function_of_its_spec(tmp_path: Path) -> None:
    paths = [PHOTOS[0], "none.jpg", PHOTOS[1]]
    spec = spec_of(paths, ImageOptions(pass_through=True))
    rec = tmp_path / "part"
    stats = pickle.loads(pickle.dumps(pack_shard(pickle.loads(pickle.dumps(spec)), str(rec))))
    with rec.open("rb") as stream:
        records = list(RecordReader(stream, "part"))
    assert [(row.row, row.id, row.size, row.labels) for row in stats.packed] == [
        (row, key, record.end - record.offset, 2)
        for row, key, record in zip((3, 5), (7, 9), records, strict=True)
    ]
    assert [decode(record.payload).image for record in records] == [
        (CLEAN / path).read_bytes() for path in (PHOTOS[0], PHOTOS[1])
    ]
    assert stats.failures == (part.Failure(4, 8, "none.jpg", part.MISSING),)
    states = [
        state_of((CLEAN / paths[at]).stat()) if at != 1 else state_of(None) for at in (0, 1, 2)
    ]
    assert stats.sources == b"".join(states)
    again = tmp_path / "again"
    assert pack_shard(spec, str(again)) == stats
    assert again.read_bytes() == rec.read_bytes()


def read_all(reader: ImageReader, paths: list[bytes]) -> list[bytes | str]:
    found: list[bytes | str] = []
    for source in reader.read(paths):
        try:
            found.append(source.get())
        except ImageError as error:
            found.append(str(error))
    return found


def test_files_come_in_order_however_they_are_read(tmp_path: Path) -> None:
    paths = []
    for number in range(3 * part.READS_AHEAD):
        path = tmp_path / str(number)
        if number % 7:
            path.write_bytes(b"%d" % number)
        paths.append(os.fsencode(path))
    expected = [b"%d" % at if at % 7 else part.MISSING for at in range(len(paths))]
    reader = ImageReader()
    for slow in (0.0, 1.0, 1.0, 0.0):
        reader._seconds = slow
        assert read_all(reader, paths) == expected
        threads = [each for each in threading.enumerate() if "ThreadPool" in each.name]
        assert bool(threads) == bool(reader._threads)
        assert bool(reader._threads) >= bool(slow)
        assert reader._seconds < slow / 10 + part.SLOW_READ  # the page cache is not slow
        assert read_all(reader, []) == []


def test_large_files_from_the_page_cache_are_not_slow(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(30_000_000))
    reader = ImageReader()
    paths = [os.fsencode(tmp_path / "a")] * 20
    for source in reader.read(paths):
        source.get()
    assert reader._seconds < 10 * part.SLOW_READ
    assert reader._bytes > 15_000_000


def test_large_files_are_not_read_far_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files of 10 MB, no more than BYTES_AHEAD is held beside the one in hand."""
    (tmp_path / "a").write_bytes(bytes(10_000_000))
    reader = ImageReader()
    reader._seconds, reader._bytes = 1.0, 10_000_000.0
    started: list[bytes] = []
    real = part.read_image

    def read(path: bytes) -> tuple[bytes, os.stat_result]:
        started.append(path)
        return real(path)

    monkeypatch.setattr(part, "read_image", read)
    most = part.BYTES_AHEAD // 10_000_000 + 2
    for taken, source in enumerate(reader.read([os.fsencode(tmp_path / "a")] * 40)):
        assert len(started) - taken <= most
        assert len(source.get()) == 10_000_000


NO_MORE_THREADS = """
import os, resource, sys
from im2rec.part import ImageReader
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
reader = ImageReader()
reader._seconds = 1.0
paths = [os.fsencode(sys.argv[1])] * 20
if os.getuid() == 0:
    os.setuid(65534)  # root is not bound by the limit
print({len(source.get()) for source in reader.read(paths)})
"""


def test_where_no_thread_can_start_files_are_read_one_by_one(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0o644)
        file.write(bytes(5))
        file.flush()
        said = subprocess.run(
            [sys.executable, "-c", NO_MORE_THREADS, file.name],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    assert (said.stdout, said.stderr) == ("{5}\n", "")


SLOW_STORAGE = """
import os, sys, time
from im2rec.image_ops import ImageOptions
from im2rec.part import ImageReader
real = os.open
def slow(*arguments, **more):
    time.sleep(0.02)
    return real(*arguments, **more)
os.open = slow
reader = ImageReader()
paths = [os.fsencode(sys.argv[1])] * 160
for _ in range(2):
    begin = time.perf_counter()
    for _, source in zip(paths, reader.read(paths)):  # asks for no more than there are
        source.get()
    print(time.perf_counter() - begin)
"""


def test_slow_storage_is_read_by_many_threads() -> None:
    """Each opening of a file really takes 20 ms in that process: 160 of them one by one 3.2 s."""
    said = subprocess.run(
        [sys.executable, "-c", SLOW_STORAGE, str(CLEAN / PHOTOS[0])],
        stdout=subprocess.PIPE,
        encoding="ascii",
        check=True,
    )
    one_by_one, ahead = map(float, said.stdout.split())
    assert one_by_one >= 3.2
    assert ahead < one_by_one / 2  # 0.2 s were there no other load


def test_a_file_that_grows_or_shrinks_while_it_is_read_is_no_image(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            path.write_bytes(bytes(100_000))
            path.write_bytes(bytes(300_000))

    changer = threading.Thread(target=change)
    changer.start()
    try:
        deadline = time.monotonic() + 30
        refused = set()
        while "changed while it was read" not in refused:
            assert time.monotonic() < deadline
            try:
                data, status = read_image(str(path))
                assert status.st_size == len(data)
            except ImageError as error:
                refused.add(str(error))
    finally:
        ended.set()
        changer.join()
    assert refused <= {"changed while it was read", part.MISSING}


def test_a_file_of_any_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    states = set()
    for seconds in (0, -1, -(2**31), 2**33, 2**34):  # the year 2242, 2514
        os.utime(tmp_path / "a", (seconds, seconds))
        (source,) = ImageReader().read([os.fsencode(tmp_path / "a")])
        assert source.get() == b"a"
        states.add(source.state)
    assert len(states) >= 4  # a file system may not hold the last
    (tmp_path / "a").write_bytes(b"")
    os.utime(tmp_path / "a", (0, 0))
    assert state_of((tmp_path / "a").stat()) != state_of(None)


def test_the_state_of_a_file_that_cannot_be_read_is_that_of_no_file(tmp_path: Path) -> None:
    """So that it is tried again where a run goes on."""
    (tmp_path / "loop").symlink_to("loop")
    paths = [tmp_path, tmp_path / "loop", tmp_path / "none"]
    states = [source.state for source in ImageReader().read([os.fsencode(path) for path in paths])]
    assert states == [part.UNKNOWN, part.UNKNOWN, state_of(None)]
    assert len({len(state) for state in states}) == 1
    assert state_of(tmp_path.stat()) != part.UNKNOWN


@pytest.mark.parametrize("size", [0, 1, 65_536])
def test_a_file_is_read_whole(size: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    data, status = read_image(str(tmp_path / "a"))
    assert data == bytes(size)
    assert state_of(status) == state_of((tmp_path / "a").stat())
