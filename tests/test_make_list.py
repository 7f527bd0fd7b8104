"""Listing a folder: numbers, order, what is passed over, and how the list is cut into parts."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CLEAN, GOLDEN, Run
from hypothesis import given
from hypothesis import strategies as st

from im2rec.errors import Im2recError, InputError, OptionError, OutputError
from im2rec.make_list import ListOptions, ListReport, _shuffle, make_list

NOBODY = 65534  # a user who may not read everything, as root may

Row = tuple[str, str, str]  # id, label, path


def tree(root: Path, *names: str) -> Path:
    """Makes files, empty ones, for make_list opens none; a name that ends in / is a folder."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    return root


def listed(root: Path, **options: object) -> ListReport:
    """Lists ROOT as ROOT/../set, sorted where the options do not say otherwise."""
    settings = {"shuffle": False, "fsync": False, **options}
    return make_list(str(root.parent / "set"), str(root), ListOptions(**settings))  # type: ignore[arg-type]


def rows(path: Path) -> list[Row]:
    lines = path.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    return [(fields[0], fields[1], fields[2]) for fields in (line.split("\t") for line in lines)]


def labels(root: Path) -> dict[str, str]:
    """What set.lst says: the label of each path."""
    return {path: label for _, label, path in rows(root.parent / "set.lst")}


def refused(root: Path, **options: object) -> str:
    """The error of a run, which must leave no file at all."""
    before = sorted(root.parent.rglob("*"))
    with pytest.raises(Im2recError) as caught:
        listed(root, **options)
    assert sorted(root.parent.rglob("*")) == before
    return str(caught.value).replace(str(root), "ROOT")


# --- numbers and order ------------------------------------------------------------------------


def test_the_top_folder_is_the_class_however_deep_its_images_lie(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "root", "b/x/y/1.jpg", "b/2.jpg", "a/b/c/3.jpg", "a/b/4.jpg", "a.c/5.jpg"
    )
    report = listed(root)
    assert (tmp_path / "set.lst").read_bytes() == (
        b"0\t0\ta/b/4.jpg\n1\t0\ta/b/c/3.jpg\n2\t1\ta.c/5.jpg\n3\t2\tb/2.jpg\n4\t2\tb/x/y/1.jpg\n"
    )
    assert (tmp_path / "set.classes.txt").read_bytes() == b"a\na.c\nb\n"
    assert report.lists == [(str(tmp_path / "set.lst"), 5)]
    assert report.classes_path == str(tmp_path / "set.classes.txt")
    assert (report.images, report.classes) == (5, ["a", "a.c", "b"])
    assert report.class_counts == {0: 2, 1: 1, 2: 2}


def test_classes_and_files_are_sorted_by_code_point(tmp_path: Path) -> None:
    names = ["Z/a.jpg", "a/10.jpg", "a/2.jpg", "a/B.jpg", "a b/1.jpg", "e\u0301/1.jpg"]
    names += ["\u00e9/1.jpg", "\u65e5\u672c/1.jpg", "\uffee/1.jpg", "\U00010000/1.jpg"]
    root = tree(tmp_path / "root", *names)
    listed(root)  # UTF-16 would have U+10000 before U+FFEE, a locale z before Z, 2 before 10
    assert labels(root) == dict(zip(names, "0111234567", strict=True))
    assert [path for _, _, path in rows(tmp_path / "set.lst")] == names


DEEP = {  # the numbers are those that MXNet's im2rec.py gave this tree, links and all
    "r.jpg": 0,
    "Z/1.jpg": 1,
    "a/z.jpg": 2,
    "a/b/c/d/e.jpg": 3,
    "a/z/z.jpeg": 4,
    "a b/q.jpg": 5,
    "a-b/q.jpg": 6,
    "a.jpg/in.jpg": 7,
    "b/10.jpg": 8,
    "b/2.jpg": 8,
    "b/c/x.PNG": 9,
    "e\u0301/e.jpg": 10,
    "linked/o.jpg": 11,
    "\u00e9/e.jpg": 12,
    "\u65e5\u672c/x y.jpg": 13,
}


