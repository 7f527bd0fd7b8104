"""Every kind of damage is found, in the right file; what is sound gives no problem."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN, GOLDEN, Run
from hypothesis import given
from hypothesis import strategies as st

from im2rec.errors import InputError, ListError
from im2rec.framing import HEAD, MAGIC, MAGIC_BYTES, WINDOW, RecordReader, RunScanner, frame
from im2rec.image_ops import ImageOptions
from im2rec.image_record import HEADER, encode
from im2rec.pack import PackOptions, pack_list
from im2rec.record_set import find_set, write_manifest
from im2rec.verify import CODES, Problem, VerifyOptions, VerifyReport, verify_set

ROWS = (  # id, labels, path; ids that are no positions, labels whose flag no flip makes right
    (11, "1", "ant/ant_3.png"),
    (5, "5\t0.25", "bee/bee_3.png"),
    (300, "2", "cat/cat_3.png"),
    (42, "3", "dog/dog_3.png"),
    (21, "1", "ant/ant_4.JPEG"),
    (8, "1", "ant/gone.jpg"),
    (64, "2", "cat/cat_4.JPEG"),
)
RECS = [f"set_00{number}.rec" for number in range(3)]
IDXS = [f"set_00{number}.idx" for number in range(3)]
JPEG = (CLEAN / "ant" / "ant_0.jpg").read_bytes()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny sound set: three shards of two records each, and all that goes with it;
    one image was left out."""
    folder = tmp_path_factory.mktemp("packed")
    lines = (f"{number}\t{labels}\t{path}\n" for number, labels, path in ROWS)
    (folder / "set.lst").write_text("".join(lines), "utf-8")
    (folder / "set.classes.txt").write_text("ant\nbee\ncat\ndog\n", "utf-8")
    image = ImageOptions(resize=2, encoding=".png", quality=3)
    options = PackOptions(image, shards=3, max_failures=1, workers=1, fsync=False)
    pack_list(str(folder / "set.lst"), str(CLEAN), options)
    return folder


@pytest.fixture
def folder(packed: Path, tmp_path: Path) -> Path:
    """A copy of the set to damage."""
    return Path(shutil.copytree(packed, tmp_path / "copy"))


def verify(prefix: str | Path, **options: Any) -> VerifyReport:
    return verify_set(find_set(str(prefix)), VerifyOptions(**options))


def problems(prefix: str | Path, **options: Any) -> list[Problem]:
    found = verify(prefix, **options).problems
    assert {each.code for each in found} <= CODES.keys()
    return found


def told(prefix: str | Path, **options: Any) -> list[tuple[str, str, int | None, int | None]]:
    """The problems without their sentences."""
    found = problems(prefix, **options)
    return [(each.code, os.path.basename(each.file), each.offset, each.id) for each in found]


def codes(prefix: str | Path, **options: Any) -> set[str]:
    return {each.code for each in problems(prefix, **options)}


def lone(folder: Path, *records: bytes, index: str | None = None) -> Path:
    """A .rec of these records, with an index where one is given; its prefix."""
    (folder / "one.rec").write_bytes(b"".join(records))
    if index is not None:
        (folder / "one.idx").write_text(index, "ascii")
    return folder / "one"


def record(number: int, *labels: float, image: bytes = b"image") -> bytes:
    return frame(encode(number, labels or (0.0,), image))


# --- sound sets -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "packs").iterdir()))
def test_what_mxnet_packed_is_sound(name: str) -> None:
    prefix = GOLDEN / "packs" / name / "set"
    report = verify(prefix, list_path=f"{prefix}.lst")
    # without --pack-label, im2rec.py has dropped all labels but the first of every row
    dropped = ["list-label"] * 24 if name == "multi_label_first_only" else []
    assert [problem.code for problem in report.problems] == dropped
    assert (report.records, report.bytes) == (24, os.path.getsize(f"{prefix}.rec"))
    assert report.unindexed == []


@pytest.mark.parametrize("name", ["pass_through", "png"])
def test_what_mxnet_packed_decodes(name: str) -> None:
    report = verify(GOLDEN / "packs" / name / "set", decode=True, workers=1)
    assert (report.problems, report.remarks) == ([], [])


def test_insightfaces_layout_is_sound_though_identities_have_no_image() -> None:
    assert problems(GOLDEN / "recordio" / "insightface.rec", decode=True, workers=1) == []


def test_a_set_of_shards_is_sound_with_its_list_and_a_row_left_out(folder: Path) -> None:
    report = verify(folder / "set", list_path=str(folder / "set.lst"), decode=True, workers=1)
    assert (report.problems, report.remarks, report.unindexed) == ([], [], [])
    sizes = [(folder / rec).stat().st_size for rec in RECS]
    assert (report.name, report.records, report.bytes) == (str(folder / "set"), 6, sum(sizes))


def test_a_shard_by_itself_is_sound(folder: Path) -> None:
    assert problems(folder / "set_001.rec") == []


def test_a_set_is_sound_under_any_spelling_of_its_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    for prefix in ("copy/set", "copy//set", "./copy/../copy/set"):
        assert problems(prefix) == []
    monkeypatch.chdir(folder)
    assert problems("set") == []


def test_without_index_or_manifest_what_is_there_is_sound_and_the_lack_told(folder: Path) -> None:
    for name in [*IDXS, "set.idx", "set.manifest.json"]:
        (folder / name).unlink()
    report = verify(folder / "set")
    assert report.problems == []
    assert report.unindexed == [str(folder / each) for each in ("set", *RECS)]


def test_keys_may_be_positions(tmp_path: Path) -> None:
    golden = GOLDEN / "packs" / "resize64"
    shutil.copy(golden / "set.rec", tmp_path)
    shutil.copy(golden / "set.rec2idx.idx", tmp_path / "set.idx")
    assert problems(tmp_path / "set") == []


