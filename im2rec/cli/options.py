"""Options that several commands have, and their types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from im2rec.terminal import Talk, count_text

Command = TypeVar("Command", bound=Callable[..., Any])


def common(command: Command) -> Command:
    """-q and -v, which every command has."""
    command = click.option("-v", "--verbose", is_flag=True, help="Name every single thing.")(
        command
    )
    return click.option("-q", "--quiet", is_flag=True, help="Errors and failures only.")(command)


workers = click.option(
    "--workers",
    "--num-thread",
    type=click.IntRange(1),
    metavar="N",
    help="Processes, at most two for each CPU.  [default: the CPUs this process may use]",
)
start_method = click.option(
    "--start-method",
    type=click.Choice(["fork", "forkserver", "spawn"]),
    help="How processes start.  [default: the fastest that is safe]",
)
fsync = click.option(
    "--fsync/--no-fsync",
    default=True,
    show_default=True,
    help="Flush files to disk before they get their names.",
)


if_changed = click.option(
    "--if-changed", is_flag=True, help="Leave a file as it is that has the same bytes already."
)
image_timeout = click.option(
    "--image-timeout",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop when a worker has one image in hand for so long, to within 2 s; 0: never.",
)


def tell_workers(asked: int | None, talk: Talk) -> None:
    """Says so where fewer workers are started than were asked for."""
    if asked:
        from im2rec.pool import WORKERS_PER_CPU, worker_count

        if worker_count(asked) < asked:
            started = count_text(worker_count(asked), "worker")
            talk.info(f"{started}: more than {WORKERS_PER_CPU} for each CPU would only be slower")


class Name(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
    """A name, in which there may be spaces: of an option that may be repeated, each line of its
    variable is one."""

    name = "name"

    def split_envvar_value(self, rv: str) -> list[str]:
        return [line for line in rv.split("\n") if line]


class Size(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.3
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