def test_leaf_numbers_and_order_are_those_of_im2rec_py(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", "o.jpg")
    root = tree(tmp_path / "root", *(name for name in DEEP if "linked" not in name))
    tree(root, "empty/deep/", "z/notes.txt")
    (root / "linked").symlink_to(outside)
    report = listed(root, label_from="leaf")
    assert rows(tmp_path / "set.lst") == [
        (str(number), str(label), path) for number, (path, label) in enumerate(DEEP.items())
    ]
    assert report.classes is not None
    assert report.classes[:4] == [".", "Z", "a", "a/b/c/d"]
    listed(root, label_from="leaf", shuffle=True)  # as im2rec.py shuffled it
    shuffled = [int(number) for number, _, _ in rows(tmp_path / "set.lst")]
    assert shuffled == [11, 8, 12, 3, 9, 0, 4, 1, 10, 5, 6, 14, 13, 7, 2]


def test_leaf_and_top_agree_on_a_flat_tree(tmp_path: Path) -> None:
    golden = GOLDEN / "lists" / "shuffled" / "set.lst"
    for label_from in ("top", "leaf"):
        options = ListOptions(label_from=label_from, fsync=False)
        make_list(str(tmp_path / label_from), str(CLEAN), options)
        assert (tmp_path / f"{label_from}.lst").read_bytes() == golden.read_bytes()


def test_without_recursion_only_the_roots_own_images_are_listed_with_label_0(
    tmp_path: Path,
) -> None:
    root = tree(tmp_path / "root", "b.png", "a.jpg", "x/c.jpg", "d.txt")
    report = listed(root, recursive=False)
    assert (tmp_path / "set.lst").read_bytes() == b"0\t0\ta.jpg\n1\t0\tb.png\n"
    assert (report.classes, report.classes_path, report.in_root) == (None, None, 0)
    assert not (tmp_path / "set.classes.txt").exists()


@pytest.mark.parametrize("seed", [0, 100, -7, 2**70])
def test_the_order_is_that_of_pythons_shuffle_with_the_seed(tmp_path: Path, seed: int) -> None:
    root = tree(tmp_path / "root", *(f"a/{number}.jpg" for number in range(10)))
    listed(root, shuffle=True, seed=seed)
    random.seed(seed)
    numbers = list(range(10))
    random.shuffle(numbers)
    assert rows(tmp_path / "set.lst") == [(str(n), "0", f"a/{n}.jpg") for n in numbers]


@given(st.integers(0, 1100), st.integers(-(2**70), 2**70))
def test_any_number_of_rows_is_shuffled_as_python_does(count: int, seed: int) -> None:
    ours = [str(number) for number in range(count)]
    pythons = ours.copy()
    _shuffle(ours, seed)
    random.Random(seed).shuffle(pythons)
    assert ours == pythons


def test_the_locale_does_not_change_the_list(tmp_path: Path, im2rec: Run) -> None:
    root = tree(tmp_path / "root", "\u00e9/\u65e5.jpg", "z/1.jpg")
    im2rec("make-list", "there", "root", "--no-shuffle", env={"LC_ALL": "C.UTF-8"})
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    im2rec("make-list", "set", "root", "--no-shuffle", env=ascii_only)
    assert labels(root) == {"z/1.jpg": "0", "\u00e9/\u65e5.jpg": "1"}
    for ending in (".lst", ".classes.txt"):
        there, here = tmp_path / f"there{ending}", tmp_path / f"set{ending}"
        assert here.read_bytes() == there.read_bytes()


# --- classes ----------------------------------------------------------------------------------


def test_an_empty_class_folder_gets_no_number(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "b/", "c/deep/er/", "d/x.txt", "e/2.jpg")
    report = listed(root)
    assert labels(root) == {"a/1.jpg": "0", "e/2.jpg": "1"}
    assert report.empty_classes == ["b", "c", "d"]


def test_a_class_map_fixes_names_and_numbers(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "b/", "e/2.jpg", "\u00e9/3.jpg")
    given = tmp_path / "synset.txt"
    given.write_bytes("\ufeffe\r\n\u00e9\r\nnot there\r\nb\r\na".encode())
    report = listed(root, classes=str(given))
    assert labels(root) == {"a/1.jpg": "4", "e/2.jpg": "0", "\u00e9/3.jpg": "1"}
    assert (tmp_path / "set.classes.txt").read_text("utf-8") == "e\n\u00e9\nnot there\nb\na\n"
    assert (report.empty_classes, report.class_counts) == ([], {4: 1, 0: 1, 1: 1})


def test_the_map_that_was_written_gives_the_same_list_again(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "b/1.jpg", "a/2.jpg", "c\x0b\x85 d/3.jpg", "x/y/4.jpg")
    for label_from in ("top", "leaf"):
        listed(root, label_from=label_from)
        first = [(tmp_path / f"set{end}").read_bytes() for end in (".lst", ".classes.txt")]
        listed(root, label_from=label_from, classes=str(tmp_path / "set.classes.txt"))
        again = [(tmp_path / f"set{end}").read_bytes() for end in (".lst", ".classes.txt")]
        assert again == first


def test_a_folder_that_the_class_map_does_not_name_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "b/", "new\n/2.jpg")
    (tmp_path / "map").write_text("a\n", "utf-8")
    assert refused(root, classes=str(tmp_path / "map")) == (
        f"ROOT: folders that {tmp_path}/map does not name: 'b', 'new\\n'; "
        "add them to the class map, or move them out of ROOT"
    )


