"""A drop-in for `mxnet.recordio`: the same names, signatures and files, without MXNet.

    from im2rec import recordio
    record = recordio.MXIndexedRecordIO("train.idx", "train.rec", "r")
    header, image = recordio.unpack(record.read_idx(record.keys[0]))

Where MXNet checks with `assert` or fails in C++, this raises errors that say what is wrong.
"""

from __future__ import annotations

import numbers
import os
import struct
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar, cast

from im2rec import framing, image_record, index
from im2rec.errors import ImageError, IndexLineError, InputError, printable

if TYPE_CHECKING:
    import cv2
    import numpy as np
    import numpy.typing as npt

_IR_FORMAT = image_record.HEADER.format  # programs read these two of MXNet's private names
_IR_SIZE = image_record.HEADER.size

_OPENED = {"_stream", "_reader"}  # attributes that a copy of a handle makes for itself
_KEY_ERRORS = "surrogateescape"  # a text key may be a file name, so any bytes

_WINDOW = 300  # bytes; two of them hold fewer digits than the 640 that Python always makes a number
_LARGE = 4 << 20  # bytes of index, from where on loading NumPy pays

_pid = os.getpid()  # of this process; to ask the system at each read would be a tenth of a read


def _after_fork() -> None:
    global _pid
    _pid = os.getpid()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)

_Handle = TypeVar("_Handle", bound="MXRecordIO")


class IRHeader(NamedTuple):
    """What stands before the image in a record.

    flag: the number of labels in the array, 0 for one label in the header; label: a number or a
    1-D array of float32; id, id2: u64.
    """

    flag: int
    label: Any
    id: int
    id2: int


