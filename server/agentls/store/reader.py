"""Reads of what is stored: a range of a log, its newest turns, the list. Blocking, for one thread at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from agentls.core.errors import DecodeError, SessionDamaged, UnsupportedFormat, UserError
from agentls.core.events import FORMAT_VERSION, Event, ModelRef, SessionHeader
from agentls.store import salvage
from agentls.store.faults import is_damage, unavailable
from agentls.store.mending import mark
from agentls.store.salvage import EVENT, HEADER, EventRow, SessionRow
from agentls.store.schema import SEQ_BITS, TURN_END, TURN_START, as_text, connect
from agentls.store.store import Damaged, SessionSummary

P = ParamSpec("P")
T = TypeVar("T")

_UNPLACED = ""
"""The workspace of a session whose row is lost: it is listed with every workspace."""

FIND = f"SELECT key, seal, next_seq, {HEADER} FROM session WHERE id = CAST(? AS TEXT)"
KNOWN = "SELECT 1 FROM session WHERE id = CAST(? AS TEXT)"
LENGTH = "SELECT next_seq FROM session WHERE key = ?"
BEYOND = "SELECT at FROM event WHERE at >= ? AND at < ? LIMIT 1"
EVENTS = f"SELECT {EVENT} FROM event WHERE at >= ? AND at < ? ORDER BY at"
TURN_ENDS = f"SELECT 1 FROM event NOT INDEXED WHERE at > ? AND at < ? AND type = {TURN_END} LIMIT 1"
# The index is used only where a query repeats its condition, hence two terms for one type.
LAST_START = f"""
SELECT at FROM event WHERE type <= {TURN_START} AND type = {TURN_START} AND at >= ? AND at < ?
ORDER BY at DESC LIMIT 1"""
LAST_END = f"""
SELECT at FROM event WHERE type <= {TURN_START} AND type = {TURN_END} AND at >= ? AND at < ?
ORDER BY at DESC LIMIT 1"""
LIST = f"""
SELECT key, last_time FROM session
WHERE next_seq > 0 AND (?1 IS NULL OR workspace = CAST(?1 AS TEXT) OR workspace = '{_UNPLACED}')
    AND (?2 IS NULL OR (last_time, key) < (?2, ?3))
