"""Runs inside the environment of MXNet 1.9.1: reads record files with its own readers.

Each line of stdin is a job in JSON, `{"do": NAME, ...arguments}`; its answer is a line of stdout,
`{"error": text}` for one that MXNet refuses. A sample is `{"id", "labels", "shape", "pixels"}`,
pixels HxWx3 RGB as hex, id null where the reader gives none.
"""

import gc
import random
import runpy
import sys

import mxnet as mx
import numpy as np
from answering import answer


def sample(pixels, labels, record_id=None):
    pixels = np.asarray(pixels)
    assert (pixels == pixels.astype(np.uint8)).all()
    return {
        "id": record_id,
        "labels": np.atleast_1d(np.asarray(labels, dtype=np.float32)).tolist(),
        "shape": list(pixels.shape),
        "pixels": pixels.astype(np.uint8).tobytes().hex(),
    }


def samples_of(iterator):
    """All samples of a DataIter, without what fills up its last batch."""
    found = []
    for batch in iterator:
        data, labels = batch.data[0].asnumpy(), batch.label[0].asnumpy()
        for n in range(len(data) - (batch.pad or 0)):
            found.append(sample(data[n].transpose(1, 2, 0), labels[n]))
    return found


# --- readers ----------------------------------------------------------------------------------


def image_record_iter(epochs=1, **options):
    """mx.io.ImageRecordIter, in C++; a list of samples for each epoch. Its `index` is always 0.

    An epoch after the first begins at the first record only where batches come out even.
    """
    iterator = mx.io.ImageRecordIter(preprocess_threads=2, verbose=False, ctx="cpu", **options)
    found = [samples_of(iterator)]
    for _ in range(epochs - 1):
        iterator.reset()
        found.append(samples_of(iterator))
    return found


def image_det_record_iter(**options):
    """mx.io.ImageDetRecordIter, in C++: 4 numbers of its own, the record's labels, padding."""
    iterator = mx.io.ImageDetRecordIter(preprocess_threads=2, verbose=False, ctx="cpu", **options)
    return samples_of(iterator)


def image_iter(**options):
    """mx.image.ImageIter, in Python: from a .rec, with or without index, or from a .lst."""
    options["data_shape"] = tuple(options["data_shape"])
    return samples_of(mx.image.ImageIter(aug_list=[], last_batch_handle="pad", **options))


def image_det_iter(path_imgrec, path_imgidx, data_shape):
    """mx.image.ImageDetIter, in Python: the label is rows of (class, x1, y1, x2, y2, ...)."""
    iterator = mx.image.ImageDetIter(
        batch_size=1,
        data_shape=tuple(data_shape),
        path_imgrec=path_imgrec,
        path_imgidx=path_imgidx,
        aug_list=[],
    )
    return samples_of(iterator)


def records(path):
    """MXRecordIO: the header and image of each record, in file order."""
    reader = mx.recordio.MXRecordIO(path, "r")
    found = []
    while (payload := reader.read()) is not None:
        found.append(unpacked(payload))
    return found


def indexed_records(path_idx, path_rec, seed):
    """MXIndexedRecordIO: key, then header and image, in an order of its own."""
    reader = mx.recordio.MXIndexedRecordIO(path_idx, path_rec, "r")
    keys = list(reader.keys)
    random.Random(seed).shuffle(keys)
    return {"keys": list(reader.keys), "read": [[k, unpacked(reader.read_idx(k))] for k in keys]}


def unpacked(payload):
    header, image = mx.recordio.unpack(payload)
    found = sample(mx.image.imdecode(image).asnumpy(), header.label, header.id)
    return {**found, "image": image.hex()}


def dataset(path, workers):
    """gluon's ImageRecordDataset, through its DataLoader where workers > 0."""
    pictures = mx.gluon.data.vision.ImageRecordDataset(path)
    if not workers:
        return [sample(picture.asnumpy(), label) for picture, label in pictures]
    loader = mx.gluon.data.DataLoader(pictures, 4, shuffle=True, num_workers=workers)
    found = []
    for data, labels in loader:
        found += [sample(*pair) for pair in zip(data.asnumpy(), labels.asnumpy(), strict=True)]
    return found


# --- records without images -------------------------------------------------------------------


def read_payloads(path_idx, path_rec):
    """Every payload, in file order and by key."""
    plain = mx.recordio.MXRecordIO(path_rec, "r")
    in_order = []
    while (payload := plain.read()) is not None:
        in_order.append(payload.hex())
    indexed = mx.recordio.MXIndexedRecordIO(path_idx, path_rec, "r")
    return {"in_order": in_order, "by_key": [[k, indexed.read_idx(k).hex()] for k in indexed.keys]}


def write_payloads(path_idx, path_rec, payloads):
    writer = mx.recordio.MXIndexedRecordIO(path_idx, path_rec, "w")
    for key, payload in payloads:
        writer.write_idx(key, bytes.fromhex(payload))
    writer.close()


def pack_headers(headers):
    """mx.recordio.pack of [label, id, id2, body]: the payloads."""
    return [
        mx.recordio.pack(mx.recordio.IRHeader(0, label, i, i2), bytes.fromhex(body)).hex()
        for label, i, i2, body in headers
    ]


def unpack_headers(payloads):
    found = []
    for payload in payloads:
        header, body = mx.recordio.unpack(bytes.fromhex(payload))
        labels = np.atleast_1d(np.asarray(header.label, dtype=np.float32)).tolist()
        found.append([header.flag, labels, header.id, header.id2, body.hex()])
    return found


# --- im2rec.py --------------------------------------------------------------------------------


def im2rec_py(runs):
    """im2rec.py, each run a list of arguments, all in this process."""
    for arguments in runs:
        sys.argv = ["im2rec.py", *arguments]
        runpy.run_module("mxnet.tools.im2rec", run_name="__main__")
        gc.collect()  # im2rec.py closes nothing; its functions hold the open files in a circle


if __name__ == "__main__":
    answer(
        image_record_iter,
        image_det_record_iter,
        image_iter,
        image_det_iter,
        records,
        indexed_records,
        dataset,
        read_payloads,
        write_payloads,
        pack_headers,
        unpack_headers,
        im2rec_py,
    )
