"""Blocks that are read from the log again, whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.pages import render, whole_block
from agentls.core.answer import error_result
from agentls.core.blocks import TextBlock
from agentls.core.bodies import PREVIEW_BYTES
from agentls.core.contexts import Contexts
from agentls.core.events import (
    AgentConfig,
    Dequeue,
    Event,
    EventData,
    SessionHeader,
    StepEnd,
    TurnEnd,
    TurnStart,
    Update,
    UserMessage,
)
from agentls.core.ids import BlockId, MessageId
from agentls.core.messages import Message
from agentls.core.reasons import Completed, InjectionTrigger
from agentls.core.rows import Block
from agentls.core.sources import Notice, PluginSource, Section, Snapshot
from agentls.store.sqlite import SqliteStore
from agentls.store.store import SessionLog
from tests.core.logs import answer, append, enqueue, opened, session, tool_call

LONG = "é🙂\n" * (300 * 1024 // 7)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[SessionLog]:
    store = SqliteStore(tmp_path / "state")
    yield await store.create(SessionHeader("s", "file:///w", "/w", 0))
    await store.close()


async def written(log: SessionLog, *payloads: EventData) -> tuple[Event, ...]:
    events = append(session(), *payloads)
    await log.commit(events, durable=False)
    return events


def call(turn: int, *, result: str = LONG, arguments: str = "{}") -> tuple[EventData, ...]:
    made = tool_call(turn=turn, arguments=arguments)
    return *opened(f"m{turn}", turn=turn), answer(turn=turn), made, error_result(made, "X", result)


def end(turn: int) -> tuple[EventData, ...]:
    return StepEnd(turn, 1), TurnEnd(turn, Completed())


def shot(turn: int, text: str) -> tuple[EventData, ...]:
    message = Message(MessageId(f"i{turn}"), "user", (TextBlock(text),), PluginSource("git", Notice("n")))
    return TurnStart(turn, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(turn, Completed())


def drawn(events: tuple[Event, ...], block: str) -> Block:
    _, blocks = render(events)
    return next(row for row in blocks if row.id == block)


@pytest.mark.parametrize("block", ["t1.1.1", "t2.1.1", "t3.1.1"])
async def test_a_long_result_is_read_whole_from_the_turn_that_it_stands_in(log: SessionLog, block: str) -> None:
    """In the first turn, in one between others, and in the one that is open."""
    events = await written(
        log, enqueue("m1"), *call(1), *end(1), AgentConfig(mode="ask"), *call(2), *end(2), AgentConfig(), *call(3)
    )
    row = drawn(events, block)
    assert len(row.body.encode()) <= PREVIEW_BYTES
    assert row.more
    whole = await whole_block(log, Contexts(), row)
    assert whole is not None
    assert (whole.id, whole.order, whole.state, whole.more) == (row.id, row.order, row.state, None)
    assert whole.body.endswith(f"```\n{LONG}```")


async def test_a_call_whose_result_is_not_there_yet_is_read_as_it_stands(log: SessionLog) -> None:
    raw = '{"text":"' + "é" * 100_000 + '"}'
    events = await written(log, enqueue("a"), *opened("a"), answer(), tool_call(arguments=raw))
    whole = await whole_block(log, Contexts(), drawn(events, "t1.1.1"))
    assert whole is not None
    assert whole.call is not None
    assert (whole.state, whole.call.arguments) == ("streaming", raw)
    assert raw in whole.body


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_huge_context_is_read_whole(log: SessionLog, turn: int) -> None:
    events = await written(log, *shot(1, LONG), *shot(2, LONG), AgentConfig(), *shot(3, LONG))
    row = drawn(events, f"c:i{turn}")
    assert (len(row.body.encode()) <= PREVIEW_BYTES, row.body) == (True, LONG[: len(row.body)])
    assert len(row.body.encode()) + (row.more or 0) == len(LONG.encode())
    whole = await whole_block(log, Contexts(), row)
    assert whole is not None
    assert (whole.body, whole.more, whole.summary) == (LONG, None, "n")


async def test_a_turn_of_many_events_is_read_to_its_end(log: SessionLog) -> None:
    calls = tuple(tool_call(n) for n in range(1, 101))
    results = (error_result(made, "X", f"{n} {LONG}" if n == 1 else "short") for n, made in enumerate(calls, start=1))
    answers = reversed(tuple(results))
    events = await written(log, enqueue("a"), *opened("a"), answer(), *calls, *answers, *end(1), *call(2), *end(2))
    whole = await whole_block(log, Contexts(), drawn(events, "t1.1.1"))
    assert whole is not None
    assert f"1 {LONG}" in whole.body


async def test_what_is_whole_is_not_read_again_and_what_is_in_no_log_is_not_found(log: SessionLog) -> None:
    row = Block(BlockId("x"), (2**53 - 1, 0), "error", "t", volatile=True)
    assert await whole_block(log, Contexts(), row) is row
    await written(log, enqueue("m1"), *call(1), *end(1))
    stray = Block(BlockId("t9.9.9"), (4, 0), "tool", "t", more=1)
    assert await whole_block(log, Contexts(), stray) is None
    assert (
        await whole_block(log, Contexts(), Block(BlockId("v1"), (2**53 - 1, 0), "tool", "t", more=1, volatile=True))
        is None
    )


async def test_a_row_reads_the_same_wherever_the_page_of_its_log_begins(log: SessionLog) -> None:
    """In which lane a message waited, and the first snapshot of a producer, may stand before the page."""
    promoted = Update(MessageId("b"), lane="steering"), Dequeue(MessageId("b"), 2, 1)
    first = *opened("a"), snapshot("p1.1.1"), answer(), *end(1)
    second = *opened("b", turn=2), snapshot("p2.1.1"), answer(turn=2), *end(2)
    events = await written(log, enqueue("a"), enqueue("b"), Dequeue(MessageId("a"), 1, 1), *first, *promoted, *second)
    contexts = Contexts()
    for event in events:
        contexts = contexts.apply(event)
    _, blocks = render(events)
    begins = [event.seq for event in events if isinstance(event.data, TurnStart)][-1]
    _, page = render(events[begins:], contexts)
    assert {row.id for row in page} > {"u:b", "c:p2.1.1"}
    assert page == [row for row in blocks if row.turn == 2]


def snapshot(name: str) -> UserMessage:
    source = PluginSource("git", Snapshot((Section("branch", name),)))
    return UserMessage(Message(MessageId(name), "user", (TextBlock(name),), source))
