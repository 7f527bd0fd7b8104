"""Damage to every byte of packed sets but the payloads' own bits is told, each in its place; and
what those need to be told. Each test prints how many damaged sets it has made (pytest -rP)."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN, Run

from im2rec.errors import InputError
from im2rec.framing import ALIGNMENT, HEAD, LENGTH_MASK, MAGIC_BYTES, RecordReader, frame
from im2rec.image_ops import ImageOptions
from im2rec.image_record import HEADER, LABEL_SIZE, encode
from im2rec.pack import PackOptions, pack_list
from im2rec.record_set import find_set, manifest_fault, read_manifest
from im2rec.verify import Problem, VerifyOptions, verify_set

SETS = {  # ids that are no positions but in `plain` and, by damage, `single`
    "one": ("11\t1\tant/ant_3.png", "5\t0\tbee/bee_3.png", "300\t2\tcat/cat_3.png"),
    "single": ("5\t1\tant/ant_3.png",),
    "plain": ("0\t1\tant/ant_3.png", "1\t1\tbee/bee_3.png", "2\t1\tcat/cat_3.png"),
    "arrays": ("11\t1\t2.5\tant/ant_3.png", "5\t7\t0.25\tbee/bee_3.png"),
    "mixed": ("11\t1\t2.5\tant/ant_3.png", "5\t7\tbee/bee_3.png"),
    "parts": ("5\t1\tmagic.png", "11\t1\tant/ant_4.JPEG"),
    "shards": (
        *("11\t1\tant/ant_3.png", "5\t5\tbee/bee_3.png", "300\t2\tcat/cat_3.png"),
        *("42\t3\tdog/dog_3.png", "21\t1\tant/ant_4.JPEG", "64\t2\tcat/cat_4.JPEG"),
    ),
}
PASSED_THROUGH = ("parts",)


def png_with_magics() -> bytes:
    """An image that holds the magic at every alignment."""
    text = b"Comment\0" + b"".join(b"x" * at + MAGIC_BYTES for at in range(1, 9))
    chunk = struct.pack(">I", len(text)) + b"tEXt" + text
    chunk += struct.pack(">I", zlib.crc32(chunk[4:]))
    image = (CLEAN / "ant" / "ant_3.png").read_bytes()
    return image[:33] + chunk + image[33:]  # behind the signature and IHDR


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each of SETS."""
    top = tmp_path_factory.mktemp("sets")
    root = shutil.copytree(CLEAN, top / "root")
    (root / "magic.png").write_bytes(png_with_magics())
    for name, rows in SETS.items():
        folder = top / name
        folder.mkdir()
        (folder / "set.lst").write_text("".join(f"{row}\n" for row in rows), "utf-8")
        (folder / "set.classes.txt").write_text("ant\nbee\ncat\ndog\n", "utf-8")
        image = ImageOptions(resize=2, encoding=".png", quality=3)
        if name in PASSED_THROUGH:
            image = ImageOptions(pass_through=True)
        shards = 3 if name == "shards" else None
        options = PackOptions(image, shards=shards, workers=1, fsync=False)
        pack_list(str(folder / "set.lst"), str(root), options)
        assert problems(folder, list_path=str(folder / "set.lst")) == []
    return top


