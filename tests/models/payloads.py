"""Short ways to write payloads of the dialect and to decode them."""

from __future__ import annotations

import json
from typing import Any

from agentls.core.assembler import check_stream
from agentls.core.blocks import ContentBlock, ToolCallBlock
from agentls.core.chunks import Chunk
from agentls.core.reasons import Failed, FinishReason
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.requests import assemble

Payload = dict[str, Any] | str


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    fragment: dict[str, Any] = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return fragment | ({} if index is None else {"index": index}) | ({} if id is None else {"id": id})


def decoded(*payloads: Payload, think_tags: bool = False, tail: str | None = None) -> list[Chunk]:
    decoder = OpenAiChatDecoder(think_tags=think_tags)
    chunks: list[Chunk] = []
    for payload in payloads:
        chunks += decoder.feed(payload if isinstance(payload, str) else json.dumps(payload))
    chunks += decoder.close(tail)
    return list(check_stream(chunks))


def blocks(*payloads: Payload, think_tags: bool = False) -> tuple[ContentBlock, ...]:
    return assemble(decoded(*payloads, think_tags=think_tags)).blocks()


def calls(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that these fragments, one in a chunk, make."""
    found = blocks(*(delta(tool_calls=[fragment]) for fragment in fragments), delta("tool_calls"))
    return [(block.id, block.name, block.arguments) for block in found if isinstance(block, ToolCallBlock)]


def finish(*payloads: Payload, tail: str | None = None) -> FinishReason:
    return assemble(decoded(*payloads, tail=tail)).finish


def code(*payloads: Payload, tail: str | None = None) -> str:
    reason = finish(*payloads, tail=tail)
    assert isinstance(reason, Failed), reason
    return reason.failure.code
