"""The framing: golden files, properties, and every byte of it cut off or changed."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from im2rec import framing
from im2rec.errors import RecordError
from im2rec.framing import Damage, Record, RecordReader, Run, RunScanner, frame, is_cut_right

MAGIC = bytes.fromhex("0a23d7ce")  # written out once more: the format's, not the module's
MIB = 1 << 20
RECS = sorted(GOLDEN.rglob("*.rec"))

# Payloads of whatever lengths, with the magic or a piece of it at whatever places.
payloads = st.lists(
    st.one_of(
        st.just(MAGIC),
        st.binary(max_size=9),
        st.sampled_from([MAGIC[:1], MAGIC[:3], MAGIC[1:], MAGIC * 3, bytes(4), b"abcd"]),
    ),
    max_size=8,
).map(b"".join)


def reader_of(data: bytes) -> RecordReader:
    return RecordReader(io.BytesIO(data), "x.rec")


def part(cflag: int, body: bytes, length: int | None = None) -> bytes:
    """A part made by hand; length: what its head claims, if not the truth."""
    claim = len(body) if length is None else length
    return MAGIC + struct.pack("<I", cflag << 29 | claim) + body + bytes(-len(body) % 4)


def read_simply(data: bytes) -> list[bytes]:
    """The format's reader once more, from its description, for sound files only."""
    found = []
    at = 0
    while at < len(data):
        parts = []
        cflag = 1
        while cflag not in (0, 3):
            assert data[at : at + 4] == MAGIC
            cflag, length = divmod(int.from_bytes(data[at + 4 : at + 8], "little"), 2**29)
            parts.append(data[at + 8 : at + 8 + length])
            at += 8 + (length + 3) // 4 * 4
        found.append(MAGIC.join(parts))
    return found


def aligned_magics(data: bytes) -> list[int]:
    return [at for at in range(0, len(data), 4) if data[at : at + 4] == MAGIC]


def heads(data: bytes) -> list[int]:
    """Where the parts of a sound file begin."""
    found = []
    at = 0
    while at < len(data):
        found.append(at)
        at += 8 + (int.from_bytes(data[at + 4 : at + 8], "little") % 2**29 + 3) // 4 * 4
    return found


# Golden files


def test_there_are_golden_files() -> None:
    assert len(RECS) == 15  # 12 packs and 3 of recordio


@pytest.mark.parametrize("path", RECS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_mxnet_wrote_is_read_and_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    with open(path, "rb") as stream:
        records = list(RecordReader(stream, str(path)))
    lines = path.with_suffix(".idx").read_text("ascii").splitlines()
    assert [record.offset for record in records] == [int(line.split("\t")[1]) for line in lines]
    assert [record.end for record in records] == [r.offset for r in records[1:]] + [len(data)]
    assert [record.payload for record in records] == read_simply(data)
    assert b"".join(frame(record.payload) for record in records) == data


def test_the_golden_payloads_are_those_given_to_mxnet() -> None:
    given_to_mxnet = json.loads((GOLDEN / "recordio" / "framing.json").read_text("ascii"))
    with open(GOLDEN / "recordio" / "framing.rec", "rb") as stream:
        records = list(RecordReader(stream, "framing.rec"))
    assert [record.payload.hex() for record in records] == [one["hex"] for one in given_to_mxnet]
    parts = [1] * 6 + [2, 3, 4, 2, 2, 2, 1, 2] + [1] * 5 + [3]  # from the magics seen in the hex
    assert [record.parts for record in records] == parts


# Writing


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", "0a23d7ce 00000000"),
        (b"hello", "0a23d7ce 05000000 68656c6c 6f000000"),
        (MAGIC, "0a23d7ce 00000020 0a23d7ce 00000060"),
        (b"abcd" + MAGIC + b"e", "0a23d7ce 04000020 61626364 0a23d7ce 01000060 65000000"),
        (MAGIC * 2, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
        (b"a" + MAGIC, "0a23d7ce 05000000 610a23d7 ce000000"),
        (MAGIC[:3], "0a23d7ce 03000000 0a23d700"),
    ],
)
def test_a_record_has_these_bytes(payload: bytes, expected: str) -> None:
    assert frame(payload) == bytes.fromhex(expected)
    assert next(iter(reader_of(bytes.fromhex(expected)))).payload == payload


