"""The verb unpack: the records' own bytes come out, and pack to the same records again."""

from __future__ import annotations

import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from unicodedata import normalize

import pytest
from conftest import BAD, CLEAN, GOLDEN, ODD, Run, names
from golden_packs import PACKS
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from processes import wait_for

from im2rec import framing, image_record, unpacking
from im2rec.errors import DamageError, InputError, OptionError, OutputError
from im2rec.lst import read_list
from im2rec.record_set import find_set
from im2rec.unpacking import (
    Folders,
    UnpackOptions,
    UnpackReport,
    class_of,
    is_plain_name,
    label_text,
    unpack_sets,
)

JPEG = (CLEAN / "dog/dog_4.JPEG").read_bytes()
BY_FORMAT = {
    "JPEG": ".jpg",
    "MPO": ".jpg",
    "PNG": ".png",
    "GIF": ".gif",
    "WEBP": ".webp",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "PPM": ".ppm",
    "JPEG2000": ".jp2",
}
Item = tuple[int, Sequence[float], bytes]


def write_rec(path: Path, *items: Item) -> Path:
    """A record file of (id, labels, image)."""
    path.write_bytes(b"".join(framing.frame(image_record.encode(*item)) for item in items))
    return path


def unpack(out: Path, *recs: Path | str, **options: object) -> UnpackReport:
    settings = UnpackOptions(fsync=False, **options)  # type: ignore[arg-type]
    return unpack_sets([find_set(str(rec)) for rec in recs], str(out), settings)


def packed_again(out: Path, name: str = "set") -> bytes:
    """The records that the list stands for, without the checks that pack makes of images."""
    return b"".join(
        framing.frame(image_record.encode(each.id, each.labels, (out / each.path).read_bytes()))
        for each in read_list(str(out / f"{name}.lst"))
    )


def images(out: Path) -> list[str]:
    return [name for name in names(out) if (out / name).is_file() and "/" in name]


# --- there and back ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["label", "id"])
@pytest.mark.parametrize("name", PACKS)
def test_a_golden_set_packs_to_the_same_bytes_again(
    name: str, by: str, tmp_path: Path, im2rec: Run
) -> None:
    golden = GOLDEN / "packs" / name
    im2rec("unpack", "--by", by, golden / "set", "out")
    im2rec("pack", "--pass-through", "out/set", "out")
    for ending in ("rec", "idx"):
        again = (tmp_path / "out" / f"set.{ending}").read_bytes()
        assert again == (golden / f"set.{ending}").read_bytes()


