"""Pixels: what is done to a picture is what OpenCV does when asked directly, and a picture that is
not whole is refused. Whole packs against those of MXNet are in test_golden.py.

libjpeg tells of damage on file descriptor 2 alone, so what depends on it runs in a worker process
whose descriptor is redirected, as those of a run are.
"""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import resource
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import cv2
import numpy as np
import pytest
from conftest import BAD, CLEAN, ODD
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from im2rec.errors import ImageError
from im2rec.image_file import identify
from im2rec.image_ops import (
    INTERPOLATIONS,
    ImageOptions,
    PackedImage,
    _dct_scale,
    _method,
    center_crop,
    codec_log,
    convert,
    decode,
    encode,
    prepare_worker,
    resize_short_edge,
)

PHOTO = (CLEAN / "ant/ant_0.jpg").read_bytes()  # 160x120, baseline, one scan
NO_LOSS = ImageOptions(encoding=".png", quality=3)
DIRECT = {name: number for name, number in INTERPOLATIONS.items() if number < 5}


def picture_of(data: bytes, color: int = 1) -> np.ndarray:
    return decode(data, identify(data), color)[0]


def opencv_s(data: bytes, color: int = cv2.IMREAD_UNCHANGED) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(data, np.uint8), color)


def blank(width: int, height: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def refusal(data: bytes, options: ImageOptions) -> str:
    with pytest.raises(ImageError) as caught:
        convert(data, options, 0)
    return str(caught.value)


# --- scaling within the codec -----------------------------------------------------------------

SCALED = replace(NO_LOSS, dct_scaling=True, interpolation="area")


def scene(width: int, height: int) -> np.ndarray:
    """A picture with edges, curves and some noise, as photographs have."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = np.sin(x * y / 40_000) + np.sin(np.hypot(x - width / 3, y - height / 2) / 25)
    grey = 128 + 40 * waves + 30 * (x > width / 2) + np.random.default_rng(1).normal(0, 4, x.shape)
    return np.clip(
        np.dstack([grey, grey.T[:height, :width] if width == height else grey, 255 - grey]), 0, 255
    ).astype(np.uint8)


def jpeg_of(picture: np.ndarray, exif: int = 1) -> bytes:
    stream = io.BytesIO()
    tags = Image.Exif()
    tags[0x0112] = exif
    Image.fromarray(picture).save(stream, "JPEG", quality=90, exif=tags)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("size", "resize", "scale"),
    [
        ((1024, 2000), 64, 8),  # 128 are left, just twice the target
        ((1023, 2000), 64, 4),
        ((2000, 512), 64, 4),
        ((2000, 511), 64, 2),
        ((256, 256), 64, 2),
        ((255, 256), 64, 1),
        ((9000, 9000), 0, 1),
    ],
)
def test_the_codec_leaves_at_least_twice_the_target(
    size: tuple[int, int], resize: int, scale: int
) -> None:
    facts = replace(identify(PHOTO), width=size[0], height=size[1])
    assert _dct_scale(facts, replace(SCALED, resize=resize)) == scale
    assert _dct_scale(facts, replace(NO_LOSS, resize=resize)) == 1
    assert _dct_scale(replace(facts, kind="png"), replace(SCALED, resize=resize)) == 1


@pytest.mark.parametrize("color", [0, 1])
@pytest.mark.parametrize("exif", [1, 6])
@pytest.mark.parametrize("center_crop", [False, True])
@pytest.mark.parametrize("size", [(1203, 901), (1003, 1007), (901, 1203)])
def test_scaling_is_near_to_area_on_all_pixels(
    color: int, exif: int, center_crop: bool, size: tuple[int, int]
) -> None:
    """In size the same, in pixels no farther than 40 dB; a crop may be off by a quarter of a
    resulting pixel, as it can only be cut between scaled ones."""
    data = jpeg_of(scene(*size), exif)
    options = replace(SCALED, resize=100, color=color, center_crop=center_crop)
    scaled = opencv_s(convert(data, options, 0).image)
    full = opencv_s(convert(data, replace(options, dct_scaling=False), 0).image)
    assert scaled.shape == full.shape
    error = np.mean((scaled.astype(float) - full) ** 2)
    assert 10 * np.log10(255**2 / error) >= (37 if center_crop else 40)


def test_small_pictures_and_other_kinds_are_not_scaled() -> None:
    for data in (PHOTO, encode(scene(1203, 901), NO_LOSS)):
        options = replace(SCALED, resize=64)
        plain = replace(options, dct_scaling=False)
        assert convert(data, options, 0).image == convert(data, plain, 0).image


# --- size -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "target", "new"),
    [
        ((160, 120), 64, (85, 64)),  # 160 * 64 / 120 = 85.3
        ((120, 160), 64, (64, 85)),
        ((131, 99), 64, (84, 64)),  # 84.7: floored, not rounded
        ((96, 97), 64, (64, 64)),  # 64.7
        ((96, 97), 200, (200, 202)),  # 202.1
        ((500, 1), 64, (32000, 64)),
        ((57, 57), 64, (64, 64)),
        ((80, 64), 64, (80, 64)),
    ],
)
def test_the_short_edge_is_the_target_and_the_long_one_floored(
    old: tuple[int, int], target: int, new: tuple[int, int]
) -> None:
    resized = resize_short_edge(blank(*old), ImageOptions(resize=target), 0)
    assert resized.shape == (new[1], new[0], 3)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 90))
def test_the_size_is_im2rec_s_for_any_picture(width: int, height: int, target: int) -> None:
    resized = resize_short_edge(blank(width, height), ImageOptions(resize=target), 0)
    if width > height:
        assert resized.shape[:2] == (target, width * target // height)
    else:
        assert resized.shape[:2] == (height * target // width, target)


@pytest.mark.parametrize(("target", "edges"), [(48, (64, 48)), (120, (160, 120)), (240, None)])
def test_no_upscale_leaves_smaller_pictures(target: int, edges: tuple[int, int] | None) -> None:
    options = replace(NO_LOSS, resize=target, no_upscale=True)
    facts = identify(convert(PHOTO, options, 0).image)
    assert (facts.width, facts.height) == (edges or (160, 120))
    facts = identify(convert(PHOTO, replace(options, no_upscale=False), 0).image)
    assert (facts.width, facts.height) == (edges or (320, 240))


@pytest.mark.parametrize(
    ("edges", "left", "top", "edge"),
    [
        ((8, 5), 1, 0, 5),
        ((5, 8), 0, 1, 5),
        ((9, 5), 2, 0, 5),
        ((6, 6), 0, 0, 6),
        ((1, 7), 0, 3, 1),
        ((500, 1), 249, 0, 1),
    ],
)
def test_the_crop_s_margins_are_floored(
    edges: tuple[int, int], left: int, top: int, edge: int
) -> None:
    width, height = edges
    picture = np.arange(width * height * 3).reshape(height, width, 3).astype(np.uint16)
    expected = picture[top : top + edge, left : left + edge]
    np.testing.assert_array_equal(center_crop(picture), expected)
    np.testing.assert_array_equal(center_crop(picture[:, :, 0]), expected[:, :, 0])


def test_the_crop_comes_before_the_resize() -> None:
    packed = convert(PHOTO, replace(NO_LOSS, resize=50, center_crop=True), 0)
    expected = cv2.resize(opencv_s(PHOTO, 1)[:, 20:140], (50, 50), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(opencv_s(packed.image), expected)


# --- interpolation ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", [50, 200])
def test_each_interpolation_is_opencv_s(target: int) -> None:
    size = (160 * target // 120, target)
    seen = set()
    for name, number in DIRECT.items():
        options = replace(NO_LOSS, resize=target, interpolation=name)
        image = convert(PHOTO, options, 0).image
        expected = cv2.resize(opencv_s(PHOTO, 1), size, interpolation=number)
        np.testing.assert_array_equal(opencv_s(image), expected)
        seen.add(image)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("new", "old", "chosen"),
    [
        ((9, 6), (8, 5), "cubic"),
        ((7, 4), (8, 5), "area"),
        ((8, 6), (8, 5), "linear"),
        ((8, 4), (8, 5), "linear"),
        ((9, 4), (8, 5), "linear"),
        ((8, 5), (8, 5), "linear"),
    ],
)
def test_auto_is_cubic_to_grow_area_to_shrink_else_linear(
    new: tuple[int, int], old: tuple[int, int], chosen: str
) -> None:
    assert _method("auto", new, old, 0) == DIRECT[chosen]


@pytest.mark.parametrize(("target", "chosen"), [(50, "area"), (200, "cubic")])
def test_auto_packs_what_it_chose(target: int, chosen: str) -> None:
    options = ImageOptions(resize=target, interpolation="auto")
    assert convert(PHOTO, options, 5) == convert(PHOTO, replace(options, interpolation=chosen), 5)


def test_random_depends_on_the_seed_alone_and_uses_all_five() -> None:
    methods = [_method("random", (1, 1), (2, 2), seed) for seed in range(20)]
    # the CRC-32 of the id's 8 bytes, modulo 5: no other release or machine may choose otherwise
    assert methods == [3, 0, 2, 2, 0, 1, 2, 3, 2, 3, 1, 1, 1, 4, 1, 2, 2, 2, 0, 2]
    assert _method("random", (9, 9), (7, 7), 2**64 - 1) in range(5)
    options = ImageOptions(resize=50, interpolation="random")
    for seed, name in enumerate(["area", "nearest", "cubic"]):
        direct = convert(PHOTO, replace(options, interpolation=name), 0)
        assert convert(PHOTO, options, seed) == direct


# --- colour and encoding ----------------------------------------------------------------------

# Pillow's mode for what OpenCV gives of each file with flag -1.
AS_STORED = {
    "bilevel.png": "L",
    "bmp.bmp": "RGB",
    "cmyk.jpg": "RGB",
    "gif.gif": "RGB",
    "gray.jpg": "L",
    "la.png": "RGBA",
    "one_pixel.jpg": "RGB",
    "palette.png": "RGB",
    "rgba.png": "RGBA",
    "rgba_alpha.png": "RGBA",
    "tiff.tiff": "RGB",
    "upper.JPG": "RGB",
    "webp.webp": "RGB",
    "wrong_extension_png.jpg": "RGB",
}


def pillow_s(data: bytes, mode: str) -> np.ndarray:
    """Pillow's picture in OpenCV's order of channels."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert(mode)).astype(int)
    return pixels if mode == "L" else pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]


