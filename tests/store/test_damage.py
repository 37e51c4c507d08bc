"""Files that were damaged byte by byte: the store opens, and whatever is not as it was written is said not to be."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from agentls.core.errors import SessionDamaged, UnknownSession
from agentls.core.events import TurnEnd, UserMessage
from agentls.core.ids import SessionId
from agentls.store import wal
from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE, SqliteStore
from agentls.store.store import Damaged
from tests.store.damaging import DATABASES, LOGS, SESSIONS, Stored, check, flip, flips, stored
from tests.store.support import A, alter, header, message, piece

B = SessionId("b")
PAGE = 4096
ROUNDS = int(os.environ.get("AGENTLS_DAMAGES", "2"))
"""Times ten flipped bytes in each file; more of them by hand."""


@pytest.fixture(scope="module")
def was(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return asyncio.run(stored(tmp_path_factory.mktemp("stored")))


def leaf_of(database: Path, session: int, seq: int) -> int:
    """The page of the table of events that holds one event."""
    connection = sqlite3.connect(database)
    query = "SELECT data, seal FROM event WHERE at = (? << 32) + ?"
    packed, sealed = connection.execute(query, (session, seq)).fetchone()
    connection.close()
    # A record holds its columns one after the other; the seal tells events with the same words apart.
    return database.read_bytes().index(packed + sealed.to_bytes(4, "big", signed=True)) // PAGE


def root_of(database: Path, name: str) -> int:
    connection = sqlite3.connect(database)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    connection.close()
    assert isinstance(page, int)
    return page - 1


# Anywhere ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("file", [*DATABASES, *LOGS])
async def test_a_flipped_byte_is_told_or_does_no_harm(was: Stored, tmp_path: Path, file: str, seed: int) -> None:
    for at, by in flips(was.folder(file, tmp_path / "s") / file, seed, 10):
        folder = was.folder(file, tmp_path / "s")
        flip(folder / file, at, by)
        await check(folder, was, f"{file} at {at} by {by}")


@pytest.mark.parametrize("file", [*DATABASES, *LOGS])
async def test_a_file_that_was_cut_off_is_told_and_what_is_left_goes_on(was: Stored, tmp_path: Path, file: str) -> None:
    for at, _ in flips(was.folder(file, tmp_path / "s") / file, 0, 5 * ROUNDS):
        folder = was.folder(file, tmp_path / "s")
        (folder / file).write_bytes((folder / file).read_bytes()[:at])
        await check(folder, was, f"{file} cut at {at}")


@pytest.mark.parametrize("file", [SESSIONS_FILE, LOGS[0]])
async def test_what_is_as_it_was_written_is_not_called_damaged(was: Stored, tmp_path: Path, file: str) -> None:
    folder = was.folder(file, tmp_path / "s")
    before = (folder / SESSIONS_FILE).read_bytes()
    store = SqliteStore(folder)
    assert store.told == ()
    assert all(row.damaged is None for row in (await store.list())[0])
    for name in SESSIONS:
        log = await store.open(SessionId(name))
        assert await log.read() == was.logs[name]
        assert await log.drafts() == was.drafts[name]
    await store.close()
    if file == SESSIONS_FILE:
        assert (folder / SESSIONS_FILE).read_bytes() == before
    assert not list(folder.glob("*.damaged-*"))


# The log of changes --------------------------------------------------------------------------------------------


async def test_damage_in_the_middle_of_the_log_of_changes_is_not_taken_for_its_end(was: Stored, tmp_path: Path) -> None:
    """Statement 40. SQLite itself stops there, and all that was acknowledged later would be gone without a word."""
    folder = was.folder(LOGS[0], tmp_path / "s")
    log = folder / LOGS[0]
    frame = wal.HEADER_SIZE + 20 * (24 + PAGE)
    flip(log, frame + 16)  # Its checksum: the page itself is whole.
    store = SqliteStore(folder)
    (told,) = store.told
    assert "its log of changes has damaged parts with later changes behind them" in told
    for name in SESSIONS:
        assert await (await store.open(SessionId(name))).read() == was.logs[name]
    await store.close()


async def test_a_batch_that_was_cut_off_while_it_was_written_is_not_there(was: Stored, tmp_path: Path) -> None:
    """Statement 40."""
    folder = was.folder(LOGS[0], tmp_path / "s")
    log = folder / LOGS[0]
    raw = log.read_bytes()
    log.write_bytes(raw + raw[-(24 + PAGE) : -1000])
    store = SqliteStore(folder)
    assert store.told == ()
    for name in SESSIONS:
        assert await (await store.open(SessionId(name))).read() == was.logs[name]
    await store.close()


async def test_a_log_of_changes_without_its_end_is_told(was: Stored, tmp_path: Path) -> None:
    folder = was.folder(LOGS[0], tmp_path / "s")
    log = folder / LOGS[0]
    log.write_bytes(log.read_bytes()[: wal.HEADER_SIZE + 40 * (24 + PAGE)])
    store = SqliteStore(folder)
    (told,) = store.told
    assert "the end of its log of changes is missing" in told
    await store.close()


# The whole file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 16, 18, 28, 60, 68, 100, 3900])
async def test_a_damaged_first_page_costs_no_session(was: Stored, tmp_path: Path, at: int) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    database = folder / SESSIONS_FILE
    flip(database, at)
    damaged = database.read_bytes()
    store = SqliteStore(folder)
    for name in SESSIONS:
        log = await store.open(SessionId(name))
        assert await log.read() == was.logs[name]
        await log.commit(message(len(was.logs[name])), durable=True)
    await store.create(header("new"))
    await store.close()
    for told in store.told:
        kept = folder / f"{SESSIONS_FILE}.damaged-1"
        assert str(kept) in told
        assert kept.read_bytes() == damaged
    assert store.told or at == 28, "a wrong number of pages is known by the file's own size"


async def test_a_file_that_is_no_database_is_kept_and_the_store_begins_anew(tmp_path: Path) -> None:
    (tmp_path / SESSIONS_FILE).write_bytes(b"what is this? " * 100)
    store = SqliteStore(tmp_path)
    (told,) = store.told
    kept = tmp_path / f"{SESSIONS_FILE}.damaged-1"
    assert "nothing of it could be read, so that it begins anew" in told
    assert str(kept) in told
    assert kept.read_bytes() == b"what is this? " * 100
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    await store.close()
    again = SqliteStore(tmp_path)
    assert again.told == ()
    assert await (await again.open(A)).read() == message(0)
    await again.close()


async def test_damaged_text_in_flight_keeps_no_session_from_opening(was: Stored, tmp_path: Path) -> None:
    folder = was.folder(DRAFTS_FILE, tmp_path / "s")
    (folder / DRAFTS_FILE).write_bytes(b"\xaa" * 3 * PAGE)
    store = SqliteStore(folder)
    assert len(store.told) == 1
    log = await store.open(A)
    assert await log.read() == was.logs["a"]
    log.append_drafts([piece("new")])
    assert [one.text for one in await log.drafts()] == ["new"]
    await store.close()


async def test_a_changed_piece_of_text_in_flight_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    log.append_drafts([piece("one "), piece("two ", 4), piece("three", 8)])
    alter(tmp_path / DRAFTS_FILE, "UPDATE piece SET text = ? WHERE n = 1", b"tw\xff ")
    assert [one.text for one in await log.drafts()] == ["one ", "tw\ufffd  [this text was damaged on disk] ", "three"]
    alter(tmp_path / DRAFTS_FILE, "DELETE FROM piece WHERE n = 1")
    assert "".join(one.text for one in await log.drafts()) == "one  [text was lost here on disk] three"
    await store.close()


@pytest.mark.parametrize("index", ["turn", "sqlite_autoindex_session_1", "sqlite_autoindex_type_1"])
async def test_a_damaged_index_is_made_anew(was: Stored, tmp_path: Path, index: str) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    flip(folder / SESSIONS_FILE, root_of(folder / SESSIONS_FILE, index) * PAGE)
    store = SqliteStore(folder)
    assert ["parts of it could not be read" in told for told in store.told] == [True]
    await store.close()
    await check(folder, was, index)
    store = SqliteStore(folder)
    for name in SESSIONS:
        log = await store.open(SessionId(name))
        assert (await log.read())[:-1] == was.logs[name]
        assert await log.page(len(was.logs[name]), 1)
    await store.close()


async def test_a_turn_that_its_index_has_lost_is_not_left_out(was: Stored, tmp_path: Path) -> None:
    """An index whose entries are of its form and wrong is found when it is used."""
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    database = folder / SESSIONS_FILE
    page = root_of(database, "turn") * PAGE
    last = max(event.seq for event in was.logs["a"] if isinstance(event.data, TurnEnd))
    # An entry is its length, the form of its two columns, and here only the second of them, since the first is 0.
    entry = b"\x03\x08\x05" + ((1 << 32) + last).to_bytes(6, "big")
    at = database.read_bytes().index(entry, page)
    flip(database, at + 1, 0x08 ^ 0x09)  # The end of a turn has become the start of one.
    store = SqliteStore(folder)
    log = await store.open(A)
    assert await log.read() == was.logs["a"]
    with pytest.raises(SessionDamaged, match="the index of its turns is damaged; restart agentls"):
        await log.page(last + 1, 1)
    await store.close()
    store = SqliteStore(folder)
    assert len(store.told) == 1
    log = await store.open(A)
    assert (await log.page(last + 1, 1))[-1].seq == last
    await store.close()


async def test_a_damaged_table_of_sessions_leaves_their_events(was: Stored, tmp_path: Path) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    flip(folder / SESSIONS_FILE, root_of(folder / SESSIONS_FILE, "session") * PAGE)
    store = SqliteStore(folder)
    assert len(store.told) == 1
    rows, _ = await store.list("file:///w")
    assert {row.header.id for row in rows} == set(SESSIONS), "their names are in the index"
    for row in rows:
        assert "its row cannot be read" in (row.damaged or "")
        assert (await store.salvage(SessionId(row.header.id))).log == was.logs[row.header.id]
    log = await store.create(header("new"))
    await log.commit(message(0), durable=True)
    await store.delete(B)
    with pytest.raises(UnknownSession):
        await store.salvage(B)
    await store.close()


# One session among good ones -----------------------------------------------------------------------------------


async def test_one_changed_character_is_not_taken_for_what_was_said(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0, "pay 100") + message(1), durable=True)
    changed = (
        b'{"message":{"id":"pay 100","role":"user","content":[{"type":"text","text":"pay 900"}],'
        b'"source":{"kind":"user"}}}'
    )
    alter(tmp_path / SESSIONS_FILE, "UPDATE event SET data = ? WHERE at & 0xffffffff = 0", changed)
    with pytest.raises(SessionDamaged, match="at event 0: its bytes are not those that were written"):
        await log.read()
    first, second = (await store.salvage(A)).log
    assert isinstance(first, Damaged)
    assert first.event is not None, "what it seems to say can be shown"
    assert isinstance(first.event.data, UserMessage)
    assert (second,) == message(1)
    await store.close()


@pytest.mark.parametrize("page", ["garbage", "zeros"])
async def test_events_on_both_sides_of_a_damaged_page_are_read(was: Stored, tmp_path: Path, page: str) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    database = folder / SESSIONS_FILE
    raw = bytearray(database.read_bytes())
    place = leaf_of(database, 2, 36) * PAGE
    raw[place : place + PAGE] = (b"\xaa" if page == "garbage" else b"\0") * PAGE
    database.write_bytes(raw)
    await check(folder, was, page)
    store = SqliteStore(folder)
    salvage = await store.salvage(B)
    (hole,) = [part for part in salvage.log if isinstance(part, Damaged)]
    assert hole.first <= 36 < hole.stop
    assert [part for part in salvage.log if not isinstance(part, Damaged)] == [
        event for event in was.logs["b"] if not hole.first <= event.seq < hole.stop
    ]
    await store.close()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("cwd = '/elsewhere'", "its row is not as it was written"),
        ("workspace = 'file:///x'", "its row is not as it was written"),
        ("created_at = 1", "its row is not as it was written"),
        ("next_seq = 3", "it has more than the 3 events that its row speaks of"),
    ],
)
async def test_a_changed_row_is_told_and_the_log_can_be_read(tmp_path: Path, change: str, complaint: str) -> None:
    store = SqliteStore(tmp_path)
    for name in ("a", "b"):
        log = await store.create(header(name))
        await log.commit(sum((message(seq) for seq in range(6)), ()), durable=True)
        await log.close()
    alter(tmp_path / SESSIONS_FILE, f"UPDATE session SET {change} WHERE id = 'a'")
    listed = {row.header.id: row.damaged for row in (await store.list())[0]}
    assert listed["b"] is None
    assert complaint in (listed["a"] or "")
    with pytest.raises(SessionDamaged, match=complaint):
        await store.open(A)
    assert len((await store.salvage(A)).log) == 6
    await (await store.open(B)).commit(message(6), durable=True)
    await store.close()


async def test_a_damaged_name_of_a_type_is_found_by_what_the_events_say(was: Stored, tmp_path: Path) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    alter(folder / SESSIONS_FILE, "UPDATE type SET name = 'uzer/message' WHERE name = 'user/message'")
    store = SqliteStore(folder)
    for name in SESSIONS:
        log = await store.open(SessionId(name))
        assert await log.read() == was.logs[name]
        await log.commit(message(len(was.logs[name])), durable=True)
        assert len(await log.read()) == len(was.logs[name]) + 1
    await store.close()


async def test_a_store_of_before_there_were_seals_goes_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    log.append_drafts([piece("in flight")])
    await store.close()
    for name, tables in ((SESSIONS_FILE, ("session", "event")), (DRAFTS_FILE, ("piece",))):
        connection = sqlite3.connect(tmp_path / name)
        for table in tables:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN seal")
        connection.close()
    store = SqliteStore(tmp_path)
    assert store.told == ()
    log = await store.open(A)
    assert await log.read() == message(0)
    assert await log.drafts() == (piece("in flight"),)
    await log.commit(message(1), durable=True)
    assert await log.read() == message(0) + message(1)
    await store.close()
