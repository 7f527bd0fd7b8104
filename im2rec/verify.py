"""The verb verify: every fault in a packed set, each with a code, a place and a sentence."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from im2rec import image_ops, pool, readers
from im2rec.errors import ImageError, InputError, PayloadError
from im2rec.facts import Shard, Watch
from im2rec.framing import Damage, Record, RecordReader, Run, RunScanner
from im2rec.identity_check import BareRecords
from im2rec.image_file import identify
from im2rec.image_record import ImageRecord, decode, decode_headers, encode_header
from im2rec.index_check import NO_ID, IndexCheck, RecordFile, append_range
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

RECORDS_PER_TASK = 64  # records that a worker decodes at a time
MAX_LISTED = 100_000  # problems of one code; of more, which take memory, it says how many
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
    any; readers: names in `readers.READERS`, whose rules the set must keep; a problem's code is
    then one of `readers.CODES`, too."""

    list_path: str | None = None
    decode: bool = False
    workers: int | None = None
    start_method: str | None = None
    image_timeout: float = image_ops.IMAGE_TIMEOUT
    readers: tuple[str, ...] = ()


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
        self._files: list[RecordFile] = []
        self._manifest, self._fault = _read(self._manifest_path)
        self._packed = None if self._fault else self._manifest  # what pack has said of the set
        self._width = _packed_width(self._packed)
        self._counts: Counter[str] = Counter()  # of problems, by their codes
        self._all_labels = True  # False for a set that was packed with --no-pack-label
        self._watch = readers.watch_for(options.readers) if options.readers else None
        # only then it matters which records are to have an image
        self._is_judging = options.decode or options.list_path is not None
        self._bare = BareRecords()
        self._identities: dict[str, frozenset[int]] = {}  # by file, where its identities begin

    def run(self) -> VerifyReport:
        records, list_path = self._set, self._options.list_path
        images = read_list(list_path) if list_path else None  # the quickest to fail comes first
        indexes = IndexCheck(self._found, is_packed=self._packed is not None)
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
                indexes.check(idx, [file])
        # without a shard, every offset behind it would look wrong, and what is missing is told
        if records.joint and not records.missing and all(file.is_records for file in self._files):
            indexes.check(records.joint, self._files)
        self._identities = self._bare.identities()
        if records.manifest:
            self._check_manifest(records.manifest)
        elif records.set_manifest:
            self._check_entry(records.set_manifest)
        if images is not None:
            self._check_list(images)
        if self._options.decode:
            self._decode_all()
        if self._watch:
            self._check_readers(self._watch)
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

    def _read_file(self, path: str) -> RecordFile:
        """Reads a .rec to its end, over any damage, and judges framing and headers."""
        if not os.path.isfile(path):
            self._found("unreadable", path, None, None, NOT_REGULAR)
            return RecordFile(path, is_unreadable=True)
        file = RecordFile(path)
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
            return RecordFile(path, is_unreadable=True)
        self._report.bytes += file.size
        self._report.records += len(file.offsets)
        return file

    def _check_runs(self, file: RecordFile, reader: RecordReader) -> None:
        """Judges a file's records, those that are sound many at a time."""
        if self._manifest_path is None:
            with open(file.path, "rb", buffering=0) as source:
                self._check_records(file, reader, RunScanner(source, reader.size))
        else:
            with _HashedFile(file.path) as hashed:
                self._check_records(file, reader, RunScanner(hashed, reader.size))
                file.sha256 = hashed.hexdigest()

    def _check_records(self, file: RecordFile, reader: RecordReader, scanner: RunScanner) -> None:
        def tell(damage: Damage) -> None:
            self._check_damage(file, damage)

        for found in reader.walk(tell, scanner):
            if isinstance(found, Run):
                self._check_run(file, found)
            else:
                self._check_record(file, found)
            if self._progress:
                self._progress(self._report.bytes + found.end, self._total)

    def _check_damage(self, file: RecordFile, damage: Damage) -> None:
        """Tells of a place without a sound record; what can be read there all the same is judged
        as any other."""
        sentence = damage.found
        if damage.record:
            self._check_record(file, damage.record)
        else:
            append_range(file.lost, damage.offset, damage.end)
            sentence += (
                f"; {damage.end - damage.offset} bytes from {damage.offset} on are lost, "
                + (
                    "to the end of the file"
                    if damage.head is None
                    else f"next record at {damage.head}"
                )
            )
        self._found(damage.code, file.path, damage.at, None, sentence)

    def _check_run(self, file: RecordFile, run: Run) -> None:
        """Judges many records: one by one only those that are not sound."""
        headers = decode_headers(run.words, run.starts, run.lengths)
        file.add_run(run, headers, with_labels=self._options.list_path is not None)
        if self._is_judging:
            self._bare.add_run(file.path, run, headers)
        if self._watch:
            self._watch.add_run(file.path, run, headers)
        sound = headers.whole & headers.finite()
        if self._packed is not None:
            sound &= headers.as_encoded()
            if self._width is not None:
                sound &= headers.widths == self._width
        for number in (~sound).nonzero()[0].tolist():
            self._judge(file.path, run.record(number))

    def _check_record(self, file: RecordFile, record: Record) -> None:
        content = self._judge(file.path, record)
        file.add(record.offset, content, with_labels=self._options.list_path is not None)
        if content is not None and self._is_judging:
            self._bare.add(file.path, record.offset, content)
        if self._watch:
            self._watch.add(file.path, record)

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

    def _check_readers(self, watch: Watch) -> None:
        shards = [
            Shard(file.path, file.size, file.offsets, file.ids, file.without_id)
            for file in self._files
            if file.is_records
        ]
        watch.finish(self._set, shards)
        for breach in readers.breaches(self._options.readers, watch):
            self._found(*breach)

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

    def _check_shard(self, manifest: str, file: RecordFile, shard: dict[str, Any]) -> None:
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
        identities = manifest.get("identity_records", 0)
        if packed + (identities if _is_count(identities) else 0) != in_shards:
            more = f" + identity_records {identities}" if identities else ""
            sentence = f"packed {packed}{more}, but its shards hold {in_shards}"
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
        found: dict[int, tuple[int, RecordFile, int]] = {}
        for number, (file, at, record_id) in enumerate(self._positions()):
            if record_id in found:
                sentence = "another record before has the same id"
                self._found("list-extra", file.path, file.offsets[at], record_id, sentence)
            elif record_id != NO_ID:
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
            if self._is_identity(file.path, file.offsets[at]):
                continue
            self._found(
                "list-extra", file.path, file.offsets[at], record_id, f"the id is not in {path}"
            )
        packed: Any = (self._packed or {}).get("list")
        is_other = _is_list(packed) and packed["sha256"] != images.sha256
        if is_other and len(self._report.problems) > told:  # then it is the cause of the others
            sentence = f"not the list that was packed, by the sha256 in {self._manifest_path}"
            cause = Problem("list-other", path, None, None, sentence)
            self._report.problems.insert(told, cause)

    def _positions(self) -> Iterator[tuple[RecordFile, int, int]]:
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
        return not (problem.code == "no-image" and self._is_identity(problem.file, problem.offset))

    def _is_identity(self, path: str, offset: int | None) -> bool:
        """Whether a record is InsightFace's header or one of its identities."""
        return offset in self._identities.get(path, ())


_MAX_SIZE = 1 << 48  # bytes; a larger shard is no shard


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
