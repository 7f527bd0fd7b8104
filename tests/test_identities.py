"""InsightFace's identity records, told from others; the golden file is one of MXNet's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import GOLDEN

from im2rec import image_record, recordio
from im2rec.identities import identity_keys, image_keys, is_exact


def test_the_golden_file_s_header_and_identities_are_known() -> None:
    stem = str(GOLDEN / "recordio" / "insightface")
    with recordio.MXIndexedRecordIO(stem + ".idx", stem + ".rec", "r") as reader:
        records = {key: image_record.decode(reader.read_idx(key)) for key in reader.keys}
    headers = {k: identity_keys(k, each.labels, len(each.image)) for k, each in records.items()}
    assert {key: keys for key, keys in headers.items() if keys} == {0: range(5, 7)}
    assert [image_keys(records[k].labels, len(records[k].image)) for k in (5, 6)] == [
        range(1, 3),
        range(3, 5),
    ]
    assert image_keys(records[1].labels, len(records[1].image)) is None


@pytest.mark.parametrize(
    ("key", "labels", "size"),
    [
        (1, (5.0, 7.0), 0),
        (0, (5.0,), 0),
        (0, (5.0, 7.0, 9.0), 0),
        (0, (5.0, 7.0), 100),
        (0, (7.0, 5.0), 0),
        (0, (5.5, 7.0), 0),
        (0, (0.0, 7.0), 0),
        (0, (-1.0, 7.0), 0),
        (0, (math.nan, 7.0), 0),
        (0, (1.0, math.inf), 0),
        (0, (1.0, 7.0), 0),  # then there would be no image before them
        (0, (2.0, 2.0**31 + 256), 0),
    ],
)
def test_what_is_no_identity_header(key: int, labels: tuple[float, ...], size: int) -> None:
    assert identity_keys(key, labels, size) is None


def test_the_header_of_glint360k_is_known() -> None:
    """17,091,657 images and 360,232 identities: beyond 2**24, and yet whole in float32."""
    assert identity_keys(0, (17091658.0, 17451890.0), 0) == range(17091658, 17451890)


@pytest.mark.parametrize("power", [23, 24, 25, 26, 30])
def test_a_key_is_exact_where_float32_has_it(power: int) -> None:
    for key in (2**power + step for step in range(-9, 10)):
        assert is_exact(key) == (int(np.float32(key)) == key), key
