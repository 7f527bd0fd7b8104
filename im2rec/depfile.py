"""Dependency files: `target: prerequisite...`, as Make and Ninja read them.

Both take a space, a `#` and a colon behind a backslash, and a `$` doubled; Make alone a `*`, `?` or
`[`, so that Ninja finds something to do where there is nothing. Some names cannot be written for
Make at all. What they are was found by trying.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

_SPECIAL = re.compile(r"(\\*)([ #:*?\[])")
_NO_TARGET = b" #\t\n"  # no target begins with these
_PATTERN = re.compile(r"[*?\[]")
_UNWRITABLE = re.compile(r"[;|=%\t\r\n]|[\\ ]\Z")  # for Make, some of them as a rule's target


def format_rule(target: str, prerequisites: Iterable[str]) -> Iterator[str]:
    """The lines of one rule, a prerequisite each, then for each a rule of its own that does
    nothing, so that Make does not stop where one has been removed.

    All names must be `writable`; prerequisites: gone through twice.
    """
    yield f"{_escaped(target)}:"
    for name in prerequisites:
        yield f" \\\n  {_escaped(name)}"
    yield "\n"
    for name in prerequisites:
        yield f"\n{_escaped(name)}:\n"


def is_rules(lines: Iterable[bytes]) -> bool:
    """Whether all that there is are rules as `format_rule` writes them, or nothing at all: then
    what is lost where they are replaced can be written again.

    No comment says whose they are, for Ninja takes its words for names.
    """
    at = iter(lines)
    line = next(at, b"")
    while line:
        if not line.endswith(b": \\\n") or line[0] in _NO_TARGET:
            return False
        named, ruled = hashlib.sha256(), hashlib.sha256()  # there may be a million of them
        count = 0
        line = next(at, b"")
        while line.startswith(b"  "):
            is_last = not line.endswith(b" \\\n")
            named.update(line[2:-1] if is_last else line[2:-3])
            named.update(b"\n")
            count += 1
            line = next(at, b"")
            if is_last:
                break
        for _ in range(count):
            rule = next(at, b"")
            if line != b"\n" or not rule.endswith(b":\n"):
                return False
            ruled.update(rule[:-2] + b"\n")
            line = next(at, b"")
        if named.digest() != ruled.digest() or (line and not count):
            return False
    return True


def writable(name: str) -> bool:
    """Whether a dependency file can hold this name."""
    # Beside a pattern's sign, Make takes a backslash for its own.
    return not _UNWRITABLE.search(name) and not ("\\" in name and _PATTERN.search(name))


def _escaped(name: str) -> str:
    """Backslashes are doubled where a special character follows."""
    return _SPECIAL.sub(r"\1\1\\\2", name).replace("$", "$$")
