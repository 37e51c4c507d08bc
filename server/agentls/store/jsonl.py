"""A session as lines of JSON: its header, then its events in the form of docs/events.md, then text in flight.

A line without `seq` is no event: `session` is the header, `damaged` stands where something is not as it was written
(`event` is what it seems to hold), and `draft` is text that no event holds yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import orjson

from agentls.core.codec import encode, encode_event
from agentls.core.json import JsonValue
from agentls.store.store import Damaged, Salvage


def lines(salvage: Salvage) -> Iterator[bytes]:
    """All that is left of a session, each line with its end."""
    header = salvage.header
    yield _line({"type": "session", **encode(header), "version": header.version})
    if salvage.fault is not None:
        yield _line({"type": "damaged", "why": salvage.fault})
    for part in salvage.log:
        if not isinstance(part, Damaged):
            yield _line(encode_event(part))
            continue
        seems: JsonValue = encode_event(part.event) if part.event is not None else None
        yield _line({"type": "damaged", "first": part.first, "stop": part.stop, "why": part.why, "event": seems})
    for piece in salvage.drafts:
        yield _line({"type": "draft", **encode(piece)})


def _line(value: Mapping[str, JsonValue]) -> bytes:
    try:
        return orjson.dumps(value) + b"\n"
    except TypeError:
        # Half of a surrogate pair, or a number of more than 64 bits.
        return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
