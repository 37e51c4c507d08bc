"""Files that are too large to hold: their lines one by one, and at the end their hash."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentls.workspace.texts import SNIFFED, Encoding, NotText

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ENCODINGS: tuple[Encoding, ...] = ("utf-8", "cp1252", "latin-1")
"""What to try, in this order; the last one reads everything."""

_MARKED = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class LargeText:
    """`lines` reads the text with its line endings as they are; `content_hash` is that of the whole file once `lines`
    has come to its end."""

    def __init__(self, lines: io.TextIOBase, reader: _Hashing) -> None:
        self.lines = lines
        self._reader = reader

    @property
    def content_hash(self) -> str:
        """`sha256:<hex>` of what has been read."""
        return "sha256:" + self._reader.sha256.hexdigest()


@contextmanager
def open_large(path: Path, encoding: str) -> Iterator[LargeText]:
    """A regular file as text, in `encoding` unless a mark at its beginning says otherwise. NotText for what begins
    like no text; UnicodeDecodeError while reading, where it is another encoding."""
    with open(path, "rb", buffering=0) as file:
        start = os.pread(file.fileno(), SNIFFED, 0)
        marked = next((name for mark, name in _MARKED if start.startswith(mark)), None)
        if marked != "utf-16" and b"\0" in start:
            raise NotText("it has null bytes in it")
        reader = _Hashing(file)
        with io.TextIOWrapper(io.BufferedReader(reader), encoding=marked or encoding, newline="") as lines:
            yield LargeText(lines, reader)


class _Hashing(io.RawIOBase):
    """Reads a file and hashes what it gives."""

    def __init__(self, file: io.FileIO) -> None:
        self.sha256 = hashlib.sha256()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._file.readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        return count
