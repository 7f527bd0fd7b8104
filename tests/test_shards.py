"""The shards of a set as they are written: every record in its place, indexes and digests."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import subprocess
import sys
from collections.abc import Sequence
from glob import glob
from pathlib import Path

import pytest
from conftest import names, put
from hypothesis import example, given, settings
from hypothesis import strategies as st

from im2rec.errors import OutputError
from im2rec.framing import RecordReader, frame
from im2rec.index import parse_index
from im2rec.output import Output, writing
from im2rec.shards import DigestStep, HeldPart, Piece, SetWriter, ShardDigest, ShardFacts

Part = list[tuple[int, bytes]]  # keys and payloads


class Writing:
    """A set while it is written: places parts in order, and writes and reads them at any time."""

    def __init__(self, output: Output, shard_size: int | None, held_size: int = 100) -> None:
        self.output, self.held_size = output, held_size
        self.writer = SetWriter(output, shard_size)
        self.waiting: list[tuple[HeldPart, tuple[Piece, ...]]] = []
        self.readers: dict[str, ShardDigest] = {}
        self.digests: dict[str, str] = {}

    def place(self, part: Part, shard: int | None) -> None:
        held = HeldPart(self.output.work, self.held_size)
        framed = [frame(payload) for _, payload in part]
        with writing(self.output.prefix):
            for record in framed:
                held.writelines([record[:4], record[4:-3], record[-3:], b""])
        sizes = [(key, len(record)) for (key, _), record in zip(part, framed, strict=True)]
        self.waiting.append((held, self.writer.place(sizes, shard)))

    def write(self, number: int) -> None:
        held, pieces = self.waiting[number]
        with writing(self.output.prefix):
            held.put(pieces)
        self.waiting.pop(number)
        self.writer.written(pieces)

    def read(self) -> None:
        for step in self.writer.digest_steps(lambda _: True):
            assert step.file not in self.digests
            if step.file not in self.readers:
                self.readers[step.file] = ShardDigest(step.file)
            if digest := self.readers[step.file].take(step):
                self.digests[step.file] = digest

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        for held, _pieces in self.waiting:
            held.close()
        for reader in self.readers.values():
            reader.close()
        self.writer.__exit__()

    def finish(self) -> list[ShardFacts]:
        self.writer.end()
        while self.waiting:
            self.write(-1)
        self.read()
        facts, published = self.writer.finish(self.digests)
        self.output.publish(published)
        return facts


def pack(
    prefix: str,
    parts: Sequence[tuple[Part, int | None]],
    shard_size: int | None = None,
    seed: int = 0,
) -> list[ShardFacts]:
    """Writes and publishes a set of parts, each with the number of its shard."""
    chance = random.Random(seed)
    with Output(prefix, fsync=bool(seed % 2)) as output, Writing(output, shard_size) as work:
        for part, shard in parts:
            work.place(part, shard)
            while work.waiting and chance.random() < 0.4:
                work.write(chance.randrange(len(work.waiting)))
                if chance.random() < 0.5:
                    work.read()
        return work.finish()


def read(prefix: str, facts: Sequence[ShardFacts]) -> list[Part]:
    """The records of each shard; asserts that facts, indexes and the joint index are right."""
    folder = Path(prefix).parent
    shards, joint, start = [], [], 0
    for fact in facts:
        data = (folder / fact.rec).read_bytes()
        assert (fact.bytes, fact.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        entries, faults = parse_index((folder / fact.idx).read_bytes(), fact.idx)
        assert faults == []
        assert len(entries) == fact.records
        with (folder / fact.rec).open("rb") as stream:
            records = list(RecordReader(stream, fact.rec))
        assert [offset for _, offset in entries] == [record.offset for record in records]
        shards.append(
            [(entry.key, rec.payload) for entry, rec in zip(entries, records, strict=True)]
        )
        joint += [(key, start + offset) for key, offset in entries]
        start += len(data)
    if len(facts) > 1:
        assert parse_index(Path(prefix + ".idx").read_bytes(), "joint") == (joint, [])
    return shards


def joined(parts: Sequence[Part]) -> Part:
    return [record for part in parts for record in part]


def part_of(first: int, *sizes: int) -> Part:
    """Payloads whose records are of these sizes (multiples of 4, from 8 on)."""
    return [(first + at, bytes([(first + at) % 256]) * (size - 8)) for at, size in enumerate(sizes)]


def test_one_shard_has_the_plain_names(prefix: str, tmp_path: Path) -> None:
    parts = [part_of(0, 20, 40), part_of(7, 8)]
    facts = pack(prefix, [(part, None) for part in parts])
    data = b"".join(frame(payload) for part in parts for _, payload in part)
    digest = hashlib.sha256(data).hexdigest()
    assert facts == [ShardFacts("set.rec", "set.idx", 3, 68, digest)]
    assert names(tmp_path) == ["set.idx", "set.rec"]
    assert (tmp_path / "set.idx").read_bytes() == b"0\t0\n1\t20\n7\t60\n"
    assert read(prefix, facts) == [parts[0] + parts[1]]


def test_a_shard_closes_before_it_would_pass_its_size(prefix: str, tmp_path: Path) -> None:
    part = part_of(0, 40, 60, 20, 80, 8, 8)
    facts = pack(prefix, [(part, None)], shard_size=100)
    assert [(fact.rec, fact.records, fact.bytes) for fact in facts] == [
        ("set_000.rec", 2, 100),
        ("set_001.rec", 2, 100),
        ("set_002.rec", 2, 16),
    ]
    assert (tmp_path / "set_001.idx").read_bytes() == b"2\t0\n3\t20\n"
    assert (tmp_path / "set.idx").read_bytes() == b"0\t0\n1\t40\n2\t100\n3\t120\n4\t200\n5\t208\n"
    assert names(tmp_path) == [
        "set.idx",
        *[f"set_00{number}.{ending}" for number in range(3) for ending in ("idx", "rec")],
    ]
    assert read(prefix, facts) == [part[:2], part[2:4], part[4:]]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_record_larger_than_a_shard_has_one_for_itself(at: int, prefix: str) -> None:
    part = part_of(0, 20, 20)
    part.insert(at, (9, bytes(500)))
    facts = pack(prefix, [(part, None)], shard_size=60)
    expected = [part[:at], [part[at]], part[at + 1 :]]
    assert read(prefix, facts) == [shard for shard in expected if shard]


@pytest.mark.parametrize("size", [40, 44, 10_000])
def test_parts_without_records_make_no_shard(size: int, prefix: str) -> None:
    parts = [[], part_of(0, 40), [], part_of(1, 40), []]
    facts = pack(prefix, [(part, None) for part in parts], shard_size=size)
    both = [parts[1], parts[3]]
    assert read(prefix, facts) == ([joined(both)] if size > 80 else both)


def test_nothing_at_all_gives_no_shard(prefix: str, tmp_path: Path) -> None:
    assert pack(prefix, [([], None), ([], 3)]) == []
    assert names(tmp_path) == []


def test_shards_by_number_are_renumbered_where_one_is_empty(prefix: str, tmp_path: Path) -> None:
    parts: list[tuple[Part, int | None]] = [
        (part_of(0, 20), 0),
        (part_of(1, 24), 0),
        ([], 1),
        (part_of(2, 28), 2),
        ([], 2),
        (part_of(3, 32), 3),
    ]
    facts = pack(prefix, parts)
    assert [fact.rec for fact in facts] == ["set_000.rec", "set_001.rec", "set_002.rec"]
    assert read(prefix, facts) == [part_of(0, 20, 24), part_of(2, 28), part_of(3, 32)]
    assert (tmp_path / "set.idx").read_bytes() == b"0\t0\n1\t20\n2\t44\n3\t72\n"


def test_the_only_shard_with_records_has_the_plain_names(prefix: str, tmp_path: Path) -> None:
    facts = pack(prefix, [([], 0), (part_of(5, 20), 1), ([], 2)])
    assert [fact.rec for fact in facts] == ["set.rec"]
    assert names(tmp_path) == ["set.idx", "set.rec"]


@pytest.mark.parametrize("stem", ["0", "1", "joint", "lock", "part0", "set.rec"])
@pytest.mark.parametrize("shard_size", [None, 8])
def test_a_prefix_may_be_named_as_the_files_of_the_work_folder(
    stem: str, shard_size: int | None, tmp_path: Path
) -> None:
    prefix = str(tmp_path / stem)
    part = part_of(0, 20, 24, 28)
    facts = pack(prefix, [(part, None)], shard_size)
    assert joined(read(prefix, facts)) == part


part_lists = st.lists(st.lists(st.integers(2, 30).map(lambda words: 4 * words)), max_size=6)


@given(part_lists, st.one_of(st.none(), st.integers(1, 200)), st.integers(0, 1000))
@example([[8]], 1, 0)
@settings(max_examples=100)
def test_shards_hold_every_record_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[list[int]],
    shard_size: int | None,
    seed: int,
) -> None:
    prefix = str(tmp_path_factory.mktemp("set") / "set")
    parts, key = [], 0
    for part_sizes in sizes:
        parts.append(part_of(key, *part_sizes))
        key += len(part_sizes)
    facts = pack(prefix, [(part, None) for part in parts], shard_size, seed)
    shards = read(prefix, facts)
    assert joined(shards) == joined(parts)
    assert all(shards)
    if shard_size is None:
        assert len(facts) == bool(key)
        return
    assert all(fact.bytes <= shard_size or fact.records == 1 for fact in facts)
    for fact, after in zip(facts, shards[1:], strict=False):  # none is closed without need
        assert fact.bytes + len(frame(after[0][1])) > shard_size


def test_a_file_that_is_shorter_than_what_was_written_is_an_error(
    prefix: str, tmp_path: Path
) -> None:
    with Output(prefix, fsync=False) as output, Writing(output, None) as work:
        work.place(part_of(0, 60, 60), None)
        work.write(0)
        (rec,) = glob(output.path("*.rec"))
        os.truncate(rec, 119)
        with pytest.raises(OutputError) as caught:
            work.read()
    assert str(caught.value) == f"{rec}: cannot write: a file of the set became shorter"
    assert names(tmp_path) == []


def test_only_what_is_there_without_a_gap_is_read(prefix: str) -> None:
    with Output(prefix, fsync=False) as output, Writing(output, None) as work:
        for key in range(3):
            work.place(part_of(key, 20), None)
        ends = []
        for number in (2, 0, 0):  # the third part, the first, the second
            work.write(number)
            ends += [step.end for step in work.writer.digest_steps(lambda _: True)]
        assert ends == [20, 60]


def test_a_file_is_read_by_whom_it_belongs_to(prefix: str) -> None:
    with Output(prefix, fsync=True) as output, Writing(output, 20) as work:
        for key in range(2):
            work.place(part_of(key, 20), None)
            work.write(0)
        first, second = sorted(glob(output.path("*.rec")))
        assert work.writer.digest_steps(lambda file: file == second) == (
            DigestStep(second, 0, 20, False, True),
        )
        assert work.writer.digest_steps(lambda _: True) == (DigestStep(first, 0, 20, True, True),)
        work.writer.end()
        assert work.writer.digest_steps(lambda _: True) == (DigestStep(second, 20, 20, True, True),)
        assert work.writer.digest_steps(lambda _: True) == ()


def fill_up(prefix: str, limit: str, records: str, size: str) -> None:
    """In a process of its own, whose files cannot grow beyond a limit: packs records of one size,
    ten in a part, and says what came of it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    firsts = range(10**18, 10**18 + int(records), 10)
    parts = [part_of(first, *[int(size)] * 10) for first in firsts]
    try:
        print(len(pack(prefix, [(part, None) for part in parts], 30_000)))
    except OutputError as error:
        print(error)


