"""An NVIDIA DALI pipeline over a set of one file or of shards; runs on the CPU, too.

    python examples/dali_pipeline.py PREFIX

needs nvidia-dali alone, and prints what one epoch gives. Several shards take the one joint index.
"""

from __future__ import annotations

import os
import sys
from glob import escape, glob

from nvidia.dali import fn, pipeline_def, types


@pipeline_def(batch_size=4, num_threads=2, device_id=None)  # type: ignore[untyped-decorator]
def images_and_labels(recs: list[str], index: str) -> tuple[object, object]:
    """Pictures as 64x64x3 uint8, RGB, and one label each."""
    encoded, labels = fn.readers.mxnet(
        path=recs,
        index_path=[index],
        random_shuffle=True,
        pad_last_batch=False,
        name="reader",
    )
    # On a GPU: device="mixed". Both turn a picture by its EXIF orientation.
    pictures = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    return fn.resize(pictures, size=[64, 64]), labels


def shards_of(prefix: str) -> list[str]:
    """The files that PREFIX.idx speaks of; DALI itself does not notice where one is missing."""
    count = len(glob(f"{escape(prefix)}_[0-9][0-9][0-9]*.rec"))
    recs = [f"{prefix}_{number:03}.rec" for number in range(count)] or [f"{prefix}.rec"]
    for file in (*recs, f"{prefix}.idx"):
        if not os.path.exists(file):
            raise SystemExit(f"{file}: is not there")
    with open(f"{prefix}.idx", encoding="ascii") as lines:
        last = max(int(line.split("\t")[1]) for line in lines)
    if last >= sum(map(os.path.getsize, recs)):
        raise SystemExit(f"{prefix}.idx: speaks of more than {recs[-1]}; a shard is missing")
    return recs


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: dali_pipeline.py PREFIX", file=sys.stderr)
        return 2
    prefix = sys.argv[1]
    recs = shards_of(prefix)
    pipeline = images_and_labels(recs, f"{prefix}.idx")
    pipeline.build()
    size, batches = pipeline.epoch_size("reader"), 0
    while batches * 4 < size:
        pictures, labels = pipeline.run()
        batches += 1
        print(f"batch {batches}: {len(pictures)} images, {labels.as_array().size} labels")
    print(f"{size} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
