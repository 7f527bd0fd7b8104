"""`im2rec inspect`: its options, and how a summary is printed."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import click

from im2rec.cli.options import common
from im2rec.errors import InputError, printable
from im2rec.interrupts import signals_held
from im2rec.terminal import (
    EXIT_DONE,
    Progress,
    Talk,
    count_text,
    print_data,
    print_json,
    size_text,
)

if TYPE_CHECKING:
    from im2rec.inspection import RecordLine, Summary


@click.command(
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
@common
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
    if summary.without_image and not summary.identities:
        bare = "records without an image end MXNet's iterators, DALI and SageMaker"
        rows.append(("readers", bare))
    for reader, options in summary.reader_options().items():
        title, _, task = reader.partition("-")
        those = ", ".join(f"{name}={value!r}" for name, value in options.items())
        rows.append((title, printable(f"{task}: {those}" if task else those)))
    text = f"{printable(summary.name)}\n"
    text += "".join(f"  {title:<14} {value}\n" for title, value in rows)
    for number, count in sorted((summary.class_counts or {}).items()):
        class_name = summary.name_of(number)
        text += f"  class {number:<8} {count}{'  ' + printable(class_name) if class_name else ''}\n"
    for number, count in sorted((summary.object_counts or {}).items()):
        class_name = summary.name_of(number)
        objects = count_text(count, "object")
        text += (
            f"  class {number:<8} {objects}{'  ' + printable(class_name) if class_name else ''}\n"
        )
    return text
