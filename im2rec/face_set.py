"""What InsightFace wants of a set beside its images: their order, one size, records of identities,
and a file `property`.

Its readers take `train.rec` and `train.idx` from a folder, with `property` beside them: the number
of identities, the height and the width of every image, on one line with commas (the rules are those
of InsightFace's face2rec2.py, face_image.py and arcface_torch's dataset.py).
"""

from __future__ import annotations

import os
from itertools import islice

from im2rec import framing, image_record
from im2rec.errors import InputError
from im2rec.identities import IdentityTable
from im2rec.lst import ImageList
from im2rec.output import writing
from im2rec.part import ShardStats
from im2rec.record_set import read_manifest
from im2rec.shards import HELD_SIZE, HeldPart, SetWriter

PROPERTY = "property"
_AT_A_TIME = 4096  # records of identities; 40 bytes each


class FaceSet:
    """The identities of a list, as they are to follow its images.

    Raises InputError for a list that is not in the layout's order.
    """

    def __init__(self, images: ImageList) -> None:
        self._images = images
        self._table = IdentityTable()
        self._size: tuple[int, int] | None = None
        for row, entry in enumerate(images):
            try:
                self._table.add(entry.id, entry.labels)
            except ValueError as error:
                raise InputError(
                    images.path,
                    f"row {row + 1} ({entry.path}): {error}",
                    "make it with im2rec make-list --layout insightface",
                ) from error
        try:
            self._table.check()
        except ValueError as error:
            raise InputError(
                images.path,
                str(error),
                "pack it plain, from a list of make-list --ids per-list: arcface_torch reads that, "
                "too",
            ) from error

    def __len__(self) -> int:
        return len(self._table)

    @property
    def records(self) -> int:
        """How many records follow the images."""
        return len(self._table) + 1

    def take(self, stats: ShardStats) -> None:
        """Looks at the sizes of some images. Raises InputError where they are not all the same."""
        for (width, height), row in stats.sizes.items():
            self._size = self._size or (width, height)
            if self._size != (width, height):
                path = next(self._images.rows(row, row + 1)).path
                raise InputError(
                    path,
                    f"{width}x{height} pixels, the images before it "
                    f"{self._size[0]}x{self._size[1]}; InsightFace trains on one size",
                    "align them, or use --resize 112 --center-crop",
                )

    def write_records(self, writer: SetWriter, folder: str) -> None:
        """Writes the records of the identities and of the header behind those of the images.
        folder: for what memory cannot hold. Raises OutputError."""
        records = self._table.records()
        while some := list(islice(records, _AT_A_TIME)):
            framed = [framing.frame(image_record.encode(*record, b"")) for record in some]
            sizes = map(len, framed)
            places = writer.place(
                [(key, size) for (key, _), size in zip(some, sizes, strict=True)], None
            )
            held = HeldPart(folder, HELD_SIZE)
            with writing(places[0].file):
                held.writelines(framed)
                held.put(places)
            writer.written(places)

    def property_line(self) -> bytes:
        """What stands in the file `property`."""
        assert self._size
        width, height = self._size
        return f"{len(self)},{height},{width}\n".encode("ascii")


def is_property(path: str) -> bool:
    """Whether a file is such a one, so that it may be replaced."""
    return _identities(path) is not None


def _identities(path: str) -> int | None:
    """How many identities a file `property` tells of; None where it is no such file."""
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        fields = file.read(100).strip().split(b",")
    is_one = len(fields) == 3 and all(field.isdigit() for field in fields)
    return int(fields[0]) if is_one else None


def owns_property(prefix: str) -> bool:
    """Whether the file `property` beside PREFIX is that of the set which is there now: its manifest
    says so, the numbers agree, and no other set's manifest says the same."""
    folder, stem = os.path.split(prefix)
    own = f"{stem}.manifest.json"
    identities = _packed_identities(os.path.join(folder, own))
    if identities is None or identities != _identities(os.path.join(folder, PROPERTY)):
        return False
    others = [name for name in os.listdir(folder or ".") if name.endswith(".manifest.json")]
    return not any(
        _packed_identities(os.path.join(folder, name)) == identities
        for name in others
        if name != own
    )


def _packed_identities(manifest: str) -> int | None:
    """How many identities a set has by its manifest; None where it is of another layout."""
    try:
        contents = read_manifest(manifest)
    except InputError:
        return None
    records = contents.get("identity_records")  # with the header
    return records - 1 if type(records) is int else None
