"""`im2rec pack`: its options, and what is printed of its report."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from im2rec.cli.options import (
    Size,
    common,
    fsync,
    if_changed,
    image_timeout,
    start_method,
    tell_workers,
    workers,
)
from im2rec.errors import OptionError, printable
from im2rec.interrupts import signals_held
from im2rec.terminal import EXIT_DONE, MAX_LINES, Progress, Talk, count_text, say, size_text

if TYPE_CHECKING:
    from im2rec.pack import PackOptions, PackReport
    from im2rec.part import Failure

INTERPOLATION_NAMES = ("nearest", "linear", "cubic", "area", "lanczos", "auto", "random")
INTERPOLATION_NUMBERS = {
    "0": "nearest",
    "1": "linear",
    "2": "cubic",
    "3": "area",
    "4": "lanczos",
    "9": "auto",
    "10": "random",
}


class _Failures(click.ParamType):  # type: ignore[type-arg]  # as above
    """A number of images, or a percentage of them: 10, 0.5%."""

    name = "failures"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, bool]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?) *%", str(value).strip())
        if not match or (match[2] and float(match[2]) > 100):
            self.fail(
                f"{value!r}, expected a number of images, or a percentage as 0.5%", param, ctx
            )
        return (float(match[2]), True) if match[2] else (min(float(match[1]), 2**63), False)


class _Interpolation(click.Choice[str]):
    """An interpolation's name, or the number im2rec.cc gives it."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        return super().convert(INTERPOLATION_NUMBERS.get(value, value), param, ctx)


class _Encoding(click.Choice[str]):
    """.jpg or .png, with or without the dot, in any case."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = "." + str(value).lower().lstrip(".")
        return super().convert(".jpg" if text == ".jpeg" else text, param, ctx)


@click.command(
    "pack",
    epilog="""\b
Example:
  im2rec pack --resize 256 --quality 90 data/set_train photos