class MXRecordIO:
    """Reads or writes a `.rec` from start to end.

    uri: path of the file; flag: "r" or "w". A handle can be pickled (the copy opens the file
    anew), unless it is open for writing; it refuses to be used in a forked process, as its file
    position is shared with the parent's. Raises ValueError for another flag, OSError where the
    file cannot be opened.
    """

    def __init__(self, uri: str | os.PathLike[str], flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.pid: int | None = None
        self.is_open = False
        self.writable = False
        self.open()

    def open(self) -> None:
        """Opens the file; "w" makes it empty."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag!r}, expected 'r' or 'w'")
        self.writable = self.flag == "w"
        self._stream: BinaryIO = open(self.uri, "wb" if self.writable else "rb")  # noqa: SIM115
        try:
            self._reader = None if self.writable else framing.RecordReader(self._stream, self.uri)
        except BaseException:  # a pipe, which cannot seek
            self._stream.close()
            raise
        self.pid = _pid
        self.is_open = True

    def close(self) -> None:
        """Closes the file; once more does nothing."""
        if not self.is_open:
            return
        self.is_open = False
        if self.pid == _pid:
            self._stream.close()
        else:  # in a forked child, whatever the buffer holds is the parent's to write
            self._abandon(self._stream)
        self.pid = None

    @staticmethod
    def _abandon(stream: Any) -> None:
        """Closes a stream's file descriptor in this process without flushing its buffer."""
        raw = getattr(getattr(stream, "buffer", stream), "raw", None)
        if raw is not None:
            raw.close()

    def __enter__(self: _Handle) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy needs; the copy opens the file again if it is open here.

        MXNet closes the original, and its copy of a writer empties the file. Here the original
        stays as it is, and a writer raises TypeError until it is closed, as Python's files do.
        """
        if self.is_open and self.writable:
            raise TypeError(f"{self.uri}: cannot pickle a handle that is open for writing")
        return {name: self.__dict__[name] for name in self.__dict__.keys() - _OPENED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        is_open, self.is_open = state["is_open"], False
        if is_open:
            self.open()

    def _check_pid(self, allow_reset: bool = False) -> None:
        if not self.is_open:
            raise ValueError(f"{self.uri}: the file is closed")
        if self.pid != _pid:
            if not allow_reset:
                raise RuntimeError("Forbidden operation in multiple processes")
            self.reset()

    def _check_writable(self, writable: bool) -> None:
        if self.writable != writable:
            raise ValueError(f"{self.uri}: opened for {'writing' if self.writable else 'reading'}")

    def reset(self) -> None:
        """Goes back to the first record; a file opened with "w" becomes empty."""
        self.close()
        self.open()

    def write(self, buf: bytes) -> None:
        """Appends a record. Raises ValueError for 2**29 bytes and more."""
        self._check_writable(True)
        self._check_pid()
        self._stream.write(framing.frame(buf))

    def read(self) -> bytes | None:
        """The next record's bytes; None at the end. Raises RecordError where it is damaged."""
        if self.writable or self.pid != _pid:  # one look where all is well
            self._check_writable(False)
            self._check_pid()
        assert self._reader is not None
        return self._reader.payload()


class MXIndexedRecordIO(MXRecordIO):
    """Reads records of a `.rec` by key, or writes them with an index.

    idx_path: path of the index; uri: of the `.rec`; flag: "r" or "w"; key_type: what a key is,
    int unless a program wrote its own. `idx` maps key to offset in bytes, `keys` has them in file
    order; opening checks the index, and both are made when first asked for. Raises IndexLineError
    where the index is malformed.
    """

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx = {}
        self.keys = []
        self.key_type = key_type
        self.fidx: Any = None
        super().__init__(uri, flag)

    def open(self) -> None:
        """Opens both files, and reads the index."""
        super().open()
        self.idx = {}
        self.keys = []
        try:
            self.fidx = open(  # noqa: SIM115
                self.idx_path, self.flag, encoding="utf-8", errors=_KEY_ERRORS, newline="\n"
            )
            if not self.writable:
                self._read_index()
        except BaseException:
            self.close()
            raise

    def _read_index(self) -> None:
        text = self.fidx.buffer.read()
        if self.key_type is int and _is_plain(text):
            self._text = text
            del self.idx, self.keys  # until they are asked for
            return
        lines = text.decode("utf-8", _KEY_ERRORS).split("\n")
        if not lines[-1]:
            lines.pop()
        for number, line in enumerate(lines, 1):
            key, tab, offset = line.strip().partition("\t")
            try:
                if not tab:
                    raise ValueError
                self.keys.append(self.key_type(key))
                self.idx[self.keys[-1]] = int(offset)
            except ValueError:
                found = f"found {line.strip()[:40]!r}, expected key TAB offset"
                raise IndexLineError(self.idx_path, number, found) from None

    @cached_property
    def idx(self) -> dict[Any, int]:
        """The offset of each key's record, in bytes from the start of the file."""
        self._make_idx_and_keys()
        return cast("dict[Any, int]", self.__dict__["idx"])

    @cached_property
    def keys(self) -> list[Any]:
        """The keys in file order."""
        self._make_idx_and_keys()
        return cast("list[Any]", self.__dict__["keys"])

    def _make_idx_and_keys(self) -> None:
        """Makes both of the index's plain lines; what the program has set or another thread has
        made meanwhile stays."""
        text = self._text
        columns = index.parse_columns(text) if len(text) >= _LARGE else None
        if columns is not None:
            keys, offsets = columns[0].tolist(), columns[1].tolist()
        else:  # few lines, or a key that NumPy cannot hold
            numbers = list(map(int, text.split()))
            keys, offsets = numbers[0::2], numbers[1::2]
        self.__dict__.setdefault("keys", keys)
        self.__dict__.setdefault("idx", dict(zip(keys, offsets, strict=True)))
        self._text = b""

    def close(self) -> None:
        """Closes both files."""
        try:
            if self.is_open and self.fidx is not None:
                if self.pid == _pid:
                    self.fidx.close()
                else:
                    self._abandon(self.fidx)
        finally:
            super().close()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["fidx"] = None
        return state

    def seek(self, idx: Any) -> None:
        """Makes `read` give the record with this key. Raises KeyError where there is none."""
        if self.writable or self.pid != _pid:
            self._check_writable(False)
            self._check_pid(allow_reset=True)
        assert self._reader is not None
        self._reader.seek(self.idx[idx])

    def tell(self) -> int:
        """Where the next record will be written, in bytes from the start of the file."""
        self._check_writable(True)
        self._check_pid()
        return self._stream.tell()

    def read_idx(self, idx: Any) -> bytes:
        """The bytes of the record with this key. Raises KeyError where there is none."""
        self.seek(idx)
        record = self.read()
        if record is None:
            found = f"key {printable(str(idx))} points to the end of {printable(self.uri)}"
            raise InputError(self.idx_path, found)
        return record

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Appends a record and its line in the index.

        Raises ValueError for a key that would not read back from a line as it is.
        """
        key = self.key_type(idx)
        text = str(key)
        if not text or text != text.strip() or any(mark in text for mark in "\t\n\r"):
            raise ValueError(f"key {text!r} cannot be written in an index")
        text.encode("utf-8", _KEY_ERRORS)  # raises before the record is written, not after
        at = self.tell()
        self.write(buf)
        self.fidx.write(f"{text}\t{at}\n")
        self.idx[key] = at
        self.keys.append(key)


def _is_plain(text: bytes) -> bool:
    """Whether every line is digits, TAB, digits, LF, and no number too long for Python."""
    return (
        text.translate(None, b"0123456789") == b"\t\n" * text.count(b"\n")
        and text.endswith(b"\n")
        and not text.startswith(b"\t")
        and b"\n\t" not in text
        and b"\t\n" not in text
        and all(b"\n" in text[at : at + _WINDOW] for at in range(0, len(text) - _WINDOW, _WINDOW))
    )


def pack(header: IRHeader | tuple[int, Any, int, int], s: bytes) -> bytes:
    """An image record's bytes. A label array becomes float32, with its size as the flag; the
    caller's flag is replaced, as MXNet does. Raises ValueError for an id outside 0..2**64-1 and
    for a label that is no number or beyond float32."""
    import numpy as np

    header = IRHeader(*header)
    flag, label, array = 0, header.label, b""
    try:
        if not isinstance(label, numbers.Number):
            with np.errstate(over="raise"):
                labels = np.asarray(label, dtype="<f4")
            flag, label, array = labels.size, 0, labels.tobytes()
        head = image_record.HEADER.pack(flag, label, header.id, header.id2)
    except (struct.error, TypeError, ArithmeticError) as error:
        raise ValueError(f"id {header.id!r}, id2 {header.id2!r}: {error}") from error
    return head + array + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """A record's header and the image's bytes. With flag > 0 the label is a float32 array.

    Raises PayloadError where the bytes are fewer than the header says.
    """
    import numpy as np

    header = IRHeader(*image_record.decode_header(s))
    s = s[_IR_SIZE:]
    if header.flag > 0:
        header = header._replace(label=np.frombuffer(s, np.dtype("<f4"), header.flag))
        s = s[header.flag * 4 :]
    return header, s


def pack_img(
    header: IRHeader | tuple[int, Any, int, int],
    img: npt.NDArray[Any],
    quality: int = 95,
    img_fmt: str = ".jpg",
) -> bytes:
    """An image record of a picture (HxWx3 BGR or HxW, uint8), encoded as JPEG (quality 1-100) or
    PNG (compression 0-9). Raises ValueError where it cannot be encoded."""
    import cv2

    parameters = {
        ".JPG": [cv2.IMWRITE_JPEG_QUALITY, quality],
        ".JPEG": [cv2.IMWRITE_JPEG_QUALITY, quality],
        ".PNG": [cv2.IMWRITE_PNG_COMPRESSION, quality],
    }.get(img_fmt.upper(), [])
    refusal = f"cannot encode an image of shape {getattr(img, 'shape', None)} as {img_fmt}"
    try:
        done, buffer = cv2.imencode(img_fmt, img, parameters)
    except cv2.error as error:
        raise ValueError(f"{refusal}: {_said(error)}") from error
    if not done:
        raise ValueError(refusal)
    return pack(header, buffer.tobytes())


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, npt.NDArray[np.uint8]]:
    """A record's header and its picture as OpenCV decodes it: iscolor 1 HxWx3 BGR, 0 HxW grey,
    -1 as stored. As with MXNet, the picture is None where the bytes are no image.

    Raises PayloadError as `unpack` does, ImageError where OpenCV refuses the picture (too large).
    """
    import cv2
    import numpy as np

    header, image = unpack(s)
    picture: Any = None
    if image:  # OpenCV raises for an empty buffer
        try:
            picture = cv2.imdecode(np.frombuffer(image, dtype=np.uint8), iscolor)
        except cv2.error as error:
            raise ImageError(f"OpenCV refuses the image: {_said(error)}") from error
    return header, picture


def _said(error: cv2.error) -> str:
    """OpenCV's reason on one line, without the place in its own sources."""
    return " ".join(error.err.split())
