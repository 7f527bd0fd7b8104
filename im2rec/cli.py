"""The command line: the options, the commands, and what they print of their reports.

The verbs are imported when they are called, so that `--help` need not wait for numpy, Pillow or
OpenCV.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from im2rec import __version__, terminal
from im2rec.errors import InputError, OptionError, printable
from im2rec.interrupts import signals_held
from im2rec.terminal import (
    EXIT_DONE,
    EXIT_PROBLEMS,
    MAX_LINES,
    Progress,
    Talk,
    count_text,
    print_data,
    print_json,
    say,
    say_error,
    size_text,
)

if TYPE_CHECKING:
    from im2rec.inspection import RecordLine, Summary
    from im2rec.make_list import ListReport
    from im2rec.pack import PackOptions, PackReport
    from im2rec.part import Failure
    from im2rec.verify import Problem, VerifyReport

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

Command = TypeVar("Command", bound=Callable[..., Any])


# --- options shared by commands ---------------------------------------------------------------


def _common(command: Command) -> Command:
    command = click.option("-v", "--verbose", is_flag=True, help="Name every single thing.")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="Errors and failures only.")(command)


_workers = click.option(
    "--workers",
    "--num-thread",
    type=click.IntRange(1),
    metavar="N",
    help="Processes, at most two for each CPU.  [default: the CPUs this process may use]",
)
_start_method = click.option(
    "--start-method",
    type=click.Choice(["fork", "forkserver", "spawn"]),
    help="How processes start.  [default: the fastest that is safe]",
)
_fsync = click.option(
    "--fsync/--no-fsync",
    default=True,
    show_default=True,
    help="Flush files to disk before they get their names.",
)


_if_changed = click.option(
    "--if-changed", is_flag=True, help="Leave a file as it is that has the same bytes already."
)
_image_timeout = click.option(
    "--image-timeout",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop when a worker has one image in hand for so long; 0: never.",
)


def _tell_workers(asked: int | None, talk: Talk) -> None:
    """Says so where fewer workers are started than were asked for."""
    if asked:
        from im2rec.pool import WORKERS_PER_CPU, worker_count

        if worker_count(asked) < asked:
            started = count_text(worker_count(asked), "worker")
            talk.info(f"{started}: more than {WORKERS_PER_CPU} for each CPU would only be slower")


class _Size(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
    """A number of bytes: 500000, 64K, 1GiB, 2GB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kKmMgGtT]?)(i?[bB])?", value.strip())
        if not match:
            self.fail(f"{value!r} is no size; expected 500000, 64K, 1GiB or 2GB", param, ctx)
        base = 1000 if (match[3] or "").upper() == "B" else 1024  # 1GB is 10**9, 1G and 1GiB 2**30
        from fractions import Fraction

        size = int(Fraction(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
        if size < 1:
            self.fail(f"{value!r} is less than one byte", param, ctx)
        return size


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


def _extensions(values: tuple[str, ...]) -> tuple[str, ...]:
    """--exts as given: repeated or with commas, as jpg, .JPG or *.jpg."""
    names = [name.lower().lstrip("*.") for value in values for name in re.split("[, ]+", value)]
    return tuple(dict.fromkeys(f".{name}" for name in names if name))


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        print_data(f"im2rec {__version__}")
        context.exit()


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "IM2REC",
        "max_content_width": 100,
    },
    epilog="""\b
Example:
  im2rec make-list data/train photos
  im2rec pack data/train photos --resize 256
  im2rec inspect data/train
  im2rec verify data/train""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,  # IM2REC_VERSION may well be there, and means another thing
    callback=_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Pack image datasets into MXNet RecordIO (.lst, .rec, .idx), without MXNet.

    Every option of a command has a default in the environment: IM2REC_PACK_QUALITY=90 stands for
    `im2rec pack --quality 90`.
    """


def main() -> NoReturn:
    """Runs the command line and exits."""
    terminal.run(lambda: cli.main(standalone_mode=False, prog_name="im2rec"))


# --- make-list --------------------------------------------------------------------------------


@cli.command(
    "make-list",
    epilog="""\b
Example:
  im2rec make-list --train-ratio 0.8 data/set photos
writes data/set_train.lst, data/set_val.lst and data/set.classes.txt.""",
)
@click.argument("prefix")
@click.argument("root")
@click.option(
    "--recursive/--no-recursive",
    default=True,
    show_default=True,
    help="Number the folders under ROOT as classes; or list only ROOT's own images, with label 0.",
)
@click.option(
    "--label-from",
    type=click.Choice(["top", "leaf"]),
    default="top",
    show_default=True,
    help="top: the folder directly under ROOT is the class. leaf: every folder with images is one, "
    "as in im2rec.py.",
)
@click.option(
    "--classes",
    metavar="FILE",
    help="A class name a line: fixes names and numbers.",
)
@click.option(
    "--exts",
    multiple=True,
    metavar="EXT",
    help="Extensions to list; repeat or separate by commas.  [default: .jpeg,.jpg,.png]",
)
@click.option("--include-hidden", is_flag=True, help="List hidden files and folders, too.")
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Shuffle as im2rec.py does."
)
@click.option("--seed", type=int, default=100, show_default=True, help="Of the shuffle.")
@click.option(
    "--train-ratio", type=float, metavar="R", help="Share of images for PREFIX_train.lst."
)
@click.option("--test-ratio", type=float, metavar="R", help="Share of images for PREFIX_test.lst.")
@click.option("--stratify", is_flag=True, help="Split each class by the ratios.")
@click.option(
    "--chunks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Equal parts to cut the list into: PREFIX_0.lst, PREFIX_1.lst...",
)
@click.option(
    "--ids",
    type=click.Choice(["run", "per-list"]),
    default="run",
    show_default=True,
    help="Ids 0..N-1 over all lists, or anew in each list (InsightFace wants a key 0 in each).",
)
@_if_changed
@_fsync
@_common
def make_list_command(
    prefix: str, root: str, exts: tuple[str, ...], quiet: bool, verbose: bool, **options: Any
) -> int:
    """List ROOT's images, class by class, in PREFIX.lst.

    The folders directly under ROOT are the classes, in code point order from 0, as torchvision's
    ImageFolder has them; their names go to PREFIX.classes.txt. With ratios or chunks there are
    several lists, and each image is in exactly one.
    """
    with signals_held():  # an exception amid an import may become another
        from im2rec.make_list import DEFAULT_EXTENSIONS, ListOptions, make_list

    talk = Talk(quiet, verbose)
    extensions = _extensions(exts) if exts else DEFAULT_EXTENSIONS
    report = make_list(prefix, root, ListOptions(extensions=extensions, **options))
    _print_list_report(report, extensions, talk)
    for path, reason in report.unlistable[:MAX_LINES]:
        say_error(f"{printable(path)}: passed over: {reason}; rename it")
    if len(report.unlistable) > MAX_LINES:
        say_error(f"{len(report.unlistable) - MAX_LINES} more names that a list cannot hold")
    return EXIT_PROBLEMS if report.unlistable else EXIT_DONE


