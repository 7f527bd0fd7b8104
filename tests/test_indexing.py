"""Indexes made anew: those that MXNet and pack wrote, from any records, and of damaged files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, Run, names
from hypothesis import given
from hypothesis import strategies as st

from im2rec import indexing, recordio
from im2rec.errors import BusyError, InputError, OptionError, OutputError
from im2rec.framing import HEAD, MAGIC_BYTES, RecordReader, frame
from im2rec.image_record import encode
from im2rec.indexing import IndexOptions, IndexReport, index_set, join_indexes, salvage
from im2rec.output import Output
from im2rec.record_set import find_set, write_manifest
from im2rec.verify import VerifyOptions, verify_set

FAST = IndexOptions(fsync=False)
PACKS = sorted(path.name for path in (GOLDEN / "packs").iterdir())
RECORDS = GOLDEN / "recordio"


def record(record_id: int, image: bytes = b"image") -> bytes:
    return frame(encode(record_id, (1.0,), image))


def index(argument: Path | str, **options: object) -> IndexReport:
    path = options.pop("path", None)
    return index_set(find_set(str(argument)), replace(FAST, **options), path=path)  # type: ignore[arg-type]


def copy_of(rec: Path, folder: Path) -> Path:
    return Path(shutil.copy(rec, folder / rec.name))


@pytest.fixture
def shards(tmp_path: Path, im2rec: Run) -> dict[str, bytes]:
    """A set of three shards in the folder; its files' bytes."""
    im2rec("make-list", "set", CLEAN)
    im2rec("pack", "--resize", "16", "--shards", "3", "set", CLEAN)
    return contents(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


# --- what MXNet and pack wrote ------------------------------------------------------------------


@pytest.mark.parametrize("pack", PACKS)
def test_an_index_by_id_is_what_im2rec_py_wrote(pack: str, tmp_path: Path) -> None:
    rec = copy_of(GOLDEN / "packs" / pack / "set.rec", tmp_path)
    report = index(rec)
    assert (tmp_path / "set.idx").read_bytes() == rec_beside(pack, "set.idx")
    assert (report.keys, report.no_ids, report.records) == ("id", "", 24)
    assert rec.read_bytes() == rec_beside(pack, "set.rec")


def rec_beside(pack: str, name: str) -> bytes:
    return (GOLDEN / "packs" / pack / name).read_bytes()


def test_an_index_by_position_is_what_rec2idx_py_wrote(tmp_path: Path) -> None:
    rec = copy_of(GOLDEN / "packs/resize64/set.rec", tmp_path)
    report = index(rec, keys="position")
    assert (tmp_path / "set.idx").read_bytes() == rec_beside("resize64", "set.rec2idx.idx")
    assert report.keys == "position"


def test_insightface_s_records_have_their_ids_as_keys(tmp_path: Path) -> None:
    index(copy_of(RECORDS / "insightface.rec", tmp_path))
    data = (tmp_path / "insightface.idx").read_bytes()
    assert data == (RECORDS / "insightface.idx").read_bytes()


def test_records_of_any_payload_get_positions(tmp_path: Path) -> None:
    report = index(copy_of(RECORDS / "framing.rec", tmp_path))
    offsets = [line.split()[1] for line in (RECORDS / "framing.idx").read_text().splitlines()]
    lines = [f"{number}\t{offset}\n" for number, offset in enumerate(offsets)]
    assert (tmp_path / "framing.idx").read_text() == "".join(lines)
    assert report.keys == "position"
    assert "byte 0: no image record, so it has no id" in report.no_ids


def test_a_sharded_set_gets_the_indexes_that_pack_wrote(
    shards: dict[str, bytes], tmp_path: Path, im2rec: Run
) -> None:
    for name in ("set.idx", "set_000.idx", "set_002.idx"):
        (tmp_path / name).unlink()
    (tmp_path / "set_001.idx").write_bytes(shards["set_001.idx"][:-3])  # cut
    done = im2rec("index", "-v", "set")
    assert contents(tmp_path) == shards
    assert done.stderr.splitlines() == [
        *("set_000.idx", "set_001.idx", "set_002.idx", "set.idx"),
        "set: 4 indexes of 24 records, by id",
    ]
    im2rec("verify", "set")


def test_shards_by_position_count_anew_but_run_on_in_the_joint_index(
    shards: dict[str, bytes], tmp_path: Path, im2rec: Run
) -> None:
    im2rec("index", "--keys", "position", "set")
    keys = {
        name: [int(line.split()[0]) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("set_000.idx", "set_001.idx", "set_002.idx", "set.idx")
    }
    assert keys["set_001.idx"] == list(range(8))
    assert keys["set.idx"] == list(range(24))
    for name in keys:
        offsets = re.findall(rb"\t(\d+)\n", (tmp_path / name).read_bytes())
        assert offsets == re.findall(rb"\t(\d+)\n", shards[name])


def test_joined_shards_have_the_joint_index_that_pack_wrote(
    shards: dict[str, bytes], tmp_path: Path, im2rec: Run
) -> None:
    names_before = names(tmp_path)
    done = im2rec("index", "--join", "-o", "j.idx", "set_000.rec", "set_001", "set_002.rec")
    assert (tmp_path / "j.idx").read_bytes() == shards["set.idx"]
    assert done.stderr == "j.idx: index of 24 records, by id\n"
    assert names(tmp_path) == sorted([*names_before, "j.idx"])
    (tmp_path / "set.idx").unlink()
    im2rec("index", "--join", "set")
    assert contents(tmp_path) == {**shards, "j.idx": shards["set.idx"]}


# --- any records --------------------------------------------------------------------------------

payloads = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([MAGIC_BYTES * 2, b"abcd" + MAGIC_BYTES + b"efg"]),
        st.builds(encode, st.integers(0, 9), st.just((1.0,)), st.binary(max_size=9)),
        st.builds(encode, st.integers(0, 2**64 - 1), st.just((1.0, 2.0)), st.just(MAGIC_BYTES)),
    ),
    max_size=12,
)


