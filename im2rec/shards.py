"""The files of a packed set: their names, writing them whole or not at all, and finding them again.

A set is PREFIX.rec and PREFIX.idx, or shards PREFIX_000.rec, PREFIX_000.idx... with one joint index
PREFIX.idx whose offsets run on over all shards (MXNet and DALI read several shards only so), and
PREFIX.manifest.json. Everything is written in a hidden folder beside the set and renamed when all
of it is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import struct
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from im2rec.errors import BusyError, InputError, OutputError, RecordError, printable
from im2rec.framing import MAGIC_BYTES, RecordReader
from im2rec.index import format_index
from im2rec.interrupts import signals_held

MANIFEST_FORMAT, MANIFEST_VERSION = "im2rec-manifest", 1
COPY_SIZE = 1 << 20  # bytes read at a time where files are joined or hashed

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
    (P.classes.txt for P_train). None where there is none."""
    match = re.search(FAMILY + "$", prefix)
    for stem in (prefix, prefix[: match.start()] if match else prefix):
        if os.path.exists(stem + ".classes.txt"):
            return stem + ".classes.txt"
    return None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def read_classes(path: str) -> list[str]:
    """The names of a class map, one a line, numbered from 0. Raises InputError."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, f"cannot read the class map: {_reason(error)}") from error
    names = [line.removesuffix("\r") for line in text.split("\n")]
    if names and not names[-1]:
        names.pop()
    if "" in names:
        raise InputError(path, f"line {names.index('') + 1} is empty, expected a class name")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(path, f"the class {name!r} stands there twice")
        seen.add(name)
    return names


# --- writing ----------------------------------------------------------------------------------


class Output:
    """The files of one run, kept in a hidden folder beside PREFIX until `publish` renames them.

    As a context manager it takes the prefix for itself (a lock that dies with its holder) and
    clears what a killed run left; leaving it removes all that was not published.

    fsync: flush every file and the folder to disk before a name becomes final. Raises OutputError
    where the folder cannot be written, BusyError where another run holds the prefix.
    """

    def __init__(self, prefix: str, *, fsync: bool) -> None:
        self.prefix = prefix
        self.folder, self.stem = os.path.split(prefix)
        self.fsync = fsync
        self.work = os.path.join(self.folder, f".{self.stem}.im2rec")
        self._leave: weakref.finalize[[str, int, int], Output] | None = None

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
                    self._leave = weakref.finalize(self, _leave, self.work, lock, os.getpid())
                    _clear(self.work)
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

    def write(self, name: str, data: bytes) -> None:
        """Writes one small file whole."""
        with writing(os.path.join(self.folder, name)), open(self.path(name), "wb") as file:
            file.write(data)

    def publish(self, names: Sequence[str], stale: Iterable[str] = ()) -> None:
        """Gives the files their final names, in this order, then removes stale older ones.

        names, stale: file names in PREFIX's folder. Signals wait until it is done, so that an
        interrupted run has either published everything or nothing.
        """
        stale = set(stale) - set(names)
        for name in (*names, *stale):  # found only at its turn, a folder would stop it half done
            final = os.path.join(self.folder, name)
            if os.path.isdir(final):
                raise OutputError(final, "there is a folder of this name", "move it away")
        if self.fsync:
            for name in names:
                with writing(os.path.join(self.folder, name)):
                    _flush(self.path(name), os.O_RDWR)
        with signals_held():
            self._rename_all(names)
            for name in stale:
                old = os.path.join(self.folder, name)
                with writing(old), suppress(FileNotFoundError):
                    os.unlink(old)
            if self.fsync and sys.platform != "win32":  # Windows cannot open a folder
                with writing(self.folder or "."):
                    _flush(self.folder or ".", os.O_RDONLY)

    def _rename_all(self, names: Sequence[str]) -> None:
        """Renames the files; where one cannot be, takes back what was done before."""
        done: list[str] = []
        try:
            for name in names:
                final = os.path.join(self.folder, name)
                with writing(final):
                    with suppress(OSError):  # no older file, or a file system without links
                        os.link(final, self.path(f"older {name}"))
                    os.replace(self.path(name), final)
                done.append(name)
        except OutputError:
            for name in reversed(done):
                final = os.path.join(self.folder, name)
                with suppress(OSError):
                    if os.path.exists(self.path(f"older {name}")):
                        os.replace(self.path(f"older {name}"), final)
                    else:
                        os.unlink(final)
            raise


_LOCK_NAME = "lock"


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
                return fd
        os.close(fd)  # locked, but the folder was removed meanwhile


def _lock_file(fd: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(work: str) -> None:
    """Removes all but the lock: what was not published, or what a killed run left."""
    for name in os.listdir(work):
        path = os.path.join(work, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif name != _LOCK_NAME:
            os.unlink(path)


def _leave(work: str, lock: int, owner: int) -> None:
    """Removes the work folder and gives up the lock; in a forked copy of the owner, nothing."""
    if os.getpid() != owner:
        return
    with suppress(OSError):  # what stays is cleared by the next run
        _clear(work)
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


class _OpenShard:
    """A shard while it is written. number: the caller's, or None; start: bytes of all before it."""

    def __init__(self, folder: str, number: int | None, name: str, start: int) -> None:
        self.number, self.start = number, start
        self.rec = open(os.path.join(folder, f"{name}.rec"), "wb")  # noqa: SIM115
        self.idx = open(os.path.join(folder, f"{name}.idx"), "wb")  # noqa: SIM115
        self.sha256 = hashlib.sha256()
        self.records = 0
        self.size = 0

    def close(self) -> None:
        try:
            self.rec.close()
        finally:
            self.idx.close()