@pytest.mark.parametrize("offset", range(13))
@pytest.mark.parametrize("tail", range(6))
def test_a_magic_at_any_offset_comes_back(offset: int, tail: int) -> None:
    payload = bytes(range(1, offset + 1)) + MAGIC + bytes(range(1, tail + 1))
    data = frame(payload)
    [record] = reader_of(data)
    assert record == Record(0, len(data), payload, parts=2 if offset % 4 == 0 else 1)


def test_a_payload_of_2_to_the_29_bytes_is_refused() -> None:
    # bytes(n) is zeroed by the system when touched, and a refusal touches nothing.
    with pytest.raises(ValueError, match="at most 536870911 bytes, not 536870912"):
        frame(bytes(2**29))


def test_the_largest_payload_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_PAYLOAD", 5)  # the real one needs a gigabyte
    assert frame(b"hello")[8:13] == b"hello"
    with pytest.raises(ValueError, match="at most 5 bytes, not 6"):
        frame(b"hello!")


@given(st.lists(payloads, max_size=5))
def test_records_come_back_as_they_were(written: list[bytes]) -> None:
    data = b"".join(map(frame, written))
    records = list(reader_of(data))
    assert [record.payload for record in records] == written == read_simply(data)
    assert [record.parts for record in records] == [1 + len(aligned_magics(p)) for p in written]
    assert b"".join(data[record.offset : record.end] for record in records) == data
    assert len(data) % 4 == 0


@given(payloads)
def test_every_aligned_magic_in_a_file_is_a_head(payload: bytes) -> None:
    # What a reader that starts in the middle of a file lives by.
    data = frame(payload)
    assert aligned_magics(data) == heads(data)


# Reading what is damaged

SOUND = [b"", b"abcde", b"abcd" + MAGIC * 2 + b"efg", MAGIC, bytes(range(100, 110))]
FILE = b"".join(map(frame, SOUND))
ENDS = [sum(len(frame(p)) for p in SOUND[:count]) for count in range(len(SOUND) + 1)]


def outcome(data: bytes) -> tuple[list[bytes], RecordError | None]:
    """The payloads that can be read, and the error that ended it. Any other error escapes."""
    found: list[bytes] = []
    try:
        for record in reader_of(data):
            found.append(record.payload)  # an error must not lose those before
    except RecordError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("size", range(len(FILE) + 1))
def test_a_file_cut_at_any_byte_gives_the_records_before_the_cut(size: int) -> None:
    found, error = outcome(FILE[:size])
    whole = sum(end <= size for end in ENDS[1:])
    assert found == SOUND[:whole]
    if size in ENDS:
        assert error is None
    else:
        assert error is not None
        assert error.code == "truncated"
        assert ENDS[whole] <= error.offset < size


FRAMING_BYTES = [at + i for at in heads(FILE) for i in range(8)]
PADDING_BYTES = [
    at
    for head, following in zip(heads(FILE), heads(FILE)[1:] + [len(FILE)], strict=True)
    for at in range(head + 8 + FILE[head + 4], following)
]


def changed(at: int) -> list[bytes]:
    """The file with its byte `at` changed to each of several values."""
    byte = FILE[at]
    values = {0, 1, 3, 4, 0x7F, 0xFF, byte ^ 1, byte ^ 0x20, byte ^ 0x40, byte ^ 0x80, byte ^ 0xFF}
    return [FILE[:at] + bytes([value]) + FILE[at + 1 :] for value in values - {byte}]


@pytest.mark.parametrize("at", FRAMING_BYTES)
def test_any_byte_of_a_head_changed_leaves_the_records_before_it(at: int) -> None:
    before = sum(end <= at for end in ENDS[1:])
    is_magic = min(at - head for head in heads(FILE) if head <= at) < 4
    for data in changed(at):
        found, error = outcome(data)
        assert found[:before] == SOUND[:before]
        assert found != SOUND
        if is_magic:
            assert error is not None
            assert error.code == "magic"
            assert found == SOUND[:before]


