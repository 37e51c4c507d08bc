"""The frame around injected text on its way to a model, which nothing in that text can close.

    <agentls-context producer="git" form="notice" mark="3f9a01bc">
    the text
    </agentls-context-3f9a01bc>

The mark does not occur in the text. It is derived from it once and kept in the log, so that a later request sends the
same bytes; why it is not stored in its frame: docs/rfc/implemented/architecture/2026-11-30-frames-at-the-request.md.
The text is exact, since it may be code, but for what looks like a tag of ours: that gets a backslash.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import TypeVar

from agentls.core.blocks import ContentBlock, TextBlock, text_of
from agentls.core.messages import Message
from agentls.core.sources import (
    FORMS,
    HookSource,
    InstructionsSource,
    MessageSource,
    ModelSource,
    OpaqueForm,
    PluginSource,
    ToolSource,
    UserSource,
    form_of,
    producer_of,
)
from agentls.core.visible import one_line

_TAG = "agentls-context"
_MARK = re.compile(r"[0-9a-f]{8,}")
_MARK_MIN = 8

S = TypeVar("S", bound=MessageSource)


def framed(message: Message) -> Message:
    """The message as a model gets it: one that a person, a model or a tool wrote as it is, of every other the text in
    one frame. Several pieces of text are one, in the place of the first; what is no text stays."""
    if isinstance(message.source, UserSource | ModelSource | ToolSource):
        return message
    data = text_of(message.content)
    if not data:
        return message
    content: list[ContentBlock] = []
    for block in message.content:
        if not isinstance(block, TextBlock):
            content.append(block)
        elif not any(isinstance(kept, TextBlock) for kept in content):
            content.append(TextBlock(_frame(message.source, data)))
    return replace(message, content=tuple(content))


def sealed(source: S, content: tuple[ContentBlock, ...]) -> S:
    """The source of a message of this content, with the mark of its frame, where it can keep one."""
    if isinstance(source, PluginSource | InstructionsSource | HookSource):
        return replace(source, mark=mark_for(text_of(content)))
    return source


def mark_for(data: str) -> str:
    """At least 8 hexadecimal digits that do not occur in `data`, in whatever case; the same for the same data."""
    return absent_start(sha256(data.encode("utf-8", "surrogatepass")).hexdigest(), data)


def absent_start(digits: str, data: str) -> str:
    """The shortest beginning of `digits`, of at least 8, that does not occur in `data`; where all of them do, their
    hash goes on."""
    folded = data.casefold()
    length = _MARK_MIN
    while digits[:length] in folded:
        length += 1
        if length > len(digits):
            digits += sha256(digits.encode()).hexdigest()
    return digits[:length]


def _frame(source: MessageSource, data: str) -> str:
    mark = getattr(source, "mark", "")
    # What was kept is not trusted: a log may have been edited, and a plugin may have made it up.
    if not isinstance(mark, str) or _MARK.fullmatch(mark) is None or mark in data.casefold():
        mark = mark_for(data)
    form = form_of(source)
    facts = {"producer": producer_of(source)}
    if form is not None:
        facts["form"] = form.kind if isinstance(form, OpaqueForm) else FORMS.kind_of(form) or "unknown"
    head = " ".join(f'{name}="{_attribute(value)}"' for name, value in facts.items())
    return f'<{_TAG} {head} mark="{mark}">\n{_broken(data)}\n</{_TAG}-{mark}>'


def _attribute(value: str) -> str:
    text = one_line(value).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return _broken(text)


# What looks like a tag of ours ---------------------------------------------------------------------------------

# Where Unicode has other shapes of ASCII characters: full-width, small, mathematical, circled, raised.
_COMPATIBLE = (
    (0x80, 0x2FF),
    (0x1D00, 0x1DBF),
    (0x2070, 0x24FF),
    (0xFE50, 0xFE6F),
    (0xFF00, 0xFFEF),
    (0x1D400, 0x1D7FF),
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_NAMES = {"<": ("lt",), "/": ("sol",), "-": ("hyphen", "dash")}
# White space, controls, and characters that have no width or sit on the one before them.
_UNSEEN = (
    r"[\s\x00-\x1f\x7f-\x9f\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef]*+"
)


def _broken(data: str) -> str:
    return _lookalike().sub(r"\1\\", data)


@cache
def _lookalike() -> re.Pattern[str]:
    """What opens or closes a tag of ours, however it is written. Nothing in it can be matched in two ways, so that it
    takes linear time on any text. It is made when it is first needed, which takes some 20 ms."""
    shapes: dict[str, str] = {}
    for first, last in _COMPATIBLE:
        for each in map(chr, range(first, last + 1)):
            plain = unicodedata.normalize("NFKC", each).casefold()
            shapes[plain] = shapes.get(plain, "") + each

    def like(character: str) -> str:
        """A character in any of its shapes, or as an entity, which may itself be escaped once more."""
        both = {character, character.upper()}
        drawn = "".join(sorted(both)) + shapes.get(character, "") + (_DASHES if character == "-" else "")
        entities = [*_NAMES.get(character, ()), *(rf"#(?:0*+{ord(each)}|x0*+{ord(each):x})" for each in sorted(both))]
        return f"(?:[{re.escape(drawn)}]|&(?:amp;|#0*+38;|#x0*+26;)*+(?:{'|'.join(entities)});?)"

    name = _UNSEEN.join(map(like, _TAG))
    return re.compile(rf"({like('<')})(?={_UNSEEN}(?:{like('/')}{_UNSEEN})*+{name})", re.IGNORECASE)
