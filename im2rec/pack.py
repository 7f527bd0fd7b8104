"""The verb pack: a list and a folder of images become a set of record files.

The list is cut into parts of a few dozen rows. Workers turn each part into framed records (a pure
function of a slice of the list and the options); this process gives each part its place, in list
order, so the bytes do not depend on how many workers there were.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from im2rec import __version__, detection, pool
from im2rec.errors import (
    InputError,
    ListError,
    NothingPacked,
    OptionError,
    OutputError,
    TooManyFailures,
)
from im2rec.face_set import PROPERTY, FaceSet, is_property, owns_property
from im2rec.identities import LAYOUTS
from im2rec.image_ops import (
    DEFAULT_QUALITY,
    IMAGE_TIMEOUT,
    INTERPOLATIONS,
    MAX_JPEG_EDGE,
    OPENCV_MAX_PIXELS,
    QUALITY_RANGE,
    ImageOptions,
    load_codecs,
    prepare_worker,
)
from im2rec.list_family import check_inside
from im2rec.lst import MAX_FAULTS, ImageList, read_list
from im2rec.output import Output
from im2rec.part import Done, Failure, Job, Packer, ShardStats, Tally, is_missing
from im2rec.record_set import (
    MANIFEST_FORMAT,
    MANIFEST_VERSION,
    find_classes,
    manifest_names,
    read_classes,
    write_manifest,
)
from im2rec.resume import AFTER_ANOTHER, OTHER_ROWS, ShardNotes, WholeShard, holding, read_notes
from im2rec.shards import Piece, SetWriter, ShardFacts

ROWS_PER_PART = 64  # most rows that a worker takes at a time; some 0.1 s of work, 1-10 MB of bytes
PARTS = 128  # at least, where there are as many rows: no worker waits long for the last one
LOOKED_AT = 100  # rows that tell what the labels of a list are
BEHIND = 1 << 25  # bytes; a worker that has more to read for a digest packs nothing meanwhile


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How a list is packed.

    image: what is done to each picture. pack_label: store every label; False stores the first.
    label_width: labels that every row must have, None = any. detection: every row's labels must be
    those of a picture with boxes, and nothing is done that would falsify them. allow_outside_root:
    follow paths that leave ROOT. shards, shard_size: at most one of them; shard_size in bytes.
    max_failures: images that may be left out; with `failures_are_percent` a percentage of the rows.
    workers: as `pool.worker_count` takes it. start_method: of multiprocessing; None = the fastest
    safe one. image_timeout: seconds that one image may take; 0 = any. resume: keep whole shards if
    the run is stopped, and begin with those that an earlier one kept. layout: "insightface" adds
    InsightFace's records of identities and a file `property` to a list that is in their order.
    if_changed: leave a file of an older set alone that has the same bytes. fsync: flush to disk
    before a name becomes final.
    """

    image: ImageOptions = field(default_factory=ImageOptions)
    pack_label: bool = True
    label_width: int | None = None
    detection: bool = False
    allow_outside_root: bool = False
    shards: int | None = None
    shard_size: int | None = None
    max_failures: float = 0
    failures_are_percent: bool = False
    workers: int | None = None
    start_method: str | None = None
    image_timeout: float = IMAGE_TIMEOUT
    resume: bool = False
    layout: str = "plain"
    if_changed: bool = False
    fsync: bool = True


@dataclass(kw_only=True)
class PackReport(Tally):
    """What came of packing one list. rows = packed + failed.

    resumed: shards that a stopped run had kept; unused: how many of those were packed again, by the
    reason why. files: the set's names, in PREFIX's folder; changed: those that were written.
    identities: how many the set has in InsightFace's layout.
    """

    list_path: str
    prefix: str
    rows: int
    pass_through: bool = False
    bytes: int = 0
    resumed: int = 0
    unused: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    identities: int = 0


Progress = Callable[[PackReport, int], None]  # the report so far, and how many rows are done


def _no_progress(_: PackReport, __: int) -> None:
    pass


def check_root(root: str) -> None:
    """Raises InputError where ROOT is no folder."""
    if not os.path.isdir(root):
        found = "is not a folder" if os.path.exists(root) else "there is no such folder"
        raise InputError(root, f"ROOT: {found}", "the order is PREFIX ROOT")


