"""The README tells the truth: its commands run, its tables name every option, its text is kept."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from conftest import CLEAN, Run

from im2rec.cli import cli

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
COMMANDS = cli.commands


def section(title: str) -> str:
    """The text under a heading, up to the next one of its level."""
    match = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    assert match, title
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_stands_in_its_section(name: str) -> None:
    documented = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", section(name)))
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            for spelling in [*parameter.opts, *parameter.secondary_opts]:
                assert spelling in documented, f"{name} {spelling}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_in_a_section_is_made_up(name: str) -> None:
    known = {"--help", "--no-pack-label"}  # every command's; pack's, spoken of under verify
    for parameter in COMMANDS[name].params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    tables = "".join(re.findall(r"^\|.*$", section(name), re.M))
    assert set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", tables)) <= known


def test_the_defaults_in_the_tables_are_the_defaults() -> None:
    pack = section("pack")
    defaults = {parameter.name: parameter.default for parameter in COMMANDS["pack"].params}
    assert f"default {defaults['max_pixels']}" in pack
    assert f"{defaults['interpolation']} (default)" in pack
    assert f"stops; default {defaults['max_failures']}" in pack


def test_the_transcript_is_what_the_commands_print(tmp_path: Path) -> None:
    script = README.parent / "examples" / "quickstart.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "quickstart")],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    match = re.search(r"^```console\n(.*?)^```", TEXT, re.M | re.S)
    assert match
    assert done.stdout == match[1]
    assert done.stderr == ""


def test_the_python_in_it_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = "".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "README", str(README), 0)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test)
    assert runner.summarize(verbose=False) == (0, 10)


TASKS = re.findall(r"`(im2rec [^`]*)`", section("By task"))


def test_the_task_table_was_found() -> None:
    assert len(TASKS) >= 18


def test_every_command_of_the_task_table_runs(tmp_path: Path, im2rec: Run) -> None:
    """In the order of the table, in one folder, as a reader would try them."""
    (tmp_path / "photos").symlink_to(CLEAN)
    (tmp_path / "data").mkdir()
    (tmp_path / "old.classes.txt").write_text("ant\nbee\ncat\ndog\n", encoding="utf-8")
    for command in TASKS:
        words = shlex.split(command)[1:]
        if "--no-recursive" in words:
            words[-2:] = ["data/flat", "photos/ant"]
        if words[0] == "inspect" and not (tmp_path / "data/set.rec").exists():
            im2rec("pack", "data/set", "photos")
        done = im2rec(*words)
        assert "error" not in done.stderr, command
