"""Old command lines, as they stand in documentation and scripts, and what came of them."""

from __future__ import annotations

import argparse
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import cv2
import pytest
from conftest import CLEAN, GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from im2rec import legacy
from im2rec.cli import cli
from im2rec.errors import OptionError
from im2rec.legacy import translate
from im2rec.recordio import IRHeader, MXIndexedRecordIO, pack, pack_img

Legacy = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The current folder of old lines; it has a folder above, for those that begin with `..`."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def old(here: Path) -> Legacy:
    """Runs an old command line in a process of its own."""

    def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "im2rec.legacy", *map(str, arguments)],
            cwd=here,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


# --- what im2rec.py does, for trees of flat classes -------------------------------------------

ROWS = (GOLDEN / "lists" / "sorted" / "set.lst").read_text(encoding="utf-8").splitlines(True)


@dataclass(frozen=True)
class Lists:
    """A run with --list --recursive, in im2rec.py's terms."""

    shuffle: bool = True
    train: float = 1.0
    test: float = 0.0
    chunks: int = 1

    def files(self, rows: list[str]) -> dict[str, str]:
        """The lists' text, by what stands behind the prefix."""
        rows = list(rows)
        if self.shuffle:
            random.seed(100)
            random.shuffle(rows)
        size = -(-len(rows) // self.chunks)
        files = {}
        for at in range(self.chunks):
            part = rows[at * size : (at + 1) * size]
            chunk = f"_{at}" if self.chunks > 1 else ""
            if self.train == 1:
                files[chunk] = part
                continue
            tests, trains = int(size * self.test), int(size * self.train)
            if self.test:
                files[f"{chunk}_test"] = part[:tests]
            if self.train + self.test < 1:
                files[f"{chunk}_val"] = part[tests + trains :]
            files[f"{chunk}_train"] = part[tests : tests + trains]
        return {f"{name}.lst": "".join(part) for name, part in files.items()}


@dataclass(frozen=True)
class Records:
    """A run that packs, in im2rec.py's terms."""

    resize: int = 0
    quality: int = 95
    pass_through: bool = False
    pack_label: bool = False
    color: int = 1

    def write(self, lst: Path, root: Path) -> None:
        """Writes lst's .rec and .idx."""
        writer = MXIndexedRecordIO(str(lst.with_suffix(".idx")), str(lst.with_suffix(".rec")), "w")
        for row in lst.read_text(encoding="utf-8").splitlines():
            key, *labels, path = row.split("\t")
            label = [float(each) for each in labels]
            many = self.pack_label and len(label) > 1
            header = IRHeader(0, label if many else label[0], int(key), 0)
            writer.write_idx(int(key), self.record(header, root / path))
        writer.close()

    def record(self, header: IRHeader, path: Path) -> bytes:
        if self.pass_through:
            return pack(header, path.read_bytes())
        image = cv2.imread(str(path), self.color)
        assert image is not None
        height, width = image.shape[:2]
        if self.resize:
            short = self.resize
            tall = height > width
            size = (short, height * short // width) if tall else (width * short // height, short)
            image = cv2.resize(image, size)
        return pack_img(header, image, quality=self.quality)


# Lines as they stand in the places named, without the interpreter and the script; with names that
# begin with / below the test's folder. Each comes with what im2rec.py of MXNet 1.9.1 makes of it.
LISTS = [
    # deepinsight/insightface recognition/arcface_torch/docs/prepare_custom_dataset.md
    ("--list --recursive train image_folder", Lists()),
    # NVIDIA/DeepLearningExamples MxNet/Classification/RN50v1.5/Cifar100ToRecordIO.sh
    ("--list --recursive val /cifar100/val", Lists()),
    # ROCm/MIVisionX rocAL tools' README
    ("--list test Dataset_path --recursive", Lists()),
    # dmlc/gluon-cv docs/tutorials/datasets/recordio.py
    ("./example_rec ./example/ --recursive --list --num-thread 8", Lists()),
    # apache/mxnet example/image-classification/README.md
    ("--list True --recursive True --train-ratio 0.95 mydata img_data", Lists(train=0.95)),
    # a tutorial on ImageNet on several machines, of MXNet's early days
    ("--list True --chunks 8 --recursive True train_meta/NAME ROOT", Lists(chunks=8)),
    # MXNet's tutorial on loading data, of two times
    ("--list=1 --recursive=1 --shuffle=1 --test-ratio=0.2 data/caltech data/101", Lists()),
    ("--list --recursive --test-ratio=0.2 data/caltech data/101_ObjectCategories", Lists()),
    # apache/mxnet example/image-classification/data/caltech256.sh, and a user's newer one
    ("--list True --recursive True caltech256-train caltech_256_train/", Lists()),
    ("--list --recursive caltech-256-60-val 256_ObjectCategories/", Lists()),
    # notebooks for SageMaker
    ("--list --recursive --train-ratio 0.75 nabirds_sample2 ../images/", Lists(train=0.75)),
    (
        "--list --recursive --num-thread 4 --train-ratio 0.6 --test-ratio 0.2 mk videoFrames",
        Lists(train=0.6, test=0.2),
    ),
    # a template for kubeflow pipelines
    ("--list --recursive --no-shuffle images-test-224 TEST/", Lists(shuffle=False)),
    # scripts of users
    ("--list True --exts .jpeg .jpg .png --recursive True data/cifar4 data/img", Lists()),
    ("--list --recursive --train-ratio 0.9 ./data ./../Images/  --pack-label", Lists(train=0.9)),
]

PACKS = [
    # deepinsight/insightface recognition/arcface_torch/docs/prepare_custom_dataset.md
    ("--num-thread 16 --quality 100 train image_folder", ["train"], Records(quality=100)),
    # NVIDIA/DeepLearningExamples MxNet/Classification/RN50v1.5/README.md, prepare_imagenet.sh
    (
        "--pass-through --num-thread 40 train /data/imagenet/raw/train-jpeg",
        ["train"],
        Records(pass_through=True),
    ),
    ("--pass-through --num-thread 40 val.lst data/val", ["val"], Records(pass_through=True)),
    # ROCm/MIVisionX rocAL tools' README
    ("lst_file.lst Dataset_path", ["lst_file"], Records()),
    # dmlc/gluon-cv docs/tutorials/datasets/recordio.py
    (
        "./example_rec_val ./example_val --recursive --pass-through --pack-label --no-shuffle "
        "--num-thread 8",
        ["example_rec_val"],
        Records(pass_through=True, pack_label=True),
    ),
    # apache/mxnet example/image-classification/README.md
    (
        "--resize 480 --quality 95 --num-thread 16 mydata img_data",
        ["mydata_train", "mydata_val"],
        Records(resize=480),
    ),
    (
        "--resize 480 --quality 90 --num-thread 16 train_meta/NAME ROOT",
        [f"train_meta/NAME_{n}" for n in range(8)],
        Records(resize=480, quality=90),
    ),
    # MXNet's tutorial on loading data
    (
        "--num-thread=4 --pass-through=1 data/caltech data/101_ObjectCategories",
        ["data/caltech"],
        Records(pass_through=True),
    ),
    # apache/mxnet example/ssd/tools/prepare_dataset.py
    ("/ssd/train.lst /VOC --shuffle 1 --pack-label 1", ["ssd/train"], Records(pack_label=True)),
    # apache/mxnet example/image-classification/data/imagenet1k-val.sh
    (
        "--resize 256 --quality 90 --num-thread 16 imagenet1k-val val/",
        ["imagenet1k-val"],
        Records(resize=256, quality=90),
    ),
    # a notebook for SageMaker's object detection
    (
        "--pack-label --num-thread 4 your_lst_file_name /your_image_folder",
        ["your_lst_file_name"],
        Records(pack_label=True),
    ),
    # a user's script beside Deep-Feature-Flow
    ("./ data/ILSVRC --shuffle=1 --pack-label=1 --num-thread=16", ["a"], Records(pack_label=True)),
    # scripts of users
    ("./tmp/ ./cifar/train --pass-through", ["tmp/train"], Records(pass_through=True)),
    ("./ ./img --resize 100", ["train", "unusual name"], Records(resize=100)),
    (
        "./dataset_rec_val ./train --recursive --pass-through --pack-label --resize 254 "
        "--quality 90 --num-thread 8",
        ["dataset_rec_val"],
        Records(pass_through=True, pack_label=True),
    ),
    (
        "--num-thread 6 --pass-through --pack-label rec/img_112 img112 --encoding=.jpg "
        "--quality 100",
        ["rec/img_112_train", "rec/img_112_val"],
        Records(pass_through=True, pack_label=True),
    ),
    (
        "--exts '.png' --quality 95 --num-thread 16 --color 1 data/cifar4 data/img",
        ["data/cifar4"],
        Records(),
    ),
    ("--pass-through TRUE --center-crop TRUE set photos", ["set"], Records(pass_through=True)),
    # made up
    ("--num_thread 4 --resize=64 --pack_label False pre in", ["pre-1", "pre2"], Records(64)),
    # im2rec.cc: scripts of users, and as apache/mxnet docs/faq/recordio.md has label_width
    ("train.lst ./img/ train.rec color=0", ["train"], Records(color=0)),
    ("temp.lst ../img/ temp.rec resize=480 quality=90", ["temp"], Records(480, 90)),
    ("image.lst image_root/ image.rec resize=256 label_width=3", ["image"], Records(256)),
    (
        "image.lst image_root/ image.rec resize=256 label_width=3 pack_label=1",
        ["image"],
        Records(256, pack_label=True),
    ),
]


def rooted(line: str, folder: Path) -> list[str]:
    """The words of a line, with names that begin with / in the folder."""
    return [f"{folder}{word}" if word.startswith("/") else word for word in shlex.split(line)]


def root_of(words: list[str], folder: Path) -> Path:
    """A line's ROOT, made."""
    root = folder / translate(words).command[-1]
    root.parent.mkdir(parents=True, exist_ok=True)
    root.symlink_to(CLEAN)
    return root


@pytest.mark.parametrize(("line", "lists"), LISTS)
def test_a_documented_line_makes_the_lists_of_im2rec_py(
    line: str, lists: Lists, here: Path, old: Legacy
) -> None:
    words = rooted(line, here)
    root_of(words, here)
    prefix = here / translate(words).command[-2]
    prefix.parent.mkdir(parents=True, exist_ok=True)
    done = old(*words)
    made = {
        path.name.removeprefix(prefix.name): path.read_text(encoding="utf-8")
        for path in prefix.parent.glob("*.lst")
    }
    assert made == lists.files(ROWS)
    assert done.stderr.count("the same as: im2rec make-list ") == 1


@pytest.mark.parametrize(("line", "lists", "records"), PACKS)
def test_a_documented_line_makes_the_records_of_im2rec_py(
    line: str, lists: list[str], records: Records, here: Path, tmp_path: Path, old: Legacy
) -> None:
    words = rooted(line, here)
    root = root_of(words, here)
    many = (GOLDEN / "packs" / "multi_label" / "set.lst").read_text(encoding="utf-8")
    is_cc = any("=" in word for word in words if not word.startswith("-"))
    rows = ROWS if is_cc and "label_width" not in line else many.splitlines(True)
    theirs = tmp_path / "theirs"
    for at, name in enumerate(lists):
        for folder in (here, theirs):
            path = folder / f"{name}.lst"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(rows[2 * at : 2 * at + 2]), encoding="utf-8")
        records.write(path, root)
    done = old(*words)
    for path in theirs.rglob("*.*"):
        assert (here / path.relative_to(theirs)).read_bytes() == path.read_bytes(), path.name
    assert len(list(here.rglob("*.rec"))) == len(lists)
    said = len(lists) if "pre" in words else 1
    assert done.stderr.count("the same as: im2rec pack ") == said


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("shuffled", Lists()),
        ("sorted", Lists(shuffle=False)),
        ("chunks3", Lists(chunks=3)),
        ("split", Lists(train=0.5, test=0.25)),
    ],
)
def test_the_lists_expected_are_those_of_mxnet(name: str, lists: Lists) -> None:
    golden = (GOLDEN / "lists" / name).iterdir()
    texts = {path.name.removeprefix("set"): path.read_text(encoding="utf-8") for path in golden}
    assert lists.files(ROWS) == texts