@given(files=st.lists(payloads, min_size=1, max_size=3), keys=st.sampled_from(["auto", "position"]))
def test_each_line_leads_to_its_record(files: list[list[bytes]], keys: str) -> None:
    options = replace(FAST, keys=keys)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recs = [folder / f"{number}.rec" for number in range(len(files))]
        for rec, contained in zip(recs, files, strict=True):
            rec.write_bytes(b"".join(map(frame, contained)))
            report = index_set(find_set(str(rec)), options)
            assert_read(rec.with_suffix(".idx"), rec, contained, report)
        whole = folder / "whole.bin"
        whole.write_bytes(b"".join(rec.read_bytes() for rec in recs))
        joint = folder / "joint.idx"
        report = join_indexes([find_set(str(rec)) for rec in recs], str(joint), options)
        assert_read(joint, whole, sum(files, []), report)


def assert_read(idx: Path, rec: Path, contained: list[bytes], report: IndexReport) -> None:
    """A reader gets each record by its key, and its id is that, if keys are ids."""
    with recordio.MXIndexedRecordIO(idx, rec, "r") as reader:
        assert len(reader.idx) == len(reader.keys) == len(contained) == report.records
        assert [reader.read_idx(key) for key in reader.keys] == contained
        if report.keys == "id":
            assert reader.keys == [recordio.unpack(payload)[0].id for payload in contained]
        else:
            assert reader.keys == list(range(len(contained)))
        assert list(reader.idx.values()) == sorted(reader.idx.values())


def test_runs_and_single_records_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [*range(300), 9 << 20, *range(200)]  # one that is longer than a window
    data = [record(7 * number, bytes(size)) for number, size in enumerate(sizes)]
    data.insert(250, record(9999, MAGIC_BYTES * 3))
    (tmp_path / "a.rec").write_bytes(b"".join(data))
    index(tmp_path / "a")
    in_runs = (tmp_path / "a.idx").read_bytes()
    salvage(str(tmp_path / "a.rec"), str(tmp_path / "b"), FAST)
    assert (tmp_path / "b.rec").read_bytes() == (tmp_path / "a.rec").read_bytes()
    assert (tmp_path / "b.idx").read_bytes() == in_runs
    monkeypatch.setattr("im2rec.framing.RunScanner.run_at", lambda *_: None)
    index(tmp_path / "a")
    assert (tmp_path / "a.idx").read_bytes() == in_runs
    assert in_runs.count(b"\n") == len(data)


@pytest.mark.parametrize("again", [2, 200])  # in single records, and in a run
def test_the_first_id_that_comes_twice_is_named(again: int, tmp_path: Path) -> None:
    ids = [5, *range(100, 100 + again), 100, 5]
    (tmp_path / "a.rec").write_bytes(b"".join(map(record, ids)))
    size = len(record(0))
    sentence = f"byte {size * (again + 1)}: id 100 is that of the record at byte {size}"
    with pytest.raises(InputError, match=f"{sentence}; --keys position numbers the records"):
        index(tmp_path / "a.rec", keys="id")
    assert names(tmp_path) == ["a.rec"]
    report = index(tmp_path / "a.rec")
    assert (report.keys, report.no_ids) == ("position", f"{tmp_path}/a.rec: {sentence}")