def test_of_many_unknown_folders_the_first_are_named_and_the_rest_counted(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", *(f"c{number:02}/1.jpg" for number in range(23)))
    (tmp_path / "map").write_text("z\n", "utf-8")
    message = refused(root, classes=str(tmp_path / "map"))
    assert "'c19' and 3 more; add them" in message
    assert "c20" not in message


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\nb\na\n", "the class 'a' stands there twice"),
        (b"\xff\n", "cannot read the class map"),
        (None, "cannot read the class map"),
    ],
)
def test_a_class_map_that_is_none_is_an_error(
    tmp_path: Path, data: bytes | None, found: str
) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    if data is not None:
        (tmp_path / "map").write_bytes(data)
    assert found in refused(root, classes=str(tmp_path / "map"))


# --- what is passed over ----------------------------------------------------------------------


def test_images_in_root_beside_class_folders_are_passed_over_and_counted(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "0.jpg", "1.png", "2.txt", "a/3.jpg")
    report = listed(root)
    assert labels(root) == {"a/3.jpg": "0"}
    assert (report.in_root, report.other_extensions) == (2, {".txt": 1})


@pytest.mark.parametrize("names", [("1.jpg", "2.png"), ("1.jpg", "2.png", "a/", "b/c.txt")])
def test_only_images_in_root_are_an_error_that_names_the_option(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    assert refused(tree(tmp_path / "root", *names)) == (
        "ROOT: 2 images directly in ROOT and none in folders below it; "
        "use --no-recursive to list them with label 0"
    )


def test_extensions_are_matched_in_any_case_and_others_counted(tmp_path: Path) -> None:
    names = ["1.jpg", "2.JPEG", "3.Png", "4.gif", "5.GIF", "6", "7.jpg.txt", "8.jpg~", "9."]
    root = tree(tmp_path / "root", *(f"a/{name}" for name in names))
    report = listed(root)
    assert list(labels(root)) == ["a/1.jpg", "a/2.JPEG", "a/3.Png"]
    assert report.other_extensions == {
        ".gif": 2,
        "without extension": 1,
        ".txt": 1,
        ".jpg~": 1,
        ".": 1,
    }
    listed(root, extensions=(".gif", ".txt"))
    assert list(labels(root)) == ["a/4.gif", "a/5.GIF", "a/7.jpg.txt"]


@pytest.mark.parametrize("given", [["--exts", "GIF,.Txt"], ["--exts", "gif", "--exts", ".TXT "]])
def test_extensions_are_taken_in_every_spelling(
    tmp_path: Path, im2rec: Run, given: list[str]
) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "a/2.gif", "a/3.txt")
    done = im2rec("make-list", "--no-shuffle", *given, "set", root)
    assert list(labels(root)) == ["a/2.gif", "a/3.txt"]
    assert "passed over: 1 file (1 .jpg); listed are .gif .txt\n" in done.stderr


