"""Whose files these are, how new, and who may read them."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentls.core.errors import SessionDamaged, UnsupportedFormat, UserError
from agentls.core.events import FORMAT_VERSION, SessionHeader, UnknownEvent
from agentls.store.sqlite import DRAFTS_FILE, LOCKS_FOLDER, SESSIONS_FILE, SqliteStore
from tests.store.support import A, alter, events, header, message


@pytest.mark.parametrize("name", [SESSIONS_FILE, DRAFTS_FILE])
async def test_a_newer_store_is_refused_before_anything_else(tmp_path: Path, name: str) -> None:
    """Statement 41."""
    await SqliteStore(tmp_path).close()
    connection = sqlite3.connect(tmp_path / name)
    connection.executescript("PRAGMA user_version = 2; DROP TABLE pulse; CREATE TABLE strange (x);")
    connection.close()
    before = (tmp_path / name).read_bytes()
    with pytest.raises(UnsupportedFormat, match="has format 2 and this agentls knows 1; upgrade agentls"):
        SqliteStore(tmp_path)
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize("name", [SESSIONS_FILE, DRAFTS_FILE])
@pytest.mark.parametrize(
    "statement",
    ["PRAGMA application_id = 7", "CREATE TABLE theirs (x)", "PRAGMA user_version = 5"],
)
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, name: str, statement: str) -> None:
    connection = sqlite3.connect(tmp_path / name)
    connection.execute(statement)
    connection.commit()
    connection.close()
    before = (tmp_path / name).read_bytes()
    with pytest.raises(UserError, match="belongs to another program; move it away") as refused:
        SqliteStore(tmp_path)
    assert str(tmp_path / name) in str(refused.value)
    assert (tmp_path / name).read_bytes() == before


def test_the_sessions_of_one_file_are_not_the_drafts_of_another(tmp_path: Path) -> None:
    SqliteStore(tmp_path)
    (tmp_path / SESSIONS_FILE).rename(tmp_path / DRAFTS_FILE)
    with pytest.raises(UserError, match="belongs to another program"):
        SqliteStore(tmp_path)


async def test_a_session_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    """Statement 41."""
    store = SqliteStore(tmp_path)
    newer = SessionHeader(A, "file:///w", "/w", 0, version=FORMAT_VERSION + 1)
    log = await store.create(newer)
    await log.commit(message(0), durable=True)
    await log.close()
    with pytest.raises(UnsupportedFormat, match='session "a" has format 2 and this agentls knows 1; upgrade agentls'):
        await store.open(A)
    ((summary,), _) = await store.list()
    assert summary.damaged is not None
    assert "upgrade agentls" in summary.damaged
    await store.close()


async def test_an_unknown_event_is_refused_unless_it_may_be_ignored(store: SqliteStore) -> None:
    """Statement 42."""
    log = await store.create(header())
    (event,) = events(0, UnknownEvent("later/event", {"deep": [{"x": None}, 1.5], "ü": "\U0001f600"}))
    ignorable = type(event)(0, event.time, event.data, ignorable=True)
    await log.commit([ignorable], durable=True)
    assert await log.read() == (ignorable,)
    await log.commit(events(1, UnknownEvent("later/event", {})), durable=True)
    with pytest.raises(UnsupportedFormat, match='type "later/event"'):
        await log.read()
    assert await log.read(0, 1) == (ignorable,)


def test_processes_that_start_at_once_make_the_files_once(tmp_path: Path) -> None:
    # The lock that orders them is by open file, so threads stand for processes.
    for n in range(5):
        together = threading.Barrier(6)

        def start(directory: Path, together: threading.Barrier = together) -> SqliteStore:
            together.wait()
            return SqliteStore(directory)

        with ThreadPoolExecutor(6) as threads:
            stores = list(threads.map(start, [tmp_path / str(n)] * 6))

        async def close(stores: list[SqliteStore] = stores) -> None:
            for store in stores:
                await store.close()

        asyncio.run(close())


async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "state"
    store = SqliteStore(directory)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    log.append_drafts([])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    assert stat.S_IMODE(directory.stat().st_mode) == modes.pop(LOCKS_FOLDER) == 0o700
    assert {SESSIONS_FILE, f"{SESSIONS_FILE}-wal", DRAFTS_FILE, "a.lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    await store.close()


async def test_a_header_comes_back_as_it_was_given(store: SqliteStore) -> None:
    given = SessionHeader("s", "file:///w%20%C3%A4", "/w/\udcff/ä", 12, parent="p", seed_length=3)
    log = await store.create(given)
    await log.commit(message(0), durable=True)
    await log.close()
    assert (await store.open(type(A)("s"))).header == given
    ((summary,), _) = await store.list(given.workspace)
    assert summary.header == given


async def test_garbage_in_one_session_leaves_the_others_readable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for session in ("a", "b"):
        log = await store.create(header(session))
        for seq in range(5):
            await log.commit(message(seq), durable=True)
        await log.close()
    await store.close()
    database = tmp_path / SESSIONS_FILE
    for garbage in (b"", b"\x01", b"\x01\xff\xfe", b"[]", b'{"message":3}', b"{", b'{"message":{"id":"x"}}'):
        alter(database, "UPDATE event SET data = ? WHERE at & 0xffffffff = 3 AND at >> 32 = 1", garbage)
        store = SqliteStore(tmp_path)
        log = await store.open(A)
        with pytest.raises(SessionDamaged, match=r'session "a" cannot be read at event 3: .*; restore'):
            await log.read()
        assert len(await log.read(0, 3)) == 3
        assert len(await (await store.open(type(A)("b"))).read()) == 5
        listed, _ = await store.list()
        assert {row.header.id: row.damaged is None for row in listed} == {"a": False, "b": True}
        await store.close()


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM event WHERE at & 0xffffffff = 1", "at event 1: it is missing"),
        ("DELETE FROM event WHERE at & 0xffffffff = 2", "at event 2: it is missing"),
        ("UPDATE event SET type = 99, seal = NULL WHERE at & 0xffffffff = 2", "at event 2: its type 99 has no name"),
    ],
)
async def test_a_log_with_a_hole_is_damaged(tmp_path: Path, statement: str, complaint: str) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0) + message(1) + message(2), durable=True)
    alter(tmp_path / SESSIONS_FILE, statement)
    with pytest.raises(SessionDamaged, match=complaint):
        await log.read()
    await store.close()


async def test_damage_to_the_newest_event_is_in_the_list_before_anyone_reads(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0) + message(1), durable=True)
    alter(tmp_path / SESSIONS_FILE, "UPDATE event SET data = x'00' WHERE at & 0xffffffff = 1")
    ((summary,), _) = await store.list()
    assert summary.damaged is not None
    assert "at event 1" in summary.damaged
    await store.close()


async def test_a_torn_page_of_one_session_is_its_own_damage(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for session in ("a", "b"):
        log = await store.create(header(session))
        for start in range(0, 300, 10):
            await log.commit(sum((message(seq) for seq in range(start, start + 10)), ()), durable=False)
    await store.close()
    database = tmp_path / SESSIONS_FILE
    raw = bytearray(database.read_bytes())
    # A leaf of the table of events that holds some of session a alone.
    connection = sqlite3.connect(database)
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    (packed,) = connection.execute("SELECT data FROM event WHERE at = (1 << 32) + 50").fetchone()
    connection.close()
    page = raw.index(packed) // page_size
    raw[page * page_size : (page + 1) * page_size] = b"\xaa" * page_size
    database.write_bytes(raw)
    store = SqliteStore(tmp_path)
    with pytest.raises(SessionDamaged, match='session "a" cannot be read at event'):
        await (await store.open(A)).read()
    assert len(await (await store.open(type(A)("b"))).read()) == 300
    listed, _ = await store.list()
    assert {row.header.id: row.damaged is None for row in listed} == {"a": False, "b": True}
    await store.close()
