"""Labels of others meet the images of ROOT: the rows of a list come out."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from im2rec import detection
from im2rec.annotations import (
    Annotations,
    Box,
    Corners,
    Faults,
    Picture,
    Row,
    is_class_name,
    read_table,
)
from im2rec.errors import ImageError, InputError
from im2rec.image_file import ImageFacts, identify
from im2rec.lst import format_float32, format_label, parse_label
from im2rec.record_set import read_classes

MAX_OUTSIDE = 1.0  # pixels that a box may reach beyond the picture; it is clipped
ROUNDING = 0.01  # pixels; not worth a word, for COCO's numbers have two decimals
MAX_SHOWN = 200  # characters of a name that an error shows
# Extensions that images have, whether or not they are listed: what ends so is no stem.
IMAGE_ENDINGS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jxl", ".avif", ".heic", ".heif"),
    )
)
_HEAD = 1 << 16  # bytes of a JPEG that nearly always hold all before its scan


@dataclass(frozen=True, slots=True)
class BoxRules:
    """What becomes of images and boxes. missing: as in `Files`. negatives: images without an object
    are left out ("drop"), get the label array that says so ("pad"), or are an error ("fail"); those
    whose objects were all left out are never padded. bad_boxes: those without area or beyond the
    picture, and objects without a box, "fail" or "drop". difficult: VOC's difficult objects are
    listed as others are ("keep"), left out ("drop"), or each object has a sixth number that tells
    ("column")."""

    negatives: str = "drop"
    bad_boxes: str = "fail"
    difficult: str = "keep"
    missing: str = "fail"


@dataclass
class Labelled:
    """Rows, ids 0..N-1, in the order of their source; and what came of it.

    source: the file or folder; classes: names in number order, None where labels are numbers;
    class_counts: images of each, or objects; header: a table's first row, where it was taken for
    its header; without_row: images of ROOT that the source does not name; missing: what it names
    and was left out, since it is not in ROOT; label_width: labels of the longest row.

    Of boxes: objects: how many are listed; difficult, crowd: how many were found; clipped: how many
    reached a little beyond their picture; bad: how many were left out; without_box: objects left
    out since they have none; doubled: categories of COCO whose name is another's; negatives: images
    without an object; padded: whether those have a row; emptied: images left out since all their
    objects were; turned: images with boxes that have an EXIF turn.
    """

    source: str
    rows: list[str] = field(default_factory=list)
    classes: list[str] | None = None
    class_counts: Counter[int] = field(default_factory=Counter)
    header: str | None = None
    without_row: int = 0
    missing: list[str] = field(default_factory=list)
    label_width: int = 0
    objects: int = 0
    difficult: int = 0
    crowd: int = 0
    clipped: int = 0
    bad: int = 0
    without_box: int = 0
    doubled: int = 0
    negatives: int = 0
    padded: bool = False
    emptied: int = 0
    turned: int = 0

    def add(self, labels: Sequence[str], path: str) -> None:
        """A row more."""
        joined = "\t".join(labels)
        self.rows.append(f"{len(self.rows)}\t{joined}\t{path}\n")
        self.label_width = max(self.label_width, len(labels))


class Files:
    """The images of ROOT, found by the names that others have for them.

    paths: of all, below ROOT. faults: where what is wrong is noted. missing: whether names without
    an image are faults ("fail") or left out ("drop").
    """

    def __init__(self, root: str, paths: Iterable[str], faults: Faults, missing: str) -> None:
        self.root = root
        self.left_out: list[str] = []
        self._drops = missing == "drop"
        self._absent: list[Sequence[str]] = []
        self._paths = frozenset(paths)
        self._endings = {os.path.splitext(path)[1].lower() for path in self._paths} - {""}
        self._faults = faults
        self._stems: dict[str, list[str]] | None = None  # made when first asked for
        self._taken: dict[str, str] = {}  # path: the place that names it

    @property
    def without_row(self) -> int:
        """Images that were not taken."""
        return len(self._paths) - len(self._taken)

    def is_there(self, name: str) -> bool:
        """Whether a name is that of an image."""
        return bool(self._matches(name))

    def names_image(self, name: str) -> bool:
        """Whether a name has an image's extension."""
        ending = posixpath.splitext(name)[1].lower()
        return ending in IMAGE_ENDINGS or ending in self._endings

    def take(self, place: str, names: Sequence[str], hint: str = "") -> str | None:
        """The path of the image with the first of these names that there is; None where there is
        none, or, and a fault, where another place has it. hint: what is told where there is none,
        which is a fault then."""
        several: list[str] = []
        for name in names:
            matches = self._matches(name)
            if len(matches) == 1:
                return self._take(place, matches[0])
            several = several or matches
        if several:
            some = ", ".join(several[:3])
            self._faults.add(place, f"{names[0]} may be any of {some}; give it its extension")
        else:
            self._absent.append(names)
            found = self._not_listed(names[-1])
            if found or hint or not self._drops:
                self._faults.add(place, (found or self._missing(names[-1])) + hint)
            else:
                self.left_out.append(names[0])
        return None

    def check_any(self, source: str) -> None:
        """Raises InputError where no image was taken, and names would fit from a folder above
        ROOT; or where all names were left out."""
        if self._taken or not self._absent:
            return
        above = [part for part in os.path.abspath(self.root).split(os.sep) if part]
        total = len(self._absent)
        for depth in range(1, len(above) + 1):
            start = "/".join(above[-depth:]) + "/"
            count = sum(
                any(self._is_below(start, each) for each in names) for names in self._absent
            )
            if count:
                parent = os.path.normpath(os.path.join(self.root, *[".."] * depth))
                raise InputError(
                    source,
                    f"no image of it is in ROOT ({self.root}); paths start from ROOT, and {count} "
                    f"of {total} would be found from {parent}",
                    f"give {parent} as ROOT",
                )
        if len(self.left_out) == total:
            raise InputError(source, f"none of its {total} images is in ROOT ({self.root})")

    def _is_below(self, start: str, name: str) -> bool:
        plain = _plain(name.replace("\\", "/"))
        return plain.startswith(start) and self.is_there(plain.removeprefix(start))

    def _take(self, place: str, path: str) -> str | None:
        if path in self._taken:
            self._faults.add(place, f"{path} stands there twice, first at {self._taken[path]}")
            return None
        self._taken[path] = place
        return path

    def _matches(self, name: str) -> list[str]:
        """The paths that a name may mean: itself, or, if it has no extension, what it is the stem
        of."""
        for path in dict.fromkeys((_plain(name), _plain(name.replace("\\", "/")))):
            if path in self._paths:
                return [path]
            if self._stems is None:
                self._stems = {}
                for each in sorted(self._paths):
                    self._stems.setdefault(os.path.splitext(each)[0], []).append(each)
            if path in self._stems and not self.names_image(path):
                return self._stems[path]
        return []

    def _missing(self, name: str) -> str:
        return f"there is no image {_cut(name)} in ROOT ({self.root})"

    def _not_listed(self, name: str) -> str:
        """What is wrong with a name beside that there is no such image."""
        shown = _cut(name)
        if posixpath.isabs(name) or os.path.isabs(name):
            return f"{shown} is an absolute path, expected one that starts from ROOT"
        if _plain(name).split("/")[0] == "..":
            return f"{shown} leaves ROOT"
        if "\0" not in name and os.path.isfile(os.path.join(self.root, name)):
            return f"{shown} is there, but not listed; see --exts and --include-hidden"
        return ""


