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
from collections.abc import Sequence
from dataclasses import dataclass

from im2rec.errors import PayloadError

HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2
LABEL_SIZE = 4  # bytes of a float32


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