writes data/set_train.rec, data/set_train.idx and data/set_train.manifest.json.""",
)
@click.argument("prefix")
@click.argument("root")
@click.option(
    "-o",
    "--output",
    metavar="PREFIX",
    help="Prefix of the files to write, of one list.  [default: the list's]",
)
@click.option(
    "--resize",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Short edge of the packed images in pixels.  [default: as they are]",
)
@click.option("--no-upscale", is_flag=True, help="Leave images whose short edge is below --resize.")
@click.option("--center-crop", is_flag=True, help="Cut the middle square out before resizing.")
@click.option(
    "--interpolation",
    "--inter-method",
    type=_Interpolation(INTERPOLATION_NAMES),
    default="linear",
    show_default=True,
    help="Of the resize; or im2rec.cc's number for it: 0-4, 9, 10.",
)
@click.option(
    "--dct-scaling",
    is_flag=True,
    help="Decode large JPEGs at 1/2, 1/4 or 1/8, at least twice --resize, and go on by area: much "
    "faster, other bytes.",
)
@click.option(
    "--encoding",
    type=_Encoding([".jpg", ".png"]),
    default=".jpg",
    show_default=True,
    help="Format of the packed images.",
)
@click.option(
    "--quality",
    type=int,
    metavar="N",
    help="JPEG quality 1-100, or PNG compression 0-9.  [default: 95, PNG 3]",
)
@click.option(
    "--color",
    type=click.Choice(["-1", "0", "1"]),
    default="1",
    show_default=True,
    help="1: colour. 0: grey. -1: as stored, with alpha, without the EXIF turn.",
)
@click.option(
    "--pass-through",
    "--unchanged",
    is_flag=True,
    help="Pack the files' own bytes, after checking that they are whole images.",
)
@click.option(
    "--pack-label/--no-pack-label",
    default=True,
    show_default=True,
    help="Pack every label of a row, or its first alone.",
)
@click.option(
    "--label-width",
    type=click.IntRange(1),
    metavar="N",
    help="Labels that every row must have.  [default: any]",
)
@click.option(
    "--layout",
    type=click.Choice(["plain", "insightface"]),
    default="plain",
    show_default=True,
    help="insightface: with its records of identities and the file `property`; images all of one "
    "size, and PREFIX ends in train.",
)
@click.option(
    "--detection",
    is_flag=True,
    help="Check that every row has the labels of a picture with boxes, and keep them right.",
)
@click.option("--shards", type=click.IntRange(1), metavar="N", help="Cut the set into N shards.")
@click.option(
    "--shard-size",
    type=Size(),
    metavar="SIZE",
    help="Cut the set into shards of at most 1GiB, say.",
)
@click.option(
    "--max-failures",
    type=_Failures(),
    default="0",
    metavar="N|P%",
    show_default=True,
    help="Images that may fail and be left out before the run stops; 100% to see all that do.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1, 2**30),
    default=178956970,
    show_default=True,
    metavar="N",
    help="Larger images are failures.",
)
@click.option("--allow-outside-root", is_flag=True, help="Follow paths that leave ROOT.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep the whole shards of a run that is stopped, and begin with those kept before.",
)
@if_changed
@click.option(
    "--depfile",
    metavar="FILE",
    help="Write what the set is made of as a dependency file for Make or Ninja.",
)
@click.option(
    "--depfile-target",
    metavar="NAME",
    help="What depends on it there.  [default: PREFIX.manifest.json]",
)
@image_timeout
@workers
@start_method
@fsync
@common
def pack_command(
    prefix: str,
    root: str,
    output: str | None,
    quality: int | None,
    color: str,
    max_failures: tuple[float, bool],
    depfile: str | None,
    depfile_target: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Pack the images of PREFIX.lst, found under ROOT, into PREFIX.rec and PREFIX.idx.

    PREFIX is a list, or the prefix or folder of several: `data/set` stands for data/set.lst or, if
    there is none, for data/set_train.lst, data/set_val.lst and the others that make-list writes.
    Several shards are PREFIX_000.rec... with the joint index PREFIX.idx.
    """
    with signals_held():
        from im2rec.dependencies import dependency_file
        from im2rec.face_set import PROPERTY
        from im2rec.image_ops import DEFAULT_QUALITY, ImageOptions
        from im2rec.list_family import check_apart, find_lists
        from im2rec.lst import read_list
        from im2rec.pack import PackOptions, are_boxes, check_boxes, check_root
        from im2rec.record_set import family_lists

    talk = Talk(quiet, verbose)
    given = _source("interpolation") != click.core.ParameterSource.DEFAULT
    if options["dct_scaling"] and not given:
        options["interpolation"] = "area"
    names = ImageOptions.__dataclass_fields__.keys() & options.keys()
    image = ImageOptions(
        quality=DEFAULT_QUALITY[options["encoding"]] if quality is None else quality,
        color=int(color),
        **{name: options.pop(name) for name in names},
    )
    settings = PackOptions(
        image=image,
        max_failures=max_failures[0],
        failures_are_percent=max_failures[1],
        **options,
    )
    if image.no_upscale and not image.resize:
        raise OptionError("--no-upscale means nothing without --resize")
    if image.pass_through:
        _refuse_beside_pass_through()
    check_root(root)
    output = output and output.removesuffix(".rec")
    lists = find_lists(prefix)
    tell_workers(settings.workers, talk)
    if lists == [prefix + ".lst"]:
        beside = [name for name in family_lists(prefix) if name != os.path.basename(lists[0])]
        if beside:
            talk.warn(
                f"{printable(lists[0])} is packed; beside it and not packed: {', '.join(beside)}"
            )
    empty = [path for path in lists if not os.path.getsize(path)]
    if len(lists) > len(empty) > 0:
        talk.some(
            (f"{printable(path)}: an empty list, passed over" for path in empty), "empty lists"
        )
        lists = [path for path in lists if path not in empty]
    if len(lists) > 1:
        if settings.layout == "insightface":
            raise OptionError(
                f"{len(lists)} lists: --layout insightface is for one list in a folder, for there "
                "is one `property`; name it"
            )
        if output:
            raise OptionError(f"--output goes with one list, and here are {len(lists)}; name one")
        check_apart(lists)
        for path in lists if settings.detection else ():  # the last of them, too, before any work
            check_boxes(read_list(path))
    if depfile_target and not depfile:
        raise OptionError("--depfile-target means nothing without --depfile")
    with ExitStack() as stack:
        if depfile:
            most = None if verbose else MAX_LINES
            depfile_target = depfile_target or (output and f"{output}.manifest.json")
            taken = [output] if output else []
            if settings.layout == "insightface":
                folder = os.path.dirname(output or lists[0])
                taken.append(os.path.join(folder, PROPERTY))
            unnamed = stack.enter_context(
                dependency_file(depfile, lists, root, depfile_target, most, taken)
            )
            talk.some(
                (
                    f"{printable(path)}: no dependency file can hold this name; that the image "
                    "changes will not be noticed"
                    for path in unnamed.first
                ),
                "such names",
                unnamed.count,
            )
        for path in lists:
            if image.center_crop and not settings.detection and are_boxes(read_list(path)):
                talk.warn(
                    f"{printable(path)}: its labels look like boxes, and --center-crop makes those "
                    "wrong: leave it out; --detection keeps boxes right"
                )
            report = _pack_one(path, root, output, settings, talk)
            _print_pack_report(report, talk)
            if settings.detection and report.turned:
                _warn_of_turns(report, image.color, talk)
    return EXIT_DONE


