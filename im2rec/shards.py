"""The files of a packed set: their names, writing them whole or not at all, and finding them again.

A set is PREFIX.rec and PREFIX.idx, or shards PREFIX_000.rec, PREFIX_000.idx... with one joint index
PREFIX.idx whose offsets run on over all shards (MXNet and DALI read several shards only so), and
PREFIX.manifest.json. Everything is written in a hidden folder beside the set and renamed when all
of it is there. What make-list, too, waits for as it starts is imported where it is used.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, Any

from im2rec.errors import BusyError, InputError, OutputError, RecordError, printable
from im2rec.framing import MAGIC_BYTES, RecordReader
from im2rec.index import format_index, parse_index
from im2rec.interrupts import signals_held

MANIFEST_FORMAT, MANIFEST_VERSION = "im2rec-manifest", 1
COPY_SIZE = 1 << 20  # bytes read at a time where files are read to their end
HELD_SIZE = 1 << 25  # bytes of its parts that a worker keeps in memory; the rest goes to files
MAX_BESIDE = 1 << 26  # bytes of a manifest or a class map; JSON takes 20 times as much memory
DIGEST_SIZE = 1 << 18  # bytes read at a time for a digest: they stay in the processor's cache

_SHARD = re.compile(r"_([0-9]{3,})\.rec")


def shard_stem(prefix: str, number: int) -> str:
    """The prefix of one shard's files: PREFIX_000, PREFIX_001..."""
    return f"{prefix}_{number:03d}"


# What make-list puts between a prefix and `.lst`: the number of a chunk, the name of a part.
FAMILY = r"(?:_(?P<chunk>[0-9]+))?(?:_(?P<part>train|val|test))?"


def family_lists(prefix: str) -> list[str]:
    """The names of the lists beside PREFIX that make-list writes for it when it splits: chunks in
    order, each as train, val, test. Raises OSError where the folder cannot be read."""
    return _family(prefix, ".lst")


def _family(prefix: str, ending: str) -> list[str]:
    folder, stem = os.path.split(prefix)
    family = re.compile(re.escape(stem) + FAMILY + re.escape(ending))
    found = []
    for name in os.listdir(folder or "."):
        match = family.fullmatch(name)
        if match:
            part = ("train", "val", "test", None).index(match["part"])
            found.append((int(match["chunk"] or -1), part, name))
    return [name for _, _, name in sorted(found)]


def find_classes(prefix: str) -> str | None:
    """The class map beside a set: PREFIX.classes.txt, or that of the prefix which make-list had
    (P.classes.txt for P_train). None where there is none. Raises InputError where it is a FIFO or
    a device."""
    match = re.search(FAMILY + "$", prefix)
    for stem in (prefix, prefix[: match.start()] if match else prefix):
        path = stem + ".classes.txt"
        if os.path.exists(path):
            if not os.path.isfile(path) and not os.path.isdir(path):
                raise InputError(path, _NOT_REGULAR)
            return path
    return None


_NOT_REGULAR = "not a regular file"  # opening a FIFO would wait for its writer


class _TooLarge(ValueError):
    def __str__(self) -> str:
        return f"it has more than {MAX_BESIDE} bytes"


