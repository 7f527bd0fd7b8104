"""Runs inside the environment of PyTorch: im2rec.recordio in the workers of its DataLoader.

The handles are opened here and go to the workers by fork, or pickled by spawn. Jobs and answers as
in mxnet_reader.py.
"""

from answering import answer
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from im2rec import recordio


class ByKey(Dataset):
    """Random access: each record by its key."""

    def __init__(self, path_idx, path_rec):
        self.reader = recordio.MXIndexedRecordIO(path_idx, path_rec, "r")
        self.keys = self.reader.keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, n):
        return fields(self.reader.read_idx(self.keys[n]))


class InTurn(IterableDataset):
    """From start to end: every worker reads the whole file and keeps its share."""

    def __init__(self, path_rec, reset=True):
        self.reader = recordio.MXRecordIO(path_rec, "r")
        self.reset = reset

    def __iter__(self):
        worker = get_worker_info()
        if self.reset:
            self.reader.reset()
        for n, payload in enumerate(iter(self.reader.read, None)):
            if n % worker.num_workers == worker.id:
                yield fields(payload)


def fields(payload):
    header, image = recordio.unpack(payload)
    labels = [float(header.label)] if not header.flag else header.label.tolist()
    return header.id, labels, image.hex()


def load(records, start_method, workers, shuffle, epochs=2):
    """What the loader gives in each epoch."""
    loader = DataLoader(
        records,
        batch_size=4,
        shuffle=shuffle,
        num_workers=workers,
        multiprocessing_context=start_method,
        persistent_workers=True,
        collate_fn=list,
    )
    return [[one for batch in loader for one in batch] for _ in range(epochs)]


def by_key(path_idx, path_rec, start_method, workers):
    """Each epoch's records in a random order, after the parent has read some itself."""
    records = ByKey(path_idx, path_rec)
    first = [fields(records.reader.read()) for _ in range(2)]
    epochs = load(records, start_method, workers, shuffle=True)
    return {"epochs": epochs, "parent": [*first, fields(records.reader.read())]}


def in_turn(path_rec, start_method, workers):
    """Each epoch's records in turn; the parent stands in the middle of the file and goes on."""
    records = InTurn(path_rec)
    first = [fields(records.reader.read()) for _ in range(2)]
    epochs = load(records, start_method, workers, shuffle=None)
    return {"epochs": epochs, "parent": [*first, fields(records.reader.read())]}


def in_turn_without_reset(path_rec):
    """What a worker gets that goes on with its parent's handle, of which they share the place."""
    return load(InTurn(path_rec, reset=False), "fork", 2, shuffle=None, epochs=1)


if __name__ == "__main__":
    answer(by_key, in_turn, in_turn_without_reset)
