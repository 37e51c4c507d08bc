"""A text in lines, and positions in it as editors count them: lines from 0, characters in units of an encoding."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Literal

from agentls.core.visible import boundary

PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]
"""What a character counts: bytes, UTF-16 code units, or code points."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two characters; both count from 0."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class Range:
    """From `start` up to `end`."""

    start: Position
    end: Position


@dataclass(frozen=True, slots=True)
class Change:
    """`text` in place of `range`, or of everything."""

    text: str
    range: Range | None = None


def split_lines(text: str) -> list[str]:
    """The lines with their endings (`\\n`, `\\r\\n`, `\\r`), joined again the same text. There is always a last one
    without an ending, which may be empty. Other separators of Unicode end no line in an editor."""
    lines = list(io.StringIO(text, newline=""))
    if not lines or lines[-1].endswith(("\n", "\r")):
        lines.append("")
    return lines


class Lines:
    """A text that changes a piece at a time; it must hold no halves of characters."""

    __slots__ = ("_lines", "_text")

    def __init__(self, text: str) -> None:
        self._lines = split_lines(text)
        self._text: str | None = text

    @property
    def text(self) -> str:
        """All of it."""
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text

    @property
    def last(self) -> int:
        """The number of the last line."""
        return len(self._lines) - 1

    def apply(self, change: Change, encoding: PositionEncoding) -> None:
        """Make one change, whose range is in the coordinates of the text as it is now."""
        if change.range is None:
            self._lines = split_lines(change.text)
            self._text = change.text
            return
        # As vscode-languageserver-textdocument does it: a range that is the wrong way round is turned.
        start, end = sorted((self.locate(change.range.start, encoding), self.locate(change.range.end, encoding)))
        before = self._lines[start[0]][: start[1]]
        after = self._lines[end[0]][end[1] :]
        # The line before belongs to it where nothing stands between: it may end in the first half of a "\r\n".
        first = start[0] - 1 if start[1] == 0 and start[0] > 0 else start[0]
        head = "".join(self._lines[first : start[0]])
        fresh = split_lines(head + before + change.text + after)
        if end[0] < len(self._lines) - 1:
            fresh.pop()  # Only the text's last line is without an ending.
        self._lines[first : end[0] + 1] = fresh
        self._text = None

    def locate(self, position: Position, encoding: PositionEncoding) -> tuple[int, int]:
        """Line and index in it, in code points. Past a line's end is its end, before the line ending; past the last
        line is the end of the text; inside a character is its start."""
        if position.line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        return position.line, column(self._lines[position.line].rstrip("\r\n"), position.character, encoding)


def column(line: str, character: int, encoding: PositionEncoding) -> int:
    """The index in code points of a character of `line`, which is without its ending."""
    if encoding == "utf-32" or line.isascii():
        return min(character, len(line))
    if encoding == "utf-8":
        data = line.encode("utf-8", "surrogatepass")
        return len(data[: boundary(data, character)].decode("utf-8", "surrogatepass"))
    data = line.encode("utf-16-le", "surrogatepass")
    end = min(character * 2, len(data))
    if end < len(data) and 0xDC <= data[end + 1] <= 0xDF:
        end -= 2
    return len(data[:end].decode("utf-16-le", "surrogatepass"))
