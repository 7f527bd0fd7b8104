"""Each example is run as its reader would run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import CLEAN, Run

from im2rec import recordio

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_tested() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith("__")}
    assert there == {
        "quickstart.py",
        "Makefile",
        "build.ninja",
        "github-workflow.yml",
        "insightface.sh",
        "sagemaker.sh",
        "torch_dataset.py",  # in tests/test_readers.py, as is the next
        "dali_pipeline.py",
    }


# --- quickstart: its output is held by the README's test -----------------------------------------


def test_quickstart_does_not_write_into_a_folder_that_it_did_not_make(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "quickstart.py"), str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}: is there already; name another folder\n"
    assert list(tmp_path.iterdir()) == []


# --- Makefile ---------------------------------------------------------------------------------


class Make:
    """`make` in a folder with pictures, some with a space in the name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.photos = folder / "my photos"
        shutil.copytree(CLEAN, self.photos)
        (self.photos / "ant" / "ant_0.jpg").rename(self.photos / "ant" / "ant 0.jpg")
        for path in self.photos.rglob("*"):
            os.utime(path, (1e9, 1e9))

    def __call__(self, *arguments: str) -> list[str]:
        """Runs it; the im2rec commands that it ran."""
        time.sleep(0.02)  # so that what changes now is newer than what was made before
        done = subprocess.run(
            [
                "make",
                "-f",
                str(EXAMPLES / "Makefile"),
                "ROOT=my photos",
                "PREFIX=set",
                f"IM2REC={sys.executable} -m im2rec",
                *arguments,
            ],
            cwd=self.folder,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        ran = [
            line.split(" -m im2rec ")[1]
            for line in done.stdout.splitlines()
            if " -m im2rec " in line
        ]
        return [command.split()[0] for command in ran]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return Make(tmp_path)


def test_make_does_everything_once(make: Make) -> None:
    assert make() == ["make-list", "pack", "verify", "pack", "verify"]
    assert make() == []
    assert make("list", "rec", "check") == []


def test_make_stops_at_the_step_asked_for(make: Make) -> None:
    assert make("list") == ["make-list"]
    assert make("rec") == ["pack", "pack"]
    assert make("check") == ["verify", "verify"]


def image_of(make: Make, name: str) -> Path:
    """An image of one of the sets."""
    first = (make.folder / f"{name}.lst").read_text("utf-8").splitlines()[0]
    return make.photos / first.split("\t")[2]


@pytest.mark.parametrize("name", ["set_train", "set_val"])
def test_a_touched_image_has_its_own_set_packed_again_and_nothing_else(
    make: Make, name: str
) -> None:
    """And as the bytes are the same, the set is not even checked again."""
    make()
    time.sleep(0.02)
    before = {path: path.stat().st_mtime_ns for path in make.folder.glob("set*")}
    image_of(make, name).touch()
    assert make() == ["pack"]
    assert make() == []
    after = {path: path.stat().st_mtime_ns for path in make.folder.glob("set*")}
    changed = sorted(path.name for path in after if after[path] != before.get(path))
    assert changed == [f"{name}.d", f"{name}.packed"]


def test_an_image_that_changes_while_it_is_packed_is_packed_again(make: Make) -> None:
    make("list")
    image = image_of(make, "set_val")
    deed = make.folder / "slow"
    deed.write_text(
        f'#!/bin/sh\n{sys.executable} -m im2rec "$@" && cp "{CLEAN}/bee/bee_0.jpg" "{image}"\n',
        encoding="utf-8",
    )
    deed.chmod(0o755)
    make("rec", "SETS=set_val", "IM2REC=./slow")
    assert make() == ["pack", "verify", "pack", "verify"]
    assert make() == []


def test_other_options_are_heeded(make: Make) -> None:
    make()
    assert make("PACK_OPTIONS=--resize 32") == ["pack", "verify", "pack", "verify"]
    assert make("PACK_OPTIONS=--resize 32") == []
    ran = make("PACK_OPTIONS=--resize 32", "LIST_OPTIONS=--train-ratio 0.5")
    assert ran == ["make-list", "pack", "verify", "pack", "verify"]


def test_a_prefix_with_spaces_is_refused(make: Make) -> None:
    done = subprocess.run(
        ["make", "-f", str(EXAMPLES / "Makefile"), "PREFIX=a b"],
        cwd=make.folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 2
    assert "PREFIX cannot have spaces" in done.stderr


@pytest.mark.parametrize("name", ["set_train", "set_val"])
def test_a_changed_image_has_its_own_set_packed_and_checked_again(make: Make, name: str) -> None:
    make("PACK_OPTIONS=--shards 2")
    time.sleep(0.02)
    before = {path: path.stat().st_mtime_ns for path in make.folder.glob("set*.[ri]*")}
    shutil.copy(CLEAN / "bee/bee_0.jpg", image_of(make, name))
    assert make("PACK_OPTIONS=--shards 2") == ["pack", "verify"]
    assert make("PACK_OPTIONS=--shards 2") == []
    after = {path: path.stat().st_mtime_ns for path in make.folder.glob("set*.[ri]*")}
    changed = sorted(path.name for path in after if after[path] != before.get(path))
    # The first row of the list is in the first shard.
    assert changed == [f"{name}.idx", f"{name}_000.idx", f"{name}_000.rec"]


def test_a_new_image_is_listed(make: Make) -> None:
    make()
    time.sleep(0.02)
    shutil.copy(CLEAN / "bee/bee_0.jpg", make.photos / "bee" / "one more.jpg")
    ran = make()
    assert ran[0] == "make-list"
    assert "pack" in ran
    lists = [(make.folder / f"set_{part}.lst").read_bytes() for part in ("train", "val")]
    assert sum(len(each.splitlines()) for each in lists) == 25
    assert make() == []


def test_a_removed_image_is_no_longer_listed(make: Make) -> None:
    make()
    time.sleep(0.02)
    image_of(make, "set_train").unlink()
    ran = make()
    assert ran[0] == "make-list"
    assert "pack" in ran
    assert make() == []


def test_what_is_missing_is_made_again(make: Make) -> None:
    make()
    (make.folder / "set_val.manifest.json").unlink()
    assert make() == ["pack", "verify"]
    (make.folder / "set_val.lst").unlink()
    assert make() == ["make-list", "pack"]  # the same bytes as before: nothing to check
    assert make() == []


def test_one_set(make: Make) -> None:
    one = ("SETS=set", "LIST_OPTIONS=")
    assert make(*one) == ["make-list", "pack", "verify"]
    assert make(*one) == []
    make("clean", *one)
    assert [path.name for path in make.folder.iterdir()] == ["my photos"]


def test_make_clean_removes_all_that_was_made(make: Make) -> None:
    make("PACK_OPTIONS=--shards 2")
    make("clean")
    assert [path.name for path in make.folder.iterdir()] == ["my photos"]


def test_make_clean_leaves_strangers(make: Make) -> None:
    strangers = ["set_train_2024.rec", "set_train_2024.idx", "set_val_0003.rec", "set_val.packed2"]
    make("PACK_OPTIONS=--shards 2")
    for name in strangers:
        (make.folder / name).write_text("precious", encoding="utf-8")
    make("clean")
    assert sorted(path.name for path in make.folder.iterdir()) == sorted(["my photos", *strangers])


@pytest.mark.parametrize("quote", ["'", '"', ""])
def test_options_may_have_quotes(make: Make, quote: str) -> None:
    one = ("SETS=set", f"LIST_OPTIONS=--exts {quote}.jpg,.png{quote}")
    packed = (*one, f"PACK_OPTIONS=--resize {quote}32{quote}")
    assert make(*one) == ["make-list", "pack", "verify"]
    assert make(*packed) == ["pack", "verify"]
    assert make(*packed) == []
    assert make("SETS=set", f"LIST_OPTIONS=--exts {quote}.jpg{quote}", packed[-1])[0] == "make-list"


# --- Ninja ------------------------------------------------------------------------------------


def test_ninja_packs_again_what_has_changed(tmp_path: Path, im2rec: Run) -> None:
    shutil.copytree(CLEAN, tmp_path / "photos")
    (tmp_path / "data").mkdir()
    im2rec("make-list", "data/set", "photos")
    (tmp_path / "bin").mkdir()
    script = f'#!/bin/sh\nexec {sys.executable} -m im2rec "$@"\n'
    (tmp_path / "bin" / "im2rec").write_text(script, encoding="utf-8")
    (tmp_path / "bin" / "im2rec").chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def ninja() -> str:
        time.sleep(0.02)
        done = subprocess.run(
            [Path(sys.executable).parent / "ninja", "-f", EXAMPLES / "build.ninja"],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    assert "24 of 24 images packed" in ninja()
    assert "no work to do" in ninja()
    (tmp_path / "photos" / "ant" / "ant_0.jpg").touch()
    said = ninja()
    assert "unchanged" in said
    assert "verify" not in said
    assert "no work to do" in ninja()
    shutil.copy(CLEAN / "bee/bee_0.jpg", tmp_path / "photos" / "ant" / "ant_0.jpg")
    assert "verify" in ninja()
    assert "no work to do" in ninja()


# --- the CI job -------------------------------------------------------------------------------


def test_the_ci_job_runs(tmp_path: Path) -> None:
    """Every `run` step, in an environment of its own with nothing but im2rec's dependencies."""
    shutil.copytree(CLEAN, tmp_path / "photos")
    source = tmp_path / "im2rec"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(EXAMPLES.parent / name, source)
    shutil.copytree(EXAMPLES.parent / "im2rec", source / "im2rec")
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "venv")], check=True
    )
    workflow = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["pack"]["steps"]
    outside = [step["uses"].split("@")[0] for step in steps if "uses" in step]
    assert outside == ["actions/checkout", "actions/setup-python", "actions/upload-artifact"]
    path = f"{tmp_path / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
    for step in steps:
        if "run" in step:
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", step["run"]],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                encoding="utf-8",
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    kept = steps[-1]["with"]["path"].split()
    assert [pattern for pattern in kept if not list(tmp_path.glob(pattern))] == [
        "set_*.failures.tsv"  # no image of these fails
    ]


