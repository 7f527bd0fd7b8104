"""Every error of this package, each with its message built from values; imports nothing.

All descend from Im2recError, so one `except` catches whatever a user, a file or a machine can
cause; anything else that escapes is a bug. Which exit code an error becomes is said in terminal.py.
"""

from __future__ import annotations


class Im2recError(Exception):
    """Root of the errors. `str(error)` is one line: place, what was found, what to do next."""


class OptionError(Im2recError):
    """An option, or a combination of options, that cannot be honoured."""


class InputError(Im2recError):
    """An input that is missing or is not what it should be.

    path: the file or folder; found: what is wrong with it; hint: the next step, or "".
    """

    def __init__(self, path: str, found: str, hint: str = "") -> None:
        super().__init__(path, found, hint)
        self.path, self.found, self.hint = path, found, hint

    def __str__(self) -> str:
        text = f"{self.path}: {self.found}" + (f"; {self.hint}" if self.hint else "")
        return printable(text)


class ListError(Im2recError):
    """A `.lst` with malformed rows.

    faults: (line number from 1, what is wrong) for the first rows at fault; count: how many in all.
    """

    def __init__(self, path: str, faults: tuple[tuple[int, str], ...], count: int) -> None:
        super().__init__(path, faults, count)
        self.path, self.faults, self.count = path, faults, count

    def __str__(self) -> str:
        path = printable(self.path)
        lines = [f"{path}:{line}: {found}" for line, found in self.faults]
        if self.count > len(self.faults):
            more = self.count - len(self.faults)
            lines.append(f"{path}: {more} more row{'s' * (more != 1)} at fault")
        return "\n".join(lines)


class AnnotationError(Im2recError):
    """Labels of others that no list can be made of.

    faults: (place, what is wrong) for the first of them; count: how many in all. A place is a file
    and what of it: a line, or an item of its JSON.
    """

    def __init__(self, path: str, faults: tuple[tuple[str, str], ...], count: int) -> None:
        super().__init__(path, faults, count)
        self.path, self.faults, self.count = path, faults, count

    def __str__(self) -> str:
        lines = [printable(f"{place}: {found}") for place, found in self.faults]
        if self.count > len(self.faults):
            lines.append(f"{printable(self.path)}: {self.count - len(self.faults)} more at fault")
        return "\n".join(lines)


class RecordError(Im2recError):
    """A `.rec` whose framing is broken.

    offset: bytes from the start of the file; code: a stable word for the kind of fault.
    """

    def __init__(self, path: str, offset: int, code: str, found: str) -> None:
        super().__init__(path, offset, code, found)
        self.path, self.offset, self.code, self.found = path, offset, code, found

    def __str__(self) -> str:
        return f"{printable(self.path)}: byte {self.offset}: {self.found}"


class DamageError(Im2recError):
    """Record files that are damaged, where whole ones are wanted.

    places: (file, offset in bytes, what is wrong) of the first; count: how many in all.
    """

    def __init__(self, places: tuple[tuple[str, int, str], ...], count: int) -> None:
        super().__init__(places, count)
        self.places, self.count = places, count

    def __str__(self) -> str:
        lines = [f"{printable(file)}: byte {at}: {found}" for file, at, found in self.places]
        found = f"damaged in {self.count} place{'s' * (self.count != 1)}; nothing was written"
        return "\n".join(
            [*lines, f"{printable(self.places[0][0])}: {found}; --salvage takes what is whole"]
        )


class PayloadError(Im2recError):
    """A record's payload that is not an image record (24-byte header, labels, image)."""


class IndexLineError(Im2recError):
    """An `.idx` line that is not `key TAB offset`. line: from 1."""

    def __init__(self, path: str, line: int, found: str) -> None:
        super().__init__(path, line, found)
        self.path, self.line, self.found = path, line, found

    def __str__(self) -> str:
        return f"{printable(self.path)}:{self.line}: {self.found}"


class ImageError(Im2recError):
    """An image that cannot be packed; the message is the reason, without the path."""


class OutputError(Im2recError):
    """An output that could not be written."""

    def __init__(self, path: str, found: str, hint: str = "") -> None:
        super().__init__(path, found, hint)
        self.path, self.found, self.hint = path, found, hint

    def __str__(self) -> str:
        text = f"{self.path}: cannot write: {self.found}"
        return printable(text + (f"; {self.hint}" if self.hint else ""))


class BusyError(Im2recError):
    """Another run is writing the same prefix."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.prefix = prefix

    def __str__(self) -> str:
        return (
            f"{printable(self.prefix)}: another im2rec run is writing it; "
            "wait until it ends, or choose another name"
        )


class WorkerError(Im2recError):
    """A worker process died or gave up, so the run was stopped.

    found: what happened; in_hand: what the workers were working on, in the caller's words.
    """

    def __init__(self, found: str, in_hand: tuple[str, ...], hint: str = "") -> None:
        super().__init__(found, in_hand, hint)
        self.found, self.in_hand, self.hint = found, in_hand, hint

    def __str__(self) -> str:
        text = self.found
        if self.in_hand:
            text += "; in hand: " + ", ".join(printable(item) for item in self.in_hand)
        return text + (f"; {self.hint}" if self.hint else "")


class TooManyFailures(Im2recError):
    """More images could not be packed than --max-failures allows; nothing was published."""

    def __init__(self, path: str, failed: int, allowed: int, rows: int) -> None:
        super().__init__(path, failed, allowed, rows)
        self.path, self.failed, self.allowed, self.rows = path, failed, allowed, rows

    def __str__(self) -> str:
        return (
            f"{printable(self.path)}: stopped after {self.failed} of {self.rows} images that "
            f"cannot be packed, {self.allowed} allowed; nothing was written; "
            "mend them, list anew where files have gone, or leave them out with --max-failures "
            "N or P%; 100% lists all of them in PREFIX.failures.tsv"
        )


class NothingPacked(Im2recError):
    """Not one record: an empty list, or every image tried has failed. tried: how many were."""

    def __init__(self, path: str, tried: int, rows: int, root: str) -> None:
        super().__init__(path, tried, rows, root)
        self.path, self.tried, self.rows, self.root = path, tried, rows, root

    def __str__(self) -> str:
        path = printable(self.path)
        if not self.rows:
            return f"{path}: the list has no rows; nothing was written"
        first = f"the first {self.tried} of " if self.tried < self.rows else ""
        images = f"its {self.rows} images" if self.rows != 1 else "its one image"
        return (
            f"{path}: not one of {first}{images} could be packed; nothing was written; "
            f"is ROOT ({printable(self.root)}) the folder that the list's paths start from?"
        )


def printable(text: str) -> str:
    """The text on one line of valid UTF-8: control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(
        ch
        if ch.isprintable()
        else ch.encode("unicode_escape").decode("ascii")
        if not "\udc80" <= ch <= "\udcff"
        else f"\\x{ord(ch) - 0xDC00:02x}"
        for ch in text
    )
