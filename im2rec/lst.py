"""The list: one row `id TAB label [TAB label...] TAB path LF` for each image, UTF-8.

id: 0..2**64-1. label: a number that float32 can hold. path: relative to ROOT, with `/`. MXNet's
master writes whole labels as `3`, its releases as `3.000000`; both are read. A list is kept as the
file's bytes and one offset a row, and a row is parsed when it is asked for, so that a list of
100 million rows costs little more memory than the file.
"""

from __future__ import annotations

import codecs
import math
import operator
import os
import re
import stat
import struct
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

from im2rec.errors import InputError, ListError, printable

MAX_FAULTS = 20  # rows at fault that an error names; the rest are counted
MAX_ROW = 1 << 24  # bytes; a million labels of 16 take no more, and memory must have a bound
MAX_PATH = (1 << 15) - 1  # bytes; the longest that Windows opens, Linux opens 4095
MAX_ID = 2**64 - 1  # a record stores its id as u64
_BLOCK = 1 << 16  # bytes of a list that are checked together
_FLOAT32 = struct.Struct("<f")  # and its labels as float32


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: the image's id (u64), its labels, and its path below ROOT, with `/`."""

    id: int
    labels: tuple[float, ...]
    path: str


class ImageList:
    """A list that has been read and found good: iteration gives entries, `rows` some of them.

    path: the file; sha256: of its bytes; label_widths: how many rows have how many labels;
    leaves_root: line numbers of rows whose path is absolute or has a `..` in it.
    """

    def __init__(self, path: str, data: bytes) -> None:
        import hashlib  # it is slow to load, and make-list needs none

        self.path = path
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.label_widths: dict[int, int] = {}
        self.leaves_root: list[int] = []
        self._data = data
        self._starts = array("Q")  # byte offset of each row
        self._check()

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Entry]:
        return self.rows(0, len(self))

    def rows(self, first: int, last: int) -> Iterator[Entry]:
        """The entries first..last-1, counted from 0 in file order."""
        for row in range(first, min(last, len(self))):
            yield parse_row(self._line(self._starts[row])[0])

    def lines(self, first: int, last: int) -> bytes:
        """The rows first..last-1, counted from 0, as the file has them; for `parse_rows`."""
        start = self._starts[first] if first < last else 0
        end = self._starts[last] if last < len(self) else len(self._data)
        return self._data[start:end] if first < last else b""

    def numbered(self) -> Iterator[tuple[int, Entry]]:
        """The entries, each with its line number in the file, from 1."""
        for number, _, line in self._lines(self._head(), len(self._data), 1):
            yield number, parse_row(line)

    def _head(self) -> int:
        """Where the first line begins."""
        return len(codecs.BOM_UTF8) if self._data.startswith(codecs.BOM_UTF8) else 0

    def _line(self, start: int) -> tuple[bytes, int]:
        """The line that begins at byte `start`, without its end, and where the next begins. Of one
        that is too long, so much as shows that it is."""
        end = self._data.find(b"\n", start)
        if end == -1:
            end = len(self._data)
        return self._data[start : min(end, start + MAX_ROW + 2)].removesuffix(b"\r"), end + 1

    def _lines(self, start: int, end: int, number: int) -> Iterator[tuple[int, int, bytes]]:
        """Line number, byte offset and text of every line in start..end-1 that is not blank.

        number: that of the line which begins at `start`.
        """
        while start < end:
            line, following = self._line(start)
            if line.strip():
                yield number, start, line
            start, number = following, number + 1

    def _check(self) -> None:
        """Looks at every row once; raises ListError with all that is wrong."""
        faults: list[tuple[int, str]] = []
        count = 0
        ids = array("Q")
        start, number = self._head(), 1
        while start < len(self._data):
            end = self._data.find(b"\n", start + _BLOCK) + 1 or len(self._data)
            block = self._data[start:end] if end - start <= MAX_ROW else b""
            plain = _plain_ids(block) if block else None
            if plain is None:
                count += self._parse(start, end, number, ids, faults)
            else:
                ids.extend(plain)
                self._starts.extend(accumulate(map(len, block.splitlines(True)), initial=start))
                self._starts.pop()  # where the next block begins
                self.label_widths[1] = self.label_widths.get(1, 0) + len(plain)
            number += self._data.count(b"\n", start, end)
            start = end
        repeated, named = _duplicates(ids)
        for again, first in named:
            found = f"id {ids[again]} stands in line {self._line_number(first)} already"
            faults.append((self._line_number(again), found))
        if count + repeated:
            raise ListError(self.path, tuple(sorted(faults)[:MAX_FAULTS]), count + repeated)

    def _parse(
        self, start: int, end: int, number: int, ids: array[int], faults: list[tuple[int, str]]
    ) -> int:
        """Takes the rows in start..end-1 one by one; adds their ids and their first faults, returns
        how many are at fault. number: of the first line."""
        count = 0
        for at, row, line in self._lines(start, end, number):
            try:
                entry = parse_row(line)
            except ValueError as error:
                count += 1
                if len(faults) < MAX_FAULTS:
                    faults.append((at, str(error)))
                continue
            self._starts.append(row)
            ids.append(entry.id)
            width = len(entry.labels)
            self.label_widths[width] = self.label_widths.get(width, 0) + 1
            if os.path.isabs(entry.path) or ".." in entry.path.replace(os.sep, "/").split("/"):
                self.leaves_root.append(at)
        return count

    def _line_number(self, row: int) -> int:
        return self._data.count(b"\n", 0, self._starts[row]) + 1


