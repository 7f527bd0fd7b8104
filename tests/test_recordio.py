"""The drop-in for mxnet.recordio: golden files, MXNet's own scenarios, processes, faults."""

from __future__ import annotations

import copy
import inspect
import json
import os
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import BAD, CLEAN, GOLDEN
from hypothesis import given
from hypothesis import strategies as st

from im2rec import recordio
from im2rec.errors import ImageError, IndexLineError, InputError, PayloadError, RecordError
from im2rec.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO

# The interpreter counts the threads of the numeric libraries; the children here use none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

RECORDIO = GOLDEN / "recordio"


def write_indexed(folder: Path, payloads: dict[Any, bytes], **options: Any) -> tuple[str, str]:
    """An index and a .rec with these records; the arguments that open them."""
    paths = str(folder / "x.idx"), str(folder / "x.rec")
    with MXIndexedRecordIO(*paths, "w", **options) as writer:
        for key, payload in payloads.items():
            writer.write_idx(key, payload)
    return paths


def read_all(reader: MXRecordIO) -> list[bytes]:
    return list(iter(reader.read, None))


# The drop-in


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("MXRecordIO", "uri, flag"),
        ("MXIndexedRecordIO", "idx_path, uri, flag, key_type=<class 'int'>"),
        ("MXRecordIO.write", "self, buf"),
        ("MXIndexedRecordIO.seek", "self, idx"),
        ("MXIndexedRecordIO.read_idx", "self, idx"),
        ("MXIndexedRecordIO.write_idx", "self, idx, buf"),
        ("IRHeader", "flag, label, id, id2"),
        ("pack", "header, s"),
        ("unpack", "s"),
        ("pack_img", "header, img, quality=95, img_fmt='.jpg'"),
        ("unpack_img", "s, iscolor=-1"),
    ],
)
def test_the_signatures_are_mxnets(name: str, signature: str) -> None:
    found: Any = recordio
    for part in name.split("."):
        found = getattr(found, part)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(found).parameters.values()
    ]
    assert ", ".join(map(str, bare)) == signature


def test_programs_that_know_the_header_format_find_it() -> None:
    assert (recordio._IR_FORMAT, recordio._IR_SIZE) == ("<IfQQ", 24)


# What the real MXNet wrote


@pytest.mark.parametrize("name", ["framing", "image_records", "insightface"])
def test_what_mxnet_wrote_is_read_and_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    golden = RECORDIO / f"{name}.idx", RECORDIO / f"{name}.rec"
    with MXIndexedRecordIO(*golden, "r") as reader:
        records = {key: reader.read_idx(key) for key in reader.keys}
        reader.reset()
        assert read_all(reader) == list(records.values())
    index = [line.split("\t") for line in golden[0].read_text("ascii").splitlines()]
    assert list(records) == [int(key) for key, _ in index]
    assert reader.idx == {int(key): int(offset) for key, offset in index}
    idx, rec = write_indexed(tmp_path, records)
    assert Path(idx).read_bytes() == golden[0].read_bytes()
    assert Path(rec).read_bytes() == golden[1].read_bytes()


def test_the_contents_are_those_given_to_mxnet() -> None:
    with MXIndexedRecordIO(RECORDIO / "framing.idx", RECORDIO / "framing.rec", "r") as reader:
        for one in json.loads((RECORDIO / "framing.json").read_text("ascii")):
            assert reader.read_idx(one["key"]).hex() == one["hex"]


IMAGE_RECORDS = json.loads((RECORDIO / "image_records.json").read_text("ascii"))


@pytest.mark.parametrize("one", IMAGE_RECORDS, ids=lambda one: f"key{one['key']}")
@pytest.mark.parametrize("kind", [IRHeader, lambda *fields: fields], ids=["header", "tuple"])
def test_what_mxnet_packed_is_packed_byte_for_byte_and_unpacked(
    one: dict[str, Any], kind: Callable[..., Any]
) -> None:
    header = kind(one["flag_given"], one["label"], one["id"], one["id2"])
    payload = recordio.pack(header, one["body"].encode())
    assert payload.hex() == one["payload_hex"]
    (flag, label, record_id, id2), body = recordio.unpack(payload)
    assert (flag, record_id, id2, body.decode()) == (
        *(one[name] for name in ("flag", "id", "id2", "body")),
    )
    if flag:
        assert label.dtype == np.float32
        assert label.tolist() == one["label"]
    else:
        assert label == one["label"]


def test_the_identity_layout_of_insightface_is_read_as_its_trainer_reads_it() -> None:
    paths = RECORDIO / "insightface.idx", RECORDIO / "insightface.rec"
    with MXIndexedRecordIO(*paths, "r") as reader:
        assert reader.keys[-1] == 0  # the header of all is the last record
        header, body = recordio.unpack(reader.read_idx(0))
        assert (header.flag, body) == (2, b"")
        first, last = map(int, header.label)
        assert set(reader.keys) == set(range(last))
        images: list[int] = []
        for key in range(first, last):
            identity, body = recordio.unpack(reader.read_idx(key))
            assert (identity.flag, body) == (2, b"")
            images.extend(range(*map(int, identity.label)))
        assert images == list(range(1, first))
        for key in images:
            _, picture = recordio.unpack_img(reader.read_idx(key))
            assert picture.ndim == 3


