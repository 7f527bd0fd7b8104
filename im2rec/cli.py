"""The command line: options, progress, all printing, exit codes; the only home of click and tqdm.

Data goes to stdout, everything else to stderr. The verbs are imported when they are called, so that
`--help` need not wait for numpy, Pillow or OpenCV.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from im2rec import __version__
from im2rec.errors import (
    Im2recError,
    InputError,
    NothingPacked,
    OptionError,
    TooManyFailures,
    printable,
)
from im2rec.interrupts import HELD, signals_held

if TYPE_CHECKING:
    from im2rec.inspection import RecordLine, Summary
    from im2rec.make_list import ListReport
    from im2rec.pack import PackOptions, PackReport
    from im2rec.part import Failure
    from im2rec.verify import Problem, VerifyReport

EXIT_DONE, EXIT_PROBLEMS, EXIT_CANNOT = 0, 1, 2
EXIT_SIGNAL = 128  # + the signal's number, as shells have it
EXIT_PIPE = EXIT_SIGNAL + 13  # SIGPIPE, which Python turns into an exception

MAX_LINES = 20  # failures, remarks, problems of a kind printed one by one; the rest are counted
PLAIN_INTERVAL = 5.0  # seconds between progress lines where stderr is no terminal
INTERPOLATION_NAMES = ("nearest", "linear", "cubic", "area", "lanczos", "auto", "random")
INTERPOLATION_NUMBERS = {
    "0": "nearest",
    "1": "linear",
    "2": "cubic",
    "3": "area",
    "4": "lanczos",
    "9": "auto",
    "10": "random",
}

Command = TypeVar("Command", bound=Callable[..., Any])


# --- exit codes: the one place where errors become numbers ------------------------------------


def exit_code(error: BaseException) -> int:
    """The exit code that an error ends the program with."""
    if isinstance(error, _Ended):
        return EXIT_SIGNAL + error.number
    if isinstance(error, KeyboardInterrupt):
        return EXIT_SIGNAL + signal.SIGINT
    if isinstance(error, TooManyFailures | NothingPacked):
        return EXIT_PROBLEMS
    return EXIT_CANNOT


class _Ended(BaseException):
    """A signal that ends the run, raised where the run stands so that it cleans up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> NoReturn:
    """Runs the program and exits; whatever a user can cause ends in one line on stderr."""
    _prepare_streams()
    # NumPy's linear algebra, which nothing here uses, would start a thread for each CPU, and a
    # process that has threads cannot be forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        _prepare_signals()
        code = _run()
        _ignore_signals()  # what is done is done, and told by the exit code
    except BaseException as error:
        signalled = _signal_behind(error)
        if signalled is None:
            raise
        _ignore_signals()
        code = exit_code(signalled)
        name = signal.Signals(code - EXIT_SIGNAL).name if code > EXIT_SIGNAL else "Ctrl-C"
        _say_error(f"ended by {name}; nothing was left half-written")
    _let_go_of_streams()
    sys.exit(code)


def _run() -> int:
    """Runs the program; its exit code."""
    try:
        code = cli.main(standalone_mode=False, prog_name="im2rec") or EXIT_DONE
        sys.stdout.flush()
        return code
    except (_PipeClosed, BrokenPipeError):  # the reader has seen enough, as with `| head`
        return EXIT_PIPE
    except SystemExit:  # click's own for that, as with `--help | head`
        if isinstance(sys.stdout, click.utils.PacifyFlushWrapper):  # type: ignore[arg-type]
            return EXIT_PIPE
        raise
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:  # `im2rec` alone
        _say(error.format_message())
        return EXIT_CANNOT
    except click.ClickException as error:
        _say_error(_click_message(error))
        return EXIT_CANNOT
    except Im2recError as error:
        _say_error(str(error))
        return exit_code(error)
    except OSError as error:
        path = f"{printable(str(error.filename))}: " if error.filename else ""
        _say_error(f"{path}{error.strerror or error}")
        return exit_code(error)
    except MemoryError as error:
        _say_error("out of memory")
        return exit_code(error)


def _signal_behind(error: BaseException | None) -> BaseException | None:
    """The end by a signal that an exception stems from: libraries turn it into errors of theirs."""
    while error and not isinstance(error, _Ended | KeyboardInterrupt | click.Abort):
        error = error.__cause__ or error.__context__
    return error