# A row as most are: an id surely below 2**64, one label that float32 surely holds, and a path that
# neither begins with a space or `/` nor has a NUL or carriage return in it, nor is too long.
_PLAIN_ROW = re.compile(
    r"^([0-9]{1,19})\t-?[0-9]{1,7}(?:\.[0-9]+)?\t[^\s\0/][^\t\r\n\0]{0,8000}\r?$", re.MULTILINE
)


def _plain_ids(block: bytes) -> list[int] | None:
    """The ids in some lines of a list, where each is such a row and no path can leave ROOT; it
    takes a tenth of the time of `parse_row`. None where one may be another."""
    if b".." in block or (os.name == "nt" and (b":" in block or b"\\" in block)):
        return None
    try:
        ids = _PLAIN_ROW.findall(block.decode("utf-8"))
    except UnicodeDecodeError:
        return None
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    return list(map(int, ids)) if len(ids) == lines else None


def _duplicates(ids: array[int]) -> tuple[int, list[tuple[int, int]]]:
    """How many rows repeat an earlier row's id, and the first of them: (row that repeats, row that
    has the id first)."""
    if all(map(operator.lt, ids, islice(ids, 1, None))):
        return 0, []  # rising; NumPy would start threads, and they forbid to fork
    # A set of all would be the largest thing in memory. Ids that leave the same remainder as
    # another are few, and none at all where the ids are 0..N-1.
    size = 8 * len(ids) + 1
    remainders = bytearray(size)  # how many ids have left each: 0, 1, 2 or more
    for number in ids:
        at = number % size
        remainders[at] = 2 if remainders[at] else 1
    if 2 not in remainders:
        return 0, []
    alike = array("Q", (row for row, number in enumerate(ids) if remainders[number % size] == 2))
    if len({ids[row] for row in alike}) == len(alike):
        return 0, []
    first: dict[int, int] = {}
    again = [(row, first[ids[row]]) for row in alike if first.setdefault(ids[row], row) != row]
    return len(again), again[:MAX_FAULTS]


def read_list(path: str) -> ImageList:
    """Reads and checks a list.

    CRLF, a byte-order mark and blank lines are accepted; the file is never changed. Raises
    InputError where it cannot be read, ListError with line numbers where rows are malformed.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not file.isatty()):
                raise InputError(path, "a device, expected a list (.lst)")  # it may never end
            if status.st_size > MAX_ROW:  # what is no list need not be read to its end
                _check_start(path, file.read(_START))
                file.seek(0)
                data = file.read()
            else:
                data = file.read()
                _check_start(path, data[:_START])
    except OSError as error:
        hint = f"did you mean {path}.lst?" if os.path.exists(path + ".lst") else ""
        raise InputError(path, f"cannot read the list: {error.strerror}", hint) from error
    return ImageList(path, data)


def _check_start(path: str, start: bytes) -> None:
    """Raises InputError where what a file begins with is no list's beginning, ListError where not
    even its first line ends."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as PowerShell's > writes
        raise InputError(path, "the list is UTF-16, expected UTF-8", "save it as UTF-8")
    if b"\0" in start[:16]:  # the heads of record files and images have it, no row has
        raise InputError(path, "a binary file, expected a list (.lst)")
    if len(start) == _START and b"\n" not in start:
        raise ListError(path, ((1, _TOO_LONG),), 1)


_START = len(codecs.BOM_UTF8) + MAX_ROW + 2  # bytes; in so many, a first line ends
_TOO_LONG = f"a row of more than {MAX_ROW} bytes, expected id TAB label TAB path"


def parse_rows(lines: bytes) -> Iterator[Entry]:
    """The entries in some lines of a list. Raises ValueError as `parse_row` does."""
    for line in lines.split(b"\n"):
        if line.strip():
            yield parse_row(line.removesuffix(b"\r"))