@pytest.mark.parametrize("name", AS_STORED)
@pytest.mark.parametrize("color", [1, 0, -1])
def test_every_kind_decodes_to_the_picture_that_pillow_sees(name: str, color: int) -> None:
    data = (ODD / "kinds" / name).read_bytes()
    expected = pillow_s(data, {1: "RGB", 0: "L", -1: AS_STORED[name]}[color])
    picture = picture_of(data, color)
    assert picture.dtype == np.uint8
    assert picture.shape == expected.shape
    # the two round grey and CMYK differently
    bound = 2 if name == "cmyk.jpg" else color == 0
    assert np.abs(picture.astype(int) - expected).max() <= bound


def test_an_animation_is_its_first_picture() -> None:
    data = (ODD / "kinds/anim.gif").read_bytes()
    np.testing.assert_array_equal(picture_of(data), pillow_s(data, "RGB"))


def test_16_bit_grey_stays_so_or_gives_its_high_byte() -> None:
    data = (ODD / "kinds/gray16.png").read_bytes()
    stored = np.asarray(Image.open(io.BytesIO(data)))
    assert stored.max() > 255
    np.testing.assert_array_equal(picture_of(data, -1), stored)
    np.testing.assert_array_equal(picture_of(data, 0), stored >> 8)
    np.testing.assert_array_equal(picture_of(data, 1)[:, :, 1], stored >> 8)
    as_is = replace(NO_LOSS, color=-1)
    np.testing.assert_array_equal(opencv_s(convert(data, as_is, 0).image), stored)
    assert refusal(data, replace(as_is, encoding=".jpg", quality=95)) == (
        "uint16 channels do not fit a JPEG; use --encoding .png, or --color 0 or 1 for 8 bits"
    )


