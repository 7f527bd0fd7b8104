"""What each reader asks of a set beyond the format: rules as data.

Each rule names its source. What cannot be told from the files (num_training_samples, the memory
there is, a version that nobody has seen) is no rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from im2rec.errors import OptionError
from im2rec.facts import (
    BOXES,
    IDENTITIES,
    KINDS_OF_IMAGES,
    LABELS,
    MAX_PLACES,
    NOWHERE,
    Faces,
    Place,
    Places,
    Watch,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PROPERTY = 1 << 16  # bytes of a `property` file
_ROCAL_SIZE = 2**32  # bytes; rocAL keeps a .rec's size in 32 bits


class Breach(NamedTuple):
    """A rule that a set breaks. code: the reader's name, "-", the rule's; sentence: what was
    found, what the reader does with it, and what to do."""

    code: str
    file: str
    offset: int | None
    id: int | None
    sentence: str


def watch_for(names: Iterable[str]) -> Watch:
    """What gathers the facts that the rules of these readers are about. Raises OptionError for a
    name that is none."""
    for name in names:
        if name not in READERS:
            raise OptionError(f"there is no reader {name!r}; expected one of {', '.join(READERS)}")
    return Watch({need for name in names for rule in READERS[name].rules for need in rule.needs})


def breaches(names: Iterable[str], watch: Watch) -> Iterator[Breach]:
    """Every breach of the rules of these readers, in their order; watch: finished."""
    for name in dict.fromkeys(names):
        for rule in READERS[name].rules:
            for place in rule.find(watch):
                sentence = f"{place.found}; {rule.told}"
                yield Breach(f"{name}-{rule.code}", *place[:3], sentence)


# --- what rules look for ----------------------------------------------------------------------

Find = Callable[[Watch], Iterable[Place]]


def _all_of(pick: Callable[[Watch], Places]) -> Find:
    """The places of a trait, and how many there are beyond those that were kept."""

    def find(watch: Watch) -> Iterator[Place]:
        yield from _tell(watch, pick(watch))

    return find


def _tell(watch: Watch, places: Places) -> Iterator[Place]:
    yield from places.first
    if places.count > len(places.first):
        more = f"{places.count - len(places.first)} more of this kind, too many to list"
        yield Place(watch.files.name, None, None, more)


def _kinds_but(*kinds: str) -> Find:
    """Images of other kinds than these."""

    def find(watch: Watch) -> Iterator[Place]:
        for kind in watch.kinds:
            if kind not in kinds:
                yield from _tell(watch, watch.kinds[kind])

    return find


def _other_widths(watch: Watch) -> Iterator[Place]:
    """The first image of each number of labels but the most common, unless they are of boxes."""
    if len(watch.widths) < 2 or _is_of_boxes(watch):
        return
    common = max(watch.widths, key=lambda width: watch.widths[width].count)
    for width, places in sorted(watch.widths.items()):
        if width != common:
            others = f"in {_count(places.count, 'record')}, this the first, and {common} in others"
            yield places.first[0]._replace(found=f"{_count(width, 'label')} {others}")


def _is_of_boxes(watch: Watch) -> bool:
    """Whether the set is one of pictures with boxes, for most labels are sound ones of those."""
    return 2 * watch.boxes.count < watch.images


def _faults_among_boxes(watch: Watch) -> Iterator[Place]:
    if _is_of_boxes(watch):
        yield from _tell(watch, watch.boxes)


def _several_shards(watch: Watch) -> Iterator[Place]:
    count = len(watch.files.recs) + len(watch.files.missing)
    if count > 1:
        yield Place(watch.rec, None, None, f"the set is in {count} files")


def _no_index(watch: Watch) -> Iterator[Place]:
    """Where the index of the one .rec, or the joint index of several, is not there."""
    files = watch.files
    if len(files.recs) + len(files.missing) > 1:
        if files.joint is None:
            joint = f"there is no joint index {os.path.basename(files.prefix)}.idx"
            yield Place(files.prefix, None, None, joint)
    else:
        yield from _no_own_index(watch)


def _no_own_index(watch: Watch) -> Iterator[Place]:
    """Each .rec without an index of the same stem beside it."""
    for rec, idx in zip(watch.files.recs, watch.files.idxs, strict=True):
        if idx is None:
            stem = os.path.basename(rec).removesuffix(".rec")
            yield Place(rec, None, None, f"there is no {stem}.idx beside it")


def _uri_names(watch: Watch) -> Iterator[Place]:
    for rec in watch.files.recs:
        signs = [sign for sign in _URI_SIGNS if sign in rec]
        if signs:
            yield Place(rec, None, None, f"{' and '.join(map(repr, signs))} in its path")


def _empty(watch: Watch) -> Iterator[Place]:
    if not watch.images:
        yield Place(watch.rec, None, None, "no record has an image")


def _empty_shards(watch: Watch) -> Iterator[Place]:
    for shard in watch.shards:
        if not shard.size:
            yield Place(shard.path, None, None, "a file of no bytes")


def _too_large(watch: Watch) -> Iterator[Place]:
    for shard in watch.shards:
        if shard.size >= _ROCAL_SIZE:
            yield Place(shard.path, None, None, f"{shard.size} bytes")


def _others_in_folder(watch: Watch) -> Iterator[Place]:
    folder = os.path.dirname(watch.rec)
    own = {os.path.basename(watch.rec), os.path.basename(watch.rec).removesuffix(".rec") + ".idx"}
    try:
        others = sorted(
            name
            for name in os.listdir(folder or ".")
            if name.rpartition(".")[2] in ("rec", "idx")
            and name not in own
            and os.path.isfile(os.path.join(folder, name))
        )
    except OSError:
        return
    if others:
        also = f"{others[0]}{' and others' * (len(others) > 1)}"
        yield Place(watch.rec, None, None, f"{also} in the same folder")


def _holes(watch: Watch) -> Iterator[Place]:
    if watch.no_class.count:
        return  # told; which classes there are is not known
    classes = watch.classes()
    missing = (~classes).nonzero()[0]
    if len(missing):
        some = ", ".join(map(str, missing[:8].tolist())) + ", ..." * (len(missing) > 8)
        found = f"no image of class {some} ({len(missing)} of 0 to {len(classes) - 1})"
        yield Place(watch.rec, None, None, found)


def _face_names(watch: Watch) -> Iterator[Place]:
    if len(watch.files.recs) == 1 and os.path.basename(watch.rec) != "train.rec":
        yield Place(watch.rec, None, None, "its name is not train.rec")


def _no_key_0(watch: Watch) -> Iterator[Place]:
    if watch.faces and watch.faces.header_at == NOWHERE:
        yield Place(watch.faces.shard.path, None, None, "no record has the key 0")


def _no_face_header(watch: Watch) -> Iterator[Place]:
    """A record of key 0 that is taken for the header of the identities, and is none."""
    faces = watch.faces
    if faces and faces.header and faces.header.flag and faces.identities() is None:
        image = " and an image" if faces.header.image else ""
        labels = _count(len(faces.header.labels), "label")
        found = f"the record of key 0 has flag {faces.header.flag}, {labels}{image}"
        yield faces.place(faces.header_at, 0, found)


def _face_images(watch: Watch) -> Iterator[Place]:
    """Keys that are read as images, and are none: 1 to N by the header; without one, all."""
    import numpy as np

    faces = watch.faces
    if faces is None or faces.header is None:
        return
    those = faces.identities()
    if those is None and faces.header.flag:
        return  # told
    keys = np.unique(faces.keys)
    count = 0
    if those is not None:  # the header may tell of far more than there are: those are not gone over
        mine = keys[(keys >= 1) & (keys < those.start)]
        count = those.start - 1 - int((~_no_images(faces, mine)).sum())
        end = min(those.start, len(faces.keys) + MAX_PLACES + 2)
        keys = np.arange(1, end, dtype="u8")
    positions = faces.find(keys)
    wrong = _no_images(faces, keys).nonzero()[0]
    places = Places(max(count, len(wrong)))
    for at in wrong[:MAX_PLACES].tolist():
        key, position = int(keys[at]), int(positions[at])
        found = "no record has the key" if position == NOWHERE else "no image in the record of key"
        places.first.append(faces.place(position, key, f"{found} {key}"))
    yield from _tell(watch, places)


def _no_images(faces: Faces, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Whether each key has no record with an image."""
    positions = faces.find(keys)
    none: npt.NDArray[np.bool_] = (positions == NOWHERE) | faces.bare[positions]
    return none


