"""The verb make-list: a folder of images becomes one list or several.

The order, numbers and splits are those of im2rec.py (MXNet master) wherever it loses no image.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from im2rec.errors import InputError, OptionError, printable
from im2rec.identities import FIRST_IMAGE_KEY, LAYOUTS
from im2rec.interrupts import signals_held
from im2rec.lst import format_rows, in_class_order, renumbered, row_label
from im2rec.output import Output
from im2rec.record_set import family_lists, find_classes, read_classes

if TYPE_CHECKING:
    from im2rec.labelling import Labelled  # at run time only where it is needed

DEFAULT_EXTENSIONS = (".jpeg", ".jpg", ".png")  # im2rec.py's
DEFAULT_SEED = 100  # im2rec.py's
MAX_NAMES = 20  # unknown folders that an error names; the rest are counted
_DOT = ord(".")
_HIDDEN_NAMES = ("__MACOSX",)  # what macOS leaves in archives; other hidden names begin with a dot


@dataclass(frozen=True, slots=True)
class ListOptions:
    """How a folder becomes lists.

    label_from: "top" numbers the folders directly under ROOT, as torchvision's ImageFolder does;
    "leaf" every folder that holds images, as im2rec.py does. recursive: False lists only ROOT's own
    images, with label 0. classes: path of a class map that fixes names and numbers. extensions:
    with a dot, in lower case. train_ratio, test_ratio: shares from 0 to 1; None = not given.
    chunks: equal parts to cut the list into first. stratify: split each class by the ratios. ids:
    "run" numbers images over the whole run in scan order, "per-list" each list from 0 in its order.
    layout: "insightface" puts each list in the order of its classes, with ids from 1.
    if_changed: leave a file alone that has these bytes already.

    labels: a table that the labels come from, in the place of folders; header: whether its first
    row is one, None = where that is clear. detection: a COCO file or a
    VOC folder that boxes come from; image_set: the name of VOC's images to list; negatives,
    bad_boxes, difficult: as in `labelling.BoxRules`. missing: what becomes of images that either
    names and that are not in ROOT, "fail" or "drop".
    """

    label_from: str = "top"
    recursive: bool = True
    classes: str | None = None
    extensions: tuple[str, ...] = DEFAULT_EXTENSIONS
    include_hidden: bool = False
    shuffle: bool = True
    seed: int = DEFAULT_SEED
    train_ratio: float | None = None
    test_ratio: float | None = None
    chunks: int = 1
    stratify: bool = False
    ids: str = "run"
    layout: str = "plain"
    if_changed: bool = False
    fsync: bool = True
    labels: str | None = None
    header: bool | None = None
    detection: str | None = None
    image_set: str | None = None
    negatives: str = "drop"
    bad_boxes: str = "fail"
    difficult: str = "keep"
    missing: str = "fail"


@dataclass
class ListReport:
    """What came of it.

    lists: (path, images) of each list written. classes: names in number order, or None without
    classes; class_counts: images of each. other_extensions: files passed over, by extension.
    hidden: files and folders passed over; in_root: images directly in ROOT beside class folders;
    broken_links: links that lead nowhere, and what has an image's name but is neither file nor
    folder; folders_again: folders met a second time through a link; empty_classes: class folders
    without an image of their own. unlistable: names that a list cannot hold, with the reason.
    older_lists: names of lists with this prefix that another run has left. nested_folders: where
    there is one class and no image directly in its folder, the folders below it that have some.
    """

    root: str
    lists: list[tuple[str, int]] = field(default_factory=list)
    classes: list[str] | None = None
    class_counts: Counter[int] = field(default_factory=Counter)
    classes_path: str | None = None
    other_extensions: Counter[str] = field(default_factory=Counter)
    hidden: int = 0
    in_root: int = 0
    broken_links: list[str] = field(default_factory=list)
    folders_again: list[str] = field(default_factory=list)
    empty_classes: list[str] = field(default_factory=list)
    unlistable: list[tuple[str, str]] = field(default_factory=list)
    older_lists: list[str] = field(default_factory=list)
    nested_folders: int = 0
    labelled: Labelled | None = None
    older_classes: str | None = None

    @property
    def images(self) -> int:
        """Images in all lists together."""
        return sum(count for _, count in self.lists)


def make_list(prefix: str, root: str, options: ListOptions) -> ListReport:
    """Lists ROOT's images in PREFIX.lst (or _train, _val, _test, _0...) and PREFIX.classes.txt.

    Raises OptionError, InputError (no image, unknown class...) and OutputError; then no file is
    written.
    """
    _check_options(options)
    stem, ending = os.path.splitext(prefix)
    if ending in (".lst", ".rec", ".idx") and os.path.basename(stem):
        found = f"PREFIX is what stands before .lst, and this ends with {ending}"
        raise InputError(prefix, found, f"did you mean {stem}?")
    if not os.path.isdir(root):
        found = "is not a folder" if os.path.exists(root) else "there is no such folder"
        raise InputError(root, f"ROOT: {found}", "the order is PREFIX ROOT")
    report = ListReport(root)
    scan = _Scan(root, options, report)
    if options.labels is None and options.detection is None:
        rows = scan.rows()
    else:
        rows = _labelled_rows(scan.paths(), options, report)
    if options.shuffle:
        _shuffle(rows, options.seed)
    lists = list(_split(rows, options))
    if options.layout == "insightface":
        _check_identities(prefix, lists, report)
    with Output(prefix, fsync=options.fsync, keep=True) as output:  # what pack may go on with
        files = {}
        for suffix, part in lists:
            if options.layout == "insightface":
                part = renumbered(in_class_order(part), FIRST_IMAGE_KEY)
            elif options.ids == "per-list":
                part = renumbered(part)
            name = f"{output.stem}{suffix}.lst"
            files[name] = output.write(name, "".join(part).encode())
            report.lists.append((os.path.join(output.folder, name), len(part)))
        if report.classes is not None:
            name = f"{output.stem}.classes.txt"
            names = "".join([f"{each}\n" for each in report.classes])
            files[name] = output.write(name, names.encode())
            report.classes_path = os.path.join(output.folder, name)
        output.publish(files, if_changed=options.if_changed, keep=True)
    if report.classes is None:
        report.older_classes = find_classes(prefix)
    report.older_lists = sorted(set(family_lists(prefix)).difference(files))
    return report


def _labelled_rows(paths: list[str], options: ListOptions, report: ListReport) -> list[str]:
    """The rows of the images that a file of labels names; fills in the report."""
    with signals_held():  # an exception amid an import may become another
        from im2rec import annotations, labelling

    root, classes = report.root, options.classes
    if options.labels is not None:
        found = labelling.label_table(
            options.labels, root, paths, classes, options.header, options.missing
        )
        if options.stratify and found.label_width > 1:
            raise OptionError("--stratify splits by one label; the rows have several")
    else:
        where = str(options.detection)
        source = (
            annotations.read_voc(where, options.image_set, needs_classes=classes is None)
            if os.path.isdir(where)
            else annotations.read_coco(where)
        )
        rules = labelling.BoxRules(
            options.negatives, options.bad_boxes, options.difficult, options.missing
        )
        found = labelling.label_boxes(source, root, paths, classes, rules)
    report.labelled, report.classes, report.class_counts = found, found.classes, found.class_counts
    rows, found.rows = found.rows, []
    return rows


def _check_identities(prefix: str, lists: list[tuple[str, list[str]]], report: ListReport) -> None:
    """Raises InputError for a list that pack would not take in InsightFace's layout: its labels are
    to be the numbers 0..K-1, each of an image at least."""
    labels = [{float(row_label(row)) for row in rows} for _, rows in lists]
    for (suffix, rows), there in zip(lists, labels, strict=True):
        path = f"{prefix}{suffix}.lst"
        if any(row.count("\t") != 2 for row in rows):
            raise InputError(
                path,
                "several labels a row, and --layout insightface takes one, the identity",
                "give the table one column of labels",
            )
        missing = next((number for number in range(len(there)) if number not in there), None)
        if missing is None:
            continue
        if any(missing in each for each in labels):
            hint = "make one list, as InsightFace trains on; --stratify keeps those of many images"
        elif report.classes:
            hint = "take the class out of the class map"
        else:
            hint = "give the labels as names, which are numbered without a hole"
        name = f" ({printable(report.classes[missing])})" if report.classes else ""
        raise InputError(
            path,
            f"it would have no image of identity {missing}{name}, and --layout insightface leaves "
            "no hole",
            hint,
        )


def _check_options(options: ListOptions) -> None:
    _check_sources(options)
    train, test = options.train_ratio, options.test_ratio
    for name, ratio in (("train-ratio", train), ("test-ratio", test)):
        if ratio is not None and not 0 <= ratio <= 1:  # false for a NaN, too
            raise OptionError(f"--{name} {ratio}, expected 0 to 1")
    if (train or 0) + (test or 0) > 1 + 1e-9:  # computed ones may exceed it by a hair
        raise OptionError(f"--train-ratio {train} and --test-ratio {test} add up to more than 1")
    for name, value, known in (
        ("label-from", options.label_from, ("top", "leaf")),
        ("ids", options.ids, ("run", "per-list")),
        ("layout", options.layout, LAYOUTS),
        ("negatives", options.negatives, ("drop", "pad", "fail")),
        ("bad-boxes", options.bad_boxes, ("fail", "drop")),
        ("difficult", options.difficult, ("keep", "drop", "column")),
        ("missing", options.missing, ("fail", "drop")),
    ):
        if value not in known:
            raise OptionError(f"--{name} {value!r}, expected {' or '.join(known)}")
    if options.layout != "plain" and options.ids != "run":
        raise OptionError(f"--layout {options.layout} numbers each list from 1; it excludes --ids")
    if options.chunks < 1:
        raise OptionError(f"--chunks {options.chunks}, expected at least 1")
    if not options.recursive and (options.classes or options.label_from != "top"):
        raise OptionError("--no-recursive gives every image label 0; it takes no classes")
    if options.stratify and train is None and test is None:
        raise OptionError("--stratify needs --train-ratio or --test-ratio")
    if not options.extensions:
        raise OptionError("--exts names no extension")


def _check_sources(options: ListOptions) -> None:
    """What labels from elsewhere exclude, and what means nothing without them."""
    if options.labels is not None and options.detection is not None:
        raise OptionError("--labels and --detection exclude each other")
    if options.header is not None and options.labels is None:
        flag = "header" if options.header else "no-header"
        raise OptionError(f"--{flag} means nothing without --labels")
    given = "--labels" if options.labels is not None else "--detection"
    if options.labels is None and options.detection is None:
        given = ""
        if options.missing != ListOptions().missing:
            raise OptionError("--missing means nothing without --labels or --detection")
    if given and (options.label_from != "top" or not options.recursive):
        raise OptionError(f"{given} has the labels; it excludes --label-from and --no-recursive")
    if options.detection is None:
        defaults = ListOptions()
        for name in ("image_set", "negatives", "bad_boxes", "difficult"):
            if getattr(options, name) != getattr(defaults, name):
                flag = name.replace("_", "-")
                raise OptionError(f"--{flag} means nothing without --detection")
    elif options.stratify:
        raise OptionError("--stratify splits by one label; --detection gives many")
    elif options.layout != "plain":
        raise OptionError(f"--layout {options.layout} takes one label; --detection gives many")
    elif not os.path.isdir(options.detection):
        for name in ("image_set", "difficult"):
            if getattr(options, name) != getattr(ListOptions(), name):
                flag = name.replace("_", "-")
                raise OptionError(f"--{flag} is of a VOC folder; --detection names none")


# --- scanning ---------------------------------------------------------------------------------


# A folder's path below ROOT ("" for ROOT itself) and its images' names, joined by slashes: to keep
# so many strings apart until they become rows would take a tenth of the time.
_Folder = tuple[str, str]


class _Scan:
    """One walk through ROOT: images in im2rec.py's order, all that is passed over counted."""

    def __init__(self, root: str, options: ListOptions, report: ListReport) -> None:
        self._root = root
        self._options = options
        self._report = report
        self._top_names: list[str] = []  # of the folders directly under ROOT
        self._extensions = frozenset(options.extensions)
        self._endings = _plain_endings(options.extensions)

    def rows(self) -> list[str]:
        """Every image's row, in scan order, with ids 0..N-1. Raises InputError where there is
        none."""
        if not self._options.recursive:
            names, inner = self._read("")
            self._top_names = list(inner)
            return self._numbered([(0, [("", names)])])
        folders = self._folders()
        if self._options.label_from == "leaf":
            groups = [(folder[0] or ".", [folder]) for folder in folders if folder[1]]
        else:
            groups = self._top_groups(folders)
        return self._numbered(self._labelled(groups))

    def paths(self) -> list[str]:
        """Every image's path below ROOT. Raises InputError where there is none."""
        found = [
            _below(inside, name)
            for inside, names in self._folders()
            if names
            for name in names.split("/")
        ]
        if not found:
            raise self._nothing_found()
        return found

    def _top_groups(self, folders: list[_Folder]) -> list[tuple[str, list[_Folder]]]:
        """The folders directly under ROOT, each with those in it that have images."""
        images = folders[0][1]
        self._report.in_root = _count(images)
        groups: dict[str, list[_Folder]] = {name: [] for name in self._top_names}
        for inside, names in folders[1:]:
            if names:
                groups[inside.split("/", 1)[0]].append((inside, names))
        if images and not any(groups.values()):
            raise InputError(
                self._root,
                f"{_count(images)} images directly in ROOT and none in folders below it",
                "use --no-recursive to list them with label 0",
            )
        if len([name for name, inner in groups.items() if inner]) == 1:
            deep = [inside for inside, names in folders[1:] if names]
            self._report.nested_folders = len(deep) if all("/" in inside for inside in deep) else 0
        return list(groups.items())

    def _labelled(self, groups: list[tuple[str, list[_Folder]]]) -> list[tuple[int, list[_Folder]]]:
        """The groups' folders under their class numbers; fills in the report's classes."""
        report, given = self._report, self._options.classes
        report.empty_classes = [name for name, folders in groups if not folders]
        names = read_classes(given) if given else [name for name, folders in groups if folders]
        numbers = {name: number for number, name in enumerate(names)}
        unknown = [name for name, _ in groups if name not in numbers] if given else []
        if unknown:
            more = f" and {len(unknown) - MAX_NAMES} more" if len(unknown) > MAX_NAMES else ""
            raise InputError(
                self._root,
                f"folders that {printable(str(given))} does not name: "
                f"{', '.join(map(repr, unknown[:MAX_NAMES]))}{more}",
                "add them to the class map, or move them out of ROOT",
            )
        if given:
            report.empty_classes = []  # the map has numbered them
        report.classes = names
        labelled = [(numbers[name], folders) for name, folders in groups if folders]
        for number, folders in labelled:
            report.class_counts[number] = sum(_count(names) for _, names in folders)
        return labelled

    def _numbered(self, labelled: list[tuple[int, list[_Folder]]]) -> list[str]:
        rows: list[str] = []
        for label, folders in labelled:
            for inside, names in folders:
                if names:
                    rows += format_rows(len(rows), label, _below(inside, ""), names.split("/"))
        if not rows:
            raise self._nothing_found()
        return rows

    def _nothing_found(self) -> InputError:
        """The error for a ROOT without an image, with what was there instead."""
        report = self._report
        seen = [
            f"{count} {printable(ext)}" for ext, count in report.other_extensions.most_common(8)
        ]
        hint = "name others with --exts" if seen else ""
        if report.hidden:
            seen.append(f"{report.hidden} hidden")
            hint = hint or "list hidden ones with --include-hidden"
        if not self._options.recursive and self._top_names:
            count = len(self._top_names)
            folders, them = ("1 folder", "it") if count == 1 else (f"{count} folders", "them")
            seen.append(f"{folders} not entered")
            hint = f"--recursive enters {them}"
        if report.unlistable:
            seen.append(f"{len(report.unlistable)} whose names a list cannot hold")
            hint = hint or "rename them"
        return InputError(
            self._root,
            f"no image found; looked for {' '.join(sorted(self._extensions))}, "
            f"saw {', '.join(seen) or 'no other files'}",
            hint,
        )

    def _folders(self) -> list[_Folder]:
        """Every folder from ROOT down: top first, names in code point order.

        Each real folder is entered once, so links cannot make a loop; and on the way with fewest
        links, so that one from class to class does not take images out of their own class.
        """
        found = []
        entered: set[tuple[int, int]] = set()
        waiting: list[tuple[int, list[str], str]] = [(0, [], "")]  # links on the way, names, path
        while waiting:
            links, names, inside = heapq.heappop(waiting)
            identity = _identity(self._place(inside))
            if identity in entered:
                self._report.folders_again.append(inside)
                continue
            entered.add(identity)
            images, folders = self._read(inside)
            found.append((names, inside, images))
            for name, is_link in folders.items():
                path = _below(inside, name)
                heapq.heappush(waiting, (links + is_link, [*names, name], path))
            if not inside:
                self._top_names = list(folders)
        return [(inside, images) for _, inside, images in sorted(found)]

    def _read(self, inside: str) -> tuple[str, dict[str, bool]]:
        """The names of one folder's images, joined, and of its folders, each with whether it is a
        link; both sorted. inside: the folder's own path below ROOT."""
        folders: dict[str, bool] = {}
        folder = self._place(inside)
        with _reading(folder):
            with os.scandir(folder) as items:
                found = list(items)
            endings = self._endings
            plain = [  # a file as most are: an image by its name, not hidden, no link
                name
                for item in found
                if (name := item.name).endswith(endings)
                and name[0] != _DOT
                and item.is_file(follow_symlinks=False)
            ]
            images = _texts(plain)
            if len(plain) < len(found):
                done = frozenset(plain)
                others = [(_text(item.name), item) for item in found if item.name not in done]
                images += self._look_closely(inside, others, folders)
        images.sort()
        names = "/".join(images)
        if (inside + names).isprintable():  # TAB, line ends and what is not UTF-8 are not
            return names, folders
        listed = [name for name in images if self._can_be_listed(_below(inside, name))]
        return "/".join(listed), folders

    def _look_closely(
        self, inside: str, found: list[tuple[str, os.DirEntry[bytes]]], folders: dict[str, bool]
    ) -> list[str]:
        """The images among these items; folders are added to `folders`, all else is counted."""
        report, hidden_too = self._report, self._options.include_hidden
        images = []
        for name, item in sorted(found, key=itemgetter(0)):
            if not hidden_too and (name.startswith(".") or name in _HIDDEN_NAMES):
                report.hidden += 1
            elif _leads_nowhere(item):
                report.broken_links.append(_below(inside, name))
            elif item.is_dir():
                folders[name] = item.is_symlink()
            elif (ending := os.path.splitext(name)[1].lower()) not in self._extensions:
                report.other_extensions[ending or "without extension"] += 1
            elif item.is_file():
                images.append(name)
            else:
                report.broken_links.append(_below(inside, name))
        return images

    def _place(self, inside: str) -> bytes:
        """Where the folder of this path below ROOT lies."""
        root = os.fsencode(self._root)
        return os.path.join(root, inside.encode("utf-8", "surrogateescape")) if inside else root

    def _can_be_listed(self, path: str) -> bool:
        found = _UNLISTABLE.search(path)
        if found:
            reason = {"\t": "a TAB", "\n": "a newline", "\r": "a carriage return"}.get(found[0])
            self._report.unlistable.append((path, f"{reason or 'not UTF-8'} in the name"))
        return not found


