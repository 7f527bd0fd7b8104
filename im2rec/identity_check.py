"""Records without an image: InsightFace's header and identities, and those that lost theirs."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from im2rec.framing import Run
from im2rec.identities import EXACT, FIRST_IMAGE_KEY, HEADER_KEY, identity_keys
from im2rec.image_record import Headers, ImageRecord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def _numbers() -> array[int]:
    return array("Q")


@dataclass
class BareRecords:
    """The records of a set, as far as they tell its identities from records that have no image
    though they should."""

    _images: array[int] = field(default_factory=_numbers)  # ids of the records with one
    # Of those without one and with two labels: the file's number, where it begins there, id, labels
    _paths: dict[str, int] = field(default_factory=dict)
    _files: array[int] = field(default_factory=_numbers)
    _offsets: array[int] = field(default_factory=_numbers)
    _ids: array[int] = field(default_factory=_numbers)
    _labels: array[float] = field(default_factory=lambda: array("f"))

    def add(self, path: str, offset: int, content: ImageRecord) -> None:
        """Takes a record."""
        if content.image:
            self._images.append(content.id)
        elif len(content.labels) == 2:
            self._files.append(self._paths.setdefault(path, len(self._paths)))
            self._offsets.append(offset)
            self._ids.append(content.id)
            self._labels.extend(content.labels)

    def add_run(self, path: str, run: Run, headers: Headers) -> None:
        """Takes the records of a run."""
        has_image = headers.whole & (headers.image_bytes > 0)
        self._images.frombytes(headers.ids[has_image].tobytes())
        bare = (headers.whole & ~has_image & (headers.widths == 2)).nonzero()[0]
        if len(bare):
            self._files.extend([self._paths.setdefault(path, len(self._paths))] * len(bare))
            self._offsets.frombytes(run.offsets[bare].astype("u8").tobytes())
            self._ids.frombytes(headers.ids[bare].tobytes())
            places = headers.labels[bare].repeat(2)
            places[1::2] += 1
            self._labels.frombytes(headers.words[places].tobytes())

    def identities(self) -> dict[str, frozenset[int]]:
        """Where, in each file, the header and the identities begin.

        The header is believed where one of the images is there that it tells of, an identity where
        the header has its id and all its own images are there.
        """
        import numpy as np

        if HEADER_KEY not in self._ids:
            return {}
        ids, labels = np.frombuffer(self._ids, "u8"), np.frombuffer(self._labels, "f4")
        firsts, ends = labels.reshape(-1, 2).T
        images = np.unique(np.frombuffer(self._images, "u8")) if self._images else ids[:0]
        header = self._ids.index(HEADER_KEY)
        keys = identity_keys(HEADER_KEY, (float(firsts[header]), float(ends[header])), 0)
        if keys is None or not _count(images, FIRST_IMAGE_KEY, keys.start):
            return {}
        sound = (ids >= keys.start) & (ids < keys.stop) & _are_ranges(firsts, ends, keys.start)
        own = sound.nonzero()[0]
        first, end = firsts[own].astype("u8"), ends[own].astype("u8")
        sound[own] = _count(images, first, end) == end - first
        sound[header] = True
        files, offsets = np.frombuffer(self._files, "u8"), np.frombuffer(self._offsets, "u8")
        return {
            path: frozenset(offsets[sound & (files == number)].tolist())
            for path, number in self._paths.items()
        }


def _count(ids: npt.NDArray[np.uint64], first: Any, end: Any) -> Any:
    """How many of the ids, which are in order, are in each range."""
    import numpy as np

    return ids.searchsorted(np.asarray(end, "u8")) - ids.searchsorted(np.asarray(first, "u8"))


def _are_ranges(
    firsts: npt.NDArray[np.float32], ends: npt.NDArray[np.float32], end: int
) -> npt.NDArray[np.bool_]:
    """Whether these are the first and last + 1 of some of the images 1..end-1. Large ones float32
    has rounded: those of one image may be the same."""
    import numpy as np

    # what passes below is finite: neither NaN nor an infinite number is between 1 and `end`
    whole = (firsts == np.floor(firsts)) & (ends == np.floor(ends))
    ordered = (firsts < ends) | ((firsts == ends) & (firsts >= EXACT))
    found: npt.NDArray[np.bool_] = whole & ordered & (firsts >= FIRST_IMAGE_KEY) & (ends <= end)
    return found