def _read(path: str) -> bytes:
    """A small file's bytes. Raises _TooLarge where it is not small, as a device without end."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_BESIDE:
            raise _TooLarge
        data = file.read(MAX_BESIDE + 1)
    if len(data) > MAX_BESIDE:
        raise _TooLarge
    return data


def file_sha256(path: str) -> str:
    """The sha256 of a file's bytes, in hexadecimal. Raises OSError."""
    import hashlib

    sha256 = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(DIGEST_SIZE):
            sha256.update(data)
    return sha256.hexdigest()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def read_classes(path: str) -> list[str]:
    """The names of a class map, one a line, numbered from 0. Raises InputError."""
    try:
        text = _read(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(path, f"cannot read the class map: {_reason(error)}") from error
    names = [line.removesuffix("\r") for line in text.split("\n")]
    if names and not names[-1]:
        names.pop()
    if "" in names:
        raise InputError(path, f"line {names.index('') + 1} is empty, expected a class name")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(path, f"the class {name[:80]!r} stands there twice")
        seen.add(name)
    return names


# --- writing ----------------------------------------------------------------------------------


class Output:
    """The files of one run, kept in a hidden folder beside PREFIX until `publish` renames them.

    As a context manager it takes the prefix for itself (a lock that dies with its holder) and
    clears what a killed run left; leaving it removes all that was not published.

    fsync: flush every file and the folder to disk before a name becomes final. keep: let what has
    a note (`keep_note`) stay, and the note, until something has been published. Raises OutputError
    where the folder cannot be written, BusyError where another run holds the prefix.
    """

    def __init__(self, prefix: str, *, fsync: bool, keep: bool = False) -> None:
        self.prefix = prefix
        self.folder, self.stem = os.path.split(prefix)
        self.fsync = fsync
        self.work = os.path.join(self.folder, f".{self.stem}.im2rec")
        self._keep = [keep]  # shared with what clears up
        self._leave: weakref.finalize[[str, int, int, list[bool]], Output] | None = None

    def __enter__(self) -> Output:
        if not self.stem:
            raise OutputError(self.prefix, "the prefix ends with no name", "give PREFIX a name")
        if not _is_utf8(self.stem):
            raise OutputError(self.prefix, "the name is not UTF-8", "choose another PREFIX")
        with writing(self.work):
            if not os.path.isdir(self.folder or "."):
                raise OutputError(self.prefix, f"there is no folder {self.folder!r}", "make it")
            try:
                with signals_held():
                    lock = _lock(self.work, self.prefix)
                    # At the latest, it runs when nothing refers to this object any more: a signal
                    # that comes as the context is left keeps __exit__ from its work.
                    self._leave = weakref.finalize(
                        self, _leave, self.work, lock, os.getpid(), self._keep
                    )
                    _clear(self.work, self._keep[0])
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._leave:
            with signals_held():
                self._leave()

    def path(self, name: str) -> str:
        """Where a file lies until it is published."""
        return os.path.join(self.work, name)

    def write(self, name: str, data: bytes) -> str:
        """Writes one small file whole; where it lies until it is published."""
        path = self.path(name)
        with writing(os.path.join(self.folder, name)), open(path, "wb") as file:
            file.write(data)
        return path

    def keep_note(self, stem: str, note: bytes) -> None:
        """Notes that the files STEM.rec and STEM.idx are whole: they may stay when the run ends."""
        with writing(self.prefix):
            with open(self.path("note"), "wb") as file:
                file.write(note)
            os.replace(self.path("note"), self.path(stem + NOTE))

    def notes(self) -> dict[str, bytes]:
        """The notes that a stopped run left, by their stems, in the order of their names."""
        notes = {}
        with writing(self.prefix):
            for stem in sorted(_noted(self.work)):
                with open(self.path(stem + NOTE), "rb") as file:
                    notes[stem] = file.read()
        return notes

    def forget(self, stem: str) -> None:
        """Removes a shard that was noted to be whole, and its note first."""
        with writing(self.prefix):
            for end in (NOTE, ".rec", ".idx"):
                with suppress(FileNotFoundError):
                    os.unlink(self.path(stem + end))

    def publish(
        self, files: Mapping[str, str], stale: Iterable[str] = (), *, if_changed: bool = False
    ) -> list[str]:
        """Gives the files their final names, in this order, then removes stale older ones.

        files: where each lies, by its name in PREFIX's folder; stale: names there. if_changed:
        leave a file alone that has these bytes already. Returns the names that were given. Signals
        wait until it is done, so that an interrupted run has either published everything or
        nothing.
        """
        stale = set(stale) - set(files)
        for name in (*files, *stale):  # found only at its turn, a folder would stop it half done
            final = os.path.join(self.folder, name)
            if os.path.isdir(final):
                raise OutputError(final, "there is a folder of this name", "move it away")
        if if_changed:
            files = {
                name: path
                for name, path in files.items()
                if not _is_same(path, os.path.join(self.folder, name))
            }
        if self.fsync:
            for name, path in files.items():
                with writing(os.path.join(self.folder, name)):
                    _flush(path, os.O_RDWR)
        with signals_held():
            self._rename_all(files)
            self._keep[0] = False
            for name in stale:
                old = os.path.join(self.folder, name)
                with writing(old), suppress(FileNotFoundError):
                    os.unlink(old)
            if self.fsync and sys.platform != "win32":  # Windows cannot open a folder
                with writing(self.folder or "."):
                    _flush(self.folder or ".", os.O_RDONLY)
        return list(files)

    def _rename_all(self, files: Mapping[str, str]) -> None:
        """Renames the files; where one cannot be, takes back what was done before."""
        done: list[str] = []
        try:
            for name, path in files.items():
                final = os.path.join(self.folder, name)
                with writing(final):
                    with suppress(OSError):  # no older file, or a file system without links
                        os.link(final, self.path(f"older {name}"))
                    os.replace(path, final)
                done.append(name)
        except OutputError:
            for name in reversed(done):
                final = os.path.join(self.folder, name)
                with suppress(OSError):
                    os.link(final, files[name])  # what is to be kept
                with suppress(OSError):
                    if os.path.exists(self.path(f"older {name}")):
                        os.replace(self.path(f"older {name}"), final)
                    else:
                        os.unlink(final)
            raise


_LOCK_NAME = "lock"
NOTE = ".whole"  # the ending of what says that a shard in the work folder is whole


def _noted(work: str) -> list[str]:
    """The stems of the files that a note says to be whole."""
    return [name.removesuffix(NOTE) for name in os.listdir(work) if name.endswith(NOTE)]


_locks: set[int] = set()  # file descriptors of this process that hold one


def _forget_locks() -> None:
    """In a forked process: one that outlives the run, for it hangs, must not keep its lock."""
    for fd in _locks:
        os.close(fd)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _lock(work: str, prefix: str) -> int:
    """Makes the work folder and locks it; the file descriptor that holds the lock."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(work)
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(work).st_mode):  # what a link leads to is not ours
                raise OutputError(work, "not a folder", "remove it")
        path = os.path.join(work, _LOCK_NAME)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except FileNotFoundError:
            continue  # its last holder has just removed the folder
        try:
            _lock_file(fd)
        except OSError as error:
            os.close(fd)
            if isinstance(error, (BlockingIOError, PermissionError)):  # the latter on Windows
                raise BusyError(prefix) from None
            raise  # a file system without locks
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                _locks.add(fd)
                return fd
        os.close(fd)  # locked, but the folder was removed meanwhile


def _lock_file(fd: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(work: str, keep: bool) -> None:
    """Removes what was not published, or what a killed run left: all but the lock and, where they
    are to be kept, the files that are noted."""
    stay = {_LOCK_NAME}
    if keep:
        stay.update(stem + end for stem in _noted(work) for end in (".rec", ".idx", NOTE))
    for name in os.listdir(work):
        path = os.path.join(work, name)
        if os.path.isdir(path):
            import shutil

            shutil.rmtree(path)
        elif name not in stay:
            os.unlink(path)


def _is_same(path: str, final: str) -> bool:
    """Whether there is a file of the final name that has the same bytes."""
    try:
        with open(path, "rb") as new, open(final, "rb") as old:
            if os.fstat(new.fileno()).st_size != os.fstat(old.fileno()).st_size:
                return False
            while data := new.read(COPY_SIZE):
                if old.read(COPY_SIZE) != data:
                    return False
    except OSError:  # not there, or what there is cannot be read: it is replaced
        return False
    return True


def kept_count(prefix: str) -> int:
    """How many shards a stopped run of this prefix has left to be used again."""
    folder, stem = os.path.split(prefix)
    try:
        return len(_noted(os.path.join(folder, f".{stem}.im2rec")))
    except OSError:
        return 0


def _leave(work: str, lock: int, owner: int, keep: list[bool]) -> None:
    """Removes the work folder and gives up the lock; in a forked copy of the owner, nothing."""
    if os.getpid() != owner:
        return
    _locks.discard(lock)
    with suppress(OSError):  # what stays is cleared by the next run
        _clear(work, keep[0])
        if sys.platform == "win32":  # an open file cannot be removed there
            os.close(lock)
        # The lock goes last: from then on the folder may be another run's.
        os.unlink(os.path.join(work, _LOCK_NAME))
        os.rmdir(work)
    if sys.platform != "win32":
        os.close(lock)


def _flush(path: str, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an OSError into an OutputError about this path."""
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        raise OutputError(path, found[0].lower() + found[1:]) from error


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
            _flush(step.file, os.O_RDWR)
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
                entries, _ = parse_index(file.read(), shard.idx)
            self._joint.write(format_index((key, shard.start + at) for key, at in entries))
            shard.records, shard.size = len(entries), os.path.getsize(shard.rec)
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


# --- reading back -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordSet:
    """A packed set as found on disk.

    name: what the user gave. recs: the .rec files in order; idxs: beside each, its own index or
    None; joint: the joint index of several shards or None; manifest: its path or None; prefix: of
    the whole set. missing: files that the manifest names and that are not there.
    """

    name: str
    prefix: str
    recs: tuple[str, ...]
    idxs: tuple[str | None, ...]
    joint: str | None
    manifest: str | None
    missing: tuple[str, ...] = ()


def find_set(argument: str) -> RecordSet:
    """The set that an argument names: a .rec file, or a prefix of one file or of shards.

    A prefix wins over a file or folder of the same name, unless that ends in `.rec`. Raises
    InputError where there is neither.
    """
    if not argument.endswith(".rec"):
        recs = [os.path.join(os.path.dirname(argument), name) for name in _manifest_recs(argument)]
        if not recs and _if_there(argument + ".rec"):
            recs = [argument + ".rec"]
        recs = recs or _numbered(argument)
        if recs:
            joint = None if recs == [argument + ".rec"] else _if_there(argument + ".idx")
            return _with_indexes(argument, argument, recs, joint)
    if os.path.isdir(argument):
        raise InputError(argument, "is a folder", "name a .rec file or a prefix")
    if os.path.exists(argument):
        return _with_indexes(argument, argument.removesuffix(".rec"), [argument], None)
    if argument.endswith(".rec"):
        raise InputError(argument, "there is no such file")
    others: list[str] = []
    with suppress(OSError):
        others = [name.removesuffix(".rec") for name in _family(argument, ".rec")]
    raise InputError(
        argument,
        "there is no such file, and no set with this prefix",
        f"name {' or '.join(others[:3])}, which are beside it"
        if others
        else printable(f"expected {argument}.rec or {shard_stem(argument, 0)}.rec"),
    )


def _with_indexes(name: str, prefix: str, recs: list[str], joint: str | None) -> RecordSet:
    there = [rec for rec in recs if _if_there(rec)]
    idxs = tuple(_if_there(rec.removesuffix(".rec") + ".idx") for rec in there)
    missing = tuple(rec for rec in recs if rec not in there)
    manifest = _if_there(prefix + ".manifest.json")
    return RecordSet(name, prefix, tuple(there), idxs, joint, manifest, missing)


def _numbered(prefix: str) -> list[str]:
    folder, stem = os.path.split(prefix)
    found = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder or "."):
            match = _SHARD.fullmatch(name, len(stem)) if name.startswith(stem) else None
            if match:
                found.append((int(match[1]), os.path.join(folder, name)))
    return [path for _, path in sorted(found)]


