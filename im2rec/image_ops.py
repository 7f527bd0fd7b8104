"""Pixels: image file bytes in, the bytes to pack out; pure, picklable, knows no files or processes.

The pixel rules are im2rec.py's (MXNet master), which calls OpenCV: a centre crop to a square with
margins floored, then a resize of the short edge with the other edge `long * N // short`, then
JPEG or PNG by `imencode`. Pictures are HxWxC uint8 (uint16 from a 16-bit PNG as is), BGR, or HxW
where grey.
"""

from __future__ import annotations

import gc
import os
import re
import struct
import tempfile
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from im2rec.errors import ImageError, printable
from im2rec.image_file import (
    MAX_EDGES,
    ImageFacts,
    check_edges,
    check_for_opencv,
    check_memory,
    check_structure,
    check_whole,
    identify,
    remarks_on,
)
from im2rec.image_file import OPENCV_MAX_PIXELS as OPENCV_MAX_PIXELS
from im2rec.jpeg_scan import SEQUENTIAL, SOS, find_damage, find_zeros, segments

if TYPE_CHECKING:
    import cv2
    import numpy as np
    import numpy.typing as npt

    Picture = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

# OpenCV's numbers, as `--inter-method` of im2rec.cc has them; 9 and 10 choose by image.
INTERPOLATIONS = {
    "nearest": 0,
    "linear": 1,
    "cubic": 2,
    "area": 3,
    "lanczos": 4,
    "auto": 9,
    "random": 10,
}
MAX_JPEG_EDGE = MAX_EDGES["jpeg"]  # pixels; libjpeg writes no larger ones than it reads
THREADS_OF_NUMPY = "OPENBLAS_NUM_THREADS"  # the environment's name for it; read as NumPy loads
KEPT_MEMORY = 1 << 24  # bytes; twice as much may lie free in a worker's heap
MAX_PIXELS = 178_956_970  # default bound; what Pillow, too, refuses as a decompression bomb
IMAGE_TIMEOUT = 300.0  # seconds; some ten times what the slowest of that size takes
DEFAULT_QUALITY = {".jpg": 95, ".png": 3}
QUALITY_RANGE = {".jpg": (1, 100), ".png": (0, 9)}

