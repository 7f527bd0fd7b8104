"""Each rule of each reader is broken by a set that breaks nothing else, and kept by sound ones."""

from __future__ import annotations

import io
import shutil
import struct
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, ODD, Run
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from im2rec import detection, facts, readers
from im2rec.cli.verify import READERS as CHOICES
from im2rec.errors import OptionError
from im2rec.facts import Shard
from im2rec.framing import MAGIC, RunScanner, frame
from im2rec.image_ops import ImageOptions
from im2rec.image_record import encode
from im2rec.index import format_index
from im2rec.pack import PackOptions, pack_list
from im2rec.readers import CODES, READERS
from im2rec.record_set import RecordSet, find_set
from im2rec.verify import Problem, VerifyOptions, verify_set

JPEG = (ODD / "kinds" / "upper.JPG").read_bytes()  # 80x60
PNG = (ODD / "kinds" / "wrong_extension_png.jpg").read_bytes()
GIF = (ODD / "kinds" / "gif.gif").read_bytes()
GREY = (ODD / "kinds" / "gray.jpg").read_bytes()
CUT = (ODD / "magic" / "aligned.jpg").read_bytes()
ALL = tuple(READERS)
BOX = (2.0, 5.0, 0.0, 0.25, 0.25, 0.5, 0.5)
TWO = (*BOX, 1.0, 0.25, 0.25, 0.5, 0.75)

Row = tuple[int, tuple[float, ...], bytes]  # key and id, labels, image


def write(folder: Path, *rows: Row, stem: str = "train", ids: tuple[int, ...] = ()) -> Path:
    """A .rec with its index; its prefix. ids: where they are not the keys."""
    data, entries = b"", []
    for number, (key, labels, image) in enumerate(rows):
        entries.append((key, len(data)))
        data += frame(encode(ids[number] if ids else key, labels, image))
    (folder / f"{stem}.rec").write_bytes(data)
    (folder / f"{stem}.idx").write_bytes(format_index(entries))
    return folder / stem


def shards(folder: Path, *parts: tuple[Row, ...]) -> Path:
    """Several .rec files, each with its index, and the joint index of all."""
    base, entries = 0, []
    for number, rows in enumerate(parts):
        data = b""
        for key, labels, image in rows:
            entries.append((key, base + len(data)))
            data += frame(encode(key, labels, image))
        (folder / f"train_00{number}.rec").write_bytes(data)
        own = [(key, at - base) for key, at in entries if at >= base]
        (folder / f"train_00{number}.idx").write_bytes(format_index(own))
        base += len(data)
    (folder / "train.idx").write_bytes(format_index(entries))
    return folder / "train"


def classes(*labels: float, image: bytes = JPEG) -> list[Row]:
    return [(at, (label,), image) for at, label in enumerate(labels)]


def boxes(*labels: tuple[float, ...], image: bytes = JPEG) -> list[Row]:
    return [(at, each, image) for at, each in enumerate(labels)]