def test_an_index_may_be_of_positions_in_several_shards(folder: Path) -> None:
    for number, name in enumerate(["set.idx", *IDXS]):
        lines = (folder / name).read_text("ascii").splitlines()
        offsets = [line.split("\t")[1] for line in lines]
        text = "".join(f"{at}\t{offset}\n" for at, offset in enumerate(offsets))
        (folder / name).write_text(text, "ascii")
        assert len(offsets) == (2 if number else 6)
    assert problems(folder / "set") == []


def test_progress_ends_at_the_bytes_of_the_set(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = verify_set(
        find_set(str(folder / "set")),
        VerifyOptions(),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (report.bytes, report.bytes)


# --- every code -------------------------------------------------------------------------------


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new, 1))


def change(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def lines_of(path: Path) -> list[str]:
    return path.read_text("ascii").splitlines(keepends=True)


def with_lines(path: Path, *lines: str) -> None:
    path.write_text("".join(lines), "ascii")


def padding_at(rec: Path) -> int:
    """Where the first byte of padding in a file is."""
    with open(rec, "rb") as stream:
        for each in RecordReader(stream, str(rec)):
            if each.offset + HEAD.size + len(each.payload) < each.end:
                return each.offset + HEAD.size + len(each.payload)
    raise AssertionError("no record has padding")


def stored(folder: Path) -> dict[str, Any]:
    contents: dict[str, Any] = json.loads((folder / "set.manifest.json").read_bytes())
    return contents


def store(folder: Path, **changes: Any) -> None:
    contents = {name: value for name, value in stored(folder).items() if name != "sha256"}
    (folder / "set.manifest.json").write_bytes(write_manifest({**contents, **changes}))


def make_unreadable(path: Path) -> None:
    """Lets a file open whose first byte cannot be read, as on a failing disk."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


def make_a_fifo_of(path: Path) -> None:
    """Puts something in a file's place that never opens for reading."""
    path.unlink()
    os.mkfifo(path)


def swap(folder: Path, one: str, other: str) -> None:
    (folder / one).rename(folder / "aside")
    (folder / other).rename(folder / one)
    (folder / "aside").rename(folder / other)


FAULTS: dict[str, Callable[[Path], object]] = {
    "unreadable": lambda f: make_unreadable(f / RECS[1]),
    "other-format": lambda f: (f / RECS[1]).write_bytes(b"\x1f\x8b\x08\0"),
    "magic": lambda f: change(f / RECS[1], 0, b"x"),
    "cflag": lambda f: change(f / RECS[1], 7, b"\xa0"),
    "truncated": lambda f: os.truncate(f / RECS[1], (f / RECS[1]).stat().st_size - 1),
    "padding": lambda f: change(f / RECS[1], padding_at(f / RECS[1]), b"\1"),
    "cut": lambda f: change(f / RECS[1], HEAD.size + HEADER.size + 4, MAGIC_BYTES),
    "empty": lambda f: (f / RECS[1]).write_bytes(b""),
    "header": lambda f: change(f / RECS[1], HEAD.size + 3, b"\1"),
    "label": lambda f: change(f / RECS[1], HEAD.size + 4, struct.pack("<f", math.nan)),
    "image": lambda f: change(f / RECS[1], HEAD.size + HEADER.size, b"x"),
    "no-image": lambda f: lone(f, record(0, 3.0, image=b"")),
    "index-unreadable": lambda f: make_unreadable(f / IDXS[1]),
    "index-line": lambda f: edit(f / IDXS[1], b"\t", b" "),
    "index-duplicate": lambda f: edit(f / IDXS[1], b"42\t", b"300\t"),
    "index-offset": lambda f: edit(f / IDXS[1], b"\t0\n", b"\t4\n"),
    "index-repeat": lambda f: with_lines(f / IDXS[1], *lines_of(f / IDXS[1]), "7\t0\n"),
    "index-order": lambda f: with_lines(f / IDXS[1], *reversed(lines_of(f / IDXS[1]))),
    "index-missing": lambda f: with_lines(f / IDXS[1], *lines_of(f / IDXS[1])[:1]),
    "index-key": lambda f: edit(f / IDXS[1], b"42\t", b"43\t"),
    "manifest": lambda f: (f / "set.manifest.json").write_bytes(b"{}"),
    "file-missing": lambda f: (f / RECS[1]).unlink(),
    "file-unknown": lambda f: shutil.copy(f / RECS[1], f / "set_003.rec"),
    "bytes": lambda f: edit(f / "set.manifest.json", b'"bytes": ', b'"bytes": 1'),
    "records": lambda f: edit(f / "set.manifest.json", b'"records": ', b'"records": 1'),
    "sha256": lambda f: change(f / RECS[1], 50, b"x"),
    "list-other": lambda f: edit(f / "set.lst", b"42\t3\t", b"42\t4\t"),
    "list-missing": lambda f: edit(f / "set.lst", b"42\t", b"43\t"),
    "list-extra": lambda f: edit(f / "set.lst", b"42\t", b"43\t"),
    "list-order": lambda f: with_lines(f / "set.lst", *reversed(lines_of(f / "set.lst"))),
    "list-label": lambda f: edit(f / "set.lst", b"42\t3\t", b"42\t4\t"),
}


def test_each_code_has_a_fault() -> None:
    assert FAULTS.keys() == CODES.keys()


@pytest.mark.parametrize("code", FAULTS)
def test_each_code_is_found(folder: Path, code: str) -> None:
    prefix = folder / ("one" if code == "no-image" else "set")
    decode = code in ("image", "no-image")
    FAULTS[code](folder)
    assert code in codes(prefix, list_path=str(folder / "set.lst"), decode=decode, workers=1)


@pytest.mark.parametrize("code", FAULTS)
def test_records_read_one_by_one_are_judged_the_same(
    folder: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = folder / ("one" if code == "no-image" else "set")
    FAULTS[code](folder)
    path = str(folder / "set.lst")
    together = problems(prefix, list_path=path, decode=True, workers=1)
    monkeypatch.setattr(RunScanner, "run_at", lambda *_: None)  # no run is found anywhere
    assert problems(prefix, list_path=path, decode=True, workers=1) == together


def test_labels_left_out_on_purpose_are_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "set.lst"
    path.write_text("0\t1\t2\tant/ant_0.jpg\n", encoding="utf-8")
    for pack_label in (True, False):
        options = PackOptions(pack_label=pack_label, workers=1, fsync=False)
        pack_list(str(path), str(CLEAN), options)
        assert problems(tmp_path / "set", list_path=str(path)) == []


# --- flips that framing, or index and list, must show (test_byte_flips.py has all the others) --


def flips(path: Path, places: Iterable[int], bits: Iterable[int] = ()) -> Iterator[int]:
    """Damages the file by one bit, place after place; mends it at the end. bits: of each byte;
    none: another one in each."""
    sound = path.read_bytes()
    for at in places:
        for bit in bits or (at % 8,):
            data = bytearray(sound)
            data[at] ^= 1 << bit
            path.write_bytes(data)
            yield at
    path.write_bytes(sound)


def test_framing_alone_shows_a_flip_in_every_head_but_of_a_length_within_its_padding(
    folder: Path,
) -> None:
    rec = folder / "one.rec"
    records = [record(at, image=b"x" * size) for at, size in enumerate((30, 31, 32, 33))]
    cut = record(9, image=b"abcd" + MAGIC_BYTES + b"efg")
    lone(folder, *records, cut, record(10))
    sound = rec.read_bytes()
    heads = [at for at in range(0, len(sound), 4) if sound[at : at + 4] == MAGIC_BYTES]
    assert len(heads) == 7
    missed = []
    for at in flips(rec, [place for head in heads for place in range(head, head + 8)], range(8)):
        if not problems(folder / "one"):
            missed.append(at)
            (old,), (new,) = (
                struct.unpack_from("<I", data, at) for data in (sound, rec.read_bytes())
            )
            assert old < new <= old + -old % 4
    assert len(missed) == 3


def test_without_a_manifest_index_and_list_show_a_flip_in_flag_label_and_id(folder: Path) -> None:
    (folder / "set.manifest.json").unlink()
    rec = folder / RECS[0]
    with open(rec, "rb") as stream:
        starts = [each.offset + HEAD.size for each in RecordReader(stream, str(rec))]
    flag_and_id = [start + at for start in starts for at in (*range(4), *range(8, 16))]
    label = range(starts[0] + 4, starts[0] + 8)  # the second record has its labels in an array
    arrayed = range(starts[1] + HEADER.size, starts[1] + HEADER.size + 8)
    for at in flips(rec, [*flag_and_id, *label, *arrayed], range(8)):
        found = problems(folder / "set", list_path=str(folder / "set.lst"))
        assert any(each.file in (str(rec), f"{rec}".replace(".rec", ".idx")) for each in found), at


# --- framing ----------------------------------------------------------------------------------

THREE = (record(5), record(7), record(9))  # at 0, 40 and 80


def test_damage_is_told_with_its_place_and_what_is_lost_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    prefix = lone(tmp_path, record(1), b"junk", record(2), b"\0" * 8, record(3), b"end")
    report = verify(prefix)
    file = f"{prefix}.rec"
    lost = "bytes from {} on are lost"
    assert report.records == 3
    assert report.problems == [
        Problem(
            "magic",
            file,
            40,
            None,
            f"found 6a 75 6e 6b, expected the magic 0a 23 d7 ce; 4 {lost.format(40)}, "
            "next record at 44",
        ),
        Problem(
            "magic",
            file,
            84,
            None,
            f"found 00 00 00 00, expected the magic 0a 23 d7 ce; 8 {lost.format(84)}, "
            "next record at 92",
        ),
        Problem(
            "truncated",
            file,
            132,
            None,
            f"3 bytes at the end, expected a record head of 8; 3 {lost.format(132)}, "
            "to the end of the file",
        ),
    ]


def test_a_length_that_reaches_over_another_record_is_told_and_both_are_read(
    tmp_path: Path,
) -> None:
    first, second, third = record(1), record(2, image=b"four"), record(3)
    index = f"1\t0\n2\t{len(first)}\n3\t{len(first + second)}\n"
    whole = HEAD.pack(MAGIC, len(first + second) - HEAD.size) + (first + second)[HEAD.size :]
    prefix = lone(tmp_path, whole, third, index=index)
    assert problems(prefix) == [
        Problem(
            "cut",
            f"{prefix}.rec",
            0,
            None,
            f"the record's bytes hold the head of another at {len(first)}: its length is wrong",
        )
    ]


def test_parts_that_no_writer_makes_are_told(tmp_path: Path) -> None:
    payload = encode(1, (0.0,), b"abcdefgh")
    parts = (
        HEAD.pack(MAGIC, 1 << 29 | 25) + payload[:25] + bytes(3),
        HEAD.pack(MAGIC, 3 << 29 | 7) + payload[25:] + bytes(1),
    )
    assert problems(lone(tmp_path, *parts)) == [
        Problem("cut", f"{tmp_path}/one.rec", 0, None, "52 bytes in 2 parts, not cut at each magic")
    ]


def test_a_first_part_without_its_last_does_not_take_the_next_record_along(tmp_path: Path) -> None:
    cut = record(9, image=b"abcd" + MAGIC_BYTES + b"efgh")
    prefix = lone(tmp_path, cut[:36], record(1), index="1\t36\n")
    assert told(prefix) == [("cflag", "one.rec", 0, None)]
    lone(tmp_path, cut[36:], record(1), index="1\t12\n")
    assert told(prefix) == [("cflag", "one.rec", 0, None)]


def test_a_first_part_that_reaches_into_a_record_swallows_none_before_it(tmp_path: Path) -> None:
    cut = record(9, image=b"abcd" + MAGIC_BYTES + b"efgh")
    head = HEAD.pack(MAGIC, 1 << 29 | len(cut) + len(THREE[0]) + 20 - HEAD.size)
    index = "".join(f"{key}\t{len(cut) + at}\n" for key, at in ((5, 0), (7, 40), (9, 80)))
    prefix = lone(tmp_path, head, cut[HEAD.size :], *THREE, index=index)
    assert told(prefix) == [("magic", "one.rec", len(cut) + 60, None)]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ((math.inf,), "labels inf"),
        ((1.0, math.nan, -math.inf), "labels 1, nan, -inf"),
        ((*range(9), math.nan), "labels 0, 1, 2, 3, 4, 5, 6, 7... (10)"),
    ],
)
def test_a_label_that_is_not_finite_is_told(
    tmp_path: Path, labels: tuple[float, ...], sentence: str
) -> None:
    prefix = lone(tmp_path, record(0), record(7, *labels))
    assert problems(prefix) == [Problem("label", f"{prefix}.rec", 40, 7, sentence)]