def _if_there(path: str) -> str | None:
    return path if os.path.exists(path) and not os.path.isdir(path) else None


def _manifest_recs(prefix: str) -> list[str]:
    """The .rec names in PREFIX's manifest; none where it is not there or makes no sense."""
    with suppress(InputError):
        shards = read_manifest(prefix + ".manifest.json")["shards"]
        return list(dict.fromkeys(str(shard["rec"]) for shard in shards))
    return []


def manifest_names(prefix: str) -> list[str]:
    """The files of PREFIX that the manifest beside it names; none without a manifest.

    What it names under another prefix, as a copied or renamed manifest does, is not PREFIX's.
    """
    with suppress(InputError):
        manifest = read_manifest(prefix + ".manifest.json")
        names = [shard[key] for shard in manifest["shards"] for key in ("rec", "idx")]
        names.append(manifest.get("joint_index") or "")
        own = re.compile(re.escape(os.path.basename(prefix)) + r"(_[0-9]{3,})?\.(rec|idx)")
        return [name for name in names if own.fullmatch(name)]
    return []


def read_manifest(path: str) -> dict[str, Any]:
    """Reads a manifest's contents, whether or not they are as they were written, which
    `manifest_fault` says. Raises InputError where it is none."""
    import json

    try:
        manifest = json.loads(_read_manifest(path))
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not a manifest: {error}") from error
    shards = manifest.get("shards") if isinstance(manifest, dict) else None
    if not isinstance(shards, list) or not all(
        isinstance(shard, dict) and _is_name(shard.get("rec")) and _is_name(shard.get("idx"))
        for shard in shards
    ):
        raise InputError(path, "not a manifest: no list of shards with their file names")
    joint = manifest.get("joint_index")
    if joint is not None and not _is_name(joint):
        raise InputError(path, f"not a manifest: joint_index {repr(joint)[:80]} is no file name")
    return {name: value for name, value in manifest.items() if name != "sha256"}


