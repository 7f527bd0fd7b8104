r"""The RecordIO framing of a `.rec` file: payloads in, records out, and back; knows no images.

A file is records end to end, with no header and no trailer. A record is

    u32 magic     0xced7230a
    u32 lrecord   cflag << 29 | length          length < 2**29
    length bytes
    zeros up to the next multiple of 4

all little-endian. A payload that holds the magic's 4 bytes at an offset divisible by 4 is cut
there into parts, and those 4 bytes are left out of the file, so that a reader which starts
anywhere can trust an aligned magic to begin a record. cflag says which part this is: 0 a whole
record, 1 the first part, 2 a middle one, 3 the last. A reader puts the magic back between parts.

The payload b"hello" as bytes:

    0a 23 d7 ce  05 00 00 00  68 65 6c 6c  6f 00 00 00
    magic        lrecord      h  e  l  l   o  padding

The rules are those of dmlc-core's recordio.h and recordio.cc, which MXNet reads and writes with.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from im2rec.errors import RecordError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEAD = struct.Struct("<II")  # magic, lrecord
ALIGNMENT = 4  # bytes; every record starts at a multiple of it
LENGTH_BITS = 29  # lrecord's low bits; the 3 above are the cflag
LENGTH_MASK = (1 << LENGTH_BITS) - 1
WORTH_NUMPY = 1 << 16  # bytes; from here on NumPy finds the magic sooner than `bytes.find`
MAX_PAYLOAD = LENGTH_MASK  # bytes; dmlc refuses 2**29 and more, cut or not
MAX_PADDED = 1 << LENGTH_BITS  # bytes of the largest with its padding
_TOO_LONG = f"a cut record of more than {MAX_PAYLOAD} bytes, which the format cannot hold"

WHOLE, FIRST, MIDDLE, LAST = range(4)  # the cflags that exist; 4-7 are no record

_HAS_PREAD = hasattr(os, "pread")  # Windows has none
_FIRST_READ = 512  # bytes: the head, and all of a small record; more costs time where it is large
_CUT_SIZE = HEAD.size - len(MAGIC_BYTES)  # bytes by which each cut makes a record longer
# The heads of damaged records can all lead to the same parts, each of them anew. So many heads are
# looked at, for each that a file has room for, to find sound records in such a tangle; from then on
# what each leads to is passed by.
_LOOKS, _LOOKS_A_HEAD = 1000, 2
MOST_AGAIN = 64  # times a file's size that is read again where records lie inside each other
_PADDING = [bytes(size) for size in range(ALIGNMENT)]
WINDOW = 8 << 20  # bytes that a RunScanner looks at in one go; longer records are read one by one
SHORTEST_RUN = 64  # records; what many NumPy calls cost is worth it from about there on


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read: offset and end in bytes from the start of the file, its payload, and
    the number of parts it was cut into (1 = whole)."""

    offset: int
    end: int
    payload: bytes
    parts: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where there is no sound record.

    code, at, found: what is wrong, and the byte where it shows; offset, end: the bytes that are no
    record because of it; head: where another may begin, None where none was found. record: what can
    be read there, but in parts that no writer makes, so that its length is wrong.
    """

    code: str
    at: int
    found: str
    offset: int
    end: int
    head: int | None
    record: Record | None = None


def frame(payload: bytes) -> bytes:
    """The payload as a record (one part, or several where it holds an aligned magic).

    Raises ValueError for a payload of 2**29 bytes or more, which the format cannot hold.
    """
    size = len(payload)
    if size > MAX_PAYLOAD:
        raise ValueError(f"a record holds at most {MAX_PAYLOAD} bytes, not {size}")
    cuts = _aligned_magics(payload)
    cut = next(cuts, None)
    if cut is None:
        return b"".join((HEAD.pack(MAGIC, size), payload, bytes(-size % ALIGNMENT)))
    # Not a list of pieces: of a payload that is nothing but magics, it would take 40 times as much.
    record = bytearray()
    start, cflag = 0, FIRST
    while cut is not None:
        record += HEAD.pack(MAGIC, cflag << LENGTH_BITS | cut - start)
        record += payload[start:cut]
        start, cflag = cut + len(MAGIC_BYTES), MIDDLE
        cut = next(cuts, None)
    length = size - start
    record += HEAD.pack(MAGIC, LAST << LENGTH_BITS | length)
    record += payload[start:]
    record += bytes(-length % ALIGNMENT)  # only the last part can end unaligned
    return bytes(record)


def framed_size(payload: bytes) -> int:
    """The bytes of the payload as a record."""
    cuts = sum(1 for _ in _aligned_magics(payload))
    return HEAD.size + len(payload) + -len(payload) % ALIGNMENT + cuts * _CUT_SIZE


def is_cut_right(record: Record) -> bool:
    """Whether the record is in the parts that a writer would have made of its payload. One whose
    length was damaged can reach over the heads of others, and nothing else would tell."""
    if record.parts == 1 and MAGIC_BYTES not in record.payload:
        return True
    size = len(record.payload)
    return size <= MAX_PAYLOAD and framed_size(record.payload) == record.end - record.offset


def frame_pieces(head: bytes, body: bytes) -> list[bytes]:
    """The payload `head + body` as a record, in pieces to be written one after the other.

    The same bytes as `frame` gives, but a large body that need not be cut is not copied, and looked
    through by words (8 GB/s) and not by bytes (1 GB/s). Raises ValueError as `frame` does.
    """
    size = len(head) + len(body)
    if len(body) < WORTH_NUMPY or size > MAX_PAYLOAD or len(head) % ALIGNMENT:
        return [frame(head + body)]
    import numpy as np

    words = np.frombuffer(body, "<u4", len(body) // ALIGNMENT)
    if MAGIC_BYTES in head or (words == MAGIC).any():
        return [frame(head + body)]
    return [HEAD.pack(MAGIC, size) + head, body, bytes(-size % ALIGNMENT)]


def _aligned_magics(payload: bytes) -> Iterator[int]:
    """Offsets divisible by 4 at which the payload holds the magic, in order."""
    at = payload.find(MAGIC_BYTES)
    while at != -1:
        if at % ALIGNMENT == 0:
            yield at
            at = payload.find(MAGIC_BYTES, at + len(MAGIC_BYTES))
        else:
            at = payload.find(MAGIC_BYTES, at + 1)


class RecordReader:
    """Reads records from a seekable binary stream, from wherever it stands.

    offset: of the next record, in bytes from the start of the file. path: the name for error
    messages. The file's size is taken once, at the start, so a length that lies can never make a
    read allocate more than the file holds.
    """

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self.stream = stream
        self.path = path
        self.offset = stream.tell()
        self.size = stream.seek(0, os.SEEK_END)
        self._looks_first = False  # see _look
        self._looks = 0  # parts looked at in vain
        self._behind = 0  # where the part begins that was looked at last
        self._again = 0  # bytes that were read a second time, see go_inside

    def seek(self, offset: int) -> None:
        """Makes `read` start at this offset, in bytes from the start of the file."""
        if offset < 0 or offset > self.size:
            raise self._fault(
                offset, "offset", f"offset {offset} is outside the file of {self.size} bytes"
            )
        self.offset = offset

    def read(self) -> Record | None:
        """The next record; None at the end of the file.

        Raises RecordError where the bytes are no record; `offset` then stays where it was.
        """
        start = self.offset
        if start == self.size:
            return None
        if self._looks_first:
            self._join(start, self._look)
            self.offset = start
        self.stream.seek(start)  # next_head and a failed read leave the stream elsewhere
        return self._join(start, self._part)

    def _join(self, start: int, part: Callable[[int], tuple[int, bytes, int]]) -> Record:
        """The record that begins at `start`, of the parts that `part` gives."""
        cflag, payload, end = part(start)
        if cflag not in (WHOLE, FIRST):
            raise self._fault(
                start,
                "cflag",
                f"cflag {cflag}: a record begins with cflag 0 or 1, this is a later part",
            )
        pieces = [payload]
        while cflag not in (WHOLE, LAST):
            at = end
            if at == self.size:
                raise self._fault(start, "truncated", "the file ends inside a cut record")
            cflag, payload, end = part(at)
            if cflag not in (MIDDLE, LAST):  # a sound record may begin at `at`: the fault is before
                raise self._fault(
                    start,
                    "cflag",
                    f"a cut record without its end: cflag {cflag} at byte {at}, expected 2 or 3",
                )
            pieces.append(payload)
            # The heads of all parts but one become magics again.
            if end - start - HEAD.size - (len(pieces) - 1) * _CUT_SIZE > MAX_PADDED:
                raise self._fault(start, "cut", _TOO_LONG)
        self.offset = end
        return Record(start, end, MAGIC_BYTES.join(pieces), len(pieces))

    def payload(self) -> bytes | None:
        """The next record's payload; None at the end of the file. Raises as `read` does, of which
        this is the fast half: whatever is no whole and sound record is left to it. The stream must
        be a real file, with a descriptor."""
        if _HAS_PREAD and (payload := self._whole()) is not None:
            return payload
        record = self.read()
        return None if record is None else record.payload

    def _whole(self) -> bytes | None:
        """The next record's payload if it is whole and sound, else None, and nothing has changed.

        It goes by the stream's buffer, which every jump would fill in vain, and makes no second
        copy of the payload: for large ones that costs more than reading them.
        """
        start, file = self.offset, self.stream.fileno()
        chunk = os.pread(file, _FIRST_READ, start)
        if len(chunk) < HEAD.size:
            return None
        magic, length = HEAD.unpack_from(chunk)  # a length with a cflag is too large
        padding = -length % ALIGNMENT
        body = start + HEAD.size
        end = body + length + padding
        if magic != MAGIC or length > MAX_PAYLOAD or end > self.size:
            return None
        if end - start <= len(chunk):
            payload = chunk[HEAD.size : HEAD.size + length]
            zeros = chunk[HEAD.size + length : end - start]
        else:
            payload = os.pread(file, length, body)
            zeros = os.pread(file, padding, body + length) if padding else b""
        if len(payload) != length or zeros != _PADDING[padding]:
            return None
        self.offset = end
        return payload

    def __iter__(self) -> Iterator[Record]:
        while (record := self.read()) is not None:
            yield record

    def salvage(
        self, lost: Callable[[RecordError, int | None], None], scanner: RunScanner | None = None
    ) -> Iterator[Record | Run]:
        """The records up to the end of the file, over any damage: after it, those from the next
        head on. lost: called with each fault and that head, None where there is no other. scanner:
        of the same file; what it finds comes as runs, only the rest as records."""
        while True:
            if scanner and (run := scanner.run_at(self.offset)):
                self.offset = run.end
                yield run
                continue
            try:
                record = self.read()
            except RecordError as error:
                behind = self.offset + ALIGNMENT
                if self._looks > _LOOKS + _LOOKS_A_HEAD * self.size // HEAD.size:
                    behind = max(behind, self._behind)
                head = self.next_head(behind)
                lost(error, head)
                self._looks_first = True
                if head is None:
                    return
                self.seek(head)
                continue
            if record is None:
                return
            yield record

    def walk(
        self, tell: Callable[[Damage], None], scanner: RunScanner | None = None
    ) -> Iterator[Record | Run]:
        """The sound records up to the end of the file: whole, and cut as a writer cuts them. tell:
        called with each place between them. scanner: as for `salvage`."""

        def lost(error: RecordError, head: int | None) -> None:
            end = self.size if head is None else head
            tell(Damage(error.code, error.offset, error.found, self.offset, end, head))

        for found in self.salvage(lost, scanner):
            if isinstance(found, Run) or is_cut_right(found):
                yield found
                continue
            head = self.go_inside(found)
            sentence = (
                f"{found.end - found.offset} bytes in {found.parts} parts, not cut at each magic"
                if head is None
                else f"the record's bytes hold the head of another at {head}: its length is wrong"
            )
            tell(Damage("cut", found.offset, sentence, found.offset, self.offset, head, found))

    def go_inside(self, record: Record) -> int | None:
        """Makes `read` go on at the head of another record inside one that was just read and is
        not cut right, as it has most likely swallowed what begins there; the head's offset. None,
        and nothing has changed, where there is no such head, or too much was read again already."""
        head = self.next_head(record.offset + ALIGNMENT)
        if head is None or head >= record.end or self._again >= MOST_AGAIN * self.size:
            return None
        self._again += record.end - head
        self.seek(head)
        return head

    def _part(self, at: int) -> tuple[int, bytes, int]:
        """The part at the stream's position `at`: its cflag, its bytes, where the next begins."""
        cflag, length = self._judge_head(at, self.stream.read(HEAD.size))
        padded = length + -length % ALIGNMENT
        body = self.stream.read(padded)
        if len(body) != padded:
            raise self._fault(at, "truncated", "the file became shorter while it was read")
        if padded != length:
            self._judge_padding(at, body[length:])
            body = body[:length]
        return cflag, body, at + HEAD.size + padded

    def _look(self, at: int) -> tuple[int, bytes, int]:
        """As `_part`, but without the bytes. Among damage, where a sound record is not likely, it
        comes first: heads may stand every 8 bytes, and each claim all of the file behind it."""
        self._looks, self._behind = self._looks + 1, at
        cflag, length = self._judge_head(at, self._peek(at, HEAD.size))
        padded = length + -length % ALIGNMENT
        end = at + HEAD.size + padded
        self._judge_padding(at, self._peek(end - padded + length, padded - length))
        return cflag, b"", end

    def _peek(self, at: int, size: int) -> bytes:
        """Some bytes of the file, if possible by the stream's buffer, which a jump would refill."""
        if _HAS_PREAD and isinstance(self.stream, io.BufferedReader):
            return os.pread(self.stream.fileno(), size, at)
        self.stream.seek(at)
        return self.stream.read(size)

    def _judge_head(self, at: int, head: bytes) -> tuple[int, int]:
        """The cflag and the length in the head of a part at `at`."""
        if len(head) < HEAD.size:
            raise self._fault(
                at, "truncated", f"{len(head)} bytes at the end, expected a record head of 8"
            )
        magic, lrecord = HEAD.unpack(head)
        if magic != MAGIC:
            raise self._fault(
                at, "magic", f"found {head[:4].hex(' ')}, expected the magic {MAGIC_BYTES.hex(' ')}"
            )
        cflag, length = lrecord >> LENGTH_BITS, lrecord & LENGTH_MASK
        if cflag > LAST:
            raise self._fault(at, "cflag", f"cflag {cflag}, expected 0 to 3")
        padded = length + -length % ALIGNMENT
        left = self.size - at - HEAD.size
        if padded > left:
            raise self._fault(
                at,
                "truncated",
                f"a record of {length} bytes, padded to {padded}, but the file ends after {left}",
            )
        return cflag, length

    def _judge_padding(self, at: int, padding: bytes) -> None:
        if padding.strip(b"\0"):
            raise self._fault(at, "padding", f"padding {padding.hex(' ')}, expected zeros")

    def next_head(self, offset: int) -> int | None:
        """The first multiple of 4 from `offset` on where a record can begin: the magic with
        cflag 0 or 1, as dmlc's partitioned readers look for it. None if there is none."""
        at = offset + -offset % ALIGNMENT
        chunk_size = 1 << 12  # bytes read at a time: few at first, as damage often comes in rows
        while at < self.size:
            self.stream.seek(at)
            chunk = self.stream.read(chunk_size + HEAD.size)
            found = chunk.find(MAGIC_BYTES)
            while found != -1 and found + HEAD.size <= len(chunk):
                if (at + found) % ALIGNMENT == 0:
                    cflag = HEAD.unpack_from(chunk, found)[1] >> LENGTH_BITS
                    if cflag in (WHOLE, FIRST):
                        return at + found
                found = chunk.find(MAGIC_BYTES, found + 1)
            at += chunk_size
            chunk_size = min(2 * chunk_size, 1 << 20)
        return None

    def _fault(self, offset: int, code: str, found: str) -> RecordError:
        return RecordError(self.path, offset, code, found)


