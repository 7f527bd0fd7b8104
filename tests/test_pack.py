"""The verb pack: what is packed, what is left out, and how the set is cut into files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import BAD, CLEAN, ODD, Run
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from im2rec import recordio
from im2rec.errors import (
    InputError,
    ListError,
    NothingPacked,
    OptionError,
    OutputError,
    TooManyFailures,
)
from im2rec.image_ops import ImageOptions
from im2rec.list_family import check_apart, find_lists
from im2rec.lst import read_list
from im2rec.make_list import ListOptions, make_list
from im2rec.pack import (
    PackOptions,
    PackReport,
    _allowed_failures,
    _plan,
    _shard_of,
    pack_list,
)
from im2rec.record_set import find_set
from im2rec.verify import VerifyOptions, verify_set

ALL_KINDS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tiff", ".webp")
ONE = PackOptions(workers=1, fsync=False)


def write_list(folder: Path, *rows: str) -> str:
    path = folder / "set.lst"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return str(path)


def listed(folder: Path, root: Path, extensions: tuple[str, ...] = ALL_KINDS) -> str:
    make_list(str(folder / "set"), str(root), ListOptions(extensions=extensions, fsync=False))
    return str(folder / "set.lst")


def packed(image: ImageOptions, **others: object) -> PackOptions:
    return PackOptions(image, workers=1, fsync=False, **others)  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- pictures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("resize", [0, 256])
def test_every_odd_kind_reads_back_in_list_order(tmp_path: Path, resize: int) -> None:
    path = listed(tmp_path, ODD)
    options = packed(ImageOptions(resize=resize), max_failures=2)
    report = pack_list(path, str(ODD), options)
    too_long = {"kinds/thin_tall.jpg": "256x128000", "kinds/thin_wide.jpg": "128000x256"}
    assert {each.path: each.reason for each in report.failures} == (
        {
            name: f"resized to {size} pixels, over JPEG's limit of 65500 an edge"
            for name, size in too_long.items()
        }
        if resize
        else {}
    )
    entries = [entry for entry in read_list(path) if not resize or entry.path not in too_long]
    record = recordio.MXIndexedRecordIO(tmp_path / "set.idx", tmp_path / "set.rec", "r")
    assert record.keys == [entry.id for entry in entries]
    for entry in entries:
        header, image = recordio.unpack(record.read_idx(entry.id))
        assert (header.id, header.label) == (entry.id, entry.labels[0])
        assert image == im2rec_py(ODD / entry.path, resize), entry.path
    record.close()
    problems = verify_set(
        find_set(str(tmp_path / "set")), VerifyOptions(path, decode=True, workers=1)
    ).problems
    assert problems == []


def im2rec_py(path: Path, resize: int) -> bytes:
    """What im2rec.py does with an image, in its own calls."""
    picture = cv2.imread(str(path), 1)
    assert picture is not None
    if resize:
        height, width = picture.shape[:2]
        if height > width:
            size = (resize, height * resize // width)
        else:
            size = (width * resize // height, resize)
        picture = cv2.resize(picture, size)
    done, buffer = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 95])
    assert done
    return buffer.tobytes()


BAD_REASONS = {
    "x/._apple_double.jpg": "not an image of a known kind: the file begins with "
    r"b'\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X'",
    "x/bomb.png": "too large: 60000x60000 pixels, over --max-pixels 178956970",
    "x/crc.png": "damaged: wrong CRC in the PNG chunk 'IDAT' at byte 33",
    "x/empty.jpg": "empty file",
    "x/html.jpg": "not an image of a known kind: the file begins with b'<!DOCTYPE html><'",
    "x/text.jpg": "not an image of a known kind: the file begins with b'this is not a pi'",
    "x/truncated.png": "truncated: the file ends before the image does",
    "x/truncated_half.jpg": "truncated: no end-of-image marker",
    "x/truncated_header.jpg": "truncated: the file ends inside its header",
    "x/truncated_tail.jpg": "truncated: no end-of-image marker",
    "x/zeros_inside.jpg": "damaged jpeg: Corrupt JPEG data: premature end of data segment",
}


@pytest.mark.parametrize("pass_through", [False, True])
def test_every_bad_file_fails_for_its_own_reason(tmp_path: Path, pass_through: bool) -> None:
    paths = sorted(f"x/{name}" for name in os.listdir(BAD / "x"))
    path = write_list(tmp_path, *(f"{at}\t1\t{name}" for at, name in enumerate(paths)))
    options = packed(ImageOptions(pass_through=pass_through), max_failures=11)
    report = pack_list(path, str(BAD), options)
    expected = dict(BAD_REASONS)
    if pass_through:  # the file is whole; only decoding tells that its pixels are wrong
        del expected["x/zeros_inside.jpg"]
    assert {each.path: each.reason for each in report.failures} == expected
    assert report.rows == report.packed + report.failed == len(paths) == 12
    rows = (tmp_path / "set.failures.tsv").read_text("utf-8").splitlines()
    assert [row.split("\t") for row in rows] == [
        [str(each.id), each.path, each.reason] for each in report.failures
    ]
    manifest = json.loads((tmp_path / "set.manifest.json").read_bytes())
    assert [manifest[name] for name in ("rows", "packed", "failed")] == [
        12,
        report.packed,
        len(rows),
    ]


def test_files_that_cannot_be_read_fail_with_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "loop.jpg").symlink_to("loop.jpg")
    (root / "folder.jpg").mkdir()
    os.mkfifo(root / "fifo.jpg")
    (root / "zero.jpg").symlink_to("/dev/zero")
    (root / "file").write_bytes(b"x")
    (root / "good.png").write_bytes((CLEAN / "ant/ant_3.png").read_bytes())
    reasons = {
        "loop.jpg": "unreadable: too many levels of symbolic links",
        "folder.jpg": "not a regular file but a folder",
        "fifo.jpg": "not a regular file but a FIFO",
        "zero.jpg": "not a regular file but a device",
        "file/inside.jpg": "unreadable: not a directory",
        "absent.jpg": "missing: there is no such file",
        "n" * 300: "unreadable: file name too long",
    }
    rows = [f"{at}\t0\t{name}" for at, name in enumerate([*reasons, "good.png"])]
    report = pack_list(
        write_list(tmp_path, *rows), str(root), packed(ImageOptions(), max_failures=7)
    )
    assert {each.path: each.reason for each in report.failures} == reasons
    assert report.packed == 1


def test_a_16_bit_png_as_stored_needs_png(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0\t0\tkinds/gray16.png")
    with pytest.raises(NothingPacked):
        pack_list(path, str(ODD), packed(ImageOptions(color=-1), max_failures=1))
    pack_list(path, str(ODD), packed(ImageOptions(color=-1, encoding=".png", quality=3)))
    record = recordio.MXRecordIO(tmp_path / "set.rec", "r")
    _, picture = recordio.unpack_img(record.read() or b"")
    record.close()
    assert picture.dtype == np.uint16
    source = cv2.imread(str(ODD / "kinds/gray16.png"), -1)
    assert source is not None
    assert np.array_equal(picture, source)


def test_pass_through_counts_what_readers_may_stumble_on(tmp_path: Path) -> None:
    path = listed(tmp_path, ODD)
    report = pack_list(path, str(ODD), packed(ImageOptions(pass_through=True)))
    assert (report.packed, report.turned, report.cmyk, report.other) == (30, 7, 1, 5)


def test_labels_are_all_packed_unless_told_otherwise(tmp_path: Path) -> None:
    path = write_list(tmp_path, "7\t1.5\t-2\t3\tant/ant_0.jpg", "8\t4\tant/ant_1.jpg")
    for pack_label, expected in ((True, [[1.5, -2, 3], 4]), (False, [1.5, 4])):
        report = pack_list(path, str(CLEAN), packed(ImageOptions(), pack_label=pack_label))
        record = recordio.MXIndexedRecordIO(tmp_path / "set.idx", tmp_path / "set.rec", "r")
        labels = [recordio.unpack(record.read_idx(key))[0].label for key in record.keys]
        record.close()
        assert [
            label if isinstance(label, float) else label.tolist() for label in labels
        ] == expected
        assert report.label_widths == ({1: 1, 3: 1} if pack_label else {1: 2})


# --- how many failures are allowed ------------------------------------------------------------


def half_missing(folder: Path, rows: int) -> str:
    return write_list(
        folder, *(f"{n}\t0\tant/{'ant_0' if n % 2 == 0 else 'none'}.jpg" for n in range(rows))
    )


@pytest.mark.parametrize(
    ("allowed", "percent", "stops"),
    [(0, False, True), (9, False, True), (10, False, False), (49.9, True, True), (50, True, False)],
)
def test_max_failures(tmp_path: Path, allowed: float, percent: bool, stops: bool) -> None:
    path = half_missing(tmp_path, 20)
    options = packed(ImageOptions(), max_failures=allowed, failures_are_percent=percent)
    if stops:
        with pytest.raises(TooManyFailures) as caught:
            pack_list(path, str(CLEAN), options)
        assert caught.value.failed == caught.value.allowed + 1
        assert names(tmp_path) == ["set.lst"]
    else:
        report = pack_list(path, str(CLEAN), options)
        assert (report.rows, report.packed, report.failed) == (20, 10, 10)


def test_the_failures_of_an_older_run_go_with_it(tmp_path: Path) -> None:
    pack_list(half_missing(tmp_path, 4), str(CLEAN), packed(ImageOptions(), max_failures=2))
    assert "set.failures.tsv" in names(tmp_path)
    pack_list(write_list(tmp_path, "0\t0\tant/ant_0.jpg"), str(CLEAN), ONE)
    assert names(tmp_path) == ["set.idx", "set.lst", "set.manifest.json", "set.rec"]


def test_a_run_that_fails_leaves_the_older_set_as_it_was(tmp_path: Path) -> None:
    pack_list(write_list(tmp_path, "0\t0\tant/ant_0.jpg"), str(CLEAN), ONE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".lst"}
    with pytest.raises(TooManyFailures):
        pack_list(half_missing(tmp_path, 20), str(CLEAN), ONE)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".lst"}
    assert after == before


def test_a_percentage_is_exact() -> None:
    options = PackOptions(max_failures=83.6, failures_are_percent=True)
    assert _allowed_failures(options, 100_000) == 83_600  # as floats: 83,599


def test_folders_among_the_images_do_not_use_up_file_descriptors(tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "from im2rec.cli import main; main()"
    )
    rows = [f"{n}\t0\t{'ant' if n < 100 else 'ant/ant_0.jpg'}" for n in range(110)]
    write_list(tmp_path, *rows)
    command = [sys.executable, "-c", code, "pack", "--max-failures", "100", "set", str(CLEAN)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert len((tmp_path / "set.idx").read_bytes().splitlines()) == 10


def test_a_bad_class_map_is_found_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "set.classes.txt").write_bytes(b"ant\n\nbee\n")
    with pytest.raises(InputError, match="line 2 is empty, expected a class name"):
        pack_list(half_missing(tmp_path, 4), str(CLEAN), ONE)


def test_a_set_that_cannot_be_published_whole_leaves_the_older_one(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0\t0\tant/ant_0.jpg")
    pack_list(path, str(CLEAN), ONE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    options = packed(ImageOptions(resize=8))
    real = os.replace

    def full(source: str, target: str) -> None:
        if target.endswith("set.manifest.json"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OutputError, match="no space left"):
            pack_list(path, str(CLEAN), options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_image_in_two_lists_is_an_error(tmp_path: Path) -> None:
    lists = [str(tmp_path / name) for name in ("a.lst", "b.lst")]
    for path, images in zip(lists, ((1, 2, 2), (3, 2)), strict=True):
        rows = [f"{at}\t0\tant/ant_{n}.jpg\n" for at, n in enumerate(images)]
        Path(path).write_text("".join(rows), encoding="utf-8")
    with pytest.raises(InputError, match=r"b\.lst: line 2: ant/ant_2\.jpg stands in .*a\.lst, too"):
        check_apart(lists)
    Path(lists[1]).write_text("0\t0\tant/ant_3.jpg\n", encoding="utf-8")
    check_apart(lists)


@pytest.mark.parametrize(
    "path", ["./x/a.jpg", "x//a.jpg", "x/./a.jpg", "x/y/../a.jpg", ".//x/a.jpg"]
)
def test_one_image_in_two_spellings_is_an_error(path: str, tmp_path: Path) -> None:
    lists = [str(tmp_path / name) for name in ("a.lst", "b.lst")]
    for name, row in zip(lists, ("x/a.jpg", path), strict=True):
        Path(name).write_text(f"0\t0\t{row}\n", encoding="utf-8")
    for pair in (lists, lists[::-1]):
        with pytest.raises(InputError, match=r"line 1: .* stands in .*\.lst, too"):
            check_apart(pair)


def test_the_class_map_of_a_set_is_that_of_its_list(tmp_path: Path) -> None:
    """Wherever the set is written, and whatever is there."""
    path = write_list(tmp_path, "0\t0\tant/ant_0.jpg")
    (tmp_path / "set.classes.txt").write_text("ant\n", encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / "other.classes.txt").write_text("of another\n", encoding="utf-8")
    pack_list(path, str(CLEAN), ONE, prefix=str(out / "other"))
    assert json.loads((out / "other.manifest.json").read_bytes())["classes"] == ["ant"]


def test_an_older_single_file_goes_when_shards_come(tmp_path: Path) -> None:
    path = listed(tmp_path, CLEAN)
    (tmp_path / "set.rec").write_bytes(b"of im2rec.py, without a manifest")
    pack_list(path, str(CLEAN), packed(ImageOptions(), shards=2))
    assert "set.rec" not in names(tmp_path)


@pytest.mark.parametrize("allowed", [0, 100])
def test_a_wrong_root_is_named_as_such(tmp_path: Path, allowed: int) -> None:
    path = write_list(tmp_path, *(f"{n}\t0\tant/ant_{n}.jpg" for n in range(3)))
    options = packed(ImageOptions(), max_failures=allowed, failures_are_percent=True)
    with pytest.raises(NothingPacked, match=r"is ROOT \(.*dog\) the folder that the list's paths"):
        pack_list(path, str(CLEAN / "dog"), options)
    assert names(tmp_path) == ["set.lst"]


def test_an_empty_list_packs_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingPacked, match=r"set\.lst: the list has no rows; nothing was written"):
        pack_list(write_list(tmp_path), str(CLEAN), ONE)


# --- shards -----------------------------------------------------------------------------------


@given(rows=st.integers(1, 10_000), shards=st.integers(1, 9))
def test_slices_cover_every_row_once_and_keep_to_one_shard(rows: int, shards: int) -> None:
    shards = min(shards, rows)
    options = PackOptions(shards=shards)
    slices: list[tuple[int, int]] = list(_plan(rows, options, []))  # type: ignore[arg-type]
    assert [row for first, last in slices for row in range(first, last)] == list(range(rows))
    assert max(last - first for first, last in slices) <= max(1, min(64, rows // 128))
    numbers = [{_shard_of(row, rows, options) for row in range(*each)} for each in slices]
    assert all(len(each) == 1 for each in numbers)
    counts = [sum(_shard_of(row, rows, options) == n for row in range(rows)) for n in range(shards)]
    assert max(counts) - min(counts) <= 1
    assert min(counts) >= 1


@pytest.mark.parametrize("workers", [1, 3])
def test_shards_are_the_single_file_cut_up(tmp_path: Path, workers: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        listed(folder, CLEAN)
    pack_list(str(whole / "set.lst"), str(CLEAN), ONE)
    options = PackOptions(shards=5, workers=workers, fsync=False)
    pack_list(str(cut / "set.lst"), str(CLEAN), options)
    recs = [cut / f"set_{number:03d}.rec" for number in range(5)]
    assert b"".join(rec.read_bytes() for rec in recs) == (whole / "set.rec").read_bytes()
    assert (cut / "set.idx").read_bytes() == (whole / "set.idx").read_bytes()  # the joint index
    assert [len(rec.with_suffix(".idx").read_bytes().splitlines()) for rec in recs] == [
        4,
        5,
        5,
        5,
        5,
    ]
    assert names(cut) == sorted(
        ["set.lst", "set.classes.txt", "set.idx", "set.manifest.json"]
        + [f"set_{number:03d}.{ending}" for number in range(5) for ending in ("rec", "idx")]
    )
    assert (
        verify_set(find_set(str(cut / "set")), VerifyOptions(str(cut / "set.lst"))).problems == []
    )


@pytest.mark.parametrize("size", [1, 8000, 20_000, 10**9])
def test_a_shard_closes_before_it_would_pass_its_size(tmp_path: Path, size: int) -> None:
    path = listed(tmp_path, CLEAN)
    options = packed(ImageOptions(pass_through=True), shard_size=size)
    report = pack_list(path, str(CLEAN), options)
    shards = json.loads((tmp_path / "set.manifest.json").read_bytes())["shards"]
    files = [tmp_path / shard["rec"] for shard in shards]
    assert [file.stat().st_size for file in files] == [shard["bytes"] for shard in shards]
    for file, following in zip(files, [*files[1:], None], strict=True):
        sizes = record_sizes(file)
        assert sum(sizes) <= size or len(sizes) == 1
        if following:
            assert sum(sizes) + record_sizes(following)[0] > size
    if size == 10**9:
        assert [file.name for file in files] == ["set.rec"]
    assert report.packed == 24


def record_sizes(path: Path) -> list[int]:
    offsets = [
        int(line.split(b"\t")[1]) for line in path.with_suffix(".idx").read_bytes().splitlines()
    ]
    ends = [*offsets[1:], path.stat().st_size]
    return [end - start for start, end in zip(offsets, ends, strict=True)]


def test_a_shard_whose_every_image_fails_is_left_out(tmp_path: Path) -> None:
    rows = [f"{n}\t0\t{'none' if 2 <= n < 4 else 'ant/ant_0.jpg'}" for n in range(6)]
    options = packed(ImageOptions(), shards=3, max_failures=2)
    report = pack_list(write_list(tmp_path, *rows), str(CLEAN), options)
    assert [name for name in report.files if name.endswith(".rec")] == [
        "set_000.rec",
        "set_001.rec",
    ]
    assert (tmp_path / "set_001.idx").read_bytes().split()[0] == b"4"


def test_files_of_an_older_set_with_more_shards_go(tmp_path: Path) -> None:
    path = listed(tmp_path, CLEAN)
    pack_list(path, str(CLEAN), packed(ImageOptions(), shards=4))
    (tmp_path / "set_old.rec").write_bytes(b"not ours")
    pack_list(path, str(CLEAN), packed(ImageOptions(), shards=2))
    recs = [name for name in names(tmp_path) if name.endswith(".rec")]
    assert recs == ["set_000.rec", "set_001.rec", "set_old.rec"]
    pack_list(path, str(CLEAN), ONE)
    recs = [name for name in names(tmp_path) if name.endswith(".rec")]
    assert recs == ["set.rec", "set_old.rec"]
    assert verify_set(find_set(str(tmp_path / "set")), VerifyOptions(path)).problems == []


# --- lists and options ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("train", ["train.lst"]),
        ("train.lst", ["train.lst"]),
        ("set", ["set_train.lst", "set_val.lst", "set_test.lst"]),
        ("part", ["part_0_train.lst", "part_0_val.lst", "part_2.lst", "part_10.lst"]),
        ("", None),
    ],
)
def test_find_lists_takes_a_list_or_its_own_family(
    tmp_path: Path, prefix: str, expected: list[str] | None
) -> None:
    there = ["train.lst", "train_old.lst", "train_val.lst", "train.lst.bak", "set_test.lst"]
    there += ["set_train.lst", "set_val.lst", "set_train_2.lst", "settrain.lst", "part_10.lst"]
    there += ["part_2.lst", "part_0_val.lst", "part_0_train.lst", "part_x.lst"]
    for name in there:
        (tmp_path / name).touch()
    found = [os.path.basename(path) for path in find_lists(str(tmp_path / prefix))]
    assert found == (expected or sorted(name for name in there if name.endswith(".lst")))


@pytest.mark.parametrize("prefix", ["no", "no.lst", "none/set"])
def test_no_list_is_an_error_with_the_next_step(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InputError):
        find_lists(str(tmp_path / prefix))


@pytest.mark.parametrize(
    ("row", "leaves"),
    [
        ("/etc/hostname", True),
        ("../secret.jpg", True),
        ("ant/../../secret.jpg", True),
        ("link/../secret.jpg", True),  # the link leads to another folder: so does its parent
        ("ant/../ant/ant_0.jpg", False),
        ("link/ant_0.jpg", False),  # a link may point anywhere
        ("a..b/ant_0.jpg", False),
        ("ROOT/ant/ant_0.jpg", False),  # absolute, but inside
    ],
)
def test_paths_that_leave_root(tmp_path: Path, row: str, leaves: bool) -> None:
    root = tmp_path / "root"
    image = (CLEAN / "ant/ant_0.jpg").read_bytes()
    for folder in (root / "ant", root / "a..b", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "ant_0.jpg").write_bytes(image)
    (tmp_path / "secret.jpg").write_bytes(image)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    row = row.replace("ROOT", str(root))
    path = write_list(tmp_path, f"0\t0\t{row}")
    if leaves:
        with pytest.raises(InputError, match=r"line 1 .*use --allow-outside-root"):
            pack_list(path, str(root), ONE)
        options = PackOptions(allow_outside_root=True, workers=1, fsync=False, max_failures=1)
        if row != "/etc/hostname":
            assert pack_list(path, str(root), options).packed == 1
    else:
        assert pack_list(path, str(root), ONE).packed == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PackOptions(ImageOptions(quality=0)), ".jpg takes 1 to 100 (default 95)"),
        (PackOptions(ImageOptions(quality=10, encoding=".png")), ".png takes 0 to 9 (default 3)"),
        (PackOptions(ImageOptions(encoding=".webp")), "encoding '.webp', expected"),
        (PackOptions(ImageOptions(color=2)), "color 2, expected -1, 0 or 1"),
        (PackOptions(ImageOptions(resize=-1)), "resize -1"),
        (PackOptions(ImageOptions(interpolation="best")), "interpolation 'best'"),
        (PackOptions(ImageOptions(max_pixels=0)), "max-pixels 0"),
        (
            PackOptions(ImageOptions(dct_scaling=True)),
            "--dct-scaling means nothing without --resize",
        ),
        (
            PackOptions(ImageOptions(dct_scaling=True, resize=64)),
            "--dct-scaling reduces by area, not by linear",
        ),
        (
            PackOptions(ImageOptions(dct_scaling=True, resize=64, interpolation="area", color=-1)),
            "--dct-scaling needs --color 0 or 1",
        ),
        (PackOptions(shards=2, shard_size=5), "--shards and --shard-size exclude each other"),
        (PackOptions(shards=0), "shards 0, expected at least 1"),
        (PackOptions(workers=0), "workers 0, expected at least 1"),
        (PackOptions(max_failures=-1), "max-failures -1"),
        (PackOptions(max_failures=101, failures_are_percent=True), "max-failures 101"),
    ],
)
def test_bad_options(tmp_path: Path, options: PackOptions, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        pack_list(write_list(tmp_path, "0\t0\tant/ant_0.jpg"), str(CLEAN), options)
    assert message in str(caught.value)


def test_label_width_must_fit_every_row(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0\t0\t1\tant/ant_0.jpg", "1\t5\tant/ant_1.jpg")
    with pytest.raises(InputError, match="1 of 2 rows have 2 labels, expected --label-width 1"):
        pack_list(path, str(CLEAN), packed(ImageOptions(), label_width=1))


def test_more_shards_than_rows_is_an_error(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0\t0\tant/ant_0.jpg")
    with pytest.raises(InputError, match="1 rows cannot fill --shards 2; a shard is never empty"):
        pack_list(path, str(CLEAN), packed(ImageOptions(), shards=2))


# --- the manifest, and what it must not depend on ---------------------------------------------


def test_the_manifest_says_how_the_set_was_made(tmp_path: Path) -> None:
    path = write_list(tmp_path, "3\t1\tant/ant_0.jpg")
    (tmp_path / "set.classes.txt").write_text("ant\nbee\n", encoding="utf-8")
    pack_list(path, str(CLEAN), packed(ImageOptions(resize=8, quality=50)))
    manifest = json.loads((tmp_path / "set.manifest.json").read_bytes())
    rec = (tmp_path / "set.rec").read_bytes()
    import hashlib
    from importlib.metadata import version

    lines = (tmp_path / "set.manifest.json").read_bytes().splitlines(keepends=True)
    assert manifest.pop("sha256") == hashlib.sha256(b"".join(lines[:-2])).hexdigest()
    assert manifest == {
        "format": "im2rec-manifest",
        "version": 1,
        "im2rec": version("im2rec"),
        "codecs": {
            "opencv": version("opencv-python-headless"),
            "pillow": version("pillow"),
        },
        "options": {
            "resize": 8,
            "center_crop": False,
            "quality": 50,
            "color": 1,
            "encoding": ".jpg",
            "pass_through": False,
            "interpolation": "linear",
            "no_upscale": False,
            "max_pixels": 178956970,
            "dct_scaling": False,
            "pack_label": True,
            "shards": None,
            "shard_size": None,
            "layout": "plain",
        },
        "list": {"file": "set.lst", "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()},
        "rows": 1,
        "packed": 1,
        "failed": 0,
        "label_widths": {"1": 1},
        "classes": ["ant", "bee"],
        "joint_index": None,
        "shards": [
            {
                "rec": "set.rec",
                "idx": "set.idx",
                "records": 1,
                "bytes": len(rec),
                "sha256": hashlib.sha256(rec).hexdigest(),
            }
        ],
    }


def test_the_bytes_depend_on_nothing_but_files_list_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for name, workers, method, locale in (
        ("one", 1, "fork", "C"),
        ("two", 4, "spawn", "de_DE.UTF-8"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("LC_ALL", locale)
        listed(Path(), CLEAN)
        options = PackOptions(
            ImageOptions(resize=32, interpolation="random"),
            workers=workers,
            start_method=method,
            shard_size=20_000,
            fsync=workers == 1,
        )
        pack_list("set.lst", str(CLEAN), options)
        written.append({path.name: path.read_bytes() for path in Path().iterdir()})
    assert written[0] == written[1]
    assert len(written[0]) > 6


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    """OpenCV, once it has threads, waits for them for ever in a forked process."""
    listed(tmp_path, CLEAN)
    script = tmp_path / "script.py"
    script.write_text(
        "import cv2, numpy\n"
        "from im2rec.errors import OptionError\n"
        "from im2rec.pack import PackOptions, pack_list\n"
        "if __name__ == '__main__':\n"
        "    cv2.setNumThreads(4)\n"
        "    cv2.resize(numpy.zeros((3000, 3000, 3), 'u1'), (2000, 2000))\n"
        f"    print(pack_list('set.lst', {str(CLEAN)!r}, PackOptions(workers=2)).packed)\n"
        "    try:\n"
        f"        pack_list('set.lst', {str(CLEAN)!r}, PackOptions(start_method='fork'))\n"
        "    except OptionError as error:\n"
        "        print(error)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.stdout.splitlines() == [
        "24",
        "start method 'fork' would hang: this process has threads; use forkserver or spawn",
    ], done.stderr


def test_progress_counts_up_to_all_rows(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def progress(report: PackReport, done: int) -> None:
        seen.append((done, report.packed + report.failed))

    pack_list(
        half_missing(tmp_path, 40),
        str(CLEAN),
        packed(ImageOptions(), max_failures=20),
        progress=progress,
    )
    assert seen[-1] == (40, 40)
    assert all(done == counted for done, counted in seen)


LIBRARY = """
import sys
from im2rec.pack import PackOptions, pack_list
report = pack_list(sys.argv[1], sys.argv[2], PackOptions(workers=2, start_method="fork"))
print(report.packed, 'numpy' in sys.modules)
"""


def test_a_program_with_no_numpy_in_it_is_forked(tmp_path: Path) -> None:
    """Loading it there would start threads, which forbid to fork."""
    path = listed(tmp_path, CLEAN)
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY, path, str(CLEAN)],
        capture_output=True,
        encoding="ascii",
        env=environment,
        check=True,
    )
    assert done.stdout == f"{len(read_list(path))} False\n"


def test_what_is_told_of_failures_does_not_depend_on_the_workers(tmp_path: Path) -> None:
    rows = [f"{at}\t0\t{'none' if at < 31 else 'ant/ant_0'}.jpg" for at in range(400)]
    told = set()
    for workers in (1, 2, 3):
        with pytest.raises((TooManyFailures, NothingPacked)) as caught:
            pack_list(
                write_list(tmp_path, *rows),
                str(CLEAN),
                PackOptions(workers=workers, max_failures=20),
            )
        told.add(str(caught.value))
    assert len(told) == 1


SCRIPT = """
import sys
import numpy, cv2
from im2rec.pack import PackOptions, pack_list
from im2rec.record_set import find_set
from im2rec.verify import VerifyOptions, verify_set
print("top", flush=True)
for method in (None, "spawn"):
    report = pack_list(sys.argv[1], sys.argv[2], PackOptions(workers=2, start_method=method))
    verified = verify_set(find_set(report.prefix), VerifyOptions(decode=True, workers=2))
    print(report.packed, verified.records, verified.problems)