def _pack_one(
    path: str, root: str, output: str | None, settings: PackOptions, talk: Talk
) -> PackReport:
    """Packs one list; prints failures as they become known."""
    from im2rec.output import kept_count
    from im2rec.pack import pack_list

    with Progress(f"pack {os.path.basename(path)}", "images", talk) as bar:
        failures = _FailurePrinter(bar, talk)
        is_begun = False

        def progress(report: PackReport, done: int) -> None:
            nonlocal is_begun
            is_begun = True
            failures.tell(report.failures)
            bar.update(done, report.rows)

        try:
            return pack_list(path, root, settings, prefix=output, progress=progress)
        except BaseException:
            is_resumable = settings.resume and is_begun  # else it has kept nothing
            kept = kept_count(output or path.removesuffix(".lst")) if is_resumable else 0
            if kept:
                shards = f"{count_text(kept, 'whole shard')} {'is' if kept == 1 else 'are'} kept"
                talk.info(f"{shards}: the same command, run again, goes on with them")
            raise
        finally:
            failures.rest()


def _refuse_beside_pass_through() -> None:
    """Raises OptionError where an option was given that pass-through would have to ignore."""
    names = ("resize", "center_crop", "quality", "color", "encoding", "interpolation")
    on_line = click.core.ParameterSource.COMMANDLINE
    given = [name for name in (*names, "no_upscale", "dct_scaling") if _source(name) == on_line]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise OptionError(f"--pass-through stores the files' own bytes; it excludes {flags}")


def _source(name: str) -> click.core.ParameterSource | None:
    """Where an option's value comes from: the command line, the environment, its default."""
    return click.get_current_context().get_parameter_source(name)


class _FailurePrinter:
    """Prints each failure once as it becomes known: the first MAX_LINES, then counts."""

    def __init__(self, bar: Progress, talk: Talk) -> None:
        self._bar, self._told, self._count = bar, 0, 0
        self._most = sys.maxsize if talk.verbose else MAX_LINES

    def tell(self, failures: list[Failure]) -> None:
        self._count = len(failures)
        for failure in failures[self._told : self._most]:
            self._bar.write(f"{printable(failure.path)}: {failure.reason}")
            self._told += 1

    def rest(self) -> None:
        if self._count > self._told:
            say(f"{self._count - self._told} more images failed; -v names them all")


def _print_pack_report(report: PackReport, talk: Talk) -> None:
    if report.resumed:
        kept = count_text(report.resumed, "shard")
        talk.info(f"{printable(report.prefix)}: {kept} kept by the run before, used again")
    for why, count in report.unused.items():
        kept = f"{count_text(count, 'kept shard')} {'is' if count == 1 else 'are'} not used"
        talk.info(f"{printable(report.prefix)}: {kept}: {why}")
    recs = [name for name in report.files if name.endswith(".rec")]
    shards = f" in {len(recs)} shards" if len(recs) > 1 else ""
    talk.info(
        f"{printable(report.prefix)}: {report.packed} of {count_text(report.rows, 'image')} packed"
        f"{shards}, {size_text(report.bytes)}{'' if report.changed else ', unchanged'}"
    )
    if report.identities:
        talk.info(f"property: {count_text(report.identities, 'identity')}")
        if os.path.basename(report.prefix) != "train":
            talk.warn(
                f"{printable(report.prefix)}: InsightFace looks for train.rec and train.idx; "
                "rename them, or pack a list of that name"
            )
    if report.failed:
        left_out = count_text(report.failed, "image")
        talk.warn(f"left out: {left_out}, listed in {printable(report.prefix)}.failures.tsv")
    if report.remarks:
        talk.warn(
            f"{count_text(len(report.remarks), 'remark')} of the codecs on images that were packed"
        )
        talk.some((f"{printable(each.path)}: {each.text}" for each in report.remarks), "remarks")
    counted = (
        (report.turned, "turned by EXIF, which not every reader follows"),
        (report.cmyk, "CMYK, which few readers show with right colours"),
        (report.other, "neither JPEG nor PNG, which some readers cannot decode"),
    )
    for count, what in counted if report.pass_through else ():
        if count:
            talk.warn(f"{count_text(count, 'image')} {what}")


def _warn_of_turns(report: PackReport, color: int, talk: Talk) -> None:
    """Says which picture the boxes must belong to where there is an EXIF turn: a list does not."""
    if report.pass_through:
        what = "kept: boxes of the turned picture are right for readers that follow it"
    elif color == -1:
        what = "left out (--color -1): boxes of the turned picture are wrong now"
    else:
        what = "made: boxes of the picture before it are wrong now"
    talk.warn(f"{count_text(report.turned, 'image')} with an EXIF turn, which was {what}")
