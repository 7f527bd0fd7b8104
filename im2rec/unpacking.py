"""The verb unpack: the records of sets become image files again, in folders, each set with a list.

Each set is read twice: first its headers, which tell how wide the names must be, which ids repeat
and where there is damage, then the images. All is made in the hidden folder beside OUT, which gets
its name when everything is there.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from im2rec.errors import (
    DamageError,
    ImageError,
    InputError,
    OptionError,
    OutputError,
    PayloadError,
)
from im2rec.facts import Place, Places
from im2rec.framing import MAGIC_BYTES, Damage, Record, Run
from im2rec.identities import HEADER_KEY, identity_keys, image_keys
from im2rec.image_file import KINDS, identify, identify_many
from im2rec.image_record import Headers, decode, decode_headers, encode_header
from im2rec.lst import MAX_ROW, format_float32
from im2rec.output import COPY_SIZE, Output, writing
from im2rec.record_set import (
    RecordSet,
    Untouched,
    check_record_file,
    find_classes,
    read_classes,
    read_manifest,
    walk,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EXTENSIONS = {
    "jpeg": ".jpg",
    "png": ".png",
    "gif": ".gif",
    "webp": ".webp",
    "bmp": ".bmp",
    "tiff": ".tif",
    "ppm": ".ppm",
    "jpeg2000": ".jp2",
}
UNKNOWN_EXTENSION = ".bin"
NO_CLASS = "images"  # the folder of images whose labels are no class
PER_FOLDER = 1000  # ids, where folders go by id
MAX_LISTED = 1000  # places of a kind that a report names; of more, it says how many
MAX_DIGITS = 10  # of a class; one of more has no part in how wide the names of folders are
MAX_FOLDER = 200  # bytes of a folder's name; 255 is what most systems take
MAX_TOLD = 20  # places of damage that an error names
_EXTENSIONS = [EXTENSIONS.get(kind, UNKNOWN_EXTENSION) for kind in KINDS]  # by their numbers
_NEW_FILE = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)  # Windows
)
# What pack may put beside the list NAME.lst that comes out, and InsightFace's file.
_SET_FILE = r"(?:_[0-9]{3,})?\.(?:rec|idx)|\.(?:lst|classes\.txt|manifest\.json|failures\.tsv)"
_PROPERTY = "property"

# Half of the bytes read, for all are read twice, and the bytes in all.
Progress = Callable[[int, int], None]
Classes = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class UnpackOptions:
    """What is unpacked, and how it is laid out.

    by: "label" makes a folder for each class, "id" one for each thousand ids. labels: classes,
    by name or number, and ids: ranges, that alone are unpacked; () = all. renumber: an image's id
    is its record's place in the set, from 0, and not its own. salvage: pass over damage and shards
    that are missing. fsync: flush to disk before OUT gets its name.
    """

    by: str = "label"
    labels: tuple[str, ...] = ()
    ids: tuple[range, ...] = ()
    renumber: bool = False
    salvage: bool = False
    fsync: bool = True


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """What came of it.

    lists: (path, rows) of each; images, bytes: that were written, in so many folders. left_out:
    records that are no image; unlisted: images that no list can hold, repeated of them because the
    set has their ids before; damage: places passed over; of each the first MAX_LISTED are named.
    missing: shards that are not there. odd_headers: listed images whose header pack writes
    otherwise; unknown_kind: images of no known kind; identities: InsightFace's records, header
    included; renamed: (class, its folder) where the name is not safe.
    """

    out: str
    lists: tuple[tuple[str, int], ...]
    images: int
    bytes: int
    folders: int
    left_out: Places
    unlisted: Places
    repeated: int
    damage: Places
    missing: tuple[str, ...]
    odd_headers: int
    unknown_kind: int
    identities: int
    renamed: tuple[tuple[str, str], ...]


def unpack_sets(
    sets: Sequence[RecordSet],
    out: str,
    options: UnpackOptions,
    *,
    progress: Progress | None = None,
) -> UnpackReport:
    """Unpacks sets into the new or empty folder `out`; all that is asked for, or nothing.

    Raises OptionError, InputError, and DamageError where a file is damaged and `salvage` is not
    given; OutputError, BusyError where it cannot be written.
    """
    out = _check_out(out)
    _check_sets(sets, options)
    classes = _common_classes(sets)
    wanted = _Wanted(options, classes)
    reading = _Reading(sets, progress)
    with Output(out, fsync=options.fsync) as output:
        untouched = Untouched(path for each in sets for path in each.recs)
        scans = [_scan(each, reading, renumber=options.renumber) for each in sets]
        _check_scans(scans, options)
        unpacking = _Unpacking(output, options, wanted, scans, classes)
        for scan, name in zip(scans, unpacking.names, strict=True):
            unpacking.unpack(scan, name, reading)
        untouched.check()
        if not unpacking.images:
            raise _nothing(scans, options)
        output.publish_folder(unpacking.tree)
    return unpacking.report()


def _check_out(out: str) -> str:
    """OUT without slashes at its end. Raises OptionError, OutputError."""
    if out.endswith(".rec") and not os.path.isdir(out):
        raise OptionError(f"OUT is the folder to make, found {out}; the order is REC... OUT")
    out = out.rstrip(os.sep + (os.altsep or "")) or out
    if os.path.basename(out) in ("", os.curdir, os.pardir):
        raise OutputError(out, "OUT must be a name", "name a new folder")
    if os.path.lexists(out):
        if os.path.islink(out) or not os.path.isdir(out):
            kind = "link" if os.path.islink(out) else "file"
            raise OutputError(out, f"there is a {kind} of this name", "name a new folder")
        with writing(out):
            if os.listdir(out):
                raise OutputError(out, "the folder is not empty", "name a new one")
        if os.path.ismount(out):  # it cannot be replaced
            raise OutputError(out, "it is a mount point", "name a folder in it")
        if os.path.samefile(out, os.curdir):  # else whoever stands in it stands nowhere
            raise OutputError(out, "it is the current folder", "name a new folder in it")
    return out


def _check_sets(sets: Sequence[RecordSet], options: UnpackOptions) -> None:
    """Raises InputError for a file that is no record file, is given twice, or is missing."""
    seen: dict[tuple[int, int], str] = {}
    for each in sets:
        for path in each.missing:
            if not options.salvage:
                raise InputError(path, "this shard is not there", "--salvage unpacks the others")
        for path in each.recs:
            check_record_file(path)
            status = os.stat(path)
            other = seen.setdefault((status.st_dev, status.st_ino), path)
            if other != path or sum(path in one.recs for one in sets) > 1:
                raise InputError(path, "given twice", "name it once")


def _common_classes(sets: Sequence[RecordSet]) -> Classes:
    """The class names of the sets. Raises InputError where they do not have the same."""
    classes = _find_classes(sets[0])
    for each in sets[1:]:
        if _find_classes(each) != classes:
            found = f"its classes are not those of {sets[0].name}"
            raise InputError(each.name, found, "unpack it by itself")
    return classes


def _find_classes(records: RecordSet) -> Classes:
    """The names in the class map beside a set, else those in its manifest; None without."""
    path = find_classes(records.prefix)
    if path:
        return tuple(read_classes(path)) or None
    if not records.manifest:
        return None
    try:
        names = read_manifest(records.manifest).get("classes")
    except InputError:
        return None  # what is wrong with it is verify's business
    return tuple(names) if names and _are_classes(names) else None


def _are_classes(names: Any) -> bool:
    """Whether these are names that a class map can hold."""
    return (
        isinstance(names, list)
        and len(names) > 0
        and all(isinstance(name, str) and name and not set("\r\n") & set(name) for name in names)
        and len(set(names)) == len(names)
        and not any("\ud800" <= char <= "\udfff" for name in names for char in name)
    )


# --- which records, and which names -----------------------------------------------------------


class _Wanted:
    """Which images are asked for. Raises OptionError where there is no such class."""

    def __init__(self, options: UnpackOptions, classes: Classes) -> None:
        self._ids = options.ids
        self._labels = {_class_number(label, classes) for label in options.labels}

    def __call__(self, record_id: int, number: int | None) -> bool:
        return (not self._labels or number in self._labels) and (
            not self._ids or any(record_id in ids for ids in self._ids)
        )


def _class_number(label: str, classes: Classes) -> int:
    if classes and label in classes:
        return classes.index(label)
    if re.fullmatch("[0-9]{1,39}", label):
        return int(label)
    raise OptionError(f"--label '{label}': no class has this name, and it is no number")


def class_of(labels: Sequence[float], *, has_identities: bool) -> int | None:
    """The class that a record's labels say: one whole number from 0 on. Of an array the first label
    is none (in lists for detection it is the length of a header), but for InsightFace's."""
    first = labels[0]
    if (len(labels) == 1 or has_identities) and first >= 0 and first.is_integer():
        return int(first)
    return None