# --- the translation --------------------------------------------------------------------------


def of(line: str) -> str:
    return shlex.join(translate(shlex.split(line)).command)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("--list p r", "make-list --no-recursive p r"),
        ("--list=0 p r", "pack --no-pack-label p r"),
        ("--list False p r", "pack --no-pack-label p r"),
        ("p r --list --recursive False", "make-list --no-recursive p r"),
        ("p --list r --rec", "make-list --label-from leaf p r"),
        ("--list --recursive 1 r", "make-list --label-from leaf 1 r"),  # 1 is a fine prefix
        ("--list True False", "make-list --no-recursive True False"),
        ("--list --shuffle 0 p r", "make-list --no-recursive --no-shuffle p r"),
        ("--list --shuffle=False p r", "make-list --no-recursive --no-shuffle p r"),
        ("--list --shuffle True p r", "make-list --no-recursive p r"),
        ("--list --no-shuffle True p r", "make-list --no-recursive --no-shuffle p r"),
        ("--list --no_shuffle p r", "make-list --no-recursive --no-shuffle p r"),
        ("--list p r --exts .jpg .png", "make-list --no-recursive --exts .jpg,.png p r"),
        ("--exts .jpg .png --list p r", "make-list --no-recursive --exts .jpg,.png p r"),
        ("--list --ex .jpg --exts=.png p r", "make-list --no-recursive --exts .png p r"),
        ("--list --train-ratio 1 p r", "make-list --no-recursive p r"),
        ("--list --chunks=3 p r", "make-list --no-recursive --chunks 3 p r"),
        ("--list --train_ratio=.5 p r", "make-list --no-recursive --train-ratio 0.5 p r"),
        ("--list --resize 256 --quality 9 p r", "make-list --no-recursive p r"),
        ("--list p/ r/", "make-list --no-recursive p r/"),
        ("--list --no-fsync p r -q", "make-list --no-recursive --no-fsync -q p r"),
        ("--list p ''", "make-list --no-recursive p ."),
        ("p r", "pack --no-pack-label p r"),
        ("p r --pack-label", "pack p r"),
        ("--pack_label True p r", "pack p r"),
        ("--pack-l=0 p r", "pack --no-pack-label p r"),
        ("--pass p r", "pack --pass-through --no-pack-label p r"),
        ("--pass_through 1 p r", "pack --pass-through --no-pack-label p r"),
        ("p r --res 256 --center", "pack --resize 256 --center-crop --no-pack-label p r"),
        ("p r --resize 0 --center-crop False", "pack --resize 0 --no-pack-label p r"),
        ("--color -1 p r", "pack --color -1 --no-pack-label p r"),
        ("--enc .jpg --q 95 p r", "pack --encoding .jpg --quality 95 --no-pack-label p r"),
        ("--encoding .png p r", "pack --encoding .png --quality 9 --no-pack-label p r"),
        ("--encoding png --q 3 p r", "pack --encoding png --quality 3 --no-pack-label p r"),
        ("--quality 200 p r", "pack --quality 100 --no-pack-label p r"),
        ("--quality 0 p r", "pack --quality 1 --no-pack-label p r"),
        ("--num-thread 0 p r", "pack --no-pack-label --workers 1 p r"),
        ("--num_t 40 p r", "pack --no-pack-label --workers 40 p r"),
        ("--recursive --chunks 8 --train-ratio .5 p r", "pack --no-pack-label p r"),
        (
            "--max-failures 1% --workers 4 --shards=2 p r",
            "pack --no-pack-label --max-failures 1% --workers 4 --shards=2 p r",
        ),
        ("-- -p -r", "pack --no-pack-label -- -p -r"),
        ("p ''", "pack --no-pack-label --allow-outside-root p ."),
        ("a.lst r/ a.rec", "pack --label-width 1 a.lst r/"),
        ("./a.lst r/ a.rec", "pack --label-width 1 ./a.lst r/"),
        ("l/a.lst r/ o/b.rec", "pack --label-width 1 --output o/b l/a.lst r/"),
        (
            "a.lst '' a.rec resize=256 encoding='.jpg' quality=100",
            "pack --label-width 1 --resize 256 --quality 100 --allow-outside-root a.lst .",
        ),
        ("a.lst r a.rec resize=-1 center_crop=1", "pack --label-width 1 a.lst r"),
        (
            "a.lst r a.rec resize=9 center_crop=1 inter_method=9",
            "pack --label-width 1 --resize 9 --center-crop --interpolation auto a.lst r",
        ),
        ("a.lst r a.rec unchanged=1 color=0", "pack --label-width 1 --pass-through a.lst r"),
        ("a.lst r a.rec unchanged=2", "pack --label-width 1 a.lst r"),
        (
            "a.lst r a.rec encoding=.png",
            "pack --label-width 1 --encoding .png --quality 3 a.lst r",
        ),
        (
            "a.lst r a.rec encoding=.png quality=9",
            "pack --label-width 1 --encoding .png --quality 9 a.lst r",
        ),
        ("a.lst r a.rec label_width=4", "pack --label-width 4 --no-pack-label a.lst r"),
        ("a.lst r a.rec label_width=4 pack_label=1", "pack --label-width 4 a.lst r"),
        ("a.lst r a.rec label_width= nsplit=1 part=0", "pack --label-width 1 a.lst r"),
        ("a.lst r a.rec --max-failures 3", "pack --label-width 1 --max-failures 3 a.lst r"),
        ("d/a.rec b.idx", "index --keys position --output b.idx d/a.rec"),
    ],
)  # fmt: skip
def test_each_spelling_is_known(line: str, command: str) -> None:
    assert of(line) == command


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("p", "expected PREFIX ROOT, found p."),
        ("--list", "expected PREFIX ROOT, found none."),
        ("--list p my photos", "found p my photos. Quote names that have spaces."),
        ("p my photos", "p: of three names, LST ROOT OUT,"),
        # apache/mxnet docs/faq/recordio.md
        ("image.lst image_root_dir output.bin resize=256", "output.bin: of three names, LST ROOT"),
        (
            "a.lst r a.bin",
            "a.bin: of three names, LST ROOT OUT, this is the file to write; name it",
        ),
        (
            "a.txt r a.rec",
            "a.txt: of three names, LST ROOT OUT, this is the list; name it with .lst",
        ),
        (
            "--list --exts .jpg .png p r",
            "expected PREFIX ROOT, found none. --exts takes every word",
        ),
        ("--frob p r", "--frob: no im2rec.py had this option, nor has im2rec."),
        ("-x p r", "-x: no im2rec.py had this option"),
        ("--re p r", "--re may be --recursive or --resize; write it out"),
        ("--resize", "--resize expects a value behind it"),
        ("p r --resize --list", "--resize expects a value behind it"),
        ("p r --exts --list", "--exts expects a value behind it"),
        ("p r --workers", "--workers expects a value behind it"),
        ("--resize big p r", "--resize 'big', expected a whole number"),
        ("--list --train-ratio most p r", "--train-ratio 'most', expected a number"),
        ("--list=maybe p r", "--list=maybe, expected True or False"),
        ("a.lst r a.rec nsplit=8 part=1", "im2rec pack --shards 8 writes them all"),
        ("a.lst r a.rec pack_label=1", "pack_label=1 goes with label_width=N above 1"),
        ("a.lst r a.rec resize=big", "resize=big, expected a whole number"),
        ("a.rec a.idx b.idx", "rec2idx.py takes two names, REC IDX."),
    ],
)
def test_what_has_no_equal_is_refused(line: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        of(line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("--list --shuffle False p r", "--shuffle False is no here; some versions"),
        ("--list --test-ratio 0.2 p r", "passes over --test-ratio without --train-ratio"),
        ("--pass-through --resize 9 --quality 9 p r", "--resize, --quality: of no use with --pass"),
        ("a.lst r a.rec shuffle=1 x", "shuffle=1 x: passed over, as by im2rec.cc"),
        ("a.lst r a.rec center_crop=1", "center_crop does nothing without resize"),
    ],
)
def test_what_is_passed_over_is_said(line: str, note: str) -> None:
    (said,) = translate(shlex.split(line)).notes
    assert note in said