def test_the_files_are_those_that_were_packed(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--pass-through", "set", CLEAN)
    im2rec("unpack", "set", "out")
    before = {each.id: each for each in read_list(str(tmp_path / "set.lst"))}
    after = list(read_list(str(tmp_path / "out" / "set.lst")))
    assert [each.id for each in after] == list(before)
    for each in after:
        source = before[each.id]
        assert (tmp_path / "out" / each.path).read_bytes() == (CLEAN / source.path).read_bytes()
        assert each.labels == source.labels
        assert each.path.split("/")[0] == source.path.split("/")[0]
        ending = Path(source.path).suffix.lower().replace(".jpeg", ".jpg")
        assert each.path.split("/")[1] == f"{each.id:02}{ending}"
    classes = (tmp_path / "out" / "set.classes.txt").read_bytes()
    assert classes == (tmp_path / "set.classes.txt").read_bytes()


@pytest.mark.parametrize("folder", ["kinds", "magic"])
def test_odd_images_come_out_by_kind_and_go_in_again(
    folder: str, tmp_path: Path, im2rec: Run
) -> None:
    """Cut records, too: those hold the magic."""
    sources = sorted((ODD / folder).iterdir())
    rows = [f"{at}\t{at % 3}\t{source.name}\n" for at, source in enumerate(sources)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    im2rec("pack", "--pass-through", "--max-failures", "50%", "set", ODD / folder)
    done = im2rec("unpack", "set.rec", "out")
    assert ".bin" not in done.stderr
    for each in read_list(str(tmp_path / "out" / "set.lst")):
        assert (tmp_path / "out" / each.path).read_bytes() == sources[each.id].read_bytes()
        with Image.open(tmp_path / "out" / each.path) as image:  # some names there are wrong
            assert Path(each.path).suffix == BY_FORMAT[str(image.format)]
    im2rec("pack", "--pass-through", "out/set", "out")
    assert (tmp_path / "out" / "set.rec").read_bytes() == (tmp_path / "set.rec").read_bytes()


@pytest.mark.parametrize("shard", [False, True])
def test_shards_are_one_set(shard: bool, tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--pass-through", "--shards", "3", "set", CLEAN)
    for index in tmp_path.glob("*.idx"):
        index.unlink()
    recs = sorted(tmp_path.glob("set_00?.rec"))
    im2rec("unpack", *(recs if shard else ["set"]), "out")
    if shard:
        for rec in recs:
            im2rec("pack", "--pass-through", f"out/{rec.stem}", "out")
    else:
        im2rec("pack", "--pass-through", "--shards", "3", "out/set", "out")
    for rec in recs:
        assert (tmp_path / "out" / rec.name).read_bytes() == rec.read_bytes()


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
LABELS = st.lists(st.one_of(FLOATS, st.integers(0, 12).map(float)), min_size=1, max_size=4)
IMAGES = st.one_of(st.binary(min_size=1, max_size=40), st.just(framing.MAGIC_BYTES * 3))


@given(st.dictionaries(st.integers(0, 2**64 - 1), st.tuples(LABELS, IMAGES), min_size=1))
@example({0: ([-0.0], b"a"), 1: ([0.0], b"b"), 2: ([1e-45, 3.4e38], b"c")})
@example({number: ([float(number % 7)], JPEG) for number in range(200, 0, -1)})
def test_any_records_come_back(records: dict[int, tuple[list[float], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        items = [(key, *value) for key, value in records.items()]
        rec = write_rec(Path(folder) / "set.rec", *items)
        out = Path(folder) / "out"
        report = unpack(out, rec)
        assert packed_again(out) == rec.read_bytes()
        assert report.images == report.lists[0][1] == len(items) == len(images(out))
        assert report.bytes == sum(len(image) for _, _, image in items)


@given(FLOATS)
@example(-0.0)
def test_the_text_of_a_label_packs_to_the_same_bits(label: float) -> None:
    assert struct.pack("<f", float(label_text(label))) == struct.pack("<f", label)


# --- folders and names ------------------------------------------------------------------------


def test_numbers_name_folders_where_there_are_no_classes(tmp_path: Path) -> None:
    rec = write_rec(
        tmp_path / "set.rec",
        (5, [3.0], JPEG),
        (12, [10.0], JPEG),
        (7, [-1.0], JPEG),
        (8, [0.5], JPEG),
        (9, [3.0, 1.0], JPEG),
    )
    unpack(tmp_path / "out", rec)
    assert images(tmp_path / "out") == [
        "03/05.jpg",
        "10/12.jpg",
        "images/07.jpg",
        "images/08.jpg",
        "images/09.jpg",
    ]


@pytest.mark.parametrize("count", [3, 300])
def test_a_label_beyond_all_classes_does_not_widen_the_names_of_folders(
    count: int, tmp_path: Path
) -> None:
    items = [(number, [10.0], JPEG) for number in range(count)]
    large = [(count, [float(10**10)], JPEG), (count + 1, [3.4e38], JPEG), (count + 2, [1.0], JPEG)]
    unpack(tmp_path / "out", write_rec(tmp_path / "set.rec", *items, *large))
    folders = sorted({name.split("/")[0] for name in images(tmp_path / "out")}, key=int)
    largest = struct.unpack("<f", struct.pack("<f", 3.4e38))[0]
    assert folders == ["01", "10", "10000000000", str(int(largest))]


def test_folders_by_id_hold_a_thousand(tmp_path: Path) -> None:
    items = [(number, [0.0], b"?") for number in (0, 999, 1000, 12_999)]
    unpack(tmp_path / "out", write_rec(tmp_path / "set.rec", *items), by="id")
    assert images(tmp_path / "out") == [
        "00/00000.bin",
        "00/00999.bin",
        "01/01000.bin",
        "12/12999.bin",
    ]


HOSTILE = [
    "../x", "/abs", "..", ".", ".hidden", "a\\b", "a\0b", "a\tb", "CON", "nul.txt", "Com1",
    "LPT².x", "conin$", "aux .jpg", "end.", "end ", " start", "C:x", "a/b", "x" * 201, "é" * 101,
    "images", "set.lst", "SET.REC", "set_000.rec", "Set_1000.IDX", "property", "set.failures.tsv",
    "set.manifest.json", "what?", "a\u202eb", "a\x85b", "a\u2028b", "a\u200db",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_class_name_becomes_its_number(name: str, tmp_path: Path) -> None:
    (tmp_path / "set.classes.txt").write_text(f"cat\n{name}\n", encoding="utf-8")
    rec = write_rec(tmp_path / "set.rec", (0, [0.0], JPEG), (1, [1.0], JPEG))
    report = unpack(tmp_path / "out", rec)
    assert images(tmp_path / "out") == ["1/1.jpg", "cat/0.jpg"]
    assert report.renamed == ((name, "1"),)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "set.classes.txt", "set.rec"}
    assert packed_again(tmp_path / "out") == rec.read_bytes()


ODD_NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [*HOSTILE, "cat", "Cat", "CAT", "straße", "STRASSE", "é", "e\u0301", "1", "class_1"]
    ),
    st.integers(0, 12).map(str),
)


@given(st.lists(ODD_NAMES, unique=True, max_size=12), st.integers(0, 99))
@example(["1", "../x", "class_1", "CLASS_1"], 9)
def test_folders_are_plain_and_no_two_alike(classes: list[str], largest: int) -> None:
    largest = max(largest, len(classes) - 1)
    folders = Folders(tuple(classes), largest, ["images", "set.lst"])
    every = [folders[number] for number in range(largest + 1)]
    assert len({name.casefold() for name in [*every, "images", "set.lst"]}) == largest + 3
    for name in every:
        assert name == os.path.basename(name) == PureWindowsPath(name).name
        assert name not in ("", ".", "..")
        assert name == name.strip() == name.rstrip(".")
        assert not any(ord(char) < 32 or char in '<>:"/\\|?*' for char in name)
        assert not PureWindowsPath(name).is_reserved()
        assert len(name.encode()) <= 255
    alike = Counter(map(folded, [*classes, "images", "set.lst"]))
    for number, name in enumerate(classes):  # only what must be is changed
        if is_plain_name(name) and alike[folded(name)] == 1:
            assert every[number] == name


def folded(name: str) -> str:
    return normalize("NFC", normalize("NFC", name).casefold())


def test_what_packing_again_writes_finds_its_place(tmp_path: Path, im2rec: Run) -> None:
    classes = ["set_000.rec", "set_001.idx", "Property", "set.idx", "other_000.rec", "set_00.rec"]
    (tmp_path / "set.classes.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    rec = write_rec(tmp_path / "set.rec", *((at, [float(at)], JPEG) for at in range(6)))
    report = unpack(tmp_path / "out", rec)
    assert [name for name, _ in report.renamed] == classes[:4]
    im2rec("pack", "--pass-through", "--shards", "2", "out/set", "out")
    shards = [tmp_path / "out" / f"set_00{number}.rec" for number in range(2)]
    assert b"".join(shard.read_bytes() for shard in shards) == rec.read_bytes()


def test_names_that_one_system_takes_for_one_are_two_folders(tmp_path: Path) -> None:
    (tmp_path / "set.classes.txt").write_text("Cat\ncat\né\ne\u0301\n", encoding="utf-8")
    items = [(number, [float(number)], JPEG) for number in range(4)]
    unpack(tmp_path / "out", write_rec(tmp_path / "set.rec", *items))
    assert images(tmp_path / "out") == ["1/1.jpg", "3/3.jpg", "Cat/0.jpg", "é/2.jpg"]


def test_the_manifest_knows_the_classes(tmp_path: Path, im2rec: Run) -> None:
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--pass-through", "set", CLEAN)
    (tmp_path / "set.classes.txt").unlink()
    im2rec("unpack", "set", "out")
    folders = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert sorted(folders) == ["ant", "bee", "cat", "dog"]
    assert (tmp_path / "out" / "set.classes.txt").read_text("utf-8") == "ant\nbee\ncat\ndog\n"


@pytest.mark.parametrize(
    "classes", ['["a", 3]', '["a", "a"]', '["a\\nb"]', '"ab"', "[]", '["\\ud800"]']
)
def test_what_is_no_class_map_in_a_manifest_is_passed_over(classes: str, tmp_path: Path) -> None:
    shard = '{"rec": "set.rec", "idx": "set.idx"}'
    manifest = f'{{"shards": [{shard}], "classes": {classes}}}'
    (tmp_path / "set.manifest.json").write_text(manifest, encoding="utf-8")
    write_rec(tmp_path / "set.rec", (0, [0.0], JPEG))
    unpack(tmp_path / "out", tmp_path / "set")
    assert images(tmp_path / "out") == ["0/0.jpg"]


# --- what no list can hold, and what is no image ------------------------------------------------


def test_repeated_ids_are_told_and_keep_their_order(tmp_path: Path, im2rec: Run) -> None:
    items = [(7, [1.0], JPEG + bytes([number])) for number in range(11)]
    write_rec(tmp_path / "set.rec", *items, (8, [1.0], JPEG))
    done = im2rec("unpack", "set.rec", "out", code=1)
    found = [each for each in images(tmp_path / "out") if each.startswith("1/7")]
    assert found == ["1/7.jpg", *(f"1/7_{number:02}.jpg" for number in range(2, 12))]
    last = [(tmp_path / "out" / each).read_bytes()[-1] for each in found]
    assert last == list(range(11))
    entries = list(read_list(str(tmp_path / "out" / "set.lst")))
    assert [each.path for each in entries] == ["1/7.jpg", "1/8.jpg"]
    assert done.stderr.count(": id 7: 1/7_") == 10
    assert "1/7_02.jpg: the set has this id already\n" in done.stderr


@pytest.mark.parametrize("count", [11, 400])
@pytest.mark.parametrize("shards", [1, 2])
def test_renumbered_images_have_the_places_of_their_records_as_ids(
    count: int, shards: int, tmp_path: Path, im2rec: Run
) -> None:
    items = [
        (0, [1.0], b"" if number == 3 else bytes([number % 251] * 3)) for number in range(count)
    ]
    for number in range(shards):
        part = items[number * count // shards : (number + 1) * count // shards]
        write_rec(tmp_path / f"set{f'_00{number}' * (shards > 1)}.rec", *part)
    done = im2rec("unpack", "set", "no", code=1)
    assert f"{count - 2} images with an id that the set has already: --renumber" in done.stderr
    done = im2rec("unpack", "--renumber", "set", "out")
    assert "already" not in done.stderr
    entries = list(read_list(str(tmp_path / "out" / "set.lst")))
    assert [each.id for each in entries] == [0, 1, 2, *range(4, count)]
    digits = len(str(count - 1))
    for each in entries:
        assert each.path == f"1/{each.id:0{digits}}.bin"
        assert (tmp_path / "out" / each.path).read_bytes() == items[each.id][2]
    im2rec("unpack", "--renumber", "--id", "2-5", "--by", "id", "set", "some")
    assert images(tmp_path / "some") == [f"0/{number:0{digits}}.bin" for number in (2, 4, 5)]


def test_of_many_images_in_no_list_the_first_are_named(tmp_path: Path, im2rec: Run) -> None:
    write_rec(tmp_path / "set.rec", *[(0, [1.0], b"?")] * 1200)
    done = im2rec("unpack", "set", "out", code=1)
    said = "1179 more images that stand in no list; -v names the first 1000\n"
    assert f"im2rec: error: {said}" in done.stderr
    done = im2rec("unpack", "-v", "set", "more", code=1)
    assert done.stderr.count(": the set has this id already\n") == unpacking.MAX_LISTED == 1000
    assert "im2rec: error: 199 more images that stand in no list\n" in done.stderr


def test_each_renumbered_set_begins_at_0(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_rec(tmp_path / f"{name}.rec", (7, [1.0], JPEG), (7, [2.0], JPEG))
    unpack(tmp_path / "out", tmp_path / "a", tmp_path / "b", renumber=True)
    for name in ("a", "b"):
        entries = list(read_list(str(tmp_path / "out" / f"{name}.lst")))
        assert [each.id for each in entries] == [0, 1]
    assert images(tmp_path / "out") == ["1/0.jpg", "1/0_2.jpg", "2/1.jpg", "2/1_2.jpg"]


def test_labels_that_are_no_numbers_stand_in_no_list(tmp_path: Path) -> None:
    items = [(0, [math.nan], JPEG), (1, [1.0, math.inf], JPEG), (2, [2.0], JPEG)]
    many = [(number, [0.0], JPEG) for number in range(3, 100)]
    for name, more in (("few", []), ("many", many)):  # one by one, and in runs
        report = unpack(tmp_path / name, write_rec(tmp_path / f"{name}.rec", *items, *more))
        assert report.images == 3 + len(more)
        assert report.lists[0][1] == 1 + len(more)
        assert [each.id for each in report.unlisted.first] == [0, 1]


def test_two_sets_with_the_same_ids_and_records(tmp_path: Path) -> None:
    one = write_rec(tmp_path / "one.rec", (0, [1.0], JPEG), (1, [1.0], JPEG))
    two = write_rec(tmp_path / "two.rec", (1, [1.0], JPEG), (2, [0.0], JPEG))
    report = unpack(tmp_path / "out", one, two)
    assert images(tmp_path / "out") == ["0/2.jpg", "1/0.jpg", "1/1.jpg", "1/1_2.jpg"]
    assert report.unlisted.count == 0
    for rec in (one, two):
        assert packed_again(tmp_path / "out", rec.stem) == rec.read_bytes()


def test_sets_of_one_name_have_lists_of_two(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_rec(tmp_path / folder / "set.rec", (0, [1.0], JPEG))
    report = unpack(tmp_path / "out", tmp_path / "a" / "set", tmp_path / "b" / "set")
    assert [os.path.basename(path) for path, _ in report.lists] == ["set.lst", "set-2.lst"]


def test_records_without_an_image_are_named(tmp_path: Path, im2rec: Run) -> None:
    rec = write_rec(tmp_path / "set.rec", (0, [1.0], JPEG), (5, [1.0], b""))
    rec.write_bytes(rec.read_bytes() + framing.frame(b"short"))
    done = im2rec("unpack", "set", "out")
    assert "id 5: no image; left out\n" in done.stderr
    assert "no image record: 5 bytes" in done.stderr
    assert images(tmp_path / "out") == ["1/0.jpg"]


@pytest.mark.parametrize("header", [False, True])
def test_of_many_records_without_an_image_the_first_are_named(
    header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_LISTED", 5)
    kinds: list[Item] = [(1, [3.0], b""), (2, [1.0, 2.0], b""), (3, [2.0, 1.0], b"")]
    rows = [framing.frame(image_record.encode(*kinds[at % 3])) for at in range(200)]
    rows[7] = framing.frame(b"short")
    rows.append(framing.frame(image_record.encode(9, [1.0], JPEG)))
    if header:
        rows.append(framing.frame(image_record.encode(0, [4.0, 9.0], b"")))
    (tmp_path / "set.rec").write_bytes(b"".join(rows))
    in_runs = unpack(tmp_path / "runs", tmp_path / "set")
    monkeypatch.setattr("im2rec.framing.RunScanner.run_at", lambda *_: None)
    report = unpack(tmp_path / "singly", tmp_path / "set")
    assert (in_runs.left_out, in_runs.identities) == (report.left_out, report.identities)
    maybe = sum(at % 3 == 1 and at != 7 for at in range(200))
    assert report.identities == (maybe + 1 if header else 0)
    assert report.left_out.count == 200 - (maybe if header else 0)
    offsets = [len(b"".join(rows[:at])) for at in range(200)]
    named = [at for at in range(9) if not (header and at % 3 == 1 and at != 7)][:5]
    assert [each.offset for each in report.left_out.first] == [offsets[at] for at in named]


def test_a_million_records_without_an_image_take_little_memory(tmp_path: Path) -> None:
    row = framing.frame(image_record.encode(5, [1.0], b""))
    pair = framing.frame(image_record.encode(5, [1.0, 2.0], b""))
    image = framing.frame(image_record.encode(5, [1.0], JPEG))
    (tmp_path / "set.rec").write_bytes(image + row * 500_000 + pair * 500_000)
    code = (
        "import resource; from im2rec.unpacking import *; from im2rec.record_set import *;"
        "import numpy; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "report = unpack_sets([find_set('set')], 'out', UnpackOptions(fsync=False));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, report.left_out.count)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True
    )
    memory, count = map(int, done.stdout.split())
    assert count == 1_000_000
    assert memory < 100_000  # KiB; an object for each would take 250,000


def test_insightface_s_identities_are_counted_and_left_out(tmp_path: Path, im2rec: Run) -> None:
    done = im2rec("unpack", GOLDEN / "recordio" / "insightface", "out")
    assert images(tmp_path / "out") == ["0/1.jpg", "0/2.jpg", "1/3.jpg", "1/4.jpg"]
    assert "left out: 3 records of InsightFace's identities" in done.stderr
    assert "no image" not in done.stderr


def test_an_identity_may_be_the_first_of_two_labels(tmp_path: Path) -> None:
    rec = write_rec(
        tmp_path / "set.rec",
        (1, [4.0, 0.0], JPEG),
        (2, [4.0, 3.0], b""),
        (0, [2.0, 3.0], b""),
    )
    report = unpack(tmp_path / "out", rec)
    assert images(tmp_path / "out") == ["4/1.jpg"]
    assert (report.identities, report.left_out.count) == (1, 1)


def test_headers_that_pack_writes_otherwise_are_counted(tmp_path: Path) -> None:
    heads = [
        image_record.HEADER.pack(1, 0.0, 1, 0) + struct.pack("<f", 1),
        image_record.HEADER.pack(0, 1.0, 2, 9),
        image_record.HEADER.pack(2, 1.0, 3, 0) + struct.pack("<ff", 1, 2),
        image_record.encode_header(4, [1.0]),
        image_record.encode_header(5, [1.0, 2.0]),
    ]
    data = b"".join(framing.frame(head + JPEG) for head in heads)
    (tmp_path / "set.rec").write_bytes(data)
    assert unpack(tmp_path / "few", tmp_path / "set").odd_headers == 3
    more = b"".join(
        framing.frame(image_record.encode(number, [1.0], JPEG)) for number in range(6, 99)
    )
    (tmp_path / "set.rec").write_bytes(data + more)
    assert unpack(tmp_path / "many", tmp_path / "set").odd_headers == 3


@pytest.mark.parametrize(
    ("labels", "has_identities", "expected"),
    [
        ((3.0,), False, 3),
        ((-0.0,), False, 0),
        ((-1.0,), False, None),
        ((0.5,), False, None),
        ((math.nan,), False, None),
        ((math.inf,), False, None),
        ((3.0, 1.0), False, None),
        ((3.0, 1.0), True, 3),
    ],
)
def test_what_is_a_class(
    labels: tuple[float, ...], has_identities: bool, expected: int | None
) -> None:
    assert class_of(labels, has_identities=has_identities) == expected


# --- filters ------------------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A set whose classes have numbers for names, but not their own."""
    (tmp_path / "set.classes.txt").write_text("2\n1\ncat\n", encoding="utf-8")
    items = [(number, [float(number % 4)], JPEG) for number in range(100)]
    return write_rec(tmp_path / "set.rec", *items)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"labels": ("2",)}, [0, 4, 8]),
        ({"labels": ("cat",)}, [2, 6, 10]),
        ({"labels": ("cat", "3")}, [2, 3, 6]),
        ({"ids": (range(7, 8), range(90, 200))}, [7, 90, 91]),
        ({"labels": ("1",), "ids": (range(50, 60),)}, [53, 57]),
    ],
)
def test_filters(options: dict[str, object], expected: list[int], digits: Path) -> None:
    unpack(digits.parent / "out", digits, **options)
    entries = list(read_list(str(digits.parent / "out" / "set.lst")))
    assert [each.id for each in entries][:3] == expected


def test_filters_on_the_command_line(digits: Path, im2rec: Run) -> None:
    im2rec("unpack", "--label", "cat", "--id", "10-18", "--id", "2", "set", "out")
    assert images(digits.parent / "out") == [f"cat/{number:02}.jpg" for number in (2, 10, 14, 18)]
    env = {"IM2REC_UNPACK_LABEL": "1\n2\n", "IM2REC_UNPACK_ID": "4-5\n6"}
    im2rec("unpack", "set", "env", env=env)
    assert images(digits.parent / "env") == ["1/05.jpg", "2/04.jpg"]
    for wrong, said in (("9-7", "no id in it"), ("x", "is no id"), ("-3", "is no id")):
        assert said in im2rec("unpack", f"--id={wrong}", "set", "no", code=2).stderr
    done = im2rec("unpack", "--label", "dog", "set", "no", code=2)
    assert "--label 'dog': no class has this name" in done.stderr
    done = im2rec("unpack", "--label", "77", "--id", "5", "set", "no", code=2)
    assert done.stderr == (
        "im2rec: error: set: none of 100 images is as --label and --id says; nothing was written\n"
    )
    assert not (digits.parent / "no").exists()
    assert not (digits.parent / ".no.im2rec").exists()


def test_a_name_in_a_variable_may_have_spaces(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "my set.classes.txt").write_text("tabby cat\ntabby\ncat\n", encoding="utf-8")
    write_rec(tmp_path / "my set.rec", *((at, [float(at)], JPEG) for at in range(3)))
    im2rec("unpack", "my set", "out", env={"IM2REC_UNPACK_LABEL": "tabby cat"})
    assert images(tmp_path / "out") == ["tabby cat/0.jpg"]
    im2rec("verify", "my set", env={"IM2REC_VERIFY_LIST": "out/my set.lst"}, code=1)


# --- what is refused ----------------------------------------------------------------------------


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    rec = write_rec(tmp_path / "set.rec", (0, [0.0], JPEG))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = names(tmp_path)
    for out in ("full", "link", "dangling", "full/.", "empty/.."):
        with pytest.raises(OutputError):
            unpack_sets([find_set(str(rec))], f"{tmp_path}/{out}", UnpackOptions())
    with pytest.raises(OptionError, match="the order is REC"):
        unpack(rec, rec)
    with pytest.raises(OutputError, match="there is no folder"):
        unpack(tmp_path / "none" / "out", rec)
    assert names(tmp_path) == before
    (tmp_path / "empty").chmod(0o2750)
    unpack_sets([find_set(str(rec))], f"{tmp_path}/empty///", UnpackOptions())
    assert images(tmp_path / "empty") == ["0/0.jpg"]
    assert (tmp_path / "empty").stat().st_mode & 0o7777 == 0o2750


@pytest.mark.parametrize("name", ["set.rec", "dog_0.jpg", "fifo"])
def test_what_is_no_record_file_is_refused(name: str, tmp_path: Path) -> None:
    shutil.copy(CLEAN / "dog/dog_0.jpg", tmp_path)
    (tmp_path / "set.rec").write_bytes(b"no record, but some text that is longer than a head")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError):
        unpack(tmp_path / "out", tmp_path / name, salvage=True)
    assert not (tmp_path / "out").exists()


def test_an_empty_set_and_one_without_images(tmp_path: Path) -> None:
    (tmp_path / "empty.rec").touch()
    bare = write_rec(tmp_path / "bare.rec", (1, [1.0], b""))
    with pytest.raises(InputError, match="there is no image in it"):
        unpack(tmp_path / "out", tmp_path / "empty.rec", bare)
    some = write_rec(tmp_path / "some.rec", (1, [1.0], JPEG))
    report = unpack(tmp_path / "out", tmp_path / "empty.rec", some)
    assert [os.path.basename(path) for path, _ in report.lists] == ["some.lst"]
    assert not (tmp_path / "out" / "empty.lst").exists()


def test_a_file_given_twice_is_refused(tmp_path: Path) -> None:
    rec = write_rec(tmp_path / "set.rec", (1, [1.0], JPEG))
    (tmp_path / "link.rec").symlink_to("set.rec")
    for other in (rec, tmp_path / "set", tmp_path / "link.rec"):
        with pytest.raises(InputError, match="given twice"):
            unpack(tmp_path / "out", rec, other)


def test_sets_of_other_classes_are_refused(tmp_path: Path) -> None:
    for name, classes in (("a", "cat\n"), ("b", "dog\n")):
        (tmp_path / f"{name}.classes.txt").write_text(classes, encoding="utf-8")
        write_rec(tmp_path / f"{name}.rec", (0, [0.0], JPEG))
    with pytest.raises(InputError, match="its classes are not those of"):
        unpack(tmp_path / "out", tmp_path / "a", tmp_path / "b")


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    rec = write_rec(tmp_path / "set.rec", *((number, [0.0], JPEG) for number in range(9)))
    with pytest.raises(InputError, match="changed while it was read"):
        unpack_sets(
            [find_set(str(rec))],
            f"{tmp_path}/out",
            UnpackOptions(fsync=False),
            progress=lambda _, __: os.utime(rec, (1, 1)),
        )
    assert names(tmp_path) == ["set.rec"]


def test_what_comes_to_out_meanwhile_stays(tmp_path: Path) -> None:
    rec = write_rec(tmp_path / "set.rec", (0, [0.0], JPEG))

    def put(_: int, __: int) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "mine").write_bytes(b"mine")

    with pytest.raises(OutputError):
        unpack_sets([find_set(str(rec))], f"{tmp_path}/out", UnpackOptions(), progress=put)
    assert names(tmp_path) == ["out", "out/mine", "set.rec"]


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 400])
def test_damage_stops_all_but_salvage(count: int, tmp_path: Path, im2rec: Run) -> None:
    items = [(number, [0.0], JPEG) for number in range(count)]
    rec = write_rec(tmp_path / "set.rec", *items)
    size = rec.stat().st_size // count
    data = bytearray(rec.read_bytes())
    data[size] ^= 1
    rec.write_bytes(data[:-100])
    done = im2rec("unpack", "set", "out", code=2)
    assert f"set.rec: byte {size}: found " in done.stderr
    assert f"set.rec: byte {size * (count - 1)}: a record of" in done.stderr
    assert done.stderr.endswith(
        "damaged in 2 places; nothing was written; --salvage takes what is whole\n"
    )
    assert names(tmp_path) == ["set.rec"]
    with pytest.raises(DamageError):
        unpack(tmp_path / "out", rec)
    done = im2rec("unpack", "-q", "--salvage", "set", "out", code=1)
    assert done.stderr.count("im2rec: error: set.rec: byte ") == 2
    entries = list(read_list(str(tmp_path / "out" / "set.lst")))
    assert [each.id for each in entries] == [0, *range(2, count - 1)]
    assert packed_again(tmp_path / "out") == bytes(data[:size] + data[2 * size : -size])


