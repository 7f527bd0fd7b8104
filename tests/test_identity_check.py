"""Records without an image: InsightFace's, and those that have lost theirs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from im2rec import recordio
from im2rec.record_set import find_set
from im2rec.verify import Problem, VerifyOptions, verify_set

Rows = dict[int, list[float]]


def image() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, "JPEG")
    return data.getvalue()


def face_set(folder: Path, images: Rows, bare: Rows) -> str:
    """A set with these ids and labels, and a list that has none of them but the first."""
    prefix = str(folder / "set")
    with recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "w") as writer:
        for key, labels in {**images, **bare}.items():
            header = recordio.IRHeader(0, labels if len(labels) > 1 else labels[0], key, 0)
            writer.write_idx(key, recordio.pack(header, b"" if key in bare else image()))
    return prefix


def found(prefix: str, **options: object) -> list[Problem]:
    settings = VerifyOptions(workers=1, **options)  # type: ignore[arg-type]
    return verify_set(find_set(prefix), settings).problems


IMAGES: Rows = {1: [0], 2: [0], 3: [1]}
BARE: Rows = {4: [1, 3], 5: [3, 4], 0: [4, 6]}


def test_sound_identities_need_no_image_and_stand_in_no_list(tmp_path: Path) -> None:
    prefix = face_set(tmp_path, IMAGES, BARE)
    path = tmp_path / "other.lst"
    path.write_text("".join(f"{key}\t{IMAGES[key][0]}\t{key}.jpg\n" for key in IMAGES), "utf-8")
    assert found(prefix, decode=True, list_path=str(path)) == []


@pytest.mark.parametrize(
    ("images", "bare", "lost"),
    [
        ({}, {0: [1, 100], 1: [1, 100], 2: [1, 100]}, [0, 1, 2]),  # all share two labels
        ({}, {1: [0], 2: [0], 3: [1], **BARE}, [0, 1, 2, 3, 4, 5]),  # every image is gone
        ({1: [0], 2: [0]}, {3: [1], **BARE}, [3, 5]),  # one is: its identity, too, is of nothing
        (IMAGES, {**BARE, 5: [3, 5]}, [5]),  # images that are none
        (IMAGES, {**BARE, 5: [0.5, 4]}, [5]),
        (IMAGES, {**BARE, 5: [3, 3]}, [5]),
        (IMAGES, {**BARE, 5: [float("inf"), 4]}, [5]),
        (IMAGES, {**BARE, 5: [1]}, [5]),  # one label
        (IMAGES, {**BARE, 6: [1, 3]}, [6]),  # beyond those the header tells of
        (IMAGES, {4: [1, 3], 5: [3, 4], 0: [4, 5.5]}, [0, 4, 5]),
        (IMAGES, {4: [1, 3], 5: [3, 4]}, [4, 5]),  # no header
    ],
)
def test_what_is_no_identity_has_lost_its_image_and_is_in_no_list(
    images: Rows, bare: Rows, lost: list[int], tmp_path: Path
) -> None:
    prefix = face_set(tmp_path, images, bare)
    path = tmp_path / "other.lst"
    path.write_text("".join(f"{key}\t{key}\t{key}.jpg\n" for key in images), "utf-8")
    problems = found(prefix, decode=True, list_path=str(path))
    for code in ("no-image", "list-extra"):
        assert sorted(each.id or 0 for each in problems if each.code == code) == lost


def test_large_keys_are_known_though_float32_has_rounded_them(tmp_path: Path) -> None:
    last = 2**24 + 1
    bare: Rows = {last + 3: [2**24, 2**24], last + 4: [2**24, last + 3], 0: [last + 3, last + 5]}
    prefix = face_set(tmp_path, {2**24: [0], last: [1], last + 1: [2], last + 2: [2]}, bare)
    assert [each.code for each in found(prefix, decode=True)] == []
