"""The process around a command: its streams, its signals, what it says, and its exit code.

The only home of tqdm. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from im2rec.errors import Im2recError, NothingPacked, TooManyFailures, printable
from im2rec.interrupts import HELD

EXIT_DONE, EXIT_PROBLEMS, EXIT_CANNOT = 0, 1, 2
EXIT_SIGNAL = 128  # + the signal's number, as shells have it
EXIT_PIPE = EXIT_SIGNAL + 13  # SIGPIPE, which Python turns into an exception

MAX_LINES = 20  # failures, remarks, problems of a kind printed one by one; the rest are counted
PLAIN_INTERVAL = 5.0  # seconds between progress lines where stderr is no terminal


# --- exit codes: the one place where errors become numbers ------------------------------------


def exit_code(error: BaseException) -> int:
    """The exit code that an error ends the program with."""
    if isinstance(error, _Ended):
        return EXIT_SIGNAL + error.number
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return EXIT_SIGNAL + signal.SIGINT
    if isinstance(error, TooManyFailures | NothingPacked):
        return EXIT_PROBLEMS
    return EXIT_CANNOT


class _Ended(BaseException):
    """A signal that ends the run, raised where the run stands so that it cleans up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(program: Callable[[], int | None]) -> NoReturn:
    """Runs a program, which returns its exit code or None for EXIT_DONE, and exits; whatever a user
    can cause ends in one line on stderr."""
    _prepare_streams()
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # it takes what it is given
    # NumPy's linear algebra, which nothing here uses, would start a thread for each CPU, and a
    # process that has threads cannot be forked.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    done: list[int] = []  # the exit code, when what is done is done; no signal changes it any more
    try:
        _prepare_signals(done)
        code = _code_of(program, done)
        _ignore_signals()
    except BaseException as error:
        signalled = _signal_behind(error)
        if signalled is None:
            raise
        _ignore_signals()
        code = exit_code(signalled)
        name = signal.Signals(code - EXIT_SIGNAL).name if code > EXIT_SIGNAL else "Ctrl-C"
        say_error(f"ended by {name}; nothing was left half-written")
    _let_go_of_streams()
    sys.exit(code)


def _code_of(program: Callable[[], int | None], done: list[int]) -> int:
    """Runs the program; its exit code, which stands in `done` as soon as the program is done."""
    try:
        code = program() or EXIT_DONE
        with _writing_stdout():
            sys.stdout.flush()
        done.append(code)
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
        say(error.format_message())
        return EXIT_CANNOT
    except click.ClickException as error:
        say_error(_click_message(error))
        return EXIT_CANNOT
    except Im2recError as error:
        say_error(str(error))
        return exit_code(error)
    except OSError as error:
        path = f"{printable(str(error.filename))}: " if error.filename else ""
        say_error(f"{path}{error.strerror or error}")
        return exit_code(error)
    except MemoryError as error:
        say_error("out of memory")
        return exit_code(error)


def _signal_behind(error: BaseException | None) -> BaseException | None:
    """The end by a signal that an exception stems from: libraries turn it into errors of theirs."""
    while error and not isinstance(error, _Ended | KeyboardInterrupt | click.Abort):
        error = error.__cause__ or error.__context__
    return error


def _prepare_signals(done: list[int]) -> None:
    """Makes signals end the run from wherever it stands, until something is in `done`, whatever the
    parent does with its own."""
    came: list[int] = []

    def end(number: int, _: object) -> None:
        if not came and not done:  # once is enough: the clean-up must not be cut short
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
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
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


