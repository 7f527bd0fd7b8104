"""Damage: each picture of every kind, cut, filled with zeros, changed or swollen in every way, ends
packed rightly or with its reason, with and without decoding.

What is decoded is compared with Pillow's picture, or with OpenCV's of the whole file. libjpeg tells
of damage on file descriptor 2 alone, so all this runs in a process prepared as a run's workers are.
"""

from __future__ import annotations

import base64
import io
import multiprocessing
import random
import resource
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import BAD, CLEAN, ODD, Run
from PIL import Image

from im2rec.errors import ImageError
from im2rec.image_file import identify
from im2rec.image_ops import ImageOptions, convert, decode, prepare_worker
from im2rec.jpeg_scan import find_zeros

PASS = ImageOptions(pass_through=True)
LOSSLESS = ImageOptions(encoding=".png", quality=1)

# --- pictures of every kind -------------------------------------------------------------------

NOISE = np.random.default_rng(5)


def scene(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    waves = np.dstack([x * 9 + y * 2, y * 12, 255 - x * 6 - y * 3]) % 256
    return np.clip(waves + NOISE.integers(0, 24, waves.shape), 0, 255).astype(np.uint8)


PIXELS = scene(24, 17)
RGB = Image.fromarray(PIXELS)
OTHER = Image.fromarray(255 - PIXELS)
RGBA = Image.fromarray(np.dstack([PIXELS, PIXELS[..., 0] ^ PIXELS[..., 1]]))
PALETTE = RGB.quantize(16)
GREY16 = PIXELS[..., 0].astype(np.uint16) * 257 ^ 5
RGB16 = PIXELS.astype(np.uint16) * 257 ^ 3


def saved(picture: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)  # type: ignore[arg-type]
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, color: int, rows: bytes, interlaced: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))


def interlaced_png(pixels: np.ndarray) -> bytes:
    rows = b""
    for top, left, down, across in (*ADAM7, (1, 0, 2, 1)):
        for row in pixels[top::down, left::across]:
            rows += b"\0" + row.astype(pixels.dtype.newbyteorder(">")).tobytes()
    height, width = pixels.shape[:2]
    color = 2 if pixels.ndim == 3 else 0
    return png(width, height, 8 * pixels.itemsize, color, zlib.compress(rows), 1)


def tiff(order: str, *, tiled: bool) -> bytes:
    """A TIFF with its directory before its deflated strips or tiles."""
    height, width = PIXELS.shape[:2]
    if tiled:
        padded = np.zeros((32, 32, 3), np.uint8)
        padded[:height, :width] = PIXELS
        parts = [padded[y : y + 16, x : x + 16] for y in (0, 16) for x in (0, 16)]
        tags = {322: [16], 323: [16], 324: [0] * 4, 325: [0] * 4}
    else:
        parts = [PIXELS[y : y + 5] for y in range(0, height, 5)]
        tags = {273: [0] * 4, 278: [5], 279: [0] * 4}
    packed = [zlib.compress(part.tobytes()) for part in parts]
    tags |= {256: [width], 257: [height], 258: [8, 8, 8], 259: [8], 262: [2], 277: [3]}
    extra = 8 + 2 + 12 * len(tags) + 4
    start = extra + 2 * 16 + 12  # offsets, sizes, depths
    offsets = [start + sum(map(len, packed[:number])) for number in range(4)]
    tags[324 if tiled else 273], tags[325 if tiled else 279] = offsets, list(map(len, packed))
    mark = "<" if order == "II" else ">"
    entries, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        data = struct.pack(f"{mark}{len(numbers)}I", *numbers)
        if len(data) > 4:
            where = extra + len(values)
            values += data
            data = struct.pack(mark + "I", where)
        entries += struct.pack(mark + "HHI", tag, 4, len(numbers)) + data
    head = order.encode() + struct.pack(mark + "HIH", 42, 8, len(tags))
    return head + entries + bytes(4) + values + b"".join(packed)


# By libjpeg: what neither Pillow nor OpenCV writes. 12x9 pixels.
CODED = {
    "jpeg arithmetic": (
        "eNr7f+P/AwYBLzdPNwZGRgYGRiBk+H+bwZlBhI9fiJ9XREhASFxURELOSFFORkbOVkdPxcjTwcfb3cHNNSCq"
        "OCkgNDfM1S2lIzW3vLqxqdEvoXd6T+204rrGGpAhjKLi4nJSctaKitY1wW7BNSSD/ycZBDkYOBl4mBmVGJgE"
        "GZkFGf+fYeBiEBBgZRQQZP1/CyQDlGAWZLBn+HPpuK9S6wWelmPvv4dm311qnvji3986jsSZIQLZggV+x5iV"
        "Ymcv54h3/9lbFv1B09rCq6VRK670bsGE/zcB7uZaXw=="
    ),
    "jpeg arithmetic progressive": (
        "eNr7f+P/AwYBLzdPNwZGRgYGRiBk+H+bwZlBhI9fiJ9XREhASFxURELOSFFORkbOVkdPxcjTwcfb3cHNNSCq"
        "OCkgNDfM1S2lIzW3vLqxqdEvoXd6T+204rrGGpAhjKLi4nJSctaKitY1wW7BNSSD/6cYBDkYOBl4mBmVGJgE"
        "GZkFGf+fYWBjEGAU+H8LJMrAJMAsAHT2zzZ5bjagFIsAK1CCA+gVRlYmqQcRkx2iHEDCghBhZkZGe0apTz+Q"
        "hJhAQl75+iia2eyZvu+399txB9VIe0U50bsqzTcOBTl9NIY5gIGZgYFBoAbNFoEV/xTQbBH49A7NOIGnXH4V"
        "L+5yczQeZFr0d8UD8Qf/bwIAk6x97g=="
    ),
    "jpeg arithmetic restarts": (
        "eNr7f+P/AwYBLzdPNwZGRgYGRiBk+H+bwZlBhI9fiJ9XREhASFxURELOSFFORkbOVkdPxcjTwcfb3cHNNSCq"
        "OCkgNDfM1S2lIzW3vLqxqdEvoXd6T+204rrGGpAhjKLi4nJSctaKitY1wW7BNSSD/ycZBDkYOBl4mBmVGJgE"
        "GZkFGf+fYeBiEBBgZRQQZP1/l4GFgfH/LZA8UJpZkMGe4c+l475KrRd4Wo69/x6afXepeeKLf3/rOBJnhghk"
        "Cxb4HWNWip29nCPe/WdvWfQHTWsLr5ZGrbjSuwUT/t8EAOGdXEA="
    ),
    "jpeg ycck": (
        "eNr7f+P/OwY+x5T8pFSGFAYgYPp/m8GZQYSPX4ifV0RIQEhcVERCzkhRTkZGzlZHT8XI08HH293BzTUgqjgp"
        "IDQ3zNUtpSM1t7y6sanRL6F3ek/ttOK6xhqQIYyi4uJyUnLWiorWNcFuwTUkg/8HGEQ4GDgZeFgYlRiYBBmZ"
        "BRlZlBj+H2GQZ2BgZGUEAwYoYGRiZmFlY+fg5OIGKtgqwMDEyMzMxMLMysrCApStBcozsAiyCikaOrIJByay"
        "KxWKGDVOXMih7LTxoGjQxQ8qxklFTZxcYuISklKqauoamlompmbmFpZWzi6ubu4enl7BIaFh4RGRUckpqWnp"
        "GZlZxSWlZeUVlVXNLa1t7R2dXZMmT5k6bfqMmbMWLV6ydNnyFStXbdq8Zeu27Tt27jp0+MjRY8dPnDx16fKV"
        "q9eu37h56+Gjx0+ePnv+4uWrj58+f/n67fuPn79A/mJkYGaEAaz+EgT6i4mFhZmFHeQvRqZykAJBFlZFQzYh"
        "x0D2xEJhJaNGDhGniQs3HuRUNg76IJpUdJFLTMXkoepHkNfAPiPOY01k+QzuMYS/bjHwsTAC4w/oTgYGe4bN"
        "K16xs/NGcos+vZmp0GPV3FTOeP55UGztxx//GbQuXbJ/Iit+df8X5VA3rpC9S3bfOC8Z+vDhWRGLl992pcjl"
        "Xgx9rLWg5vwb9rrFv65mbo2c2X5D57FAA8PnC9PU9zs3/rpaW/zPzXr9D/Z/DVsT668uv7T//00AsvwjCQ=="
    ),
}

