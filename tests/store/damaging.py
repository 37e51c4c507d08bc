"""A state folder with three sessions, and hands that damage its files byte by byte."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agentls.core.errors import SessionDamaged, StoreUnavailable
from agentls.core.events import Event
from agentls.core.ids import SessionId
from agentls.store.log import SqliteLog
from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE, SqliteStore
from agentls.store.store import Damaged, DraftPiece
from tests.store.support import header, message, piece, turn

SESSIONS = ("a", "b", "c")
TURNS = 12
DATABASES = (SESSIONS_FILE, DRAFTS_FILE)
VERSION = 63
"""The last byte of the version of a database."""
LOGS = (f"{SESSIONS_FILE}-wal", f"{DRAFTS_FILE}-wal")


@dataclass(frozen=True)
class Stored:
    """What a store holds, and two folders with it: left by a server that ended, and by one that was killed."""

    ended: Path
    killed: Path
    logs: dict[str, tuple[Event, ...]] = field(default_factory=dict)
    drafts: dict[str, tuple[DraftPiece, ...]] = field(default_factory=dict)

    def folder(self, file: str, into: Path) -> Path:
        """A copy of the folder that has this file."""
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(self.killed if file.endswith("-wal") else self.ended, into)
        return into


async def stored(base: Path) -> Stored:
    """Three sessions of twelve turns each with text in flight."""
    made = Stored(base / "ended", base / "killed")
    store = SqliteStore(made.ended)
    assert store.told == ()
    for name in SESSIONS:
        log = await store.create(header(name))
        made.logs[name] = ()
        for number in range(1, TURNS + 1):
            events = turn(number, len(made.logs[name]), said_in_it=3)
            await log.commit(events, durable=True)
            made.logs[name] += events
        made.drafts[name] = (piece(f"in flight of {name}, "), piece("and more", len(f"in flight of {name}, ")))
        for one in made.drafts[name]:
            log.append_drafts([one])
    shutil.copytree(made.ended, made.killed)  # What is on disk now is what a kill would leave.
    await store.close()
    return made


def flip(path: Path, at: int, by: int = 0xFF) -> None:
    """Change one byte."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= by
    path.write_bytes(raw)


def flips(path: Path, seed: int, times: int) -> Iterable[tuple[int, int]]:
    """Where and by how much bytes flip, the same for a seed."""
    dice = random.Random(f"{path.name} {seed}")
    size = path.stat().st_size
    places = [(dice.randrange(size), dice.randrange(1, 256)) for _ in range(times)]
    # Another version number is another version, which is refused.
    return [(at, by) for at, by in places if at != VERSION or path.suffix != ".db"]


async def check(folder: Path, was: Stored, what: str) -> None:
    """The store opens; whatever is there is as it was written, or said not to be; whole sessions go on."""
    await _check(folder, was, what)
    if (folder / f"{SESSIONS_FILE}.mend").exists():
        await _check(folder, was, f"{what}, opened again")
        assert not (folder / f"{SESSIONS_FILE}.mend").exists(), what


async def _check(folder: Path, was: Stored, what: str) -> None:
    store = SqliteStore(folder)
    try:
        rows, _ = await store.list()
        listed = {row.header.id: row.damaged for row in rows}
        for name in SESSIONS:
            if name not in listed:
                assert store.told, f"{what}: session {name} is gone, and nobody is told"
                continue
            whole = await _check_session(store, name, was, what, folder)
            if not whole and not store.told:
                again = {row.header.id: row.damaged for row in (await store.list())[0]}
                assert again[name], f"{what}: what was found of session {name} is not in the list"
    finally:
        await store.close()


async def _check_session(store: SqliteStore, name: str, was: Stored, what: str, folder: Path) -> bool:
    try:
        log = await store.open(SessionId(name))
        try:
            events = await log.read()
            drafts = "".join(one.text for one in await log.drafts())
            await _go_on(log, len(events), folder)
        finally:
            await log.close()
    except SessionDamaged:
        await _check_salvage(store, name, was, what)
        return False
    expected = "".join(one.text for one in was.drafts[name])
    assert drafts == expected or "on disk]" in drafts or store.told, f"{what}: {drafts}"
    if store.told:
        kept = min(len(events), len(was.logs[name]))
        assert events[:kept] == was.logs[name][:kept], what
    else:
        assert events == was.logs[name], what
    return True


async def _go_on(log: SqliteLog, seq: int, folder: Path) -> None:
    """A whole session takes what comes next, at the latest when the store is opened again."""
    try:
        await log.commit(message(seq, "it goes on"), durable=True)
        assert (await log.read())[-1].seq == seq
    except StoreUnavailable:
        assert (folder / f"{SESSIONS_FILE}.mend").exists()


async def _check_salvage(store: SqliteStore, name: str, was: Stored, what: str) -> None:
    salvage = await store.salvage(SessionId(name))
    told = [part for part in salvage.log if isinstance(part, Damaged)]
    assert told or salvage.fault or store.told, what
    for part in salvage.log:
        if isinstance(part, Event):
            assert part == was.logs[name][part.seq], f"{what}: event {part.seq} was altered in silence"
    seqs = [seq for part in salvage.log for seq in _seqs(part)]
    assert len(seqs) == len(set(seqs)), what
    if not store.told:
        assert set(range(len(was.logs[name]))) <= set(seqs), f"{what}: events are gone in silence"


def _seqs(part: Event | Damaged) -> Iterable[int]:
    return (part.seq,) if isinstance(part, Event) else range(part.first, min(part.stop, part.first + 1000))