def _prepare_signals() -> None:
    """Makes signals end the run from wherever it stands, whatever the parent does with its own."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        if not came:  # once is enough: the clean-up must not be cut short
            came.append(number)
            raise _Ended(number)

    def end_again(*_: object) -> None:
        signal.raise_signal(came.pop())

    def end_soon(dropped: Any) -> None:
        """Python drops what is raised in a finalizer, or in a callback of an import."""
        if isinstance(dropped.exc_value, _Ended) and hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, end_again)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(dropped)

    sys.unraisablehook = end_soon
    for number in HELD:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or `&` in a script
            signal.signal(number, end)
    # What a parent ignores or blocks is inherited. Without these, the ends of workers are not told,
    # and the signals above never come.
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _prepare_streams() -> None:
    """Makes text the same bytes whatever the locale, and closed streams harmless."""
    if sys.getfilesystemencoding() != "utf-8":  # start anew with names, too, in UTF-8
        os.execv(sys.executable, [sys.executable, "-X", "utf8", "-m", "im2rec", *sys.argv[1:]])
    for fd in range(3):  # a file opened later must not become a standard stream
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _ignore_signals() -> None:
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)


def _let_go_of_streams() -> None:
    """Drops what cannot be written, else it would fail once more as Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _click_message(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if context.parent is None and not isinstance(error, click.exceptions.MissingParameter):
        hint = (
            " Coming from im2rec.py? `--list PREFIX ROOT` is `im2rec make-list PREFIX ROOT`, and "
            "`PREFIX ROOT` is `im2rec pack PREFIX ROOT`."
        )
    elif "unexpected extra argument" in message:
        names = " ".join(each.make_metavar(context) for each in context.command.params[:2])
        hint = f" Expected {names}: quote names that have spaces, separate --exts by commas."
    else:
        hint = ""
    return f"{message}.{hint} See '{context.command_path} --help'."


class _PipeClosed(BaseException):
    """Nobody reads stdout any more."""


def _print(text: str) -> None:
    """Data, on stdout."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise _PipeClosed from None


def _print_json(value: Any, indent: int | None = None) -> None:
    import json

    _print(json.dumps(value, indent=indent, ensure_ascii=False))


def _say(text: str) -> None:
    """Anything else, on stderr; if nobody reads it, or its disk is full, the work goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def _say_error(text: str) -> None:
    for line in text.split("\n"):
        _say(f"im2rec: error: {printable(line)}")


# --- options shared by commands ---------------------------------------------------------------


class _Talk:
    """What is printed beside the data. quiet: errors only; verbose: every single thing."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self.quiet, self.verbose = quiet, verbose

    def info(self, text: str) -> None:
        if not self.quiet:
            _say(text)

    def warn(self, text: str) -> None:
        if not self.quiet:
            _say(f"im2rec: warning: {text}")

    def details(self, text: str) -> None:
        if self.verbose:
            _say(text)

    def some(self, lines: Iterable[str], what: str) -> None:
        """Warns of each, the first MAX_LINES of them one by one (all with -v), the rest counted."""
        everything = list(lines)
        shown = everything if self.verbose else everything[:MAX_LINES]
        for line in shown:
            self.warn(line)
        if len(everything) > len(shown):
            self.warn(f"{len(everything) - len(shown)} more {what}; -v names them all")


class _Progress:
    """A tqdm bar on a terminal, else a line every few seconds; nothing when quiet."""

    def __init__(self, what: str, unit: str, talk: _Talk) -> None:
        self._what, self._unit, self._quiet = what, unit, talk.quiet
        self._bar: Any = None
        self._start = self._last = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, total: int) -> None:
        """Shows that `done` of `total` are done."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            if self._bar is None:
                from tqdm import tqdm

                tqdm.monitor_interval = 0  # no thread beside the workers' fork
                self._bar = tqdm(
                    desc=self._what,
                    unit=self._unit,
                    unit_scale=self._unit == "B",
                    unit_divisor=1024,
                    file=sys.stderr,
                    leave=False,
                )
            if total != self._bar.total:
                self._bar.reset(total)
            self._bar.update(done - self._bar.n)
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_INTERVAL:
            self._last = now
            rate = done / (now - self._start)
            left = (total - done) / rate if rate else 0
            amounts = [_size(n) if self._unit == "B" else f"{n}" for n in (done, total, int(rate))]
            unit = "" if self._unit == "B" else f" {self._unit}"
            percent = 100 * done // (total or 1)
            _say(
                f"{self._what}: {amounts[0]} of {amounts[1]}{unit} ({percent} %), "
                f"{amounts[2]}{unit}/s, {left:.0f} s left"
            )

    def write(self, text: str) -> None:
        """Prints a line without tearing the bar."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            _say(text)


def _count(number: int, noun: str) -> str:
    """A number with its noun: 1 image, 2 images, 3 classes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _common(command: Command) -> Command:
    command = click.option("-v", "--verbose", is_flag=True, help="Name every single thing.")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="Errors and failures only.")(command)