class SetWriter:
    """Joins parts, files of framed records, into the shards of a set, in the order they come.

    shard_size: bytes that a shard may reach; None = no bound. If one shard is all there is, its
    files are named without a number. As a context manager it closes its files.
    """

    def __init__(self, output: Output, shard_size: int | None) -> None:
        self._output = output
        self._shard_size = shard_size
        self._done: list[_OpenShard] = []
        self._open: _OpenShard | None = None
        with writing(output.prefix):
            self._joint = open(output.path("joint.idx"), "wb")  # noqa: SIM115

    def __enter__(self) -> SetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._joint, self._open):
            with suppress(OSError):  # a full disk has been reported where it was met
                if file:
                    file.close()

    def append(self, part: str, records: Sequence[tuple[int, int]], shard: int | None) -> None:
        """Takes over one part: its file, (key, bytes) of each record in it, and the number of the
        shard it belongs to (None: whichever has room)."""
        with writing(self._output.prefix):
            with open(part, "rb") as source:
                entries: list[tuple[int, int]] = []
                copied = 0
                for key, size in records:
                    if self._is_full(copied + size, shard):
                        self._take(source, copied, entries)
                        self._close_shard()
                        entries, copied = [], 0
                    if self._open is None:
                        self._open_shard(shard)
                    assert self._open
                    entries.append((key, self._open.size + copied))
                    copied += size
                self._take(source, copied, entries)
            os.unlink(part)

    def _is_full(self, more: int, number: int | None) -> bool:
        """Whether the open shard must end before it grows by `more` bytes."""
        if self._open is None:
            return False
        if number is not None:
            return self._open.number != number
        return self._shard_size is not None and self._open.size + more > self._shard_size

    def _open_shard(self, number: int | None) -> None:
        start = sum(shard.size for shard in self._done)
        self._open = _OpenShard(self._output.work, number, str(len(self._done)), start)

    def _take(self, source: BinaryIO, size: int, entries: list[tuple[int, int]]) -> None:
        """Moves `size` bytes of records, with their (key, offset), to the end of the open shard."""
        shard = self._open
        if shard is None:
            return
        left = size
        while left:
            chunk = source.read(min(left, COPY_SIZE))
            if not chunk:
                raise OutputError(source.name, "a part of the set became shorter")
            shard.rec.write(chunk)
            shard.sha256.update(chunk)
            left -= len(chunk)
        shard.idx.write(format_index(entries))
        self._joint.write(format_index([(key, shard.start + at) for key, at in entries]))
        shard.records += len(entries)
        shard.size += size

    def _close_shard(self) -> None:
        if self._open:
            self._open.close()
            self._done.append(self._open)
            self._open = None

    def finish(self) -> tuple[list[ShardFacts], list[str]]:
        """Ends the set; the shards' facts, and its file names in the order to publish."""
        stem, path = self._output.stem, self._output.path
        with writing(self._output.prefix):
            self._close_shard()
            self._joint.close()
            facts = []
            for number, shard in enumerate(self._done):
                name = stem if len(self._done) == 1 else shard_stem(stem, number)
                rec, idx = f"{name}.rec", f"{name}.idx"
                os.replace(shard.rec.name, path(rec))
                os.replace(shard.idx.name, path(idx))
                facts.append(
                    ShardFacts(rec, idx, shard.records, shard.size, shard.sha256.hexdigest())
                )
            names = [fact.rec for fact in facts] + [fact.idx for fact in facts]
            if len(facts) > 1:
                os.replace(self._joint.name, path(f"{stem}.idx"))
                names.append(f"{stem}.idx")
        return facts, names


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
        return [str(shard["rec"]) for shard in read_manifest(prefix + ".manifest.json")["shards"]]
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
    """Reads a manifest. Raises InputError where it is none."""
    try:
        manifest = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(path, f"not a manifest: {error}") from error
    shards = manifest.get("shards") if isinstance(manifest, dict) else None
    if not isinstance(shards, list) or not all(
        isinstance(shard, dict) and _is_name(shard.get("rec")) and _is_name(shard.get("idx"))
        for shard in shards
    ):
        raise InputError(path, "not a manifest: no list of shards with their file names")
    joint = manifest.get("joint_index")
    if joint is not None and not _is_name(joint):
        raise InputError(path, f"not a manifest: joint_index {joint!r} is no file name")
    return dict(manifest)


def _is_name(name: object) -> bool:
    """Whether it is a plain file name: a manifest cannot point elsewhere."""
    return (
        isinstance(name, str)
        and name == os.path.basename(name)
        and name not in ("", os.curdir, os.pardir)
        and "\0" not in name
    )


def write_manifest(contents: dict[str, Any]) -> bytes:
    """A manifest's bytes."""
    return (json.dumps(contents, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


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