def test_a_header_label_that_is_not_finite_is_told_beside_a_sound_array(tmp_path: Path) -> None:
    payload = struct.pack("<IfQQff", 2, math.inf, 7, 0, 1.0, 2.0) + b"image"
    sentence = "label inf in the header, beside an array of labels"
    assert problems(lone(tmp_path, frame(payload))) == [
        Problem("label", f"{tmp_path}/one.rec", 0, 7, sentence)
    ]


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"x" * 23, "23 bytes, expected at least the 24 of an image record's header"),
        (
            struct.pack("<IfQQ", 3, 0, 1, 0) + b"x" * 11,
            "the header announces 3 labels (12 bytes), but 11 bytes follow",
        ),
    ],
)
def test_a_payload_shorter_than_its_header_says_is_told(
    tmp_path: Path, payload: bytes, sentence: str
) -> None:
    prefix = lone(
        tmp_path, frame(payload), record(5), index="0\t0\n5\t" + f"{len(frame(payload))}\n"
    )
    assert problems(prefix) == [Problem("header", f"{prefix}.rec", 0, None, sentence)]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (JPEG, "a JPEG image"),
        (b"PK\x03\x04", "a zip file"),
        (b"0\t0\n1\t36\n", "an index (.idx)"),
        (b"0\t0\ta/b.jpg\n", "a list (.lst)"),
        (
            frame(b"\x0a\x03abc"),
            "SageMaker's other RecordIO (x-recordio-protobuf): the framing is the same, but the "
            "payloads are protobuf messages, not image records",
        ),
    ],
)
def test_a_file_of_another_kind_is_named_as_such(tmp_path: Path, data: bytes, kind: str) -> None:
    prefix = lone(tmp_path, data, index="0\t0\n")
    assert problems(prefix) == [
        Problem("other-format", f"{prefix}.rec", 0, None, f"this is {kind}")
    ]


