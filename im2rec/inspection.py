"""The verb inspect: what is in a record file or a set of them; gets through odd data."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from im2rec import detection
from im2rec.errors import ImageError, PayloadError
from im2rec.facts import read_boxes
from im2rec.framing import Damage, Record, Run
from im2rec.identities import HEADER_KEY, identity_keys
from im2rec.image_file import ManyFacts, identify, identify_many
from im2rec.image_record import Headers, ImageRecord, decode, decode_headers
from im2rec.index import largest_index, parse_columns, parse_index
from im2rec.readers import mxnet_uri
from im2rec.record_set import RecordSet, check_record_file, find_classes, read_classes, walk

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Progress = Callable[[int, int], None]  # bytes read, bytes in all


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One record: its file, offset and length in bytes, and, as far as it makes sense, id, labels,
    and the image's kind ("-": no image, "?": of no known kind), width, height and bytes."""

    file: str
    offset: int
    length: int
    parts: int
    id: int | None
    labels: tuple[float, ...]
    kind: str
    width: int
    height: int
    image_bytes: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Smallest, middle and largest of many whole numbers; of two in the middle the lower."""

    min: int
    median: int
    max: int


@dataclass
class Summary:
    """What is in a set.

    files, bytes: of the .rec files; records; ids: smallest and largest; label_widths: records by
    number of labels, image_widths those of them with an image; identities: how many InsightFace's
    header record tells of; class_counts: records by class, where every label is one whole number;
    object_counts: objects by class, where all labels are those of pictures with boxes; class_names:
    from the class map; kinds: records by image kind; channels: records by the channels of their
    image as stored; width, height, image_bytes: spreads; cut: records in several parts;
    without_image; unreadable: payloads that are no image record; damaged: places where the framing
    is broken; index: a word for each .rec; joint_index: None without one; index_file: the one index
    of all files, if there is one.
    """

    name: str
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    records: int = 0
    ids: tuple[int, int] | None = None
    label_widths: Counter[int] = field(default_factory=Counter)
    image_widths: Counter[int] = field(default_factory=Counter)
    identities: int = 0
    class_counts: Counter[int] | None = field(default_factory=Counter)
    object_counts: Counter[int] | None = field(default_factory=Counter)
    class_names: list[str] | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    channels: Counter[int] = field(default_factory=Counter)
    width: Spread | None = None
    height: Spread | None = None
    image_bytes: Spread | None = None
    cut: int = 0
    without_image: int = 0
    unreadable: int = 0
    damaged: int = 0
    index: list[str] = field(default_factory=list)
    joint_index: str | None = None
    index_file: str | None = None

    @property
    def num_training_samples(self) -> int:
        """What a trainer calls the number of records with an image."""
        return self.records - self.without_image - self.unreadable

    @property
    def num_classes(self) -> int | None:
        """The number of classes a trainer needs: one more than the largest label, but no fewer than
        the class map has, since other sets may have the rest; None where the labels are no
        classes."""
        counts = self.class_counts or self.object_counts
        return max(max(counts) + 1, len(self.class_names or ())) if counts else None

    @property
    def label_width(self) -> int | None:
        """The number of labels a trainer must be told: the largest that an image has."""
        return max(self.image_widths, default=None)

    @property
    def data_shape(self) -> tuple[int, int, int] | None:
        """Channels as decoded, height and width, where all images have the same size."""
        if not (self.width and self.height and self.width.min == self.width.max):
            return None
        if self.height.min != self.height.max:
            return None
        alike = len(self.channels) == 1 and next(iter(self.channels))
        return (alike if alike in (1, 4) else 3), self.height.min, self.width.min

    def add_damage(self, _: Damage) -> None:
        """Counts a damaged place."""
        self.damaged += 1

    def reader_options(self) -> dict[str, dict[str, Any]]:
        """What the readers must be told of this set, by reader and option, as far as it is known.

        mxnet: of ImageRecordIter, or of ImageDetRecordIter where there are boxes; dali: of
        fn.readers.mxnet; sagemaker-classification, sagemaker-detection: hyper-parameters; where
        there are records without an image, which none of these takes, insightface alone: of
        arcface_torch's configuration, if they are of its layout.
        """
        if self.without_image or self.unreadable:
            if not self.identities:
                return {}
            images = {"num_classes": self.identities, "num_image": self.num_training_samples}
            return {"insightface": images}
        shape, boxes = self.data_shape, bool(self.object_counts)
        widths = list(self.image_widths)
        samples, classes = self.num_training_samples, self.num_classes
        options: dict[str, dict[str, Any]] = {
            "mxnet": {
                "path_imgrec": mxnet_uri(self.files),
                "path_imgidx": self.index_file and mxnet_uri([self.index_file]),
                "label_width": widths[0] if len(widths) == 1 and not boxes else None,
                "label_pad_width": self.label_width if boxes else None,
                "data_shape": shape and list(shape),
            },
            "dali": {
                "path": self.files,
                "index_path": [self.index_file] if self.index_file else None,
            },
        }
        if self.class_counts:
            options["sagemaker-classification"] = {
                "num_classes": classes,
                "num_training_samples": samples,
                "image_shape": shape and ",".join(map(str, shape)),
            }
        elif boxes:
            options["sagemaker-detection"] = {
                "num_classes": classes,
                "num_training_samples": samples,
                "label_width": self.label_width,
            }
        return {
            reader: {name: value for name, value in those.items() if value is not None}
            for reader, those in options.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON has it."""
        spreads = {}
        for name in ("width", "height", "image_bytes"):
            spread: Spread | None = getattr(self, name)
            spreads[name] = spread and {
                "min": spread.min,
                "median": spread.median,
                "max": spread.max,
            }
        classes, objects = (
            [
                {"class": number, "name": self.name_of(number), what: count}
                for number, count in sorted((counts or {}).items())
            ]
            or None
            for what, counts in (("records", self.class_counts), ("objects", self.object_counts))
        )
        return {
            "name": self.name,
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "ids": self.ids and {"min": self.ids[0], "max": self.ids[1]},
            "label_widths": {str(k): v for k, v in sorted(self.label_widths.items())},
            "classes": classes,
            "objects": objects,
            "kinds": dict(self.kinds.most_common()),
            "channels": {str(k): v for k, v in sorted(self.channels.items())},
            **spreads,
            "cut": self.cut,
            "without_image": self.without_image,
            "unreadable": self.unreadable,
            "damaged": self.damaged,
            "index": self.index,
            "joint_index": self.joint_index,
            "num_training_samples": self.num_training_samples,
            "num_classes": self.num_classes,
            "label_width": self.label_width,
            "readers": self.reader_options(),
        }

    def name_of(self, number: int) -> str | None:
        """A class's name, where the class map has one."""
        if self.class_names and 0 <= number < len(self.class_names):
            return self.class_names[number]
        return None


