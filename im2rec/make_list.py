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

from im2rec.errors import InputError, OptionError, printable
from im2rec.lst import Entry, format_list
from im2rec.shards import Output, family_lists, read_classes

DEFAULT_EXTENSIONS = (".jpeg", ".jpg", ".png")  # im2rec.py's
DEFAULT_SEED = 100  # im2rec.py's
MAX_NAMES = 20  # unknown folders that an error names; the rest are counted
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
    fsync: bool = True


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
    if not os.path.isdir(root):
        found = "is not a folder" if os.path.exists(root) else "there is no such folder"
        raise InputError(root, f"ROOT: {found}", "the order is PREFIX ROOT")
    report = ListReport(root)
    entries = _Scan(root, options, report).entries()
    if options.shuffle:
        random.Random(options.seed).shuffle(entries)
    lists = list(_split(entries, options))
    with Output(prefix, fsync=options.fsync) as output:
        names = []
        for suffix, part in lists:
            if options.ids == "per-list":
                part = [Entry(at, entry.labels, entry.path) for at, entry in enumerate(part)]
            name = f"{output.stem}{suffix}.lst"
            output.write(name, format_list(part))
            names.append(name)
            report.lists.append((os.path.join(output.folder, name), len(part)))
        if report.classes is not None:
            name = f"{output.stem}.classes.txt"
            output.write(name, "".join([f"{each}\n" for each in report.classes]).encode())
            names.append(name)
            report.classes_path = os.path.join(output.folder, name)
        output.publish(names)
    report.older_lists = sorted(set(family_lists(prefix)).difference(names))
    return report


def _check_options(options: ListOptions) -> None:
    train, test = options.train_ratio, options.test_ratio
    for name, ratio in (("train-ratio", train), ("test-ratio", test)):
        if ratio is not None and not 0 <= ratio <= 1:  # false for a NaN, too
            raise OptionError(f"--{name} {ratio}, expected 0 to 1")
    if (train or 0) + (test or 0) > 1 + 1e-9:  # computed ones may exceed it by a hair
        raise OptionError(f"--train-ratio {train} and --test-ratio {test} add up to more than 1")
    for name, value, known in (
        ("label-from", options.label_from, ("top", "leaf")),
        ("ids", options.ids, ("run", "per-list")),
    ):
        if value not in known:
            raise OptionError(f"--{name} {value!r}, expected {' or '.join(known)}")
    if options.chunks < 1:
        raise OptionError(f"--chunks {options.chunks}, expected at least 1")
    if not options.recursive and (options.classes or options.label_from != "top"):
        raise OptionError("--no-recursive gives every image label 0; it takes no classes")
    if options.stratify and train is None and test is None:
        raise OptionError("--stratify needs --train-ratio or --test-ratio")
    if not options.extensions:
        raise OptionError("--exts names no extension")


# --- scanning ---------------------------------------------------------------------------------


