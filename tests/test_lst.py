"""Lists: what is read, what is refused and in which words, and what is written."""

from __future__ import annotations

import hashlib
import math
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from im2rec.errors import InputError, ListError
from im2rec.lst import (
    Entry,
    ImageList,
    as_float32,
    format_float32,
    format_label,
    format_list,
    format_row,
    format_rows,
    parse_row,
    read_list,
    renumbered,
    row_label,
)

LISTS = sorted(GOLDEN.rglob("*.lst"))


def listed(data: bytes) -> list[Entry]:
    return list(ImageList("x.lst", data))


def refused(data: bytes) -> ListError:
    with pytest.raises(ListError) as caught:
        ImageList("x.lst", data)
    return caught.value


# Golden files


def test_there_are_golden_files() -> None:
    assert len(LISTS) == 21  # 9 of lists, 12 of packs


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_im2rec_py_wrote_is_read_and_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    images = read_list(str(path))
    expected = []
    for line in data.decode().splitlines():
        row = line.split("\t")
        expected.append(Entry(int(row[0]), tuple(float(label) for label in row[1:-1]), row[-1]))
    assert list(images) == expected
    if "lists" in path.parts:  # those of packs were written by hand
        assert format_list(images) == data


# Reading


def test_a_list_is_these_entries() -> None:
    data = "7\t3\tant/a b.jpg\n0\t0.5\t-2\tbee/ü.png\n".encode()
    images = ImageList("x.lst", data)
    first, second = Entry(7, (3.0,), "ant/a b.jpg"), Entry(0, (0.5, -2.0), "bee/ü.png")
    assert list(images) == [first, second]
    assert len(images) == 2
    assert images.label_widths == {1: 1, 2: 1}
    assert images.leaves_root == []
    assert images.sha256 == hashlib.sha256(data).hexdigest()
    assert images.path == "x.lst"


PLAIN = b"0\t1\ta.jpg\n1\t2\tb.jpg\n"


@pytest.mark.parametrize(
    "data",
    [
        b"0\t1\ta.jpg\r\n1\t2\tb.jpg\r\n",
        b"0\t1\ta.jpg\n1\t2\tb.jpg\r\n",
        b"\xef\xbb\xbf0\t1\ta.jpg\n1\t2\tb.jpg\n",
        b"\xef\xbb\xbf\n0\t1\ta.jpg\n1\t2\tb.jpg\n",
        b"0\t1\ta.jpg\n1\t2\tb.jpg",
        b"0\t1\ta.jpg\n1\t2\tb.jpg\r",
        b"\n\r\n0\t1\ta.jpg\n  \n\t\t\n1\t2\tb.jpg\n\n\n",
        b"0\t1.000000\ta.jpg\n1\t2.0\tb.jpg\n",
        b"0\t1e0\ta.jpg\n1\t+2\tb.jpg\n",
        b"00\t01\ta.jpg\n01\t2.\tb.jpg\n",
        b" 0 \t 1 \ta.jpg\n1\t2\tb.jpg\n",
    ],
)
def test_what_means_the_same_is_read_the_same(data: bytes) -> None:
    assert listed(data) == listed(PLAIN) == [Entry(0, (1.0,), "a.jpg"), Entry(1, (2.0,), "b.jpg")]


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b" \n\t\n\r"])
def test_a_list_without_rows_is_an_empty_list(data: bytes) -> None:
    images = ImageList("x.lst", data)
    assert (list(images), len(images), images.label_widths) == ([], 0, {})


@pytest.mark.parametrize(
    "path", [" a.jpg", "a.jpg ", "a\rb.jpg", "a\x0bb.jpg", "a\u2028b.jpg", "\ufeffa.jpg", '"a".jpg']
)
def test_a_path_is_taken_as_it_is(path: str) -> None:
    assert listed(f"0\t1\t{path}\n".encode()) == [Entry(0, (1.0,), path)]


def test_ids_may_be_all_of_u64_in_any_order() -> None:
    data = b"18446744073709551615\t0\ta\n0\t0\tb\n9223372036854775808\t0\tc\n%040d\t0\td\n" % 5
    assert [entry.id for entry in listed(data)] == [2**64 - 1, 0, 2**63, 5]