def faces(*ranges: tuple[float, float], images: int = 4, header: Row | None = None) -> list[Row]:
    """InsightFace's layout: images, identities, header."""
    rows: list[Row] = [(key, (float((key - 1) // 2),), JPEG) for key in range(1, images + 1)]
    rows += [(images + 1 + at, each, b"") for at, each in enumerate(ranges)]
    return [*rows, header or (0, (images + 1.0, images + 1.0 + len(ranges)), b"")]


PAIRS = ((1.0, 3.0), (3.0, 5.0))


def problems(prefix: Path | str, *names: str) -> list[Problem]:
    found = verify_set(find_set(str(prefix)), VerifyOptions(readers=names)).problems
    known = {*CODES}
    assert {each.code for each in found if each.code.startswith(ALL)} <= known
    return found


def codes(prefix: Path | str, *names: str) -> list[str]:
    return sorted(each.code for each in problems(prefix, *names))


# --- sound sets -------------------------------------------------------------------------------

SOUND: dict[str, Callable[[Path], Path]] = {
    "mxnet": lambda f: write(f, *classes(0, 2.5, 2)),
    "dali": lambda f: shards(f, tuple(classes(0, 1)), ((7, (1.0, 2.0), PNG),)),
    "rocal": lambda f: write(f, *classes(3, -1, 7)),
    "sagemaker-classification": lambda f: write(f, *classes(1, 0, 2, 1)),
    "sagemaker-detection": lambda f: write(f, *boxes(BOX, TWO, detection.NO_OBJECT)),
    "insightface": lambda f: write(f, *faces(*PAIRS)),
    "gluoncv-detection": lambda f: write(f, *boxes(BOX, TWO, (3.0, 6.0, 9.0, *BOX[2:], 1.0))),
}


@pytest.mark.parametrize("name", READERS)
def test_a_sound_set_keeps_every_rule(tmp_path: Path, name: str) -> None:
    assert problems(SOUND[name](tmp_path), name) == []


def test_the_golden_set_of_faces_is_sound(tmp_path: Path) -> None:
    for ending in ("rec", "idx"):
        shutil.copy(GOLDEN / "recordio" / f"insightface.{ending}", tmp_path / f"train.{ending}")
    assert problems(tmp_path / "train", "insightface") == []


@pytest.mark.parametrize("name", ["resize64", "crop_only", "gray", "detection"])
def test_what_mxnet_packed_it_reads(name: str) -> None:
    assert problems(GOLDEN / "packs" / name / "set", "mxnet", "dali") == []


def test_what_mxnet_packed_with_boxes_is_read_as_such() -> None:
    prefix = GOLDEN / "packs" / "detection" / "set"
    assert problems(prefix, "gluoncv-detection") == []
    # its headers are of four numbers
    assert codes(prefix, "sagemaker-detection") == ["sagemaker-detection-layout"] * 24


@pytest.mark.parametrize("count", [1, 3])
def test_what_pack_writes_is_sound(tmp_path: Path, count: int) -> None:
    rows = [f"{at}\t{at % 3}\tant/ant_{at}.jpg\n" for at in (0, 1, 2, 5)]
    (tmp_path / "train.lst").write_text("".join(rows), "utf-8")
    image = ImageOptions(resize=16)
    options = PackOptions(image, shards=count, workers=1, fsync=False)
    pack_list(str(tmp_path / "train.lst"), str(CLEAN), options)
    one_file = ("rocal", "sagemaker-classification", "insightface") if count == 1 else ()
    assert problems(tmp_path / "train", "mxnet", "dali", *one_file) == []


# --- every rule -------------------------------------------------------------------------------


def without_index(prefix: Path) -> Path:
    Path(f"{prefix}.idx").unlink()
    return prefix


def beside(prefix: Path, name: str, text: str = "") -> Path:
    (prefix.parent / name).write_text(text, "ascii")
    return prefix


def empty(folder: Path) -> Path:
    (folder / "train.rec").write_bytes(b"")
    (folder / "train.idx").write_bytes(b"")
    return folder / "train"


NO_IMAGE: Row = (9, (1.0,), b"")
BARE_BOX: Row = (9, BOX, b"")
TWO_SHARDS = (tuple(classes(0)), ((1, (1.0,), JPEG),))
TWO_OF_BOXES = ((boxes(BOX)[0],), ((1, BOX, JPEG),))

FAULTS: dict[str, Callable[[Path], Path]] = {
    "mxnet-index": lambda f: without_index(write(f, *classes(0, 1))),
    "mxnet-name": lambda f: write(f, *classes(0, 1), stem="a;b"),
    "mxnet-label-width": lambda f: write(f, *classes(0), (1, (1.0, 2.0), JPEG)),
    "mxnet-label": lambda f: write(f, *boxes(BOX, TWO, (*BOX[:3], 0.5, 0.25, 0.25, 0.5))),
    "mxnet-no-image": lambda f: write(f, *classes(0), NO_IMAGE),
    "mxnet-kind": lambda f: write(f, *classes(0), (1, (1.0,), GIF)),
    "dali-index": lambda f: without_index(shards(f, *TWO_SHARDS)),
    "dali-empty": lambda f: shards(f, TWO_SHARDS[0], (), TWO_SHARDS[1]),
    "dali-header": lambda f: write(f, (MAGIC, (1.0,), JPEG)),
    "dali-no-image": lambda f: write(f, *classes(0), NO_IMAGE),
    "dali-kind": lambda f: write(f, *classes(0), (1, (1.0,), GIF)),
    "rocal-index": lambda f: without_index(write(f, *classes(0, 1))),
    "rocal-folder": lambda f: beside(write(f, *classes(0, 1)), "val.idx"),
    "rocal-size": lambda f: write(f, *classes(0, 1)),  # and the size, see below
    "rocal-cut": lambda f: write(f, *classes(0), (1, (1.0,), CUT)),
    "rocal-flag": lambda f: write(f, *classes(0), (1, (1.0, 2.0), JPEG)),
    "rocal-id": lambda f: write(f, *classes(0, 1, 2), ids=(5, 6, 5)),
    "rocal-label": lambda f: write(f, *classes(0, 0.5)),
    "rocal-no-image": lambda f: write(f, *classes(0), NO_IMAGE),
    "rocal-kind": lambda f: write(f, *classes(0), (1, (1.0,), PNG)),
    "sagemaker-classification-shards": lambda f: shards(f, *TWO_SHARDS),
    "sagemaker-classification-empty": empty,
    "sagemaker-classification-label": lambda f: write(f, *classes(0, 0.5)),
    "sagemaker-classification-classes": lambda f: write(f, *classes(0, 2)),
    "sagemaker-classification-id": lambda f: write(f, *classes(0, 1, 2), ids=(5, 6, 5)),
    "sagemaker-classification-no-image": lambda f: write(f, *classes(0), NO_IMAGE),
    "sagemaker-classification-kind": lambda f: write(f, *classes(0), (1, (1.0,), GIF)),
    "sagemaker-detection-shards": lambda f: shards(f, *TWO_OF_BOXES),
    "sagemaker-detection-empty": empty,
    "sagemaker-detection-label": lambda f: write(f, *boxes(BOX, (1.0,))),
    "sagemaker-detection-layout": lambda f: write(f, *boxes(BOX, (3.0, 5.0, 0.0, *BOX[2:]))),
    "sagemaker-detection-channels": lambda f: write(f, *boxes(BOX), (1, BOX, GREY)),
    "sagemaker-detection-no-image": lambda f: write(f, *boxes(BOX), BARE_BOX),
    "sagemaker-detection-kind": lambda f: write(f, *boxes(BOX), (1, BOX, GIF)),
    "insightface-name": lambda f: write(f, *faces(*PAIRS), stem="val"),
    "insightface-shards": lambda f: shards(f, *TWO_SHARDS),
    "insightface-index": lambda f: without_index(write(f, *faces(*PAIRS))),
    "insightface-key-0": lambda f: write(f, *classes(0, 1, 2)[1:]),
    "insightface-header": lambda f: write(f, *faces(*PAIRS)[:-1], (0, (5.0, 7.0), JPEG)),
    "insightface-image": lambda f: write(f, *faces(*PAIRS)[1:]),
    "insightface-identity": lambda f: write(f, *faces((1.0, 3.0), (4.0, 5.0))),
    "insightface-label": lambda f: write(f, *classes(0, 0.5)),
    "insightface-property": lambda f: beside(write(f, *faces(*PAIRS)), "property", "3,60,80\n"),
    "insightface-kind": lambda f: write(f, *classes(0), (1, (1.0,), GIF)),
    "gluoncv-detection-shards": lambda f: shards(f, *TWO_OF_BOXES),
    "gluoncv-detection-index": lambda f: without_index(write(f, *boxes(BOX, TWO))),
    "gluoncv-detection-label": lambda f: write(f, *boxes(BOX, (1.0,))),
    "gluoncv-detection-no-object": lambda f: write(f, *boxes(BOX, detection.NO_OBJECT)),
    "gluoncv-detection-no-image": lambda f: write(f, *boxes(BOX), BARE_BOX),
    "gluoncv-detection-kind": lambda f: write(f, *boxes(BOX), (1, BOX, GIF)),
}
# What verify says of the same set by itself.
ALSO = {
    "dali-empty": ["empty"],
    "sagemaker-classification-empty": ["empty"],
    "sagemaker-detection-empty": ["empty"],
}


def reader_of(code: str) -> str:
    return next(name for name in READERS if code.startswith(f"{name}-"))


def test_each_rule_has_a_fault_a_source_and_a_code_of_its_own() -> None:
    assert FAULTS.keys() == set(CODES)
    assert len(set(CODES)) == len(CODES)
    for reader in READERS.values():
        assert all(rule.source and rule.told for rule in reader.rules)


@pytest.mark.parametrize("code", sorted(FAULTS.keys() - {"rocal-size"}))
def test_each_rule_is_broken_by_its_fault_alone(tmp_path: Path, code: str) -> None:
    prefix, name = FAULTS[code](tmp_path), reader_of(code)
    assert codes(prefix, name) == sorted([code, *ALSO.get(code, [])])
    assert codes(prefix) == ALSO.get(code, [])  # nobody asked
    (problem,) = (each for each in problems(prefix, name) if each.code == code)
    (rule,) = (rule for rule in READERS[name].rules if code == f"{name}-{rule.code}")
    found, told = problem.sentence.split("; ", 1)
    assert found
    assert told == rule.told


@pytest.mark.parametrize(("size", "found"), [(2**32 - 4, []), (2**32, ["rocal-size"])])
def test_a_file_of_4_gib_is_too_large_for_rocal(
    tmp_path: Path, size: int, found: list[str]
) -> None:
    rec = str(tmp_path / "train.rec")
    watch = readers.watch_for(["rocal"])
    watch.finish(
        RecordSet(rec, rec, (rec,), ("train.idx",), None, None),
        [Shard(rec, size, array("Q", [0]), array("Q", [0]), [])],
    )
    assert [each.code for each in readers.breaches(["rocal"], watch)] == found


# --- what is told -----------------------------------------------------------------------------


def test_a_breach_has_its_record_s_place(tmp_path: Path) -> None:
    prefix = write(tmp_path, (4, (0.0,), JPEG), (9, (1.0,), CUT))
    (problem,) = problems(prefix, "rocal")
    offset = len(frame(encode(4, (0.0,), JPEG)))
    assert problem == Problem(
        "rocal-cut",
        f"{prefix}.rec",
        offset,
        9,
        "a record in 2 parts; rocAL reads no record in several parts; pack without --pass-through, "
        "or with another --quality",
    )


def test_several_readers_are_checked_in_one_walk_each_once(tmp_path: Path) -> None:
    prefix = write(tmp_path, *classes(0), (1, (1.0,), GIF))
    names = ("rocal", "mxnet", "rocal")
    assert [each.code for each in problems(prefix, *names)] == ["rocal-kind", "mxnet-kind"]


def test_all_that_is_beyond_the_bound_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MAX_PLACES", 3)
    prefix = write(tmp_path, *classes(*[0.5] * 8))
    found = problems(prefix, "rocal")
    assert [each.id for each in found] == [0, 1, 2, None]
    assert found[-1].sentence.startswith("5 more of this kind, too many to list; rocAL")


def test_the_first_record_of_each_odd_width_is_named(tmp_path: Path) -> None:
    rows = [(at, (1.0,) * width, JPEG) for at, width in enumerate((1, 3, 1, 1, 2, 3))]
    found = problems(write(tmp_path, *rows), "mxnet")
    assert [(each.id, each.sentence.split(",")[0]) for each in found] == [
        (4, "2 labels in 1 record"),
        (1, "3 labels in 2 records"),
    ]


def test_labels_of_boxes_may_be_of_several_widths_for_mxnet(tmp_path: Path) -> None:
    assert problems(write(tmp_path, *boxes(BOX, TWO, detection.NO_OBJECT)), "mxnet") == []
    # one of two is none: then they are labels of another sort, whose widths differ
    assert codes(write(tmp_path, *boxes(TWO, (1.0,))), "mxnet") == ["mxnet-label-width"]


def test_a_header_with_one_label_in_an_array_is_of_one_width(tmp_path: Path) -> None:
    sound = encode(0, (1.0,), JPEG)
    data = frame(sound) + frame(struct.pack("<IfQQf", 1, 0.0, 1, 0, 3.0) + JPEG)
    (tmp_path / "train.rec").write_bytes(data)
    (tmp_path / "train.idx").write_bytes(format_index([(0, 0), (1, len(frame(sound)))]))
    assert codes(tmp_path / "train", "mxnet", "sagemaker-classification") == [
        "sagemaker-classification-classes"
    ]
    assert codes(tmp_path / "train", "rocal") == ["rocal-flag"]


def test_ids_are_unique_over_all_shards(tmp_path: Path) -> None:
    prefix = shards(tmp_path, tuple(classes(0, 1)), tuple(classes(0)))
    found = [each for each in problems(prefix, "rocal") if each.code == "rocal-id"]
    assert [(each.file, each.offset, each.id) for each in found] == [
        (f"{tmp_path}/train_001.rec", 0, 0)
    ]


def test_records_without_an_id_double_none(tmp_path: Path) -> None:
    rows = [frame(b"short"), *(frame(encode(at, (1.0,), JPEG)) for at in (0, 0)), frame(b"short")]
    (tmp_path / "train.rec").write_bytes(b"".join(rows))
    found = [each for each in problems(tmp_path / "train", "rocal") if each.code == "rocal-id"]
    assert [each.offset for each in found] == [len(rows[0] + rows[1])]


@pytest.mark.parametrize("sign", ";#?")
def test_the_whole_path_counts_for_mxnet(tmp_path: Path, sign: str) -> None:
    folder = tmp_path / f"a{sign}b"
    folder.mkdir()
    assert codes(write(folder, *classes(0)), "mxnet") == ["mxnet-name"]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ((0, 1, 1), []),
        ((1,), ["0 (1 of 0 to 1)"]),
        ((20, 0), ["1, 2, 3, 4, 5, 6, 7, 8, ... (19 of 0 to 20)"]),
    ],
)
def test_holes_between_classes_are_named(
    tmp_path: Path, labels: tuple[float, ...], found: list[str]
) -> None:
    told = problems(write(tmp_path, *classes(*labels)), "sagemaker-classification")
    assert [each.sentence.split(";")[0] for each in told] == [
        f"no image of class {each}" for each in found
    ]


@pytest.mark.parametrize("label", [-1.0, 0.5, 2.0**25, float("nan"), float("inf")])
def test_what_is_no_class(tmp_path: Path, label: float) -> None:
    prefix = write(tmp_path, *classes(0, label))
    assert "sagemaker-classification-label" in codes(prefix, "sagemaker-classification")
    assert "insightface-label" in codes(prefix, "insightface")


@pytest.mark.parametrize(
    ("label", "is_told"),
    [(-1.0, False), (-(2.0**31), False), (2.0**31, True), (0.5, True), (float("nan"), True)],
)
def test_what_is_no_int_for_rocal(tmp_path: Path, label: float, is_told: bool) -> None:
    assert ("rocal-label" in codes(write(tmp_path, *classes(0, label)), "rocal")) is is_told


def test_an_unknown_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no reader 'tensorflow'; expected one of mxnet, dali"):
        problems(write(tmp_path, *classes(0)), "tensorflow")


# --- kinds ------------------------------------------------------------------------------------


def save(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(stream, kind)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG2000", "PPM"])
def test_what_each_reader_decodes(tmp_path: Path, kind: str) -> None:
    # as measured with MXNet 1.9.1 and DALI 2.4.0
    prefix = write(tmp_path, *classes(0, image=save(kind)))
    told = codes(prefix, "mxnet", "dali", "rocal")
    expected = ["dali-kind"] * (kind == "GIF")
    expected += ["mxnet-kind"] * (kind in ("GIF", "WEBP", "JPEG2000", "PPM"))
    assert told == expected + ["rocal-kind"] * (kind != "JPEG")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_dali_reads_no_magic_among_labels(tmp_path: Path, at: int) -> None:
    """As seen with DALI 2.4.0, which reckons an image's size from a record's first part."""
    (magic,) = struct.unpack("<f", struct.pack("<I", MAGIC))
    labels = [1.0, 2.0, 3.0]
    labels[at] = magic
    assert codes(write(tmp_path, *classes(0), (1, tuple(labels), JPEG)), "dali") == ["dali-header"]
    assert codes(write(tmp_path, *classes(0), (1, (1.0,), CUT)), "dali") == []


def test_a_folder_is_no_other_set(tmp_path: Path) -> None:
    (tmp_path / "other.rec").mkdir()
    assert codes(write(tmp_path, *classes(0, 1)), "rocal") == []


def test_what_is_no_image_is_of_no_kind(tmp_path: Path) -> None:
    prefix = write(tmp_path, *classes(0), (1, (1.0,), b"text"))
    assert codes(prefix, "mxnet", "dali", "rocal") == ["dali-kind", "mxnet-kind", "rocal-kind"]


# --- boxes ------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 6.0, -1.0, 2.0**25, float("nan")])
OBJECTS = st.sampled_from([BOX[2:], (3.0, 0.0, 0.0, 1.0, 1.0), detection.NO_OBJECT[2:]])
ARRAYS = (
    st.lists(NUMBERS, min_size=1, max_size=9).map(tuple)
    | st.lists(OBJECTS | st.tuples(*[NUMBERS] * 5), max_size=3).map(
        lambda those: (2.0, 5.0, *(number for each in those for number in each))
    )
    | st.sampled_from([BOX, TWO, detection.NO_OBJECT, (3.0, 6.0, 9.0, *BOX[2:], float("inf"))])
)


def test_the_fault_in_a_label_is_named(tmp_path: Path) -> None:
    turned = (*BOX[:3], 0.5, 0.25, 0.25, 0.5)
    (problem,) = problems(write(tmp_path, *boxes(BOX, turned)), "gluoncv-detection")
    assert problem.sentence.startswith("labels: object 1: x2 0.25 is not beyond x1 0.5; Record")


# --- InsightFace ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "images", "found"),
    [
        (((1.0, 5.0),), 4, []),
        (((1.0, 1.0), (1.0, 5.0)), 4, []),
        (((2.0, 5.0),), 4, ["identity 5 are 2 to 5 (not included), expected 1 to 5"]),
        (((1.0, 4.0),), 4, ["identity 5 are 1 to 4 (not included), expected 1 to 5"]),
        (
            ((1.0, 3.0), (2.0, 5.0)),
            4,
            ["identity 6 are 2 to 5 (not included), expected 3 to 5"],
        ),
        (
            ((3.0, 5.0), (1.0, 3.0)),
            4,
            [
                "identity 5 are 3 to 5 (not included), expected 1 to where the next one's begin",
                "identity 6 are 1 to 3 (not included), expected 5 to 5",
            ],
        ),
    ],
)
def test_identities_follow_on_each_other(
    tmp_path: Path, ranges: tuple[tuple[float, float], ...], images: int, found: list[str]
) -> None:
    told = problems(write(tmp_path, *faces(*ranges, images=images)), "insightface")
    assert [each.sentence.split(";")[0] for each in told] == [
        f"the images of {each}" for each in found
    ]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ((6, (3.0,), b""), ["no record of two labels and no image has the key 6"]),
        ((6, (3.0, 5.0), JPEG), ["no record of two labels and no image has the key 6"]),
        ((8, (3.0, 5.0), b""), ["no record of two labels and no image has the key 6"]),
    ],
)
def test_an_identity_is_two_labels_without_an_image(
    tmp_path: Path, row: Row, found: list[str]
) -> None:
    rows = [row if key == 6 else (key, *rest) for key, *rest in faces(*PAIRS)]
    told = problems(write(tmp_path, *rows), "insightface")  # type: ignore[arg-type]
    assert [each.sentence.split(";")[0] for each in told] == found


