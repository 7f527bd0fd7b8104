"""The verb verify: every fault in a packed set, each with a code, a place and a sentence."""

from __future__ import annotations

import hashlib
import math
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from im2rec import image_ops, pool
from im2rec.errors import ImageError, InputError, PayloadError, RecordError
from im2rec.framing import Record, RecordReader
from im2rec.image_file import identify
from im2rec.image_record import ImageRecord, decode
from im2rec.index import IndexEntry, parse_index
from im2rec.lst import as_float32, read_list
from im2rec.shards import COPY_SIZE, RecordSet, other_format, read_manifest

RECORDS_PER_TASK = 64  # records that a worker decodes at a time
Progress = Callable[[int, int], None]  # bytes read, bytes in all

# Every code a problem can have, with what it means.
CODES = {
    "other-format": "the file is of another kind",
    "magic": "no record begins where one should",
    "cflag": "the parts of a cut record are out of order",
    "truncated": "the file ends inside a record",
    "padding": "the bytes that fill a record up are not zero",
    "size": "the file's size is not a multiple of 4",
    "empty": "the file has no record",
    "header": "a payload is shorter than its image record header says",
    "label": "a label is not a finite number",
    "image": "an image does not decode whole (--decode)",
    "no-image": "a record has labels but no image (--decode)",
    "index-unreadable": "an index cannot be read",
    "index-line": "a line of an index is not key TAB offset",
    "index-duplicate": "a key stands twice in an index",
    "index-offset": "an index points where no record begins",
    "index-repeat": "an index names a record twice",
    "index-order": "the lines of an index are not in file order",
    "index-missing": "an index leaves a record out",
    "index-key": "a key is neither its record's id nor its position",
    "manifest": "the manifest cannot be read or contradicts itself",
    "file-missing": "a file that the manifest names is not there",
    "file-unknown": "a shard is there that the manifest does not name",
    "bytes": "a file's size is not what the manifest says",
    "records": "the number of records is not what the manifest says",
    "sha256": "a file's bytes are not those that were packed",
    "list-missing": "a row of the list has no record",
    "list-extra": "a record is not in the list",
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
    start_method: of the processes that decode."""

    list_path: str | None = None
    decode: bool = False
    workers: int | None = None
    start_method: str | None = None


@dataclass
class VerifyReport:
    """What was looked at, and every fault found. remarks: what a codec said of whole images."""

    name: str
    records: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unindexed: list[str] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)


def verify_set(
    records: RecordSet, options: VerifyOptions, *, progress: Progress | None = None
) -> VerifyReport:
    """Checks a set: framing, headers, indexes, manifest, and what the options ask for.

    Raises InputError and ListError where the list itself cannot be read, OSError where a record
    file cannot be, WorkerError where decoding ends in a dead process.
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
        self._report = VerifyReport(records.name)
        self._files: list[_File] = []

    def run(self) -> VerifyReport:
        for path in self._set.missing:
            self._found("file-missing", path, None, None, "a shard of the set is not there")
        for path, idx in zip(self._set.recs, self._set.idxs, strict=True):
            file = self._read_file(path)
            self._files.append(file)
            if idx is None:
                self._report.unindexed.append(path)
            elif file.is_records:
                self._check_index(idx, [file])
        if self._set.joint and all(file.is_records for file in self._files):
            self._check_index(self._set.joint, self._files)
        if self._set.manifest:
            self._check_manifest(self._set.manifest)
        if self._options.list_path:
            self._check_list(self._options.list_path)
        if self._options.decode:
            self._decode_all()
        return self._report

    def _found(
        self, code: str, file: str, offset: int | None, record_id: int | None, sentence: str
    ) -> None:
        self._report.problems.append(Problem(code, file, offset, record_id, sentence))

    # --- framing and headers ------------------------------------------------------------------

    def _read_file(self, path: str) -> _File:
        """Reads a .rec to its end, over any damage, and judges framing and headers."""
        file = _File(path, os.path.getsize(path))
        found = len(self._report.problems)
        kind = other_format(path)
        if kind:
            file.is_records = False
            self._found("other-format", path, 0, None, f"this is {kind}")
            return file
        with open(path, "rb", buffering=COPY_SIZE) as stream:
            if file.size == 0:
                self._found("empty", path, 0, None, "the file is empty")
            for record in self._records(RecordReader(stream, path)):
                self._check_record(file, record)
                if self._progress:
                    self._progress(self._report.bytes + record.end, self._total)
        if file.size % 4 and len(self._report.problems) == found:
            self._found("size", path, file.size, None, f"{file.size} bytes, not a multiple of 4")
        self._report.bytes += file.size
        self._report.records += len(file.offsets)
        return file

    def _records(self, reader: RecordReader) -> Iterator[Record]:
        while True:
            start = reader.offset
            try:
                record = reader.read()
            except RecordError as error:
                head = reader.next_head(max(error.offset, start) + 4)
                until = reader.size if head is None else head
                self._found(
                    error.code,
                    reader.path,
                    error.offset,
                    None,
                    f"{error.found}; {until - start} bytes from {start} on are lost, "
                    + ("to the end of the file" if head is None else f"next record at {head}"),
                )
                if head is None:
                    return
                reader.seek(head)
                continue
            if record is None:
                return
            yield record

    def _check_record(self, file: _File, record: Record) -> None:
        file.offsets.append(record.offset)
        try:
            content = decode(record.payload)
        except PayloadError as error:
            self._found("header", file.path, record.offset, None, str(error))
            file.ids.append(_NO_ID)
            return
        file.ids.append(content.id)
        if not all(map(math.isfinite, (content.header_label, *content.labels))):
            labels = ", ".join(map(str, content.labels[:8]))
            self._found("label", file.path, record.offset, content.id, f"labels {labels}")

    # --- index --------------------------------------------------------------------------------

    def _check_index(self, path: str, files: list[_File]) -> None:
        """Judges the index of one file, or the joint index of several."""
        try:
            with open(path, "rb") as stream:
                entries, faults = parse_index(stream.read(), path)
        except OSError as error:
            self._found("index-unreadable", path, None, None, str(error.strerror))
            return
        for fault in faults:
            self._found("index-line", path, None, None, f"line {fault.line}: {fault.found}")
        offsets = array("Q")
        ids: list[int] = []
        base = 0
        for file in files:
            offsets.extend(base + offset for offset in file.offsets)
            ids += file.ids
            base += file.size
        seen = bytearray(len(offsets))
        keys: set[int] = set()
        by_id = by_position = True
        rows: list[tuple[IndexEntry, int]] = []
        last = -1
        for line, entry in enumerate(entries, 1):
            where = f"line {line}: key {entry.key}, offset {entry.offset}"
            if entry.key in keys:
                self._found(
                    "index-duplicate", path, None, entry.key, f"{where}: the key stands twice"
                )
            keys.add(entry.key)
            at = bisect_left(offsets, entry.offset) if entry.offset < 2**63 else len(offsets)
            if at == len(offsets) or offsets[at] != entry.offset:
                self._found(
                    "index-offset", path, None, entry.key, f"{where}: no record begins there"
                )
                continue
            if seen[at]:
                self._found(
                    "index-repeat", path, None, entry.key, f"{where}: the record is named twice"
                )
            elif at < last:
                self._found("index-order", path, None, entry.key, f"{where}: after a later record")
            seen[at] = 1
            last = max(last, at)
            rows.append((entry, at))
            by_id = by_id and entry.key == ids[at]
            by_position = by_position and entry.key == at
        for at, there in enumerate(seen):
            if not there:
                self._found(
                    "index-missing",
                    path,
                    None,
                    _known(ids[at]),
                    f"no line for the record at offset {offsets[at]}",
                )
        if not by_id and not by_position:
            self._check_keys(path, rows, ids)

    def _check_keys(self, path: str, rows: list[tuple[IndexEntry, int]], ids: list[int]) -> None:
        """Names the keys that do not follow the rule that most of them follow."""
        wrong_ids = [(entry, at) for entry, at in rows if entry.key != ids[at]]
        wrong_positions = [(entry, at) for entry, at in rows if entry.key != at]
        by_id = len(wrong_ids) <= len(wrong_positions)
        for entry, at in wrong_ids if by_id else wrong_positions:
            expected = f"id {ids[at]}" if by_id else f"position {at}"
            self._found(
                "index-key",
                path,
                None,
                _known(ids[at]),
                f"key {entry.key} at offset {entry.offset}, expected the record's {expected}",
            )

    # --- manifest -----------------------------------------------------------------------------

    def _check_manifest(self, path: str) -> None:
        try:
            manifest = read_manifest(path)
        except InputError as error:
            self._found("manifest", path, None, None, error.found)
            return
        folder = os.path.dirname(path)
        shards = {os.path.join(folder, shard["rec"]): shard for shard in manifest["shards"]}
        files = {file.path: file for file in self._files}
        for rec, shard in shards.items():
            file = files.get(rec)
            if file is None:
                if rec not in self._set.missing:
                    self._found("file-missing", rec, None, None, f"named in {path}")
                continue
            self._check_shard(path, file, shard)
            idx = os.path.join(folder, shard["idx"])
            if not os.path.exists(idx):
                self._found("file-missing", idx, None, None, f"named in {path}")
        for rec in files.keys() - shards.keys():
            self._found("file-unknown", rec, None, None, f"not named in {path}")
        joint = manifest.get("joint_index")
        if joint and not os.path.exists(os.path.join(folder, str(joint))):
            self._found(
                "file-missing", os.path.join(folder, str(joint)), None, None, f"named in {path}"
            )
        self._check_counts(path, manifest)

    def _check_shard(self, manifest: str, file: _File, shard: dict[str, Any]) -> None:
        if shard.get("bytes") != file.size:
            self._found(
                "bytes",
                file.path,
                file.size,
                None,
                f"{file.size} bytes, expected {shard.get('bytes')} ({manifest})",
            )
        if shard.get("records") != len(file.offsets):
            self._found(
                "records",
                file.path,
                None,
                None,
                f"{len(file.offsets)} records, expected {shard.get('records')} ({manifest})",
            )
        if shard.get("sha256") != _sha256(file.path):
            self._found("sha256", file.path, None, None, f"not the bytes that {manifest} describes")

    def _check_counts(self, path: str, manifest: dict[str, Any]) -> None:
        """Judges the manifest's own numbers."""
        rows, packed, failed = (manifest.get(name) for name in ("rows", "packed", "failed"))
        counts = [shard.get("records") for shard in manifest["shards"]]
        if not (
            isinstance(rows, int)
            and isinstance(packed, int)
            and isinstance(failed, int)
            and all(isinstance(count, int) for count in counts)
        ):
            self._found("manifest", path, None, None, "its counts are not numbers")
        elif rows != packed + failed:
            self._found(
                "manifest", path, None, None, f"rows {rows}, but packed {packed} + failed {failed}"
            )
        elif sum(counts) != packed:
            self._found(
                "manifest", path, None, None, f"packed {packed}, but its shards hold {sum(counts)}"
            )

    # --- list ---------------------------------------------------------------------------------

    def _check_list(self, path: str) -> None:
        """Compares ids, labels and order with a list; rows in PREFIX.failures.tsv were left out."""
        images = read_list(path)
        failed = _failed_ids(self._set.prefix + ".failures.tsv")
        expected = [entry for entry in images if entry.id not in failed]
        found = {
            record_id: (number, file, at)
            for number, (file, at, record_id) in enumerate(self._positions())
            if record_id != _NO_ID
        }
        last = -1
        with ExitStack() as streams:
            readers = {
                file.path: RecordReader(streams.enter_context(open(file.path, "rb")), file.path)
                for file in self._files
            }
            for entry in expected:
                place = found.pop(entry.id, None)
                if place is None:
                    sentence = f"{entry.path} has no record"
                    self._found("list-missing", path, None, entry.id, sentence)
                    continue
                number, file, at = place
                offset = file.offsets[at]
                if number < last:
                    sentence = f"{entry.path} stands elsewhere in {path}"
                    self._found("list-order", file.path, offset, entry.id, sentence)
                last = max(last, number)
                labels = _labels_at(readers[file.path], offset)
                listed = tuple(map(as_float32, entry.labels))
                if labels not in (listed, listed[:1]):
                    sentence = f"labels {_few(labels)}, expected {_few(listed)} ({entry.path})"
                    self._found("list-label", file.path, offset, entry.id, sentence)
        for record_id, (_, file, at) in found.items():
            self._found(
                "list-extra", file.path, file.offsets[at], record_id, f"the id is not in {path}"
            )

    def _positions(self) -> Iterator[tuple[_File, int, int]]:
        for file in self._files:
            for at, record_id in enumerate(file.ids):
                yield file, at, record_id

    # --- images -------------------------------------------------------------------------------

    def _decode_all(self) -> None:
        tasks = [
            _DecodeTask(file.path, tuple(file.offsets[first : first + RECORDS_PER_TASK]))
            for file in self._files
            for first in range(0, len(file.offsets), RECORDS_PER_TASK)
        ]
        if not tasks:
            return
        workers = min(self._options.workers or pool.available_cpus(), len(tasks))
        done = 0
        with pool.Pool(
            decode_records,
            setup=image_ops.prepare_worker,
            workers=workers,
            start_method=self._options.start_method,
            name=lambda offset: f"the record at {offset}",
        ) as workers_pool:
            for task, (problems, remarks) in workers_pool.results(tasks):
                self._report.problems += problems
                self._report.remarks += remarks
                done += len(task.offsets)
                if self._progress:
                    self._progress(done, self._report.records)


@dataclass
class _File:
    """A .rec as read: where each whole record begins, and its id (_NO_ID where it has none)."""

    path: str
    size: int
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    ids: list[int] = field(default_factory=list)
    is_records: bool = True


_NO_ID = -1


def _known(record_id: int) -> int | None:
    return None if record_id == _NO_ID else record_id


def _few(labels: Iterable[float]) -> str:
    shown = [f"{label:g}" for label in labels]
    return ", ".join(shown[:8]) + (f"... ({len(shown)})" if len(shown) > 8 else "")


def _labels_at(reader: RecordReader, offset: int) -> tuple[float, ...]:
    """The labels of the record that begins there; it has been read whole before."""
    reader.seek(offset)
    record = reader.read()
    return decode(record.payload if record else b"").labels


def _failed_ids(path: str) -> set[int]:
    """The ids in a failures.tsv; none where there is no such file."""
    if not os.path.exists(path):
        return set()
    with open(path, "rb") as file:
        fields = [line.split(b"\t", 1)[0] for line in file]
    return {int(text) for text in fields if text.isdigit()}


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(COPY_SIZE):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _DecodeTask:
    path: str
    offsets: tuple[int, ...]


def decode_records(task: _DecodeTask) -> tuple[list[Problem], list[tuple[str, str]]]:
    """Decodes the images of some records; the problems, and remarks as (place, text)."""
    problems: list[Problem] = []
    remarks: list[tuple[str, str]] = []
    with open(task.path, "rb", buffering=COPY_SIZE) as stream:
        reader = RecordReader(stream, task.path)
        for offset in task.offsets:
            pool.note(offset)
            reader.seek(offset)
            record = reader.read()
            try:
                content = decode(record.payload if record else b"")
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
