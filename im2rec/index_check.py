"""What is wrong with an index, seen beside the record files that it is of."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from im2rec.framing import Run
from im2rec.image_record import Headers, ImageRecord
from im2rec.index import IndexEntry, largest_index, parse_columns, parse_index
from im2rec.record_set import NOT_REGULAR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# What is told of a fault: its code, the file, an offset or None, a record's id or None, a sentence.
Found = Callable[[str, str, int | None, int | None, str], None]


@dataclass
class RecordFile:
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
        """The ids, NO_ID where a record has none."""
        ids = self.ids.tolist()
        for at in self.without_id:
            ids[at] = NO_ID
        return ids


NO_ID = -1
_NO_RECORD = -1
_NO_END = 1 << 64  # where an index has no offsets any more
_NO_RECORD_THERE = "no record begins there"


class IndexCheck:
    """Judges indexes. found: is called with each fault; is_packed: whether a manifest says that
    they are pack's."""

    def __init__(self, found: Found, *, is_packed: bool) -> None:
        self._found, self._is_packed = found, is_packed

    def check(self, path: str, files: list[RecordFile]) -> None:
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
        if _is_sound_index(data, files, is_packed=self._is_packed):
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
                append_range(lost, base + start, base + end)
            append_range(lost, base + file.size, base + size)
            base += size
        append_range(lost, base, _NO_END)
        no_entries = {fault.line for fault in faults}
        rows = self._check_lines(path, entries, no_entries, offsets, lost)
        if self._is_packed:
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
            if at != _NO_RECORD and ids[at] not in (key, NO_ID):
                wrong_ids.append((key, at))
            elif at != _NO_RECORD:
                by_id_keys += 1
            if at not in (_NO_RECORD, key):
                wrong_positions.append((key, at))
        by_id = len(wrong_ids) <= len(wrong_positions)
        if self._is_packed and _must_be_ids(by_id_keys, len(rows)):
            by_id = True
        for key, at in wrong_ids if by_id else wrong_positions:
            expected = f"id {ids[at]}" if by_id else f"position {at}"
            sentence = f"key {key} for record {at} of the file, expected its {expected}"
            self._found("index-key", path, None, _known(ids[at]), sentence)


def _known(record_id: int) -> int | None:
    return None if record_id == NO_ID else record_id


def append_range(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    """Appends a range of bytes, if it has any, as one with the last where that ends there."""
    if ranges and ranges[-1][1] == start:
        start = ranges.pop()[0]
    if start < end:
        ranges.append((start, end))


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


def _is_sound_index(data: bytes, files: list[RecordFile], *, is_packed: bool) -> bool:
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
