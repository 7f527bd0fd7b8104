"""A set on disk: the names of its files, finding them again, and the manifest that describes them.

A set is PREFIX.rec and PREFIX.idx, or shards PREFIX_000.rec, PREFIX_000.idx... with one joint index
PREFIX.idx, beside them PREFIX.manifest.json and, by make-list, lists and PREFIX.classes.txt. What
make-list, too, waits for as it starts is imported where it is used.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from im2rec.errors import InputError, RecordError, printable
from im2rec.framing import MAGIC_BYTES, Damage, Record, RecordReader, Run, RunScanner
from im2rec.output import COPY_SIZE

MANIFEST_FORMAT, MANIFEST_VERSION = "im2rec-manifest", 1
MAX_GAPS = 1000  # shards that may be missing between others
MAX_BESIDE = 1 << 26  # bytes of a manifest or a class map; JSON takes 20 times as much memory
DIGEST_SIZE = 1 << 18  # bytes read at a time for a digest: they stay in the processor's cache

_SHARD = re.compile(r"_([0-9]{3,})\.rec\Z")


def shard_stem(prefix: str, number: int) -> str:
    """The prefix of one shard's files: PREFIX_000, PREFIX_001..."""
    return f"{prefix}_{number:03d}"


# What make-list puts between a prefix and `.lst`: the number of a chunk, the name of a part.
FAMILY = r"(?:_(?P<chunk>[0-9]+))?(?:_(?P<part>train|val|test))?"


def family_lists(prefix: str) -> list[str]:
    """The names of the lists beside PREFIX that make-list writes for it when it splits: chunks in
    order, each as train, val, test. A number is no chunk's where there is no chunk 0: it may be a
    year. Raises OSError where the folder cannot be read."""
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
    has_chunks = any(chunk == 0 for chunk, _, _ in found)
    return [name for chunk, _, name in sorted(found) if chunk <= 0 or has_chunks]


def find_classes(prefix: str) -> str | None:
    """The class map beside a set: PREFIX.classes.txt, or that of the prefix which make-list had
    (P.classes.txt for P_train; for P_3 where there is a P_0 beside it, else 3 may be part of the
    name). None where there is none. Raises InputError where it is a FIFO or a device."""
    match = re.search(FAMILY + "$", prefix)
    for stem in (prefix, prefix[: match.start()] if match else prefix):
        path = stem + ".classes.txt"
        if os.path.exists(path):
            if stem != prefix and match and int(match["chunk"] or 0) and not _has_first(stem):
                continue
            if is_special(path):
                raise InputError(path, NOT_REGULAR)
            return path
    return None


def _has_first(prefix: str) -> bool:
    """Whether there is a first chunk or shard beside PREFIX, as a list or packed."""
    folder, stem = os.path.split(prefix)
    first = re.compile(re.escape(stem) + r"_0+(?:_(?:train|val|test))?(?:_0+)?\.(?:lst|rec)")
    with suppress(OSError):
        return any(map(first.fullmatch, os.listdir(folder or ".")))
    return False


NOT_REGULAR = "not a regular file"