def test_a_shard_of_another_kind_says_nothing_of_the_joint_index(folder: Path) -> None:
    (folder / RECS[0]).write_bytes(JPEG)
    found = told(folder / "set")
    assert {each[0] for each in found} == {"other-format", "bytes", "records", "sha256"}
    assert {each[1] for each in found} == {RECS[0]}


def test_a_cut_is_found_wherever_it_falls(folder: Path) -> None:
    for name in [RECS[1], IDXS[1], "set.idx", "set.manifest.json"]:
        path = folder / name
        sound = path.read_bytes()
        for size in range(len(sound) - (name == "set.manifest.json")):  # its last LF says nothing
            path.write_bytes(sound[:size])
            assert any(each.file == str(path) for each in problems(folder / "set")), (name, size)
        path.write_bytes(sound)


# --- index ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("5\t0\n7\t40\n9\t80\n", []),
        ("0\t0\n1\t40\n2\t80\n", []),
        ("5\t0\r\n7\t40\r\n9\t80\r\n", []),
        (
            "",
            [
                ("index-missing", id, f"no line for the record at offset {at}")
                for id, at in ((5, 0), (7, 40), (9, 80))
            ],
        ),
        ("5\t0\n9\t80\n", [("index-missing", 7, "no line for the record at offset 40")]),
        (
            "5\t0\n7\t40\n9\t80\n9\t80\n",
            [
                ("index-repeat", 9, "line 4: key 9, offset 80: the record is named twice"),
                ("index-duplicate", 9, "line 4: key 9, offset 80: the key stands twice"),
            ],
        ),
        (
            "5\t0\n\n7\t40\n# end\n9\t84\n",
            [
                ("index-line", None, "line 2: found '', expected key TAB offset"),
                ("index-line", None, "line 4: found '# end', expected key TAB offset"),
                ("index-offset", 9, "line 5: key 9, offset 84: no record begins there"),
                ("index-missing", 9, "no line for the record at offset 80"),
            ],
        ),
        (
            "5\t0\n9\t80\n7\t40\n",
            [("index-order", 7, "line 3: key 7, offset 40: after a later record")],
        ),
        (
            "5\t0\n7\t40\n9\t80",
            [
                ("index-line", None, "line 3: the last line '9\\t80' has no end: the file is cut"),
                ("index-missing", 9, "no line for the record at offset 80"),
            ],
        ),
        (
            "5\t0\n1\t40\n9\t80\n",
            [("index-key", 7, "key 1 for record 1 of the file, expected its id 7")],
        ),
        (
            "0\t0\n1\t40\n9\t80\n",
            [("index-key", 9, "key 9 for record 2 of the file, expected its position 2")],
        ),
        (
            "99999999999999999999\t9999999999999999999\n5\t0\n7\t40\n9\t80\n",
            [
                (
                    "index-offset",
                    99999999999999999999,
                    "line 1: key 99999999999999999999, offset 9999999999999999999: "
                    "no record begins there",
                )
            ],
        ),
    ],
)
def test_an_index_is_judged_line_by_line(
    tmp_path: Path, index: str, expected: list[tuple[str, int | None, str]]
) -> None:
    prefix = lone(tmp_path, *THREE, index=index)
    assert problems(prefix) == [
        Problem(code, f"{prefix}.idx", None, number, sentence)
        for code, number, sentence in expected
    ]