# --- scripts ----------------------------------------------------------------------------------


def run_script(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell script with an `im2rec` on the path."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "im2rec"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m im2rec "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_the_insightface_script_packs_faces(tmp_path: Path) -> None:
    (tmp_path / "people").symlink_to(CLEAN)
    done = run_script("insightface.sh", "people", "my faces", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines()[-1].endswith(": no problem")
    assert (tmp_path / "my faces" / "property").read_text(encoding="utf-8") == "4,112,112\n"
    stem = str(tmp_path / "my faces" / "train")
    with recordio.MXIndexedRecordIO(stem + ".idx", stem + ".rec", "r") as reader:
        header, _ = recordio.unpack(reader.read_idx(0))
    assert [*header.label] == [25, 29]


def test_the_sagemaker_script_makes_two_channels(tmp_path: Path) -> None:
    (tmp_path / "photos").symlink_to(CLEAN)
    done = run_script("sagemaker.sh", "photos", "my channels", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "num_classes=4, num_training_samples=20" in done.stdout
    channels = tmp_path / "my channels"
    assert [each.name for each in sorted(channels.rglob("*.rec"))] == [
        "train.rec",
        "validation.rec",
    ]
    assert not (channels / "set_train.rec").exists()


@pytest.mark.parametrize("name", ["insightface.sh", "sagemaker.sh"])
def test_a_script_without_its_names_says_how_it_is_called(name: str, tmp_path: Path) -> None:
    done = run_script(name, folder=tmp_path)
    assert done.returncode == 2
    assert f"usage: {name} PHOTOS FOLDER" in done.stderr


def test_a_script_ends_where_a_command_fails(tmp_path: Path) -> None:
    shutil.copytree(CLEAN, tmp_path / "photos")
    (tmp_path / "photos" / "ant" / "ant_0.jpg").write_bytes(b"no image")
    for name in ("insightface.sh", "sagemaker.sh"):
        done = run_script(name, "photos", "out", folder=tmp_path)
        assert done.returncode == 1
        assert "ant/ant_0.jpg: not an image of a known kind" in done.stderr
        assert not [*(tmp_path / "out").rglob("train.rec")]
