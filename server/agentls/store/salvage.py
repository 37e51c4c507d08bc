"""What can still be read of a damaged database: row by row, past what cannot be.

Blocking, over any connection that reads. What SQLite calls damage is passed over here and told as a value; any other
error of it is raised as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from agentls.core.codec import decode_event_data
from agentls.core.errors import DecodeError, UnsupportedFormat
from agentls.core.events import EVENTS, Event, SessionHeader
from agentls.store import payload, seal
from agentls.store.faults import is_damage
from agentls.store.schema import SEQ_BITS, as_text
from agentls.store.store import Damaged

# In the order of SessionHeader's fields.
HEADER = "id, workspace, cwd, created_at, version, parent, seed_length"
EVENT = "at, time, type, ignorable, data, seal"

LOST = "lost-"
"""The id of a session whose own is lost is this and its key."""
NO_ROW = "its row cannot be read, and with it where it belongs and when it began"

PIECES = "SELECT n, message, idx, kind, offset, text, seal FROM piece WHERE session = ? ORDER BY n"
"""A session's text in flight."""

_SESSION = f"SELECT key, seal, next_seq, {HEADER} FROM session"
_KEYS_BY_ID = "SELECT key, id FROM session INDEXED BY sqlite_autoindex_session_1 ORDER BY id"
_NEXT = "SELECT at FROM event WHERE at >= ? ORDER BY at LIMIT 1"
_RANGE = f"SELECT {EVENT} FROM event WHERE at >= ? AND at < ? ORDER BY at"
_ONE = f"SELECT {EVENT} FROM event WHERE at = ?"

_FURTHEST = 1 << 18
"""Events that are looked for one by one: a damaged number must not have anyone wait for hours."""

EventRow: TypeAlias = "tuple[int, object, object, object, object, object]"
SessionRow: TypeAlias = "tuple[int, int, SessionHeader, str | None]"
"""Key, how many events it is said to have, header, and what is wrong with the row."""


def names_of(connection: sqlite3.Connection) -> dict[int, str]:
    """The names of types by their keys, as many as can be read."""
    names: dict[int, str] = {}
    names.update((key, name) for key, name in until_damage(connection, "SELECT key, name FROM type"))
    return names


def event_of(row: EventRow, names: Mapping[int, str]) -> Event:
    """The event of a row, which is as it was written: DecodeError for one that is not, UnsupportedFormat for one of a
    type that this version does not know."""
    at, time, _, ignorable, stored, _ = row
    name = name_of(row, names)
    assert isinstance(time, int)
    assert isinstance(stored, bytes)
    data = decode_event_data(name, payload.load(stored), ignorable=bool(ignorable))
    return Event(at & ((1 << SEQ_BITS) - 1), time, data, ignorable=bool(ignorable))


def header_of(fields: tuple[object, ...], sealed: object) -> tuple[SessionHeader, str | None]:
    """The header in a row, and what is wrong with it: None for one that is as it was written."""
    id, workspace, cwd, created_at, version, parent, seed_length = fields
    whole = (
        all(isinstance(text, str) for text in (id, workspace, cwd))
        and all(isinstance(number, int) for number in (created_at, version))
        and isinstance(parent, str | None)
        and isinstance(seed_length, int | None)
    )
    header = SessionHeader(
        _text(id),
        _text(workspace),
        _text(cwd),
        created_at if isinstance(created_at, int) else 0,
        version if isinstance(version, int) else 1,
        parent if isinstance(parent, str) else None,
        seed_length if isinstance(seed_length, int) else None,
    )
    if header.cwd == "":
        return header, NO_ROW  # It was lost, and put in again without.
    if not whole or (sealed is not None and sealed != seal.of_header(header)):
        return header, "its row is not as it was written"
    return header, None


def sessions_of(connection: sqlite3.Connection) -> Iterator[SessionRow]:
    """Every session of which anything is left, by its key. One whose row is lost is named by the index of names, where
    that can be read, else after its key."""
    ids: dict[int, str] = {}
    for key, id in until_damage(connection, _KEYS_BY_ID):
        if isinstance(key, int) and isinstance(id, str):
            ids[key] = id
    keys = {*ids, *_keys_of_events(connection)}
    for order in ("", " ORDER BY key DESC"):
        keys.update(row[0] for row in until_damage(connection, _SESSION + order))
    for key in sorted(key for key in keys if 0 < key < 1 << (63 - SEQ_BITS)):
        yield session_of(connection, key, ids.get(key, f"{LOST}{key}"))


def session_of(connection: sqlite3.Connection, key: int, name: str) -> SessionRow:
    """One session's row; `name` is what it is called where the row is lost."""
    for row in until_damage(connection, f"{_SESSION} WHERE key = ?", key):
        _, sealed, length, *fields = row
        header, fault = header_of(tuple(fields), sealed)
        return key, length if isinstance(length, int) else 0, header, fault
    return key, 0, SessionHeader(name, "", "", 0), NO_ROW


