"""Commits: order, gaps, groups, barriers, and what a cancelled caller leaves behind."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from agentls.core.errors import LogicError
from agentls.core.events import AgentConfig, Event, SessionTitle, UnknownEvent
from agentls.core.ids import SessionId
from agentls.store import writer
from agentls.store.sqlite import SESSIONS_FILE, SqliteStore
from tests.harness import until
from tests.store.support import TIME, A, B, alter, events, header, message, piece, said, turn


def levels(trace: list[str]) -> list[str]:
    """The `synchronous` in force at each commit, from the start."""
    level, out = "NORMAL", []
    for statement in trace:
        if match := re.fullmatch(r"PRAGMA synchronous = (\w+)", statement):
            level = match[1]
        elif statement == "COMMIT":
            out.append(level)
    return out


async def test_what_is_committed_is_read_back(store: SqliteStore) -> None:
    log = await store.create(header())
    await log.commit(turn(1, 0), durable=True)
    await log.commit(turn(2, 4), durable=False)
    assert await log.read() == turn(1, 0) + turn(2, 4)
    assert await log.read(3, 5) == (turn(1, 0) + turn(2, 4))[3:5]
    assert await log.read(8) == await log.read(100) == await log.read(5, 5) == ()


async def test_a_batch_that_leaves_a_gap_is_refused_and_the_right_one_goes_on(store: SqliteStore) -> None:
    log = await store.create(header())
    with pytest.raises(LogicError):
        await log.commit(message(1), durable=True)
    await log.commit(message(0), durable=True)
    for wrong in (0, 2, 5):
        with pytest.raises(LogicError, match="do not continue"):
            await log.commit(message(wrong), durable=True)
    await log.commit(message(1), durable=True)
    assert await log.read() == message(0) + message(1)


async def test_a_gap_inside_a_batch_is_refused_whole(store: SqliteStore) -> None:
    log = await store.create(header())
    with pytest.raises(LogicError, match=r"event 0 .* followed by 2"):
        await log.commit(message(0) + message(2), durable=True)
    assert await log.read() == ()


async def test_a_writer_that_another_one_overtook_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    alter(tmp_path / "state" / SESSIONS_FILE, "UPDATE session SET next_seq = 2")
    with pytest.raises(LogicError, match="do not continue"):
        await log.commit(message(1), durable=True)


async def test_a_gap_in_one_session_does_not_fail_the_group(store: SqliteStore) -> None:
    a, b = await store.create(header(A)), await store.create(header(B))
    outcomes = await asyncio.gather(
        a.commit(message(0), durable=True),
        b.commit(message(7), durable=True),
        a.commit(message(1), durable=True),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), LogicError, type(None)]
    assert await a.read() == message(0) + message(1)


async def test_a_value_that_the_database_cannot_hold_does_not_fail_the_group(store: SqliteStore) -> None:
    a, b = await store.create(header(A)), await store.create(header(B))
    outcomes = await asyncio.gather(
        a.commit(message(0), durable=True),
        b.commit(message(0, time=2**80), durable=True),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), OverflowError]
    await b.commit(message(0), durable=True)
    assert await b.read() == message(0)


async def test_the_name_of_a_type_that_failed_with_its_batch_is_written_by_the_next(store: SqliteStore) -> None:
    log = await store.create(header())
    good = tuple(Event(seq, TIME, UnknownEvent("x/new", {}), ignorable=True) for seq in range(2))
    with pytest.raises(OverflowError):
        await log.commit([Event(0, 2**80, good[0].data, ignorable=True), good[1]], durable=True)
    await log.commit(good, durable=True)
    assert await log.read() == good


@pytest.mark.parametrize("before", [0, 500])
async def test_an_event_that_json_cannot_hold_is_refused(store: SqliteStore, before: int) -> None:
    log, other = await store.create(header()), await store.create(header("b"))
    batch = events(0, *(said(f"{n}") for n in range(before)), UnknownEvent("x/y", {"n": float("nan")}))
    beside = other.commit(message(0), durable=True)
    with pytest.raises(LogicError, match=f'event {before} of type "x/y"'):
        await log.commit(batch, durable=True)
    await beside
    await log.commit(message(0), durable=True)
    assert await log.read() == await other.read() == message(0)


async def test_commits_that_wait_share_a_transaction(store: SqliteStore, trace: list[str]) -> None:
    logs = [await store.create(header(SessionId(f"s{n}"))) for n in range(40)]
    await asyncio.gather(*(log.commit(message(0), durable=True) for log in logs))
    assert trace.count("COMMIT") <= 20
    for log in logs:
        assert await log.read() == message(0)


async def test_a_batch_waits_for_the_one_that_is_said_to_follow_it(
    store: SqliteStore, trace: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are on disk by one sync, however late the second is within the time allowed."""
    monkeypatch.setattr(writer, "LINGER", 60)
    log = await store.create(header())
    first = asyncio.create_task(log.commit(message(0), durable=True, more=True))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not first.done()
    await log.commit(message(1), durable=True)
    await first
    assert trace.count("COMMIT") == 1


async def test_a_batch_that_nothing_follows_is_committed_alone(store: SqliteStore) -> None:
    log = await store.create(header())
    await log.commit(message(0), durable=True, more=True)
    assert await log.read() == message(0)


async def test_overlapping_commits_of_one_log_keep_the_order_of_the_calls(store: SqliteStore) -> None:
    log = await store.create(header())
    await asyncio.gather(*(log.commit(message(seq), durable=seq % 3 == 0) for seq in range(100)))
    assert [event.seq for event in await log.read()] == list(range(100))


