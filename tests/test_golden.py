"""What the real MXNet wrote, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, Run
from golden_packs import PACKS

LISTS = {
    "shuffled": [],
    "sorted": ["--no-shuffle"],
    "chunks3": ["--chunks", "3"],
    "split": ["--train-ratio", "0.5", "--test-ratio", "0.25"],
    "flat_exts": ["--no-recursive", "--no-shuffle", "--exts", ".png"],
}


def test_every_golden_folder_is_tested() -> None:
    assert {path.name for path in (GOLDEN / "lists").iterdir()} == LISTS.keys()
    assert {path.name for path in (GOLDEN / "packs").iterdir()} == PACKS.keys()


@pytest.mark.parametrize("name", LISTS)
def test_list(name: str, tmp_path: Path, im2rec: Run) -> None:
    root = CLEAN / "ant" if name == "flat_exts" else CLEAN
    im2rec("make-list", "set", root, *LISTS[name])
    golden = {path.name: path.read_bytes() for path in (GOLDEN / "lists" / name).iterdir()}
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.lst")} == golden


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_packs_with_any_workers_and_start_method(
    workers: int, start_method: str, tmp_path: Path
) -> None:
    """In a process of its own, which does nothing else."""
    for name in PACKS:
        (tmp_path / name).mkdir()
        shutil.copy(GOLDEN / "packs" / name / "set.lst", tmp_path / name)
    script = Path(__file__).parent / "golden_packs.py"
    command = [sys.executable, script, tmp_path, CLEAN, str(workers), start_method]
    subprocess.run(command, check=True, timeout=200)
    for name in PACKS:
        for ending in ("lst", "rec", "idx"):
            golden = (GOLDEN / "packs" / name / f"set.{ending}").read_bytes()
            assert (tmp_path / name / f"set.{ending}").read_bytes() == golden, f"{name}: {ending}"