@given(st.lists(st.text(max_size=9) | st.sampled_from([f"--{each}" for each in legacy.OLD])))
def test_any_line_is_a_command_of_ours_or_an_error(words: list[str]) -> None:
    with suppress(OptionError):
        assert translate(words).command[0] in ("make-list", "pack", "index")


class Argparse(argparse.ArgumentParser):
    """im2rec.py's options of MXNet 1.9.1, read as it reads them."""

    def __init__(self) -> None:
        super().__init__(add_help=False)
        for name in ("prefix", "root"):
            self.add_argument(name)
        for name in set(legacy.FLAGS) - {"shuffle"}:
            self.add_argument(f"--{name}", action="store_true")
        for name, kind in legacy.VALUES.items():
            self.add_argument(f"--{name}", type=kind)
        self.add_argument("--exts", nargs="+")

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


OPTIONS = """--list|--recursive|--rec|--no-shuffle|--no|--pass|--chunks 2|--ch=3|--train-ratio .5
--test=0.25|--tr=1|--resize 8|--res=9|--center-crop|--pack-label|--pack|--quality 90|--q=0|--num=1
--num-thread 4|--color -1|--color=0|--enc .png|--encoding=.jpg|--exts .jpg|--ex=.png|--li
--exts .jpg .jpeg|--re|--p|--resize|--color x|--list=1|--c|--e .jpg"""


