"""The command line: the commands, each with its options and what it prints of its report.

The verbs are imported when they are called, so that `--help` need not wait for numpy, Pillow or
OpenCV.
"""

from __future__ import annotations

from typing import NoReturn

import click

from im2rec import __version__, terminal
from im2rec.cli.index import index_command
from im2rec.cli.inspection import inspect_command
from im2rec.cli.make_list import make_list_command
from im2rec.cli.pack import pack_command
from im2rec.cli.unpack import unpack_command
from im2rec.cli.verify import verify_command
from im2rec.terminal import print_data


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        print_data(f"im2rec {__version__}")
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
  im2rec verify data/train
  im2rec index data/train""",
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


def _name_variable(command: click.Command, option: click.Option) -> None:
    """Names the environment variable that has an option's default by the first of its long names,
    where click would go by another that our code has for it."""
    long = next(name for name in option.opts if name.startswith("--"))
    name = long.removeprefix("--").replace("-", "_")
    if name != option.name:
        option.envvar = f"IM2REC_{command.name}_{name}".upper().replace("-", "_")


for each in (
    make_list_command,
    pack_command,
    inspect_command,
    verify_command,
    index_command,
    unpack_command,
):
    cli.add_command(each)
    for option in each.params:
        if isinstance(option, click.Option):
            _name_variable(each, option)


def main() -> NoReturn:
    """Runs the command line and exits."""
    terminal.run(lambda: cli.main(standalone_mode=False, prog_name="im2rec"))
