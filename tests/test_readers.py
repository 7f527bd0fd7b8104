"""The files in the hands of their real readers: MXNet 1.9.1, NVIDIA DALI 2.4.0, PyTorch's loader.

Each reader lives in an environment of its own, for no two of them get on with each other:

    python tests/readers/environments.py DIR && IM2REC_READERS=DIR python -m pytest

A test makes a set with the command line, has a script of tests/readers/ read it in the reader's
environment, and compares ids, labels and pixels with the source. Pictures, ids and labels are all
different, so that none can stand for another; some files hold the record magic where it cuts the
record.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import CLEAN
from PIL import Image

from im2rec import recordio

READERS = os.environ.get("IM2REC_READERS", "")
SCRIPTS = Path(__file__).parent / "readers"
PROJECT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    not READERS,
    reason="IM2REC_READERS names no folder of environments; make one with"
    " python tests/readers/environments.py DIR, then set IM2REC_READERS=DIR",
)

MAGIC = struct.pack("<I", 0xCED7230A)
TRAP = MAGIC + struct.pack("<I", 4) + b"trap"  # a record, for one who begins to read here
EDGE = 32  # pixels


class Reader:
    """A reader's script, running in its environment, where im2rec is, too; it answers jobs."""

    def __init__(self, name: str, script: str, *arguments: object) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [f"{READERS}/{name}/bin/python", str(SCRIPTS / script), *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            encoding="utf-8",
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process, self.said:
            pass

    def answer(self, job: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, and said why
            print(json.dumps(job), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            pytest.fail(f"the reader has died: {self.said.read()[-3000:].decode()}")
        return json.loads(line)


RUNNING: dict[str, Reader] = {}  # loading a reader takes longer than most of what it is asked


@pytest.fixture(scope="module", autouse=True)
def _readers_end() -> Iterator[None]:
    yield
    while RUNNING:
        with RUNNING.popitem()[1]:
            pass


def ask_any(reader: str, *jobs: dict[str, Any]) -> list[Any]:
    """The answers of a reader to jobs; `{"error": text}` where it refuses one."""
    running = RUNNING.pop(reader, None) or Reader(reader, f"{reader}_reader.py")
    try:
        answers = [running.answer(job) for job in jobs]
    except BaseException:  # it is dead, or in the middle of an answer
        with running:
            raise
    RUNNING[reader] = running
    return answers


def ask(reader: str, *jobs: dict[str, Any]) -> list[Any]:
    """The answers of a reader to jobs, none of which it refuses."""
    answers = ask_any(reader, *jobs)
    for answer in answers:
        assert not isinstance(answer, dict) or "error" not in answer, answer["error"]
    return answers


def ask_alone(reader: str, job: dict[str, Any]) -> Any:
    """The answer of a reader that has done nothing else, as is right for one that forks."""
    with Reader(reader, f"{reader}_reader.py") as alone:
        answer = alone.answer(job)
    assert "error" not in answer, answer
    return answer


def im2rec(*arguments: object) -> str:
    """Runs the command line; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "im2rec", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(path: str | Path) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()


# --- sets -------------------------------------------------------------------------------------


def png(picture: np.ndarray[Any, Any], *magics: bytes) -> bytes:
    """A PNG of an RGB picture that holds bytes at offsets divisible by 4 (as 24 + 4 n are, too).

    They stand near its end, in chunks of a kind that decoders pass over.
    """
    whole = cv2.imencode(".png", picture[..., ::-1])[1].tobytes()
    image, end = whole[:-12], whole[-12:]  # IEND
    for magic in magics:
        chunk = b"maGc" + bytes(-(len(image) + 8) % 4) + magic
        image += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return image + end


@dataclass(frozen=True)
class Row:
    """What a record should be. pixels: HxWx3 RGB."""

    id: int
    labels: tuple[float, ...]
    pixels: np.ndarray[Any, Any]

    def is_in(self, sample: dict[str, Any]) -> bool:
        """Whether a sample is this row; ids are compared where the reader gives them."""
        if sample["id"] not in (None, self.id) or sample["labels"] != list(self.labels):
            return False
        found = np.frombuffer(bytes.fromhex(sample["pixels"]), np.uint8).reshape(sample["shape"])
        return np.array_equal(found, self.pixels)


@dataclass(frozen=True)
class Set:
    """A packed set. rows are in the list's order; shards are paths of the .rec files."""

    prefix: Path
    root: Path
    rows: list[Row]

    @property
    def shards(self) -> list[Path]:
        return sorted(self.prefix.parent.glob("set*.rec"))

    @property
    def joint(self) -> str:
        """The .rec files as MXNet wants them."""
        return ";".join(map(str, self.shards))

    @property
    def index(self) -> str:
        return f"{self.prefix}.idx"

    @property
    def files(self) -> list[dict[str, Any]]:
        """What MXNet's iterators are given, without index and with it."""
        return [{"path_imgrec": self.joint}, {"path_imgrec": self.joint, "path_imgidx": self.index}]

    def check(self, samples: list[dict[str, Any]]) -> None:
        """That these are all rows in their order."""
        assert len(samples) == len(self.rows)
        wrong = [n for n, row in enumerate(self.rows) if not row.is_in(samples[n])]
        assert wrong == []

    def check_any_order(self, samples: list[dict[str, Any]]) -> list[int]:
        """That these are all rows, each once; their places in the list."""
        by_label = {row.labels: n for n, row in enumerate(self.rows)}
        places = [by_label[tuple(sample["labels"])] for sample in samples]
        assert sorted(places) == list(range(len(self.rows)))
        for place, sample in zip(places, samples, strict=True):
            assert self.rows[place].is_in(sample)
        return places


def cuts(n: int) -> list[bytes]:
    """What the picture n has its record cut with: nothing, or the magic, also twice in a row (an
    empty part between) and twice with other bytes between."""
    return {1: [TRAP], 4: [MAGIC + TRAP], 7: [TRAP, TRAP]}.get(n % 9, [])


def noise(count: int, edge: int = EDGE) -> list[np.ndarray[Any, Any]]:
    """Different pictures, RGB."""
    random = np.random.default_rng(count)
    return [random.integers(0, 256, (edge, edge, 3), dtype=np.uint8) for _ in range(count)]


def pack(
    folder: Path,
    *options: str,
    labels: Sequence[Sequence[float]] = tuple([1000 * n] for n in range(24)),
    cut: bool = True,
    edge: int = EDGE,
) -> Set:
    """A set of a row for each labels, of pictures of noise in PNGs, packed as they are."""
    root = folder / "root"
    root.mkdir()
    lines, rows = [], []
    for n, pixels in enumerate(noise(len(labels), edge)):
        (root / f"{n}.png").write_bytes(png(pixels, *(cuts(n) if cut else ())))
        row_id = (n * 7 % len(labels)) * 11 + 3
        rows.append(Row(row_id, tuple(map(float, labels[n])), pixels))
        lines.append("\t".join([f"{row_id}", *(f"{each:.9g}" for each in labels[n]), f"{n}.png\n"]))
    (folder / "set.lst").write_text("".join(lines), encoding="utf-8")
    im2rec("pack", "--pass-through", *options, folder / "set", root)
    return Set(folder / "set", root, rows)


SHARDS = ("--shard-size", "25000")  # of 7, 7, 7 and 3 records


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Set:
    return pack(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Set:
    return pack(tmp_path_factory.mktemp("shards"), *SHARDS)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Set:
    """Labels of 5 numbers, in shards."""
    labels = [[1000 * n, 0.5, -n, 1 / 8 if n % 2 else 0.25, n] for n in range(24)]
    return pack(tmp_path_factory.mktemp("arrays"), *SHARDS, labels=labels)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Set:
    """Labels of detection: 1 to 4 objects, so of different widths; in shards."""
    labels = [
        [2, 5, *(x for k in range(n % 4 + 1) for x in (n, 0.125 * k, 0.25, 0.5 + 0.125 * k, 0.75))]
        for n in range(10)
    ]
    return pack(tmp_path_factory.mktemp("boxes"), *SHARDS, labels=labels)


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Set:
    """Pictures that im2rec resized and wrote as JPEG; rows hold what Pillow decodes of them."""
    folder = tmp_path_factory.mktemp("jpegs")
    im2rec("make-list", "--ids", "per-list", folder / "set", CLEAN)
    im2rec("pack", "--center-crop", "--resize", EDGE, folder / "set", CLEAN)
    rows = []
    with recordio.MXIndexedRecordIO(folder / "set.idx", folder / "set.rec", "r") as reader:
        for key in reader.keys:
            header, image = recordio.unpack(reader.read_idx(key))
            assert image.startswith(b"\xff\xd8")
            with Image.open(io.BytesIO(image)) as picture:
                rows.append(Row(header.id, (header.label,), np.asarray(picture.convert("RGB"))))
    return Set(folder / "set", CLEAN, rows)


def test_the_sets_are_what_the_tests_need(one: Set, shards: Set, arrays: Set) -> None:
    for each, sizes in ((one, [24]), (shards, [7, 7, 7, 3]), (arrays, [7, 7, 7, 3])):
        assert [len(lines_of(path.with_suffix(".idx"))) for path in each.shards] == sizes
        report = im2rec("inspect", "--records", each.prefix).splitlines()
        parts = [line.split("\t")[3] for line in report]
        assert Counter(parts) == {"1": 16, "2": 3, "3": 5}


# --- MXNet: records ---------------------------------------------------------------------------


def test_mxnet_reads_records_in_turn(one: Set, shards: Set, arrays: Set) -> None:
    """Ids, labels, pixels and the images' bytes; of a set in shards, file by file."""
    for each in (one, shards, arrays):
        answers = ask("mxnet", *({"do": "records", "path": str(path)} for path in each.shards))
        samples = [sample for answer in answers for sample in answer]
        each.check(samples)
        names = [line.split("\t")[-1] for line in lines_of(f"{each.prefix}.lst")]
        images = [(each.root / name).read_bytes().hex() for name in names]
        assert [sample["image"] for sample in samples] == images


def test_mxnet_reads_records_by_key(one: Set, shards: Set, arrays: Set) -> None:
    """In any order; of a set in shards, each with its own index."""
    for each in (one, shards, arrays):
        jobs = [
            {
                "do": "indexed_records",
                "path_idx": str(path.with_suffix(".idx")),
                "path_rec": str(path),
                "seed": 1,
            }
            for path in each.shards
        ]
        answers = ask("mxnet", *jobs)
        assert [key for answer in answers for key in answer["keys"]] == [
            row.id for row in each.rows
        ]
        found = dict(pair for answer in answers for pair in answer["read"])
        each.check([found[row.id] for row in each.rows])


# --- MXNet: ImageRecordIter -------------------------------------------------------------------

SHAPE = {"data_shape": [3, EDGE, EDGE]}
ITER = {"do": "image_record_iter", "batch_size": 5, **SHAPE}


@pytest.mark.parametrize("name", ["one", "shards"])
def test_image_record_iter(name: str, request: pytest.FixtureRequest) -> None:
    """With and without index."""
    each = request.getfixturevalue(name)
    for (samples,) in ask("mxnet", *({**ITER, **files} for files in each.files)):
        each.check(samples)


def test_image_record_iter_reads_label_arrays(arrays: Set) -> None:
    jobs = [{**ITER, "label_width": 5, **files} for files in arrays.files]
    for (samples,) in ask("mxnet", *jobs):
        arrays.check(samples)


@pytest.mark.parametrize("name", ["one", "shards"])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_image_record_iter_in_parts(name: str, count: int, request: pytest.FixtureRequest) -> None:
    """Together they are the whole set; a part begins in the middle of a file, where a cut record is
    not to be taken for several. (7 would be too many: with an index, MXNet gives each part 4 of the
    24 records, none to the last, and waits for ever.)"""
    each = request.getfixturevalue(name)
    jobs = [
        {**ITER, **files, "batch_size": 2, "num_parts": count, "part_index": part}
        for files in each.files
        for part in range(count)
    ]
    answers = [samples for (samples,) in ask("mxnet", *jobs)]
    assert all(answers)
    each.check([sample for samples in answers[:count] for sample in samples])
    each.check([sample for samples in answers[count:] for sample in samples])


@pytest.mark.parametrize("name", ["one", "shards"])
def test_image_record_iter_shuffled(name: str, request: pytest.FixtureRequest) -> None:
    """Each epoch has every record once, in an order of its own."""
    each = request.getfixturevalue(name)
    shuffled = {**ITER, "batch_size": 4, "shuffle": True, "epochs": 2}  # 4, so that none is doubled
    for epochs in ask("mxnet", *({**shuffled, **files} for files in each.files)):
        orders = [each.check_any_order(samples) for samples in epochs]
        assert orders[0] != orders[1]
        assert list(range(24)) not in orders


# --- MXNet: the other readers of images -------------------------------------------------------

IMAGE_ITER = {"do": "image_iter", "batch_size": 5, **SHAPE}


def test_image_iter(one: Set) -> None:
    """From a .rec with and without index, and from a list and its images."""
    from_list = {"path_imglist": f"{one.prefix}.lst", "path_root": str(one.root)}
    files = [*one.files, from_list]
    for samples in ask("mxnet", *({**IMAGE_ITER, **each} for each in files)):
        one.check(samples)


def test_image_iter_in_parts_and_shuffled(one: Set) -> None:
    files = {**IMAGE_ITER, **one.files[1]}
    parts = [{**files, "num_parts": 3, "part_index": part} for part in range(3)]
    *answers, shuffled = ask("mxnet", *parts, {**files, "shuffle": True})
    assert [len(samples) for samples in answers] == [8, 8, 8]
    one.check([sample for samples in answers for sample in samples])
    assert one.check_any_order(shuffled) != list(range(24))


def test_image_iter_reads_label_arrays(arrays: Set) -> None:
    """From the list, and from each shard by itself, for it takes no two files."""
    lists = {"path_imglist": f"{arrays.prefix}.lst", "path_root": str(arrays.root)}
    files = [{"path_imgrec": str(path)} for path in arrays.shards]
    jobs = [{**IMAGE_ITER, "label_width": 5, **each} for each in [lists, *files]]
    from_list, *from_shards = ask("mxnet", *jobs)
    arrays.check(from_list)
    arrays.check([sample for samples in from_shards for sample in samples])


def test_image_iter_takes_no_shards(shards: Set) -> None:
    for answer in ask_any("mxnet", *({**IMAGE_ITER, **f} for f in shards.files)):
        assert "No such file or directory" in answer["error"]


def test_image_det_record_iter(boxes: Set) -> None:
    """It puts channels, height, width and the labels' count before the labels, and -1 behind."""
    job = {"do": "image_det_record_iter", "batch_size": 4, **SHAPE}
    for samples in ask("mxnet", *({**job, **files} for files in boxes.files)):
        bare = []
        for sample in samples:
            *size, count = map(int, sample["labels"][:4])
            assert size == [3, EDGE, EDGE]
            labels, padding = sample["labels"][4 : 4 + count], sample["labels"][4 + count :]
            assert set(padding) <= {-1.0}
            bare.append({**sample, "labels": labels})
        boxes.check(bare)


def test_image_det_iter(boxes: Set) -> None:
    """A row for each object, and rows of -1 behind; each shard by itself, with its own index."""
    jobs = [
        {
            "do": "image_det_iter",
            "path_imgrec": str(path),
            "path_imgidx": str(path.with_suffix(".idx")),
            **SHAPE,
        }
        for path in boxes.shards
    ]
    assert len(jobs) == 2
    bare = []
    for sample in [sample for samples in ask("mxnet", *jobs) for sample in samples]:
        objects = [each for each in sample["labels"] if each[0] != -1]
        bare.append({**sample, "labels": [2.0, 5.0, *(x for each in objects for x in each)]})
    boxes.check(bare)


def test_gluon_dataset(one: Set, shards: Set, arrays: Set) -> None:
    """Record by record; of a set in shards, each with its own index."""
    for each in (one, shards, arrays):
        jobs = [{"do": "dataset", "path": str(path), "workers": 0} for path in each.shards]
        each.check([sample for answer in ask("mxnet", *jobs) for sample in answer])


def test_gluon_data_loader_with_workers(one: Set) -> None:
    samples = ask_alone("mxnet", {"do": "dataset", "path": one.joint, "workers": 2})
    assert one.check_any_order(samples) != list(range(24))


# --- NVIDIA DALI ------------------------------------------------------------------------------

DALI = {"do": "readers_mxnet"}


def for_dali(each: Set) -> dict[str, Any]:
    return {**DALI, "path": [str(path) for path in each.shards], "index_path": each.index}


@pytest.mark.parametrize("name", ["one", "shards", "arrays"])
def test_dali(name: str, request: pytest.FixtureRequest) -> None:
    """One file; several with the joint index; label arrays, one with the magic in a label."""
    each = request.getfixturevalue(name)
    each.check(ask("dali", for_dali(each))[0])


@pytest.mark.parametrize("name", ["one", "shards"])
def test_dali_in_parts_and_shuffled(name: str, request: pytest.FixtureRequest) -> None:
    each = request.getfixturevalue(name)
    parts = [{**for_dali(each), "num_shards": 3, "shard_id": part} for part in range(3)]
    shuffled = {**for_dali(each), "random_shuffle": True, "initial_fill": 8}
    *answers, samples = ask("dali", *parts, shuffled)
    each.check([sample for answer in answers for sample in answer])
    assert each.check_any_order(samples) != list(range(24))


def test_dali_with_indexes_joined_by_cat_loses_shards_without_a_word(tmp_path: Path) -> None:
    """Why a set in shards has a joint index. (Where records are of different lengths, DALI may
    say that the file is invalid.)"""
    each = pack(tmp_path, "--shards", "2", cut=False)
    joined = tmp_path / "joined.idx"
    joined.write_bytes(b"".join(path.with_suffix(".idx").read_bytes() for path in each.shards))
    right, wrong = ask("dali", for_dali(each), {**for_dali(each), "index_path": str(joined)})
    each.check(right)
    first_shard = {row.labels for row in each.rows[:12]}
    assert {tuple(sample["labels"]) for sample in wrong} == first_shard


def test_dali_takes_one_index_only(shards: Set) -> None:
    own = [str(path.with_suffix(".idx")) for path in shards.shards]
    (answer,) = ask_any("dali", {**for_dali(shards), "index_path": own})
    assert "supports only a single index file" in answer["error"]


def float_magic() -> float:
    """The float32 whose bytes are the magic."""
    return float(struct.unpack("<f", MAGIC)[0])


@pytest.mark.parametrize(
    ("row_id", "labels"),
    [(3470205706, [7.0]), (5, [float_magic()]), (5, [1.0, float_magic(), 2.0])],
    ids=["id", "label", "array"],
)
def test_mxnet_reads_a_header_that_is_cut_and_dali_does_not(
    row_id: int, labels: list[float], tmp_path: Path
) -> None:
    """An id or label whose bytes are the magic cuts the record before the image."""
    pixels = noise(1)[0]
    (tmp_path / "0.png").write_bytes(png(pixels))
    row = "\t".join([f"{row_id}", *(f"{label:.9g}" for label in labels), "0.png\n"])
    (tmp_path / "set.lst").write_text(row, encoding="utf-8")
    im2rec("pack", "--pass-through", tmp_path / "set", tmp_path)
    each = Set(tmp_path / "set", tmp_path, [Row(row_id, tuple(labels), pixels)])
    job = {**ITER, "batch_size": 1, "label_width": len(labels), "path_imgrec": each.joint}
    records, (samples,) = ask("mxnet", {"do": "records", "path": each.joint}, job)
    each.check(records)
    each.check(samples)
    (answer,) = ask_any("dali", for_dali(each))
    assert "Invalid RecordIO file" in answer["error"]


# --- large records ----------------------------------------------------------------------------


def test_records_of_more_than_64_kib(tmp_path: Path) -> None:
    """Which are looked through for the magic in another way."""
    each = pack(tmp_path, "--shards", "2", labels=[[n] for n in range(9)], edge=180)
    assert min(path.stat().st_size for path in each.root.iterdir()) > 1 << 16
    job = {**ITER, "data_shape": [3, 180, 180], "num_parts": 2}
    jobs = [{**job, **files, "part_index": n} for files in each.files for n in range(2)]
    (first,), (second,), (third,), (fourth,) = ask("mxnet", *jobs)
    each.check(first + second)
    each.check(third + fourth)
    each.check(ask("dali", for_dali(each))[0])


# --- JPEG -------------------------------------------------------------------------------------


def test_jpegs_decode_as_with_pillow(jpegs: Set) -> None:
    """To the last bit, for all of these decode with libjpeg-turbo in its accurate way."""
    mxnet = ask(
        "mxnet",
        {"do": "records", "path": jpegs.joint},
        {"do": "dataset", "path": jpegs.joint, "workers": 0},
        *({**IMAGE_ITER, **files} for files in jpegs.files),
        *({**ITER, **files} for files in jpegs.files),
    )
    *lists, (with_index,), (without_index,) = mxnet
    for samples in [*lists, with_index, without_index, *ask("dali", for_dali(jpegs))]:
        jpegs.check(samples)


# --- im2rec.recordio beside mxnet.recordio ----------------------------------------------------


@pytest.mark.parametrize("module", ["mxnet.recordio", "im2rec.recordio"])
def test_the_checks_of_mxnets_own_unit_tests(module: str, tmp_path: Path) -> None:
    with Reader("mxnet", "recordio_checks.py", module, tmp_path) as checks:
        assert checks.process.stdout is not None
        passed = checks.process.stdout.read().split()
        assert checks.process.wait() == 0
    assert passed == [
        "records_come_back_in_order",
        "records_come_back_by_key",
        "label_arrays_come_back",
    ]


def payloads(count: int) -> list[bytes]:
    """Bytes of every length, with the magic at every offset, whole, cut off, doubled, in the
    last words and past them; then at random."""
    found = [b"", MAGIC, MAGIC * 2, MAGIC * 3]
    for length in range(24):
        body = bytes(range(1, length + 1))
        found.append(body)
        found += [body[:at] + MAGIC + body[at:] for at in range(length + 1)]
        found += [body + MAGIC[:part] for part in (1, 2, 3)]
        found += [body[:at] + MAGIC + body[at:] + MAGIC for at in range(0, length, 5)]
    random = Random(0)
    for _ in range(count):
        pieces = [
            random.choice(
                [
                    MAGIC,
                    MAGIC[:2],
                    b"\0" * random.randrange(9),
                    random.randbytes(random.randrange(20)),
                ]
            )
            for _ in range(random.randrange(12))
        ]
        found.append(b"".join(pieces))
    return found


def test_what_im2rec_writes_mxnet_reads_and_the_other_way_round(tmp_path: Path) -> None:
    """And the two write the same bytes."""
    wanted = payloads(1000)
    keys = Random(1).sample(range(10**6), len(wanted))
    ours, theirs = [(str(tmp_path / f"{name}.idx"), str(tmp_path / f"{name}.rec")) for name in "ot"]
    with recordio.MXIndexedRecordIO(*ours, "w") as writer:
        for key, payload in zip(keys, wanted, strict=True):
            writer.write_idx(key, payload)
    pairs = [[key, payload.hex()] for key, payload in zip(keys, wanted, strict=True)]
    _, read = ask(
        "mxnet",
        {"do": "write_payloads", "path_idx": theirs[0], "path_rec": theirs[1], "payloads": pairs},
        {"do": "read_payloads", "path_idx": ours[0], "path_rec": ours[1]},
    )
    assert read["in_order"] == [payload.hex() for payload in wanted]
    assert read["by_key"] == pairs
    with recordio.MXIndexedRecordIO(*theirs, "r") as reader:
        assert reader.keys == keys
        assert [reader.read_idx(key) for key in keys] == wanted
        reader.reset()
        assert list(iter(reader.read, None)) == wanted
    for mine, other in zip(ours, theirs, strict=True):
        assert Path(mine).read_bytes() == Path(other).read_bytes()


def test_headers_are_packed_and_unpacked_as_by_mxnet() -> None:
    """Labels, also none and 1,000 of them, and ids over all of their ranges."""
    random = Random(2)
    numbers = [0.0, -0.0, 1.0, -1.5, 1e-45, 3.4028234e38, float("inf"), float_magic(), 1 / 3, 7]
    headers = []
    for n in range(400):
        label: Any = random.choice(numbers)
        if n % 2:
            label = random.choices(numbers, k=random.choice([0, 1, 2, 5, 1000]))
        ids = [random.choice([0, 1, 3470205706, 2**64 - 1, random.randrange(2**64)]) for _ in "ab"]
        headers.append([label, *ids, random.randbytes(random.randrange(20)).hex()])
    ours = [
        recordio.pack(recordio.IRHeader(0, label, one, two), bytes.fromhex(body))
        for label, one, two, body in headers
    ]
    theirs, unpacked = ask(
        "mxnet",
        {"do": "pack_headers", "headers": headers},
        {"do": "unpack_headers", "payloads": [payload.hex() for payload in ours]},
    )
    assert [payload.hex() for payload in ours] == theirs
    for payload, fields in zip(ours, unpacked, strict=True):
        header, body = recordio.unpack(payload)
        labels = np.atleast_1d(np.asarray(header.label, np.float32)).tolist()
        assert [header.flag, labels, header.id, header.id2, body.hex()] == fields


# --- im2rec.py --------------------------------------------------------------------------------


def draw_tree(root: Path, random: Random, *, nested: bool) -> None:
    """Folders of pictures of all sizes, grey, in colour and with alpha, and of other files."""
    folders = [root / name for name in random.sample(["a", "B", "c d", "ä", "z_1"], 4)]
    if nested:
        folders += [folders[0] / "in", folders[1] / "in" / "deep"]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("no image", encoding="utf-8")
        for n in range(random.randrange(1, 5)):
            draw_picture(folder / f"{number}_{n}{random.choice(ENDINGS)}", random)


ENDINGS = [".jpg", ".JPG", ".jpeg", ".png", ".PNG"]


def draw_picture(path: Path, random: Random) -> None:
    height, width = random.randrange(1, 70), random.randrange(1, 70)
    channels = random.choice([1, 3, 3, 4] if path.suffix.lower() == ".png" else [1, 3, 3])
    pixels = np.random.default_rng(random.randrange(2**32)).integers(
        0, 256, (height // 4 + 1, width // 4 + 1, channels), dtype=np.uint8
    )
    picture = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_CUBIC)
    parameters = [cv2.IMWRITE_JPEG_QUALITY, random.randrange(40, 100)]
    assert cv2.imwrite(str(path), picture, [] if path.suffix.lower() == ".png" else parameters)


def list_options(random: Random) -> tuple[list[str], list[str]]:
    """Options for im2rec.py and for make-list that mean the same, and lose no image there."""
    both, theirs, ours = [], ["--recursive"], []
    if random.random() < 0.4:
        both.append("--no-shuffle")
    if random.random() < 0.4:
        both += ["--chunks", str(random.randrange(2, 5))]
    if random.random() < 0.6:
        train, test = random.choice([(0.5, 0.25), (0.3, 0.3), (0.75, 0), (0.1, 0.8), (0.29, 0.57)])
        both += ["--train-ratio", str(train)] + (["--test-ratio", str(test)] if test else [])
    if random.random() < 0.4:
        endings = random.sample([".jpg", ".jpeg", ".png", ".txt"], 2)
        theirs += ["--exts", *endings]
        ours += ["--exts", ",".join(endings)]
    return both + theirs, both + ours


def as_master_writes(text: bytes) -> bytes:
    """A list of the released im2rec.py as MXNet's master has it: a class is `3`, not `3.000000`."""
    return re.sub(rb"^(\d+\t\d+)\.000000\t", rb"\1\t", text, flags=re.M)


def outputs(folder: Path, *patterns: str) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for pattern in patterns for p in folder.glob(pattern)}


def test_lists_are_those_of_im2rec_py(tmp_path: Path) -> None:
    """Random options over random trees, flat ones and nested ones; and images without classes."""
    runs, cases = [], []
    for n in range(20):
        random = Random(n)
        case = tmp_path / str(n)
        nested = n % 2 == 1
        draw_tree(case / "root", random, nested=nested)
        theirs, ours = list_options(random)
        if nested:
            ours += ["--label-from", "leaf"]
        root = case / "root"
        if n % 8 == 0:
            theirs.remove("--recursive")
            ours.append("--no-recursive")
            root = min(path for path in root.iterdir())
        for name in ("theirs", "ours"):
            (case / name).mkdir()
        runs.append([str(case / "theirs" / "set"), str(root), "--list", *theirs])
        cases.append((case, ["make-list", *ours, str(case / "ours" / "set"), str(root)]))
    ask("mxnet", {"do": "im2rec_py", "runs": runs})
    for case, arguments in cases:
        im2rec(*arguments)
        found, theirs = (outputs(case / name, "*.lst") for name in ("ours", "theirs"))
        wanted = {name: as_master_writes(text) for name, text in theirs.items()}
        assert found == wanted, arguments
        assert wanted


def pack_options(random: Random) -> tuple[list[str], list[str]]:
    """Options for im2rec.py and for pack that mean the same."""
    both: list[str] = []
    if random.random() < 0.7:
        both += ["--resize", str(random.choice([1, 7, 16, 33, 64]))]
    if random.random() < 0.5:
        both.append("--center-crop")
    if random.random() < 0.5:
        both += ["--color", random.choice(["-1", "0", "1"])]
    if random.random() < 0.4:  # 95, im2rec.py's quality for PNG where none is given, is none
        both += ["--encoding", ".png", "--quality", str(random.randrange(10))]
    elif random.random() < 0.6:
        both += ["--quality", str(random.randrange(1, 101))]
    if random.random() < 0.15:
        both = ["--pass-through"]
    if random.random() < 0.5:
        return [*both, "--pack-label"], both
    return both, [*both, "--no-pack-label"]


def draw_list(path: Path, root: Path, random: Random) -> None:
    """A list of the tree's pictures with ids and labels at random, of one number or more."""
    names = [p.relative_to(root).as_posix() for p in sorted(root.rglob("*")) if p.suffix in ENDINGS]
    random.shuffle(names)
    ids = random.sample(range(2**40), len(names))
    rows = []
    for row_id, name in zip(ids, names, strict=True):
        labels = random.choices(
            ["3", "0.000000", "-1.5", "0.1", "1e-3"], k=random.choice([1, 1, 5])
        )
        rows.append("\t".join([str(row_id), *labels, name]) + "\n")
    path.write_text("".join(rows), encoding="utf-8")


def test_packs_are_those_of_im2rec_py(tmp_path: Path) -> None:
    """Random options over random trees and lists, byte for byte."""
    runs, cases = [], []
    for n in range(20):
        random = Random(1000 + n)
        case = tmp_path / str(n)
        root = case / "root"
        draw_tree(root, random, nested=n % 2 == 1)
        theirs, ours = pack_options(random)
        for name in ("theirs", "ours"):
            (case / name).mkdir()
            draw_list(case / name / "set.lst", root, Random(n))
        runs.append([str(case / "theirs" / "set"), str(root), *theirs])
        cases.append(
            (case, ["pack", "--workers", "1", *ours, str(case / "ours" / "set"), str(root)])
        )
    ask("mxnet", {"do": "im2rec_py", "runs": runs})
    for case, arguments in cases:
        im2rec(*arguments)
        found, wanted = (outputs(case / name, "*.rec", "*.idx") for name in ("ours", "theirs"))
        assert wanted.keys() == {"set.rec", "set.idx"}
        assert found == wanted, arguments


# --- PyTorch's DataLoader ---------------------------------------------------------------------


def records_of(each: Set) -> list[list[Any]]:
    """Id, labels and image of each record of a set in one file, in its order."""
    names = [line.split("\t")[-1] for line in lines_of(f"{each.prefix}.lst")]
    images = [(each.root / name).read_bytes().hex() for name in names]
    return [[row.id, list(row.labels), image] for row, image in zip(each.rows, images, strict=True)]


TORCH_WORKERS = pytest.mark.parametrize(
    ("start_method", "workers"), [("fork", 1), ("fork", 4), ("spawn", 2)]
)


@TORCH_WORKERS
def test_torch_workers_read_by_key(start_method: str, workers: int, one: Set) -> None:
    """Every record once in each epoch, while the parent's handle keeps its own place."""
    files = {"path_idx": one.index, "path_rec": one.joint}
    job = {"do": "by_key", "start_method": start_method, "workers": workers, **files}
    (answer,) = ask("torch", job)
    wanted = records_of(one)
    for epoch in answer["epochs"]:
        assert sorted(epoch) == sorted(wanted)
        assert epoch != wanted
    assert answer["parent"] == wanted[:3]


@TORCH_WORKERS
def test_torch_workers_read_in_turn(start_method: str, workers: int, one: Set) -> None:
    """The same from start to end, each worker with a file of its own."""
    job = {"do": "in_turn", "start_method": start_method, "workers": workers}
    (answer,) = ask("torch", {**job, "path_rec": one.joint})
    wanted = records_of(one)
    for epoch in answer["epochs"]:
        assert sorted(epoch) == sorted(wanted)
    assert answer["parent"] == wanted[:3]


def test_a_forked_torch_worker_may_not_go_on_with_its_parents_place(one: Set) -> None:
    (answer,) = ask_any("torch", {"do": "in_turn_without_reset", "path_rec": one.joint})
    assert "Forbidden operation in multiple processes" in answer["error"]


# --- the examples ------------------------------------------------------------------------------


def run_example(reader: str, name: str, prefix: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"{READERS}/{reader}/bin/python", str(PROJECT / "examples" / name), prefix],
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        encoding="utf-8",
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("name", ["one", "shards"])
def test_the_pytorch_example_reads_every_image(name: str, request: pytest.FixtureRequest) -> None:
    each = request.getfixturevalue(name)
    done = run_example("torch", "torch_dataset.py", each.prefix)
    total = sum(row.labels[0] for row in each.rows)
    assert done.stdout == f"24 images of 24, sum of labels {total:g}\n", done.stderr


@pytest.mark.parametrize("name", ["one", "shards"])
def test_the_dali_example_reads_every_image(name: str, request: pytest.FixtureRequest) -> None:
    each = request.getfixturevalue(name)
    done = run_example("dali", "dali_pipeline.py", each.prefix)
    assert done.stdout.splitlines()[-2:] == ["batch 6: 4 images, 4 labels", "24 images"]


def test_the_examples_miss_a_shard(shards: Set, tmp_path: Path) -> None:
    copied = [shutil.copy(path, tmp_path) for path in Path(shards.prefix).parent.glob("*.*")]
    assert len(copied) > 6
    prefix = str(tmp_path / Path(shards.prefix).name)
    last = sorted(tmp_path.glob("*.rec"))[-1]
    last.unlink()
    for reader, name in (("torch", "torch_dataset.py"), ("dali", "dali_pipeline.py")):
        done = run_example(reader, name, prefix)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(prefix)
        assert "is not there" in done.stderr or "a shard is missing" in done.stderr


# --- environments.py --------------------------------------------------------------------------


def environments(*arguments: object, version: str = "") -> subprocess.CompletedProcess[str]:
    """Runs environments.py, as if this Python had another version."""
    script = f"""
import runpy, sys
if {version!r}:
    sys.version_info = tuple(map(int, {version!r}.split(".")))
sys.argv = ["environments.py", *{list(map(str, arguments))!r}]
runpy.run_path({str(SCRIPTS / "environments.py")!r}, run_name="__main__")
"""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PATH": ""},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_a_python_too_new_for_mxnet_is_told_in_plain_words(tmp_path: Path) -> None:
    done = environments(tmp_path, "mxnet", version="3.13.0")
    assert done.returncode == 1
    assert done.stderr.startswith("mxnet: this is Python 3.13, but MXNet 1.9.1 needs NumPy 1.23.5,")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mxnet").exists()


def test_environments_that_are_there_are_left_alone() -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(READERS).glob("*/versions.txt")}
    assert len(before) == 3
    assert environments(READERS).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_unknown_environment_is_refused(tmp_path: Path) -> None:
    assert environments(tmp_path, "tensorflow").returncode == 2
    assert environments().returncode == 2