def pack_list(
    list_path: str,
    root: str,
    options: PackOptions,
    *,
    prefix: str | None = None,
    progress: Progress = _no_progress,
) -> PackReport:
    """Packs one list into PREFIX.rec, .idx and .manifest.json, or shards; all of them or none.

    list_path: the `.lst`; root: the folder its paths start from; prefix: of the files to write,
    None = the list's own path without `.lst`; progress: called when the work begins and after every
    part. Images that cannot be packed are in the report and in PREFIX.failures.tsv.

    Raises OptionError, InputError and ListError before any work; TooManyFailures, NothingPacked,
    WorkerError and OutputError later, when nothing is published.
    """
    _check_options(options)
    check_root(root)
    images = read_list(list_path)
    _check_list(images, root, options)
    prefix = list_path.removesuffix(".lst") if prefix is None else prefix
    report = PackReport(
        list_path=list_path,
        prefix=prefix,
        rows=len(images),
        pass_through=options.image.pass_through,
    )
    class_map = find_classes(list_path.removesuffix(".lst"))
    classes = read_classes(class_map) if class_map else None
    if not images:
        raise NothingPacked(list_path, 0, 0, root)
    faces = _face_set(images, prefix) if options.layout == "insightface" else None
    with (
        Output(
            prefix, fsync=options.fsync, keep=options.resume, longest=".manifest.json"
        ) as output,
        SetWriter(output, options.shard_size) as writer,
    ):
        progress(report, 0)
        digests = _pack_parts(images, root, options, output, writer, report, faces, progress)
        if not report.packed:
            raise NothingPacked(list_path, report.rows, report.rows, root)
        shards, files = writer.finish(digests)
        report.bytes = sum(shard.bytes for shard in shards)
        stem = output.stem
        if report.failures:
            name = f"{stem}.failures.tsv"
            files[name] = output.write(name, _failure_rows(report.failures))
        name = f"{stem}.manifest.json"
        contents = _manifest(images, options, report, shards, classes)
        if faces:
            report.identities = len(faces)
            contents["identity_records"] = faces.records
            contents["label_widths"]["2"] = faces.records  # first and last key
            files[PROPERTY] = output.write(PROPERTY, faces.property_line())
        files[name] = output.write(name, write_manifest(contents))
        older = {*manifest_names(prefix), f"{stem}.failures.tsv", f"{stem}.rec"}
        if owns_property(prefix):
            older.add(PROPERTY)
        report.files = tuple(files)
        report.changed = tuple(output.publish(files, older, if_changed=options.if_changed))
    return report


def _face_set(images: ImageList, prefix: str) -> FaceSet:
    """What InsightFace's layout adds to a list. Raises InputError, and OutputError where a file
    stands in the way of `property`."""
    path = os.path.join(os.path.dirname(prefix), PROPERTY)
    if os.path.lexists(path) and not is_property(path):
        raise OutputError(path, "it is there, and is no property file of InsightFace", "move it")
    return FaceSet(images)


