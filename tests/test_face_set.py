"""Sets in InsightFace's layout, read as its own loaders read them."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import CLEAN, GOLDEN, Run

from im2rec import identities, recordio
from im2rec.errors import InputError
from im2rec.face_set import FaceSet
from im2rec.identities import EXACT, IdentityTable
from im2rec.lst import read_list


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    """Six identities of 1 to 6 images, 112x112."""
    root = tmp_path / "faces"
    for person in range(6):
        (root / f"p{person}").mkdir(parents=True)
        for number in range(person + 1):
            picture = np.full((112, 112, 3), 40 * person + number, np.uint8)
            cv2.imwrite(str(root / f"p{person}" / f"{number}.png"), picture)
    return root


def packed(im2rec: Run, root: Path, *options: str) -> recordio.MXIndexedRecordIO:
    im2rec("make-list", "--layout", "insightface", "train", root)
    im2rec("pack", "--layout", "insightface", *options, "train", root)
    return recordio.MXIndexedRecordIO("train.idx", "train.rec", "r")


def test_a_set_is_read_as_arcface_torch_and_the_mxnet_loader_read_it(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with packed(im2rec, faces, "--encoding", "png") as reader:
        # As both begin: key 0 has a flag and says where the identities stand.
        header, image = recordio.unpack(reader.read_idx(0))
        assert (header.flag, image) == (2, b"")
        images = range(1, int(header.label[0]))
        identities = range(int(header.label[0]), int(header.label[1]))
        assert (images, identities) == (range(1, 22), range(22, 28))
        # As arcface_torch goes on: each image by its key, the label a number.
        labels = {}
        for key in images:
            header, picture = recordio.unpack_img(reader.read_idx(key))
            assert isinstance(header.label, float)
            labels[key] = int(header.label)
            assert picture.shape == (112, 112, 3)
            assert picture[0, 0, 0] // 40 == labels[key]
        # As the MXNet loader goes on: the images of each identity, by its record.
        for label, key in enumerate(identities):
            header, image = recordio.unpack(reader.read_idx(key))
            assert image == b""
            mine = range(int(header.label[0]), int(header.label[1]))
            assert [*mine] == [each for each in images if labels[each] == label]
        assert sorted(reader.keys) == [0, *images, *identities]
    assert (tmp_path / "property").read_bytes() == b"6,112,112\n"
    manifest = json.loads((tmp_path / "train.manifest.json").read_bytes())
    assert (manifest["packed"], manifest["identity_records"]) == (21, 7)
    assert manifest["label_widths"] == {"1": 21, "2": 7}
    done = im2rec("verify", "--decode", "--list", "train.lst", "train")
    assert (done.stdout, done.stderr.splitlines()[-1][-10:]) == ("", "no problem")


def test_the_golden_file_is_packed_again(
    tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that MXNet wrote."""
    monkeypatch.chdir(tmp_path)
    golden = GOLDEN / "recordio" / "insightface"
    rows = []
    with recordio.MXIndexedRecordIO(f"{golden}.idx", f"{golden}.rec", "r") as reader:
        for key in range(1, 5):
            header, image = recordio.unpack(reader.read_idx(key))
            (tmp_path / f"{key}.jpg").write_bytes(image)
            rows.append(f"{key}\t{header.label:g}\t{key}.jpg\n")
    (tmp_path / "train.lst").write_text("".join(rows), encoding="utf-8")
    im2rec("pack", "--layout", "insightface", "--pass-through", "train", ".")
    for ending in (".rec", ".idx"):
        written = (tmp_path / f"train{ending}").read_bytes()
        assert written == golden.with_suffix(ending).read_bytes()
    assert (tmp_path / "property").read_bytes() == b"2,120,160\n"


