"""A fixed estimate of token counts, for the ledger and for budgets before a provider has counted.

Four characters a token, and four more for each block and each message's role.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from agentls.core.codec import encode
from agentls.core.events import ToolSchema
from agentls.core.json import canonical
from agentls.core.messages import Message

_OVERHEAD = 4


def of_text(text: str) -> int:
    """Tokens of a bare text."""
    return -(-len(text) // 4)


def of_block(block: ContentBlock) -> int:
    """Tokens of one block."""
    match block:
        case TextBlock(text) | ReasoningBlock(text):
            return of_text(text) + _OVERHEAD
        case ToolCallBlock(name=name, arguments=arguments):
            return of_text(name) + of_text(arguments) + _OVERHEAD
        case ToolResultBlock(content=content):
            return sum(map(of_block, content)) + _OVERHEAD
    return of_text(canonical(encode(block))) + _OVERHEAD


def of_message(message: Message) -> int:
    """Tokens of a message."""
    return sum(map(of_block, message.content)) + _OVERHEAD


def of_system(system: str) -> int:
    """Tokens of a system prompt; an empty one costs nothing."""
    return of_text(system) + _OVERHEAD if system else 0


def of_tools(tools: Sequence[ToolSchema]) -> int:
    """Tokens of the tool schemas; none cost nothing."""
    return of_text(canonical([encode(tool) for tool in tools])) + _OVERHEAD if tools else 0
