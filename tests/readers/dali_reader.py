"""Runs inside the environment of NVIDIA DALI 2.4.0: reads record files on the processor alone.

Jobs and answers as in mxnet_reader.py. DALI gives no ids.
"""

from answering import answer
from nvidia.dali import fn, pipeline_def, types


def readers_mxnet(path, index_path, batch_size=3, **options):
    """fn.readers.mxnet and fn.decoders.image, one epoch: a list of samples."""

    @pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
    def pipeline():
        image, label = fn.readers.mxnet(
            path=path, index_path=index_path, name="reader", pad_last_batch=True, **options
        )
        return fn.decoders.image(image, device="cpu", output_type=types.RGB), label

    pipe = pipeline()
    pipe.build()
    size = pipe.reader_meta("reader")["epoch_size"]
    shard, shards = options.get("shard_id", 0), options.get("num_shards", 1)
    size = size * (shard + 1) // shards - size * shard // shards
    found = []
    while len(found) < size:
        images, labels = pipe.run()
        for n in range(min(batch_size, size - len(found))):
            found.append(sample(images.at(n), labels.at(n)))
    return found


def sample(pixels, labels):
    return {
        "id": None,
        "labels": labels.ravel().tolist(),
        "shape": list(pixels.shape),
        "pixels": pixels.tobytes().hex(),
    }


if __name__ == "__main__":
    answer(readers_mxnet)
