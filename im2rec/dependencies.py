"""The dependency file of sets: which list, class map and images they are made of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from im2rec.depfile import format_rule, is_rules, writable
from im2rec.errors import OptionError, OutputError, printable
from im2rec.lst import ImageList, read_list
from im2rec.output import Output, writing
from im2rec.record_set import find_classes

MAX_NAME = 1 << 16  # bytes; no file's name has as many


@dataclass(frozen=True, slots=True)
class _Sources:
    """All that a list's set is made of: the list, the class map, the images."""

    images: ImageList
    root: str

    def __iter__(self) -> Iterator[str]:
        """Their paths, those that a dependency file can hold."""
        yield self.images.path
        classes = find_classes(self.images.path.removesuffix(".lst"))
        if classes:
            yield classes
        yield from filter(writable, self.paths())

    def paths(self) -> Iterator[str]:
        """Those of the images."""
        return (os.path.join(self.root, entry.path) for entry in self.images)


@dataclass(slots=True)
class Unnamed:
    """The images that a dependency file cannot name: the first of them, and how many in all."""

    first: list[str] = field(default_factory=list)
    count: int = 0


@contextmanager
def dependency_file(
    path: str,
    lists: list[str],
    root: str,
    target: str | None,
    most: int | None = None,
    taken: Iterable[str] = (),
) -> Iterator[Unnamed]:
    """Writes at the end of the context, if that is reached, a file for Make or Ninja that says what
    the sets of these lists are made of; yields the images that it cannot name.

    target: what depends on all of it; None = each set's manifest, spelled as the list is. most: of
    those images that are kept by name; None = all. taken: what the sets are written to, beside the
    lists' own names. Raises OptionError, OutputError, and what
    `read_list` raises.
    """
    for name in (*lists, *([target] if target else []), os.path.join(root, "an image")):
        if not writable(name):
            found = printable(name.removesuffix("an image"))
            raise OptionError(f"no dependency file can hold the name '{found}'; choose another")
    others = (".lst", ".rec", ".idx", ".manifest.json", ".classes.txt", ".failures.tsv")
    places = [_place(each) for each in (*(each.removesuffix(".lst") for each in lists), *taken)]
    if path.endswith(others) or _place(path) in places:
        raise OptionError(f"--depfile '{path}' would be one of the set's files; choose another")
    _check_replaceable(path)
    with Output(path, fsync=False) as output:
        written = output.path("dependencies")
        with writing(path):
            unnamed = _write_dependencies(written, lists, root, target, most)
        yield unnamed
        output.publish({output.stem: written})


def _place(path: str) -> str:
    """The path in one spelling, whatever links and dots its folder is named by."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder or "."), name)


def _check_replaceable(path: str) -> None:
    """Raises OutputError where what is there is not ours to replace: found at the end, it would
    have all the work done for nothing."""
    if os.path.isdir(path):
        raise OutputError(path, "there is a folder of this name", "move it away")
    if os.path.islink(path):  # it would be replaced, and not what it leads to
        raise OutputError(path, "it is a symbolic link", "name a file")
    if os.path.exists(path) and not _is_dependency_file(path):
        raise OutputError(path, "it is there, and is no dependency file", "name another")


def _is_dependency_file(path: str) -> bool:
    """Whether a file is as `dependency_file` writes them, from its beginning to its end: an image
    is not, nor a Makefile."""
    if not os.path.isfile(path):
        return False
    with writing(path), open(path, "rb") as file:
        return is_rules(iter(partial(file.readline, MAX_NAME), b""))


def _write_dependencies(
    written: str, lists: list[str], root: str, target: str | None, most: int | None
) -> Unnamed:
    """Writes the rules of these lists; the images that they cannot name."""
    unnamed = Unnamed()
    with open(written, "wb") as file:
        for path in lists:
            sources = _Sources(read_list(path), root)
            for line in format_rule(
                target or f"{path.removesuffix('.lst')}.manifest.json", sources
            ):
                file.write(line.encode("utf-8", "surrogateescape"))
            for each in sources.paths():
                if not writable(each):
                    unnamed.count += 1
                    if most is None or unnamed.count <= most:
                        unnamed.first.append(each)
    return unnamed