def test_a_row_of_a_hundred_thousand_columns_is_read() -> None:
    numbers = [str(i) for i in range(99_998)]
    images = ImageList("x.lst", "\t".join(["5", *numbers, "a.jpg\n"]).encode())
    assert images.label_widths == {99_998: 1}
    assert list(images) == [Entry(5, tuple(map(float, range(99_998))), "a.jpg")]


def test_rows_and_line_numbers_go_their_own_ways() -> None:
    images = ImageList("x.lst", b"\xef\xbb\xbf\n10\t0\ta\r\n\n\n11\t0\tb\n  \n12\t0\tc")
    a, b, c = (Entry(10, (0.0,), "a"), Entry(11, (0.0,), "b"), Entry(12, (0.0,), "c"))
    assert list(images.numbered()) == [(2, a), (5, b), (7, c)]
    assert list(images.rows(0, 3)) == list(images) == [a, b, c]
    assert list(images.rows(1, 2)) == [b]
    assert list(images.rows(2, 99)) == [c]
    assert list(images.rows(3, 3)) == []


@pytest.mark.parametrize(
    ("path", "leaves"),
    [
        ("/a.jpg", True),
        ("//a.jpg", True),
        ("..", True),
        ("../a.jpg", True),
        ("a/../../b.jpg", True),
        ("a/../b.jpg", True),  # where `a` is a link, this is anywhere
        ("a/..", True),
        ("a.jpg", False),
        ("./a.jpg", False),
        ("a..b/c.jpg", False),
        ("..a/b..", False),
        ("a/.../b.jpg", False),
    ],
)
def test_rows_whose_path_may_leave_root_are_known_by_line(path: str, leaves: bool) -> None:
    images = ImageList("x.lst", f"0\t1\tok.jpg\n\n1\t1\t{path}\n".encode())
    assert images.leaves_root == ([3] if leaves else [])


def test_a_list_costs_little_more_memory_than_its_file() -> None:
    data = b"".join(b"%d\t%d\tclass/image_%d.jpg\n" % (i, i % 10, i) for i in range(30_000))
    tracemalloc.start()
    try:
        images = ImageList("x.lst", data)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(images) == 30_000
    assert kept < 12 * 30_000  # besides data: 8 bytes a row, and the array's spare room


@pytest.mark.parametrize("most", [2**62, 10**5])
def test_a_list_is_checked_in_little_memory_whatever_its_ids(most: int) -> None:
    ids = random.Random(1).sample(range(most), 10**5)
    data = b"".join(b"%d\t%d\tclass/image.jpg\n" % (number, number % 10) for number in ids)
    tracemalloc.start()
    try:
        ImageList("x.lst", data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 45 * 10**5  # a set of the ids alone would take more


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("missing.lst", "No such file or directory"),
        ("", "Is a directory"),
        ("file.lst/x.lst", "Not a directory"),
    ],
)
def test_a_list_that_cannot_be_read_is_an_input_error(
    name: str, found: str, tmp_path: Path
) -> None:
    (tmp_path / "file.lst").write_bytes(PLAIN)
    path = str(tmp_path / name)
    with pytest.raises(InputError) as caught:
        read_list(path)
    assert str(caught.value) == f"{path}: cannot read the list: {found}"


def test_a_prefix_in_the_place_of_its_list_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "train.lst").write_bytes(PLAIN)
    with pytest.raises(InputError) as caught:
        read_list(str(tmp_path / "train"))
    assert caught.value.hint == f"did you mean {tmp_path}/train.lst?"


