"""The bodies of rows: what a message, a call, a context or a request says, as CommonMark.

What the model reads is always there; the facts of a form stand before it, and say so where the model is not told them.
Bodies of tools and contexts have a limit in UTF-8 bytes, None for none, and count what they leave out; what a person
wrote or is asked about is never cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentls.core.answer import parse_arguments
from agentls.core.blocks import ContentBlock, TextBlock
from agentls.core.codec import encode
from agentls.core.json import JsonObject, JsonValue, canonical
from agentls.core.messages import Message
from agentls.core.sources import (
    Catalog,
    HookSource,
    Instructions,
    InstructionsSource,
    MessageSource,
    Notice,
    PluginSource,
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

_ROW_BYTES = 64
_LONG_RUN = "`" * 20
_LISTED = 200
_WHOLE = 2**62


@dataclass(frozen=True, slots=True)
class Body:
    """A text and how many UTF-8 bytes of it were left out."""

    text: str
    more: int = 0


class _Room:
    """What is left of a body's bytes; texts are cut before they are fenced, so that no fence stays open."""

    def __init__(self, limit: int | None) -> None:
        self.whole = limit is None
        self.left = _WHOLE if limit is None else limit
        self.more = 0

    def take(self, text: str, cost: int = 1) -> str:
        """As much of `text` as there is room for, where each byte of it takes `cost`."""
        kept, left_out = preview(visible(text), max(0, self.left) // cost)
        self.left -= len(kept.encode()) * cost
        self.more += left_out
        return kept

    def fence(self, text: str, info: str = "") -> str:
        self.left -= _ROW_BYTES
        # A long run of backticks makes both fences longer than itself.
        return fenced(self.take(text, 3 if _LONG_RUN in text else 1), info)

    def drop(self, text: str) -> str:
        """Count a text that is left out whole."""
        self.more += len(visible(text).encode())
        return ""

    def body(self, *parts: str) -> Body:
        return Body("\n\n".join(part for part in parts if part), self.more)


# Messages ------------------------------------------------------------------------------------------------------


def person_body(content: Sequence[ContentBlock]) -> str:
    """What a person wrote; never cut."""
    return visible(_plain(content))


def plain_text(content: Sequence[ContentBlock]) -> str:
    """Text blocks joined with nothing between; any other block as its JSON, in place."""
    return "".join(block.text if isinstance(block, TextBlock) else canonical(encode(block)) for block in content)


def _plain(content: Sequence[ContentBlock]) -> str:
    return plain_text(content).replace("\r\n", "\n")


# Calls ---------------------------------------------------------------------------------------------------------


def arguments_limit(limit: int | None) -> int | None:
    """How much of a call's limit its arguments may take, so that its result has room."""
    return None if limit is None else limit // 2


def arguments_body(raw: str, limit: int | None = PREVIEW_BYTES) -> Body:
    """A call's arguments as the model wrote them; `limit` is that of the call."""
    room = _Room(arguments_limit(limit))
    return room.body(room.fence(raw, _language(raw)))


def result_body(arguments: Body, content: Sequence[ContentBlock], limit: int | None = PREVIEW_BYTES) -> Body:
    """A call's arguments and its result."""
    room = _Room(None if limit is None else limit - len(arguments.text.encode()))
    result = room.body(arguments.text, room.fence(plain_text(content)))
    return Body(result.text, arguments.more + result.more)


def _language(arguments: str) -> str:
    return "json" if parse_arguments(arguments) is not None else ""


# Contexts ------------------------------------------------------------------------------------------------------


def context_body(message: Message, limit: int | None = PREVIEW_BYTES, *, supersedes: bool = False) -> Body:
    """An injected message: the facts of its form, and the text that the model reads. A snapshot says so where it
    `supersedes` an earlier one."""
    room = _Room(limit)
    text = _plain(message.content)
    match form_of(message.source):
        case Snapshot(sections):
            producer = one_line(producer_of(message.source))
            told = f"Supersedes earlier snapshots of {producer}." if supersedes else ""
            room.left -= len(told.encode()) + _ROW_BYTES
            rows = [_section(room, section, text) for section in sections]
            return room.body(told, *rows, _rest(room, sections, text.removeprefix(snapshot_lead(producer))))
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
            items = [f"- {one_line(entry.name)}: {one_line(entry.description)}" for entry in entries]
            if len(items) > _LISTED and not room.whole:
                room.more += sum(len(item.encode()) for item in items[_LISTED:])
                items[_LISTED:] = [f"- {len(entries) - _LISTED} more"]
            return room.body(room.take("\n".join(items) or "(empty)"), room.take(text))
        case Notice():
            return room.body(room.take(text))
    facts_left = _opaque(message.source)
    return room.body(room.take(text), room.fence(canonical(facts_left)) if facts_left else "")


def _opaque(source: MessageSource) -> JsonObject:
    """What a source holds beside its kind. The mark of a frame is our own and no fact about anything."""
    ours = {"kind", "mark"} if isinstance(source, PluginSource | InstructionsSource | HookSource) else {"kind"}
    return {name: value for name, value in encode(source).items() if name not in ours}


def _section(room: _Room, section: Section, text: str) -> str:
    """A section under its name; nothing of it, but counted, where there is no room for it."""
    note = "" if section.text in text else " (not told to the model)"
    heading = f"**{one_line(section.name)}**{note}"
    room.left -= len(heading.encode()) + _ROW_BYTES
    return f"{heading}\n\n{room.fence(section.text)}" if room.left > _ROW_BYTES else room.drop(section.text)


def snapshot_lead(producer: str) -> str:
    """The sentence with which the text of the server's own snapshots begins. Their rows say the same in other words, so
    that it is not shown."""
    first = f"How things stand now, as {producer} sees them."
    return f"{first} This takes the place of everything that {producer} said before."


def _rest(room: _Room, sections: Sequence[Section], text: str) -> str:
    """The text for the model where it says more than the sections do, each of them as an ellipsis.

    Every section is taken out once and in its order, so that no text can hide behind sections that merely spell it;
    from the end, since what frames them stands before them and may hold the same words.
    """
    gaps: list[str] = []
    silent = True
    end, name = len(text), ""
    for section in reversed(sections):
        found = text.rfind(section.text, 0, end) if section.text else -1
        if found >= 0:
            gap = text[found + len(section.text) : end]
            gaps.append(gap)
            silent = silent and _is_name(gap, name)
            end, name = found, section.name
    gaps.append(text[:end])
    if silent and _is_name(gaps[-1], name):
        return ""
    room.left -= _ROW_BYTES
    rest = "…".join(reversed(gaps))
    return f"Beside them the model reads:\n\n{room.fence(rest)}" if room.left > _ROW_BYTES else room.drop(rest)


def _is_name(gap: str, name: str) -> bool:
    """Whether what stands before a section is no more than its name."""
    words = gap.strip().removesuffix(":").rstrip().removesuffix(name)
    return not any(char.isalnum() for char in words)


# Requests ------------------------------------------------------------------------------------------------------

_FIRST = ("tool", "path", "realPath", "change", "command", "diff", "content")
_NAMES = {"realPath": "Real path"}
_WORDS = re.compile(r"[A-Za-z0-9_./-]{1,200}")


def approval_body(what: JsonObject) -> str:
    """All that a person allows, each fact under its name and exactly as it is; never cut.

    What they know a call by stands first, and the arguments as the model wrote them last, since they mostly say the
    same once more.
    """
    first = [name for name in _FIRST if name in what]
    others = sorted(name for name in what if name not in (*_FIRST, "arguments"))
    last = [name for name in ("arguments",) if name in what]
    return "\n\n".join(_fact(name, what[name]) for name in (*first, *others, *last))


def question_body(question: JsonObject) -> str:
    """A question, what may be answered, and whatever else it holds; never cut."""
    text, options = question.get("text"), question.get("options")
    parts = []
    rest: Mapping[str, JsonValue] = question
    if isinstance(text, str):
        parts.append(_quoted(text))
        rest = {name: value for name, value in rest.items() if name != "text"}
    if isinstance(options, list | tuple) and options and all(isinstance(option, str) for option in options):
        parts.append("\n".join(_listed(option, f"{n}. ") for n, option in enumerate(options, start=1)))
        rest = {name: value for name, value in rest.items() if name != "options"}
    return "\n\n".join((*parts, *(_fact(name, rest[name]) for name in sorted(rest))))


def said_body(name: str, said: JsonValue) -> str:
    """What a person answered, under a name; nothing where they said nothing."""
    return "" if said is None or said == "" else _fact(name, said)


def _fact(name: str, value: JsonValue) -> str:
    heading = f"**{_NAMES.get(name) or one_line(name[:1].upper() + name[1:]) or '(no name)'}**"
    if not isinstance(value, str):
        return f"{heading}\n\n{fenced(visible(json.dumps(value, ensure_ascii=False, indent=2)), 'json')}"
    if name in _FIRST[:4] and _WORDS.fullmatch(value):
        return f"{heading}: `{value}`"
    info = "diff" if name == "diff" else _language(value) if name == "arguments" else ""
    return f"{heading}\n\n{fenced(visible(value), info)}"


# A quote and a list item end what is open in them, so that a fence in a text cannot swallow what follows it.


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in visible(text).split("\n"))


def _listed(text: str, sign: str) -> str:
    return sign + visible(text).replace("\n", "\n" + " " * len(sign))
