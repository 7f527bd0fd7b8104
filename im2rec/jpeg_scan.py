"""A second look at a JPEG of whose scan libjpeg says only that bytes are left over at its end.

libjpeg decodes any bits. When a scan was changed, its decoder falls out of step and, after a block
or two, into step again, with all that follows in the wrong place; most often it then remarks no
more than `extraneous bytes before marker 0xd9`, which it also says of a sound picture with stray
bytes after it. The two differ in what no encoder writes: a code that the tables do not have, a run
past a block's 63 coefficients, a mean brightness that no picture has, a last byte not filled up
with equal bits. This walks the Huffman codes of a baseline scan and looks for those (ITU-T T.81,
F.2.2), in some 0.2 s for a photograph: affordable, since the remark is rare.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from im2rec.image_file import SCAN_END

_LOOKAHEAD = 16  # bits of the longest Huffman code
_MAX_DC_SIZE, _MAX_AC_SIZE = 11, 10  # bits of a DC difference, of an AC value (8-bit samples)
_MAX_DC = 1024  # 8 x 128: the mean of a block of 8-bit samples, as DCT scales it
SOS = 0xDA
SEQUENTIAL = (0xC0, 0xC1)  # frames, baseline and extended
_SOF_OTHER = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a segment
_ZEROS = 256  # bytes; a run of so many holds at least a block of each table
_STRAYS = 256  # bytes behind a scan's last block
_ALIKE = 16  # coefficients of a block, of 63; no picture's are all alike in block after block
_AHEAD = 8  # bytes; no look ahead is longer
_RST = re.compile(rb"\xff[\xd0-\xd7]")

_Code = tuple[int, int]  # bits of the code, its symbol
_Table = list["_Code | None"]  # by the next 16 bits


@dataclass(frozen=True, slots=True)
class _Component:
    """A component as the frame header states it: its blocks in an MCU, its quantisation table."""

    blocks: int
    quantisation: int


@dataclass
class _Tables:
    """What the segments before the scan have said."""

    huffman: dict[int, _Table] = field(default_factory=dict)  # class << 4 | number
    dc_step: dict[int, int] = field(default_factory=dict)  # by quantisation table
    components: dict[int, _Component] = field(default_factory=dict)
    mcus: int = 0
    restart_interval: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    """A block's place in the MCU: its component, tables, and largest DC value."""

    component: int
    dc: _Table
    ac: _Table
    max_dc: int


@dataclass(frozen=True, slots=True)
class _Walk:
    """found: what shows that the scan was changed, at which the walk ends. left_over: bytes behind
    the last block, stuffing not counted; 0 where there is none or the walk did not come so far."""

    found: str | None
    left_over: int


def find_damage(data: bytes, left_over: int = 0) -> str | None:
    """What shows that a JPEG's scan was changed after it was written; None where nothing does.

    Scans that are not walked (progressive, arithmetic, 12 bits, or several in one file) are judged
    by the bytes that libjpeg says are left over: so many are no strays, unless they begin with
    zeros.
    """
    try:
        walk = _walk_scan(data)
        if walk is None and left_over > _STRAYS:
            end = _last_scan_end(data)
            if len(data[end - left_over : end].lstrip(b"\0")) > _STRAYS:
                return f"{left_over} bytes too many"
        return walk.found if walk else None
    except (IndexError, KeyError, ValueError, ZeroDivisionError, struct.error):
        return None  # libjpeg has decoded it: a header that is odd, not damaged


def find_zeros(data: bytes) -> str | None:
    """A run of zeros inside a scan that cannot be a picture's.

    The shortest code of a Huffman table is zeros alone. Where it stands for a coefficient, a run of
    zeros would be block after block of the same coefficients, all of them or every second or third:
    there are no such pictures. Where it ends a block, the run may be a plain area, so that nothing
    is said; nor of a progressive scan of few coefficients, which are alike all over a gradient, of
    one that refines others, or of arithmetic codes. Zeros may also be stray bytes behind the last
    block: to be damage, the walk must come into them or, of a scan that is not walked, more must
    follow than strays may be.
    """
    try:
        return _find_zeros(data)
    except (IndexError, KeyError, ValueError, struct.error):
        return None  # another's business, as above


