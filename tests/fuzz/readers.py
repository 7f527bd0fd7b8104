"""What must hold for each reader whatever bytes it is given: its own kind of error, or a result
that an independent rule finds right. test_fuzz.py and run.py feed these."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from im2rec import image_ops, recordio
from im2rec.errors import (
    Im2recError,
    ImageError,
    IndexLineError,
    InputError,
    ListError,
    PayloadError,
    RecordError,
)
from im2rec.framing import MAGIC_BYTES, Record, RecordReader, RunScanner, frame
from im2rec.image_file import check_whole, identify, identify_many
from im2rec.image_record import decode, decode_headers, encode
from im2rec.index import MAX_FAULTS, format_index, parse_columns, parse_index
from im2rec.inspection import inspect_set
from im2rec.lst import MAX_ID, ImageList, format_row, parse_row, parse_rows
from im2rec.record_set import (
    find_classes,
    find_set,
    other_format,
    read_classes,
    read_manifest,
    write_manifest,
)
from im2rec.verify import CODES, VerifyOptions, verify_set

HERE = Path(__file__).parent.parent / "data"
NEXT_FILE = b"\n--next file--\n"  # between the files of a set, in the one input that a fuzzer has
FILES = ("set.rec", "set.idx", "set.manifest.json", "set.classes.txt")
MAX_PIXELS = 1 << 20  # that are decoded; more would only take time


@cache
def folder() -> Path:
    """A folder of this process, for readers of files."""
    return Path(tempfile.mkdtemp(prefix="im2rec-fuzz-", dir="/dev/shm" if _has_shm() else None))


def _has_shm() -> bool:
    return os.access("/dev/shm", os.W_OK)


def remove_folder() -> None:
    if folder.cache_info().currsize:
        shutil.rmtree(folder(), ignore_errors=True)
        folder.cache_clear()


def one_line(error: Im2recError) -> str:
    text = str(error)
    assert text.isprintable(), repr(text)
    assert len(text) < 2000
    return text


def check_list(data: bytes) -> None:
    body = data.removeprefix(b"\xef\xbb\xbf")
    lines = [(at, line) for at, line in enumerate(body.split(b"\n"), 1) if line.strip()]
    try:
        images = ImageList("a.lst", data)
    except ListError as error:
        assert 1 <= len(error.faults) <= min(error.count, 20)
        assert {at for at, _ in error.faults} <= {at for at, _ in lines}
        assert all(found.isprintable() and len(found) < 1000 for _, found in error.faults)
        return
    entries = list(images)
    assert [at for at, _ in images.numbered()] == [at for at, _ in lines]
    assert list(parse_rows(images.lines(0, len(images)))) == entries
    assert len({entry.id for entry in entries}) == len(entries) == len(lines)
    leaving = []
    for (at, line), entry in zip(lines, entries, strict=True):
        fields = line.removesuffix(b"\r").split(b"\t")
        assert entry.id == int(fields[0]) <= MAX_ID
        assert entry.path.encode() == fields[-1]
        assert list(entry.labels) == [float(field) for field in fields[1:-1]]
        assert all(struct.pack("<f", label) for label in entry.labels)
        if "\r" not in entry.path:
            assert parse_row(format_row(entry)[:-1]) == entry
        if entry.path.startswith("/") or ".." in entry.path.split("/"):
            leaving.append(at)
    assert images.leaves_root == leaving


def check_index(data: bytes) -> None:
    entries, faults = parse_index(data, "a.idx")
    lines = data.split(b"\n")
    tail = lines.pop()
    sound = [re.fullmatch(rb"(\d{1,20})\t(\d{1,19})\r?", line) for line in lines]
    if len(faults) <= MAX_FAULTS:
        assert entries == [(int(match[1]), int(match[2])) for match in sound if match]
        numbers = [at for at, match in enumerate(sound, 1) if not match]
        assert [fault.line for fault in faults] == numbers + [len(lines) + 1] * bool(tail)
    for fault in faults[:20]:
        one_line(fault)
    columns = parse_columns(data)
    if columns is not None:
        assert not faults
        assert list(zip(columns[0].tolist(), columns[1].tolist(), strict=True)) == entries
    elif entries and not faults and all(key < 2**64 for key, _ in entries):
        assert format_index(entries) != data


def check_framing(data: bytes) -> None:
    data = data.replace(b"MAGI", MAGIC_BYTES)  # four bytes that no mutation would find
    lost: list[tuple[int, int]] = []
    reader = RecordReader(io.BytesIO(data), "a.rec")

    def tell(error: RecordError, head: int | None) -> None:
        one_line(error)
        lost.append((reader.offset, len(data) if head is None else head))

    records = [found for found in reader.salvage(tell) if isinstance(found, Record)]
    spans = sorted([(each.offset, each.end) for each in records] + lost)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert not spans or spans[-1][1] == len(data)
    for each in records:
        assert each.payload == naive_payload(data, each.offset, each.end), "invented"
    again: list[Record] = []
    scanner = RunScanner(io.BytesIO(data), len(data), window=256, shortest=2)
    reader = RecordReader(io.BytesIO(data), "a.rec")
    for found in reader.salvage(lambda _, __: None, scanner):
        again += (
            [found]
            if isinstance(found, Record)
            else [found.record(number) for number in range(len(found))]
        )
    assert again == records


def naive_payload(data: bytes, at: int, end: int) -> bytes:
    """The payload of the record in at..end-1, read as the format's page has it."""
    pieces = []
    expected = {0, 1}
    while at < end:
        magic, lrecord = struct.unpack_from("<II", data, at)
        cflag, length = lrecord >> 29, lrecord & 0x1FFFFFFF
        assert magic == 0xCED7230A
        assert cflag in expected
        expected = {2, 3} if cflag in (1, 2) else set()
        pieces.append(data[at + 8 : at + 8 + length])
        padding = data[at + 8 + length : at + 8 + length + -length % 4]
        assert padding == bytes(-length % 4)
        at += 8 + length + -length % 4
    assert at == end
    assert not expected
    return MAGIC_BYTES.join(pieces)