def _print_list_report(report: ListReport, extensions: tuple[str, ...], talk: Talk) -> None:
    for path, count in report.lists:
        talk.info(f"{printable(path)}: {count_text(count, 'image')}")
        if not count:
            talk.warn(f"{printable(path)}: the ratios or chunks leave no image for this list")
    if report.classes is not None:
        talk.info(
            f"{printable(str(report.classes_path))}: {count_text(len(report.classes), 'class')}"
        )
        for number, name in enumerate(report.classes):
            count = report.class_counts[number]
            talk.details(f"class {number} {printable(name)}: {count_text(count, 'image')}")
    for name in report.older_lists:
        talk.warn(f"{printable(name)}: of an earlier run; remove it, or `im2rec pack` may take it")
    if report.nested_folders > 1:
        talk.warn(
            f"one class, with images in {report.nested_folders} folders below it: is ROOT one "
            "level too high? If not, --label-from leaf makes a class of each"
        )
    others = report.other_extensions
    if others:
        seen = ", ".join(f"{count} {printable(ext)}" for ext, count in others.most_common(8))
        more = f" and {len(others) - 8} kinds more" if len(others) > 8 else ""
        looked = " ".join(extensions)
        files = count_text(sum(others.values()), "file")
        talk.info(f"passed over: {files} ({seen}{more}); listed are {looked}")
    if report.hidden:
        talk.info(f"passed over: {report.hidden} hidden names (--include-hidden)")
    if report.in_root:
        talk.warn(
            f"{count_text(report.in_root, 'image')} directly in ROOT, in no class: passed over"
        )
    talk.some(
        (f"{printable(path)}: a broken link or a special file" for path in report.broken_links),
        "broken links",
    )
    talk.some(
        (
            f"{printable(path)}: a link to a folder that was listed already"
            for path in report.folders_again
        ),
        "folders met again",
    )
    talk.some(
        (
            f"{printable(name)}: no image in this folder; it gets no class number"
            for name in report.empty_classes
        ),
        "folders without an image",
    )