@pytest.mark.parametrize(
    ("index", "found"),
    [
        ("5\t0\n7\t40\n5\t80\n", ["index-duplicate", "index-key"]),
        ("5\t0\n5\t40\n5\t80\n", ["index-duplicate"] * 2 + ["index-key"] * 2),
        ("7\t0\n5\t40\n9\t80\n", ["index-key"] * 2),
        ("0\t0\n1\t40\n2\t80\n3\t120\n", ["index-offset"]),
        ("0\t0\n1\t40\n2\t76\n", ["index-offset", "index-missing"]),
        ("1\t0\n2\t40\n3\t80\n", ["index-key"] * 3),
        ("18446744073709551616\t0\n7\t40\n9\t80\n", ["index-key"]),
    ],
)
def test_a_plain_index_with_one_wrong_line_is_not_taken_for_sound(
    tmp_path: Path, index: str, found: list[str]
) -> None:
    assert [each[0] for each in told(lone(tmp_path, *THREE, index=index))] == found


def test_two_records_of_one_id_are_told_though_each_has_its_key(tmp_path: Path) -> None:
    prefix = lone(tmp_path, record(5), record(5), index="5\t0\n5\t40\n")
    assert told(prefix) == [("index-duplicate", "one.idx", None, 5)]


def test_records_whose_id_cannot_be_read_say_nothing_of_keys(tmp_path: Path) -> None:
    golden = GOLDEN / "recordio" / "framing"
    found = told(f"{golden}.rec")
    assert [each[0] for each in found] == ["header"] * 20
    prefix = lone(tmp_path, record(5), frame(b"short"), record(9), index="5\t0\n7\t40\n8\t56\n")
    assert told(prefix) == [("header", "one.rec", 40, None), ("index-key", "one.idx", None, 9)]


def test_the_index_of_another_file_is_found(folder: Path) -> None:
    shutil.copy(folder / IDXS[1], folder / IDXS[0])
    found = told(folder / "set")
    assert {each[1] for each in found} == {IDXS[0]}
    assert ("index-key", IDXS[0], None, 11) in found


def test_two_records_swapped_are_found(tmp_path: Path) -> None:
    (tmp_path / "x.lst").write_text("5\t0\ta.jpg\n7\t0\tb.jpg\n9\t0\tc.jpg\n", "utf-8")
    prefix = lone(tmp_path, THREE[0], THREE[2], THREE[1], index="5\t0\n7\t40\n9\t80\n")
    assert told(prefix, list_path=str(tmp_path / "x.lst")) == [
        ("index-key", "one.idx", None, 9),
        ("index-key", "one.idx", None, 7),
        ("list-order", "one.rec", 40, 9),
    ]