@pytest.mark.parametrize("count", [9, 400])
def test_a_length_that_spans_over_neighbours_is_damage(
    count: int, tmp_path: Path, im2rec: Run
) -> None:
    rec = write_rec(tmp_path / "set.rec", *((number, [0.0], JPEG) for number in range(count)))
    size = rec.stat().st_size // count
    data = bytearray(rec.read_bytes())
    struct.pack_into("<I", data, 4 + 2 * size, 5 * size - 8)
    rec.write_bytes(data)
    done = im2rec("unpack", "set", "out", code=2)
    assert (
        f"set.rec: byte {2 * size}: the record's bytes hold the head of another at {3 * size}: "
        f"its length is wrong; lost up to byte {3 * size}\n"
    ) in done.stderr
    assert names(tmp_path) == ["set.rec"]
    im2rec("unpack", "--salvage", "set", "out", code=1)
    entries = list(read_list(str(tmp_path / "out" / "set.lst")))
    assert [each.id for each in entries] == [0, 1, *range(3, count)]
    assert packed_again(tmp_path / "out") == bytes(data[: 2 * size] + data[3 * size :])


def test_a_missing_shard_stops_all_but_salvage(tmp_path: Path, im2rec: Run) -> None:
    for number in (0, 2):
        write_rec(tmp_path / f"set_00{number}.rec", (number, [0.0], JPEG))
    assert "set_001.rec: this shard is not there" in im2rec("unpack", "set", "out", code=2).stderr
    im2rec("unpack", "--salvage", "set", "out", code=1)
    assert images(tmp_path / "out") == ["0/0.jpg", "0/2.jpg"]