JPEGS: dict[str, dict[str, object]] = {
    "": {},
    " 4:4:4": {"subsampling": 0},
    " 4:2:2": {"subsampling": 1},
    " optimized": {"optimize": True},
    " progressive": {"progressive": True},
    " restarts": {"restart_marker_blocks": 1},
    " progressive restarts": {"progressive": True, "restart_marker_blocks": 1},
}
KINDS = {
    **{f"jpeg{name}": saved(RGB, "JPEG", quality=70, **how) for name, how in JPEGS.items()},
    **{
        f"jpeg grey{n}": saved(RGB.convert("L"), "JPEG", **h) for n, h in JPEGS.items() if " p" in n
    },
    "jpeg grey": saved(RGB.convert("L"), "JPEG"),
    "jpeg cmyk": saved(RGB.convert("CMYK"), "JPEG"),
    "jpeg cmyk progressive": saved(RGB.convert("CMYK"), "JPEG", progressive=True),
    **{name: zlib.decompress(base64.b64decode(text)) for name, text in CODED.items()},
    "png": saved(RGB, "PNG"),
    "png alpha": saved(RGBA, "PNG"),
    "png grey alpha": saved(RGBA.convert("LA"), "PNG"),
    "png palette": saved(PALETTE, "PNG"),
    "png palette transparent": saved(PALETTE, "PNG", transparency=3),
    "png 1": saved(RGB.convert("1"), "PNG"),
    "png 16": cv2.imencode(".png", GREY16)[1].tobytes(),
    "png 48": cv2.imencode(".png", RGB16)[1].tobytes(),
    "png interlaced": interlaced_png(PIXELS),
    "png interlaced 16": interlaced_png(GREY16),
    "webp": saved(RGB, "WEBP"),
    "webp lossless": saved(RGB, "WEBP", lossless=True),
    "webp alpha": saved(RGBA, "WEBP"),
    "webp lossless alpha": saved(RGBA, "WEBP", lossless=True),
    "webp animated": saved(RGB, "WEBP", save_all=True, append_images=[OTHER], duration=50),
    "gif": saved(RGB, "GIF", interlace=0),
    "gif interlaced": saved(RGB, "GIF", interlace=1),
    "gif animated": saved(RGB, "GIF", save_all=True, append_images=[OTHER, RGB], duration=50),
    "gif transparent": saved(PALETTE, "GIF", transparency=3),
    "tiff": saved(RGB, "TIFF"),
    "tiff lzw": saved(RGB, "TIFF", compression="tiff_lzw"),
    "tiff packbits": saved(RGB, "TIFF", compression="packbits"),
    "tiff g4": saved(RGB.convert("1"), "TIFF", compression="group4"),
    "tiff pages": saved(RGB, "TIFF", save_all=True, append_images=[OTHER], compression="tiff_lzw"),
    "tiff alpha": saved(RGBA, "TIFF"),
    "tiff palette": saved(PALETTE, "TIFF"),
    "tiff 48": cv2.imencode(".tiff", RGB16)[1].tobytes(),
    "tiff little strips": tiff("II", tiled=False),
    "tiff big strips": tiff("MM", tiled=False),
    "tiff little tiles": tiff("II", tiled=True),
    "tiff big tiles": tiff("MM", tiled=True),
    "bmp": saved(RGB, "BMP"),
    "bmp palette": saved(PALETTE, "BMP"),
    "bmp 1": saved(RGB.convert("1"), "BMP"),
    "bmp alpha": saved(RGBA, "BMP"),
    "ppm": saved(RGB, "PPM"),
    "pbm": saved(RGB.convert("1"), "PPM"),
    "ppm text": b"P3\n3 2\n255\n"
    + b"\n".join(b"%d" % value for value in PIXELS[0, :6].flat)
    + b"\n",
    "jpeg2000": saved(RGB, "JPEG2000"),
    "jpeg2000 bare": saved(RGB, "JPEG2000", no_jp2=True),
}
# Pictures that lie in the file as they are, without anything to check them by.
RAW = {name for name in KINDS if name.startswith(("bmp", "ppm", "pbm"))}
RAW |= {"tiff", "tiff alpha", "tiff palette"}


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """A process prepared as a run's workers are, that may take no more than 4 GB."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=prepare) as executor:
        yield executor


def prepare() -> None:
    prepare_worker(ImageOptions())
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))


def opencv_s(data: bytes, color: int) -> np.ndarray | None:
    return cv2.imdecode(np.frombuffer(data, np.uint8), color)


def pixels_of(data: bytes, color: int) -> np.ndarray | None:
    """The pixels that would be packed; None where the picture is refused."""
    try:
        return decode(data, identify(data), color)[0]
    except ImageError:
        return None


def stored(data: bytes) -> np.ndarray | None:
    """The pixels that a reader sees of what --pass-through packs; None where it is refused."""
    try:
        convert(data, PASS, 0)
    except ImageError:
        return None
    pixels = opencv_s(data, 1)
    return np.zeros(0) if pixels is None else pixels


def reason(data: bytes, options: ImageOptions = LOSSLESS) -> str:
    """Why a picture is refused; "" where it is packed."""
    try:
        convert(data, options, 0)
    except ImageError as error:
        lines = str(error).splitlines()
        return lines[0] if len(lines) == 1 else f"of {len(lines)} lines"
    return ""


def tally(whole: bytes, damaged: list[bytes]) -> dict[str, list[int]]:
    """By mode: how many are refused, how many kept with all pixels, and how many with others."""
    expected = opencv_s(whole, 1)
    counts = {}
    for mode in ("convert", "pass-through"):
        counts[mode] = [0, 0, 0]
        for data in damaged:
            pixels = pixels_of(data, 1) if mode == "convert" else stored(data)
            place = 0 if pixels is None else 1 if np.array_equal(pixels, expected) else 2
            counts[mode][place] += 1
    return counts


def lengths(data: bytes) -> list[int]:
    """Each length of a tiny file; of others the first and last ones, and every few between."""
    size, step = len(data), 1 + len(data) // 180
    return sorted({*range(min(size, 40)), *range(0, size, step), *range(max(0, size - 40), size)})


# --- cuts -------------------------------------------------------------------------------------

# What lies behind the last pixel: a byte of padding, the directory's last word, other pages.
MAY_BE_CUT = {"tiff g4", "tiff pages"}


@pytest.mark.parametrize("name", KINDS)
def test_no_cut_is_kept_with_other_pixels(name: str, worker: ProcessPoolExecutor) -> None:
    data = KINDS[name]
    cuts = [data[:length] for length in lengths(data)]
    counts = worker.submit(tally, data, cuts).result()
    for refused, same, changed in counts.values():
        assert changed == 0
        assert (same > 0) == (name in MAY_BE_CUT)
        assert refused + same == len(cuts)
    assert (
        worker.submit(tally, data, [data, data + b"junk"]).result()
        == {
            "convert": [0, 2, 0],
            "pass-through": [0, 2, 0],
        }
        or name == "ppm text"
    )  # there, junk is a number


TORN = [name for name in KINDS if name not in RAW and not name.startswith("webp")]


@pytest.mark.parametrize("name", TORN)
def test_no_cut_filled_up_with_zeros_is_kept_with_other_pixels(
    name: str, worker: ProcessPoolExecutor
) -> None:
    """As a file is that was never downloaded whole."""
    data = KINDS[name]
    torn = [data[:length] + bytes(len(data) - length) for length in lengths(data)]
    torn = [each for each in torn if each != data]
    counts = worker.submit(tally, data, torn).result()
    assert [changed for _, _, changed in counts.values()] == [0, 0]
    if not name.startswith("tiff"):
        assert [refused for refused, _, _ in counts.values()] == [len(torn)] * 2


def test_a_torn_tiff_is_refused_where_nothing_is_heard_of_libtiff() -> None:
    data = KINDS["tiff little strips"]
    torn = [data[:length] + bytes(len(data) - length) for length in lengths(data)[:-40]]
    assert tally(data, torn) == {"convert": [len(torn), 0, 0], "pass-through": [len(torn), 0, 0]}


# Where Pillow or OpenCV see no fault in a WebP's bits, nothing can: what its encoders write of a
# picture that is plain in its lower part ends in as many zeros.
PLAIN_BELOW = {
    "lossy": ({"quality": 100}, "RGB"),
    "lossless": ({"lossless": True}, "RGB"),
    "alpha": ({"quality": 80}, "RGBA"),
}


@pytest.mark.parametrize("name", PLAIN_BELOW)
def test_a_sound_webp_may_end_in_zeros(name: str) -> None:
    noise = np.random.default_rng(0)
    pixels = np.full((2048, 2048, 4), 255, np.uint8)
    pixels[:40, :40] = noise.integers(0, 255, (40, 40, 4))
    if name == "alpha":
        pixels = pixels[:256, :256].copy()
        pixels[..., :3] = noise.integers(0, 255, (256, 256, 3))
        pixels[..., 3] = noise.integers(250, 256, (256, 256))
        pixels[96:, :, 3] = 0
    form, mode = PLAIN_BELOW[name]
    data = saved(Image.fromarray(pixels).convert(mode), "WEBP", method=0, **form)
    assert bytes(65) in data
    for options in (PASS, LOSSLESS):
        packed = convert(data, options, 0)
        assert (len(packed.remarks) == 1) == (name != "alpha")
    assert np.array_equal(opencv_s(data, 1), pixels_of(data, 1))


@pytest.mark.parametrize("name", ["webp", "webp lossless", "webp alpha", "webp lossless alpha"])
def test_a_webp_that_ends_in_many_zeros_is_remarked_on(name: str) -> None:
    data = KINDS[name]
    at = data.index(b"VP8L" if "lossless" in name else b"VP8 ")
    end = at + 8 + struct.unpack_from("<I", data, at + 4)[0]
    torn = data[: end - (end - at) // 2] + bytes((end - at) // 2) + data[end:]
    said = [convert(torn, PASS, 0).remarks]
    with suppress(ImageError):  # a decoder may see a fault in the bits
        said.append(convert(torn, LOSSLESS, 0).remarks)
    for remarks in said:
        assert len(remarks) == 1
        assert remarks[0].endswith("bytes of a WebP's image data are zero; look at it")


def test_an_alpha_of_zeros_that_is_not_compressed_is_whole() -> None:
    """Of a WebP, as cwebp -alpha_method 0 writes it: transparent pixels are zeros."""
    file = io.BytesIO()
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64, 4), np.uint8))
    picture.save(file, "WEBP", quality=50)
    data = file.getvalue()
    at = data.index(b"ALPH")
    (length,) = struct.unpack_from("<I", data, at + 4)
    alpha = bytes(range(1, 65)) * 32 + bytes(64 * 32)
    raw = b"ALPH" + struct.pack("<I", 1 + len(alpha)) + b"\0" + alpha + b"\0"
    data = data[:at] + raw + data[at + 8 + length + (length & 1) :]
    data = data[:4] + struct.pack("<I", len(data) - 8) + data[8:]
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.getchannel("A").tobytes() == alpha
    assert convert(data, ImageOptions(pass_through=True), 0).image == data
    stored = convert(data, ImageOptions(color=-1, encoding=".png", quality=3), 0)
    with Image.open(io.BytesIO(stored.image)) as opened:
        assert opened.getchannel("A").tobytes() == alpha


def test_plain_webps_are_not_taken_for_torn() -> None:
    for color in (0, 128, 255):
        for form in ({"quality": 1}, {"quality": 80}, {"lossless": True}):
            plain = Image.new("RGBA", (600, 400), (color, color, color, color))
            for picture in (plain, plain.convert("RGB")):
                assert reason(saved(picture, "WEBP", **form)) == ""
                assert reason(saved(picture, "WEBP", **form), PASS) == ""


def coded_bmp(width: int, bits: int, *, is_padded: bool) -> tuple[bytes, np.ndarray]:
    """A BMP of runs of one pixel (8 bits) or two (4 bits), and its pixels, BGR."""
    noise = np.random.default_rng(width)
    pixels = noise.integers(0, 1 << bits, (7, width))
    palette = noise.integers(0, 256, (1 << bits, 4), np.uint8)
    body = b""
    for row in pixels[::-1]:
        padded = [*row.tolist(), *[0] * (-width % 4 * is_padded)]
        step = 8 // bits
        for at in range(0, len(padded), step):
            run = padded[at : at + step]
            value = run[0] if step == 1 else run[0] << 4 | run[-1]
            body += bytes([len(run), value])
        body += b"\0\0"
    body += b"\0\1"
    start = 54 + palette.size
    head = struct.pack("<IHHI", start + len(body), 0, 0, start)
    info = (40, width, 7, 1, bits, 9 // bits, len(body), 0, 0, len(palette), 0)
    data = b"BM" + head + struct.pack("<IiiHHIIiiII", *info) + palette.tobytes() + body
    return data, palette[pixels][..., :3]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("width", [8, 9, 10, 11, 131])
def test_a_bmp_of_runs_is_packed_right_or_not_at_all(width: int, bits: int) -> None:
    for is_padded in (False, True):
        data, pixels = coded_bmp(width, bits, is_padded=is_padded)
        with Image.open(io.BytesIO(data)) as opened:
            assert np.array_equal(np.asarray(opened.convert("RGB"))[..., ::-1], pixels)
        if is_padded and width % 4:
            assert not np.array_equal(opencv_s(data, 1), pixels)
            assert reason(data).startswith("a BMP whose run-length coded rows are padded")
        else:
            np.testing.assert_array_equal(pixels_of(data, 1), pixels)
        assert reason(data, PASS) == ""


@pytest.mark.parametrize("form", [b"P2", b"P3", b"P5", b"P6"])
@pytest.mark.parametrize("most", [1, 15, 100, 254, 255, 1023, 4095, 65535])
def test_a_pnm_is_packed_right_or_not_at_all(form: bytes, most: int) -> None:
    channels = 3 if form in (b"P3", b"P6") else 1
    values = np.random.default_rng(most).integers(0, most + 1, (5, 7, channels))
    body = b" ".join(b"%d" % value for value in values.ravel()) + b"\n"
    if form in (b"P5", b"P6"):
        body = values.astype(">u2" if most > 255 else "u1").tobytes()
    data = form + b"\n# 7 wide\n7 5\n%d\n" % most + body
    assert reason(data, PASS) == ""
    if said := reason(data):
        assert said.startswith(f"a PNM whose largest value is {most}, which OpenCV")
        assert most not in (255, 65535)
    else:
        expected = np.broadcast_to(values * 255 / most, (5, 7, 3))[..., ::-1]
        np.testing.assert_allclose(pixels_of(data, 1), expected, atol=1)


@pytest.mark.parametrize("name", list(JPEGS))
@pytest.mark.parametrize("stray", [b"\0", b"strays"])
def test_strays_in_a_jpeg_s_header_are_no_damage(name: str, stray: bytes) -> None:
    data = KINDS[f"jpeg{name}"]
    first = data.index(b"\xff\xda")
    places, at = [], 2
    while at < first:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        places.append(at)
    assert places[-1] == first
    for place in places:
        strayed = data[:place] + stray + data[place:]
        counts = tally(data, [strayed])
        assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}, place


def test_strays_in_the_header_hide_no_damage_in_the_scan(worker: ProcessPoolExecutor) -> None:
    data = LARGE_KINDS["jpeg"]
    place = data.index(b"\xff\xdb")
    strayed = data[:place] + b"\0" + data[place:]
    assert reason(data[:2] + b"\0" + data[2:], PASS).startswith("damaged: no marker follows")
    cut = strayed[:9000] + b"\xff\xd9"
    hole = strayed[:9000] + bytes(600) + strayed[9600:]
    counts = worker.submit(tally, data, [cut, hole]).result()
    assert counts["convert"] == [2, 0, 0]


def test_what_pillow_alone_can_decode_is_not_called_damaged() -> None:
    data = saved(RGB.convert("F"), "TIFF")
    assert reason(data).startswith("OpenCV cannot decode this tiff, which Pillow can")
    assert reason(data, PASS) == ""


# --- blocks and bytes inside ------------------------------------------------------------------

LARGE = Image.fromarray(scene(320, 240))
LARGE_KINDS = {f"jpeg{name}": saved(LARGE, "JPEG", **how) for name, how in JPEGS.items()}
LARGE_KINDS |= {
    "jpeg grey": saved(LARGE.convert("L"), "JPEG"),
    "jpeg cmyk": saved(LARGE.convert("CMYK"), "JPEG"),
    "png": saved(LARGE, "PNG"),
    "gif": saved(LARGE, "GIF"),
}


@pytest.mark.parametrize("name", LARGE_KINDS)
@pytest.mark.parametrize("size", [512, 4096])
def test_a_block_of_zeros_is_seen(name: str, size: int, worker: ProcessPoolExecutor) -> None:
    data = LARGE_KINDS[name]
    first, last = identify(data).body + 900, len(data) - size - 200
    places = range(first, last, (last - first) // 6)
    holes = [data[:at] + bytes(size) + data[at + size :] for at in places]
    counts = worker.submit(tally, data, holes).result()
    if "progressive" in name:  # whose shortest code may end a block, so that a scan may hold zeros
        assert counts["convert"][2] <= 1
    else:
        assert counts["convert"] == [len(holes), 0, 0]
    if size == 4096 and "progressive" not in name:
        assert counts["pass-through"] == [len(holes), 0, 0]


@pytest.mark.parametrize("name", [name for name in LARGE_KINDS if name.startswith("jpeg")])
@pytest.mark.parametrize("size", [256, 3000, 100_000])
def test_stray_zeros_before_the_end_marker_are_no_damage(
    name: str, size: int, worker: ProcessPoolExecutor
) -> None:
    data = LARGE_KINDS[name]
    strays = data[:-2] + bytes(size) + data[-2:]
    counts = worker.submit(tally, data, [strays]).result()
    assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}


STRAYS = {
    "zeros and text": bytes(300) + b"abc",
    "many zeros and text": bytes(4096) + b"abc",
    "zeros and a fill byte": bytes(300) + b"\xff",
    "text": b"some text, say" * 9,
    "zeros and a comment": bytes(9) + b"\xff\xfe\0\x09comment",
    "zeros and an application's": bytes(9) + b"\xff\xe5\0\x09comment",
    "a comment": b"\xff\xfe\0\x09comment",
}


@pytest.mark.parametrize("name", [name for name in LARGE_KINDS if name.startswith("jpeg")])
@pytest.mark.parametrize("strays", STRAYS.values(), ids=STRAYS)
def test_strays_behind_the_last_block_are_no_damage(
    name: str, strays: bytes, worker: ProcessPoolExecutor
) -> None:
    data = LARGE_KINDS[name]
    counts = worker.submit(tally, data, [data[:-2] + strays + data[-2:]]).result()
    assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}


@pytest.mark.parametrize("name", ["jpeg progressive", "jpeg progressive restarts"])
def test_most_holes_of_zeros_in_a_progressive_scan_are_told_by_what_is_left_over(
    name: str, worker: ProcessPoolExecutor
) -> None:
    """Zeros may be a plain area of such a scan; the rest of it then comes too early."""
    data = LARGE_KINDS[name]
    holes = [data[:at] + bytes(1024) + data[at + 1024 :] for at in range(2000, len(data), 700)]
    _, same, changed = worker.submit(tally, data, holes).result()["convert"]
    assert same == 0
    assert changed <= len(holes) // 5


@pytest.mark.parametrize("name", ["jpeg", "jpeg restarts", "jpeg grey", "jpeg cmyk"])
@pytest.mark.parametrize("size", [600, 4096])
def test_a_hole_up_to_the_end_marker_is_damage(
    name: str, size: int, worker: ProcessPoolExecutor
) -> None:
    data = LARGE_KINDS[name]
    hole = data[: -size - 2] + bytes(size) + data[-2:]
    counts = worker.submit(tally, data, [hole]).result()
    assert counts["convert"] == [1, 0, 0]
    if size == 4096:  # --pass-through looks for no smaller ones than 2 kB
        assert counts["pass-through"] == [1, 0, 0]


def test_a_progressive_gradient_of_zeros_is_whole(worker: ProcessPoolExecutor) -> None:
    """A scan of one coefficient, the same in each block, is a picture whose code may be zeros."""
    blocks = (512 // 8) ** 2
    data = b"\xff\xd8" + segment(0xDB, b"\0" + b"\x01" * 64)
    data += segment(0xC2, struct.pack(">BHHB", 8, 512, 512, 1) + b"\1\x11\0")
    for table, symbol, first, last, bits in ((0, 0, 0, 0, 1), (0x10, 1, 1, 1, 2)):
        data += segment(0xC4, bytes([table, 1]) + bytes(15) + bytes([symbol]))
        data += segment(0xDA, bytes([1, 1, 0, first, last, 0])) + bytes(blocks * bits // 8)
    data += b"\xff\xd9"
    assert bytes(1000) in data
    counts = worker.submit(tally, data, [data]).result()
    assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}


def test_a_run_of_zeros_is_named_by_its_place(worker: ProcessPoolExecutor) -> None:
    data = LARGE_KINDS["jpeg"]
    hole = data[:9000] + bytes(2048) + data[11048:]
    expected = f"damaged jpeg: the scan has a run of zeros at byte {9000 - (data[8999] == 0)}"
    assert worker.submit(reason, hole, PASS).result() == expected
    assert worker.submit(reason, hole).result() == expected


@pytest.mark.parametrize("how", JPEGS.values(), ids=JPEGS)
@pytest.mark.parametrize("color", [0, 90, 255])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_plain_jpegs_are_not_taken_for_holes(how: dict[str, object], color: int, mode: str) -> None:
    """Their scans hold long runs of zeros."""
    plain = Image.new("L", (1200, 900), color).convert(mode)
    data = saved(plain, "JPEG", **how)
    if "optimize" in how:
        assert bytes(300) in data
    assert find_zeros(data) is None
    assert reason(data, PASS) == ""


# Of 60 changes in the scan's second half, how many are refused at the least, where one byte is
# changed and where 64 are: libjpeg decodes any bits, and what it makes of them is most often in
# step again soon. A PNG has its CRCs.
TOLD = {
    "jpeg": (12, 50),
    "jpeg restarts": (15, 55),
    "jpeg grey": (12, 38),
    "jpeg optimized": (2, 25),
    "jpeg progressive": (3, 22),
    "png": (60, 60),
    "gif": (30, 55),
}


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize("size", [1, 64])
def test_changed_bytes_are_seen_where_they_can_be(
    name: str, size: int, worker: ProcessPoolExecutor
) -> None:
    data = LARGE_KINDS[name]
    rng = random.Random(6)
    changed = []
    for _ in range(60):
        at = rng.randrange(len(data) // 2, len(data) - 100)
        block = bytes(byte ^ rng.randrange(1, 256) for byte in data[at : at + size])
        changed.append(data[:at] + block + data[at + size :])
    counts = worker.submit(tally, data, changed).result()
    assert counts["convert"][0] >= TOLD[name][size == 64]
    assert counts["convert"][1] == 0  # each had an effect
    if name == "png":
        assert counts["pass-through"] == [60, 0, 0]


@pytest.mark.parametrize("name", KINDS)
def test_no_change_ends_in_anything_but_a_picture_or_a_reason(
    name: str, worker: ProcessPoolExecutor
) -> None:
    rng = random.Random(name)
    changed = []
    for _ in range(40):
        data = bytearray(KINDS[name])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        changed.append(bytes(data))
    assert worker.submit(count_outcomes, changed).result() == 80


def count_outcomes(images: list[bytes]) -> int:
    small = [ImageOptions(max_pixels=10**6), ImageOptions(max_pixels=10**6, pass_through=True)]
    said = [reason(data, options) for data in images for options in small]
    return sum(not text.startswith("of ") for text in said)


# --- the right picture ------------------------------------------------------------------------

# What each EXIF code asks for, by the standard's words on the first row and column.
TURNS = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels.swapaxes(0, 1)[::-1],
}


def exif(code: int, order: str = "<") -> bytes:
    head = b"II*\0\x08\0\0\0" if order == "<" else b"MM\0*\0\0\0\x08"
    return head + struct.pack(order + "HHHIHHI", 1, 0x0112, 3, 1, code, 0, 0)


def with_exif(data: bytes, block: bytes) -> bytes:
    if data.startswith(b"\xff\xd8"):
        body = b"Exif\0\0" + block
        return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]
    return data[:33] + chunk(b"eXIf", block) + data[33:]


TURNED = ["jpeg", "jpeg progressive", "jpeg grey", "jpeg cmyk", "jpeg ycck", "jpeg arithmetic"]
TURNED += ["png", "png alpha", "png palette transparent", "png 16", "png 48", "png interlaced"]


@pytest.mark.parametrize("name", TURNED)
def test_every_turn_of_every_colour_mode(name: str) -> None:
    data = KINDS[name]
    for color in (1, 0, -1):
        straight = opencv_s(data, color)
        assert straight is not None
        for code, turn in TURNS.items():
            for order in "<>":
                pixels = pixels_of(with_exif(data, exif(code, order)), color)
                expected = straight if color == -1 else turn(straight)
                np.testing.assert_array_equal(pixels, expected)
        assert identify(with_exif(data, exif(7))).orientation == 7


@pytest.mark.parametrize("code", TURNS)
@pytest.mark.parametrize("head", [b"", b"Exif\0\0"])
def test_every_turn_of_a_webp(code: int, head: bytes) -> None:
    data = saved(RGB, "WEBP", lossless=True)
    chunk = head + exif(code)
    data += b"EXIF" + struct.pack("<I", len(chunk)) + chunk
    # the extended form, whose flag 8 tells of an EXIF chunk
    flags = struct.pack("<IIHBHB", 10, 8, RGB.width - 1, 0, RGB.height - 1, 0)
    data = data[:12] + b"VP8X" + flags + data[12:]
    data = data[:4] + struct.pack("<I", len(data) - 8) + data[8:]
    assert identify(data).orientation == code
    np.testing.assert_array_equal(pixels_of(data, 1), TURNS[code](PIXELS[..., ::-1]))
    np.testing.assert_array_equal(pixels_of(data, -1), PIXELS[..., ::-1])


@pytest.mark.parametrize("code", TURNS)
def test_every_turn_of_a_tiff(code: int) -> None:
    """libtiff makes it, whatever OpenCV is told."""
    data = saved(RGB, "TIFF", tiffinfo={0x0112: code})
    assert identify(data).orientation == code
    for color in (1, -1):
        np.testing.assert_array_equal(pixels_of(data, color), TURNS[code](PIXELS[..., ::-1]))


XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>"
NO_TURN = b"II*\0\x08\0\0\0" + struct.pack("<HHHIHHI", 1, 0x010F, 3, 1, 9, 0, 0)
# The APP1 segments of a JPEG and the turn that OpenCV 5 makes: the first that states one decides.
SEGMENTS = {
    "two": ([b"Exif\0\0" + exif(6), b"Exif\0\0" + exif(3)], 6),
    "first upright": ([b"Exif\0\0" + exif(1), b"Exif\0\0" + exif(6)], 1),
    "first senseless": ([b"Exif\0\0" + exif(9), b"Exif\0\0" + exif(6)], 1),
    "first junk": ([b"Exif\0\0junkjunk", b"Exif\0\0" + exif(6)], 6),
    "second junk": ([b"Exif\0\0" + exif(6), b"Exif\0\0junkjunk"], 6),
    "first without": ([b"Exif\0\0" + NO_TURN, b"Exif\0\0" + exif(6)], 6),
    "first cut": ([b"Exif\0\0" + exif(6)[:16], b"Exif\0\0" + exif(3)], 3),
    "no TIFF header": ([b"Exif\0\0II+\0" + exif(6)[4:]], 1),
    "behind XMP": ([XMP, b"Exif\0\0" + exif(6)], 6),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_the_first_segment_that_states_a_turn_decides(name: str) -> None:
    data = KINDS["jpeg"]
    segments, code = SEGMENTS[name]
    turned = data[:2] + b"".join(segment(0xE1, each) for each in segments) + data[2:]
    assert identify(turned).orientation == code
    straight = opencv_s(data, 1)
    assert straight is not None
    np.testing.assert_array_equal(pixels_of(turned, 1), TURNS[code](straight))
    if int(cv2.__version__.split(".")[0]) >= 5:
        np.testing.assert_array_equal(opencv_s(turned, 1), TURNS[code](straight))


BROKEN_EXIF = [b"", b"II", b"junk" * 9, exif(6)[:18], exif(9), exif(0), b"II*\0\xff\xff\xff\xff"]
BROKEN_EXIF += [b"II*\0\4\0\0\0" + b"\xff" * 40]  # a directory of 65535 entries, inside the header


@pytest.mark.parametrize("block", BROKEN_EXIF)
@pytest.mark.parametrize("name", ["jpeg", "png", "webp"])
def test_a_broken_exif_block_turns_nothing(
    name: str, block: bytes, worker: ProcessPoolExecutor
) -> None:
    data = KINDS[name]
    if name == "webp":
        broken = saved(RGB, "WEBP", exif=b"Exif\0\0" + block)
    else:
        broken = with_exif(data, block)
    counts = worker.submit(tally, data, [broken]).result()
    assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}


# Pillow's mode of what each is decoded to with --color -1, and how far apart the two may be.
AS_STORED = {
    "jpeg": ("RGB", 0),
    "jpeg 4:4:4": ("RGB", 0),
    "jpeg grey": ("L", 0),
    "jpeg cmyk": ("RGB", 2),
    "jpeg ycck": ("RGB", 2),
    "jpeg arithmetic": ("RGB", 2),
    "png": ("RGB", 0),
    "png alpha": ("RGBA", 0),
    "png grey alpha": ("RGBA", 0),
    "png palette": ("RGB", 0),
    "png palette transparent": ("RGBA", 0),
    "png 1": ("L", 0),
    "png interlaced": ("RGB", 0),
    "webp lossless alpha": ("RGBA", 0),
    "gif interlaced": ("RGB", 0),
    "tiff little tiles": ("RGB", 0),
    "tiff big strips": ("RGB", 0),
    "bmp palette": ("RGB", 0),
}


@pytest.mark.parametrize("name", AS_STORED)
def test_each_colour_mode_is_pillow_s_picture(name: str) -> None:
    mode, bound = AS_STORED[name]
    with Image.open(io.BytesIO(KINDS[name])) as image:
        for color, wanted in ((1, "RGB"), (0, "L"), (-1, mode)):
            expected = np.asarray(image.convert(wanted)).astype(int)
            if wanted != "L":
                expected = expected[..., [2, 1, 0, 3][: expected.shape[2]]]
            pixels = pixels_of(KINDS[name], color)
            assert pixels is not None
            assert pixels.shape == expected.shape
            assert np.abs(pixels - expected).max() <= max(bound, color == 0)


def test_16_bits_are_kept_or_halved() -> None:
    for name, whole in {"png 16": GREY16, "png 48": RGB16, "png interlaced 16": GREY16}.items():
        np.testing.assert_array_equal(pixels_of(KINDS[name], -1), whole)
        half = np.dstack([whole >> 8] * 3) if whole.ndim == 2 else whole >> 8
        np.testing.assert_array_equal(pixels_of(KINDS[name], 1), half)


def test_a_colour_profile_changes_no_pixel(worker: ProcessPoolExecutor) -> None:
    for form in ("JPEG", "PNG", "WEBP"):
        how = {"lossless": True} if form == "WEBP" else {}
        plain = saved(RGB, form, **how)
        for profile in (b"junk", b"\0" * 128, bytes(range(256)) * 500):
            data = saved(RGB, form, icc_profile=profile, **how)
            assert worker.submit(tally, plain, [data]).result()["convert"] == [0, 1, 0]


# --- sizes, bombs, oddities -------------------------------------------------------------------


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg_of_size(name: str, width: int, height: int) -> bytes:
    data = bytearray(KINDS[name])
    at = next(
        data.find(bytes([0xFF, sof])) for sof in (0xC0, 0xC2) if bytes([0xFF, sof, 0]) in data
    )
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


def png_of_size(width: int, height: int) -> bytes:
    return png(width, height, 8, 0, zlib.compress(bytes(9)))


def bmp_of_size(width: int, height: int) -> bytes:
    return KINDS["bmp"][:18] + struct.pack("<ii", width, height) + KINDS["bmp"][26:]


def webp_of_size(width: int, height: int) -> bytes:
    data = bytearray(KINDS["webp"])
    struct.pack_into("<HH", data, data.index(b"\x9d\x01\x2a") + 3, width, height)
    return bytes(data)


def jpeg_of_scans(edge: int, scans: int) -> bytes:
    """Progressive, grey, without any detail: but for the first scan, each only says so."""
    blocks = (edge // 8) ** 2
    frame = segment(0xC2, struct.pack(">BHHB", 8, edge, edge, 1) + b"\1\x11\0")
    tables = segment(0xDB, b"\0" + b"\1" * 64)
    tables += segment(0xC4, b"\0\1" + bytes(16)) + segment(0xC4, b"\x10\1" + bytes(15) + b"\xe0")
    first = segment(0xDA, b"\1\1\0\0\0\0") + bytes(blocks // 8)
    runs = -(-blocks // (1 << 14))  # each of a bit, and 14 that say how many blocks more
    more = segment(0xDA, b"\1\1\0\1\x3f\0") + bytes(runs * 15 // 8 + 1)
    return b"\xff\xd8" + tables + frame + first + more * scans + b"\xff\xd9"


def tiff_with(tag: int, form: int, count: int, value: int) -> bytes:
    data = bytearray(KINDS["tiff little strips"])
    for at in range(10, 10 + 12 * 9, 12):
        if struct.unpack_from("<H", data, at)[0] == tag:
            struct.pack_into("<HII", data, at + 2, form, count, value)
    return bytes(data)


BOMB = zlib.compress(bytes(100 << 20))
GIF_FRAME = KINDS["gif"].index(b"\x2c", 13 + 768)
GIF_SCREEN = struct.pack("<HH", 40000, 40000)
NO_HEADER = "damaged: the header of a TIFF that makes no sense"
PIXELS_BOUND = "too large: {} pixels, over --max-pixels 178956970"

REFUSED = {
    "jpeg 65500x65500": (
        jpeg_of_size("jpeg", 65500, 65500),
        PIXELS_BOUND.format("65500x65500"),
    ),
    "jpeg 13000x13000": (
        jpeg_of_size("jpeg", 13000, 13000),
        f"truncated: {len(KINDS['jpeg'])} bytes, too few for 13000x13000 pixels",
    ),
    "jpeg progressive 13000x13000": (
        jpeg_of_size("jpeg progressive", 13000, 13000),
        f"truncated: {len(KINDS['jpeg progressive'])} bytes, too few for 13000x13000 pixels",
    ),
    "jpeg 65501x1": (
        jpeg_of_size("jpeg", 65501, 1),
        "too large: 65501x1 pixels, over its codec's limit of 65500 an edge",
    ),
    "jpeg 24x0": (jpeg_of_size("jpeg", 24, 0), "damaged: a size of 24x0 pixels"),
    "jpeg of 3000 scans": (
        jpeg_of_scans(2000, 3000),
        "too large: 3001 scans of 2000x2000 pixels, which would take minutes to decode",
    ),
    "png 0x0": (png_of_size(0, 0), "damaged: a size of 0x0 pixels"),
    "png 2^32-1": (png_of_size(2**32 - 1, 2**32 - 1), PIXELS_BOUND.format("4294967295x4294967295")),
    "png 10^8x1": (
        png_of_size(10**8, 1),
        "too large: 100000000x1 pixels, over its codec's limit of 1000000 an edge",
    ),
    "png of 100 MB for 16 pixels": (
        png(4, 4, 8, 0, BOMB),
        f"damaged: {len(BOMB)} bytes of image data for 4x4 pixels",
    ),
    "gif 40000x40000": (
        KINDS["gif"][:6] + GIF_SCREEN + KINDS["gif"][10:],
        "too large: Image size (1600000000 pixels) exceeds limit of 1073741824 pixels, could be "
        "decompression bomb DOS attack.",
    ),
    "bmp 13000x13000": (
        bmp_of_size(13000, 13000),
        "truncated: the file ends before the image does",
    ),
    "tiff of many depths": (tiff_with(258, 3, 2**28, 8), NO_HEADER),
    "tiff of many samples": (tiff_with(277, 4, 1, 2**32 - 1), NO_HEADER),
    "tiff with an empty entry": (
        KINDS["tiff little strips"][:46] + bytes(12) + KINDS["tiff little strips"][58:],
        "damaged: an empty entry in the TIFF directory, at byte 46",
    ),
    "jpeg2000 of one tile for many": (
        KINDS["jpeg2000 bare"][:8] + struct.pack(">II", 240, 170) + KINDS["jpeg2000 bare"][16:],
        "truncated: 1 of 100 tiles",
    ),
    "jpeg behind junk": (
        b"junk" + KINDS["jpeg"],
        "not an image of a known kind: the file begins with "
        r"b'junk\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bomb_is_refused_in_plain_words(name: str, worker: ProcessPoolExecutor) -> None:
    data, expected = REFUSED[name]
    assert worker.submit(reason, data).result() == expected
    assert worker.submit(reason, data, PASS).result() == expected


# As above, in the words of the Pillow of the day.
REFUSED_BY_PILLOW = {
    "tiff of many widths": tiff_with(256, 4, 2**32 - 1, 8),
    "tiff of many strips": tiff_with(273, 4, 2**28, 8),
    "tiff whose directory is in its header": b"II*\0\4\0\0\0" + bytes(99),
    "ppm of a long number": b"P6\n" + b"9" * 10**5 + b" 1\n255\n",
    "webp 4000x4000": webp_of_size(4000, 4000),
}


@pytest.mark.parametrize("name", REFUSED_BY_PILLOW)
def test_a_broken_header_of_a_rarer_kind_is_refused(name: str, worker: ProcessPoolExecutor) -> None:
    for options in (LOSSLESS, PASS):
        said = worker.submit(reason, REFUSED_BY_PILLOW[name], options).result()
        assert said.startswith(("damaged: ", "truncated or damaged: "))


LOOP = bytearray(KINDS["tiff little strips"])
struct.pack_into("<I", LOOP, 10 + 12 * 9, 8)  # the next directory is this one

# As many pixels as those of the plain picture, and what else there is does not matter.
KEPT = {
    "jpeg before junk": ("jpeg", KINDS["jpeg"] + b"junk" * 5000),
    "jpeg before zeros": ("jpeg", KINDS["jpeg"] + bytes(9999)),
    "png with a bomb of a text": (
        "png",
        KINDS["png"][:33] + chunk(b"zTXt", b"a\0\0" + BOMB) + KINDS["png"][33:],
    ),
    "png with a bomb of a profile": (
        "png",
        KINDS["png"][:33] + chunk(b"iCCP", b"a\0\0" + BOMB) + KINDS["png"][33:],
    ),
    "png with 20000 texts": (
        "png",
        KINDS["png"][:33] + chunk(b"tEXt", b"a\0b") * 20000 + KINDS["png"][33:],
    ),
    "gif of 5000 pictures": (
        "gif",
        KINDS["gif"][:GIF_FRAME] + KINDS["gif"][GIF_FRAME:-1] * 5000 + b";",
    ),
    "tiff whose directories loop": ("tiff little strips", bytes(LOOP)),
}


@pytest.mark.parametrize("name", KEPT)
def test_swollen_files_keep_their_picture(name: str, worker: ProcessPoolExecutor) -> None:
    plain, data = KEPT[name]
    counts = worker.submit(tally, KINDS[plain], [data]).result()
    assert counts == {"convert": [0, 1, 0], "pass-through": [0, 1, 0]}


def test_a_jpeg_of_many_scans_is_decoded_while_they_are_affordable(
    worker: ProcessPoolExecutor,
) -> None:
    said = worker.submit(reason, jpeg_of_scans(64, 500)).result()
    assert not said.startswith("too large")
    assert worker.submit(reason, jpeg_of_scans(64, 500), PASS).result() == ""


@pytest.mark.parametrize("name", KINDS)
def test_one_pixel_of_any_kind(name: str, worker: ProcessPoolExecutor) -> None:
    with Image.open(io.BytesIO(KINDS[name])) as image:
        form = image.format or ""
        pixel = image.convert(image.mode).crop((2, 2, 3, 3))
    data = saved(pixel, form)
    assert worker.submit(tally, data, [data]).result() == {
        "convert": [0, 1, 0],
        "pass-through": [0, 1, 0],
    }


# --- a whole run ------------------------------------------------------------------------------

BASELINE = LARGE_KINDS["jpeg"]
SCAN = identify(BASELINE).body
PREMATURE = "damaged jpeg: Corrupt JPEG data: premature end of data segment"
RUN = {
    "cut scan.jpg": (BASELINE[: SCAN + 4000] + b"\xff\xd9", PREMATURE),
    "crc.png": (
        (BAD / "x/crc.png").read_bytes(),
        "damaged: wrong CRC in the PNG chunk 'IDAT' at byte 33",
    ),
    "cut.jpg": (BASELINE[:-9], "truncated: no end-of-image marker"),
    "text.gif": (b"some text", "not an image of a known kind: the file begins with b'some text'"),
    "cut.bmp": (KINDS["bmp"][:-9], "truncated: the file ends before the image does"),
    "bomb.png": REFUSED["png 10^8x1"],
    "stray.jpg": (BASELINE[:-2] + b"U" * 20 + b"\xff\xd9", ""),
    "odd text.png": (
        KINDS["png"][:33] + chunk(b"tEXt", b"a\0b")[:-1] + b"?" + KINDS["png"][33:],
        "",
    ),
    "really a png.jpg": (KINDS["png"], ""),
    "plain.jpg": ((CLEAN / "ant/ant_0.jpg").read_bytes(), ""),
    "cmyk.jpg": ((ODD / "kinds/cmyk.jpg").read_bytes(), ""),
}


def test_each_word_of_a_codec_comes_with_its_picture(im2rec: Run, tmp_path: Path) -> None:
    """And none of it on the terminal by itself."""
    root = tmp_path / "root"
    root.mkdir()
    rows = []
    for number, (name, (data, _)) in enumerate(RUN.items()):
        (root / name).write_bytes(data)
        rows.append(f"{number}\t0\t{name}\n")
    (tmp_path / "set.lst").write_text("".join(rows), encoding="utf-8")
    done = im2rec("pack", "--workers", 2, "--max-failures", "90%", "set", "root")
    failures = (tmp_path / "set.failures.tsv").read_text("utf-8").splitlines()
    expected = [
        f"{number}\t{name}\t{said}" for number, (name, (_, said)) in enumerate(RUN.items()) if said
    ]
    assert [line for line in failures if line[0].isdigit()] == expected
    for name, (_, said) in RUN.items():
        if said:
            assert f"{name}: {said}" in done.stderr
    raw = ("Corrupt", "Premature", "libpng", "[ WARN", "[ERROR", "TIFF", "JPEG", "LZW")
    assert not [line for line in done.stderr.splitlines() if line.startswith(raw)]