@pytest.fixture
def copy(sets: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a set, to be damaged; its folder."""
    return lambda name: Path(shutil.copytree(sets / name, tmp_path / name))


def problems(folder: Path, **options: Any) -> list[Problem]:
    return verify_set(find_set(str(folder / "set")), VerifyOptions(**options)).problems


def values(byte: int) -> list[int]:
    """What a byte may become: each bit flipped, 0, 255, one more."""
    others = [byte ^ 1 << bit for bit in range(8)] + [0, 255, (byte + 1) % 256]
    return [other for other in dict.fromkeys(others) if other != byte]


def one_value(byte: int, at: int) -> list[int]:
    """One of them, another one from byte to byte."""
    return [values(byte)[at % 8]]


class Damage:
    """A file that is damaged again and again, and mended at the end. made: how often so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.sound, self.made = path, path.read_bytes(), 0

    def bytes(self, places: Iterable[int], every: bool = True) -> Iterator[int]:
        """Changes a byte; yields its place. every: to each of its `values`, not to one of them."""
        for at in places:
            byte = self.sound[at]
            for value in values(byte) if every else one_value(byte, at):
                yield from self._put(at, self.sound[:at] + bytes([value]) + self.sound[at + 1 :])

    def text(self, step: int = 1) -> Iterator[int]:
        """Takes away and puts in bytes and lines, swaps lines, cuts, appends; yields the place.
        step: from one place for bytes to the next."""
        sound, lines = self.sound, self.sound.splitlines(keepends=True)
        for at in range(0, len(sound), step):
            yield from self._put(at, sound[:at])
            yield from self._put(at, sound[:at] + sound[at + 1 :])
            for new in b" 0\n\r\t,":
                yield from self._put(at, sound[:at] + bytes([new]) + sound[at:])
        for at, line in enumerate(lines):
            yield from self._put(at, b"".join([*lines[:at], *lines[at + 1 :]]))
            yield from self._put(at, b"".join([*lines[:at], line, *lines[at:]]))
            for other in range(at):
                swapped = list(lines)
                swapped[at], swapped[other] = swapped[other], line
                yield from self._put(at, b"".join(swapped))
        for junk in (b"x", b"\n", b"\0", b" ", b"{}"):
            yield from self._put(len(sound), sound + junk)
        yield from self._put(0, sound.replace(b"\n", b"\r\n"))
        yield from self._put(0, b"\xef\xbb\xbf" + sound)

    def _put(self, at: int, data: bytes) -> Iterator[int]:
        if data != self.sound:
            self.path.write_bytes(data)
            self.made += 1
            yield at

    def __enter__(self) -> Damage:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.write_bytes(self.sound)
        print(f"{self.path.name}: {self.made} times damaged")


def layout(rec: Path) -> dict[str, list[int]]:
    """The places of each kind of byte: head, padding, flag, label, id, id2, labels, image."""
    found: dict[str, list[int]] = {}
    data = rec.read_bytes()
    for each in records(rec):
        at = each[0]
        fields = (("flag", 4), ("label", 4), ("id", 8), ("id2", 8))
        flag = HEADER.unpack_from(data, at + HEAD.size)[0]
        sizes = iter((*fields, ("labels", flag * LABEL_SIZE)))
        kind, left = next(sizes)
        while at < each[1]:
            length = HEAD.unpack_from(data, at)[1] & LENGTH_MASK
            found.setdefault("head", []).extend(range(at, at + HEAD.size))
            at += HEAD.size
            for place in range(at, at + length):
                while not left:
                    kind, left = next(sizes, ("image", len(data)))
                found.setdefault(kind, []).append(place)
                left -= 1
            padding = -length % ALIGNMENT
            found.setdefault("padding", []).extend(range(at + length, at + length + padding))
            at += length + padding
    return found


def records(rec: Path) -> list[tuple[int, int]]:
    with open(rec, "rb") as stream:
        return [(each.offset, each.end) for each in RecordReader(stream, str(rec))]


def within_padding(sound: bytes, damaged: bytes, at: int) -> bool:
    """Whether a byte of a head was changed so that its length ends in what was padding."""
    if at % ALIGNMENT or sound[at - ALIGNMENT : at] != MAGIC_BYTES:
        return False
    old, new = (struct.unpack_from("<I", data, at)[0] for data in (sound, damaged))
    return bool(old < new <= old + -old % ALIGNMENT)


# --- record files -----------------------------------------------------------------------------


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("name", ["one", "mixed", "parts", "shards"])
def test_damage_in_framing_is_told_at_its_record(
    copy: Callable[[str], Path], name: str, with_manifest: bool
) -> None:
    folder = copy(name)
    rec = folder / ("set_001.rec" if name == "shards" else "set.rec")
    if not with_manifest:
        (folder / "set.manifest.json").unlink()
    places = layout(rec)
    assert name == "parts" or places["padding"]
    assert name != "parts" or len(places["head"]) == HEAD.size * (3 + 1)  # its first is in parts
    offsets = [offset for offset, _ in records(rec)] + [rec.stat().st_size]
    with Damage(rec) as damage:
        for at in damage.bytes(places["head"] + places.get("padding", []), name == "one"):
            found = problems(folder)
            if within_padding(damage.sound, rec.read_bytes(), at):
                # the zeros that fill a record up may as well be its payload's: no framing tells
                assert {each.code for each in found} == ({"sha256"} if with_manifest else set())
                continue
            first = found[0]
            assert (first.file, first.offset is not None) == (str(rec), True), (at, found)
            # of a length, the damage shows where the next head should be, at most a record behind
            number = max(each for each, offset in enumerate(offsets) if offset <= at)
            assert first.offset is not None
            assert (
                offsets[number] <= first.offset <= offsets[number + 1]
                or f" bytes from {offsets[number]} on are lost" in first.sentence  # a part's length
            ), (at, found)
            assert not with_manifest or ("sha256", str(rec)) in codes_and_files(found)


def codes_and_files(found: list[Problem]) -> set[tuple[str, str]]:
    return {(each.code, each.file) for each in found}


@pytest.mark.parametrize("name", ["one", "plain", "single", "arrays", "mixed", "shards"])
def test_damage_in_a_header_is_told_beside_a_manifest(
    copy: Callable[[str], Path], name: str
) -> None:
    folder = copy(name)
    rec = folder / ("set_001.rec" if name == "shards" else "set.rec")
    idx = rec.with_suffix(".idx")
    places = layout(rec)
    offsets = [offset for offset, _ in records(rec)]
    # where records have one label or two, a flag that says otherwise is not told by itself
    kinds = ["id2", *(["flag"] if name != "mixed" else [])]
    with Damage(rec) as damage:
        for kind in kinds:
            for at in damage.bytes(places[kind], name == "one"):
                found = problems(folder)
                here = max(offset for offset in offsets if offset <= at)
                assert (found[0].code, found[0].file, found[0].offset) == ("header", str(rec), here)
        for at in damage.bytes(places["id"], name == "plain"):
            assert ("index-key", str(idx)) in codes_and_files(problems(folder)), at
        rest = [place for kind in ("flag", "label", "labels") for place in places.get(kind, [])]
        for at in damage.bytes(rest, every=False):
            assert ("sha256", str(rec)) in codes_and_files(problems(folder)), at


@pytest.mark.parametrize("name", ["one", "mixed"])
def test_without_a_manifest_index_and_list_tell_damage_in_a_header(
    copy: Callable[[str], Path], name: str
) -> None:
    folder = copy(name)
    (folder / "set.manifest.json").unlink()
    rec = folder / "set.rec"
    places = layout(rec)
    with Damage(rec) as damage:
        for at in damage.bytes(places["id"], every=False):
            assert ("index-key", f"{folder}/set.idx") in codes_and_files(problems(folder)), at
        # the header's label is not read beside an array
        read = [at for at in places["label"] if name == "one" or at > records(rec)[0][1]]
        for at in damage.bytes([*read, *places.get("labels", []), *places["flag"]], every=False):
            found = problems(folder, list_path=str(folder / "set.lst"))
            here = max(offset for offset, _ in records(rec) if offset <= at) if found else None
            negative_zero = rec.read_bytes()[at - 3 : at + 1] == b"\0\0\0\x80"
            assert negative_zero or (str(rec), here) in {(e.file, e.offset) for e in found}, at


# --- indexes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("one", "set.idx"),
        ("plain", "set.idx"),
        ("single", "set.idx"),
        ("shards", "set_001.idx"),
        ("shards", "set.idx"),
    ],
)
def test_damage_in_an_index_is_told_there(
    copy: Callable[[str], Path], name: str, file: str
) -> None:
    folder = copy(name)
    idx = folder / file
    with Damage(idx) as damage:
        for at in damage.bytes(range(len(damage.sound)), every=name != "shards"):
            found = problems(folder)
            assert {each.file for each in found} == {str(idx)}, (at, found)
            place = r"line \d+|no line for the record at offset \d+|record \d+ of the file"
            assert re.search(place, found[0].sentence), found
        if name != "shards" or file != "set.idx":
            for at in damage.text():
                assert {each.file for each in problems(folder)} == {str(idx)}, at