def _cut(name: str) -> str:
    return name if len(name) <= MAX_SHOWN else name[:MAX_SHOWN] + "..."


def _plain(name: str) -> str:
    return posixpath.normpath(name)


# --- tables -----------------------------------------------------------------------------------


def label_table(
    path: str,
    root: str,
    paths: Iterable[str],
    classes: str | None,
    header: bool | None = None,
    missing: str = "fail",
) -> Labelled:
    """The rows that a table gives. classes: path of a class map that its labels are names of;
    header: whether the first row is one, None = where that is clear; missing: as in `Files`. The
    classes are those of all rows, whether or not their images are there.

    Raises InputError and AnnotationError.
    """
    rows = read_table(path)
    faults = Faults(path)
    files = Files(root, paths, faults, missing)
    result = Labelled(path)
    if header or (header is None and _is_header(rows, files)):
        first = rows.pop(0)
        result.header = ", ".join([first.path, *first.labels])
    if not rows:
        raise InputError(path, f"no row but the header ({result.header})")
    is_open = header is None and result.header is None and not files.names_image(rows[0].path)
    hint = "; if this row is the header, say --header" if is_open else ""
    found = [files.take(row.place, [row.path], "" if at else hint) for at, row in enumerate(rows)]
    if not any(found):
        _check_path_column(rows, files, path)
    texts = _label_texts(rows, classes, result, faults)
    files.check_any(path)
    faults.check()
    for name, labels in zip(found, texts, strict=True):
        if name is not None:
            result.add(labels, name)
            if result.classes is not None:
                result.class_counts[int(labels[0])] += 1
    result.without_row, result.missing = files.without_row, files.left_out
    return result


def _check_path_column(rows: list[Row], files: Files, source: str) -> None:
    """Raises InputError where another column than the first has the images. A number there is a
    label, though there may be an image of that name."""
    for at in range(len(rows[0].labels)):
        texts = [row.labels[at] for row in rows if not _is_number(row.labels[at])]
        count = sum(map(files.is_there, texts))
        if count:
            raise InputError(
                source,
                f"column 1 must be the path, and {count} of {len(rows)} rows have an image's in "
                f"column {at + 2}",
                "put that column first, and leave an index out",
            )


