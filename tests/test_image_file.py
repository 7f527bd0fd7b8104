"""What is read from an image file's bytes, and that no cut or damage of its structure is missed."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import BAD, CLEAN, ODD
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from im2rec.errors import ImageError
from im2rec.image_file import (
    KINDS,
    ImageFacts,
    check_whole,
    exif_orientation,
    identify,
    identify_many,
)

ODD_FACTS = {
    **{f"exif/orient_{code}.jpg": ImageFacts("jpeg", 80, 60, code) for code in range(1, 9)},
    "kinds/anim.gif": ImageFacts("gif", 80, 60),
    "kinds/bilevel.png": ImageFacts("png", 80, 60, depth=1),
    "kinds/bmp.bmp": ImageFacts("bmp", 80, 60),
    "kinds/cmyk.jpg": ImageFacts("jpeg", 80, 60, cmyk=True),
    "kinds/gif.gif": ImageFacts("gif", 80, 60),
    "kinds/gray.jpg": ImageFacts("jpeg", 80, 60),
    "kinds/gray16.png": ImageFacts("png", 80, 60, depth=16),
    "kinds/la.png": ImageFacts("png", 80, 60),
    "kinds/one_pixel.jpg": ImageFacts("jpeg", 1, 1),
    "kinds/palette.png": ImageFacts("png", 80, 60),
    "kinds/rgba.png": ImageFacts("png", 80, 60),
    "kinds/rgba_alpha.png": ImageFacts("png", 80, 60),
    "kinds/subsampled_444.jpg": ImageFacts("jpeg", 80, 60),
    "kinds/thin_tall.jpg": ImageFacts("jpeg", 1, 500),
    "kinds/thin_wide.jpg": ImageFacts("jpeg", 500, 1),
    "kinds/tiff.tiff": ImageFacts("tiff", 80, 60),
    "kinds/upper.JPG": ImageFacts("jpeg", 80, 60),
    "kinds/webp.webp": ImageFacts("webp", 80, 60),
    "kinds/wrong_extension_png.jpg": ImageFacts("png", 80, 60),
    "magic/aligned.jpg": ImageFacts("jpeg", 160, 120),
    "magic/aligned_twice.jpg": ImageFacts("jpeg", 160, 120),
    "magic/unaligned.jpg": ImageFacts("jpeg", 160, 120),
}

# The reason, or the facts of a file whose structure is whole.
BAD_REASONS: dict[str, str | ImageFacts] = {
    "._apple_double.jpg": (
        "not an image of a known kind: the file begins with "
        r"b'\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X'"
    ),
    "bomb.png": ImageFacts("png", 60000, 60000),
    "crc.png": "damaged: wrong CRC in the PNG chunk 'IDAT' at byte 33",
    "empty.jpg": "empty file",
    "html.jpg": "not an image of a known kind: the file begins with b'<!DOCTYPE html><'",
    "tail_garbage.jpg": ImageFacts("jpeg", 160, 120),
    "text.jpg": "not an image of a known kind: the file begins with b'this is not a pi'",
    "truncated.png": "truncated: the file ends before the image does",
    "truncated_half.jpg": "truncated: no end-of-image marker",
    "truncated_header.jpg": "truncated: the file ends inside its header",
    "truncated_tail.jpg": "truncated: no end-of-image marker",
    "zeros_inside.jpg": ImageFacts("jpeg", 160, 120),  # what the scan holds is not looked at
}

PIXELS = np.random.default_rng(7).integers(0, 256, (9, 13, 3), dtype=np.uint8)


def saved(form: str, mode: str = "RGB", pixels: np.ndarray = PIXELS, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, form, **options)  # type: ignore[arg-type]
    return file.getvalue()


TINY = {
    "jpeg": saved("JPEG"),
    "jpeg_progressive": saved("JPEG", progressive=True),
    "jpeg_restarts": saved("JPEG", restart_marker_blocks=1),
    "jpeg_cmyk": saved("JPEG", "CMYK"),
    "jpeg_grey": saved("JPEG", "L"),
    "png": saved("PNG"),
    "png_palette": saved("PNG", "P"),
    "webp": saved("WEBP"),
    "webp_lossless": saved("WEBP", lossless=True),
    "gif": saved("GIF"),
    "gif_animated": saved("GIF", save_all=True, append_images=[Image.fromarray(255 - PIXELS)]),
    "tiff": saved("TIFF"),
    "tiff_lzw": saved("TIFF", compression="tiff_lzw"),
    "bmp": saved("BMP"),
    "bmp_palette": saved("BMP", "P"),
    "bmp_bits": saved("BMP", "1"),
    "ppm": saved("PPM"),
    "jpeg2000": saved("JPEG2000"),
    "jpeg2000_bare": saved("JPEG2000", no_jp2=True),
}
JPEG, PNG = TINY["jpeg"], TINY["png"]


def facts_of(data: bytes) -> ImageFacts:
    """The facts, without where the body begins."""
    facts = identify(data)
    return ImageFacts(
        facts.kind, facts.width, facts.height, facts.orientation, facts.cmyk, facts.depth
    )


def check(data: bytes) -> None:
    check_whole(data, identify(data))


def reason(data: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        check(data)
    return str(caught.value)


@contextmanager
def nothing_but_image_errors() -> Iterator[None]:
    """Lets an ImageError pass whose reason is one line."""
    try:
        yield
    except ImageError as error:
        if len(str(error).splitlines()) != 1:
            raise


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- the corpus -------------------------------------------------------------------------------


def test_every_file_of_the_corpus_has_its_expectation() -> None:
    assert names(ODD) == ODD_FACTS.keys()
    assert names(BAD / "x") == BAD_REASONS.keys()


@pytest.mark.parametrize("name", ODD_FACTS)
def test_an_odd_file_is_told_for_what_it_is_and_is_whole(name: str) -> None:
    data = (ODD / name).read_bytes()
    assert facts_of(data) == ODD_FACTS[name]
    check(data)


@pytest.mark.parametrize("name", BAD_REASONS)
def test_a_bad_file_gives_its_reason(name: str) -> None:
    data = (BAD / "x" / name).read_bytes()
    expected = BAD_REASONS[name]
    if isinstance(expected, ImageFacts):
        assert facts_of(data) == expected
        check(data)
    else:
        assert reason(data) == expected


@pytest.mark.parametrize("path", sorted(CLEAN.rglob("*.*")), ids=lambda path: path.name)
def test_a_clean_file_is_what_pillow_says_it_is(path: Path) -> None:
    data = path.read_bytes()
    with Image.open(path) as image:
        assert facts_of(data) == ImageFacts(str(image.format).lower(), *image.size)
    facts = identify(data)
    mark = {"jpeg": b"\xff\xda", "png": b"\r\n\x1a\n"}[facts.kind]
    assert data[: facts.body].endswith(mark)
    check(data)


# --- cuts and junk ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_no_cut_is_whole_but_junk_after_the_end_is_no_concern(name: str) -> None:
    data = TINY[name]
    facts = facts_of(data)
    assert (facts.width, facts.height, facts.cmyk) == (13, 9, name == "jpeg_cmyk")
    check(data)
    check(data + b"junk")
    for cut in range(len(data)):
        with pytest.raises(ImageError):
            check(data[:cut])


@pytest.mark.parametrize(
    "path", [*sorted(CLEAN.rglob("*_0.jpg")), CLEAN / "bee/bee_3.png"], ids=lambda path: path.name
)
def test_no_cut_of_a_photograph_is_whole(path: Path) -> None:
    data = path.read_bytes()
    for cut in range(0, len(data), 13):
        assert reason(data[:cut]).startswith(("empty", "truncated", "not an image"))


def test_an_embedded_thumbnail_ends_nothing() -> None:
    thumbnail = b"\xff\xe1" + struct.pack(">H", len(JPEG) + 2) + JPEG
    whole = JPEG[:2] + thumbnail + JPEG[2:]
    assert facts_of(whole) == ImageFacts("jpeg", 13, 9)
    check(whole)
    assert reason(whole[:-2]) == "truncated: no end-of-image marker"


# --- JPEG -------------------------------------------------------------------------------------


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


FRAME = segment(0xC0, struct.pack(">BHHB", 8, 9, 13, 1) + b"\x01\x11\x00")
SCAN = segment(0xDA, b"\x01\x01\x00\x00\x3f\x00")


def test_a_header_made_by_hand_is_read() -> None:
    data = b"\xff\xd8" + FRAME + SCAN + b"pixels\xff\xd9"
    assert identify(data) == ImageFacts("jpeg", 13, 9, body=2 + len(FRAME) + 2)
    check(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xd8\xff\xd9", "damaged: a JPEG without image data"),
        (
            b"\xff\xd8" + SCAN + b"\xff\xd9",
            "damaged: a JPEG whose scan comes before its frame header",
        ),
        (
            b"\xff\xd8" + FRAME.replace(b"\x00\x09\x00\x0d", bytes(4)) + SCAN,
            "damaged: a size of 0x0 pixels",
        ),
        (b"\xff\xd8\xff\xe0\xff\xffshort", "truncated: the file ends inside its header"),
        (b"\xff\xd8" + b"\xff" * 99, "truncated: the file ends inside its header"),
        (b"\xff\xd8" + b"\xff\xe0\x00\x00" * 99, "truncated: the file ends inside its header"),
    ],
)
def test_a_broken_jpeg_header_gives_its_reason(data: bytes, expected: str) -> None:
    assert reason(data) == expected


@pytest.mark.parametrize("marker", [0xC4, 0xDA, 0xD9], ids=["DHT", "SOS", "EOI"])
def test_fill_bytes_before_a_marker_are_passed_over(marker: int) -> None:
    at = JPEG.index(bytes([0xFF, marker]))
    filled = JPEG[:at] + b"\xff" * 3 + JPEG[at:]
    assert facts_of(filled) == ImageFacts("jpeg", 13, 9)
    check(filled)


def test_stuffing_and_restart_markers_are_part_of_the_scan() -> None:
    data = b"\xff\xd8" + FRAME + SCAN + b"a\xff\x00b\xff\xd0\xff\x00c\xff\xd7\xff\xff\xd9"
    check(data)
    assert reason(data[:-1]) == "truncated: no end-of-image marker"


def test_an_end_marker_inside_a_later_segment_is_not_the_end() -> None:
    comment = segment(0xFE, b"\xff\xd9")
    data = b"\xff\xd8" + FRAME + SCAN + b"pixels" + comment + b"more"
    assert reason(data) == "truncated: no end-of-image marker"
    check(data + b"\xff\xd9")


# --- EXIF -------------------------------------------------------------------------------------

EXIF_ORDERS = {"big": (b"MM", ">"), "little": (b"II", "<")}


def exif(order: str, code: int, *, offset: int = 8, count: int = 2) -> bytes:
    """A TIFF header and a directory of two tags, the second of them the orientation."""
    mark, form = EXIF_ORDERS[order]
    tags = struct.pack(form + "HHIHH", 0x010F, 2, 3, 1, 0)
    tags += struct.pack(form + "HHIHH", 0x0112, 3, 1, code, 0)
    return mark + struct.pack(form + "HIH", 42, offset, count) + tags + bytes(4)


def jpeg_with(tiff: bytes) -> bytes:
    return JPEG[:2] + segment(0xE1, b"Exif\0\0" + tiff) + JPEG[2:]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize("order", EXIF_ORDERS)
@pytest.mark.parametrize("code", range(1, 9))
def test_the_orientation_is_read(order: str, code: int) -> None:
    tiff = exif(order, code)
    assert identify(jpeg_with(tiff)).orientation == code
    for place in (33, len(PNG) - 12):  # behind IHDR, and where ExifTool puts it: before IEND
        data = PNG[:place] + png_chunk(b"eXIf", tiff) + PNG[place:]
        assert identify(data).orientation == code
        check(data)


@pytest.mark.parametrize("order", EXIF_ORDERS)
@pytest.mark.parametrize(
    "change",
    [{"code": 0}, {"code": 9}, {"code": 65535}, {"offset": 9999}, {"offset": 2**32 - 1}],
    ids=str,
)
def test_an_orientation_that_makes_no_sense_is_none(order: str, change: dict[str, int]) -> None:
    data = jpeg_with(exif(order, **{"code": 6, **change}))
    assert facts_of(data) == ImageFacts("jpeg", 13, 9)
    check(data)


def test_a_directory_that_announces_too_much_is_read_as_far_as_it_goes() -> None:
    assert exif_orientation(exif("big", 6, count=65535)) == 6
    assert exif_orientation(exif("big", 6, count=1)) == 0


@pytest.mark.parametrize("cut", range(len(exif("big", 6)) - 6))
def test_a_cut_exif_block_is_none(cut: int) -> None:
    assert exif_orientation(exif("big", 6)[:cut]) == 0


@given(st.sampled_from([b"", b"II", b"MM", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08"]), st.binary())
def test_any_exif_block_gives_an_orientation(start: bytes, rest: bytes) -> None:
    assert 0 <= exif_orientation(start + rest) < 1 << 16


# --- PNG --------------------------------------------------------------------------------------


def png_chunks(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Where each chunk begins, its kind, and the length of its body."""
    at = 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        yield at, kind, length
        at += 12 + length