def test_without_a_manifest_only_other_spellings_of_an_index_are_passed_over(
    copy: Callable[[str], Path],
) -> None:
    folder = copy("one")
    (folder / "set.manifest.json").unlink()
    idx = folder / "set.idx"
    numbers = [[int(text) for text in line.split()] for line in idx.read_text().splitlines()]
    with Damage(idx) as damage:
        for at in damage.bytes(range(len(damage.sound))):
            assert {each.file for each in problems(folder)} == {str(idx)}, at
        for at in damage.text():
            if not problems(folder):  # a zero before a number, a CR before an LF
                lines = idx.read_bytes().splitlines()
                assert [[int(text) for text in line.split()] for line in lines] == numbers, at


# --- manifest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one", "shards"])
def test_damage_in_a_manifest_is_told_there_and_first(
    copy: Callable[[str], Path], name: str
) -> None:
    folder = copy(name)
    path = folder / "set.manifest.json"
    step = 1 if name == "one" else 20
    with Damage(path) as damage:
        for at in damage.bytes(range(0, len(damage.sound), step), every=False):
            found = [each for each in problems(folder) if each.code != "file-missing"]
            assert (found[0].code, found[0].file) == ("manifest", str(path)), (at, found)
            assert re.search("not a manifest: |own sha256 is not", found[0].sentence), found


