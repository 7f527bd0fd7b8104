"""Old command lines: those of im2rec.py, im2rec.cc and rec2idx.py, as they stand in scripts.

`im2rec-legacy` or `python -m im2rec.legacy` says which `im2rec` command does the same, and runs it.
Of im2rec.py every version's spelling is taken; the meaning is MXNet 1.9.1's. What differs from the
old tools on purpose is what `im2rec` does differently: an image that cannot be read is named and
stops the run (add `--max-failures`), hidden files are not listed, a malformed row is an error.

A record with several labels differs from im2rec.cc's in four bytes that no reader of such a record
takes: im2rec.cc repeats the first label in the header, im2rec.py and we write 0 there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from im2rec.cli import cli
from im2rec.errors import OptionError, printable
from im2rec.record_set import family_lists
from im2rec.terminal import EXIT_CANNOT, EXIT_DONE, print_data, run, say

HELP = """\
Usage: im2rec-legacy --list [OPTIONS] PREFIX ROOT     as im2rec.py
       im2rec-legacy [OPTIONS] PREFIX ROOT            as im2rec.py
       im2rec-legacy LST ROOT OUT.rec [KEY=VALUE]...  as im2rec.cc
       im2rec-legacy REC IDX                          as rec2idx.py

  Take an old command line as it is, say which im2rec command does the same, and run that.

  Every spelling of every version is known: --list True, --list=1, --num_thread, --res 256. The
  options of `im2rec make-list` and `im2rec pack` may be added. What is not as it was: hidden files
  are not listed (--include-hidden), and an image that cannot be read stops the run, unless
  --max-failures allows it.

Options:
  -q, --quiet  Errors and failures only.
  -h, --help   Show this message and exit.

Example:
  im2rec-legacy --list --recursive --train-ratio 0.9 data/set photos
  im2rec-legacy --resize 256 --num-thread 16 --max-failures 1% data/set photos