_workers = click.option(
    "--workers",
    "--num-thread",
    type=click.IntRange(1),
    metavar="N",
    help="Processes, at most two for each CPU.  [default: the CPUs this process may use]",
)
_start_method = click.option(
    "--start-method",
    type=click.Choice(["fork", "forkserver", "spawn"]),
    help="How processes start.  [default: the fastest that is safe]",
)
_fsync = click.option(
    "--fsync/--no-fsync",
    default=True,
    show_default=True,
    help="Flush files to disk before they get their names.",
)


_if_changed = click.option(
    "--if-changed", is_flag=True, help="Leave a file as it is that has the same bytes already."
)
_image_timeout = click.option(
    "--image-timeout",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop when a worker has one image in hand for so long; 0: never.",
)


def _tell_workers(asked: int | None, talk: _Talk) -> None:
    """Says so where fewer workers are started than were asked for."""
    if asked:
        from im2rec.pool import WORKERS_PER_CPU, worker_count

        if worker_count(asked) < asked:
            started = _count(worker_count(asked), "worker")
            talk.info(f"{started}: more than {WORKERS_PER_CPU} for each CPU would only be slower")


class _Size(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
    """A number of bytes: 500000, 64K, 1GiB, 2GB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kKmMgGtT]?)(i?[bB])?", value.strip())
        if not match:
            self.fail(f"{value!r} is no size; expected 500000, 64K, 1GiB or 2GB", param, ctx)
        base = 1000 if (match[3] or "").upper() == "B" else 1024  # 1GB is 10**9, 1G and 1GiB 2**30
        from fractions import Fraction

        size = int(Fraction(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
        if size < 1:
            self.fail(f"{value!r} is less than one byte", param, ctx)
        return size


class _Failures(click.ParamType):  # type: ignore[type-arg]  # as above
    """A number of images, or a percentage of them: 10, 0.5%."""

    name = "failures"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, bool]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([0-9]+)|([0-9]+(?:\.[0-9]+)?) *%", str(value).strip())
        if not match or (match[2] and float(match[2]) > 100):
            self.fail(
                f"{value!r}, expected a number of images, or a percentage as 0.5%", param, ctx
            )
        return (float(match[2]), True) if match[2] else (min(float(match[1]), 2**63), False)


class _Interpolation(click.Choice[str]):
    """An interpolation's name, or the number im2rec.cc gives it."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        return super().convert(INTERPOLATION_NUMBERS.get(value, value), param, ctx)


class _Encoding(click.Choice[str]):
    """.jpg or .png, with or without the dot, in any case."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        text = "." + str(value).lower().lstrip(".")
        return super().convert(".jpg" if text == ".jpeg" else text, param, ctx)


def _extensions(values: tuple[str, ...]) -> tuple[str, ...]:
    """--exts as given: repeated or with commas, as jpg, .JPG or *.jpg."""
    names = [name.lower().lstrip("*.") for value in values for name in re.split("[, ]+", value)]
    return tuple(dict.fromkeys(f".{name}" for name in names if name))


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        _print(f"im2rec {__version__}")
        context.exit()


@click.group(
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "IM2REC",
        "max_content_width": 100,
    },
    epilog="""\b
Example:
  im2rec make-list data/train photos
  im2rec pack data/train photos --resize 256
  im2rec inspect data/train
  im2rec verify data/train""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    allow_from_autoenv=False,  # IM2REC_VERSION may well be there, and means another thing
    callback=_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Pack image datasets into MXNet RecordIO (.lst, .rec, .idx), without MXNet.

    Every option of a command has a default in the environment: IM2REC_PACK_QUALITY=90 stands for
    `im2rec pack --quality 90`.
    """


# --- make-list --------------------------------------------------------------------------------


@cli.command(
    "make-list",
    epilog="""\b
Example:
  im2rec make-list --train-ratio 0.8 data/set photos
writes data/set_train.lst, data/set_val.lst and data/set.classes.txt.""",
)
@click.argument("prefix")
@click.argument("root")
@click.option(
    "--recursive/--no-recursive",
    default=True,
    show_default=True,
    help="Number the folders under ROOT as classes; or list only ROOT's own images, with label 0.",
)
@click.option(
    "--label-from",
    type=click.Choice(["top", "leaf"]),
    default="top",
    show_default=True,
    help="top: the folder directly under ROOT is the class. leaf: every folder with images is one, "
    "as in im2rec.py.",
)
@click.option(
    "--classes",
    metavar="FILE",
    help="A class name a line: fixes names and numbers.",
)
@click.option(
    "--exts",
    multiple=True,
    metavar="EXT",
    help="Extensions to list; repeat or separate by commas.  [default: .jpeg,.jpg,.png]",
)
@click.option("--include-hidden", is_flag=True, help="List hidden files and folders, too.")
@click.option(
    "--shuffle/--no-shuffle", default=True, show_default=True, help="Shuffle as im2rec.py does."
)
@click.option("--seed", type=int, default=100, show_default=True, help="Of the shuffle.")
@click.option(
    "--train-ratio", type=float, metavar="R", help="Share of images for PREFIX_train.lst."
)
@click.option("--test-ratio", type=float, metavar="R", help="Share of images for PREFIX_test.lst.")
@click.option("--stratify", is_flag=True, help="Split each class by the ratios.")
@click.option(
    "--chunks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Equal parts to cut the list into: PREFIX_0.lst, PREFIX_1.lst...",
)
@click.option(
    "--ids",
    type=click.Choice(["run", "per-list"]),
    default="run",
    show_default=True,
    help="Ids 0..N-1 over all lists, or anew in each list (InsightFace wants a key 0 in each).",
)
@_if_changed
@_fsync
@_common
def make_list_command(
    prefix: str, root: str, exts: tuple[str, ...], quiet: bool, verbose: bool, **options: Any
) -> int:
    """List ROOT's images, class by class, in PREFIX.lst.

    The folders directly under ROOT are the classes, in code point order from 0, as torchvision's
    ImageFolder has them; their names go to PREFIX.classes.txt. With ratios or chunks there are
    several lists, and each image is in exactly one.
    """
    with signals_held():  # an exception amid an import may become another
        from im2rec.make_list import DEFAULT_EXTENSIONS, ListOptions, make_list

    talk = _Talk(quiet, verbose)
    extensions = _extensions(exts) if exts else DEFAULT_EXTENSIONS
    report = make_list(prefix, root, ListOptions(extensions=extensions, **options))
    _print_list_report(report, extensions, talk)
    for path, reason in report.unlistable[:MAX_LINES]:
        _say_error(f"{printable(path)}: passed over: {reason}; rename it")
    if len(report.unlistable) > MAX_LINES:
        _say_error(f"{len(report.unlistable) - MAX_LINES} more names that a list cannot hold")
    return EXIT_PROBLEMS if report.unlistable else EXIT_DONE


def _print_list_report(report: ListReport, extensions: tuple[str, ...], talk: _Talk) -> None:
    for path, count in report.lists:
        talk.info(f"{printable(path)}: {_count(count, 'image')}")
        if not count:
            talk.warn(f"{printable(path)}: the ratios or chunks leave no image for this list")
    if report.classes is not None:
        talk.info(f"{printable(str(report.classes_path))}: {_count(len(report.classes), 'class')}")
        for number, name in enumerate(report.classes):
            count = report.class_counts[number]
            talk.details(f"class {number} {printable(name)}: {_count(count, 'image')}")
    for name in report.older_lists:
        talk.warn(f"{printable(name)}: of an earlier run; remove it, or `im2rec pack` may take it")
    if report.nested_folders > 1:
        talk.warn(
            f"one class, with images in {report.nested_folders} folders below it: is ROOT one "
            "level too high? If not, --label-from leaf makes a class of each"
        )
    others = report.other_extensions
    if others:
        seen = ", ".join(f"{count} {printable(ext)}" for ext, count in others.most_common(8))
        more = f" and {len(others) - 8} kinds more" if len(others) > 8 else ""
        looked = " ".join(extensions)
        files = _count(sum(others.values()), "file")
        talk.info(f"passed over: {files} ({seen}{more}); listed are {looked}")
    if report.hidden:
        talk.info(f"passed over: {report.hidden} hidden names (--include-hidden)")
    if report.in_root:
        talk.warn(f"{_count(report.in_root, 'image')} directly in ROOT, in no class: passed over")
    talk.some(
        (f"{printable(path)}: a broken link or a special file" for path in report.broken_links),
        "broken links",
    )
    talk.some(
        (
            f"{printable(path)}: a link to a folder that was listed already"
            for path in report.folders_again
        ),
        "folders met again",
    )
    talk.some(
        (
            f"{printable(name)}: no image in this folder; it gets no class number"
            for name in report.empty_classes
        ),
        "folders without an image",
    )


# --- pack -------------------------------------------------------------------------------------


@cli.command(
    "pack",
    epilog="""\b
Example:
  im2rec pack --resize 256 --quality 90 data/set_train photos
writes data/set_train.rec, data/set_train.idx and data/set_train.manifest.json.""",
)
@click.argument("prefix")
@click.argument("root")
@click.option(
    "--resize",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Short edge of the packed images in pixels.  [default: as they are]",
)
@click.option("--no-upscale", is_flag=True, help="Leave images whose short edge is below --resize.")
@click.option("--center-crop", is_flag=True, help="Cut the middle square out before resizing.")
@click.option(
    "--interpolation",
    "--inter-method",
    type=_Interpolation(INTERPOLATION_NAMES),
    default="linear",
    show_default=True,
    help="Of the resize; or im2rec.cc's number for it: 0-4, 9, 10.",
)
@click.option(
    "--dct-scaling",
    is_flag=True,
    help="Decode large JPEGs at 1/2, 1/4 or 1/8, at least twice --resize, and go on by area: much "
    "faster, other bytes.",
)
@click.option(
    "--encoding",
    type=_Encoding([".jpg", ".png"]),
    default=".jpg",
    show_default=True,
    help="Of the packed images.",
)
@click.option(
    "--quality",
    type=int,
    metavar="N",
    help="JPEG quality 1-100, or PNG compression 0-9.  [default: 95, PNG 3]",
)
@click.option(
    "--color",
    type=click.Choice(["-1", "0", "1"]),
    default="1",
    show_default=True,
    help="1: colour. 0: grey. -1: as stored, with alpha, without the EXIF turn.",
)
@click.option(
    "--pass-through",
    "--unchanged",
    is_flag=True,
    help="Pack the files' own bytes, after checking that they are whole images.",
)
@click.option(
    "--pack-label/--no-pack-label",
    default=True,
    show_default=True,
    help="Pack every label of a row, or its first alone.",
)
@click.option(
    "--label-width",
    type=click.IntRange(1),
    metavar="N",
    help="Labels that every row must have.  [default: any]",
)
@click.option("--shards", type=click.IntRange(1), metavar="N", help="Cut the set into N shards.")
@click.option(
    "--shard-size",
    type=_Size(),
    metavar="SIZE",
    help="Cut the set into shards of at most 1GiB, say.",
)
@click.option(
    "--max-failures",
    type=_Failures(),
    default="0",
    metavar="N|P%",
    show_default=True,
    help="Images that may be left out before the run stops.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(1, 2**30),
    default=178956970,
    show_default=True,
    metavar="N",
    help="Larger images are failures.",
)
@click.option("--allow-outside-root", is_flag=True, help="Follow paths that leave ROOT.")
@click.option(
    "--resume",
    is_flag=True,
    help="Keep the whole shards of a run that is stopped, and begin with those kept before.",
)
@_if_changed
@click.option(
    "--depfile",
    metavar="FILE",
    help="Write what the set is made of as a dependency file for Make or Ninja.",
)
@click.option(
    "--depfile-target",
    metavar="NAME",
    help="What depends on it there.  [default: PREFIX.manifest.json]",
)
@_image_timeout
@_workers
@_start_method
@_fsync
@_common
def pack_command(
    prefix: str,
    root: str,
    quality: int | None,
    color: str,
    max_failures: tuple[float, bool],
    depfile: str | None,
    depfile_target: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Pack the images of PREFIX.lst, found under ROOT, into PREFIX.rec and PREFIX.idx.

    PREFIX is a list, or the prefix or folder of several: `data/set` stands for data/set.lst or, if
    there is none, for data/set_train.lst, data/set_val.lst and the others that make-list writes.
    Several shards are PREFIX_000.rec... with the joint index PREFIX.idx.
    """
    with signals_held():
        from im2rec.image_ops import DEFAULT_QUALITY, ImageOptions
        from im2rec.pack import PackOptions, check_apart, check_root, dependency_file, find_lists
        from im2rec.record_set import family_lists

    talk = _Talk(quiet, verbose)
    given = _source("interpolation") != click.core.ParameterSource.DEFAULT
    if options["dct_scaling"] and not given:
        options["interpolation"] = "area"
    names = ImageOptions.__dataclass_fields__.keys() & options.keys()
    image = ImageOptions(
        quality=DEFAULT_QUALITY[options["encoding"]] if quality is None else quality,
        color=int(color),
        **{name: options.pop(name) for name in names},
    )
    settings = PackOptions(
        image=image,
        max_failures=max_failures[0],
        failures_are_percent=max_failures[1],
        **options,
    )
    if image.no_upscale and not image.resize:
        raise OptionError("--no-upscale means nothing without --resize")
    if image.pass_through:
        _refuse_beside_pass_through()
    check_root(root)
    lists = find_lists(prefix)
    _tell_workers(settings.workers, talk)
    if lists == [prefix + ".lst"]:
        beside = [name for name in family_lists(prefix) if name != os.path.basename(lists[0])]
        if beside:
            talk.warn(
                f"{printable(lists[0])} is packed; beside it and not packed: {', '.join(beside)}"
            )
    empty = [path for path in lists if not os.path.getsize(path)]
    if len(lists) > len(empty) > 0:
        talk.some(
            (f"{printable(path)}: an empty list, passed over" for path in empty), "empty lists"
        )
        lists = [path for path in lists if path not in empty]
    if len(lists) > 1:
        check_apart(lists)
    if depfile_target and not depfile:
        raise OptionError("--depfile-target means nothing without --depfile")
    with ExitStack() as stack:
        if depfile:
            unnamed = stack.enter_context(dependency_file(depfile, lists, root, depfile_target))
            talk.some(
                (f"{printable(path)}: a name that no dependency file can hold" for path in unnamed),
                "such names",
            )
        for path in lists:
            report = _pack_one(path, root, settings, talk)
            _print_pack_report(report, talk)
    return EXIT_DONE


def _pack_one(path: str, root: str, settings: PackOptions, talk: _Talk) -> PackReport:
    """Packs one list; prints failures as they become known."""
    from im2rec.output import kept_count
    from im2rec.pack import pack_list

    with _Progress(f"pack {os.path.basename(path)}", "images", talk) as bar:
        failures = _FailurePrinter(bar, talk)

        def progress(report: PackReport, done: int) -> None:
            failures.tell(report.failures)
            bar.update(done, report.rows)

        try:
            return pack_list(path, root, settings, progress=progress)
        except BaseException:
            kept = kept_count(path.removesuffix(".lst")) if settings.resume else 0
            if kept:
                shards = f"{_count(kept, 'whole shard')} {'is' if kept == 1 else 'are'} kept"
                talk.info(f"{shards}: --resume goes on from there")
            raise
        finally:
            failures.rest()


def _refuse_beside_pass_through() -> None:
    """Raises OptionError where an option was given that pass-through would have to ignore."""
    names = ("resize", "center_crop", "quality", "color", "encoding", "interpolation")
    on_line = click.core.ParameterSource.COMMANDLINE
    given = [name for name in (*names, "no_upscale", "dct_scaling") if _source(name) == on_line]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise OptionError(f"--pass-through stores the files' own bytes; it excludes {flags}")


def _source(name: str) -> click.core.ParameterSource | None:
    """Where an option's value comes from: the command line, the environment, its default."""
    return click.get_current_context().get_parameter_source(name)


class _FailurePrinter:
    """Prints each failure once as it becomes known: the first MAX_LINES, then counts."""

    def __init__(self, bar: _Progress, talk: _Talk) -> None:
        self._bar, self._told, self._count = bar, 0, 0
        self._most = sys.maxsize if talk.verbose else MAX_LINES

    def tell(self, failures: list[Failure]) -> None:
        self._count = len(failures)
        for failure in failures[self._told : self._most]:
            self._bar.write(f"{printable(failure.path)}: {failure.reason}")
            self._told += 1

    def rest(self) -> None:
        if self._count > self._told:
            _say(f"{self._count - self._told} more images failed; -v names them all")


def _print_pack_report(report: PackReport, talk: _Talk) -> None:
    if report.resumed:
        talk.info(f"{printable(report.prefix)}: {_count(report.resumed, 'shard')} were there")
    recs = [name for name in report.files if name.endswith(".rec")]
    shards = f" in {len(recs)} shards" if len(recs) > 1 else ""
    talk.info(
        f"{printable(report.prefix)}: {report.packed} of {_count(report.rows, 'image')} packed"
        f"{shards}, {_size(report.bytes)}{'' if report.changed else ', unchanged'}"
    )
    if report.failed:
        left_out = _count(report.failed, "image")
        talk.warn(f"left out: {left_out}, listed in {printable(report.prefix)}.failures.tsv")
    if report.remarks:
        talk.warn(
            f"{_count(len(report.remarks), 'remark')} of the codecs on images that were packed"
        )
        talk.some((f"{printable(each.path)}: {each.text}" for each in report.remarks), "remarks")
    counted = (
        (report.turned, "turned by EXIF, which not every reader follows"),
        (report.cmyk, "CMYK, which few readers show with right colours"),
        (report.other, "neither JPEG nor PNG, which some readers cannot decode"),
    )
    for count, what in counted if report.pass_through else ():
        if count:
            talk.warn(f"{_count(count, 'image')} {what}")


# --- inspect ----------------------------------------------------------------------------------


@cli.command(
    "inspect",
    epilog="""\b
Example:
  im2rec inspect data/set_train
  im2rec inspect --json data/*.rec | jq '.[].num_training_samples'""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each REC.")
@click.option(
    "--records",
    is_flag=True,
    help="Print a line for each record: file, offset, bytes, parts, id, labels, kind, width, "
    "height, image bytes.",
)
@_common
def inspect_command(
    recs: tuple[str, ...], as_json: bool, records: bool, quiet: bool, verbose: bool
) -> int:
    """Show what is in record files: counts, labels, classes, image kinds and sizes.

    REC is a .rec file, or the prefix of a set or of its shards. An index is not needed.
    """
    with signals_held():
        from im2rec.inspection import inspect_set
        from im2rec.record_set import find_set

    talk = _Talk(quiet, verbose)
    summaries = []
    for name in recs:
        found = find_set(name)
        for path in found.missing:
            talk.warn(f"{printable(path)}: this shard is not there")
        with _Progress(f"inspect {os.path.basename(name)}", "B", talk) as bar:
            each = _print_record_json if as_json else _print_record
            summary = inspect_set(found, each=each if records else None, progress=bar.update)
        summaries.append(summary)
        if not summary.records and summary.damaged:
            found_none = "there is no record in it, so it is no record file"
            raise InputError(found.recs[0], found_none, "name a .rec file")
        if not summary.records:
            talk.warn(f"{printable(name)}: empty")
        if summary.damaged:
            places = _count(summary.damaged, "place")
            talk.warn(f"{printable(name)}: damaged in {places}; see im2rec verify")
    if records:
        return EXIT_DONE
    if as_json:
        _print_json([each.as_dict() for each in summaries], indent=2)
    else:
        _print("\n".join(_summary_text(each) for each in summaries).removesuffix("\n"))
    return EXIT_DONE


def _print_record(line: RecordLine) -> None:
    from im2rec.lst import format_float32

    labels = ",".join(map(format_float32, line.labels))
    size = f"{line.width}\t{line.height}" if line.width else "-\t-"
    _print(
        f"{printable(line.file)}\t{line.offset}\t{line.length}\t{line.parts}\t"
        f"{'?' if line.id is None else line.id}\t{labels or '-'}\t{line.kind}\t{size}\t"
        f"{line.image_bytes}"
    )


def _print_record_json(line: RecordLine) -> None:
    from dataclasses import asdict

    record = asdict(line)  # JSON has no NaN or infinity
    record["labels"] = [label if math.isfinite(label) else str(label) for label in line.labels]
    _print_json(record)


def _summary_text(summary: Summary) -> str:
    rows: list[tuple[str, str]] = [("records", str(summary.records))]
    files = f" in {len(summary.files)} files" if len(summary.files) > 1 else ""
    rows.append(("bytes", f"{summary.bytes} ({_size(summary.bytes)}){files}"))
    if summary.ids:
        rows.append(("ids", f"{summary.ids[0]} to {summary.ids[1]}"))
    widths = sorted(summary.label_widths.items())
    rows.append(("labels", ", ".join(f"{width} in {count} records" for width, count in widths)))
    rows.append(
        (
            "images",
            ", ".join(f"{count} {kind}" for kind, count in summary.kinds.most_common()) or "none",
        )
    )
    for name in ("width", "height", "image_bytes"):
        spread = getattr(summary, name)
        if spread:
            title = name.replace("_", " ")
            rows.append((title, f"{spread.min} to {spread.max}, median {spread.median}"))
    if summary.cut:
        rows.append(("cut", f"{summary.cut} records hold the magic and are in several parts"))
    if summary.without_image:
        rows.append(("without image", f"{summary.without_image} records"))
    if summary.unreadable:
        rows.append(("unreadable", f"{summary.unreadable} payloads are no image record"))
    if summary.damaged:
        rows.append(("damaged", f"{summary.damaged} places; see im2rec verify"))
    rows.append(("index", ", ".join(dict.fromkeys(summary.index))))
    if summary.joint_index:
        rows.append(("joint index", summary.joint_index))
    trainer = [f"num_training_samples={summary.num_training_samples}"]
    if summary.num_classes is not None:
        trainer.append(f"num_classes={summary.num_classes}")
    if summary.label_width is not None:
        trainer.append(f"label_width={summary.label_width}")
    rows.append(("trainer", " ".join(trainer)))
    text = f"{printable(summary.name)}\n"
    text += "".join(f"  {title:<14} {value}\n" for title, value in rows)
    for number, count in sorted((summary.class_counts or {}).items()):
        class_name = summary.name_of(number)
        text += f"  class {number:<8} {count}{'  ' + printable(class_name) if class_name else ''}\n"
    return text


# --- verify -----------------------------------------------------------------------------------


@cli.command(
    "verify",
    epilog="""\b
Example:
  im2rec verify --decode --list data/set_train.lst data/set_train""",
)
@click.argument("recs", nargs=-1, required=True, metavar="REC...")
@click.option(
    "--list",
    "list_paths",
    metavar="LST",
    multiple=True,
    help="The list that the records must be as: ids, labels, order.",
)
@click.option("--decode", is_flag=True, help="Decode every image, too.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object for each REC.")
@_image_timeout
@_workers
@_start_method
@_common
def verify_command(
    recs: tuple[str, ...],
    list_paths: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Find what is wrong with record files; exit 1 if anything is.

    REC is a .rec file, or the prefix of a set or of its shards; the indexes and the manifest beside
    it are checked, too. Each problem is a line on stdout: file:offset: code: what was found. The
    first one in a file is the likely cause of the others; of one code in one file 20 are shown, all
    with -v or --json.

    Damage to the payloads' own bits (labels, an image's data) contradicts nothing: the manifest's
    sha256 shows all of it; without a manifest, --list shows that to labels, and --decode what a
    codec can tell.
    """
    from im2rec.record_set import find_set

    with signals_held():
        from im2rec.verify import VerifyOptions, verify_set

    talk = _Talk(quiet, verbose)
    if list_paths and len(recs) + len(list_paths) > 2:
        raise OptionError("one --list goes with one REC")
    settings = VerifyOptions(list_path=list_paths[0] if list_paths else None, **options)
    if settings.decode:
        _tell_workers(settings.workers, talk)
    reports = []
    for name in recs:
        found = find_set(name)
        with _Progress(f"verify {os.path.basename(name)}", "B", talk) as bar:
            report = verify_set(found, settings, progress=bar.update)
        reports.append(report)
        if not as_json:
            for line in _problem_lines(report.problems, None if verbose else MAX_LINES):
                _print(line)
        _print_verify_report(report, talk)
    if as_json:
        _print_json([_verify_dict(each) for each in reports], indent=2)
    return EXIT_PROBLEMS if any(report.problems for report in reports) else EXIT_DONE


def _problem_lines(problems: list[Problem], most: int | None) -> Iterator[str]:
    """A line for each problem; of one code in one file at most so many, and then their number."""
    seen: Counter[tuple[str, str]] = Counter()
    for problem in problems:
        kind = problem.code, problem.file
        seen[kind] += 1
        if most is None or seen[kind] <= most:
            yield _problem_text(problem)
    for (code, file), count in seen.items():
        if most is not None and count > most:
            more = _count(count - most, f"more {code} problem")
            yield f"{printable(file)}: {more}; -v shows them all"


def _problem_text(problem: Problem) -> str:
    place = "" if problem.offset is None else f":{problem.offset}"
    about = "" if problem.id is None else f"id {problem.id}: "
    return f"{printable(problem.file)}{place}: {problem.code}: {about}{printable(problem.sentence)}"


def _print_verify_report(report: VerifyReport, talk: _Talk) -> None:
    for path in report.unindexed:
        talk.warn(f"{printable(path)}: there is no index beside it, so none was checked")
    talk.some((f"{printable(place)}: {text}" for place, text in report.remarks), "remarks")
    state = _count(len(report.problems), "problem") if report.problems else "no problem"
    records = _count(report.records, "record")
    talk.info(f"{printable(report.name)}: {records}, {_size(report.bytes)}: {state}")


def _verify_dict(report: VerifyReport) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": report.name,
        "records": report.records,
        "bytes": report.bytes,
        "unindexed": report.unindexed,
        "remarks": [{"place": place, "text": text} for place, text in report.remarks],
        "problems": [asdict(problem) for problem in report.problems],
    }