@given(
    st.lists(st.sampled_from(OPTIONS.replace("\n", "|").split("|")), max_size=6),
    st.integers(0, 6),
    st.integers(0, 7),
)
@settings(max_examples=1000)
def test_what_argparse_takes_is_read_as_argparse_does(
    parts: list[str], prefix_at: int, root_at: int
) -> None:
    parts.insert(prefix_at, "p")
    parts.insert(root_at, "r")
    words = " ".join(parts).split()
    try:
        parsed = vars(Argparse().parse_args(words))
    except ValueError:
        return
    plain = [parsed.pop("prefix"), parsed.pop("root")]
    exts = parsed.pop("exts")
    for name, value in parsed.items():
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            plain.append(flag if value is True else f"{flag}={value}")
    plain += ["--exts", *exts] if exts else []
    assert translate(words) == translate(plain)


# --- running it -------------------------------------------------------------------------------


def test_where_no_list_has_the_name_all_that_begin_with_it_are_packed(
    here: Path, old: Legacy
) -> None:
    for name in ("tr-a.lst", "tr-b.lst", "other.lst"):
        (here / name).write_text("".join(ROWS[:2]), encoding="utf-8")
    done = old("tr", CLEAN)
    assert sorted(path.name for path in here.glob("*.rec")) == ["tr-a.rec", "tr-b.rec"]
    assert [line for line in done.stderr.splitlines() if "the same as" in line] == [
        f"im2rec-legacy: the same as: im2rec pack --no-pack-label tr-{each}.lst {CLEAN}"
        for each in "ab"
    ]


