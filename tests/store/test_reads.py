"""Pages of turns, the list, and that neither grows dear with the log."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from agentls.core.blocks import TextBlock
from agentls.core.errors import UserError
from agentls.core.events import (
    AgentConfig,
    AssistantMessage,
    EndSeed,
    Event,
    EventData,
    ModelRef,
    SessionTitle,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import MessageId
from agentls.core.messages import Message
from agentls.core.reasons import RetryTrigger, Stop
from agentls.core.sources import ModelSource, Notice, PluginSource
from agentls.store import reader, schema
from agentls.store.log import SqliteLog
from agentls.store.sqlite import SESSIONS_FILE, SqliteStore
from tests.store.support import A, B, alter, events, header, message, said, turn


async def log_of(store: SqliteStore, *batches: tuple[Event, ...]) -> SqliteLog:
    log = await store.create(header())
    for batch in batches:
        await log.commit(batch, durable=False)
    return log


def seqs(page: tuple[Event, ...]) -> list[int]:
    return [event.seq for event in page]


async def test_a_page_is_whole_turns_and_as_many_as_it_takes(store: SqliteStore) -> None:
    # Four events a turn: start, message, end, and one after it.
    log = await log_of(store, *(turn(n, (n - 1) * 4) for n in range(1, 6)))
    assert seqs(await log.page(20, 1)) == list(range(16, 20))
    assert seqs(await log.page(20, 4)) == list(range(16, 20))
    assert seqs(await log.page(20, 5)) == list(range(12, 20))
    assert seqs(await log.page(16, 4)) == list(range(12, 16))
    assert seqs(await log.page(4, 4)) == list(range(4))
    assert seqs(await log.page(20, 1000)) == seqs(await log.page(10**6, 1000)) == list(range(20))
    assert await log.page(0, 10) == ()


async def test_a_turn_that_is_open_at_the_edge_is_in_no_page(store: SqliteStore) -> None:
    log = await log_of(
        store, turn(1, 0), turn(2, 4, said_in_it=5), events(12, TurnStart(3, RetryTrigger(2)), said("on"))
    )
    assert seqs(await log.page(14, 1)) == list(range(4, 12))
    # Inside turn 2: before its end only turn 1 is whole.
    for before in (5, 6, 9, 10):
        assert seqs(await log.page(before, 1)) == list(range(4))
    # Its end has been reached.
    assert seqs(await log.page(11, 1)) == list(range(4, 11))


async def test_what_stands_before_the_first_turn_belongs_to_it(store: SqliteStore) -> None:
    log = await log_of(store, message(0) + message(1), turn(1, 2), turn(2, 6))
    assert seqs(await log.page(10, 1)) == list(range(6, 10))
    assert seqs(await log.page(6, 1)) == list(range(6))
    assert await log.page(0, 1) == ()


async def test_pages_give_every_event_once(store: SqliteStore) -> None:
    batches, start = [], 0
    for number in range(1, 30):
        batches.append(turn(number, start, said_in_it=number % 7))
        start = batches[-1][-1].seq + 1
    log = await log_of(store, message(0), *(tuple(_later(batch)) for batch in batches))
    before, pages = start + 1, []
    while page := await log.page(before, 9):
        assert page[0].seq == 0 or isinstance(page[0].data, TurnStart)
        pages.append(page)
        before = page[0].seq
    assert seqs(sum(reversed(pages), ())) == list(range(start + 1))


def _later(batch: tuple[Event, ...]) -> list[Event]:
    return [Event(event.seq + 1, event.time, event.data) for event in batch]


@pytest.mark.parametrize("query", [reader.FIND, reader.LENGTH, reader.EVENTS, reader.LAST_START, reader.LAST_END])
def test_no_read_of_a_session_scans(query: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema.SESSIONS.tables)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", [1] * query.count("?")).fetchall()
    connection.close()
    steps = [step for *_, step in plan]
    assert steps
    assert all(step.startswith("SEARCH") for step in steps), steps
    if query in (reader.LAST_START, reader.LAST_END):
        assert steps == ["SEARCH event USING COVERING INDEX turn (type=? AND rowid>? AND rowid<?)"]


async def test_the_list_is_newest_first_and_goes_on_where_it_stopped(store: SqliteStore) -> None:
    times = {"a": 5, "b": 9, "c": 9, "d": 1, "e": 7}
    for session, time in times.items():
        log = await store.create(header(session))
        await log.commit(message(0, time=time), durable=False)
    order = ["c", "b", "e", "a", "d"]
    found, cursor, pages = [], None, 0
    while True:
        rows, cursor = await store.list(limit=2, after=cursor)
        found += [row.header.id for row in rows]
        pages += 1
        if cursor is None:
            break
    assert found == order
    assert pages == 3
    rows, cursor = await store.list(limit=5)
    assert [row.last_time for row in rows] == [9, 9, 7, 5, 1]
    assert cursor is None


async def test_a_session_that_moves_up_is_neither_lost_nor_shown_twice_below(store: SqliteStore) -> None:
    logs = {}
    for time, session in enumerate("abcd"):
        logs[session] = await store.create(header(session))
        await logs[session].commit(message(0, time=time), durable=False)
    first, cursor = await store.list(limit=2)
    await logs["a"].commit(message(1, time=99), durable=False)
    rest, _ = await store.list(limit=2, after=cursor)
    assert [row.header.id for row in first + rest] == ["d", "c", "b"]
    newest, _ = await store.list(limit=1)
    assert [(row.header.id, row.events) for row in newest] == [("a", 2)]


async def test_the_list_of_one_workspace(store: SqliteStore) -> None:
    for n in range(6):
        log = await store.create(header(f"s{n}", workspace=f"file:///w{n % 2}"))
        await log.commit(message(0, time=n), durable=False)
    rows, cursor = await store.list("file:///w1", limit=2)
    assert [row.header.id for row in rows] == ["s5", "s3"]
    rows, cursor = await store.list("file:///w1", limit=2, after=cursor)
    assert [row.header.id for row in rows] == ["s1"]
    assert cursor is None
    assert await store.list("file:///other") == ((), None)


async def test_the_list_tells_the_model_and_in_one_plain_line_what_was_said_last(store: SqliteStore) -> None:
    log = await store.create(header())
    seen: list[tuple[str | None, ModelRef | None]] = []

    async def look(*payloads: EventData) -> None:
        await log.commit(events(len(await log.read()), *payloads), durable=False)
        ((row,), _) = await store.list()
        seen.append((row.summary, row.model))

    one, two = ModelRef("p", "one"), ModelRef("q", "two")
    await look(AgentConfig(mode="ask"))
    await look(AgentConfig(model=one), said("  first\nquestion \x1b "))
    await look(answer("an answer"), AgentConfig(mode="read-only"))
    await look(answer(" "), replace(answer("x"), message=replace(answer("x").message, content=())))
    await look(UserMessage(Message(MessageId("c"), "user", (TextBlock("told"),), PluginSource("git", Notice("s")))))
    await look(AgentConfig(model=two), said("a"), answer("b" * 10_000))
    assert seen == [
        (None, None),
        ("first question ␛", one),
        ("an answer", one),
        ("an answer", one),
        ("an answer", one),
        ("b" * 119 + "…", two),
    ]


def answer(text: str) -> AssistantMessage:
    message = Message(MessageId("a1.1.1"), "assistant", (TextBlock(text),), ModelSource("p", "one"), (0,))
    return AssistantMessage(1, 1, 1, message, Stop())


async def test_a_fork_is_stored_in_one_batch_and_listed_with_what_its_seed_says(store: SqliteStore) -> None:
    told = SessionTitle("of the parent", "model")
    model = ModelRef("p", "one")
    seed = [told, AgentConfig(model=model), *(said(f"message {n}") for n in range(4_996)), answer("the last")]
    batch = events(0, *seed, EndSeed())
    log = await store.create(replace(header(B), parent=A, seed_length=len(batch)))
    await log.commit(batch, durable=True)
    ((row,), _) = await store.list()
    assert (row.header.parent, row.header.seed_length, row.events) == (A, 5_000, 5_000)
    assert (row.title, row.summary, row.model, row.damaged) == ("of the parent", "the last", model, None)
    assert await log.read() == batch
    await log.close()
    log = await store.open(B)
    await log.commit(message(5_000), durable=True)
    assert (await log.read(4_999))[-1] == message(5_000)[0]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.x", "1.2.3"])
async def test_a_cursor_that_is_not_ours_is_refused(store: SqliteStore, cursor: str) -> None:
    with pytest.raises(UserError, match="is no place in the list"):
        await store.list(after=cursor)


async def test_a_row_of_bytes_that_are_no_text_is_listed_all_the_same(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    alter(tmp_path / SESSIONS_FILE, "UPDATE session SET title = CAST(x'ff41' AS TEXT)")
    ((summary,), _) = await store.list()
    assert summary.title == "\ufffdA"
    await store.close()


async def test_a_read_that_starts_before_the_log_is_a_mistake(store: SqliteStore) -> None:
    log = await log_of(store, message(0))
    with pytest.raises(ValueError, match="starts at 0"):
        await log.read(-1)


async def test_a_long_log_is_read_whole(store: SqliteStore) -> None:
    log = await store.create(header())
    batch = tuple(event for seq in range(2500) for event in message(seq))
    await log.commit(batch, durable=False)
    assert await log.read() == batch
    assert await log.read(999, 2001) == batch[999:2001]


async def test_headers_are_those_of_the_store_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    await store.close()
    store = SqliteStore(tmp_path)
    log = await store.open(A)
    assert log.header == header()
    await log.commit(message(1), durable=True)
    assert await log.read() == message(0) + message(1)
    await store.close()
