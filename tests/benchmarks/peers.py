"""What the benchmark measures im2rec against: bare loops that show what the machine can do, and the
real MXNet's readers. Run by run.py in processes of their own."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

MAGIC = 0xCED7230A


def rows(lst: str) -> list[tuple[int, float, str]]:
    out = []
    for line in Path(lst).read_text(encoding="utf-8").splitlines():
        number, label, path = line.split("\t")
        out.append((int(number), float(label), path))
    return out


def limit_pack(lst: str, root: str, out: str, first: str, step: str) -> None:
    """Decodes, resizes, encodes and appends every step-th image, for itself alone."""
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    with open(out, "wb") as file:
        for number, label, path in rows(lst)[int(first) :: int(step)]:
            with open(os.path.join(root, path), "rb") as source:
                data = source.read()
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), 1)
            height, width = picture.shape[:2]
            size = (256, height * 256 // width) if height > width else (width * 256 // height, 256)
            picture = cv2.resize(picture, size)
            image = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
            payload = struct.pack("<IfQQ", 0, label, number, 0) + image
            file.write(struct.pack("<II", MAGIC, len(payload)) + payload + bytes(-len(payload) % 4))


def limit_decode(lst: str, root: str, first: str, step: str) -> None:
    """Decodes every step-th image."""
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    for _, _, path in rows(lst)[int(first) :: int(step)]:
        with open(os.path.join(root, path), "rb") as source:
            cv2.imdecode(np.frombuffer(source.read(), np.uint8), -1)


def all_cores(name: str, *arguments: str) -> None:
    """Runs one of the loops above in a process for each CPU, with no coordination."""
    cpus = len(os.sched_getaffinity(0))
    processes = []
    for number in range(cpus):
        own = list(arguments)
        if name == "limit_pack":
            own[2] += f".{number}"
        command = [sys.executable, __file__, name, *own, str(number), str(cpus)]
        processes.append(subprocess.Popen(command))
    for process in processes:
        if process.wait():
            sys.exit(1)


def scandir_list(root: str, out: str) -> None:
    """Walks class folders with os.scandir and writes the list, unshuffled and unchecked."""
    number = 0
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        for label, folder in enumerate(sorted(entry.name for entry in os.scandir(root))):
            names = sorted(
                entry.name
                for entry in os.scandir(os.path.join(root, folder))
                if entry.is_file() and entry.name.endswith(".jpg")
            )
            for name in names:
                file.write(f"{number}\t{label}\t{folder}/{name}\n")
                number += 1


def read_heads(rec: str) -> None:
    """Reads the head of each record and skips its payload: what any sequential look must do."""
    size = os.path.getsize(rec)
    at = 0
    with open(rec, "rb", buffering=1 << 20) as file:
        while at < size:
            _, length = struct.unpack("<II", file.read(8))
            file.read(24)
            at += 8 + length + -length % 4
            file.seek(at)


def read_bytes(path: str) -> None:
    """Reads a file at memory speed."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def recordio_module():  # type: ignore[no-untyped-def]
    """MXNet's module where it is installed, else ours: so that one loop measures both."""
    try:
        from mxnet import recordio
    except ImportError:
        from im2rec import recordio
    return recordio


def sequential(rec: str) -> None:
    """Reads every record in turn."""
    record = recordio_module().MXRecordIO(rec, "r")
    while record.read() is not None:
        pass


def at_random(rec: str, reads: str) -> None:
    """Times reading records by key in a random order, without the start; prints seconds."""
    import random

    record = recordio_module().MXIndexedRecordIO(rec[:-3] + "idx", rec, "r")
    keys = random.Random(1).choices(record.keys, k=int(reads))
    begin = time.perf_counter()
    for key in keys:
        record.read_idx(key)
    print(time.perf_counter() - begin)


def open_index(rec: str, keys: str = "") -> None:
    """Times opening an indexed file, and asking for its first key; prints seconds."""
    module = recordio_module()
    begin = time.perf_counter()
    record = module.MXIndexedRecordIO(rec[:-3] + "idx", rec, "r")
    if keys:
        record.read_idx(record.keys[0])
    print(time.perf_counter() - begin)


def enlarge(lst: str, root: str, out: str) -> None:
    """Makes 24 JPEGs of 4000x3000 from as many photographs of a list."""
    import cv2

    os.makedirs(out)
    for number, (_, _, path) in enumerate(rows(lst)[:24]):
        picture = cv2.imread(os.path.join(root, path))
        picture = cv2.resize(picture, (4000, 3000), interpolation=cv2.INTER_CUBIC)
        name = os.path.join(out, f"{number}.jpg")
        cv2.imwrite(name, picture, [cv2.IMWRITE_JPEG_QUALITY, 90])


def psnr(first: str, second: str) -> None:
    """Prints the lowest PSNR, in decibels, of the pictures of one file to those of another."""
    import cv2
    import numpy as np

    from im2rec import recordio

    records = [recordio.MXRecordIO(path, "r") for path in (first, second)]
    worst = float("inf")
    while payload := records[0].read():
        pictures = [recordio.unpack_img(each)[1] for each in (payload, records[1].read() or b"")]
        worst = min(worst, cv2.PSNR(*(np.ascontiguousarray(each) for each in pictures)))
    print(worst)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
