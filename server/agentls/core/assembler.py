"""Chunks to blocks, also for a stream cut short: the one assembly that every dialect's stream goes through.

It is tolerant by design (rules of the harness, section 1.6 of its core study): deltas may come without a start, a
closed block never changes again, the first close counts. `check_stream` below is the strict grammar for tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from agentls.core.blocks import BLOCKS, ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    ReplayEnvelope,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from agentls.core.errors import LogicError
from agentls.core.ids import CallId
from agentls.core.reasons import Aborted, Failed, FinishReason, MaxTokens, Stop


@dataclass(frozen=True, slots=True)
class Placed:
    """A block and its place of first appearance in the stream, from 0."""

    index: int
    block: ContentBlock


@dataclass(slots=True)
class _Partial:
    place: int
    block_type: str
    text: list[str] = field(default_factory=list)
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closed: ContentBlock | None = None

    def assembled(self, index: int) -> ContentBlock | None:
        """The block so far, or None for a kind that only its own close could build."""
        if self.closed is not None:
            return self.closed
        match self.block_type:
            case "text":
                return TextBlock("".join(self.text))
            case "reasoning":
                return ReasoningBlock("".join(self.text))
            case "tool-call":
                call = CallId(self.call_id or f"call-{index}")
                return ToolCallBlock(id=call, name=self.name, arguments="".join(self.arguments))
        return None


class BlockAssembler:
    """Takes chunks in order; reading is pure and may be repeated at any time."""

    def __init__(self) -> None:
        self._partials: dict[int, _Partial] = {}
        self._replay: ReplayEnvelope | None = None
        self.finish: FinishReason = Stop()
        """The last finish that came; `Stop` until one does."""
        self.usage: Usage | None = None

    def push(self, chunk: Chunk) -> None:
        """Take the next chunk; one of another type is a TypeError, since the protocol is closed."""
        match chunk:
            case BlockStart(index, block_type):
                self._open(index, block_type)
            case TextDelta(index, text):
                self._open(index, "text").text.append(text)
            case ReasoningDelta(index, text):
                self._open(index, "reasoning").text.append(text)
            case ToolCallDelta(index, call_id, name, arguments):
                partial = self._open(index, "tool-call")
                partial.call_id = call_id
                partial.name = name or partial.name
                partial.arguments.append(arguments)
            case BlockEnd(index, block):
                partial = self._open(index, BLOCKS.kind_of(block) or "")
                partial.closed = partial.closed or block
            case UsageChunk(usage):
                self.usage = usage
            case Finish(reason, replay_state):
                self.finish = reason
                self._replay = replay_state
            case _:
                _reject(chunk)

    def _open(self, index: int, block_type: str) -> _Partial:
        # A delta after the close lands in lists that nobody reads any more.
        return self._partials.setdefault(index, _Partial(len(self._partials), block_type))

    def place(self, index: int) -> int:
        """The place of first appearance of the block that chunks call `index`; KeyError for one never seen."""
        return self._partials[index].place

    def blocks(self) -> tuple[ContentBlock, ...]:
        """The blocks in order of first appearance. After a finish by output limit every call is left out, since a
        truncated call is not safe to run. A kind of a plugin that was never closed is a LogicError."""
        return tuple(placed.block for placed in self.placed())

    def placed(self) -> tuple[Placed, ...]:
        """`blocks()` with each block's place in the stream."""
        return tuple(placed for placed in self._all() if not self._is_cut(placed.block))

    def cut(self) -> tuple[Placed, ...]:
        """The calls that `blocks()` leaves out."""
        return tuple(placed for placed in self._all() if self._is_cut(placed.block))

    def interrupted(self) -> tuple[Placed, ...]:
        """What a stream that was cut short leaves: text and reasoning that is not blank. Never a call."""
        kept = []
        for index, partial in self._partials.items():
            block = partial.assembled(index)
            if isinstance(block, TextBlock | ReasoningBlock) and block.text.strip():
                kept.append(Placed(partial.place, block))
        return tuple(kept)

    def replay_state(self) -> ReplayEnvelope | None:
        """The provider's replay state, aligned with `blocks()`: its entries of dropped blocks are gone, and an
        envelope whose entries do not match the blocks seen is no use to anyone and left out whole."""
        envelope = self._replay
        if envelope is None or envelope.blocks is None:
            return envelope
        if len(envelope.blocks) != len(self._partials):
            return None
        kept = {placed.index for placed in self.placed()}
        if len(kept) == len(envelope.blocks):
            return envelope
        return ReplayEnvelope(
            envelope.response, tuple(entry for index, entry in enumerate(envelope.blocks) if index in kept)
        )

    def _all(self) -> Iterator[Placed]:
        for index, partial in self._partials.items():
            block = partial.assembled(index)
            if block is None:
                raise LogicError(f'block {index} of type "{partial.block_type}" was never closed')
            yield Placed(partial.place, block)

    def _is_cut(self, block: ContentBlock) -> bool:
        return isinstance(self.finish, MaxTokens) and isinstance(block, ToolCallBlock)


def _reject(chunk: object) -> None:
    raise TypeError(f"unknown stream chunk {chunk!r}")


def check_stream(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Pass a stream through and raise LogicError where it breaks the grammar that dialects must keep.

    The tolerant assembler hides such faults, so tests wrap every dialect's stream in this. An exception of the stream
    itself passes as it is.
    """
    open_blocks: dict[int, str] = {}
    usage_seen = False
    finished = False
    for chunk in chunks:
        if finished:
            raise LogicError(f"{chunk!r} comes after the finish")
        match chunk:
            case BlockStart(index, block_type):
                if index < 0:
                    raise LogicError(f"block index {index} is negative")
                if index in open_blocks:
                    raise LogicError(f"block {index} is open already")
                open_blocks[index] = block_type
            case TextDelta(index):
                _must_be(open_blocks, index, "text")
            case ReasoningDelta(index):
                _must_be(open_blocks, index, "reasoning")
            case ToolCallDelta(index):
                _must_be(open_blocks, index, "tool-call")
            case BlockEnd(index, block):
                _must_be(open_blocks, index, BLOCKS.kind_of(block) or open_blocks.get(index, ""))
                del open_blocks[index]
            case UsageChunk():
                if usage_seen:
                    raise LogicError("usage comes twice")
                usage_seen = True
            case Finish(reason):
                if open_blocks and not isinstance(reason, Failed | Aborted):
                    raise LogicError(f"block {min(open_blocks)} is still open at the finish")
                finished = True
            case _:
                assert_never(chunk)
        yield chunk
    if not finished:
        raise LogicError("the stream has no finish")


def _must_be(open_blocks: dict[int, str], index: int, block_type: str) -> None:
    if index not in open_blocks:
        raise LogicError(f"block {index} is not open")
    if open_blocks[index] != block_type:
        raise LogicError(f'block {index} is of type "{open_blocks[index]}", not "{block_type}"')