def test_without_a_header_every_key_is_an_image(tmp_path: Path) -> None:
    prefix = write(tmp_path, *classes(0, 1), (7, (1.0,), b""))
    (problem,) = problems(prefix, "insightface")
    assert (problem.code, problem.id) == ("insightface-image", 7)
    assert problem.sentence.startswith("no image in the record of key 7; arcface_torch")


def test_a_key_of_the_header_that_no_record_has_is_named(tmp_path: Path) -> None:
    rows = [row for row in faces(*PAIRS) if row[0] != 2]
    (problem,) = problems(write(tmp_path, *rows), "insightface")
    assert (problem.code, problem.offset, problem.id) == ("insightface-image", None, 2)


def test_a_header_of_billions_of_keys_takes_no_time(tmp_path: Path) -> None:
    rows = [(0, (2.0**31 - 256, 2.0**31), b"") if row[0] == 0 else row for row in faces(*PAIRS)]
    told = problems(write(tmp_path, *rows), "insightface")
    images = [each for each in told if each.code == "insightface-image"]
    assert [each.id for each in images[:3]] == [5, 6, 7]
    assert images[-1].sentence.startswith(f"{2**31 - 257 - 4 - (len(images) - 1)} more")
    assert sum(each.code == "insightface-identity" for each in told) == 256