def test_any_byte_of_the_padding_changed_is_a_fault() -> None:
    assert len(PADDING_BYTES) == 3 + 1 + 2  # after 5, 3 and 10 bytes
    for at in PADDING_BYTES:
        for data in changed(at):
            found, error = outcome(data)
            assert found == SOUND[: sum(end <= at for end in ENDS[1:])]
            assert error is not None
            assert error.code == "padding"


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=6),
            st.just(MAGIC),
            st.builds(part, st.integers(0, 7), st.binary(max_size=5), st.none()),
            st.builds(part, st.integers(0, 7), st.binary(max_size=5), st.integers(0, 2**29 - 1)),
        ),
        max_size=8,
    ).map(b"".join)
)
def test_any_bytes_give_records_or_a_record_error(data: bytes) -> None:
    found, error = outcome(data)
    if error is None:
        assert read_simply(data) == found
    else:
        assert 0 <= error.offset <= len(data)


WHOLE = part(0, b"abcd")  # 12 bytes

FAULTS = {
    "not a record": (
        b"\x89PNG\r\n\x1a\n",
        (0, "magic", "found 89 50 4e 47, expected the magic 0a 23 d7 ce"),
    ),
    "the other byte order": (
        MAGIC[::-1] + bytes(4),
        (0, "magic", "found ce d7 23 0a, expected the magic 0a 23 d7 ce"),
    ),
    "a head cut off": (
        WHOLE + MAGIC,
        (12, "truncated", "4 bytes at the end, expected a record head of 8"),
    ),
    "a body cut off": (
        WHOLE + part(0, b"abcd", 5),
        (12, "truncated", "a record of 5 bytes, padded to 8, but the file ends after 4"),
    ),
    "padding cut off": (
        part(0, b"a")[:9],
        (0, "truncated", "a record of 1 bytes, padded to 4, but the file ends after 1"),
    ),
    "padding that is not zero": (
        part(0, b"axyz", 1),
        (0, "padding", "padding 78 79 7a, expected zeros"),
    ),
    "a cflag that does not exist": (part(4, b""), (0, "cflag", "cflag 4, expected 0 to 3")),
    "a middle part first": (
        WHOLE + part(2, b""),
        (12, "cflag", "cflag 2: a record begins with cflag 0 or 1, this is a later part"),
    ),
    "a last part first": (
        part(3, b""),
        (0, "cflag", "cflag 3: a record begins with cflag 0 or 1, this is a later part"),
    ),
    "a last part that is missing": (
        WHOLE + part(1, b"abcd"),
        (12, "truncated", "the file ends inside a cut record"),
    ),
    "a whole record inside a cut one": (
        WHOLE + part(1, b"abcd") + WHOLE,
        (12, "cflag", "a cut record without its end: cflag 0 at byte 24, expected 2 or 3"),
    ),
    "a cut record inside a cut one": (
        part(1, b"") + part(2, b"") + part(1, b"") + part(3, b""),
        (0, "cflag", "a cut record without its end: cflag 1 at byte 16, expected 2 or 3"),
    ),
    "junk inside a cut record": (
        part(1, b"abcd") + b"junkjunk",
        (12, "magic", "found 6a 75 6e 6b, expected the magic 0a 23 d7 ce"),
    ),
}


@pytest.mark.parametrize(("data", "fault"), FAULTS.values(), ids=FAULTS)
def test_each_fault_has_its_place_code_and_sentence(
    data: bytes, fault: tuple[int, str, str]
) -> None:
    _, error = outcome(data)
    assert error is not None
    assert (error.offset, error.code, error.found) == fault
    assert str(error) == f"x.rec: byte {fault[0]}: {fault[2]}"


def test_a_fault_leaves_the_reader_where_it_was() -> None:
    reader = reader_of(WHOLE + part(1, b"abcd") + part(0, b"next"))
    assert reader.read() is not None
    for _ in range(2):
        with pytest.raises(RecordError, match=r"^x\.rec: byte 12: a cut record without its end"):
            reader.read()
        assert reader.offset == 12
    # The record that stands where the missing part should be is not lost with it.
    head = reader.next_head(reader.offset + 4)
    assert head == 24
    reader.seek(head)
    assert reader.read() == Record(24, 36, b"next", 1)
    assert reader.read() is None


@pytest.mark.parametrize("cflag", [0, 1])
def test_a_length_that_lies_allocates_nothing(cflag: int, tmp_path: Path) -> None:
    (tmp_path / "lie.rec").write_bytes(part(cflag, b"abcd", 2**29 - 1))
    with open(tmp_path / "lie.rec", "rb") as stream:
        reader = RecordReader(stream, "lie.rec")
        tracemalloc.start()
        try:
            with pytest.raises(
                RecordError, match="a record of 536870911 bytes, padded to 53687091"
            ):
                reader.read()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 100_000


