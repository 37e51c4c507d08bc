"""Short ways to write logs in tests."""

from __future__ import annotations

from collections.abc import Sequence

from agentls.core.blocks import ContentBlock, TextBlock
from agentls.core.events import (
    AssistantMessage,
    Enqueue,
    Event,
    EventData,
    Fate,
    InboxItem,
    Lane,
    RequestSent,
    SessionHeader,
    StepStart,
    ToolCall,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import CallId, MessageId, assistant_message, call
from agentls.core.inbox import content_hash
from agentls.core.messages import Message
from agentls.core.reasons import FinishReason, MessageTrigger, Stop
from agentls.core.session import Session, SessionState
from agentls.core.sources import ModelSource, Notice, PluginSource, UserSource

HEADER = SessionHeader("s", "file:///w", "/w", 0)


def session(*payloads: EventData) -> Session:
    new = Session(HEADER)
    append(new, *payloads)
    return new


def append(to: Session, *payloads: EventData) -> tuple[Event, ...]:
    batch = to.prepare(payloads, time=0)
    assert to.publish(batch) == []
    return batch.events


def state(*payloads: EventData) -> SessionState:
    return session(*payloads).state


def item(name: str, lane: Lane = "queued", *, wakeup: bool = True) -> InboxItem:
    content = (TextBlock(name),)
    return InboxItem(MessageId(name), lane, wakeup, content, UserSource(), content_hash(content), Fate("queued"))


def enqueue(name: str, lane: Lane = "queued", *, wakeup: bool = True, position: int | None = None) -> Enqueue:
    return Enqueue(item(name, lane, wakeup=wakeup), position)


def user(name: str) -> UserMessage:
    return UserMessage(Message(MessageId(name), "user", (TextBlock(name),), UserSource()))


def context(name: str) -> UserMessage:
    source = PluginSource("git", Notice("something moved"))
    return UserMessage(Message(MessageId(name), "user", (TextBlock(name),), source))


def opened(*names: str, turn: int = 1) -> tuple[EventData, ...]:
    """A turn whose first request is out."""
    ids = tuple(map(MessageId, names))
    return (
        TurnStart(turn, MessageTrigger(ids)),
        StepStart(turn, 1),
        *map(user, names),
        RequestSent(turn, 1, 1, 0),
    )


def answer(
    *content: ContentBlock, turn: int = 1, step: int = 1, finish: FinishReason | None = None
) -> AssistantMessage:
    message = Message(
        assistant_message(turn, step, 1), "assistant", content, ModelSource("p", "m"), tuple(range(len(content)))
    )
    return AssistantMessage(turn, step, 1, message, finish or Stop())


def tool_call(n: int = 1, *, turn: int = 1, step: int = 1, name: str = "read", arguments: str = "{}") -> ToolCall:
    return ToolCall(turn, step, call(turn, step, n), name, arguments)


def ids_of(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


CALL = CallId("t1.1.1")
