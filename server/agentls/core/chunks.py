"""The stream-chunk protocol between a dialect and the assembler: a closed union.

`index` names a block within one answer; it is a non-negative int that the dialect chooses, in no special order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentls.core.blocks import ContentBlock
from agentls.core.json import JsonValue
from agentls.core.reasons import FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts in disjoint buckets: `input_tokens` is uncached input only; `reasoning_tokens` is a part of
    `output_tokens` and never added to it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def total(self) -> int:
        """All tokens of the request, each counted once."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """The sum, bucket by bucket."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()
"""Nothing spent."""


@dataclass(frozen=True, slots=True)
class ReplayEnvelope:
    """What a provider wants back with this answer: once for all of it, and optionally once a block in first-seen
    order."""

    response: JsonValue
    blocks: tuple[JsonValue, ...] | None = None


@dataclass(frozen=True, slots=True)
class BlockStart:
    """A block opens; `block_type` is its kind."""

    index: int
    block_type: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of a text block."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of a reasoning block."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call: its provider's id and name as far as known, and the next piece of the arguments' text."""

    index: int
    id: str
    name: str | None
    arguments_delta: str


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """A block is complete; `block` counts over what the deltas gave."""

    index: int
    block: ContentBlock


@dataclass(frozen=True, slots=True)
class UsageChunk:
    """The token counts of the request so far."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the stream; a failure is an end too."""

    reason: FinishReason
    replay_state: ReplayEnvelope | None = None


Chunk: TypeAlias = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | Finish