class _Scan:
    """One walk through ROOT: images in im2rec.py's order, all that is passed over counted."""

    def __init__(self, root: str, options: ListOptions, report: ListReport) -> None:
        self._root = root
        self._options = options
        self._report = report
        self._top_names: list[str] = []  # of the folders directly under ROOT
        self._extensions = frozenset(options.extensions)

    def entries(self) -> list[Entry]:
        """Every image, in scan order, with ids 0..N-1. Raises InputError where there is none."""
        if not self._options.recursive:
            files, _ = self._read("")
            return self._numbered([(path, 0) for path in files])
        folders = self._folders()
        if self._options.label_from == "leaf":
            groups = [(inside or ".", files) for inside, files in folders if files]
        else:
            groups = self._top_groups(folders)
        return self._numbered(self._labelled(groups))

    def _top_groups(self, folders: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
        """The folders directly under ROOT with all images below each."""
        images = folders[0][1]
        self._report.in_root = len(images)
        groups: dict[str, list[str]] = {name: [] for name in self._top_names}
        for inside, files in folders[1:]:
            groups[inside.split("/", 1)[0]] += files
        if images and not any(groups.values()):
            raise InputError(
                self._root,
                f"{len(images)} images directly in ROOT and none in folders below it",
                "use --no-recursive to list them with label 0",
            )
        if len([name for name, files in groups.items() if files]) == 1:
            deep = [inside for inside, files in folders[1:] if files]
            self._report.nested_folders = len(deep) if all("/" in inside for inside in deep) else 0
        return list(groups.items())

    def _labelled(self, groups: list[tuple[str, list[str]]]) -> list[tuple[str, int]]:
        """Each image's path with its class number; fills in the report's classes."""
        report, given = self._report, self._options.classes
        report.empty_classes = [name for name, files in groups if not files]
        names = read_classes(given) if given else [name for name, files in groups if files]
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
        labelled = []
        for name, files in groups:
            for path in files:
                labelled.append((path, numbers[name]))
        report.class_counts.update(number for _, number in labelled)
        return labelled

    def _numbered(self, labelled: list[tuple[str, int]]) -> list[Entry]:
        if not labelled:
            raise self._nothing_found()
        return [Entry(at, (label,), path) for at, (path, label) in enumerate(labelled)]

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
            seen.append(f"{len(self._top_names)} folders")
            hint = hint or "images in folders are listed without --no-recursive"
        if report.unlistable:
            seen.append(f"{len(report.unlistable)} whose names a list cannot hold")
            hint = hint or "rename them"
        return InputError(
            self._root,
            f"no image found; looked for {' '.join(sorted(self._extensions))}, "
            f"saw {', '.join(seen) or 'no other files'}",
            hint,
        )

    def _folders(self) -> list[tuple[str, list[str]]]:
        """Every folder from ROOT down, as its path below ROOT, with its images: top first, names
        in code point order.

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
                path = f"{inside}/{name}" if inside else name
                heapq.heappush(waiting, (links + is_link, [*names, name], path))
            if not inside:
                self._top_names = list(folders)
        return [(inside, images) for _, inside, images in sorted(found)]

    def _read(self, inside: str) -> tuple[list[str], dict[str, bool]]:
        """One folder's images, as paths below ROOT, and the names of its folders, each with whether
        it is a link; both sorted. inside: the folder's own path below ROOT."""
        report, extensions = self._report, self._extensions
        hidden_too = self._options.include_hidden
        images, folders = [], {}
        folder = self._place(inside)
        with _reading(folder):
            with os.scandir(folder) as items:
                found = [(_text(item.name), item) for item in items]
            for name, item in sorted(found, key=itemgetter(0)):
                if not hidden_too and (name.startswith(".") or name in _HIDDEN_NAMES):
                    report.hidden += 1
                elif _leads_nowhere(item):
                    report.broken_links.append(f"{inside}/{name}" if inside else name)
                elif item.is_dir():
                    folders[name] = item.is_symlink()
                elif (ending := os.path.splitext(name)[1].lower()) not in extensions:
                    report.other_extensions[ending or "without extension"] += 1
                elif item.is_file():
                    images.append(name)
                else:
                    report.broken_links.append(f"{inside}/{name}" if inside else name)
        paths = [f"{inside}/{name}" for name in images] if inside else images
        return [path for path in paths if self._can_be_listed(path)], folders

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


_UNLISTABLE = re.compile("[\t\n\r\ud800-\udfff]")  # a list is lines of fields, in UTF-8


def _text(name: bytes) -> str:
    """A name as UTF-8, whatever the locale says; bytes that are not become lone surrogates."""
    return name.decode("utf-8", "surrogateescape")


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


# --- splitting --------------------------------------------------------------------------------


def _split(entries: list[Entry], options: ListOptions) -> Iterator[tuple[str, list[Entry]]]:
    """The lists to write: what follows the prefix in each name, and its entries.

    Together they are a partition of the entries. The sizes are im2rec.py's: chunks of
    ceil(N / chunks), the ratios of a full chunk rounded down; where those would lose images (ratios
    that add up to 1), train takes the rest.
    """
    size = -(-len(entries) // options.chunks)
    for chunk in range(options.chunks):
        suffix = f"_{chunk}" if options.chunks > 1 else ""
        part = entries[chunk * size : (chunk + 1) * size]
        if options.train_ratio in (None, 1.0) and not options.test_ratio:
            yield suffix, part
            continue
        for name, rows in _split_by_ratio(part, size, options).items():
            yield f"{suffix}_{name}", rows


def _split_by_ratio(part: list[Entry], size: int, options: ListOptions) -> dict[str, list[Entry]]:
    """One chunk as test, val and train; those that the ratios leave out are absent.

    size: of a full chunk, which the ratios are taken of.
    """
    test = options.test_ratio or 0.0
    train = options.train_ratio if options.train_ratio is not None else 1.0 - test
    has_val = options.train_ratio is not None and train + test < 1.0
    groups: dict[object, tuple[int, int]] = {}  # class: (rows of test, rows of train)
    if options.stratify:
        for label, count in Counter(entry.labels for entry in part).items():
            groups[label] = int(count * test), int(count * train)
    else:
        groups[None] = int(size * test), int(size * train)
    lists: dict[str, list[Entry]] = {"test": [], "val": [], "train": []}
    seen: Counter[object] = Counter()
    for entry in part:
        group = entry.labels if options.stratify else None
        in_test, in_train = groups[group]
        at = seen[group]
        seen[group] += 1
        if at < in_test:
            lists["test"].append(entry)
        elif at < in_test + in_train or not has_val:
            lists["train"].append(entry)
        else:
            lists["val"].append(entry)
    if not test:
        del lists["test"]
    if not has_val:
        del lists["val"]
    return lists