def golden_pack(name: str) -> list[tuple[int, float, str, bytes]]:
    """Id, label, path and payload of each record of a pack with one label."""
    folder = GOLDEN / "packs" / name
    rows = [line.split("\t") for line in (folder / "set.lst").read_text("utf-8").splitlines()]
    with MXIndexedRecordIO(folder / "set.idx", folder / "set.rec", "r") as reader:
        return [(int(i), float(la), path, reader.read_idx(int(i))) for i, la, path in rows]


def test_pack_img_writes_jpegs_as_im2rec_py_did() -> None:
    for record_id, label, path, payload in golden_pack("plain"):
        picture = cv2.imread(str(CLEAN / path))
        assert recordio.pack_img(IRHeader(0, label, record_id, 0), picture) == payload


def test_pack_img_writes_pngs_as_im2rec_py_did() -> None:
    for record_id, label, _, payload in golden_pack("png"):
        header, picture = recordio.unpack_img(payload)
        assert header == (0, label, record_id, 0)
        assert recordio.pack_img(header, picture, quality=3, img_fmt=".png") == payload


# The scenarios of MXNet's own unit tests


def test_records_of_every_length_are_read_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "x.rec")
    written = [bytes(i % 256 for i in range(length)) for length in range(300)]
    writer = MXRecordIO(path, "w")
    for payload in written:
        writer.write(payload)
    del writer  # as MXNet's tests end it
    reader = MXRecordIO(path, "r")
    assert [reader.read() for _ in written] == written
    assert reader.read() is None
    assert reader.read() is None


def test_indexed_records_are_read_in_any_order(tmp_path: Path) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    writer = MXIndexedRecordIO(*paths, "w")
    for i in range(255):
        writer.write_idx(i, chr(i).encode() * i)
    del writer
    reader = MXIndexedRecordIO(*paths, "r")
    keys = reader.keys
    assert keys == list(range(255))
    random.Random(0).shuffle(keys)
    for key in keys:
        assert reader.read_idx(key) == chr(key).encode() * key


def test_labels_of_every_width_come_back() -> None:
    numbers = np.random.default_rng(0)
    for width in range(1, 255):
        label = numbers.uniform(size=width).astype(np.float32)
        body = numbers.bytes(width * 3 % 255)
        header, found = recordio.unpack(recordio.pack((0, label, width, 0), body))
        assert (header.flag, header.id, header.id2) == (width, width, 0)
        np.testing.assert_array_equal(header.label, label)
        assert found == body
        header, found = recordio.unpack(recordio.pack((0, float(label[0]), width, 1), body))
        assert (header, found) == (IRHeader(0, float(label[0]), width, 1), body)


def test_tell_says_where_the_next_record_goes(tmp_path: Path) -> None:
    writer = MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w")
    assert writer.tell() == 0
    told = []
    for i in range(5):
        writer.write_idx(i, f"record_{i}".encode())
        told.append(writer.tell())
    assert told == [16, 32, 48, 64, 80]
    assert writer.idx == {0: 0, 1: 16, 2: 32, 3: 48, 4: 64}
    assert writer.keys == [0, 1, 2, 3, 4]
    writer.close()
    assert (tmp_path / "x.idx").read_bytes() == b"0\t0\n1\t16\n2\t32\n3\t48\n4\t64\n"
    assert (tmp_path / "x.rec").stat().st_size == 80


# Moving about

THREE = {7: b"seven", 0: b"", 2**64 - 1: bytes.fromhex("0a23d7ce") * 2}


