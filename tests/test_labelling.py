"""Labels of others and the images of ROOT become lists: which labels, which rows, what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from im2rec import detection, recordio
from im2rec.errors import Im2recError, InputError, OptionError
from im2rec.image_ops import ImageOptions
from im2rec.labelling import Labelled
from im2rec.lst import read_list
from im2rec.make_list import ListOptions, ListReport, make_list
from im2rec.pack import PackOptions, pack_list

SIZE = (40, 20)


def images(tmp_path: Path, *names: str, size: tuple[int, int] = SIZE, turn: int = 1) -> Path:
    """Pictures below tmp_path/root. turn: their EXIF orientation."""
    root = tmp_path / "root"
    exif = Image.Exif()
    exif[0x0112] = turn
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(root / name, exif=exif)
    return root


def listed(root: Path, **options: object) -> ListReport:
    settings = {"shuffle": False, "fsync": False, **options}
    return make_list(str(root.parent / "set"), str(root), ListOptions(**settings))  # type: ignore[arg-type]


def refused(root: Path, **options: object) -> str:
    """The error of a run, which must leave no list."""
    with pytest.raises(Im2recError) as caught:
        listed(root, **options)
    assert not list(root.parent.glob("*.lst"))
    return str(caught.value).replace(f"{root.parent}/", "")


def rows(root: Path) -> list[str]:
    text = (root.parent / "set.lst").read_text(encoding="utf-8")
    return text.replace("\t", " ").splitlines()


def labelled(report: ListReport) -> Labelled:
    assert report.labelled is not None
    return report.labelled


# --- tables -----------------------------------------------------------------------------------


def table(root: Path, *lines: str, name: str = "t.csv") -> str:
    path = root.parent / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_class_names_are_numbered_by_code_point_and_rows_stand_in_their_order(
    tmp_path: Path,
) -> None:
    root = images(tmp_path, "a.jpg", "b.png", "c.jpg", "d/e.jpg", "other.jpg")
    path = table(root, "c.jpg,zebra", "./a.jpg,Ant", "d\\e.jpg,zebra", "b.png,ärmel")
    report = listed(root, labels=path)
    assert rows(root) == ["0 1 c.jpg", "1 0 a.jpg", "2 1 d/e.jpg", "3 2 b.png"]
    classes = (tmp_path / "set.classes.txt").read_text(encoding="utf-8")
    assert classes.splitlines() == report.classes == ["Ant", "zebra", "ärmel"]
    assert report.class_counts == {0: 1, 1: 2, 2: 1}
    assert labelled(report).without_row == 1
    assert labelled(report).header is None


def test_numbers_stay_numbers_and_have_no_class_map(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    report = listed(root, labels=table(root, "a.jpg,3.0", "b.jpg,-0.25"))
    assert rows(root) == ["0 3 a.jpg", "1 -0.25 b.jpg"]
    assert report.classes is None
    assert not (tmp_path / "set.classes.txt").exists()


def test_an_older_class_map_beside_numbers_is_told(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    (tmp_path / "set.classes.txt").write_text("cat\n", encoding="utf-8")
    assert listed(root, recursive=False).older_classes == str(tmp_path / "set.classes.txt")
    report = listed(root, labels=table(root, "a.jpg,3"))
    assert report.older_classes == str(tmp_path / "set.classes.txt")
    assert listed(root, labels=table(root, "a.jpg,dog")).older_classes is None


def test_several_labels_of_a_tsv(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b c.jpg")
    report = listed(root, labels=table(root, "a.jpg\t1\t2", "b c.jpg\t3\t1e-3", name="t.tsv"))
    assert rows(root) == ["0 1 2 a.jpg", "1 3 0.001 b c.jpg"]
    assert labelled(report).label_width == 2


def test_a_class_map_fixes_numbers_even_of_names_that_are_numbers(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    classes = tmp_path / "map.txt"
    classes.write_text("cat\n10\n9\n", encoding="utf-8")
    report = listed(root, labels=table(root, "a.jpg,9", "b.jpg,cat"), classes=str(classes))
    assert rows(root) == ["0 2 a.jpg", "1 0 b.jpg"]
    assert report.classes == ["cat", "10", "9"]
    (tmp_path / "set.lst").unlink()
    error = refused(root, labels=table(root, "a.jpg,dog", "b.jpg,cat"), classes=str(classes))
    assert error == f"t.csv:1: the class 'dog' is not in {classes}".replace(f"{tmp_path}/", "")
    error = refused(root, labels=table(root, "a.jpg,1,2"), classes=str(classes))
    assert error == "t.csv: --classes takes one column of labels, there are more"


@pytest.mark.parametrize(
    ("first", "is_header"),
    [
        ("path,label", True),
        ("id_code,diagnosis", True),
        ("ImageID,LabelName", True),
        ("Image Path,cat", False),  # a class is no heading
        ("0.webp,cat", False),  # an image of a kind that is not listed
        ("img0,cat", False),  # of no kind
        ("stem,kind", False),
        ("a,dog", False),  # an image without its extension
        ("a.jpg,dog", False),
        ("gone.jpg,dog", False),  # looks like an image: told as missing
        ("id,0", False),
    ],
)
def test_a_header_is_what_cannot_be_a_row(tmp_path: Path, first: str, is_header: bool) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    path = table(root, first, "b.jpg,cat")
    if first.startswith("a") or is_header:
        report = listed(root, labels=path)
        assert labelled(report).header == (first.replace(",", ", ") if is_header else None)
        assert report.images == 2 - is_header
    else:
        hint = "; if this row is the header, say --header"
        shown = "" if ".jpg" in first or ".webp" in first else hint
        error = f"t.csv:1: there is no image {first.split(',')[0]} in ROOT (root){shown}"
        if first == "id,0":  # and that label
            assert error in refused(root, labels=path)
        else:
            assert refused(root, labels=path) == error
        assert hint not in refused(root, labels=path, header=False)
        assert labelled(listed(root, labels=path, header=True)).header == first.replace(",", ", ")
        assert rows(root) == ["0 0 b.jpg"]


def test_names_above_numbers_are_a_header(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    assert labelled(listed(root, labels=table(root, "stem,n", "a,1", "b,2"))).header == "stem, n"
    (tmp_path / "set.lst").unlink()
    assert "no image gone.webp" in refused(root, labels=table(root, "gone.webp,n", "a,1", "b,2"))
    assert refused(root, labels=table(root, "stem,n", "a,1"), header=False) == (
        "t.csv:1: there is no image stem in ROOT (root)\n"
        "t.csv:1: label 'n', and most are numbers; if it is a class, name all by --classes"
    )
    error = refused(root, labels=table(root, "a,1"), header=True)
    assert error == "t.csv: no row but the header (a, 1)"


def test_a_name_with_an_extension_is_no_stem(tmp_path: Path) -> None:
    root = images(tmp_path, "3.jpg.png", "v1.2.png")
    for name in ("3.jpg", "3.webp", "3.JPG"):
        assert f"there is no image {name} in ROOT" in refused(root, labels=table(root, f"{name},1"))
    listed(root, labels=table(root, "3.jpg.png,1", "v1.2,2"))
    assert rows(root) == ["0 1 3.jpg.png", "1 2 v1.2.png"]


def test_underscores_are_of_names_not_of_numbers(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    report = listed(root, labels=table(root, "a.jpg,10_2", "b.jpg,1_0"))
    assert report.classes == ["10_2", "1_0"]


def test_paths_without_extension(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "img.001.png", "d/b.jpg", "d/b.png")
    listed(root, labels=table(root, "id,n", "a,1", "img.001,2"))
    assert rows(root) == ["0 1 a.jpg", "1 2 img.001.png"]
    (tmp_path / "set.lst").unlink()
    assert refused(root, labels=table(root, "d/b,1")) == (
        "t.csv:1: d/b may be any of d/b.jpg, d/b.png; give it its extension"
    )
    assert refused(root, labels=table(root, "a,1", "a.jpg,2")) == (
        "t.csv:2: a.jpg stands there twice, first at t.csv:1"
    )


def test_each_row_at_fault_is_told_with_its_line(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg", "c.webp", ".d.jpg", "e.jpg")
    lines = ["a.jpg,1", "gone.jpg,1", "c.webp,1", ".d.jpg,1", "/etc/x.jpg,1", "../x.jpg,1"]
    lines += ["a.jpg,2", "b.jpg,nan", "e.jpg,16777217"]
    assert refused(root, labels=table(root, *lines)).split("\n") == [
        "t.csv:2: there is no image gone.jpg in ROOT (root)",
        "t.csv:3: c.webp is there, but not listed; see --exts and --include-hidden",
        "t.csv:4: .d.jpg is there, but not listed; see --exts and --include-hidden",
        "t.csv:5: /etc/x.jpg is an absolute path, expected one that starts from ROOT",
        "t.csv:6: ../x.jpg leaves ROOT",
        "t.csv:7: a.jpg stands there twice, first at t.csv:1",
        "t.csv:8: label 'nan', expected a number that float32 can hold",
        "t.csv:9: label '16777217' would become 16777216: labels are float32, which holds every "
        "whole number only up to 16777216",
    ]


def test_a_slip_among_numbers_is_no_class(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    hint = "if it is a class, name all by --classes"
    path = table(root, "a.jpg,1", "b.jpg,1O", "c.jpg,2")
    assert refused(root, labels=path) == f"t.csv:2: label '1O', and most are numbers; {hint}"
    path = table(root, "a.jpg,cat", "b.jpg,10", "c.jpg,dog")
    assert refused(root, labels=path) == f"t.csv:2: label '10', and most are class names; {hint}"
    path = table(root, "a.jpg,cat", "b.jpg,", "c.jpg,dog")
    assert refused(root, labels=path) == "t.csv:2: label '', expected a number or a class name"
    path = table(root, 'a.jpg,"two\nlines"', "b.jpg,cat")
    assert refused(root, labels=path) == (
        "t.csv:1: label 'two\\nlines', expected a number or a class name"
    )
    path = table(root, "a.jpg,1,2", "b.jpg,x,3")
    assert refused(root, labels=path) == "t.csv:2: label 'x', expected a number"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (["0,a.jpg,1", "1,b.jpg,2"], "column 1 must be the path, and 2 of 2 rows have an image's "
         "in column 2; put that column first, and leave an index out"),
        (["label,image", "cat,a.jpg", "dog,b.jpg"], "column 1 must be the path, and 2 of 3 rows "
         "have an image's in column 2; put that column first, and leave an index out"),
        (["image,label,split", "a.jpg,1,train", "b.jpg,2,val"], "column 3 has no number ('train'), "
         "and several columns of labels must be numbers; for class names, keep the path and one "
         "column"),
    ],
)  # fmt: skip
def test_columns_that_are_others_are_told_in_a_line(
    tmp_path: Path, lines: list[str], error: str
) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    for missing in ("fail", "drop"):
        assert refused(root, labels=table(root, *lines), missing=missing) == f"t.csv: {error}"


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    assert refused(root, labels=table(root, "path,label")) == (
        "t.csv: no row but the header (path, label)"
    )


def test_the_rest_of_make_list_works_on_rows_of_a_table(tmp_path: Path) -> None:
    names = [f"{number:02}.jpg" for number in range(20)]
    root = images(tmp_path, *names)
    path = table(root, *[f"{name},{'cat' if name < '10' else 'dog'}" for name in names])
    report = listed(
        root, labels=path, shuffle=True, train_ratio=0.6, test_ratio=0.2, stratify=True,
        ids="per-list",
    )  # fmt: skip
    assert {Path(name).stem: count for name, count in report.lists} == {
        "set_test": 4, "set_val": 4, "set_train": 12
    }  # fmt: skip
    seen = []
    for name, count in report.lists:
        entries = list(read_list(name))
        assert [entry.id for entry in entries] == list(range(count))
        assert sum(entry.labels[0] for entry in entries) == count / 2
        seen += [entry.path for entry in entries]
    assert sorted(seen) == names
    listed(root, labels=path, chunks=3, seed=1, shuffle=True)
    assert sorted(tmp_path.glob("set_?.lst"))


# --- boxes ------------------------------------------------------------------------------------


def coco(root: Path, *boxes: list[float], size: tuple[int, int] = SIZE, **more: object) -> str:
    """A COCO file of a.jpg with these boxes. more: other lists, and what all boxes have."""
    contents: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": size[0], "height": size[1]}],
        "categories": [{"id": 7, "name": "cat"}],
        "annotations": [
            {"id": at, "image_id": 1, "category_id": 7, "bbox": box} for at, box in enumerate(boxes)
        ],
        **more,
    }
    path = root.parent / "c.json"
    path.write_text(json.dumps(contents), encoding="utf-8")
    return str(path)


def test_boxes_become_shares_of_the_picture(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    report = listed(root, detection=coco(root, [4, 5, 10, 5], [0, 0, 40, 20]))
    assert rows(root) == ["0 2 5 0 0.1 0.25 0.35 0.5 0 0 0 1 1 a.jpg"]
    found = labelled(report)
    assert (found.objects, found.label_width, found.without_row, found.clipped) == (2, 12, 1, 0)
    assert report.class_counts == {0: 2}
    assert (tmp_path / "set.classes.txt").read_text(encoding="utf-8") == "cat\n"


def test_a_small_overshoot_is_clipped_and_counted(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    boxes = [[-1.0, -0.5, 42.0, 21.5], [0.0, 0.0, 40.009, 20.0]]
    report = listed(root, detection=coco(root, *boxes))
    assert rows(root) == ["0 2 5 0 0 0 1 1 0 0 0 1 1 a.jpg"]
    assert labelled(report).clipped == 1  # the other is rounding


BAD_BOXES: list[tuple[list[float], str]] = [
    ([-1.1, 0, 5, 5], "-1.1 0 3.9 5 (left top right bottom) of 40x20 pixels: beyond the picture"),
    ([0, 0, 5, 21.5], "0 0 5 21.5 (left top right bottom) of 40x20 pixels: beyond the picture"),
    ([0, 0, 0, 5], "0 0 0 5 (left top right bottom) of 40x20 pixels: no area"),
    ([9, 9, -3, 5], "9 9 6 14 (left top right bottom) of 40x20 pixels: no area"),
    ([40, 0, 1, 5], "40 0 41 5 (left top right bottom) of 40x20 pixels: no area"),
    ([20, 0, 1e-7, 5], "20 0 20 5 (left top right bottom) of 40x20 pixels: no area"),
]


@pytest.mark.parametrize(("box", "error"), BAD_BOXES)
def test_a_bad_box_is_refused_or_left_out(tmp_path: Path, box: list[float], error: str) -> None:
    root = images(tmp_path, "a.jpg")
    path = coco(root, [0, 0, 1, 1], box)
    assert refused(root, detection=path) == (
        f"c.json: annotations[1] (id 1): the box {error}; see --bad-boxes"
    )
    report = listed(root, detection=path, bad_boxes="drop")
    assert (labelled(report).bad, labelled(report).objects) == (1, 1)


def test_an_object_without_a_box_is_refused_or_left_out(tmp_path: Path, im2rec: Run) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    both = [{"id": at, "file_name": f"{name}.jpg"} for at, name in enumerate("ab")]
    whole = {"image_id": 0, "category_id": 7, "bbox": [0, 0, 40, 20]}
    for missing in ({"bbox": None}, {"bbox": []}, {}):
        mask = {"image_id": 1, "category_id": 7, **missing}
        path = coco(root, images=both, annotations=[whole, mask])
        assert refused(root, detection=path) == (
            "c.json: annotations[1]: bbox missing, expected x, y, width, height; see --bad-boxes"
        )
        report = listed(root, detection=path, bad_boxes="drop", negatives="pad")
        assert rows(root) == ["0 2 5 0 0 0 1 1 a.jpg"]
        assert (labelled(report).without_box, labelled(report).emptied) == (1, 1)
        (tmp_path / "set.lst").unlink()
    done = im2rec("make-list", "--bad-boxes", "drop", "--detection", "c.json", "set", "root")
    assert "left out: 1 object without a box" in done.stderr


def test_a_doubled_category_is_told(tmp_path: Path, im2rec: Run) -> None:
    root = images(tmp_path, "a.jpg")
    coco(root, [0, 0, 40, 20], categories=[{"id": 0, "name": "cat"}, {"id": 7, "name": "cat"}])
    done = im2rec("make-list", "--detection", "c.json", "set", "root")
    assert rows(root) == ["0 2 5 0 0 0 1 1 a.jpg"]
    assert "warning: c.json: left out: 1 category without an object" in done.stderr


def test_image_sets_of_one_folder_have_the_same_numbers(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    folder = tmp_path / "VOC"
    one = XML.split("<object>")
    for name, number in (("a", 1), ("b", 2)):
        path = folder / "Annotations" / f"{name}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        end = "" if number == 2 else "</annotation>"
        path.write_text(f"{one[0]}<object>{one[number]}{end}", encoding="utf-8")
        path = folder / "ImageSets" / "Main" / f"of_{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    for name, number in (("a", 1), ("b", 0)):  # dog, cat
        report = listed(root, detection=str(folder), image_set=f"of_{name}")
        assert rows(root)[0].startswith(f"0 2 5 {number} ")
        assert report.classes == ["cat", "dog"]
    classes = tmp_path / "map.txt"
    classes.write_text("dog\n", encoding="utf-8")
    report = listed(root, detection=str(folder), image_set="of_a", classes=str(classes))
    assert report.classes == ["dog"]


def test_images_without_an_object_are_dropped_padded_or_refused(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    both = [{"id": at, "file_name": f"{name}.jpg"} for at, name in enumerate("ba")]
    path = coco(root, [0, 0, 1, 1], images=both)
    assert refused(root, detection=path, negatives="fail") == (
        "c.json: images[0]: an image without an object; see --negatives"
    )
    report = listed(root, detection=path)
    assert rows(root) == ["0 2 5 0 0 0 0.025 0.05 a.jpg"]
    assert (labelled(report).negatives, labelled(report).without_row) == (1, 0)
    listed(root, detection=path, negatives="pad")
    assert rows(root) == ["0 2 5 -1 0 0 0 0 b.jpg", "1 2 5 0 0 0 0.025 0.05 a.jpg"]
    (tmp_path / "set.lst").unlink()
    assert refused(root, detection=coco(root)) == (
        "c.json: no image with an object; see --negatives"
    )


def test_an_image_whose_objects_were_left_out_is_never_padded(tmp_path: Path, im2rec: Run) -> None:
    """For there is something in it."""
    root = images(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    those = [{"id": at, "file_name": f"{name}.jpg"} for at, name in enumerate("abcd")]
    whole = {"image_id": 0, "category_id": 7, "bbox": [0, 0, 40, 20]}
    boxes = [
        whole,
        {**whole, "image_id": 1, "iscrowd": 1},
        {**whole, "image_id": 2, "bbox": [0, 0, 0, 0]},
    ]
    path = coco(root, images=those, annotations=boxes)
    report = listed(root, detection=path, negatives="pad", bad_boxes="drop")
    assert rows(root) == ["0 2 5 0 0 0 1 1 a.jpg", "1 2 5 -1 0 0 0 0 d.jpg"]
    assert (labelled(report).negatives, labelled(report).emptied) == (1, 2)
    options = ["--negatives", "pad", "--bad-boxes", "drop", "--detection", "c.json"]
    done = im2rec("make-list", *options, "set", "root")
    assert done.stderr.splitlines()[-4:] == [
        "left out: 1 box around crowds (iscrowd)",
        "im2rec: warning: 1 image without an object: listed with the pad",
        "im2rec: warning: left out: 2 images whose objects were all left out",
        "im2rec: warning: left out: 1 box without area or beyond the picture",
    ]
    (tmp_path / "set.lst").unlink()
    assert refused(root, detection=path, negatives="fail", bad_boxes="drop").split("\n") == [
        "c.json: images[1]: an image whose objects were all left out; see --negatives",
        "c.json: images[2]: an image whose objects were all left out; see --negatives",
        "c.json: images[3]: an image without an object; see --negatives",
    ]


def test_an_image_of_difficult_objects_alone_is_never_padded(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    folder = tmp_path / "VOC" / "Annotations"
    folder.mkdir(parents=True)
    (folder / "a.xml").write_text(XML.replace("<name>cat</name>", ALSO_DIFFICULT), "utf-8")
    (folder / "b.xml").write_text("<annotation/>", encoding="utf-8")
    report = listed(root, detection=str(tmp_path / "VOC"), difficult="drop", negatives="pad")
    assert rows(root) == ["0 2 5 -1 0 0 0 0 b.jpg"]
    assert (labelled(report).negatives, labelled(report).emptied) == (1, 1)


def test_an_image_that_stands_there_twice_is_told(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    both = [{"id": at, "file_name": "a.jpg"} for at in range(2)]
    assert refused(root, detection=coco(root, images=both)) == (
        "c.json: images[1]: a.jpg stands there twice, first at c.json: images[0]"
    )
    folder = tmp_path / "VOC"
    for name, text in (("Annotations/a.xml", XML), ("ImageSets/Main/x.txt", "a\na\n")):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert refused(root, detection=str(folder), image_set="x") == (
        "VOC/ImageSets/Main/x.txt:2: a stands there twice, first in line 1"
    )


def test_hostile_names_are_told(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    names = ["\0.jpg", "\ud800", "x" * 10_000, ".", "..", "a.jpg/", "a.jpg/b", "\n"]
    those = [{"id": at, "file_name": name} for at, name in enumerate(names)]
    lines = refused(root, detection=coco(root, images=those)).split("\n")
    found = [line.split(": ", 2)[2][:60] for line in lines]
    assert found == [
        "there is no image \\x00.jpg in ROOT (root)",
        "there is no image \\ud800 in ROOT (root)",
        "there is no image " + "x" * 42,
        "there is no image . in ROOT (root)",
        ".. leaves ROOT",
        "there is no image a.jpg/b in ROOT (root)",
        "there is no image \\n in ROOT (root)",
    ]  # a.jpg/ is a.jpg


def test_crowds_are_left_out_and_counted(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    crowd = {"id": 5, "image_id": 1, "category_id": 7, "bbox": [0, 0, 9, 9], "iscrowd": 1}
    one = {**crowd, "iscrowd": 0}
    report = listed(root, detection=coco(root, annotations=[crowd, one]))
    assert (labelled(report).crowd, labelled(report).objects) == (1, 1)


def test_classes_of_a_map_are_numbers_of_categories(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    classes = tmp_path / "map.txt"
    classes.write_text("dog\ncat\n", encoding="utf-8")
    listed(root, detection=coco(root, [0, 0, 40, 20]), classes=str(classes))
    assert rows(root) == ["0 2 5 1 0 0 1 1 a.jpg"]
    (tmp_path / "set.lst").unlink()
    classes.write_text("dog\n", encoding="utf-8")
    assert refused(root, detection=coco(root, [0, 0, 9, 9]), classes=str(classes)) == (
        f"c.json: annotations[0] (id 0): the class 'cat' is not in {classes}".replace(
            f"{tmp_path}/", ""
        )
    )


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_the_size_must_be_that_of_the_turned_picture(tmp_path: Path, turn: int, kind: str) -> None:
    root = images(tmp_path, f"a.{kind}", turn=turn)
    shown = SIZE if turn < 5 else SIZE[::-1]
    one = [{"id": 1, "file_name": "a", "width": shown[0], "height": shown[1]}]
    report = listed(root, detection=coco(root, [0, 0, 10, 10], images=one))
    x, y = 10 / shown[0], 10 / shown[1]
    assert rows(root) == [f"0 2 5 0 0 0 {x:g} {y:g} a.{kind}"]
    assert labelled(report).turned == (turn != 1)
    (tmp_path / "set.lst").unlink()
    one[0].update(width=shown[1], height=shown[0])
    error = refused(root, detection=coco(root, [0, 0, 10, 10], images=one))
    size = f"a size of {shown[1]}x{shown[0]}, and root/a.{kind} has {shown[0]}x{shown[1]}"
    hint = " once its EXIF turn is made, as pack does; take that out of the file"
    assert error == f"c.json: images[0]: {size}{hint if turn > 4 else ''}"


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_a_box_covers_what_it_is_of_in_the_packed_picture(
    tmp_path: Path, turn: int, kind: str
) -> None:
    """Of a picture whose upper left corner, as it is stored, is red."""
    root = images(tmp_path, f"a.{kind}")
    picture = Image.new("RGB", SIZE)
    picture.paste((255, 0, 0), (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = turn
    picture.save(root / f"a.{kind}", exif=exif, **({"quality": 100} if kind == "jpg" else {}))
    width, height = shown = SIZE if turn < 5 else SIZE[::-1]
    w, h = (16, 8) if turn < 5 else (8, 16)
    at = TURNED[turn]
    box = [(width - w) * at[0], (height - h) * at[1], w, h]
    one = [{"id": 1, "file_name": "a", "width": shown[0], "height": shown[1]}]
    listed(root, detection=coco(root, box, images=one))
    options = PackOptions(
        ImageOptions(encoding=".png", quality=3), detection=True, workers=1, fsync=False
    )
    pack_list(str(tmp_path / "set.lst"), str(root), options)
    with recordio.MXRecordIO(str(tmp_path / "set.rec"), "r") as record:
        header, packed = recordio.unpack_img(record.read())
    assert packed.shape[1::-1] == shown
    ((_, x1, y1, x2, y2),) = detection.objects(np.asarray(header.label).tolist())
    left, top, right, bottom = (
        round(v) for v in (x1 * width, y1 * height, x2 * width, y2 * height)
    )
    red = packed[:, :, 2] > 128
    assert red[top:bottom, left:right].mean() > 0.9
    red[top:bottom, left:right] = False
    assert red.mean() < 0.01


# Where a turn puts the stored picture's upper left corner: 1 is right, or below (EXIF's table).
TURNED = {
    1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)
}  # fmt: skip


def test_an_image_that_cannot_be_read_has_no_boxes(tmp_path: Path) -> None:
    root = images(tmp_path, "b.jpg")
    (root / "a.jpg").write_bytes(b"GIF89a")
    assert refused(root, detection=coco(root, [0, 0, 1, 1])).startswith(
        "c.json: images[0]: root/a.jpg: damaged: the header of a GIF"
    )


def test_a_jpeg_whose_header_is_long_is_read_to_its_size(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    data = (root / "a.jpg").read_bytes()
    segments = (b"\xff\xe2\xff\xff" + bytes(0xFFFD)) * 3
    (root / "a.jpg").write_bytes(data[:2] + segments + data[2:])
    listed(root, detection=coco(root, [0, 0, 40, 20]))
    assert rows(root) == ["0 2 5 0 0 0 1 1 a.jpg"]


ALSO_DIFFICULT = "<name>cat</name><difficult>1</difficult>"
XML = """<annotation><filename>a.jpg</filename>
<size><width>40</width><height>20</height></size>
<object><name>dog</name><difficult>1</difficult>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>
<object><name>cat</name>
<bndbox><xmin>0</xmin><ymin>1</ymin><xmax>10</xmax><ymax>10</ymax></bndbox></object>
</annotation>"""


@pytest.mark.parametrize("inside", ["", "JPEGImages/"])
def test_a_voc_folder_is_listed(tmp_path: Path, inside: str) -> None:
    root = images(tmp_path, f"{inside}x.jpg", f"{inside}b.jpg")
    folder = tmp_path / "VOC" / "Annotations"
    folder.mkdir(parents=True)
    (folder / "x.xml").write_text(XML, encoding="utf-8")  # a stale filename does not mislead
    report = listed(root, detection=str(tmp_path / "VOC"))
    assert rows(root) == [f"0 2 5 1 0 0 1 1 0 0 0 0.25 0.5 {inside}x.jpg"]
    assert report.classes == ["cat", "dog"]
    found = labelled(report)
    assert (found.difficult, found.clipped, found.without_row) == (1, 1, 1)
    listed(root, detection=str(tmp_path / "VOC"), difficult="drop")
    assert rows(root) == [f"0 2 5 0 0 0 0.25 0.5 {inside}x.jpg"]
    listed(root, detection=str(tmp_path / "VOC"), difficult="column")
    assert rows(root) == [f"0 2 6 1 0 0 1 1 1 0 0 0 0.25 0.5 0 {inside}x.jpg"]
    (folder / "b.xml").write_text("<annotation/>", encoding="utf-8")
    listed(root, detection=str(tmp_path / "VOC"), difficult="column", negatives="pad")
    assert rows(root)[0] == f"0 2 6 -1 0 0 0 0 0 {inside}b.jpg"
    for entry in read_list(str(tmp_path / "set.lst")):
        assert detection.check(entry.labels) is None
    (tmp_path / "set.lst").unlink()
    (folder / "gone.xml").write_text(XML.replace("a.jpg", "gone"), encoding="utf-8")
    assert refused(root, detection=str(tmp_path / "VOC")) == (
        "VOC/Annotations/gone.xml:1: there is no image JPEGImages/gone in ROOT (root)"
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"labels": "t.csv", "detection": "c.json"}, "--labels and --detection exclude each other"),
        ({"labels": "t.csv", "label_from": "leaf"}, "--labels has the labels; it excludes "
         "--label-from and --no-recursive"),
        ({"detection": "c.json", "recursive": False}, "--detection has the labels; it excludes "
         "--label-from and --no-recursive"),
        ({"negatives": "pad"}, "--negatives means nothing without --detection"),
        ({"header": False}, "--no-header means nothing without --labels"),
        ({"detection": "c.json", "difficult": "drop"}, "--difficult is of a VOC folder; "
         "--detection names none"),
        ({"labels": "t.csv", "bad_boxes": "drop"}, "--bad-boxes means nothing without --detection"),
        ({"missing": "drop"}, "--missing means nothing without --labels or --detection"),
        ({"difficult": "drop"}, "--difficult means nothing without --detection"),
        ({"image_set": "train"}, "--image-set means nothing without --detection"),
        ({"detection": "c.json", "image_set": "train"}, "--image-set is of a VOC folder; "
         "--detection names none"),
        ({"detection": "c.json", "stratify": True, "train_ratio": 0.5}, "--stratify splits by one "
         "label; --detection gives many"),
        ({"detection": "c.json", "negatives": "no"}, "--negatives 'no', expected drop or pad or "
         "fail"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(
    tmp_path: Path, options: dict[str, object], error: str
) -> None:
    root = images(tmp_path, "a.jpg")
    with pytest.raises(OptionError) as caught:
        listed(root, **options)
    assert str(caught.value) == error


def test_stratify_takes_one_label(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg")
    path = table(root, "a.jpg,1,2", "b.jpg,1,2")
    error = refused(root, labels=path, stratify=True, train_ratio=0.5)
    assert error == "--stratify splits by one label; the rows have several"


def test_a_root_without_an_image_says_so_first(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(InputError, match="no image found"):
        listed(root, labels=table(root, "a.jpg,1"))


# --- images that are not there ----------------------------------------------------------------


def test_rows_of_a_table_whose_images_are_not_there_can_be_left_out(
    tmp_path: Path, im2rec: Run
) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg", "c.webp")
    path = table(root, "b.jpg,dog", "gone.jpg,ape", "a.jpg,cat")
    assert refused(root, labels=path) == "t.csv:2: there is no image gone.jpg in ROOT (root)"
    report = listed(root, labels=path, missing="drop")
    assert rows(root) == ["0 2 b.jpg", "1 1 a.jpg"]
    assert report.classes == ["ape", "cat", "dog"]  # each subset has the same numbers
    assert report.class_counts == {1: 1, 2: 1}
    assert labelled(report).missing == ["gone.jpg"]
    (tmp_path / "set.lst").unlink()
    done = im2rec("make-list", "-v", "--missing", "drop", "--labels", "t.csv", "set", "root")
    warning = "left out: 1 image named by t.csv and not in ROOT (--missing)"
    assert f"im2rec: warning: {warning}\ngone.jpg: left out: not in ROOT\n" in done.stderr
    (tmp_path / "set.lst").unlink()
    assert "c.webp is there, but not" in refused(  # it is there
        root, labels=table(root, "c.webp,1", "a.jpg,1"), missing="drop"
    )
    assert refused(root, labels=table(root, "x.jpg,1", "y.jpg,1"), missing="drop") == (
        "t.csv: none of its 2 images is in ROOT (root)"
    )


def test_a_first_row_that_may_be_a_header_is_not_left_out(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    path = table(root, "stem,kind", "a.jpg,cat")
    assert "say --header" in refused(root, labels=path, missing="drop")
    assert listed(root, labels=path, missing="drop", header=True).classes == ["cat"]
    assert listed(root, labels=path, missing="drop", header=False).classes == ["cat", "kind"]


def test_pictures_of_boxes_that_are_not_there_can_be_left_out(tmp_path: Path) -> None:
    root = images(tmp_path, "a.jpg")
    both = [{"id": at, "file_name": f"{name}.jpg"} for at, name in ((3, "b"), (1, "a"))]
    path = coco(root, [0, 0, 40, 20], images=both)
    assert "no image b.jpg" in refused(root, detection=path)
    report = listed(root, detection=path, missing="drop", negatives="pad")
    assert rows(root) == ["0 2 5 0 0 0 1 1 a.jpg"]
    assert (labelled(report).missing, labelled(report).negatives) == (["b.jpg"], 0)
    folder = tmp_path / "VOC" / "Annotations"
    folder.mkdir(parents=True)
    (folder / "a.xml").write_text(XML, encoding="utf-8")
    (folder / "b.xml").write_text(XML.replace("a.jpg", "b.jpg").replace("dog", "ape"), "utf-8")
    report = listed(root, detection=str(tmp_path / "VOC"), missing="drop")
    assert (labelled(report).missing, report.classes) == (["b"], ["ape", "cat", "dog"])


@pytest.mark.parametrize("start", ["root/", "{up}/root/", "./root/", "root\\\\"])
def test_paths_that_carry_the_folder_s_own_name_are_told_in_a_line(
    tmp_path: Path, start: str
) -> None:
    root = images(tmp_path, *[f"{number}.jpg" for number in range(3)])
    start = start.format(up=tmp_path.name)
    path = table(root, "path,label", *[f"{start}{number}.jpg,1" for number in range(4)])
    for missing in ("fail", "drop"):
        error = refused(root, labels=path, missing=missing)
        parent = tmp_path.parent if tmp_path.name in start else tmp_path
        assert error == (
            "t.csv: no image of it is in ROOT (root); paths start from ROOT, and 3 of 4 would be "
            f"found from {parent}; give {parent} as ROOT"
        )
    those = [{"id": 1, "file_name": f"{start}1.jpg"}]
    error = refused(root, detection=coco(root, [0, 0, 1, 1], images=those))
    assert error.startswith(
        "c.json: no image of it is in ROOT (root); paths start from ROOT, and 1"
    )


# --- to the record and back -------------------------------------------------------------------


@st.composite
def boxes_of(draw: st.DrawFn, width: int, height: int) -> list[float]:
    sides = []
    for edge in (width, height):
        low = draw(st.floats(0, edge - 0.01))
        sides.append((low, draw(st.floats(low + 0.005, edge))))
    (left, right), (top, bottom) = sides
    return [left, top, right - left, bottom - top]


@settings(max_examples=8)
@given(st.data())
def test_boxes_in_pixels_come_back_from_the_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("boxes")
    width, height = size = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
    root = images(folder, "a.jpg", size=size)
    boxes = data.draw(st.lists(boxes_of(width, height), min_size=1, max_size=30))
    listed(root, detection=coco(root, *boxes, size=size))
    pack_list(
        str(folder / "set.lst"), str(root), PackOptions(detection=True, workers=1, fsync=False)
    )
    with recordio.MXRecordIO(str(folder / "set.rec"), "r") as record:
        header, image = recordio.unpack_img(record.read())
    assert image.shape[:2] == (height, width)
    labels = np.asarray(header.label, dtype=np.float64)
    assert detection.check(labels.tolist()) is None
    pixels = np.array([each[1:] for each in detection.objects(labels.tolist())])
    pixels *= [width, height, width, height]
    wanted = np.array(boxes)
    wanted[:, 2:] += wanted[:, :2]
    assert np.abs(pixels - wanted).max() <= max(size) * 2**-24


def test_the_command_line_tells_what_it_did(tmp_path: Path, im2rec: Run) -> None:
    root = images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    images(tmp_path, "b.jpg", turn=3)
    table(root, "id,kind", "a,cat", "b,dog")
    done = im2rec("make-list", "-v", "--labels", "t.csv", "set", "root")
    assert done.stderr.splitlines() == [
        "set.lst: 2 images",
        "set.classes.txt: 2 classes",
        "class 0 cat: 1 image",
        "class 1 dog: 1 image",
        "t.csv: its first row is its header: id, kind",
        "passed over: 1 image that t.csv does not name",
    ]
    both = [{"id": at, "file_name": f"{name}.jpg"} for at, name in enumerate("abc")]
    coco(root, [0, 0, 41, 20], [0, 0, 0, 0], images=both)
    done = im2rec("make-list", "-v", "--bad-boxes", "drop", "--detection", "c.json", "set", "root")
    assert done.stderr.splitlines() == [
        "set.lst: 1 image",
        "set.classes.txt: 1 class",
        "class 0 cat: 1 object",
        "c.json: 1 object, label_width 7",
        "im2rec: warning: 2 images without an object: left out (--negatives)",
        "im2rec: warning: 1 image with an EXIF turn: boxes are taken for those of the turned "
        "picture",
        "im2rec: warning: clipped: 1 box that reached up to a pixel beyond the picture",
        "im2rec: warning: left out: 1 box without area or beyond the picture",
    ]
    done = im2rec("make-list", "--labels", "none.csv", "set", "root", code=2)
    assert done.stderr == "im2rec: error: none.csv: cannot be read: No such file or directory\n"
