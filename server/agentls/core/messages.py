"""Messages: one frozen value for delivery, log and request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentls.core.blocks import ContentBlock, ToolResultBlock
from agentls.core.ids import CallId, MessageId, result_message
from agentls.core.sources import MessageSource, ToolSource

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """Identity, role, content and source; the id is minted once and survives every boundary."""

    id: MessageId
    role: Role
    content: tuple[ContentBlock, ...]
    source: MessageSource
    indices: tuple[int, ...] = ()
    """Of an answer: for each block its place of first appearance in the stream, so that a dropped one shifts none."""


def tool_result(call_id: CallId, content: tuple[ContentBlock, ...], *, is_error: bool = False) -> Message:
    """The message that answers a call: one result block, its id made from the call's."""
    block = ToolResultBlock(tool_call_id=call_id, content=content, is_error=is_error)
    return Message(id=result_message(call_id), role="user", content=(block,), source=ToolSource(call_id=call_id))