ENDINGS = st.sampled_from(
    [".jpg", ".JPG", ".Jpg", ".a.jpg", ".gz", ".", "..", "jpg", ".ß", ".SS", ""]
)


@given(
    st.sets(
        st.builds(
            str.__add__, st.sampled_from(["", ".", "..", "a", "b.jpg", ".jpg", "ß", "-"]), ENDINGS
        )
    ),
    st.lists(st.sampled_from([".jpg", ".a.jpg", ".", ".ß", ".ss", ".gz"]), min_size=1, max_size=3),
    st.booleans(),
)
def test_an_extension_is_what_splitext_says(
    names: set[str], extensions: list[str], hidden: bool
) -> None:
    names = names - {"", ".", ".."}
    seen = {name for name in names if hidden or not name.startswith(".")}
    images = {name for name in seen if os.path.splitext(name)[1].lower() in extensions}
    with tempfile.TemporaryDirectory() as folder:
        root = tree(Path(folder, "root"), "class/", *[f"class/{name}" for name in names])
        if not images:
            assert "no image found" in refused(
                root, extensions=tuple(extensions), include_hidden=hidden
            )
            return
        report = listed(root, extensions=tuple(extensions), include_hidden=hidden)
        assert list(labels(root)) == [f"class/{name}" for name in sorted(images)]
    assert report.hidden == len(names) - len(seen)
    assert report.other_extensions.total() == len(seen) - len(images)
    assert report.class_counts == {0: len(images)}


def test_hidden_names_are_passed_over_and_counted(tmp_path: Path) -> None:
    names = ("a/1.jpg", "a/._1.jpg", "a/.2.jpg", "a/__MACOSX/3.jpg", ".b/4.jpg", "__MACOSX/5.jpg")
    root = tree(tmp_path / "root", *names)
    report = listed(root)
    assert labels(root) == {"a/1.jpg": "0"}
    assert (report.hidden, report.empty_classes) == (5, [])
    report = listed(root, include_hidden=True)
    assert labels(root) == {
        ".b/4.jpg": "0",
        "__MACOSX/5.jpg": "1",
        "a/._1.jpg": "2",
        "a/.2.jpg": "2",
        "a/1.jpg": "2",
        "a/__MACOSX/3.jpg": "2",
    }
    assert report.hidden == 0


def test_a_hidden_root_is_listed_all_the_same(tmp_path: Path) -> None:
    root = tree(tmp_path / ".root", "a/1.jpg")
    listed(root)
    assert labels(root) == {"a/1.jpg": "0"}


@pytest.mark.parametrize(
    ("names", "options", "found"),
    [
        ((), {}, "saw no other files"),
        (("a/",), {}, "saw no other files"),
        (
            ("a/1.txt", "a/2.gif", "a/3.gif", "a/\u200b.j\np"),
            {},
            "saw 2 .gif, 1 .txt, 1 .j\\np; name others with --exts",
        ),
        (("a/.1.jpg",), {}, "saw 1 hidden; list hidden ones with --include-hidden"),
        (("a/.1.jpg", "b.txt"), {}, "saw 1 .txt, 1 hidden; name others with --exts"),
        (("a/\t.jpg",), {}, "saw 1 whose names a list cannot hold; rename them"),
        (
            ("a/1.jpg",),
            {"recursive": False},
            "saw 1 folder not entered; --recursive enters it",
        ),
        (
            ("a/1.jpg", "b/2.jpg", "c.txt"),
            {"recursive": False},
            "saw 1 .txt, 2 folders not entered; --recursive enters them",
        ),
    ],
)
def test_nothing_found_says_what_was_looked_for_and_what_was_seen(
    tmp_path: Path, names: tuple[str, ...], options: dict[str, object], found: str
) -> None:
    root = tree(tmp_path / "root", "./", *names)
    assert refused(root, **options) == (
        f"ROOT: no image found; looked for .jpeg .jpg .png, {found}"
    )


