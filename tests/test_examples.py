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
from conftest import CLEAN

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_every_example_is_tested() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith("__")}
    assert there == {"quickstart.py", "Makefile", "github-workflow.yml"}


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
    assert make() == ["make-list", "pack", "verify"]
    assert make() == []
    assert make("list", "rec", "check") == []


def test_make_stops_at_the_step_asked_for(make: Make) -> None:
    assert make("list") == ["make-list"]
    assert make("rec") == ["pack"]
    assert make("check") == ["verify"]


def test_a_changed_image_is_packed_again_but_not_listed(make: Make) -> None:
    make()
    time.sleep(0.02)
    (make.photos / "dog" / "dog_1.jpg").touch()
    assert make() == ["pack", "verify"]
    assert make() == []


def test_a_new_image_is_listed(make: Make) -> None:
    make()
    time.sleep(0.02)
    shutil.copy(CLEAN / "bee/bee_0.jpg", make.photos / "bee" / "one more.jpg")
    assert make() == ["make-list", "pack", "verify"]
    assert len((make.folder / "set.lst").read_bytes().splitlines()) == 25


def test_a_missing_set_is_made_again(make: Make) -> None:
    make()
    (make.folder / "set.manifest.json").unlink()
    assert make() == ["pack", "verify"]


def test_make_clean_removes_all_that_was_made(make: Make) -> None:
    make("PACK_OPTIONS=--shards 2")
    make("clean")
    assert [path.name for path in make.folder.iterdir()] == ["my photos"]


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
