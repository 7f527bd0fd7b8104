"""`im2rec index`: its options, and what is printed of its report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from im2rec.cli.options import common, fsync, if_changed
from im2rec.errors import OptionError, printable
from im2rec.interrupts import signals_held
from im2rec.terminal import (
    EXIT_DONE,
    EXIT_PROBLEMS,
    MAX_LINES,
    Progress,
    Talk,
    count_text,
    say,
    size_text,
)

if TYPE_CHECKING:
    from im2rec.indexing import IndexReport


@click.command(
    "index",
    epilog="""\b
Example:
  im2rec index data/set_train
  im2rec index --join -o data/all.idx data/a.rec data/b.rec
  im2rec index --salvage data/sound.rec data/damaged.rec""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option(
    "-o", "--output", metavar="IDX", help="Write the index, or the joint one, to this file."
)
@click.option(
    "--keys",
    type=click.Choice(["auto", "id", "position"]),
    default="auto",
    show_default=True,
    help="id: as im2rec.py. position: from 0, as rec2idx.py. auto: ids, or, with a warning, "
    "positions where there are records without an id, or two with one id.",
)
@click.option("--join", is_flag=True, help="Write one index for all REC together, and no other.")
@click.option(
    "--salvage",
    "new",
    metavar="NEW",
    help="Copy the whole records of a damaged REC to NEW.rec, with NEW.idx.",
)
@if_changed
@fsync
@common
def index_command(
    recs: tuple[str, ...],
    output: str | None,
    keys: str,
    join: bool,
    new: str | None,
    if_changed: bool,
    fsync: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Make the index of record files anew, from the records.

    REC is a .rec file, or the prefix of a set or of its shards; of shards, the joint index is
    written, too. The record files are never changed. An index that is there is replaced, a file of
    another kind is not. A damaged file gets no index: readers would take two records for one.
    """
    with signals_held():
        from im2rec.indexing import IndexOptions, index_set, join_indexes, salvage
        from im2rec.record_set import find_set

    _check_options(recs, output, join, new)
    talk = Talk(quiet, verbose)
    options = IndexOptions(keys, if_changed, fsync)
    sets = [find_set(name) for name in recs]
    if new is not None:
        (found,) = sets
        if len(found.recs) != 1 or found.missing:
            raise OptionError(f"--salvage is of one file; name one of {found.name}'s, with .rec")
        with Progress(f"salvage {os.path.basename(found.name)}", "B", talk) as bar:
            report = salvage(found.recs[0], new, options, progress=bar.update)
        return _print_salvage(report, talk)
    if join:
        path = output or f"{sets[0].prefix}.idx"
        with Progress(f"index {os.path.basename(path)}", "B", talk) as bar:
            _print_report(join_indexes(sets, path, options, progress=bar.update), talk, joint=True)
        return EXIT_DONE
    for found in sets:
        if output and len(found.recs) > 1:
            hint = "--join writes the joint index alone"
            raise OptionError(f"-o is one file, but {found.name} has several; {hint}")
        with Progress(f"index {os.path.basename(found.name)}", "B", talk) as bar:
            report = index_set(found, options, path=output, progress=bar.update)
        _print_report(report, talk, joint=len(found.recs) > 1)
    return EXIT_DONE


def _check_options(recs: tuple[str, ...], output: str | None, join: bool, new: str | None) -> None:
    """Raises OptionError for what does not go together."""
    if new is not None and (output or join):
        raise OptionError("--salvage NEW names what it writes; it excludes -o and --join")
    if new is not None and len(recs) > 1:
        raise OptionError("one --salvage goes with one REC")
    if join and not output and len(recs) > 1:
        raise OptionError("--join of several REC needs -o IDX")
    if output and not join and len(recs) > 1:
        raise OptionError("one -o goes with one REC, or with --join")
    if output is not None and output.endswith(".rec"):
        raise OptionError(f"-o names the index to write, and {output!r} is a record file's name")


def _print_report(report: IndexReport, talk: Talk, *, joint: bool) -> None:
    _print_warnings(report, talk)
    if joint:
        for path in report.empty:
            talk.warn(f"{printable(path)}: empty; DALI reads no set with such a shard")
    elif report.empty:
        talk.warn(f"{printable(report.name)}: empty, and so is its index")
    for path in report.files:
        state = "" if path in report.changed else ", unchanged"
        talk.details(f"{printable(path)}{state}")
    state = "" if report.changed else ", unchanged"
    talk.info(f"{printable(report.name)}: {_lines_text(report)}{state}")


def _print_warnings(report: IndexReport, talk: Talk) -> None:
    if report.no_ids:
        talk.warn(f"{printable(report.no_ids)}; so the keys are positions, from 0")
    talk.some(
        (f"{printable(each)}; see im2rec verify" for each in report.contradicted),
        "files that are not as the manifest has them",
    )


def _lines_text(report: IndexReport) -> str:
    files = f"{len(report.files)} indexes" if len(report.files) > 1 else "index"
    return f"{files} of {count_text(report.records, 'record')}, by {report.keys}"


def _print_salvage(report: IndexReport, talk: Talk) -> int:
    most = None if talk.verbose else MAX_LINES
    for place in report.skipped[:most]:
        found = printable(place.found)
        say(f"{printable(report.name)}:{place.offset}: {place.length} bytes skipped: {found}")
    if report.skipped_count > len(report.skipped[:most]):
        more = count_text(report.skipped_count - len(report.skipped[:most]), "place")
        hint = "" if talk.verbose else "; -v names them all"
        say(f"{printable(report.name)}: {more} more skipped{hint}")
    _print_warnings(report, talk)
    size = size_text(report.skipped_bytes)
    rec = printable(report.files[0])
    records, places = (
        count_text(report.records, "whole record"),
        count_text(report.skipped_count, "place"),
    )
    talk.info(f"{rec}: {records}, by {report.keys}; skipped: {size} in {places}")
    if not report.skipped_count:
        return EXIT_DONE
    talk.info(f"what damage inside a record leaves whole is found by im2rec verify --decode {rec}")
    return EXIT_PROBLEMS