def _check_options(options: PackOptions) -> None:
    image = options.image
    if image.encoding not in QUALITY_RANGE:
        raise OptionError(
            f"encoding {image.encoding!r}, expected one of {', '.join(QUALITY_RANGE)}"
        )
    low, high = QUALITY_RANGE[image.encoding]
    if not low <= image.quality <= high:
        raise OptionError(
            f"quality {image.quality}: {image.encoding} takes {low} to {high} "
            f"(default {DEFAULT_QUALITY[image.encoding]})"
        )
    if image.interpolation not in INTERPOLATIONS:
        raise OptionError(f"interpolation {image.interpolation!r} is none of {[*INTERPOLATIONS]}")
    if image.dct_scaling and not image.pass_through:
        if not image.resize:
            raise OptionError("--dct-scaling means nothing without --resize")
        if image.interpolation != "area":
            raise OptionError(f"--dct-scaling reduces by area, not by {image.interpolation}")
        if image.color == -1:
            raise OptionError(
                "--dct-scaling needs --color 0 or 1: as stored, a JPEG cannot be scaled"
            )
    if image.color not in (-1, 0, 1):
        raise OptionError(f"color {image.color}, expected -1, 0 or 1")
    if image.resize < 0:
        raise OptionError(f"resize {image.resize}, expected the short edge in pixels, or 0")
    if image.resize**2 > image.max_pixels or (
        image.encoding == ".jpg" and image.resize > MAX_JPEG_EDGE
    ):
        raise OptionError(f"resize {image.resize}: no image of that size can be packed")
    if not 1 <= image.max_pixels <= OPENCV_MAX_PIXELS:
        raise OptionError(f"max-pixels {image.max_pixels}, expected 1 to {OPENCV_MAX_PIXELS}")
    if options.detection and image.center_crop:
        raise OptionError("--detection excludes --center-crop: the boxes would be wrong")
    if options.detection and not options.pack_label:
        raise OptionError("--detection excludes --no-pack-label: the boxes are labels")
    if options.shards is not None and options.shard_size is not None:
        raise OptionError("--shards and --shard-size exclude each other")
    for name in ("shards", "shard_size", "workers", "label_width"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise OptionError(f"{name} {value}, expected at least 1")
    if options.resume and options.shards is None and options.shard_size is None:
        raise OptionError("--resume goes on by whole shards: it needs --shards or --shard-size")
    if not options.image_timeout >= 0:
        raise OptionError(f"image-timeout {options.image_timeout}, expected seconds, or 0 for none")
    if options.layout not in LAYOUTS:
        raise OptionError(f"layout {options.layout!r} is none of {[*LAYOUTS]}")
    if options.layout != "plain":
        if options.shards is not None or options.shard_size is not None:
            raise OptionError("--layout insightface is one file; its readers take no shards")
        if options.max_failures:
            raise OptionError(
                "--layout insightface leaves no hole in the keys, so that no image may fail: take "
                "those that do out of ROOT and list anew"
            )
    if options.max_failures < 0 or (options.failures_are_percent and options.max_failures > 100):
        raise OptionError(f"max-failures {options.max_failures}, expected N >= 0, or 0% to 100%")


def _check_list(images: ImageList, root: str, options: PackOptions) -> None:
    """What the options ask of a list. Raises InputError, and ListError for labels that are no
    boxes."""
    if options.detection:
        check_boxes(images)
    width = options.label_width
    others = sorted(set(images.label_widths) - {width})
    if width is not None and others:
        count = sum(images.label_widths[other] for other in others)
        raise InputError(
            images.path,
            f"{count} of {len(images)} rows have {', '.join(map(str, others))} labels, expected "
            f"--label-width {width}",
        )
    if images and options.shards is not None and options.shards > len(images):
        raise InputError(
            images.path,
            f"{len(images)} rows cannot fill --shards {options.shards}; a shard is never empty",
        )
    if images.leaves_root and not options.allow_outside_root:
        check_inside(images, root)


def are_boxes(images: ImageList) -> bool:
    """Whether a list looks like one of pictures with boxes: its first rows all are sound ones."""
    first = list(images.rows(0, min(len(images), LOOKED_AT)))
    return bool(first) and not any(detection.check(entry.labels) for entry in first)


def check_boxes(images: ImageList) -> None:
    """Raises ListError where a row's labels are not those of a picture with boxes."""
    faults: list[tuple[int, str]] = []
    count = 0
    for line, entry in images.numbered():
        fault = detection.check(entry.labels)
        if fault:
            count += 1
            if len(faults) < MAX_FAULTS:
                faults.append((line, fault))
    if count:
        raise ListError(images.path, tuple(faults), count)


class _Slice(NamedTuple):
    """The rows first..last-1, counted from 0, to be packed as one part."""

    first: int
    last: int


class _Joiner:
    """Gives the parts of a list to workers and brings what comes of them into list order.

    The parts are packed in any order and held by their workers. As soon as all before it are known,
    a part gets its place in the set, and its worker writes it there when it is next free. plan: the
    parts, and the shards that are there already, in list order; notes: what is told of shards that
    are whole; faces: what follows the images in InsightFace's layout; work: the folder for what
    memory cannot hold.
    """

    def __init__(
        self,
        images: ImageList,
        root: str,
        options: PackOptions,
        writer: SetWriter,
        report: PackReport,
        progress: Progress,
        *,
        workers: int,
        plan: Iterator[_Slice | WholeShard],
        notes: ShardNotes | None,
        faces: FaceSet | None,
        work: str,
    ) -> None:
        self._images, self._root, self._options = images, root, options
        self._writer, self._report, self._progress = writer, report, progress
        self._plan, self._notes, self._faces, self._work = plan, notes, faces, work
        self._next = next(plan, None)
        self._allowed = _allowed_failures(options, len(images))
        self._ahead = workers * pool.IN_FLIGHT
        self._handed = self._placed = 0  # items of the plan handed out; those that have their place
        # Known and not yet placed: worker, job and stats of a part; or a shard that is there.
        self._known: dict[int, tuple[int, Job, ShardStats] | WholeShard] = {}
        self._orders: defaultdict[int, list[tuple[int, tuple[Piece, ...]]]] = defaultdict(list)
        self._readers: dict[str, int] = {}  # the worker that makes a file's digest
        self._rows_done = 0
        self.digests: dict[str, str] = {}

    def job_for(self, worker: int) -> Job | None:
        """What an idle worker is to do now."""
        while isinstance(self._next, WholeShard):
            self._known[self._handed] = self._next
            self._hand_out()
        self._place_known()
        place = tuple(self._orders.pop(worker, ()))
        digest = self._writer.digest_steps(
            lambda file: self._readers.setdefault(file, worker) == worker
        )
        job = Job(place, digest)
        is_behind = sum(step.end - step.start for step in digest) > BEHIND
        if self._next and self._handed - self._placed < self._ahead and not is_behind:
            first, last = self._next
            job = Job(place, digest, self._handed, self._images.lines(first, last), first, last)
            self._hand_out()
        return job if job.place or job.digest or job.rows else None

    def _hand_out(self) -> None:
        self._handed += 1
        self._next = next(self._plan, None)

    def take(self, worker: int, job: Job, done: Done) -> None:
        """Takes what came of a job. Raises TooManyFailures, and NothingPacked for a wrong ROOT."""
        for _, pieces in job.place:
            self._writer.written(pieces)
        for file, sha256 in done.digests.items():
            self.digests[file] = sha256
            if self._notes:
                self._notes.whole(file, sha256)
        if done.stats is not None:
            self._known[job.part] = worker, job, done.stats
        self._place_known()

    def _place_known(self) -> None:
        """Gives their places to all items of which nothing before them is unknown."""
        while self._placed in self._known:
            item = self._known.pop(self._placed)
            self._placed += 1
            if isinstance(item, WholeShard):
                self._adopt(item)
            else:
                self._place(*item)
            self._progress(self._report, self._rows_done)
            self._check_failures()
            if self._rows_done == len(self._images):
                if self._faces:
                    self._faces.write_records(self._writer, self._work)
                self._writer.end()

    def _place(self, worker: int, job: Job, stats: ShardStats) -> None:
        """Gives a part its place, and counts it."""
        number = _shard_of(job.first, len(self._images), self._options)
        pieces = self._writer.place([(row.id, row.size) for row in stats.packed], number)
        self._orders[worker].append((job.part, pieces))
        if self._notes:
            self._notes.placed(number, job.first, job.last, stats, pieces)
        if self._faces:
            self._faces.take(stats)
        self._report.count(stats.packed, stats.failures, stats.remarks)
        self._rows_done = job.last

    def _adopt(self, whole: WholeShard) -> None:
        """Takes a shard that is there already, and counts it."""
        self.digests[self._writer.adopt(whole.stem, whole.number)] = whole.rec_sha256
        if self._notes:
            self._notes.adopted(whole)
        self._report.add(whole.tally)
        self._report.resumed += 1
        self._rows_done = whole.last

    def _check_failures(self) -> None:
        report = self._report
        if report.failed > self._allowed:
            path, rows = self._images.path, report.rows
            if not report.packed and all(map(is_missing, report.failures)):
                raise NothingPacked(path, report.failed, rows, self._root)
            raise TooManyFailures(path, report.failed, self._allowed, rows)


def _pack_parts(
    images: ImageList,
    root: str,
    options: PackOptions,
    output: Output,
    writer: SetWriter,
    report: PackReport,
    faces: FaceSet | None,
    progress: Progress,
) -> dict[str, str]:
    """Packs every row into the files that the writer plans; the sha256 of each. The report says how
    far it came."""
    workers = min(pool.worker_count(options.workers), len(images))
    notes = None
    there: list[WholeShard] = []
    if options.resume:
        settings = _settings(root, options)
        notes = ShardNotes(images, settings, output)
        rows = 0
        unused: dict[str, str] = {}
        with closing(
            _find_whole(images, root, options, output, settings, unused, workers)
        ) as found:
            for whole in found:
                if options.shards is None and whole.first != rows:
                    break  # behind one that is not there, the borders of all may have moved
                there.append(whole)
                rows += whole.last - whole.first
                progress(report, rows)
        others = output.notes().keys() - {whole.stem for whole in there}
        report.unused = dict(Counter(unused.get(stem, AFTER_ANOTHER) for stem in sorted(others)))
        for stem in others:
            output.forget(stem)
    joiner = _Joiner(
        images,
        root,
        options,
        writer,
        report,
        progress,
        workers=workers,
        plan=_plan(len(images), options, there),
        notes=notes,
        faces=faces,
        work=output.work,
    )

    with pool.Pool(
        Packer(root, options.image, options.pack_label, output.work, output.prefix),
        setup=partial(prepare_worker, options.image),
        preload=partial(load_codecs, options.image),
        workers=workers,
        start_method=options.start_method,
        name=lambda row: _path_of(images, row),
        folder=output.work,
        seconds=options.image_timeout or None,
    ) as crew:
        while True:
            for worker in crew.idle():
                job = joiner.job_for(worker)
                if job:
                    crew.start(worker, job)
            if not crew.is_busy:
                return joiner.digests
            for worker, job, done in crew.wait():
                joiner.take(worker, job, done)


def _path_of(images: ImageList, row: int) -> str:
    return next(images.rows(row, row + 1)).path


def _find_whole(
    images: ImageList,
    root: str,
    options: PackOptions,
    output: Output,
    settings: str,
    unused: dict[str, str],
    workers: int,
) -> Generator[WholeShard, None, None]:
    """The shards of a stopped run that would be the same in this one, as each is looked at. unused:
    gets the stems of the others, and why."""
    found = []
    for whole in read_notes(output, settings, unused):
        rows = whole.first, whole.last
        if whole.number is None or rows == _shard_rows(whole.number, len(images), options):
            found.append(whole)
        else:
            unused[whole.stem] = OTHER_ROWS
    return holding(
        found,
        images,
        root,
        output.work,
        unused,
        workers=workers,
        start_method=options.start_method,
        seconds=options.image_timeout or None,
        name=lambda row: _path_of(images, row),
    )


def _settings(root: str, options: PackOptions) -> str:
    """What decides on the bytes of a set beside its list and the files, as one word."""
    decides = [_made_by(), _deciding(options), os.path.abspath(root)]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _allowed_failures(options: PackOptions, rows: int) -> int:
    if options.failures_are_percent:
        return int(rows * Fraction(str(options.max_failures)) / 100)
    return int(options.max_failures)


def _plan(
    rows: int, options: PackOptions, there: list[WholeShard]
) -> Iterator[_Slice | WholeShard]:
    """The list in order: the shards that are there, and the rows between them in slices."""
    if options.shards is None:
        yield from there
        yield from _slices(there[-1].last if there else 0, rows, rows)
        return
    by_number = {whole.number: whole for whole in there}
    for number in range(options.shards):
        if number in by_number:
            yield by_number[number]
        else:
            yield from _slices(*_shard_rows(number, rows, options), rows)


def _slices(first: int, last: int, rows: int) -> Iterator[_Slice]:
    """The rows first..last-1 in slices; of the same size for any number of workers, for failures
    are judged part by part. rows: of the list."""
    size = max(1, min(ROWS_PER_PART, rows // PARTS))
    for begin in range(first, last, size):
        yield _Slice(begin, min(begin + size, last))


def _shard_rows(number: int, rows: int, options: PackOptions) -> tuple[int, int]:
    """The rows first..last-1 of a shard under --shards."""
    count = options.shards or 1
    return rows * number // count, rows * (number + 1) // count


def _shard_of(row: int, rows: int, options: PackOptions) -> int | None:
    """The number of the shard that a row belongs to under --shards; None where size decides."""
    if options.shards is None:
        return None
    return ((row + 1) * options.shards - 1) // rows


def _failure_rows(failures: list[Failure]) -> bytes:
    return "".join([f"{each.id}\t{each.path}\t{each.reason}\n" for each in failures]).encode()


def _manifest(
    images: ImageList,
    options: PackOptions,
    report: PackReport,
    shards: list[ShardFacts],
    classes: list[str] | None,
) -> dict[str, Any]:
    """What the set is and how it was made: nothing in it depends on the machine or the time."""
    return {
        "format": MANIFEST_FORMAT,
        "version": MANIFEST_VERSION,
        **_made_by(),
        "options": _deciding(options),
        "list": {"file": os.path.basename(images.path), "sha256": images.sha256},
        "rows": report.rows,
        "packed": report.packed,
        "failed": report.failed,
        "label_widths": {str(width): count for width, count in sorted(report.label_widths.items())},
        "classes": classes,
        "joint_index": f"{os.path.basename(report.prefix)}.idx" if len(shards) > 1 else None,
        "shards": [asdict(shard) for shard in shards],
    }


def _made_by() -> dict[str, Any]:
    codecs = {"opencv": version("opencv-python-headless"), "pillow": version("pillow")}
    return {"im2rec": __version__, "codecs": codecs}


def _deciding(options: PackOptions) -> dict[str, Any]:
    """The options that decide on a set's bytes."""
    return {
        **asdict(options.image),
        "pack_label": options.pack_label,
        "shards": options.shards,
        "shard_size": options.shard_size,
        "layout": options.layout,
    }