"""

# im2rec.py's options. Those that were switches, or took a word for a truth (`--list True`):
FLAGS = ("list", "recursive", "shuffle", "no-shuffle", "pass-through", "center-crop", "pack-label")
# Those that take one value; exts takes all words up to the next option.
VALUES: Mapping[str, Callable[[str], object]] = {
    "chunks": int,
    "train-ratio": float,
    "test-ratio": float,
    "resize": int,
    "quality": int,
    "num-thread": int,
    "color": int,
    "encoding": str,
}
OLD = (*FLAGS, *VALUES, "exts")

YES = ("true", "t", "yes", "y", "on", "1")
NO = ("false", "f", "no", "n", "off", "0", "none")

# im2rec.cc's keys; it passes over all others.
KEYS = {
    "color": 1,
    "resize": -1,
    "label_width": 1,
    "pack_label": 0,
    "nsplit": 1,
    "part": 0,
    "center_crop": 0,
    "quality": 95,
    "inter_method": 1,
    "unchanged": 0,
}
INTERPOLATIONS = {
    0: "nearest",
    1: "linear",
    2: "cubic",
    3: "area",
    4: "lanczos",
    9: "auto",
    10: "random",
}


@dataclass(frozen=True)
class Translation:
    """The `im2rec` command for an old line, and what is to be said of it.

    command: of which the last two words are PREFIX and ROOT, where it is of im2rec.py (by_prefix).
    """

    command: list[str]
    notes: list[str] = field(default_factory=list)
    by_prefix: bool = False


@dataclass
class _Line:
    """An old line's parts: names, im2rec.py's options, and options of ours as they were given."""

    names: list[str] = field(default_factory=list)
    old: dict[str, str] = field(default_factory=dict)
    exts: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translate(arguments: list[str]) -> Translation:
    """The `im2rec` command that does what an old command line did; a pure function.

    Raises OptionError for what was no old command line either, or has no equal here.
    """
    line = _read(arguments, flags_take_words=False)
    if len(line.names) != 2 and line.old:  # `--list True PREFIX ROOT`, from before MXNet 1.0
        line = _read(arguments, flags_take_words=True)
    if not line.old and line.names and line.names[0].endswith(".rec"):
        return _of_rec2idx(line)
    if not line.old and len(line.names) > 2:
        return _of_im2rec_cc(line)
    if len(line.names) != 2:
        swallowed = " --exts takes every word up to the next option: put it last." * bool(line.exts)
        found = " ".join(map(shlex.quote, line.names)) or "none"
        raise OptionError(
            f"expected PREFIX ROOT, found {found}.{swallowed} Quote names that have spaces. "
            "See 'im2rec-legacy --help'."
        )
    return _to_make_list(line) if _truth(line, "list") else _to_pack(line)


# --- reading the line -------------------------------------------------------------------------


def _read(arguments: list[str], flags_take_words: bool) -> _Line:
    """The parts of a line, with options before, between and after the names, as argparse has them.

    flags_take_words: whether a truth behind a switch is the switch's (`--list True`), or a name.
    """
    line = _Line()
    rest = list(arguments)
    own = _own_options()
    while rest:
        word = rest.pop(0)
        if word == "--":
            line.names += rest
            break
        if not word.startswith("-") or word == "-":
            line.names.append(word)
            continue
        name, equals, value = word.partition("=")
        spelling, is_old = _option(name, own)
        if not is_old:
            line.own.append(f"{spelling}{equals}{value}")
            if not own[spelling] and not equals:
                line.own.append(_value(spelling, rest))
        elif spelling == "exts":
            line.exts.clear()  # of several the last counts, with argparse
            line.exts += [value] if equals else _words(spelling, rest)
            line.old["exts"] = ""
        elif spelling in VALUES:
            line.old[spelling] = _checked(spelling, value if equals else _value(spelling, rest))
        else:
            if not equals and flags_take_words and rest and rest[0].lower() in (*YES, *NO):
                equals, value = "=", rest.pop(0)
            line.old[spelling] = value if equals else "true"
    return line


def _own_options() -> dict[str, bool]:
    """make-list's and pack's options by spelling; whether each is a switch."""
    known = {}
    for command in ("make-list", "pack"):
        for parameter in cli.commands[command].params:
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                if spelling.startswith("-"):
                    known[spelling] = bool(getattr(parameter, "is_flag", False))
    return known


def _option(given: str, own: Mapping[str, bool]) -> tuple[str, bool]:
    """An option's name and whether it is im2rec.py's: that, whole, one of ours, or the beginning
    of one of im2rec.py's."""
    name = given[2:].replace("_", "-") if given.startswith("--") else ""
    if name in OLD:
        return name, True
    for spelling in (given, f"--{name}"):
        if spelling in own:
            return spelling, False
    begun = [each for each in OLD if name and each.startswith(name)]
    if len(begun) == 1:
        return begun[0], True
    if begun:
        several = " or ".join(f"--{each}" for each in begun)
        raise OptionError(f"{given} may be {several}; write it out")
    raise OptionError(
        f"{given}: no im2rec.py had this option, nor has im2rec. See 'im2rec-legacy --help'."
    )


def _value(name: str, rest: list[str]) -> str:
    """The word behind an option, which may be a negative number."""
    if not rest or (rest[0].startswith("-") and not rest[0][1:2].isdigit()):
        raise OptionError(f"--{name.lstrip('-')} expects a value behind it")
    return rest.pop(0)


def _words(name: str, rest: list[str]) -> list[str]:
    words = [_value(name, rest)]
    while rest and not rest[0].startswith("-"):
        words.append(rest.pop(0))
    return words


def _checked(name: str, text: str) -> str:
    """A value as im2rec.py would read it."""
    kind = VALUES[name]
    try:
        return str(kind(text))
    except ValueError:
        expected = "a number" if kind is float else "a whole number"
        raise OptionError(f"--{name} {text!r}, expected {expected}") from None


def _truth(line: _Line, name: str, default: bool = False) -> bool:
    """What a switch says. Before MXNet 1.0 any word was yes, `False` too: here it is no."""
    word = line.old.get(name)
    if word is None:
        return default
    if word.lower() in YES:
        return True
    if word and word.lower() not in NO:
        raise OptionError(f"--{name}={word}, expected True or False")
    line.notes.append(f"--{name} {word} is no here; some versions of im2rec.py took it for yes")
    return False


# --- im2rec.py --------------------------------------------------------------------------------


