"""What inspect says of sound, odd and damaged files."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, ODD
from hypothesis import given
from hypothesis import strategies as st

from im2rec.errors import InputError
from im2rec.framing import HEAD, MAGIC_BYTES, frame
from im2rec.image_record import encode
from im2rec.inspection import RecordLine, Spread, Summary, inspect_set
from im2rec.lst import read_list
from im2rec.pack import PackOptions, pack_list
from im2rec.record_set import find_set, other_format

JPEG = (CLEAN / "ant" / "ant_0.jpg").read_bytes()
PNG = (CLEAN / "ant" / "ant_3.png").read_bytes()
PACKS = GOLDEN / "packs"


def record(number: int, *labels: float, image: bytes = JPEG) -> bytes:
    return frame(encode(number, labels or (0.0,), image))


def write(folder: Path, *records: bytes) -> str:
    """A .rec of these records, without an index; its prefix."""
    (folder / "set.rec").write_bytes(b"".join(records))
    return str(folder / "set")


def inspect(prefix: str | Path) -> Summary:
    return inspect_set(find_set(str(prefix)))


# --- golden files: numbers read with MXNet and OpenCV -----------------------------------------

FOUR_CLASSES = Counter({0: 6, 1: 6, 2: 6, 3: 6})
ONE_LABEL = {1: 24}
JPEGS = {"jpeg": 24}


CHANNELS = {  # the four PNGs are grey
    "gray": Counter({1: 24}),
    "multi_label": Counter({3: 20, 1: 4}),
    "pass_through": Counter({3: 20, 1: 4}),
}


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize(
    ("name", "size", "label_widths", "classes", "kinds", "width", "height", "image_bytes"),
    [
        (
            "multi_label",
            210124,
            {3: 24},
            None,
            {"jpeg": 20, "png": 4},
            (33, 100, 240),
            (33, 99, 250),
            (1082, 4416, 43821),
        ),
        (
            "pass_through",
            209836,
            ONE_LABEL,
            FOUR_CLASSES,
            {"jpeg": 20, "png": 4},
            (33, 100, 240),
            (33, 99, 250),
            (1082, 4416, 43821),
        ),
        (
            "detection",
            81656,
            {9: 8, 14: 8, 19: 8},
            None,
            JPEGS,
            (64, 64, 266),
            (64, 64, 266),
            (1997, 2996, 5957),
        ),
        (
            "png",
            255956,
            ONE_LABEL,
            FOUR_CLASSES,
            {"png": 24},
            (64, 64, 266),
            (64, 64, 266),
            (3549, 10313, 25892),
        ),
        (
            "crop_only",
            134428,
            ONE_LABEL,
            FOUR_CLASSES,
            JPEGS,
            (33, 96, 187),
            (33, 96, 187),
            (1215, 4730, 14637),
        ),
        (
            "gray",
            58340,
            ONE_LABEL,
            FOUR_CLASSES,
            JPEGS,
            (64, 64, 266),
            (64, 64, 266),
            (1553, 2114, 4727),
        ),
    ],
)
def test_golden_packs_are_summed_up(
    tmp_path: Path,
    with_index: bool,
    name: str,
    size: int,
    label_widths: dict[int, int],
    classes: Counter[int] | None,
    kinds: dict[str, int],
    width: tuple[int, int, int],
    height: tuple[int, int, int],
    image_bytes: tuple[int, int, int],
) -> None:
    for ending in ("rec", "idx") if with_index else ("rec",):
        shutil.copy(PACKS / name / f"set.{ending}", tmp_path)
    summary = inspect(tmp_path / "set")
    assert summary == Summary(
        name=str(tmp_path / "set"),
        files=[str(tmp_path / "set.rec")],
        bytes=size,
        records=24,
        ids=(0, 23),
        label_widths=Counter(label_widths),
        image_widths=Counter(label_widths),
        class_counts=classes,
        kinds=Counter(kinds),
        width=Spread(*width),
        height=Spread(*height),
        image_bytes=Spread(*image_bytes),
        index=["complete" if with_index else "none"],
        object_counts=Counter({0: 12, 1: 7, 2: 15, 3: 14}) if name == "detection" else None,
        channels=CHANNELS.get(name, Counter({3: 24})),
        index_file=str(tmp_path / "set.idx") if with_index else None,
    )
    assert summary.num_training_samples == 24
    assert summary.num_classes == (4 if classes or summary.object_counts else None)
    assert summary.label_width == max(label_widths)


def test_insightfaces_layout_is_summed_up() -> None:
    summary = inspect(GOLDEN / "recordio" / "insightface.rec")
    assert (summary.records, summary.bytes, summary.ids) == (7, 29208, (0, 6))
    assert (summary.without_image, summary.num_training_samples) == (3, 4)
    assert summary.label_widths == {1: 4, 2: 3}
    assert (summary.label_width, summary.identities, summary.num_classes) == (1, 2, 2)
    assert summary.reader_options() == {"insightface": {"num_classes": 2, "num_image": 4}}
    assert summary.class_counts == {0: 2, 1: 2}  # of the images: the identities' labels are ranges
    assert summary.width == Spread(160, 160, 160)
    assert (summary.index, summary.joint_index) == (["complete"], None)


def test_payloads_that_are_no_image_records_are_counted() -> None:
    summary = inspect(GOLDEN / "recordio" / "framing.rec")
    assert (summary.records, summary.unreadable, summary.cut) == (20, 20, 8)
    assert (summary.ids, summary.label_widths, summary.kinds) == (None, {}, {})
    assert (summary.num_training_samples, summary.num_classes, summary.label_width) == (
        0,
        None,
        None,
    )


def test_images_of_no_known_kind_are_counted() -> None:
    summary = inspect(GOLDEN / "recordio" / "image_records.rec")
    assert (summary.records, summary.without_image, summary.kinds) == (7, 1, {"?": 6})
    assert summary.ids == (1, 2**63)
    assert summary.label_widths == {1: 4, 2: 1, 3: 1, 237: 1}
    assert (summary.width, summary.image_bytes) == (None, Spread(2, 3, 4))


# --- what is counted --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "spread"),
    [
        ([5], Spread(5, 5, 5)),
        ([9, 1], Spread(1, 1, 9)),  # of an even number, the lower of the two in the middle
        ([7, 1, 9], Spread(1, 7, 9)),
        ([4, 1, 3, 2], Spread(1, 2, 4)),
        ([2, 2, 8, 2, 8], Spread(2, 2, 8)),
    ],
)
def test_a_spread_is_the_smallest_the_middle_and_the_largest(
    tmp_path: Path, sizes: list[int], spread: Spread
) -> None:
    records = [record(at, image=b"x" * size) for at, size in enumerate(sizes)]
    assert inspect(write(tmp_path, *records)).image_bytes == spread


@pytest.mark.parametrize(
    ("labels", "counts", "classes"),
    [
        ([(0.0,), (2.0,), (2.0,)], {0: 1, 2: 2}, 3),
        ([(-1.0,), (2.0,)], None, None),
        ([(2.0,), (0.5,), (1.0,)], None, None),
        ([(1.0,), (math.nan,)], None, None),
        ([(1.0,), (math.inf,)], None, None),
        ([(1.0,), (1.0, 2.0)], None, None),
        ([(16777216.0,)], {16777216: 1}, 16777217),
    ],
)
def test_classes_are_counted_where_each_label_is_one_whole_number(
    tmp_path: Path,
    labels: list[tuple[float, ...]],
    counts: dict[int, int] | None,
    classes: int | None,
) -> None:
    prefix = write(tmp_path, *(record(at, *each) for at, each in enumerate(labels)))
    summary = inspect(prefix)
    assert (summary.class_counts, summary.num_classes) == (counts, classes)


def test_a_label_array_of_one_is_one_label(tmp_path: Path) -> None:
    payload = struct.pack("<IfQQf", 1, 0.0, 5, 0, 3.0) + JPEG
    summary = inspect(write(tmp_path, frame(payload)))
    assert (summary.label_widths, summary.class_counts) == ({1: 1}, {3: 1})


def test_a_huge_label_width_is_counted(tmp_path: Path) -> None:
    summary = inspect(write(tmp_path, record(1, *[0.5] * 100_000), record(2)))
    assert (summary.label_widths, summary.label_width) == ({100_000: 1, 1: 1}, 100_000)
    assert summary.kinds == {"jpeg": 2}


def test_cut_records_are_read_whole(tmp_path: Path) -> None:
    names = ("aligned", "aligned_twice", "unaligned")
    images = [(ODD / "magic" / f"{name}.jpg").read_bytes() for name in names]
    lines: list[RecordLine] = []
    prefix = write(tmp_path, *(record(at, image=image) for at, image in enumerate(images)))
    summary = inspect_set(find_set(prefix), each=lines.append)
    assert [line.parts for line in lines] == [2, 4, 1]  # the second holds three magics
    assert [line.image_bytes for line in lines] == [len(image) for image in images]
    assert (summary.cut, summary.kinds) == (2, {"jpeg": 3})


def test_each_record_is_a_line(tmp_path: Path) -> None:
    bare = record(9, 4.0, 5.0, image=b"")
    cut = frame(MAGIC_BYTES * 6)  # 24 bytes: a header made of magics, and of a flag too large
    prefix = write(tmp_path, record(7, 3.0, image=PNG), bare, cut, record(8, image=b"text"))
    lines: list[RecordLine] = []
    inspect_set(find_set(prefix), each=lines.append)
    file = prefix + ".rec"
    first = 8 + 24 + len(PNG) + -len(PNG) % 4
    assert lines == [
        RecordLine(file, 0, first, 1, 7, (3.0,), "png", 64, 64, len(PNG)),
        RecordLine(file, first, 40, 1, 9, (4.0, 5.0), "-", 0, 0, 0),
        RecordLine(file, first + 40, 56, 7, None, (), "?", 0, 0, 0),
        RecordLine(file, first + 96, 36, 1, 8, (0.0,), "?", 0, 0, 4),
    ]


def test_progress_ends_at_the_bytes_of_the_set(tmp_path: Path) -> None:
    (tmp_path / "set_000.rec").write_bytes(record(0, image=b"") + record(1, image=b""))
    (tmp_path / "set_001.rec").write_bytes(record(2, image=b""))
    seen: list[tuple[int, int]] = []
    records = find_set(str(tmp_path / "set"))
    inspect_set(records, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 96), (96, 96)]  # a call for each run of sound records


# --- several shards, indexes, class names -----------------------------------------------------


def test_shards_are_summed_up_as_one_set(tmp_path: Path) -> None:
    shutil.copy(PACKS / "pass_through" / "set.lst", tmp_path)
    options = PackOptions(shards=5, workers=1, fsync=False)
    pack_list(str(tmp_path / "set.lst"), str(CLEAN), options)
    shards = inspect(tmp_path / "set")
    whole = inspect(PACKS / "plain" / "set")
    assert shards.files == [str(tmp_path / f"set_00{number}.rec") for number in range(5)]
    assert (shards.index, shards.joint_index) == (["complete"] * 5, "complete")
    for name in ("bytes", "records", "ids", "label_widths", "class_counts", "kinds"):
        assert getattr(shards, name) == getattr(whole, name)
    for name in ("width", "height", "image_bytes"):
        assert getattr(shards, name) == getattr(whole, name)
    one = inspect(tmp_path / "set_004.rec")
    ids = [entry.id for entry in read_list(str(tmp_path / "set.lst"))][19:]  # 24 * 4 // 5 = 19
    assert (one.records, one.ids) == (5, (min(ids), max(ids)))
    (tmp_path / "set_001.rec").unlink()
    left = inspect(tmp_path / "set")
    assert (len(left.files), left.joint_index) == (4, f"24 lines for {left.records} records")


@pytest.mark.parametrize(
    ("index", "state"),
    [
        (b"0\t0\n1\t32\n", "complete"),
        (b"0\t0\r\n1\t32\r\n", "complete"),
        (b"0\t0\n", "1 lines for 2 records"),
        (b"", "0 lines for 2 records"),
        (b"0\t0\n1 32\n", "malformed at line 2"),
        (b"0\t0\n1\t32", "malformed at line 2"),
    ],
)
def test_a_word_tells_of_the_index(tmp_path: Path, index: bytes, state: str) -> None:
    prefix = write(tmp_path, record(0, image=b""), record(1, image=b""))
    (tmp_path / "set.idx").write_bytes(index)
    assert inspect(prefix).index == [state]


@pytest.mark.parametrize("kind", ["fifo", "failing"])
def test_an_index_that_cannot_be_read_is_told_of(tmp_path: Path, kind: str) -> None:
    prefix = write(tmp_path, record(0))
    if kind == "fifo":
        os.mkfifo(tmp_path / "set.idx")
        assert inspect(prefix).index == ["not a regular file"]
    else:
        (tmp_path / "set.idx").symlink_to("/proc/self/mem")  # opens, but has no first byte
        assert inspect(prefix).index == ["unreadable: Input/output error"]


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "set.rec")
    with pytest.raises(InputError) as caught:
        inspect(tmp_path / "set")
    assert str(caught.value) == f"{tmp_path}/set.rec: not a regular file"


@pytest.mark.parametrize("name", ["set.classes.txt", "set_train.classes.txt"])
def test_class_names_come_from_the_map_beside_the_set(tmp_path: Path, name: str) -> None:
    data = record(0, 1.0) + record(1, 2.0)
    (tmp_path / "set_train.rec").write_bytes(data)
    (tmp_path / name).write_text("ant\nbee \u00e9\n", "utf-8")
    summary = inspect(tmp_path / "set_train")
    assert summary.class_names == ["ant", "bee \u00e9"]
    assert [summary.name_of(number) for number in (-1, 0, 1, 2)] == [
        None,
        "ant",
        "bee \u00e9",
        None,
    ]
    assert summary.as_dict()["classes"] == [
        {"class": 1, "name": "bee \u00e9", "records": 1},
        {"class": 2, "name": None, "records": 1},
    ]


def test_the_dictionary_has_every_number_and_is_json(tmp_path: Path) -> None:
    prefix = write(tmp_path, record(5, 1.0), record(4, image=b""), frame(b"short"), b"junk")
    assert json.loads(json.dumps(inspect(prefix).as_dict())) == {
        "name": prefix,
        "files": [prefix + ".rec"],
        "bytes": 8 + 24 + len(JPEG) + -len(JPEG) % 4 + 32 + 16 + 4,
        "records": 3,
        "ids": {"min": 4, "max": 5},
        "label_widths": {"1": 2},
        "classes": [{"class": 1, "name": None, "records": 1}],
        "objects": None,
        "kinds": {"jpeg": 1},
        "channels": {"3": 1},
        "width": {"min": 160, "median": 160, "max": 160},
        "height": {"min": 120, "median": 120, "max": 120},
        "image_bytes": {"min": len(JPEG), "median": len(JPEG), "max": len(JPEG)},
        "cut": 0,
        "without_image": 1,
        "unreadable": 1,
        "damaged": 1,
        "index": ["none"],
        "joint_index": None,
        "num_training_samples": 1,
        "num_classes": 2,
        "label_width": 1,
        "readers": {},  # none takes records without an image
    }


# --- damage -----------------------------------------------------------------------------------

A, B, C = (record(number, image=bytes([number]) * 40) for number in (1, 2, 3))
CUT = frame(encode(4, (0.0,), b"abcd" + MAGIC_BYTES + b"efgh"))
FIRST_PART = 8 + 24 + 4  # of CUT: bytes of its first part


@pytest.mark.parametrize(
    ("data", "ids", "damaged"),
    [
        (A + B + C, [1, 2, 3], 0),
        (A + b"x" + B[1:] + C, [1, 3], 1),
        (b"junk" + A + b"junk" * 9 + B + C + b"tail", [1, 2, 3], 3),
        (A + B + C[:-1], [1, 2], 1),
        (A + B + C[:5], [1, 2], 1),
        (A + HEAD.pack(0xCED7230A, 4 << 29) + B + C, [1, 2, 3], 1),
        (CUT[:FIRST_PART] + A + B, [1, 2], 1),  # the last part is lost
        (CUT[FIRST_PART:] + A + B, [1, 2], 1),  # the first part is lost
        (CUT + A, [4, 1], 0),
        # a first part that reaches into the middle of B swallows neither A nor B
        (
            HEAD.pack(0xCED7230A, 1 << 29 | FIRST_PART - 8 + len(CUT[FIRST_PART:] + A) + 20)
            + CUT[8:]
            + A
            + B
            + C,
            [1, 2, 3],
            1,
        ),
        (b"\0" * 64, [], 1),
        (MAGIC_BYTES * 16, [], 1),
        (b"", [], 0),
    ],
)
def test_damaged_places_are_counted_and_the_records_behind_them_read(
    tmp_path: Path, data: bytes, ids: list[int], damaged: int
) -> None:
    lines: list[RecordLine] = []
    summary = inspect_set(find_set(write(tmp_path, data)), each=lines.append)
    assert [line.id for line in lines] == ids
    assert (summary.records, summary.damaged, summary.bytes) == (len(ids), damaged, len(data))
    assert b"".join(data[line.offset :][: line.length] for line in lines) == b"".join(
        {1: A, 2: B, 3: C, 4: CUT}[number] for number in ids
    )


def both_ways(prefix: str | Path) -> Summary:
    """The summary, after seeing that it is the same where records are read one by one."""
    summary = inspect(prefix)
    one_by_one = inspect_set(find_set(str(prefix)), each=lambda _: None)
    assert summary == one_by_one
    assert json.dumps(summary.as_dict()) == json.dumps(one_by_one.as_dict())  # in the same order
    return summary


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.rglob("*.rec")), ids=lambda path: "/".join(path.parts[-3:])
)
def test_golden_files_are_summed_up_the_same_one_by_one(path: Path) -> None:
    assert both_ways(path).records > 0


ODD_IMAGES = (
    JPEG,
    PNG,
    JPEG[:200],
    PNG[:20],
    b"",
    b"x",
    b"text",
    (ODD / "kinds/gif.gif").read_bytes(),
)
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 2.0, 2.5, -1.0, 1e30, math.nan, math.inf])


@st.composite
def odd_records(draw: st.DrawFn) -> bytes:
    labels = draw(st.lists(NUMBERS, max_size=3) | st.just([1.0]))
    flag = draw(st.sampled_from([len(labels), len(labels), 0, 9]))
    head = struct.pack("<IfQQ", flag, draw(NUMBERS), draw(st.integers(0, 2**64 - 1)), 0)
    array = struct.pack(f"<{len(labels)}f", *labels)
    return frame(
        (head + array + draw(st.sampled_from(ODD_IMAGES)))[: draw(st.just(None) | st.just(20))]
    )


@given(st.lists(odd_records() | st.sampled_from([CUT, MAGIC_BYTES, b"\0\0\0\0"]), max_size=8))
def test_any_records_are_summed_up_the_same_one_by_one(records: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both_ways(write(Path(folder), *records))


def test_kinds_are_in_the_order_in_which_they_first_come(tmp_path: Path) -> None:
    images = [b"x", PNG, JPEG, PNG, b"y", JPEG]
    summary = both_ways(
        write(tmp_path, *(record(at, image=each) for at, each in enumerate(images)))
    )
    assert list(summary.as_dict()["kinds"].items()) == [("?", 2), ("png", 2), ("jpeg", 2)]


def test_labels_are_classes_only_until_one_is_none_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "set_000.rec").write_bytes(record(0, 0.5))
    (tmp_path / "set_001.rec").write_bytes(record(1, 1.0))
    assert both_ways(tmp_path / "set").class_counts is None


@given(st.binary(max_size=300) | st.lists(st.sampled_from([A, B, CUT, MAGIC_BYTES, b"\0"])))
def test_any_bytes_are_got_through(data: bytes | list[bytes]) -> None:
    joined = data if isinstance(data, bytes) else b"".join(data)
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder), joined)
        (Path(folder) / "set.idx").write_bytes(joined)
        if other_format(prefix + ".rec"):  # a few beginnings are those of other kinds
            return
        summary = both_ways(prefix)
    assert summary.bytes == len(joined)
    assert bool(summary.records + summary.damaged) == bool(joined)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (JPEG, "a JPEG image"),
        (b"\x1f\x8b\x08\0", "a gzip file"),
        (b"0\t0\n1\t36\n", "an index (.idx)"),
        (b"0\t0\ta/b.jpg\n", "a list (.lst)"),
    ],
)
def test_a_file_of_another_kind_is_named_as_such(tmp_path: Path, data: bytes, kind: str) -> None:
    prefix = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        inspect(prefix)
    assert str(caught.value) == f"{prefix}.rec: this is {kind}; name a .rec file or a prefix"


def test_a_class_map_that_is_none_is_told_of_before_anything_is_read(tmp_path: Path) -> None:
    prefix = write(tmp_path, A)
    (tmp_path / "set.classes.txt").write_text("a\n\nb\n", "utf-8")
    lines: list[RecordLine] = []
    with pytest.raises(InputError, match="line 2 is empty"):
        inspect_set(find_set(prefix), each=lines.append)
    assert lines == []


# --- what readers must be told ----------------------------------------------------------------

BOXES = (2.0, 5.0, 0.0, 0.25, 0.25, 0.5, 0.5)
TWO = (*BOXES, 3.0, 0.25, 0.25, 0.5, 0.5)
PAD = (2.0, 5.0, -1.0, 0.0, 0.0, 0.0, 0.0)


def test_the_readers_are_told_what_they_ask_for(tmp_path: Path) -> None:
    prefix = write(tmp_path, record(0, 1.0), record(1, 2.0))
    (tmp_path / "set.idx").write_bytes(b"0\t0\n")
    assert both_ways(prefix).reader_options() == {
        "mxnet": {
            "path_imgrec": f"{prefix}.rec",
            "path_imgidx": f"{prefix}.idx",
            "label_width": 1,
            "data_shape": [3, 120, 160],
        },
        "dali": {"path": [f"{prefix}.rec"], "index_path": [f"{prefix}.idx"]},
        "sagemaker-classification": {
            "num_classes": 3,
            "num_training_samples": 2,
            "image_shape": "3,120,160",
        },
    }


def test_several_shards_are_one_uri_and_have_one_index(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"set_00{number}.rec").write_bytes(record(number, 1.0, 2.0, image=PNG))
        (tmp_path / f"set_00{number}.idx").write_bytes(b"0\t0\n")
    recs = [f"{tmp_path}/set_00{number}.rec" for number in range(2)]
    options = both_ways(tmp_path / "set").reader_options()
    assert options == {
        "mxnet": {"path_imgrec": ";".join(recs), "label_width": 2, "data_shape": [3, 64, 64]},
        "dali": {"path": recs},
    }
    (tmp_path / "set.idx").write_bytes(b"0\t0\n")
    options = both_ways(tmp_path / "set").reader_options()
    assert options["mxnet"]["path_imgidx"] == f"{tmp_path}/set.idx"
    assert options["dali"]["index_path"] == [f"{tmp_path}/set.idx"]


@pytest.mark.parametrize("sign", ";#?")
def test_what_mxnet_cannot_name_it_is_not_told(tmp_path: Path, sign: str) -> None:
    (tmp_path / f"a{sign}b.rec").write_bytes(record(0))
    options = both_ways(tmp_path / f"a{sign}b").reader_options()
    assert "path_imgrec" not in options["mxnet"]
    assert options["dali"] == {"path": [f"{tmp_path}/a{sign}b.rec"]}


@pytest.mark.parametrize(
    ("labels", "objects", "classes"),
    [
        ([BOXES, TWO, PAD], {0: 2, 3: 1}, 4),
        ([TWO], {0: 1, 3: 1}, 4),
        ([PAD], {}, None),
        ([BOXES, (1.0,)], None, None),
        ([(*BOXES[:5], 0.25, 0.5), BOXES], None, None),  # x2 is x1
        ([(4.0, 6.0, 7.0, 7.0, 2.0, 0.25, 0.25, 0.5, 0.5, 9.0)], {2: 1}, 3),
    ],
)
def test_objects_are_counted_by_class(
    tmp_path: Path,
    labels: list[tuple[float, ...]],
    objects: dict[int, int] | None,
    classes: int | None,
) -> None:
    summary = both_ways(write(tmp_path, *(record(at, *each) for at, each in enumerate(labels))))
    assert (summary.object_counts, summary.num_classes) == (objects, classes)
    options = summary.reader_options()
    if classes is None:
        assert "sagemaker-detection" not in options
    else:
        longest = max(map(len, labels))
        assert options["mxnet"]["label_pad_width"] == longest
        assert options["sagemaker-detection"] == {
            "num_classes": classes,
            "num_training_samples": len(labels),
            "label_width": longest,
        }
    told = summary.as_dict()["objects"]
    expected = [
        {"class": k, "name": None, "objects": v} for k, v in sorted((objects or {}).items())
    ]
    assert told == (expected or None)


@pytest.mark.parametrize(
    ("names", "shape"),
    [
        (["gray.jpg", "gray16.png"], (1, 60, 80)),
        (["gray.jpg", "cmyk.jpg"], (3, 60, 80)),
        (["rgba.png", "rgba_alpha.png"], (4, 60, 80)),
        (["la.png"], (3, 60, 80)),
        (["palette.png", "gif.gif"], (3, 60, 80)),
        (["gray.jpg", "one_pixel.jpg"], None),
        (["thin_tall.jpg", "one_pixel.jpg"], None),
        ([], None),
    ],
)
def test_the_shape_is_that_of_all_images(
    tmp_path: Path, names: list[str], shape: tuple[int, int, int] | None
) -> None:
    images = [(ODD / "kinds" / name).read_bytes() for name in names]
    records = (record(at, image=image) for at, image in enumerate(images))
    assert both_ways(write(tmp_path, *records)).data_shape == shape


@pytest.mark.parametrize("count", [4, 400])
@pytest.mark.parametrize("as_lines", [False, True])
def test_a_record_that_spans_over_others_is_damage_and_they_are_counted(
    count: int, as_lines: bool, tmp_path: Path
) -> None:
    rows = [record(number, 1.0) for number in range(count)]
    data = bytearray(b"".join(rows))
    struct.pack_into("<I", data, 4, len(rows[0]) * 3 - 8)
    lines: list[RecordLine] = []
    summary = inspect_set(
        find_set(write(tmp_path, bytes(data))), each=lines.append if as_lines else None
    )
    assert (summary.damaged, summary.records, summary.ids) == (1, count - 1, (1, count - 1))
    assert len(lines) == (count - 1 if as_lines else 0)


def test_a_set_whose_only_file_is_gone_has_no_index(tmp_path: Path) -> None:
    shards = [{"rec": "set.rec", "idx": "set.idx"}]
    (tmp_path / "set.manifest.json").write_text(json.dumps({"shards": shards}))
    summary = inspect(tmp_path / "set")
    assert (summary.files, summary.records, summary.index_file) == ([], 0, None)
