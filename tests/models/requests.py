"""Short ways to write requests and to read streams in tests."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable

from agentls.core.assembler import BlockAssembler, check_stream
from agentls.core.blocks import ContentBlock, TextBlock
from agentls.core.chunks import Chunk, TextDelta
from agentls.core.ids import MessageId
from agentls.core.messages import Message, Role
from agentls.core.reasons import Failed, Failure
from agentls.core.sources import MessageSource, ModelSource, UserSource
from agentls.models.catalog import ModelRow
from agentls.models.model import ModelRequest

ROW = ModelRow("test", "m1", "openai-chat", base_url="http://127.0.0.1:9/v1")


def user(*content: ContentBlock | str) -> Message:
    return message("user", UserSource(), *content)


def assistant(*content: ContentBlock | str) -> Message:
    return message("assistant", ModelSource("test", "m1"), *content)


def message(role: Role, source: MessageSource, *content: ContentBlock | str) -> Message:
    blocks = tuple(TextBlock(block) if isinstance(block, str) else block for block in content)
    return Message(MessageId("m"), role, blocks, source)


def asking(*messages: Message | str, system: str = "") -> ModelRequest:
    said = tuple(user(each) if isinstance(each, str) else each for each in messages)
    return ModelRequest(system, said or (user("hi"),))


async def read(stream: AsyncIterable[Chunk]) -> list[Chunk]:
    """All chunks of a stream, checked against the chunk grammar."""
    return list(check_stream([chunk async for chunk in stream]))


def assemble(chunks: Iterable[Chunk]) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def texts(chunks: Iterable[Chunk]) -> list[str]:
    return [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]


def failure_of(chunks: Iterable[Chunk]) -> Failure:
    """The failure that a stream ended with."""
    reason = assemble(chunks).finish
    assert isinstance(reason, Failed), reason
    return reason.failure
