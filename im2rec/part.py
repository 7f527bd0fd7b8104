"""One part of a list: its rows in, framed records out; and all that a worker does for a set.

`pack_shard` is the plain form: a pure function from a slice of a list to a file of records, for any
engine on any machine. `Packer` does the same for this package's own pool: it keeps a part's records
until it is told where in the set's files they belong, so that the process that has the bytes writes
them there, and only numbers travel between processes.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from im2rec import framing, image_record, pool
from im2rec.errors import ImageError, WorkerError
from im2rec.image_ops import ImageOptions, convert
from im2rec.lst import parse_rows
from im2rec.output import writing
from im2rec.shards import HELD_SIZE, DigestStep, HeldPart, Piece, ShardDigest

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_FILE = 2**31 - 1  # bytes of a source file; OpenCV counts a buffer's bytes in an int
SLOW_READ = 0.001  # seconds, beside those of copying; from the page cache it takes 0.00002
COPY_SPEED = 0.5e9  # bytes a second, from the page cache at the least
READS_AHEAD = 16  # files read at a time where storage is slow; 5 ms each, some 3000 a second
BYTES_AHEAD = 1 << 26  # of which so many bytes are held, if they are of like size
MISSING = "missing: there is no such file"
_STATE = struct.Struct("<QQ")  # bytes, nanoseconds since 1970
STATE_SIZE = _STATE.size
NO_FILE = _STATE.pack(2**64 - 1, 0)  # its state; equal to no file's
UNKNOWN = b"\xff" * STATE_SIZE  # the state of a file that could not be read; equal to no other


class Packed(NamedTuple):
    """A row that became a record. row: its number in the list; size: bytes in the file; labels: how
    many; turned, cmyk, other: whether its source has an EXIF turn, is CMYK, is neither JPEG nor
    PNG."""

    row: int
    id: int
    size: int
    labels: int
    turned: bool
    cmyk: bool
    other: bool


class Failure(NamedTuple):
    """An image that was left out: its row's number and id, its path below ROOT, and why."""

    row: int
    id: int
    path: str
    reason: str


class Remark(NamedTuple):
    """What a codec said of an image that was packed."""

    row: int
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """One slice of a list to pack. rows: lines of the list; first: the number of the first of them,
    from 0; root: the folder their paths start from."""

    rows: bytes
    first: int
    root: str
    image: ImageOptions
    pack_label: bool


@dataclass(frozen=True, slots=True)
class ShardStats:
    """What came of a ShardSpec, all in list order. sources: the state of each row's source file,
    STATE_SIZE bytes each, as `state_of` has them. sizes: each width and height that a packed image
    has, in pixels, with the first row of it."""

    packed: tuple[Packed, ...]
    failures: tuple[Failure, ...]
    remarks: tuple[Remark, ...]
    sources: bytes
    sizes: dict[tuple[int, int], int]


@dataclass(kw_only=True)
class Tally:
    """Rows counted. packed: records; label_widths: how many of them have how many labels; turned,
    cmyk, other: how many source files are such, as in Packed."""

    packed: int = 0
    failures: list[Failure] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    label_widths: Counter[int] = field(default_factory=Counter)
    turned: int = 0
    cmyk: int = 0
    other: int = 0

    @property
    def failed(self) -> int:
        """Images left out."""
        return len(self.failures)

    def count(
        self, packed: Iterable[Packed], failures: Iterable[Failure], remarks: Iterable[Remark]
    ) -> None:
        """Adds these rows."""
        for row in packed:
            self.packed += 1
            self.label_widths[row.labels] += 1
            self.turned += row.turned
            self.cmyk += row.cmyk
            self.other += row.other
        self.failures += failures
        self.remarks += remarks

    def add(self, other: Tally) -> None:
        """Adds another's rows."""
        self.packed += other.packed
        self.failures += other.failures
        self.remarks += other.remarks
        self.label_widths.update(other.label_widths)
        self.turned += other.turned
        self.cmyk += other.cmyk
        self.other += other.other