@dataclass(frozen=True, slots=True)
class Run:
    """Sound records of one part each, one right behind the other, as columns.

    offsets: of each in bytes from the start of the file, u64; lengths: bytes of the payloads, i64;
    words: the file's bytes around them as u32; starts: where in those the payloads begin, i64; end:
    of the last one in the file. Holds until its scanner is asked for the next one.
    """

    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.int64]
    end: int

    def __len__(self) -> int:
        return len(self.offsets)

    def framed(self) -> memoryview:
        """The bytes of all of them as they stand in the file."""
        first = int(self.starts[0]) - HEAD.size // ALIGNMENT
        size = (self.end - int(self.offsets[0])) // ALIGNMENT
        return self.words[first : first + size].view("u1").data

    def record(self, number: int) -> Record:
        """One of them by itself."""
        start, length = int(self.starts[number]), int(self.lengths[number])
        padded = length + -length % ALIGNMENT
        offset = int(self.offsets[number])
        body = self.words[start : start + padded // ALIGNMENT].tobytes()
        return Record(offset, offset + HEAD.size + padded, body[:length], 1)


class Source(Protocol):
    """What a RunScanner reads from: an unbuffered binary file."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class RunScanner:
    """Finds the runs of a file, reading it once from start to end, a window at a time.

    No record but one of several parts, or a damaged one, holds an aligned magic other than its
    own. So a search for the word gives all heads of a window, and where each length leads to the
    next head the records are as RecordReader would read them. What is not so simple is left to it.
    """

    def __init__(
        self, source: Source, size: int, *, window: int = WINDOW, shortest: int = SHORTEST_RUN
    ) -> None:
        import numpy as np

        self._source = source
        self._size = size
        self._shortest = shortest
        # Two in turn: what was read into the one may be in use while the other is filled.
        self._buffers = [np.empty(window // ALIGNMENT, "<u4") for _ in range(2)]
        self._start = self._end = 0  # of the window, in the file
        self._one_by_one_to = 0  # where the next run begins that is worth it, or the window ends
        self._set_window(self._buffers[0][:0])

    def run_at(self, offset: int) -> Run | None:
        """The longest run there is from this offset to the end of a window; None where the record
        there is no sound one of one part, or is longer than a window, or where the run would be
        short for another reason than the window's end. Offsets must not go back."""
        while offset >= self._one_by_one_to:
            at = (offset - self._start) // ALIGNMENT
            if at >= self._next_window:
                if not self._read_on(offset):
                    return None
                continue
            first = int(self._heads.searchsorted(at))
            number = int(self._stops.searchsorted(first, side="right"))
            upcoming = self._next_window
            if number < len(self._stops):
                upcoming = int(self._heads[max(first, self._firsts[number])])
            if upcoming == at:
                return self._run(first, int(self._stops[number]))
            self._one_by_one_to = self._start + ALIGNMENT * upcoming
        return None

    def _run(self, first: int, stop: int) -> Run:
        heads = self._heads[first:stop]
        return Run(
            (self._start + ALIGNMENT * heads).astype("u8"),
            self._lengths[first:stop],
            self._words,
            heads + HEAD.size // ALIGNMENT,
            self._start + ALIGNMENT * int(self._ends[stop - 1]),
        )

    def _read_on(self, offset: int) -> bool:
        """Makes the next window, from `offset` on where that has been read; False at the end."""
        buffer = self._buffers[1].view("u1")
        keep = max(self._end - offset, 0)
        filled, room = keep, min(len(buffer), keep + self._size - self._end)
        with suppress(OSError):  # RecordReader meets it, too, at the record that it concerns
            while filled < room and (count := self._source.readinto(buffer[filled:room].data)):
                filled += count
        if filled < room:  # or the file became shorter, which RecordReader tells, too
            self._size = self._end + filled - keep
        if filled == keep:
            return False
        buffer[:keep] = self._words.view("u1")[len(self._words) * ALIGNMENT - keep :]
        self._buffers.reverse()
        self._end += filled - keep
        self._start = self._end - filled
        self._set_window(self._buffers[0][: filled // ALIGNMENT])
        return True

    def _set_window(self, words: npt.NDArray[np.uint32]) -> None:
        """Finds the heads of a window, and the runs, which break at each record that is not sound
        or behind which no other begins."""
        import numpy as np

        heads = np.flatnonzero(words == MAGIC)
        lrecords = words.take(heads + 1, mode="clip")
        lengths = (lrecords & LENGTH_MASK).astype("i8")
        ends = heads + (HEAD.size + ALIGNMENT - 1 + lengths) // ALIGNMENT
        following = np.append(heads, len(words))[1:]
        sound = (lrecords <= LENGTH_MASK) & (ends == following)
        used = lengths % ALIGNMENT  # bytes of the last word, 0 for all of it
        last = words.take(ends - 1, mode="clip")
        sound &= (used == 0) | (last >> (8 * used).astype("u4") == 0)
        self._words, self._heads, self._lengths, self._ends = words, heads, lengths, ends
        # The last record may go on behind the window, which must then be moved on to show it whole.
        goes_on = len(heads) > 0 and bool(ends[-1] > len(words))
        count = len(heads) - goes_on
        self._next_window = int(heads[-1]) if goes_on else len(words)
        breaks = np.flatnonzero(~sound[:count])
        firsts, stops = np.append(0, breaks + 1), np.append(breaks, count)
        long = stops - firsts >= self._shortest
        long[-1] = stops[-1] > firsts[-1]  # nothing but the window's end makes it short
        self._firsts, self._stops = firsts[long], stops[long]