def _find_zeros(data: bytes) -> str | None:
    first: dict[int, int] = {}  # the symbol whose code is zeros, by class << 4 | number
    for marker, segment, start, end in segments(data):
        if marker == 0xC4:
            first.update(
                (table, symbols[0]) for table, _, symbols in _code_tables(segment) if symbols
            )
        elif marker == SOS:
            zeros = data.find(bytes(_ZEROS), start, end)
            if zeros == -1 or not _are_blocks(segment, first):
                continue
            behind = data[zeros:end]  # stuffing is not counted in what is left over
            tail = len(behind) - behind.count(b"\xff\0")
            walk = _walk_scan(data)
            if walk:  # strays, too, may be zeros: the blocks must come into them
                is_hole = walk.found is not None or walk.left_over <= tail - _ZEROS
            else:
                is_hole = len(behind.lstrip(b"\0")) > _STRAYS
            if is_hole:
                return f"a run of zeros at byte {zeros}"
    return None


def _last_scan_end(data: bytes) -> int:
    """Where the last scan of a JPEG ends."""
    return max((end for marker, _, _, end in segments(data) if marker == SOS), default=0)


def segments(data: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """Each segment of a JPEG up to the end-of-image marker: its marker, what is in it, where it
    ends and where what belongs to it does: of a scan's header, the scan."""
    at = 2
    while True:
        at = data.index(b"\xff", at)
        while data[at] == 0xFF:
            at += 1
        marker, at = data[at], at + 1
        if marker == 0xD9:
            return
        if marker in _STANDALONE:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        segment = data[at + 2 : at + length]
        at += length
        end = at
        if marker == SOS:
            found = SCAN_END.search(data, at)
            end = found.start() if found else len(data)
        yield marker, segment, at, end
        at = end


def _code_tables(segment: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The tables of a DHT segment: class << 4 | number, how many codes of each length, symbols."""
    at = 0
    while at < len(segment):
        counts = segment[at + 1 : at + 17]
        end = at + 17 + sum(counts)
        yield segment[at], counts, segment[at + 17 : end]
        at = end


def _are_blocks(header: bytes, first: dict[int, int]) -> bool:
    """Whether zeros in this scan would be blocks with coefficient after coefficient."""
    count = header[0]
    start, end, approximation = header[1 + 2 * count : 4 + 2 * count]
    symbols = [first[0x10 | header[2 + 2 * number] & 15] for number in range(count if end else 0)]
    coefficients = end - max(start, 1) + 1
    return approximation >> 4 == 0 and any(
        symbol & 15 and coefficients // ((symbol >> 4) + 1) >= _ALIKE for symbol in symbols
    )


def _walk_scan(data: bytes) -> _Walk | None:
    """Walks the scan of a JPEG that has but one; None where it is not one that can be walked."""
    tables = _Tables()
    for marker, segment, start, end in segments(data):
        if marker == SOS:
            blocks = _blocks(segment, tables)
            return _walk(_RST.split(data[start:end]), blocks, tables) if blocks else None
        if marker in _SOF_OTHER or not _read_segment(marker, segment, tables):
            return None
    return None


def _read_segment(marker: int, segment: bytes, tables: _Tables) -> bool:
    """Takes what the walk needs from a segment; whether the walk is possible so far."""
    if marker == 0xDB:
        at = 0
        while at < len(segment):
            wide, number = segment[at] >> 4, segment[at] & 15
            form = ">H" if wide else ">B"
            (tables.dc_step[number],) = struct.unpack_from(form, segment, at + 1)
            at += 1 + 64 * (2 if wide else 1)
    elif marker == 0xC4:
        for table, counts, symbols in _code_tables(segment):
            tables.huffman[table] = _huffman_table(counts, symbols)
    elif marker in SEQUENTIAL:
        depth, height, width, count = struct.unpack_from(">BHHB", segment)
        parts = [segment[6 + 3 * number : 9 + 3 * number] for number in range(count)]
        factors = [(part[1] >> 4, part[1] & 15) for part in parts]
        for part, (across, down) in zip(parts, factors, strict=True):
            blocks = across * down if count > 1 else 1
            tables.components[part[0]] = _Component(blocks, part[2])
        across = 8 * max(a for a, _ in factors) if count > 1 else 8
        down = 8 * max(d for _, d in factors) if count > 1 else 8
        tables.mcus = -(-width // across) * -(-height // down)
        return bool(depth == 8)
    elif marker == 0xDD:
        (tables.restart_interval,) = struct.unpack_from(">H", segment)
    return True


def _huffman_table(counts: bytes, symbols: bytes) -> _Table:
    """The codes of a DHT segment (T.81 annex C), by the next 16 bits of the scan.

    Raises ValueError for more codes than there can be, or fewer symbols than codes.
    """
    lengths = [bits for bits, count in enumerate(counts, 1) for _ in range(count)]
    spans = [1 << (_LOOKAHEAD - bits) for bits in lengths]
    if sum(spans) > 1 << _LOOKAHEAD:
        raise ValueError("a Huffman table with too many codes")
    table: _Table = []
    for bits, symbol, span in zip(lengths, symbols, spans, strict=True):
        table += [(bits, symbol)] * span
    return table + [None] * ((1 << _LOOKAHEAD) - len(table))


def _blocks(header: bytes, tables: _Tables) -> list[_Block] | None:
    """The blocks of one MCU, in order; None unless the scan has all components."""
    count = header[0]
    if count != len(tables.components):
        return None
    blocks = []
    for number in range(count):
        name, numbers = header[1 + 2 * number], header[2 + 2 * number]
        component = tables.components[name]
        largest = _MAX_DC + tables.dc_step[component.quantisation]
        block = _Block(
            name,
            tables.huffman[numbers >> 4],
            tables.huffman[0x10 | numbers & 15],
            largest // tables.dc_step[component.quantisation],
        )
        blocks += [block] * component.blocks
    return blocks


def _walk(intervals: list[bytes], blocks: list[_Block], tables: _Tables) -> _Walk:
    """Walks the scan's restart intervals; each holds so many MCUs, the last one the rest."""
    left, walk = tables.mcus, _Walk(None, 0)
    for number, interval in enumerate(intervals):
        mcus = min(left, tables.restart_interval or left)
        left -= mcus
        walk = _walk_interval(interval.replace(b"\xff\x00", b"\xff"), mcus, blocks)
        if walk.found and number:
            return _Walk(f"{walk.found} in restart interval {number}", walk.left_over)
        if walk.found:
            return walk
    return _Walk("too few restart intervals", 0) if left else walk


def _walk_interval(data: bytes, mcus: int, blocks: list[_Block]) -> _Walk:
    """Walks `mcus` MCUs from the start of the data, with the stuffing removed."""
    end = 8 * len(data)
    data += bytes(_AHEAD)  # so that looking ahead never runs out
    mean = dict.fromkeys([block.component for block in blocks], 0)
    at = 0  # in bits
    for _ in range(mcus):
        for block in blocks:
            code = block.dc[_next16(data, at)]
            if code is None or code[1] > _MAX_DC_SIZE:
                return _Walk("a code that does not exist", 0)
            bits, size = code
            if size:
                mean[block.component] += _signed(data, at + bits, size)
                if abs(mean[block.component]) > block.max_dc:
                    return _Walk("a brightness that does not exist", 0)
            at += bits + size
            place = 1  # of the next coefficient, of 63
            while place < 64:
                code = block.ac[_next16(data, at)]
                if code is None or code[1] & 15 > _MAX_AC_SIZE:
                    return _Walk("a code that does not exist", 0)
                bits, run, size = code[0], code[1] >> 4, code[1] & 15
                at += bits + size
                if size == 0 and run != 15:
                    break  # end of block
                place += run + 1
                if place > 64:
                    return _Walk("more coefficients than a block has", 0)
            if at > end:
                return _Walk(None, 0)  # libjpeg says so itself
    spare = -at % 8
    filling = data[at >> 3] & ((1 << spare) - 1) if spare else 0
    if filling not in (0, (1 << spare) - 1):
        return _Walk("a last byte that is not filled up", 0)
    return _Walk(None, len(data) - _AHEAD - -(-at // 8))


def _next16(data: bytes, at: int) -> int:
    byte = at >> 3
    return (int.from_bytes(data[byte : byte + 3], "big") >> (8 - (at & 7))) & 0xFFFF


def _signed(data: bytes, at: int, size: int) -> int:
    """The value of a coefficient's additional bits (T.81, EXTEND)."""
    byte = at >> 3
    window = int.from_bytes(data[byte : byte + 4], "big")
    value = (window >> (32 - (at & 7) - size)) & ((1 << size) - 1)
    return value if value >> (size - 1) else value - (1 << size) + 1