# What is written above a column of paths, alone or joined: `id_code`, `Image Path`, `ImageID`.
_HEADINGS = re.compile(
    "(?:(?:image|img|photo|picture|sample|item|file|path|filename|filepath|fname|name|id|key|uuid"
    "|code|index|url)s?[ _.-]*)+"
)


def _is_header(rows: list[Row], files: Files) -> bool:
    """Whether a table's first row is clearly its header. None of its labels is a number, and its
    path neither is an image's nor looks like one; and either all other labels are numbers, or it
    has a heading's words, and labels that are no other row's.

    What remains is taken for an image that is missing, and told: no row is lost.
    """
    first, others = rows[0], rows[1:]
    if any(map(_is_number, first.labels)) or files.names_image(first.path):
        return False
    if files.is_there(first.path):
        return False
    if others and all(_is_number(label) for row in others for label in row.labels):
        return True
    is_again = any(set(first.labels) & set(row.labels) for row in others)
    return not is_again and _HEADINGS.fullmatch(first.path.strip().lower()) is not None


def _label_texts(
    rows: list[Row], classes: str | None, result: Labelled, faults: Faults
) -> list[list[str]]:
    """Each row's labels as a list has them."""
    if len(rows[0].labels) > 1:
        if classes:
            raise InputError(result.source, "--classes takes one column of labels, there are more")
        _check_numbers(rows, result.source)
    elif classes or _are_names(rows, faults):
        return _class_texts(rows, classes, result, faults)
    return [[_number_text(row, text, faults) for text in row.labels] for row in rows]


def _check_numbers(rows: list[Row], source: str) -> None:
    """Raises InputError where one of several columns has no number at all."""
    for at in range(len(rows[0].labels)):
        texts = [row.labels[at] for row in rows]
        if not any(map(_is_number, texts)):
            raise InputError(
                source,
                f"column {at + 2} has no number ({texts[0][:80]!r}), and several columns of labels "
                "must be numbers",
                "for class names, keep the path and one column",
            )


