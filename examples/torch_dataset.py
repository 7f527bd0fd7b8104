"""A PyTorch Dataset over a set of one file or of shards; needs torch beside im2rec.

    python examples/torch_dataset.py PREFIX

prints what one epoch of a DataLoader with two workers gives.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from itertools import accumulate

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from im2rec import recordio
from im2rec.record_set import find_set


class RecordDataset(Dataset):  # type: ignore[misc]  # checked without torch
    """The images of a set, in its order: 3xHxW uint8, RGB, and the labels.

    Handles of im2rec.recordio may be pickled and forked: each worker opens its files anew.
    """

    def __init__(self, prefix: str) -> None:
        found = find_set(prefix)
        if found.missing:
            raise SystemExit(f"{found.missing[0]}: this shard is not there")
        if None in found.idxs:
            raise SystemExit(f"{prefix}: an index is missing; `im2rec index {prefix}` makes it")
        self._shards = [
            recordio.MXIndexedRecordIO(str(idx), rec, "r")
            for rec, idx in zip(found.recs, found.idxs, strict=True)
        ]
        self._ends = list(accumulate(len(shard.keys) for shard in self._shards))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        at = bisect_right(self._ends, number)
        shard = self._shards[at]
        key = shard.keys[number - self._ends[at]]  # of a negative number: from the shard's end
        header, image = recordio.unpack(shard.read_idx(key))
        picture = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
        return torch.from_numpy(picture).permute(2, 0, 1), torch.as_tensor(header.label)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: torch_dataset.py PREFIX", file=sys.stderr)
        return 2
    dataset = RecordDataset(sys.argv[1])
    images, labels = 0, 0.0
    # pictures of one size make batches; others need a collate_fn, or a resize before
    for batch, batch_labels in DataLoader(dataset, batch_size=None, shuffle=True, num_workers=2):
        images += 1
        labels += float(batch_labels.sum())
        assert batch.dtype == torch.uint8
    print(f"{images} images of {len(dataset)}, sum of labels {labels:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
