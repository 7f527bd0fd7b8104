"""Makes the environments of the readers that tests/test_readers.py asks.

    python tests/readers/environments.py DIR [mxnet|dali|torch ...]

makes DIR/mxnet, DIR/dali and DIR/torch, side by side, with the versions below. An environment that
is there already, whole, is left alone. They take some 2.5 GB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PINNED = {
    # NumPy 1.23.5 is the newest that MXNet imports with; OpenCV 5 needs NumPy 2.
    "mxnet": ("mxnet==1.9.1", "numpy==1.23.5", "opencv-python-headless==4.11.0.86"),
    "dali": ("nvidia-dali-cuda120==2.4.0",),
    "torch": (
        "torch==2.13.0",
        "numpy==2.2.6; python_version < '3.11'",
        "numpy==2.4.6; python_version >= '3.11'",
        "opencv-python-headless==5.0.0.93",
    ),
}
MXNET_NEWEST = (3, 11)  # the newest Python that has a wheel of NumPy 1.23.5
PYTHONS = ("python3.11", "python3.10", "python3.9", "python3.8")


class CannotMakeError(Exception):
    """An environment that cannot be made here."""


def python_for(name: str) -> str:
    """The interpreter of an environment: this one where it will do."""
    if name != "mxnet" or sys.version_info[:2] <= MXNET_NEWEST:
        return sys.executable
    for python in PYTHONS:
        if found := shutil.which(python):
            return found
    raise CannotMakeError(
        f"mxnet: this is Python {sys.version_info[0]}.{sys.version_info[1]}, but MXNet 1.9.1 needs"
        " NumPy 1.23.5, which has wheels for Python 3.8 to 3.11 only, and none of these is on PATH:"
        f" {', '.join(PYTHONS)}; install one of them"
    )


def make(folder: Path, name: str) -> None:
    """Makes one environment, unless it is there, whole."""
    home = folder / name
    done = home / "versions.txt"
    versions = "\n".join(PINNED[name]) + "\n"
    if done.exists() and done.read_text("utf-8") == versions:
        return
    # Without --no-compile pip takes longer to compile what is never imported than to unpack it all.
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    for command in (
        [python_for(name), "-m", "venv", "--clear", str(home)],
        [str(home / "bin" / "python"), *install, *PINNED[name]],
    ):
        ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if ran.returncode:
            raise CannotMakeError(f"{name}: {' '.join(command)}\n{ran.stdout}{ran.stderr}")
    done.write_text(versions, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    names = arguments[1:] or list(PINNED)
    if not arguments or not set(names) <= set(PINNED):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(make, folder, name) for name in names]:
            try:
                job.result()
            except CannotMakeError as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
