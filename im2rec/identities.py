"""InsightFace's layout of a face dataset: which records are images and which speak of identities.

Images have the keys 1..N, sorted by identity. Behind them one record without an image for each
identity, keys N+1.., with the labels (its first image's key, its last's + 1). One record with key
0, flag 2 and no image says where those stand: labels (N+1, N+1+identities). Read from the sources
of InsightFace's arcface_torch and of its MXNet loader, which both seek key 0 first.
"""

from __future__ import annotations

from collections.abc import Sequence

HEADER_KEY = 0
# Keys stand in labels, which are float32: beyond this not every whole number can be told.
MAX_KEY = 2**24


def identity_keys(key: int, labels: Sequence[float], image_size: int) -> range | None:
    """The keys of the identity records, if this record is the header that says so; else None.

    labels: of the record; image_size: in bytes.
    """
    if key != HEADER_KEY or len(labels) != 2 or image_size:
        return None
    return _range(labels)


def image_keys(labels: Sequence[float], image_size: int) -> range | None:
    """The keys of one identity's images, if this can be an identity's record; else None."""
    return None if len(labels) != 2 or image_size else _range(labels)


def _range(labels: Sequence[float]) -> range | None:
    first, end = labels
    if not (first.is_integer() and end.is_integer() and 1 <= first <= end <= MAX_KEY):
        return None
    return range(int(first), int(end))
