"""Runs inside the environment of MXNet: what its own unit tests of recordio ask, of any module.

    python recordio_checks.py MODULE FOLDER

MODULE is mxnet.recordio, or what stands in its place. Prints each check that has passed.
"""

import importlib
import os
import pickle
import random
import sys

import numpy as np

COUNT = 255


def payload(n):
    return chr(n).encode("utf-8")


def records_come_back_in_order(recordio, folder):
    path = os.path.join(folder, "plain.rec")
    writer = recordio.MXRecordIO(path, "w")
    for n in range(COUNT):
        writer.write(payload(n))
    del writer  # which must close it
    reader = recordio.MXRecordIO(path, "r")
    for n in range(COUNT):
        assert reader.read() == payload(n)
    assert reader.read() is None
    reader.reset()
    assert reader.read() == payload(0)


def records_come_back_by_key(recordio, folder):
    paths = os.path.join(folder, "keyed.idx"), os.path.join(folder, "keyed.rec")
    writer = recordio.MXIndexedRecordIO(*paths, "w")
    for n in range(COUNT):
        writer.write_idx(n, payload(n))
    del writer
    reader = recordio.MXIndexedRecordIO(*paths, "r")
    keys = reader.keys
    assert sorted(keys) == list(range(COUNT))
    random.Random(7).shuffle(keys)
    for key in keys:
        assert reader.read_idx(key) == payload(key)
    twin = pickle.loads(pickle.dumps(reader))
    assert [twin.read_idx(key) for key in range(COUNT)] == [payload(n) for n in range(COUNT)]


def label_arrays_come_back(recordio, folder):
    draw = np.random.default_rng(7)
    for width in range(1, COUNT):
        for size in range(width % 5, COUNT, 5):  # all sizes, each with a fifth of the widths
            content = draw.bytes(size)
            labels = draw.random(width, dtype=np.float32)
            header, body = recordio.unpack(recordio.pack((0, labels, 0, 0), content))
            assert (header.flag, header.id, header.id2, body) == (width, 0, 0, content)
            assert (header.label == labels).all()


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    for check in (records_come_back_in_order, records_come_back_by_key, label_arrays_come_back):
        check(module, sys.argv[2])
        print(check.__name__)
