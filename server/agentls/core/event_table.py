"""The reference page of events, from the classes that define them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from agentls.core.codec import camel
from agentls.core.events import EVENTS, FORMAT_VERSION, SURFACE, EventData

_INTRO = (
    "# Events of a session's log\n"
    "\n"
    "Generated from `server/agentls/core/events.py` by `scripts/generate`; a test fails when this page is stale. "
    f"Format version {FORMAT_VERSION}.\n"
    "\n"
    "The envelope is `{seq, time, type, data, surfaceOp?, ignorable?}`: `seq` counts from 0 without gaps, `time` is in "
    "epoch milliseconds and for people only. Types marked *surface* are what the model's history is made of. A field "
    "with a question mark has a default and is left out while it has it. An event of a type that is not listed here is "
    "refused on load, unless its writer marked it `ignorable`.\n"
    "\n"
    "| type | data | surface | meaning |\n"
    "|---|---|---|---|\n"
)


def event_table() -> str:
    """The page as Markdown."""
    return _INTRO + "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    for kind in EVENTS.kinds():
        cls = EVENTS.type_for(kind)
        assert cls is not None
        surface = "surface" if issubclass(cls, SURFACE) else ""
        yield f"| `{kind}` | {_fields(cls)} | {surface} | {_meaning(cls)} |"


def _fields(cls: type[EventData]) -> str:
    return ", ".join(f"`{camel(f.name)}{'' if _required(f) else '?'}`" for f in dataclasses.fields(cls)) or "–"


def _required(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _meaning(cls: type[EventData]) -> str:
    return re.sub(r"\s+", " ", cls.__doc__ or "").strip().replace("|", "\\|")
