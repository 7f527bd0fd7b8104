"""Going on after a stopped run: which shards are used again, and that the bytes are the same."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import CLEAN, Run
from processes import wait_for

from im2rec import resume
from im2rec.errors import OptionError, OutputError, TooManyFailures
from im2rec.image_ops import ImageOptions
from im2rec.lst import ImageList
from im2rec.output import NOTE, Output, kept_count
from im2rec.pack import PackOptions, PackReport, pack_list

PICTURES = sorted(path for path in CLEAN.rglob("*") if path.suffix in (".jpg", ".png"))
ROWS = 60
BROKEN = ROWS - 1  # the row at which the first run is stopped
BY_NUMBER = PackOptions(ImageOptions(pass_through=True), shards=6, workers=1, fsync=False)
BY_SIZE = replace(BY_NUMBER, shards=None, shard_size=40_000)
RESUME = {"resume": True}


class Set:
    """A folder of images with its list, and a copy of both to pack in one go."""

    def __init__(self, folder: Path) -> None:
        self.root, self.list = folder / "root", folder / "set.lst"
        self.work = folder / ".set.im2rec"
        self.folder = folder
        self.root.mkdir()
        for row in range(ROWS):
            shutil.copy(PICTURES[row % len(PICTURES)], self.image(row))
        self.write([f"{row}\t{row % 3}\t{row}.img\n" for row in range(ROWS)])

    def image(self, row: int) -> Path:
        return self.root / f"{row}.img"

    def rows(self) -> list[str]:
        return self.list.read_text("utf-8").splitlines(keepends=True)

    def write(self, rows: list[str]) -> None:
        self.list.write_text("".join(rows), encoding="utf-8")

    def pack(self, options: PackOptions) -> PackReport:
        return pack_list(str(self.list), str(self.root), options)

    def stop(self, options: PackOptions) -> None:
        """Packs until the last row, which is damaged, and mends it: all shards but the last are
        whole."""
        whole = self.image(BROKEN).read_bytes()
        self.image(BROKEN).write_bytes(whole[:500])
        with pytest.raises(TooManyFailures):
            self.pack(replace(options, resume=True))
        self.image(BROKEN).write_bytes(whole)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("set*")}

    def notes(self) -> list[Path]:
        return sorted(self.work.glob("*" + NOTE), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def images(tmp_path: Path) -> Set:
    return Set(tmp_path)


def assert_same_as_in_one_go(images: Set, options: PackOptions, report: PackReport) -> None:
    resumed = images.files()
    assert not images.work.exists()
    for name in resumed.keys() - {"set.lst"}:
        (images.folder / name).unlink()
    fresh = images.pack(replace(options, resume=False))
    assert images.files() == resumed
    assert replace(report, resumed=0, unused={}) == fresh


@pytest.mark.parametrize("options", [BY_NUMBER, BY_SIZE], ids=["by number", "by size"])
def test_whole_shards_are_used_again(images: Set, options: PackOptions) -> None:
    images.stop(options)
    kept = kept_count(str(images.folder / "set"))
    assert kept >= 4
    report = images.pack(replace(options, resume=True))
    assert report.resumed == kept
    assert_same_as_in_one_go(images, options, report)


def touch(path: Path) -> None:
    os.utime(path, ns=(0, 1_000_000_007))


def relabel(images: Set, row: int) -> None:
    rows = images.rows()
    rows[row] = f"{row}\t7\t{row}.img\n"
    images.write(rows)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


CHANGES: dict[str, Callable[[Set, int], object]] = {
    "a row": lambda images, row: relabel(images, row),
    "the time of a file": lambda images, row: touch(images.image(row)),
    "the size of a file": lambda images, row: shutil.copy(PICTURES[0], images.image(row)),
    "a file that is gone": lambda images, row: images.image(row).unlink(),
    "a shard's bytes": lambda images, _: flip(images.notes()[1].with_suffix(".rec")),
    "a shard's length": lambda images, _: shorten(images.notes()[1].with_suffix(".rec")),
    "a shard's index": lambda images, _: shorten(images.notes()[1].with_suffix(".idx")),
    "a shard that is gone": lambda images, _: images.notes()[1].with_suffix(".rec").unlink(),
    "a note": lambda images, _: images.notes()[1].write_bytes(b"\0" * 100),
    "a note that is a number": lambda images, _: images.notes()[1].write_bytes(b"5"),
    "a note without a tally": lambda images, _: edit(images.notes()[1], tally=None),
    "a note in which someone wrote": lambda images, _: images.notes()[1].write_bytes(
        images.notes()[1].read_bytes().replace(b'"packed": ', b'"packed": 5')
    ),
    "a shard that is a link": lambda images, _: link(images.notes()[1].with_suffix(".rec")),
    "a note that is a link": lambda images, _: link(images.notes()[1]),
    "a note that is a FIFO": lambda images, _: pipe(images.notes()[1]),
    "a shard that is a FIFO": lambda images, _: pipe(images.notes()[1].with_suffix(".rec")),
    "a note's end": lambda images, _: shorten(images.notes()[1]),
}


WHY = {
    "a row": resume.OTHER_ROWS,
    "the time of a file": resume.OTHER_SOURCES,
    "the size of a file": resume.OTHER_SOURCES,
    "a file that is gone": resume.OTHER_SOURCES,
    "a note": resume.BAD_NOTE,
    "a note that is a number": resume.BAD_NOTE,
    "a note without a tally": resume.BAD_NOTE,
    "a note in which someone wrote": resume.BAD_NOTE,
    "a note's end": resume.BAD_NOTE,
    "a note that is a link": None,  # which is no note of ours
    "a note that is a FIFO": None,
}


def reasons(options: PackOptions, change: str, count: int) -> dict[str, int]:
    """Why as many shards are not used, of which one has changed."""
    why = WHY.get(change, resume.OTHER_BYTES)
    found = {why: 1} if why else {}
    if options.shard_size and count > 1:
        found[resume.AFTER_ANOTHER] = count - 1
    return found


def link(path: Path) -> None:
    path.rename(path.parent.parent / "away")
    path.symlink_to("../away")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def edit(path: Path, **members: object) -> None:
    note = json.loads(path.read_bytes().splitlines()[0])
    body = json.dumps({**note, **members}).encode()
    path.write_bytes(body + resume._seal(body))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("options", [BY_NUMBER, BY_SIZE], ids=["by number", "by size"])
def test_what_has_changed_is_packed_again(images: Set, options: PackOptions, change: str) -> None:
    """All of it is in the second shard of the set."""
    options = replace(options, max_failures=1)
    images.image(BROKEN - 1).unlink()
    images.stop(options)
    shutil.copy(PICTURES[0], images.image(BROKEN - 1))
    kept = len(images.notes())
    row = len(images.notes()[0].with_suffix(".idx").read_bytes().splitlines()) + 1
    CHANGES[change](images, row)
    report = images.pack(replace(options, resume=True))
    assert report.resumed == (1 if options.shard_size else kept - 1)
    assert report.unused == reasons(options, change, kept - report.resumed)
    assert_same_as_in_one_go(images, options, report)


def test_under_other_options_nothing_is_used_again(images: Set) -> None:
    for other in (
        replace(BY_NUMBER, pack_label=False),
        replace(BY_NUMBER, shards=5),
        replace(BY_NUMBER, image=ImageOptions(quality=80)),
        BY_SIZE,
    ):
        images.stop(BY_NUMBER)
        kept = len(images.notes())
        report = images.pack(replace(other, resume=True))
        assert (report.resumed, report.unused) == (0, {resume.OTHER_SETTINGS: kept})
        assert_same_as_in_one_go(images, other, report)


def test_the_row_that_closed_a_shard_by_its_size_decides_on_it(images: Set, tmp_path: Path) -> None:
    """It is in the next shard, and would be in this one if it were smaller."""
    images.stop(BY_SIZE)
    first = images.notes()[0].with_suffix(".idx")
    in_first = len(first.read_bytes().splitlines())
    size = first.with_suffix(".rec").stat().st_size
    cv2.imwrite(str(tmp_path / "tiny.png"), np.zeros((1, 1, 3), np.uint8))
    assert BY_SIZE.shard_size
    assert (tmp_path / "tiny.png").stat().st_size + 40 < BY_SIZE.shard_size - size
    shutil.copy(tmp_path / "tiny.png", images.image(in_first))
    report = images.pack(replace(BY_SIZE, resume=True))
    assert report.resumed == 0
    assert len((tmp_path / "set_000.idx").read_bytes().splitlines()) > in_first
    assert_same_as_in_one_go(images, BY_SIZE, report)


def test_a_list_that_has_shrunk(images: Set) -> None:
    for options in (BY_NUMBER, BY_SIZE):
        rows = images.rows()
        images.stop(options)
        images.write(rows[:20])
        report = images.pack(replace(options, resume=True))
        assert report.resumed == (0 if options is BY_NUMBER else report.resumed)
        assert_same_as_in_one_go(images, options, report)
        images.write(rows)


def test_what_someone_put_into_the_work_folder_is_cleared(images: Set) -> None:
    images.stop(BY_NUMBER)
    kept = len(images.notes())
    (images.work / "folder").symlink_to(images.root)
    (images.work / "nowhere.whole").symlink_to("nowhere")
    report = images.pack(replace(BY_NUMBER, resume=True))
    assert report.resumed == kept
    assert images.image(0).exists()
    assert_same_as_in_one_go(images, BY_NUMBER, report)


@pytest.mark.parametrize("options", [BY_NUMBER, BY_SIZE], ids=["by number", "by size"])
def test_a_list_that_has_grown_goes_on_in_its_last_shard(images: Set, options: PackOptions) -> None:
    """By size, the last shard may have room; by number, the borders move."""
    rows = images.rows()
    images.write(rows[:-10])
    (images.folder / "set.manifest.json").mkdir()  # stops it where all shards are whole
    with pytest.raises(OutputError, match="there is a folder of this name"):
        images.pack(replace(options, resume=True))
    (images.folder / "set.manifest.json").rmdir()
    kept = len(images.notes())
    assert kept >= 5
    images.write(rows)
    report = images.pack(replace(options, resume=True))
    assert report.resumed == (kept - 1 if options is BY_SIZE else 0)
    assert_same_as_in_one_go(images, options, report)


def test_failures_and_remarks_of_shards_used_again_are_told_again(images: Set) -> None:
    images.image(3).unlink()
    images.image(25).write_bytes(b"no image")
    stray = images.image(5).read_bytes()
    images.image(5).write_bytes(stray[:-2] + b"\0\0\0\0\0" + stray[-2:])
    rows = images.rows()
    rows[40] = "40\t1\t2\t3\t40.img\n"
    images.write(rows)
    for options in (BY_NUMBER, BY_SIZE):
        options = replace(options, image=ImageOptions(), max_failures=2)
        images.stop(options)
        report = images.pack(replace(options, resume=True))
        assert report.resumed >= 1
        assert [failure.row for failure in report.failures] == [3, 25]
        assert report.label_widths == {1: ROWS - 3, 3: 1}
        assert_same_as_in_one_go(images, options, report)
    images.stop(options)
    shutil.copy(PICTURES[0], images.image(3))  # what failed is there now
    report = images.pack(replace(options, resume=True))
    assert [failure.row for failure in report.failures] == [25]
    assert_same_as_in_one_go(images, options, report)


def test_a_file_that_could_not_be_read_is_tried_again(images: Set) -> None:
    images.image(3).unlink()
    images.image(3).mkdir()
    options = replace(BY_NUMBER, max_failures=1)
    images.stop(options)
    kept = len(images.notes())
    report = images.pack(replace(options, resume=True))
    assert report.resumed == kept - 1
    assert_same_as_in_one_go(images, options, report)


def test_a_shard_whose_every_image_failed_is_tried_again(images: Set) -> None:
    for row in range(10, 20):
        images.image(row).unlink()
    options = replace(BY_NUMBER, max_failures=10)
    images.stop(options)
    report = images.pack(replace(options, resume=True))
    assert report.resumed >= 3
    assert len([name for name in report.files if name.endswith(".rec")]) == 5
    assert_same_as_in_one_go(images, options, report)


def test_a_run_that_does_not_resume_clears_what_was_kept(images: Set) -> None:
    images.stop(BY_NUMBER)
    assert images.pack(BY_NUMBER).resumed == 0
    assert not images.work.exists()


def test_make_list_leaves_what_was_kept(images: Set, im2rec: Run) -> None:
    images.stop(BY_NUMBER)
    kept = images.notes()
    before = images.list.read_bytes()
    im2rec("make-list", "--no-recursive", "--exts", "img", "set", "root")
    assert images.list.read_bytes() != before
    assert images.notes() == kept
    images.list.write_bytes(before)
    report = images.pack(replace(BY_NUMBER, resume=True))
    assert report.resumed == len(kept)
    assert_same_as_in_one_go(images, BY_NUMBER, report)


def test_resume_needs_shards(images: Set) -> None:
    with pytest.raises(OptionError, match="it needs --shards or --shard-size"):
        images.pack(PackOptions(resume=True))


def test_a_stopped_run_says_what_it_keeps_and_the_next_what_was_there(
    images: Set, im2rec: Run
) -> None:
    whole = images.image(BROKEN).read_bytes()
    images.image(BROKEN).write_bytes(whole[:500])
    arguments = ("pack", "set", "root", "--pass-through", "--shards", "6", "--resume")
    done = im2rec(*arguments, "--workers", "1", code=1)
    kept = len(images.notes())
    assert (
        f"\n{kept} whole shards are kept: the same command, run again, goes on with them\n"
        in done.stderr
    )
    images.image(BROKEN).write_bytes(whole)
    done = im2rec(*arguments)
    assert done.stderr.startswith(
        f"set: {kept} shards kept by the run before, used again\nset: 60 of 60 images packed"
    )


def test_kept_shards_that_are_not_used_are_told_with_the_reason(images: Set, im2rec: Run) -> None:
    arguments = ("pack", "set", "root", "--pass-through", "--shards", "6", "--workers", "1")
    for row, more, why in (
        (0, ("--no-pack-label",), "the options, ROOT or versions have changed"),
        (10, (), "images have changed"),
    ):
        whole = images.image(BROKEN).read_bytes()
        images.image(BROKEN).write_bytes(whole[:500])
        im2rec(*arguments, "--resume", code=1)
        images.image(BROKEN).write_bytes(whole)
        kept = len(images.notes())
        touch(images.image(row))
        done = im2rec(*arguments, "--resume", *more)
        if more:
            told = f"set: {kept} kept shards are not used: {why}\n"
        else:
            told = f"set: {kept - 1} shards kept by the run before, used again\n"
            told += f"set: 1 kept shard is not used: {why}\n"
        assert done.stderr.startswith(f"{told}set: 60 of 60 images packed")


def test_only_a_run_that_has_begun_says_what_it_keeps(images: Set, im2rec: Run) -> None:
    images.stop(BY_NUMBER)
    arguments = ("pack", "set", "root", "--pass-through", "--shards", "6", "--resume")
    rows = images.rows()
    with Output(str(images.folder / "set"), fsync=False, keep=True):
        busy = im2rec(*arguments, code=2)
    wrong = im2rec(*arguments, "--max-failures", "200%", code=2)
    unable = im2rec(*arguments, "--label-width", "2", code=2)
    images.write(["no row\n"])
    malformed = im2rec(*arguments, code=2)
    images.write(rows)
    assert kept_count(str(images.folder / "set")) > 1
    for done in (busy, wrong, unable, malformed):
        assert "kept" not in done.stderr, done.stderr


def test_what_is_looked_at_is_looked_at_in_small_slices(
    images: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the shards are."""
    monkeypatch.setattr(resume, "_ROWS_AT_A_TIME", 3)
    asked = []
    lines = ImageList.lines

    def count(self: ImageList, first: int, last: int) -> bytes:
        asked.append(last - first)
        return lines(self, first, last)

    for row, options in ((30, BY_NUMBER), (20, BY_SIZE)):
        images.stop(options)
        kept = len(images.notes())
        touch(images.image(row))
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(ImageList, "lines", count)
            report = images.pack(replace(options, resume=True))
        assert 0 < report.resumed < kept
        assert max(asked) == 3
        assert_same_as_in_one_go(images, options, report)


