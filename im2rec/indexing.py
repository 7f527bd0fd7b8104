"""The verb index: what is lost with an index, made anew from the records; and their joint index.

A record's key is its id, where all records are image records and no id comes twice, as im2rec.py
writes it; or its position, as rec2idx.py does. MXNet's C++ reader takes the next line's offset less
a line's own for a record's length, so an index that leaves a record out glues two together: there
is none for a damaged file, but a copy of its whole records can be had, with an index of its own.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from im2rec.errors import InputError, OptionError, OutputError, PayloadError, printable
from im2rec.framing import ALIGNMENT, Damage, Record, Run, frame_pieces
from im2rec.image_record import decode_header, decode_headers
from im2rec.index import format_columns, parse_index
from im2rec.output import Output, check_new, writing
from im2rec.record_set import (
    RecordSet,
    Untouched,
    check_record_file,
    find_set,
    read_manifest,
    walk,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    _Columns = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]  # keys, offsets

KEYS = ("auto", "id", "position")
MAX_LISTED = 100_000  # skipped places that are kept one by one; more take memory
_LINES = 1 << 12  # of an index that are written at a time
_LOOK = 1 << 16  # bytes of an older index that are looked at before it is replaced
Progress = Callable[[int, int], None]  # bytes read, bytes in all


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """keys: "id"; "position", from 0; or "auto": by id where that can be, else by position.
    if_changed: leave a file alone that has these bytes already; fsync: flush files to disk before
    they get their names."""

    keys: str = "auto"
    if_changed: bool = False
    fsync: bool = True

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise OptionError(f"keys {self.keys!r}, expected one of {', '.join(KEYS)}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes of a damaged file in which there is no whole record: where, how many, and why."""

    offset: int
    length: int
    found: str


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What was written.

    files: what should be there now, changed: those of them that were written. records: in all;
    keys: "id" or "position"; no_ids: why they are not ids where those were asked for first, or "".
    empty: .rec files without a record. contradicted: a sentence for each .rec that is not as the
    manifest has it. skipped: places of a damaged file, the first MAX_LISTED; skipped_count,
    skipped_bytes: of all.
    """

    name: str
    files: tuple[str, ...]
    changed: tuple[str, ...]
    records: int
    keys: str
    no_ids: str = ""
    empty: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0
    skipped_bytes: int = 0


def index_set(
    records: RecordSet,
    options: IndexOptions,
    *,
    path: str | None = None,
    progress: Progress | None = None,
) -> IndexReport:
    """Writes the index of each .rec of a set beside it and, where the set has shards, the joint
    index, all of them together or none.

    path: where to write the index of a set of one file instead. Raises InputError where a record
    file is damaged, of another kind, or not there, or has no ids where those are to be the keys;
    OutputError where an index cannot be written, or stands in the place of another kind of file.
    """
    import numpy as np

    _check_there(records)
    names, joint = _index_names(records, path)
    prefix = records.prefix if path is None else path.removesuffix(".idx")
    if path is not None:
        _check_owner(path, records.recs)
    _check_replaced([*names, *([joint] if joint else [])], records.recs)
    with Output(prefix, fsync=options.fsync, keep=True) as output:  # what pack may go on with
        untouched = Untouched(records.recs)
        files = _read_files(records.recs, progress)
        rows = _Rows(files, options.keys)
        places = {}
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            lines = rows.keys_of(number, alone=True), np.asarray(file.offsets)
            places[os.path.basename(name)] = _write(output, f"{number}", name, [lines])
        if joint:
            places[os.path.basename(joint)] = _write(output, "joint", joint, rows.joined())
        untouched.check()
        changed = output.publish(places, if_changed=options.if_changed, keep=True)
    return _report(records.name, output, places, changed, rows, _contradicted(records, files))


def join_indexes(
    sets: Sequence[RecordSet],
    path: str,
    options: IndexOptions,
    *,
    progress: Progress | None = None,
) -> IndexReport:
    """Writes the one index that MXNet and DALI need to read all these .rec files together, in this
    order: its offsets run on over them, and so do positions. Raises as `index_set`."""
    for records in sets:
        _check_there(records)
    recs = [rec for records in sets for rec in records.recs]
    _check_owner(path, recs)
    _check_replaced([path], recs)
    with Output(path.removesuffix(".idx"), fsync=options.fsync, keep=True) as output:
        untouched = Untouched(recs)
        files = _read_files(recs, progress)
        rows = _Rows(files, options.keys)
        places = {os.path.basename(path): _write(output, "joint", path, rows.joined())}
        untouched.check()
        changed = output.publish(places, if_changed=options.if_changed, keep=True)
    told: list[str] = []
    for records in sets:
        told += _contradicted(records, files[: len(records.recs)])
        files = files[len(records.recs) :]
    return _report(path, output, places, changed, rows, told)


def salvage(
    rec: str, new: str, options: IndexOptions, *, progress: Progress | None = None
) -> IndexReport:
    """Copies the whole records of a damaged .rec to NEW.rec, byte for byte and in order, with an
    index NEW.idx.

    new: a prefix, or a name that ends in .rec; neither file may be there. Raises as `index_set`,
    but not for damage, unless there is no whole record.
    """
    import numpy as np

    prefix = new.removesuffix(".rec")
    rec_path, idx_path = f"{prefix}.rec", f"{prefix}.idx"
    for path in (rec_path, idx_path):
        check_new(path)
    places = _Places()
    with Output(prefix, fsync=options.fsync, keep=True) as output:
        untouched = Untouched([rec])
        copy = output.path("salvaged.rec")
        with writing(rec_path), open(copy, "wb") as stream:
            file, copied = _copy_records(rec, stream.write, places, progress)
        if not file.offsets:
            raise InputError(rec, "there is no whole record in it", "name a .rec file")
        rows = _Rows([file], options.keys)
        files = {os.path.basename(rec_path): copy}
        lines = rows.keys_of(0, alone=True), np.asarray(copied)
        files[os.path.basename(idx_path)] = _write(output, "0", idx_path, [lines])
        untouched.check()
        changed = output.publish(files, keep=True, new=True)
    return _report(rec, output, files, changed, rows, (), places)


def _report(
    name: str,
    output: Output,
    files: dict[str, str],
    changed: list[str],
    rows: _Rows,
    contradicted: Sequence[str],
    places: _Places | None = None,
) -> IndexReport:
    places = places or _Places()
    return IndexReport(
        name,
        tuple(os.path.join(output.folder, each) for each in files),
        tuple(os.path.join(output.folder, each) for each in changed),
        sum(len(file.offsets) for file in rows.files),
        rows.kind,
        rows.no_ids,
        tuple(file.path for file in rows.files if not file.offsets),
        tuple(contradicted),
        tuple(places.first),
        places.count,
        places.bytes,
    )


# --- before anything is read --------------------------------------------------------------------


def _check_there(records: RecordSet) -> None:
    if records.missing:
        hint = "put it back, or name the files that are there, each with its .rec"
        raise InputError(records.missing[0], "this shard of the set is not there", hint)


def _index_names(records: RecordSet, path: str | None) -> tuple[list[str], str | None]:
    """The names of the indexes to write: one for each .rec, and the joint one or None."""
    if path is not None:
        if len(records.recs) > 1:
            found = f"{path}: one index cannot be that of {len(records.recs)} files, each by itself"
            raise OptionError(printable(found))
        return [path], None
    names = [f"{rec.removesuffix('.rec')}.idx" for rec in records.recs]
    if records.recs in ((f"{records.prefix}.rec",), (records.prefix,)):
        return names, None
    joint = f"{records.prefix}.idx"
    if joint in names:  # by a manifest that pack did not write
        raise InputError(joint, "would be the index of one file, and of all together")
    return names, joint


def _check_owner(path: str, recs: Sequence[str]) -> None:
    """Raises OutputError where the name is that of the index of other record files than these, or
    of some of them alone: a reader of those would take it for theirs."""
    try:
        owner = find_set(path.removesuffix(".idx"))
    except InputError:
        return
    is_named_so = all(rec.endswith(".rec") for rec in owner.recs)
    is_theirs = len(owner.recs) == len(recs) and all(map(_is_same_file, owner.recs, recs))
    if is_named_so and not is_theirs:
        found = f"this is the name of the index of {printable(owner.name)}"
        raise OutputError(path, found, "choose another name with --output")


def _check_replaced(names: Sequence[str], recs: Sequence[str]) -> None:
    """Raises OutputError where an index would take the place of what is none."""
    for name in names:
        if not os.path.lexists(name):
            continue
        if any(_is_same_file(name, rec) for rec in recs):
            raise OutputError(name, "this is the record file", "choose another name for the index")
        if not os.path.isfile(name):
            if os.path.isdir(name) or os.path.exists(name):
                kind = "a folder" if os.path.isdir(name) else "something else than a file"
                raise OutputError(name, f"there is {kind} of this name", "move it away")
            continue  # a link to nothing
        if not name.endswith(".idx"):
            found = "there is a file of this name, which does not end in .idx"
            raise OutputError(name, found, "move it away, or choose another name with --output")
        if not _is_index(name):
            found = "what is there is no index of numbers"
            raise OutputError(name, found, "move it away, or choose another name with --output")


def _is_same_file(path: str, other: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(path, other)
    return False


def _is_index(path: str) -> bool:
    """Whether a file is an index, however damaged, or has nothing in it: most of its first lines
    are such lines, with offsets at which a record can begin, and one of them the first record's; or
    it is all zeros, as a file can be after a crash."""
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOK)
            while head and not head.strip(b"\0"):
                head = file.read(_LOOK)
    except OSError as error:
        raise OutputError(path, f"what is there cannot be read: {error.strerror}") from error
    if not head:
        return True
    if len(head) == _LOOK:
        head = head[: head.rfind(b"\n") + 1]
    elif not head.endswith(b"\n"):
        head += b"\n"  # a line that was cut is one of an index all the same
    entries, faults = parse_index(head, path)
    sound = [entry.offset for entry in entries if entry.offset % ALIGNMENT == 0]
    return 0 in sound and 2 * len(sound) >= len(entries) + len(faults)


# --- reading ------------------------------------------------------------------------------------


@dataclass
class _File:
    """A .rec as read: where each record begins, and its id; without_id: the offset of the first
    record that has none."""

    path: str
    size: int = 0
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    without_id: int | None = None

    def add(self, found: Run | Record) -> None:
        """Takes a record, or many."""
        self.size = found.end
        if isinstance(found, Run):
            self._add_run(found)
            return
        try:
            _, _, record_id, _ = decode_header(found.payload)
        except PayloadError:
            self._has_none(found.offset)
            record_id = 0
        self.offsets.append(found.offset)
        self.ids.append(record_id)

    def _add_run(self, run: Run) -> None:
        headers = decode_headers(run.words, run.starts, run.lengths)
        if not headers.whole.all():
            self._has_none(int(run.offsets[headers.whole.argmin()]))
        self.offsets.frombytes(run.offsets.tobytes())
        self.ids.frombytes(headers.ids.tobytes())

    def _has_none(self, offset: int) -> None:
        if self.without_id is None:
            self.without_id = offset


@dataclass
class _Places:
    """The skipped places of a file; those that touch are one."""

    first: list[Skipped] = field(default_factory=list)
    count: int = 0
    bytes: int = 0
    _end: int = -1  # of the last one

    def add(self, place: Skipped) -> None:
        self.bytes += place.length
        touches = place.offset == self._end
        self._end = place.offset + place.length
        if not touches:
            self.count += 1
            if self.count <= MAX_LISTED:
                self.first.append(place)
        elif self.count <= MAX_LISTED:
            last = self.first[-1]
            self.first[-1] = Skipped(last.offset, last.length + place.length, last.found)


def _read_files(recs: Sequence[str], progress: Progress | None) -> list[_File]:
    """Reads files, none of which may be damaged."""
    total = sum(os.path.getsize(rec) for rec in recs if os.path.isfile(rec))
    files: list[_File] = []
    before = 0
    for rec in recs:
        file = _File(rec)
        for found in _records(rec, _refuse(rec)):
            file.add(found)
            if progress:
                progress(before + found.end, total)
        before += file.size
        files.append(file)
    return files


def _copy_records(
    rec: str,
    write: Callable[[bytes | memoryview], object],
    places: _Places,
    progress: Progress | None,
) -> tuple[_File, array[int]]:
    """Copies the whole records of a file; the file with no others, and the offsets of those in the
    copy."""
    import numpy as np

    file = _File(rec)
    copied: array[int] = array("Q")
    end = 0  # of the copy
    total = os.path.getsize(rec) if os.path.isfile(rec) else 0
    for found in _records(rec, places.add):
        file.add(found)
        if isinstance(found, Run):
            copied.frombytes((found.offsets - found.offsets[0] + np.uint64(end)).tobytes())
            pieces: Sequence[bytes | memoryview] = [found.framed()]
        else:  # the very bytes that were read: it is cut right, and its padding is zeros
            copied.append(end)
            pieces = frame_pieces(b"", found.payload)
        for piece in pieces:
            write(piece)
            end += len(piece)
        if progress:
            progress(found.end, total)
    return file, copied


def _refuse(rec: str) -> Callable[[Skipped], None]:
    def refuse(place: Skipped) -> None:
        hint = f"`im2rec index --salvage NEW.rec {rec}` copies the records that are whole"
        if place.offset == 0 and place.length == os.path.getsize(rec):
            hint = "name a .rec file"
        raise InputError(rec, f"byte {place.offset}: {place.found}", hint)

    return refuse


def _records(rec: str, skip: Callable[[Skipped], None]) -> Iterator[Run | Record]:
    """The sound records of a file in order. skip: called with each place where there is none."""

    def tell(damage: Damage) -> None:
        skip(Skipped(damage.offset, damage.end - damage.offset, damage.found))

    try:
        check_record_file(rec)
        yield from walk(rec, tell)
    except OSError as error:
        raise InputError(rec, f"cannot be read: {error.strerror}") from error


# --- keys and lines -----------------------------------------------------------------------------


class _Rows:
    """The lines of the indexes of some files, and of their joint one, which have one kind of keys.

    wanted: as IndexOptions.keys. kind: "id" or "position"; no_ids: why there are none, in "auto".
    """

    def __init__(self, files: list[_File], wanted: str) -> None:
        self.files = files
        self.no_ids = ""
        if wanted != "position":
            fault = _without_id(files) or _doubled_id(files)
            if fault and wanted == "id":
                raise InputError(*fault, "--keys position numbers the records from 0 instead")
            self.no_ids = ": ".join(fault) if fault else ""
        self.kind = "position" if wanted == "position" or self.no_ids else "id"
        self._before = [0]  # records before each file
        for file in files:
            self._before.append(self._before[-1] + len(file.offsets))

    def keys_of(self, number: int, *, alone: bool) -> npt.NDArray[np.uint64]:
        """The keys of one file's records. alone: positions are those in the file itself."""
        import numpy as np

        file = self.files[number]
        if self.kind == "id":
            return np.asarray(file.ids)
        first = 0 if alone else self._before[number]
        return np.arange(first, first + len(file.offsets), dtype=np.uint64)

    def joined(self) -> Iterator[_Columns]:
        """For each file the keys, and the offsets, which run on."""
        import numpy as np

        start = 0
        for number, file in enumerate(self.files):
            yield self.keys_of(number, alone=False), start + np.asarray(file.offsets)
            start += file.size


