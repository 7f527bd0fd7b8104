"""The shards of a set while it is written: where each record goes, its bytes, indexes and digests.

A set is PREFIX.rec and PREFIX.idx, or shards PREFIX_000.rec, PREFIX_000.idx... with one joint index
PREFIX.idx whose offsets run on over all shards (MXNet and DALI read several shards only so).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import IO

from im2rec.errors import OutputError
from im2rec.index import format_index
from im2rec.output import COPY_SIZE, Output, flush, writing
from im2rec.record_set import DIGEST_SIZE, shard_stem

HELD_SIZE = 1 << 25  # bytes of its parts that a worker keeps in memory; the rest goes to files


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """One shard as the manifest states it: file names, records, bytes of the .rec, sha256."""

    rec: str
    idx: str
    records: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Where the next `size` bytes of a part belong: at `offset` in the file."""

    file: str
    offset: int
    size: int


class HeldPart:
    """The records of a part until their places in the set are known: up to `most` bytes of them in
    memory, the others in a file of the folder that has no name."""

    def __init__(self, folder: str, most: int) -> None:
        self._folder, self._most = folder, most
        self._buffers: list[bytes] = []
        self.in_memory = 0  # bytes in them
        self._file: IO[bytes] | None = None  # what comes before them

    def writelines(self, buffers: list[bytes]) -> None:
        """Takes a record, in pieces. Raises OSError where the disk is full."""
        self._buffers += buffers
        self.in_memory += sum(map(len, buffers))
        if self.in_memory > self._most:
            if self._file is None:
                import tempfile

                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            _write_all(self._file, b"".join(self._buffers))
            self._buffers, self.in_memory = [], 0

    def put(self, pieces: Iterable[Piece]) -> None:
        """Writes the part to its places, all of it, in order, and lets go of it. Raises OSError."""
        in_file = self._file.seek(0, os.SEEK_END) if self._file else 0
        if self._file:
            self._file.seek(0)
        buffers = deque(self._buffers)
        for piece in pieces:
            left = piece.size
            with open(piece.file, "r+b", buffering=0) as file:
                file.seek(piece.offset)
                while self._file and left and in_file:
                    chunk = self._file.read(min(left, in_file, COPY_SIZE))
                    if not chunk:
                        raise OutputError(piece.file, "a part of the set became shorter")
                    _write_all(file, chunk)
                    left -= len(chunk)
                    in_file -= len(chunk)
                # One by one: this takes the kernel less time than one large write, or one writev.
                while left > 0:  # a piece ends where a record does, and so does a buffer
                    buffer = buffers.popleft()
                    _write_all(file, buffer)
                    left -= len(buffer)
        self.close()

    def close(self) -> None:
        """Lets go of what it holds."""
        self._buffers = []
        if self._file:
            self._file.close()


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Writes all of it to an unbuffered file."""
    rest = memoryview(data)
    while rest:  # a disk that becomes full takes some of it first
        rest = rest[file.write(rest) :]


@dataclass(frozen=True, slots=True)
class DigestStep:
    """What of a file of the set is to be read next for its sha256: from `start` to `end`, which is
    the file's own if `is_last`. flush: send to disk what has been read."""

    file: str
    start: int
    end: int
    is_last: bool
    flush: bool


class ShardDigest:
    """The sha256 of a file that others are still writing, read in steps."""

    def __init__(self, path: str) -> None:
        import hashlib

        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._sha256 = hashlib.sha256()

    def take(self, step: DigestStep) -> str | None:
        """Reads on; the digest after the last step. Raises OSError, and OutputError for a file that
        is shorter than it should be."""
        buffer = memoryview(bytearray(DIGEST_SIZE))
        left = step.end - step.start
        while left:
            size = self._file.readinto(buffer[:left])
            if not size:
                raise OutputError(step.file, "a file of the set became shorter")
            self._sha256.update(buffer[:size])
            left -= size
        if step.flush and hasattr(os, "posix_fadvise"):
            # Linux then begins to write these bytes to disk, and waits for none of them.
            with suppress(OSError):  # advice that not every system takes
                size, advice = step.end - step.start, os.POSIX_FADV_DONTNEED
                os.posix_fadvise(self._file.fileno(), step.start, size, advice)
        if not step.is_last:
            return None
        if step.flush:
            flush(step.file, os.O_RDWR)
        self.close()
        return self._sha256.hexdigest()

    def close(self) -> None:
        """Closes the file, read to its end or not."""
        self._file.close()


class _Shard:
    """A shard while it is planned. rec: where it lies; number: the caller's, or None; start: bytes
    of all before it."""

    def __init__(self, rec: str, number: int | None, start: int) -> None:
        self.rec, self.number, self.start = rec, number, start
        self.idx = rec.removesuffix(".rec") + ".idx"
        self.index: IO[bytes] | None = None  # open while it grows
        self.records = 0
        self.size = 0  # bytes planned
        self.written = 0  # bytes that are there, without a gap
        self.ahead: dict[int, int] = {}  # what is there behind a gap: offset and end
        self.asked = 0  # bytes up to which its digest has been asked for

    def begin(self) -> None:
        """Makes its files."""
        open(self.rec, "xb").close()  # for those who write in it
        self.index = open(self.idx, "wb")  # noqa: SIM115

    def end(self) -> None:
        """Says that nothing more is planned for it."""
        if self.index:
            self.index.close()
            self.index = None


