"""The options of the golden packs; as a script (FOLDER ROOT WORKERS START_METHOD), packs them."""

from __future__ import annotations

import dataclasses
import sys

from im2rec.image_ops import ImageOptions
from im2rec.pack import PackOptions, pack_list

PACKS = {
    "pass_through": PackOptions(ImageOptions(pass_through=True)),
    "plain": PackOptions(),
    "resize64": PackOptions(ImageOptions(resize=64)),
    "resize64_crop": PackOptions(ImageOptions(resize=64, center_crop=True)),
    "crop_only": PackOptions(ImageOptions(center_crop=True)),
    "resize64_q80": PackOptions(ImageOptions(resize=64, quality=80)),
    "gray": PackOptions(ImageOptions(resize=64, color=0)),
    "asis": PackOptions(ImageOptions(resize=64, color=-1)),
    "png": PackOptions(ImageOptions(resize=64, encoding=".png", quality=3)),
    "multi_label": PackOptions(ImageOptions(pass_through=True)),
    "multi_label_first_only": PackOptions(ImageOptions(pass_through=True), pack_label=False),
    "detection": PackOptions(ImageOptions(resize=64)),
}


def main(folder: str, root: str, workers: str, start_method: str) -> None:
    for name, options in PACKS.items():
        settings = dataclasses.replace(
            options, workers=int(workers), start_method=start_method, fsync=False
        )
        pack_list(f"{folder}/{name}/set.lst", root, settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