def pack_shard(spec: ShardSpec, rec: str) -> ShardStats:
    """Packs a slice of a list into the file `rec`: framed records, in list order.

    A pure function of the spec and the image files. Images that cannot be packed become failures.
    Raises OutputError where the file cannot be written, WorkerError where memory runs out.
    """
    with writing(rec), open(rec, "wb") as file:
        return pack_rows(spec, file, ImageReader())


class _Lines(Protocol):
    def writelines(self, lines: list[bytes], /) -> None: ...


def pack_rows(spec: ShardSpec, out: _Lines, reader: ImageReader) -> ShardStats:
    """As `pack_shard`, into an open file or a HeldPart. Raises OSError where that cannot be
    written."""
    packed: list[Packed] = []
    failures: list[Failure] = []
    remarks: list[Remark] = []
    sources: list[bytes] = []
    sizes: dict[tuple[int, int], int] = {}
    root = os.fsencode(spec.root)  # a list's paths are UTF-8 whatever the locale
    entries = list(parse_rows(spec.rows))
    files = reader.read([os.path.join(root, entry.path.encode()) for entry in entries])
    for row, entry in enumerate(entries, spec.first):
        pool.note(row)
        source = next(files)
        sources.append(source.state)
        try:
            image = convert(source.get(), spec.image, entry.id)
            labels = entry.labels if spec.pack_label else entry.labels[:1]
            pieces = _framed(image_record.encode_header(entry.id, labels), image.image)
        except ImageError as error:
            failures.append(Failure(row, entry.id, entry.path, str(error)))
            continue
        except MemoryError:
            raise WorkerError("a worker ran out of memory", (entry.path,)) from None
        out.writelines(pieces)
        size, facts = sum(map(len, pieces)), image.facts
        turned, other = facts.orientation != 1, facts.kind not in ("jpeg", "png")
        packed.append(Packed(row, entry.id, size, len(labels), turned, facts.cmyk, other))
        sizes.setdefault((image.width, image.height), row)
        remarks += [Remark(row, entry.path, text) for text in image.remarks]
    pool.note(None)
    return ShardStats(tuple(packed), tuple(failures), tuple(remarks), b"".join(sources), sizes)


def _framed(header: bytes, image: bytes) -> list[bytes]:
    size = len(header) + len(image)
    if size > framing.MAX_PAYLOAD:
        raise ImageError(f"too large: {size} bytes; a record holds at most {framing.MAX_PAYLOAD}")
    return framing.frame_pieces(header, image)


class ImageReader:
    """Reads image files in order: one by one, or by threads ahead of their turn where the latest
    reads have shown that storage is slow."""

    def __init__(self) -> None:
        # Of a file, means that give the latest most weight: seconds to read it, its bytes.
        self._seconds = 0.0
        self._bytes = 0.0
        self._threads: ThreadPoolExecutor | None = None

    def read(self, paths: list[bytes]) -> Iterator[SourceFile]:
        """Each path's file, in order."""
        is_slow = self._seconds > SLOW_READ
        for result in self._read_ahead(paths) if is_slow else map(_read, paths):
            size = len(result.data)
            seconds = max(0.0, result.seconds - size / COPY_SPEED)
            self._seconds += (seconds - self._seconds) / READS_AHEAD
            self._bytes += (size - self._bytes) / READS_AHEAD
            yield result

    def _read_ahead(self, paths: list[bytes]) -> Iterator[SourceFile]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(READS_AHEAD)
        return map_ahead(self._threads, _read, paths, lambda: self._bytes)


def map_ahead(
    threads: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    size: Callable[[], float] = lambda: 0.0,
) -> Iterator[Result]:
    """What the function makes of each item, in order; up to READS_AHEAD are in the making.

    size: bytes that a result now holds, for no more than BYTES_AHEAD are held.
    """
    ahead: deque[Future[Result]] = deque()
    for item in items:
        try:
            ahead.append(threads.submit(function, item))
        except RuntimeError:  # the system has no more threads to give
            ahead.append(Future())
            ahead[-1].set_result(function(item))
        while len(ahead) * size() > BYTES_AHEAD or len(ahead) > READS_AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