def _face_identities(watch: Watch) -> Iterator[Place]:
    """Records of identities that are none, or whose images do not follow on the last one's."""
    import numpy as np

    faces = watch.faces
    those = faces.identities() if faces else None
    if faces is None or not those:
        return
    end_key = min(those.stop, those.start + len(faces.keys) + MAX_PLACES)  # as of the images
    keys = np.arange(those.start, end_key, dtype="u8")
    positions = faces.find(keys)
    there = (positions != NOWHERE) & faces.bare[positions]
    ranges = np.full((len(keys), 2), np.nan)
    ranges[there] = faces.ranges[positions[there]]
    first, end = ranges.T
    before = np.append(1.0, end[:-1])
    wrong = ~((first <= end) & ((first == before) | np.isnan(before)))  # True for NaN
    if end_key == those.stop:
        wrong[-1] |= end[-1] != those.start
    places = Places(int(wrong.sum()) + those.stop - end_key)
    for at in wrong.nonzero()[0][:MAX_PLACES].tolist():
        key, position = int(keys[at]), int(positions[at])
        found = f"the images of identity {key} are {first[at]:g} to {end[at]:g} (not included)"
        found += f", expected {before[at]:g} to "
        found += f"{those.start}" if at == len(keys) - 1 else "where the next one's begin"
        if np.isnan(first[at]):
            found = f"no record of two labels and no image has the key {key}"
        places.first.append(faces.place(position, key, found))
    yield from _tell(watch, places)