def parse_row(line: bytes) -> Entry:
    """One line of a list, without its end. Raises ValueError that says what is wrong with it."""
    if len(line) > MAX_ROW:
        raise ValueError(_TOO_LONG)
    fields = line.split(b"\t")
    if len(fields) < 3:
        found = f"{len(fields)} field{'s' * (len(fields) != 1)}, expected id TAB label TAB path"
        others = {"commas": line.count(b","), "semicolons": line.count(b";")}
        instead = next((name for name, count in others.items() if count >= 2), "spaces")
        raise ValueError(f"{found} (separated by TAB, not by {instead})")
    try:
        path = fields[-1].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the path {_shown(fields[-1])} is not UTF-8") from error
    if not path.strip():
        raise ValueError("the last field, the path, is empty")
    if "\0" in path:
        raise ValueError(f"the path {_shown(fields[-1])} has a NUL byte")
    if len(fields[-1]) > MAX_PATH:
        found = f"the path {_shown(fields[-1])} has {len(fields[-1])} bytes"
        raise ValueError(f"{found}, expected at most {MAX_PATH}")
    return Entry(_id(fields[0]), tuple([parse_label(field) for field in fields[1:-1]]), path)


def _id(field: bytes) -> int:
    text = field.strip()
    if not text.isdigit() or len(text) > 40:
        raise ValueError(f"id {_shown(field)}, expected a whole number from 0 to 2**64-1")
    value = int(text)
    if value > MAX_ID:
        raise ValueError(f"id {value}, expected at most {MAX_ID} (2**64-1)")
    return value


def parse_label(field: bytes) -> float:
    """A label as a list has it. Raises ValueError for what is no number, or none that float32
    holds."""
    try:
        if field.isdigit() and len(field) < 8:  # as most are: float32 holds it
            return float(field)
        if b"_" in field:  # float() takes 1_000, a list does not
            raise ValueError
        value = float(field)
    except ValueError:
        raise ValueError(f"label {_shown(field)}, expected a number") from None
    stored = as_float32(value)
    if not math.isfinite(stored):
        raise ValueError(f"label {_shown(field)}, expected a number that float32 can hold")
    if value.is_integer() and stored != value:
        raise ValueError(
            f"label {_shown(field)} would become {stored:.0f}: labels are float32, "
            "which holds every whole number only up to 16777216"
        )
    return value


def as_float32(value: float) -> float:
    """The value as a record stores it. Infinite where it is beyond float32's range."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def format_row(entry: Entry) -> bytes:
    """The entry as a line of a list, with its end. Whole labels are written `3`.

    Raises ValueError for a path that no list can hold: with a TAB or a line end, or not UTF-8.
    """
    if any(mark in entry.path for mark in "\t\n\r"):
        raise ValueError(f"the path {entry.path!r} has a TAB or a line end, no list can hold it")
    labels = "\t".join([format_label(label) for label in entry.labels])
    return f"{entry.id}\t{labels}\t{entry.path}\n".encode()


def format_label(label: float) -> str:
    """The shortest text that reads back as this label; without a point where it is whole."""
    return str(int(label)) if float(label).is_integer() else repr(float(label))


def format_float32(label: float) -> str:
    """The shortest text that float32 reads back as this stored label."""
    for digits in range(6, 9):
        text = f"{label:.{digits}g}"
        if as_float32(float(text)) == label:
            return text
    return f"{label:.9g}"  # enough for every float32


def format_rows(first: int, label: int, folder: str, names: Iterable[str]) -> list[str]:
    """A line, with its end, for each file of a folder: ids first, first + 1..., one whole label.

    folder: what comes before the names, "" or with a slash at the end. All must be such as a list
    can hold.
    """
    middle = f"\t{label}\t{folder}"
    return [f"{number}{middle}{name}\n" for number, name in enumerate(names, first)]


def renumbered(rows: Iterable[str], first: int = 0) -> list[str]:
    """The lines with ids first, first + 1... in the place of their own."""
    rests = [row.partition("\t")[2] for row in rows]
    return [f"{number}\t{rest}" for number, rest in enumerate(rests, first)]


def in_class_order(rows: Iterable[str]) -> list[str]:
    """The lines in the order of their first labels, those of one label in that of their ids."""

    def place(row: str) -> tuple[float, int]:
        record_id, label, _ = row.split("\t", 2)
        return float(label), int(record_id)

    return sorted(rows, key=place)


def row_label(row: str) -> str:
    """The first label of a line that is well formed."""
    return row.split("\t", 2)[1]


def format_list(entries: Iterable[Entry]) -> bytes:
    """The entries as a list's bytes. Raises ValueError as `format_row` does."""
    return b"".join([format_row(entry) for entry in entries])


def _shown(field: bytes) -> str:
    text = printable(field[:40].decode("utf-8", "surrogateescape"))
    return f"'{text}'" + ("..." if len(field) > 40 else "")