def test_a_file_that_shrinks_while_it_is_read_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "shrinks.rec"
    path.write_bytes(frame(bytes(MIB)) + frame(bytes(MIB)))
    with open(path, "rb") as stream:
        reader = RecordReader(stream, "shrinks.rec")
        assert reader.read() == Record(0, MIB + 8, bytes(MIB), 1)
        os.truncate(path, 2 * MIB)
        with pytest.raises(RecordError, match="the file became shorter while it was read"):
            reader.read()
        os.truncate(path, MIB)
        with pytest.raises(RecordError, match="0 bytes at the end, expected a record head of 8"):
            reader.read()


# Payloads alone


def steps(reader: RecordReader, following: Callable[[], bytes | None]) -> list[object]:
    """What each call gives up to the end or an error, and where the reader stands after it."""
    told: list[object] = []
    try:
        while (payload := following()) is not None:
            told.append((payload, reader.offset))
            assert len(told) < 100, "the reader does not get on"
    except RecordError as error:
        told.append(str(error))
    return [*told, reader.offset]


def payloads_are_those_of_the_records(data: bytes) -> None:
    with tempfile.TemporaryFile() as stream:  # a real one, as payloads are read past the stream
        stream.write(data)
        stream.seek(0)
        reader, by_record = RecordReader(stream, "x.rec"), reader_of(data)
        told = steps(reader, reader.payload)
    records = (record.payload for record in by_record)
    assert told == steps(by_record, lambda: next(records, None))


@given(st.lists(st.one_of(payloads, st.integers(495, 520).map(bytes)), max_size=5))
def test_payloads_are_those_of_sound_records(written: list[bytes]) -> None:
    payloads_are_those_of_the_records(b"".join(map(frame, written)))


@pytest.mark.parametrize("before", [0, 300, 496, 500, 504, 508, 520, 70_000])
def test_payloads_of_damaged_files_are_those_of_the_records(before: int) -> None:
    # The damage falls inside what is read first, across its end, and behind it.
    for body in (b"", bytes(before)):
        for data, _ in FAULTS.values():
            payloads_are_those_of_the_records(frame(body) + data)
        for length in (before + 1, before + 2, before + 3):
            sound = frame(bytes([7]) * length)
            for at in range(len(sound) - 4, len(sound)):
                payloads_are_those_of_the_records(sound[:at] + b"\1" + sound[at + 1 :] + WHOLE)
                payloads_are_those_of_the_records(sound[:at])


@pytest.mark.parametrize("at", FRAMING_BYTES)
def test_payloads_of_a_file_with_a_changed_head_are_those_of_the_records(at: int) -> None:
    for data in changed(at):
        payloads_are_those_of_the_records(data)


def test_payloads_and_records_may_be_asked_for_in_turn(tmp_path: Path) -> None:
    (tmp_path / "x.rec").write_bytes(FILE)
    with open(tmp_path / "x.rec", "rb") as stream:
        reader = RecordReader(stream, "x.rec")
        for number in (3, 0, 2):
            reader.seek(ENDS[number])
            assert reader.payload() == SOUND[number]
            record = reader.read()
            assert record is not None
            assert (record.offset, record.payload) == (ENDS[number + 1], SOUND[number + 1])
        assert reader.payload() == SOUND[4]
        assert reader.payload() is None
        assert reader.read() is None


@pytest.mark.parametrize("size", [3, 1000, MIB])
def test_payloads_of_a_file_that_changes_its_size(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    path.write_bytes(frame(bytes(size)) * 2)
    with open(path, "rb") as stream:
        reader = RecordReader(stream, "x.rec")
        assert reader.payload() == bytes(size)
        second = reader.offset
        with open(path, "ab") as more:
            more.write(WHOLE)
        assert reader.payload() == bytes(size)
        assert reader.payload() is None  # as large as it was at the start
        os.truncate(path, 2 * second - 4)
        reader.seek(second)
        with pytest.raises(RecordError, match="the file became shorter while it was read"):
            reader.payload()
        os.truncate(path, second)
        with pytest.raises(RecordError, match="0 bytes at the end, expected a record head of 8"):
            reader.payload()
        assert reader.offset == second


def test_a_payload_whose_length_lies_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "lie.rec").write_bytes(part(0, b"abcd", 2**29 - 1))
    with open(tmp_path / "lie.rec", "rb") as stream:
        reader = RecordReader(stream, "lie.rec")
        tracemalloc.start()
        try:
            with pytest.raises(RecordError, match="a record of 536870911 bytes"):
                reader.payload()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 100_000


