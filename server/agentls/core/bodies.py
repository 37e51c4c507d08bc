"""The bodies of rows: what a message, a call or a context says, as CommonMark of a bounded length.

What the model reads is always there; the facts of a form stand before it, and say so where the model is not told them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentls.core.answer import parse_arguments
from agentls.core.blocks import ContentBlock, TextBlock
from agentls.core.codec import encode
from agentls.core.json import canonical
from agentls.core.messages import Message
from agentls.core.sources import (
    Catalog,
    Instructions,
    Notice,
    Recall,
    Relay,
    Section,
    Snapshot,
    form_of,
    producer_of,
)
from agentls.core.visible import fenced, one_line, preview, visible

PREVIEW_BYTES = 64 * 1024
"""UTF-8 bytes of a tool's or a context's body, at most; the rest is read on request."""
ARGUMENTS_BYTES = PREVIEW_BYTES // 2
"""Those of a call's arguments, so that its result has room."""

_ROW_BYTES = 64
_LISTED = 200


@dataclass(frozen=True, slots=True)
class Body:
    """A text and how many UTF-8 bytes of it were left out."""

    text: str
    more: int = 0


class _Room:
    """What is left of a body's bytes; texts are cut before they are fenced, so that no fence stays open."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.more = 0

    def take(self, text: str) -> str:
        kept, left_out = preview(visible(text), max(0, self.left))
        self.left -= len(kept.encode())
        self.more += left_out
        return kept

    def fence(self, text: str, info: str = "") -> str:
        self.left -= _ROW_BYTES
        return fenced(self.take(text), info)

    def body(self, *parts: str) -> Body:
        return Body("\n\n".join(part for part in parts if part), self.more)


def person_body(content: Sequence[ContentBlock]) -> str:
    """What a person wrote; never cut."""
    return visible(_plain(content))


def arguments_body(raw: str) -> Body:
    """A call's arguments as the model wrote them."""
    room = _Room(ARGUMENTS_BYTES)
    return room.body(room.fence(raw, "json" if parse_arguments(raw) is not None else ""))


def result_body(arguments: Body, content: Sequence[ContentBlock]) -> Body:
    """A call's arguments and its result."""
    room = _Room(PREVIEW_BYTES - len(arguments.text.encode()))
    result = room.body(arguments.text, room.fence(plain_text(content)))
    return Body(result.text, arguments.more + result.more)


def context_body(message: Message) -> Body:
    """An injected message: the facts of its form, and the text that the model reads."""
    room = _Room(PREVIEW_BYTES)
    text = _plain(message.content)
    match form_of(message.source):
        case Snapshot(sections):
            told = f"Supersedes earlier snapshots of {one_line(producer_of(message.source))}."
            room.left -= len(told.encode()) + _ROW_BYTES
            rows = [_section(room, section, text) for section in sections if room.left > 0]
            return room.body(told, *rows, _beside(room, sections, text))
        case Relay(sender):
            return room.body(room.take(f"From session {one_line(sender)}"), room.take(text))
        case Recall(references):
            facts = [
                f"- {one_line(ref.label)}: {ref.retained} messages kept, {ref.omitted} left out"
                + (", cut" if ref.truncated else "")
                for ref in references
            ]
            return room.body(room.take("\n".join(facts)), room.take(text))
        case Instructions(paths):
            return room.body(room.take("\n".join(f"- {one_line(path)}" for path in paths)), room.take(text))
        case Catalog(entries):
            items = [f"- {one_line(entry.name)}: {one_line(entry.description)}" for entry in entries[:_LISTED]]
            if len(entries) > _LISTED:
                items.append(f"- {len(entries) - _LISTED} more")
            return room.body(room.take("\n".join(items) or "(empty)"), room.take(text))
        case Notice():
            return room.body(room.take(text))
    source = {name: value for name, value in encode(message.source).items() if name != "kind"}
    return room.body(room.take(text), room.fence(canonical(source)) if source else "")


def plain_text(content: Sequence[ContentBlock]) -> str:
    """Text blocks joined with nothing between; any other block as its JSON, in place."""
    return "".join(block.text if isinstance(block, TextBlock) else canonical(encode(block)) for block in content)


def _plain(content: Sequence[ContentBlock]) -> str:
    return plain_text(content).replace("\r\n", "\n")


def _section(room: _Room, section: Section, text: str) -> str:
    note = "" if section.text in text else " (not told to the model)"
    heading = f"**{one_line(section.name)}**{note}"
    room.left -= len(heading.encode()) + _ROW_BYTES
    return f"{heading}\n\n{room.fence(section.text)}"


def _beside(room: _Room, sections: Sequence[Section], text: str) -> str:
    """The text for the model, where it says more than the sections do."""
    rest = text
    for section in sections:
        rest = rest.replace(section.text, "").replace(section.name, "")
    return f"The model reads:\n\n{room.fence(text)}" if any(char.isalnum() for char in rest) else ""