@pytest.mark.parametrize("path", ["recordio/framing.rec", "packs/plain/set.rec"])
def test_a_record_file_in_the_place_of_a_list_is_told_so(path: str) -> None:
    with pytest.raises(InputError) as caught:
        read_list(str(GOLDEN / path))
    assert caught.value.found == "a binary file, expected a list (.lst)"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_list_in_utf16_is_told_so(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "x.lst"
    path.write_bytes(("\ufeff" + PLAIN.decode()).encode(encoding))
    with pytest.raises(InputError) as caught:
        read_list(str(path))
    assert caught.value.found == "the list is UTF-16, expected UTF-8"


# What is refused

FIELDS = "expected id TAB label TAB path (separated by TAB, not by spaces)"
ID = "expected a whole number from 0 to 2**64-1"
NUMBER = "expected a number"
HOLD = "expected a number that float32 can hold"
WHOLE = "labels are float32, which holds every whole number only up to 16777216"

MALFORMED = [
    (b"0 1 a.jpg", f"1 field, {FIELDS}"),
    (b"a.jpg", f"1 field, {FIELDS}"),
    (b"0\ta.jpg", f"2 fields, {FIELDS}"),
    (b"\t", f"2 fields, {FIELDS}"),
    (b"0,1,a.jpg", f"1 field, {FIELDS.replace('spaces', 'commas')}"),
    (b"0;1;a.jpg", f"1 field, {FIELDS.replace('spaces', 'semicolons')}"),
    (b"0 1 a,b.jpg", f"1 field, {FIELDS}"),
    (b"x\t0\ta.jpg", f"id 'x', {ID}"),
    (b"\t0\ta.jpg", f"id '', {ID}"),
    (b"-1\t0\ta.jpg", f"id '-1', {ID}"),
    (b"+1\t0\ta.jpg", f"id '+1', {ID}"),
    (b"1.0\t0\ta.jpg", f"id '1.0', {ID}"),
    (b"1e3\t0\ta.jpg", f"id '1e3', {ID}"),
    (b"1_0\t0\ta.jpg", f"id '1_0', {ID}"),
    (b"0x1\t0\ta.jpg", f"id '0x1', {ID}"),
    (b"1 2\t0\ta.jpg", f"id '1 2', {ID}"),
    ("١\t0\ta.jpg".encode(), f"id '١', {ID}"),
    ("²\t0\ta.jpg".encode(), f"id '²', {ID}"),
    (b"1\x00\t0\ta.jpg", rf"id '1\x00', {ID}"),
    (b"\xff\t0\ta.jpg", rf"id '\xff', {ID}"),
    (
        b"18446744073709551616\t0\ta.jpg",
        "id 18446744073709551616, expected at most 18446744073709551615 (2**64-1)",
    ),
    (b"0" * 41 + b"\t0\ta.jpg", f"id '{'0' * 40}'..., {ID}"),
    (b"9" * 5000 + b"\t0\ta.jpg", f"id '{'9' * 40}'..., {ID}"),
    (b"1\tant\ta.jpg", f"label 'ant', {NUMBER}"),
    (b"1\t\ta.jpg", f"label '', {NUMBER}"),
    (b"1\t0\t\t0\ta.jpg", f"label '', {NUMBER}"),
    (b"1\t0,5\ta.jpg", f"label '0,5', {NUMBER}"),
    (b"1\t1_000\ta.jpg", f"label '1_000', {NUMBER}"),
    (b"1\t0x10\ta.jpg", f"label '0x10', {NUMBER}"),
    ("1\t١\ta.jpg".encode(), f"label '١', {NUMBER}"),
    (b"1\t1\x00\ta.jpg", rf"label '1\x00', {NUMBER}"),
    (b"1\t\xe9\ta.jpg", rf"label '\xe9', {NUMBER}"),
    (b"1\t0\tb\x1b[2J\ta.jpg", rf"label 'b\x1b[2J', {NUMBER}"),
    (b"1\t" + b"x" * 40 + b"\ta.jpg", f"label '{'x' * 40}', {NUMBER}"),
    (b"1\t" + b"x" * 41 + b"\ta.jpg", f"label '{'x' * 40}'..., {NUMBER}"),
    (b"1\tnan\ta.jpg", f"label 'nan', {HOLD}"),
    (b"1\tinf\ta.jpg", f"label 'inf', {HOLD}"),
    (b"1\t-Infinity\ta.jpg", f"label '-Infinity', {HOLD}"),
    (b"1\t1e39\ta.jpg", f"label '1e39', {HOLD}"),
    (b"1\t-1e400\ta.jpg", f"label '-1e400', {HOLD}"),
    (b"1\t0\t3.4028236e38\ta.jpg", f"label '3.4028236e38', {HOLD}"),
    (b"1\t16777217\ta.jpg", f"label '16777217' would become 16777216: {WHOLE}"),
    (b"1\t-16777219.0\ta.jpg", f"label '-16777219.0' would become -16777220: {WHOLE}"),
    (b"1\t0\t\xff.jpg", r"the path '\xff.jpg' is not UTF-8"),
    (b"1\t0\t\xed\xb3\xbf.jpg", r"the path '\xed\xb3\xbf.jpg' is not UTF-8"),
    (b"1\t0\t", "the last field, the path, is empty"),
    (b"1\t0\t  ", "the last field, the path, is empty"),
    (b"1\t0\ta.jpg\t", "the last field, the path, is empty"),
    (b"1\t0\ta\x00.jpg", r"the path 'a\x00.jpg' has a NUL byte"),
]


@pytest.mark.parametrize(("line", "reason"), MALFORMED, ids=lambda value: repr(value)[:30])
def test_a_malformed_row_is_refused_with_its_line_number_and_reason(
    line: bytes, reason: str
) -> None:
    if line.strip():  # else it is a blank line
        error = refused(b"100\t0\tok.jpg\n\n" + line + b"\r\n101\t0\tok.jpg\n")
        assert (error.path, error.faults, error.count) == ("x.lst", ((3, reason),), 1)
        assert str(error) == f"x.lst:3: {reason}"
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        parse_row(line)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    "label",
    ["16777216", "-16777216", "16777218", "1e10", "0.1", "1e-50", f"{2**128 - 2**104}", "-0"],
)
def test_a_label_that_float32_keeps_or_rounds_is_accepted(label: str) -> None:
    assert listed(f"0\t{label}\ta.jpg\n".encode()) == [Entry(0, (float(label),), "a.jpg")]


