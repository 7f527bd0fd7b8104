"""Whole shards of a run that was stopped: what is noted of them, and which of them still hold.

A shard is used again where all that decides on its bytes is as it was: the options, its rows, and
the size and the time of last change of each of their files. What it closed at decides, too: under
--shard-size that is the row behind its last one, the first that did not fit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from im2rec import pool
from im2rec.lst import ImageList, parse_rows
from im2rec.output import Output, is_plain_file
from im2rec.part import (
    READS_AHEAD,
    STATE_SIZE,
    Failure,
    Packed,
    Remark,
    ShardStats,
    Tally,
    map_ahead,
    state_of,
)
from im2rec.record_set import file_sha256
from im2rec.shards import Piece

_FILES_AT_A_TIME = 64  # whose state a thread asks for
_ROWS_AT_A_TIME = READS_AHEAD * _FILES_AT_A_TIME  # that a worker is given

# Why a shard is packed again.
OTHER_SETTINGS = "the options, ROOT or versions have changed"
BAD_NOTE = "the notes are damaged"
OTHER_ROWS = "the list has changed"
OTHER_SOURCES = "images have changed"
OTHER_BYTES = "the kept files have changed"
AFTER_ANOTHER = "a shard before is packed again"


@dataclass(frozen=True, slots=True)
class WholeShard:
    """A shard that a stopped run has left.

    stem: of its files in the work folder. number: the caller's, or None where size decided. The
    rows first..last-1 are accounted for in it, and first..until-1 decided on it: rows, sources:
    the sha256 of their lines and of their files' states. rec_sha256, idx_sha256: of its files.
    """

    stem: str
    number: int | None
    first: int
    last: int
    until: int
    rows: str
    sources: str
    rec_sha256: str
    idx_sha256: str
    tally: Tally


@dataclass
class _Open:
    """A shard while its rows come in. until: see WholeShard; 0 while it is open."""

    number: int | None
    first: int
    rec: str = ""  # its path, once it has a record
    last: int = 0
    until: int = 0
    tally: Tally = field(default_factory=Tally)
    sources: Any = field(default_factory=hashlib.sha256)


class ShardNotes:
    """Notes each shard of a set as soon as it is whole.

    images: the list; settings: what, beside rows and files, decides on the bytes.
    """

    def __init__(self, images: ImageList, settings: str, output: Output) -> None:
        self._images, self._settings, self._output = images, settings, output
        self._open = _Open(None, 0)
        self._closed: dict[str, _Open] = {}

    def placed(
        self, number: int | None, first: int, last: int, stats: ShardStats, pieces: Sequence[Piece]
    ) -> None:
        """Takes the next part, the rows first..last-1. number: of its shard; pieces: where its
        records went."""
        if number != self._open.number:
            self._close(first, first)
            self._open = _Open(number, first)
        row = first
        for piece, begin in _beginnings(pieces, stats.packed):
            if self._open.rec not in ("", piece.file):  # its size has closed the shard before
                self._take(stats, first, row, begin)
                at = (begin - first) * STATE_SIZE
                self._open.sources.update(stats.sources[at : at + STATE_SIZE])
                self._close(begin, begin + 1)
                self._open, row = _Open(number, begin), begin
            self._open.rec = piece.file
        self._take(stats, first, row, last)
        if last == len(self._images):
            self._close(last, last)

    def adopted(self, whole: WholeShard) -> None:
        """Takes a shard of the stopped run, the next in order; its note is there already."""
        self._close(whole.first, whole.first)
        self._open = _Open(None, whole.last)

    def whole(self, rec: str, sha256: str) -> None:
        """Notes that a shard is on disk to its end."""
        shard = self._closed.pop(rec)
        stem = os.path.basename(rec).removesuffix(".rec")
        whole = WholeShard(
            stem,
            shard.number,
            shard.first,
            shard.last,
            shard.until,
            _rows_sha256(self._images, shard.first, shard.until),
            shard.sources.hexdigest(),
            sha256,
            file_sha256(self._output.path(stem + ".idx")),
            shard.tally,
        )
        note = {name: getattr(whole, name) for name in WholeShard.__slots__}
        note |= {"settings": self._settings, "tally": vars(whole.tally)}
        body = json.dumps(note).encode("ascii")
        self._output.keep_note(stem, body + _seal(body))

    def _take(self, stats: ShardStats, first: int, begin: int, end: int) -> None:
        """Counts the rows begin..end-1 of a part that starts at row `first`."""
        rows: Callable[[Any], bool] = lambda each: begin <= each.row < end  # noqa: E731
        shard = self._open
        shard.tally.count(
            filter(rows, stats.packed), filter(rows, stats.failures), filter(rows, stats.remarks)
        )
        shard.sources.update(
            stats.sources[(begin - first) * STATE_SIZE : (end - first) * STATE_SIZE]
        )

    def _close(self, last: int, until: int) -> None:
        self._open.last, self._open.until = last, until
        if self._open.rec:
            self._closed[self._open.rec] = self._open


def _beginnings(pieces: Sequence[Piece], packed: Sequence[Packed]) -> Iterator[tuple[Piece, int]]:
    """Each piece with the row of its first record."""
    at = 0
    for piece in pieces:
        yield piece, packed[at].row
        size = piece.size
        while size:
            size -= packed[at].size
            at += 1


def _seal(body: bytes) -> bytes:
    """The end of a note: with another one, it was torn by a power cut, or others wrote in it."""
    return b"\n" + hashlib.sha256(body).hexdigest().encode("ascii")


def _rows_sha256(images: ImageList, first: int, last: int) -> str:
    """The sha256 of the lines of some rows."""
    sha256 = hashlib.sha256()
    for begin in range(first, last, _ROWS_AT_A_TIME):
        sha256.update(images.lines(begin, min(begin + _ROWS_AT_A_TIME, last)))
    return sha256.hexdigest()


def read_notes(output: Output, settings: str, unused: dict[str, str]) -> list[WholeShard]:
    """The shards that a run with the same settings has left, in list order. unused: gets the stems
    of the others, and why."""
    found = []
    for stem, data in output.notes().items():
        unused[stem] = BAD_NOTE
        with suppress(ValueError, TypeError, KeyError):  # of another version
            body = data[: data.rfind(b"\n")]
            if data != body + _seal(body):
                continue
            note = json.loads(body)
            if note.pop("settings") != settings:
                unused[stem] = OTHER_SETTINGS
                continue
            tally = note.pop("tally")
            tally["label_widths"] = Counter({int(k): v for k, v in tally["label_widths"].items()})
            tally["failures"] = [Failure(*each) for each in tally["failures"]]
            tally["remarks"] = [Remark(*each) for each in tally["remarks"]]
            found.append(WholeShard(**{**note, "stem": stem, "tally": Tally(**tally)}))
            del unused[stem]
    return sorted(found, key=lambda whole: whole.first)


@dataclass(frozen=True, slots=True)
class _Check:
    """What a worker is to look at of the shard STEM: source files, those of the rows from `first`
    on that have these lines; or, without lines, whether its own files have these sha256.

    folder: where the ones or the others lie.
    """

    stem: str
    folder: str
    first: int = 0
    lines: bytes = b""
    rec_sha256: str = ""
    idx_sha256: str = ""


def holding(
    shards: Sequence[WholeShard],
    images: ImageList,
    root: str,
    work: str,
    unused: dict[str, str],
    *,
    workers: int,
    start_method: str | None,
    seconds: float | None,
    name: Callable[[int], str],
) -> Generator[WholeShard, None, None]:
    """Those of the shards whose rows, source files and bytes are as they were, in order.

    unused: gets the stems of those that are not, and why. workers, start_method, seconds, name: as
    in `pool.Pool`; the number in hand is that of a row.
    """
    same = [whole for whole in shards if _has_its_rows(whole, images)]
    stems = {whole.stem for whole in same}
    unused.update({whole.stem: OTHER_ROWS for whole in shards if whole.stem not in stems})
    if not same:
        return
    with pool.Pool(
        _look,
        setup=_nothing,
        workers=workers,
        start_method=start_method,
        folder=work,
        seconds=seconds,
        name=name,
    ) as crew:
        sources = _sources(crew, same, images, root, unused)
        by_stem = {whole.stem: whole for whole in sources}
        files = (
            _Check(whole.stem, work, rec_sha256=whole.rec_sha256, idx_sha256=whole.idx_sha256)
            for whole in sources
        )
        for check, is_same in crew.results(files):
            if is_same:
                yield by_stem[check.stem]
            else:
                unused[check.stem] = OTHER_BYTES


def _sources(
    crew: pool.Pool[_Check, bytes],
    shards: Sequence[WholeShard],
    images: ImageList,
    root: str,
    unused: dict[str, str],
) -> list[WholeShard]:
    """Those of the shards whose source files are as they were. Where size decided, none behind the
    first other one, for nothing of them could be used."""
    by_stem = {whole.stem: (whole, hashlib.sha256()) for whole in shards}
    changed = False

    def checks() -> Iterator[_Check]:
        for whole in shards:
            for first in range(whole.first, whole.until, _ROWS_AT_A_TIME):
                if changed:
                    return
                lines = images.lines(first, min(first + _ROWS_AT_A_TIME, whole.until))
                yield _Check(whole.stem, root, first, lines)

    for check, states in crew.results(checks()):
        whole, sha256 = by_stem[check.stem]
        sha256.update(states)
        is_last = whole.until <= check.first + _ROWS_AT_A_TIME
        if is_last and sha256.hexdigest() != whole.sources:
            unused[whole.stem] = OTHER_SOURCES
            changed = whole.number is None
    return [whole for whole, sha256 in by_stem.values() if sha256.hexdigest() == whole.sources]


def _has_its_rows(whole: WholeShard, images: ImageList) -> bool:
    """Whether the list has the rows that decided on a shard where it had them."""
    if whole.until > len(images):
        return False
    if whole.number is None and whole.until == whole.last != len(images):
        return False  # the list ended with it and has grown: it may have room for more
    return _rows_sha256(images, whole.first, whole.until) == whole.rows


def _nothing() -> None:
    pass


def _look(check: _Check) -> bytes:
    """The states of the source files of some rows; or whether a shard's own files are as they were:
    some byte, or none."""
    if check.lines:
        states = b"".join(_states(check))
        pool.note(None)
        return states
    stem = os.path.join(check.folder, check.stem)
    expected = {f"{stem}.rec": check.rec_sha256, f"{stem}.idx": check.idx_sha256}
    try:
        same = all(is_plain_file(path) and file_sha256(path) == expected[path] for path in expected)
    except OSError:
        same = False
    return b"same" if same else b""


def _states(check: _Check) -> Iterator[bytes]:
    """The states of source files, in order, some at a time; asked for by threads ahead of their
    turn, for storage may be slow."""
    root = os.fsencode(check.folder)
    paths = (os.path.join(root, entry.path.encode()) for entry in parse_rows(check.lines))
    some = iter(lambda: list(islice(paths, _FILES_AT_A_TIME)), [])
    row = check.first
    pool.note(row)
    with ThreadPoolExecutor(READS_AHEAD) as threads:
        for states in map_ahead(threads, _some_states, some):
            row += len(states)
            pool.note(row)
            yield b"".join(states)


def _some_states(paths: list[bytes]) -> list[bytes]:
    states = []
    for path in paths:
        try:
            states.append(state_of(os.stat(path)))
        except FileNotFoundError:
            states.append(state_of(None))
        except (OSError, ValueError):  # never the same as that of a file that was read
            states.append(b"")
    return states
