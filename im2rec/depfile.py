"""Dependency files: `target: prerequisite...`, as Make and Ninja read them.

Both take a space, a `#` and a colon behind a backslash, and a `$` doubled; Make alone a `*`, `?` or
`[`, so that Ninja finds something to do where there is nothing. Some names cannot be written for
Make at all. What they are was found by trying.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_SPECIAL = re.compile(r"(\\*)([ #:*?\[])")
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


def writable(name: str) -> bool:
    """Whether a dependency file can hold this name."""
    return not _UNWRITABLE.search(name)


def _escaped(name: str) -> str:
    """Backslashes are doubled where a special character follows."""
    return _SPECIAL.sub(r"\1\1\\\2", name).replace("$", "$$")
