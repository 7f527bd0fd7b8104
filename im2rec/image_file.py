"""What an image file's bytes say before anything is decoded: kind, size, and whether all is there.

JPEG and PNG, nearly all that is ever packed, are walked here, marker by marker and chunk by chunk
(ITU-T T.81 annex B; the PNG specification's chunk layout), in some 10 microseconds. The rarer
kinds are Pillow's business, but for the cuts that it lets pass.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from im2rec.errors import ImageError, printable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image  # at run time only where used: it takes longer to load than to walk

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_OTHER_KINDS = ("BMP", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000")  # Pillow's names for them
# How those begin, as Pillow's readers have it: what does not need not be shown to them.
_OTHER_SIGNATURES = re.compile(
    rb"BM|GIF8[79]a|RIFF.{4}WEBP|MM(?:\0[*+]|\*\0)|II(?:[*+]\0|\0\*)|P[0-6fy]"
    rb"|\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n",
    re.DOTALL,
)
# The first two bytes of every kind there is.
_BEGINNINGS = b"\xff\xd8 \xff\x4f \x89P BM GI RI MM II \0\0 P0 P1 P2 P3 P4 P5 P6 Pf Py".split()
KINDS = ("?", "jpeg", "png", *map(str.lower, _OTHER_KINDS))  # as identify_many numbers them
_JPEG, _PNG = 1, 2
_MAX_SEGMENTS = 64  # of a JPEG before its scan, where many are walked at once
OPENCV_MAX_PIXELS = 2**30  # OpenCV's own bound, CV_IO_MAX_IMAGE_PIXELS
MEMORY_PER_PIXEL = 16  # bytes; more than any codec takes, progressive CMYK and animations included

_SOI, _EOI, _SOS, _APP1, _TEM = 0xD8, 0xD9, 0xDA, 0xE1, 0x01
_RST = range(0xD0, 0xD8)
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # DHT, JPG and DAC share the range
# Inside a scan, 0xff is followed by 0 (stuffing), by RST, or by 0xff (fill); else a marker comes.
_SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """kind: "jpeg", "png", "gif"...; width and height in pixels as stored, before any EXIF turn;
    orientation: the EXIF code 1-8 of a JPEG or PNG; cmyk: a JPEG of four components; depth: bits
    a channel; body: where the JPEG's first scan or the PNG's first chunk begins, in bytes."""

    kind: str
    width: int
    height: int
    orientation: int = 1
    cmyk: bool = False
    depth: int = 8
    body: int = 0


def identify(data: bytes) -> ImageFacts:
    """Reads the header of an image file. Raises ImageError for what is no image of a known kind."""
    if not data:
        raise ImageError("empty file")
    try:
        if data.startswith(b"\xff\xd8"):
            facts = _identify_jpeg(data)
        elif data.startswith(PNG_SIGNATURE):
            facts = _identify_png(data)
        elif _OTHER_SIGNATURES.match(data):
            facts = _identify_other(data)
        else:
            raise _unknown(data)
    except (IndexError, ValueError, struct.error) as error:
        raise ImageError("truncated: the file ends inside its header") from error
    if facts.width < 1 or facts.height < 1:
        raise ImageError(f"damaged: a size of {facts.width}x{facts.height} pixels")
    return facts


@dataclass(frozen=True, slots=True)
class ManyFacts:
    """Facts of many images as columns. kinds: u8, numbers in KINDS; widths, heights: i64, in
    pixels, 0 where the kind is "?": what `identify` raises an error for."""

    kinds: npt.NDArray[np.uint8]
    widths: npt.NDArray[np.int64]
    heights: npt.NDArray[np.int64]

    def count_kinds(self) -> dict[str, int]:
        """How many images there are of each kind, in the order in which the kinds first come."""
        import numpy as np

        counts = np.bincount(self.kinds)
        there = counts.nonzero()[0].tolist()
        there.sort(key=lambda kind: int((self.kinds == kind).argmax()))
        return {KINDS[kind]: int(counts[kind]) for kind in there}


def identify_many(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> ManyFacts:
    """What `identify` says of many images at once: JPEG and PNG files as they are usually laid out
    are read in step, the rest one by one. starts, ends: the places of each in data."""
    import numpy as np

    facts = ManyFacts(np.zeros(len(starts), "u1"), *(np.zeros(len(starts), "i8") for _ in "wh"))
    beginnings = np.zeros(1 << 16, bool)
    beginnings[[int.from_bytes(each, "big") for each in _BEGINNINGS]] = True
    prefix = _read_u16(data, starts)
    left = beginnings[prefix] & (ends - starts > 1)
    for kind, first, read in (
        (_JPEG, b"\xff\xd8", _read_jpegs),
        (_PNG, PNG_SIGNATURE[:2], _read_pngs),
    ):
        those = np.flatnonzero(left & (prefix == int.from_bytes(first, "big")))
        widths, heights = read(data, starts[those], ends[those])
        sound = (widths > 0) & (heights > 0)
        those = those[sound]
        facts.kinds[those] = kind
        facts.widths[those], facts.heights[those] = widths[sound], heights[sound]
        left[those] = False
    for number in np.flatnonzero(left).tolist():
        try:
            one = identify(data[starts[number] : ends[number]].tobytes())
        except ImageError:
            continue
        facts.kinds[number] = KINDS.index(one.kind)
        facts.widths[number], facts.heights[number] = one.width, one.height
    return facts


def _read_u16(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The big-endian numbers of 16 bits at these places; anything for a place behind the end."""
    return data.take(at, mode="clip").astype("i8") << 8 | data.take(at + 1, mode="clip")


