"""`im2rec make-list`: its options, and what is printed of its report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from im2rec.cli.options import common, fsync, if_changed
from im2rec.errors import printable
from im2rec.interrupts import signals_held
from im2rec.terminal import EXIT_DONE, EXIT_PROBLEMS, MAX_LINES, Talk, count_text, say_error

if TYPE_CHECKING:
    from im2rec.labelling import Labelled
    from im2rec.make_list import ListReport


def _extensions(values: tuple[str, ...]) -> tuple[str, ...]:
    """--exts as given: repeated or with commas, as jpg, .JPG or *.jpg."""
    names = [name.lower().lstrip("*.") for value in values for name in re.split("[, ]+", value)]
    return tuple(dict.fromkeys(f".{name}" for name in names if name))


@click.command(
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
@click.option("--seed", type=int, default=100, show_default=True, help="Seed of the shuffle.")
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
@click.option(
    "--layout",
    type=click.Choice(["plain", "insightface"]),
    default="plain",
    show_default=True,
    help="insightface: each list in the order of its classes, with ids from 1, as `im2rec pack "
    "--layout insightface` takes it.",
)
@click.option(
    "--labels",
    metavar="FILE",
    help="A .csv or .tsv with a path and its labels a row, in the place of class folders.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the table's first row is its header.  [default: where that is clear]",
)
@click.option(
    "--detection",
    metavar="FILE|DIR",
    help="Boxes for a detection list: a COCO file (.json), or a Pascal VOC folder.",
)
@click.option(
    "--image-set",
    metavar="NAME",
    help="VOC: list only the images that ImageSets/Main/NAME.txt names.",
)
@click.option(
    "--missing",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    show_default=True,
    help="Images that --labels or --detection name and that are not in ROOT.",
)
@click.option(
    "--negatives",
    type=click.Choice(["drop", "pad", "fail"]),
    default="drop",
    show_default=True,
    help="Images without an object; pad: a row `2 5 -1 0 0 0 0`, for MXNet's ImageDetRecordIter; "
    "few other readers take it.",
)
@click.option(
    "--bad-boxes",
    type=click.Choice(["fail", "drop"]),
    default="fail",
    show_default=True,
    help="Boxes without area, or over a pixel beyond the picture, and objects without a box.",
)
@click.option(
    "--difficult",
    type=click.Choice(["keep", "drop", "column"]),
    default="keep",
    show_default=True,
    help="VOC's difficult objects; column: a sixth number of each object tells.",
)
@if_changed
@fsync
@common
def make_list_command(
    prefix: str, root: str, exts: tuple[str, ...], quiet: bool, verbose: bool, **options: Any
) -> int:
    """List ROOT's images, class by class, in PREFIX.lst.

    The folders directly under ROOT are the classes, in code point order from 0, as torchvision's
    ImageFolder has them; their names go to PREFIX.classes.txt. With ratios or chunks there are
    several lists, and each image is in exactly one.

    With --labels or --detection the labels come from a file, and the rows stand in its order.
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
        noun = "object" if report.labelled and report.labelled.objects else "image"
        for number, name in enumerate(report.classes):
            count = report.class_counts[number]
            talk.details(f"class {number} {printable(name)}: {count_text(count, noun)}")
    if report.labelled:
        _print_labelled(report.labelled, talk)
    if report.older_classes:
        talk.warn(
            f"{printable(report.older_classes)}: the labels are numbers; `im2rec pack` takes the "
            "names in this file for them, so remove it if it is of others"
        )
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


def _print_labelled(found: Labelled, talk: Talk) -> None:
    source = printable(found.source)
    if found.header is not None:
        talk.info(f"{source}: its first row is its header: {printable(found.header)}")
    if found.objects:
        talk.info(
            f"{source}: {count_text(found.objects, 'object')}, label_width {found.label_width}"
        )
    if found.difficult:
        talk.info(f"{source}: {count_text(found.difficult, 'object')} marked as difficult")
    if found.without_row:
        talk.info(
            f"passed over: {count_text(found.without_row, 'image')} that {source} does not name"
        )
    if found.missing:
        images = count_text(len(found.missing), "image")
        talk.warn(f"left out: {images} named by {source} and not in ROOT (--missing)")
        for name in found.missing:
            talk.details(f"{printable(name)}: left out: not in ROOT")
    if found.crowd:
        talk.info(f"left out: {count_text(found.crowd, 'box')} around crowds (iscrowd)")
    if found.negatives:
        what = "listed with the pad" if found.padded else "left out (--negatives)"
        talk.warn(f"{count_text(found.negatives, 'image')} without an object: {what}")
    if found.emptied:
        images = count_text(found.emptied, "image")
        talk.warn(f"left out: {images} whose objects were all left out")
    if found.turned:
        images = count_text(found.turned, "image")
        talk.warn(f"{images} with an EXIF turn: boxes are taken for those of the turned picture")
    if found.clipped:
        boxes = count_text(found.clipped, "box")
        talk.warn(f"clipped: {boxes} that reached up to a pixel beyond the picture")
    if found.bad:
        boxes = count_text(found.bad, "box")
        talk.warn(f"left out: {boxes} without area or beyond the picture")
    if found.without_box:
        talk.warn(f"left out: {count_text(found.without_box, 'object')} without a box")
    if found.doubled:
        categories = count_text(found.doubled, "category")
        talk.warn(
            f"{source}: left out: {categories} without an object and with the name of another; "
            "the class stands once, where the lower id is"
        )
