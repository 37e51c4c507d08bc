"""Text and JSON without lone surrogates: half a character has no UTF-8 form, so no wire could take it.

Both ways they come up in practice: a gateway that cuts its UTF-16 text between two deltas, and a model or a file name
that holds one for good. JSON can write them as escapes, which `orjson` refuses in both directions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import orjson

from agentls.core.json import JsonValue

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")


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


# JSON ----------------------------------------------------------------------------------------------------------


def parse(text: str | bytes) -> JsonValue:
    """The JSON value of a text with every half that is alone replaced by U+FFFD; ValueError for what is no JSON."""
    value, halves = _parsed(text)
    if not halves:
        return value
    try:
        return cast(JsonValue, mended(value))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_with_halves(text: str | bytes) -> JsonValue:
    """The same with halves left in, for one who still has to join them across texts."""
    return _parsed(text)[0]


def dump(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """The JSON text of a value, the same for the same value, its halves mended; TypeError for what has no JSON form.

    `default` gives the JSON value of an object that JSON does not know.
    """
    try:
        return orjson.dumps(value, default)
    except TypeError:  # a half, a whole number of more than 64 bits, a Mapping that is no dict, or no JSON at all
        pass
    whole = None if default is None else lambda other: mended(default(other))
    try:
        text = json.dumps(mended(value), default=whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except Exception as error:
        raise TypeError(str(error)) from error


def mended(value: object) -> object:
    """`value` with every text in it mended, keys as well."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, Mapping):
        return {mend(name): mended(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [mended(item) for item in value]
    return value


def _parsed(text: str | bytes) -> tuple[JsonValue, bool]:
    """The value, and whether it may hold halves."""
    try:
        value: JsonValue = orjson.loads(text)
    except orjson.JSONDecodeError:
        whole = text if isinstance(text, str) else text.decode()
        if _ESCAPED.search(whole) is None:
            raise
    else:
        return value, False
    try:
        value = json.loads(whole, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value, True


def _refuse(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is no JSON value")