# --- manifest and files -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RECS, *IDXS, "set.idx"])
def test_a_file_that_is_gone_is_found(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert told(folder / "set") == [("file-missing", name, None, None)]


def test_all_shards_gone_are_found(folder: Path) -> None:
    for name in RECS:
        (folder / name).unlink()
    assert told(folder / "set") == [("file-missing", name, None, None) for name in RECS]


def test_two_shards_swapped_are_found_in_both(folder: Path) -> None:
    swap(folder, RECS[0], RECS[1])
    found = told(folder / "set")
    for name in RECS[:2]:
        assert ("sha256", name, None, None) in found
    assert {"index-key", "index-offset"} & {each[0] for each in found if each[1] == "set.idx"}


@pytest.mark.parametrize("sizes", [[100] * 100_000, [5_000_000] * 4, [WINDOW + 4, 12, 12]])
def test_the_sha256_of_a_file_larger_than_what_is_read_at_once_is_compared(
    tmp_path: Path, sizes: list[int]
) -> None:
    data = b"".join(record(at, image=bytes(size)) for at, size in enumerate(sizes))
    prefix = lone(tmp_path, data)
    facts = {
        "rec": "one.rec",
        "idx": "one.idx",
        "records": len(sizes),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (tmp_path / "one.manifest.json").write_text(json.dumps({"shards": [facts]}), "utf-8")
    of_file = [each for each in told(prefix) if each[1] == "one.rec"]
    assert (len(data) > WINDOW, of_file) == (True, [])
    change(tmp_path / "one.rec", len(data) - 4, b"x")
    of_file = [each for each in told(prefix) if each[1] == "one.rec"]
    assert of_file == [("sha256", "one.rec", None, None)]
    os.truncate(tmp_path / "one.rec", len(data) - 6)  # the last record is cut: it is not read over
    of_file = [each for each in told(prefix) if each[1] == "one.rec"]
    assert [each[0] for each in of_file] == ["truncated", "bytes", "records", "sha256"]


@pytest.mark.parametrize("name", ["set.rec", "set_003.rec", "set_1000.rec"])
def test_a_record_file_that_the_manifest_does_not_name_is_found(folder: Path, name: str) -> None:
    shutil.copy(folder / RECS[0], folder / name)
    shutil.copy(folder / RECS[0], folder / "set_train.rec")  # of another set
    shutil.copy(folder / RECS[0], folder / "set_1.rec")  # as is the chunk of a list
    assert told(folder / "set") == [("file-unknown", name, None, None)]
    sentence = f"not named in {folder}/set.manifest.json"
    assert problems(folder / "set")[0].sentence == sentence


def test_a_whole_file_of_old_beside_shards_is_judged_by_itself(folder: Path) -> None:
    shutil.copy(folder / RECS[0], folder / "set.rec")
    found = told(folder / "set.rec")  # the joint index is not its own, and its shards are there
    assert ("file-unknown", "set.rec", None, None) in found
    assert "file-missing" not in {each[0] for each in found}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({"format": "other"}, ["'format' is not there, or not what it should be"]),
        ({"version": 2}, ["'version' is not there, or not what it should be"]),
        ({"version": True}, ["'version' is not there, or not what it should be"]),
        ({"rows": "7"}, ["'rows' is not there, or not what it should be"]),
        ({"failed": -1}, ["'failed' is not there, or not what it should be"]),
        ({"label_widths": []}, ["'label_widths' is not there, or not what it should be"]),
        ({"classes": [1]}, ["'classes' is not there, or not what it should be"]),
        (
            {"list": {"file": "x", "sha256": "0" * 63}},
            ["'list' is not there, or not what it should be"],
        ),
        ({"rows": 8}, ["rows 8, but packed 6 + failed 1"]),
        (
            {"rows": 8, "packed": 7},
            ["packed 7, but its shards hold 6"],
        ),
        (
            {"label_widths": {"1": 4, "2": 2}},
            ["label_widths {'1': 4, '2': 2}, but the records have {'1': 5, '2': 1}"],
        ),
        ({"classes": ["ant"]}, ["its 1 classes are not the 4 of FOLDER/set.classes.txt"]),
        ({"classes": None}, []),
        ({"joint_index": None}, ["its joint index is not set.idx"]),
    ],
)
def test_a_manifest_that_contradicts_itself_or_the_set_is_told(
    folder: Path, changes: dict[str, Any], sentences: list[str]
) -> None:
    store(folder, **changes)
    assert problems(folder / "set") == [
        Problem(
            "manifest",
            f"{folder}/set.manifest.json",
            None,
            None,
            sentence.replace("FOLDER", str(folder)),
        )
        for sentence in sentences
    ]


def test_a_manifest_that_names_a_shard_twice_is_told(folder: Path) -> None:
    shards = stored(folder)["shards"]
    store(folder, shards=[shards[0], shards[0], shards[2]])
    found = problems(folder / "set")
    assert (
        Problem(
            "manifest",
            f"{folder}/set.manifest.json",
            None,
            None,
            "its shards are not set_000.rec to set_002.rec with their indexes",
        )
        in found
    )
    assert ("file-unknown", f"{folder}/set_001.rec") in {(each.code, each.file) for each in found}


def test_what_the_manifest_states_of_a_shard_is_compared(folder: Path) -> None:
    shards = stored(folder)["shards"]
    size = shards[1]["bytes"]
    shards[1].update(bytes=size + 4, records=3, sha256="0" * 64)
    store(folder, shards=shards, packed=7, rows=8)
    manifest, rec = f"{folder}/set.manifest.json", f"{folder}/{RECS[1]}"
    assert problems(folder / "set") == [
        Problem("bytes", rec, size, None, f"{size} bytes, expected {size + 4} ({manifest})"),
        Problem("records", rec, None, None, f"2 records, expected 3 ({manifest})"),
        Problem("sha256", rec, None, None, f"not the bytes that {manifest} describes"),
    ]


def test_a_class_map_that_is_none_is_told(folder: Path) -> None:
    (folder / "set.classes.txt").write_text("ant\n\n", "utf-8")
    (found,) = problems(folder / "set")
    assert (found.code, found.sentence) == (
        "manifest",
        f"cannot compare its classes: {folder}/set.classes.txt: line 2 is empty, expected a class "
        "name",
    )


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (make_unreadable, "cannot be read: Input/output error"),
        (make_a_fifo_of, "not a regular file"),
    ],
)
def test_a_shard_that_cannot_be_read_does_not_hide_the_others(
    folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder / RECS[0])
    change(folder / RECS[2], 0, b"x")
    found = problems(folder / "set", list_path=str(folder / "set.lst"), decode=True, workers=1)
    unreadable, magic = found[0], found[1]
    assert unreadable == Problem("unreadable", f"{folder}/{RECS[0]}", None, None, sentence)
    assert (magic.code, magic.file, magic.offset) == ("magic", f"{folder}/{RECS[2]}", 0)
    missing = [each.id for each in found if each.code == "list-missing"]
    assert missing == [11, 5, 21]


@pytest.mark.parametrize("name", [IDXS[0], "set.idx"])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (make_unreadable, "cannot be read: Input/output error"),
        (make_a_fifo_of, "not a regular file"),
    ],
)
def test_an_index_that_cannot_be_read_is_told(
    folder: Path, name: str, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder / name)
    assert problems(folder / "set") == [
        Problem("index-unreadable", f"{folder}/{name}", None, None, sentence)
    ]


@pytest.mark.parametrize("name", [RECS[1], IDXS[1], "set.idx"])
def test_a_folder_in_a_files_place_is_no_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    assert told(folder / "set") == [("file-missing", name, None, None)]