@pytest.mark.parametrize("name", ["png", "png_palette"])
def test_a_changed_byte_in_any_critical_chunk_is_seen(name: str) -> None:
    data = TINY[name]
    for at, kind, length in png_chunks(data):
        for place in range(at + 8, at + 12 + length):
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            assert reason(changed) in (
                f"damaged: wrong CRC in the PNG chunk {kind.decode()!r} at byte {at}",
                "damaged: a size of 0x9 pixels",
                "damaged: a size of 13x0 pixels",
            )


@pytest.mark.parametrize(
    ("kind", "needed"),
    [(b"tEXt", False), (b"gAMA", False), (b"eXIf", False), (b"tRNS", True), (b"PLTE", True)],
)
def test_a_wrong_crc_matters_where_pixels_need_the_chunk(kind: bytes, needed: bool) -> None:
    chunk = png_chunk(kind, b"abc")
    check(PNG[:33] + chunk + PNG[33:])
    damaged = PNG[:33] + chunk[:-1] + bytes([chunk[-1] ^ 1]) + PNG[33:]
    if needed:
        expected = f"damaged: wrong CRC in the PNG chunk {kind.decode()!r} at byte 33"
        assert reason(damaged) == expected
    else:
        check(damaged)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PNG[:8], "truncated: the file ends inside its header"),
        (PNG[:8] + PNG[33:], "damaged: a PNG that does not begin with IHDR"),
        (PNG[:33] + PNG[-12:], "damaged: a PNG without image data"),
        (
            PNG[:33] + b"\xff\xff\xff\xffIDAT" + PNG[41:],
            "truncated: the file ends before the image does",
        ),
        (
            PNG[:8] + png_chunk(b"IHDR", struct.pack(">II", 0, 9) + PNG[24:29]) + PNG[33:],
            "damaged: a size of 0x9 pixels",
        ),
    ],
)
def test_a_broken_png_gives_its_reason(data: bytes, expected: str) -> None:
    assert reason(data) == expected


