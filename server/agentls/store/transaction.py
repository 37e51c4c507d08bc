"""What the writer thread does inside SQLite: one transaction for the batches that wait."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from agentls.core.errors import LogicError
from agentls.core.events import ModelRef, SessionHeader
from agentls.store import payload, seal
from agentls.store.checkpoint import WriteAheadLog
from agentls.store.faults import unavailable
from agentls.store.schema import BEAT, SEQ_BITS, TURN_END, TURN_START, Place, as_text, connect, require_writable

_LOCK_WAIT = 5.0
_ROWS_A_STATEMENT = 16
# Of a session's row, of the index and of the table's edge.
_PAGES_A_BATCH = 3
_PAGE = 4096

_KINDS = {"turn/end": TURN_END, "turn/start": TURN_START}

_INSERT_SESSION = """
INSERT INTO session (id, version, workspace, cwd, created_at, parent, seed_length, seal, next_seq, last_time)
VALUES (CAST(? AS TEXT), ?, CAST(? AS TEXT), CAST(? AS TEXT), ?, CAST(? AS TEXT), ?, ?, 0, 0)"""
_ADVANCE = """
UPDATE session SET next_seq = ?, last_time = ?, title = coalesce(CAST(? AS TEXT), title),
    summary = coalesce(CAST(? AS TEXT), summary), model_provider = coalesce(CAST(? AS TEXT), model_provider),
    model_id = coalesce(CAST(? AS TEXT), model_id)
WHERE key = ? AND next_seq = ?"""
_DELETE_EVENTS = "DELETE FROM event WHERE at >= ? AND at < ?"
_DELETE_SESSION = "DELETE FROM session WHERE key = ?"
_INSERT_EVENTS = "INSERT INTO event (at, time, type, ignorable, data, seal) VALUES "


class Row(NamedTuple):
    """An event on its way to disk; a payload that is not packed yet is packed by the writer thread."""

    seq: int
    time: int
    kind: str
    ignorable: bool
    payload: bytes


@dataclass(eq=False, slots=True)
class Tail:
    """Where the next batch of a log goes. `key` is None until its first batch is stored, `fault` says why batches are
    refused until a probe succeeds. Only the writer thread writes here once the first batch is given."""

    header: SessionHeader
    key: int | None = None
    fault: str | None = None


@dataclass(eq=False)
class Batch:
    """Events of one log that are stored together, and what the session's row says from now on (None: as before).
    `make` gives the rows; the writer thread asks for them once. `more` says that another batch is about to come."""

    tail: Tail
    make: Callable[[], tuple[Row, ...]]
    durable: bool
    more: bool = False
    title: str | None = None
    summary: str | None = None
    model: ModelRef | None = None

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """In the order of the log."""
        return self.make()


class Transactions:
    """Owns the connection that writes events; for one thread."""

    def __init__(self, path: Path, trace: Callable[[str], None] | None) -> None:
        try:
            self._connection = connect(path, wait=_LOCK_WAIT)
            require_writable(self._connection)
            self.log = WriteAheadLog(path)
            self._place = Place(path)
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error, path, "open") from error
        self._connection.set_trace_callback(trace)
        self._synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
        self._kinds = dict(_KINDS)
        self._new_tails: list[Tail] = []

    def store(self, batches: Sequence[Batch]) -> list[LogicError | None]:
        """Store the batches, all or none, but for those that do not continue their log: each has its error or None.
        On disk at the end if any of them is durable."""
        size = sum(len(row.payload) for batch in batches for row in batch.rows)
        with self._written(durable=any(batch.durable for batch in batches)):
            gaps = [self._store(batch) for batch in batches]
            if not any(batch.rows and gap is None for batch, gap in zip(batches, gaps, strict=True)):
                self._connection.execute(BEAT)
        self.log.note(_PAGES_A_BATCH * len(batches) + size // _PAGE)
        return gaps

    def beat(self) -> None:
        """Write and sync one row."""
        with self._written(durable=True):
            self._connection.execute(BEAT)
        self.log.note(1)

    def delete(self, key: int) -> None:
        """Remove a session's row and events, all or none; on disk at the end."""
        with self._written(durable=True):
            events = self._connection.execute(_DELETE_EVENTS, (key << SEQ_BITS, (key + 1) << SEQ_BITS)).rowcount
            self._connection.execute(_DELETE_SESSION, (key,))
        self.log.note(_PAGES_A_BATCH + events)

    def close(self) -> None:
        """Close the connection."""
        self.log.close()
        self._connection.close()

    @contextlib.contextmanager
    def _written(self, *, durable: bool) -> Iterator[None]:
        """One transaction, on the disk at the end if it is durable; nothing of it is left when it fails."""
        self._place.check()
        # Without effect inside a transaction, so it comes first.
        level: Literal["NORMAL", "FULL"] = "FULL" if durable else "NORMAL"
        if level != self._synchronous:
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # What the thread remembers of the database goes back with it.
            for tail in self._new_tails:
                tail.key = None
            self._kinds = dict(_KINDS)
            # SQLite has rolled back by itself after some errors.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._new_tails = []

    def _store(self, batch: Batch) -> LogicError | None:
        if not batch.rows:
            return None
        tail, first, last = batch.tail, batch.rows[0], batch.rows[-1]
        if tail.key is None and first.seq == 0:
            header = tail.header
            tail.key = self._connection.execute(
                _INSERT_SESSION,
                (
                    as_text(header.id),
                    header.version,
                    as_text(header.workspace),
                    as_text(header.cwd),
                    header.created_at,
                    as_text(header.parent),
                    header.seed_length,
                    seal.of_header(header),
                ),
            ).lastrowid
            self._new_tails.append(tail)
        model = (None, None) if batch.model is None else (batch.model.provider, batch.model.id)
        says = map(as_text, (batch.title, batch.summary, *model))
        advance = (last.seq + 1, last.time, *says, tail.key, first.seq)
        if self._connection.execute(_ADVANCE, advance).rowcount != 1:
            return LogicError(
                f'events {first.seq} to {last.seq} do not continue the stored log of session "{tail.header.id}"'
            )
        assert tail.key is not None
        at = tail.key << SEQ_BITS
        for start in range(0, len(batch.rows), _ROWS_A_STATEMENT):
            rows = batch.rows[start : start + _ROWS_A_STATEMENT]
            values: list[int | bytes] = []
            for row in rows:
                packed = row.payload if payload.is_packed(row.payload) else payload.pack(row.payload)
                sealed = seal.of_event(at | row.seq, row.time, row.kind, int(row.ignorable), packed)
                values += (at | row.seq, row.time, self._kind(row.kind), row.ignorable, packed, sealed)
            # One statement, since each of them hands the interpreter lock to a busy event loop and waits for it.
            self._connection.execute(_INSERT_EVENTS + ",".join(["(?,?,?,?,?,?)"] * len(rows)), values)
        return None

    def _kind(self, name: str) -> int:
        key = self._kinds.get(name)
        if key is None:
            self._connection.execute("INSERT OR IGNORE INTO type (name) VALUES (?)", (name,))
            (key,) = self._connection.execute("SELECT key FROM type WHERE name = ?", (name,)).fetchone()
            assert isinstance(key, int)
            self._kinds[name] = key
        return key
