"""Logs of sessions as agents write them, for the programs that measure them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from agentls.core.blocks import TextBlock
from agentls.core.chunks import Usage
from agentls.core.events import (
    AssistantMessage,
    Dequeue,
    Enqueue,
    Event,
    EventData,
    Fate,
    InboxItem,
    RequestSent,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import MessageId, assistant_message
from agentls.core.inbox import content_hash
from agentls.core.messages import Message
from agentls.core.reasons import Completed, MessageTrigger, Stop
from agentls.core.sources import ModelSource, UserSource
from agentls.store.log import SqliteLog

LONG_LOG = 51_200
"""Events of a long session."""
EVENTS_A_TURN = 9
"""Events of a small turn."""
_USAGE = Usage(120, 20, 1000)


def small_turn(turn: int) -> list[tuple[list[EventData], bool]]:
    """The batches of one question of 25 characters and its answer of 80, and whether each is durable."""
    message = MessageId(str(uuid.uuid4()))
    content = (TextBlock(f"please explain turn {turn:05}"),)
    item = InboxItem(message, "queued", True, content, UserSource(), content_hash(content), Fate("started", turn=turn))
    said = Message(message, "user", content, UserSource())
    answered = Message(
        assistant_message(turn, 1, 1), "assistant", (TextBlock("word " * 16),), ModelSource("provider", "model"), (0,)
    )
    claimed: list[EventData] = [
        Dequeue(message, turn, 1),
        TurnStart(turn, MessageTrigger((message,))),
        StepStart(turn, 1),
        UserMessage(said),
        RequestSent(turn, 1, 1, 0),
    ]
    return [
        ([Enqueue(item)], True),
        (claimed, True),
        ([AssistantMessage(turn, 1, 1, answered, Stop(), _USAGE)], False),
        ([StepEnd(turn, 1), TurnEnd(turn, Completed(), _USAGE)], True),
    ]


def numbered(payloads: Sequence[EventData], start: int) -> list[Event]:
    """Events of now."""
    now = time.time_ns() // 1_000_000
    return [Event(seq, now, payload) for seq, payload in enumerate(payloads, start)]


async def fill(log: SqliteLog, turns: int) -> int:
    """Write so many small turns to an empty log; how many events they are."""
    length = 0
    for first in range(1, turns + 1, 100):
        payloads: list[EventData] = []
        for turn in range(first, min(first + 100, turns + 1)):
            payloads += [event for batch, _ in small_turn(turn) for event in batch]
        await log.commit(numbered(payloads, length), durable=False)
        length += len(payloads)
    return length