"""


def test_a_script_that_guards_nothing_is_not_run_again_by_workers(tmp_path: Path) -> None:
    path = listed(tmp_path, CLEAN)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, str(script), path, str(CLEAN)]
    done = subprocess.run(
        command, capture_output=True, encoding="ascii", env=environment, check=False
    )
    count = len(read_list(path))
    assert (done.stdout, done.stderr) == ("top\n" + 2 * f"{count} {count} []\n", "")


@pytest.mark.parametrize("cut", [[], ["--shards", "3"]], ids=["one file", "shards"])
def test_if_changed_leaves_alone_what_would_have_the_same_bytes(
    cut: list[str], tmp_path: Path, im2rec: Run
) -> None:
    def times() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("set*")}

    shutil.copytree(CLEAN, tmp_path / "photos")
    listing = ("make-list", "--if-changed", "set", "photos")
    pack = ("pack", "--if-changed", *cut, "set", "photos")
    im2rec(*listing)
    im2rec(*pack)
    before = times()
    im2rec(*listing)
    done = im2rec(*pack)
    assert done.stderr.endswith(" KiB, unchanged\n")
    assert times() == before
    last = (tmp_path / "set.lst").read_text("utf-8").splitlines()[-1].split("\t")[2]
    cv2.imwrite(str(tmp_path / "photos" / last), np.zeros((9, 9, 3), np.uint8))
    done = im2rec(*pack)
    assert done.stderr.endswith(" KiB\n" if not cut else "B\n")
    changed = {name for name, at in times().items() if at != before[name]}
    rec = "set_002.rec" if cut else "set.rec"  # no index: only the last record has another length
    assert changed == {rec, "set.manifest.json"}
    im2rec("pack", *cut, "set", "photos")
    assert all(at != before[name] for name, at in times().items() if name.endswith(("rec", "idx")))
    im2rec("make-list", "set", "photos")
    assert times()["set.lst"] != before["set.lst"]


# --- boxes ------------------------------------------------------------------------------------

BOX = "2\t5\t0\t0.1\t0.1\t0.5\t0.5"


def test_rows_without_boxes_are_told_before_any_work(tmp_path: Path) -> None:
    good = f"0\t{BOX}\tant/ant_0.jpg"
    bad = [f"{number}\t{number % 2}\tant/ant_0.jpg" for number in range(1, 25)]
    path = write_list(tmp_path, good, "", *bad, "30\t2\t5\t0\t0.5\t0\t0.5\t1\tgone.jpg")
    with pytest.raises(ListError) as caught:
        pack_list(path, str(CLEAN), PackOptions(workers=1, detection=True))
    lines = str(caught.value).split("\n")
    assert lines[0] == f"{path}:3: 1 label, expected A B (class x1 y1 x2 y2)"
    assert len(lines) == 21
    assert lines[-1] == f"{path}: 5 more rows at fault"
    assert names(tmp_path) == ["set.lst"]


def test_boxes_of_all_lists_are_checked_before_any_is_packed(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "s_train.lst").write_text(f"0\t{BOX}\tant/ant_0.jpg\n", encoding="utf-8")
    (tmp_path / "s_val.lst").write_text("1\t3\tant/ant_1.jpg\n", encoding="utf-8")
    done = im2rec("pack", "--detection", "s", CLEAN, code=2)
    assert done.stderr == (
        "im2rec: error: s_val.lst:1: 1 label, expected A B (class x1 y1 x2 y2)\n"
    )
    assert names(tmp_path) == ["s_train.lst", "s_val.lst"]


def test_boxes_of_any_layout_are_packed(tmp_path: Path) -> None:
    rows = [BOX, "4\t6\t640\t480\t3\t0\t0\t1\t1\t7", "2\t5\t-1\t0\t0\t0\t0"]
    path = write_list(tmp_path, *[f"{at}\t{row}\tant/ant_0.jpg" for at, row in enumerate(rows)])
    options = packed(ImageOptions(resize=32), detection=True)
    assert pack_list(path, str(CLEAN), options).packed == 3
    plain = (tmp_path / "set.rec").read_bytes()
    pack_list(path, str(CLEAN), packed(ImageOptions(resize=32)))
    assert (tmp_path / "set.rec").read_bytes() == plain


def test_what_would_falsify_boxes_is_refused(tmp_path: Path) -> None:
    path = write_list(tmp_path, f"0\t{BOX}\tant/ant_0.jpg")
    for options, error in (
        (packed(ImageOptions(center_crop=True), detection=True), "excludes --center-crop"),
        (packed(ImageOptions(), detection=True, pack_label=False), "excludes --no-pack-label"),
    ):
        with pytest.raises(OptionError, match=error):
            pack_list(path, str(CLEAN), options)


def test_a_crop_of_what_looks_like_boxes_is_told(tmp_path: Path, im2rec: Run) -> None:
    write_list(tmp_path, f"0\t{BOX}\tant/ant_0.jpg", f"1\t{BOX}\tant/ant_1.jpg")
    warning = "im2rec: warning: set.lst: its labels look like boxes, and --center-crop makes those"
    assert warning in im2rec("pack", "--center-crop", "set", CLEAN).stderr
    assert warning not in im2rec("pack", "set", CLEAN).stderr
    for labels in ("2", "2\t5\t0\t0.5\t0.5\t0.5\t0.9"):  # one label; a box without area
        write_list(tmp_path, f"0\t{BOX}\tant/ant_0.jpg", f"1\t{labels}\tant/ant_1.jpg")
        assert warning not in im2rec("pack", "--center-crop", "set", CLEAN).stderr


@pytest.mark.parametrize(
    ("option", "warning"),
    [
        (["--quality", "90"], "made: boxes of the picture before it are wrong now"),
        (["--color", "-1"], "left out (--color -1): boxes of the turned picture are wrong now"),
        (["--pass-through"], "kept: boxes of the turned picture are right for readers that follow "
         "it"),
    ],
)  # fmt: skip
def test_turned_images_with_boxes_are_counted(
    tmp_path: Path, im2rec: Run, option: list[str], warning: str
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    Image.new("RGB", (40, 20)).save(tmp_path / "b.jpg")
    write_list(tmp_path, f"0\t{BOX}\ta.jpg", f"1\t{BOX}\tb.jpg")
    done = im2rec("pack", "--detection", *option, "set", ".")
    text = f"im2rec: warning: 1 image with an EXIF turn, which was {warning}"
    assert text in done.stderr.splitlines()
    assert "boxes" not in im2rec("pack", *option, "set", ".").stderr