def _read_manifest(path: str) -> bytes:
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise InputError(path, f"not a manifest: {_NOT_REGULAR}")
    try:
        return _read(path)
    except (OSError, _TooLarge) as error:
        raise InputError(path, f"not a manifest: {error}") from error


def _is_name(name: object) -> bool:
    """Whether it is a plain file name: a manifest cannot point elsewhere."""
    return (
        isinstance(name, str)
        and name == os.path.basename(name)
        and name not in ("", os.curdir, os.pardir)
        and "\0" not in name
    )


def write_manifest(contents: dict[str, Any]) -> bytes:
    """A manifest's bytes. Behind the contents, on a line of its own, stands the sha256 of all bytes
    before that line: what `head -n -2 FILE | sha256sum` gives."""
    import json

    text = json.dumps(contents, indent=2, ensure_ascii=False)
    body = (text.removesuffix("\n}") + ",\n").encode("utf-8")
    return body + _seal(body)


def manifest_fault(path: str) -> str | None:
    """What is wrong with a manifest's bytes by its own sha256, None if nothing is. Raises
    InputError where it cannot be read."""
    data = _read_manifest(path)
    size = len(_seal(b""))
    if data[-size:] == _seal(data[:-size]):
        return None
    if b'\n  "sha256": "' not in data:
        return "its own sha256 is not there, on the last line but one"
    return "it has changed: its own sha256 is not that of the bytes before"


