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
        lines = self._images.lines(shard.first, shard.until)
        whole = WholeShard(
            stem,
            shard.number,
            shard.first,
            shard.last,
            shard.until,
            hashlib.sha256(lines).hexdigest(),
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


def read_notes(output: Output, settings: str) -> list[WholeShard]:
    """The shards that a run with the same settings has left, in list order."""
    found = []
    for stem, data in output.notes().items():
        with suppress(ValueError, TypeError, KeyError):  # of another version
            body = data[: data.rfind(b"\n")]
            if data != body + _seal(body):
                continue
            note = json.loads(body)
            if note.pop("settings") != settings:
                continue
            tally = note.pop("tally")
            tally["label_widths"] = Counter({int(k): v for k, v in tally["label_widths"].items()})
            tally["failures"] = [Failure(*each) for each in tally["failures"]]
            tally["remarks"] = [Remark(*each) for each in tally["remarks"]]
            found.append(WholeShard(**{**note, "stem": stem, "tally": Tally(**tally)}))
    return sorted(found, key=lambda whole: whole.first)


@dataclass(frozen=True, slots=True)
class _Check:
    """What a worker is to compare: of a shard, its rows' lines, and where all of it lies."""

    whole: WholeShard
    lines: bytes
    root: str
    work: str


def holding(
    shards: Sequence[WholeShard],
    images: ImageList,
    root: str,
    work: str,
    *,
    workers: int,
    start_method: str | None,
    seconds: float | None,
    name: Callable[[int], str],
) -> Generator[WholeShard, None, None]:
    """Those of the shards whose rows, source files and bytes are as they were, in order.

    workers, start_method, seconds, name: as in `pool.Pool`; the number in hand is that of a row.
    """
    same = [whole for whole in shards if _has_its_rows(whole, images)]
    if not same:
        return
    with pool.Pool(
        _holds,
        setup=_nothing,
        workers=min(workers, len(same)),
        start_method=start_method,
        folder=work,
        seconds=seconds,
        name=name,
    ) as crew:
        checks = (
            _Check(whole, images.lines(whole.first, whole.until), root, work) for whole in same
        )
        for check, holds in crew.results(checks):
            if holds:
                yield check.whole


def _has_its_rows(whole: WholeShard, images: ImageList) -> bool:
    """Whether the list has the rows that decided on a shard where it had them."""
    if whole.until > len(images):
        return False
    if whole.number is None and whole.until == whole.last != len(images):
        return False  # the list ended with it and has grown: it may have room for more
    lines = images.lines(whole.first, whole.until)
    return hashlib.sha256(lines).hexdigest() == whole.rows


def _nothing() -> None:
    pass


def _holds(check: _Check) -> bool:
    """Whether a shard's source files and its own are as they were."""
    whole = check.whole
    sources = hashlib.sha256()
    for states in _states(check):
        sources.update(states)
    pool.note(None)
    if sources.hexdigest() != whole.sources:
        return False
    stem = os.path.join(check.work, whole.stem)
    expected = {f"{stem}.rec": whole.rec_sha256, f"{stem}.idx": whole.idx_sha256}
    try:
        return all(is_plain_file(path) and file_sha256(path) == expected[path] for path in expected)
    except OSError:
        return False


def _states(check: _Check) -> Iterator[bytes]:
    """The states of a shard's source files, in order, some at a time; asked for by threads ahead of
    their turn, for storage may be slow."""
    root = os.fsencode(check.root)
    paths = (os.path.join(root, entry.path.encode()) for entry in parse_rows(check.lines))
    some = iter(lambda: list(islice(paths, _FILES_AT_A_TIME)), [])
    row = check.whole.first
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