class Folders:
    """The name of each class's folder.

    It is the class's own, where that is a plain name on Linux, Windows and macOS, of which no
    class before has the like, nor is it one of `taken`, nor a file's of a set with one of the names
    `sets`; else the class's number.
    """

    def __init__(
        self,
        classes: Classes,
        largest: int,
        taken: Iterable[str] = (),
        sets: Sequence[str] = (),
    ) -> None:
        of_set = re.compile(
            f"(?:{'|'.join(re.escape(_alike(each)) for each in sets)})(?:{_SET_FILE})"
        )
        self._digits = len(str(largest))
        self.used: dict[int, str] = {}  # those that were asked for
        self._own: dict[int, str] = {}
        self._taken = {_alike(name) for name in taken}
        for number, name in enumerate(classes or ()):
            is_free = _alike(name) not in self._taken and not of_set.fullmatch(_alike(name))
            if is_plain_name(name) and is_free:
                self._own[number] = name
                self._taken.add(_alike(name))

    def __getitem__(self, number: int) -> str:
        if number not in self.used:
            name = self._own.get(number)
            if name is None:
                name = f"{number:0{self._digits}}"
                while _alike(name) in self._taken:  # it is another class's own name
                    name = f"class_{name}"
            self.used[number] = name
        return self.used[number]