def test_damaged_images_come_out_as_they_are(tmp_path: Path) -> None:
    sources = sorted(path for path in (BAD / "x").iterdir() if path.stat().st_size)
    items = [(at, [0.0], source.read_bytes()) for at, source in enumerate(sources)]
    rec = write_rec(tmp_path / "set.rec", *items)
    report = unpack(tmp_path / "out", rec)
    assert packed_again(tmp_path / "out") == rec.read_bytes()
    assert report.unknown_kind == sum(name.endswith(".bin") for name in images(tmp_path / "out"))


# --- faults ---------------------------------------------------------------------------------------


@pytest.fixture
def long_set(tmp_path: Path) -> Path:
    """A set that takes far longer to unpack than a test waits."""
    with open(tmp_path / "set.rec", "wb") as file:
        for number in range(40_000):
            file.write(framing.frame(image_record.encode(number, [number % 50], JPEG)))
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "im2rec", "unpack", "set", "out"],
        cwd=folder,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    wait_for((folder / ".out.im2rec" / "tree" / "00").exists, "it never began")
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing(number: signal.Signals, code: int, long_set: Path) -> None:
    process = start(long_set)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert stderr.splitlines()[-1].endswith(f"by {number.name}; nothing was left half-written")
    assert names(long_set) == ["set.rec"]