def test_a_list_that_only_begins_so_is_left_alone_and_named(here: Path, old: Legacy) -> None:
    for name in ("train.lst", "train_old.lst"):
        (here / name).write_text("".join(ROWS[:2]), encoding="utf-8")
    done = old("train", CLEAN)
    assert "im2rec.py would pack these, too: train_old.lst; here name each" in done.stderr
    assert [path.name for path in here.glob("*.rec")] == ["train.rec"]


def test_a_folder_of_images_beside_its_list_is_no_folder_of_lists(here: Path, old: Legacy) -> None:
    (here / "train").symlink_to(CLEAN)
    (here / "train.lst").write_text("".join(ROWS[:2]), encoding="utf-8")
    old("train", "train/")
    assert (here / "train.rec").exists()


def test_a_folder_of_lists_comes_before_the_list_beside_it(here: Path, old: Legacy) -> None:
    (here / "sets").mkdir()
    for name in ("sets.lst", "sets/a.lst"):
        (here / name).write_text("".join(ROWS[:2]), encoding="utf-8")
    old("sets", CLEAN)
    assert [str(path.relative_to(here)) for path in here.rglob("*.rec")] == ["sets/a.rec"]


def test_folders_that_are_not_entered_are_named_with_the_way_in(here: Path, old: Legacy) -> None:
    done = old("--list", "set", CLEAN, code=2)
    assert done.stderr.endswith("saw 4 folders not entered; --recursive enters them\n")


