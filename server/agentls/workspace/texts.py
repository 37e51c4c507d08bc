"""Bytes to text and back without losing any: encoding, byte order mark, line endings, final newline."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be", "cp1252", "latin-1"]
Ending = Literal["\n", "\r\n", "\r"]

SNIFFED = 8192
"""Bytes of a file in which a NUL says that it is no text; git looks at 8000."""

_BOM = "\ufeff"
_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Bytes that are no part of any text in an 8-bit encoding, in which everything could be read: all controls but tab,
# line feed, vertical tab, form feed, carriage return and escape.
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_ENDING = re.compile(r"\r\n|\n")


class NotText(ValueError):
    """The bytes are not text in any encoding that we can write back exactly."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a text stands in its file, apart from what it says. `ending` is the most frequent line ending."""

    encoding: Encoding = "utf-8"
    mark: bytes = b""
    ending: Ending = "\n"
    final_newline: bool = True

    def encode(self, text: str) -> bytes:
        """The file's bytes, line endings as they are in `text`; UnicodeEncodeError for what the encoding lacks. A
        mark that is a part of the text is not written twice."""
        return self.mark + text.removeprefix(_BOM if self.mark else "").encode(self.encoding)

    def fit(self, text: str) -> str:
        """`text` with the line endings of the file. A model writes `\\n` whatever the file has."""
        return _ENDING.sub(self.ending, text)


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text, without its byte order mark: `form.encode(text)` is the file again, byte for byte."""

    text: str
    form: Form


def decode(data: bytes) -> Text:
    """Read bytes as what they are: by their mark, else UTF-8, else an 8-bit encoding; NotText for what is no text.

    The 8-bit one is windows-1252, which is what Latin-1 is in practice (its quotation marks are letters here and not
    controls), or Latin-1 for bytes that windows-1252 does not have. What it really was nobody can tell; it is exact.
    """
    mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", None))
    if encoding is not None:
        try:
            return _text(data[len(mark) :].decode(encoding), encoding, mark)
        except UnicodeDecodeError as error:
            if encoding != "utf-8":
                raise NotText("it begins as UTF-16 and is not") from error
    if b"\0" in data[:SNIFFED]:
        raise NotText("it has null bytes in it")
    with suppress(UnicodeDecodeError):
        return _text(data.decode("utf-8"), "utf-8")
    if _NO_TEXT.search(data):
        raise NotText("it is not UTF-8 and has control characters in it")
    with suppress(UnicodeDecodeError):
        return _text(data.decode("cp1252"), "cp1252")
    return _text(data.decode("latin-1"), "latin-1")


def content_hash(data: bytes) -> str:
    """`sha256:<hex>` of a file's bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def shows(data: bytes, text: str) -> bool:
    """Whether an editor that opened a file of these bytes, and changed nothing, may have this text in its buffer.

    Editors drop the mark, make mixed line endings the same, end the last line (Neovim shows an empty file as one
    empty line), and read what is not UTF-8 in their own ways; none of that is anybody's unsaved work.
    """
    if data == text.encode("utf-8", "surrogatepass"):
        return True
    plain = _plain(text)
    return any(_plain(read) == plain for read in _readings(data))


def _readings(data: bytes) -> Iterator[str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            yield data[len(mark) :].decode(encoding, "replace")
    try:
        yield data.decode("utf-8")
    except UnicodeDecodeError:
        yield data.decode("utf-8", "replace")  # VS Code, unless it is told to guess
        yield data.decode("cp1252", "replace")
        yield data.decode("latin-1")  # Neovim


def _plain(text: str) -> str:
    return text.removeprefix(_BOM).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def _text(text: str, encoding: Encoding, mark: bytes = b"") -> Text:
    if "\0" in text[:SNIFFED]:
        raise NotText("it has null characters in it")
    both = text.count("\r\n")
    counts: dict[Ending, int] = {"\n": text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    ending = max(counts, key=lambda each: counts[each])
    return Text(text, Form(encoding, mark, ending, text.endswith(("\n", "\r"))))
