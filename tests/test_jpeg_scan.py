"""The second look at JPEG scans: damage is seen, and no sound picture is called damaged."""

from __future__ import annotations

import io
import itertools
import random

import numpy as np
import pytest
from conftest import BAD, CLEAN, ODD
from PIL import Image

from im2rec.jpeg_scan import find_damage

PHOTO = (CLEAN / "dog/dog_1.jpg").read_bytes()
SOUND = [path for folder in (CLEAN, ODD) for path in sorted(folder.rglob("*.[jJ]*"))]
SOUND = [path for path in SOUND if path.read_bytes().startswith(b"\xff\xd8")]


def noisy(edges: tuple[int, int], mode: str) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (*edges, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def saved(picture: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", **options)  # type: ignore[arg-type]
    return file.getvalue()


def with_strays(data: bytes, strays: bytes) -> bytes:
    end = data.rindex(b"\xff\xd9")
    return data[:end] + strays + data[end:]


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.name)
@pytest.mark.parametrize("strays", [b"", b"\0" * 9, b"some text, say"])
def test_a_sound_picture_is_sound_with_stray_bytes_or_without(path, strays: bytes) -> None:  # type: ignore[no-untyped-def]
    assert find_damage(with_strays(path.read_bytes(), strays)) is None


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("edges", [(1, 1), (8, 8), (17, 9), (64, 100)])
def test_every_form_of_a_sound_picture(mode: str, edges: tuple[int, int]) -> None:
    forms = itertools.product((0, 1, 2), (False, True), (0, 1, 3), (1, 60, 100))
    for subsampling, optimize, restart, quality in forms:
        data = saved(
            noisy(edges, mode),
            subsampling=subsampling,
            optimize=optimize,
            restart_marker_blocks=restart,
            quality=quality,
        )
        assert find_damage(data) is None
        assert find_damage(with_strays(data, b"strays")) is None


def test_most_changes_that_leave_bytes_over_are_seen() -> None:
    """Bytes changed at random places of the scan, kept where libjpeg would see no more than bytes
    left over: here, where the walk comes to its end. Most are seen; changes that keep the codes in
    step, and so damage one block alone, cannot be."""
    scan = PHOTO.index(b"\xff\xda") + 14
    rng = random.Random(7)
    seen = 0
    for _ in range(60):
        data = bytearray(PHOTO)
        at = rng.randrange(scan, len(data) - 200)
        data[at : at + 16] = bytes(16)
        seen += find_damage(bytes(data)) is not None
    assert seen > 30


@pytest.mark.parametrize(
    ("change", "found"),
    [
        # The DC code of the first block, then a difference of 11 bits: far brighter than white.
        ("brightness", "a brightness that does not exist"),
        # A run of 16 zeros, over and over, passes the 63rd coefficient.
        ("run", "more coefficients than a block has"),
        ("code", "a code that does not exist"),
        ("filling", "a last byte that is not filled up"),
    ],
)
def test_each_sign_of_damage(change: str, found: str) -> None:
    # One grey block: the codes of T.81's Annex K, put together by hand.
    head = saved(Image.new("L", (8, 8), 128), quality=50)
    scan = head[: head.index(b"\xff\xda") + 10]
    bits = {
        "sound": "00" + "1010",  # DC difference of 0 bits; end of block
        "brightness": "111111110" + "1" * 11 + "1010",  # DC difference 2047
        "run": "00" + "11111111001" * 4 + "1010",
        "code": "00" + "1" * 16,
        "filling": "00" + "1010" + "01",
    }
    data = {
        name: scan + packed(text, filled="1" if name != "filling" else "0") + b"\xff\xd9"
        for name, text in bits.items()
    }
    assert find_damage(data["sound"]) is None
    assert find_damage(data[change]) == found


def packed(bits: str, filled: str) -> bytes:
    """Bits as bytes, filled up, with a zero stuffed in after each 0xff."""
    bits += filled * (-len(bits) % 8)
    data = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    return data.replace(b"\xff", b"\xff\x00")


def test_damage_names_its_restart_interval() -> None:
    data = bytearray(saved(noisy((64, 64), "RGB"), restart_marker_blocks=2, quality=90))
    third = data.index(b"\xff\xd2")
    data[third + 2 : third + 40] = bytes(38)
    assert (find_damage(bytes(data)) or "").endswith(" in restart interval 3")


def test_what_is_not_walked_is_not_judged() -> None:
    progressive = saved(noisy((64, 64), "RGB"), progressive=True)
    assert find_damage(progressive) is None
    assert find_damage((BAD / "x/truncated_header.jpg").read_bytes()) is None


def test_no_bytes_make_it_fail() -> None:
    rng = random.Random(11)
    for _ in range(150):
        data = bytearray(PHOTO[: rng.randrange(2, len(PHOTO))])
        for _ in range(rng.randrange(6)):
            data[rng.randrange(2, min(len(data), 700))] = rng.randrange(256)
        find_damage(bytes(data))
