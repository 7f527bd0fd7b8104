"""`im2rec unpack`: its options, and what is printed of its report."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from im2rec.cli.options import Name, common, fsync
from im2rec.errors import printable
from im2rec.interrupts import signals_held
from im2rec.terminal import (
    EXIT_DONE,
    EXIT_PROBLEMS,
    MAX_LINES,
    Progress,
    Talk,
    count_text,
    say_error,
    size_text,
)

if TYPE_CHECKING:
    from im2rec.facts import Place, Places
    from im2rec.unpacking import UnpackReport


class _Ids(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
    """An id, or the first and the last of several: 7, 100-199."""

    name = "ids"

    def convert(self, value: Any, param: Any, ctx: Any) -> range:
        if isinstance(value, range):
            return value
        match = re.fullmatch(r"([0-9]{1,20})(?:-([0-9]{1,20}))?", value.strip())
        if not match:
            self.fail(f"{value!r} is no id; expected 7 or 100-199", param, ctx)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            self.fail(f"{value!r} has no id in it, for the first is the larger", param, ctx)
        return range(first, last + 1)


@click.command(
    "unpack",
    epilog="""\b
Example:
  im2rec unpack data/set_train photos
  im2rec pack --pass-through photos/set_train photos
writes the images, then photos/set_train.rec with the same records.""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.argument("out")
@click.option(
    "--by",
    type=click.Choice(["label", "id"]),
    default="label",
    show_default=True,
    help="A folder for each class, or for each thousand ids.",
)
@click.option(
    "--label",
    type=Name(),
    multiple=True,
    metavar="N",
    help="Only images of this class: its name or, where no class has that, its number; repeat.",
)
@click.option(
    "--id",
    type=_Ids(),
    multiple=True,
    metavar="N|A-B",
    help="Only images with these ids, A and B among them; repeat.",
)
@click.option(
    "--renumber",
    is_flag=True,
    help="Give each image the place of its record in REC, from 0, as its id; for REC whose ids "
    "repeat. --id means these, then.",
)
@click.option(
    "--salvage",
    is_flag=True,
    help="Unpack the whole records of damaged files, too; exit 1 if there was damage.",
)
@fsync
@common
def unpack_command(
    recs: tuple[str, ...], out: str, quiet: bool, verbose: bool, **options: Any
) -> int:
    """Make image files of records again, in folders under OUT, with a list for each REC.

    REC is a .rec file, or the prefix of a set or of its shards. An index is not needed. OUT is a
    new or an empty folder. The images are the records' own bytes; with OUT/NAME.lst,
    `im2rec pack --pass-through OUT/NAME OUT` makes the same records of them.
    """
    with signals_held():
        from im2rec.record_set import find_set
        from im2rec.unpacking import UnpackOptions, unpack_sets

    talk = Talk(quiet, verbose)
    # Under their own names they have IM2REC_UNPACK_LABEL and IM2REC_UNPACK_ID.
    labels, ids = options.pop("label"), options.pop("id")
    settings = UnpackOptions(labels=labels, ids=ids, **options)
    sets = [find_set(name) for name in recs]
    with Progress(f"unpack {os.path.basename(recs[0])}", "B", talk) as bar:
        report = unpack_sets(sets, out, settings, progress=bar.update)
    _print_unpack_report(report, talk)
    lost = report.unlisted.count or report.damage.count or report.missing
    return EXIT_PROBLEMS if lost else EXIT_DONE


def _print_unpack_report(report: UnpackReport, talk: Talk) -> None:
    for path in report.missing:
        say_error(f"{printable(path)}: this shard is not there")
    _tell_errors(report.damage, "damaged places", talk)
    _tell_errors(report.unlisted, "images that stand in no list", talk)
    if report.repeated:
        images = count_text(report.repeated, "image")
        talk.warn(f"{images} with an id that the set has already: --renumber lists them all")
    left_out = report.left_out
    talk.some((f"{_place_text(each)}; left out" for each in left_out.first), "records left out")
    if left_out.count > len(left_out.first):
        talk.warn(f"left out: {count_text(left_out.count, 'record')} in all")
    for name, folder in report.renamed:
        talk.warn(f"class {printable(name)!r}: not safe as a folder's name; it is {folder}")
    if report.unknown_kind:
        images = count_text(report.unknown_kind, "image")
        talk.warn(f"{images} of no known kind, named .bin: pack --pass-through will not take them")
    if report.odd_headers:
        records = count_text(report.odd_headers, "record")
        talk.warn(f"{records} with a header that pack writes otherwise (flag, id2)")
    if report.identities:
        records = count_text(report.identities, "record")
        talk.warn(
            f"left out: {records} of InsightFace's identities; to pack again needs "
            "--layout insightface"
        )
    folders = count_text(report.folders, "folder")
    talk.info(
        f"{printable(report.out)}: {count_text(report.images, 'image')} in {folders}, "
        f"{size_text(report.bytes)}"
    )
    for path, count in report.lists:
        talk.info(f"{printable(path)}: {count_text(count, 'image')}")


def _tell_errors(places: Places, what: str, talk: Talk) -> None:
    """Names places on stderr, quiet or not."""
    shown = places.first if talk.verbose else places.first[:MAX_LINES]
    for each in shown:
        say_error(_place_text(each))
    if places.count > len(shown):
        more = places.count - len(shown)
        named = "them" if places.count == len(places.first) else f"the first {len(places.first)}"
        say_error(f"{more} more {what}" + ("" if talk.verbose else f"; -v names {named}"))


def _place_text(place: Place) -> str:
    about = "" if place.id is None else f"id {place.id}: "
    return f"{printable(place.file)}: byte {place.offset}: {about}{printable(place.found)}"