def _without_id(files: list[_File]) -> tuple[str, str] | None:
    """The first record that is no image record: its file, and a sentence."""
    for file in files:
        if file.without_id is not None:
            return file.path, f"byte {file.without_id}: no image record, so it has no id"
    return None


def _doubled_id(files: list[_File]) -> tuple[str, str] | None:
    """The first record whose id one before it has: its file, and a sentence."""
    import numpy as np

    ids = np.concatenate([np.asarray(file.ids) for file in files])
    ordered = np.sort(ids)  # far faster than to sort with places, which are seldom needed
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(ids, kind="stable")
    again = order[1:][ids[order[1:]] == ids[order[:-1]]].min()
    path, offset = _place(files, int(again))
    first = _place(files, int(np.flatnonzero(ids == ids[again])[0]))
    beside = "" if first[0] == path else f" of {first[0]}"
    return path, f"byte {offset}: id {ids[again]} is that of the record at byte {first[1]}{beside}"


def _place(files: list[_File], number: int) -> tuple[str, int]:
    """The file and the offset of a record, counted over all files."""
    for file in files:
        if number < len(file.offsets):
            return file.path, file.offsets[number]
        number -= len(file.offsets)
    raise IndexError(number)


def _write(output: Output, name: str, final: str, parts: Iterable[_Columns]) -> str:
    """Writes an index; where it lies until it is published."""
    path = output.path(f"index.{name}")
    with writing(final), open(path, "wb") as stream:
        for keys, offsets in parts:
            for first in range(0, len(keys), _LINES):
                some = slice(first, first + _LINES)
                stream.write(format_columns(keys[some], offsets[some]))
    return path


def _contradicted(records: RecordSet, files: list[_File]) -> list[str]:
    """What the set's manifest has otherwise; whether that is right, verify finds out."""
    if records.manifest is None:
        return []
    try:
        shards = read_manifest(records.manifest)["shards"]
    except InputError as error:
        return [str(error)]
    stated = {shard["rec"]: (shard.get("records"), shard.get("bytes")) for shard in shards}
    told = []
    for file in files:
        there = len(file.offsets), file.size
        expected = stated.get(os.path.basename(file.path), there)
        if expected != there:
            counts = "{} records, {} bytes"
            sentence = f"{counts.format(*there)}, expected {counts.format(*expected)}"
            told.append(f"{file.path}: {sentence} ({records.manifest})")
    return told
