"""Reads of what is stored: a range of a log, its newest turns, the list. Blocking, for one thread at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from agentls.core.codec import decode_event_data
from agentls.core.errors import DecodeError, SessionDamaged, UnsupportedFormat, UserError
from agentls.core.events import FORMAT_VERSION, Event, ModelRef, SessionHeader
from agentls.store import payload
from agentls.store.faults import is_damage, unavailable
from agentls.store.schema import SEQ_BITS, TURN_END, TURN_START, as_text, connect
from agentls.store.store import SessionSummary

P = ParamSpec("P")
T = TypeVar("T")

# In the order of SessionHeader's fields.
_HEADER = "id, workspace, cwd, created_at, version, parent, seed_length"

FIND = f"SELECT key, {_HEADER} FROM session WHERE id = CAST(? AS TEXT)"
KNOWN = "SELECT 1 FROM session WHERE id = CAST(? AS TEXT)"
LENGTH = "SELECT next_seq FROM session WHERE key = ?"
EVENTS = "SELECT at, time, type, ignorable, data FROM event WHERE at >= ? AND at < ? ORDER BY at"
# The index is used only where a query repeats its condition, hence two terms for one type.
LAST_START = f"""
SELECT at FROM event WHERE type <= {TURN_START} AND type = {TURN_START} AND at >= ? AND at < ?
ORDER BY at DESC LIMIT 1"""
LAST_END = f"""
SELECT at FROM event WHERE type <= {TURN_START} AND type = {TURN_END} AND at >= ? AND at < ?
ORDER BY at DESC LIMIT 1"""
LIST = f"""
SELECT key, title, summary, model_provider, model_id, next_seq, last_time, {_HEADER} FROM session
WHERE next_seq > 0 AND (?1 IS NULL OR workspace = CAST(?1 AS TEXT)) AND (?2 IS NULL OR (last_time, key) < (?2, ?3))
ORDER BY last_time DESC, key DESC LIMIT ?4"""

_SEQ = (1 << SEQ_BITS) - 1
_MEND = "restore the session store from a backup, or start a new session"


class Reader:
    """Owns a connection that only reads. A fault of the file is StoreUnavailable, one of a log SessionDamaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = connect(path, wait=5.0)
            self._connection.execute("PRAGMA query_only = 1")
        except sqlite3.Error as error:
            raise unavailable(error, path, "open") from error
        self._kinds: dict[int, str] = {}
        self._damage: dict[str, str] = {}

    def find(self, session: str) -> tuple[int, SessionHeader] | None:
        """A session's key and header, or None for an unknown id; UnsupportedFormat for a newer one."""
        try:
            row = self._connection.execute(FIND, (as_text(session),)).fetchone()
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error
        if row is None:
            return None
        key, *fields = row
        header = SessionHeader(*fields)
        if header.version > FORMAT_VERSION:
            raise UnsupportedFormat(_newer(header))
        return key, header

    def knows(self, session: str) -> bool:
        """Whether a session of that id is stored, in whatever format."""
        try:
            return self._connection.execute(KNOWN, (as_text(session),)).fetchone() is not None
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error

    def forget(self, session: str) -> None:
        """Forget what earlier reads told of a session that is gone."""
        self._damage.pop(session, None)

    def length(self, key: int) -> int:
        """How many events a session has."""
        try:
            row = self._connection.execute(LENGTH, (key,)).fetchone()
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error
        return 0 if row is None else int(row[0])

    def events(self, session: str, key: int, start: int, stop: int) -> tuple[Event, ...]:
        """The stored events with start <= seq < stop, all of which there must be."""
        try:
            return self._events(session, key, start, stop)
        except SessionDamaged as error:
            # Remembered for the list, which looks at newest events only.
            self._damage[session] = str(error)
            raise

    def page(self, session: str, key: int, before: int, limit: int) -> tuple[Event, ...]:
        """The newest whole turns before seq `before` with what lies between them, `limit` events or more; what comes
        before the first turn belongs to it. Asked again before the first of these, and so on, every event of the log
        is given once, but for those of a turn that is open at `before`."""
        low = key << SEQ_BITS
        stop = min(before, self.length(key))
        try:
            opened = self._seq(LAST_START, low, stop)
            ended = self._seq(LAST_END, low, stop)
            if opened is not None and (ended is None or ended < opened):
                stop = opened
            start = self._seq(LAST_START, low, stop - max(limit, 1) + 1)
            if start is None or self._seq(LAST_START, low, start) is None:
                start = 0
        except sqlite3.Error as error:
            raise self._fault(error, session, None) from error
        return self.events(session, key, start, stop)

    def list(
        self, workspace: str | None, limit: int, after: str | None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        """See SessionStore."""
        time, after_key = (None, None) if after is None else _from_cursor(after)
        summaries = []
        key = 0
        with self._snapshot():
            rows = self._connection.execute(LIST, (as_text(workspace), time, after_key, limit + 1)).fetchall()
            for key, title, summary, provider, model, length, last_time, *fields in rows[:limit]:
                header = SessionHeader(*fields)
                ref = None if provider is None else ModelRef(provider, model)
                damaged = self._damage_of(header, key, length)
                summaries.append(SessionSummary(header, title, length, last_time, summary, ref, damaged))
        if len(rows) <= limit or not summaries:
            return tuple(summaries), None
        return tuple(summaries), f"{summaries[-1].last_time}.{key}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One state of the file for all reads: a session that is deleted meanwhile is there whole, not damaged."""
        try:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error

    def _seq(self, query: str, low: int, before: int) -> int | None:
        row = self._connection.execute(query, (low, low + before)).fetchone()
        return None if row is None else row[0] - low

    def _events(self, session: str, key: int, start: int, stop: int) -> tuple[Event, ...]:
        low = key << SEQ_BITS
        out: list[Event] = []
        try:
            for at, time, kind, ignorable, stored in self._connection.execute(EVENTS, (low + start, low + stop)):
                seq = at & _SEQ
                if seq != start + len(out):
                    break
                try:
                    data = decode_event_data(self._kind(kind), payload.load(stored), ignorable=bool(ignorable))
                except DecodeError as error:
                    raise SessionDamaged(
                        f'session "{session}" cannot be read at event {seq}: {error}; {_MEND}'
                    ) from error
                out.append(Event(seq, time, data, ignorable=bool(ignorable)))
        except sqlite3.Error as error:
            raise self._fault(error, session, start + len(out)) from error
        if len(out) < stop - start:
            raise SessionDamaged(
                f'session "{session}" cannot be read at event {start + len(out)}: it is missing; {_MEND}'
            )
        return tuple(out)

    def _kind(self, key: int) -> str:
        if key not in self._kinds:
            self._kinds = dict(self._connection.execute("SELECT key, name FROM type"))
        try:
            return self._kinds[key]
        except KeyError:
            raise DecodeError(f"its type {key} has no name") from None

    def _damage_of(self, header: SessionHeader, key: int, length: int) -> str | None:
        """Why a session cannot be opened, as far as its row, its newest event and earlier reads tell."""
        if header.version > FORMAT_VERSION:
            return _newer(header)
        if header.id not in self._damage:
            try:
                self.events(header.id, key, length - 1, length)
            except UserError as error:
                return str(error)
        return self._damage.get(header.id)

    def _fault(self, error: sqlite3.Error, session: str, seq: int | None) -> UserError:
        if is_damage(error):
            where = "" if seq is None else f" at event {seq}"
            return SessionDamaged(f'session "{session}" cannot be read{where}: {error}; {_MEND}')
        return unavailable(error, self._path, "read")


def _newer(header: SessionHeader) -> str:
    return f'session "{header.id}" has format {header.version} and this agentls knows {FORMAT_VERSION}; upgrade agentls'


def _from_cursor(cursor: str) -> tuple[int, int]:
    time, _, key = cursor.partition(".")
    try:
        return int(time), int(key)
    except ValueError:
        raise UserError(f'"{cursor}" is no place in the list of sessions; list them from the start') from None


class ReadingThread:
    """A Reader on a thread of its own, so that the event loop goes on; its methods are those of Reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentls-store-read")

    async def find(self, session: str) -> tuple[int, SessionHeader] | None:
        """See Reader."""
        return await self._run(self._reader.find, session)

    async def forget(self, session: str) -> None:
        """See Reader."""
        await self._run(self._reader.forget, session)

    async def length(self, key: int) -> int:
        """See Reader."""
        return await self._run(self._reader.length, key)

    async def events(self, session: str, key: int, start: int, stop: int) -> tuple[Event, ...]:
        """See Reader."""
        return await self._run(self._reader.events, session, key, start, stop)

    async def page(self, session: str, key: int, before: int, limit: int) -> tuple[Event, ...]:
        """See Reader."""
        return await self._run(self._reader.page, session, key, before, limit)

    async def list(
        self, workspace: str | None, limit: int, after: str | None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        """See Reader."""
        return await self._run(self._reader.list, workspace, limit, after)

    async def stop(self) -> None:
        """Close the connection after the reads that wait."""
        await self._run(self._reader.close)
        self._thread.shutdown(wait=False)

    async def _run(self, read: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(read, *arguments, **options))