def test_seek_is_followed_by_read_in_file_order(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r") as reader:
        assert reader.keys == [7, 0, 2**64 - 1]
        assert reader.idx == {7: 0, 0: 16, 2**64 - 1: 24}
        reader.seek(0)
        assert [reader.read(), reader.read(), reader.read()] == [*list(THREE.values())[1:], None]
        reader.seek(7)
        assert read_all(reader) == list(THREE.values())


def test_reset_goes_back_to_the_first_record(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r") as reader:
        assert len(read_all(reader)) == 3
        reader.reset()
        assert reader.read() == b"seven"
        reader.close()
        reader.reset()
        assert reader.read() == b"seven"
        assert reader.keys == list(THREE)


def test_reset_of_a_writer_begins_anew(tmp_path: Path) -> None:
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w") as writer:
        writer.write_idx(1, b"old")
        writer.reset()
        assert (writer.tell(), writer.idx, writer.keys) == (0, {}, [])
        writer.write_idx(2, b"new")
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r") as reader:
        assert (reader.keys, read_all(reader)) == ([2], [b"new"])


def test_a_key_written_twice_reads_the_last(tmp_path: Path) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with MXIndexedRecordIO(*paths, "w") as writer:
        writer.write_idx(1, b"first")
        writer.write_idx(1, b"second")
    with MXIndexedRecordIO(*paths, "r") as reader:
        assert (reader.keys, reader.idx) == ([1, 1], {1: 16})
        assert reader.read_idx(1) == b"second"


def test_keys_may_be_numpy_integers_or_text_of_digits(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, {np.int64(3): b"three", "4": b"four"})
    with MXIndexedRecordIO(*paths, "r") as reader:
        assert reader.keys == [3, 4]
        assert reader.read_idx(np.int64(4)) == b"four"


def test_keys_may_be_text(tmp_path: Path) -> None:
    # A file name may be any bytes; Python hands those that are not UTF-8 over as surrogates.
    keys = ["ant/a b.jpg", "ü", "7", "caf\udce9", "a\x0bb", "a\u2028b", "#"]
    payloads = {key: repr(key).encode() for key in keys}
    paths = write_indexed(tmp_path, payloads, key_type=str)
    with MXIndexedRecordIO(*paths, "r", key_type=str) as reader:
        assert reader.keys == keys
        assert {key: reader.read_idx(key) for key in keys} == payloads
    assert Path(paths[0]).read_bytes().startswith(b"ant/a b.jpg\t0\n\xc3\xbc\t24\n")


@pytest.mark.parametrize("key", ["", " ", "a\tb", "a\nb", "a\rb", " a", "a ", "a\n", "\ud800"])
def test_a_key_that_would_not_come_back_is_refused_before_anything_is_written(
    key: str, tmp_path: Path
) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with MXIndexedRecordIO(*paths, "w", key_type=str) as writer:
        with pytest.raises(ValueError, match=r"cannot be written in an index|surrogates"):
            writer.write_idx(key, b"lost")
        writer.write_idx("good", b"kept")
    assert Path(paths[0]).read_bytes() == b"good\t0\n"
    assert Path(paths[1]).stat().st_size == 12


@given(
    payloads=st.dictionaries(
        st.integers(0, 2**64 - 1),
        st.lists(st.one_of(st.binary(max_size=6), st.just(bytes.fromhex("0a23d7ce")))).map(
            b"".join
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read(
    payloads: dict[int, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("given")
    with MXIndexedRecordIO(*write_indexed(folder, payloads), "r") as reader:
        assert {key: reader.read_idx(key) for key in reversed(reader.keys)} == payloads
        assert reader.keys == list(payloads)


@pytest.mark.parametrize("index", [b"7\t0\r\n0\t16\r\n", b"7\t0\n0\t16", b" 7\t 0 \n0\t016\n"])
def test_an_index_that_others_wrote_is_read(index: bytes, tmp_path: Path) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    Path(idx).write_bytes(index)
    with MXIndexedRecordIO(idx, rec, "r") as reader:
        assert reader.idx == {7: 0, 0: 16}


# Pickling


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_reader_starts_anew_and_the_original_goes_on(
    protocol: int, tmp_path: Path
) -> None:
    paths = write_indexed(tmp_path, THREE)
    for reader in (MXRecordIO(paths[1], "r"), MXIndexedRecordIO(*paths, "r")):
        assert reader.read() == b"seven"
        twin = pickle.loads(pickle.dumps(reader, protocol))
        assert type(twin) is type(reader)
        assert twin.is_open
        assert read_all(twin) == list(THREE.values())
        assert reader.read() == b""  # where it was
        if isinstance(reader, MXIndexedRecordIO):
            assert (twin.keys, twin.idx) == (reader.keys, reader.idx)
            assert twin.read_idx(7) == reader.read_idx(7) == b"seven"


def test_a_copied_reader_has_a_position_of_its_own(tmp_path: Path) -> None:
    reader = MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r")
    for twin in (copy.copy(reader), copy.deepcopy(reader)):
        reader.seek(0)
        assert (twin.read(), reader.read()) == (b"seven", b"")
        twin.close()
        assert reader.read_idx(7) == b"seven"


@pytest.mark.parametrize("flag", ["r", "w"])
def test_a_closed_handle_stays_closed_when_pickled(flag: str, tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, THREE)
    handle = MXIndexedRecordIO(*paths, flag)
    if flag == "w":
        handle.write_idx(1, b"kept")
    handle.close()
    size = os.path.getsize(paths[1])
    twin = pickle.loads(pickle.dumps(handle))
    assert not twin.is_open
    assert os.path.getsize(paths[1]) == size  # a writer that opened would have emptied it
    use = twin.read if flag == "r" else twin.tell
    with pytest.raises(ValueError, match=r"x\.rec: the file is closed$"):
        use()
    if flag == "r":
        twin.reset()
        assert twin.read_idx(7) == b"seven"


def test_an_open_writer_is_not_pickled_as_its_copy_would_empty_the_file(tmp_path: Path) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with MXIndexedRecordIO(*paths, "w") as writer:
        writer.write_idx(1, b"one")
        for attempt in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match=r"x\.rec: cannot pickle a handle that is open for"):
                attempt(writer)
        writer.write_idx(2, b"two")
    with MXIndexedRecordIO(*paths, "r") as reader:
        assert (reader.keys, read_all(reader)) == ([1, 2], [b"one", b"two"])


def test_a_pickled_reader_whose_file_is_gone_is_an_error(tmp_path: Path) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    with MXIndexedRecordIO(idx, rec, "r") as reader:
        data = pickle.dumps(reader)
    os.remove(rec)
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)


def test_a_pickled_reader_works_in_another_process(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r") as reader:
        script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).read_idx(7))"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            input=pickle.dumps(reader),
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (done.stdout, done.stderr) == (b"b'seven'\n", b"")


# Forking

LARGE = {key: bytes([key]) * 300_000 for key in range(4)}  # more than a file's buffer holds


def in_fork(action: Callable[[], object]) -> str:
    """What the action returns or raises in a forked child, as text."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = repr(action())
        except BaseException as error:
            answer = repr(error)
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as stream:
        answer = stream.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer


FORBIDDEN = "RuntimeError('Forbidden operation in multiple processes')"


def test_a_forked_child_may_not_go_on_reading(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, LARGE)
    for reader in (MXRecordIO(paths[1], "r"), MXIndexedRecordIO(*paths, "r")):
        assert reader.read() == LARGE[0]
        assert in_fork(reader.read) == FORBIDDEN
        assert reader.read() == LARGE[1]


def test_a_forked_child_reads_by_key_with_a_file_of_its_own(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, LARGE), "r") as reader:
        assert reader.read() == LARGE[0]

        def read_by_key() -> object:
            right = [reader.read_idx(key) == LARGE[key] for key in (3, 0, 2)]
            return right, reader.read() == LARGE[3], reader.pid == os.getpid()

        assert in_fork(read_by_key) == "([True, True, True], True, True)"
        assert read_all(reader) == [LARGE[1], LARGE[2], LARGE[3]]


def test_a_forked_child_may_reset_or_close_its_reader(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, LARGE), "r") as reader:
        assert reader.read() == LARGE[0]
        assert in_fork(lambda: (reader.reset(), len(read_all(reader)))) == "(None, 4)"
        assert in_fork(lambda: (reader.close(), reader.is_open)) == "(None, False)"
        assert reader.read() == LARGE[1]


def test_a_forked_child_may_not_write_and_writes_nothing_when_it_closes(tmp_path: Path) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with MXIndexedRecordIO(*paths, "w") as writer:
        writer.write_idx(1, b"one")  # still in the buffer, of which the child has a copy
        assert in_fork(lambda: writer.write(b"two")) == FORBIDDEN
        assert in_fork(lambda: writer.write_idx(2, b"two")) == FORBIDDEN
        assert in_fork(lambda: (writer.close(), writer.is_open)) == "(None, False)"
        writer.write_idx(3, b"three")
    assert Path(paths[0]).read_bytes() == b"1\t0\n3\t12\n"
    with MXIndexedRecordIO(*paths, "r") as reader:
        assert read_all(reader) == [b"one", b"three"]


def test_a_forked_child_that_simply_ends_writes_nothing(tmp_path: Path) -> None:
    script = """
import os, sys
from im2rec import recordio
writer = recordio.MXIndexedRecordIO("x.idx", "x.rec", "w")
writer.write_idx(1, b"one")
if pid := os.fork():
    assert os.waitpid(pid, 0)[1] == 0
    writer.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "x.idx").read_bytes() == b"1\t0\n"
    assert (tmp_path / "x.rec").stat().st_size == 12


# Faults of use, files and indexes


@pytest.mark.parametrize("flag", ["", "a", "rb", "wb", "r+", "R", None])
def test_another_flag_is_refused(flag: Any, tmp_path: Path) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    before = Path(rec).read_bytes()
    with pytest.raises(ValueError, match=r"^Invalid flag .*, expected 'r' or 'w'$"):
        MXRecordIO(rec, flag)
    with pytest.raises(ValueError, match=r"^Invalid flag .*, expected 'r' or 'w'$"):
        MXIndexedRecordIO(idx, rec, flag)
    assert Path(rec).read_bytes() == before


def test_a_file_or_index_that_is_missing_is_an_os_error(tmp_path: Path) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    with pytest.raises(FileNotFoundError, match="no\\.rec"):
        MXRecordIO(tmp_path / "no.rec", "r")
    with pytest.raises(FileNotFoundError, match="no\\.rec"):
        MXIndexedRecordIO(idx, tmp_path / "no.rec", "r")
    with pytest.raises(FileNotFoundError, match="no\\.idx"):
        MXIndexedRecordIO(tmp_path / "no.idx", rec, "r")
    with pytest.raises(FileNotFoundError, match="no/x\\.rec"):
        MXRecordIO(tmp_path / "no" / "x.rec", "w")
    with pytest.raises(IsADirectoryError):
        MXRecordIO(tmp_path, "r")


def test_a_pipe_is_refused_and_left_closed() -> None:
    reading, writing = os.pipe()
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"seek"):
        MXRecordIO(f"/proc/self/fd/{reading}", "r")
    assert len(os.listdir("/proc/self/fd")) == opened
    os.close(reading)
    os.close(writing)


def test_a_reader_does_not_write_and_a_writer_does_not_read(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, THREE)
    with MXIndexedRecordIO(*paths, "r") as reader:
        for use in (lambda: reader.write(b""), lambda: reader.write_idx(1, b""), reader.tell):
            with pytest.raises(ValueError, match=r"x\.rec: opened for reading$"):
                use()
    with MXIndexedRecordIO(*paths, "w") as writer:
        for use in (writer.read, lambda: writer.read_idx(7), lambda: writer.seek(7)):
            with pytest.raises(ValueError, match=r"x\.rec: opened for writing$"):
                use()


def test_a_closed_handle_says_so(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, THREE)
    reader = MXIndexedRecordIO(*paths, "r")
    writer = MXIndexedRecordIO(tmp_path / "y.idx", tmp_path / "y.rec", "w")
    for handle in (reader, writer):
        handle.close()
        handle.close()  # once more does nothing
        assert (handle.is_open, handle.pid) == (False, None)
    for use in (
        reader.read,
        lambda: reader.read_idx(7),
        lambda: reader.seek(7),
        writer.tell,
        lambda: writer.write(b""),
        lambda: writer.write_idx(1, b""),
    ):
        with pytest.raises(ValueError, match=r"[xy]\.rec: the file is closed$"):
            use()


def test_a_record_too_large_or_of_another_type_is_refused_and_writes_nothing(
    tmp_path: Path,
) -> None:
    paths = str(tmp_path / "x.idx"), str(tmp_path / "x.rec")
    with MXIndexedRecordIO(*paths, "w") as writer:
        with pytest.raises(ValueError, match="at most 536870911 bytes, not 536870912"):
            writer.write_idx(1, bytes(2**29))
        with pytest.raises(TypeError):
            writer.write_idx(2, "text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="invalid literal"):
            writer.write_idx("three", b"3")
    assert (os.path.getsize(paths[0]), os.path.getsize(paths[1])) == (0, 0)


def test_a_full_disk_is_an_os_error_at_the_latest_when_closing(tmp_path: Path) -> None:
    writer = MXRecordIO("/dev/full", "w")
    writer.write(b"one")
    with pytest.raises(OSError, match="No space left on device"):
        writer.close()
    assert not writer.is_open
    indexed = MXIndexedRecordIO("/dev/full", tmp_path / "x.rec", "w")
    indexed.write_idx(1, b"one")
    with pytest.raises(OSError, match="No space left on device"):
        indexed.close()
    assert not indexed.is_open
    assert (tmp_path / "x.rec").stat().st_size == 12  # the other file was closed all the same


def test_a_key_that_is_not_there_is_a_key_error(tmp_path: Path) -> None:
    with MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r") as reader:
        for key in (1, "7", None):
            with pytest.raises(KeyError):
                reader.read_idx(key)
        assert reader.read() == b"seven"


@pytest.mark.parametrize(
    ("offset", "kind", "message"),
    [
        (-4, RecordError, "byte -4: offset -4 is outside the file of 48 bytes"),
        (49, RecordError, "byte 49: offset 49 is outside the file of 48 bytes"),
        (10**30, RecordError, f"byte {10**30}: offset {10**30} is outside the file of 48 bytes"),
        (4, RecordError, "byte 4: found 05 00 00 00, expected the magic 0a 23 d7 ce"),
        (32, RecordError, "byte 32: cflag 2: a record begins with cflag 0 or 1, this is a"),
        (48, InputError, r"x\.idx: key 9 points to the end of .*x\.rec$"),
    ],
)
def test_an_offset_that_lies_is_an_error_and_the_other_records_are_read(
    offset: int, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    assert os.path.getsize(rec) == 48
    Path(idx).write_bytes(b"7\t0\n9\t%d\n" % offset)
    with MXIndexedRecordIO(idx, rec, "r") as reader:
        with pytest.raises(kind, match=message):
            reader.read_idx(9)
        assert reader.read_idx(7) == b"seven"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"", "''"),
        (b"7", "'7'"),
        (b"7 16", "'7 16'"),
        (b"\t16", "'16'"),
        (b"7\t", "'7'"),
        (b"cat\t16", r"'cat\t16'"),
        (b"7\tx", r"'7\tx'"),
        (b"7\t1.5", r"'7\t1.5'"),
        (b"7\t16\t3", r"'7\t16\t3'"),
        (b"\xef\xbb\xbf7\t16", r"'\ufeff7\t16'"),
        (b"\xff\xfe\t16", r"'\udcff\udcfe\t16'"),
        (b"7\t\xff", r"'7\t\udcff'"),
        (b"7\t" + b"9" * 5000, "'7\\t" + "9" * 38 + "'"),
    ],
)
def test_a_malformed_index_is_an_error_with_the_line(
    line: bytes, shown: str, tmp_path: Path
) -> None:
    idx, rec = write_indexed(tmp_path, THREE)
    Path(idx).write_bytes(b"7\t0\n" + line + b"\n")
    with pytest.raises(IndexLineError) as caught:
        MXIndexedRecordIO(idx, rec, "r")
    assert str(caught.value) == f"{idx}:2: found {shown}, expected key TAB offset"


# Indexes read at once


def opened(
    idx: Path, key_type: Callable[[Any], Any] = int
) -> tuple[list[Any], dict[Any, int]] | str:
    """Keys and offsets of an index, or the error's text."""
    rec = idx.with_suffix(".rec")
    rec.touch()
    try:
        with MXIndexedRecordIO(idx, rec, "r", key_type) as reader:
            pass
        return reader.keys, reader.idx
    except IndexLineError as error:
        return str(error)


def is_read_as_by_lines(data: bytes, folder: Path) -> None:
    """Holds an index's reading against that with a key type of one's own, which is line by line."""
    (folder / "x.idx").write_bytes(data)
    assert opened(folder / "x.idx") == opened(folder / "x.idx", lambda text: int(text))


@pytest.fixture(params=[0, 2**60], ids=["with NumPy", "without NumPy"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every index for a large one, or none."""
    monkeypatch.setattr(recordio, "_LARGE", request.param)


@pytest.mark.usefixtures("_way")
def test_any_index_is_read_as_by_lines(tmp_path: Path) -> None:
    pieces = [b"\n", b"\r", b"\t", b"1", b"42", b" ", b"-", b"_", b"\xff", b"\x0b", b"\xc2\xb2"]

    @given(st.lists(st.sampled_from([*pieces, b"7\t0\n", b"1\t12\n", b"0\t016\n"])).map(b"".join))
    def holds(data: bytes) -> None:
        is_read_as_by_lines(data, tmp_path)

    holds()


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("first", [b"", b"7", b"\t16", b"7\t", b"7\t1\t2", b"7\t0\t", b"\t\t"])
def test_a_bad_first_line_is_found(first: bytes, tmp_path: Path) -> None:
    is_read_as_by_lines(first + b"\n", tmp_path)
    is_read_as_by_lines(first + b"\n7\t0\n", tmp_path)


@pytest.mark.usefixtures("_way")
def test_digits_are_of_the_key_type_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_bytes(b"7\t0\n07\t16\n")
    assert opened(tmp_path / "x.idx", str) == (["7", "07"], {"7": 0, "07": 16})


@pytest.mark.usefixtures("_way")
@given(pairs=st.lists(st.tuples(st.integers(0, 2**66), st.integers(0, 2**66)), max_size=20))
def test_numbers_of_an_index_are_exact(
    pairs: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    idx = tmp_path_factory.mktemp("given") / "x.idx"
    idx.write_bytes(b"".join(b"%d\t%d\n" % pair for pair in pairs))
    found = opened(idx)
    assert found == ([key for key, _ in pairs], dict(pairs))
    assert {type(number) for number in [*found[0], *found[1].values()]} <= {int}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("digits", [1, 20, 299, 300, 301, 598, 600, 640, 4300, 4301, 5000])
def test_a_long_number_is_read_or_refused_wherever_it_stands(digits: int, tmp_path: Path) -> None:
    number = b"9" * digits
    for before in (0, 1, 74, 75, 1000):
        for line in (number + b"\t1\n", b"1\t" + number + b"\n"):
            is_read_as_by_lines(b"1\t0\n" * before + line, tmp_path)
            is_read_as_by_lines(b"1\t0\n" * before + line + b"1\t0\n" * 200, tmp_path)


def test_a_large_index_is_read_and_its_bad_line_found(tmp_path: Path) -> None:
    lines = [b"%d\t%d\n" % (2**64 - 1 - key, key << 40) for key in range(150_000)]
    assert sum(map(len, lines)) > recordio._LARGE
    (tmp_path / "x.idx").write_bytes(b"".join(lines))
    keys = [2**64 - 1 - key for key in range(150_000)]
    assert opened(tmp_path / "x.idx") == (
        keys,
        dict(zip(keys, range(0, 150_000 << 40, 1 << 40), strict=True)),
    )
    lines[123_456] = b"7 8\n"
    (tmp_path / "x.idx").write_bytes(b"".join(lines))
    expected = f"{tmp_path / 'x.idx'}:123457: found '7 8', expected key TAB offset"
    assert opened(tmp_path / "x.idx") == expected


def test_keys_are_those_of_the_index_when_it_was_opened(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, THREE)
    with MXIndexedRecordIO(*paths, "r") as reader:
        Path(paths[0]).write_bytes(b"5\t0\n")
        assert reader.keys == list(THREE)
        assert reader.read_idx(0) == b""
        reader.reset()
        assert (reader.keys, reader.idx) == ([5], {5: 0})


def test_keys_and_idx_that_a_program_has_set_stay(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, THREE)
    with MXIndexedRecordIO(*paths, "r") as reader:
        reader.keys = [0]
        assert reader.idx == {7: 0, 0: 16, 2**64 - 1: 24}
        assert reader.keys == [0]
    with MXIndexedRecordIO(*paths, "r") as reader:
        reader.idx = {8: 16}
        assert reader.keys == list(THREE)
        assert reader.read_idx(8) == b""


def test_a_handle_closed_before_its_keys_were_asked_for_still_has_them(tmp_path: Path) -> None:
    reader = MXIndexedRecordIO(*write_indexed(tmp_path, THREE), "r")
    reader.close()
    for twin in (pickle.loads(pickle.dumps(reader)), copy.copy(reader), reader):
        assert (twin.is_open, twin.keys, list(twin.idx)) == (False, list(THREE), list(THREE))


def test_threads_that_ask_at_once_get_the_same(tmp_path: Path) -> None:
    lines = [f"{key}\t{key * 8}\n" for key in range(20_000)]
    (tmp_path / "x.idx").write_text("".join(lines), "ascii")
    (tmp_path / "x.rec").touch()
    reader = MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda name: getattr(reader, name), ["idx", "keys"] * 8))
    assert {id(one) for one in found} == {id(reader.idx), id(reader.keys)}
    assert (len(reader.keys), reader.idx[19_999]) == (20_000, 19_999 * 8)


def test_an_index_may_come_through_a_pipe(tmp_path: Path) -> None:
    _, rec = write_indexed(tmp_path, THREE)
    for data in (b"7\t0\n0\t16\n", b"7\t0\n0\t16"):
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        with MXIndexedRecordIO(f"/proc/self/fd/{reading}", rec, "r") as reader:
            assert reader.read_idx(0) == b""
        os.close(reading)


# Files that change


def test_a_record_read_by_key_from_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    paths = write_indexed(tmp_path, LARGE)
    with MXIndexedRecordIO(*paths, "r") as reader:
        os.truncate(paths[1], reader.idx[2] + 1000)
        with pytest.raises(RecordError, match="the file became shorter while it was read"):
            reader.read_idx(2)
        with pytest.raises(RecordError, match="0 bytes at the end, expected a record head of 8"):
            reader.read_idx(3)
        assert reader.read_idx(1) == LARGE[1]


def test_a_program_may_look_in_on_seek_and_read(tmp_path: Path) -> None:
    class Shouting(MXIndexedRecordIO):
        def read(self) -> bytes | None:
            record = super().read()
            return record and record.upper()

    with Shouting(*write_indexed(tmp_path, THREE), "r") as reader:
        assert reader.read_idx(7) == b"SEVEN"  # read_idx calls both, as MXNet's does


def test_a_damaged_file_gives_the_records_before_the_damage(tmp_path: Path) -> None:
    _, rec = write_indexed(tmp_path, THREE)
    os.truncate(rec, 30)
    with MXRecordIO(rec, "r") as reader:
        assert [reader.read(), reader.read()] == [b"seven", b""]
        with pytest.raises(RecordError, match="byte 24: 6 bytes at the end"):
            reader.read()


# Image records


@pytest.mark.parametrize(
    ("label", "payload"),
    [
        # what MXNet 1.9.1 makes of each
        (2, "00000000 00000040 01000000 00000000 00000000 00000000"),
        (0.1, "00000000 cdcccc3d 01000000 00000000 00000000 00000000"),
        (True, "00000000 0000803f 01000000 00000000 00000000 00000000"),
        (Fraction(1, 2), "00000000 0000003f 01000000 00000000 00000000 00000000"),
        (np.float32(2), "00000000 00000040 01000000 00000000 00000000 00000000"),
        (np.float64(0.1), "00000000 cdcccc3d 01000000 00000000 00000000 00000000"),
        (np.int64(3), "00000000 00004040 01000000 00000000 00000000 00000000"),
        (np.bool_(True), "01000000 00000000 01000000 00000000 00000000 00000000 0000803f"),
        (np.array(3), "01000000 00000000 01000000 00000000 00000000 00000000 00004040"),
        ([], "00000000 00000000 01000000 00000000 00000000 00000000"),
        ([2.5], "01000000 00000000 01000000 00000000 00000000 00000000 00002040"),
        ((1, 2), "02000000 00000000 01000000 00000000 00000000 00000000 0000803f 00000040"),
        (
            np.array([1, 2], dtype=">f8"),
            "02000000 00000000 01000000 00000000 00000000 00000000 0000803f 00000040",
        ),
        (
            np.arange(4, dtype=np.int32)[::2],
            "02000000 00000000 01000000 00000000 00000000 00000000 00000000 00000040",
        ),
        (
            [[1, 2], [3, 4]],
            "04000000 00000000 01000000 00000000 00000000 00000000"
            "0000803f 00000040 00004040 00008040",
        ),
        (range(2), "02000000 00000000 01000000 00000000 00000000 00000000 00000000 0000803f"),
    ],
    ids=repr,
)
def test_a_label_of_any_kind_is_packed_as_mxnet_packs_it(label: Any, payload: str) -> None:
    packed = recordio.pack(IRHeader(7, label, 1, 0), b"x")
    assert packed == bytes.fromhex(payload) + b"x"
    header, body = recordio.unpack(packed)
    assert body == b"x"
    if header.flag:
        assert header.label.tolist() == np.ravel(label).tolist()
    else:
        assert header.label == (np.float32(label) if np.size(label) else 0)


def test_labels_that_are_no_number_any_more_are_kept() -> None:
    packed = recordio.pack((0, float("inf"), 0, 0), b"")
    assert recordio.unpack(packed)[0].label == float("inf")
    labels = recordio.unpack(recordio.pack((0, [float("nan"), -float("inf")], 0, 0), b""))[0].label
    assert np.isnan(labels[0])
    assert labels[1] == -float("inf")


@pytest.mark.parametrize("record_id", [0, 2**63, 2**64 - 1, np.uint64(2**64 - 1), True])
def test_ids_may_be_all_of_u64(record_id: int) -> None:
    header, _ = recordio.unpack(recordio.pack(IRHeader(0, 1, record_id, record_id), b""))
    assert (header.id, header.id2) == (int(record_id), int(record_id))


@pytest.mark.parametrize(
    ("label", "record_id", "id2", "message"),
    [
        (1, -1, 0, "^id -1, id2 0: "),
        (1, 2**64, 0, "^id 18446744073709551616, id2 0: "),
        ([1], 0, -1, "^id 0, id2 -1: "),
        (1, 1.5, 0, "^id 1.5, id2 0: "),
        (1, "7", 0, "^id '7', id2 0: "),
        (1e39, 0, 0, "^id 0, id2 0: "),
        ([1, -1e39], 0, 0, "^id 0, id2 0: "),
        (np.array([1e39]), 0, 0, "^id 0, id2 0: "),
        (10**400, 0, 0, "^id 0, id2 0: "),
        ([10**400], 0, 0, "^id 0, id2 0: "),
        (1j, 0, 0, "^id 0, id2 0: "),
        (object(), 0, 0, "^id 0, id2 0: "),
        ("cat", 0, 0, "could not convert string to float: 'cat'"),
        ([[1], [2, 3]], 0, 0, "inhomogeneous"),
    ],
)
def test_a_header_that_no_record_can_hold_is_a_value_error(
    label: Any, record_id: Any, id2: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        recordio.pack((0, label, record_id, id2), b"image")


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "0 bytes, expected at least the 24 of an image record's header"),
        (bytes(23), "23 bytes, expected at least the 24 of an image record's header"),
        (
            struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + b"abc",
            "the header announces 4294967295 labels (17179869180 bytes), but 3 bytes follow",
        ),
    ],
)
def test_a_payload_that_is_no_image_record_is_a_payload_error(payload: bytes, message: str) -> None:
    for read in (recordio.unpack, recordio.unpack_img):
        with pytest.raises(PayloadError) as caught:
            read(payload)
        assert str(caught.value) == message


# Pictures


def picture() -> np.ndarray[Any, Any]:
    """48x64x3 uint8, BGR: a gradient with an edge."""
    image = np.zeros((48, 64, 3), np.uint8)
    image[..., 0] = np.arange(64) * 4
    image[..., 1] = np.arange(48)[:, None] * 5
    image[10:20, 30:50] = 255
    return image


@pytest.mark.parametrize("img_fmt", [".png", ".PNG"])
@pytest.mark.parametrize("level", [0, 3, 9])
def test_a_png_comes_back_pixel_for_pixel(img_fmt: str, level: int) -> None:
    packed = recordio.pack_img((0, 5, 6, 0), picture(), quality=level, img_fmt=img_fmt)
    assert packed[24:32] == b"\x89PNG\r\n\x1a\n"
    done, expected = cv2.imencode(".png", picture(), [cv2.IMWRITE_PNG_COMPRESSION, level])
    assert done
    assert packed[24:] == expected.tobytes()
    header, found = recordio.unpack_img(packed)
    assert header == IRHeader(0, 5.0, 6, 0)
    np.testing.assert_array_equal(found, picture())


@pytest.mark.parametrize("img_fmt", [".jpg", ".JPG", ".jpeg"])
@pytest.mark.parametrize("quality", [1, 80, 95, 100])
def test_a_jpeg_has_the_quality_asked_for(img_fmt: str, quality: int) -> None:
    packed = recordio.pack_img((0, [5, 6], 7, 0), picture(), quality=quality, img_fmt=img_fmt)
    done, expected = cv2.imencode(".jpg", picture(), [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    assert packed[32:] == expected.tobytes()  # after the header and two labels
    header, found = recordio.unpack_img(packed)
    assert header.label.tolist() == [5, 6]
    assert found.shape == (48, 64, 3)


def test_a_jpeg_has_quality_95_if_none_is_asked_for() -> None:
    header = IRHeader(0, 1, 2, 0)
    assert recordio.pack_img(header, picture()) == recordio.pack_img(header, picture(), 95, ".jpg")
    assert recordio.pack_img(header, picture()) != recordio.pack_img(header, picture(), 94, ".jpg")


@pytest.mark.parametrize(
    ("image", "iscolor", "shape"),
    [
        (picture(), -1, (48, 64, 3)),
        (picture(), 1, (48, 64, 3)),
        (picture(), 0, (48, 64)),
        (picture()[..., 0], -1, (48, 64)),
        (picture()[..., 0], 1, (48, 64, 3)),
        (np.dstack([picture(), picture()[..., 0]]), -1, (48, 64, 4)),
        (np.dstack([picture(), picture()[..., 0]]), 1, (48, 64, 3)),
    ],
)
def test_iscolor_says_how_many_channels_come_back(
    image: np.ndarray[Any, Any], iscolor: int, shape: tuple[int, ...]
) -> None:
    packed = recordio.pack_img((0, 1, 2, 0), image, 3, ".png")
    assert recordio.unpack_img(packed, iscolor)[1].shape == shape
    assert recordio.unpack_img(packed, iscolor=iscolor)[1].dtype == np.uint8


@pytest.mark.parametrize("body", [b"", b"junk", b"\xff\xd8\xff", (BAD / "x/text.jpg").read_bytes()])
def test_a_body_that_is_no_image_gives_no_picture(body: bytes) -> None:
    header, found = recordio.unpack_img(recordio.pack((0, 1, 2, 0), body))
    assert header == IRHeader(0, 1.0, 2, 0)
    assert found is None


def test_a_picture_that_opencv_refuses_is_an_image_error() -> None:
    packed = recordio.pack((0, 1, 2, 0), (BAD / "x/bomb.png").read_bytes())
    with pytest.raises(ImageError, match=r"^OpenCV refuses the image: [^\n]*PIXELS$"):
        recordio.unpack_img(packed)


@pytest.mark.parametrize(
    ("image", "img_fmt", "message"),
    [
        (None, ".jpg", r"^cannot encode an image of shape None as \.jpg: "),
        (np.zeros((0, 4, 3), np.uint8), ".jpg", r"shape \(0, 4, 3\) as \.jpg: "),
        (np.zeros((4, 4, 2), np.uint8), ".jpg", r"shape \(4, 4, 2\) as \.jpg: "),
        (np.zeros((1, 65501, 3), np.uint8), ".jpg", r"shape \(1, 65501, 3\) as \.jpg"),
        (picture(), ".xyz", r"shape \(48, 64, 3\) as \.xyz: "),
        (picture(), "jpg", r"shape \(48, 64, 3\) as jpg: "),
        ([[1, 2]], ".png", r"shape None as \.png: "),
    ],
    ids=str,
)
def test_a_picture_that_cannot_be_encoded_is_a_value_error(
    image: Any, img_fmt: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        recordio.pack_img((0, 1, 2, 0), image, img_fmt=img_fmt)
    assert len(str(caught.value).splitlines()) == 1