def test_the_next_run_clears_what_a_killed_one_left(long_set: Path, im2rec: Run) -> None:
    process = start(long_set)
    done = im2rec("unpack", "set", "out", code=2)
    assert "another im2rec run" in done.stderr
    process.kill()
    process.communicate()
    assert (long_set / ".out.im2rec" / "tree").exists()
    assert not (long_set / "out").exists()
    write_rec(long_set / "set.rec", (0, [1.0], JPEG))
    im2rec("unpack", "set", "out")
    assert names(long_set) == ["out", "out/1", "out/1/0.jpg", "out/set.lst", "set.rec"]


def test_a_full_file_system_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """A real one, where this machine lets a user mount it; else a bound on each file."""
    items = [(number, [0.0], bytes([1]) * 50_000) for number in range(60)]
    write_rec(tmp_path / "set.rec", *items)
    (tmp_path / "small").mkdir()
    unpacking = f"{sys.executable} -m im2rec unpack set small/out"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        command = ["sh", "-c", f"trap '' XFSZ; ulimit -f 50; {unpacking}"]
    else:
        mount = "mount -t tmpfs -o size=2000000 none small"
        script = f"{mount} && {{ {unpacking}; code=$?; ls -A small; exit $code; }}"
        command = ["unshare", "-rm", "sh", "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("im2rec: error: small/out: cannot write: ")
    assert line.endswith(("o space left on device", "ile too large"))
    assert done.stdout == ""
    assert names(tmp_path / "small") == []


@pytest.mark.parametrize("spelling", ["{}", "../here"])
def test_the_current_folder_is_not_taken_away(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rec = write_rec(tmp_path / "set.rec", (0, [1.0], JPEG))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    out = spelling.format(here)
    with pytest.raises(OutputError, match="it is the current folder; name a new folder in it"):
        unpack(Path(out), rec)
    assert names(tmp_path) == ["here", "set.rec"]


def test_a_row_that_no_list_can_hold_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_ROW", 40)
    wide = write_rec(tmp_path / "set.rec", (0, [1.0] * 30, JPEG), (1, [1.0, 2.0], JPEG))
    report = unpack(tmp_path / "out", wide)
    (place,) = report.unlisted.first
    assert place.id == 0
    assert place.found.endswith("/0.jpg: 30 labels, a row of 75 bytes")
    assert (tmp_path / "out" / "set.lst").read_text("utf-8") == "1\t1\t2\timages/1.jpg\n"


def test_one_record_that_is_cut_is_damage(tmp_path: Path) -> None:
    rec = write_rec(tmp_path / "set.rec", (0, [1.0], JPEG))
    rec.write_bytes(rec.read_bytes()[:-4])
    with pytest.raises(DamageError, match=r"set\.rec: byte 0: "):
        unpack(tmp_path / "out", rec)
    with pytest.raises(InputError, match="there is no image in it"):
        unpack(tmp_path / "out", rec, salvage=True)
    rec.write_bytes(b"no record at all")
    with pytest.raises(InputError, match="so it is no record file"):
        unpack(tmp_path / "out", rec)


def test_an_empty_class_map_is_none(tmp_path: Path) -> None:
    first = write_rec(tmp_path / "a.rec", (0, [1.0], JPEG))
    second = write_rec(tmp_path / "b.rec", (1, [1.0], JPEG))
    (tmp_path / "a.classes.txt").touch()
    assert unpack(tmp_path / "out", first, second).images == 2