def test_keys_and_not_ids_are_what_arcface_reads_by(tmp_path: Path) -> None:
    assert problems(write(tmp_path, *classes(0, 1), ids=(8, 9)), "insightface") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2,60,80", []),
        ("2,60,80\n", []),
        ("2,80,60", ["images of 80x60 pixels (height, width), but the set has 60x80"]),
        ("4,60,80", ["4 classes, but the set has 2"]),
        ("2,60", ["it is not one line of three numbers, separated by commas"]),
        ("2,60,80\n2,60,80", ["it is not one line of three numbers, separated by commas"]),
        ("", ["it is not one line of three numbers, separated by commas"]),
    ],
)
@pytest.mark.parametrize("with_header", [True, False])
def test_property_says_what_the_set_is(
    tmp_path: Path, text: str, found: list[str], with_header: bool
) -> None:
    rows = faces(*PAIRS) if with_header else classes(0, 1)
    told = problems(beside(write(tmp_path, *rows), "property", text), "insightface")
    assert [each.sentence.split(";")[0] for each in told] == found
    assert {each.file for each in told} <= {str(tmp_path / "property")}


def test_a_set_whose_index_is_damaged_is_only_told_as_such(tmp_path: Path) -> None:
    prefix = write(tmp_path, *faces(*PAIRS))
    Path(f"{prefix}.idx").write_text("0 0\n", "ascii")
    assert not [code for code in codes(prefix, "insightface") if code.startswith("insight")]