def test_no_cut_or_other_line_in_a_manifest_is_taken_for_sound(copy: Callable[[str], Path]) -> None:
    path = copy("one") / "set.manifest.json"

    def is_sound() -> bool:
        try:
            read_manifest(str(path))
        except InputError:
            return False
        return manifest_fault(str(path)) is None

    with Damage(path) as damage:
        assert is_sound()
        for at in damage.text(step=11):
            assert not is_sound(), at


def test_a_manifest_without_its_own_sha256_is_told(copy: Callable[[str], Path]) -> None:
    folder = copy("shards")
    path = folder / "set.manifest.json"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-2]).rstrip(",\n") + "\n}\n", "utf-8")
    assert problems(folder) == [
        Problem(
            "manifest",
            str(path),
            None,
            None,
            "its own sha256 is not there, on the last line but one",
        )
    ]


def test_a_change_in_the_class_map_is_told_with_the_class(copy: Callable[[str], Path]) -> None:
    folder = copy("one")
    (folder / "set.classes.txt").write_text("ant\nbee\ncut\ndog\n", "utf-8")
    sentence = f"class 2 is 'cat', but 'cut' in {folder}/set.classes.txt"
    assert problems(folder) == [
        Problem("manifest", f"{folder}/set.manifest.json", None, None, sentence)
    ]


# --- the payloads' own bits -------------------------------------------------------------------


def test_an_images_bits_are_told_by_the_manifests_sha256_alone(copy: Callable[[str], Path]) -> None:
    folder = copy("one")
    rec = folder / "set.rec"
    places = layout(rec)["image"]
    with Damage(rec) as damage:
        for at in damage.bytes(places, every=False):
            found = problems(folder)
            assert [(each.code, each.file) for each in found] == [("sha256", str(rec))], at
    (folder / "set.manifest.json").unlink()
    with Damage(rec) as damage:
        for at in damage.bytes(places, every=False):
            assert problems(folder, list_path=str(folder / "set.lst")) == [], at