@pytest.mark.parametrize("before", [1, 100])
def test_the_first_record_without_an_id_is_named(before: int, tmp_path: Path) -> None:
    rows = [*map(record, range(before)), frame(b"x"), frame(b"y"), *map(record, range(900, 1000))]
    (tmp_path / "a.rec").write_bytes(b"".join(rows))
    at = before * len(record(0))
    with pytest.raises(InputError, match=f"byte {at}: no image record, so it has no id; --keys"):
        index(tmp_path / "a.rec", keys="id")
    assert index(tmp_path / "a.rec").keys == "position"


def test_an_id_in_two_files_is_told_with_both(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "a.rec").write_bytes(record(1) + record(2))
    (tmp_path / "b.rec").write_bytes(record(3) + record(2))
    size = len(record(0))
    done = im2rec("index", "--join", "--keys", "id", "-o", "j.idx", "a", "b", code=2)
    told = f"b.rec: byte {size}: id 2 is that of the record at byte {size} of a.rec"
    assert done.stderr == (
        f"im2rec: error: {told}; --keys position numbers the records from 0 instead\n"
    )
    done = im2rec("index", "--join", "-o", "j.idx", "a", "b")
    assert done.stderr.startswith(f"im2rec: warning: {told}; so the keys are positions, from 0\n")
    lines = "".join(f"{number}\t{number * size}\n" for number in range(4))
    assert (tmp_path / "j.idx").read_text() == lines


def test_shards_that_share_an_id_all_have_positions(tmp_path: Path, im2rec: Run) -> None:
    for number in range(2):
        (tmp_path / f"s_00{number}.rec").write_bytes(record(4) + record(6 + number))
    im2rec("index", "s")
    assert (tmp_path / "s_001.idx").read_text() == f"0\t0\n1\t{len(record(4))}\n"
    im2rec("index", "s_001.rec")
    assert (tmp_path / "s_001.idx").read_text() == f"4\t0\n7\t{len(record(4))}\n"


def test_an_empty_file_has_an_empty_index_and_a_warning(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "e.rec").touch()
    (tmp_path / "a.rec").write_bytes(record(1))
    done = im2rec("index", "e")
    assert (tmp_path / "e.idx").read_bytes() == b""
    assert done.stderr.splitlines()[0] == "im2rec: warning: e: empty, and so is its index"
    done = im2rec("index", "--join", "-o", "j.idx", "e", "a")
    assert (tmp_path / "j.idx").read_bytes() == b"1\t0\n"
    assert "e.rec: empty; DALI reads no set with such a shard" in done.stderr


def test_a_file_of_any_name_has_its_index_beside_it(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "train.record").write_bytes(record(1))
    im2rec("index", "train.record")
    assert (tmp_path / "train.record.idx").read_bytes() == b"1\t0\n"


def test_a_million_records_take_little_memory(tmp_path: Path) -> None:
    with open(tmp_path / "a.rec", "wb") as file:
        for first in range(0, 1_000_000, 10_000):
            file.write(b"".join([record(first + number, b"") for number in range(10_000)]))
    code = (
        "import resource, sys; from im2rec.indexing import *; from im2rec.record_set import *;"
        "import numpy; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "index_set(find_set(sys.argv[1]), IndexOptions(fsync=False));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, check=True
    )
    assert (tmp_path / "a.idx").read_bytes().endswith(b"999999\t31999968\n")
    assert int(done.stdout) < 80_000  # KiB; two windows take 16 MiB of it


# --- damage -------------------------------------------------------------------------------------

SIX = [record(number, b"x" * (10 * number)) for number in range(6)]
STARTS = [len(b"".join(SIX[:number])) for number in range(7)]


def changed(at: int, data: bytes) -> bytes:
    whole = b"".join(SIX)
    return whole[:at] + data + whole[at + len(data) :]