@pytest.mark.parametrize("code", range(1, 9))
def test_the_exif_turn_is_made_but_not_as_stored(code: int) -> None:
    data = (ODD / f"exif/orient_{code}.jpg").read_bytes()
    turned = (60, 80) if code <= 4 else (80, 60)
    assert picture_of(data, 1).shape == (*turned, 3)
    assert picture_of(data, 0).shape == turned
    assert picture_of(data, -1).shape == (60, 80, 3)


@pytest.mark.parametrize("quality", [1, 50, 95, 100])
def test_jpeg_quality_is_opencv_s(quality: int) -> None:
    _, expected = cv2.imencode(".jpg", opencv_s(PHOTO, 1), [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert convert(PHOTO, ImageOptions(quality=quality), 0).image == expected.tobytes()


@pytest.mark.parametrize("level", [0, 3, 9])
def test_png_quality_is_opencv_s_compression(level: int) -> None:
    options = replace(NO_LOSS, quality=level)
    _, expected = cv2.imencode(".png", opencv_s(PHOTO, 1), [cv2.IMWRITE_PNG_COMPRESSION, level])
    assert convert(PHOTO, options, 0).image == expected.tobytes()


def test_pass_through_gives_the_file_s_bytes_once_it_is_whole() -> None:
    options = ImageOptions(pass_through=True, resize=9, encoding=".png", color=0)
    assert convert(PHOTO, options, 0) == PackedImage(PHOTO, identify(PHOTO), 160, 120)
    assert refusal(PHOTO[:-2], options) == "truncated: no end-of-image marker"


# --- bounds -----------------------------------------------------------------------------------


def test_a_jpeg_edge_may_have_65500_pixels_and_no_more() -> None:
    assert picture_of(encode(blank(65500, 1), ImageOptions())).shape == (1, 65500, 3)
    assert picture_of(encode(blank(65501, 1), NO_LOSS)).shape == (1, 65501, 3)
    with pytest.raises(ImageError) as caught:
        encode(blank(1, 65501), ImageOptions())
    assert str(caught.value) == "1x65501 pixels, over JPEG's limit of 65500 an edge"


def test_a_result_that_no_jpeg_holds_is_refused_before_it_is_made() -> None:
    data = (ODD / "kinds/thin_tall.jpg").read_bytes()
    assert identify(convert(data, ImageOptions(resize=131), 0).image).height == 65500
    assert refusal(data, ImageOptions(resize=132)) == (
        "resized to 132x66000 pixels, over JPEG's limit of 65500 an edge"
    )
    huge = ImageOptions(resize=10**9)
    assert refusal(data, replace(huge, encoding=".png", quality=3)) == (
        "resized to 1000000000x500000000000 pixels, over --max-pixels 178956970"
    )


def test_max_pixels_bounds_the_source() -> None:
    convert(PHOTO, ImageOptions(max_pixels=19200), 0)
    expected = "too large: 160x120 pixels, over --max-pixels 19199"
    assert refusal(PHOTO, ImageOptions(max_pixels=19199)) == expected
    assert refusal(PHOTO, ImageOptions(max_pixels=19199, pass_through=True)) == expected


def test_max_pixels_bounds_the_result() -> None:
    options = ImageOptions(resize=240, max_pixels=320 * 240)
    convert(PHOTO, options, 0)
    assert refusal(PHOTO, replace(options, max_pixels=320 * 240 - 1)) == (
        "resized to 320x240 pixels, over --max-pixels 76799"
    )


def test_a_bomb_is_refused_from_its_header() -> None:
    data = (BAD / "x/bomb.png").read_bytes()
    expected = "too large: 60000x60000 pixels, over --max-pixels 178956970"
    assert refusal(data, ImageOptions()) == expected
    with pytest.raises(ImageError) as caught:
        picture_of(data)  # without any --max-pixels
    expected = "too large: 60000x60000 pixels, over OpenCV's limit of 1073741824"
    assert str(caught.value) == expected


# --- damage -----------------------------------------------------------------------------------

Outcome = tuple[str, tuple[str, ...]]  # why a picture is refused, or ""; what was remarked


def outcome(data: bytes) -> Outcome:
    try:
        return "", convert(data, ImageOptions(), 0).remarks
    except ImageError as error:
        return str(error), ()


def decoded(data: bytes) -> np.ndarray | None:
    try:
        return picture_of(data)
    except ImageError:
        return None


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process prepared as a run's workers are."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, context, initializer=prepare_worker, initargs=(ImageOptions(),)
    ) as executor:
        yield executor


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)  # type: ignore[arg-type]
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(rows: bytes, *more: bytes) -> bytes:
    """A PNG of 4x4 grey pixels with the IDAT given, and other chunks before it."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0))
    chunks = [header, *more, chunk(b"IDAT", rows), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


NOISE = np.random.default_rng(3).integers(0, 256, (24, 40, 3), dtype=np.uint8)
BASELINE = jpeg(NOISE)
SCAN = BASELINE.index(b"\xff\xda")
EOI = b"\xff\xd9"
CUT = BASELINE[: SCAN + 200] + EOI  # whole in its structure
RESTARTS = jpeg(NOISE, restart_marker_blocks=1)
ROWS = zlib.compress(bytes(range(20)))  # each row begins with its filter, the first with 0
NO_FILTERS = zlib.compress(b"\0abcd" * 4)

PREMATURE = "damaged jpeg: Corrupt JPEG data: premature end of data segment"
STRAY = "Corrupt JPEG data: {} extraneous bytes before marker 0xd9"


def segment_start(marker: int) -> bytes:
    """The first segment of that kind in BASELINE, up to its 21st byte."""
    at = BASELINE.index(bytes([0xFF, marker]))
    return BASELINE[at : at + 21]


def with_jfif_major(data: bytes) -> bytes:
    return data.replace(b"JFIF\0\x01", b"JFIF\0\x03")


def with_adobe_transform(data: bytes) -> bytes:
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x07"
    return data[:2] + adobe + data[data.index(b"\xff\xdb") :]


def with_odd_spectrum(data: bytes) -> bytes:
    return data.replace(b"\x00\x3f\x00", b"\x01\x3f\x00")


DAMAGED = {
    "zeros inside the scan": ((BAD / "x/zeros_inside.jpg").read_bytes(), PREMATURE),
    "a scan cut, then ended": (CUT, PREMATURE),
    "a scan that is empty": (BASELINE[: SCAN + 14] + EOI, PREMATURE),
    "its last byte lost": (BASELINE[:-3] + EOI, PREMATURE),
    "behind an odd JFIF version": (with_jfif_major(CUT), PREMATURE),
    "behind an odd Adobe transform": (with_adobe_transform(CUT), PREMATURE),
    "behind an odd spectral selection": (with_odd_spectrum(CUT), PREMATURE),
    "a Huffman table that cannot be": (
        BASELINE.replace(segment_start(0xC4), segment_start(0xC4)[:5] + b"\xff" * 16),
        "damaged jpeg: OpenCV cannot decode it",
    ),
    "a restart marker lost": (
        RESTARTS.replace(b"\xff\xd1", b""),
        "damaged jpeg: Corrupt JPEG data: {} extraneous bytes before marker 0xd2",
    ),
    "a restart interval lost": (
        RESTARTS[: RESTARTS.index(b"\xff\xd0")] + RESTARTS[RESTARTS.index(b"\xff\xd1") :],
        "damaged jpeg: Corrupt JPEG data: found marker 0xd1 instead of RST0",
    ),
    "PNG rows that are cut": (
        png(NO_FILTERS[:-6]),
        "damaged png: libpng error: Not enough image data",
    ),
    "PNG rows that are too few": (
        png(zlib.compress(b"\0abcd" * 3)),
        "damaged png: libpng error: Not enough image data",
    ),
    "PNG rows with another checksum": (
        png(NO_FILTERS[:-1] + b"?"),
        "damaged png: libpng error: IDAT: incorrect data check",
    ),
    "a PNG filter that does not exist": (
        png(ROWS),
        "damaged png: libpng error: bad adaptive filter value",
    ),
}

REMARKED = {
    "a whole file": (BASELINE, ()),
    "junk behind the end": ((BAD / "x/tail_garbage.jpg").read_bytes(), ()),
    "bytes before the end marker": (BASELINE[:-2] + b"U" * 20 + EOI, (STRAY,)),
    "an odd JFIF version": (
        with_jfif_major(BASELINE),
        ("Warning: unknown JFIF revision number 3.01",),
    ),
    "an odd JFIF version before bytes before the end marker": (
        with_jfif_major(BASELINE)[:-2] + b"U" * 20 + EOI,
        ("Warning: unknown JFIF revision number 3.01", STRAY),
    ),
    "an odd Adobe transform": (
        with_adobe_transform(BASELINE),
        ("Unknown Adobe color transform code 7",),
    ),
    "an odd spectral selection": (
        with_odd_spectrum(BASELINE),
        ("Invalid SOS parameters for sequential JPEG",),
    ),
    "a PNG": (png(NO_FILTERS), ()),
    "a PNG text with a wrong CRC": (
        png(NO_FILTERS, chunk(b"tEXt", b"a\0b")[:-1] + b"?"),
        ("libpng warning: tEXt: CRC error",),
    ),
    "too many PNG rows": (
        png(zlib.compress(b"\0abcd" * 99)),
        ("libpng warning: IDAT: Too much image data",),
    ),
}


def without_counts(text: str) -> str:
    """How many bytes are left over depends on how far libjpeg reads ahead."""
    words = text.split()
    return " ".join("{}" if after == "extraneous" else word for word, after in pairs(words))


def pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    return itertools.zip_longest(words, words[1:], fillvalue="")


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_in_the_codec_s_words(name: str, worker: ProcessPoolExecutor) -> None:
    data, expected = DAMAGED[name]
    said, remarks = worker.submit(outcome, data).result()
    assert (without_counts(said), remarks) == (expected, ())


@pytest.mark.parametrize("name", REMARKED)
def test_a_remark_on_a_whole_picture_is_no_failure(name: str, worker: ProcessPoolExecutor) -> None:
    data, expected = REMARKED[name]
    said, remarks = worker.submit(outcome, data).result()
    assert (said, tuple(map(without_counts, remarks))) == ("", expected)


def test_no_remark_of_one_picture_is_made_on_the_next(worker: ProcessPoolExecutor) -> None:
    refused = worker.submit(outcome, CUT)
    assert worker.submit(outcome, BASELINE).result() == ("", ())
    assert refused.result() == (PREMATURE, ())


def outcome_after_words(data: bytes) -> Outcome:
    os.write(2, b"Corrupt JPEG data: premature end of data segment\n")  # whoever says so
    return outcome(data)


def test_what_was_said_before_is_no_remark(worker: ProcessPoolExecutor) -> None:
    assert worker.submit(outcome_after_words, BASELINE).result() == ("", ())


def test_bytes_left_over_by_a_changed_scan_are_damage(worker: ProcessPoolExecutor) -> None:
    """libjpeg says the same of them as of stray bytes."""
    data = (CLEAN / "dog/dog_1.jpg").read_bytes()
    scan = data.index(b"\xff\xda")
    for at in range(scan + 500, len(data) - 500, 300):
        changed = data[:at] + b"\x13\x57\x9b\xdf" * 4 + data[at + 16 :]
        said, remarks = worker.submit(outcome, changed).result()
        if said.startswith("damaged jpeg: the scan has "):
            assert remarks == ()
            return
    pytest.fail("libjpeg never left bytes over")


CUTS = {
    "baseline": BASELINE,
    "progressive": jpeg(NOISE, progressive=True),
    "restarts": RESTARTS,
    **{
        ending: cv2.imencode(ending, NOISE)[1].tobytes()
        for ending in (".png", ".webp", ".tiff", ".bmp", ".ppm")
    },
    "gif": (ODD / "kinds/gif.gif").read_bytes(),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("logged", [False, True], ids=["unlogged", "logged"])
def test_a_cut_file_never_decodes_to_another_picture(
    name: str, logged: bool, worker: ProcessPoolExecutor
) -> None:
    data = CUTS[name]
    cuts = [data[:cut] for cut in range(0, len(data), 1 + len(data) // 400)]
    pictures = list(worker.map(decoded, cuts, chunksize=100) if logged else map(decoded, cuts))
    whole = picture_of(data)
    np.testing.assert_array_equal(whole, opencv_s(data, 1))
    for picture in pictures:
        if picture is not None:
            np.testing.assert_array_equal(picture, whole)
    assert sum(picture is not None for picture in pictures) <= 1  # padding at the end


@given(st.data())
def test_mutated_images_raise_nothing_but_image_error(data: st.DataObject) -> None:
    image = bytearray(CUTS[data.draw(st.sampled_from(sorted(CUTS)))])
    for at, byte in data.draw(st.dictionaries(st.integers(0, 500), st.integers(0, 255))).items():
        image[at % len(image)] = byte
    options = ImageOptions(resize=8, max_pixels=10**6)
    try:
        facts = identify(convert(bytes(image), options, 0).image)
    except ImageError:
        return
    assert min(facts.width, facts.height) == 8


def test_nothing_is_logged_where_nothing_is_captured() -> None:
    assert codec_log().take() == ()
    assert outcome(BASELINE[:-2] + b"U" * 20 + EOI) == ("", ())


def test_a_worker_is_prepared(worker: ProcessPoolExecutor) -> None:
    assert worker.submit(cv2.getNumThreads).result() == 1


# --- memory -----------------------------------------------------------------------------------

LARGE = np.tile(NOISE, (45, 30, 1))  # 1080x1200 pixels


def outcomes_in_memory(data: bytes, options: ImageOptions) -> list[str]:
    """What comes of converting in processes that may take ever more memory beyond what they have:
    0 to 15 bytes a pixel."""
    for small in CUTS.values():
        convert(small, options, 0)  # so that every module is loaded
    facts = identify(data)
    limits = [facts.width * facts.height * bytes_per_pixel for bytes_per_pixel in range(16)]
    return [outcome_in_memory(data, options, limit) for limit in limits]


def outcome_in_memory(data: bytes, options: ImageOptions, more: int) -> str:
    child = os.fork()
    if child == 0:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            convert(data, options, 0)
        except MemoryError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", 1: "MemoryError"}.get(code, f"exit {code}")


def large(ending: str) -> bytes:
    return cv2.imencode(ending, LARGE)[1].tobytes()


MEMORY_CASES = {
    "progressive": (jpeg(LARGE, progressive=True), ImageOptions()),
    "to png": (large(".jpg"), NO_LOSS),
    "resized": (large(".jpg"), ImageOptions(resize=1100)),
    "bmp": (large(".bmp"), ImageOptions()),
    "bmp passed through": (large(".bmp"), ImageOptions(pass_through=True)),
}


@pytest.mark.parametrize("name", MEMORY_CASES)
def test_a_lack_of_memory_is_never_the_image_s_fault(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --max-failures, an image that is refused is left out; a run that lacks memory ends."""
    for kind in ("TRIM", "MMAP"):  # glibc then keeps nothing that is freed
        monkeypatch.setenv(f"MALLOC_{kind}_THRESHOLD_", "131072")
    context = multiprocessing.get_context("spawn")  # a new process, with no memory to use again
    with ProcessPoolExecutor(
        1, context, initializer=prepare_worker, initargs=(ImageOptions(),)
    ) as executor:
        outcomes = executor.submit(outcomes_in_memory, *MEMORY_CASES[name]).result()
    assert set(outcomes) == {"MemoryError", "done"}
    assert outcomes == sorted(outcomes)  # the more memory, the better