def test_the_strictness_stays_and_the_way_out_is_named(here: Path, old: Legacy) -> None:
    (here / "set.lst").write_text(ROWS[0] + "99\t0\tnone.jpg\n", encoding="utf-8")
    done = old("--num-thread", "1", "set", CLEAN, code=1)
    assert "none.jpg: missing" in done.stderr
    assert "leave them out with --max-failures N or P%" in done.stderr
    assert not (here / "set.rec").exists()
    old("--num-thread", "1", "--max-failures", "50%", "set", CLEAN)
    assert (here / "set.rec").exists()


def test_im2rec_cc_writes_where_it_is_told_to(here: Path, old: Legacy) -> None:
    (here / "lists").mkdir()
    (here / "rec").mkdir()
    rows = [row.replace("\t0\t", f"\t0\t{CLEAN}/") for row in ROWS[:2]]
    (here / "lists" / "train.lst").write_text("".join(rows), encoding="utf-8")
    old("lists/train.lst", "", "rec/train.rec", "resize=32", "-q")
    assert sorted(path.name for path in (here / "rec").iterdir()) == [
        "train.idx",
        "train.manifest.json",
        "train.rec",
    ]
    assert [path.name for path in (here / "lists").iterdir()] == ["train.lst"]


def test_a_png_without_quality_is_of_level_9(here: Path, old: Legacy) -> None:
    (here / "set.lst").write_text(ROWS[0], encoding="utf-8")
    old("--encoding", ".png", "set", CLEAN)
    image = cv2.imread(str(CLEAN / ROWS[0].split("\t")[-1].strip()))
    level_9 = cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1].tobytes()
    assert level_9 in (here / "set.rec").read_bytes()