def test_the_first_part_of_a_cut_record_is_no_payload_in_the_largest_of_files(
    tmp_path: Path,
) -> None:
    # Its lrecord, cflag and all, is a length that such a file could hold.
    with open(tmp_path / "x.rec", "wb") as file:
        file.write(part(1, b"abcd") + part(3, b"efgh"))
        file.truncate(2**30)  # a hole, which takes no room
    with open(tmp_path / "x.rec", "rb") as stream:
        assert RecordReader(stream, "x.rec").payload() == b"abcd" + MAGIC + b"efgh"


def test_payloads_where_the_system_cannot_read_at_an_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framing, "_HAS_PREAD", False)
    monkeypatch.delattr(os, "pread", raising=False)
    payloads_are_those_of_the_records(FILE)
    payloads_are_those_of_the_records(FILE[:-1])


def test_a_payload_of_a_closed_stream_is_a_value_error(tmp_path: Path) -> None:
    # Another file may have its descriptor by now.
    (tmp_path / "x.rec").write_bytes(FILE)
    with open(tmp_path / "x.rec", "rb") as stream:
        reader = RecordReader(stream, "x.rec")
    with open(tmp_path / "x.rec", "rb"), pytest.raises(ValueError, match="closed file"):
        reader.payload()


# Moving about


def test_a_reader_starts_where_the_stream_stands() -> None:
    stream = io.BytesIO(FILE)
    stream.seek(ENDS[2])
    assert [record.payload for record in RecordReader(stream, "x.rec")] == SOUND[2:]


def test_any_record_can_be_sought() -> None:
    reader = reader_of(FILE)
    for number in (3, 0, 4, 2, 2, 1):
        reader.seek(ENDS[number])
        record = reader.read()
        assert record is not None
        assert (record.offset, record.payload) == (ENDS[number], SOUND[number])
    reader.seek(len(FILE))
    assert reader.read() is None


@pytest.mark.parametrize("offset", [-1, len(FILE) + 1, 2**63, 2**64, 10**30])
def test_an_offset_outside_the_file_cannot_be_sought(offset: int) -> None:
    reader = reader_of(FILE)
    reader.seek(ENDS[1])
    with pytest.raises(RecordError) as caught:
        reader.seek(offset)
    assert caught.value.code == "offset"
    assert caught.value.found == f"offset {offset} is outside the file of {len(FILE)} bytes"
    assert reader.offset == ENDS[1]


@given(
    st.lists(
        st.one_of(
            st.sampled_from([MAGIC, MAGIC[:2], b"\n", bytes(3), bytes(4), b"\0\0\0\x40", b"\xff"]),
            st.builds(part, st.integers(0, 7), st.binary(max_size=5)),
        ),
        max_size=10,
    ).map(b"".join),
    st.integers(0, 60),
)
def test_the_next_head_is_the_first_aligned_magic_that_begins_a_record(
    data: bytes, start: int
) -> None:
    begins = [
        at
        for at in aligned_magics(data)
        if at >= start and at + 8 <= len(data) and data[at + 7] >> 5 in (0, 1)
    ]
    assert reader_of(data).next_head(start) == (begins[0] if begins else None)


