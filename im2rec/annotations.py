"""Labels as others keep them: tables of CSV or TSV, COCO's JSON, Pascal VOC's XML files.

What they say is read and checked as such, each item with its place for errors; whether it fits the
images is asked elsewhere. Boxes are left, top, right, bottom in pixels from 0, fractions included.
COCO has x, y, width, height of that kind. VOC counts pixels from 1 and names the last one inside:
left and top are one less, so that 1..W is the whole width. That is Detectron2's rule; GluonCV's
VOCDetection takes one from all four, and its boxes lack their last column and row.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import re
import stat
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard
from xml.parsers import expat

from im2rec.errors import AnnotationError, InputError

MAX_FAULTS = 20  # that an error names; the rest are counted
MAX_TABLE = 1 << 30  # bytes; memory must have a bound
MAX_JSON = 1 << 31  # COCO's largest has half a billion
MAX_XML = 1 << 26
_MAX_FIELD = 1 << 20  # characters of one field of a table
_PIXELS = 2**31  # no coordinate in pixels is beyond it

Corners = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: the image's path, and its labels as they stand there."""

    place: str
    path: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """An object in a picture. name: of its class; corners: None where it has no box, but a mask
    alone; difficult: VOC's mark."""

    place: str
    name: str
    corners: Corners | None
    difficult: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """An image and what is in it. names: what its file may be called, the likeliest first, with or
    without extension; size: the width and height that the boxes refer to, None = not told; crowds:
    whether there are crowds in it, whose boxes are not among these."""

    place: str
    names: tuple[str, ...]
    size: tuple[int, int] | None
    boxes: tuple[Box, ...]
    crowds: bool = False


@dataclass(frozen=True, slots=True)
class Annotations:
    """Pictures in the order of their source. classes: names in number order, None where the source
    has no order of its own; crowd: boxes around crowds, which were left out; doubled: categories
    without an object that have the name of another."""

    path: str
    pictures: tuple[Picture, ...]
    classes: tuple[str, ...] | None
    crowd: int = 0
    doubled: int = 0


class Faults:
    """Collects what is wrong with one source."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._first: list[tuple[str, str]] = []
        self._count = 0

    def add(self, place: str, found: str) -> None:
        """Notes a fault; the first MAX_FAULTS are told."""
        self._count += 1
        if len(self._first) < MAX_FAULTS:
            self._first.append((place, found))

    def check(self) -> None:
        """Raises AnnotationError if there is any."""
        if self._count:
            raise AnnotationError(self._path, tuple(self._first), self._count)


# --- tables -----------------------------------------------------------------------------------


def read_table(path: str) -> list[Row]:
    """The rows of a .csv (commas, quotes as in RFC 4180) or a .tsv (TABs, no quotes), those that
    may be a header included. Raises InputError, and AnnotationError for rows that are malformed or
    of different lengths."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in (".csv", ".tsv"):
        raise InputError(path, f"ends with {ending or 'no extension'}, expected .csv or .tsv")
    text = _text(path, _bytes(path, MAX_TABLE))
    faults = Faults(path)
    rows = []
    width = 0
    for line, fields in _fields(path, text, faults) if ending == ".csv" else _tsv_fields(text):
        if line == 1 and fields == ["sep=", ""]:  # as Excel has it
            continue
        place = f"{path}:{line}"
        is_first, width = not width, width or len(fields)
        if len(fields) < 2:
            faults.add(place, _too_few(fields, ending))
        elif len(fields) != width:
            faults.add(place, f"{len(fields)} fields, and {width} in the first row")
        elif not fields[0].strip():
            hint = "; column 1 must be the path: take an index out" if is_first else ""
            faults.add(place, f"the first field, the path, is empty{hint}")
        else:
            rows.append(Row(place, fields[0], tuple([each.strip() for each in fields[1:]])))
    faults.check()
    if not rows:
        raise InputError(path, "it has no rows")
    if width > 2 and not any(row.labels[-1] for row in rows):
        mark = "comma" if ending == ".csv" else "TAB"
        found = f"column {width} is empty in each row"
        raise InputError(path, found, f"take the {mark} at the end of the rows out")
    return rows


