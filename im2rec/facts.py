"""What a walk over a set shows of it that matters to those who read it.

A `Watch` takes the records as they are walked, many at a time, and keeps counts and the first
places of what may matter; `readers` has the rules that are about these.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from im2rec import detection, identities
from im2rec.framing import ALIGNMENT, MAGIC_BYTES, Record, RecordReader, Run
from im2rec.image_file import KINDS, identify_many
from im2rec.image_record import HEADER, LABEL_SIZE, Headers, ImageRecord, decode, decode_headers
from im2rec.index import largest_index, parse_columns
from im2rec.record_set import RecordSet

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PLACES = 10_000  # of one trait; of more, which take memory, it is said how many
NOWHERE = -1  # the position of a record that is not there
_INT32 = 2**31


class Place(NamedTuple):
    """Where something was found: its file, offset and id as far as there are any, and what."""

    file: str
    offset: int | None
    id: int | None
    found: str


@dataclass
class Places:
    """Records with one trait: how many, and where the first of them are, `most` at most."""

    count: int = 0
    first: list[Place] = field(default_factory=list)
    most: int = field(default_factory=lambda: MAX_PLACES)

    def add(self, place: Place) -> None:
        self.count += 1
        if len(self.first) < self.most:
            self.first.append(place)

    def add_all(
        self, batch: _Batch, those: npt.NDArray[np.int64], found: Callable[[int], str]
    ) -> None:
        """Takes the records of a batch with these numbers. found: what, by the number."""
        self.count += len(those)
        for number in those[: self.most - len(self.first)].tolist():
            self.first.append(batch.place(number, found(number)))


@dataclass(frozen=True, slots=True)
class Shard:
    """A .rec as walked: its size in bytes; the offset and the id of each record, in order; the
    positions of those that have no id."""

    path: str
    size: int
    offsets: array[int]
    ids: array[int]
    without_id: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records of one file, in a row."""

    file: str
    offsets: npt.NDArray[np.uint64]
    headers: Headers

    def place(self, number: int, found: str) -> Place:
        has_id = bool(self.headers.whole[number])
        record_id = int(self.headers.ids[number]) if has_id else None
        return Place(self.file, int(self.offsets[number]), record_id, found)

    def labels(self, number: int) -> tuple[float, ...]:
        at, width = int(self.headers.labels[number]), int(self.headers.widths[number])
        return tuple(self.headers.words[at : at + width].view("<f4").tolist())


# --- boxes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Boxes:
    """Label arrays of pictures with boxes, as columns. sound: whether `detection.check` has nothing
    to say; plain: whether A is 2 and B is 5; pads: whether there is no object; classes: of all
    objects of the sound ones."""

    sound: npt.NDArray[np.bool_]
    plain: npt.NDArray[np.bool_]
    pads: npt.NDArray[np.bool_]
    classes: npt.NDArray[np.int64]


def read_boxes(headers: Headers, those: npt.NDArray[np.int64]) -> Boxes:
    """Reads the label arrays of the payloads with these numbers, those of one width and layout at
    a time."""
    import numpy as np

    is_sound, is_plain, is_pad = np.zeros((3, len(those)), bool)
    classes = [np.zeros(0, "i8")]
    widths = headers.widths[those]
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        places = headers.labels[those[rows]][:, None] + np.arange(width)
        labels = headers.words[places].view("<f4")
        layouts = set(map(tuple, labels[:, :2].tolist())) if width > 1 else ()
        for first, each in layouts:
            alike = np.flatnonzero((labels[:, 0] == first) & (labels[:, 1] == each))
            if not _is_layout(first, each, width):
                continue
            objects = labels[alike, int(first) :].reshape(len(alike), -1, int(each))
            sound, pads = _judge_objects(objects)
            sound &= np.isfinite(labels[alike]).all(axis=1)
            pads &= sound
            at = rows[alike]
            is_sound[at], is_pad[at] = sound, pads
            is_plain[at] = (first, each) == (detection.HEADER_WIDTH, detection.OBJECT_WIDTH)
            classes.append(objects[sound & ~pads, :, 0].ravel().astype("i8"))
    return Boxes(is_sound, is_plain, is_pad, np.concatenate(classes))


def _is_layout(first: float, each: float, width: int) -> bool:
    return (
        first.is_integer()
        and each.is_integer()
        and detection.HEADER_WIDTH <= first < width
        and each >= detection.OBJECT_WIDTH
        and (width - int(first)) % int(each) == 0
    )