def _show_warning(message: Warning | str, *_: object) -> None:
    """Says what a part of the program warns of, without the place in the code."""
    say(f"im2rec: warning: {printable(str(message))}")


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
    message = error.format_message().replace("requires an argument", "needs a value")
    if isinstance(error, click.BadParameter) and error.param and error.message:
        plain = _in_plain_words(error.message, error.param.type)
        message = message.replace(error.message, plain)
    message = " ".join(message.split()).removesuffix(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if context.parent is None and not isinstance(error, click.exceptions.MissingParameter):
        hint = (
            " Coming from im2rec.py? `--list PREFIX ROOT` is `im2rec make-list PREFIX ROOT`, and "
            "`PREFIX ROOT` is `im2rec pack PREFIX ROOT`; im2rec-legacy takes the old line as it is."
        )
    elif "unexpected extra argument" in message:
        names = " ".join(each.make_metavar(context) for each in context.command.params[:2])
        hint = f" Expected {names}: quote names that have spaces, separate --exts by commas."
    else:
        hint = ""
    stop = "" if message.endswith("?") else "."
    return f"{message}{stop}{hint} See '{context.command_path} --help'."


# How click tells of a value that its own types refuse: the value, and words of programmers.
_REFUSED = re.compile(r"(.*) is not (?:a valid|in the range|one of) .*", re.DOTALL)


def _in_plain_words(message: str, kind: click.ParamType) -> str:  # type: ignore[type-arg]  # as there
    """What click says of a refused value, as found and expected."""
    match = _REFUSED.fullmatch(message)
    expected = _expected(kind)
    return f"{match[1]}, expected {expected}" if match and expected else message


def _expected(kind: click.ParamType) -> str:  # type: ignore[type-arg]  # no generic before click 8.3
    """What an option of one of click's own types takes; "" for another type."""
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(kind.choices)}"
    if isinstance(kind, click.types.BoolParamType):
        return "1 or 0"
    if not isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return ""
    number = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return number
    if kind.max is None:
        return f"{number} of at least {kind.min}"
    return f"{number} from {kind.min} to {kind.max}"


# --- printing ---------------------------------------------------------------------------------


class _PipeClosed(BaseException):
    """Nobody reads stdout any more."""


def print_data(text: str) -> None:
    """Data, on stdout."""
    with _writing_stdout():
        sys.stdout.write(text + "\n")


@contextmanager
def _writing_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise _PipeClosed from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from error


def print_json(value: Any, indent: int | None = None) -> None:
    """Data, on stdout, as JSON."""
    import json

    print_data(json.dumps(value, indent=indent, ensure_ascii=False))


def say(text: str) -> None:
    """Anything else, on stderr; if nobody reads it, or its disk is full, the work goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def say_error(text: str) -> None:
    """An error, on stderr, each line of it with the program's name."""
    for line in text.split("\n"):
        say(f"im2rec: error: {printable(line)}")


class Talk:
    """What is printed beside the data. quiet: errors only; verbose: every single thing."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self.quiet, self.verbose = quiet, verbose

    def info(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def warn(self, text: str) -> None:
        if not self.quiet:
            say(f"im2rec: warning: {text}")

    def details(self, text: str) -> None:
        if self.verbose:
            say(text)

    def some(self, lines: Iterable[str], what: str, count: int = 0) -> None:
        """Warns of each, the first MAX_LINES of them one by one (all with -v), the rest counted.
        count: how many there are, where lines may have but the first of them."""
        shown = 0
        for total, line in enumerate(lines, 1):
            count = max(count, total)
            if self.verbose or total <= MAX_LINES:
                self.warn(line)
                shown = total
        if count > shown:
            self.warn(f"{count - shown} more {what}; -v names them all")


class Progress:
    """A tqdm bar on a terminal, else a line every few seconds; nothing when quiet."""

    def __init__(self, what: str, unit: str, talk: Talk) -> None:
        self._what, self._unit, self._quiet = what, unit, talk.quiet
        self._bar: Any = None
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Progress:
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
            amounts = [
                size_text(n) if self._unit == "B" else f"{n}" for n in (done, total, int(rate))
            ]
            unit = "" if self._unit == "B" else f" {self._unit}"
            percent = 100 * done // (total or 1)
            say(
                f"{self._what}: {amounts[0]} of {amounts[1]}{unit} ({percent} %), "
                f"{amounts[2]}{unit}/s, {left:.0f} s left"
            )

    def write(self, text: str) -> None:
        """Prints a line without tearing the bar."""
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            say(text)


def count_text(number: int, noun: str) -> str:
    """A number with its noun: 1 image, 2 images, 3 classes, 4 boxes, 5 identities."""
    if noun.endswith("y"):
        plural = noun.removesuffix("y") + "ies"
    else:
        plural = noun + ("es" if noun.endswith(("s", "x")) else "s")
    return f"{number} {noun if number == 1 else plural}"


def size_text(count: int) -> str:
    """A number of bytes in the unit that suits it: 12 B, 1.5 GiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
