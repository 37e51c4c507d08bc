"""The session store in SQLite: one database of logs, one of text in flight, and a lock file for each open session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentls.core.errors import LogicError, SessionHeld, StoreUnavailable, UnknownSession
from agentls.core.events import SessionHeader
from agentls.core.ids import SessionId
from agentls.store.drafts import Drafts
from agentls.store.lock import SessionLock
from agentls.store.log import SqliteLog
from agentls.store.mending import mend
from agentls.store.reader import Reader, ReadingThread
from agentls.store.schema import DRAFTS, SESSIONS, alone_in, make_directory, prepare
from agentls.store.store import Salvage, SessionSummary
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
    the writer's thread. Files that are damaged are mended as far as it goes; `told` says of each what was wrong and
    where it is kept as it was.
    """

    def __init__(self, directory: Path, *, trace: Callable[[str], None] | None = None) -> None:
        make_directory(directory)
        self._locks = directory / LOCKS_FOLDER
        make_directory(self._locks)
        sessions, drafts = directory / SESSIONS_FILE, directory / DRAFTS_FILE
        with alone_in(directory):
            mended = (mend(sessions, SESSIONS), mend(drafts, DRAFTS))
        self.told = tuple(one.told() for one in mended if one is not None)
        prepare(sessions, SESSIONS)
        prepare(drafts, DRAFTS)
        self._drafts = Drafts(drafts)
        reader = Reader(sessions)
        self._reads = ReadingThread(reader)
        self._writer = Writer(sessions, self._drafts.log, trace)
        self._drafts.wake = self._writer.wake
        self._logs: set[SqliteLog] = set()
        self._deleting: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        # A disk that takes no writes now does not keep the store from being read.
        with suppress(StoreUnavailable):
            self._forget_orphans(reader)

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

    async def salvage(self, session: SessionId) -> Salvage:
        """All that can be read of a stored session, held or not."""
        self._require_open()
        found = await self._reads.salvage(session)
        if found is None:
            raise UnknownSession(session)
        header, log, fault = found
        return Salvage(header, log, self._drafts.pieces(session), fault)

    async def list(
        self, workspace: str | None = None, *, limit: int = 50, after: str | None = None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        """Summaries, newest first. `damaged` is what the row, the newest event and the reads of this process tell,
        since a list reads no log through."""
        self._require_open()
        return await self._reads.list(workspace, limit, after)

    async def delete(self, session: SessionId) -> None:
        """Remove all of a session. The databases cannot be changed in one transaction: text in flight goes last, and
        what a crash or a fault leaves of it belongs to no session and goes when a store is opened next."""
        self._require_open()
        lock = SessionLock.acquire(self._locks, session)
        deleting = asyncio.create_task(self._delete(session, lock))
        self._deleting.add(deleting)
        deleting.add_done_callback(self._deleted)
        await asyncio.shield(deleting)

    async def close(self) -> None:
        """Close every log and the files, once all that was given is done. Safe twice."""
        if self._closing is None:
            for log in self._logs:
                log.let_go()
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _delete(self, session: SessionId, lock: SessionLock) -> None:
        try:
            key = await self._reads.key(session)
            if key is None:
                raise UnknownSession(session)
            fault = await self._writer.delete(key)
            if fault is not None:
                raise fault
            with suppress(StoreUnavailable):
                self._drafts.forget(session)
            await self._reads.forget(session)
        finally:
            lock.release()

    def _deleted(self, deleting: asyncio.Task[None]) -> None:
        self._deleting.discard(deleting)
        if not deleting.cancelled():
            deleting.exception()  # It was for the one who waited; where nobody does any more, it makes no noise.

    def _forget_orphans(self, reader: Reader) -> None:
        """Remove text in flight of sessions that were deleted."""
        for session in self._drafts.sessions():
            if reader.knows(session):
                continue
            try:
                lock = SessionLock.acquire(self._locks, session)
            except SessionHeld:
                continue  # It is being made, or being deleted.
            try:
                if not reader.knows(session):
                    self._drafts.forget(session)
            finally:
                lock.release()

    async def _close(self) -> None:
        if self._deleting:
            await asyncio.wait(self._deleting)
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
