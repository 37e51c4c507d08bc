"""The bytes of a write-ahead log (https://sqlite.org/fileformat2.html#the_write_ahead_log).

SQLite reads such a log up to the first frame whose checksum is wrong and passes over all that was committed after it,
without a word. A frame that a crash has cut off is the end; one with whole frames behind it is damage.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from itertools import islice

HEADER_SIZE = 32
_FRAME_HEADER = 24
_INDEX_HEADER = 48
_MAGIC = 0x377F0682
_VERSION = 3007000
_PAGE_SIZES = frozenset(1 << bits for bits in range(9, 17))

Sums = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Log:
    """A log as far as its frames are whole or can be made so. `frames` are how many it holds, `size` the pages of the
    database after its last commit, `bad` how many frames are not as they were written, and `mended` the bytes that
    SQLite reads to their end."""

    frames: int
    size: int
    bad: int
    mended: bytes


def read(raw: bytes) -> Log | None:
    """What a log holds, also past damage; None for one that holds nothing."""
    if len(raw) <= HEADER_SIZE:
        return None
    magic, version, page_size, turn, salts, stored = _header(raw)
    sums = _sum(raw[:24], (0, 0), big=magic == _MAGIC | 1)
    sound = magic | 1 == _MAGIC | 1 and version == _VERSION and page_size in _PAGE_SIZES and sums == stored
    if not sound:
        # Every frame says again whose it is; the page size is found by where the second one begins.
        salts = raw[HEADER_SIZE + 8 : HEADER_SIZE + 16]
        page_size = _page_size_of(raw, salts)
        magic = _MAGIC
        header = struct.pack(">IIII", magic, _VERSION, page_size, turn) + salts
        sums = _sum(header, (0, 0), big=False)
        stored = sums
    else:
        header = raw[:24]
    big = magic == _MAGIC | 1
    frames = _frames(raw, page_size)
    good, end = [], 0
    before: Sums | None = stored if sound else None
    for n, frame in enumerate(frames):
        if not _is_of(frame, salts):
            break
        whole = before is not None and _sum_frame(frame, before, big=big) == _stored(frame)
        good.append(whole)
        if whole and _commits(frame):
            end = n + 1
        before = _stored(frame)
    bad = good[:end].count(False) + (0 if sound else 1)
    if not end:
        return None
    out = [header, struct.pack(">II", *sums)]
    for frame in islice(frames, end):
        head = frame[:8] + salts
        sums = _sum_frame(frame, sums, big=big)
        out += (head, struct.pack(">II", *sums), frame[_FRAME_HEADER:])
    return Log(end, int.from_bytes(frames[end - 1][4:8], "big"), bad, b"".join(out))


def frames_written(index: bytes, raw: bytes) -> int:
    """How many frames a log had, by the index that its last users shared and left behind when they were killed
    (https://sqlite.org/walformat.html#the_wal_index_file_format); 0 where that is of another log, or torn."""
    if len(index) < _INDEX_HEADER or index[:_INDEX_HEADER] != index[_INDEX_HEADER : 2 * _INDEX_HEADER]:
        return 0
    version, _, _, is_whole, _, _, written = struct.unpack("=IIIBBHI", index[:20])
    if version != _VERSION or not is_whole or index[32:40] != raw[16:24]:
        return 0
    return int(written)


def _header(raw: bytes) -> tuple[int, int, int, int, bytes, Sums]:
    magic, version, page_size, turn = struct.unpack(">IIII", raw[:16])
    one, two = struct.unpack(">II", raw[24:32])
    return magic, version, page_size, turn, raw[16:24], (one, two)


def _frames(raw: bytes, page_size: int) -> list[bytes]:
    size = _FRAME_HEADER + page_size
    return [raw[at : at + size] for at in range(HEADER_SIZE, len(raw) - size + 1, size)]


def _page_size_of(raw: bytes, salts: bytes) -> int:
    for page_size in (4096, *sorted(_PAGE_SIZES)):
        second = HEADER_SIZE + _FRAME_HEADER + page_size
        if raw[second + 8 : second + 16] == salts:
            return page_size
    return 4096


def _is_of(frame: bytes, salts: bytes) -> bool:
    """Whether a frame is of this log: it says so twice, and a flipped byte may have changed one. What is left of an
    earlier log says neither."""
    return frame[8:12] == salts[:4] or frame[12:16] == salts[4:]


def _commits(frame: bytes) -> bool:
    return frame[4:8] != b"\0\0\0\0"


def _stored(frame: bytes) -> Sums:
    one, two = struct.unpack(">II", frame[16:24])
    return one, two


def _sum_frame(frame: bytes, before: Sums, *, big: bool) -> Sums:
    return _sum(frame[:8] + frame[_FRAME_HEADER:], before, big=big)


def _sum(data: bytes, before: Sums, *, big: bool) -> Sums:
    words = array("I", data)
    if big != (struct.pack("=I", 1) == struct.pack(">I", 1)):
        words.byteswap()
    one, two = before
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
