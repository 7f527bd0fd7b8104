"""Image records: golden payloads, bytes worked out by hand, headers that lie."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

from im2rec.errors import PayloadError
from im2rec.image_record import (
    ImageRecord,
    decode,
    decode_header,
    decode_headers,
    encode,
    encode_header,
)

GIVEN: list[dict[str, Any]] = json.loads(
    (GOLDEN / "recordio" / "image_records.json").read_text("ascii")
)
MAX_ID = 2**64 - 1

float32s = st.floats(width=32, allow_nan=False)


def as_tuple(label: float | list[float]) -> tuple[float, ...]:
    return tuple(label) if isinstance(label, list) else (label,)


# Golden payloads


@pytest.mark.parametrize("one", GIVEN, ids=lambda one: f"key{one['key']}")
def test_what_mxnet_packed_is_decoded(one: dict[str, Any]) -> None:
    record = decode(bytes.fromhex(one["payload_hex"]))
    assert record.flag == one["flag"]
    assert record.labels == as_tuple(one["label"])
    assert record.header_label == (0.0 if one["flag"] else one["label"])
    assert (record.id, record.id2) == (one["id"], one["id2"])
    assert record.image == one["body"].encode()


@pytest.mark.parametrize(
    "one",
    # encode writes no id2, and one label never as an array
    [one for one in GIVEN if one["id2"] == 0 and one["flag"] != 1],
    ids=lambda one: f"key{one['key']}",
)
def test_what_mxnet_packed_is_encoded_byte_for_byte(one: dict[str, Any]) -> None:
    payload = encode(one["id"], as_tuple(one["label"]), one["body"].encode())
    assert payload.hex() == one["payload_hex"]


def test_the_golden_payloads_hold_what_these_tests_rely_on() -> None:
    assert {one["flag"] for one in GIVEN} >= {0, 1, 3, 237}
    assert any(one["id2"] for one in GIVEN)


# Encoding


@pytest.mark.parametrize(
    ("record_id", "labels", "image", "expected"),
    [
        (7, (3,), b"img", "00000000 00004040 0700000000000000 0000000000000000 696d67"),
        (0, (-0.0,), b"", "00000000 00000080 0000000000000000 0000000000000000"),
        (
            1,
            (1, -2),
            b"x",
            "02000000 00000000 0100000000000000 0000000000000000 0000803f 000000c0 78",
        ),
        (MAX_ID, (0.1,), b"", "00000000 cdcccc3d ffffffffffffffff 0000000000000000"),
        (2**63, (16777216.0,), b"", "00000000 0000804b 0000000000000080 0000000000000000"),
        # The framing's magic as an id: legal, and cut by the framing inside the header.
        (3470205706, (0,), b"", "00000000 00000000 0a23d7ce00000000 0000000000000000"),
        (0, (math.inf,), b"", "00000000 0000807f 0000000000000000 0000000000000000"),
        (0, (-math.inf,), b"", "00000000 000080ff 0000000000000000 0000000000000000"),
        (0, (math.nan,), b"", "00000000 0000c07f 0000000000000000 0000000000000000"),
        (0, (1e-50,), b"", "00000000 00000000 0000000000000000 0000000000000000"),
    ],
)
def test_a_payload_has_these_bytes(
    record_id: int, labels: tuple[float, ...], image: bytes, expected: str
) -> None:
    assert encode(record_id, labels, image) == bytes.fromhex(expected)


@pytest.mark.parametrize("record_id", [-1, 2**64, -(2**63), 10**30])
@pytest.mark.parametrize("labels", [(1.0,), (1.0, 2.0)])
def test_an_id_that_u64_cannot_hold_is_refused(record_id: int, labels: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"^id {record_id}, labels "):
        encode(record_id, labels, b"")


@pytest.mark.parametrize("label", [1e39, -1e39, 3.4028236e38, 10**400])
@pytest.mark.parametrize("others", [(), (1.0,)])
def test_a_label_that_float32_cannot_hold_is_refused(
    label: float, others: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"^id 5, labels \("):
        encode(5, (*others, label), b"")


def test_a_refusal_shows_the_first_labels() -> None:
    with pytest.raises(ValueError, match=r"^id -1, labels \(1, 2, 3, 4, 5, 6, 7, 8\): \w"):
        encode(-1, range(1, 100), b"")


def test_the_largest_float32_is_accepted() -> None:
    largest = float.fromhex("0x1.fffffep127")
    assert decode(encode(5, (largest, -largest), b"")).labels == (largest, -largest)


def test_a_record_without_a_label_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^an image record needs at least one label$"):
        encode(5, (), b"image")


@given(
    st.integers(0, MAX_ID),
    st.lists(float32s, min_size=1, max_size=40).map(tuple),
    st.binary(max_size=40),
)
def test_what_is_encoded_comes_back(
    record_id: int, labels: tuple[float, ...], image: bytes
) -> None:
    flag = 0 if len(labels) == 1 else len(labels)
    header_label = labels[0] if flag == 0 else 0.0
    payload = encode(record_id, labels, image)
    assert len(payload) == 24 + 4 * flag + len(image)
    assert decode(payload) == ImageRecord(record_id, 0, flag, header_label, labels, image)


@given(st.floats(-1e38, 1e38))
def test_labels_are_rounded_to_the_nearest_float32(label: float) -> None:
    [stored] = decode(encode(0, (label,), b"")).labels
    assert abs(stored - label) <= max(abs(label) * 2.0**-24, 2.0**-150)


# Decoding


def test_what_im2rec_cc_writes_is_decoded() -> None:
    # It keeps the first label in the header too.
    payload = struct.pack("<IfQQ", 3, 1.5, 9, 4) + struct.pack("<3f", 1.5, 2.5, 3.5) + b"jpeg"
    assert decode(payload) == ImageRecord(9, 4, 3, 1.5, (1.5, 2.5, 3.5), b"jpeg")


def test_an_array_of_one_label_is_decoded_as_one() -> None:
    payload = struct.pack("<IfQQ", 1, 0.0, 9, 0) + struct.pack("<f", 2.5) + b"x"
    assert decode(payload) == ImageRecord(9, 0, 1, 0.0, (2.5,), b"x")


def test_a_hundred_thousand_labels_are_decoded() -> None:
    labels = tuple(float(i) for i in range(100_000))
    record = decode(encode(1, labels, b"image"))
    assert record.labels == labels
    assert record.image == b"image"


@pytest.mark.parametrize("size", range(24))
def test_a_payload_shorter_than_a_header_is_a_payload_error(size: int) -> None:
    for read in (decode, decode_header):
        with pytest.raises(PayloadError) as caught:
            read(bytes(size))
        expected = f"{size} bytes, expected at least the 24 of an image record's header"
        assert str(caught.value) == expected


@pytest.mark.parametrize("flag", [2, 3, 2**29, 2**30, 2**31, 2**32 - 1])
@pytest.mark.parametrize("left", [0, 7])
def test_a_header_that_announces_too_many_labels_is_a_payload_error(flag: int, left: int) -> None:
    payload = struct.pack("<IfQQ", flag, 0.0, 0, 0) + bytes(left)
    for read in (decode, decode_header):
        tracemalloc.start()
        try:
            with pytest.raises(PayloadError) as caught:
                read(payload)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert str(caught.value) == (
            f"the header announces {flag} labels ({flag * 4} bytes), but {left} bytes follow"
        )
        assert peak < 100_000


def test_labels_may_take_all_that_follows() -> None:
    payload = struct.pack("<IfQQ", 2, 0.0, 0, 0) + bytes(8)
    assert decode(payload) == ImageRecord(0, 0, 2, 0.0, (0.0, 0.0), b"")


@pytest.mark.parametrize("size", range(len(bytes.fromhex(GIVEN[3]["payload_hex"]))))
def test_a_payload_cut_at_any_byte_is_a_payload_error_or_a_shorter_image(size: int) -> None:
    # Key 3: 24 bytes of header, 3 labels, 4 bytes of image.
    payload = bytes.fromhex(GIVEN[3]["payload_hex"])[:size]
    if size < 36:
        with pytest.raises(PayloadError):
            decode(payload)
    else:
        assert decode(payload) == ImageRecord(4, 0, 3, 0.0, (1.0, 2.0, 3.0), b"body"[: size - 36])


@given(st.binary(max_size=60))
def test_any_bytes_give_an_image_record_or_a_payload_error(payload: bytes) -> None:
    try:
        record = decode(payload)
    except PayloadError:
        return
    assert payload[24 + 4 * record.flag :] == record.image
    assert len(record.labels) == max(record.flag, 1)
    assert decode_header(payload)[0] == record.flag
    assert decode_header(payload)[2:] == (record.id, record.id2)


def test_nan_and_infinity_are_decoded() -> None:
    payload = struct.pack("<IfQQ", 3, 0.0, 0, 0) + struct.pack("<3f", math.nan, math.inf, -math.inf)
    labels = decode(payload).labels
    assert math.isnan(labels[0])
    assert labels[1:] == (math.inf, -math.inf)


# Many at once

numbers = st.sampled_from([0.0, 1.0, -2.5, math.nan, math.inf, -math.inf])


@st.composite
def any_payloads(draw: st.DrawFn) -> bytes:
    """An image record, or what is left of one; its flag may lie."""
    labels = draw(st.lists(numbers, max_size=5))
    flag = draw(st.sampled_from([len(labels), len(labels), len(labels), 7, 2**30, 2**32 - 1]))
    header = struct.pack("<IfQQ", flag, draw(numbers), draw(st.integers(0, MAX_ID)), 9)
    array = struct.pack(f"<{len(labels)}f", *labels)
    return (header + array + draw(st.binary(max_size=9)))[: draw(st.sampled_from([99, 99, 25, 5]))]


@given(st.lists(any_payloads(), min_size=1, max_size=12))
def test_headers_read_at_once_are_those_read_one_by_one(payloads: list[bytes]) -> None:
    padded = [b"head" + each + bytes(-len(each) % 4) for each in payloads]
    starts = np.cumsum([1] + [len(each) // 4 for each in padded])[:-1]
    data = b"".join(padded)
    lengths = np.array([len(each) for each in payloads])
    headers = decode_headers(np.frombuffer(data, "<u4"), starts, lengths)
    finite, labels = headers.finite(), list(headers.label_tuples())
    widths: Counter[int] = Counter()
    for at, payload in enumerate(payloads):
        try:
            record = decode(payload)
        except PayloadError:
            assert not headers.whole[at]
            assert labels[at] == ()
            continue
        assert headers.whole[at]
        assert (headers.ids[at], headers.flags[at]) == (record.id, record.flag)
        assert headers.widths[at] == len(record.labels)
        assert repr(float(headers.header_labels[at])) == repr(record.header_label)
        assert repr(labels[at]) == repr(record.labels)  # NaN is not itself
        assert repr(float(headers.first_labels()[at])) == repr(record.labels[0])
        assert headers.image_bytes[at] == len(record.image)
        image = 4 * int(headers.images[at])
        assert data[image : image + len(record.image)] == record.image
        assert finite[at] == all(map(math.isfinite, (*record.labels, record.header_label)))
        if finite[at]:  # struct may change the bits of a NaN
            header = encode_header(record.id, record.labels)
            assert headers.as_encoded()[at] == payload.startswith(header)
        widths[len(record.labels)] += 1
    assert headers.count_widths() == widths