# --- the other kinds --------------------------------------------------------------------------


def test_what_the_cuts_of_gif_bmp_and_jpeg2000_are_called() -> None:
    assert reason(TINY["gif_animated"][:-1]) == "truncated: the file ends before the image does"
    assert reason(TINY["bmp"][:-1]) == "truncated: the file ends before the image does"
    end = TINY["jpeg2000"].rindex(b"\xff\xd9")
    assert reason(TINY["jpeg2000"][:end]) == "truncated: no end-of-codestream marker"


@pytest.mark.parametrize("form", [b"P2", b"P3"])
def test_a_picture_as_text_is_whole_as_soon_as_its_last_number_has_ended(form: bytes) -> None:
    """Not before: 12 may be the beginning of 120, and OpenCV reads neither."""
    numbers = b"1 2 # two\n3 12" if form == b"P2" else b"1 2 3\n" * 3 + b"9 #\n 9 12"
    data = form + b"\n# 4 of them\n2 2 255\n" + numbers
    assert reason(data) == "truncated: the file ends inside its last number"
    for more in (b"\n", b" # end", b"# end", b"\t7", b" 1 2 3"):
        check(data + more)
        assert cv2.imdecode(np.frombuffer(data + more, np.uint8), cv2.IMREAD_UNCHANGED) is not None
    assert reason(data + b"0") == "truncated: the file ends inside its last number"
    assert reason(data[:-3] + b" # 1 2 3 4") == "truncated: the file ends inside its last number"


