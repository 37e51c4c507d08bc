"""Text without lone surrogates: half a character has no UTF-8 form, so no wire and no store could take it.

Both ways they come up in practice: a gateway that cuts its UTF-16 text between two deltas, and a model or a file name
that holds one for good.
"""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def mend(text: str) -> str:
    """`text` with the two halves of a character joined and every half that is alone replaced by U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Joiner:
    """Mends a text that comes in pieces: a first half at a piece's end waits for its second one."""

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def take(self, piece: str) -> str:
        """What can be passed on of all pieces so far."""
        if not self._half and piece.isascii():
            return piece
        text = self._half + piece
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        return mend(text)

    def rest(self) -> str:
        """What waits at the end of the text, mended."""
        half, self._half = self._half, ""
        return mend(half)