def _face_property(watch: Watch) -> Iterator[Place]:
    """A file `property` beside the set that says other things than the set."""
    path = os.path.join(os.path.dirname(watch.rec), "property")
    if not os.path.isfile(path):
        return
    try:
        with open(path, "rb") as stream:
            line = stream.read(MAX_PROPERTY).decode("ascii", "replace").strip()
        classes, height, width = map(int, line.split(","))
    except (OSError, ValueError):
        yield Place(path, None, None, "it is not one line of three numbers, separated by commas")
        return
    those = watch.faces.identities() if watch.faces else None
    count = len(those) if those else len(watch.classes())
    if count and classes != count:
        yield Place(path, None, None, f"{classes} classes, but the set has {count}")
    if watch.size and watch.size != (width, width, height, height):
        low_w, high_w, low_h, high_h = watch.size
        sizes = f"{low_h}x{low_w}" + (
            f" to {high_h}x{high_w}" if (low_w, low_h) != (high_w, high_h) else ""
        )
        found = f"images of {height}x{width} pixels (height, width), but the set has {sizes}"
        yield Place(path, None, None, found)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


# --- the readers ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing a reader asks for. code: its name within the reader's; told: what the reader does
    where it is broken, and what to do; source: where that is written; needs: the facts that it is
    about, of those that are not always gathered."""

    code: str
    told: str
    source: str
    find: Find
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reader:
    """A program that reads sets. title: its name in full; rules: what it asks for."""

    title: str
    rules: tuple[Rule, ...]


_ITER = "apache/mxnet src/io/iter_image_recordio_2.cc"
_DATASET = "apache/mxnet python/mxnet/gluon/data/dataset.py, RecordFileDataset"
_SPLIT = "dmlc/dmlc-core src/io/input_split_base.cc, uri_spec.h"
_INDEXED = "dmlc/dmlc-core src/io/indexed_recordio_split.cc, ReadIndexFile"
_DALI_LOADER = "NVIDIA/DALI dali/operators/reader/loader/recordio_loader.h"
_DALI_PARSER = "NVIDIA/DALI dali/operators/reader/parser/recordio_parser.h"
_DALI_DECODER = "docs.nvidia.com, fn.decoders.image: supported formats; measured with DALI 2.4.0"
_ROCAL = "ROCm/rocAL rocAL/source/readers/image/mxnet_recordio_reader.cpp"
_ROCAL_LABELS = "ROCm/rocAL rocAL/source/meta_data/mxnet_meta_data_reader.cpp"
_ROCAL_API = "ROCm/rocAL rocAL/include/api/rocal_api_data_loaders.h"
_AWS = "docs.aws.amazon.com/sagemaker/latest/dg/"
_ARCFACE = "deepinsight/insightface recognition/arcface_torch/dataset.py, MXFaceDataset"
_FACE_IMAGE = "deepinsight/insightface src/common/face_image.py, load_property"
_FACE_ITER = "deepinsight/insightface src/data/image_iter.py, FaceImageIter"
_GLUON = "dmlc/gluon-cv gluoncv/data/recordio/detection.py"
_MEASURED = "measured with MXNet 1.9.1"

_URI_SIGNS = (";", "#", "?")  # in MXNet's file names: between files, of a cache, of arguments
_MXNET_KINDS = ("jpeg", "png", "bmp", "tiff")  # that the OpenCV in MXNet 1.9.1's wheel decodes
_DALI_KINDS = ("jpeg", "png", "bmp", "tiff", "jpeg2000", "ppm", "webp")

_KIND_OF_MXNET = Rule(
    "kind",
    "MXNet decodes JPEG, PNG, BMP and TIFF alone, and ends at this one; "
    "pack without --pass-through",
    _MEASURED,
    _kinds_but(*_MXNET_KINDS),
    frozenset({KINDS_OF_IMAGES}),
)


def _no_image(told: str, source: str) -> Rule:
    return Rule("no-image", told, source, _all_of(lambda watch: watch.without_image))


def _one_file(who: str, source: str) -> Rule:
    return Rule("shards", f"{who}; pack again with --shards 1", source, _several_shards)


_INDEX_AGAIN = "im2rec index makes one"

READERS: dict[str, Reader] = {
    "mxnet": Reader(
        "MXNet: ImageRecordIter, ImageRecordDataset, MXIndexedRecordIO",
        (
            Rule(
                "index",
                "ImageRecordDataset opens no file without, and ImageRecordIter shuffles parts of "
                f"the set alone; {_INDEX_AGAIN}",
                f"{_DATASET}; {_INDEXED}",
                _no_index,
            ),
            Rule(
                "name",
                "MXNet's iterators read ; # ? as signs and not as part of a name; rename it",
                f"{_SPLIT}; {_MEASURED}",
                _uri_names,
            ),
            Rule(
                "label-width",
                "ImageRecordIter takes one label_width, and ends at the first record of another; "
                "pack with --label-width or --no-pack-label",
                f"{_ITER}, ParseChunk",
                _other_widths,
                frozenset({BOXES}),
            ),
            Rule(
                "label",
                "ImageDetRecordIter leaves out a box without width or height, ends at other "
                "layouts, and takes other corners and classes as they are; mend the list, and pack "
                "again",
                f"apache/mxnet src/io/image_det_aug_default.cc; {_MEASURED}",
                _faults_among_boxes,
                frozenset({BOXES}),
            ),
            _no_image(
                "ImageRecordIter and ImageRecordDataset end there; leave it out",
                f"{_ITER}, ParseChunk; {_MEASURED}",
            ),
            _KIND_OF_MXNET,
        ),
    ),
    "dali": Reader(
        "NVIDIA DALI: fn.readers.mxnet with fn.decoders.image",
        (
            Rule(
                "index",
                f"DALI takes exactly one index, for all files; {_INDEX_AGAIN}",
                _DALI_LOADER,
                _no_index,
            ),
            Rule(
                "empty",
                "DALI fails, or reads what is behind it from the wrong file; take it away",
                _DALI_LOADER,
                _empty_shards,
            ),
            Rule(
                "header",
                "DALI takes header and labels from the first part alone; give the image another id "
                "or label",
                _DALI_PARSER,
                _all_of(lambda watch: watch.cut_header),
            ),
            _no_image("DALI's decoder fails there; leave it out", _DALI_DECODER),
            Rule(
                "kind",
                "DALI's decoder fails there; pack without --pass-through",
                _DALI_DECODER,
                _kinds_but(*_DALI_KINDS),
                frozenset({KINDS_OF_IMAGES}),
            ),
        ),
    ),
    "rocal": Reader(
        "AMD rocAL: readers.mxnet",
        (
            Rule("index", f"rocAL opens none without; {_INDEX_AGAIN}", _ROCAL, _no_own_index),
            Rule(
                "folder",
                "rocAL takes a folder, and of all .rec and .idx files in it the last ones that "
                "it comes upon; give each pair a folder of its own",
                f"{_ROCAL}, MXNet_reader",
                _others_in_folder,
            ),
            Rule(
                "size",
                "rocAL keeps a file's size in 32 bits; pack with --shard-size 2GiB, and give each "
                "shard a folder of its own",
                f"{_ROCAL}, rec_size",
                _too_large,
            ),
            Rule(
                "cut",
                "rocAL reads no record in several parts; pack without --pass-through, or with "
                "another --quality",
                f"{_ROCAL}, read_image",
                _all_of(lambda watch: watch.cut),
            ),
            Rule(
                "flag",
                "rocAL passes over records with an array of labels; pack with --no-pack-label",
                f"{_ROCAL}, read_image_names",
                _all_of(lambda watch: watch.arrays),
            ),
            Rule(
                "id",
                "rocAL tells images by their ids, and reads the first one twice; "
                "list them with ids of their own",
                f"{_ROCAL_LABELS}, add",
                _all_of(lambda watch: watch.doubled),
            ),
            Rule(
                "label",
                "rocAL keeps labels as int, and cuts off the rest; list whole numbers",
                f"{_ROCAL_LABELS}, add",
                _all_of(lambda watch: watch.no_integer),
                frozenset({LABELS}),
            ),
            _no_image("rocAL's decoder fails there; leave it out", _ROCAL),
            Rule(
                "kind",
                "rocAL's decoder, TurboJPEG unless another is asked for, reads JPEG alone; "
                "pack with --encoding .jpg, without --pass-through",
                f"{_ROCAL_API}, RocalDecoderType",
                _kinds_but("jpeg"),
                frozenset({KINDS_OF_IMAGES}),
            ),
        ),
    ),
    "sagemaker-classification": Reader(
        "Amazon SageMaker: image classification",
        (
            _one_file("SageMaker takes one .rec a channel", f"{_AWS}image-classification.html"),
            Rule(
                "empty",
                "SageMaker has nothing to train on",
                f"{_AWS}IC-Hyperparameter.html, num_training_samples",
                _empty,
            ),
            Rule(
                "label",
                "SageMaker takes one class, a whole number from 0; pack with --no-pack-label, or "
                "list classes",
                f"{_AWS}image-classification.html",
                _all_of(lambda watch: watch.no_class),
                frozenset({LABELS}),
            ),
            Rule(
                "classes",
                "SageMaker wants classes numbered from 0 without holes (a validation channel may "
                "do without some); number them with make-list",
                f"{_AWS}image-classification.html",
                _holes,
                frozenset({LABELS}),
            ),
            Rule(
                "id",
                "SageMaker wants unique ids; list the images with ids of their own",
                f"{_AWS}image-classification.html",
                _all_of(lambda watch: watch.doubled),
            ),
            _no_image("SageMaker's MXNet ends there; leave it out", _ITER),
            _KIND_OF_MXNET,
        ),
    ),
    "sagemaker-detection": Reader(
        "Amazon SageMaker: object detection",
        (
            _one_file("SageMaker takes one .rec a channel", f"{_AWS}object-detection.html"),
            Rule(
                "empty",
                "SageMaker has nothing to train on",
                f"{_AWS}object-detection-api-config.html, num_training_samples",
                _empty,
            ),
            Rule(
                "label",
                "SageMaker takes 2 5 (class x1 y1 x2 y2)...; mend the list, and pack again",
                f"{_AWS}object-detection.html; apache/mxnet src/io/image_det_aug_default.cc",
                _all_of(lambda watch: watch.boxes),
                frozenset({BOXES}),
            ),
            Rule(
                "layout",
                "SageMaker takes 2 5 (class x1 y1 x2 y2)... alone; list no more numbers",
                f"{_AWS}object-detection.html",
                _all_of(lambda watch: watch.not_plain),
                frozenset({BOXES}),
            ),
            Rule(
                "channels",
                "SageMaker takes images of 3 channels; pack without --pass-through, with --color 1",
                f"{_AWS}object-detection.html",
                _all_of(lambda watch: watch.channels),
                frozenset({KINDS_OF_IMAGES}),
            ),
            _no_image("SageMaker's MXNet ends there; leave it out", _ITER),
            _KIND_OF_MXNET,
        ),
    ),
    "insightface": Reader(
        "InsightFace: arcface_torch",
        (
            Rule(
                "name",
                "arcface_torch opens train.rec and train.idx in a folder; rename both",
                _ARCFACE,
                _face_names,
            ),
            _one_file("arcface_torch opens one train.rec", _ARCFACE),
            Rule(
                "index",
                f"arcface_torch reads by key, so nothing without; {_INDEX_AGAIN}",
                _ARCFACE,
                _no_own_index,
            ),
            Rule(
                "key-0",
                "arcface_torch reads that one first, and ends; "
                "list with make-list --ids per-list, which begins at 0",
                _ARCFACE,
                _no_key_0,
            ),
            Rule(
                "header",
                "arcface_torch takes it for the header of the identities, since its flag is not "
                "0; write that header, or pack one label with --no-pack-label",
                _ARCFACE,
                _no_face_header,
            ),
            Rule(
                "image",
                "arcface_torch reads it as an image, and ends; "
                "number the images from 1 to N where key 0 has the header, and leave others out",
                _ARCFACE,
                _face_images,
                frozenset({IDENTITIES}),
            ),
            Rule(
                "identity",
                "InsightFace's MXNet loader takes the images of an identity from there; "
                "write the identities anew",
                _FACE_ITER,
                _face_identities,
                frozenset({IDENTITIES}),
            ),
            Rule(
                "label",
                "arcface_torch makes a class of the first label, and cuts off the rest; "
                "list whole numbers from 0",
                _ARCFACE,
                _all_of(lambda watch: watch.no_first),
                frozenset({LABELS}),
            ),
            Rule(
                "property",
                "InsightFace's MXNet loader makes the network by it; write classes,height,width",
                _FACE_IMAGE,
                _face_property,
                frozenset({LABELS, KINDS_OF_IMAGES, IDENTITIES}),
            ),
            _KIND_OF_MXNET,
        ),
    ),
    "gluoncv-detection": Reader(
        "GluonCV: RecordFileDetection",
        (
            _one_file("RecordFileDetection opens one .rec", _GLUON),
            Rule(
                "index",
                f"RecordFileDetection opens the .idx of the same stem; {_INDEX_AGAIN}",
                f"{_GLUON}; {_DATASET}",
                _no_own_index,
            ),
            Rule(
                "label",
                "RecordFileDetection fails at it, or takes wrong boxes from it; "
                "list A B (class x1 y1 x2 y2)..., corners in shares of the edges",
                f"{_GLUON}, _transform_label",
                _all_of(lambda watch: watch.boxes),
                frozenset({BOXES}),
            ),
            Rule(
                "no-object",
                "RecordFileDetection takes it for an object of class -1; leave such images out, as "
                "make-list --negatives drop does",
                f"{_GLUON}, _transform_label",
                _all_of(lambda watch: watch.no_object),
                frozenset({BOXES}),
            ),
            _no_image("RecordFileDetection fails there; leave it out", f"{_GLUON}; {_MEASURED}"),
            _KIND_OF_MXNET,
        ),
    ),
}

# Every code a breach can have.
CODES = tuple(f"{name}-{rule.code}" for name, reader in READERS.items() for rule in reader.rules)


def mxnet_uri(recs: Sequence[str]) -> str | None:
    """The files as MXNet's path_imgrec names them; None where their names cannot stand there."""
    if any(sign in rec for rec in recs for sign in _URI_SIGNS):
        return None
    return ";".join(recs)