# --- list -------------------------------------------------------------------------------------


def listed(folder: Path, *rows: str) -> str:
    (folder / "x.lst").write_text("".join(f"{row}\n" for row in rows), "utf-8")
    return str(folder / "x.lst")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["5\t1\ta.jpg", "7\t2.0\tb.jpg", "9\t0.1\t0.2\tc.jpg"], []),
        (
            ["5\t1\ta.jpg", "8\t1\tnew.jpg", "7\t2\tb.jpg", "9\t0.1\t0.2\tc.jpg"],
            [("list-missing", "x.lst", None, 8, "new.jpg has no record")],
        ),
        (
            ["5\t1\ta.jpg", "9\t0.1\t0.2\tc.jpg"],
            [("list-extra", "one.rec", 40, 7, "the id is not in LST")],
        ),
        (
            ["7\t2\tb.jpg", "5\t1\ta.jpg", "9\t0.1\t0.2\tc.jpg"],
            [("list-order", "one.rec", 0, 5, "a.jpg stands elsewhere in LST")],
        ),
        (
            ["5\t1.5\ta.jpg", "7\t2\t3\tb.jpg", "9\t0.1\t0.3\tc.jpg"],
            [
                ("list-label", "one.rec", 0, 5, "labels 1, expected 1.5 (a.jpg)"),
                ("list-label", "one.rec", 40, 7, "labels 2, expected 2, 3 (b.jpg)"),
                ("list-label", "one.rec", 80, 9, "labels 0.1, 0.2, expected 0.1, 0.3 (c.jpg)"),
            ],
        ),
        (
            ["5\t1\ta.jpg", "7\t2\tb.jpg", "9\t0.1\tc.jpg"],
            [("list-label", "one.rec", 80, 9, "labels 0.1, 0.2, expected 0.1 (c.jpg)")],
        ),
    ],
)
def test_records_are_compared_with_a_list(
    tmp_path: Path, rows: list[str], expected: list[tuple[str, str, int | None, int, str]]
) -> None:
    prefix = lone(tmp_path, record(5, 1.0), record(7, 2.0), record(9, 0.1, 0.2))
    path = listed(tmp_path, *rows)
    assert problems(prefix, list_path=path) == [
        Problem(code, f"{tmp_path}/{name}", offset, number, sentence.replace("LST", path))
        for code, name, offset, number, sentence in expected
    ]


def test_a_second_record_with_one_id_is_extra(tmp_path: Path) -> None:
    prefix = lone(tmp_path, record(5), record(5), record(7))
    assert problems(prefix, list_path=listed(tmp_path, "5\t0\ta.jpg", "7\t0\tb.jpg")) == [
        Problem("list-extra", f"{prefix}.rec", 40, 5, "another record before has the same id")
    ]


def test_rows_that_could_not_be_packed_are_not_missing(folder: Path) -> None:
    path = str(folder / "set.lst")
    assert (folder / "set.failures.tsv").read_bytes().startswith(b"8\tant/gone.jpg\t")
    assert problems(folder / "set", list_path=path) == []
    (folder / "set.failures.tsv").write_bytes(b"9" * 9999 + b"\tx\ty\n\xff\n5\tbee/bee_3.png\tx\n")
    assert problems(folder / "set", list_path=path) == [
        Problem("list-missing", path, None, 8, "ant/gone.jpg has no record")
    ]


def test_a_list_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    prefix = lone(tmp_path, record(5))
    with pytest.raises(InputError):
        verify(prefix, list_path=str(tmp_path / "gone.lst"))
    with pytest.raises(ListError):
        verify(prefix, list_path=listed(tmp_path, "5 0 a.jpg"))


# --- images -----------------------------------------------------------------------------------


def test_images_that_do_not_decode_whole_are_told_with_their_ids(tmp_path: Path) -> None:
    damaged = bytearray(JPEG)
    scan = len(JPEG) * 3 // 4
    damaged[scan : scan + 16] = b"\xaa" * 16
    prefix = lone(
        tmp_path,
        record(30, image=JPEG),
        record(31, image=JPEG[:-400]),
        record(32, image=bytes(damaged)),
        record(33, image=b"<html>"),
        record(34, image=b""),
        frame(b"no record"),
    )
    report = verify(prefix, decode=True, workers=1)
    found = [(each.code, each.id) for each in report.problems]
    assert found == [
        ("header", None),
        ("image", 31),
        ("image", 32),
        ("image", 33),
        ("no-image", 34),
    ]
    sentences = {each.id: each.sentence for each in report.problems}
    assert "truncated" in sentences[31] or "Premature end" in sentences[31]
    assert "Corrupt JPEG data" in sentences[32]
    assert sentences[33] == "not an image of a known kind: the file begins with b'<html>'"
    assert sentences[34] == "the record has no image"


def test_a_codecs_remark_on_a_whole_image_is_no_problem(tmp_path: Path) -> None:
    stray = JPEG[:-2] + b"x" * 20 + JPEG[-2:]  # bytes before the end marker
    prefix = lone(tmp_path, record(1, image=stray))
    report = verify(prefix, decode=True, workers=1)
    assert report.problems == []
    ((place, text),) = report.remarks
    assert place == f"{prefix}.rec: byte 0"
    assert text == "Corrupt JPEG data: 16 extraneous bytes before marker 0xd9"


def test_many_records_are_decoded_by_several_workers_in_file_order(tmp_path: Path) -> None:
    small = (CLEAN / "ant" / "ant_4.JPEG").read_bytes()
    images = [b"x" if at % 50 == 0 else small for at in range(201)]
    prefix = lone(tmp_path, *(record(at, image=image) for at, image in enumerate(images)))
    found = problems(prefix, decode=True, workers=2)
    assert [(each.code, each.id) for each in found] == [("image", at) for at in range(0, 201, 50)]


