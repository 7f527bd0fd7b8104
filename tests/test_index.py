"""The index: golden files, and lines that are odd, cut or hostile."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

from im2rec.errors import IndexLineError
from im2rec.index import IndexEntry, format_columns, format_index, parse_columns, parse_index

INDEXES = sorted(GOLDEN.rglob("*.idx"))


def test_there_are_golden_files() -> None:
    assert len(INDEXES) == 16  # 12 packs, rec2idx.py's, and 3 of recordio


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_mxnet_wrote_is_read_and_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    entries, faults = parse_index(data, str(path))
    assert faults == []
    assert len(entries) == data.count(b"\n") > 0
    assert format_index(entries) == data


def test_an_index_is_these_entries() -> None:
    data = b"7\t0\n0\t16\n18446744073709551615\t4294967296\n"
    pairs = [(7, 0), (0, 16), (2**64 - 1, 2**32)]
    assert format_index(pairs) == data
    assert parse_index(data, "x.idx") == ([IndexEntry(*pair) for pair in pairs], [])


def test_an_empty_index_has_no_entries() -> None:
    assert format_index([]) == b""
    assert parse_index(b"", "x.idx") == ([], [])


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1)), max_size=20))
def test_what_is_written_is_read(pairs: list[tuple[int, int]]) -> None:
    entries, faults = parse_index(format_index(pairs), "x.idx")
    assert entries == pairs
    assert faults == []


def test_a_line_may_end_with_crlf() -> None:
    entries, faults = parse_index(b"1\t0\r\n2\t12\n3\t24\r\n", "x.idx")
    assert entries == [(1, 0), (2, 12), (3, 24)]
    assert faults == []


def test_duplicate_keys_and_leading_zeros_are_no_fault_of_the_line() -> None:
    # Whether keys are unique and offsets right is judged with the .rec at hand.
    entries, faults = parse_index(b"1\t0\n1\t0\n007\t012\n", "x.idx")
    assert entries == [(1, 0), (1, 0), (7, 12)]
    assert faults == []


ODD_LINES = {
    "blank": (b"", "''"),
    "blanks": (b"   ", "'   '"),
    "only CR": (b"\r", r"'\r'"),
    "two CRs": (b"1\t0\r\r", r"'1\t0\r\r'"),
    "one field": (b"17", "'17'"),
    "three fields": (b"1\t2\t3", r"'1\t2\t3'"),
    "spaces for a TAB": (b"1 0", "'1 0'"),
    "space before": (b" 1\t0", r"' 1\t0'"),
    "space after": (b"1\t0 ", r"'1\t0 '"),
    "empty key": (b"\t0", r"'\t0'"),
    "empty offset": (b"1\t", r"'1\t'"),
    "negative key": (b"-1\t0", r"'-1\t0'"),
    "negative offset": (b"1\t-4", r"'1\t-4'"),
    "plus": (b"+1\t0", r"'+1\t0'"),
    "fraction": (b"1.0\t0", r"'1.0\t0'"),
    "exponent": (b"1e3\t0", r"'1e3\t0'"),
    "hexadecimal": (b"0x1\t0", r"'0x1\t0'"),
    "underscore": (b"1_0\t0", r"'1_0\t0'"),
    "text key": (b"cat\t0", r"'cat\t0'"),
    "comment": (b"# key offset", "'# key offset'"),
    "NUL": (b"1\x00\t0", r"'1\x00\t0'"),
    "byte-order mark": (b"\xef\xbb\xbf1\t0", r"'\xef\xbb\xbf1\t0'"),
    "Arabic digit": ("١\t0".encode(), r"'\xd9\xa1\t0'"),
    "Latin-1 superscript": (b"\xb2\t0", r"'\xb2\t0'"),
    "key of 21 digits": (b"1" * 21 + b"\t0", r"'111111111111111111111\t0'"),
    "offset of 20 digits": (b"1\t" + b"1" * 20, r"'1\t11111111111111111111'"),
    "five thousand digits": (b"1\t" + b"9" * 5000, "'1\\t" + "9" * 38 + "'..."),
    "forty characters": (b"x" * 40, f"'{'x' * 40}'"),
    "forty-one": (b"x" * 41, f"'{'x' * 40}'..."),
    "a quotation mark": (b"it's", '"it\'s"'),
}


@pytest.mark.parametrize(("line", "shown"), ODD_LINES.values(), ids=ODD_LINES)
def test_an_odd_line_is_a_fault_with_its_number_and_the_others_are_read(
    line: bytes, shown: str
) -> None:
    entries, faults = parse_index(b"1\t0\n" + line + b"\n3\t24\n", "x.idx")
    assert entries == [(1, 0), (3, 24)]
    [fault] = faults
    assert isinstance(fault, IndexLineError)
    assert str(fault) == f"x.idx:2: found {shown}, expected key TAB offset"


@pytest.mark.parametrize("tail", [b"2\t12", b"2\t", b"2", b"2\t12\r", b"junk"])
def test_a_last_line_without_an_end_is_not_trusted(tail: bytes) -> None:
    # 2 TAB 12 may have been 2 TAB 1288.
    entries, faults = parse_index(b"1\t0\n" + tail, "x.idx")
    assert entries == [(1, 0)]
    assert [str(fault) for fault in faults] == [
        f"x.idx:2: the last line {repr(tail)[1:]} has no end: the file is cut"
    ]


@pytest.mark.parametrize("size", range(len(b"10\t0\n11\t123\n12\t4567\n")))
def test_an_index_cut_at_any_byte_gives_only_whole_lines(size: int) -> None:
    data = b"10\t0\n11\t123\n12\t4567\n"[:size]
    entries, faults = parse_index(data, "x.idx")
    assert entries == [(10, 0), (11, 123), (12, 4567)][: data.count(b"\n")]
    assert len(faults) == (0 if data == b"" or data.endswith(b"\n") else 1)


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\t", b"1", b"42", b" ", b"-", b"\xff"])).map(b"".join)
)
def test_any_bytes_give_an_entry_or_a_fault_for_each_line(data: bytes) -> None:
    entries, faults = parse_index(data, "x.idx")
    lines = data.split(b"\n")
    assert len(entries) + len(faults) == len(lines) - (lines[-1] == b"")
    assert [fault.line for fault in faults] == sorted({fault.line for fault in faults})
    for fault in faults:
        assert "\n" not in str(fault)


def test_a_picture_is_no_index() -> None:
    entries, faults = parse_index(b"\x89PNG\r\n\x1a\n\x00\x00", "x.idx")
    assert entries == []
    assert [str(fault) for fault in faults] == [
        r"x.idx:1: found '\x89PNG\r', expected key TAB offset",
        r"x.idx:2: found '\x1a', expected key TAB offset",
        r"x.idx:3: the last line '\x00\x00' has no end: the file is cut",
    ]


# Columns


def columns(data: bytes) -> list[tuple[int, int]] | None:
    """The pairs that parse_columns reads."""
    found = parse_columns(data)
    if found is None:
        return None
    assert [column.dtype for column in found] == [np.uint64, np.uint64]
    keys, offsets = (column.tolist() for column in found)
    assert len(keys) == len(offsets)
    return list(zip(keys, offsets, strict=True))


def by_line(data: bytes) -> list[tuple[int, int]] | None:
    """What parse_columns ought to say, line by line."""
    *lines, tail = data.split(b"\n")
    strict = [re.fullmatch(rb"([0-9]{1,20})\t([0-9]{1,19})", line) for line in lines]
    pairs = [(int(match[1]), int(match[2])) for match in strict if match]
    if tail or not lines or len(pairs) < len(lines) or max(pairs)[0] >= 2**64:
        return None
    return pairs


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_columns_of_what_mxnet_wrote_are_its_entries(path: Path) -> None:
    data = path.read_bytes()
    assert columns(data) == parse_index(data, str(path))[0]


EDGES = [10**n + step for n in range(20) for step in (-1, 0)]  # where a number gets a digit more
EDGES += [power + step for power in (2**31, 2**32, 2**53, 2**63) for step in (-1, 0, 1)]
EDGES += [2**64 - 2, 2**64 - 1]


@given(st.data())
def test_columns_are_exact(data: st.DataObject) -> None:
    keys = st.integers(0, 2**64 - 1) | st.sampled_from(EDGES)
    offsets = st.integers(0, 10**19 - 1) | st.sampled_from([e for e in EDGES if e < 10**19])
    pairs = data.draw(st.lists(st.tuples(keys, offsets), min_size=1, max_size=20))
    assert columns(format_index(pairs)) == pairs


def test_columns_take_leading_zeros_and_duplicates() -> None:
    data = b"007\t" + b"0" * 18 + b"4\n" + b"0" * 19 + b"7\t000\n7\t0\n"
    assert columns(data) == [(7, 4), (7, 0), (7, 0)]


@pytest.mark.parametrize(
    "key", [2**64, 2**64 + 1, 2**64 + 7, 2 * 10**19, 10**20 - 1, f"0{2**64}", f"0{2**64 - 1}"]
)
def test_there_are_no_columns_where_a_key_is_beyond_u64(key: object) -> None:
    most = 2**64 - 1
    assert columns(f"{key}\t0\n".encode()) is None
    assert columns(f"{most}\t0\n{key}\t{most // 10}\n{most}\t8\n".encode()) is None


@pytest.mark.parametrize("line", [line for line, _ in ODD_LINES.values()], ids=ODD_LINES)
def test_there_are_no_columns_where_a_line_is_odd(line: bytes) -> None:
    assert columns(b"1\t0\n" + line + b"\n3\t24\n") is None
    assert columns(line + b"\n") is None
    assert columns(b"1\t0\n" + line + b"\r") is None


def test_there_are_no_columns_of_an_empty_index_or_with_crlf() -> None:
    assert columns(b"") is None
    assert columns(b"1\t0\r\n") is None


_PIECES = [b"\n", b"\r", b"\t", b"1", b"42", b" ", b"-", b"/", b":", b"\xff", b"7\t0\n"]


@given(st.lists(st.sampled_from([*_PIECES, b"1\t12\n", b"18446744073709551615"])).map(b"".join))
def test_columns_of_any_bytes_are_those_of_the_lines_or_none(data: bytes) -> None:
    assert columns(data) == by_line(data)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1)), max_size=20))
def test_columns_are_written_as_pairs_are(pairs: list[tuple[int, int]]) -> None:
    keys, offsets = (np.array([pair[at] for pair in pairs], np.uint64) for at in range(2))
    assert format_columns(keys, offsets) == format_index(pairs)