# --- killed at any moment ---------------------------------------------------------------------

KILLS = 10
MANY = 2000  # rows of a second of work
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def wait_for_more(prefix: str, kept: int, process: subprocess.Popen[str]) -> None:
    """Until the run has noted one more whole shard, or has ended."""
    wait_for(
        lambda: kept_count(prefix) > kept or process.poll() is not None, "no shard became whole"
    )


@pytest.mark.parametrize("cut", [("--shards", "12"), ("--shard-size", "300K")], ids=lambda c: c[0])
def test_killed_at_random_moments_the_set_is_the_same(
    cut: tuple[str, str], tmp_path: Path, im2rec: Run
) -> None:
    images = itertools.islice(itertools.cycle(PICTURES), MANY)
    rows = [f"{row}\t0\t{path.relative_to(CLEAN)}\n" for row, path in enumerate(images)]
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    pack = ("pack", "set", str(CLEAN), "--resize", "64", "--no-fsync", *cut)
    begin = time.monotonic()
    im2rec(*pack)
    seconds = time.monotonic() - begin

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.glob("set[._]*")}

    expected = files()
    prefix = str(tmp_path / "set")
    moments = random.Random(7)
    killed = resumed = 0
    was_renaming = False  # when it was killed: what was noted has no longer all of its files
    while killed < KILLS:
        for name in files().keys() - {"set.lst"}:
            (tmp_path / name).unlink()
        while True:
            before = kept_count(prefix)
            process = subprocess.Popen(
                [sys.executable, "-m", "im2rec", *pack, "--resume"],
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            moment = moments.uniform(0.1, 0.7) * seconds
            if killed % 2:  # not before there is something to go on with, however fast it is
                wait_for_more(prefix, before, process)
                moment /= 10
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(SIGNALS[killed % len(SIGNALS)])
            _, stderr = process.communicate(timeout=20)
            assert "Traceback" not in stderr
            if process.returncode == 0:
                assert ("used again" in stderr) == (before > 0) or was_renaming
                assert not (tmp_path / ".set.im2rec").exists()
                was_renaming = False
                resumed += before > 0
                break
            # Before and after Python handles signals, they end it in the system's way.
            code = process.returncode
            assert (128 - code if code < 0 else code) in (130, 137, 143), stderr
            killed += 1
            left = files()
            if code in (137, -signal.SIGKILL):
                # In the very moment of renaming: the first of the files, each of them whole, and
                # the manifest with the last of them alone.
                was_renaming = was_renaming or len(left) > 1
                assert left.items() <= expected.items()
                assert ("set.manifest.json" in left) == (left == expected)
            else:
                assert left == expected or left.keys() == {"set.lst"}
            if left == expected:  # it had just come to its end
                resumed += before > 0
                break
        assert files() == expected
    assert resumed