SWALLOWS = HEAD.pack(HEAD.unpack(MAGIC_BYTES * 2)[0], STARTS[4] - STARTS[2] - HEAD.size)
DAMAGE: dict[str, tuple[bytes, int, str, list[int], int]] = {
    # the file; where the fault is, and how it is told; which records are whole; bytes skipped
    "a magic": (changed(STARTS[2], b"\0"), STARTS[2], "found 00 23 d7 ce, expected the magic",
                [0, 1, 3, 4, 5], len(SIX[2])),
    "the first magic": (changed(0, b"\0"), 0, "found 00 23", [1, 2, 3, 4, 5], len(SIX[0])),
    "a cflag": (changed(STARTS[3] + 7, b"\xe0"), STARTS[3], "cflag 7, expected 0 to 3",
                [0, 1, 2, 4, 5], len(SIX[3])),
    "a length over others": (changed(STARTS[2], SWALLOWS), STARTS[2], "its length is wrong",
                             [0, 1, 3, 4, 5], len(SIX[2])),
    "a length past the end": (changed(STARTS[4] + 6, b"\x10"), STARTS[4], "but the file ends after",
                              [0, 1, 2, 3, 5], len(SIX[4])),
    "padding": (changed(STARTS[2] - 1, b"x"), STARTS[1], "expected zeros",
                [0, 2, 3, 4, 5], len(SIX[1])),
    "a cut tail": (b"".join(SIX)[:-9], STARTS[5], "but the file ends after",
                   [0, 1, 2, 3, 4], len(SIX[5]) - 9),
    "a cut head": (b"".join(SIX) + SIX[0][:5], STARTS[6], "5 bytes at the end",
                   [0, 1, 2, 3, 4, 5], 5),
    "an odd byte at the end": (b"".join(SIX) + b"x", STARTS[6], "1 bytes at the end",
                               [0, 1, 2, 3, 4, 5], 1),
    "two neighbours": (changed(STARTS[2], b"\0" * (len(SIX[2]) + 4)), STARTS[2], "found 00 00",
                       [0, 1, 4, 5], len(SIX[2] + SIX[3])),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_gets_no_index_and_salvage_copies_what_is_whole(
    kind: str, tmp_path: Path, im2rec: Run
) -> None:
    data, at, sentence, whole, skipped = DAMAGE[kind]
    (tmp_path / "bad.rec").write_bytes(data)
    (tmp_path / "bad.idx").write_bytes(b"1\t0\n")
    done = im2rec("index", "bad", code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"im2rec: error: bad.rec: byte {at}: ")
    assert sentence in line
    assert line.endswith(
        "; `im2rec index --salvage NEW.rec bad.rec` copies the records that are whole"
    )
    assert contents(tmp_path) == {"bad.rec": data, "bad.idx": b"1\t0\n"}
    assert len(names(tmp_path)) == 2
    done = im2rec("index", "--salvage", "new.rec", "bad.rec", code=1)
    kept = [SIX[number] for number in whole]
    assert (tmp_path / "new.rec").read_bytes() == b"".join(kept)
    lines = [f"{number}\t{len(b''.join(kept[:at]))}\n" for at, number in enumerate(whole)]
    assert (tmp_path / "new.idx").read_text() == "".join(lines)
    told = done.stderr.splitlines()
    assert told[0].startswith(f"bad.rec:{at}: {skipped} bytes skipped: ")
    assert told[1] == (
        f"new.rec: {len(kept)} whole records, by id; skipped: {skipped} B in 1 place"
    )
    assert (tmp_path / "bad.rec").read_bytes() == data
    im2rec("verify", "new")


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """Sound records with bytes changed, taken out, put in, and cut off."""
    rows = draw(st.lists(st.sampled_from([*SIX, record(9, MAGIC_BYTES * 2), frame(b"")])))
    data = bytearray(b"".join(rows * draw(st.sampled_from([1, 30]))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.binary(max_size=8) | st.sampled_from([MAGIC_BYTES, bytes(40)]))
        data[at : at + draw(st.sampled_from([0, 4, len(piece), len(piece), 100]))] = piece
    return bytes(data)


@given(damaged_files())
def test_a_salvaged_file_is_sound_and_every_other_byte_is_told(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bad.rec").write_bytes(data)
        report, found_none = None, ""
        try:
            report = salvage(str(folder / "bad.rec"), str(folder / "new"), FAST)
        except InputError as error:
            found_none = error.found
        if report is None:
            assert found_none == "there is no whole record in it"
            assert names(folder) == ["bad.rec"]
            return
        new = (folder / "new.rec").read_bytes()
        kept = bytearray(data)
        for place in reversed(report.skipped):
            assert place.length > 0
            del kept[place.offset : place.offset + place.length]
        assert new == bytes(kept)
        assert report.skipped_count == len(report.skipped)
        assert report.skipped_bytes == len(data) - len(new)
        found = verify_set(find_set(str(folder / "new")), VerifyOptions()).problems
        assert {each.code for each in found} <= {"header"}  # what is no image record
        with open(folder / "new.rec", "rb") as stream:
            rows = [each.payload for each in RecordReader(stream, "new.rec")]
        assert_read(folder / "new.idx", folder / "new.rec", rows, report)
        if not report.skipped:
            index(folder / "bad")
            assert (folder / "bad.idx").read_bytes() == (folder / "new.idx").read_bytes()
        else:
            with pytest.raises(InputError, match=f"byte {report.skipped[0].offset}: "):
                index(folder / "bad")


def test_a_sound_file_is_salvaged_whole(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(SIX))
    done = im2rec("index", "--salvage", "b", "a")
    assert (tmp_path / "b.rec").read_bytes() == b"".join(SIX)
    assert done.stderr == "b.rec: 6 whole records, by id; skipped: 0 B in 0 places\n"


def test_skipped_places_are_named_the_first_twenty_then_counted(
    tmp_path: Path, im2rec: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.rec").write_bytes((record(1) + bytes(4)) * 25)
    done = im2rec("index", "-q", "--salvage", "b", "a", code=1)
    found = "4 bytes skipped: found 00 00 00 00, expected the magic 0a 23 d7 ce"
    size = len(record(1)) + 4
    assert done.stderr.splitlines() == [
        *(f"a.rec:{size * number - 4}: {found}" for number in range(1, 21)),
        "a.rec: 5 places more skipped; -v names them all",
    ]
    done = im2rec("index", "-qv", "--salvage", "c", "a", code=1)
    assert len(done.stderr.splitlines()) == 25
    monkeypatch.setattr(indexing, "MAX_LISTED", 3)
    report = salvage(str(tmp_path / "a.rec"), str(tmp_path / "d"), FAST)
    assert (len(report.skipped), report.skipped_count, report.skipped_bytes) == (3, 25, 100)


def test_salvage_names_records_by_their_places_in_the_damaged_file(
    tmp_path: Path, im2rec: Run
) -> None:
    rows = [*SIX, b"\0" * 8, SIX[1], frame(b"no id")]
    (tmp_path / "a.rec").write_bytes(b"".join(rows))
    at = STARTS[6] + 8
    done = im2rec("index", "--salvage", "b", "--keys", "id", "a", code=2)
    assert f"error: a.rec: byte {at + len(SIX[1])}: no image record" in done.stderr
    assert names(tmp_path) == ["a.rec"]
    (tmp_path / "a.rec").write_bytes(b"".join(rows[:-1]))
    done = im2rec("index", "--salvage", "b", "a", code=1)
    assert f"a.rec: byte {at}: id 1 is that of the record at byte {STARTS[1]};" in done.stderr
    keys = re.findall(r"^(\d+)\t", (tmp_path / "b.idx").read_text(), re.M)
    assert keys == [str(number) for number in range(7)]


def test_salvage_replaces_nothing(tmp_path: Path, im2rec: Run) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(SIX))
    for name in ("b.rec", "c.idx"):
        (tmp_path / name).touch()
    (tmp_path / "d.rec").symlink_to("nowhere")
    for new, there in (("b", "b.rec"), ("c.rec", "c.idx"), ("d", "d.rec"), ("a", "a.rec")):
        done = im2rec("index", "--salvage", new, "a", code=2)
        found = "cannot write: there is a file of this name; choose another"
        assert done.stderr == f"im2rec: error: {there}: {found}\n"
    assert names(tmp_path) == ["a.rec", "b.rec", "c.idx", "d.rec"]


def test_a_mended_shard_takes_its_place_in_the_set(
    shards: dict[str, bytes], tmp_path: Path, im2rec: Run
) -> None:
    data = bytearray(shards["set_001.rec"])
    data[0] ^= 1
    (tmp_path / "set_001.rec").write_bytes(data)
    im2rec("index", "set", code=2)
    im2rec("index", "--salvage", "mended", "set_001.rec", code=1)
    (tmp_path / "mended.rec").replace(tmp_path / "set_001.rec")
    done = im2rec("index", "set")
    assert "set_001.rec: 7 records, " in done.stderr
    assert "(set.manifest.json); see im2rec verify\n" in done.stderr
    found = im2rec("verify", "set", code=1).stdout
    codes = re.findall(r"^\S+: ([a-z0-9-]+): ", found, re.M)
    assert sorted(codes) == ["bytes", "records", "sha256"]
    (tmp_path / "set.manifest.json").unlink()
    im2rec("verify", "set")


# --- what is there ------------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a text": (lambda path: path.write_text("notes\n1\t2\nmore\n"), "no index of numbers"),
    "a list": (lambda path: path.write_text("0\t1\ta.jpg\n"), "no index of numbers"),
    "names as keys": (lambda path: path.write_text("a.jpg\t0\nb.jpg\t40\n"), "no index of numbers"),
    "counts": (lambda path: path.write_text("0\t12\n1\t5\n"), "no index of numbers"),
    "a row of numbers": (lambda path: path.write_text("1\t4\n2\t8\n"), "no index of numbers"),
    "an image": (lambda path: path.write_bytes(b"\xff\xd8\xff\xe0"), "no index of numbers"),
    "zeros, and then a text": (
        lambda path: path.write_bytes(bytes(1 << 17) + b"notes\nmore\n"),
        "no index of numbers",
    ),
    "a folder": (lambda path: path.mkdir(), "there is a folder of this name"),
    "a FIFO": (make_fifo, "there is something else than a file of this name"),
    "a device": (lambda path: path.symlink_to("/dev/null"), "there is something else than a file"),
    "the record file": (lambda path: path.hardlink_to(path.with_name("a.rec")), "the record file"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("way", ["beside", "output", "join"])
def test_what_is_no_index_is_not_replaced(kind: str, way: str, tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(SIX))
    path = tmp_path / ("a.idx" if way == "beside" else "other.idx")
    make, sentence = OTHERS[kind]
    make(path)
    before, status = contents(tmp_path), path.lstat()
    found = find_set(str(tmp_path / "a"))
    do = {
        "beside": partial(index_set, found, FAST),
        "output": partial(index_set, found, FAST, path=str(path)),
        "join": partial(join_indexes, [found], str(path), FAST),
    }[way]
    with pytest.raises(OutputError, match=f"{path.name}: cannot write: .*{sentence}"):
        do()
    assert contents(tmp_path) == before
    assert path.lstat().st_ino == status.st_ino
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize(
    "there",
    [b"", bytes(70_000), b"7\t0", b"7\t", b"0\t0\n1\t40\n2", b"0\t0\r\n", b"1\t0\n" * 20_000]
    + [b"1\t0\n\0\0\0\0\0\0\n2\t40\n3\t50\n", b"0\t80\n1\t0\n2\t40\n"],
)
def test_an_index_is_replaced_however_damaged(there: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(SIX[1])
    (tmp_path / "a.idx").write_bytes(there)
    if there == b"7\t":
        with pytest.raises(OutputError):
            index(tmp_path / "a")
        return
    index(tmp_path / "a")
    assert (tmp_path / "a.idx").read_bytes() == b"1\t0\n"


@pytest.mark.parametrize("join", [[], ["--join"]])
def test_an_index_takes_no_place_but_its_own(join: list[str], tmp_path: Path, im2rec: Run) -> None:
    for name in ("a", "b", "s_000", "s_001"):
        (tmp_path / f"{name}.rec").write_bytes(SIX[1])
    (tmp_path / "c.rec").symlink_to("a.rec")
    (tmp_path / "b.idx").write_bytes(b"1\t0\n")
    (tmp_path / "notes").write_bytes(b"1\t0\n")
    before = names(tmp_path)
    for name, said in (
        ("b.idx", "b.idx: cannot write: this is the name of the index of b; choose another"),
        ("s.idx", "this is the name of the index of s; "),  # nor is it there
        ("s_001.idx", "this is the name of the index of s_001; "),
        ("notes", "notes: cannot write: there is a file of this name, which does not end in .idx"),
    ):
        assert said in im2rec("index", *join, "-o", name, "a", code=2).stderr
    done = im2rec("index", "--join", "-o", "a.idx", "a", "b", code=2)
    assert "a.idx: cannot write: this is the name of the index of a; " in done.stderr
    done = im2rec("index", "--join", "-o", "s.idx", "s_000.rec", "b", code=2)
    assert "this is the name of the index of s; " in done.stderr
    assert names(tmp_path) == before
    for name in ("a.idx", "c.idx", "new", "new.idx"):
        im2rec("index", *join, "-o", name, "a")
    im2rec("index", "--join", "-o", "s.idx", "--keys", "position", "s_000.rec", "s_001.rec")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_replaced_and_what_it_led_to_stays(is_there: bool, tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(SIX[1])
    if is_there:
        (tmp_path / "old.idx").write_bytes(b"9\t0\n")
    (tmp_path / "a.idx").symlink_to("old.idx")
    index(tmp_path / "a")
    assert not (tmp_path / "a.idx").is_symlink()
    assert (tmp_path / "a.idx").read_bytes() == b"1\t0\n"
    assert not is_there or (tmp_path / "old.idx").read_bytes() == b"9\t0\n"


def test_if_changed_leaves_like_files_alone(
    shards: dict[str, bytes], tmp_path: Path, im2rec: Run
) -> None:
    for path in tmp_path.glob("*.idx"):
        os.utime(path, (1, 1))
    (tmp_path / "set_001.idx").unlink()
    done = im2rec("index", "-v", "--if-changed", "set")
    assert done.stderr.splitlines()[:2] == ["set_000.idx, unchanged", "set_001.idx"]
    assert contents(tmp_path) == shards
    times = {path.name: path.stat().st_mtime == 1 for path in tmp_path.glob("*.idx")}
    assert times == {name: name != "set_001.idx" for name in times}
    assert im2rec("index", "--if-changed", "set").stderr == (
        "set: 4 indexes of 24 records, by id, unchanged\n"
    )
    im2rec("index", "set")
    assert not any(path.stat().st_mtime == 1 for path in tmp_path.glob("*.idx"))


def test_kept_shards_of_a_stopped_run_stay(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(SIX[1])
    with Output(str(tmp_path / "a"), fsync=False, keep=True) as output:
        for name in ("x.rec", "x.idx"):
            output.write(name, b"kept")
        output.keep_note("x", b"note")
    kept = names(tmp_path)
    index(tmp_path / "a")
    assert names(tmp_path) == sorted([*kept, "a.idx"])


def test_while_a_set_is_packed_it_gets_no_index(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(SIX[1])
    with Output(str(tmp_path / "a"), fsync=False), pytest.raises(BusyError):
        index(tmp_path / "a")


def test_a_file_that_grows_while_it_is_read_gets_no_index(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(SIX))

    def grow(*_: int) -> None:
        with open(tmp_path / "a.rec", "ab") as file:
            file.write(SIX[0])

    with pytest.raises(InputError, match="it changed while it was read"):
        index_set(find_set(str(tmp_path / "a")), FAST, progress=grow)
    assert names(tmp_path) == ["a.rec"]


OLD = b"".join(map(record, range(900)))
NEW = b"".join(record(number, b"image"[: number % 5]) for number in range(900))
NEW += record(900, bytes(len(OLD) - len(NEW) - len(record(0, b""))))


def rewrite(path: Path) -> None:
    """Other records, of the same size in all, in the same file."""
    with open(path, "r+b") as file:
        file.write(NEW)


def put_another(path: Path) -> None:
    """Another file of the same size and time."""
    status = path.stat()
    path.with_name("new").write_bytes(NEW)
    os.utime(path.with_name("new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    path.with_name("new").replace(path)


@pytest.mark.parametrize("change", [rewrite, put_another])
@pytest.mark.parametrize("way", ["beside", "join", "salvage"])
def test_a_file_that_becomes_another_while_it_is_read_gets_no_index(
    way: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    assert len(OLD) == len(NEW)
    for name in ("a.rec", "b.rec"):
        (tmp_path / name).write_bytes(OLD)
        os.utime(tmp_path / name, (1, 1))
    sets = [find_set(str(tmp_path / name)) for name in ("a", "b")]

    def progress(*_: int) -> None:
        if (tmp_path / "a.rec").read_bytes() == OLD:
            change(tmp_path / "a.rec")

    do = {
        "beside": partial(index_set, sets[0], FAST),
        "join": partial(join_indexes, sets, str(tmp_path / "j.idx"), FAST),
        "salvage": partial(salvage, str(tmp_path / "a.rec"), str(tmp_path / "c"), FAST),
    }[way]
    with pytest.raises(InputError, match=r"a\.rec: it changed while it was read"):
        do(progress=progress)
    assert names(tmp_path) == ["a.rec", "b.rec"]


def test_what_comes_while_a_file_is_salvaged_stays(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(SIX))

    def put(*_: int) -> None:
        (tmp_path / "b.idx").write_bytes(b"mine")

    with pytest.raises(OutputError, match=r"b\.idx: cannot write: there is a file of this name"):
        salvage(str(tmp_path / "a.rec"), str(tmp_path / "b"), FAST, progress=put)
    assert contents(tmp_path) == {"a.rec": b"".join(SIX), "b.idx": b"mine"}
    assert names(tmp_path) == ["a.rec", "b.idx"]


@pytest.mark.parametrize("limit", [0, 2])  # blocks of 512 bytes that a file may have
def test_a_full_disk_is_an_error_that_names_the_file(limit: int, tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(record(number) for number in range(1000)))
    (tmp_path / "a.idx").write_bytes(b"1\t0\n")
    for arguments, name in (("a", "a.idx"), ("--salvage b a", "b.rec")):
        command = f"trap '' XFSZ; ulimit -f {limit}; {sys.executable} -m im2rec index {arguments}"
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr == f"im2rec: error: {name}: cannot write: file too large\n"
        assert names(tmp_path) == ["a.idx", "a.rec"]
        assert (tmp_path / "a.idx").read_bytes() == b"1\t0\n"


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--join", "a", "a"], "--join of several REC needs -o IDX"),
        (["-o", "x.idx", "a", "a"], "one -o goes with one REC, or with --join"),
        (["-o", "x.rec", "a"], "-o names the index to write, and 'x.rec' is a record file's name"),
        (["-o", "x.idx", "s"], "-o is one file, but s has several; --join writes the joint index"),
        (["--salvage", "x", "a", "a"], "one --salvage goes with one REC"),
        (["--salvage", "x", "-o", "y", "a"], "--salvage NEW names what it writes; it excludes -o"),
        (["--salvage", "x", "--join", "a"], "it excludes -o and --join"),
        (["--salvage", "x", "s"], "--salvage is of one file; name one of s's, with .rec"),
        (["--salvage", "x", "text.rec"], "text.rec: there is no whole record in it"),
        (["text.rec"], "text.rec: byte 0: found 68 65 6c 6c, expected the magic 0a 23 d7 ce; name"),
        (["list.rec"], "list.rec: this is a list (.lst); name a .rec file or a prefix"),
        (["proto.rec"], "proto.rec: this is SageMaker's other RecordIO (x-recordio-protobuf)"),
        (["--salvage", "x", "proto.rec"], "this is SageMaker's other RecordIO"),
        (["fifo.rec"], "fifo.rec: not a regular file"),
        (["--salvage", "x", "fifo.rec"], "fifo.rec: not a regular file"),
        (["gone.rec"], "gone.rec: there is no such file"),
        (["gap"], "gap_001.rec: this shard of the set is not there; put it back, or name the"),
        (["--join", "gap"], "gap_001.rec: this shard of the set is not there"),
        (["-o", "none/x.idx", "a"], "there is no folder 'none'"),
        (["--salvage", "none/x", "a"], "there is no folder 'none'"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], message: str, tmp_path: Path, im2rec: Run
) -> None:
    for name in ("a", "s_000", "s_001", "gap_000", "gap_002"):
        (tmp_path / f"{name}.rec").write_bytes(b"".join(SIX))
    (tmp_path / "text.rec").write_text("hello, this is text")
    (tmp_path / "list.rec").write_text("0\t1\ta.jpg\n")
    (tmp_path / "proto.rec").write_bytes(frame(b"\x0a\x02ab\x12\x01c"))
    os.mkfifo(tmp_path / "fifo.rec")
    before = names(tmp_path)
    done = im2rec("index", *arguments, code=2)
    assert done.stdout == ""
    assert re.fullmatch(r"im2rec: error: [^\n]+\n", done.stderr)
    assert message in done.stderr
    assert names(tmp_path) == before


def test_a_manifest_with_two_files_of_one_index_is_refused(tmp_path: Path) -> None:
    for name in ("s.rec", "s_001.rec"):
        (tmp_path / name).write_bytes(SIX[1])
    shards = [{"rec": rec, "idx": "s.idx"} for rec in ("s.rec", "s_001.rec")]
    (tmp_path / "s.manifest.json").write_bytes(write_manifest({"shards": shards}))
    with pytest.raises(InputError, match=r"s\.idx: would be the index of one file, and of all"):
        index(tmp_path / "s")


def test_options_that_the_library_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="keys 'ids', expected one of auto, id, position"):
        IndexOptions(keys="ids")
    for name in ("s_000.rec", "s_001.rec"):
        (tmp_path / name).write_bytes(SIX[1])
    with pytest.raises(OptionError, match="one index cannot be that of 2 files"):
        index(tmp_path / "s", path=str(tmp_path / "x.idx"))


def test_several_sets_are_indexed_one_after_the_other(tmp_path: Path, im2rec: Run) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.rec").write_bytes(b"".join(SIX))
    assert im2rec("index", "a", "b.rec").stderr.splitlines() == [
        "a: index of 6 records, by id",
        "b.rec: index of 6 records, by id",
    ]
    assert (tmp_path / "a.idx").read_bytes() == (tmp_path / "b.idx").read_bytes()
