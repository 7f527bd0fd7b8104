"""InsightFace's layout of a face dataset: which records are images and which speak of identities.

Images have the keys 1..N, sorted by identity. Behind them one record without an image for each
identity, keys N+1.., with the labels (its first image's key, its last's + 1). One record with key
0, flag 2 and no image says where those stand: labels (N+1, N+1+identities). Read from the sources
of InsightFace's arcface_torch and of its MXNet loader, which both seek key 0 first.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

LAYOUTS = ("plain", "insightface")
HEADER_KEY, FIRST_IMAGE_KEY = 0, 1
EXACT = 2**24  # keys stand in labels, float32: beyond this not every whole number can be told
MAX_KEY = 2**31  # the loaders' own keys are of 32 bits


class IdentityTable:
    """The identities of a set while its images come, in the order of their keys."""

    def __init__(self) -> None:
        self._firsts = array("Q")  # the key of each identity's first image
        self._images = 0

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, key: int, labels: Sequence[float]) -> None:
        """Takes the next image. Raises ValueError where it cannot stand there in this layout."""
        expected = FIRST_IMAGE_KEY + self._images
        if key != expected:
            raise ValueError(f"id {key}, expected {expected}: ids rise from 1 without a hole")
        if len(labels) != 1:
            raise ValueError(f"{len(labels)} labels, expected one, the identity's number")
        label, last = labels[0], len(self._firsts) - 1
        if label == last + 1:
            self._firsts.append(key)
        elif label != last:
            raise ValueError(
                f"identity {label:g}, expected {f'{last} or ' if last >= 0 else ''}{last + 1}: "
                "identities rise from 0 without a hole, all images of one together"
            )
        self._images += 1

    def check(self) -> None:
        """Looks at the keys once all images are there. Raises ValueError where float32 cannot hold
        one that is to stand in a label."""
        end = FIRST_IMAGE_KEY + self._images
        header = (("the first identity", end), ("the end of the identities", end + len(self)))
        firsts = ((f"the first image of identity {at}", key) for at, key in enumerate(self._firsts))
        for what, key in (*header, *firsts) if end + len(self) > EXACT else ():
            if not is_exact(key):
                raise ValueError(
                    f"{what} has the key {key}, which is to stand in a label: float32 cannot hold "
                    f"it, as no odd number beyond {EXACT}"
                )

    def records(self) -> Iterator[tuple[int, tuple[float, float]]]:
        """Key and labels of the records that come behind the images: one for each identity, and
        the header."""
        end = FIRST_IMAGE_KEY + self._images
        for number, first in enumerate(self._firsts):
            behind = self._firsts[number + 1] if number + 1 < len(self._firsts) else end
            yield end + number, (float(first), float(behind))
        yield HEADER_KEY, (float(end), float(end + len(self._firsts)))


def identity_keys(key: int, labels: Sequence[float], image_size: int) -> range | None:
    """The keys of the identity records, if this record is the header that says so; else None.

    labels: of the record; image_size: in bytes.
    """
    if key != HEADER_KEY or len(labels) != 2 or image_size:
        return None
    keys = _range(labels)
    return keys if keys and keys[0] > FIRST_IMAGE_KEY else None  # the images stand before them


def image_keys(labels: Sequence[float], image_size: int) -> range | None:
    """The keys of one identity's images, if this can be an identity's record; else None."""
    return None if len(labels) != 2 or image_size else _range(labels)


def is_exact(key: int) -> bool:
    """Whether float32 holds this key as it is."""
    return key <= MAX_KEY and key % (1 << max(key.bit_length() - EXACT.bit_length() + 1, 0)) == 0


def _range(labels: Sequence[float]) -> range | None:
    first, end = labels
    if not (first.is_integer() and end.is_integer() and 1 <= first <= end <= MAX_KEY):
        return None
    return range(int(first), int(end))