def _are_names(rows: list[Row], faults: Faults) -> bool:
    """Whether the labels are class names. Some among more numbers are likely slips, and so are some
    numbers among more names: those are faults."""
    others = [row for row in rows if not _is_number(row.labels[0])]
    if 0 < len(others) < len(rows):
        if 2 * len(others) > len(rows):
            what, slips = "class names", [row for row in rows if _is_number(row.labels[0])]
        else:
            what, slips = "numbers", others
        for row in slips:
            found = f"label {row.labels[0][:80]!r}, and most are {what}"
            faults.add(row.place, f"{found}; if it is a class, name all by --classes")
    return 2 * len(others) > len(rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii()  # float() takes 1_000, a list does not


def _number_text(row: Row, text: str, faults: Faults) -> str:
    try:
        return format_label(parse_label(text.encode("utf-8", "surrogateescape")))
    except ValueError as error:
        if len(row.labels) > 1 or _is_number(text):  # else it is told already
            faults.add(row.place, str(error))
    return ""


def _class_texts(
    rows: list[Row], classes: str | None, result: Labelled, faults: Faults
) -> list[list[str]]:
    names = read_classes(classes) if classes else sorted({row.labels[0] for row in rows})
    numbers = {name: number for number, name in enumerate(names)}
    result.classes = names
    for row in rows:
        name = row.labels[0]
        if not is_class_name(name):
            faults.add(row.place, f"label {name[:80]!r}, expected a number or a class name")
        elif name not in numbers:
            faults.add(row.place, f"the class {name[:80]!r} is not in {classes}")
    return [[str(numbers.get(row.labels[0], ""))] for row in rows]


# --- boxes ------------------------------------------------------------------------------------


def label_boxes(
    source: Annotations, root: str, paths: Iterable[str], classes: str | None, rules: BoxRules
) -> Labelled:
    """The rows that boxes give: label arrays of `detection`, for the pictures as they are shown.

    Each image's header is read: its size must be the one that the boxes refer to. An image with an
    EXIF turn is packed and shown turned, so its boxes must be those of the turned picture. Raises
    InputError and AnnotationError.
    """
    faults = Faults(source.path)
    files = Files(root, paths, faults, rules.missing)
    result = Labelled(source.path, crowd=source.crowd, padded=rules.negatives == "pad")
    result.doubled = source.doubled
    result.classes = _class_names(source, classes)
    boxes = _Boxes(result, rules, faults, classes)
    for picture in source.pictures:
        path = files.take(picture.place, picture.names)
        if path is None:
            continue
        size = _size(picture, os.path.join(root, path), faults, result)
        if size is not None:
            labels = boxes.labels(picture, size)
            if labels:
                result.add([format_float32(number) for number in labels], path)
    files.check_any(source.path)
    faults.check()
    if not result.rows:
        raise InputError(source.path, "no image with an object", "see --negatives")
    result.without_row, result.missing = files.without_row, files.left_out
    return result


def _class_names(source: Annotations, classes: str | None) -> list[str]:
    if classes:
        return read_classes(classes)
    if source.classes is not None:
        return list(source.classes)
    return sorted({box.name for picture in source.pictures for box in picture.boxes})


def _size(picture: Picture, path: str, faults: Faults, result: Labelled) -> tuple[int, int] | None:
    """Width and height of the picture as it is shown; None, and a fault, where the boxes refer to
    others."""
    try:
        facts = _facts(path)
    except ImageError as error:
        faults.add(picture.place, f"{path}: {error}")
        return None
    stored = facts.width, facts.height
    shown = stored if facts.orientation < 5 else stored[::-1]
    told = picture.size or shown
    result.turned += facts.orientation != 1 and bool(picture.boxes)
    if told == shown:
        return shown
    found = f"a size of {told[0]}x{told[1]}, and {path} has {shown[0]}x{shown[1]}"
    if told == stored:
        found += " once its EXIF turn is made, as pack does; take that out of the file"
    faults.add(picture.place, found)
    return None


def _facts(path: str) -> ImageFacts:
    """What an image's header says. Raises ImageError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_HEAD)
            if data.startswith(b"\xff\xd8"):
                try:
                    return identify(data)
                except ImageError:
                    pass  # its header may be longer
            return identify(data + file.read())
    except OSError as error:
        raise ImageError(f"cannot be read: {error.strerror}") from error


class _Boxes:
    """Turns the boxes of one picture after another into label arrays, and counts."""

    def __init__(
        self, result: Labelled, rules: BoxRules, faults: Faults, classes: str | None
    ) -> None:
        self._result, self._rules, self._faults = result, rules, faults
        self._classes = classes
        self._numbers = {name: number for number, name in enumerate(result.classes or ())}
        self._has_column = rules.difficult == "column"

    def labels(self, picture: Picture, size: tuple[int, int]) -> tuple[float, ...] | None:
        """The picture's label array; None where it gets no row."""
        objects = []
        for box in picture.boxes:
            self._result.difficult += box.difficult
            if not (box.difficult and self._rules.difficult == "drop"):
                found = self._object(box, size)
                if found:
                    objects.append(found)
        if objects:
            self._result.objects += len(objects)
            self._result.class_counts.update(int(each[0]) for each in objects)
            return detection.build(objects)
        is_emptied = picture.crowds or bool(picture.boxes)
        if self._rules.negatives == "fail":
            what = "whose objects were all left out" if is_emptied else "without an object"
            self._faults.add(picture.place, f"an image {what}; see --negatives")
        if is_emptied:  # to say that nothing is in it would be wrong
            self._result.emptied += 1
            return None
        self._result.negatives += 1
        if self._rules.negatives == "pad":
            return detection.no_object(detection.OBJECT_WIDTH + self._has_column)
        return None

    def _object(self, box: Box, size: tuple[int, int]) -> tuple[float, ...] | None:
        """The box as an object of a label array; None where it is none."""
        number = self._numbers.get(box.name)
        if number is None:
            self._faults.add(box.place, f"the class {box.name[:80]!r} is not in {self._classes}")
            return None
        if box.corners is None:
            if self._rules.bad_boxes == "drop":
                self._result.without_box += 1
            else:
                missing = "bbox missing, expected x, y, width, height; see --bad-boxes"
                self._faults.add(box.place, missing)
            return None
        edges = [*size, *size]
        clipped = [min(max(at, 0.0), edge) for at, edge in zip(box.corners, edges, strict=True)]
        beyond = max(abs(at - there) for at, there in zip(box.corners, clipped, strict=True))
        x1, y1, x2, y2 = detection.as_stored(
            [at / edge for at, edge in zip(clipped, edges, strict=True)]
        )
        if beyond > MAX_OUTSIDE or x1 >= x2 or y1 >= y2:
            found = "no area" if beyond <= MAX_OUTSIDE else "beyond the picture"
            self._refuse(box.place, box.corners, size, found)
            return None
        self._result.clipped += beyond > ROUNDING
        more = (float(box.difficult),) if self._has_column else ()
        return (float(number), x1, y1, x2, y2, *more)

    def _refuse(self, place: str, at: Corners, size: tuple[int, int], found: str) -> None:
        if self._rules.bad_boxes == "drop":
            self._result.bad += 1
            return
        corners = " ".join(f"{each:g}" for each in at)
        self._faults.add(
            place,
            f"the box {corners} (left top right bottom) of {size[0]}x{size[1]} pixels: {found}; "
            "see --bad-boxes",
        )