@pytest.mark.parametrize("ending", [".lst", ".rec", ".idx"])
def test_a_prefix_that_is_a_file_s_name_is_refused(tmp_path: Path, ending: str) -> None:
    """It would become set.lst.lst."""
    root = tree(tmp_path / "root", "a/1.jpg")
    prefix = str(tmp_path / f"set{ending}")
    with pytest.raises(InputError) as caught:
        make_list(prefix, str(root), ListOptions())
    assert str(caught.value) == (
        f"{prefix}: PREFIX is what stands before .lst, and this ends with {ending}; "
        f"did you mean {tmp_path}/set?"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


# --- links and special files ------------------------------------------------------------------


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    tree(tmp_path / "elsewhere", "deep/2.jpg", "3.jpg")
    tree(tmp_path / "far", "4.jpg")
    root = tree(tmp_path / "root", "a/1.jpg", "b/")
    (root / "a" / "link.jpg").symlink_to("1.jpg")
    (root / "b" / "folder.jpg").symlink_to(tmp_path / "elsewhere")
    (root / "b" / "folder.jpg" / "on").symlink_to(tmp_path / "far")
    (root / "c").symlink_to(tmp_path / "far")
    (tmp_path / "root_too").symlink_to(root)
    listed(tmp_path / "root_too")
    assert labels(root) == {
        "a/1.jpg": "0",
        "a/link.jpg": "0",
        "b/folder.jpg/3.jpg": "1",
        "b/folder.jpg/deep/2.jpg": "1",
        "c/4.jpg": "2",  # entered here, with one link on the way, and not over b with two
    }


def test_loops_end_and_each_folder_is_listed_once(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/b/1.jpg", "c/2.jpg")
    (root / "a" / "b" / "up").symlink_to("..")
    (root / "a" / "self").symlink_to(".")
    (root / "c" / "root").symlink_to(root)
    report = listed(root)
    assert labels(root) == {"a/b/1.jpg": "0", "c/2.jpg": "1"}
    assert sorted(report.folders_again) == ["a/b/up", "a/self", "c/root"]


def test_a_link_from_class_to_class_takes_no_image_out_of_its_class(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "b/2.jpg", "b/deep/3.jpg")
    (root / "a" / "all_of_b").symlink_to("../b")
    (root / "a" / "deep").symlink_to("../b/deep")
    (root / "0").symlink_to("b/deep")
    report = listed(root)
    assert labels(root) == {"a/1.jpg": "0", "b/2.jpg": "1", "b/deep/3.jpg": "1"}
    assert report.folders_again == ["0", "a/all_of_b", "a/deep"]
    assert report.empty_classes == ["0"]


def test_links_that_lead_nowhere_are_passed_over_and_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    targets = {"gone.jpg": "x", "me.jpg": "me.jpg", "under_a_file": "1.jpg/x", "class": "../x"}
    for name, target in targets.items():
        (root / "a" / name).symlink_to(target)
    (root / "dog").symlink_to(tmp_path / "unmounted")  # a whole class must not vanish unnoticed
    report = listed(root)
    assert labels(root) == {"a/1.jpg": "0"}
    assert report.broken_links == ["dog", "a/class", "a/gone.jpg", "a/me.jpg", "a/under_a_file"]
    assert report.other_extensions == {}


def test_a_special_file_with_an_images_name_is_passed_over_and_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    os.mkfifo(root / "a" / "pipe.jpg")
    report = listed(root)
    assert labels(root) == {"a/1.jpg": "0"}
    assert report.broken_links == ["a/pipe.jpg"]


# --- names and folders that cannot be ---------------------------------------------------------


def test_names_that_a_list_cannot_hold_are_named_and_the_rest_is_listed(
    tmp_path: Path, im2rec: Run
) -> None:
    root = tree(tmp_path / "root", "a/1.jpg", "a/t\tb.jpg", "a/n\n.jpg", "a/c\rr.jpg", "x\ty/2.jpg")
    (root / os.fsdecode(b"a/\xff.jpg")).touch()
    (root / os.fsdecode(b"\xe9")).mkdir()
    (root / os.fsdecode(b"\xe9/3.jpg")).touch()
    done = im2rec("make-list", "-q", "set", "root", code=1)
    assert (tmp_path / "set.lst").read_bytes() == b"0\t0\ta/1.jpg\n"
    assert (tmp_path / "set.classes.txt").read_bytes() == b"a\n"
    assert done.stderr.splitlines() == [
        f"im2rec: error: {path}: passed over: {reason} in the name; rename it"
        for path, reason in (
            ("a/c\\rr.jpg", "a carriage return"),
            ("a/n\\n.jpg", "a newline"),
            ("a/t\\tb.jpg", "a TAB"),
            ("a/\\xff.jpg", "not UTF-8"),
            ("x\\ty/2.jpg", "a TAB"),
            ("\\xe9/3.jpg", "not UTF-8"),
        )
    ]


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of one's own, as a user whom permissions bind."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        user = os.geteuid()
        if user == 0:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(user)


@pytest.mark.parametrize("name", ["", "a", "b/deep"])
def test_a_folder_that_may_not_be_read_is_an_error(unprivileged: Path, name: str) -> None:
    root = tree(unprivileged / "root", "a/1.jpg", "b/deep/2.jpg")
    (root / name).chmod(0o000)
    with pytest.raises(InputError) as caught:
        listed(root)
    (root / name).chmod(0o700)
    assert str(caught.value) == f"{root / name}: cannot be read: Permission denied"
    assert [path.name for path in unprivileged.iterdir()] == ["root"]


def test_a_link_into_a_folder_that_may_not_be_read_is_an_error(unprivileged: Path) -> None:
    closed = tree(unprivileged / "closed", "deep/1.jpg")
    root = tree(unprivileged / "root", "a/1.jpg")
    (root / "b").symlink_to(closed / "deep")
    closed.chmod(0o000)
    with pytest.raises(InputError) as caught:
        listed(root)
    closed.chmod(0o700)
    assert str(caught.value) == f"{root}/b: cannot be read: Permission denied"


def test_a_path_too_long_for_the_system_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    long = "d" * 250
    folder = os.open(root, os.O_RDONLY)
    for _ in range(17):  # beyond PATH_MAX, 4096 bytes
        os.mkdir(long, dir_fd=folder)
        deeper = os.open(long, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    with pytest.raises(InputError, match=r"cannot be read: File name too long$"):
        listed(root)


@pytest.mark.parametrize(
    ("name", "found"),
    [("nowhere", "there is no such folder"), ("file", "is not a folder")],
)
def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path / name) == f"ROOT: ROOT: {found}; the order is PREFIX ROOT"


# --- parts ------------------------------------------------------------------------------------


def parts(folder: Path, root: Path, **options: object) -> dict[str, list[Row]]:
    """The lists that a run writes, by what follows the prefix."""
    listed(root, **{"seed": 1, "shuffle": True, **options})
    return {path.stem.removeprefix("set"): rows(path) for path in folder.glob("set*.lst")}


def im2rec_py(images: list[Row], train: float, test: float, chunks: int) -> dict[str, list[Row]]:
    """What im2rec.py writes, by what follows the prefix; it can lose images, or double them."""
    lists = {}
    size = (len(images) + chunks - 1) // chunks
    for number in range(chunks):
        chunk = images[number * size : (number + 1) * size]
        name = f"_{number}" if chunks > 1 else ""
        first, second = int(size * test), int(size * test) + int(size * train)
        if train == 1.0:
            lists[name] = chunk
            continue
        if test:
            lists[f"{name}_test"] = chunk[:first]
        if train + test < 1.0:
            lists[f"{name}_val"] = chunk[second:]
        lists[f"{name}_train"] = chunk[first:second]
    return lists


RATIO = st.none() | st.integers(0, 20).map(lambda n: n / 20) | st.floats(0, 1)


@given(
    count=st.integers(1, 40),
    train=RATIO,
    test=RATIO,
    chunks=st.integers(1, 9),
    stratify=st.booleans(),
    ids=st.sampled_from(["run", "per-list"]),
)
def test_the_parts_are_a_partition_and_im2rec_pys_where_it_loses_nothing(
    count: int, train: float | None, test: float | None, chunks: int, stratify: bool, ids: str
) -> None:
    if (train or 0) + (test or 0) > 1:
        train = 1 - (test or 0)
    stratify = stratify and (train, test) != (None, None)
    names = [f"{number % 3}/{number}.jpg" for number in range(count)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = tree(folder / "root", *names)
        whole = parts(folder, root)[""]
        (folder / "set.lst").unlink()
        lists = parts(
            folder, root, train_ratio=train, test_ratio=test, chunks=chunks, stratify=stratify
        )
        assert Counter(row for part in lists.values() for row in part) == Counter(whole)
        position = {row: at for at, row in enumerate(whole)}
        for part in lists.values():
            assert [position[row] for row in part] == sorted(position[row] for row in part)
        if not stratify and (train is not None or not test):
            theirs = im2rec_py(whole, 1.0 if train is None else train, test or 0.0, chunks)
            if sum(map(len, theirs.values())) == count:
                assert lists == theirs
        again = parts(
            folder,
            root,
            train_ratio=train,
            test_ratio=test,
            chunks=chunks,
            stratify=stratify,
            ids=ids,
        )
    for part_name, part in again.items():
        numbers = [str(number) for number in range(len(part))]
        assert [row[1:] for row in part] == [row[1:] for row in lists[part_name]]
        assert [row[0] for row in part] == (
            numbers if ids == "per-list" else [row[0] for row in lists[part_name]]
        )


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"test_ratio": 0.3}, {"_test": 3, "_train": 7}),
        ({"test_ratio": 0.0}, {"": 10}),
        ({"test_ratio": 1.0}, {"_test": 10, "_train": 0}),
        ({"train_ratio": 0.7}, {"_train": 7, "_val": 3}),
        ({"train_ratio": 0.0}, {"_train": 0, "_val": 10}),
        ({"train_ratio": 1.0}, {"": 10}),
        ({"train_ratio": 0.25, "test_ratio": 0.25}, {"_test": 2, "_train": 2, "_val": 6}),
        ({"train_ratio": 0.7, "test_ratio": 0.3}, {"_test": 3, "_train": 7}),
        # im2rec.py rounds both down and loses an image
        ({"train_ratio": 0.75, "test_ratio": 0.25}, {"_test": 2, "_train": 8}),
        ({"chunks": 3}, {"_0": 4, "_1": 4, "_2": 2}),
        ({"chunks": 7}, {"_0": 2, "_1": 2, "_2": 2, "_3": 2, "_4": 2, "_5": 0, "_6": 0}),
        (
            {"chunks": 2, "train_ratio": 0.5},
            {"_0_train": 2, "_0_val": 3, "_1_train": 2, "_1_val": 3},
        ),
    ],
)
def test_how_many_images_each_part_of_ten_has(
    tmp_path: Path, options: dict[str, object], sizes: dict[str, int]
) -> None:
    root = tree(tmp_path / "root", *(f"a/{number}.jpg" for number in range(10)))
    assert {name: len(part) for name, part in parts(tmp_path, root, **options).items()} == sizes


