"""Text in flight, written inline on the event loop: a hop to a thread costs more than the write and starves under
load (measured: 0.16 ms inline, 0.56 ms through a thread and 20 to 60 ms while the loop parses a burst)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agentls.core.errors import StoreUnavailable
from agentls.core.ids import MessageId
from agentls.store import seal
from agentls.store.checkpoint import WriteAheadLog
from agentls.store.faults import is_disk_fault, unavailable
from agentls.store.salvage import PIECES
from agentls.store.schema import BEAT, Place, connect, require_writable
from agentls.store.store import DraftPiece

_LOCK_WAIT = 0.25  # The event loop stands still meanwhile; another process holds the lock for microseconds.
_PAGES_A_WRITE = 2

_INSERT = "INSERT INTO piece (session, n, message, idx, kind, offset, text, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM piece WHERE session = ? AND message = ?"
_FORGET = "DELETE FROM piece WHERE session = ?"
_SESSIONS = "SELECT DISTINCT session FROM piece"
_ALTERED = " [this text was damaged on disk] "
_LOST = " [text was lost here on disk] "
_LAST = "SELECT max(n) FROM piece WHERE session = ?"


class Drafts:
    """The pieces of all sessions. `wake` is called when something is written after a rest or to a log that has grown
    long, so that the log of this database is copied in time; this connection never does it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = connect(path, wait=_LOCK_WAIT)
            require_writable(self._connection)
            self.log = WriteAheadLog(path)
            self._place = Place(path)
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error, path, "open") from error
        self.wake: Callable[[], None] = lambda: None

    def append(self, session: str, first: int, pieces: Sequence[DraftPiece]) -> None:
        """Write the pieces in one transaction, numbered from `first`."""
        rows = [_row(session, n, piece) for n, piece in enumerate(pieces, first)]
        try:
            self._place.check()
            if len(rows) == 1:
                self._connection.execute(_INSERT, rows[0])
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(_INSERT, rows)
                self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error
        finally:
            # Left open by any failure in between.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._note()

    def drop(self, session: str, message: MessageId) -> None:
        """Forget a message's pieces."""
        self._write(_DROP, session, message)

    def forget(self, session: str) -> None:
        """Forget all pieces of a session."""
        self._write(_FORGET, session)

    def beat(self) -> None:
        """Write something, to learn whether that works."""
        self._write(BEAT)

    def sessions(self) -> tuple[str, ...]:
        """Those that have pieces."""
        try:
            return tuple(session for (session,) in self._connection.execute(_SESSIONS).fetchall())
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error

    def pieces(self, session: str) -> tuple[DraftPiece, ...]:
        """A session's pieces, in the order in which they were written; one that is not as it was written says so in
        its text."""
        try:
            rows = self._connection.execute(PIECES, (session,)).fetchall()
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error
        return pieces_of(session, rows)

    def next_number(self, session: str) -> int:
        """The number of a session's next piece."""
        try:
            (last,) = self._connection.execute(_LAST, (session,)).fetchone()
        except sqlite3.Error as error:
            raise unavailable(error, self._path, "read") from error
        return 0 if last is None else int(last) + 1

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _write(self, statement: str, *parameters: str) -> None:
        try:
            self._place.check()
            self._connection.execute(statement, parameters)
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from error
        self._note()

    def _note(self) -> None:
        rested = self.log.is_clean
        self.log.note(_PAGES_A_WRITE)
        # A long reply may write for minutes before an event does.
        if rested or self.log.is_long:
            self.wake()

    def _failed(self, error: sqlite3.Error | OSError) -> StoreUnavailable | sqlite3.Error | OSError:
        return unavailable(error, self._path) if is_disk_fault(error) else error


def _row(session: str, n: int, piece: DraftPiece) -> tuple[str | int | bytes, ...]:
    text = piece.text.encode("utf-8", "surrogatepass")
    sealed = seal.of_piece(session, n, piece.message, piece.index, piece.kind, piece.offset, text)
    return session, n, piece.message, piece.index, piece.kind, piece.offset, text, sealed


def pieces_of(session: str, rows: Sequence[tuple[object, ...]]) -> tuple[DraftPiece, ...]:
    """The pieces in a session's rows (n, message, idx, kind, offset, text, seal), in order. Where one is lost or not as
    it was written, the text says so: whoever reads it must not take it for what the model had said."""
    pieces: list[DraftPiece] = []
    ends: dict[tuple[MessageId, int], int] = {}
    # A damaged row is a part of the block that its neighbour belongs to.
    near = next((piece for row in rows if (piece := _whole(session, row)) is not None), None)
    for row in rows:
        piece, stored = _whole(session, row), row[5] if isinstance(row[5], bytes) else b""
        if piece is None and near is not None:
            offset = ends.get((near.message, near.index), 0)
            piece = replace(near, offset=offset, text=stored.decode("utf-8", "replace") + _ALTERED)
        if piece is None:
            continue
        place = (piece.message, piece.index)
        if piece.offset > ends.get(place, 0):
            piece = replace(piece, offset=ends.get(place, 0), text=_LOST + piece.text)
            ends[place] = row[4] if isinstance(row[4], int) else 0
        ends[place] = ends.get(place, 0) + len(stored)
        pieces.append(piece)
        near = piece
    return tuple(pieces)


def _whole(session: str, row: tuple[object, ...]) -> DraftPiece | None:
    """The piece of a row that is as it was written."""
    n, message, index, kind, offset, text, sealed = row
    if not (isinstance(n, int) and isinstance(index, int) and isinstance(offset, int)):
        return None
    if not (isinstance(message, str) and isinstance(text, bytes) and (kind == "text" or kind == "reasoning")):
        return None
    if sealed is not None and sealed != seal.of_piece(session, n, message, index, kind, offset, text):
        return None
    try:
        return DraftPiece(MessageId(message), index, kind, offset, text.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return None
