"""Reading labels as others keep them: what a file says, and what is told of a file that lies."""

from __future__ import annotations

import csv
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from im2rec import annotations
from im2rec.annotations import Box, Picture, read_coco, read_table, read_voc
from im2rec.errors import AnnotationError, Im2recError, InputError


def table(tmp_path: Path, content: str | bytes, name: str = "t.csv") -> list[tuple[str, ...]]:
    """What read_table makes of a file: line, path and labels of each row."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rows = read_table(str(path))
    return [(row.place.removeprefix(f"{path}:"), row.path, *row.labels) for row in rows]


def refused(tmp_path: Path, content: str | bytes, name: str = "t.csv") -> str:
    with pytest.raises(Im2recError) as caught:
        table(tmp_path, content, name)
    return str(caught.value).replace(f"{tmp_path}/", "")


# --- tables -----------------------------------------------------------------------------------


def test_a_csv_may_have_a_mark_crlf_quotes_blank_lines_and_spaces(tmp_path: Path) -> None:
    content = '\ufeffa.jpg,cat\r\n\r\n"b, ""x"".jpg", 2 \r\n"two\nlines.jpg",dog\r\nlast.jpg,\té\t'
    assert table(tmp_path, content) == [
        ("1", "a.jpg", "cat"),
        ("3", 'b, "x".jpg', "2"),
        ("4", "two\nlines.jpg", "dog"),
        ("6", "last.jpg", "é"),
    ]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.tsv", "\t")])
def test_line_ends_of_all_kinds_and_excel_s_first_line(
    tmp_path: Path, end: str, name: str, mark: str
) -> None:
    lines = [f"sep={mark}", f"a.jpg{mark}1", "", f"b.jpg{mark}2", ""]
    assert table(tmp_path, end.join(lines), name) == [("2", "a.jpg", "1"), ("4", "b.jpg", "2")]
    assert table(tmp_path, end.join(lines[1:]), name) == [("1", "a.jpg", "1"), ("3", "b.jpg", "2")]


def test_a_tsv_has_tabs_and_no_quotes(tmp_path: Path) -> None:
    content = '\ufeffa "b", c.jpg\t1\t2.5\r\n\n"\t-1\t 0 \n'
    expected = [("1", 'a "b", c.jpg', "1", "2.5"), ("3", '"', "-1", "0")]
    assert table(tmp_path, content, "t.TSV") == expected


@given(st.data())
def test_what_the_csv_module_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
    path = text.filter(lambda each: each.strip() and not each.startswith((" ", "\ufeff")))
    labels = text.map(str.strip)
    rows = data.draw(st.lists(st.tuples(path, labels, labels), min_size=1))
    file = tmp_path_factory.getbasetemp() / "any.csv"
    with open(file, "w", encoding="utf-8", newline="") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    assert [(each.path, *each.labels) for each in read_table(str(file))] == rows


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("a.jpg,1\nb.jpg\nc.jpg,1,2\n,5\nd.jpg,2",
         "t.csv:2: 1 field, expected a path and a label, separated by commas\n"
         "t.csv:3: 3 fields, and 2 in the first row\n"
         "t.csv:4: the first field, the path, is empty"),
        (",image,label\n0,a.jpg,cat\n", "t.csv:1: the first field, the path, is empty; column 1 "
         "must be the path: take an index out"),
        ("path,n,\na.jpg,1,\nb.jpg,2,\n", "t.csv: column 3 is empty in each row; take the comma at "
         "the end of the rows out"),
        ("a.jpg;1\n", "t.csv:1: 1 field, expected a path and a label, separated by commas, not by "
         "semicolons"),
        ("a.jpg\t1\n", "t.csv:1: 1 field, expected a path and a label, separated by commas, not by "
         "TABs"),
        ('a.jpg,1\nb.jpg,"2\nc.jpg,3\n', "t.csv:2: no CSV: unexpected end of data"),
        ('a.jpg,1\nb.jpg,"2"2\n', "t.csv:2: no CSV: ',' expected after '\"'"),
        ("", "t.csv: it has no rows"),
        ("\ufeff\r\n ,\n", "t.csv: it has no rows"),
        ("a.jpg,1\nb.jpg,2\n".encode("utf-16"), "t.csv: it is UTF-16, expected UTF-8; save it as "
         "UTF-8"),
        (b"a.jpg,1\n\xff.jpg,2\n", "t.csv: line 2 is not UTF-8; save it as UTF-8"),
        ("a" * 2**20 + "b,1\n", "t.csv:1: no CSV: field larger than field limit (1048576)"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_told_with_its_lines(
    tmp_path: Path, content: str | bytes, error: str
) -> None:
    assert refused(tmp_path, content) == error
    assert csv.field_size_limit() == 131072  # others' business


def test_a_table_s_first_20_faults_are_told(tmp_path: Path) -> None:
    lines = refused(tmp_path, "x\n" * 25).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "t.csv: 5 more at fault"


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "a\t1", "t.txt") == "t.txt: ends with .txt, expected .csv or .tsv"
    assert refused(tmp_path, "a 1", "t.tsv").startswith("t.tsv:1: 1 field, expected a path")
    (tmp_path / "d.csv").mkdir()
    os.mkfifo(tmp_path / "f.csv")
    for name, found in (
        ("d.csv", "a folder, expected a file"),
        ("f.csv", "not a regular file"),
        ("n.csv", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(InputError, match=found):
            read_table(str(tmp_path / name))


# --- COCO -------------------------------------------------------------------------------------

COCO: dict[str, Any] = {
    "info": {"year": 2026},
    "images": [
        {"id": 5, "file_name": "b.jpg", "width": 60, "height": 40, "license": 1},
        {"id": 2, "file_name": "a.jpg"},
    ],
    "categories": [{"id": 90, "name": "zebra"}, {"id": 1, "name": "ant"}],
    "annotations": [
        {"id": 1, "image_id": 2, "category_id": 90, "bbox": [1, 2.5, 10, 20], "iscrowd": 0},
        {"id": 2, "image_id": 5, "category_id": 1, "bbox": [0, 0, 60, 40],
         "segmentation": [[1, 2, 3]]},
        {"id": 3, "image_id": 2, "category_id": 1, "bbox": [3, 3, 1, 1]},
        {"id": 4, "image_id": 2, "category_id": 1, "bbox": [0, 0, 9, 9], "iscrowd": 1},
    ],
}  # fmt: skip


def coco(tmp_path: Path, contents: object) -> str:
    path = tmp_path / "c.json"
    text = contents if isinstance(contents, str) else json.dumps(contents)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_coco_file_is_read_in_its_order(tmp_path: Path) -> None:
    path = coco(tmp_path, COCO)
    found = read_coco(path)
    assert found.pictures == (
        Picture(
            f"{path}: images[0]",
            ("b.jpg",),
            (60, 40),
            (Box(f"{path}: annotations[1] (id 2)", "ant", (0, 0, 60, 40)),),
        ),
        Picture(
            f"{path}: images[1]",
            ("a.jpg",),
            None,
            (
                Box(f"{path}: annotations[0] (id 1)", "zebra", (1, 2.5, 11, 22.5)),
                Box(f"{path}: annotations[2] (id 3)", "ant", (3, 3, 4, 4)),
            ),
            crowds=True,
        ),
    )
    assert found.classes == ("ant", "zebra")  # by id, the holes closed
    assert found.crowd == 1


def with_change(where: str, at: int, **changes: object) -> dict[str, Any]:
    """COCO with one item changed; a value of None takes a key out."""
    contents: dict[str, Any] = json.loads(json.dumps(COCO))
    item = {**contents[where][at], **changes}
    contents[where][at] = {key: each for key, each in item.items() if each is not None}
    return contents


@pytest.mark.parametrize(
    ("where", "at", "changes", "error"),
    [
        ("images", 1, {"id": 5}, "images[1]: the id 5 is an earlier image's, too"),
        ("images", 0, {"id": None}, "images[0]: id missing, expected a number"),
        ("images", 0, {"id": [5]}, "images[0]: id [5], expected a number"),
        ("images", 0, {"file_name": None}, "images[0]: file_name missing, expected a path"),
        ("images", 0, {"file_name": 7}, "images[0]: file_name 7, expected a path"),
        ("images", 0, {"width": 60.5}, "images[0]: width 60.5, height 40, expected whole numbers"),
        ("images", 0, {"width": -1}, "images[0]: width -1, height 40, expected whole numbers"),
        ("images", 0, {"height": None}, "images[0]: width 60, height missing, expected whole "
         "numbers"),
        ("images", 0, {"id": 5.5}, "images[0]: id 5.5, expected a number"),
        ("images", 0, {"id": True}, "images[0]: id True, expected a number"),
        ("categories", 0, {"id": "90"}, "categories[0]: id '90', expected a whole number"),
        ("categories", 1, {"id": 90}, "categories[1]: the id 90 is an earlier category's, too"),
        ("categories", 1, {"name": "zebra"}, "categories[1]: the name 'zebra' is an earlier "
         "category's, too"),
        ("categories", 1, {"name": "a\nb"}, "categories[1]: name 'a\\nb', expected a text of one "
         "line"),
        ("annotations", 1, {"image_id": 7}, "annotations[1] (id 2): image_id 7 is no image's id"),
        ("annotations", 1, {"image_id": {}}, "annotations[1] (id 2): image_id {} is no image's id"),
        ("annotations", 1, {"category_id": None}, "annotations[1] (id 2): category_id missing is "
         "no category's id"),
        ("annotations", 1, {"bbox": [1, 2, 3]}, "annotations[1] (id 2): bbox [1, 2, 3], expected "
         "x, y, width, height"),
        ("annotations", 1, {"bbox": [1, 2, 3, "4"]}, "annotations[1] (id 2): bbox [1, 2, 3, '4'], "
         "expected x, y, width, height as numbers, not as text"),
        ("annotations", 1, {"bbox": "[1, 2, 3, 4]"}, "annotations[1] (id 2): bbox '[1, 2, 3, 4]', "
         "expected x, y, width, height as numbers, not as text"),
        *[("annotations", 3, {"iscrowd": each}, f"annotations[3] (id 4): iscrowd {each!r}, "
           "expected 0 or 1") for each in ("1", "0", [1], [], {}, 2, 0.5, float("nan"), "")],
        ("annotations", 1, {"bbox": [1, 2, 3, float("nan")]}, "annotations[1] (id 2): bbox "
         "[1, 2, 3, nan], expected x, y, width, height"),
        ("annotations", 1, {"bbox": [1, 2, 3, 10**400]}, "annotations[1] (id 2): bbox [1, 2, 3, "
         "1000000000000000000000000000000000000000000000000000000000000000000000..., expected "
         "x, y, width, height"),
        ("annotations", 1, {"bbox": True, "id": None}, "annotations[1]: bbox True, expected "
         "x, y, width, height"),
    ],
)  # fmt: skip
def test_a_coco_item_at_fault_is_told_with_its_place(
    tmp_path: Path, where: str, at: int, changes: dict[str, object], error: str
) -> None:
    path = coco(tmp_path, with_change(where, at, **changes))
    with pytest.raises(AnnotationError) as caught:
        read_coco(path)
    assert str(caught.value).split("\n")[0] == f"{path}: {error}"


@pytest.mark.parametrize("value", [1, 1.0, True])
@pytest.mark.parametrize("other", [0, 0.0, False, None])
def test_a_crowd_is_told_by_a_number_or_a_truth(
    tmp_path: Path, value: object, other: object
) -> None:
    contents = with_change("annotations", 3, iscrowd=value)
    contents["annotations"][0]["iscrowd"] = other
    found = read_coco(coco(tmp_path, contents))
    assert found.crowd == 1
    assert [len(each.boxes) for each in found.pictures] == [1, 2]


def test_whole_numbers_may_be_written_as_floats_and_a_size_of_0_is_not_told(tmp_path: Path) -> None:
    contents = json.loads(json.dumps(COCO))
    for item in (*contents["images"], *contents["categories"], *contents["annotations"]):
        for key in ("id", "image_id", "category_id", "width", "height"):
            if key in item:
                item[key] = float(item[key])
    assert read_coco(coco(tmp_path, contents)) == read_coco(coco(tmp_path, COCO))
    for change in ({"width": 0}, {"height": 0.0}, {"width": 0, "height": 0}):
        assert (
            read_coco(coco(tmp_path, with_change("images", 0, **change))).pictures[0].size is None
        )


@pytest.mark.parametrize("used", [(), (0,), (3,)])
def test_a_category_s_name_may_be_doubled_where_one_has_no_object(
    tmp_path: Path, used: tuple[int, ...]
) -> None:
    """The class has the same number whichever of the two has objects."""
    names = {0: "fruit", 1: "apple", 3: "fruit", 4: "pear"}
    contents = {
        **COCO,
        "categories": [{"id": number, "name": name} for number, name in names.items()],
        "annotations": [
            {"id": at, "image_id": 2, "category_id": at, "bbox": [0, 0, 1, 1]} for at in (1, *used)
        ],
    }
    found = read_coco(coco(tmp_path, contents))
    assert found.classes == ("fruit", "apple", "pear")
    assert found.doubled == 1
    assert [box.name for box in found.pictures[1].boxes] == ["apple", *["fruit"] * len(used)]


def test_what_is_wrong_with_a_category_is_told_once(tmp_path: Path) -> None:
    for change in ({"name": "zebra"}, {"name": ""}, {"id": "x"}, {"id": 90}):
        contents = with_change("categories", 1, **change)
        for item in contents["annotations"]:
            if change.get("id") and item["category_id"] == 1:
                item["category_id"] = change["id"]
        path = coco(tmp_path, contents)
        with pytest.raises(AnnotationError) as caught:
            read_coco(path)
        assert str(caught.value).startswith(f"{path}: categories[1]: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "{path}:1: no JSON: Expecting value, column 1"),
        ('{"images": [\n1,]}', "{path}:2: no JSON: "),
        ("[1]", "{path}: no COCO file: expected an object with images and annotations"),
        ("[" * 200_000, "{path}: no COCO file: nested too deep"),
        ('{"a": ' + "1" * 5000 + "}", "{path}: no COCO file: Exceeds the limit (4300 digits) for "),
        ('{"images": [], "annotations": {}}', "{path}: no COCO file: it has no list named "
         "'annotations'\n{path}: no COCO file: it has no list named 'categories'"),
        ('{"images": [3], "annotations": [], "categories": []}', "{path}: images[0]: expected an "
         "object"),
        ('{"type": "FeatureCollection"}', "{path}: no COCO file: it has no list named 'images'"),
    ],
)  # fmt: skip
def test_what_is_no_coco_file_is_refused(tmp_path: Path, text: str, error: str) -> None:
    path = coco(tmp_path, text)
    with pytest.raises(Im2recError) as caught:
        read_coco(path)
    assert str(caught.value).startswith(error.replace("{path}", path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(sorted(annotations._WANTED)), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(json_values, json_values, json_values)
def test_no_json_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, images: object, objects: object, classes: object
) -> None:
    contents = {"images": images, "annotations": objects, "categories": classes}
    for each in (contents, images):
        path = coco(tmp_path_factory.getbasetemp(), each)
        with suppress(Im2recError):
            read_coco(path)


# --- Pascal VOC -------------------------------------------------------------------------------

OBJECT = """<object>
<name> dog </name><difficult>{difficult}</difficult>
<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox>
<part><name>head</name><bndbox><xmin>oops</xmin></bndbox></part>
</object>"""


def voc(tmp_path: Path, **files: str | bytes) -> str:
    """A VOC folder with these files in Annotations, without their .xml."""
    folder = tmp_path / "VOC"
    (folder / "Annotations").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / "Annotations" / f"{name}.xml").write_bytes(data)
    return str(folder)


def annotation(*objects: str, size: str = "<width>50</width><height>20</height>") -> str:
    inside = f"<filename>other.png</filename><size>{size}</size>" + "\n".join(objects)
    return f"<annotation>\n{inside}</annotation>"


def test_a_voc_folder_is_read_by_name(tmp_path: Path) -> None:
    box = OBJECT.format(1, 1, 50, 20, difficult=0)
    half = OBJECT.format(2.5, "3", "10", "45.70000076293945", difficult=1)
    folder = voc(tmp_path, b=annotation(box, half), a="<annotation/>", c=annotation(size=""))
    Path(folder, "Annotations", "._b.xml").write_bytes(b"\0\5\26")  # as macOS leaves it
    found = read_voc(folder)
    place = f"{folder}/Annotations/b.xml"
    assert [each.names for each in found.pictures] == [
        ("a", "JPEGImages/a"),
        ("b", "JPEGImages/b", "other.png", "JPEGImages/other.png"),
        ("c", "JPEGImages/c", "other.png", "JPEGImages/other.png"),
    ]
    assert found.pictures[1] == Picture(
        f"{place}:1",
        ("b", "JPEGImages/b", "other.png", "JPEGImages/other.png"),
        (50, 20),
        (
            Box(f"{place}:2", "dog", (0, 0, 50, 20)),  # 1..50 is the whole width of 50
            Box(f"{place}:7", "dog", (1.5, 2, 10, 45.70000076293945), difficult=True),
        ),
    )
    assert found.pictures[0].size is found.pictures[2].size is None
    assert (found.classes, found.crowd) == (None, 0)


def test_a_size_of_0_is_not_told_and_unspecified_is_not_difficult(tmp_path: Path) -> None:
    box = OBJECT.format(1, 1, 2, 2, difficult="Unspecified")
    folder = voc(tmp_path, a=annotation(box, size="<width>0</width><height>0</height>"))
    (picture,) = read_voc(folder).pictures
    assert picture.size is None
    assert not picture.boxes[0].difficult


def test_a_size_may_be_written_as_a_float(tmp_path: Path) -> None:
    size = "<width>131.0</width><height>2e1</height>"
    (picture,) = read_voc(voc(tmp_path, a=annotation(size=size))).pictures
    assert picture.size == (131, 20)


def test_xml_files_are_found_in_folders_of_annotations(tmp_path: Path) -> None:
    folder = voc(tmp_path, b=annotation())
    for name in ("a/deep/x.xml", "a/y.XML", ".git/z.xml", "a/.z.xml"):
        path = Path(folder, "Annotations", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<annotation/>", encoding="utf-8")
    Path(folder, "Annotations", "a", "loop").symlink_to("..", target_is_directory=True)
    Path(folder, "Annotations", "Link").symlink_to("a", target_is_directory=True)
    found = [picture.names[:2] for picture in read_voc(folder).pictures]
    assert found == [
        ("a/deep/x", "JPEGImages/a/deep/x"), ("a/y", "JPEGImages/a/y"), ("b", "JPEGImages/b")
    ]  # fmt: skip


def test_each_image_set_has_the_classes_of_all_annotations(tmp_path: Path) -> None:
    box = OBJECT.format(1, 1, 5, 5, difficult=0)
    folder = voc(tmp_path, a=annotation(box), b=annotation(box.replace("dog", "cat")))
    (Path(folder, "Annotations") / "c").mkdir()
    Path(folder, "Annotations", "c", "c.xml").write_text(
        annotation(box.replace("dog", "ape"), "<object/>"), encoding="utf-8"
    )
    sets = Path(folder, "ImageSets", "Main")
    sets.mkdir(parents=True)
    for name, inside in (("train", "a"), ("val", "b")):
        (sets / f"{name}.txt").write_text(inside, encoding="utf-8")
        assert read_voc(folder, name).classes == ("ape", "cat", "dog")
    voc(tmp_path, d="<oops")
    with pytest.raises(AnnotationError, match=r"d\.xml:1: no XML"):
        read_voc(folder, "train")
    assert read_voc(folder, "train", needs_classes=False).classes is None


def test_an_image_set_picks_and_orders(tmp_path: Path) -> None:
    folder = voc(tmp_path, a=annotation(), b=annotation(), c=annotation())
    sets = Path(folder, "ImageSets", "Main")
    sets.mkdir(parents=True)
    (sets / "train.txt").write_bytes(b"c\r\n\n a \n")
    names = [each.names[0] for each in read_voc(folder, "train").pictures]
    assert names == ["c", "a"]
    (sets / "dog_train.txt").write_text("a -1\nb  1\n", encoding="utf-8")
    (sets / "more.txt").write_text("a\nz\n", encoding="utf-8")
    (sets / "twice.txt").write_text("a\nb\n\na\n", encoding="utf-8")
    for name, error in (
        ("dog_train", f"{sets}/dog_train.txt:1: two fields: the set of one class, expected a name"),
        ("more", f"{sets}/more.txt:2: there is no {folder}/Annotations/z.xml"),
        ("twice", f"{sets}/twice.txt:4: a stands there twice, first in line 1"),
        ("no", f"{sets}/no.txt: cannot be read: No such file or directory"),
    ):
        with pytest.raises(Im2recError) as caught:
            read_voc(folder, name)
        assert str(caught.value).split("\n")[0] == error


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE annotation [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<annotation><filename>&b;</filename></annotation>"""


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (LAUGHS, "2: a document type, which is not read"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "1: a document type, which is "
         "not read"),
        ("<annotation>&b;</annotation>", "1: no XML: undefined entity, column 13"),
        ("<annotation>\n<object>", "2: no XML: no element found, column 9"),
        (b"", "1: no XML: no element found, column 1"),
        (b"\xff\xfe\x00", "1: no XML: "),
        (b"<annotation>\xff</annotation>", "1: no XML: not well-formed (invalid token), column 13; "
         "save it as UTF-8"),
        ('<?xml version="1.0" encoding="no-such"?><annotation/>', "1: no XML: unknown encoding: "
         "no-such; save it as UTF-8"),
        ('<?xml version="1.0" encoding="gbk"?><annotation>\u732b</annotation>'.encode("gbk"),
         "1: no XML: multi-byte encodings are not supported; save it as UTF-8"),
        ("<html/>", "1: the element 'html', expected 'annotation'"),
        (annotation("<object/>"), "2: an object's name missing, expected a text"),
        (annotation("<object><name>a</name></object>"), "2: an object without a bndbox"),
        (annotation(OBJECT.format("1_0", 2, 5, 6, difficult=0)), "2: bndbox 1_0, 2, 5, 6, expected "
         "xmin, ymin, xmax, ymax"),
        (annotation(OBJECT.format(1, "x", 5, 6, difficult=0)), "2: bndbox 1, x, 5, 6, expected "
         "xmin, ymin, xmax, ymax"),
        (annotation(OBJECT.format(1, "nan", "", 6, difficult=0)), "2: bndbox 1, nan, missing, 6, "
         "expected xmin, ymin, xmax, ymax"),
        (annotation(size="<width>-3</width>"), "2: width '-3', height missing, expected whole "
         "numbers"),
    ],
)  # fmt: skip
def test_a_malformed_xml_file_is_told_with_its_line(
    tmp_path: Path, content: str | bytes, error: str
) -> None:
    folder = voc(tmp_path, a=content, good=annotation())
    with pytest.raises(AnnotationError) as caught:
        read_voc(folder)
    assert str(caught.value).startswith(f"{folder}/Annotations/a.xml:{error}")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_break_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, inside: bytes
) -> None:
    folder = voc(tmp_path_factory.getbasetemp(), a=data, b=b"<annotation>%s</annotation>" % inside)
    with suppress(Im2recError):
        read_voc(folder)


def test_xml_nested_a_million_deep_is_no_crash(tmp_path: Path) -> None:
    deep = "<a>" * 1_000_000 + "</a>" * 1_000_000
    folder = voc(tmp_path, a=f"<annotation>{deep}</annotation>")
    assert len(read_voc(folder).pictures) == 1


def test_a_folder_or_file_inside_a_voc_folder_names_the_folder_above(tmp_path: Path) -> None:
    folder = voc(tmp_path, a="<annotation/>")
    with pytest.raises(InputError, match=f"no VOC folder: .*; name the folder above, {folder}$"):
        read_voc(f"{folder}/Annotations/")
    with pytest.raises(
        InputError, match="one XML file, expected a COCO file or a VOC folder; name"
    ):
        read_coco(f"{folder}/Annotations/a.xml")


def test_what_is_no_voc_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no VOC folder: there is no folder Annotations in it"):
        read_voc(str(tmp_path))
    with pytest.raises(InputError, match=r"Annotations: no \.xml file in it"):
        read_voc(voc(tmp_path))
