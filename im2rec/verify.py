"""The verb verify: every fault in a packed set, each with a code, a place and a sentence."""

from __future__ import annotations

import hashlib
import math
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from im2rec import image_ops, pool
from im2rec.errors import ImageError, InputError, PayloadError, RecordError
from im2rec.framing import (
    ALIGNMENT,
    MAGIC_BYTES,
    MAX_PAYLOAD,
    Record,
    RecordReader,
    Run,
    RunScanner,
    framed_size,
)
from im2rec.image_file import identify
from im2rec.image_record import Headers, ImageRecord, decode, decode_headers, encode_header
from im2rec.index import IndexEntry, largest_index, parse_columns, parse_index
from im2rec.lst import MAX_ID, ImageList, as_float32, format_float32, read_list
from im2rec.output import COPY_SIZE
from im2rec.record_set import (
    MANIFEST_FORMAT,
    MANIFEST_VERSION,
    NOT_REGULAR,
    RecordSet,
    file_sha256,
    find_classes,
    manifest_fault,
    other_format,
    read_classes,
    read_manifest,
    shard_stem,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RECORDS_PER_TASK = 64  # records that a worker decodes at a time
MAX_LISTED = 100_000  # problems of one code; of more, which take memory, it says how many
MOST_AGAIN = 64  # times a file's size that is read again where records lie inside each other
Progress = Callable[[int, int], None]  # bytes read, bytes in all

# Every code a problem can have, with what it means.
CODES = {
    "unreadable": "a record file cannot be read",
    "other-format": "the file is of another kind",
    "magic": "no record begins where one should",
    "cflag": "the parts of a cut record are out of order",
    "truncated": "the file ends inside a record",
    "padding": "the bytes that fill a record up are not zero",
    "cut": "a record is not cut where the format cuts it: its length is wrong",
    "empty": "the file is empty",
    "header": "a payload is shorter than its header says, or the header is none that pack writes",
    "label": "a label is not a finite number",
    "image": "an image does not decode whole (--decode)",
    "no-image": "a record has no image, nor is it one of InsightFace's identities (--decode)",
    "index-unreadable": "an index cannot be read",
    "index-line": "a line of an index is not key TAB offset",
    "index-duplicate": "a key stands twice in an index",
    "index-offset": "an index points where no record begins",
    "index-repeat": "an index names a record twice",
    "index-order": "the lines of an index are not in file order",
    "index-missing": "an index leaves a record out",
    "index-key": "a key is neither its record's id nor its position",
    "manifest": "the manifest cannot be read, or contradicts itself or the set",
    "file-missing": "a file that the manifest names is not there",
    "file-unknown": "a record file is there that the manifest does not name",
    "bytes": "a file's size is not what the manifest says",
    "records": "the number of records is not what the manifest says",
    "sha256": "a file's bytes are not those that were packed",
    "list-other": "the list is not the one that was packed, and the records are not as it has them",
    "list-missing": "a row of the list has no record",
    "list-extra": "a record is not in the list, or a second time in the set",
    "list-order": "a record is not where the list has it",
    "list-label": "a record's labels are not the list's",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. code: of CODES; file: where it is; offset: bytes from the file's start, or None;
    id: of the record, or None; sentence: found and expected."""

    code: str
    file: str
    offset: int | None
    id: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """list_path: a `.lst` that the records must be as; decode: decode every image; workers,
    start_method: of the processes that decode; image_timeout: seconds that one image may take, 0 =
    any."""

    list_path: str | None = None
    decode: bool = False
    workers: int | None = None
    start_method: str | None = None
    image_timeout: float = image_ops.IMAGE_TIMEOUT


@dataclass
class VerifyReport:
    """What was looked at, and every fault found. manifest: the one it was compared with. remarks:
    what a codec said of whole images."""

    name: str
    records: int = 0
    bytes: int = 0
    manifest: str | None = None
    problems: list[Problem] = field(default_factory=list)
    unindexed: list[str] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)


def verify_set(
    records: RecordSet, options: VerifyOptions, *, progress: Progress | None = None
) -> VerifyReport:
    """Checks a set: framing, headers, indexes, manifest, and what the options ask for.

    progress: called with bytes read (or, later, decoded) and bytes in all. Raises InputError and
    ListError where the list itself cannot be read, WorkerError where decoding ends in a dead
    process.
    """
    return _Verification(records, options, progress).run()


class _Verification:
    def __init__(
        self, records: RecordSet, options: VerifyOptions, progress: Progress | None
    ) -> None:
        self._set = records
        self._options = options
        self._progress = progress
        self._total = sum(os.path.getsize(path) for path in records.recs)
        # of a shard alone, its set's: what is said there of the other shards is not looked at
        self._manifest_path = records.manifest or records.set_manifest
        self._report = VerifyReport(records.name, manifest=self._manifest_path)
        self._files: list[_File] = []
        self._manifest, self._fault = _read(self._manifest_path)
        self._packed = None if self._fault else self._manifest  # what pack has said of the set
        self._width = _packed_width(self._packed)
        self._again = 0  # bytes that were read a second time, in search of swallowed records
        self._counts: Counter[str] = Counter()  # of problems, by their codes
        self._all_labels = True  # False for a set that was packed with --no-pack-label
        self._identities = range(0)  # ids of InsightFace's records without an image

    def run(self) -> VerifyReport:
        records, list_path = self._set, self._options.list_path
        images = read_list(list_path) if list_path else None  # the quickest to fail comes first
        for path in records.missing:
            self._found("file-missing", path, None, None, "a shard of the set is not there")
        if len(records.recs) > 1 and records.joint is None:
            self._report.unindexed.append(records.prefix)
        for path, idx in zip(records.recs, records.idxs, strict=True):
            file = self._read_file(path)
            file.packed_size = _packed_size(self._packed, path)
            self._files.append(file)
            if file.is_records and idx is None:
                self._report.unindexed.append(path)
            elif file.is_records and idx:
                self._check_index(idx, [file])
        # without a shard, every offset behind it would look wrong, and what is missing is told
        if records.joint and not records.missing and all(file.is_records for file in self._files):
            self._check_index(records.joint, self._files)
        if records.manifest:
            self._check_manifest(records.manifest)
        elif records.set_manifest:
            self._check_entry(records.set_manifest)
        if images is not None:
            self._check_list(images)
        if self._options.decode:
            self._decode_all()
        self._count_rest()
        return self._report

    def _found(
        self, code: str, file: str, offset: int | None, record_id: int | None, sentence: str
    ) -> None:
        self._add(Problem(code, file, offset, record_id, sentence))

    def _add(self, problem: Problem) -> None:
        self._counts[problem.code] += 1
        if self._counts[problem.code] <= MAX_LISTED:
            self._report.problems.append(problem)

    def _count_rest(self) -> None:
        """Says how many problems were not listed."""
        for code, count in self._counts.items():
            if count > MAX_LISTED:
                sentence = f"{count - MAX_LISTED} more problems of this kind, too many to list"
                self._report.problems.append(Problem(code, self._set.name, None, None, sentence))

    # --- framing and headers ------------------------------------------------------------------

    def _read_file(self, path: str) -> _File:
        """Reads a .rec to its end, over any damage, and judges framing and headers."""
        if not os.path.isfile(path):
            self._found("unreadable", path, None, None, NOT_REGULAR)
            return _File(path, is_unreadable=True)
        file = _File(path)
        try:
            file.size = os.path.getsize(path)
            if kind := other_format(path):
                self._found("other-format", path, 0, None, f"this is {kind}")
                return file
            if not file.size:
                self._found("empty", path, 0, None, "the file is empty")
            with open(path, "rb", buffering=COPY_SIZE) as stream:
                self._check_runs(file, RecordReader(stream, path))
            file.is_records = True
        except OSError as error:
            self._found("unreadable", path, None, None, f"cannot be read: {error.strerror}")
            return _File(path, is_unreadable=True)
        self._report.bytes += file.size
        self._report.records += len(file.offsets)
        return file

    def _check_runs(self, file: _File, reader: RecordReader) -> None:
        """Judges a file's records, those that are sound many at a time."""
        if self._manifest_path is None:
            with open(file.path, "rb", buffering=0) as source:
                self._check_records(file, reader, RunScanner(source, reader.size))
        else:
            with _HashedFile(file.path) as hashed:
                self._check_records(file, reader, RunScanner(hashed, reader.size))
                file.sha256 = hashed.hexdigest()

    def _check_records(self, file: _File, reader: RecordReader, scanner: RunScanner) -> None:
        for found in self._records(file, reader, scanner):
            if isinstance(found, Run):
                self._check_run(file, found)
            else:
                self._check_record(file, found)
            if self._progress:
                self._progress(self._report.bytes + found.end, self._total)

    def _records(
        self, file: _File, reader: RecordReader, scanner: RunScanner
    ) -> Iterator[Record | Run]:
        """The records of a file; after damage, those from the next head on."""

        def lost(error: RecordError, head: int | None) -> None:
            until = reader.size if head is None else head
            sentence = (
                f"{error.found}; {until - reader.offset} bytes from {reader.offset} on are lost, "
                + ("to the end of the file" if head is None else f"next record at {head}")
            )
            self._found(error.code, reader.path, error.offset, None, sentence)
            _append_range(file.lost, reader.offset, until)

        for found in reader.salvage(lost, scanner):
            yield found
            if isinstance(found, Record) and not _is_cut_right(found):
                self._go_on_inside(reader, found)

    def _go_on_inside(self, reader: RecordReader, record: Record) -> None:
        """Judges a record that no writer has cut so, and stands the reader on the record that it
        has most likely swallowed."""
        head = reader.next_head(record.offset + ALIGNMENT)
        found = f"{record.end - record.offset} bytes in {record.parts} parts, not cut at each magic"
        if head is not None and head < record.end and self._again < MOST_AGAIN * reader.size:
            self._again += record.end - head
            found = f"the record's bytes hold the head of another at {head}: its length is wrong"
            reader.seek(head)
        self._found("cut", reader.path, record.offset, None, found)

    def _check_run(self, file: _File, run: Run) -> None:
        """Judges many records: one by one only those that are not sound, or may hold InsightFace's
        identities."""
        headers = decode_headers(run.words, run.starts, run.lengths)
        file.add_run(run, headers, with_labels=self._options.list_path is not None)
        sound = headers.whole & headers.finite() & (headers.ids != 0)
        if self._packed is not None:
            sound &= headers.as_encoded()
            if self._width is not None:
                sound &= headers.widths == self._width
        for number in (~sound).nonzero()[0].tolist():
            self._judge(file.path, run.record(number))

    def _check_record(self, file: _File, record: Record) -> None:
        content = self._judge(file.path, record)
        file.add(record.offset, content, with_labels=self._options.list_path is not None)

    def _judge(self, path: str, record: Record) -> ImageRecord | None:
        """Judges a record's header and labels; what it holds, None where that cannot be read."""
        try:
            content = decode(record.payload)
        except PayloadError as error:
            self._found("header", path, record.offset, None, str(error))
            return None
        labels = content.labels
        if not all(map(math.isfinite, labels)):
            self._found("label", path, record.offset, content.id, f"labels {_few(labels)}")
        elif not math.isfinite(content.header_label):
            sentence = f"label {content.header_label} in the header, beside an array of labels"
            self._found("label", path, record.offset, content.id, sentence)
        elif self._packed is not None and (sentence := self._odd_header(record, content)):
            self._found("header", path, record.offset, content.id, sentence)
        if content.id == 0 and not content.image and len(labels) == 2:
            self._identities = range(*map(_whole, labels))
        return content

    def _odd_header(self, record: Record, content: ImageRecord) -> str:
        """A sentence on what pack would not have written, "" for nothing."""
        count = len(content.labels)
        if self._width not in (None, count):
            return f"{_labels(count)}, expected {self._width} ({self._manifest_path})"
        if record.payload.startswith(encode_header(content.id, content.labels)):
            return ""
        found = f"flag {content.flag}, label {format_float32(content.header_label)}"
        expected = "flag 0" if count == 1 else f"flag {count}, label 0"
        return f"{found}, id2 {content.id2}, expected {expected}, id2 0 for {_labels(count)}"

    # --- index --------------------------------------------------------------------------------

    def _check_index(self, path: str, files: list[_File]) -> None:
        """Judges the index of one file, or the joint index of several."""
        if not os.path.isfile(path):
            self._found("index-unreadable", path, None, None, NOT_REGULAR)
            return
        try:
            with open(path, "rb") as stream:
                size, records = os.path.getsize(path), sum(len(file.offsets) for file in files)
                if size > largest_index(records):
                    sentence = f"{size} bytes are no index of {records} records; it was not read"
                    self._found("index-unreadable", path, None, None, sentence)
                    return
                data = stream.read()
        except OSError as error:
            sentence = f"cannot be read: {error.strerror}"
            self._found("index-unreadable", path, None, None, sentence)
            return
        if _is_sound_index(data, files, is_packed=self._packed is not None):
            return
        entries, faults = parse_index(data, path)
        for fault in faults:
            self._found("index-line", path, None, None, f"line {fault.line}: {fault.found}")
        offsets = array("Q")
        ids: list[int] = []
        lost: list[tuple[int, int]] = []
        base = 0
        for file in files:
            # one shard that was cut or grew must not make all that is said of the next ones wrong
            size = file.size if file.packed_size is None else file.packed_size
            count = bisect_left(file.offsets, size) if len(files) > 1 else len(file.offsets)
            offsets.extend([base + offset for offset in file.offsets[:count]])
            ids += file.known_ids()[:count]
            for start, end in file.lost:
                _append_range(lost, base + start, base + end)
            _append_range(lost, base + file.size, base + size)
            base += size
        _append_range(lost, base, _NO_END)
        no_entries = {fault.line for fault in faults}
        rows = self._check_lines(path, entries, no_entries, offsets, lost)
        if self._packed is not None:
            self._check_spelling(path, data, entries, no_entries)
        named = bytearray(len(offsets))
        for at in rows:
            if at != _NO_RECORD:
                named[at] = 1
        for at, there in enumerate(named):
            if not there:
                sentence = f"no line for the record at offset {offsets[at]}"
                self._found("index-missing", path, None, _known(ids[at]), sentence)
        self._check_keys(path, entries, rows, ids)

    def _check_lines(
        self,
        path: str,
        entries: list[IndexEntry],
        no_entries: set[int],
        offsets: array[int],
        lost: list[tuple[int, int]],
    ) -> array[int]:
        """Judges each line by itself and those before it; the position of the record that each
        entry names. no_entries: the lines that the entries were not read from; lost: from where to
        where bytes are damaged or not there, in order."""
        rows = array("q")
        into_lost: dict[tuple[int, int], list[tuple[int, IndexEntry]]] = {}
        keys: set[int] = set()
        named = bytearray(len(offsets))
        last, line = -1, 0
        for key, offset in entries:
            line += 1
            while line in no_entries:
                line += 1
            code = found = ""
            at = bisect_left(offsets, offset)
            if at == len(offsets) or offsets[at] != offset:
                at = _NO_RECORD
                number = bisect_right(lost, (offset, _NO_END)) - 1
                if number >= 0 and offset < lost[number][1]:
                    into_lost.setdefault(lost[number], []).append((line, IndexEntry(key, offset)))
                else:
                    code, found = "index-offset", _NO_RECORD_THERE
            else:
                if named[at]:
                    code, found = "index-repeat", "the record is named twice"
                elif at < last:
                    code, found = "index-order", "after a later record"
                named[at] = 1
                last = max(last, at)
            rows.append(at)
            where = f"line {line}: key {key}, offset {offset}"
            if code:
                self._found(code, path, None, key, f"{where}: {found}")
            if key in keys:
                self._found("index-duplicate", path, None, key, f"{where}: the key stands twice")
            keys.add(key)
        for (start, _), lines in into_lost.items():
            self._tell_lines(path, lines, start)
        return rows

    def _check_spelling(
        self, path: str, data: bytes, entries: list[IndexEntry], no_entries: set[int]
    ) -> None:
        """Judges how the numbers are written beside a manifest: pack writes no zero before a number
        and no CR. To readers these say the same; but the file is not as it was."""
        lines = enumerate(data.split(b"\n"), 1)
        sound = ((number, line) for number, line in lines if number not in no_entries)
        for (number, line), entry in zip(sound, entries, strict=False):
            plain = b"%d\t%d" % entry
            if line != plain:
                found = (
                    f"line {number}: found {line.decode('ascii')!r}, expected {plain.decode()!r}"
                )
                self._found("index-line", path, None, entry.key, found)

    def _tell_lines(self, path: str, lines: list[tuple[int, IndexEntry]], start: int) -> None:
        """Tells of the lines that point to bytes that are damaged or not there: one sentence, as
        they have one cause."""
        line, (key, offset) = lines[0]
        if len(lines) == 1:
            sentence = f"line {line}: key {key}, offset {offset}: {_NO_RECORD_THERE}"
            self._found("index-offset", path, None, key, sentence)
            return
        lost = f"where bytes are damaged or not there, from {start} on"
        sentence = f"{len(lines)} lines, {line} to {lines[-1][0]}, point to {lost}"
        self._found("index-offset", path, None, None, sentence)

    def _check_keys(
        self, path: str, entries: list[IndexEntry], rows: array[int], ids: list[int]
    ) -> None:
        """Names the keys that do not follow the rule that most of them follow. rows: the position
        of the record that each entry names."""
        wrong_ids, wrong_positions = [], []
        by_id_keys = 0
        for (key, _), at in zip(entries, rows, strict=True):
            if at != _NO_RECORD and ids[at] not in (key, _NO_ID):
                wrong_ids.append((key, at))
            elif at != _NO_RECORD:
                by_id_keys += 1
            if at not in (_NO_RECORD, key):
                wrong_positions.append((key, at))
        by_id = len(wrong_ids) <= len(wrong_positions)
        if self._packed is not None and _must_be_ids(by_id_keys, len(rows)):
            by_id = True
        for key, at in wrong_ids if by_id else wrong_positions:
            expected = f"id {ids[at]}" if by_id else f"position {at}"
            sentence = f"key {key} for record {at} of the file, expected its {expected}"
            self._found("index-key", path, None, _known(ids[at]), sentence)

    # --- manifest -----------------------------------------------------------------------------

    def _check_manifest(self, path: str) -> None:
        if self._fault:  # the cause of whatever contradicts it below
            self._found("manifest", path, None, None, self._fault)
        manifest = self._manifest
        if manifest is None:
            return
        wrong = [
            name for name, sound in _MANIFEST.items() if not sound(manifest.get(name, _ABSENT))
        ]
        for name in wrong:
            sentence = f"{name!r} is not there, or not what it should be"
            self._found("manifest", path, None, None, sentence)
        self._all_labels = _all_labels(manifest)
        self._check_files(path, manifest)
        if not wrong:
            self._check_counts(path, manifest)
            self._check_classes(path, manifest["classes"])

    def _check_entry(self, path: str) -> None:
        """Compares a shard that was named by itself with what its set's manifest says of it."""
        if self._fault:
            self._found("manifest", path, None, None, self._fault)
        manifest = self._manifest
        if manifest is None:
            return
        self._all_labels = _all_labels(manifest)
        (file,) = self._files
        for shard in manifest["shards"]:
            if shard["rec"] == os.path.basename(file.path):
                self._check_shard(path, file, shard)

    def _check_files(self, path: str, manifest: dict[str, Any]) -> None:
        """Compares the files that the manifest names with those that are there, all in one
        folder."""
        shards, stem = manifest["shards"], os.path.basename(self._set.prefix)
        folder = os.path.dirname(path)
        many = len(shards) > 1
        stems = [shard_stem(stem, number) for number in range(len(shards))] if many else [stem]
        named = {shard["rec"]: shard for shard in shards}
        if [(shard["rec"], shard["idx"]) for shard in shards] != [
            (f"{each}.rec", f"{each}.idx") for each in stems
        ]:
            sentence = f"its shards are not {stems[0]}.rec to {stems[-1]}.rec with their indexes"
            self._found("manifest", path, None, None, sentence)
        if manifest.get("joint_index") != (f"{stem}.idx" if many else None):
            sentence = f"its joint index is not {f'{stem}.idx' if many else 'null'}"
            self._found("manifest", path, None, None, sentence)
        told = {os.path.basename(missing) for missing in self._set.missing}
        idxs = [shard["idx"] for shard in shards] + ([f"{stem}.idx"] if many else [])
        for name in dict.fromkeys([*named, *idxs]):
            there = os.path.join(folder, name)
            if name not in told and (not os.path.exists(there) or os.path.isdir(there)):
                self._found("file-missing", there, None, None, f"named in {path}")
        files = {os.path.basename(file.path): file for file in self._files}
        for name, shard in named.items():
            if name in files:
                self._check_shard(path, files[name], shard)
        of_set = re.compile(re.escape(stem) + r"(_[0-9]{3,})?\.rec")
        for name in sorted(filter(of_set.fullmatch, os.listdir(folder or "."))):
            if name not in named:
                there = os.path.join(folder, name)
                self._found("file-unknown", there, None, None, f"not named in {path}")

    def _check_shard(self, manifest: str, file: _File, shard: dict[str, Any]) -> None:
        if file.is_unreadable:
            return
        digest = file.sha256 or file_sha256(file.path)
        size, records = shard.get("bytes"), shard.get("records")
        if _is_count(size) and size != file.size:
            sentence = f"{file.size} bytes, expected {size} ({manifest})"
            self._found("bytes", file.path, file.size, None, sentence)
        if _is_count(records) and records != len(file.offsets):
            sentence = f"{len(file.offsets)} records, expected {records} ({manifest})"
            self._found("records", file.path, None, None, sentence)
        if shard.get("sha256") != digest:
            self._found("sha256", file.path, None, None, f"not the bytes that {manifest} describes")

    def _check_counts(self, path: str, manifest: dict[str, Any]) -> None:
        """Judges the manifest's numbers by each other and, where no record is damaged, by the
        records'."""
        rows, packed, failed = (manifest[name] for name in ("rows", "packed", "failed"))
        in_shards = sum(shard["records"] for shard in manifest["shards"])
        if rows != packed + failed:
            sentence = f"rows {rows}, but packed {packed} + failed {failed}"
            self._found("manifest", path, None, None, sentence)
        if packed != in_shards:
            sentence = f"packed {packed}, but its shards hold {in_shards}"
            self._found("manifest", path, None, None, sentence)
        widths: Counter[int] = Counter()
        for file in self._files:
            widths.update(file.label_widths)
        stated = {str(width): count for width, count in sorted(widths.items())}
        if widths.total() == in_shards and manifest["label_widths"] != stated:
            sentence = f"label_widths {manifest['label_widths']}, but the records have {stated}"
            self._found("manifest", path, None, None, sentence)

    def _check_classes(self, path: str, classes: list[str] | None) -> None:
        """Compares the manifest's classes with the class map, where there are both."""
        try:
            there = find_classes(self._set.prefix)
            if classes is None or there is None:
                return
            named = read_classes(there)
        except InputError as error:
            self._found("manifest", path, None, None, f"cannot compare its classes: {error}")
            return
        if len(named) != len(classes):
            sentence = f"its {len(classes)} classes are not the {len(named)} of {there}"
            self._found("manifest", path, None, None, sentence)
        for number, (name, other) in enumerate(zip(classes, named, strict=False)):
            if name != other:
                sentence = f"class {number} is {name!r}, but {other!r} in {there}"
                self._found("manifest", path, None, None, sentence)
                break  # one line too many moves all behind it

    # --- list ---------------------------------------------------------------------------------

    def _check_list(self, images: ImageList) -> None:
        """Compares ids, labels and order with a list; rows in PREFIX.failures.tsv were left out."""
        path = images.path
        failed = _failed_ids(self._set.prefix + ".failures.tsv")
        told = len(self._report.problems)
        found: dict[int, tuple[int, _File, int]] = {}
        for number, (file, at, record_id) in enumerate(self._positions()):
            if record_id in found:
                sentence = "another record before has the same id"
                self._found("list-extra", file.path, file.offsets[at], record_id, sentence)
            elif record_id != _NO_ID:
                found[record_id] = number, file, at
        last = -1
        for entry in images:
            place = found.pop(entry.id, None)
            if place is None:
                if entry.id not in failed:
                    sentence = f"{entry.path} has no record"
                    self._found("list-missing", path, None, entry.id, sentence)
                continue
            number, file, at = place
            offset = file.offsets[at]
            if number < last:
                sentence = f"{entry.path} stands elsewhere in {path}"
                self._found("list-order", file.path, offset, entry.id, sentence)
            last = max(last, number)
            labels = file.labels[at]
            listed = tuple(map(as_float32, entry.labels))
            if not self._all_labels:
                listed = listed[:1]
            if labels != listed:
                sentence = f"labels {_few(labels)}, expected {_few(listed)} ({entry.path})"
                self._found("list-label", file.path, offset, entry.id, sentence)
        for record_id, (_, file, at) in found.items():
            self._found(
                "list-extra", file.path, file.offsets[at], record_id, f"the id is not in {path}"
            )
        packed: Any = (self._packed or {}).get("list")
        is_other = _is_list(packed) and packed["sha256"] != images.sha256
        if is_other and len(self._report.problems) > told:  # then it is the cause of the others
            sentence = f"not the list that was packed, by the sha256 in {self._manifest_path}"
            cause = Problem("list-other", path, None, None, sentence)
            self._report.problems.insert(told, cause)

    def _positions(self) -> Iterator[tuple[_File, int, int]]:
        for file in self._files:
            for at, record_id in enumerate(file.known_ids()):
                yield file, at, record_id

    # --- images -------------------------------------------------------------------------------

    def _decode_all(self) -> None:
        tasks: list[_DecodeTask] = []
        base = 0
        for file in self._files:
            for first in range(0, len(file.offsets), RECORDS_PER_TASK):
                offsets = tuple(file.offsets[first : first + RECORDS_PER_TASK])
                tasks.append(_DecodeTask(file.path, offsets, base + offsets[0]))
            base += file.size
        if not tasks:
            return
        workers = min(pool.worker_count(self._options.workers), len(tasks))
        with pool.Pool(
            decode_records,
            setup=partial(image_ops.prepare_worker, image_ops.ImageOptions()),
            preload=partial(image_ops.load_codecs, image_ops.ImageOptions()),
            workers=workers,
            start_method=self._options.start_method,
            name=lambda offset: f"the record at {offset}",
            seconds=self._options.image_timeout or None,
        ) as workers_pool:
            for task, (problems, remarks) in workers_pool.results(tasks):
                for problem in filter(self._is_fault, problems):
                    self._add(problem)
                self._report.remarks += remarks
                if self._progress:
                    self._progress(task.start, self._total)

    def _is_fault(self, problem: Problem) -> bool:
        """Whether a problem of decoding is one: InsightFace's header and identities have no image,
        and are none to be decoded."""
        is_identity = problem.id in self._identities or (problem.id == 0 and self._identities)
        return not (problem.code == "no-image" and is_identity)


@dataclass
class _File:
    """A .rec as read: where each whole record begins; its id (0 for those in without_id); its
    labels (kept where a list is to be compared); how many records have how many labels; sha256
    where it was taken while reading; its size when it was packed, where that is known; the ranges
    of bytes that damage has hidden. is_records: False where it is of another kind or
    is_unreadable."""

    path: str
    size: int = 0
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    ids: array[int] = field(default_factory=lambda: array("Q"))
    without_id: list[int] = field(default_factory=list)
    labels: list[tuple[float, ...]] = field(default_factory=list)
    label_widths: Counter[int] = field(default_factory=Counter)
    packed_size: int | None = None
    lost: list[tuple[int, int]] = field(default_factory=list)
    sha256: str | None = None
    is_records: bool = False
    is_unreadable: bool = False
    _once: dict[tuple[float, ...], tuple[float, ...]] = field(default_factory=dict)

    def add(self, offset: int, content: ImageRecord | None, *, with_labels: bool) -> None:
        """Takes a record; content: None where it cannot be read."""
        if content is None:
            self.without_id.append(len(self.ids))
        else:
            self.label_widths[len(content.labels)] += 1
        self.offsets.append(offset)
        self.ids.append(content.id if content else 0)
        if with_labels:
            self._add_labels(content.labels if content else ())

    def add_run(self, run: Run, headers: Headers, *, with_labels: bool) -> None:
        """Takes the records of a run."""
        self.without_id += ((~headers.whole).nonzero()[0] + len(self.ids)).tolist()
        self.label_widths.update(headers.count_widths())
        self.offsets.frombytes(run.offsets.tobytes())
        self.ids.frombytes((headers.ids * headers.whole).tobytes())
        if with_labels:
            for labels in headers.label_tuples():
                self._add_labels(labels)

    def _add_labels(self, labels: tuple[float, ...]) -> None:
        """Like labels are kept once, for most records share them with many others."""
        self.labels.append(self._once.setdefault(labels, labels))

    def known_ids(self) -> list[int]:
        """The ids, _NO_ID where a record has none."""
        ids = self.ids.tolist()
        for at in self.without_id:
            ids[at] = _NO_ID
        return ids


_NO_ID = _NO_RECORD = -1
_MAX_SIZE = 1 << 48  # bytes; a larger shard is no shard
_NO_END = 1 << 64  # where an index has no offsets any more
_NO_RECORD_THERE = "no record begins there"


def _known(record_id: int) -> int | None:
    return None if record_id == _NO_ID else record_id


def _append_range(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    """Appends a range of bytes, if it has any, as one with the last where that ends there."""
    if ranges and ranges[-1][1] == start:
        start = ranges.pop()[0]
    if start < end:
        ranges.append((start, end))


def _read(manifest: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """A manifest's contents, if it is one, and what is wrong with it."""
    if manifest is None:
        return None, None
    try:
        return read_manifest(manifest), manifest_fault(manifest)
    except InputError as error:
        return None, error.found


def _packed_size(manifest: dict[str, Any] | None, rec: str) -> int | None:
    """How many bytes the manifest says that a .rec has; None where it does not."""
    for shard in manifest["shards"] if manifest else ():
        size = shard.get("bytes")
        if shard["rec"] == os.path.basename(rec) and _is_count(size) and size < _MAX_SIZE:
            return int(size)
    return None


def _packed_width(manifest: dict[str, Any] | None) -> int | None:
    """How many labels each record has by the manifest; None where they have not all as many."""
    widths = manifest.get("label_widths") if manifest else None
    if not isinstance(widths, dict) or len(widths) != 1:
        return None
    (width,) = widths
    return int(width) if re.fullmatch("[1-9][0-9]{0,9}", width) else None


def _all_labels(manifest: dict[str, Any]) -> bool:
    """Whether all labels of a row were packed, not its first alone."""
    options = manifest.get("options")
    return not (isinstance(options, dict) and options.get("pack_label") is False)


def _must_be_ids(are_ids: int, count: int) -> bool:
    """Whether all keys of an index beside a manifest must be ids, as pack writes them, seeing how
    many of them are. Positions, as rec2idx.py writes them, are ids only now and then; that the one
    key of one record is its position may be damage."""
    return 2 * are_ids >= count or count == 1


def _digits(ordered: npt.NDArray[np.uint64]) -> int:
    """How many digits the numbers, in order, have in all."""
    import numpy as np

    places = ordered.searchsorted(np.array([10**at for at in range(1, 20)], np.uint64))
    return len(ordered) + int((len(ordered) - places).sum())


def _is_sound_index(data: bytes, files: list[_File], *, is_packed: bool) -> bool:
    """Whether there is nothing to say of an index of these files, looking at all lines at once."""
    import numpy as np

    columns = parse_columns(data)
    if columns is None:
        return False
    keys, places = columns
    offsets: list[npt.NDArray[np.uint64]] = []
    ids: list[npt.NDArray[np.uint64]] = []
    base = 0
    for file in files:
        offsets.append(base + np.asarray(file.offsets))
        ids.append(np.asarray(file.ids))
        base += file.size
    ordered = np.sort(keys)  # far faster than np.unique
    if (ordered[1:] == ordered[:-1]).any() or not np.array_equal(places, np.concatenate(offsets)):
        return False
    are_ids = int((keys == np.concatenate(ids)).sum())
    if is_packed and len(data) != 2 * len(keys) + _digits(ordered) + _digits(places):
        return False  # a zero before a number
    if are_ids == len(keys):
        return True
    if is_packed and _must_be_ids(are_ids, len(keys)):
        return False
    return np.array_equal(keys, np.arange(len(keys)))


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_ID  # JSON's true is no count


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _are(sound: Callable[[Any], bool], values: Any) -> bool:
    """Whether it is a list, or an object, with sound values."""
    if isinstance(values, dict):
        values = list(values.values())
    return isinstance(values, list) and all(map(sound, values))


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, dict) and _is_text(value.get("file")) and _is_sha256(value.get("sha256"))
    )


def _is_shard(value: Any) -> bool:
    """Whether a shard's numbers are there; read_manifest has looked at its names."""
    counts = value.get("records"), value.get("bytes")
    return all(map(_is_count, counts)) and _is_sha256(value.get("sha256"))


_ABSENT = object()
# What each value of a manifest must be, as far as it can be told.
_MANIFEST: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: value == MANIFEST_FORMAT,
    "version": lambda value: _is_count(value) and value == MANIFEST_VERSION,
    "im2rec": _is_text,
    "codecs": lambda value: isinstance(value, dict) and _are(_is_text, value),
    "options": lambda value: isinstance(value, dict),
    "list": _is_list,
    "rows": _is_count,
    "packed": _is_count,
    "failed": _is_count,
    "label_widths": lambda value: isinstance(value, dict) and _are(_is_count, value),
    "classes": lambda value: value is None or (isinstance(value, list) and _are(_is_text, value)),
    "joint_index": lambda value: value is None or _is_text(value),
    "shards": lambda value: _are(_is_shard, value),
}


def _whole(label: float) -> int:
    """The label as a whole number, -1 for what is none."""
    return int(label) if label.is_integer() else -1


def _is_cut_right(record: Record) -> bool:
    """Whether the record is in the parts that a writer would have made of its payload. One whose
    length was damaged can reach over the heads of others, and nothing else would tell."""
    if record.parts == 1 and MAGIC_BYTES not in record.payload:
        return True
    size = len(record.payload)
    return size <= MAX_PAYLOAD and framed_size(record.payload) == record.end - record.offset


def _labels(count: int) -> str:
    return f"{count} label{'s' * (count != 1)}"


def _few(labels: Iterable[float]) -> str:
    shown = [format_float32(label) for label in labels]
    return ", ".join(shown[:8]) + (f"... ({len(shown)})" if len(shown) > 8 else "")


def _failed_ids(path: str) -> set[int]:
    """The ids in a failures.tsv; none where there is no such file."""
    ids = set()
    if os.path.isfile(path):
        with open(path, "rb") as file:
            while line := file.readline(_LINE_READ):
                text = line.split(b"\t", 1)[0]
                if text.isdigit() and len(text) <= len(str(MAX_ID)):
                    ids.add(int(text))
    return ids


_LINE_READ = 1 << 16  # bytes; all of any line that was not made to take memory


class _HashedFile:
    """A file that is read and, on a thread beside, hashed. What was read must stay as it is until
    after the next reading."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._hashing: Future[None] | None = None

    def __enter__(self) -> _HashedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self._file.close()

    def readinto(self, buffer: memoryview) -> int:
        count = self._file.readinto(buffer)
        self._wait()
        try:
            self._hashing = self._thread.submit(self._digest.update, buffer[:count])
        except RuntimeError:  # the system has no more threads to give
            self._digest.update(buffer[:count])
        return count

    def _wait(self) -> None:
        if self._hashing:
            self._hashing.result()

    def hexdigest(self) -> str:
        """The sha256 of the whole file; reads what is left of it."""
        self._wait()
        while chunk := self._file.read(COPY_SIZE):
            self._digest.update(chunk)
        return self._digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _DecodeTask:
    """Records of one file to decode. start: bytes of the set before the first of them."""

    path: str
    offsets: tuple[int, ...]
    start: int


def decode_records(task: _DecodeTask) -> tuple[list[Problem], list[tuple[str, str]]]:
    """Decodes the images of some records; the problems, and remarks as (place, text)."""
    problems: list[Problem] = []
    remarks: list[tuple[str, str]] = []
    with open(task.path, "rb") as stream:
        reader = RecordReader(stream, task.path)
        for offset in task.offsets:
            pool.note(offset)
            reader.seek(offset)
            try:
                content = decode(reader.payload() or b"")
            except PayloadError:
                continue  # told already
            problem = _image_problem(content)
            if isinstance(problem, tuple):
                remarks += [(f"{task.path}: byte {offset}", text) for text in problem]
            else:
                code = "image" if content.image else "no-image"
                problems.append(Problem(code, task.path, offset, content.id, problem))
    pool.note(None)
    return problems, remarks


def _image_problem(content: ImageRecord) -> str | tuple[str, ...]:
    """A sentence on what is wrong with a record's image, or the codec's remarks on a good one."""
    if not content.image:
        return "the record has no image"
    try:
        facts = identify(content.image)
        _, remarks = image_ops.decode(content.image, facts, -1)
    except ImageError as error:
        return str(error)
    return remarks