def _plain_endings(extensions: tuple[str, ...]) -> tuple[bytes, ...]:
    """What names end with that have one of these extensions for sure: no name has two dots in its
    extension. A name in mixed case, or in letters beyond ASCII, may have one all the same."""
    sure = [ext for ext in extensions if ext.isascii() and ext == ext.lower()]
    single = [ext for ext in sure if ext.rfind(".") == 0]
    return tuple([each.encode() for ext in single for each in (ext, ext.upper())])


def _count(names: str) -> int:
    """How many names are joined there."""
    return names.count("/") + bool(names)


def _below(inside: str, name: str) -> str:
    """The path below ROOT of what lies in the folder of the path `inside`."""
    return f"{inside}/{name}" if inside else name


_UNLISTABLE = re.compile("[\t\n\r\ud800-\udfff]")  # a list is lines of fields, in UTF-8


def _text(name: bytes) -> str:
    """A name as UTF-8, whatever the locale says; bytes that are not become lone surrogates."""
    return name.decode("utf-8", "surrogateescape")


def _texts(names: list[bytes]) -> list[str]:
    """The same of many file names, at once: they have no slash in them."""
    return _text(b"/".join(names)).split("/") if names else []


def _identity(folder: bytes) -> tuple[int, int]:
    """What tells a real folder from another, whatever links lead to it."""
    with _reading(folder):
        status = os.stat(folder)
    return status.st_dev, status.st_ino