ORDER BY last_time DESC, key DESC LIMIT ?4"""
_TELLS = "SELECT title, summary, model_provider, model_id FROM session WHERE key = ?"
_LAST_TIME = "SELECT last_time FROM session WHERE key = ?"

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
        """A session's key and header, or None for an unknown id; UnsupportedFormat for a newer one, SessionDamaged for
        one whose row is not as it was written."""
        found = self._row(session)
        if found is None:
            return None
        key, length, header, fault = found
        if fault is None and self._goes_on(key, length):
            fault = _goes_on(length)
        if fault is not None:
            raise SessionDamaged(_damaged(session, fault))
        return key, header

    def key(self, session: str) -> int | None:
        """The key of a session in whatever state; UnsupportedFormat for a newer one."""
        found = self._row(session)
        return None if found is None else found[0]

    def salvage(self, session: str) -> tuple[SessionHeader, tuple[Event | Damaged, ...], str | None] | None:
        """Header, log and what is wrong beside it, or None for an unknown id; UnsupportedFormat for a newer one."""
        found = self._row(session)
        if found is None:
            return None
        key, length, header, fault = found
        try:
            return header, salvage.log_of(self._connection, key, length), fault
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error

    def _row(self, session: str) -> SessionRow | None:
        try:
            row = self._connection.execute(FIND, (as_text(session),)).fetchone()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise unavailable(error, self._path, "read") from error
            row = None
        try:
            if row is None:
                found = salvage.find(self._connection, session)
            else:
                found = salvage.session_of(self._connection, row[0], session)
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error
        if found is not None and found[3] is None and found[2].version > FORMAT_VERSION:
            raise UnsupportedFormat(newer(found[2]))
        return found

    def _goes_on(self, key: int, length: int) -> bool:
        """Whether there are events beyond the end that the row speaks of."""
        try:
            row = self._connection.execute(BEYOND, ((key << SEQ_BITS) + length, (key + 1) << SEQ_BITS)).fetchone()
        except sqlite3.Error as error:
            if is_damage(error):
                return False  # The read of the log will say where.
            raise unavailable(error, self._path, "read") from error
        return row is not None

    def knows(self, session: str) -> bool:
        """Whether a session of that id is stored, in whatever format and state."""
        try:
            if self._connection.execute(KNOWN, (as_text(session),)).fetchone() is not None:
                return True
            return salvage.find(self._connection, session) is not None
        except sqlite3.Error as error:
            if is_damage(error):
                return True
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
                if self._connection.execute(TURN_ENDS, (low + opened, low + stop)).fetchone() is not None:
                    with suppress(OSError):
                        mark(self._path)
                    raise SessionDamaged(
                        f'session "{session}" cannot be read: the index of its turns is damaged; restart agentls, '
                        "which makes it anew"
                    )
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
        place = None if after is None else _from_cursor(after)
        with self._snapshot():
            try:
                time, after_key = place or (None, None)
                found = self._connection.execute(LIST, (as_text(workspace), time, after_key, limit + 1)).fetchall()
                rows: Sequence[tuple[int, int]] = [(key, _number(last_time)) for key, last_time in found]
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
                rows = self._rows_left(workspace, place)
            summaries = tuple(self._summary(key, last_time) for key, last_time in rows[:limit])
        if len(rows) <= limit:
            return summaries, None
        key, last_time = rows[limit - 1]
        return summaries, f"{last_time}.{key}"

    def _rows_left(self, workspace: str | None, place: tuple[int, int] | None) -> Sequence[tuple[int, int]]:
        """What the list is made of where the table of sessions cannot be read through."""
        rows = []
        for key, _, header, _ in salvage.sessions_of(self._connection):
            if workspace in (None, header.workspace) or header.workspace == _UNPLACED:
                last_time = next((_number(time) for (time,) in salvage.some(self._connection, _LAST_TIME, key)), 0)
                rows.append((key, last_time))
        return sorted(((key, time) for key, time in rows if place is None or (time, key) < place), key=_newest)

    def _summary(self, key: int, last_time: int) -> SessionSummary:
        _, length, header, fault = salvage.session_of(self._connection, key, f"{salvage.LOST}{key}")
        title = summary = ref = None
        for title_, summary_, provider, model in salvage.some(self._connection, _TELLS, key):
            title, summary = _text(title_), _text(summary_)
            ref = ModelRef(provider, model) if isinstance(provider, str) and isinstance(model, str) else None
        damaged = self._damage_of(header, key, length, fault)
        return SessionSummary(header, title, length, last_time, summary, ref, damaged)

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
                # A commit repeats the error of a read that met damage.
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error

    def _seq(self, query: str, low: int, before: int) -> int | None:
        row = self._connection.execute(query, (low, low + before)).fetchone()
        return None if row is None else row[0] - low

    def _events(self, session: str, key: int, start: int, stop: int) -> tuple[Event, ...]:
        low = key << SEQ_BITS
        out: list[Event] = []
        try:
            for row in self._connection.execute(EVENTS, (low + start, low + stop)):
                seq = row[0] & _SEQ
                if seq != start + len(out):
                    break
                try:
                    out.append(self._event(row))
                except DecodeError as error:
                    raise SessionDamaged(
                        f'session "{session}" cannot be read at event {seq}: {error}; {_MEND}'
                    ) from error
        except sqlite3.Error as error:
            raise self._fault(error, session, start + len(out)) from error
        if len(out) < stop - start:
            raise SessionDamaged(
                f'session "{session}" cannot be read at event {start + len(out)}: it is missing; {_MEND}'
            )
        return tuple(out)

    def _event(self, row: EventRow) -> Event:
        if row[2] not in self._kinds:
            self._kinds = salvage.names_of(self._connection)
        return salvage.event_of(row, self._kinds)

    def _damage_of(self, header: SessionHeader, key: int, length: int, fault: str | None) -> str | None:
        """Why a session cannot be opened, as far as its row, its newest event and earlier reads tell."""
        if fault is not None:
            return _damaged(header.id, fault)
        if header.version > FORMAT_VERSION:
            return newer(header)
        if header.id not in self._damage:
            try:
                if self._goes_on(key, length):
                    return _damaged(header.id, _goes_on(length))
                self.events(header.id, key, length - 1, length)
            except UserError as error:
                return str(error)
        return self._damage.get(header.id)

    def _fault(self, error: sqlite3.Error, session: str, seq: int | None) -> UserError:
        if is_damage(error):
            where = "" if seq is None else f" at event {seq}"
            return SessionDamaged(f'session "{session}" cannot be read{where}: {error}; {_MEND}')
        return unavailable(error, self._path, "read")


def newer(header: SessionHeader) -> str:
    """Why a session of a newer format is not read."""
    return f'session "{header.id}" has format {header.version} and this agentls knows {FORMAT_VERSION}; upgrade agentls'


def _damaged(session: str, fault: str) -> str:
    return f'session "{session}" is damaged: {fault}; {_MEND}'


def _goes_on(length: int) -> str:
    return f"it has more than the {length} events that its row speaks of"


def _newest(row: tuple[int, int]) -> tuple[int, int]:
    key, time = row
    return -time, -key


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


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

    async def key(self, session: str) -> int | None:
        """See Reader."""
        return await self._run(self._reader.key, session)

    async def salvage(self, session: str) -> tuple[SessionHeader, tuple[Event | Damaged, ...], str | None] | None:
        """See Reader."""
        return await self._run(self._reader.salvage, session)

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