def without(tiff: bytes, tag: int) -> bytes:
    """A TIFF with an entry of its directory zeroed."""
    (at,) = struct.unpack_from("<I", tiff, 4)
    (count,) = struct.unpack_from("<H", tiff, at)
    entries = {
        struct.unpack_from("<H", tiff, at + 2 + 12 * n)[0]: at + 2 + 12 * n for n in range(count)
    }
    return tiff[: entries[tag]] + bytes(12) + tiff[entries[tag] + 12 :]


def test_an_empty_entry_of_a_tiff_is_damage_though_decoders_say_nothing() -> None:
    """They take LZW's codes for pixels where the entry of the compression is gone."""
    tiff = without(TINY["tiff_lzw"], 259)
    with Image.open(io.BytesIO(tiff)) as image:
        assert (np.asarray(image) != PIXELS).any()
    assert reason(tiff).startswith("damaged: an empty entry in the TIFF directory")


def test_a_gif_with_junk_between_its_blocks_is_damaged() -> None:
    data = TINY["gif"]
    at = len(data) - 1
    assert reason(data[:at] + b"Q" + data[at:]) == f"damaged: no GIF block begins at byte {at}"


@pytest.mark.parametrize("height", [9, -9], ids=["bottom-up", "top-down"])
def test_a_bmp_is_whole_in_either_direction(height: int) -> None:
    data = TINY["bmp"]
    data = data[:22] + struct.pack("<i", height) + data[26:]
    check(data)
    assert reason(data[:-1]) == "truncated: the file ends before the image does"