def test_an_id_that_comes_again_is_refused_and_names_the_first() -> None:
    error = refused(b"5\t0\ta\n6\t0\tb\n\n5\t0\tc\n06\t0\td\n5\t0\te\n")
    assert error.faults == (
        (4, "id 5 stands in line 1 already"),
        (5, "id 6 stands in line 2 already"),
        (6, "id 5 stands in line 1 already"),
    )
    assert error.count == 3
    error = refused(b"5\t0\ta\nx\t0\tb\n5\t0\tc\n")
    assert error.faults == ((2, f"id 'x', {ID}"), (3, "id 5 stands in line 1 already"))
    assert error.count == 2


def test_ids_that_only_float64_confuses_are_different() -> None:
    data = b"9223372036854775808\t0\ta\n9223372036854775809\t0\tb\n9223372036854775807\t0\tc\n"
    assert len(listed(data)) == 3


def test_the_first_20_faults_are_named_and_the_rest_counted() -> None:
    error = refused(b"0\t0\ta\n" + b"x\t0\ta\n" * 23 + b"1\t0\ta\n")
    assert error.faults == tuple((line, f"id 'x', {ID}") for line in range(2, 22))
    assert error.count == 23
    assert str(error).splitlines()[-1] == "x.lst: 3 more rows at fault"
    assert len(str(error).splitlines()) == 21


def test_the_faults_named_are_the_first_by_line_whatever_their_kind() -> None:
    # Duplicates are found after the malformed rows, and by id, not by line.
    twice = [b"%d\t0\ta\n" % number for number in range(30)]
    error = refused(b"".join(twice + twice[::-1]) + b"x\t0\ta\n" * 25)
    assert error.faults == tuple(
        (31 + i, f"id {29 - i} stands in line {30 - i} already") for i in range(20)
    )
    assert error.count == 55
    error = refused(b"".join(twice) + b"x\t0\ta\n" * 15 + b"".join(twice))
    assert [line for line, _ in error.faults] == list(range(31, 51))
    assert error.faults[14] == (45, f"id 'x', {ID}")
    assert error.faults[15] == (46, "id 0 stands in line 1 already")
    assert error.count == 45


def repeats(ids: list[int]) -> list[tuple[int, str]]:
    """The fault of each row that repeats an id, where the rows have these."""
    return [
        (line, f"id {number} stands in line {ids.index(number) + 1} already")
        for line, number in enumerate(ids, 1)
        if number in ids[: line - 1]
    ]


