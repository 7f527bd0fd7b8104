"""Label arrays with boxes: what is built is good, and each fault is told."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from im2rec import detection

ONE = (2.0, 5.0, 3.0, 0.25, 0.25, 0.5, 0.75)
share = st.floats(0, 1, width=32)
objects = st.tuples(st.integers(0, 2**24), share, share, share, share).filter(
    lambda each: each[1] < each[3] and each[2] < each[4]
)


@given(st.lists(objects, min_size=1), st.lists(st.floats(-5, 5, width=32)), st.integers(0, 2))
def test_what_is_built_is_good_and_reads_back(
    boxes: list[tuple[float, ...]], more: list[float], extra: int
) -> None:
    boxes = [(*each, *range(extra)) for each in boxes]
    labels = detection.build(boxes, more)
    assert detection.check(labels) is None
    assert not detection.is_pad(labels)
    assert list(detection.objects(labels)) == boxes
    assert labels[:2] == (2 + len(more), 5 + extra)
    assert struct.unpack(f"<{len(labels)}f", struct.pack(f"<{len(labels)}f", *labels)) == labels


def test_no_object_is_the_pad_in_any_layout() -> None:
    assert detection.build([]) == detection.NO_OBJECT == (2, 5, -1, 0, 0, 0, 0)
    for labels in (detection.NO_OBJECT, (3, 6, 9, -1, 0, 0, 0, 0, 7)):
        assert detection.check(labels) is None
        assert detection.is_pad(labels)
    assert detection.check((2, 5, *ONE[2:], -1, 0, 0, 0, 0)) == (
        "object 2: class -1, expected a whole number from 0"
    )


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ((), "0 labels, expected A B (class x1 y1 x2 y2)"),
        ((3.0,), "1 label, expected A B (class x1 y1 x2 y2)"),
        ((1, 5, 3, 0, 0, 1, 1), "header width A 1, expected a whole number from 2"),
        ((2.5, 5, 3, 0, 0, 1, 1), "header width A 2.5, expected a whole number from 2"),
        ((-2, 5, 3, 0, 0, 1, 1), "header width A -2, expected a whole number from 2"),
        ((2, 4, 3, 0, 0, 1), "object width B 4, expected a whole number from 5"),
        ((2, 0, 3, 0, 0, 1), "object width B 0, expected a whole number from 5"),
        ((2, 5), "2 labels, and a header of 2: no object"),
        ((1e30, 5, 1), "3 labels, and a header of 1e+30: no object"),
        ((2, 5, 0, 0, 0, 1), "4 labels behind the header, expected a multiple of B, 5"),
        ((2, 5, 0, 0, 0, 1, 1, 9), "6 labels behind the header, expected a multiple of B, 5"),
        ((2, 5, 0.5, 0, 0, 1, 1), "object 1: class 0.5, expected a whole number from 0"),
        ((2, 5, -1, 0, 0, 1, 1), "object 1: class -1, expected a whole number from 0"),
        ((2, 5, 1e9, 0, 0, 1, 1), "object 1: class 1e+09, expected a whole number from 0"),
        ((2, 5, 0, 12, 0, 30, 1),
         "object 1: x1 12, expected 0 to 1, a share of the picture's width"),
        ((2, 5, 0, 0, 0, 1, 1.01),
         "object 1: y2 1.01, expected 0 to 1, a share of the picture's height"),
        ((2, 5, 0, 0, -0.1, 1, 1),
         "object 1: y1 -0.1, expected 0 to 1, a share of the picture's height"),
        ((2, 5, 0, 0.5, 0, 0.5, 1), "object 1: x2 0.5 is not beyond x1 0.5"),
        ((2, 5, 0, 0, 0.75, 1, 0.5), "object 1: y2 0.5 is not beyond y1 0.75"),
        ((2, 5, 0, 0, 0, 1, math.nan), "label 7 is nan, expected a finite number"),
        ((math.inf, 5, 0), "label 1 is inf, expected a finite number"),
        ((2, 5, 0, 0, 0, 1, 1e300), "a number beyond float32's range"),
        # apart as float64, one number as float32
        ((2, 5, 0, 0.5, 0, 0.5 + 1e-12, 1), "object 1: x2 0.5 is not beyond x1 0.5"),
    ],
)  # fmt: skip
def test_each_fault_is_told(labels: tuple[float, ...], fault: str) -> None:
    assert detection.check(labels) == fault


def test_what_check_refuses_is_not_built() -> None:
    with pytest.raises(ValueError, match="is not beyond x1"):
        detection.build([(0, 0.5, 0, 0.5, 1)])
    with pytest.raises(ValueError, match="objects of 5 and 6 numbers"):
        detection.build([(0, 0, 0, 1, 1), (0, 0, 0, 1, 1, 1)])
    with pytest.raises(ValueError, match="object width B 4"):
        detection.build([(0, 0, 0, 1)])


@given(st.lists(st.floats()))
def test_no_array_breaks_it(labels: list[float]) -> None:
    assert detection.check(labels) is None or isinstance(detection.check(labels), str)
