"""The errors: one root, one line each, and whole after a trip through a process pool."""

from __future__ import annotations

import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from im2rec import errors
from im2rec.errors import (
    AnnotationError,
    BusyError,
    DamageError,
    Im2recError,
    ImageError,
    IndexLineError,
    InputError,
    ListError,
    NothingPacked,
    OptionError,
    OutputError,
    PayloadError,
    RecordError,
    TooManyFailures,
    WorkerError,
    printable,
)

ERRORS: dict[str, tuple[Im2recError, str]] = {
    "option": (OptionError("--shards 0: at least 1"), "--shards 0: at least 1"),
    "input": (InputError("a.lst", "is empty"), "a.lst: is empty"),
    "input with a hint": (
        InputError("a.lst", "is empty", "run make-list"),
        "a.lst: is empty; run make-list",
    ),
    "list": (
        ListError("a.lst", ((2, "no id"), (5, "no path")), 2),
        "a.lst:2: no id\na.lst:5: no path",
    ),
    "list with one more": (
        ListError("a.lst", ((2, "no id"),), 2),
        "a.lst:2: no id\na.lst: 1 more row at fault",
    ),
    "list with more": (
        ListError("a.lst", ((2, "no id"),), 23),
        "a.lst:2: no id\na.lst: 22 more rows at fault",
    ),
    "annotations": (
        AnnotationError("a.csv", (("a.csv:2", "no path"), ("a.csv:5", "two\nlines")), 2),
        "a.csv:2: no path\na.csv:5: two\\nlines",
    ),
    "annotations with more": (
        AnnotationError("a.json", (("a.json: images[3]", "no id"),), 23),
        "a.json: images[3]: no id\na.json: 22 more at fault",
    ),
    "record": (RecordError("a.rec", 16, "magic", "no magic"), "a.rec: byte 16: no magic"),
    "damage": (
        DamageError((("a.rec", 16, "no magic"),), 1),
        "a.rec: byte 16: no magic\n"
        "a.rec: damaged in 1 place; nothing was written; --salvage takes what is whole",
    ),
    "damage in places": (
        DamageError((("a.rec", 16, "no magic"),), 30),
        "a.rec: byte 16: no magic\n"
        "a.rec: damaged in 30 places; nothing was written; --salvage takes what is whole",
    ),
    "payload": (PayloadError("3 bytes"), "3 bytes"),
    "index line": (IndexLineError("a.idx", 7, "found ''"), "a.idx:7: found ''"),
    "image": (ImageError("truncated"), "truncated"),
    "output": (OutputError("a.rec", "no space"), "a.rec: cannot write: no space"),
    "output with a hint": (
        OutputError("a.rec", "no space", "make room"),
        "a.rec: cannot write: no space; make room",
    ),
    "busy": (
        BusyError("out/set"),
        "out/set: another im2rec run is writing it; wait until it ends, or choose another name",
    ),
    "worker": (WorkerError("a worker died", ()), "a worker died"),
    "worker with all": (
        WorkerError("a worker died", ("a.jpg", "b\n.jpg"), "lower --workers"),
        r"a worker died; in hand: a.jpg, b\n.jpg; lower --workers",
    ),
    "too many failures": (
        TooManyFailures("a.lst", 3, 2, 10),
        "a.lst: stopped after 3 of 10 images that cannot be packed, 2 allowed; "
        "nothing was written; mend them, list anew where files have gone, "
        "or leave them out with --max-failures N or P%; 100% lists all of them in "
        "PREFIX.failures.tsv",
    ),
    "no rows": (
        NothingPacked("a.lst", 0, 0, "root"),
        "a.lst: the list has no rows; nothing was written",
    ),
    "all failed": (
        NothingPacked("a.lst", 8, 8, "root"),
        "a.lst: not one of its 8 images could be packed; nothing was written; "
        "is ROOT (root) the folder that the list's paths start from?",
    ),
    "all tried failed": (
        NothingPacked("a.lst", 3, 8, "root"),
        "a.lst: not one of the first 3 of its 8 images could be packed; nothing was written; "
        "is ROOT (root) the folder that the list's paths start from?",
    ),
}

CLASSES = {
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if value.__module__ == errors.__name__
}


def test_every_error_is_tested_here_and_has_the_one_root() -> None:
    assert {type(error) for error, _ in ERRORS.values()} == CLASSES - {Im2recError}
    assert all(issubclass(kind, Im2recError) for kind in CLASSES)


@pytest.mark.parametrize(("error", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_says_this(error: Im2recError, message: str) -> None:
    assert str(error) == message


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", [error for error, _ in ERRORS.values()], ids=ERRORS)
def test_an_error_survives_a_trip_between_processes(error: Im2recError, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("a\nb", "is empty"), r"a\nb: is empty"),
        (OutputError("a\tb", "no space"), r"a\tb: cannot write: no space"),
        (RecordError("a\x1b[2Jb", 0, "magic", "no magic"), r"a\x1b[2Jb: byte 0: no magic"),
        (IndexLineError("a\udcffb", 1, "no TAB"), r"a\xffb:1: no TAB"),
        (ListError("a\rb", ((1, "no id"),), 2), "a\\rb:1: no id\na\\rb: 1 more row at fault"),
    ],
)
def test_a_strange_path_cannot_break_the_line_or_the_terminal(
    error: Im2recError, message: str
) -> None:
    assert str(error) == message


@pytest.mark.parametrize("path", ["a\nb", "a\udcff"])
def test_no_error_lets_a_strange_path_through(path: str) -> None:
    for error in (
        BusyError(path),
        TooManyFailures(path, 1, 0, 1),
        NothingPacked(path, 0, 0, "root"),
        NothingPacked("a.lst", 1, 1, path),
        WorkerError("a worker died", (path,)),
    ):
        assert printable(path) in str(error)
        assert path not in str(error)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b/ü/日本.jpg", "a b/ü/日本.jpg"),
        ("a\\b", "a\\b"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x00\x1b\x7f", r"\x00\x1b\x7f"),
        ("\x85\u2028\u2029", r"\x85\u2028\u2029"),  # line ends to str.splitlines
        ("\u202e", r"\u202e"),  # would turn the rest of the line around
        ("caf\udce9", r"caf\xe9"),  # a file name in Latin-1, as the system hands it over
        ("\udc80\udcff", r"\x80\xff"),
        ("\ud800\udfff\udc7f", r"\ud800\udfff\udc7f"),  # what no file name can be
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_printable_shows_this(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_printable_is_one_line_of_utf8(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert shown.isprintable()
    assert printable(shown) == shown
