"""Indexes judged beside record files that are only described."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from im2rec.image_record import ImageRecord
from im2rec.index import format_index, largest_index
from im2rec.index_check import NO_ID, IndexCheck, RecordFile, append_range

IDS = [7, 3, 90, 12]


def described(*ids: int, path: str = "a.rec") -> RecordFile:
    """A file of records of 40 bytes with these ids."""
    offsets = array("Q", range(0, 40 * len(ids), 40))
    return RecordFile(path, 40 * len(ids), offsets, array("Q", ids), is_records=True)


def told(
    text: bytes, files: list[RecordFile], folder: Path, *, is_packed: bool = True
) -> list[tuple[str, int | None, str]]:
    """The code, the id and the sentence of each fault."""
    found: list[tuple[str, int | None, str]] = []
    path = folder / "a.idx"
    path.write_bytes(text)

    def take(code: str, file: str, offset: int | None, number: int | None, sentence: str) -> None:
        assert (file, offset) == (str(path), None)
        found.append((code, number, sentence))

    IndexCheck(take, is_packed=is_packed).check(str(path), files)
    return found


@given(
    ids=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=9, unique=True),
    cut=st.integers(0, 9),
    is_packed=st.booleans(),
)
def test_what_pack_writes_of_one_file_or_of_several_is_sound(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], cut: int, is_packed: bool
) -> None:
    files = [described(*part) for part in (ids[:cut], ids[cut:]) if part]
    text = format_index(zip(ids, range(0, 40 * len(ids), 40), strict=True))
    assert told(text, files, tmp_path_factory.getbasetemp(), is_packed=is_packed) == []


LINES = {
    "dropped": (
        b"7\t0\n3\t40\n12\t120\n",
        [("index-missing", 90, "no line for the record at offset 80")],
    ),
    "moved": (
        b"7\t0\n3\t40\n90\t84\n12\t120\n",
        [
            ("index-offset", 90, "line 3: key 90, offset 84: no record begins there"),
            ("index-missing", 90, "no line for the record at offset 80"),
        ],
    ),
    "behind the end": (
        b"7\t0\n3\t40\n90\t80\n12\t160\n",
        [
            ("index-offset", 12, "line 4: key 12, offset 160: no record begins there"),
            ("index-missing", 12, "no line for the record at offset 120"),
        ],
    ),
    "swapped": (
        b"7\t0\n90\t80\n3\t40\n12\t120\n",
        [("index-order", 3, "line 3: key 3, offset 40: after a later record")],
    ),
    "twice": (
        b"7\t0\n7\t0\n3\t40\n90\t80\n12\t120\n",
        [
            ("index-repeat", 7, "line 2: key 7, offset 0: the record is named twice"),
            ("index-duplicate", 7, "line 2: key 7, offset 0: the key stands twice"),
        ],
    ),
    "another key": (
        b"7\t0\n3\t40\n91\t80\n12\t120\n",
        [("index-key", 90, "key 91 for record 2 of the file, expected its id 90")],
    ),
    "no line": (
        b"7\t0\n3 40\n90\t80\n12\t120\n",
        [
            ("index-line", None, "line 2: "),
            ("index-missing", 3, "no line for the record at offset 40"),
        ],
    ),
    "a zero before": (
        b"7\t0\n3\t040\n90\t80\n12\t120\n",
        [("index-line", 3, "line 2: found '3\\t040', expected '3\\t40'")],
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_each_fault_has_its_code_and_its_line(name: str, tmp_path: Path) -> None:
    text, expected = LINES[name]
    found = told(text, [described(*IDS)], tmp_path)
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    for (_, _, sentence), (_, _, beginning) in zip(found, expected, strict=True):
        assert sentence.startswith(beginning)
    in_two = [described(*IDS[:1]), described(*IDS[1:])]
    assert [each[:2] for each in told(text, in_two, tmp_path)] == [each[:2] for each in expected]


def test_keys_may_be_positions_only_where_no_manifest_says_that_they_are_ids(
    tmp_path: Path,
) -> None:
    text = b"0\t0\n1\t40\n2\t80\n3\t120\n"
    assert told(text, [described(*IDS)], tmp_path, is_packed=False) == []
    assert told(text, [described(*IDS)], tmp_path) == []  # rec2idx.py made it anew
    alone = [described(7)]
    assert told(b"0\t0\n", alone, tmp_path, is_packed=False) == []
    assert told(b"0\t0\n", alone, tmp_path) == [
        ("index-key", 7, "key 0 for record 0 of the file, expected its id 7")
    ]


def test_a_shard_that_was_cut_moves_no_other(tmp_path: Path) -> None:
    """What the manifest says of its size counts, and what points into the rest is one fault."""
    first, second = described(*IDS[:2]), described(*IDS[2:])
    first.packed_size = 160  # two records more are gone
    text = b"7\t0\n3\t40\n4\t80\n5\t120\n90\t160\n12\t200\n"
    assert told(text, [first, second], tmp_path) == [
        (
            "index-offset",
            None,
            "2 lines, 3 to 4, point to where bytes are damaged or not there, from 80 on",
        )
    ]


def test_a_record_without_an_id_is_asked_for_none(tmp_path: Path) -> None:
    file = described()
    for at, number in enumerate(IDS):
        content = ImageRecord(number, 0, 0, 0.0, (0.0,), b"") if number != 90 else None
        file.add(40 * at, content, with_labels=True)
    file.size = 160
    assert file.known_ids() == [7, 3, NO_ID, 12]
    assert file.labels == [(0.0,), (0.0,), (), (0.0,)]
    assert file.label_widths == {1: 3}
    text = b"7\t0\n3\t40\n90\t80\n12\t120\n"
    assert told(text, [file], tmp_path) == []
    found = told(b"7\t0\n3\t40\n12\t120\n", [file], tmp_path)
    assert found == [("index-missing", None, "no line for the record at offset 80")]


def test_a_folder_and_what_is_too_large_are_not_read(tmp_path: Path) -> None:
    size = largest_index(1) + 1
    assert told(b"7\t0\n" + b"\n" * (size - 4), [described(7)], tmp_path) == [
        ("index-unreadable", None, f"{size} bytes are no index of 1 records; it was not read")
    ]
    found: list[str] = []
    check = IndexCheck(lambda code, *_: found.append(code), is_packed=True)
    check.check(str(tmp_path), [described(7)])
    assert found == ["index-unreadable"]


def test_ranges_that_meet_are_one() -> None:
    ranges: list[tuple[int, int]] = []
    for start, end in ((0, 4), (4, 8), (8, 8), (12, 16)):
        append_range(ranges, start, end)
    assert ranges == [(0, 8), (12, 16)]
