"""What a walk over a set shows of it: the same for many records as for one, in bounded memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ODD
from hypothesis import given
from hypothesis import strategies as st

from im2rec import detection, facts
from im2rec.facts import BOXES, IDENTITIES, KINDS_OF_IMAGES, LABELS, Shard, Watch, read_boxes
from im2rec.framing import MAGIC, Record, RecordReader, Run, RunScanner, frame
from im2rec.image_record import decode_headers, encode
from im2rec.record_set import RecordSet

ALL = (BOXES, IDENTITIES, KINDS_OF_IMAGES, LABELS)
IMAGES = [
    (ODD / name).read_bytes()
    for name in ("kinds/gray.jpg", "kinds/gif.gif", "kinds/rgba.png", "magic/aligned.jpg")
]
BOX = (2.0, 5.0, 0.0, 0.25, 0.25, 0.5, 0.5)
TWO = (*BOX, 1.0, 0.25, 0.25, 0.5, 0.75)
NUMBERS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 6.0, -1.0, 2.0**25, float("nan")])
OBJECTS = st.sampled_from([BOX[2:], (3.0, 0.0, 0.0, 1.0, 1.0), detection.NO_OBJECT[2:]])
ARRAYS = (
    st.lists(NUMBERS, min_size=1, max_size=9).map(tuple)
    | st.lists(OBJECTS | st.tuples(*[NUMBERS] * 5), max_size=3).map(
        lambda those: (2.0, 5.0, *(number for each in those for number in each))
    )
    | st.sampled_from([BOX, TWO, detection.NO_OBJECT, (3.0, 6.0, 9.0, *BOX[2:], float("inf"))])
)


def watched(path: Path, *, in_runs: bool = True) -> Watch:
    """The facts of a file, all of them."""
    watch = Watch(ALL)
    with open(path, "rb") as stream, open(path, "rb", buffering=0) as source:
        reader = RecordReader(stream, str(path))
        scanner = RunScanner(source, reader.size) if in_runs else None
        found: Iterator[Record | Run] = reader.salvage(lambda *_: None, scanner)
        for each in found:
            if isinstance(each, Run):
                headers = decode_headers(each.words, each.starts, each.lengths)
                watch.add_run(str(path), each, headers)
            else:
                watch.add(str(path), each)
    return watch


def shown(watch: Watch) -> dict[str, object]:
    """All that is public of it."""
    own = {name: value for name, value in vars(watch).items() if not name.startswith("_")}
    labels = np.frombuffer(watch.bare_labels, "f8") if watch.bare_labels else np.zeros(0)
    return own | {"classes": watch.classes().tolist(), "bare_labels": list(map(repr, labels))}


def finished(*parts: tuple[list[int], list[int]]) -> Watch:
    """A watch over shards of these ids, each with the positions that have none."""
    shards = [
        Shard(f"{at}.rec", 0, array("Q", range(0, 40 * len(ids), 40)), array("Q", ids), without)
        for at, (ids, without) in enumerate(parts)
    ]
    watch = Watch(())
    names = tuple(each.path for each in shards)
    watch.finish(RecordSet("set", "set", names, (None,) * len(names), None, None), shards)
    return watch


ROWS = st.tuples(st.integers(0, 9) | st.just(MAGIC), ARRAYS, st.sampled_from([*IMAGES, b"", b"x"]))


@given(st.lists(ROWS, max_size=8))
def test_many_records_show_what_each_by_itself_does(
    rows: list[tuple[int, tuple[float, ...], bytes]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.rec"
        path.write_bytes(b"".join(frame(encode(*row)) for row in rows))
        watch = watched(path)
        assert shown(watch) == shown(watched(path, in_runs=False))
    assert watch.records == len(rows)
    assert watch.images == sum(bool(image) for _, _, image in rows)
    assert watch.arrays.count == sum(len(labels) > 1 for _, labels, _ in rows)
    assert watch.without_image.count == len(watch.bare) == len(rows) - watch.images
    widths = {width: places.count for width, places in watch.widths.items()}
    assert widths == {
        width: sum(len(labels) == width and image != b"" for _, labels, image in rows)
        for width in widths
    }


@pytest.mark.parametrize("most", [0, 1, 3, 5])
def test_places_are_kept_up_to_a_bound_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(facts, "MAX_PLACES", most)
    path = tmp_path / "set.rec"
    path.write_bytes(b"".join(frame(encode(at, (0.5,), b"")) for at in range(4)))
    for in_runs in (True, False):
        bare = watched(path, in_runs=in_runs).without_image
        assert (bare.count, [each.id for each in bare.first]) == (4, list(range(min(most, 4))))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([], []),
        ([2.0], [False, False, True]),
        ([0.0, 3.0, 1.0, 3.0], [True, True, False, True]),
        ([0.5, -1.0, float("nan"), 1.0], [False, True]),
    ],
)
def test_classes_that_have_an_image(
    tmp_path: Path, labels: list[float], classes: list[bool]
) -> None:
    path = tmp_path / "set.rec"
    path.write_bytes(b"".join(frame(encode(at, (n,), b"x")) for at, n in enumerate(labels)))
    for in_runs in (True, False):
        assert watched(path, in_runs=in_runs).classes().tolist() == classes


@pytest.mark.parametrize(
    ("parts", "places"),
    [
        ([], []),
        ([([1, 2, 3], [])], []),
        ([([1, 2, 1], [])], [("0.rec", 80, 1)]),
        ([([1, 2], []), ([3, 2, 2], [])], [("1.rec", 40, 2), ("1.rec", 80, 2)]),
        ([([0, 1, 0, 0], [0, 2])], []),  # what has no id has not the id 0
        ([([0, 1, 0, 1], [0]), ([0], []), ([], [])], [("0.rec", 120, 1), ("1.rec", 0, 0)]),
        ([([2**64 - 1, 2**64 - 1], [])], [("0.rec", 40, 2**64 - 1)]),
    ],
)
def test_later_records_of_an_id_are_found(
    parts: list[tuple[list[int], list[int]]], places: list[tuple[str, int, int]]
) -> None:
    doubled = finished(*parts).doubled
    assert [each[:3] for each in doubled.first] == places
    assert doubled.count == len(places)


@given(st.lists(ARRAYS, max_size=6))
def test_boxes_are_judged_together_as_each_by_itself(labels: list[tuple[float, ...]]) -> None:
    payloads = [encode(at, each, b"image...") for at, each in enumerate(labels)]
    words = np.frombuffer(b"".join(payloads) + bytes(4), "<u4")
    lengths = np.array([len(each) for each in payloads], "i8")
    starts = (lengths.cumsum() - lengths) // 4
    told = read_boxes(decode_headers(words, starts, lengths), np.arange(len(labels)))
    sound = [each for each in labels if detection.check(each) is None]
    assert told.sound.tolist() == [detection.check(each) is None for each in labels]
    assert told.pads.sum() == sum(map(detection.is_pad, sound))
    assert told.plain[told.sound].tolist() == [each[:2] == (2.0, 5.0) for each in sound]
    classes_of = [
        int(each[0])
        for labels in sound
        if not detection.is_pad(labels)
        for each in detection.objects(labels)
    ]
    assert sorted(told.classes.tolist()) == sorted(classes_of)
