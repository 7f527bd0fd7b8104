"""Looks at other processes; loads nothing, for tests that start many of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def family(session: int) -> list[int]:
    """The processes of a session that are alive."""
    alive = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text("utf-8").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            alive.append(int(name))
    return alive


def wait_for(condition: Callable[[], bool], otherwise: str, seconds: float = 20) -> None:
    """Waits until the condition holds; fails with these words where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)