def check_payload(data: bytes) -> None:
    words = np.frombuffer(data + bytes(-len(data) % 4 + 4), "<u4")
    many = decode_headers(words, np.array([0]), np.array([len(data)]))
    try:
        record = decode(data)
    except PayloadError as error:
        one_line(error)
        assert not many.whole[0]
        try:
            recordio.unpack(data)
        except PayloadError:
            return
        raise AssertionError("unpack reads what decode does not") from None
    flag, bits, number, id2 = struct.unpack_from("<IIQQ", data)
    assert many.whole[0]
    assert (record.flag, record.id, record.id2) == (flag, number, id2) == (flag, many.ids[0], id2)
    assert record.image == data[24 + 4 * flag :]
    assert len(record.labels) == max(flag, 1) == many.widths[0]
    labels = data[24 : 24 + 4 * flag] if flag else data[4:8]
    assert np.array_equal(record.labels, np.frombuffer(labels, "<f4"), equal_nan=True)
    header, image = recordio.unpack(data)
    assert (header.flag, header.id, header.id2, image) == (flag, number, id2, record.image)
    if all(map(math.isfinite, record.labels)) and not id2 and flag != 1 and (not flag or not bits):
        assert encode(number, record.labels, record.image) == data


def check_manifest(data: bytes) -> None:
    path = folder() / "m.manifest.json"
    path.write_bytes(data)
    try:
        manifest = read_manifest(str(path))
    except InputError as error:
        one_line(error)
    else:
        whole = json.loads(data)
        whole.pop("sha256", None)  # the manifest's own
        assert manifest == whole or "NaN" in str(manifest) or "nan" in str(manifest)
        for shard in manifest["shards"]:
            assert {os.path.dirname(shard["rec"]), os.path.dirname(shard["idx"])} == {""}
    (folder() / "m.rec").write_bytes(b"")
    check_verify_and_inspect("m")


def check_classes(data: bytes) -> None:
    path = folder() / "c.classes.txt"
    path.write_bytes(data)
    try:
        names = read_classes(str(find_classes(str(folder() / "c"))))
    except InputError as error:
        one_line(error)
        return
    assert len(set(names)) == len(names)
    assert "" not in names
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    assert "".join(f"{name}\n" for name in names).rstrip("\r\n") == text.rstrip("\r\n")


