"""Deleting a session: all of it goes, or nothing, and nobody who has it open loses it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from pathlib import Path

import pytest

from agentls.core.errors import LogicError, SessionDamaged, SessionHeld, StoreUnavailable, UnknownSession
from agentls.core.ids import SessionId
from agentls.store.sqlite import DRAFTS_FILE, LOCKS_FOLDER, SESSIONS_FILE, SqliteStore
from tests.store.support import SECONDS, A, B, Child, alter, events, header, message, piece, said


async def fill(store: SqliteStore, session: SessionId, count: int = 3) -> None:
    """A closed session with events and text in flight."""
    log = await store.create(header(session))
    await log.commit(events(0, *(said(f"{session} {n}") for n in range(count))), durable=True)
    log.append_drafts([piece(f"{session} in flight"), piece("more", 20, message="a1.2.1")])
    await log.close()


def left_of(directory: Path, session: SessionId) -> tuple[int, int, int]:
    """How many rows, events and pieces of a session are on disk; events that are no session's count as its own."""
    rows = count(directory / SESSIONS_FILE, "SELECT count(*) FROM session WHERE id = ?", session)
    others = "SELECT 1 FROM session WHERE key = at >> 32 AND id <> ?"
    found = count(directory / SESSIONS_FILE, f"SELECT count(*) FROM event WHERE NOT EXISTS ({others})", session)
    return rows, found, count(directory / DRAFTS_FILE, "SELECT count(*) FROM piece WHERE session = ?", session)


def count(database: Path, query: str, *parameters: str) -> int:
    connection = sqlite3.connect(database)
    (found,) = connection.execute(query, parameters).fetchone()
    connection.close()
    assert isinstance(found, int)
    return found


async def listed(store: SqliteStore) -> list[str]:
    return [summary.header.id for summary in (await store.list())[0]]


async def test_all_of_a_session_goes_and_the_others_stay(store: SqliteStore, tmp_path: Path) -> None:
    for session in ("x", A, B):
        await fill(store, SessionId(session))
    assert left_of(tmp_path / "state", A) == left_of(tmp_path / "state", B) == (1, 3, 2)
    await store.delete(A)
    assert left_of(tmp_path / "state", A) == (0, 0, 0)
    assert left_of(tmp_path / "state", B) == (1, 3, 2)
    assert await listed(store) == [B, "x"]
    assert list((tmp_path / "state" / LOCKS_FOLDER).iterdir()) == []
    log = await store.open(B)
    assert [event.seq for event in await log.read()] == [0, 1, 2]
    assert len(await log.drafts()) == 2


async def test_a_session_that_is_gone_is_unknown_and_its_id_free(store: SqliteStore) -> None:
    await fill(store, B)
    await fill(store, A)
    await store.delete(A)
    for again in (store.open, store.delete):
        with pytest.raises(UnknownSession):
            await again(A)
    log = await store.create(header(A))
    await log.commit(message(0, "anew"), durable=True)
    assert await log.read() == message(0, "anew")
    assert await log.drafts() == ()


async def test_a_session_that_is_open_here_is_not_deleted(store: SqliteStore) -> None:
    log = await store.create(header(A))
    with pytest.raises(SessionHeld) as held:
        await store.delete(A)
    assert held.value.pid == os.getpid()
    await log.commit(message(0), durable=True)
    with pytest.raises(SessionHeld):
        await store.delete(A)
    assert await log.read() == message(0)
    await log.close()
    await store.delete(A)
    assert await listed(store) == []


async def test_a_session_that_another_process_has_open_is_not_deleted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    with Child("hold", tmp_path) as child:
        child.hear()
        with pytest.raises(SessionHeld) as held:
            await store.delete(A)
        assert held.value.pid == child.process.pid
    assert left_of(tmp_path, A) == (1, 3, 2)
    await store.delete(A)
    await store.close()


async def test_a_damaged_session_can_be_deleted_and_its_damage_is_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    alter(tmp_path / SESSIONS_FILE, "DELETE FROM event WHERE at = (SELECT min(at) FROM event)")
    log = await store.open(A)
    with pytest.raises(SessionDamaged):
        await log.read()
    await log.close()
    await store.delete(A)
    await fill(store, A)
    ((summary,), _) = await store.list()
    assert summary.damaged is None
    await store.close()


async def test_who_gives_up_waiting_or_closes_the_store_still_has_it_deleted(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    waiting = asyncio.create_task(store.delete(A))
    await asyncio.sleep(0)
    waiting.cancel()
    unknown = asyncio.create_task(store.delete(B))  # Fails when nobody hears it any more.
    await asyncio.sleep(0)
    unknown.cancel()
    await store.close()
    assert waiting.cancelled()
    assert unknown.cancelled()
    assert left_of(tmp_path, A) == (0, 0, 0)
    with pytest.raises(LogicError, match="closed"):
        await store.delete(B)


@pytest.mark.parametrize("statement", ["BEGIN", "DELETE FROM event", "DELETE FROM session", "COMMIT"])
async def test_a_process_that_dies_before_it_is_done_leaves_the_session_whole(tmp_path: Path, statement: str) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    await store.close()
    with Child("delete_and_die_at", tmp_path, statement) as child:
        assert child.hear() == "deleting"
        assert child.hear() == ""
        assert child.process.wait() < 0
    store = SqliteStore(tmp_path)
    assert left_of(tmp_path, A) == (1, 3, 2)
    log = await store.open(A)
    assert [event.seq for event in await log.read()] == [0, 1, 2]
    await log.close()
    await store.delete(A)
    assert left_of(tmp_path, A) == (0, 0, 0)
    await store.close()


async def test_text_in_flight_that_a_dead_process_left_of_a_deleted_session_goes_at_the_next_start(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    await fill(store, B)
    await store.close()
    # While this is locked nobody removes text in flight: the process dies between the two databases, or gives up there.
    lock = sqlite3.connect(tmp_path / DRAFTS_FILE, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with Child("delete", tmp_path) as child:
        until = time.monotonic() + SECONDS
        while left_of(tmp_path, A)[0]:
            assert time.monotonic() < until
        child.kill()
    lock.execute("ROLLBACK")
    lock.close()
    assert left_of(tmp_path, A) == (0, 0, 2)
    store = SqliteStore(tmp_path)
    assert left_of(tmp_path, A) == (0, 0, 0)
    assert left_of(tmp_path, B) == (1, 3, 2)
    await store.close()


async def test_text_in_flight_of_a_session_that_is_being_made_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header(A))
    log.append_drafts([piece("first")])
    await SqliteStore(tmp_path).close()
    assert await log.drafts() == (piece("first"),)
    await store.close()


def test_a_disk_that_takes_nothing_keeps_the_session_whole(tmp_path: Path) -> None:
    with Child("delete_without_writes", tmp_path) as child:
        assert child.hear().startswith(f'refused: cannot write to the session store "{tmp_path / SESSIONS_FILE}')
        assert child.hear() == "whole"
        assert child.hear() == "deleted"


async def test_a_file_that_was_moved_is_missed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await fill(store, A)
    path, elsewhere = tmp_path / SESSIONS_FILE, tmp_path / "elsewhere"
    path.rename(elsewhere)
    with pytest.raises(StoreUnavailable, match="was moved or removed"):
        await store.delete(A)
    elsewhere.rename(path)
    await store.delete(A)
    assert await listed(store) == []
    await store.close()
