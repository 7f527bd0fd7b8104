"""What is said on a terminal and where there is none: counts, sizes, progress."""

from __future__ import annotations

import re

import pytest

from im2rec import terminal
from im2rec.terminal import Progress, Talk, count_text, size_text


def test_counts_and_sizes_in_words() -> None:
    assert [count_text(n, "class") for n in (0, 1, 2)] == ["0 classes", "1 class", "2 classes"]
    assert [size_text(n) for n in (0, 1023, 1024, 5 * 2**30, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]


def test_progress_without_a_terminal_is_a_plain_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL", 0.0)
    with Progress("pack set.lst", "images", Talk(False, False)) as progress:
        progress.update(50, 200)
    with Progress("verify set", "B", Talk(False, False)) as progress:
        progress.update(2**20, 2**21)
    with Progress("verify set", "B", Talk(True, False)) as progress:
        progress.update(2**20, 2**21)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"pack set\.lst: 50 of 200 images \(25 %\), \d+ images/s, \d+ s left", first
    )
    assert second.startswith("verify set: 1.0 MiB of 2.0 MiB (50 %), ")
