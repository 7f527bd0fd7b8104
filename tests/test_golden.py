"""What the real MXNet wrote, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, Run

from im2rec.image_ops import ImageOptions
from im2rec.pack import PackOptions, pack_list

LISTS = {
    "shuffled": [],
    "sorted": ["--no-shuffle"],
    "chunks3": ["--chunks", "3"],
    "split": ["--train-ratio", "0.5", "--test-ratio", "0.25"],
    "flat_exts": ["--no-recursive", "--no-shuffle", "--exts", ".png"],
}

PACKS = {
    "pass_through": PackOptions(ImageOptions(pass_through=True)),
    "plain": PackOptions(),
    "resize64": PackOptions(ImageOptions(resize=64)),
    "resize64_crop": PackOptions(ImageOptions(resize=64, center_crop=True)),
    "crop_only": PackOptions(ImageOptions(center_crop=True)),
    "resize64_q80": PackOptions(ImageOptions(resize=64, quality=80)),
    "gray": PackOptions(ImageOptions(resize=64, color=0)),
    "asis": PackOptions(ImageOptions(resize=64, color=-1)),
    "png": PackOptions(ImageOptions(resize=64, encoding=".png", quality=3)),
    "multi_label": PackOptions(ImageOptions(pass_through=True)),
    "multi_label_first_only": PackOptions(ImageOptions(pass_through=True), pack_label=False),
    "detection": PackOptions(ImageOptions(resize=64)),
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
    for name, options in PACKS.items():
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(GOLDEN / "packs" / name / "set.lst", folder)
        settings = PackOptions(
            options.image,
            options.pack_label,
            workers=workers,
            start_method=start_method,
            fsync=False,
        )
        pack_list(str(folder / "set.lst"), str(CLEAN), settings)
        for ending in ("lst", "rec", "idx"):
            golden = (GOLDEN / "packs" / name / f"set.{ending}").read_bytes()
            assert (folder / f"set.{ending}").read_bytes() == golden, f"{name}: {ending}"