def _too_few(fields: list[str], ending: str) -> str:
    wanted = "commas" if ending == ".csv" else "TABs"
    others = {"semicolons": ";", "TABs": "\t", "commas": ","}
    line = "".join(fields)
    seen = next((name for name, mark in others.items() if mark in line and name != wanted), "")
    more = f", not by {seen}" if seen else ""
    return f"1 field, expected a path and a label, separated by {wanted}{more}"


def _fields(path: str, text: str, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row that is not blank, with the line it begins in."""
    before = csv.field_size_limit(_MAX_FIELD)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
        line = 1
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:  # the rest may be read wrongly
                faults.add(f"{path}:{line}", f"no CSV: {error}")
                return
            if any(map(str.strip, fields)):
                yield line, fields
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(before)


def _tsv_fields(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(re.split("\r\n|[\r\n]", text), 1):
        if line.strip():
            yield number, line.split("\t")


# --- COCO -------------------------------------------------------------------------------------


def read_coco(path: str) -> Annotations:
    """The pictures of a COCO file of object instances, in its order, with classes in the order of
    their ids. Raises InputError, and AnnotationError with the items at fault."""
    if path.lower().endswith(".xml"):
        raise InputError(
            path,
            "one XML file, expected a COCO file or a VOC folder",
            "name the folder above, that which has Annotations in it",
        )
    contents = _json(path)
    faults = Faults(path)
    images, objects, categories = [
        _items(path, contents, key, faults) for key in ("images", "annotations", "categories")
    ]
    faults.check()
    names = _categories(categories, objects, faults)
    boxes: dict[object, list[Box]] = {}
    for place, image in images:
        number = _id(image.get("id"))
        if number is None:
            faults.add(place, f"id {_shown(image.get('id'))}, expected a number")
        elif number in boxes:
            faults.add(place, f"the id {number} is an earlier image's, too")
        else:
            boxes[number] = []
    crowd = 0
    with_crowds = set()
    for place, item in objects:
        is_crowd = item.get("iscrowd")
        if is_crowd is not None and not _is_truth(is_crowd):
            faults.add(_object_place(place, item), f"iscrowd {_shown(is_crowd)}, expected 0 or 1")
        elif is_crowd:
            crowd += 1
            with_crowds.add(_id(item.get("image_id")))
        else:
            _add_box(place, item, names, boxes, faults)
    pictures = []
    for place, image in images:
        number = _id(image.get("id"))
        own, has_crowds = boxes.get(number, []), number in with_crowds
        pictures.append(_picture(place, image, own, has_crowds, faults))
    faults.check()
    classes = tuple(dict.fromkeys(names.values()))
    return Annotations(path, tuple(pictures), classes, crowd, len(names) - len(classes))


# Masks and keypoints are most of such a file: they are dropped as they are read.
_WANTED = {"images", "annotations", "categories", "id", "file_name", "width", "height"} | {
    "image_id", "category_id", "bbox", "iscrowd", "name"
}  # fmt: skip


def _json(path: str) -> dict[str, Any]:
    text = _text(path, _bytes(path, MAX_JSON))
    try:
        contents = json.loads(
            text, object_hook=lambda each: {key: each[key] for key in each if key in _WANTED}
        )
    except json.JSONDecodeError as error:
        raise AnnotationError(
            path, ((f"{path}:{error.lineno}", f"no JSON: {error.msg}, column {error.colno}"),), 1
        ) from error
    except (RecursionError, ValueError) as error:  # nested without end; a number of 10,000 digits
        found = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InputError(path, f"no COCO file: {found.split(';')[0]}") from error
    if not isinstance(contents, dict):
        raise InputError(path, "no COCO file: expected an object with images and annotations")
    return contents


def _items(
    path: str, contents: dict[str, Any], key: str, faults: Faults
) -> list[tuple[str, dict[str, Any]]]:
    """The objects in one of the lists, each with its place."""
    items = contents.get(key)
    if not isinstance(items, list):
        faults.add(path, f"no COCO file: it has no list named {key!r}")
        return []
    found = []
    for number, item in enumerate(items):
        place = f"{path}: {key}[{number}]"
        if isinstance(item, dict):
            found.append((place, item))
        else:
            faults.add(place, "expected an object")
    return found


def _categories(
    items: list[tuple[str, dict[str, Any]]],
    objects: list[tuple[str, dict[str, Any]]],
    faults: Faults,
) -> dict[object, str]:
    """The class names by category id, in the order of the ids. Some exporters have a name twice,
    as a class and as the parent of it; that is well where at most one of the two has objects."""
    used = {_id(item.get("category_id")) for _, item in objects}
    names: dict[Any, str] = {}
    faulty: dict[Any, str] = {}  # known all the same, so that their objects are not at fault, too
    taken: set[str] = set()  # by categories with objects
    for place, item in items:
        number, name = _id(item.get("id")), item.get("name")
        if type(number) is not int:
            faults.add(place, f"id {_shown(item.get('id'))}, expected a whole number")
            faulty[number] = ""
        elif number in names:
            faults.add(place, f"the id {number} is an earlier category's, too")
        elif not is_class_name(name):
            faults.add(place, f"name {_shown(name)}, expected a text of one line")
            faulty[number] = ""
        else:
            names[number] = name
            if number in used and name in taken:
                faults.add(place, f"the name {_shown(name)} is an earlier category's, too")
            elif number in used:
                taken.add(name)
    return dict(sorted(names.items())) | faulty


def _is_truth(value: object) -> bool:
    return type(value) in (int, float, bool) and value in (0, 1)


def _object_place(place: str, item: dict[str, Any]) -> str:
    number = _id(item.get("id"))
    return place if number is None else f"{place} (id {number})"


def _add_box(
    place: str,
    item: dict[str, Any],
    names: dict[object, str],
    boxes: dict[object, list[Box]],
    faults: Faults,
) -> None:
    image, category = _id(item.get("image_id")), _id(item.get("category_id"))
    numbers = item.get("bbox")
    place = _object_place(place, item)
    if image not in boxes:
        faults.add(place, f"image_id {_shown(item.get('image_id'))} is no image's id")
    elif category not in names:
        faults.add(place, f"category_id {_shown(item.get('category_id'))} is no category's id")
    elif numbers is None or numbers == []:  # an object may have a mask alone
        boxes[image].append(Box(place, names[category], None))
    elif (
        not isinstance(numbers, list) or len(numbers) != 4 or not all(map(_is_coordinate, numbers))
    ):
        those = numbers if isinstance(numbers, list) else [numbers]
        more = " as numbers, not as text" if any(isinstance(each, str) for each in those) else ""
        faults.add(place, f"bbox {_shown(numbers)}, expected x, y, width, height{more}")
    else:
        left, top, width, height = map(float, numbers)
        corners = left, top, left + width, top + height
        boxes[image].append(Box(place, names[category], corners))


def _picture(
    place: str, image: dict[str, Any], boxes: list[Box], crowds: bool, faults: Faults
) -> Picture:
    name, size = image.get("file_name"), (image.get("width"), image.get("height"))
    if not isinstance(name, str) or not name:
        faults.add(place, f"file_name {_shown(name)}, expected a path")
        name = ""
    told = None
    if size != (None, None):
        width, height = map(_id, size)
        if not (type(width) is int and type(height) is int) or not (
            0 <= width < _PIXELS and 0 <= height < _PIXELS
        ):
            shown = f"width {_shown(size[0])}, height {_shown(size[1])}"
            faults.add(place, f"{shown}, expected whole numbers")
        elif width and height:  # 0: some tools write it where they do not know it
            told = width, height
    return Picture(place, (name,), told, tuple(boxes), crowds)


def _id(value: object) -> int | str | None:
    """A text or a whole number, which some exporters write as 7.0; None for all else."""
    if type(value) is float and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if type(value) is int or isinstance(value, str) else None


def _is_coordinate(value: object) -> bool:
    return type(value) in (int, float) and -_PIXELS < value < _PIXELS  # type: ignore[operator]


def is_class_name(value: object) -> TypeGuard[str]:
    """Whether a class map can hold it as a line."""
    if not isinstance(value, str) or not value.strip() or "\n" in value or "\r" in value:
        return False
    return not any("\ud800" <= mark <= "\udfff" for mark in value)


def _shown(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:80] + "..."


# --- Pascal VOC -------------------------------------------------------------------------------


def read_voc(folder: str, image_set: str | None = None, needs_classes: bool = True) -> Annotations:
    """The pictures of a folder with Annotations/**/*.xml, by the names of these files.

    An image is called like its XML file, as VOC's readers have it; or else what its `filename`
    says; ROOT is the folder of the images, or that which has them in JPEGImages. image_set: those
    alone that ImageSets/Main/NAME.txt names, in its order; the classes are those of all files all
    the same, so that each set has the same numbers. needs_classes: False where others number them.
    Raises InputError, and AnnotationError with the lines at fault.
    """
    inside = os.path.join(folder, "Annotations")
    if not os.path.isdir(inside):
        found = "no VOC folder: there is no folder Annotations in it"
        above = os.path.normpath(os.path.join(folder, ".."))
        is_inside = os.path.basename(os.path.abspath(folder)) == "Annotations"
        raise InputError(folder, found, f"name the folder above, {above}" if is_inside else "")
    faults = Faults(folder)
    files = _xml_files(inside) if image_set is None or needs_classes else []
    if image_set is None:
        stems = [(inside, name[:-4], name) for name in files]
    else:
        stems = _image_set(os.path.join(folder, "ImageSets", "Main", f"{image_set}.txt"), faults)
    if not stems:
        faults.check()
        raise InputError(inside, "no .xml file in it")
    pictures = []
    for place, stem, name in stems:
        path = os.path.join(inside, name)
        if image_set is not None and not os.path.exists(path):
            faults.add(place, f"there is no {path}")
            continue
        picture = _voc_picture(path, stem, faults)
        if picture:
            pictures.append(picture)
    classes = None
    if image_set is not None and needs_classes:
        names = {box.name for picture in pictures for box in picture.boxes}
        listed = {name for _, _, name in stems}
        for name in files:
            if name not in listed:
                names |= _voc_names(os.path.join(inside, name), faults)
        classes = tuple(sorted(names))
    faults.check()
    return Annotations(folder, tuple(pictures), classes)


def _xml_files(folder: str) -> list[str]:
    """The .xml files in a folder and those in it, by their paths from it. Each real folder is
    entered once, so that links make no loop."""

    def fail(error: OSError) -> None:
        raise InputError(error.filename or folder, f"cannot be read: {error.strerror}") from error

    found = []
    entered = set()
    for where, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        real = os.path.realpath(where)
        shown = sorted(each for each in folders if not each.startswith("."))
        # links last, so that a folder beside one to it is found by its own name
        folders[:] = sorted(shown, key=lambda each: os.path.islink(os.path.join(where, each)))
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        inside = os.path.relpath(where, folder).replace(os.sep, "/")
        start = "" if inside == "." else f"{inside}/"
        found += [
            start + each
            for each in names
            if each.lower().endswith(".xml") and not each.startswith(".")
        ]
    return sorted(found)


def _voc_names(path: str, faults: Faults) -> set[str]:
    """The classes in an XML file of an image that is not listed."""
    root = _xml(path, faults)
    names = {_child(each, "name") for each in root.findall("object")} if root is not None else set()
    return {name for name in names if is_class_name(name)}


def _image_set(path: str, faults: Faults) -> list[tuple[str, str, str]]:
    """Place, stem and XML file of each image that an image set names."""
    found = []
    lines: dict[str, int] = {}
    for number, line in enumerate(_text(path, _bytes(path, MAX_TABLE)).splitlines(), 1):
        stem = line.strip()
        if len(stem.split()) > 1:
            faults.add(f"{path}:{number}", "two fields: the set of one class, expected a name")
        elif stem in lines:
            first = f"first in line {lines[stem]}"
            faults.add(f"{path}:{number}", f"{stem} stands there twice, {first}")
        elif stem:
            lines[stem] = number
            found.append((f"{path}:{number}", stem, stem + ".xml"))
    return found


_LINE = "line"  # an element's one attribute here: where it begins


def _voc_picture(path: str, stem: str, faults: Faults) -> Picture | None:
    """One XML file's picture; None where it is at fault."""
    root = _xml(path, faults)
    if root is None:
        return None
    if root.tag != "annotation":
        faults.add(f"{path}:1", f"the element {_shown(root.tag)}, expected 'annotation'")
        return None
    boxes = []
    for each in root.findall("object"):
        place = f"{path}:{each.get(_LINE)}"
        name = _child(each, "name")
        edges = each.find("bndbox")
        if not is_class_name(name):
            faults.add(place, f"an object's name {_shown(name or None)}, expected a text")
        elif edges is None:
            faults.add(place, "an object without a bndbox")
        else:
            sides = [_child(edges, side) for side in ("xmin", "ymin", "xmax", "ymax")]
            numbers = [number for number in map(_number, sides) if number is not None]
            if len(numbers) == 4:
                left, top, right, bottom = numbers
                is_difficult = _child(each, "difficult").lower() in ("1", "true")
                boxes.append(Box(place, name, (left - 1, top - 1, right, bottom), is_difficult))
            else:
                shown = ", ".join(side or "missing" for side in sides)[:80]
                faults.add(place, f"bndbox {shown}, expected xmin, ymin, xmax, ymax")
    named = [name for name in (stem, _child(root, "filename")) if name]
    names = tuple(folder + name for name in named for folder in ("", "JPEGImages/"))
    return Picture(f"{path}:1", names, _voc_size(path, root, faults), tuple(boxes))


def _voc_size(path: str, root: ET.Element, faults: Faults) -> tuple[int, int] | None:
    """The size that the file tells; some tools write 0 where they do not know it."""
    size = root.find("size")
    sides = [_child(size, side) for side in ("width", "height")] if size is not None else []
    if size is None or not any(sides):
        return None
    numbers = [_number(side) for side in sides]
    edges = [int(each) if each is not None and each.is_integer() else -1 for each in numbers]
    if min(edges) < 0:
        shown = f"width {_shown(sides[0] or None)}, height {_shown(sides[1] or None)}"
        faults.add(f"{path}:{size.get(_LINE)}", f"{shown}, expected whole numbers")
    return (edges[0], edges[1]) if min(edges) > 0 else None


def _child(element: ET.Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if "_" in text:  # float() takes 1_000
        return None
    return value if math.isfinite(value) and abs(value) < _PIXELS else None


class _Doctype(Exception):
    pass


def _xml(path: str, faults: Faults) -> ET.Element | None:
    """The root of an XML file, each element with its line; None where it is at fault.

    A document type is refused: no annotation needs one, and the entities that it may define can
    fill the memory, or read other files.
    """
    data = _bytes(path, MAX_XML)
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate()

    def start(tag: str, _: dict[str, str]) -> None:
        builder.start(tag, {_LINE: str(parser.CurrentLineNumber)})

    def doctype(*_: object) -> None:
        raise _Doctype

    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
        return builder.close()
    except expat.ExpatError as error:
        text = expat.ErrorString(error.code)
        is_other = "encoding" in text or not _is_utf8(data)
        hint = "; save it as UTF-8" if is_other else ""
        faults.add(f"{path}:{error.lineno}", f"no XML: {text}, column {error.offset + 1}{hint}")
    except _Doctype:
        faults.add(f"{path}:{parser.CurrentLineNumber}", "a document type, which is not read")
    except (LookupError, ValueError) as error:  # an encoding that Python does not have
        faults.add(f"{path}:1", f"no XML: {error}; save it as UTF-8")
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- reading ----------------------------------------------------------------------------------


def _bytes(path: str, limit: int) -> bytes:
    """A regular file's bytes. Raises InputError."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for its writer
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", getattr(os, "O_BINARY", 0)))
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise InputError(path, "a folder, expected a file")
            if not stat.S_ISREG(status.st_mode):
                raise InputError(path, "not a regular file")
            if status.st_size > limit:
                raise InputError(path, f"{status.st_size} bytes, expected at most {limit}")
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        found = getattr(error, "strerror", None) or str(error)
        raise InputError(path, f"cannot be read: {found}") from error


def _text(path: str, data: bytes) -> str:
    """UTF-8 with or without a byte-order mark. Raises InputError."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(path, "it is UTF-16, expected UTF-8", "save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(path, f"line {line} is not UTF-8", "save it as UTF-8") from error