def test_a_device_independent_bitmap_without_its_file_header_is_no_image_file() -> None:
    assert reason(TINY["bmp"][14:]).startswith("not an image of a known kind: the file begins with")


@pytest.mark.parametrize(
    ("width", "height", "too_large"),
    [(30000, 15000, False), (32768, 32768, False), (32768, 32769, True)],
)
def test_a_header_that_announces_a_bomb_is_read_without_pillow_s_own_bound(
    width: int, height: int, too_large: bool
) -> None:
    bomb = TINY["bmp"][:18] + struct.pack("<ii", width, height) + TINY["bmp"][26:]
    if too_large:  # for OpenCV, whatever --max-pixels says
        assert reason(bomb).startswith("too large: Image size (1073774592 pixels) exceeds limit")
    else:
        assert facts_of(bomb) == ImageFacts("bmp", width, height)
    assert Image.MAX_IMAGE_PIXELS == 89478485  # as before, for whoever else uses Pillow


# --- anything ---------------------------------------------------------------------------------

STARTS = [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"P6 "]


@given(st.sampled_from(STARTS), st.binary(max_size=300))
@example(b"", b"RIFF\0\0\0\0WEBP")
@example(b"\x89PNG\r\n\x1a\n", b"\0\0\0\x0dIHDR" + b"\xff" * 200)
def test_random_bytes_raise_nothing_but_image_error(start: bytes, rest: bytes) -> None:
    with nothing_but_image_errors():
        check(start + rest)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A tiny image with some bytes changed, left out, or put in, most often in its header."""
    data = bytearray(TINY[draw(st.sampled_from(sorted(TINY)))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.one_of(st.integers(0, 60), st.integers(0, len(data) - 1)))
        new = draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"\0", b"\xff", b"\xff" * 4])))
        data[at : at + draw(st.integers(0, 4))] = new
    return bytes(data)


@given(mutated())
@settings(max_examples=500)
def test_mutated_images_raise_nothing_but_image_error(data: bytes) -> None:
    with nothing_but_image_errors():
        facts = identify(data)
        assert min(facts.width, facts.height) >= 1
        assert 1 <= facts.orientation <= 8
        if facts.width * facts.height < 10**7:  # what `check_whole` takes is for its caller to say
            check_whole(data, facts)


# Many at once


def assert_alike(images: list[bytes]) -> None:
    """That many images are told as each by itself."""
    data = np.frombuffer(b"ab" + b"".join(images), "u1")
    sizes = np.array([len(image) for image in images], "i8")
    ends = 2 + np.cumsum(sizes)
    facts = identify_many(data, ends - sizes, ends)
    columns = facts.kinds.tolist(), facts.widths.tolist(), facts.heights.tolist()
    for image, kind, width, height in zip(images, *columns, strict=True):
        try:
            one = identify(image)
        except ImageError:
            assert (KINDS[kind], width, height) == ("?", 0, 0)
        else:
            assert (KINDS[kind], width, height) == (one.kind, one.width, one.height)


def test_many_images_are_told_as_each_by_itself() -> None:
    folders = (CLEAN, ODD, BAD)
    images = [path.read_bytes() for each in folders for path in each.rglob("*.*") if path.is_file()]
    assert len(images) > 50
    assert_alike(images)
    assert_alike(sorted(images, key=len))
    assert_alike([*TINY.values()])
    assert_alike([b"P%c 3 2 255\n" % char + bytes(99) for char in range(256)])


@pytest.mark.parametrize("name", ["ant/ant_0.jpg", "ant/ant_3.png"])
def test_many_cut_images_are_told_as_each_by_itself(name: str) -> None:
    data = (CLEAN / name).read_bytes()
    assert_alike([data[:size] for size in range(min(len(data), 800))])


@given(st.lists(mutated() | st.builds(bytes.__add__, st.sampled_from(STARTS), st.binary())))
@settings(max_examples=300)
def test_many_mutated_images_are_told_as_each_by_itself(images: list[bytes]) -> None:
    assert_alike(images)


def test_what_is_too_short_for_an_image_is_told_as_by_itself() -> None:
    assert_alike([])
    assert_alike([b""])
    pairs = [bytes([first, second]) for first in range(256) for second in range(256)]
    assert_alike(pairs + [pair[:1] for pair in pairs])


def test_odd_segments_of_a_jpeg_are_told_as_by_itself() -> None:
    data = TINY["jpeg"]
    standalone = [data[:2] + bytes([0xFF, marker, 0, 2]) + data[2:] for marker in range(256)]
    frame = b"\xff\xd8\xff\xc0\0\2\xff\xda\0\2"  # too short for what it must hold
    assert_alike(standalone + [frame + b"\1" * count for count in range(5)])


def test_a_jpeg_of_more_segments_than_are_walked_at_once_is_known() -> None:
    data = (CLEAN / "ant" / "ant_0.jpg").read_bytes()
    comment = b"\xff\xfe\0\4ab"
    many = [data[:2] + comment * count + data[2:] for count in (1, 50, 63, 64, 65, 500)]
    assert_alike(many)
    facts = identify_many(np.frombuffer(many[-1], "u1"), np.array([0]), np.array([len(many[-1])]))
    assert (facts.widths.tolist(), facts.count_kinds()) == ([160], {"jpeg": 1})


def test_kinds_are_counted_in_the_order_they_first_come() -> None:
    images = [b"x", TINY["png"], TINY["jpeg"], b"y", TINY["jpeg"], TINY["gif"]]
    ends = np.cumsum([len(image) for image in images])
    data = np.frombuffer(b"".join(images), "u1")
    facts = identify_many(data, ends - [len(image) for image in images], ends)
    assert list(facts.count_kinds().items()) == [("?", 2), ("png", 1), ("jpeg", 2), ("gif", 1)]


# --- channels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("gray.jpg", 1),
        ("upper.JPG", 3),
        ("cmyk.jpg", 4),
        ("bilevel.png", 1),
        ("gray16.png", 1),
        ("la.png", 2),
        ("palette.png", 3),
        ("rgba.png", 4),
        ("bmp.bmp", 3),
        ("gif.gif", 3),
        ("tiff.tiff", 3),
        ("webp.webp", 3),
    ],
)
def test_channels_are_told_for_one_image_and_for_many(name: str, channels: int) -> None:
    data = (ODD / "kinds" / name).read_bytes()
    assert identify(data).channels == channels
    twice = np.frombuffer(data + bytes(3) + data, "u1")
    starts = np.array([0, len(data) + 3])
    assert identify_many(twice, starts, starts + len(data)).channels.tolist() == [channels] * 2


def test_a_png_that_ends_before_its_colour_type_has_no_channels() -> None:
    data = (ODD / "kinds" / "rgba.png").read_bytes()[:25]
    many = identify_many(
        np.frombuffer(data + b"\6", "u1"), np.zeros(1, "i8"), np.array([len(data)])
    )
    assert many.kinds.tolist() == [2]
    assert many.channels.tolist() == [identify(data).channels] == [0]
