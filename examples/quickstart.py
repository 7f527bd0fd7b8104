"""Make a small folder of pictures and pack it: the whole job in four commands.

    python examples/quickstart.py [FOLDER]

FOLDER (default: quickstart) is made; it must not exist yet, or be one that this script made.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = ["crimson", "darkorange", "gold", "seagreen", "royalblue", "purple"]
EDGE = 120  # pixels
MARK = ".made-by-quickstart"


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "quickstart")
    if folder.exists() and not (folder / MARK).exists():
        print(f"{folder}: is there already; name another folder", file=sys.stderr)
        return 2
    make_pictures(folder / "shapes")
    (folder / MARK).touch()
    commands = [
        ["make-list", "train", "shapes"],
        ["pack", "--resize", "64", "train", "shapes"],
        ["inspect", "train"],
        ["verify", "--decode", "--list", "train.lst", "train"],
    ]
    for command in commands:
        print("$ im2rec", *command)
        done = subprocess.run(
            [sys.executable, "-m", "im2rec", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            return done.returncode
    return 0


def make_pictures(root: Path) -> None:
    """Circles, squares and triangles in six colours, a folder for each shape."""
    inner = (20, 20, EDGE - 20, EDGE - 20)
    for shape in ("circle", "square", "triangle"):
        (root / shape).mkdir(parents=True, exist_ok=True)
        for colour in COLOURS:
            picture = Image.new("RGB", (EDGE, EDGE), "white")
            draw = ImageDraw.Draw(picture)
            if shape == "circle":
                draw.ellipse(inner, fill=colour)
            elif shape == "square":
                draw.rectangle(inner, fill=colour)
            else:
                draw.polygon([(EDGE // 2, 20), inner[2:], (20, EDGE - 20)], fill=colour)
            picture.save(root / shape / f"{colour}.png")


if __name__ == "__main__":
    sys.exit(main())