def inspect_set(
    records: RecordSet,
    *,
    each: Callable[[RecordLine], None] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Reads every record of a set and sums up what is there.

    each: called with every record, in file order. Damage is counted and passed over; judging it is
    verify's business. Raises OSError where a file cannot be read, InputError where it is of another
    kind or no regular file, or the class map is none.
    """
    for path in records.recs:
        check_record_file(path)
    classes = find_classes(records.prefix)
    summary = Summary(records.name, list(records.recs))
    summary.class_names = read_classes(classes) if classes else None
    sizes = _Sizes()
    total = sum(os.path.getsize(path) for path in records.recs)
    for path, idx in zip(records.recs, records.idxs, strict=True):
        before = summary.records
        for found in walk(path, summary.add_damage, in_runs=each is None):
            if isinstance(found, Run):
                _sum_up(found, summary, sizes)
            else:
                line = _describe(path, found, summary)
                sizes.add(line)
                if each:
                    each(line)
            if progress:
                progress(summary.bytes + found.end, total)
        summary.bytes += os.path.getsize(path)
        summary.index.append(_index_state(idx, summary.records - before))
    summary.width, summary.height = _spread(sizes.widths), _spread(sizes.heights)
    summary.image_bytes = _spread(sizes.image_bytes)
    one_file = len(records.recs) + len(records.missing) == 1
    summary.index_file = next(iter(records.idxs), None) if one_file else records.joint
    if records.joint:
        summary.joint_index = _index_state(records.joint, summary.records)
    return summary


@dataclass
class _Sizes:
    """Widths and heights of the images of known kinds, bytes of all."""

    widths: array[int] = field(default_factory=lambda: array("I"))
    heights: array[int] = field(default_factory=lambda: array("I"))
    image_bytes: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, line: RecordLine) -> None:
        if line.width:
            self.widths.append(line.width)
            self.heights.append(line.height)
        if line.image_bytes:
            self.image_bytes.append(line.image_bytes)

    def add_many(self, facts: ManyFacts, image_bytes: npt.NDArray[np.int64]) -> None:
        known = facts.kinds > 0
        self.widths.frombytes(facts.widths[known].astype("u4").tobytes())
        self.heights.frombytes(facts.heights[known].astype("u4").tobytes())
        self.image_bytes.frombytes(image_bytes.astype("u8").tobytes())


def _sum_up(run: Run, summary: Summary, sizes: _Sizes) -> None:
    """Counts the records of a run, as `_describe` does one."""
    import numpy as np

    headers = decode_headers(run.words, run.starts, run.lengths)
    whole, has_image = headers.whole, headers.whole & (headers.image_bytes > 0)
    summary.records += len(run)
    summary.unreadable += len(run) - int(whole.sum())
    summary.without_image += int(whole.sum() - has_image.sum())
    summary.label_widths.update(headers.count_widths())
    widths = headers.widths[has_image]
    if len(widths) and (widths == widths[0]).all():  # far faster than np.unique
        summary.image_widths[int(widths[0])] += len(widths)
    else:
        summary.image_widths.update(widths.tolist())
    for number in (whole & ~has_image & (headers.ids == HEADER_KEY)).nonzero()[0].tolist():
        _find_identities(decode(run.record(number).payload), summary)
    ids = headers.ids[whole]
    if len(ids):
        extremes = (*(summary.ids or ()), int(ids.min()), int(ids.max()))
        summary.ids = min(extremes), max(extremes)
    if summary.class_counts is not None:
        classes = _count_classes(headers.first_labels()[has_image], headers.widths[has_image])
        if classes is None:
            summary.class_counts = None
        else:
            summary.class_counts.update(classes)
    if summary.object_counts is not None:
        objects = _count_objects(headers, has_image.nonzero()[0])
        if objects is None:
            summary.object_counts = None
        else:
            summary.object_counts.update(objects)
    starts, image_bytes = 4 * headers.images[has_image], headers.image_bytes[has_image]
    facts = identify_many(run.words.view("u1"), starts, starts + image_bytes)
    sizes.add_many(facts, image_bytes)
    summary.kinds.update(facts.count_kinds())
    channels = np.bincount(facts.channels)
    summary.channels.update({at: int(channels[at]) for at in channels.nonzero()[0].tolist() if at})


def _count_objects(headers: Headers, images: npt.NDArray[np.int64]) -> dict[int, int] | None:
    """The objects of each class in these records; None where not all labels are of boxes."""
    import numpy as np

    if (headers.widths[images] < detection.HEADER_WIDTH).any():
        return None
    boxes = read_boxes(headers, images)
    if not boxes.sound.all():
        return None
    classes, counts = np.unique(boxes.classes, return_counts=True)
    return dict(zip(classes.tolist(), counts.tolist(), strict=True))


def _count_classes(
    labels: npt.NDArray[np.float32], widths: npt.NDArray[np.int64]
) -> dict[int, int] | None:
    """The records of each class, from their first labels and how many they have; None where not
    every label is a class."""
    import numpy as np

    if not ((widths == 1) & np.isfinite(labels)).all():
        return None
    if not ((labels >= 0) & (labels == labels.round())).all():
        return None
    classes, counts = np.unique(labels, return_counts=True)
    return dict(zip(map(int, classes.tolist()), counts.tolist(), strict=True))


def _describe(path: str, record: Record, summary: Summary) -> RecordLine:
    """One record as a line, counted in the summary."""
    summary.records += 1
    summary.cut += record.parts > 1
    length = record.end - record.offset
    try:
        content = decode(record.payload)
    except PayloadError:
        summary.unreadable += 1
        return RecordLine(path, record.offset, length, record.parts, None, (), "?", 0, 0, 0)
    summary.label_widths[len(content.labels)] += 1
    low, high = summary.ids or (content.id, content.id)
    summary.ids = min(low, content.id), max(high, content.id)
    _count_class(content, summary)
    kind, width, height = "-", 0, 0
    if content.image:
        try:
            facts = identify(content.image)
            kind, width, height = facts.kind, facts.width, facts.height
            if facts.channels:
                summary.channels[facts.channels] += 1
        except ImageError:
            kind = "?"
        summary.kinds[kind] += 1
        summary.image_widths[len(content.labels)] += 1
    else:
        summary.without_image += 1
        _find_identities(content, summary)
    return RecordLine(
        path,
        record.offset,
        length,
        record.parts,
        content.id,
        content.labels,
        kind,
        width,
        height,
        len(content.image),
    )


def _find_identities(content: ImageRecord, summary: Summary) -> None:
    """Takes a record without an image, which may be InsightFace's header."""
    keys = identity_keys(content.id, content.labels, len(content.image))
    summary.identities = len(keys) if keys else summary.identities


def _count_class(content: ImageRecord, summary: Summary) -> None:
    """Counts the record's class, or its objects'; gives counting up where labels turn out to be
    none."""
    if not content.image:
        return
    if summary.object_counts is not None:
        if detection.check(content.labels):
            summary.object_counts = None
        elif not detection.is_pad(content.labels):
            classes = [int(each[0]) for each in detection.objects(content.labels)]
            summary.object_counts.update(classes)
    if summary.class_counts is None:
        return
    label = content.labels[0] if len(content.labels) == 1 else -1.0
    if label.is_integer() and label >= 0:
        summary.class_counts[int(label)] += 1
    else:
        summary.class_counts = None


def _spread(values: array[int]) -> Spread | None:
    if not values:
        return None
    import numpy as np

    numbers = np.frombuffer(values, dtype=f"u{values.itemsize}")
    middle = (len(numbers) - 1) // 2
    median = np.partition(numbers, middle)[middle]
    return Spread(int(numbers.min()), int(median), int(numbers.max()))


def _index_state(path: str | None, records: int) -> str:
    """A word on an index: is it there, and does it have a line for every record?"""
    if path is None:
        return "none"
    if not os.path.isfile(path):
        return "not a regular file"
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > largest_index(records):
                return f"{size} bytes, too many for {records} records"
            data = file.read()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if columns := parse_columns(data):
        lines = len(columns[0])
    else:
        entries, faults = parse_index(data, path)
        if faults:
            return f"malformed at line {faults[0].line}"
        lines = len(entries)
    return "complete" if lines == records else f"{lines} lines for {records} records"