@given(st.lists(st.integers(0, 6), max_size=12))
def test_each_row_that_repeats_an_id_is_a_fault(ids: list[int]) -> None:
    data = b"".join(b"%d\t0\ta\n" % number for number in ids)
    faults = repeats(ids)
    if faults:
        assert list(refused(data).faults) == faults
    else:
        assert [entry.id for entry in listed(data)] == ids


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30),
    st.sampled_from([1, 8 * 40 + 1, 2**40]),
    st.randoms(),
)
def test_ids_that_come_again_are_found_among_any_others(
    some: list[int], step: int, chance: random.Random
) -> None:
    ids = [*dict.fromkeys(some), *[number * step for number in range(40 - len(set(some)))]]
    chance.shuffle(ids)
    data = b"".join(b"%d\t0\ta\n" % number for number in ids)
    faults = repeats(ids)
    if faults:
        error = refused(data)
        assert (list(error.faults), error.count) == (faults[:20], len(faults))
    else:
        assert [entry.id for entry in listed(data)] == ids


PLAIN_ROWS = [b"%d\t%d\tclass/image_%d.jpg\n" % (i, i % 1000, i) for i in range(6000)]
ROWS_APART = [line for line, _ in MALFORMED] + [
    b"",
    b"  ",
    b"\r",
    b"18446744073709551615\t0\ta",
    b"99999999\t-3.50\ta",
    b"99999999\t99999999\ta",
    b"99999999\t1\t2\ta",
    b"99999999\t1\t/a",
    b"99999999\t1\ta/../b",
    b"99999999\t1\t..",
    b"99999999\t1\ta..b",
    b"99999999\t1\ta\rb",
    b"99999999\t1\ta\r\r",
    b"99999999\t1\t a",
    "99999999\t1\t\u3000".encode(),
    "99999999\t1\t\u2028a\x85".encode(),
    "99999999\t1\tü".encode(),
    b"99999999\t1.\ta",
    b"99999999\t\t\ta",
    b"\xef\xbb\xbf99999999\t1\ta",
    b"+5\t1\ta",
    b"1\t1\ta",
    b"01\t1\ta",
]


@given(
    st.dictionaries(st.integers(0, 6000), st.sampled_from(ROWS_APART), max_size=4),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
@settings(max_examples=60)
def test_rows_among_many_plain_ones_are_read_as_they_are_alone(
    apart: dict[int, bytes], ending: bytes, ended: bool
) -> None:
    lines = [line.removesuffix(b"\n") for line in PLAIN_ROWS]
    for place in sorted(apart, reverse=True):
        lines.insert(place, apart[place])
    data = ending.join(lines) + ending * ended
    faults, entries, leaves, seen = [], [], [], dict[int, int]()
    for number, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        line = text.removesuffix(b"\r")
        if not line.strip():
            continue
        try:
            entry = parse_row(line)
        except ValueError as error:
            faults.append((number, str(error)))
            continue
        if seen.setdefault(entry.id, number) != number:
            first = seen[entry.id]
            faults.append((number, f"id {entry.id} stands in line {first} already"))
        entries.append((number, entry))
        if entry.path.startswith("/") or ".." in entry.path.split("/"):
            leaves.append(number)
    if faults:
        assert refused(data).faults == tuple(faults)
        return
    images = ImageList("x.lst", data)
    assert list(images.numbered()) == entries
    assert list(images) == [entry for _, entry in entries]
    assert images.leaves_root == leaves
    assert images.label_widths == Counter(len(entry.labels) for _, entry in entries)


FRAGMENTS = [b"\t", b"\t", b"\n", b"\r\n", b"0", b"7", b"-", b"1e39", b"nan", b" ", b"a.jpg"]
ODD_FRAGMENTS = [b"\xff", b"\x00", b"\xef\xbb\xbf", b"_", "١".encode(), b"../", b"\x85", b"\x1c"]


@given(st.lists(st.sampled_from(FRAGMENTS + ODD_FRAGMENTS), max_size=25).map(b"".join))
def test_any_bytes_give_entries_or_a_list_error(data: bytes) -> None:
    error = None
    try:
        images = ImageList("x.lst", data)
        assert len(list(images)) == len(images) == sum(images.label_widths.values())
    except ListError as raised:
        error = raised
    if error is not None:
        assert 1 <= len(error.faults) <= error.count <= data.count(b"\n") + 1
        assert len(str(error).splitlines()) == min(error.count, 21)  # no reason breaks its line


# Writing


def test_a_list_has_these_bytes() -> None:
    entries = [Entry(0, (3.0,), "ant/a b.jpg"), Entry(2**64 - 1, (0.5, -2.0), "ü.png")]
    assert format_list(entries) == (
        b"0\t3\tant/a b.jpg\n18446744073709551615\t0.5\t-2\t\xc3\xbc.png\n"
    )
    assert format_list([]) == b""


def test_a_folders_rows_are_those_of_its_entries() -> None:
    rows = format_rows(9, 3, "ant/", ["a b.jpg", "ü.png"])
    entries = [Entry(9, (3.0,), "ant/a b.jpg"), Entry(10, (3.0,), "ant/ü.png")]
    assert "".join(rows).encode() == format_list(entries)
    assert format_rows(0, 0, "", ["a.jpg"]) == ["0\t0\ta.jpg\n"]
    assert [row_label(row) for row in rows] == ["3", "3"]
    assert renumbered(rows[::-1]) == ["0\t3\tant/ü.png\n", "1\t3\tant/a b.jpg\n"]


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (3, "3"),
        (3.0, "3"),
        (-2.0, "-2"),
        (0.5, "0.5"),
        (0.1, "0.1"),
        (16777216.0, "16777216"),
        (1e22, "10000000000000000000000"),
        (1e-7, "1e-07"),
    ],
)
def test_a_label_is_written_as(label: float, text: str) -> None:
    assert format_label(label) == text


