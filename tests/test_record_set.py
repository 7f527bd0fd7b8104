"""A set on disk: found again by its names, its manifest, its classes, and files of another kind."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import CLEAN, GOLDEN, put
from hypothesis import given
from hypothesis import strategies as st

from im2rec import image_record
from im2rec.errors import InputError
from im2rec.framing import frame
from im2rec.record_set import (
    RecordSet,
    Untouched,
    check_record_file,
    family_lists,
    find_classes,
    find_set,
    manifest_fault,
    manifest_names,
    other_format,
    read_classes,
    read_manifest,
    shard_stem,
    write_manifest,
)

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


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "line 1, column 1: this is no JSON"),
        (b'{"shards":\n  {"a" 1}}', "line 2, column 8: this is no JSON"),
        (b"{}\xff", "it is not UTF-8"),
        (b"[" * 100_000, "its JSON is nested too deeply"),
        (b'{"shards": ' + b"9" * 5000 + b"}", "it has a number of too many digits"),
    ],
)
def test_why_it_is_no_manifest_is_said_in_plain_words(
    data: bytes, reason: str, prefix: str
) -> None:
    Path(prefix).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_manifest(prefix)
    assert str(caught.value) == f"{prefix}: not a manifest: {reason}"


def test_a_missing_manifest_is_an_input_error(prefix: str) -> None:
    with pytest.raises(InputError) as caught:
        read_manifest(prefix)
    assert "o such file or directory" in str(caught.value)
    assert "Errno" not in str(caught.value)


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
        ("set", "set_12_val", None),  # 12 may be part of its name
        ("T5", "T5_2024", None),
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


@pytest.mark.parametrize("first", ["set_0_train.lst", "set_0.lst", "set_0_val.rec", "set_000.rec"])
def test_a_number_is_a_chunk_s_where_there_is_chunk_0(first: str, tmp_path: Path) -> None:
    put(tmp_path, "set.classes.txt", "set_12_val.lst", first)
    assert find_classes(f"{tmp_path}/set_12_val") == f"{tmp_path}/set.classes.txt"


def test_a_year_is_no_chunk(tmp_path: Path) -> None:
    put(tmp_path, "T5_2024.lst", "T5_train.lst")
    assert family_lists(f"{tmp_path}/T5") == ["T5_train.lst"]
    put(tmp_path, "T5_0_val.lst")
    assert family_lists(f"{tmp_path}/T5") == ["T5_train.lst", "T5_0_val.lst", "T5_2024.lst"]


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


def test_a_shard_that_is_not_there_between_others_is_missed(tmp_path: Path) -> None:
    """No manifest is needed to see it."""
    put(tmp_path, "set_000.rec", "set_002.rec", "far_000.rec", "far_20201231.rec")
    found = find_set(str(tmp_path / "set"))
    assert [Path(rec).name for rec in found.recs] == ["set_000.rec", "set_002.rec"]
    assert [Path(rec).name for rec in found.missing] == ["set_001.rec"]
    assert find_set(str(tmp_path / "far")).missing == ()  # that is a date


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("set_256", "set_512"), ()),  # two sets, by the size of their pictures
        (("set_2024",), ()),
        (("set_999",), ()),
        (("set_000", "set_512"), tuple(range(1, 512))),
        (("set_001", "set_003"), (0, 2)),
        (("set_002", "set_003", "set_005"), (0, 1, 4)),
        (("set_002", "set_006"), ()),
    ],
)
def test_numbers_that_are_no_shards_have_no_gaps(
    names: tuple[str, ...], missing: tuple[int, ...], tmp_path: Path
) -> None:
    put(tmp_path, *[f"{name}.rec" for name in names])
    record_set = found(tmp_path, "set")
    assert record_set.recs == tuple(f"{name}.rec" for name in names)
    assert record_set.missing == tuple(f"set_{number:03d}.rec" for number in missing)


def test_a_shard_by_itself_knows_its_set_s_manifest(tmp_path: Path) -> None:
    put(tmp_path, "set_000.rec", "set_001.rec", "set_002.rec", "set_001.manifest.json")
    put(tmp_path, "set.manifest.json", content=manifest("set_000", "set_001"))
    assert found(tmp_path, "set_000.rec").manifest is None
    for name, expected in (
        ("set_000.rec", "set.manifest.json"),
        ("set_001.rec", None),  # it has one of its own
        ("set_002.rec", None),  # it is not named there
    ):
        path = find_set(str(tmp_path / name)).set_manifest
        assert path == (expected and str(tmp_path / expected))
    put(tmp_path, "set.manifest.json", content="{")
    assert find_set(str(tmp_path / "set_000.rec")).set_manifest == str(
        tmp_path / "set.manifest.json"
    )


def write_to(path: Path) -> None:
    """Other bytes, as many, in the same file."""
    with open(path, "r+b") as file:
        file.write(b"new")


def replace(path: Path) -> None:
    """Another file of this size and time."""
    status = path.stat()
    path.with_name("new").write_bytes(b"new")
    os.utime(path.with_name("new"), ns=(status.st_atime_ns, status.st_mtime_ns))
    path.with_name("new").replace(path)


@pytest.mark.parametrize("change", [write_to, replace, Path.unlink, Path.touch, None])
def test_a_file_that_changes_is_noticed(
    change: Callable[[Path], None] | None, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
        os.utime(tmp_path / name, (1, 1))
    untouched = Untouched([str(tmp_path / name) for name in ("a", "b")])
    untouched.check()
    if not change:
        return
    change(tmp_path / "b")
    with pytest.raises(InputError, match="b: it changed while it was read; start again when"):
        untouched.check()


def test_what_can_be_no_record_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "list").write_text("0\t1\ta.jpg\n")
    (tmp_path / "empty").touch()
    for name, said in (
        ("fifo", "not a regular file"),
        ("", "not a regular file"),
        ("none", "there is no such file"),
        ("list", "this is a list"),
    ):
        with pytest.raises(InputError, match=said):
            check_record_file(str(tmp_path / name))
    check_record_file(str(tmp_path / "empty"))