def is_special(path: str) -> bool:
    """Whether there is a FIFO or a device: opening it may wait for ever, or never come to its
    end."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


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


# --- finding a set ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordSet:
    """A packed set as found on disk.

    name: what the user gave. recs: the .rec files in order; idxs: beside each, its own index or
    None; joint: the joint index of several shards or None; manifest: its path or None; prefix: of
    the whole set. missing: files that the manifest names and that are not there. set_manifest: of a
    shard that was named by itself, the manifest of its set.
    """

    name: str
    prefix: str
    recs: tuple[str, ...]
    idxs: tuple[str | None, ...]
    joint: str | None
    manifest: str | None
    missing: tuple[str, ...] = ()
    set_manifest: str | None = None


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
        alone = _with_indexes(argument, argument.removesuffix(".rec"), [argument], None)
        return alone if alone.manifest else replace(alone, set_manifest=_set_manifest(argument))
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


def _set_manifest(rec: str) -> str | None:
    """The manifest of the set that a .rec is a shard of, None where there is none or it does not
    name the file; one that cannot be read is taken to."""
    match = _SHARD.search(rec)
    path = match and _if_there(rec[: match.start()] + ".manifest.json")
    if not path:
        return None
    with suppress(InputError):
        names = [shard["rec"] for shard in read_manifest(path)["shards"]]
        return path if os.path.basename(rec) in names else None
    return path


def _numbered(prefix: str) -> list[str]:
    """The shards PREFIX_000.rec, PREFIX_001.rec... in order; between those that are there, also the
    ones that are not, unless the numbers say something else: a date, a size in pixels."""
    folder, stem = os.path.split(prefix)
    found: dict[int, str] = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder or "."):
            match = _SHARD.fullmatch(name, len(stem)) if name.startswith(stem) else None
            if match:
                found[int(match[1])] = os.path.join(folder, name)
    end = max(found, default=-1) + 1
    if (0 in found or 2 * len(found) >= end) and end - len(found) <= MAX_GAPS:
        for number in range(end):
            found.setdefault(number, f"{shard_stem(prefix, number)}.rec")
    return [path for _, path in sorted(found.items())]


def _if_there(path: str) -> str | None:
    return path if os.path.exists(path) and not os.path.isdir(path) else None


def _manifest_recs(prefix: str) -> list[str]:
    """The .rec names in PREFIX's manifest; none where it is not there or makes no sense."""
    with suppress(InputError):
        shards = read_manifest(prefix + ".manifest.json")["shards"]
        return list(dict.fromkeys(str(shard["rec"]) for shard in shards))
    return []


# --- the manifest -----------------------------------------------------------------------------


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
        raise InputError(path, f"not a manifest: {_why_no_json(error)}") from error
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
    if is_special(path):
        raise InputError(path, f"not a manifest: {NOT_REGULAR}")
    try:
        return _read(path)
    except (OSError, _TooLarge) as error:
        raise InputError(path, f"not a manifest: {_reason(error)}") from error


def _why_no_json(error: ValueError | RecursionError) -> str:
    import json

    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: this is no JSON"
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return _reason(error)
    return "it has a number of too many digits"


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
    before that line: what GNU's `head -n -2 FILE | sha256sum` gives."""
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


# --- reading the records ----------------------------------------------------------------------


def check_record_file(path: str) -> None:
    """Raises InputError where a file is not there, no regular one (opening a FIFO would wait for
    its writer), or by its beginning of another kind."""
    if not os.path.isfile(path):
        raise InputError(path, NOT_REGULAR if os.path.exists(path) else "there is no such file")
    if kind := other_format(path):
        raise InputError(path, f"this is {kind}", "name a .rec file or a prefix")


def walk(
    path: str, tell: Callable[[Damage], None], *, in_runs: bool = True
) -> Iterator[Record | Run]:
    """The sound records of a file, over any damage. tell: called with each damaged place; in_runs:
    where many follow on each other, all at once. Raises OSError."""
    with open(path, "rb", buffering=COPY_SIZE) as stream, open(path, "rb", buffering=0) as source:
        reader = RecordReader(stream, path)
        yield from reader.walk(tell, RunScanner(source, reader.size) if in_runs else None)


class Untouched:
    """Files that must stay as they are while they are read."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._states = {path: _state(path) for path in paths}

    def check(self) -> None:
        """Raises InputError where one is not what it was: written to, or another in its place."""
        for path, state in self._states.items():
            if _state(path) != state:
                hint = "start again when nothing writes to it"
                raise InputError(path, "it changed while it was read", hint)


def _state(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written to or replaced; None where it is not there."""
    with suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


# --- files of another kind --------------------------------------------------------------------


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