async def test_a_durable_commit_syncs_and_another_does_not(store: SqliteStore, trace: list[str]) -> None:
    log = await store.create(header())
    for seq, durable in enumerate((True, False, False, True)):
        await log.commit(message(seq), durable=durable)
    assert levels(trace) == ["FULL", "NORMAL", "NORMAL", "FULL"]


async def test_one_durable_batch_makes_its_whole_group_durable(store: SqliteStore, trace: list[str]) -> None:
    logs = [await store.create(header(SessionId(f"s{n}"))) for n in range(10)]
    await asyncio.gather(*(log.commit(message(0), durable=n == 9) for n, log in enumerate(logs)))
    assert levels(trace)[-1] == "FULL"


async def test_a_barrier_without_events_writes_a_row_since_an_empty_transaction_syncs_nothing(
    store: SqliteStore, trace: list[str]
) -> None:
    log = await store.create(header())
    await log.commit(message(0), durable=False)
    trace.clear()
    await log.commit((), durable=True)
    assert [statement.split()[0] for statement in trace] == ["PRAGMA", "BEGIN", "UPDATE", "COMMIT"]
    assert await log.read() == message(0)


async def test_a_cancelled_caller_does_not_lose_its_batch(store: SqliteStore) -> None:
    log = await store.create(header())
    waiting = asyncio.create_task(log.commit(message(0), durable=True))
    await asyncio.sleep(0)
    waiting.cancel()
    never_ran = asyncio.create_task(log.commit(message(1), durable=True))
    never_ran.cancel()
    await log.commit(message(2), durable=True)
    assert [event.seq for event in await log.read()] == [0, 1, 2]
    assert waiting.cancelled()
    assert never_ran.cancelled()


async def test_close_waits_for_what_was_given(store: SqliteStore) -> None:
    log = await store.create(header())
    given = [asyncio.create_task(log.commit(message(seq), durable=True)) for seq in range(20)]
    await log.close()
    await log.close()
    await asyncio.gather(*given)
    with pytest.raises(LogicError, match="closed"):
        await log.commit(message(20), durable=True)
    again = await store.open(A)
    assert len(await again.read()) == 20


async def test_a_store_closes_its_logs_and_may_be_closed_twice(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    given = asyncio.create_task(log.commit(message(0), durable=False))
    await asyncio.gather(store.close(), store.close())
    await store.close()
    await given
    with pytest.raises(LogicError, match="closed"):
        await store.list()
    reopened = SqliteStore(tmp_path)
    assert await (await reopened.open(A)).read() == message(0)
    await reopened.close()


def test_a_store_is_made_before_the_loop_runs_and_survives_one_that_is_closed_early(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)

    async def leave_at_once() -> None:
        log = await store.create(header())
        await log.commit(message(0), durable=True)
        asyncio.ensure_future(log.commit(message(1), durable=True))  # noqa: RUF006 - nobody waits for it

    async def look() -> int:
        log = await store.open(B)
        stored = len(await log.read())
        await store.close()
        return stored

    asyncio.run(leave_at_once())
    other = SqliteStore(tmp_path)

    async def write_and_look() -> None:
        log = await other.create(header(B))
        await log.commit(message(0), durable=True)
        await other.close()

    asyncio.run(write_and_look())
    assert asyncio.run(look()) == 1


async def test_the_newest_title_is_in_the_row(store: SqliteStore) -> None:
    log = await store.create(header())
    await log.commit(events(0, SessionTitle("one", "model"), SessionTitle("two", "person")), durable=True)
    await log.commit(events(2, AgentConfig(mode="ask"), said("no title here")), durable=True)
    ((summary,), _) = await store.list()
    assert summary.title == "two"


async def test_at_rest_the_logs_of_the_databases_are_empty(store: SqliteStore, tmp_path: Path) -> None:
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    wals = [tmp_path / "state" / f"{name}-wal" for name in ("sessions.db", "drafts.db")]
    assert wals[0].stat().st_size > 0
    await until(lambda: all(wal.stat().st_size == 0 for wal in wals))
    await log.commit(message(1), durable=False)
    await until(lambda: all(wal.stat().st_size == 0 for wal in wals))
    assert await log.read() == message(0) + message(1)


async def test_a_long_run_of_writes_is_copied_while_it_goes_on(store: SqliteStore, tmp_path: Path) -> None:
    log = await store.create(header())
    text = "x" * 100
    for start in range(0, 3000, 3):
        batch = events(start, *(said(f"{start} {n} {text}") for n in range(3)))
        await log.commit(batch, durable=False)
    # Without copies it would be 8 MB.
    wal = tmp_path / "state" / "sessions.db-wal"
    assert wal.stat().st_size < 4_500_000
    await until(lambda: wal.stat().st_size == 0)


async def test_text_that_never_rests_is_copied_while_it_goes_on(store: SqliteStore, tmp_path: Path) -> None:
    """A long reply writes for minutes, and no event comes in between."""
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    wal = tmp_path / "state" / "drafts.db-wal"
    largest = 0
    for n in range(6000):
        log.append_drafts([piece("some text ", n)])
        await asyncio.sleep(0)
        largest = max(largest, wal.stat().st_size)
    # Without copies it would be 24 MB.
    assert largest < 12_000_000
    await until(lambda: wal.stat().st_size == 0)
