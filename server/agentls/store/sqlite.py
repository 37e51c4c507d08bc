"""The session store in SQLite: one database of logs, one of text in flight, and a lock file for each open session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from agentls.core.errors import LogicError, SessionHeld, UnknownSession
from agentls.core.events import SessionHeader
from agentls.core.ids import SessionId
from agentls.store.drafts import Drafts
from agentls.store.lock import SessionLock
from agentls.store.log import SqliteLog
from agentls.store.reader import ReadingThread
from agentls.store.schema import DRAFTS, SESSIONS, make_directory, prepare
from agentls.store.store import SessionSummary
from agentls.store.transaction import Tail
from agentls.store.writer import Writer

SESSIONS_FILE = "sessions.db"
DRAFTS_FILE = "drafts.db"
LOCKS_FOLDER = "locks"


class SqliteStore:
    """A SessionStore in a directory, which it makes for its owner alone.

    Made anywhere, also before an event loop runs, and then used from one loop. The files are opened at once:
    UnsupportedFormat for a newer store, UserError for a file of another program, StoreUnavailable where they cannot
    be written. Several processes may share the directory. `trace` gets each statement of the writing connection, on
    the writer's thread.
    """

    def __init__(self, directory: Path, *, trace: Callable[[str], None] | None = None) -> None:
        make_directory(directory)
        self._locks = directory / LOCKS_FOLDER
        make_directory(self._locks)
        sessions, drafts = directory / SESSIONS_FILE, directory / DRAFTS_FILE
        prepare(sessions, SESSIONS)
        prepare(drafts, DRAFTS)
        self._drafts = Drafts(drafts)
        self._reads = ReadingThread(sessions)
        self._writer = Writer(sessions, self._drafts.log, trace)
        self._drafts.wake = self._writer.wake
        self._logs: set[SqliteLog] = set()
        self._closing: asyncio.Task[None] | None = None

    async def create(self, header: SessionHeader) -> SqliteLog:
        """A new session, held; nothing of it is stored before its first events."""
        self._require_open()
        try:
            lock = SessionLock.acquire(self._locks, header.id)
        except SessionHeld as error:
            raise ValueError(f'session "{header.id}" exists already') from error
        try:
            if await self._reads.find(header.id) is not None:
                raise ValueError(f'session "{header.id}" exists already')
            return self._log(Tail(header), lock)
        except BaseException:
            lock.release()
            raise

    async def open(self, session: SessionId) -> SqliteLog:
        """Hold a stored session for writing."""
        self._require_open()
        lock = SessionLock.acquire(self._locks, session)
        try:
            found = await self._reads.find(session)
            if found is None:
                raise UnknownSession(session)
            key, header = found
            return self._log(Tail(header, key), lock)
        except BaseException:
            lock.release()
            raise

    async def list(
        self, workspace: str | None = None, *, limit: int = 50, after: str | None = None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        """Summaries, newest first. `damaged` is what the row, the newest event and the reads of this process tell,
        since a list reads no log through."""
        self._require_open()
        return await self._reads.list(workspace, limit, after)

    async def close(self) -> None:
        """Close every log and the files, once all that was given is done. Safe twice."""
        if self._closing is None:
            for log in self._logs:
                log.let_go()
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        fault = await self._writer.stop()
        self._drafts.close()
        await self._reads.stop()
        if fault is not None:
            raise fault

    def _log(self, tail: Tail, lock: SessionLock) -> SqliteLog:
        self._require_open()
        log = SqliteLog(tail, lock, self._writer, self._drafts, self._reads, self._logs.discard)
        self._logs.add(log)
        return log

    def _require_open(self) -> None:
        if self._closing is not None:
            raise LogicError("the session store is closed")