# --- anything ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values),
    max_leaves=12,
)
NAMES = st.sampled_from(["set.rec", "set.idx", "set_000.rec", "set.lst", "a\0b", "\ud800", "x"])
SHARD = st.fixed_dictionaries(
    {"rec": NAMES | JSON, "idx": NAMES},
    optional={"records": JSON, "bytes": JSON, "sha256": JSON | st.just("0" * 64)},
)
MANIFEST = st.fixed_dictionaries(
    {"shards": st.lists(SHARD, max_size=3) | JSON},
    optional={
        name: JSON | st.integers(-1, 3)
        for name in ("format", "version", "list", "rows", "packed", "failed", "classes")
    }
    | {"joint_index": JSON | NAMES, "label_widths": JSON, "codecs": JSON},
)
REC = st.binary(max_size=120) | st.lists(
    st.sampled_from([THREE[0], record(2, 1.0, 2.0), frame(MAGIC_BYTES * 3), MAGIC_BYTES, b"\0"])
).map(b"".join)
IDX = st.binary(max_size=60) | st.lists(
    st.sampled_from(["5\t0\n", "7\t40\n", "\n", "5\t", "9" * 20, "\t" + "9" * 19 + "\n", "x"])
).map(lambda lines: "".join(lines).encode())


def with_its_sha256(manifest: dict[str, Any]) -> bytes:
    """What is said in it is then believed."""
    try:
        return write_manifest(manifest)
    except UnicodeEncodeError:  # no JSON file holds such a name
        return json.dumps(manifest).encode()


def test_a_manifest_with_its_sha256_may_still_state_nonsense(folder: Path) -> None:
    shards = stored(folder)["shards"]
    for size, code in ((1 << 47, "bytes"), (1 << 63, "manifest"), (10**400, "manifest")):
        shards[0]["bytes"] = size
        store(folder, shards=shards, label_widths={"9" * 20: 6})
        assert {code, "manifest"} <= codes(folder / "set")


@given(
    rec=REC,
    idx=IDX,
    data=st.binary(max_size=60)
    | MANIFEST.map(lambda contents: json.dumps(contents).encode())
    | MANIFEST.map(with_its_sha256),
)
def test_no_bytes_make_verify_fail(rec: bytes, idx: bytes, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "set.rec").write_bytes(rec)
        (folder / "set.idx").write_bytes(idx)
        (folder / "set.manifest.json").write_bytes(data)
        (folder / "set.lst").write_text("5\t0\ta.jpg\n7\t1\tb.jpg\n", "utf-8")
        for prefix in ("set", "set.rec"):
            assert "manifest" in codes(folder / prefix, list_path=str(folder / "set.lst"))


def test_shards_without_their_joint_index_or_with_a_gap_are_told_without_a_manifest(
    tmp_path: Path, im2rec: Run
) -> None:
    rows = "".join(f"{row}\t0\tant/ant_{row % 3}.jpg\n" for row in range(6))
    (tmp_path / "set.lst").write_text(rows, encoding="utf-8")
    im2rec("pack", "--shards", "3", "set", CLEAN)
    (tmp_path / "set.manifest.json").unlink()
    (tmp_path / "set.idx").unlink()
    done = im2rec("verify", "set")
    assert done.stderr.startswith(
        "im2rec: warning: set: there is no index beside it, so none was checked\n"
    )
    (tmp_path / "set_001.rec").unlink()
    done = im2rec("verify", "set", code=1)
    assert done.stdout == "set_001.rec: file-missing: a shard of the set is not there\n"


def test_a_shard_by_itself_is_compared_with_its_entry_in_the_manifest(folder: Path) -> None:
    manifest, rec = f"{folder}/set.manifest.json", f"{folder}/{RECS[1]}"
    assert verify(rec).manifest == manifest
    assert (folder / RECS[0]).read_bytes() != (folder / RECS[1]).read_bytes()
    data = bytearray((folder / RECS[1]).read_bytes())
    data[-6] ^= 1  # in an image
    (folder / RECS[1]).write_bytes(data)
    expected = Problem("sha256", rec, None, None, f"not the bytes that {manifest} describes")
    assert problems(rec) == [expected]
    shutil.copy(folder / RECS[0], rec)  # the other shard, sound by itself
    assert "sha256" in codes(rec)
    assert problems(folder / RECS[0]) == []


def test_of_a_shard_by_itself_a_damaged_manifest_is_told(folder: Path) -> None:
    edit(folder / "set.manifest.json", b'"rows": ', b'"rows": 1')
    assert told(folder / RECS[1]) == [("manifest", "set.manifest.json", None, None)]
    (folder / "set.manifest.json").write_bytes(b"{")
    assert told(folder / RECS[1]) == [("manifest", "set.manifest.json", None, None)]


def test_that_there_is_no_manifest_is_said(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "set.lst").write_text("1\t0\tant/ant_0.jpg\n", encoding="utf-8")
    im2rec("pack", "set", CLEAN)
    assert "warning" not in im2rec("verify", "set").stderr
    assert json.loads(im2rec("verify", "--json", "set").stdout)[0]["manifest"] == (
        "set.manifest.json"
    )
    (tmp_path / "set.manifest.json").unlink()
    assert im2rec("verify", "set").stderr == (
        "im2rec: warning: set: there is no manifest beside it, so its bytes were not compared "
        "with those that were packed\nset: 1 record, 8.9 KiB: no problem\n"
    )
    assert im2rec("verify", "-q", "set").stderr == ""
    assert json.loads(im2rec("verify", "--json", "set").stdout)[0]["manifest"] is None