@pytest.mark.parametrize("path", ["a\tb", "a\nb", "a\rb", "a.jpg\r", "a\udcff", "\ud800"])
def test_a_path_that_a_list_cannot_hold_is_not_written(path: str) -> None:
    for write in (
        lambda: format_row(Entry(0, (1.0,), path)),
        lambda: format_list([Entry(0, (), path)]),
    ):
        with pytest.raises(ValueError, match=r"no list can hold it|surrogates not allowed"):
            write()


entries = st.builds(
    Entry,
    st.integers(0, 2**64 - 1),
    st.lists(
        st.one_of(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.floats(-1, 1),
            st.integers(-(2**24), 2**24).map(float),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1
    ).filter(str.strip),
)


@given(st.lists(entries, max_size=8, unique_by=lambda entry: entry.id))
def test_what_is_written_is_read(written: list[Entry]) -> None:
    data = format_list(written)
    images = ImageList("x.lst", data)
    assert list(images) == written
    assert [number for number, _ in images.numbered()] == list(range(1, len(written) + 1))
    assert format_list(images) == data
    assert [parse_row(format_row(entry).removesuffix(b"\n")) for entry in written] == written


# float32

LARGEST = float.fromhex("0x1.fffffep127")
HALF_A_STEP_MORE = float.fromhex("0x1.ffffffp127")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (0.5, 0.5),
        (0.1, 0.10000000149011612),
        (16777217.0, 16777216.0),
        (16777219.0, 16777220.0),
        (1e-50, 0.0),
        (2.0**-149, 2.0**-149),
        (LARGEST, LARGEST),
        (math.nextafter(HALF_A_STEP_MORE, 0), LARGEST),
        (HALF_A_STEP_MORE, math.inf),
        (1e39, math.inf),
        (-1e39, -math.inf),
        (math.inf, math.inf),
    ],
)
def test_a_value_is_stored_as(value: float, stored: float) -> None:
    assert as_float32(value) == stored


def test_nan_is_stored_as_nan() -> None:
    assert math.isnan(as_float32(math.nan))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (0.5, "0.5"),
        (0.1, "0.1"),
        (-0.7, "-0.7"),
        (1 / 3, "0.33333334"),
        (16777216.0, "16777216"),
        (LARGEST, "3.4028235e+38"),
        (math.inf, "inf"),
    ],
)
def test_a_stored_label_is_shown_as_the_shortest_text(value: float, text: str) -> None:
    assert format_float32(as_float32(value)) == text


@given(st.floats(width=32, allow_nan=False))
def test_a_stored_label_reads_back_from_its_text(label: float) -> None:
    assert as_float32(float(format_float32(label))) == label