def _to_make_list(line: _Line) -> Translation:
    prefix, root = line.names
    words = ["make-list"]
    words += ["--label-from", "leaf"] if _truth(line, "recursive") else ["--no-recursive"]
    if not _truth(line, "shuffle", default=True) or _truth(line, "no-shuffle"):
        words.append("--no-shuffle")
    if line.exts:
        words += ["--exts", ",".join(line.exts)]
    words += _as_given(line, "chunks")
    test = float(line.old.get("test-ratio", 0))
    if float(line.old.get("train-ratio", 1)) != 1:
        words += _as_given(line, "train-ratio", "test-ratio")
    elif test:
        line.notes.append(
            "im2rec.py passes over --test-ratio without --train-ratio, so there is one list; "
            "im2rec make-list --test-ratio splits"
        )
    # im2rec.py makes `folder/` into the list folder.lst
    names = _names(prefix.rstrip("/") or prefix, root or ".")
    return Translation([*words, *line.own, *names], line.notes)


def _to_pack(line: _Line) -> Translation:
    words = ["pack"]
    if _truth(line, "pass-through"):
        words.append("--pass-through")
        _tell_unused(line, ("resize", "center-crop", "quality", "color", "encoding"))
    else:
        words += _as_given(line, "resize", "color", "encoding")
        words += ["--center-crop"] if _truth(line, "center-crop") else []
        is_png = line.old.get("encoding", "").lower().endswith("png")
        if is_png or "quality" in line.old:
            words += _quality(is_png, int(line.old.get("quality", 95)))
    if not _truth(line, "pack-label"):
        words.append("--no-pack-label")
    if "num-thread" in line.old:
        words += ["--workers", str(max(1, int(line.old["num-thread"])))]
    prefix, root = line.names
    names = _names(prefix, root or ".")
    return Translation([*words, *_rootless(root), *line.own, *names], line.notes, by_prefix=True)


def _tell_unused(line: _Line, names: tuple[str, ...]) -> None:
    unused = [f"--{name}" for name in names if name in line.old]
    if unused:
        line.notes.append(f"{', '.join(unused)}: of no use with --pass-through, as in im2rec.py")


def _as_given(line: _Line, *names: str) -> list[str]:
    return [word for name in names if name in line.old for word in (f"--{name}", line.old[name])]


def _quality(is_png: bool, quality: int) -> list[str]:
    """--quality as OpenCV takes what is out of bounds; im2rec.py's 95 makes a PNG of level 9."""
    least, most = (0, 9) if is_png else (1, 100)
    return ["--quality", str(min(max(quality, least), most))]


def _rootless(root: str) -> list[str]:
    """ROOT may be "": the list's paths are whole, so they are let out of the current folder."""
    return [] if root else ["--allow-outside-root"]


def _names(prefix: str, root: str) -> list[str]:
    return (
        ["--", prefix, root] if prefix.startswith("-") or root.startswith("-") else [prefix, root]
    )


# --- im2rec.cc --------------------------------------------------------------------------------


def _of_im2rec_cc(line: _Line) -> Translation:
    lst, root, out, *rest = line.names
    for name, what, ending in ((lst, "list", ".lst"), (out, "file to write", ".rec")):
        if not name.endswith(ending):
            raise OptionError(
                f"{printable(name)}: of three names, LST ROOT OUT, this is the {what}; name it "
                f"with {ending}. PREFIX ROOT are two: quote names that have spaces."
            )
    values, encoding, notes = _key_values(rest)
    if values["nsplit"] != 1:
        raise OptionError(
            f"nsplit={values['nsplit']}: parts of a list are not packed one by one; "
            f"im2rec pack --shards {values['nsplit']} writes them all"
        )
    width = values["label_width"]
    if values["pack_label"] and width <= 1:
        raise OptionError("pack_label=1 goes with label_width=N above 1, as in im2rec.cc")
    words = ["pack", "--label-width", str(width)]
    if width > 1 and not values["pack_label"]:
        words.append("--no-pack-label")
    words += _cc_image_options(values, encoding, notes)
    words += _rootless(root)
    if os.path.normpath(out.removesuffix(".rec")) != os.path.normpath(lst.removesuffix(".lst")):
        words += ["--output", out.removesuffix(".rec")]
    return Translation([*words, *line.own, *_names(lst, root or ".")], notes)