def test_the_bytes_are_the_same_for_any_number_of_workers(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = set()
    for workers in ("1", "2", "4"):
        packed(im2rec, faces, "--workers", workers).close()
        sets.add((tmp_path / "train.rec").read_bytes() + (tmp_path / "train.idx").read_bytes())
    assert len(sets) == 1


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (["0 0 a", "1 0 b"], "row 1 (a): id 0, expected 1: ids rise from 1 without a hole"),
        (["1 0 a", "3 0 b"], "row 2 (b): id 3, expected 2"),
        (["1 1 a"], "row 1 (a): identity 1, expected 0: identities rise from 0"),
        (["1 0 a", "2 2 b"], "row 2 (b): identity 2, expected 0 or 1: identities"),
        (["1 0 a", "2 1 b", "3 0 c"], "row 3 (c): identity 0, expected 1 or 2: identities"),
        (["1 0.5 a"], "row 1 (a): identity 0.5, expected 0"),
        (["1 0 7 a"], "row 1 (a): 2 labels, expected one, the identity's number"),
    ],
)
def test_a_list_in_another_order_is_refused(
    rows: list[str], found: str, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "".join("\t".join(row.split()) + "\n" for row in rows)
    (tmp_path / "train.lst").write_text(text, encoding="utf-8")
    done = im2rec("pack", "--layout", "insightface", "train", ".", code=2)
    assert found in done.stderr
    assert done.stderr.endswith("make it with im2rec make-list --layout insightface\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.lst"]


def test_images_of_two_sizes_are_refused_with_the_first_other_one(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cv2.imwrite(str(faces / "p3" / "1.png"), np.zeros((112, 96, 3), np.uint8))
    im2rec("make-list", "--layout", "insightface", "train", faces)
    done = im2rec("pack", "--layout", "insightface", "train", faces, code=2)
    assert done.stderr == (
        "im2rec: error: p3/1.png: 96x112 pixels, the images before it 112x112; InsightFace trains "
        "on one size; align them, or use --resize 112 --center-crop\n"
    )
    assert not (tmp_path / "train.rec").exists()
    assert not (tmp_path / "property").exists()
    im2rec("pack", "--layout", "insightface", "--resize", "64", "--center-crop", "train", faces)
    assert (tmp_path / "property").read_bytes() == b"6,64,64\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--shards", "2"], "--layout insightface is one file"),
        (["--shard-size", "1K"], "--layout insightface is one file"),
        (["--max-failures", "1"], "--layout insightface leaves no hole in the keys"),
    ],
)
def test_what_the_layout_excludes(
    options: list[str],
    found: str,
    faces: Path,
    tmp_path: Path,
    im2rec: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    im2rec("make-list", "--layout", "insightface", "train", faces)
    assert (
        found in im2rec("pack", "--layout", "insightface", *options, "train", faces, code=2).stderr
    )


def test_another_file_named_property_is_left_alone(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "property").write_text("of mine", encoding="utf-8")
    im2rec("make-list", "--layout", "insightface", "train", faces)
    done = im2rec("pack", "--layout", "insightface", "train", faces, code=2)
    assert (
        "property: cannot write: it is there, and is no property file of InsightFace" in done.stderr
    )
    assert (tmp_path / "property").read_text(encoding="utf-8") == "of mine"


def test_a_plain_set_takes_the_property_of_the_one_it_replaces_away(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packed(im2rec, faces).close()
    assert (tmp_path / "property").exists()
    im2rec("pack", "train", faces)
    assert not (tmp_path / "property").exists()


@pytest.mark.parametrize("whose", ["mine", "another set's", "of nobody"])
def test_a_property_that_is_not_the_older_set_s_stays(
    whose: str, faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packed(im2rec, faces).close()
    if whose == "another set's":
        (tmp_path / "other.lst").write_bytes((tmp_path / "train.lst").read_bytes())
        im2rec("pack", "--layout", "insightface", "other", faces)
    elif whose == "mine":
        (tmp_path / "property").write_bytes(b"of mine")
    else:  # a set without identities was there before
        im2rec("pack", "train", faces)
        (tmp_path / "property").write_bytes(b"6,112,112\n")
    before = (tmp_path / "property").read_bytes()
    im2rec("pack", "train", faces)
    assert (tmp_path / "property").read_bytes() == before


def test_two_lists_are_refused_and_another_name_than_train_is_told(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stratify = ["--train-ratio", "0.5", "--stratify"]
    im2rec("make-list", "--layout", "insightface", *stratify, "set", CLEAN)
    done = im2rec("pack", "--layout", "insightface", "set", CLEAN, code=2)
    assert "2 lists: --layout insightface is for one list in a folder" in done.stderr
    im2rec("make-list", "--layout", "insightface", "other", faces)
    done = im2rec("pack", "--layout", "insightface", "other", faces)
    assert "other: InsightFace looks for train.rec and train.idx" in done.stderr


def test_lists_of_a_split_are_each_in_class_order_from_1(
    tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    im2rec("make-list", "--layout", "insightface", "--train-ratio", "0.5", "--stratify", "s", CLEAN)
    seen = []
    for name in ("s_train.lst", "s_val.lst"):
        rows = [row.split("\t") for row in (tmp_path / name).read_text("utf-8").splitlines()]
        assert [int(row[0]) for row in rows] == [*range(1, len(rows) + 1)]
        labels = [int(row[1]) for row in rows]
        assert (labels, {*labels}) == (sorted(labels), {0, 1, 2, 3})
        seen += [row[2] for row in rows]
        size = ["--resize", "32", "--center-crop"]
        im2rec("pack", "--layout", "insightface", *size, name, CLEAN)
        assert (tmp_path / "property").read_bytes() == b"4,32,32\n"
    assert len({*seen}) == len(seen) == 24


PEOPLE = "".join(f"p{person}/0.png,{person + 1}\n" for person in range(3))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--train-ratio", "0.5"], "train_val.lst: it would have no image of identity 0 (p0)"),
        (["--chunks", "6"], "; make one list, as InsightFace trains on; --stratify keeps"),
        (
            ["--classes", "names"],
            "train.lst: it would have no image of identity 0 (anna), and --layout insightface "
            "leaves no hole; take the class out of the class map",
        ),
        (
            ["--classes", "names", "--train-ratio", "0.9"],
            "identity 0 (anna), and --layout insightface leaves no hole; take the class out",
        ),
        (
            ["--labels", "people.csv"],
            "train.lst: it would have no image of identity 0, and --layout insightface leaves no "
            "hole; give the labels as names",
        ),
        (["--labels", "two.csv"], "train.lst: several labels a row, and --layout insightface"),
    ],
)
def test_a_list_that_pack_would_not_take_is_not_written(
    options: list[str], found: str, faces: Path, tmp_path: Path, im2rec: Run
) -> None:
    names = ["anna", *(f"p{person}" for person in range(6))]
    (tmp_path / "names").write_text("\n".join(names), encoding="utf-8")
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    (tmp_path / "two.csv").write_text(PEOPLE.replace("\n", ",7\n"), encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    done = im2rec("make-list", "--layout", "insightface", *options, "train", faces, code=2)
    assert found in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("options", [[], ["--no-recursive"], ["--label-from", "leaf"]])
def test_what_make_list_writes_pack_takes(
    options: list[str], faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = faces / "p3" if "--no-recursive" in options else faces
    im2rec("make-list", "--layout", "insightface", *options, "train", root)
    im2rec("pack", "--layout", "insightface", "train", root)


def test_ids_of_the_layout_are_its_own(tmp_path: Path, im2rec: Run) -> None:
    options = ["--layout", "insightface", "--ids", "per-list"]
    done = im2rec("make-list", *options, "train", CLEAN, code=2)
    assert "--layout insightface numbers each list from 1; it excludes --ids" in done.stderr


def test_labels_of_a_table_are_put_in_order(
    faces: Path, tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"p{person}/0.png,{1 - person % 2}\n" for person in range(4)]
    (tmp_path / "people.csv").write_text("".join(rows), encoding="utf-8")
    im2rec("make-list", "--layout", "insightface", "--labels", "people.csv", "train", faces)
    assert (tmp_path / "train.lst").read_text(encoding="utf-8") == (
        "1\t0\tp1/0.png\n2\t0\tp3/0.png\n3\t1\tp0/0.png\n4\t1\tp2/0.png\n"
    )
    im2rec("pack", "--layout", "insightface", "train", faces)
    done = im2rec("make-list", "--layout", "insightface", "--detection", "x", "s", faces, code=2)
    assert "--layout insightface takes one label; --detection gives many" in done.stderr


def table_of(images: int, *firsts: int) -> IdentityTable:
    """As after so many images, of identities that begin there."""
    table = IdentityTable()
    table._images = images
    table._firsts.extend(firsts)
    return table


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (table_of(EXACT, 1), f"the first identity has the key {EXACT + 1}, which is to stand"),
        (table_of(EXACT + 1, 1), f"the end of the identities has the key {EXACT + 3}"),
        (
            table_of(EXACT + 3, 1, EXACT + 1),
            f"the first image of identity 1 has the key {EXACT + 1}",
        ),
    ],
)
def test_keys_that_float32_cannot_hold_are_refused(table: IdentityTable, found: str) -> None:
    with pytest.raises(ValueError, match=f"^{found}.*float32 cannot hold it"):
        table.check()


def test_large_keys_that_float32_holds_are_taken() -> None:
    table = table_of(EXACT + 3, 1, EXACT + 2)
    table.check()
    assert [*table.records()] == [
        (EXACT + 4, (1, EXACT + 2)),
        (EXACT + 5, (EXACT + 2, EXACT + 4)),
        (0, (EXACT + 4, EXACT + 6)),
    ]  # fmt: skip


def test_a_list_with_such_keys_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "EXACT", 4)  # as if labels were of few bits
    path = tmp_path / "train.lst"
    path.write_text("".join(f"{key}\t0\t{key}.jpg\n" for key in range(1, 5)), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        FaceSet(read_list(str(path)))
    assert str(caught.value) == (
        f"{path}: the first identity has the key 5, which is to stand in a label: float32 cannot "
        "hold it, as no odd number beyond 4; pack it plain, from a list of make-list --ids "
        "per-list: arcface_torch reads that, too"
    )