# --- pack -------------------------------------------------------------------------------------


@cli.command(
    "pack",
    epilog="""\b
Example:
  im2rec pack --resize 256 --quality 90 data/set_train photos
writes data/set_train.rec, data/set_train.idx and data/set_train.manifest.json.""",
)
@click.argument("prefix")
@click.argument("root")
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
    help="Of the packed images.",
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
@click.option("--shards", type=click.IntRange(1), metavar="N", help="Cut the set into N shards.")
@click.option(
    "--shard-size",
    type=_Size(),
    metavar="SIZE",
    help="Cut the set into shards of at most 1GiB, say.",
)
@click.option(
    "--max-failures",
    type=_Failures(),
    default="0",
    metavar="N|P%",
    show_default=True,
    help="Images that may be left out before the run stops.",
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
@_if_changed
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
@_image_timeout
@_workers
@_start_method
@_fsync
@_common
def pack_command(
    prefix: str,
    root: str,
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
        from im2rec.image_ops import DEFAULT_QUALITY, ImageOptions
        from im2rec.pack import PackOptions, check_apart, check_root, dependency_file, find_lists
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
    lists = find_lists(prefix)
    _tell_workers(settings.workers, talk)
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
        check_apart(lists)
    if depfile_target and not depfile:
        raise OptionError("--depfile-target means nothing without --depfile")
    with ExitStack() as stack:
        if depfile:
            unnamed = stack.enter_context(dependency_file(depfile, lists, root, depfile_target))
            talk.some(
                (
                    f"{printable(path)}: no dependency file can hold this name; that the image "
                    "changes will not be noticed"
                    for path in unnamed
                ),
                "such names",
            )
        for path in lists:
            report = _pack_one(path, root, settings, talk)
            _print_pack_report(report, talk)
    return EXIT_DONE


def _pack_one(path: str, root: str, settings: PackOptions, talk: Talk) -> PackReport:
    """Packs one list; prints failures as they become known."""
    from im2rec.output import kept_count
    from im2rec.pack import pack_list

    with Progress(f"pack {os.path.basename(path)}", "images", talk) as bar:
        failures = _FailurePrinter(bar, talk)

        def progress(report: PackReport, done: int) -> None:
            failures.tell(report.failures)
            bar.update(done, report.rows)

        try:
            return pack_list(path, root, settings, progress=progress)
        except BaseException:
            kept = kept_count(path.removesuffix(".lst")) if settings.resume else 0
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
    recs = [name for name in report.files if name.endswith(".rec")]
    shards = f" in {len(recs)} shards" if len(recs) > 1 else ""
    talk.info(
        f"{printable(report.prefix)}: {report.packed} of {count_text(report.rows, 'image')} packed"
        f"{shards}, {size_text(report.bytes)}{'' if report.changed else ', unchanged'}"
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


# --- inspect ----------------------------------------------------------------------------------


@cli.command(
    "inspect",
    epilog="""\b
Example:
  im2rec inspect data/set_train
  im2rec inspect --json data/*.rec | jq '.[].num_training_samples'""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each REC.")
@click.option(
    "--records",
    is_flag=True,
    help="Print a line for each record: file, offset, bytes, parts, id, labels, kind, width, "
    "height, image bytes.",
)
@_common
def inspect_command(
    recs: tuple[str, ...], as_json: bool, records: bool, quiet: bool, verbose: bool
) -> int:
    """Show what is in record files: counts, labels, classes, image kinds and sizes.

    REC is a .rec file, or the prefix of a set or of its shards. An index is not needed.
    """
    with signals_held():
        from im2rec.inspection import inspect_set
        from im2rec.record_set import find_set

    talk = Talk(quiet, verbose)
    summaries = []
    for name in recs:
        found = find_set(name)
        for path in found.missing:
            talk.warn(f"{printable(path)}: this shard is not there")
        with Progress(f"inspect {os.path.basename(name)}", "B", talk) as bar:
            each = _print_record_json if as_json else _print_record
            summary = inspect_set(found, each=each if records else None, progress=bar.update)
        summaries.append(summary)
        if not summary.records and summary.damaged:
            found_none = "there is no record in it, so it is no record file"
            raise InputError(found.recs[0], found_none, "name a .rec file")
        if not summary.records:
            talk.warn(f"{printable(name)}: empty")
        if summary.damaged:
            places = count_text(summary.damaged, "place")
            talk.warn(f"{printable(name)}: damaged in {places}; see im2rec verify")
    if records:
        return EXIT_DONE
    if as_json:
        print_json([each.as_dict() for each in summaries], indent=2)
    else:
        print_data("\n".join(_summary_text(each) for each in summaries).removesuffix("\n"))
    return EXIT_DONE


def _print_record(line: RecordLine) -> None:
    from im2rec.lst import format_float32

    labels = ",".join(map(format_float32, line.labels))
    size = f"{line.width}\t{line.height}" if line.width else "-\t-"
    print_data(
        f"{printable(line.file)}\t{line.offset}\t{line.length}\t{line.parts}\t"
        f"{'?' if line.id is None else line.id}\t{labels or '-'}\t{line.kind}\t{size}\t"
        f"{line.image_bytes}"
    )


def _print_record_json(line: RecordLine) -> None:
    from dataclasses import asdict

    record = asdict(line)  # JSON has no NaN or infinity
    record["labels"] = [label if math.isfinite(label) else str(label) for label in line.labels]
    print_json(record)


def _summary_text(summary: Summary) -> str:
    rows: list[tuple[str, str]] = [("records", str(summary.records))]
    files = f" in {len(summary.files)} files" if len(summary.files) > 1 else ""
    rows.append(("bytes", f"{summary.bytes} ({size_text(summary.bytes)}){files}"))
    if summary.ids:
        rows.append(("ids", f"{summary.ids[0]} to {summary.ids[1]}"))
    widths = sorted(summary.label_widths.items())
    rows.append(("labels", ", ".join(f"{width} in {count} records" for width, count in widths)))
    rows.append(
        (
            "images",
            ", ".join(f"{count} {kind}" for kind, count in summary.kinds.most_common()) or "none",
        )
    )
    for name in ("width", "height", "image_bytes"):
        spread = getattr(summary, name)
        if spread:
            title = name.replace("_", " ")
            rows.append((title, f"{spread.min} to {spread.max}, median {spread.median}"))
    if summary.cut:
        rows.append(("cut", f"{summary.cut} records hold the magic and are in several parts"))
    if summary.without_image:
        rows.append(("without image", f"{summary.without_image} records"))
    if summary.unreadable:
        rows.append(("unreadable", f"{summary.unreadable} payloads are no image record"))
    if summary.damaged:
        rows.append(("damaged", f"{summary.damaged} places; see im2rec verify"))
    rows.append(("index", ", ".join(dict.fromkeys(summary.index))))
    if summary.joint_index:
        rows.append(("joint index", summary.joint_index))
    trainer = [f"num_training_samples={summary.num_training_samples}"]
    if summary.num_classes is not None:
        trainer.append(f"num_classes={summary.num_classes}")
    if summary.label_width is not None:
        trainer.append(f"label_width={summary.label_width}")
    rows.append(("trainer", " ".join(trainer)))
    text = f"{printable(summary.name)}\n"
    text += "".join(f"  {title:<14} {value}\n" for title, value in rows)
    for number, count in sorted((summary.class_counts or {}).items()):
        class_name = summary.name_of(number)
        text += f"  class {number:<8} {count}{'  ' + printable(class_name) if class_name else ''}\n"
    return text


# --- verify -----------------------------------------------------------------------------------


@cli.command(
    "verify",
    epilog="""\b
Example:
  im2rec verify --decode --list data/set_train.lst data/set_train""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option(
    "--list",
    "list_paths",
    metavar="LST",
    multiple=True,
    help="The list that the records must be as: ids, labels, order.",
)
@click.option("--decode", is_flag=True, help="Decode every image, too.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each REC.")
@_image_timeout
@_workers
@_start_method
@_common
def verify_command(
    recs: tuple[str, ...],
    list_paths: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Find what is wrong with record files; exit 1 if anything is.

    REC is a .rec file, or the prefix of a set or of its shards; the indexes and the manifest beside
    it are checked, too. Each problem is a line on stdout: file:offset: code: what was found. The
    first one in a file is the likely cause of the others; of one code in one file 20 are shown, all
    with -v or --json.

    Damage to the payloads' own bits (labels, an image's data) contradicts nothing: the manifest's
    sha256 shows all of it; without a manifest, --list shows that to labels, and --decode what a
    codec can tell.
    """
    from im2rec.record_set import find_set

    with signals_held():
        from im2rec.verify import VerifyOptions, verify_set

    talk = Talk(quiet, verbose)
    if list_paths and len(recs) + len(list_paths) > 2:
        raise OptionError("one --list goes with one REC")
    settings = VerifyOptions(list_path=list_paths[0] if list_paths else None, **options)
    if settings.decode:
        _tell_workers(settings.workers, talk)
    reports = []
    for name in recs:
        found = find_set(name)
        with Progress(f"verify {os.path.basename(name)}", "B", talk) as bar:
            report = verify_set(found, settings, progress=bar.update)
        reports.append(report)
        if not as_json:
            for line in _problem_lines(report.problems, None if verbose else MAX_LINES):
                print_data(line)
        _print_verify_report(report, talk)
    if as_json:
        print_json([_verify_dict(each) for each in reports], indent=2)
    return EXIT_PROBLEMS if any(report.problems for report in reports) else EXIT_DONE


def _problem_lines(problems: list[Problem], most: int | None) -> Iterator[str]:
    """A line for each problem; of one code in one file at most so many, and then their number."""
    seen: Counter[tuple[str, str]] = Counter()
    for problem in problems:
        kind = problem.code, problem.file
        seen[kind] += 1
        if most is None or seen[kind] <= most:
            yield _problem_text(problem)
    for (code, file), count in seen.items():
        if most is not None and count > most:
            more = count_text(count - most, f"more {code} problem")
            yield f"{printable(file)}: {more}; -v shows them all"


def _problem_text(problem: Problem) -> str:
    place = "" if problem.offset is None else f":{problem.offset}"
    about = "" if problem.id is None else f"id {problem.id}: "
    return f"{printable(problem.file)}{place}: {problem.code}: {about}{printable(problem.sentence)}"


def _print_verify_report(report: VerifyReport, talk: Talk) -> None:
    for path in report.unindexed:
        talk.warn(f"{printable(path)}: there is no index beside it, so none was checked")
    talk.some((f"{printable(place)}: {text}" for place, text in report.remarks), "remarks")
    state = count_text(len(report.problems), "problem") if report.problems else "no problem"
    records = count_text(report.records, "record")
    talk.info(f"{printable(report.name)}: {records}, {size_text(report.bytes)}: {state}")


def _verify_dict(report: VerifyReport) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": report.name,
        "records": report.records,
        "bytes": report.bytes,
        "unindexed": report.unindexed,
        "remarks": [{"place": place, "text": text} for place, text in report.remarks],
        "problems": [asdict(problem) for problem in report.problems],
    }
