"""The files of a set: whole or not at all, under the right names, and found again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import IO, Any

import pytest
from conftest import CLEAN, GOLDEN, INTERRUPTER
from hypothesis import example, given, settings
from hypothesis import strategies as st

from im2rec import image_record
from im2rec.errors import BusyError, InputError, OutputError
from im2rec.framing import RecordReader, frame
from im2rec.index import parse_index
from im2rec.shards import (
    DigestStep,
    HeldPart,
    Output,
    Piece,
    RecordSet,
    SetWriter,
    ShardDigest,
    ShardFacts,
    find_classes,
    find_set,
    kept_count,
    manifest_fault,
    manifest_names,
    other_format,
    read_classes,
    read_manifest,
    shard_stem,
    write_manifest,
    writing,
)

Part = list[tuple[int, bytes]]  # keys and payloads


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def put(folder: Path, *files: str, content: str = "") -> None:
    for name in files:
        (folder / name).write_text(content or name, encoding="utf-8")


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return str(tmp_path / "set")


# --- Output -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", [True, False])
def test_files_are_published_and_stale_ones_removed(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, "set.rec", "set_000.rec", "set_001.rec", "other.rec", content="older")
    with Output(prefix, fsync=fsync) as output:
        files = {
            "set.rec": output.write("other name", b"new rec"),
            "set.idx": output.write("set.idx", b"new idx"),
        }
        assert (tmp_path / "set.rec").read_bytes() == b"older"
        stale = ["set.rec", "set_000.rec", "set_001.rec", "set_002.rec"]
        assert output.publish(files, stale) == ["set.rec", "set.idx"]
    assert names(tmp_path) == ["other.rec", "set.idx", "set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"new rec"
    assert (tmp_path / "set.idx").read_bytes() == b"new idx"


@pytest.mark.parametrize("fsync", [True, False])
def test_what_has_the_same_bytes_is_left_alone_if_asked(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    older = {"same": b"abc", "other": b"abd", "longer": b"abcd", "shorter": b"ab", "empty": b""}
    for name, content in older.items():
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (0, 0))
    wanted = {**dict.fromkeys(older, b"abc"), "empty": b"", "new": b"abc"}
    with Output(prefix, fsync=fsync) as output:
        files = {name: output.write(name, content) for name, content in wanted.items()}
        changed = output.publish(files, stale=["same"], if_changed=True)
    assert changed == ["other", "longer", "shorter", "new"]
    for name, content in wanted.items():
        assert (tmp_path / name).read_bytes() == content
        assert ((tmp_path / name).stat().st_mtime == 0) == (name not in changed)
    assert names(tmp_path) == sorted(wanted)


def test_what_is_noted_stays_until_something_is_published(prefix: str, tmp_path: Path) -> None:
    def run(*, keep: bool, publish: bool = False) -> dict[str, bytes]:
        with Output(prefix, fsync=False, keep=keep) as output:
            notes = output.notes()
            for name in ("one.rec", "one.idx", "two.rec", "two.idx"):
                output.write(name, b"new")
            output.keep_note("one", b"is whole")
            if publish:
                output.publish({"set.rec": output.path("two.rec")})
        return notes

    assert run(keep=False) == {}
    assert names(tmp_path) == []
    kept = [".set.im2rec"] + [f".set.im2rec/one{end}" for end in (".idx", ".rec", ".whole")]
    for _ in range(2):
        run(keep=True)
        assert names(tmp_path) == kept
        assert kept_count(prefix) == 1
    with Output(prefix, fsync=False, keep=True) as output:
        assert output.notes() == {"one": b"is whole"}
        output.forget("one")
        output.forget("two")
        assert output.notes() == {}
    assert names(tmp_path) == []
    run(keep=True)
    assert run(keep=True, publish=True) == {"one": b"is whole"}
    assert names(tmp_path) == ["set.rec"]
    assert kept_count(prefix) == 0


def test_what_could_not_be_published_is_kept_where_it_lay(prefix: str, tmp_path: Path) -> None:
    put(tmp_path, "set.rec")
    with Output(prefix, fsync=False, keep=True) as output:
        files = {"set.rec": output.write("one.rec", b"new"), "none": output.path("never written")}
        output.write("one.idx", b"")
        output.keep_note("one", b"")
        with pytest.raises(OutputError):
            output.publish(files)
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"
    assert (tmp_path / ".set.im2rec" / "one.rec").read_bytes() == b"new"


def test_an_exception_leaves_the_older_set_untouched(prefix: str, tmp_path: Path) -> None:
    put(tmp_path, "set.rec", "set.idx")

    def run() -> None:
        with Output(prefix, fsync=True) as output:
            output.write("set.rec", b"new")
            (Path(output.work) / "a folder").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert names(tmp_path) == ["set.idx", "set.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"


def test_what_is_not_published_leaves_no_file(prefix: str, tmp_path: Path) -> None:
    with Output(prefix, fsync=True) as output:
        output.write("set.rec", b"new")
        assert names(tmp_path) == [".set.im2rec", ".set.im2rec/lock", ".set.im2rec/set.rec"]
    assert names(tmp_path) == []


def test_a_prefix_without_a_folder_is_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Output("set", fsync=True) as output:
        output.publish({"set.rec": output.write("set.rec", b"new")})
    assert names(tmp_path) == ["set.rec"]


def publish_error(prefix: str, published: Sequence[str], fsync: bool) -> str:
    with Output(prefix, fsync=fsync) as output:
        output.write("set.rec", b"new")
        output.write("set.idx", b"new")
        files = {name: output.path(name) for name in published}
        with pytest.raises(OutputError) as caught:
            output.publish(files, stale=["set_000.rec"])
    return str(caught.value)


@pytest.mark.parametrize("fsync", [True, False])
def test_a_folder_in_the_way_is_found_before_anything_is_renamed(
    fsync: bool, prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, "set.rec", "set_000.rec")
    (tmp_path / "set.idx").mkdir()
    assert publish_error(prefix, ["set.rec", "set.idx"], fsync) == (
        f"{prefix}.idx: cannot write: there is a folder of this name; move it away"
    )
    assert names(tmp_path) == ["set.idx", "set.rec", "set_000.rec"]
    assert (tmp_path / "set.rec").read_bytes() == b"set.rec"


@pytest.mark.parametrize("older", [["set.rec", "set.idx"], ["set.rec"], ["set.idx"], []])
@pytest.mark.parametrize("fsync", [True, False])
def test_where_one_file_cannot_be_published_none_is(
    fsync: bool, older: list[str], prefix: str, tmp_path: Path
) -> None:
    put(tmp_path, *older)
    assert publish_error(prefix, ["set.rec", "set.idx", "never written"], fsync) == (
        f"{tmp_path / 'never written'}: cannot write: no such file or directory"
    )
    assert names(tmp_path) == sorted(older)
    for name in older:
        assert (tmp_path / name).read_text(encoding="utf-8") == name


def publish_and_be_interrupted(prefix: str) -> None:
    """In a process of its own, which another one interrupts ever a little later: publishes 100
    files, and says how many are there then."""
    files = [f"set{number}" for number in range(100)]

    def run(interrupter: IO[bytes], delay: float) -> None:
        with Output(prefix, fsync=False) as output:
            written = {name: output.write(name, b"new") for name in files}
            interrupter.write(b"%f\n" % delay)
            interrupter.flush()
            output.publish(written)
        while True:
            time.sleep(0.1)

    with subprocess.Popen([sys.executable, "-c", INTERRUPTER], stdin=subprocess.PIPE) as process:
        assert process.stdin
        for step in range(50):
            with pytest.raises(KeyboardInterrupt):
                run(process.stdin, step / 10_000)
            there = list(Path(prefix).parent.glob("set*"))
            print(len(there))
            for path in there:
                path.unlink()


def test_a_signal_ends_the_run_before_or_after_it_publishes(prefix: str) -> None:
    code = "import sys, test_shards; test_shards.publish_and_be_interrupted(sys.argv[1])"
    said = subprocess.run(
        [sys.executable, "-c", code, prefix],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        timeout=100,
        check=True,
    )
    counts = said.stdout.split()
    assert len(counts) == 50
    assert set(counts) <= {b"0", b"100"}


def open_error(prefix: str) -> str:
    with pytest.raises(OutputError) as caught:
        Output(prefix, fsync=True).__enter__()
    return str(caught.value)


def test_a_prefix_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    assert open_error(f"{tmp_path}/") == (
        f"{tmp_path}/: cannot write: the prefix ends with no name; give PREFIX a name"
    )
    assert open_error(f"{tmp_path}/none/set") == (
        f"{tmp_path}/none/set: cannot write: there is no folder '{tmp_path}/none'; make it"
    )
    put(tmp_path, "file", ".set.im2rec")
    assert open_error(f"{tmp_path}/file/set").endswith(
        f"there is no folder '{tmp_path}/file'; make it"
    )
    assert open_error(f"{tmp_path}/set") == (
        f"{tmp_path}/.set.im2rec: cannot write: not a folder; remove it"
    )
    assert open_error(f"{tmp_path}/{'s' * 250}").endswith("cannot write: file name too long")
    assert open_error(f"{tmp_path}/caf\udce9").endswith(
        "the name is not UTF-8; choose another PREFIX"
    )
    assert names(tmp_path) == [".set.im2rec", "file"]


def test_a_folder_that_may_not_be_written_says_so() -> None:
    found = open_error("/proc/self/set")  # not even root may
    assert found == "/proc/self/.set.im2rec: cannot write: no such file or directory"


# --- two runs at once -------------------------------------------------------------------------


def hold(prefix: str) -> None:
    """In a process of its own: holds a prefix, with something in hand, until it is killed."""
    with Output(prefix, fsync=True) as output:
        output.write("set.rec", b"half")
        os.mkdir(output.path("notes"))
        Path(output.path("notes"), "1").touch()
        print("held", flush=True)
        sys.stdin.read()


@pytest.fixture
def holder(prefix: str) -> Iterator[subprocess.Popen[str]]:
    code = "import sys, test_shards; test_shards.hold(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, prefix],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_run_on_the_prefix_is_refused_and_harms_nothing(
    holder: subprocess.Popen[str], prefix: str, tmp_path: Path
) -> None:
    before = names(tmp_path)
    for same in (prefix, f"{tmp_path}/../{tmp_path.name}/set"):
        with pytest.raises(BusyError) as caught:
            Output(same, fsync=True).__enter__()
        assert str(caught.value) == (
            f"{same}: another im2rec run is writing this prefix; "
            "wait until it ends, or choose another PREFIX"
        )
    assert names(tmp_path) == before
    with Output(f"{prefix}2", fsync=True):  # another prefix is free
        pass
    holder.communicate("")
    assert holder.returncode == 0
    with Output(prefix, fsync=True):
        pass
    assert names(tmp_path) == []


def test_the_lock_dies_with_its_holder_and_what_it_left_is_cleared(
    holder: subprocess.Popen[str], prefix: str, tmp_path: Path
) -> None:
    holder.kill()
    holder.wait()
    assert ".set.im2rec/notes/1" in names(tmp_path)
    with Output(prefix, fsync=True):
        assert names(tmp_path) == [".set.im2rec", ".set.im2rec/lock"]
    assert names(tmp_path) == []


def race(prefix: str, rounds: str) -> None:
    """In a process of its own: takes the prefix again and again, and checks that it is its own."""
    taken = 0
    while taken < int(rounds):
        try:
            with Output(prefix, fsync=False) as output:
                output.write("mine", str(os.getpid()).encode())
                output.write("set.rec", b"")
                assert Path(output.path("mine")).read_bytes() == str(os.getpid()).encode()
                output.publish({"mine": output.path("mine")})
                taken += 1
        except BusyError:
            continue


def test_two_runs_never_hold_the_prefix_together(prefix: str, tmp_path: Path) -> None:
    code = "import sys, test_shards; test_shards.race(*sys.argv[1:])"
    command = [sys.executable, "-c", code, prefix, "100"]
    racers = [subprocess.Popen(command, cwd=Path(__file__).parent) for _ in range(3)]
    assert [racer.wait() for racer in racers] == [0, 0, 0]
    assert names(tmp_path) == ["mine"]


# --- SetWriter --------------------------------------------------------------------------------


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


# --- finding a set ----------------------------------------------------------------------------


def manifest(*shards: str, **more: object) -> str:
    return json.dumps({"shards": [{"rec": f"{s}.rec", "idx": f"{s}.idx"} for s in shards], **more})


def found(folder: Path, argument: str) -> RecordSet:
    """The set, with paths relative to the folder."""
    record_set = find_set(os.path.join(folder, argument))

    def short(path: str | None) -> Any:
        return path and os.path.relpath(path, folder)

    return RecordSet(
        short(record_set.name),
        short(record_set.prefix),
        tuple(map(short, record_set.recs)),
        tuple(map(short, record_set.idxs)),
        short(record_set.joint),
        short(record_set.manifest),
        tuple(map(short, record_set.missing)),
    )


def test_a_prefix_and_its_rec_name_the_same_file(tmp_path: Path) -> None:
    put(tmp_path, "set.rec", "set.idx", "set.manifest.json", "set_old.rec", "settle.rec")
    for name in ("set", "set.rec"):
        expected = RecordSet(name, "set", ("set.rec",), ("set.idx",), None, "set.manifest.json")
        assert found(tmp_path, name) == expected


def test_a_file_without_an_index_is_found(tmp_path: Path) -> None:
    put(tmp_path, "set.rec")
    assert found(tmp_path, "set") == RecordSet("set", "set", ("set.rec",), (None,), None, None)


def test_a_prefix_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "set.rec", "b_000.rec")
    monkeypatch.chdir(tmp_path)
    assert find_set("set") == RecordSet("set", "set", ("set.rec",), (None,), None, None)
    assert find_set("b") == RecordSet("b", "b", ("b_000.rec",), (None,), None, None)


def test_shards_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    recs = tuple(f"set_{number:03d}.rec" for number in (0, 2, *range(900, 1100, 7)))
    put(
        tmp_path,
        *reversed(recs),
        "set_00.rec",
        "set_x.rec",
        "set_0001.rec.old",
        "aset_000.rec",
        "set.idx",
    )
    put(tmp_path, "set_002.idx")
    idxs = (None, "set_002.idx", *[None] * (len(recs) - 2))
    expected = RecordSet("set", "set", recs, idxs, "set.idx", None)
    assert found(tmp_path, "set") == expected
    alone = RecordSet("set_002.rec", "set_002", ("set_002.rec",), ("set_002.idx",), None, None)
    assert found(tmp_path, "set_002.rec") == alone


def test_the_manifest_says_which_shards_there_are(tmp_path: Path) -> None:
    put(tmp_path, "set_000.rec", "set_002.rec", "set_003.rec", "set_002.idx", "set.idx", "set.rec")
    put(tmp_path, "set.manifest.json", content=manifest("set_000", "set_001", "set_002"))
    assert found(tmp_path, "set") == RecordSet(
        "set",
        "set",
        ("set_000.rec", "set_002.rec"),
        (None, "set_002.idx"),
        "set.idx",
        "set.manifest.json",
        ("set_001.rec",),
    )


def test_a_set_of_which_nothing_is_left_is_all_missing(tmp_path: Path) -> None:
    put(tmp_path, "set.manifest.json", content=manifest("set_000", "set_001"))
    expected = ("set_000.rec", "set_001.rec")
    assert found(tmp_path, "set").missing == expected
    assert found(tmp_path, "set").recs == ()


@pytest.mark.parametrize("content", ["{", "[]", '{"shards": []}', manifest("../x")])
def test_a_manifest_that_names_nothing_is_passed_over(content: str, tmp_path: Path) -> None:
    put(tmp_path, "set.rec")
    put(tmp_path, "set.manifest.json", content=content)
    expected = RecordSet("set", "set", ("set.rec",), (None,), None, "set.manifest.json")
    assert found(tmp_path, "set") == expected


@pytest.mark.parametrize("rec", ["set.rec", "set_000.rec"])
def test_a_prefix_wins_over_a_folder_or_file_of_its_name(rec: str, tmp_path: Path) -> None:
    put(tmp_path, rec)
    (tmp_path / "set").mkdir()
    assert found(tmp_path, "set").recs == (rec,)
    (tmp_path / "set").rmdir()
    put(tmp_path, "set")
    assert found(tmp_path, "set").recs == (rec,)


def test_any_other_file_is_taken_for_itself(tmp_path: Path) -> None:
    put(tmp_path, "set.bin")
    assert found(tmp_path, "set.bin") == RecordSet(
        "set.bin", "set.bin", ("set.bin",), (None,), None, None
    )


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("folder", "is a folder; name a .rec file or a prefix"),
        ("folder/", "is a folder; name a .rec file or a prefix"),
        ("folder.rec", "is a folder; name a .rec file or a prefix"),
        ("none.rec", "there is no such file"),
        (
            "none",
            "there is no such file, and no set with this prefix; expected {0}.rec or {0}_000.rec",
        ),
        (
            "file/none",
            "there is no such file, and no set with this prefix; expected {0}.rec or {0}_000.rec",
        ),
        (
            "no/folder",
            "there is no such file, and no set with this prefix; expected {0}.rec or {0}_000.rec",
        ),
    ],
)
def test_what_is_no_set_says_so(argument: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.rec").mkdir()
    put(tmp_path, "file")
    path = f"{tmp_path}/{argument}"
    with pytest.raises(InputError) as caught:
        find_set(path)
    assert str(caught.value) == f"{path}: " + expected.format(path)


def test_a_folder_is_no_index_and_no_shard(tmp_path: Path) -> None:
    put(tmp_path, "set.rec", "set_001.rec")
    for name in ("set.idx", "set_000.rec", "set_001.idx"):
        (tmp_path / name).mkdir()
    assert found(tmp_path, "set").idxs == (None,)
    (tmp_path / "set.rec").unlink()
    record_set = found(tmp_path, "set")
    assert (record_set.recs, record_set.idxs, record_set.joint) == (("set_001.rec",), (None,), None)


# --- the manifest -----------------------------------------------------------------------------


def test_a_manifest_comes_back_as_it_was_written(prefix: str) -> None:
    contents = {"classes": ["Käfer", "蚂蚁"], "shards": [{"rec": "a.rec", "idx": "a.idx", "n": 1}]}
    data = write_manifest(contents)
    assert data.endswith(b"}\n")
    assert "蚂蚁".encode() in data
    Path(prefix).write_bytes(data)
    assert read_manifest(prefix) == contents


def test_the_end_of_a_manifest_is_the_sha256_of_all_before(prefix: str) -> None:
    data = write_manifest({"shards": [], "list": {"sha256": "of another"}})
    lines = data.splitlines(keepends=True)
    digest = hashlib.sha256(b"".join(lines[:-2])).hexdigest()
    assert lines[-2:] == [f'  "sha256": "{digest}"\n'.encode(), b"}\n"]
    Path(prefix).write_bytes(data)
    assert manifest_fault(prefix) is None
    for other in (data[:-1], data + b" ", data.replace(b"of", b"by"), data.replace(b"\n", b"\r\n")):
        Path(prefix).write_bytes(other)
        assert read_manifest(prefix)["shards"] == []  # what it says can still be read
        assert "own sha256 is not" in (manifest_fault(prefix) or "")
    Path(prefix).write_text('{"shards": [{\n      "sha256": "of a shard"}]}', encoding="utf-8")
    assert manifest_fault(prefix) == "its own sha256 is not there, on the last line but one"
    Path(prefix).unlink()
    with pytest.raises(InputError, match="not a manifest: "):
        manifest_fault(prefix)


NO_NAMES = "not a manifest: no list of shards with their file names"


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        "{}",
        '{"shards": null}',
        '{"shards": {"rec": "a.rec", "idx": "a.idx"}}',
        '{"shards": [1]}',
        '{"shards": [{"rec": "a.rec"}]}',
        '{"shards": [{"rec": "a.rec", "idx": 5}]}',
        *[
            json.dumps({"shards": [{"rec": rec, "idx": idx}]})
            for name in ("", ".", "..", "../a", "/etc/passwd", "a/b", "./a", "a/", "a\0b")
            for rec, idx in ((name, "a.idx"), ("a.rec", name))
        ],
    ],
)
def test_a_manifest_names_files_beside_it_and_nothing_else(content: str, prefix: str) -> None:
    Path(prefix).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_manifest(prefix)
    assert str(caught.value) == f"{prefix}: {NO_NAMES}"


@pytest.mark.parametrize("joint", ["../a.idx", "/a.idx", "..", "", 5, ["a.idx"], {}])
def test_nor_does_its_joint_index(joint: object, prefix: str) -> None:
    Path(prefix).write_text(manifest("a", joint_index=joint), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_manifest(prefix)
    assert str(caught.value) == f"{prefix}: not a manifest: joint_index {joint!r} is no file name"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe\xfa", b"[" * 100_000, b'{"shards": ' + b"9" * 5000 + b"}", b"{'a': 1}"],
    ids=["empty", "cut", "not UTF-8", "too deep", "too long a number", "not JSON"],
)
def test_what_is_no_json_is_no_manifest(data: bytes, prefix: str) -> None:
    Path(prefix).write_bytes(data)
    with pytest.raises(InputError, match="not a manifest: "):
        read_manifest(prefix)


def test_a_missing_manifest_is_an_input_error(prefix: str) -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(prefix)
    assert "o such file or directory" in str(caught.value)


def test_a_manifest_s_own_files_are_those_of_its_prefix(prefix: str, tmp_path: Path) -> None:
    assert manifest_names(prefix) == []
    path = tmp_path / "set.manifest.json"
    path.write_text(manifest("set_000", "set_001", joint_index="set.idx"), encoding="utf-8")
    shards = [f"set_00{n}.{ending}" for n in (0, 1) for ending in ("rec", "idx")]
    assert manifest_names(prefix) == [*shards, "set.idx"]
    path.write_text(manifest("set", joint_index=None), encoding="utf-8")
    assert manifest_names(prefix) == ["set.rec", "set.idx"]
    foreign = ("other", "set2", "set_x", "set_0", "xset", "set_000.rec", "")
    path.write_text(manifest(*foreign, joint_index="other.idx"), encoding="utf-8")
    assert manifest_names(prefix) == []  # a copied manifest must not remove another set
    path.write_text("{", encoding="utf-8")
    assert manifest_names(prefix) == []


# --- classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"ant\nbee\n", ["ant", "bee"]),
        (b"ant\nbee", ["ant", "bee"]),
        (b"\xef\xbb\xbfant\r\nbee\r\n", ["ant", "bee"]),
        ("Käfer\n n02 \n".encode(), ["Käfer", " n02 "]),
        (b"a\x0bb\xc2\x85c\n", ["a\x0bb\x85c"]),  # no line ends but LF and CRLF
        (b"", []),
    ],
)
def test_a_class_map_is_read(data: bytes, expected: list[str], prefix: str) -> None:
    Path(prefix).write_bytes(data)
    assert read_classes(prefix) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"ant\n\nbee\n", "line 2 is empty, expected a class name"),
        (b"\n", "line 1 is empty, expected a class name"),
        (b"ant\r\n\r\nbee", "line 2 is empty, expected a class name"),
        (b"ant\nbee\nant\n", "the class 'ant' stands there twice"),
        (b"ant\xff\n", "cannot read the class map: it is not UTF-8"),
        (None, "cannot read the class map: No such file or directory"),
    ],
)
def test_a_class_map_that_makes_no_sense_says_why(
    data: bytes | None, expected: str, prefix: str
) -> None:
    if data is not None:
        Path(prefix).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_classes(prefix)
    assert str(caught.value) == f"{prefix}: {expected}"


@pytest.mark.parametrize(
    ("there", "prefix", "expected"),
    [
        ("set", "set", "set"),
        ("set", "set_train", "set"),
        ("set", "set_0", "set"),
        ("set", "set_12_val", "set"),
        ("set", "set_test", "set"),
        ("set", "set_test_0", None),
        ("set", "set_trainer", None),
        ("set", "set_x", None),
        ("set", "settrain", None),
        ("set_train", "set_train", "set_train"),
        ("set_train", "set_train_000", "set_train"),
        ("set_train", "set", None),
    ],
)
def test_the_class_map_of_a_prefix_or_of_the_one_it_was_split_from(
    there: str, prefix: str, expected: str | None, tmp_path: Path
) -> None:
    put(tmp_path, f"{there}.classes.txt")
    path = expected and f"{tmp_path}/{expected}.classes.txt"
    assert find_classes(f"{tmp_path}/{prefix}") == path


def test_a_prefix_s_own_class_map_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "set.classes.txt", "set_val.classes.txt")
    assert find_classes(f"{tmp_path}/set_val") == f"{tmp_path}/set_val.classes.txt"


def test_shards_are_named_with_three_digits_or_more() -> None:
    assert [shard_stem("a/b", number) for number in (0, 12, 999, 1000)] == [
        "a/b_000",
        "a/b_012",
        "a/b_999",
        "a/b_1000",
    ]


# --- files of another kind --------------------------------------------------------------------


def protobuf(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2, len(body)]) + body for number, body in fields)


# SageMaker's Record: map<string, Value> features = 1, label = 2; string uid = 3, metadata = 4.
VALUES = protobuf((1, b"values"), (2, protobuf((2, bytes(16)))))
PROTOBUF = "SageMaker's other RecordIO (x-recordio-protobuf)"

OTHERS: dict[str, tuple[bytes, str]] = {
    "gzip": (b"\x1f\x8b\x08", "a gzip file"),
    "zip": (b"PK\x03\x04", "a zip file"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "parquet": (b"PAR1", "a Parquet file"),
    "jpeg": ((CLEAN / "ant/ant_0.jpg").read_bytes(), "a JPEG image"),
    "png": ((CLEAN / "ant/ant_3.png").read_bytes(), "a PNG image"),
    "arrow": (b"ARROW1\0\0", "an Arrow file"),
    "zstd": (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    "bzip2": (b"BZh91AY", "a bzip2 file"),
    "tar": (bytes(257) + b"ustar\x0000" + bytes(248), "a tar file"),
    "idx": (b"0\t0\n1\t20\n", "an index (.idx)"),
    "idx of a long line": (b"0\t" + b"9" * 600, "an index (.idx)"),
    "idx with CRLF": (b"0\t0\r\n1\t20\r\n", "an index (.idx)"),
    "lst": (b"5\t0\tant/ant_0.jpg\n", "a list (.lst)"),
    "lst without labels": (b"5\tant.jpg\n", "a list (.lst)"),
    "lst of one line without end": (b"5\t1.000000\tant.jpg", "a list (.lst)"),
    "lst of long rows": (b"5\t" + b"0.5\t" * 200 + b"a.jpg\n", "a list (.lst)"),
    "tfrecord": (struct.pack("<QI", 20, 12345) + b"\x0a" + bytes(19), "a TFRecord file"),
    "protobuf": (frame(protobuf((1, VALUES), (2, VALUES))), PROTOBUF),
    "protobuf without a label": (frame(protobuf((1, VALUES))), PROTOBUF),
    "protobuf with all fields": (
        frame(protobuf((1, VALUES), (1, VALUES), (2, VALUES), (3, b"id"), (4, b"{}"))),
        PROTOBUF,
    ),
    "protobuf of many values": (
        frame(b"\x0a\xc8\x02" + protobuf((2, bytes(100))) * 3 + b"\x0a\x14" + bytes(20) + VALUES),
        PROTOBUF,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_kind_is_named(name: str, tmp_path: Path) -> None:
    data, expected = OTHERS[name]
    path = tmp_path / "set.rec"
    path.write_bytes(data)
    kind = other_format(str(path))
    assert kind is not None
    assert kind.split(":")[0] == expected


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.rec")), ids=lambda path: path.parent.name)
def test_what_mxnet_wrote_is_no_other_kind(path: Path) -> None:
    assert other_format(str(path)) is None


@pytest.mark.parametrize("count", [1, 2, 10, 18, 26, 266, 2570, 2578, 4626, 3082])
@pytest.mark.parametrize("label", [0.0, 1.0, 7.0, -1.0, 0.5])
def test_image_records_are_no_protobuf(count: int, label: float, tmp_path: Path) -> None:
    """With 10 or 18 labels they begin with the byte of a protobuf field."""
    for record_id in (0, 10, 2**32, 2**64 - 1):
        for image in (b"", (CLEAN / "bee/bee_4.JPEG").read_bytes()):
            path = tmp_path / "set.rec"
            path.write_bytes(frame(image_record.encode(record_id, [label] * count, image)))
            assert other_format(str(path)) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"some text\twith a tab\n",
        b"5\n6\n",
        b"\t5\n",
        bytes(600),
        frame(b""),
        frame(b"\x0a"),
        frame(protobuf((1, VALUES))[:-1]),  # cut
        frame(protobuf((3, b"first"), (1, VALUES))),
        frame(protobuf((1, VALUES), (6, b"unknown"))),
        frame(b"\x0a" + b"\xff" * 12),  # a length without end
        frame(protobuf((1, VALUES)))[:-4],  # a record that is cut
        b"\x0a\x23\xd7\xce",
    ],
)
def test_what_is_of_no_known_kind_is_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "set.rec"
    path.write_bytes(data)
    assert other_format(str(path)) is None


@given(st.binary(max_size=100), st.sampled_from([b"", b"\x0a\x23\xd7\xce", b"5\t"]))
def test_any_bytes_are_looked_at(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.rec"
    path.write_bytes(start + data)
    kind = other_format(str(path))
    assert kind is None or kind.startswith(("a ", "an ", "SageMaker"))
