"""`im2rec verify`: its options, and how problems are printed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from im2rec.cli.options import Name, common, image_timeout, start_method, tell_workers, workers
from im2rec.errors import OptionError, printable
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
    size_text,
)

if TYPE_CHECKING:
    from im2rec.verify import Problem, VerifyReport

# The names in readers.READERS, which must not be loaded for --help.
READERS = (
    "mxnet",
    "dali",
    "rocal",
    "sagemaker-classification",
    "sagemaker-detection",
    "insightface",
    "gluoncv-detection",
)


@click.command(
    "verify",
    epilog="""\b
Example:
  im2rec verify --decode --list data/set_train.lst data/set_train""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option(
    "--list",
    "list_paths",
    type=Name(),
    metavar="LST",
    multiple=True,
    help="The list that the records must be as: ids, labels, order.",
)
@click.option(
    "--for",
    "readers",
    type=click.Choice(READERS),
    multiple=True,
    help="Check what this reader asks for, too; repeat for more.",
)
@click.option("--decode", is_flag=True, help="Decode every image, too.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each REC.")
@image_timeout
@workers
@start_method
@common
def verify_command(
    recs: tuple[str, ...],
    list_paths: tuple[str, ...],
    as_json: bool,
    readers: tuple[str, ...],
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
    list_path = list_paths[0] if list_paths else None
    settings = VerifyOptions(list_path=list_path, readers=readers, **options)
    if settings.decode:
        tell_workers(settings.workers, talk)
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
    if report.manifest is None:
        talk.warn(
            f"{printable(report.name)}: there is no manifest beside it, so its bytes were not "
            "compared with those that were packed"
        )
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
        "manifest": report.manifest,
        "unindexed": report.unindexed,
        "remarks": [{"place": place, "text": text} for place, text in report.remarks],
        "problems": [asdict(problem) for problem in report.problems],
    }