def _alike(name: str) -> str:
    """What two names have in common that Windows or macOS take for one."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", folded)


_NOT_IN_NAMES = set('<>:"/\\|?*')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:\.|$)", re.I)


def is_plain_name(name: str) -> bool:
    """Whether a folder can have this name on Linux, Windows and macOS, and is not hidden by it."""
    return (
        name.isprintable()
        and name == name.strip(" ").rstrip(".")
        and name != ""
        and not name.startswith(".")
        and not _NOT_IN_NAMES & set(name)
        and not _RESERVED.match(name)
        and len(name.encode("utf-8")) <= MAX_FOLDER
    )


def _list_names(sets: Sequence[RecordSet]) -> list[str]:
    """A name for each set's list, that of the set as far as it can be."""
    names: list[str] = []
    taken: set[str] = set()
    for each in sets:
        stem = os.path.basename(each.prefix)
        if not is_plain_name(stem):
            stem = "set"
        name, number = stem, 1
        while _alike(name) in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(_alike(name))
        names.append(name)
    return names


# --- reading ----------------------------------------------------------------------------------


class _Reading:
    """Reads record files, and tells how far it has come."""

    def __init__(self, sets: Sequence[RecordSet], progress: Progress | None) -> None:
        self._progress = progress
        self._total = sum(os.path.getsize(path) for each in sets for path in each.recs)
        self._before = 0

    def records(self, path: str, tell: Callable[[Damage], None]) -> Iterator[Record | Run]:
        """The sound records of a file, over any damage, of which `tell` is told."""
        end = 0
        try:
            for found in walk(path, tell):
                yield found
                end = found.end
                if self._progress:
                    self._progress((self._before + end) // 2, self._total)
        except OSError as error:
            raise InputError(path, f"cannot be read: {error.strerror}") from error
        self._before += end


def _places() -> Places:
    return Places(most=MAX_LISTED)


@dataclass
class _Scan:
    """What the headers of a set say. ids: of the images; largest_class: of those with one label;
    largest_first: of the first labels of the others; both of up to MAX_DIGITS. Of the records
    without an image, maybe: those that are InsightFace's if there is its header among them;
    left_out: the others."""

    records: RecordSet
    ids: array[int] = field(default_factory=lambda: array("Q"))
    count: int = 0
    largest_class: int = 0
    largest_first: int = 0
    has_identities: bool = False
    maybe: Places = field(default_factory=_places)
    left_out: Places = field(default_factory=_places)
    damage: Places = field(default_factory=_places)

    @property
    def largest(self) -> int:
        """The largest class."""
        return max(self.largest_class, self.largest_first if self.has_identities else 0)

    def all_left_out(self) -> Places:
        """The records without an image that are not InsightFace's."""
        if self.has_identities:
            return self.left_out
        every = _joined([self.left_out, self.maybe])
        named = self.left_out.first + self.maybe.first
        order = {path: number for number, path in enumerate(self.records.recs)}
        named.sort(key=lambda place: (order[place.file], place.offset))
        every.first = named[:MAX_LISTED]
        return every


def _scan(records: RecordSet, reading: _Reading, *, renumber: bool) -> _Scan:
    """Reads the headers of a set."""
    scan = _Scan(records)
    for path in records.recs:

        def tell(damage: Damage, path: str = path) -> None:
            until = "to the end of the file" if damage.head is None else f"up to byte {damage.head}"
            scan.damage.add(Place(path, damage.at, None, f"{damage.found}; lost {until}"))

        for found in reading.records(path, tell):
            if isinstance(found, Run):
                _scan_run(path, found, scan, renumber=renumber)
            else:
                _scan_record(path, found, scan, renumber=renumber)
    return scan


def _scan_run(path: str, run: Run, scan: _Scan, *, renumber: bool) -> None:
    """As `_scan_record`, of many records."""
    import numpy as np

    headers = decode_headers(run.words, run.starts, run.lengths)
    has_image = headers.whole & (headers.image_bytes > 0)
    ids = _places_of(run, scan.count) if renumber else headers.ids
    scan.ids.frombytes(ids[has_image].tobytes())
    scan.count += len(run)
    firsts = headers.first_labels()
    with np.errstate(invalid="ignore"):  # what no number is, is no class
        is_class = has_image & (firsts >= 0) & (firsts < 10**MAX_DIGITS)
        is_class &= firsts == np.floor(firsts)
    alone = headers.widths == 1
    scan.largest_class = _largest(scan.largest_class, firsts[is_class & alone])
    scan.largest_first = _largest(scan.largest_first, firsts[is_class & ~alone])
    bare = (~has_image).nonzero()[0]
    if not len(bare):
        return
    maybe = _may_be_identities(headers, bare)
    scan.has_identities |= bool((headers.ids[bare[maybe]] == HEADER_KEY).any())
    for those, places in ((bare[maybe], scan.maybe), (bare[~maybe], scan.left_out)):
        named = those[: MAX_LISTED - len(places.first)]
        for number in named.tolist():
            _add_bare(path, run.record(number), scan)
        places.count += len(those) - len(named)


def _may_be_identities(headers: Headers, bare: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether records without an image, with these numbers, may be InsightFace's."""
    import numpy as np

    maybe: npt.NDArray[np.bool_] = headers.whole[bare] & (headers.widths[bare] == 2)
    pairs = maybe.nonzero()[0]
    labels = headers.words[headers.labels[bare[pairs]][:, None] + np.arange(2)].view("<f4")
    maybe[pairs] = [image_keys(each, 0) is not None for each in labels.tolist()]
    return maybe


def _places_of(run: Run, before: int) -> npt.NDArray[np.uint64]:
    """The places of a run's records in their set. before: records of it before them."""
    import numpy as np

    return np.arange(before, before + len(run), dtype="u8")


def _largest(before: int, labels: npt.NDArray[np.float32]) -> int:
    return max(before, int(labels.max())) if len(labels) else before


def _scan_record(path: str, record: Record, scan: _Scan, *, renumber: bool) -> None:
    place = scan.count
    scan.count += 1
    try:
        content = decode(record.payload)
    except PayloadError:
        content = None
    if content is None or not content.image:
        _add_bare(path, record, scan)
        return
    scan.ids.append(place if renumber else content.id)
    first = class_of(content.labels, has_identities=True) or 0
    if first >= 10**MAX_DIGITS:
        return
    if len(content.labels) == 1:
        scan.largest_class = max(scan.largest_class, first)
    else:
        scan.largest_first = max(scan.largest_first, first)


def _add_bare(path: str, record: Record, scan: _Scan) -> None:
    """Takes a record without an image."""
    try:
        content = decode(record.payload)
    except PayloadError as error:
        found = f"no image record: {error}"
        scan.left_out.add(Place(path, record.offset, None, found))
        return
    place = Place(path, record.offset, content.id, "no image")
    if image_keys(content.labels, 0) is None:
        scan.left_out.add(place)
    else:
        scan.maybe.add(place)
        scan.has_identities |= identity_keys(content.id, content.labels, 0) is not None


def _check_scans(scans: Sequence[_Scan], options: UnpackOptions) -> None:
    """Raises DamageError for damage that is not to be passed over, InputError for what is no record
    file at all."""
    for scan in scans:
        is_record_file = any(map(_begins_as_record, scan.records.recs))
        if scan.damage.count and not scan.count and not is_record_file:
            found = "there is no record in it, so it is no record file"
            raise InputError(scan.records.recs[0], found, "name a .rec file")
    damaged = [scan for scan in scans if scan.damage.count]
    if damaged and not options.salvage:
        damage = _joined(scan.damage for scan in damaged)
        places = [(each.file, each.offset or 0, each.found) for each in damage.first[:MAX_TOLD]]
        raise DamageError(tuple(places), damage.count)


def _begins_as_record(path: str) -> bool:
    """Whether a file begins with the magic, as of a record that is cut."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC_BYTES)) == MAGIC_BYTES


def _nothing(scans: Sequence[_Scan], options: UnpackOptions) -> InputError:
    """The error where no image was written."""
    name = scans[0].records.name
    images = sum(len(scan.ids) for scan in scans)
    if not images:
        return InputError(name, "there is no image in it; nothing was written")
    asked = " and ".join(
        flag for flag, given in (("--label", options.labels), ("--id", options.ids)) if given
    )
    return InputError(name, f"none of {images} images is as {asked} says; nothing was written")


# --- writing ----------------------------------------------------------------------------------


class _Image(NamedTuple):
    """An image on its way: as in the record, the number of its kind, its bytes where they lie."""

    id: int
    labels: tuple[float, ...]
    is_odd: bool
    kind: int
    data: memoryview
    offset: int


def _images(found: Record | Run, place: int | None) -> Iterator[_Image]:
    """The images of some records, in order. place: that of the first record in its set, if the
    places are to be the ids."""
    if isinstance(found, Run):
        yield from _images_of_run(found, place)
        return
    try:
        content = decode(found.payload)
    except PayloadError:
        return
    if content.image:
        is_odd = not found.payload.startswith(encode_header(content.id, content.labels))
        data = memoryview(content.image)
        kind = _kind(content.image)
        record_id = content.id if place is None else place
        yield _Image(record_id, content.labels, is_odd, kind, data, found.offset)


def _kind(image: bytes) -> int:
    try:
        return KINDS.index(identify(image).kind)
    except ImageError:
        return 0


def _images_of_run(run: Run, place: int | None) -> Iterator[_Image]:
    headers = decode_headers(run.words, run.starts, run.lengths)
    has_image = headers.whole & (headers.image_bytes > 0)
    if not has_image.any():
        return
    own_ids = headers.ids if place is None else _places_of(run, place)
    starts = 4 * headers.images
    ends = starts + headers.image_bytes
    data = run.words.view("u1")
    kinds = identify_many(data, starts[has_image], ends[has_image]).kinds
    labels = [each for each, has in zip(headers.label_tuples(), has_image, strict=True) if has]
    columns = (own_ids, ~headers.as_encoded(), starts, ends, run.offsets)
    ids, odd, starts, ends, offsets = (column[has_image].tolist() for column in columns)
    view = data.data
    for number, record_id in enumerate(ids):
        yield _Image(
            record_id,
            labels[number],
            odd[number],
            kinds[number],
            view[starts[number] : ends[number]],
            offsets[number],
        )


@dataclass
class _Listing:
    """The list of a set while it is written. repeated: ids that the set has several times; seen:
    those of them that the list has; count: its rows; doubled: images whose id it has already."""

    rows: IO[bytes]
    repeated: set[int]
    seen: set[int] = field(default_factory=set)
    count: int = 0
    doubled: int = 0

    def add(self, image: _Image, path: str) -> str:
        """Takes an image, or says why no list can hold it; "" where it could."""
        if not all(map(math.isfinite, image.labels)):
            return f"label {next(each for each in image.labels if not math.isfinite(each))}"
        if image.id in self.seen:
            self.doubled += 1
            return "the set has this id already"
        labels = "\t".join(map(label_text, image.labels))
        row = f"{image.id}\t{labels}\t{path}\n".encode()
        if len(row) > MAX_ROW:
            return f"{len(image.labels)} labels, a row of {len(row)} bytes"
        if image.id in self.repeated:
            self.seen.add(image.id)
        self.rows.write(row)
        self.count += 1
        return ""


def label_text(label: float) -> str:
    """The shortest text of a finite label that packs to the same float32, a negative 0 too."""
    if label.is_integer() and (label or math.copysign(1, label) > 0):
        return str(int(label))
    return format_float32(label) if label else "-0.0"


class _Unpacking:
    """Writes images and lists into the hidden folder, and counts what it does. tree: that folder,
    which becomes OUT."""

    def __init__(
        self,
        output: Output,
        options: UnpackOptions,
        wanted: _Wanted,
        scans: Sequence[_Scan],
        classes: Classes,
    ) -> None:
        self.tree = output.path("tree")
        self.images = 0
        self.names = _list_names([scan.records for scan in scans])
        self._out, self._options, self._wanted = output.prefix, options, wanted
        self._scans, self._classes = scans, classes
        largest = max([scan.largest for scan in scans] + [len(classes or ()) - 1])
        self._folders = Folders(classes, largest, [NO_CLASS, _PROPERTY], self.names)
        self._repeated, most = _repeated(scans)
        self._digits = len(str(max((max(scan.ids, default=0) for scan in scans), default=0)))
        self._again_digits = len(str(most))
        self._again: Counter[tuple[str, int]] = Counter()  # images by folder and id, of these ids
        self._made: set[str] = set()  # folders
        self._lists: list[tuple[str, int]] = []
        self._bytes = self._odd = self._unknown = self._doubled = 0
        self._unlisted = _places()
        with writing(self._out):
            os.mkdir(self.tree)

    def unpack(self, scan: _Scan, name: str, reading: _Reading) -> None:
        """Writes the images of a set, its list and class map."""
        path = os.path.join(self.tree, name)
        with writing(self._out):
            with open(path + ".lst", "wb", buffering=COPY_SIZE) as rows:
                listing = _Listing(rows, _repeated([scan])[0])
                place = 0
                for rec in scan.records.recs:
                    for found in reading.records(rec, _pass_over):
                        images = _images(found, place if self._options.renumber else None)
                        self._write(images, rec, scan.has_identities, listing)
                        place += len(found) if isinstance(found, Run) else 1
            self._doubled += listing.doubled
            if not listing.count:
                os.unlink(path + ".lst")
                return
            self._lists.append((os.path.join(self._out, name + ".lst"), listing.count))
            if self._classes:
                with open(path + ".classes.txt", "wb") as file:
                    file.writelines(f"{each}\n".encode() for each in self._classes)

    def _write(
        self, images: Iterable[_Image], rec: str, has_identities: bool, listing: _Listing
    ) -> None:
        """Writes some images and their rows."""
        for image in images:
            number = class_of(image.labels, has_identities=has_identities)
            if not self._wanted(image.id, number):
                continue
            path = self._path(image, number)
            _write_file(os.path.join(self.tree, path), image.data)
            self.images += 1
            self._bytes += len(image.data)
            self._unknown += image.kind == 0
            if fault := listing.add(image, path):
                self._unlisted.add(Place(rec, image.offset, image.id, f"{path}: {fault}"))
            else:
                self._odd += image.is_odd

    def _path(self, image: _Image, number: int | None) -> str:
        """Where an image belongs in OUT; makes its folder."""
        if self._options.by == "id":
            folder = f"{image.id // PER_FOLDER:0{max(self._digits - 3, 1)}}"
        else:
            folder = NO_CLASS if number is None else self._folders[number]
        if folder not in self._made:
            os.mkdir(os.path.join(self.tree, folder))
            self._made.add(folder)
        again = ""
        if image.id in self._repeated:
            self._again[folder, image.id] += 1
            count = self._again[folder, image.id]
            again = f"_{count:0{self._again_digits}}" if count > 1 else ""
        return f"{folder}/{image.id:0{self._digits}}{again}{_EXTENSIONS[image.kind]}"

    def report(self) -> UnpackReport:
        """What came of it."""
        named = ((name, self._folders.used.get(at)) for at, name in enumerate(self._classes or ()))
        return UnpackReport(
            out=self._out,
            lists=tuple(self._lists),
            images=self.images,
            bytes=self._bytes,
            folders=len(self._made),
            left_out=_joined(scan.all_left_out() for scan in self._scans),
            unlisted=self._unlisted,
            repeated=self._doubled,
            damage=_joined(scan.damage for scan in self._scans),
            missing=tuple(path for scan in self._scans for path in scan.records.missing),
            odd_headers=self._odd,
            unknown_kind=self._unknown,
            identities=sum(scan.maybe.count for scan in self._scans if scan.has_identities),
            renamed=tuple((name, folder) for name, folder in named if folder not in (None, name)),
        )


def _joined(lists: Iterable[Places]) -> Places:
    """Places of several sets as those of one."""
    every = _places()
    for each in lists:
        every.first += each.first[: MAX_LISTED - len(every.first)]
        every.count += each.count
    return every


def _repeated(scans: Sequence[_Scan]) -> tuple[set[int], int]:
    """The ids that more than one image has, and how many at most have the same one."""
    import numpy as np

    ids = np.concatenate([np.array(scan.ids, "u8") for scan in scans])
    values, counts = np.unique(ids, return_counts=True)
    return set(values[counts > 1].tolist()), int(counts.max(initial=1))


def _pass_over(_: Damage) -> None:
    """For damage that was told as the headers were read."""


def _write_file(path: str, data: memoryview) -> None:
    """Makes a file that is not there. Raises OSError."""
    fd = os.open(path, _NEW_FILE, 0o666)
    try:
        while data:  # a disk that becomes full takes some of it first
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
