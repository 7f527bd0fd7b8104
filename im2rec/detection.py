"""The label array of a picture with boxes; knows no files.

    A B [A - 2 more] (class x1 y1 x2 y2 [B - 5 more])*

A: width of the header, A and B themselves included; B: width of an object. Corners are shares of
the picture's width and height, from the top left. The layout is that of MXNet's ImageDetIter and
ImageDetRecordIter, of GluonCV's RecordFileDetection, and, with A 2 and B 5, of SageMaker's object
detection. All numbers are float32, and are judged as such.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence

HEADER_WIDTH = 2  # the least, and what SageMaker asks for
OBJECT_WIDTH = 5  # the same
# For a picture without any object. MXNet's ImageDetRecordIter reads it as such; its ImageDetIter
# raises an error.
NO_OBJECT = (2.0, 5.0, -1.0, 0.0, 0.0, 0.0, 0.0)
MAX_CLASS = 2**24  # beyond this float32 does not hold every whole number
_CORNERS = ("x1", "y1", "x2", "y2")

Object = tuple[float, ...]  # class, x1, y1, x2, y2, and more where the layout has more


def build(objects: Iterable[Sequence[float]], more: Sequence[float] = ()) -> tuple[float, ...]:
    """The label array of these objects, all of one width; the pad where there is none.

    more: what follows A and B in the header. Raises ValueError with what `check` says of it.
    """
    those = [tuple(each) for each in objects]
    if not those:
        return no_object()
    widths = {len(each) for each in those}
    if len(widths) > 1:
        raise ValueError(f"objects of {' and '.join(map(str, sorted(widths)))} numbers")
    header = (float(HEADER_WIDTH + len(more)), float(widths.pop()), *more)
    labels = as_stored([*header, *(number for each in those for number in each)])
    fault = check(labels)
    if fault:
        raise ValueError(fault)
    return labels


def check(labels: Sequence[float]) -> str | None:
    """What is wrong with a label array, the first fault; None where nothing is."""
    try:
        stored = as_stored(labels)
    except OverflowError:
        return "a number beyond float32's range"
    fault = _check_layout(stored)
    if fault or is_pad(stored):
        return fault
    for number, each in enumerate(objects(stored), 1):
        fault = _check_object(each)
        if fault:
            return f"object {number}: {fault}"
    return None


def no_object(width: int = OBJECT_WIDTH) -> tuple[float, ...]:
    """The pad: the label array of a picture without any object, beside those whose objects have
    this width."""
    return (float(HEADER_WIDTH), float(width), *NO_OBJECT[2:], *[0.0] * (width - OBJECT_WIDTH))


def is_pad(labels: Sequence[float]) -> bool:
    """Whether a label array whose layout is good says that the picture has no object."""
    first, width = int(labels[0]), int(labels[1])
    return len(labels) == first + width and tuple(labels[first : first + 5]) == NO_OBJECT[2:]


def objects(labels: Sequence[float]) -> Iterator[Object]:
    """The objects of a label array whose layout is good, the pad included."""
    first, width = int(labels[0]), int(labels[1])
    for at in range(first, len(labels), width):
        yield tuple(labels[at : at + width])


def as_stored(labels: Sequence[float]) -> tuple[float, ...]:
    """The labels as a record holds them. Raises OverflowError beyond float32's range."""
    layout = struct.Struct(f"<{len(labels)}f")
    return layout.unpack(layout.pack(*labels))


def _check_layout(labels: tuple[float, ...]) -> str | None:
    if not all(map(math.isfinite, labels)):
        at = next(at for at, number in enumerate(labels) if not math.isfinite(number))
        return f"label {at + 1} is {labels[at]}, expected a finite number"
    count = len(labels)
    if count < HEADER_WIDTH:
        return f"{count} label{'s' * (count != 1)}, expected A B (class x1 y1 x2 y2)"
    for name, number, least in (
        ("header width A", labels[0], HEADER_WIDTH),
        ("object width B", labels[1], OBJECT_WIDTH),
    ):
        if number < least or not number.is_integer():
            return f"{name} {number:g}, expected a whole number from {least}"
    first, width = int(labels[0]), int(labels[1])
    if count <= first:
        return f"{count} labels, and a header of {labels[0]:g}: no object"
    if (count - first) % width:
        return f"{count - first} labels behind the header, expected a multiple of B, {width}"
    return None


def _check_object(each: Object) -> str | None:
    kind, x1, y1, x2, y2 = each[:OBJECT_WIDTH]
    if not (0 <= kind <= MAX_CLASS and kind.is_integer()):
        return f"class {kind:g}, expected a whole number from 0"
    for name, number in zip(_CORNERS, each[1:], strict=False):
        if not 0 <= number <= 1:
            what = "width" if name[0] == "x" else "height"
            return f"{name} {number:g}, expected 0 to 1, a share of the picture's {what}"
    if x1 >= x2:
        return f"x2 {x2:g} is not beyond x1 {x1:g}"
    if y1 >= y2:
        return f"y2 {y2:g} is not beyond y1 {y1:g}"
    return None