def _judge_objects(
    objects: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether all objects of each picture are sound, and whether it has none."""
    import numpy as np

    kind, x1, y1, x2, y2 = (objects[:, :, at] for at in range(5))
    good = (kind >= 0) & (kind <= detection.MAX_CLASS) & (kind == np.rint(kind))
    good &= (x1 >= 0) & (x1 < x2) & (x2 <= 1) & (y1 >= 0) & (y1 < y2) & (y2 <= 1)
    pads = np.zeros(len(objects), bool)
    if objects.shape[1] == 1:
        pads = (objects[:, 0, :5] == np.array(detection.NO_OBJECT[2:], "f4")).all(axis=1)
    return good.all(axis=1) | pads, pads


# --- facts ------------------------------------------------------------------------------------

KINDS_OF_IMAGES, LABELS, BOXES, IDENTITIES = "kinds", "labels", "boxes", "identities"


class Watch:
    """The facts of one set, those of `needs` among them that are not always gathered.

    records, images: how many records, and how many of them have an image; cut: in several parts;
    cut_header: with a part that ends before the image begins; arrays: with flag > 0;
    without_image; widths: for each number of labels how many images have it and the first of them;
    kinds: images by kind, "jpeg" left out; channels: images of other than three; size: smallest and
    largest width, then height; no_class, no_integer, no_first: whose label is not one class, no
    whole number of 32 bits, whose first label is no class; boxes: whose labels are no objects;
    not_plain: whose layout is not `2 5`; no_object: which state that there is none.
    """

    def __init__(self, needs: Collection[str]) -> None:
        self._needs = needs
        self.records = self.images = 0
        self.cut = Places()
        self.cut_header = Places()
        self.arrays = Places()
        self.without_image = Places()
        self.channels = Places()
        self.boxes = Places()
        self.not_plain = Places()
        self.no_object = Places()
        self.no_class = Places()
        self.no_integer = Places()
        self.no_first = Places()
        self.widths: dict[int, Places] = {}
        self.kinds: dict[str, Places] = {}
        self.size: tuple[int, int, int, int] | None = None
        self._classes: npt.NDArray[np.bool_] | None = None
        self.bare = array("q")  # positions of the records without an image
        self.bare_labels = array("d")  # two of each, NaN where it has not two

    def add_run(self, file: str, run: Run, headers: Headers) -> None:
        """Takes the records of a run."""
        self._add(_Batch(file, run.offsets, headers))

    def add(self, file: str, record: Record) -> None:
        """Takes one record."""
        import numpy as np

        payload = record.payload
        words = np.frombuffer(payload + bytes(ALIGNMENT + -len(payload) % ALIGNMENT), "<u4")
        headers = decode_headers(words, np.zeros(1, "i8"), np.array([len(payload)]))
        batch = _Batch(file, np.array([record.offset], "u8"), headers)
        self._add(batch)
        if record.parts > 1:
            self.cut.add(batch.place(0, f"a record in {record.parts} parts"))
            flag = int(headers.flags[0]) if headers.whole[0] else 0
            before_image = range(0, HEADER.size + LABEL_SIZE * flag, ALIGNMENT)
            if any(payload[at : at + 4] == MAGIC_BYTES for at in before_image):
                found = "the magic stands in the record's header or labels"
                self.cut_header.add(batch.place(0, found))

    def _add(self, batch: _Batch) -> None:
        headers = batch.headers
        with_image = headers.whole & (headers.image_bytes > 0)
        images = with_image.nonzero()[0]
        bare = (headers.whole & ~with_image).nonzero()[0]
        arrays = (headers.whole & (headers.flags > 0)).nonzero()[0]
        self.without_image.add_all(batch, bare, _always("a record without an image"))
        self.arrays.add_all(batch, arrays, lambda at: f"flag {headers.flags[at]}")
        self._add_widths(batch, images)
        if LABELS in self._needs:
            self._add_labels(batch, images)
        if KINDS_OF_IMAGES in self._needs:
            self._add_images(batch, images)
        if BOXES in self._needs:
            self._add_boxes(batch, images)
        if IDENTITIES in self._needs:
            self._add_bare(batch, bare)
        self.records += len(batch.offsets)
        self.images += len(images)

    def _add_widths(self, batch: _Batch, images: npt.NDArray[np.int64]) -> None:
        import numpy as np

        widths = batch.headers.widths[images]
        if len(widths) and (widths == widths[0]).all():  # far faster than np.unique
            counts = {int(widths[0]): (0, len(widths))}
        else:
            there, at, count = np.unique(widths, return_index=True, return_counts=True)
            places = zip(at.tolist(), count.tolist(), strict=True)
            counts = dict(zip(there.tolist(), places, strict=True))
        for width, (first, number) in counts.items():
            known = self.widths.setdefault(width, Places())
            if not known.first:
                known.first.append(batch.place(int(images[first]), ""))
            known.count += number

    def _add_labels(self, batch: _Batch, images: npt.NDArray[np.int64]) -> None:
        import numpy as np

        headers, first = batch.headers, batch.headers.first_labels()
        whole = first == np.rint(first)  # False for NaN
        is_class = whole & (first >= 0) & (first <= detection.MAX_CLASS)
        is_one = is_class & (headers.widths == 1)

        def found(at: int) -> str:
            labels = batch.labels(at)
            shown = ", ".join(f"{label:g}" for label in labels[:8])
            return f"label{'s' * (len(labels) > 1)} {shown}{', ...' * (len(labels) > 8)}"

        self.no_class.add_all(batch, images[~is_one[images]], found)
        self.no_first.add_all(batch, images[~is_class[images]], found)
        single = headers.whole & (headers.flags == 0)
        is_integer = whole & (first >= -_INT32) & (first < _INT32)
        self.no_integer.add_all(batch, (single & ~is_integer).nonzero()[0], found)
        classes = first[images[is_one[images]]].astype("i8")
        if len(classes):
            self._note_classes(classes)

    def _note_classes(self, classes: npt.NDArray[np.int64]) -> None:
        import numpy as np

        most = int(classes.max())
        if self._classes is None or most >= len(self._classes):
            grown = np.zeros(2 * most + 1, bool)
            if self._classes is not None:
                grown[: len(self._classes)] = self._classes
            self._classes = grown
        self._classes[classes] = True

    def classes(self) -> npt.NDArray[np.bool_]:
        """Whether there is an image of each class, up to the largest."""
        import numpy as np

        if self._classes is None:
            return np.zeros(0, bool)
        return self._classes[: int(self._classes.nonzero()[0][-1]) + 1]

    def _add_images(self, batch: _Batch, images: npt.NDArray[np.int64]) -> None:
        import numpy as np

        headers = batch.headers
        starts = 4 * headers.images[images]
        facts = identify_many(
            headers.words.view("u1"), starts, starts + headers.image_bytes[images]
        )
        for kind in np.unique(facts.kinds).tolist():
            name = KINDS[kind]
            if name != "jpeg":
                found = "no image of a known kind" if name == "?" else f"an image of kind {name}"
                places = self.kinds.setdefault(name, Places())
                places.add_all(batch, images[facts.kinds == kind], _always(found))
        odd = ((facts.channels != 3) & (facts.channels > 0)).nonzero()[0]
        channels = dict(zip(images[odd].tolist(), facts.channels[odd].tolist(), strict=True))
        self.channels.add_all(
            batch,
            images[odd],
            lambda at: f"an image of {channels[at]} channel{'s' * (channels[at] > 1)}",
        )
        known = facts.kinds > 0
        if known.any():
            widths, heights = facts.widths[known], facts.heights[known]
            low_w, high_w, low_h, high_h = self.size or (1 << 62, 0, 1 << 62, 0)
            self.size = (
                min(low_w, int(widths.min())),
                max(high_w, int(widths.max())),
                min(low_h, int(heights.min())),
                max(high_h, int(heights.max())),
            )

    def _add_boxes(self, batch: _Batch, images: npt.NDArray[np.int64]) -> None:
        boxes = read_boxes(batch.headers, images)
        faults: dict[int, str] = {}
        for at in images[~boxes.sound].tolist():
            if len(self.boxes.first) + len(faults) >= MAX_PLACES:
                break
            faults[at] = detection.check(batch.labels(at)) or ""
        self.boxes.add_all(batch, images[~boxes.sound], lambda at: f"labels: {faults[at]}")

        def header(at: int) -> str:
            labels = batch.labels(at)
            return f"labels that begin with {labels[0]:g} {labels[1]:g}"

        self.not_plain.add_all(batch, images[boxes.sound & ~boxes.plain], header)
        self.no_object.add_all(batch, images[boxes.pads], _always("labels of no object"))

    def _add_bare(self, batch: _Batch, bare: npt.NDArray[np.int64]) -> None:
        import numpy as np

        headers = batch.headers
        self.bare.frombytes((bare + self.records).astype("i8").tobytes())
        places = headers.labels[bare][:, None] + np.arange(2)
        labels = headers.words.take(places, mode="clip").view("<f4").astype("f8")
        labels[headers.widths[bare] != 2] = np.nan
        self.bare_labels.frombytes(labels.tobytes())

    # --- at the end ---------------------------------------------------------------------------

    def finish(self, files: RecordSet, shards: Sequence[Shard]) -> None:
        """Takes what was walked, when it was."""
        self.files, self.shards = files, shards

    @property
    def rec(self) -> str:
        """The set's first .rec, or what stands for it where none is there."""
        return (*self.files.recs, *self.files.missing)[0]

    @cached_property
    def doubled(self) -> Places:
        """The records whose id an earlier record has."""
        import numpy as np

        ids: list[npt.NDArray[np.uint64]] = []
        for shard in self.shards:
            own = np.frombuffer(shard.ids, "u8").copy() if shard.ids else np.zeros(0, "u8")
            ids.append(np.delete(own, shard.without_id) if len(shard.without_id) else own)
        every = np.concatenate(ids) if ids else np.zeros(0, "u8")
        places = Places()
        ordered = np.sort(every)
        if not (ordered[1:] == ordered[:-1]).any():
            return places
        order = every.argsort(kind="stable")
        again = np.sort(order[1:][every[order][1:] == every[order][:-1]])
        places.count = len(again)
        base = 0
        for shard, own in zip(self.shards, ids, strict=True):
            numbers = np.arange(len(shard.ids))
            numbers = np.delete(numbers, shard.without_id) if len(shard.without_id) else numbers
            mine = again[(again >= base) & (again < base + len(own))] - base
            for at in mine[: MAX_PLACES - len(places.first)].tolist():
                offset = shard.offsets[int(numbers[at])]
                found = "another record before has the same id"
                places.first.append(Place(shard.path, offset, int(own[at]), found))
            base += len(own)
        return places

    @cached_property
    def faces(self) -> Faces | None:
        """The set by its keys, as InsightFace reads it; None where there is no sound index."""
        if len(self.shards) != 1 or len(self.files.recs) != 1 or not self.files.idxs[0]:
            return None
        return Faces.read(self.files.idxs[0], self.shards[0], self)


@dataclass(frozen=True, slots=True)
class Faces:
    """Records by key. keys: in order; positions: of the record of each, NOWHERE where none begins
    at the offset; bare: whether the record at each position has no image; ranges: its two labels;
    header: the record of key 0, if it is there; header_at: its position."""

    shard: Shard
    keys: npt.NDArray[np.uint64]
    positions: npt.NDArray[np.int64]
    bare: npt.NDArray[np.bool_]
    ranges: npt.NDArray[np.float64]
    header: ImageRecord | None
    header_at: int

    @staticmethod
    def read(path: str, shard: Shard, watch: Watch) -> Faces | None:
        """Reads the index; None where verify has told what is wrong with it."""
        import numpy as np

        try:
            if os.path.getsize(path) > largest_index(len(shard.offsets)):
                return None
            with open(path, "rb") as stream:
                columns = parse_columns(stream.read())
        except OSError:
            return None
        if columns is None or not shard.offsets:
            return None
        keys, places = columns
        offsets = np.frombuffer(shard.offsets, "u8")
        at = offsets.searchsorted(places).clip(max=len(offsets) - 1)
        order = keys.argsort(kind="stable")
        positions = np.where(offsets[at] == places, at, NOWHERE)[order]
        bare = np.zeros(len(offsets), bool)
        ranges = np.full((len(offsets), 2), np.nan) if watch.bare else np.zeros((0, 2))
        if watch.bare:
            bare[np.frombuffer(watch.bare, "i8")] = True
            ranges[bare] = np.frombuffer(watch.bare_labels, "f8").reshape(-1, 2)
        faces = Faces(shard, keys[order], positions, bare, ranges, None, NOWHERE)
        header_at = int(faces.find(np.zeros(1, "u8"))[0])
        header = _read_record(shard, header_at)
        return Faces(shard, keys[order], positions, bare, ranges, header, header_at)

    def find(self, wanted: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The position of the record of each key, as the last line that has it says."""
        import numpy as np

        at = self.keys.searchsorted(wanted, side="right") - 1
        there = (at >= 0) & (self.keys[at] == wanted)
        return np.where(there, self.positions[at], NOWHERE)

    def identities(self) -> range | None:
        """The keys of the identities, where the record of key 0 says so."""
        if self.header is None or not self.header.flag:
            return None
        return identities.identity_keys(0, self.header.labels, len(self.header.image))

    def place(self, position: int, key: int, found: str) -> Place:
        """What was found of a key."""
        if position == NOWHERE:
            return Place(self.shard.path, None, key, found)
        return Place(self.shard.path, self.shard.offsets[position], key, found)


def _read_record(shard: Shard, position: int) -> ImageRecord | None:
    if position == NOWHERE or position in shard.without_id:
        return None
    try:
        with open(shard.path, "rb") as stream:
            reader = RecordReader(stream, shard.path)
            reader.seek(shard.offsets[position])
            return decode(reader.payload() or b"")
    except OSError:
        return None


def _always(found: str) -> Callable[[int], str]:
    return lambda _: found