def check_image(data: bytes) -> None:
    many = identify_many(np.frombuffer(data or b"\0", "u1"), np.array([0]), np.array([len(data)]))
    try:
        facts = identify(data)
    except ImageError as error:
        one_line(error)
        assert many.kinds[0] == 0
        return
    assert many.count_kinds() == {facts.kind: 1}
    assert (many.widths[0], many.heights[0]) == (facts.width, facts.height)
    assert facts.width > 0 < facts.height
    assert 1 <= facts.orientation <= 8
    is_small = facts.width * facts.height <= MAX_PIXELS
    if not is_small and facts.kind not in ("jpeg", "png"):
        return
    try:
        check_whole(data, facts)
        if is_small and data[:2] != b"II" and data[:2] != b"MM":
            picture, _ = image_ops.decode(data, facts, -1)
            assert picture.shape[:2] == (facts.height, facts.width)
    except ImageError as error:
        one_line(error)


def check_recordio(data: bytes) -> None:
    rec, _, idx = data.replace(b"MAGI", MAGIC_BYTES).partition(NEXT_FILE)
    names = str(folder() / "r.idx"), str(folder() / "r.rec")
    for name, part in zip(names, (idx, rec), strict=True):
        Path(name).write_bytes(part)
    expected, failed = [], ""
    try:
        for record in RecordReader(io.BytesIO(rec), names[1]):
            expected.append(record.payload)
    except RecordError as error:
        failed = one_line(error)
    read = []
    with recordio.MXRecordIO(names[1], "r") as handle:
        try:
            while (payload := handle.read()) is not None:
                read.append(payload)
        except RecordError as error:
            assert str(error) == failed
        assert read == expected
    try:
        indexed = recordio.MXIndexedRecordIO(*names, "r")
    except IndexLineError as error:
        one_line(error)
        return
    with indexed:
        assert set(indexed.idx) == set(indexed.keys)
        for key in indexed.keys[:50]:
            try:
                payload = indexed.read_idx(key)
            except (RecordError, InputError) as error:
                one_line(error)
                continue
            at = indexed.idx[key]
            assert rec[at : at + 4] == MAGIC_BYTES
            if MAGIC_BYTES not in payload:
                assert payload == rec[at + 8 : at + 8 + len(payload)]


def check_set(data: bytes) -> None:
    parts = data.split(NEXT_FILE)
    parts[0] = parts[0].replace(b"MAGI", MAGIC_BYTES)
    for name, part in zip(FILES, parts + [b""] * len(FILES), strict=False):
        (folder() / name).unlink(missing_ok=True)
        if part:
            (folder() / name).write_bytes(part)
    check_verify_and_inspect("set")


def check_verify_and_inspect(prefix: str) -> None:
    summary, refused = None, ""
    try:
        found = find_set(str(folder() / prefix))
        summary = inspect_set(found)
    except InputError as error:
        refused = one_line(error)
    try:
        found = find_set(str(folder() / prefix))
        report = verify_set(found, VerifyOptions())
    except InputError as error:
        one_line(error)
        return
    assert {problem.code for problem in report.problems} <= set(CODES)
    for problem in report.problems[:50]:
        assert len(problem.sentence) < 3000
    if summary is not None:
        summary.as_dict()
        assert report.records >= summary.records or any(map(other_format, found.recs))
    if report.problems:
        return
    for rec, idx in zip(found.recs, found.idxs, strict=True):
        data = Path(rec).read_bytes()
        payloads = [record.payload for record in RecordReader(io.BytesIO(data), rec)]
        assert b"".join(map(frame, payloads)) == data, "sound, yet not as it would be written"
        if idx:
            with recordio.MXIndexedRecordIO(idx, rec, "r") as indexed:
                assert [indexed.read_idx(key) for key in indexed.keys] == payloads
    if ".classes.txt: " in refused:
        return  # without a manifest, verify does not look at the class map
    assert summary is not None, refused
    assert summary.damaged == 0
    assert summary.records == report.records


READERS: dict[str, Callable[[bytes], None]] = {
    "list": check_list,
    "index": check_index,
    "framing": check_framing,
    "payload": check_payload,
    "manifest": check_manifest,
    "classes": check_classes,
    "image": check_image,
    "recordio": check_recordio,
    "set": check_set,
}