def some(connection: sqlite3.Connection, query: str, *parameters: int | str) -> list[Any]:
    """The rows of a query, as many as come before damage."""
    return list(until_damage(connection, query, *parameters))


def find(connection: sqlite3.Connection, session: str) -> SessionRow | None:
    """A session by its id, also where the index of ids or other rows are damaged."""
    by_id = f"{_SESSION} NOT INDEXED WHERE id = CAST(? AS TEXT)"
    for row in until_damage(connection, by_id, as_text(session)):
        return session_of(connection, row[0], session)
    try:
        connection.execute(by_id, (as_text(session),)).fetchone()
    except sqlite3.Error as error:
        _pass(error)
        return next((row for row in sessions_of(connection) if row[2].id == session), None)
    return None


def rows_of(connection: sqlite3.Connection, key: int, length: int) -> dict[int, EventRow]:
    """The rows of a session's events that can be reached, by seq; `length` is how many there should be."""
    low, high = key << SEQ_BITS, (key + 1) << SEQ_BITS
    rows: dict[int, EventRow] = {}
    try:
        for row in connection.execute(_RANGE, (low, high)):
            rows[row[0] - low] = row
        return rows
    except sqlite3.Error as error:
        _pass(error)
    # A damaged page ends a walk: what lies behind it is reached from the end, and between two of them one by one.
    for row in until_damage(connection, f"{_RANGE} DESC", low, high):
        rows.setdefault(row[0] - low, row)
    for seq in range(min(max(length, *rows, 0), _FURTHEST)):
        if seq not in rows:
            for row in until_damage(connection, _ONE, low + seq):
                rows[seq] = row
    return rows


def log_of(connection: sqlite3.Connection, key: int, length: int) -> tuple[Event | Damaged, ...]:
    """A session's log, with a value in place of each part that is not as it was written."""
    names = names_of(connection)
    rows = rows_of(connection, key, length)
    log: list[Event | Damaged] = []
    following = 0
    for seq in sorted(rows):
        if seq > following:
            log.append(_missing(following, seq))
        log.append(_read(seq, rows[seq], names))
        following = seq + 1
    if following < length:
        log.append(_missing(following, length))
    return tuple(log)


def _missing(first: int, stop: int) -> Damaged:
    return Damaged(first, stop, "it is missing" if stop == first + 1 else f"{stop - first} events are missing")


def _read(seq: int, row: EventRow, names: Mapping[int, str]) -> Event | Damaged:
    try:
        return event_of(row, names)
    except (DecodeError, UnsupportedFormat) as error:
        return Damaged(seq, seq + 1, str(error), _guess(seq, row, names))


def _guess(seq: int, row: EventRow, names: Mapping[int, str]) -> Event | None:
    """What a damaged row seems to hold, if anything."""
    _, time, kind, ignorable, stored, _ = row
    if not isinstance(stored, bytes) or not isinstance(kind, int):
        return None
    name = names.get(kind, f"type {kind}")
    try:
        # As one that may be ignored, since one of an unknown type is kept like that.
        data = decode_event_data(name, payload.load(stored), ignorable=True)
    except (DecodeError, UnsupportedFormat):
        return None
    return Event(seq, time if isinstance(time, int) else 0, data, ignorable=bool(ignorable))


def name_of(row: EventRow, names: Mapping[int, str]) -> str:
    at, time, kind, ignorable, stored, sealed = row
    if not (isinstance(time, int) and isinstance(kind, int) and isinstance(stored, bytes) and ignorable in (0, 1)):
        raise DecodeError("its row is not of our form")
    name = names.get(kind)
    if sealed is None:
        if name is None:
            raise DecodeError(f"its type {kind} has no name")
        return name
    assert isinstance(ignorable, int)
    if name is not None and sealed == seal.of_event(at, time, name, ignorable, stored):
        return name
    # Names stand in a table for all sessions: damage there is to be no damage of theirs.
    for known in EVENTS.kinds():
        if sealed == seal.of_event(at, time, known, ignorable, stored):
            return known
    raise DecodeError("its bytes are not those that were written")


def _keys_of_events(connection: sqlite3.Connection) -> Iterator[int]:
    low = 0
    while low < 1 << 63:
        at = next((at for (at,) in until_damage(connection, _NEXT, low)), -1)
        if at < low:
            return  # The end, or a damaged page that leads back.
        yield at >> SEQ_BITS
        low = ((at >> SEQ_BITS) + 1) << SEQ_BITS


def until_damage(connection: sqlite3.Connection, query: str, *parameters: int | str | bytes | None) -> Iterator[Any]:
    """The rows of a query up to the first that cannot be reached."""
    try:
        yield from connection.execute(query, parameters)
    except sqlite3.Error as error:
        _pass(error)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _pass(error: sqlite3.Error) -> None:
    if not is_damage(error):
        raise error