def _leads_nowhere(item: os.DirEntry[bytes]) -> bool:
    """Whether it is a link to what is not there, or to itself."""
    if not item.is_symlink():
        return False
    try:
        item.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return True
        raise
    return False


@contextmanager
def _reading(folder: bytes) -> Iterator[None]:
    """Turns an OSError into an InputError about the folder, or what in it is at fault."""
    try:
        yield
    except OSError as error:
        place = _text(error.filename or folder)
        raise InputError(place, f"cannot be read: {error.strerror}") from error


# --- shuffling and splitting ------------------------------------------------------------------


def _shuffle(rows: list[str], seed: int) -> None:
    """What random.Random(seed).shuffle does, in two thirds of its time: without a call of Python
    for each row."""
    draw = random.Random(seed).getrandbits
    for bits in range(len(rows).bit_length(), 1, -1):  # of the number of rows that are left
        for last in range(min(len(rows), 2**bits - 1) - 1, 2 ** (bits - 1) - 2, -1):
            other = draw(bits)
            while other > last:
                other = draw(bits)
            rows[last], rows[other] = rows[other], rows[last]


def _split(rows: list[str], options: ListOptions) -> Iterator[tuple[str, list[str]]]:
    """The lists to write: what follows the prefix in each name, and its rows.

    Together they are a partition of the rows. The sizes are im2rec.py's: chunks of
    ceil(N / chunks), the ratios of a full chunk rounded down; where those would lose images (ratios
    that add up to 1), train takes the rest.
    """
    size = -(-len(rows) // options.chunks)
    for chunk in range(options.chunks):
        suffix = f"_{chunk}" if options.chunks > 1 else ""
        part = rows[chunk * size : (chunk + 1) * size]
        if options.train_ratio in (None, 1.0) and not options.test_ratio:
            yield suffix, part
            continue
        for name, some in _split_by_ratio(part, size, options).items():
            yield f"{suffix}_{name}", some


def _shares(count: int, test: float, train: float) -> tuple[int, int]:
    """How many of a class's images go to test and to train: the nearest whole numbers, but one at
    least to train, for what is not trained on cannot be told."""
    in_train = min(count, max(int(count * train + 0.5), 1 if train else 0))
    return min(count - in_train, int(count * test + 0.5)), in_train


def _split_by_ratio(part: list[str], size: int, options: ListOptions) -> dict[str, list[str]]:
    """One chunk as test, val and train; those that the ratios leave out are absent.

    size: of a full chunk, which the ratios are taken of.
    """
    test = options.test_ratio or 0.0
    train = options.train_ratio if options.train_ratio is not None else 1.0 - test
    has_val = options.train_ratio is not None and train + test < 1.0
    groups: dict[object, tuple[int, int]] = {}  # class: (rows of test, rows of train)
    if options.stratify:
        for label, count in Counter(map(row_label, part)).items():
            groups[label] = _shares(count, test, train)
    else:
        groups[None] = int(size * test), int(size * train)
    lists: dict[str, list[str]] = {"test": [], "val": [], "train": []}
    seen: Counter[object] = Counter()
    for row in part:
        group = row_label(row) if options.stratify else None
        in_test, in_train = groups[group]
        at = seen[group]
        seen[group] += 1
        if at < in_test:
            lists["test"].append(row)
        elif at < in_test + in_train or not has_val:
            lists["train"].append(row)
        else:
            lists["val"].append(row)
    if not test:
        del lists["test"]
    if not has_val:
        del lists["val"]
    return lists