def _seal(body: bytes) -> bytes:
    """The end of a manifest whose bytes before it are these."""
    import hashlib

    return b'  "sha256": "%s"\n}\n' % hashlib.sha256(body).hexdigest().encode("ascii")


_HEAD_SIZE = 512  # bytes; a tar file's first header
_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG", "a PNG image"),
    (b"ARROW1", "an Arrow file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"BZh", "a bzip2 file"),
)
_PROTOBUF = (
    "SageMaker's other RecordIO (x-recordio-protobuf): the framing is the same, "
    "but the payloads are protobuf messages, not image records"
)


def other_format(path: str) -> str | None:
    """What a file is that holds no image records, where its beginning tells; None otherwise."""
    with open(path, "rb") as stream:
        head = stream.read(_HEAD_SIZE)
        if head.startswith(MAGIC_BYTES):
            stream.seek(0)
            try:
                record = RecordReader(stream, path).read()
            except RecordError:
                return None
            return _PROTOBUF if record and _is_protobuf(record.payload) else None
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[257:262] == b"ustar":
        return "a tar file"
    fields = head.split(b"\n")[0].split(b"\t")
    if len(fields) > 1 and fields[0].isdigit():
        if len(fields) == 2 and fields[1].strip().isdigit():
            return "an index (.idx)"
        return "a list (.lst)"
    if len(head) >= 16 and struct.unpack_from("<Q", head)[0] < 2**32 and head[12:13] == b"\x0a":
        return "a TFRecord file"
    return None


def _is_protobuf(payload: bytes) -> bool:
    """Whether the payload parses, to its end, as SageMaker's protobuf Record: length-delimited
    fields 1 to 5, the first of them 1 (features) or 2 (label)."""
    at = 0
    while at < len(payload):
        tag, at = payload[at], at + 1
        if tag & 7 != 2 or not 1 <= tag >> 3 <= 5 or (at == 1 and tag >> 3 > 2):
            return False
        length = shift = 0
        while True:
            if at == len(payload) or shift > 35:
                return False
            byte, at = payload[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += length
    return at == len(payload) > 0