def test_the_next_head_is_found_across_every_border_between_chunks() -> None:
    stream = io.BytesIO(bytes(9 * MIB // 4))
    reader = RecordReader(stream, "x.rec")
    head = part(1, b"")
    borders = [*range(4096, MIB + 8192, 4096), 2 * MIB - 4096, 2 * MIB, 2 * MIB + 4096]
    for border in borders:
        for at in (border - 8, border - 4, border, border + 4):
            stream.getbuffer()[at : at + 8] = head
            assert reader.next_head(0) == at
            stream.getbuffer()[at : at + 8] = bytes(8)


def test_the_next_head_passes_over_what_only_looks_like_one() -> None:
    decoys = b"x" + MAGIC + bytes(4) + b"xyz" + part(2, b"") + part(3, b"") + part(7, b"")
    reader = reader_of(bytes(4) + decoys * 100_000 + WHOLE + MAGIC)
    assert reader.next_head(0) == 4 + 36 * 100_000
    assert reader.next_head(4 + 36 * 100_000 + 4) is None  # a magic without a length


def test_looking_for_the_next_head_does_not_move_the_reader() -> None:
    reader = reader_of(FILE + bytes(3 * MIB))
    assert reader.read() is not None
    assert reader.next_head(len(FILE)) is None
    assert reader.read() == Record(8, 24, b"abcde", 1)


class CountingStream(io.BytesIO):
    """A stream that counts the bytes asked of it."""

    asked = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked += size or 0
        return super().read(size)


def test_a_head_that_is_near_costs_little_reading() -> None:
    # Where every record is damaged, each costs a search: a megabyte read each time is a hang.
    stream = CountingStream(part(0, b"", 2**29 - 1) * 1000 + bytes(MIB))
    reader = RecordReader(stream, "x.rec")
    for number in range(1000):
        assert reader.next_head(8 * number + 4) == (8 * (number + 1) if number < 999 else None)
    assert stream.asked < 1000 * 5000 + 2 * MIB


# Runs


def salvaged(
    data: bytes, window: int | None, shortest: int = 1
) -> tuple[list[Record], list[tuple[str, int, int | None]], int]:
    """The records of a damaged file, what was lost, and how many records came in runs."""
    lost: list[tuple[str, int, int | None]] = []
    scanner = None
    if window:
        scanner = RunScanner(io.BytesIO(data), len(data), window=window, shortest=shortest)
    records: list[Record] = []
    in_runs = 0
    reader = reader_of(data)
    for found in reader.salvage(lambda e, head: lost.append((str(e), e.offset, head)), scanner):
        if isinstance(found, Run):
            assert len(found) > 0
            run = [found.record(number) for number in range(len(found))]
            assert [each.offset for each in run] == found.offsets.tolist()
            assert [len(each.payload) for each in run] == found.lengths.tolist()
            assert run[-1].end == found.end == reader.offset
            assert not any(aligned_magics(each.payload) for each in run)
            records += run
            in_runs += len(run)
        else:
            records.append(found)
    return records, lost, in_runs


windows = st.sampled_from([8, 12, 16, 32, 64, 1 << 12])


@given(st.lists(payloads, max_size=30), windows)
def test_with_runs_a_sound_file_reads_the_same(contents: list[bytes], window: int) -> None:
    data = b"".join(map(frame, contents))
    records, lost, in_runs = salvaged(data, window)
    assert [record.payload for record in records] == contents
    assert (records, lost) == salvaged(data, None)[:2]
    whole = [record for record in records if record.parts == 1]
    assert in_runs == sum(record.end - record.offset <= window for record in whole)


broken = st.lists(
    st.one_of(
        payloads.map(frame),
        payloads.map(frame),
        st.builds(part, st.integers(0, 7), st.binary(max_size=9) | st.just(b"abcd" + MAGIC)),
        st.builds(part, st.just(0), payloads),
        st.builds(part, st.just(0), st.binary(max_size=9), st.integers(0, 80)),
        st.sampled_from([MAGIC, MAGIC[1:], bytes(4), b"x", part(0, b"ab")[:-1] + b"x"]),
    ),
    max_size=12,
).map(b"".join)


@pytest.mark.parametrize(
    "fault",
    [
        part(0, b"ab")[:-1] + b"x",  # padding
        part(0, b"abc")[:-1] + b"x",
        part(0, b"a")[:-3] + b"x\0\0",
        part(0, b"abcd" + MAGIC),  # a magic that was not cut
        part(0, b"abcd", 8),
        part(0, b"abcd", 3),
        part(0, b"abcd", 0),
        part(0, b"abcd", 2**29 - 1),
        *(part(cflag, b"abcd") for cflag in range(1, 8)),
        bytes(4),
        MAGIC,
    ],
    ids=bytes.hex,
)
def test_with_runs_each_fault_is_told_wherever_a_window_ends(fault: bytes) -> None:
    sound = part(0, b"1") + part(0, b"") + part(0, b"22")
    for data in (fault + sound, sound + fault + sound, sound + fault):
        for window in range(8, len(data) + 8, 4):
            assert salvaged(data, window)[:2] == salvaged(data, None)[:2]


@given(broken, windows)
@settings(max_examples=300)
def test_with_runs_a_damaged_file_reads_the_same(data: bytes, window: int) -> None:
    for shortest in (1, 2, 3):
        assert salvaged(data, window, shortest)[:2] == salvaged(data, None)[:2]


@pytest.mark.parametrize("size", range(8, 60, 4))
def test_a_magic_that_was_not_cut_breaks_a_run_wherever_a_window_ends(size: int) -> None:
    bad = part(0, b"abcd" + MAGIC)  # as a reader takes it, but a writer cuts at the magic
    data = part(0, b"1") + bad + part(0, b"2") + bad
    records, lost, in_runs = salvaged(data, size)
    assert (len(records), lost) == (4, [])
    assert in_runs == (2 if size >= 12 else 0)


@pytest.mark.parametrize("path", RECS, ids=lambda path: "/".join(path.parts[-3:]))
def test_golden_files_read_the_same_in_runs(path: Path) -> None:
    data = path.read_bytes()
    records, lost, in_runs = salvaged(data, 1 << 16)
    assert (records, lost) == salvaged(data, None)[:2]
    assert in_runs == sum(record.parts == 1 for record in records)


def test_a_run_that_ends_early_for_a_fault_is_read_one_by_one() -> None:
    sound, bad = part(0, b"1"), part(0, b"abcd" + MAGIC)
    data = sound * 9 + bad + sound * 10 + bad + sound * 2
    records, lost, in_runs = salvaged(data, 1 << 12, shortest=10)
    assert (len(records), lost) == (23, [])
    assert in_runs == 10 + 2  # nothing but the end is behind the last two


def test_a_run_goes_over_all_records_of_a_window() -> None:
    data = b"".join(part(0, bytes([number])) for number in range(100))
    scanner = RunScanner(io.BytesIO(data), len(data), window=600)
    runs = []
    at = 0
    while run := scanner.run_at(at):
        runs.append(len(run))
        at = run.end
    assert (runs, at) == ([50, 50], 1200)


class Source:
    """A file that gives few bytes at a time; fails, or ends, where it is told to."""

    def __init__(self, data: bytes, step: int, end: int, error: OSError | None = None) -> None:
        self.data, self.step, self.end, self.error = data, step, end, error
        self.at = 0
        self.given: list[tuple[memoryview, bytes]] = []

    def readinto(self, buffer: memoryview) -> int:
        for place, content in self.given[-1:]:
            assert place == content  # what was read last is still as it was
        if self.at >= self.end and self.error:
            raise self.error
        piece = self.data[self.at : min(self.at + min(self.step, len(buffer)), self.end)]
        buffer[: len(piece)] = piece
        self.at += len(piece)
        self.given.append((buffer[: len(piece)], piece))
        return len(piece)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_every_byte_is_read_once_and_stays_until_after_the_next_reading(step: int) -> None:
    data = b"".join(part(0, bytes([number] * (number % 30))) for number in range(200))
    source = Source(data, step, len(data))
    found = [*reader_of(data).salvage(lambda *_: None, RunScanner(source, len(data), window=256))]
    assert all(isinstance(each, Run) for each in found)
    assert b"".join(piece for _, piece in source.given) == data


@pytest.mark.parametrize("error", [None, OSError(5, "Input/output error")])
@pytest.mark.parametrize("end", [0, 1, 16, 30, 399, 400, 401])
def test_where_the_source_ends_or_fails_the_reader_reads_on(
    end: int, error: OSError | None
) -> None:
    data = part(0, b"abcd") * 100
    scanner = RunScanner(Source(data, 64, end, error), len(data), window=256)
    records = 0
    for found in reader_of(data).salvage(lambda *_: None, scanner):
        records += len(found) if isinstance(found, Run) else 1
    assert records == 100


def test_a_file_that_grows_is_read_to_the_size_it_had() -> None:
    data = part(0, b"abcd") * 10
    scanner = RunScanner(io.BytesIO(data * 2), len(data))
    (run,) = reader_of(data).salvage(lambda *_: None, scanner)
    assert isinstance(run, Run)
    assert (len(run), run.end) == (10, len(data))


def test_a_run_gives_the_bytes_of_its_records_as_they_stand() -> None:
    sound = [part(0, bytes([number] * number)) for number in range(1, 80)]
    cut = part(1, b"abcd") + part(3, b"e")
    data = b"".join([*sound, cut, *sound])
    reader, found = reader_of(data), []
    for each in reader.salvage(lambda *_: None, RunScanner(io.BytesIO(data), len(data))):
        found.append(each.framed().tobytes() if isinstance(each, Run) else frame(each.payload))
    assert found == [b"".join(sound), cut, b"".join(sound)]


@given(st.lists(payloads, max_size=5))
def test_what_the_writer_cuts_is_cut_right(contents: list[bytes]) -> None:
    assert all(map(is_cut_right, reader_of(b"".join(map(frame, contents)))))


def test_a_record_that_has_swallowed_others_is_left_for_the_first_of_them() -> None:
    inside = part(0, b"abcd") + part(0, b"efgh")
    reader = reader_of(part(0, inside, len(inside)) + part(0, b"behind"))
    swallower = reader.read()
    assert swallower is not None
    assert not is_cut_right(swallower)
    assert reader.go_inside(swallower) == 8
    assert [each.payload for each in reader] == [b"abcd", b"efgh", b"behind"]


def test_where_there_is_no_head_inside_the_reader_stays_behind_the_record() -> None:
    later_part = MAGIC + struct.pack("<I", 2 << 29)  # no record begins with it
    reader = reader_of(part(0, later_part) + part(0, b"behind"))
    record = reader.read()
    assert record is not None
    assert not is_cut_right(record)
    assert reader.go_inside(record) is None
    assert [each.payload for each in reader] == [b"behind"]


def test_records_inside_each_other_are_read_again_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framing, "MOST_AGAIN", 1)
    data = b"abcd"
    for _ in range(8):
        data = part(0, data)
    reader, gone_into = reader_of(data), 0
    while (record := reader.read()) and not is_cut_right(record):
        gone_into += reader.go_inside(record) is not None
    assert gone_into == 2  # nearly all of the file, and once more
    assert reader.offset == len(data)


def walked(data: bytes, window: int | None) -> tuple[list[Record], list[Damage]]:
    """The sound records of a file, and the places between them."""
    scanner, records, damage = None, list[Record](), list[Damage]()
    if window:
        scanner = RunScanner(io.BytesIO(data), len(data), window=window, shortest=1)
    for found in reader_of(data).walk(damage.append, scanner):
        if isinstance(found, Run):
            records += [found.record(number) for number in range(len(found))]
        else:
            records.append(found)
    return records, damage


@given(broken, windows)
@settings(max_examples=300)
def test_a_walk_gives_sound_records_and_tells_all_between_them(data: bytes, window: int) -> None:
    records, damage = walked(data, window)
    assert (records, damage) == walked(data, None)
    at = 0
    for each in sorted([*records, *damage], key=lambda each: each.offset):
        assert each.offset == at < each.end
        at = each.end
    assert at == len(data)
    for record in records:
        assert data[record.offset : record.end] == frame(record.payload)
    for place in damage:
        assert place.offset <= place.at <= len(data)
        assert place.head in (None, place.end)
        assert (place.code == "cut") == (place.record is not None)


@given(st.lists(payloads.map(frame), min_size=3, max_size=9), st.data(), windows)
def test_a_length_that_spans_over_neighbours_costs_one_record(
    rows: list[bytes], data: st.DataObject, window: int
) -> None:
    first = data.draw(st.integers(0, len(rows) - 2))
    last = data.draw(st.integers(first + 1, len(rows) - 1))
    start, end = (len(b"".join(rows[:number])) for number in (first, last + 1))
    whole = bytearray(b"".join(rows))
    struct.pack_into("<I", whole, start + 4, end - start - 8)
    records, damage = walked(bytes(whole), window)
    kept = [*rows[:first], *rows[first + 1 :]]
    if heads(rows[first]) == [0]:  # else its own later parts are damage of their own
        assert [frame(record.payload) for record in records] == kept
        assert [(place.code, place.offset) for place in damage] == [("cut", start)]
        assert damage[0].head == damage[0].end == start + len(rows[first])
    assert damage[0].record is not None
    assert damage[0].record.end == end
