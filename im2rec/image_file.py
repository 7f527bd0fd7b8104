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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
_UNMISTAKABLE = {
    "GIF": re.compile(rb"GIF8[79]a"),
    "WebP": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "TIFF": re.compile(rb"MM\0[*+]|II[*+]\0"),
    "JPEG 2000": re.compile(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"),
}
# The first two bytes of every kind there is.
_BEGINNINGS = b"\xff\xd8 \xff\x4f \x89P BM GI RI MM II \0\0 P0 P1 P2 P3 P4 P5 P6 Pf Py".split()
KINDS = ("?", "jpeg", "png", *map(str.lower, _OTHER_KINDS))  # as identify_many numbers them
_JPEG, _PNG = 1, 2
_MAX_SEGMENTS = 64  # of a JPEG before its scan, where many are walked at once
OPENCV_MAX_PIXELS = 2**30  # OpenCV's own bound, CV_IO_MAX_IMAGE_PIXELS
MEMORY_PER_PIXEL = 16  # bytes; more than any codec takes, progressive CMYK and animations included
# What codecs read of the kinds that have a bound of their own, in pixels an edge: libjpeg's
# JPEG_MAX_DIMENSION, libpng's PNG_USER_WIDTH_MAX; for the others OpenCV's CV_IO_MAX_IMAGE_WIDTH.
MAX_EDGES = {"jpeg": 65500, "png": 1_000_000}
OPENCV_MAX_EDGE = 2**20
# A JPEG is decoded scan by scan, at some 1 ns a pixel each; a scan may take no more than 10 bytes.
# Past this many, and this many pixels in all of them together, it would take over 10 seconds.
MAX_SCANS, MAX_SCANNED_PIXELS = 64, 2**33
_PIXELS_PER_BYTE = 512  # of a JPEG at the most: a block of 8x8 has at least a bit
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by its colour type
_PNG_DECODED = {**_PNG_CHANNELS, 3: 3}  # a palette's are those of its colours
# Bytes, beside twice the pixels', that a PNG's image data may take: libpng inflates even what no
# pixel needs, a thousand times as much as it is.
_PNG_SPARE = 1 << 16
_PNM_HEADER = 4096  # bytes that hold its numbers, comments included
_PNM_SCALED = (b"P2", b"P3", b"P5", b"P6")  # those that state their largest value
_NUMBER = re.compile(rb"[0-9]+")
_EXIF = b"Exif\0\0"  # before the block in a JPEG's segment; some write it elsewhere, too
_WEBP_ZEROS = 64  # bytes at the end of image data; few pictures have as many

_COMMENT, _NUMBER_END = re.compile(rb"#[^\r\n]*"), re.compile(rb"[0-9]\s")

_SOI, _EOI, _SOS, _APP1, _TEM = 0xD8, 0xD9, 0xDA, 0xE1, 0x01
_RST = range(0xD0, 0xD8)
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # DHT, JPG and DAC share the range
# Inside a scan, 0xff is followed by 0 (stuffing), by RST, or by 0xff (fill); else a marker comes.
SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """kind: "jpeg", "png", "gif"...; width and height in pixels as stored, before any EXIF turn;
    orientation: the EXIF code 1-8 of a JPEG or PNG; cmyk: a JPEG of four components; depth: bits
    a channel; body: where the JPEG's first scan or the PNG's first chunk begins, in bytes;
    scans: whether a JPEG may have several scans; arithmetic: whether it is arithmetic-coded;
    channels: as stored, 3 for a palette; 0 where the header does not tell."""

    kind: str
    width: int
    height: int
    orientation: int = 1
    cmyk: bool = False
    depth: int = 8
    body: int = 0
    scans: bool = False
    arithmetic: bool = False
    channels: int = field(default=0, compare=False)


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
    pixels, and channels: i64; 0 where the kind is "?": what `identify` raises an error for."""

    kinds: npt.NDArray[np.uint8]
    widths: npt.NDArray[np.int64]
    heights: npt.NDArray[np.int64]
    channels: npt.NDArray[np.int64]

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

    facts = ManyFacts(np.zeros(len(starts), "u1"), *(np.zeros(len(starts), "i8") for _ in "whc"))
    beginnings = np.zeros(1 << 16, bool)
    beginnings[[int.from_bytes(each, "big") for each in _BEGINNINGS]] = True
    prefix = _read_u16(data, starts)
    left = beginnings[prefix] & (ends - starts > 1)
    for kind, first, read in (
        (_JPEG, b"\xff\xd8", _read_jpegs),
        (_PNG, PNG_SIGNATURE[:2], _read_pngs),
    ):
        those = np.flatnonzero(left & (prefix == int.from_bytes(first, "big")))
        widths, heights, channels = read(data, starts[those], ends[those])
        sound = (widths > 0) & (heights > 0)
        those = those[sound]
        facts.kinds[those] = kind
        facts.widths[those], facts.heights[those] = widths[sound], heights[sound]
        facts.channels[those] = channels[sound]
        left[those] = False
    for number in np.flatnonzero(left).tolist():
        try:
            one = identify(data[starts[number] : ends[number]].tobytes())
        except ImageError:
            continue
        facts.kinds[number] = KINDS.index(one.kind)
        facts.widths[number], facts.heights[number] = one.width, one.height
        facts.channels[number] = one.channels
    return facts


def _read_u16(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The big-endian numbers of 16 bits at these places; anything for a place behind the end."""
    return data.take(at, mode="clip").astype("i8") << 8 | data.take(at + 1, mode="clip")


def _read_jpegs(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Widths, heights and channels of JPEGs, as `_identify_jpeg` walks them; 0 where segment does
    not follow on segment up to the first scan."""
    import numpy as np

    plain, frame = np.zeros(256, bool), np.zeros(256, bool)
    plain[2:0xFF] = True  # the markers of segments
    plain[_RST.start : _EOI + 1] = False
    frame[list(_SOF)] = True
    sizes = np.zeros((3, len(starts)), "i8")
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
        sizes[2, those[is_frame]] = data.take(at[is_frame] + 9, mode="clip")
        is_scan = marker == _SOS
        whole[those[good & is_scan]] = True
        good &= ~is_scan
        those, at = those[good], (at + 2 + _read_u16(data, at + 2))[good]
        if not len(those):
            break
    widths, heights, channels = sizes * whole
    return widths, heights, channels


def _read_pngs(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Widths, heights and channels of PNGs; 0 for what does not begin as one must."""
    import numpy as np

    beginning = np.frombuffer(PNG_SIGNATURE + b"\0\0\0\rIHDR", "u1")
    size = len(beginning)
    heads = data.take(starts[:, None] + np.arange(size + 10), mode="clip")
    sound = (heads[:, :size] == beginning).all(axis=1) & (ends - starts > size + 8)
    widths, heights = heads[:, size : size + 8].copy().view(">u4").astype("i8").T * sound
    # with no byte of a colour type in the file, its place holds another's byte: no channels then
    coloured = ends - starts > size + 9
    channels = np.array([_PNG_DECODED.get(colour, 0) for colour in range(256)])
    return widths, heights, channels[heads[:, size + 9]] * (sound & coloured)


def check_edges(facts: ImageFacts) -> None:
    """Raises ImageError for a picture that is too long or too high for its kind's codec."""
    limit = MAX_EDGES.get(facts.kind, OPENCV_MAX_EDGE)
    if max(facts.width, facts.height) > limit:
        raise ImageError(
            f"too large: {facts.width}x{facts.height} pixels, over its codec's limit of {limit} "
            "an edge"
        )


def check_whole(data: bytes, facts: ImageFacts) -> None:
    """Raises ImageError where the file is cut or broken, as far as can be told without decoding
    JPEG and PNG: what `check_structure` finds, and for the other kinds whatever keeps Pillow from
    decoding them. Raises MemoryError where that may be why it did not.
    """
    check_structure(data, facts)
    if facts.kind not in ("jpeg", "png"):
        _check_pixels(data, facts)


def check_structure(data: bytes, facts: ImageFacts) -> None:
    """Raises ImageError where the file's structure is cut or broken; decodes nothing.

    JPEG: every segment is there up to the end-of-image marker; entropy-coded data is not decoded.
    PNG: every chunk up to IEND, those that the pixels need with a right CRC. Other kinds: what
    their decoders are known to let pass.
    """
    check = _CHECKS.get(facts.kind)
    try:
        if check:
            check(data, facts)
    except (IndexError, ValueError, struct.error) as error:
        raise ImageError("truncated: the file ends before the image does") from error


def check_for_opencv(data: bytes, facts: ImageFacts) -> None:
    """Raises ImageError for a sound file that OpenCV, 4.12 to 5.0 at the least, decodes wrong.

    PNM: it does not scale what has another largest value than it stores. BMP: where run-length
    coded rows are longer than the picture is wide, as ImageMagick pads them, it takes the rest for
    the next row's.
    """
    if facts.kind == "ppm":
        numbers = _NUMBER.findall(_COMMENT.sub(b" ", data[2:_PNM_HEADER]))
        most = int(numbers[2]) if data[:2] in _PNM_SCALED and len(numbers) > 2 else 255
        is_text = data[:2] in (b"P2", b"P3")
        if most not in (255, 65535) and not (is_text and most < 255):
            raise ImageError(
                f"a PNM whose largest value is {most}, which OpenCV does not scale; expected 255 "
                "or 65535"
            )
    elif facts.kind == "bmp" and facts.width % 4 and _has_long_rows(data, facts.width):
        raise ImageError("a BMP whose run-length coded rows are padded, which OpenCV decodes wrong")


def _has_long_rows(data: bytes, width: int) -> bool:
    """Whether a row of a run-length coded BMP has more pixels than the picture is wide."""
    offset, header = struct.unpack_from("<II", data, 10)
    compression = 0 if header == 12 else int.from_bytes(data[30:34], "little")
    if compression not in (1, 2):
        return False
    at, column = offset, 0
    while at + 1 < len(data):
        count, value = data[at], data[at + 1]
        at += 2
        if count:
            column += count
        elif value < 2:  # the end of a row, of the picture
            if value:
                break
            column = 0
        elif value == 2:  # a move
            column += int.from_bytes(data[at : at + 1], "big")
            at += 2
        else:  # pixels one by one, in whole 16-bit words
            column += value
            length = value if compression == 1 else (value + 1) // 2
            at += length + (length & 1)
        if column > width:
            return True
    return False


def remarks_on(data: bytes, facts: ImageFacts) -> tuple[str, ...]:
    """What looks as if the file was not written to its end, though it may be sound.

    Of a WebP whose image data ends in zeros: its decoders take any bits, and its encoders write as
    many for pictures that are plain in their lower part.
    """
    if facts.kind != "webp":
        return ()
    found = []
    for kind, start, end in _webp_chunks(data):
        if kind in (b"VP8 ", b"VP8L"):
            body = data[start:end]
            zeros = len(body) - len(body.rstrip(b"\0"))
            if zeros > _WEBP_ZEROS and 8 * zeros > len(body):
                found.append(f"the last {zeros} bytes of a WebP's image data are zero; look at it")
    return tuple(found)


def _identify_jpeg(data: bytes) -> ImageFacts:
    size: tuple[int, int] | None = None
    components, depth, orientation, frame = 0, 8, 0, 0
    at = 2
    if data[at] != 0xFF:  # later bytes between segments are passed over, these by no decoder
        raise ImageError("damaged: no marker follows on the beginning of the JPEG")
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
            size, frame = (width, height), marker
        elif marker == _APP1 and data.startswith(_EXIF, at + 2):
            # the first that states one, as OpenCV 5 has it
            orientation = orientation or exif_orientation(data[at + 8 : at + length])
        at += length
    if size is None:
        raise ImageError("damaged: a JPEG whose scan comes before its frame header")
    is_progressive = frame & 3 == 2  # and not baseline, sequential, or lossless
    scans = is_progressive or int.from_bytes(data[at + 2 : at + 3], "big") < components
    is_arithmetic, is_cmyk = frame > 0xC8, components == 4
    return ImageFacts(
        "jpeg", *size, _turn(orientation), is_cmyk, depth, at, scans, is_arithmetic, components
    )


def _check_jpeg(data: bytes, facts: ImageFacts) -> None:
    """Looks for the end-of-image marker: at the end, else by a walk from the first scan's header
    on, for what follows the marker is of no concern."""
    at, pixels = facts.body, facts.width * facts.height
    if not (len(data) - at > 2 and data.endswith(b"\xff\xd9")):
        _find_end(data, at)
    if pixels > _PIXELS_PER_BYTE * len(data) and not facts.arithmetic:
        raise ImageError(
            f"truncated: {len(data)} bytes, too few for {facts.width}x{facts.height} pixels"
        )
    if facts.scans and len(data) * pixels > 10 * MAX_SCANNED_PIXELS:
        scans = 1 + data.count(b"\xff\xda", at)
        if scans > MAX_SCANS and scans * pixels > MAX_SCANNED_PIXELS:
            raise ImageError(
                f"too large: {scans} scans of {facts.width}x{facts.height} pixels, which would "
                "take minutes to decode"
            )


def _find_end(data: bytes, at: int) -> None:
    """Walks the JPEG from its first scan's header on to the end-of-image marker."""
    while True:
        (length,) = struct.unpack_from(">H", data, at)  # the header of a scan or another segment
        at += length
        found = SCAN_END.search(data, at)
        if not found:
            raise ImageError("truncated: no end-of-image marker")
        marker = data[found.start() + 1]
        at = found.end()
        if marker == _EOI:
            return


def exif_orientation(tiff: bytes) -> int:
    """The orientation that an EXIF block (from its TIFF header on) states, whatever it may be; 0 if
    none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 0
    try:
        (ifd,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, ifd)
        for number in range(count):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, ifd + 2 + 12 * number)
            if tag == 0x0112:
                return int(value)
    except struct.error:
        pass
    return 0


def _turn(orientation: int) -> int:
    """An orientation of 1-8, 1 for what makes no sense."""
    return orientation if 1 <= orientation <= 8 else 1


def _identify_png(data: bytes) -> ImageFacts:
    body = len(PNG_SIGNATURE)
    length, kind, width, height, depth = struct.unpack_from(">I4sIIB", data, body)
    if kind != b"IHDR" or length != 13:
        raise ImageError("damaged: a PNG that does not begin with IHDR")
    orientation, at = 0, body
    while at + 8 <= len(data):  # to the end: eXIf may stand behind the pixels
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"eXIf":
            orientation = exif_orientation(data[at + 8 : at + 8 + length].removeprefix(_EXIF))
        elif kind == b"IEND":
            break
        at += 12 + length
    colour = int.from_bytes(data[body + 17 : body + 18], "big") if len(data) > body + 17 else -1
    channels = _PNG_DECODED.get(colour, 0)
    turn = _turn(orientation)
    return ImageFacts("png", width, height, turn, False, depth, body, channels=channels)


def _check_png(data: bytes, facts: ImageFacts) -> None:
    """Walks every chunk up to IEND."""
    view = memoryview(data)
    at = len(PNG_SIGNATURE)
    compressed = 0  # bytes of image data
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
            compressed += length
        elif kind == b"IEND":
            break
        at = end + 4
    if not compressed:
        raise ImageError("damaged: a PNG without image data")
    size = facts.height * (facts.width * facts.depth * _PNG_CHANNELS.get(data[25], 4) // 8 + 2)
    if compressed > 2 * size + _PNG_SPARE:
        raise ImageError(
            f"damaged: {compressed} bytes of image data for {facts.width}x{facts.height} pixels"
        )


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
            channels = 3 if image.mode == "P" else len(image.getbands())
            orientation = 0
            if kind == "tiff":
                orientation = image.getexif().get(0x0112, 0)
                orientation = orientation if isinstance(orientation, int) else 0
            elif kind == "webp":
                orientation = _webp_orientation(data)
            turn, is_cmyk = _turn(orientation), image.mode == "CMYK"
            return ImageFacts(kind, width, height, turn, is_cmyk, depth, channels=channels)
    except UnidentifiedImageError:
        raise _unknown(data) from None
    except Image.DecompressionBombError as error:
        raise ImageError(f"too large: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise many kinds for a broken header
        raise ImageError(f"damaged: {_first_line(error)}") from error


def _webp_orientation(data: bytes) -> int:
    """As `exif_orientation`, of a WebP's EXIF chunk."""
    for kind, start, end in _webp_chunks(data):
        if kind == b"EXIF":
            return exif_orientation(data[start:end].removeprefix(_EXIF))
    return 0


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Each chunk of a WebP: its kind, and where what is in it begins and ends."""
    at = 12
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, at + 8, at + 8 + length
        at += 8 + length + (length & 1)


def _unknown(data: bytes) -> ImageError:
    """For what no reader takes; where the kind is unmistakable, the header is at fault."""
    for name, beginning in _UNMISTAKABLE.items():
        if beginning.match(data):
            return ImageError(f"damaged: the header of a {name} that makes no sense")
    return ImageError(f"not an image of a known kind: the file begins with {data[:16]!r}")


def _check_pixels(data: bytes, facts: ImageFacts) -> None:
    """Lets Pillow decode the picture."""
    try:
        with _open_other(data) as image:
            image.load()
    except MemoryError:
        raise
    except Exception as error:  # as above: whatever Pillow raises, the file is at fault
        check_memory(facts.width * facts.height)
        text = _first_line(error)
        if text.startswith("decoder error"):  # and a number
            text = "its pixels cannot be decoded"
        raise ImageError(
            text if text.startswith("truncated") else f"truncated or damaged: {text}"
        ) from error


def check_memory(pixels: int) -> None:
    """Raises MemoryError where a codec that failed may have lacked memory: few of them say so."""
    bytes(pixels * MEMORY_PER_PIXEL)  # zeros that are never read take no memory in truth


def _check_gif(data: bytes, _: ImageFacts) -> None:
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


def _check_ppm(data: bytes, facts: ImageFacts) -> None:
    """Looks for the space that ends the last number of one written as text, without which it may
    be cut, and OpenCV does not read it. More may follow: a comment, other numbers."""
    channels = {b"P2": 1, b"P3": 3}.get(data[:2])
    if channels is None or data[-1:].isspace():
        return
    numbers = 3 + facts.width * facts.height * channels  # width, height, maximum
    text = _COMMENT.sub(b" ", data[2:])
    if sum(1 for _ in _NUMBER_END.finditer(text)) < numbers:
        raise ImageError("truncated: the file ends inside its last number")


def _check_jpeg2000(data: bytes, _: ImageFacts) -> None:
    """Looks for the end and for the start of each tile: a tile that is not there is left black."""
    if b"\xff\xd9" not in data:
        raise ImageError("truncated: no end-of-codestream marker")
    size = data.index(b"\xff\x4f\xff\x51") + 8  # behind the markers, a length, and capabilities
    right, bottom, _, _, width, height, left, top = struct.unpack_from(">8I", data, size)
    tiles = -(-(right - left) // max(width, 1)) * -(-(bottom - top) // max(height, 1))
    found = data.count(b"\xff\x90\0\x0a", size)
    if found < tiles:
        raise ImageError(f"truncated: {found} of {tiles} tiles")


def _check_tiff(data: bytes, _: ImageFacts) -> None:
    """Looks for an entry of the first directory that is empty. None is of a sound file, for they
    stand in the order of their tags; decoders do without it, and without that of the compression
    they take codes for pixels."""
    order = "<" if data.startswith(b"II") else ">"
    if data[2:4] not in (b"*\0", b"\0*"):
        return  # of 64-bit offsets
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        if data[entry : entry + 12] == bytes(12):
            raise ImageError(f"damaged: an empty entry in the TIFF directory, at byte {entry}")


_CHECKS: dict[str, Callable[[bytes, ImageFacts], None]] = {
    "jpeg": _check_jpeg,
    "png": _check_png,
    "gif": _check_gif,
    "bmp": _check_bmp,
    "ppm": _check_ppm,
    "jpeg2000": _check_jpeg2000,
    "tiff": _check_tiff,
}


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return printable(lines[0][:200]) if lines else type(error).__name__