@cache
def seeds(reader: str) -> list[bytes]:
    """Sound inputs of a reader, to be mutated."""
    payloads = [
        encode(7, [1.0], b"\xff\xd8\xff\xe0"),
        encode(MAGIC_BYTES[0], [1, 2.5, 3], b"x" + MAGIC_BYTES * 3),
        encode(2**64 - 1, [0], bytes(12) + MAGIC_BYTES + b"y"),
        encode(3, [4, 5], b""),
    ]
    rec = b"".join(map(frame, payloads))
    starts = [0]
    for payload in payloads[:-1]:
        starts.append(starts[-1] + len(frame(payload)))
    idx = format_index(zip([7, 10, 2**64 - 1, 3], starts, strict=True))
    manifest = write_manifest(
        {
            "format": "im2rec-manifest",
            "version": 1,
            "im2rec": "1",
            "codecs": {"opencv": "5"},
            "options": {"pack_label": True},
            "list": {"file": "set.lst", "sha256": 64 * "0"},
            "rows": 4,
            "packed": 4,
            "failed": 0,
            "label_widths": {"1": 2, "2": 1, "3": 1},
            "classes": ["ant", "bee", "gl\u00fchw\u00fcrmchen"],
            "joint_index": None,
            "shards": [
                {
                    "rec": "set.rec",
                    "idx": "set.idx",
                    "records": 4,
                    "bytes": len(rec),
                    "sha256": hashlib.sha256(rec).hexdigest(),
                }
            ],
        }
    )
    classes = "ant\nbee\ngl\u00fchw\u00fcrmchen\n".encode()
    return {
        "list": [
            b"0\t1\tant/a.jpg\n1\t0.5\t-3\tbee/b b.jpg\r\n18446744073709551615\t3.000000\t../x\n",
            "\ufeff5\t1e3\tgl\u00fch/\u2028\U0001f41b.png\n\n6\t16777216\t/abs/olute\n".encode(),
            b"".join(b"%d\t%d\tcat/%d.jpg\n" % (number, number % 7, number) for number in range(9)),
        ],
        "index": [idx, b"0\t0\n1\t36\r\n2\t96\n", b"18446744073709551616\t9223372036854775808\n"],
        "framing": [rec, frame(b"hello") + frame(MAGIC_BYTES * 5), frame(b"") * 9, rec[8:]],
        "payload": payloads,
        "manifest": [manifest, manifest.replace(b"set.", b"m."), b'{"shards": []}'],
        "classes": [classes, b"\xef\xbb\xbfa\r\nb\r\n"],
        "image": _images(),
        "recordio": [rec + NEXT_FILE + idx, rec + NEXT_FILE + b"a\t0\n-1\t-8\n1_0\t 36\n"],
        "set": [
            NEXT_FILE.join([rec, idx]),
            NEXT_FILE.join([rec, idx, b"", classes]),
            NEXT_FILE.join([rec, idx, manifest, classes]),
            NEXT_FILE.join([frame(payloads[0]) * 3, b"0\t0\n1\t36\n2\t72\n"]),
        ],
    }[reader]


def _images() -> list[bytes]:
    """A small file of every kind and layout that there is a reader for."""
    from PIL import Image

    picture = Image.radial_gradient("L").resize((17, 11)).convert("RGB")
    found = []
    for kind, options in (
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {"restart_marker_blocks": 1, "exif": _turned(6)}),
        ("PNG", {}),
        ("PNG", {"exif": _turned(8)}),
        ("BMP", {}),
        ("GIF", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PPM", {}),
        ("JPEG2000", {}),
    ):
        buffer = io.BytesIO()
        picture.save(buffer, kind, **options)
        found.append(buffer.getvalue())
    for mode in ("L", "CMYK"):
        buffer = io.BytesIO()
        picture.convert(mode).save(buffer, "JPEG")
        found.append(buffer.getvalue())
    return found


def _turned(orientation: int) -> bytes:
    """An EXIF block."""
    ifd = struct.pack("<HHHIII", 1, 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0II*\0\x08\0\0\0" + ifd
