"""Any sequence of batches, read back, is what was committed."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock, UnknownBlock
from agentls.core.events import (
    Dequeue,
    Event,
    EventData,
    SessionTitle,
    ToolCall,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from agentls.core.ids import CallId, MessageId, SessionId
from agentls.core.messages import Message
from agentls.core.reasons import Completed, RetryTrigger
from agentls.core.sources import UserSource
from agentls.store.sqlite import SqliteStore
from tests.store.support import header
from tests.store.test_payload import JSON, TEXT

NUMBER = st.integers(0, 2**31)
BLOCK: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextBlock, TEXT),
    st.builds(ReasoningBlock, TEXT),
    st.builds(UnknownBlock, st.just("later"), st.dictionaries(st.sampled_from("abc"), JSON, max_size=2)),
)
MESSAGE = st.builds(
    Message,
    TEXT.map(MessageId),
    st.sampled_from(["user", "assistant"]),
    st.lists(BLOCK, max_size=3).map(tuple),
    st.just(UserSource()),
)
DATA: st.SearchStrategy[EventData] = st.one_of(
    st.builds(UserMessage, MESSAGE),
    st.builds(Dequeue, TEXT.map(MessageId), NUMBER, st.none() | NUMBER),
    st.builds(TurnStart, NUMBER, st.builds(RetryTrigger, NUMBER)),
    st.builds(TurnEnd, NUMBER, st.just(Completed())),
    st.builds(ToolCall, NUMBER, NUMBER, TEXT.map(CallId), TEXT, TEXT, st.none() | TEXT),
    st.builds(SessionTitle, TEXT, TEXT),
    st.builds(UnknownEvent, st.sampled_from(["x/y", "ü"]), st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)),
)
EVENT = st.builds(lambda time, data: Event(0, time, data, isinstance(data, UnknownEvent)), st.integers(0, 2**62), DATA)
STEP = st.tuples(st.integers(0, 2), st.lists(EVENT, max_size=20), st.booleans(), st.booleans())


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_what_is_read_is_what_was_committed(steps: list[tuple[int, list[Event], bool, bool]]) -> None:
    async def run(directory: Path) -> None:
        store = SqliteStore(directory)
        logs = [await store.create(header(f"s{n}")) for n in range(3)]
        expected: list[list[Event]] = [[], [], []]
        waiting = []
        for which, given_events, durable, waits in steps:
            first = len(expected[which])
            batch = [Event(seq, e.time, e.data, e.ignorable) for seq, e in enumerate(given_events, first)]
            expected[which] += batch
            waiting.append(asyncio.ensure_future(logs[which].commit(batch, durable=durable)))
            if waits:
                await waiting[-1]
        await asyncio.gather(*waiting)
        for log, events in zip(logs, expected, strict=True):
            assert await log.read() == tuple(events)
        await store.close()
        store = SqliteStore(directory)
        rows, _ = await store.list()
        assert {row.header.id: (row.events, row.last_time, row.damaged) for row in rows} == {
            f"s{n}": (len(events), events[-1].time, None) for n, events in enumerate(expected) if events
        }
        for n, events in enumerate(expected):
            if events:
                log = await store.open(SessionId(f"s{n}"))
                assert await log.read() == tuple(events)
                titles = [event.data.title for event in events if isinstance(event.data, SessionTitle)]
                assert [row.title for row in rows if row.header.id == f"s{n}"] == [titles[-1] if titles else None]
        await store.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))
