"""Every reader, given a fixed number of mutated inputs: the rules of tests/fuzz/readers.py hold.
`python tests/fuzz/run.py` goes on for as long as it is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

import readers

# Inputs for each reader.
CASES = {
    "list": 400,
    "index": 300,
    "framing": 400,
    "payload": 300,
    "manifest": 200,
    "classes": 150,
    "image": 450,
    "recordio": 250,
    "set": 300,
}
NUMBERS = [0, 1, 4, 7, 8, 24, 255, 2**16 - 1, 2**29 - 1, 2**29, 2**31, 2**32 - 1, 3 << 29]
TOKENS = [
    *(number.to_bytes(4, "little") for number in NUMBERS),
    *(number.to_bytes(4, "big") for number in NUMBERS),
    *(b"%d" % number for number in (*NUMBERS, -1, 2**63, 2**64 - 1, 2**64)),
    *(b"\0", b"\t", b"\n", b"\r\n", b" ", b"-", b"..", b"/", b"\xff", b"\xff\xd9", b"\xef\xbb\xbf"),
    *(b"MAGI", b"nan", b"1e39", b"null", b"[]", b"{", b'"', b"true", b'"rec"', b"\xed\xa0\x80"),
    readers.NEXT_FILE,
]


@st.composite
def inputs(draw: st.DrawFn, reader: str) -> bytes:
    """A seed, or two, with some bytes replaced, put in, left out, or said twice."""
    data = draw(st.sampled_from(readers.seeds(reader)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.sampled_from([0, 1, 1, 2, 4, 4, 8, 36, 1000]))
        change = draw(st.sampled_from(["put", "put", "flip", "cut", "twice", "other", "free"]))
        if change == "put":
            data = data[:at] + draw(st.sampled_from(TOKENS)) + data[at + size :]
        elif change == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        elif change == "cut":
            data = data[:at] + data[at + size :]
        elif change == "twice":
            data = data[: at + size] + data[at:]
        elif change == "other":
            data = data[:at] + draw(st.sampled_from(readers.seeds(reader)))[at:]
        elif change == "free":
            data = data[:at] + draw(st.binary(max_size=20)) + data[at + size :]
    return data


@pytest.fixture(autouse=True, scope="module")
def _no_folder_is_left() -> Iterator[None]:
    yield
    readers.remove_folder()


@pytest.mark.parametrize("reader", CASES)
def test_a_reader_holds_its_rules_whatever_it_reads(reader: str) -> None:
    check, ran = readers.READERS[reader], 0

    @settings(
        max_examples=CASES[reader],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(reader))
    def run(data: bytes) -> None:
        nonlocal ran
        ran += 1
        check(data)

    run()
    assert ran >= CASES[reader]


@pytest.mark.parametrize("reader", readers.READERS)
def test_the_seeds_hold_the_rules(reader: str) -> None:
    assert reader in CASES
    for seed in readers.seeds(reader):
        readers.READERS[reader](seed)


def test_the_seeds_of_sets_are_sound() -> None:
    """So that a mutation is what breaks one."""
    for seed in readers.seeds("set"):
        readers.check_set(seed)
        found = readers.find_set(str(readers.folder() / "set"))
        assert readers.verify_set(found, readers.VerifyOptions()).problems == []