def _key_values(rest: list[str]) -> tuple[dict[str, int], str, list[str]]:
    """im2rec.cc's settings, its encoding, and notes of what it passes over."""
    values, encoding, unknown = dict(KEYS), ".jpg", []
    for word in rest:
        key, _, value = word.partition("=")
        if key == "encoding" and value:
            encoding = value
        elif key in KEYS and value:
            try:
                values[key] = int(value)
            except ValueError:
                raise OptionError(f"{key}={value}, expected a whole number") from None
        elif key not in KEYS:
            unknown.append(word)
    notes = [f"{printable(' '.join(unknown))}: passed over, as by im2rec.cc"] if unknown else []
    return values, encoding, notes


def _cc_image_options(values: dict[str, int], encoding: str, notes: list[str]) -> list[str]:
    if values["unchanged"] == 1:
        return ["--pass-through"]
    words = []
    if values["resize"] > 0:
        words += ["--resize", str(values["resize"])]
        words += ["--center-crop"] if values["center_crop"] else []
        method = values["inter_method"]
        if method != KEYS["inter_method"]:
            words += ["--interpolation", INTERPOLATIONS.get(method, str(method))]
    elif values["center_crop"]:
        notes.append("center_crop does nothing without resize, as in im2rec.cc")
    if encoding != ".jpg":
        words += ["--encoding", encoding]
    quality = values["quality"]
    if encoding == ".png":
        words += _quality(True, quality if quality <= 9 else 3)
    elif quality != KEYS["quality"]:
        words += _quality(False, quality)
    if values["color"] != KEYS["color"]:
        words += ["--color", str(values["color"])]
    return words


# --- rec2idx.py -------------------------------------------------------------------------------


def _of_rec2idx(line: _Line) -> Translation:
    if len(line.names) != 2:
        raise OptionError("rec2idx.py takes two names, REC IDX. See 'im2rec-legacy --help'.")
    rec, idx = line.names
    return Translation(["index", "--keys", "position", "--output", idx, *line.own, rec])


# --- running ----------------------------------------------------------------------------------


def _commands(translation: Translation) -> list[list[str]]:
    """The command, once for each PREFIX where im2rec.py's stands for several lists."""
    command = translation.command
    if not translation.by_prefix:
        return [command]
    *words, prefix, root = command
    return [[*words, each, root] for each in _prefixes(prefix, translation.notes)]


def _prefixes(prefix: str, notes: list[str]) -> list[str]:
    """What `im2rec pack` must be given for im2rec.py's PREFIX: itself, or a folder of lists, or,
    where there is no list of that name, all lists whose names begin with it."""
    try:
        if os.path.isdir(prefix) and any(name.endswith(".lst") for name in os.listdir(prefix)):
            return [os.path.join(prefix, "")]
        folder, stem = os.path.split(prefix)
        beginning = sorted(
            name
            for name in os.listdir(folder or ".")
            if name.startswith(stem) and name.endswith(".lst")
        )
        family = {os.path.basename(prefix.removesuffix(".lst")) + ".lst"}
        if not family.intersection(beginning):
            family = set(family_lists(prefix))
    except OSError:  # pack says so
        return [prefix]
    if not family.intersection(beginning):
        return [os.path.join(folder, name) for name in beginning] or [prefix]
    others = [name for name in beginning if name not in family]
    if others:
        names = printable(", ".join(others))
        notes.append(f"im2rec.py would pack these, too: {names}; here name each by itself")
    return [prefix]


def _program(arguments: list[str]) -> int:
    if not arguments:
        say(HELP.removesuffix("\n"))
        return EXIT_CANNOT
    if "-h" in arguments or "--help" in arguments:
        print_data(HELP.removesuffix("\n"))
        return EXIT_DONE
    translation = translate(arguments)
    commands = _commands(translation)
    quiet = "-q" in arguments or "--quiet" in arguments
    for note in translation.notes if not quiet else []:
        say(f"im2rec-legacy: {note}")
    for command in commands:
        if not quiet:
            say(f"im2rec-legacy: the same as: {printable(shlex.join(['im2rec', *command]))}")
        code = cli.main(command, standalone_mode=False, prog_name="im2rec")
        if code:
            return int(code)
    return EXIT_DONE


def main(arguments: list[str]) -> NoReturn:
    """Runs an old command line and exits."""
    run(lambda: _program(arguments))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
