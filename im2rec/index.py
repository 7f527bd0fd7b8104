"""The index of a `.rec`: one line `key TAB offset LF` for every record, in file order.

key: a decimal integer; im2rec.py writes the list's id, rec2idx.py the position. offset: decimal,
bytes from the start of the file to the record's first magic. No blank line, no comment: MXNet's
Python reader raises on them, its C++ reader and DALI stop there without a word.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from im2rec.errors import IndexLineError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_FAULTS = 10_000  # malformed lines, behind which an index is not read on
_LINE = re.compile(rb"([0-9]{1,20})\t([0-9]{1,19})\r?\n")
_SHORTEST_LINE, _LONGEST_LINE = 4, 42  # bytes that it takes
_SPARE = 1 << 20  # bytes; with so many more, what is wrong with an index is still told by lines


class IndexEntry(NamedTuple):
    """One line: the record's key, and its offset in bytes from the start of the file."""

    key: int
    offset: int


def format_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """The (key, offset) pairs as an index's bytes."""
    return "".join([f"{key}\t{offset}\n" for key, offset in entries]).encode("ascii")


def format_columns(keys: npt.NDArray[np.uint64], offsets: npt.NDArray[np.uint64]) -> bytes:
    """As format_index, of columns: twice as fast, and some 100 bytes of memory a line."""
    import numpy as np

    numbers = np.stack([keys, offsets], axis=1).ravel().tolist()
    return b"%d\t%d\n" * len(keys) % tuple(numbers)


def largest_index(records: int) -> int:
    """The bytes from where on a file cannot be the index of so many records, nor one that is worth
    reading."""
    return _SPARE + _LONGEST_LINE * records


def parse_index(data: bytes, path: str) -> tuple[list[IndexEntry], list[IndexLineError]]:
    """Reads an index: its entries in order, and an error for each line that is none.

    A line ends with LF (a CR before it is taken for part of the line end). The last line must end
    too: what a cut file's last line says cannot be trusted. After MAX_FAULTS errors there is one
    more, about all that follows.
    """
    entries: list[IndexEntry] = []
    faults: list[IndexLineError] = []
    for number, line in enumerate(io.BytesIO(data), 1):
        match = _LINE.fullmatch(line)
        if match:
            entries.append(IndexEntry(int(match[1]), int(match[2])))
            continue
        if len(faults) == MAX_FAULTS:
            found = f"more than {MAX_FAULTS} lines are malformed, so the rest is not read"
        elif line.endswith(b"\n"):
            found = f"found {_shown(line[:-1])}, expected {_FORM}"
        else:
            found = f"the last line {_shown(line)} has no end: the file is cut"
        faults.append(IndexLineError(path, number, found))
        if len(faults) > MAX_FAULTS:
            break
    return entries, faults


def parse_columns(data: bytes) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]] | None:
    """Reads an index at once: the keys and the offsets in order; None unless it has lines, each is
    `key TAB offset LF`, and every key is below 2**64. `parse_index` says what is wrong with it."""
    import numpy as np

    lines = data.count(b"\n")
    if len(data) < _SHORTEST_LINE * lines or data.count(b"\t") != lines:
        return None  # columns of what is mostly line ends would be many times its size
    text = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(text < ord("0"))  # of the numbers: TAB, LF, TAB, LF...
    marks = text[ends]
    if (
        not data.endswith(b"\n")
        or len(ends) % 2
        or (text > ord("9")).any()
        or (marks[0::2] != ord("\t")).any()
        or (marks[1::2] != ord("\n")).any()
    ):
        return None
    steps = np.diff(ends, prepend=-1)  # a number's digits, and its end
    if steps.min() < 2 or steps[0::2].max() > 20 + 1 or steps[1::2].max() > 19 + 1:
        return None
    numbers = np.fromstring(data, dtype=np.uint64, sep=" ")
    keys, offsets = numbers[0::2], numbers[1::2]
    most = 2**64 - 1  # what NumPy makes of anything above, too
    if (keys == most).sum() != data.count(b"%d\t" % most):
        return None
    return keys, offsets


_FORM = "key TAB offset"


def _shown(line: bytes) -> str:
    return repr(line[:40])[1:] + ("..." if len(line) > 40 else "")