def test_nothing_is_said_with_q(here: Path, old: Legacy) -> None:
    done = old("--list", "--recursive", "--test-ratio", "0.2", "set", CLEAN, "-q")
    assert (done.stdout, done.stderr) == ("", "")


def test_help_is_short_and_has_an_example(old: Legacy) -> None:
    for word in ("-h", "--help"):
        done = old("--list", word)
        assert done.stdout == legacy.HELP
        assert "Example:\n  im2rec-legacy --list" in done.stdout
    assert old(code=2).stderr == legacy.HELP
    assert max(map(len, legacy.HELP.splitlines())) <= 100


def test_an_error_is_one_line(old: Legacy) -> None:
    done = old("--frob", "p", "r", code=2)
    assert done.stderr.startswith("im2rec: error: --frob: no im2rec.py had this option")
    assert done.stderr.count("\n") == 1
    done = old("--list", "--max-failures", "1", "p", "r", code=2)
    assert "No such option '--max-failures'" in done.stderr.splitlines()[-1]


def test_no_old_name_hides_one_of_ours_with_another_meaning() -> None:
    """im2rec.py's names come first: where make-list or pack have them, they mean the same."""
    ours = {name.removeprefix("--") for name in legacy._own_options()}
    assert set(legacy.OLD) - ours == {"list"}


@pytest.mark.skipif("index" not in cli.commands, reason="im2rec index is not there")
def test_rec2idx_py_s_index_is_made(here: Path, old: Legacy) -> None:
    golden = GOLDEN / "packs" / "resize64"
    shutil.copy(golden / "set.rec", here)
    old("set.rec", "new.idx")
    assert (here / "new.idx").read_bytes() == (golden / "set.rec2idx.idx").read_bytes()


def test_the_script_is_the_module(here: Path) -> None:
    script = "from im2rec.__main__ import legacy; legacy()"
    done = subprocess.run(
        [sys.executable, "-c", script, "--help"],
        cwd=here,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, legacy.HELP, "")
