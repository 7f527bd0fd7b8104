"""The payload of a record that carries an image: id, labels and image bytes; knows no files.

    <I f Q Q>     24 bytes: flag, label, id, id2
    flag x f32    the labels, when flag > 0
    the rest      the image file's bytes

One label stands in the header with flag 0. Several are an array: flag is their count, the header's
label is 0, and they follow as float32. Both are little-endian. The layout is that of MXNet's
image_recordio.h and its Python recordio.pack.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from im2rec.errors import PayloadError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2
LABEL_SIZE = 4  # bytes of a float32
_WORD = 4  # bytes; the header is six words: flag, label, and two each of id and id2


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image record as read.

    id, id2: u64. labels: the label array if flag > 0, else the header's one label. header_label:
    what the header holds, which im2rec.cc fills with the first label of an array. image: the image
    file's bytes, b"" for a record without one.
    """

    id: int
    id2: int
    flag: int
    header_label: float
    labels: tuple[float, ...]
    image: bytes


def encode(record_id: int, labels: Sequence[float], image: bytes) -> bytes:
    """The payload for one image. Raises ValueError as `encode_header` does."""
    return encode_header(record_id, labels) + image


def encode_header(record_id: int, labels: Sequence[float]) -> bytes:
    """What stands in a payload before the image.

    One label goes into the header; two or more become the array. labels are rounded to float32.
    Raises ValueError for no label, and for an id outside 0..2**64-1 or a label beyond float32.
    """
    if not labels:
        raise ValueError("an image record needs at least one label")
    try:
        if len(labels) == 1:
            return HEADER.pack(0, labels[0], record_id, 0)
        count = len(labels)
        return HEADER.pack(count, 0.0, record_id, 0) + struct.pack(f"<{count}f", *labels)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"id {record_id}, labels {tuple(labels)[:8]}: {error}") from error


def decode(payload: bytes) -> ImageRecord:
    """Reads a payload. Raises PayloadError where it is shorter than its header says."""
    flag, label, record_id, id2 = decode_header(payload)
    end = HEADER.size + flag * LABEL_SIZE
    labels = struct.unpack_from(f"<{flag}f", payload, HEADER.size) if flag else (label,)
    return ImageRecord(record_id, id2, flag, label, labels, payload[end:])


def decode_header(payload: bytes) -> tuple[int, float, int, int]:
    """A payload's flag, header label, id and id2.

    Raises PayloadError where the payload is shorter than the header and the labels it announces.
    """
    if len(payload) < HEADER.size:
        raise PayloadError(
            f"{len(payload)} bytes, expected at least the {HEADER.size} of an image record's header"
        )
    flag, label, record_id, id2 = HEADER.unpack_from(payload)
    left = len(payload) - HEADER.size
    if flag * LABEL_SIZE > left:
        raise PayloadError(
            f"the header announces {flag} labels ({flag * LABEL_SIZE} bytes), "
            f"but {left} bytes follow"
        )
    return flag, label, record_id, id2


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of many payloads, as columns.

    whole: whether `decode` would read the payload; the other columns mean nothing where it would
    not. ids: u64; flags: u32; header_labels: f32; widths: i64, how many labels each has; labels:
    i64, where the words of those begin; images: i64, where the images' bytes begin, in words;
    image_bytes: i64. words: u32, what all were read from.
    """

    whole: npt.NDArray[np.bool_]
    ids: npt.NDArray[np.uint64]
    flags: npt.NDArray[np.uint32]
    header_labels: npt.NDArray[np.float32]
    widths: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    images: npt.NDArray[np.int64]
    image_bytes: npt.NDArray[np.int64]
    words: npt.NDArray[np.uint32]

    def first_labels(self) -> npt.NDArray[np.float32]:
        """The first of each one's labels."""
        return self.words.take(self.labels, mode="clip").view("<f4")

    def count_widths(self) -> Counter[int]:
        """How many payloads have how many labels."""
        import numpy as np

        counts = np.bincount(self.widths[self.whole])
        return Counter({int(width): int(counts[width]) for width in counts.nonzero()[0]})

    def label_tuples(self) -> Iterator[tuple[float, ...]]:
        """Each one's labels as `decode` has them; () where it has none."""
        firsts, places = self.first_labels().tolist(), self.labels.tolist()
        widths = (self.widths * self.whole).tolist()
        for first, at, width in zip(firsts, places, widths, strict=True):
            yield (
                (first,) if width == 1 else tuple(self.words[at : at + width].view("<f4").tolist())
            )

    def finite(self) -> npt.NDArray[np.bool_]:
        """Whether all labels of each are finite numbers, and the header's own too."""
        import numpy as np

        finite = np.isfinite(self.header_labels)
        arrays = np.flatnonzero(self.whole & (self.flags > 0))
        ends = np.cumsum(self.widths[arrays])  # of each one's labels among those of all
        if len(arrays):
            before = self.labels[arrays] - (ends - self.widths[arrays])
            places = np.arange(ends[-1]) + np.repeat(before, self.widths[arrays])
            wrong = np.flatnonzero(~np.isfinite(self.words[places].view("<f4")))
            finite[arrays[np.searchsorted(ends, wrong, side="right")]] = False
        return finite

    def as_encoded(self) -> npt.NDArray[np.bool_]:
        """Whether each header is one that `encode` writes: id2 is 0, and either one label stands in
        it, or more in the array and 0 in it."""
        id2 = self.images - self.flags - 2  # the last two words of the header
        low, high = (self.words.take(id2 + at, mode="clip") for at in range(2))
        arrays = (self.flags > 1) & (self.header_labels.view("<u4") == 0)
        encoded: npt.NDArray[np.bool_] = (low | high == 0) & ((self.flags == 0) | arrays)
        return encoded


def decode_headers(
    words: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Headers:
    """Reads the headers of many payloads at once. words: the bytes they stand in; starts: where
    each begins in those; lengths: of each, in bytes."""
    import numpy as np

    flags, bits, low, high = (words.take(starts + at, mode="clip") for at in range(4))
    one = flags == 0
    header = HEADER.size // _WORD
    image_bytes = lengths - HEADER.size - flags * np.int64(LABEL_SIZE)
    return Headers(
        whole=image_bytes >= 0,
        ids=high.astype(np.uint64) << np.uint64(32) | low,
        flags=flags,
        header_labels=bits.view("<f4"),
        widths=np.where(one, 1, flags).astype("i8"),
        labels=starts + np.where(one, 1, header),
        images=starts + header + flags,
        image_bytes=image_bytes,
        words=words,
    )
