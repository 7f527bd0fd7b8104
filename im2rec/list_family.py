"""Which lists a PREFIX stands for, and that they agree with each other and with ROOT."""

from __future__ import annotations

import os
import posixpath
import re

from im2rec.errors import InputError
from im2rec.lst import ImageList, read_list
from im2rec.record_set import family_lists

MAX_NAMED = 3  # paths that an error about many names


def find_lists(prefix: str) -> list[str]:
    """The lists that PREFIX stands for, in order.

    A list itself, with or without `.lst`; else those make-list writes for the prefix (P_train.lst,
    P_val.lst, P_test.lst, P_0.lst, P_0_train.lst...) and no other; a folder: every list in it.
    Raises InputError where there is none, or one is a FIFO or a device.
    """
    lists = _find_lists(prefix)
    for path in lists:
        if not os.path.isfile(path) and not os.path.isdir(path):  # a FIFO would be waited for
            raise InputError(path, "not a regular file, expected a list")
    return lists


def _find_lists(prefix: str) -> list[str]:
    if prefix.endswith(".lst") and not os.path.isdir(prefix):
        if not os.path.exists(prefix):
            raise InputError(prefix, "there is no such list", "make one with im2rec make-list")
        return [prefix]
    if prefix.endswith(".rec"):
        stem = prefix.removesuffix(".rec")
        raise InputError(prefix, "PREFIX is a list or a prefix", f"did you mean {stem}?")
    if os.path.exists(prefix + ".lst"):
        return [prefix + ".lst"]
    folder = os.path.dirname(prefix)
    try:
        names = family_lists(prefix)
        if not names and os.path.isdir(prefix):
            folder = prefix
            names = sorted(name for name in os.listdir(prefix) if name.endswith(".lst"))
    except OSError as error:
        raise InputError(folder, f"cannot be read: {error.strerror}") from error
    if not names:
        found = f"there is no {prefix}.lst, nor {prefix}_train.lst and the like"
        if folder == prefix:
            found = "there is no list (.lst) in this folder"
        raise InputError(prefix, found, _MAKE_LIST)
    return [os.path.join(folder, name) for name in names]


_MAKE_LIST = "make one with im2rec make-list"


def check_apart(lists: list[str]) -> None:
    """Raises InputError where one image stands in two of the lists, as when one of them is left
    from an earlier split: what is tested on must not be trained on."""
    seen: set[int] = set()
    suspects: set[int] = set()
    for path in lists:
        hashes = {hash(_plain(entry.path)) for entry in read_list(path)}
        suspects |= seen & hashes
        seen |= hashes
    if not suspects:
        return
    where: dict[str, str] = {}
    for path in lists:
        for line, entry in read_list(path).numbered():
            plain = _plain(entry.path)
            if hash(plain) in suspects and where.setdefault(plain, path) != path:
                raise InputError(
                    path,
                    f"line {line}: {entry.path} stands in {where[plain]}, too",
                    "remove lists of an earlier run, or pack each list by its own name",
                )


def _plain(path: str) -> str:
    """The path in one spelling."""
    is_plain = not path.startswith(".") and "//" not in path and "/." not in path
    return path if is_plain else posixpath.normpath(path)  # of few, as it takes its time


def check_inside(images: ImageList, root: str) -> None:
    """Raises InputError where a path is absolute, or a `..` in it leads out of ROOT. A link
    that stands below ROOT may point anywhere: the user put it there."""
    top = os.path.realpath(root)
    outside: list[str] = []
    suspects = set(images.leaves_root)
    for line, entry in images.numbered():
        if line not in suspects:
            continue
        # of an absolute path, all but the name; of another, all up to its last `..`
        is_absolute = os.path.isabs(entry.path)
        end = entry.path.rfind("/") + 1 if is_absolute else _end_of_last_up(entry.path)
        there = os.path.realpath(os.path.join(root, entry.path[:end]))
        if not _is_inside(there, top):
            outside.append(f"line {line} ({entry.path[:80]})")
    if outside:
        more = f" and {len(outside) - MAX_NAMED} more" if len(outside) > MAX_NAMED else ""
        raise InputError(
            images.path,
            f"paths that leave ROOT: {', '.join(outside[:MAX_NAMED])}{more}",
            "make them relative to ROOT, or use --allow-outside-root",
        )


def _end_of_last_up(path: str) -> int:
    """Where the last `..` of a path ends; a name may hold two points, too."""
    return max((match.end() for match in _UP.finditer(path)), default=0)


_UP = re.compile(rf"(?:^|[/{re.escape(os.sep)}])\.\.(?=[/{re.escape(os.sep)}]|$)")


def _is_inside(path: str, folder: str) -> bool:
    try:
        return os.path.commonpath([folder, path]) == folder
    except ValueError:  # on two drives of Windows
        return False