# What libjpeg prints of a file whose pixels are wrong. Other remarks (bytes before the end marker,
# strange metadata, colour profiles) leave the picture whole.
# Of the markers, the end of the image, a comment, or APPn.
_LEFT_OVER = re.compile(
    r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0x(?:d9|fe|e[0-9a-f])"
)
_DAMAGE = re.compile(
    rf"Corrupt JPEG data: (?!{_LEFT_OVER.pattern.partition(': ')[2]}|bad ICC marker).*"
    r"|Premature end of JPEG file.*|Inconsistent progression sequence.*"
    r"|JPEGLib: (?:Corrupt JPEG data: premature|Premature).*"  # in a TIFF
)
# Remarks on the header that leave the picture whole. libjpeg prints no more than its first remark,
# so behind one of these it would be silent about damage.
_HIDES_DAMAGE = re.compile(
    r"Warning: unknown JFIF revision number.*|Unknown Adobe color transform code.*"
    r"|Invalid SOS parameters for sequential JPEG.*"
    r"|Corrupt JPEG data: \d+ extraneous bytes before marker 0x(?!d9).*"
)
# Where so many in a row of every 64th byte of a JPEG's scan are zeros, a block of a disk may be
# missing. Where nothing is decoded, time counts, and no less than a page of memory is looked for.
_FEW_ZEROS, _EVERY, _EVERY_PASSED = bytes(4), 64, 512
_JFIF_MAJOR = re.compile(rb"(\xff\xe0..JFIF\0)[^\x01]", re.DOTALL)
_ADOBE_TRANSFORM = re.compile(rb"(\xff\xee..Adobe.{6})[^\0-\2]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """What is done to each picture.

    resize: the short edge in pixels, 0 = leave. quality: JPEG 1-100, PNG 0-9. color: 1 BGR, 0 grey,
    -1 as stored. encoding: ".jpg" or ".png". pass_through: store the file's bytes. interpolation: a
    key of INTERPOLATIONS. no_upscale: leave pictures whose short edge is below `resize`.
    max_pixels: larger pictures, or results, are refused. dct_scaling: let the codec decode a JPEG
    at 1/2, 1/4 or 1/8 where its short edge then is at least twice `resize`; with "area" only.
    """

    resize: int = 0
    center_crop: bool = False
    quality: int = 95
    color: int = 1
    encoding: str = ".jpg"
    pass_through: bool = False
    interpolation: str = "linear"
    no_upscale: bool = False
    max_pixels: int = MAX_PIXELS
    dct_scaling: bool = False


@dataclass(frozen=True, slots=True)
class PackedImage:
    """image: the bytes to pack. facts: of the source file. width, height: of the image to pack, in
    pixels as stored. remarks: what the codec said of a picture that is whole all the same."""

    image: bytes
    facts: ImageFacts
    width: int
    height: int
    remarks: tuple[str, ...] = ()


def convert(data: bytes, options: ImageOptions, seed: int) -> PackedImage:
    """One image file's bytes as they are to be packed.

    seed: decides the interpolation where that is "random"; the image's id, so that a run can be
    repeated. Raises ImageError with the reason where the image cannot be packed.
    """
    facts = identify(data)
    if facts.width * facts.height > options.max_pixels:
        raise ImageError(
            f"too large: {facts.width}x{facts.height} pixels, over --max-pixels "
            f"{options.max_pixels}"
        )
    if options.pass_through:
        check_edges(facts)
        check_whole(data, facts)
        _check_zeros(data, facts, _EVERY_PASSED)
        remarks = remarks_on(data, facts)
        return PackedImage(data, facts, facts.width, facts.height, remarks)
    scale = _dct_scale(facts, options)
    picture, remarks = decode(data, facts, options.color, scale)
    full = picture.shape[1], picture.shape[0]
    if scale > 1:  # reckon with what it would be
        is_upright = facts.orientation < 5
        full = (facts.width, facts.height) if is_upright else (facts.height, facts.width)
    if options.center_crop:
        picture, full = center_crop(picture), (min(full), min(full))
    if options.resize:
        picture = resize_short_edge(picture, options, seed, full)
    height, width = picture.shape[:2]
    return PackedImage(encode(picture, options), facts, width, height, remarks)


def _dct_scale(facts: ImageFacts, options: ImageOptions) -> int:
    """By what a JPEG's edges are divided as it is decoded. libjpeg then computes only the lowest
    frequencies of each block of 8x8 pixels. Half of the way is left to the resize, which takes the
    mean of all pixels: that keeps 40 dB to the same without scaling, where nothing left has 33."""
    if options.dct_scaling and options.resize and facts.kind == "jpeg":
        for scale in (8, 4, 2):
            if min(facts.width, facts.height) >= 2 * options.resize * scale:
                return scale
    return 1


def decode(
    data: bytes, facts: ImageFacts, color: int, scale: int = 1
) -> tuple[Picture, tuple[str, ...]]:
    """The picture, and what the codec remarked on it.

    color: OpenCV's flag 1 (BGR), 0 (grey) or -1 (as stored, without the EXIF turn). scale: of a
    JPEG's edges, with color 1 or 0: one over 1, 2, 4 or 8, rounded up. Raises ImageError where a
    pixel is missing or, as far as the codec can tell, wrong; MemoryError where the machine fails,
    not the file.
    """
    pixels = facts.width * facts.height
    check_edges(facts)
    if pixels > OPENCV_MAX_PIXELS:
        raise ImageError(
            f"too large: {facts.width}x{facts.height} pixels, over OpenCV's limit of "
            f"{OPENCV_MAX_PIXELS}"
        )
    # OpenCV lets a wrong CRC pass, takes zeros in the place of a JPEG's end for its codes...
    check_structure(data, facts)
    check_for_opencv(data, facts)
    _check_zeros(data, facts, _EVERY)
    flags = color if scale == 1 else color | _REDUCED[scale]
    if color != -1:
        flags |= _IGNORE_ORIENTATION
    picture, remarks = _imdecode(data, facts, flags)
    damage = [line for line in remarks if _DAMAGE.fullmatch(line)]
    if any(map(_HIDES_DAMAGE.fullmatch, remarks)):
        _, more = _imdecode(_with_plain_header(data, facts.body), facts, flags)
        damage = [line for line in more if _DAMAGE.fullmatch(line)]
        remarks = tuple(dict.fromkeys(remarks + more))
    if picture is None:
        check_whole(data, facts)  # says better than the codec what is wrong
        check_memory(pixels)
        said = _short(" ".join(damage or remarks))
        if damage or facts.kind in ("jpeg", "png"):
            raise ImageError(f"damaged {facts.kind}: {said or 'OpenCV cannot decode it'}")
        found = f"OpenCV cannot decode this {facts.kind}, which Pillow can"
        raise ImageError(found + (f": {said}" if said else ""))
    if damage:
        raise ImageError(f"damaged {facts.kind}: {_short(damage[0])}")
    if facts.kind == "tiff" and (remarks or not _tells_of_tiff()):
        check_whole(data, facts)  # OpenCV goes on behind strips that cannot be decoded
    for left_over in filter(None, map(_LEFT_OVER.fullmatch, remarks)):
        if wrong := find_damage(data, int(left_over[1])):
            raise ImageError(f"damaged {facts.kind}: the scan has {wrong}")
    if color != -1 and facts.kind != "tiff":  # libtiff has turned it, whatever the flags
        picture = _turned(picture, facts.orientation)
    return picture, remarks + remarks_on(data, facts)


def _turned(picture: Picture, orientation: int) -> Picture:
    """The picture upright, as OpenCV 5 turns it: earlier ones turn no WebP, and look for a JPEG's
    EXIF block in its first APP1 segment alone."""
    import cv2

    if orientation in _TURNS:
        transpose, flip = _TURNS[orientation]
        turned: Any = cv2.transpose(picture) if transpose else picture
        picture = turned if flip is None else cv2.flip(turned, flip)
    return picture


def _check_zeros(data: bytes, facts: ImageFacts, every: int) -> None:
    """Raises ImageError for a JPEG's scan with a run of zeros in it that is no picture's, as in a
    file with a hole. One byte of each `every` tells whether there may be one."""
    if facts.kind == "jpeg" and _FEW_ZEROS in data[facts.body :: every]:
        damage = find_zeros(data)
        if damage:
            raise ImageError(f"damaged jpeg: the scan has {damage}")


def _tells_of_tiff() -> bool:
    """Whether we hear what libtiff says: OpenCV prints it from 5 on."""
    import cv2

    return codec_log().is_capturing and int(cv2.__version__.split(".")[0]) >= 5


_IGNORE_ORIENTATION = 128  # OpenCV's flag
# By EXIF orientation: whether rows and columns change places, and OpenCV's code of a flip then.
_TURNS: dict[int, tuple[bool, int | None]] = {
    2: (False, 1),
    3: (False, -1),
    4: (False, 0),
    5: (True, None),
    6: (True, 1),
    7: (True, -1),
    8: (True, 0),
}
# What makes IMREAD_REDUCED_GRAYSCALE_2... of IMREAD_GRAYSCALE, and the same of IMREAD_COLOR.
_REDUCED = {2: 16, 4: 32, 8: 64}


def _imdecode(data: bytes, facts: ImageFacts, flags: int) -> tuple[Picture | None, tuple[str, ...]]:
    """OpenCV's picture, or None, and what the codec said meanwhile."""
    import cv2
    import numpy as np

    log = codec_log()
    log.take()
    try:
        picture: Any = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise _refused(error, f"damaged {facts.kind}", facts.width * facts.height) from error
    return None if picture is None or picture.size == 0 else picture, log.take()


def _with_plain_header(data: bytes, body: int) -> bytes:
    """The JPEG without what libjpeg remarks on in its header; of use only to hear what follows.

    body: where its first scan begins.
    """
    head, is_sequential = b"\xff\xd8", False
    for marker, segment, _, _ in segments(data):
        if marker == SOS:
            break
        head += struct.pack(">BBH", 0xFF, marker, len(segment) + 2) + segment
        is_sequential |= marker in SEQUENTIAL
    head = _JFIF_MAJOR.sub(b"\\1\x01", head + b"\xff\xda")
    head = _ADOBE_TRANSFORM.sub(b"\\1\x00", head)
    if not is_sequential:
        return head + data[body:]
    spectrum = body + 3 + 2 * data[body + 2]  # behind the scan's length and its components
    return head + data[body:spectrum] + b"\x00\x3f\x00" + data[spectrum + 3 :]


def center_crop(picture: Picture) -> Picture:
    """The square in the middle, with margins floored."""
    height, width = picture.shape[:2]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    return picture[top : top + edge, left : left + edge]


def resize_short_edge(
    picture: Picture, options: ImageOptions, seed: int, full: tuple[int, int] | None = None
) -> Picture:
    """The picture with its short edge at options.resize, the other at `long * N // short`.

    full: the width and height to reckon with where the picture was scaled as it was decoded.
    """
    import cv2

    width, height = full or picture.shape[1::-1]
    short, target = min(height, width), options.resize
    if short == target or (options.no_upscale and short < target):
        return picture
    if height > width:
        size = target, height * target // width
    else:
        size = width * target // height, target
    _check_size(*size, options, "resized to ")
    method = _method(options.interpolation, size, (width, height), seed)
    try:
        resized: Any = cv2.resize(picture, size, interpolation=method)
    except cv2.error as error:
        what = f"cannot be resized to {size[0]}x{size[1]}"
        raise _refused(error, what, size[0] * size[1]) from error
    return resized  # type: ignore[no-any-return]


def _method(name: str, size: tuple[int, int], old: tuple[int, int], seed: int) -> int:
    """OpenCV's interpolation. "auto" is im2rec.cc's rule: cubic where both edges grow, area where
    both shrink, else linear."""
    if name == "auto":
        if size[0] > old[0] and size[1] > old[1]:
            name = "cubic"
        elif size[0] < old[0] and size[1] < old[1]:
            name = "area"
        else:
            name = "linear"
    elif name == "random":
        return zlib.crc32(seed.to_bytes(8, "little")) % 5
    return INTERPOLATIONS[name]


def encode(picture: Picture, options: ImageOptions) -> bytes:
    """The picture as JPEG or PNG bytes.

    Raises ImageError where that codec cannot hold it, MemoryError where the machine fails.
    """
    import cv2

    height, width = picture.shape[:2]
    _check_size(width, height, options, "")
    if options.encoding == ".jpg":
        if picture.dtype != "uint8":
            raise ImageError(
                f"{picture.dtype} channels do not fit a JPEG; use --encoding .png, or --color 0 "
                "or 1 for 8 bits"
            )
        parameters = [cv2.IMWRITE_JPEG_QUALITY, options.quality]
    else:
        parameters = [cv2.IMWRITE_PNG_COMPRESSION, options.quality]
    try:
        done, buffer = cv2.imencode(options.encoding, picture, parameters)
    except cv2.error as error:
        what = f"cannot be encoded as {options.encoding}"
        raise _refused(error, what, width * height) from error
    if not done:
        check_memory(width * height)
        said = _short(" ".join(codec_log().take()))
        raise ImageError(f"cannot be encoded as {options.encoding}: {said}")
    return buffer.tobytes()


def _check_size(width: int, height: int, options: ImageOptions, what: str) -> None:
    if options.encoding == ".jpg" and max(width, height) > MAX_JPEG_EDGE:
        raise ImageError(
            f"{what}{width}x{height} pixels, over JPEG's limit of {MAX_JPEG_EDGE} an edge"
        )
    if width * height > options.max_pixels:
        raise ImageError(f"{what}{width}x{height} pixels, over --max-pixels {options.max_pixels}")


def _refused(error: cv2.error, what: str, pixels: int) -> ImageError:
    """OpenCV's error as a reason. Raises MemoryError where it is the machine that failed."""
    if "(-4:Insufficient memory)" in str(error):  # its `code` may be that of an earlier error
        raise MemoryError from error
    check_memory(pixels)
    return ImageError(f"{what}: OpenCV: {_short(str(error))}")


def _short(text: str) -> str:
    """A codec's words on one line, without the place in its own sources."""
    text = re.sub(r"\[ *(?:WARN|ERROR):[^\]]*\] global \S+ \S+ ", "", text)
    text = re.sub(r"^OpenCV\([^)]*\) \S+ error: ", "", text)
    return printable(" ".join(text.split())[:200])


class CodecLog:
    """What the codecs print to file descriptor 2 while it is redirected to a file of this class.

    libjpeg tells of damage inside a scan only there, and names no file.
    """

    def __init__(self) -> None:
        self._fd = -1

    def capture(self) -> None:
        """From now on, and for the rest of this process, file descriptor 2 goes to this log."""
        if self._fd == -1:
            if hasattr(os, "memfd_create"):
                self._fd = os.memfd_create("im2rec-codec-log")
            else:
                self._fd = os.dup(tempfile.TemporaryFile().fileno())  # noqa: SIM115
            os.dup2(self._fd, 2)

    @property
    def is_capturing(self) -> bool:
        """Whether what the codecs print comes here."""
        return self._fd != -1

    def take(self) -> tuple[str, ...]:
        """The lines since the last take, each shortened; nothing where nothing is captured."""
        if self._fd == -1:
            return ()
        size = os.lseek(self._fd, 0, os.SEEK_CUR)
        if not size:
            return ()
        os.lseek(self._fd, 0, os.SEEK_SET)
        text = os.read(self._fd, min(size, 1 << 16)).decode("utf-8", "replace")
        os.lseek(self._fd, 0, os.SEEK_SET)
        os.ftruncate(self._fd, 0)
        return tuple(dict.fromkeys(filter(None, map(_short, text.splitlines()))))


@cache
def codec_log() -> CodecLog:
    """This process's log; silent until `capture` is called."""
    return CodecLog()


def load_codecs(options: ImageOptions) -> None:
    """Loads what every picture needs, so that processes forked from this one have it.

    Not where NumPy's linear algebra may start threads, which nothing here uses: they would forbid
    to fork, and it is not for a library to keep a program from having them.
    """
    if os.environ.get(THREADS_OF_NUMPY) == "1":
        _load(options)


def _load(options: ImageOptions) -> None:
    import numpy as np  # noqa: F401

    if not options.pass_through:
        import cv2  # noqa: F401


def prepare_worker(options: ImageOptions) -> None:
    """Makes a worker process ready: codecs loaded, their messages caught, one thread each."""
    codec_log().capture()
    os.environ[THREADS_OF_NUMPY] = "1"
    _load(options)
    if not options.pass_through:
        import cv2

        cv2.setNumThreads(1)
        cv2.ocl.setUseOpenCL(False)
    # glibc hands memory back to the system as soon as it is free, and taking it again costs a page
    # fault for every 4 kB, until a block of this size has once been freed.
    bytes(KEPT_MEMORY)
    gc.freeze()  # what is loaded stays: it need not be looked through again and again