class SetWriter:
    """Plans the shards of a set: where each record goes, in the order they come, and the indexes.

    The records' bytes are written by others, to the places that it names, and read again by others
    for the digests that it asks for. shard_size: bytes that a shard may reach; None = no bound. If
    one shard is all there is, its files are named without a number. As a context manager it closes
    its files.
    """

    def __init__(self, output: Output, shard_size: int | None) -> None:
        self._output = output
        self._shard_size = shard_size
        self._shards: list[_Shard] = []
        # A worker that outlives its killed parent by a moment must not write in another run's file.
        self._run = os.urandom(8).hex()
        self._unread: list[_Shard] = []  # those whose digest has not been asked for to the end
        with writing(output.prefix):
            self._joint = open(output.path("joint.idx"), "wb")  # noqa: SIM115

    def __enter__(self) -> SetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk has been reported where it was met
            self._joint.close()
        for shard in self._shards:
            with suppress(OSError):
                shard.end()

    def place(self, records: Sequence[tuple[int, int]], number: int | None) -> tuple[Piece, ...]:
        """Where the next part's bytes belong. records: (key, bytes) of each record in it; number:
        of the shard it belongs to (None: whichever has room)."""
        pieces = []
        with writing(self._output.prefix):
            while records:
                shard = self._shard_for(records[0][1], number)
                count = self._room(shard, records)
                offset = shard.size
                self._add(shard, records[:count])
                pieces.append(Piece(shard.rec, offset, shard.size - offset))
                records = records[count:]
        return tuple(pieces)

    def adopt(self, stem: str, number: int | None) -> str:
        """Takes a shard that is whole as the next one, STEM.rec and STEM.idx in the work folder;
        the path of the former."""
        with writing(self._output.prefix):
            shard = self._next_shard(stem, number)
            with open(shard.idx, "rb") as file:
                for line in file:
                    key, offset = line.split(b"\t")
                    self._joint.write(b"%s\t%d\n" % (key, shard.start + int(offset)))
                    shard.records += 1
            shard.size = os.path.getsize(shard.rec)
        return shard.rec

    def _shard_for(self, size: int, number: int | None) -> _Shard:
        """The shard that takes a record of this size: the last one, or a new one."""
        last = self._shards[-1] if self._shards else None
        if last and last.index:
            if number is not None:
                is_full = last.number != number
            else:
                is_full = self._shard_size is not None and last.size + size > self._shard_size
            if not is_full:
                return last
        shard = self._next_shard(f"{self._run}.{len(self._shards)}", number)
        shard.begin()
        self._unread.append(shard)
        return shard

    def _next_shard(self, stem: str, number: int | None) -> _Shard:
        last = self._shards[-1] if self._shards else None
        if last:
            last.end()
        start = last.start + last.size if last else 0
        self._shards.append(_Shard(self._output.path(stem + ".rec"), number, start))
        return self._shards[-1]

    def _room(self, shard: _Shard, records: Sequence[tuple[int, int]]) -> int:
        """How many of the records the shard takes; the first of them in any case."""
        if self._shard_size is None:
            return len(records)
        size, count = shard.size, 0
        for _, each in records:
            size += each
            if size > self._shard_size and count:
                break
            count += 1
        return count

    def _add(self, shard: _Shard, records: Sequence[tuple[int, int]]) -> None:
        keys = [key for key, _ in records]
        ends = list(accumulate((size for _, size in records), initial=shard.size))
        assert shard.index
        shard.index.write(format_index(zip(keys, ends, strict=False)))
        joint = [shard.start + offset for offset in ends]
        self._joint.write(format_index(zip(keys, joint, strict=False)))
        shard.records += len(records)
        shard.size = ends[-1]

    def end(self) -> None:
        """Says that every part is placed."""
        with writing(self._output.prefix):
            if self._shards:
                self._shards[-1].end()
            self._joint.close()

    def written(self, pieces: Iterable[Piece]) -> None:
        """Says that these pieces are where they belong."""
        shards = {shard.rec: shard for shard in self._unread}
        for piece in pieces:
            shard = shards[piece.file]
            shard.ahead[piece.offset] = piece.offset + piece.size
            while shard.written in shard.ahead:
                shard.written = shard.ahead.pop(shard.written)

    def digest_steps(self, mine: Callable[[str], bool]) -> tuple[DigestStep, ...]:
        """What has been written since the last call, to be read for the digests of those files that
        are `mine`. The steps of one file belong to one ShardDigest."""
        steps = []
        for shard in list(self._unread):
            is_last = shard.index is None and shard.written == shard.size
            if (is_last or shard.written > shard.asked) and mine(shard.rec):
                flush = self._output.fsync
                steps.append(DigestStep(shard.rec, shard.asked, shard.written, is_last, flush))
                shard.asked = shard.written
                if is_last:
                    self._unread.remove(shard)
        return tuple(steps)

    def finish(self, digests: Mapping[str, str]) -> tuple[list[ShardFacts], dict[str, str]]:
        """The shards' facts, and where the set's files lie, by name, in the order to publish.
        digests: the sha256 of each .rec in the work folder."""
        stem = self._output.stem
        facts, recs, idxs = [], {}, {}
        for number, shard in enumerate(self._shards):
            name = stem if len(self._shards) == 1 else shard_stem(stem, number)
            rec, idx = f"{name}.rec", f"{name}.idx"
            recs[rec], idxs[idx] = shard.rec, shard.idx
            facts.append(ShardFacts(rec, idx, shard.records, shard.size, digests[shard.rec]))
        files = {**recs, **idxs}
        if len(facts) > 1:
            files[f"{stem}.idx"] = self._joint.name
        return facts, files