@pytest.mark.parametrize(
    ("image", "least"),
    [
        ("ant/ant_3.png", 1.0),  # each chunk of a PNG has its checksum
        ("ant/ant_4.JPEG", 0.25),  # most codes of a JPEG have a meaning: the picture is another
        ("ant/ant_0.jpg", 0.15),
    ],
)
def test_decode_tells_what_the_codec_can_tell(tmp_path: Path, image: str, least: float) -> None:
    sound = (CLEAN / image).read_bytes()
    places = range(0, len(sound), len(sound) // 200)
    with open(tmp_path / "set.rec", "wb") as rec:
        for number, at in enumerate(places):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << at * 5 % 8
            rec.write(frame(encode(number, (0.0,), bytes(damaged))))
    assert problems(tmp_path) == []
    found = problems(tmp_path, decode=True, workers=1)
    assert {each.code for each in found} == {"image"}
    print(f"{image}: {len(found)} of {len(places)} flips told")
    assert least * len(places) <= len(found) <= len(places)


# --- causes -----------------------------------------------------------------------------------


def many(folder: Path, count: int) -> Path:
    """A set of so many tiny records with an index and a list; the path of its .rec."""
    each = [frame(encode(7 * at, (1.0,), b"image")) for at in range(count)]
    (folder / "set.rec").write_bytes(b"".join(each))
    size = len(each[0])
    (folder / "set.idx").write_text("".join(f"{7 * at}\t{at * size}\n" for at in range(count)))
    (folder / "set.lst").write_text("".join(f"{7 * at}\t1\ta{at}.jpg\n" for at in range(count)))
    return folder / "set.rec"


def test_a_cut_file_is_one_problem_and_the_lines_behind_it_another(tmp_path: Path) -> None:
    rec = many(tmp_path, 2000)
    size = rec.stat().st_size // 2000
    for left, first in ((1000 * size + 5, 1000), (1000 * size, 1000)):
        sound = rec.read_bytes()
        rec.write_bytes(sound[:left])
        found = problems(tmp_path)
        lost = f"where bytes are damaged or not there, from {first * size} on"
        sentence = f"{2000 - first} lines, {first + 1} to 2000, point to {lost}"
        index = Problem("index-offset", f"{tmp_path}/set.idx", None, None, sentence)
        if left % size:
            assert (found[0].code, found[0].file) == ("truncated", str(rec))
            assert found[0].offset == first * size
            assert found[1:] == [index]
        else:  # nothing but the index tells
            assert found == [index]
        rec.write_bytes(sound)


def test_damage_in_the_middle_is_one_problem_and_its_lines_another(tmp_path: Path) -> None:
    rec = many(tmp_path, 100)
    size = rec.stat().st_size // 100
    data = bytearray(rec.read_bytes())
    data[10 * size : 20 * size] = b"x" * (10 * size)
    rec.write_bytes(data)
    assert [(each.code, each.offset) for each in problems(tmp_path)] == [
        ("magic", 10 * size),
        ("index-offset", None),
    ]


def test_a_shard_that_was_cut_or_grew_leaves_the_others_lines_right(
    copy: Callable[[str], Path],
) -> None:
    folder = copy("shards")
    rec = folder / "set_001.rec"
    joint = f"{folder}/set.idx"
    second = records(rec)[1][0]
    sound = rec.read_bytes()
    rec.write_bytes(sound[:-20])
    found = problems(folder)
    assert (found[0].code, found[0].file, found[0].offset) == ("truncated", str(rec), second)
    assert [(each.code, each.id) for each in found if each.file == joint] == [("index-offset", 42)]
    rec.write_bytes(sound + frame(encode(1, (0.0,), b"image")))
    found = problems(folder)
    assert [(each.code, Path(each.file).name) for each in found] == [
        ("index-missing", "set_001.idx"),
        ("bytes", "set_001.rec"),
        ("records", "set_001.rec"),
        ("sha256", "set_001.rec"),
    ]


def test_a_list_that_was_not_packed_is_told_before_all_that_follows(
    copy: Callable[[str], Path],
) -> None:
    folder = copy("one")
    path = folder / "other.lst"
    rows = "".join(f"{row}\n" for row in SETS["one"])
    path.write_text(rows.replace("ant_3.png", "renamed.png"), "utf-8")
    assert problems(folder, list_path=str(path)) == []  # paths are not in the records
    path.write_text(rows.replace("11\t", "12\t"), "utf-8")
    found = problems(folder, list_path=str(path))
    assert [each.code for each in found] == ["list-other", "list-missing", "list-extra"]
    assert (found[0].file, found[0].offset) == (str(path), None)
    assert found[0].sentence == (
        f"not the list that was packed, by the sha256 in {folder}/set.manifest.json"
    )


# --- the command line -------------------------------------------------------------------------


def test_the_command_line_names_the_place_and_exits_1(
    copy: Callable[[str], Path], im2rec: Run
) -> None:
    folder = copy("shards")
    im2rec("verify", "shards/set")
    for file, at, line in (
        ("set_001.rec", 0, "shards/set_001.rec:0: magic: "),
        ("set_001.rec", 24, "shards/set_001.rec:0: header: id 300: flag 0, label 2, id2 1, "),
        ("set_002.idx", 0, "shards/set_002.idx: index-key: id 21: "),
        ("set.idx", 3, "shards/set.idx: index-offset: id 11: line 1: key 11, offset 1: no record"),
        ("set.manifest.json", -10, "shards/set.manifest.json: manifest: it has changed: "),
    ):
        with Damage(folder / file) as damage:
            damaged = bytearray(damage.sound)
            damaged[at] ^= 1
            (folder / file).write_bytes(damaged)
            damage.made += 1
            assert im2rec("verify", "shards/set", code=1).stdout.startswith(line)


def test_twenty_problems_of_a_kind_in_a_file_are_printed_and_the_rest_counted(
    tmp_path: Path, im2rec: Run
) -> None:
    many(tmp_path, 100)
    rows = (tmp_path / "set.lst").read_text().replace("\t1\t", "\t2\t")
    (tmp_path / "set.lst").write_text(rows + "1\t1\tx.jpg\n")
    arguments = ("verify", "--list", "set.lst")
    lines = im2rec(*arguments, "set", code=1).stdout.splitlines()
    assert lines[20] == "set.lst: list-missing: id 1: x.jpg has no record"
    assert lines[21:] == ["set.rec: 80 more list-label problems; -v shows them all"]
    everything = im2rec(*arguments, "-v", "set", code=1).stdout.splitlines()
    assert (everything[:20], len(everything)) == (lines[:20], 101)
    assert '"list-missing"' in im2rec(*arguments, "--json", "set", code=1).stdout