def _read_jpegs(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Widths and heights of JPEGs, as `_identify_jpeg` walks them; 0 where segment does not follow
    on segment up to the first scan."""
    import numpy as np

    plain, frame = np.zeros(256, bool), np.zeros(256, bool)
    plain[2:0xFF] = True  # the markers of segments
    plain[_RST.start : _EOI + 1] = False
    frame[list(_SOF)] = True
    sizes = np.zeros((2, len(starts)), "i8")
    whole = np.zeros(len(starts), bool)
    those, at = np.arange(len(starts)), starts + 2
    for _ in range(_MAX_SEGMENTS):
        marker = _read_u16(data, at) - 0xFF00
        left = ends[those] - at  # bytes of the file from the marker on
        good = plain.take(marker, mode="clip") & (left >= 4)
        is_frame = frame.take(marker, mode="clip") & good
        good &= ~is_frame | (left >= 10)
        is_frame &= good
        sizes[0, those[is_frame]] = _read_u16(data, at[is_frame] + 7)
        sizes[1, those[is_frame]] = _read_u16(data, at[is_frame] + 5)
        is_scan = marker == _SOS
        whole[those[good & is_scan]] = True
        good &= ~is_scan
        those, at = those[good], (at + 2 + _read_u16(data, at + 2))[good]
        if not len(those):
            break
    widths, heights = sizes * whole
    return widths, heights


def _read_pngs(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Widths and heights of PNGs; 0 for what does not begin as one must."""
    import numpy as np

    beginning = np.frombuffer(PNG_SIGNATURE + b"\0\0\0\rIHDR", "u1")
    heads = data.take(starts[:, None] + np.arange(len(beginning) + 8), mode="clip")
    sound = (heads[:, :-8] == beginning).all(axis=1) & (ends - starts >= heads.shape[1] + 1)
    widths, heights = heads[:, -8:].copy().view(">u4").astype("i8").T * sound
    return widths, heights


def check_whole(data: bytes, facts: ImageFacts) -> None:
    """Raises ImageError where the file's structure is cut or broken.

    JPEG: every segment is there up to the end-of-image marker; entropy-coded data is not decoded.
    PNG: every chunk up to IEND, those that the pixels need with a right CRC. Other kinds: Pillow
    decodes them whole. Raises MemoryError where that may be why it did not.
    """
    try:
        if facts.kind == "jpeg":
            _check_jpeg(data, facts.body)
        elif facts.kind == "png":
            _check_png(data)
        else:
            _check_other(data, facts)
    except (IndexError, struct.error) as error:
        raise ImageError("truncated: the file ends before the image does") from error


def _identify_jpeg(data: bytes) -> ImageFacts:
    size: tuple[int, int] | None = None
    components, depth, orientation = 0, 8, 1
    at = 2
    while True:
        at = data.index(b"\xff", at) if data[at] != 0xFF else at
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _RST or marker in (0, _TEM, _SOI):
            continue
        if marker == _EOI:
            raise ImageError("damaged: a JPEG without image data")
        (length,) = struct.unpack_from(">H", data, at)
        if marker == _SOS:
            break
        if marker in _SOF:
            depth, height, width, components = struct.unpack_from(">BHHB", data, at + 2)
            size = width, height
        elif marker == _APP1 and data.startswith(b"Exif\0\0", at + 2):
            orientation = exif_orientation(data[at + 8 : at + length])
        at += length
    if size is None:
        raise ImageError("damaged: a JPEG whose scan comes before its frame header")
    return ImageFacts("jpeg", *size, orientation, components == 4, depth, at)


def _check_jpeg(data: bytes, at: int) -> None:
    """Looks for the end-of-image marker: at the end, else by a walk from the first scan's header
    on, for what follows the marker is of no concern."""
    if len(data) - at > 2 and data.endswith(b"\xff\xd9"):
        return
    while True:
        (length,) = struct.unpack_from(">H", data, at)  # the header of a scan or another segment
        at += length
        found = _SCAN_END.search(data, at)
        if not found:
            raise ImageError("truncated: no end-of-image marker")
        marker = data[found.start() + 1]
        at = found.end()
        if marker == _EOI:
            return


def exif_orientation(tiff: bytes) -> int:
    """The orientation 1-8 that an EXIF block (from its TIFF header on) states; 1 if none."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (ifd,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, ifd)
        for number in range(count):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, ifd + 2 + 12 * number)
            if tag == 0x0112:
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def _identify_png(data: bytes) -> ImageFacts:
    body = len(PNG_SIGNATURE)
    length, kind, width, height, depth = struct.unpack_from(">I4sIIB", data, body)
    if kind != b"IHDR" or length != 13:
        raise ImageError("damaged: a PNG that does not begin with IHDR")
    orientation, at = 1, body
    while at + 8 <= len(data):  # to the end: eXIf may stand behind the pixels
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"eXIf":
            orientation = exif_orientation(data[at + 8 : at + 8 + length])
        elif kind == b"IEND":
            break
        at += 12 + length
    return ImageFacts("png", width, height, orientation, False, depth, body)


def _check_png(data: bytes) -> None:
    """Walks every chunk up to IEND."""
    view = memoryview(data)
    at = len(PNG_SIGNATURE)
    has_pixels = False
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        (crc,) = struct.unpack_from(">I", data, end)
        # A chunk's first letter is a capital where no picture is right without it. Transparency's
        # is not, for a reader may leave it out.
        if (not kind[0] & 0x20 or kind == b"tRNS") and zlib.crc32(view[at + 4 : end]) != crc:
            name = kind.decode("latin-1")
            raise ImageError(f"damaged: wrong CRC in the PNG chunk {name!r} at byte {at}")
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"IEND":
            break
        at = end + 4
    if not has_pixels:
        raise ImageError("damaged: a PNG without image data")


@contextmanager
def _open_other(data: bytes) -> Iterator[Image.Image]:
    from PIL import Image

    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata is no concern
        Image.MAX_IMAGE_PIXELS = OPENCV_MAX_PIXELS // 2  # it refuses from the double on
        try:
            with Image.open(io.BytesIO(data), formats=_OTHER_KINDS) as image:
                yield image
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _identify_other(data: bytes) -> ImageFacts:
    from PIL import Image, UnidentifiedImageError

    try:
        with _open_other(data) as image:
            width, height = image.size
            depth = 16 if image.mode.startswith("I;16") else 32 if image.mode in "IF" else 8
            kind = (image.format or "").lower()
            return ImageFacts(kind, width, height, 1, image.mode == "CMYK", depth)
    except UnidentifiedImageError:
        raise _unknown(data) from None
    except Image.DecompressionBombError as error:
        raise ImageError(f"too large: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise many kinds for a broken header
        raise ImageError(f"damaged: {_first_line(error)}") from error


def _unknown(data: bytes) -> ImageError:
    return ImageError(f"not an image of a known kind: the file begins with {data[:16]!r}")


def _check_other(data: bytes, facts: ImageFacts) -> None:
    if facts.kind == "gif":
        _check_gif(data)
    elif facts.kind == "bmp":
        _check_bmp(data, facts)
    elif facts.kind == "jpeg2000" and b"\xff\xd9" not in data:  # its end-of-codestream marker
        raise ImageError("truncated: no end-of-codestream marker")
    try:
        with _open_other(data) as image:
            image.load()
    except MemoryError:
        raise
    except Exception as error:  # as above: whatever Pillow raises, the file is at fault
        check_memory(facts.width * facts.height)
        text = _first_line(error)
        raise ImageError(
            text if text.startswith("truncated") else f"truncated or damaged: {text}"
        ) from error


def check_memory(pixels: int) -> None:
    """Raises MemoryError where a codec that failed may have lacked memory: few of them say so."""
    bytes(pixels * MEMORY_PER_PIXEL)  # zeros that are never read take no memory in truth


def _check_gif(data: bytes) -> None:
    """Walks every block up to the trailer; Pillow looks no further than the first picture."""
    at = 13 + _colour_table(data[10])
    while data[at] != 0x3B:
        if data[at] == 0x2C:  # a picture: its descriptor, colours, and code size
            at += 11 + _colour_table(data[at + 9])
        elif data[at] == 0x21:  # an extension and its label
            at += 2
        else:
            raise ImageError(f"damaged: no GIF block begins at byte {at}")
        while data[at]:  # sub-blocks, each after its length
            at += 1 + data[at]
        at += 1


def _colour_table(flags: int) -> int:
    """The bytes of the colour table that a GIF's flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _check_bmp(data: bytes, facts: ImageFacts) -> None:
    """Looks for the last row's padding, which Pillow does without and OpenCV does not."""
    offset, header = struct.unpack_from("<II", data, 10)
    depth, compression = (data[24], 0) if header == 12 else struct.unpack_from("<HI", data, 28)
    row = (facts.width * depth + 31) // 32 * 4
    if compression in (0, 3) and len(data) < offset + row * facts.height:  # not run-length coded
        raise ImageError("truncated: the file ends before the image does")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return printable(lines[0][:200]) if lines else type(error).__name__