def test_the_report_names_the_lists_in_the_order_of_writing(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", *(f"a/{number}.jpg" for number in range(10)))
    report = listed(root, train_ratio=0.5, test_ratio=0.2)
    assert report.lists == [
        (str(tmp_path / f"set_{name}.lst"), count)
        for name, count in (("test", 2), ("val", 3), ("train", 5))
    ]
    assert report.images == 10


def test_stratify_splits_each_class_by_the_ratios(tmp_path: Path) -> None:
    sizes = {"a": 20, "b": 10, "c": 4, "d": 1}
    root = tree(
        tmp_path / "root", *(f"{c}/{n}.jpg" for c, size in sizes.items() for n in range(size))
    )
    lists = parts(tmp_path, root, train_ratio=0.5, test_ratio=0.25, stratify=True)
    assert {name: Counter(label for _, label, _ in part) for name, part in lists.items()} == {
        "_test": {"0": 5, "1": 3, "2": 1},  # the nearest, class by class
        "_train": {"0": 10, "1": 5, "2": 2, "3": 1},  # one at least
        "_val": {"0": 5, "1": 2, "2": 1},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_ratio": 1.1}, "--train-ratio 1.1, expected 0 to 1"),
        ({"train_ratio": -0.1}, "--train-ratio -0.1, expected 0 to 1"),
        ({"test_ratio": float("nan")}, "--test-ratio nan, expected 0 to 1"),
        (
            {"train_ratio": 0.8, "test_ratio": 0.3},
            "--train-ratio 0.8 and --test-ratio 0.3 add up to more than 1",
        ),
        ({"chunks": 0}, "--chunks 0, expected at least 1"),
        ({"stratify": True}, "--stratify needs --train-ratio or --test-ratio"),
        ({"extensions": ()}, "--exts names no extension"),
        ({"label_from": "bottom"}, "--label-from 'bottom', expected top or leaf"),
        ({"ids": "global"}, "--ids 'global', expected run or per-list"),
        (
            {"recursive": False, "classes": "map"},
            "--no-recursive gives every image label 0; it takes no classes",
        ),
    ],
)
def test_options_that_cannot_be_honoured_are_errors(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    with pytest.raises(OptionError):
        listed(root, **options)
    assert refused(root, **options) == message


def test_ratios_that_add_up_to_1_but_for_rounding_are_taken(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", *(f"a/{number}.jpg" for number in range(10)))
    train, test = 1.1 - 0.2, 0.1
    assert train + test > 1
    lists = parts(tmp_path, root, train_ratio=train, test_ratio=test)
    assert {name: len(part) for name, part in lists.items()} == {"_test": 1, "_train": 9}


# --- files ------------------------------------------------------------------------------------


def test_an_error_leaves_an_older_list_untouched(tmp_path: Path) -> None:
    (tmp_path / "set.lst").write_text("old", "utf-8")
    (tmp_path / "set.classes.txt").write_text("older", "utf-8")
    refused(tree(tmp_path / "root", "a/1.txt"))
    assert (tmp_path / "set.lst").read_text("utf-8") == "old"
    assert (tmp_path / "set.classes.txt").read_text("utf-8") == "older"
    listed(tree(tmp_path / "root", "a/1.jpg"))
    assert (tmp_path / "set.lst").read_text("utf-8") == "0\t0\ta/1.jpg\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "root",
        "set.classes.txt",
        "set.lst",
    ]


def test_a_prefix_in_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    with pytest.raises(OutputError) as caught:
        make_list(str(tmp_path / "new" / "set"), str(root), ListOptions())
    assert "there is no folder" in str(caught.value)


def test_a_list_inside_root_does_not_change_the_next_one(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a/1.jpg")
    for _ in range(2):
        make_list(str(root / "set"), str(root), ListOptions(include_hidden=True, fsync=False))
        assert rows(root / "set.lst") == [("0", "0", "a/1.jpg")]
