"""Reading a store from beside: without a lock, also while a server has it open, and whatever is damaged."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from agentls.core.errors import UnknownSession, UnsupportedFormat, UserError
from agentls.core.events import FORMAT_VERSION
from agentls.store import salvage
from agentls.store.drafts import pieces_of
from agentls.store.mending import copied, is_used, mend
from agentls.store.reader import newer
from agentls.store.schema import DRAFTS, SESSIONS, Schema, connect, connect_to_read, prepare
from agentls.store.store import Salvage


class Beside:
    """What a store holds, to one who only looks; `wrong` is what its files suffer from, a sentence each."""

    def __init__(
        self, sessions: sqlite3.Connection, drafts: sqlite3.Connection | None, wrong: Sequence[str] = ()
    ) -> None:
        self.wrong = tuple(wrong)
        self._sessions = sessions
        self._drafts = drafts

    def ids(self) -> tuple[str, ...]:
        """Every session of which anything is left, oldest first."""
        return tuple(header.id for _, _, header, _ in salvage.sessions_of(self._sessions))

    def salvage(self, session: str) -> Salvage:
        """All that can be read of a session. UnknownSession where there is none; UnsupportedFormat for a newer one."""
        rows = salvage.sessions_of(self._sessions)
        found = next((row for row in rows if row[2].id == session), None)
        if found is None:
            raise UnknownSession(session)
        key, length, header, fault = found
        if fault is None and header.version > FORMAT_VERSION:
            raise UnsupportedFormat(newer(header))
        pieces = [] if self._drafts is None else salvage.some(self._drafts, salvage.PIECES, session)
        return Salvage(header, salvage.log_of(self._sessions, key, length), pieces_of(session, pieces), fault)


@contextmanager
def beside(sessions: Path, drafts: Path | None) -> Iterator[Beside]:
    """Read a database of sessions, and one of text in flight where there is one. UserError where it cannot be read at
    all, UnsupportedFormat for a newer one. Nothing is written where they are."""
    if not sessions.is_file():
        raise UserError(f'there is no session store "{sessions}"; name its folder with --state-dir')
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentls-")))
        wrong: list[str] = []
        opened = stack.enter_context(closing(_open(sessions, SESSIONS, folder, wrong)))
        text = None
        if drafts is not None and drafts.is_file():
            text = stack.enter_context(closing(_open(drafts, DRAFTS, folder, wrong)))
        yield Beside(opened, text, wrong)


def _open(path: Path, schema: Schema, folder: Path, wrong: list[str]) -> sqlite3.Connection:
    """A connection to a file that a process has open, else to a mended copy of it: SQLite cannot read a file with a log
    of changes without writing beside it."""
    try:
        if is_used(path):
            connection = connect_to_read(path)
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            except (sqlite3.Error, UnicodeDecodeError):
                connection.close()
            else:
                return connection
        # By the name that it has in a store, also where it was set aside under another one.
        copy = folder / ("drafts.db" if schema is DRAFTS else "sessions.db")
        copied(path, copy)
        for end in ("-wal", "-shm"):
            if (other := path.with_name(path.name + end)).is_file():
                copied(other, copy.with_name(copy.name + end))
        if (mended := mend(copy, schema)) is not None:
            wrong.append(f'the session store "{path}" is damaged: {mended.wrong}')
        prepare(copy, schema)
        return connect(copy, wait=1.0)
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise UserError(f'the session store "{path}" cannot be read: {error}') from error