# --- records one by one, and damage -----------------------------------------------------------

IMAGES = st.sampled_from([JPEG, PNG, GIF, GREY, CUT, b"text", b"", JPEG[:30]])
ROWS = st.tuples(st.integers(0, 12) | st.just(MAGIC), ARRAYS, IMAGES)


@given(st.lists(ROWS, max_size=8), st.data())
def test_any_records_are_told_the_same_one_by_one(rows: list[Row], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        prefix = write(Path(folder), *rows)
        rec = Path(f"{prefix}.rec")
        whole = rec.read_bytes()
        rec.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if rows else whole)
        together = problems(prefix, *ALL)
        patch.setattr(RunScanner, "run_at", lambda *_: None)
        assert problems(prefix, *ALL) == together


@given(st.binary(max_size=200))
def test_any_bytes_are_got_through(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.rec").write_bytes(data)
        (Path(folder) / "train.idx").write_bytes(data)
        (Path(folder) / "property").write_bytes(data)
        problems(Path(folder) / "train", *ALL)


# --- the command line -------------------------------------------------------------------------


def test_the_command_offers_every_reader() -> None:
    assert tuple(READERS) == CHOICES


def test_the_command_tells_breaches_and_exits_1(tmp_path: Path, im2rec: Run) -> None:
    write(tmp_path, *classes(0, 1, image=PNG))
    assert im2rec("verify", "--for", "mxnet", "--for", "dali", "train").stdout == ""
    done = im2rec("verify", "--for", "mxnet", "--for", "rocal", "train.rec", code=1)
    assert done.stdout.startswith("train.rec:0: rocal-kind: id 0: an image of kind png; rocAL's")
    assert "no such" not in done.stderr
    assert "mxnet" in im2rec("verify", "--for", "tensorflow", "train", code=2).stderr
    told = im2rec("verify", "train", env={"IM2REC_VERIFY_FOR": "dali rocal"}, code=1).stdout
    assert [line.split(": ")[1] for line in told.splitlines()] == ["rocal-kind"] * 2