@dataclass(slots=True)
class SourceFile:
    """An image file as it was read: its state, and the seconds that it took."""

    data: bytes = b""
    error: Exception | None = None
    state: bytes = UNKNOWN
    seconds: float = 0.0

    def get(self) -> bytes:
        """Its bytes. Raises as `read_image` does."""
        if self.error is not None:
            raise self.error
        return self.data


def _read(path: bytes) -> SourceFile:
    read = SourceFile()
    begin = time.perf_counter()
    try:
        read.data, status = read_image(path)
        read.state = state_of(status)
    except Exception as error:  # told in its turn
        read.error = error
        if isinstance(error, ImageError) and str(error) == MISSING:
            read.state = state_of(None)
    read.seconds = time.perf_counter() - begin
    return read


def state_of(status: os.stat_result | None) -> bytes:
    """What tells a source file from itself when it has been changed: its size and the time of its
    last change. status: None = there is no such file."""
    return _STATE.pack(status.st_size, status.st_mtime_ns % 2**64) if status else NO_FILE


def read_image(path: str | bytes) -> tuple[bytes, os.stat_result]:
    """The bytes of a regular file, and its status.

    Raises ImageError with the reason where it cannot be read, WorkerError where it is the machine
    that cannot.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", getattr(os, "O_BINARY", 0)))
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise ImageError(f"not a regular file but a {_file_kind(before.st_mode)}")
            if before.st_size > MAX_FILE:
                raise ImageError(f"too large: a file of {before.st_size} bytes")
            data = os.read(fd, before.st_size + 1)  # one more, to see that it has not grown
            while len(data) < before.st_size and (more := os.read(fd, before.st_size)):
                data += more
            after = os.fstat(fd)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise ImageError(MISSING) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise WorkerError(f"cannot read images: {reason}", (os.fsdecode(path),)) from error
        raise ImageError(f"unreadable: {reason[0].lower()}{reason[1:]}") from error
    if len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        raise ImageError("changed while it was read")
    return data, before


def _file_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


# --- in a worker of the pool ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is to do, in this order.

    place: parts that it holds, by their numbers, with where their bytes go. digest: how far to read
    on in which of the set's files. part: the number of a part to pack and to hold, that of the
    list's rows first..last-1; rows: their lines; none = no part.
    """

    place: tuple[tuple[int, tuple[Piece, ...]], ...] = ()
    digest: tuple[DigestStep, ...] = ()
    part: int = 0
    rows: bytes = b""
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a Job: of its part, and the sha256 of each file it has read to its end."""

    stats: ShardStats | None
    digests: dict[str, str]


class Packer:
    """A worker's function: does one Job after another for one set.

    root, image, pack_label: as in ShardSpec. work: the folder for what memory cannot hold. prefix:
    of the set, for errors.
    """

    def __init__(
        self, root: str, image: ImageOptions, pack_label: bool, work: str, prefix: str
    ) -> None:
        self._root, self._image, self._pack_label = root, image, pack_label
        self._work, self._prefix = work, prefix
        self._reader = ImageReader()
        self._held: dict[int, HeldPart] = {}
        self._digests: dict[str, ShardDigest] = {}

    def __call__(self, job: Job) -> Done:
        """Does a job. Raises OutputError where the set cannot be written, WorkerError where memory
        runs out."""
        try:
            return self._do(job)
        except MemoryError:
            raise WorkerError("a worker ran out of memory", ()) from None

    def _do(self, job: Job) -> Done:
        with writing(self._prefix):
            for part, pieces in job.place:
                self._held.pop(part).put(pieces)
            digests = {}
            for step in job.digest:
                if step.file not in self._digests:
                    self._digests[step.file] = ShardDigest(step.file)
                if digest := self._digests[step.file].take(step):
                    digests[step.file] = digest
                    del self._digests[step.file]
            stats = None
            if job.rows:
                spec = ShardSpec(job.rows, job.first, self._root, self._image, self._pack_label)
                in_memory = sum(held.in_memory for held in self._held.values())
                held = self._held[job.part] = HeldPart(self._work, HELD_SIZE - in_memory)
                stats = pack_rows(spec, held, self._reader)
        return Done(stats, digests)


def is_missing(failure: Failure) -> bool:
    """Whether the image is not there at all, as all are when ROOT is wrong."""
    return failure.reason == MISSING
