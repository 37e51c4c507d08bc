"""Content blocks: the pieces that a message is made of, in no provider's shape."""

from __future__ import annotations

from dataclasses import dataclass

from agentls.core.ids import CallId
from agentls.core.json import JsonObject
from agentls.core.kinds import OpenUnion


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """The open union of blocks; tag `type`."""


@dataclass(frozen=True, slots=True)
class UnknownBlock(ContentBlock):
    """A block of a kind that this version does not know, kept as it came; drawn as text, skipped by dialects."""

    kind: str
    fields: JsonObject


BLOCKS: OpenUnion[ContentBlock] = OpenUnion("block", tag="type", unknown=UnknownBlock, keep_unreadable=True)


@BLOCKS.register("text")
@dataclass(frozen=True, slots=True)
class TextBlock(ContentBlock):
    """Visible prose."""

    text: str


@BLOCKS.register("reasoning")
@dataclass(frozen=True, slots=True)
class ReasoningBlock(ContentBlock):
    """The model's chain of thought, apart from its visible text."""

    text: str


@BLOCKS.register("tool-call")
@dataclass(frozen=True, slots=True)
class ToolCallBlock(ContentBlock):
    """A call; `arguments` is the JSON text exactly as the model wrote it, which may not parse."""

    id: CallId
    name: str
    arguments: str
    provider_id: str | None = None
    """The provider's own id of the call; not unique, never relied on."""


@BLOCKS.register("tool-result")
@dataclass(frozen=True, slots=True)
class ToolResultBlock(ContentBlock):
    """The answer to a call."""

    tool_call_id: CallId
    content: tuple[ContentBlock, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """A durable reference to stored bytes; `width` and `height` in pixels."""

    id: str
    media_type: str
    width: int | None = None
    height: int | None = None


@BLOCKS.register("image")
@dataclass(frozen=True, slots=True)
class ImageBlock(ContentBlock):
    """An image by reference; its bytes are never in the log."""

    attachment: Attachment


def text_of(blocks: tuple[ContentBlock, ...]) -> str:
    """The text blocks joined with nothing between, as the model gets them."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