def filled_up(prefix: str, *arguments: int) -> str:
    """What it says, of files left open, too."""
    code = "import sys, test_shards; test_shards.fill_up(*sys.argv[1:])"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code, prefix]
    said = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=True,
    )
    return said.stdout


@pytest.mark.parametrize(
    ("limit", "records", "size"),
    [
        (8000, 60, 800),  # the first part fits, the shard does not
        (24_000, 60, 800),
        (29_999, 60, 1000),  # a shard closes at 30,000
        (5000, 150, 40),  # all is still in the buffer when it is to close
        (9000, 600, 8),  # the index is larger than the records
    ],
)
def test_a_disk_that_is_full_leaves_the_older_set_untouched(
    limit: int, records: int, size: int, prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, "set.rec", "set.idx")
    expected = f"{prefix}: cannot write: file too large\n"
    assert filled_up(prefix, limit, records, size) == expected
    assert names(tmp_path) == ["set.idx", "set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"


def test_a_disk_with_room_is_no_error(prefix: str, tmp_path: Path) -> None:
    assert filled_up(prefix, 30_000, 60, 1000) == "2\n"
    assert filled_up(prefix, 30_000, 600, 8) == "1\n"
    assert len(names(tmp_path)) == 6  # the joint index was replaced by that of the one shard
