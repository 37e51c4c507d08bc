"""When a write-ahead log is copied into its database: on the writer thread, so that nobody waits for it."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from agentls.store.schema import connect, require_writable

FULL_PAGES = 1000
"""Pages after which a log is copied while its writers go on: SQLite's own figure, 4 MiB."""


class WriteAheadLog:
    """One database's log. `note` is called by whoever writes, all else by the writer thread alone.

    How full it is is an estimate, since Python's sqlite3 has no wal_hook: no harm is done by a copy that comes early
    or late.
    """

    def __init__(self, path: Path) -> None:
        # Nearly never waits for a lock: whoever is in the way only means that it is done next time.
        self._connection = connect(path, wait=0.01)
        require_writable(self._connection)
        self._written = 0
        self._copied = 0
        self._cut = 0
        self._seen = 0

    def note(self, pages: int) -> None:
        """About so many pages were written."""
        self._written += pages

    @property
    def is_clean(self) -> bool:
        """Whether nothing was written since the file was last cut to nothing."""
        return self._written == self._cut

    @property
    def is_long(self) -> bool:
        """Whether it is to be copied while its writers go on."""
        return self._written - self._copied >= FULL_PAGES

    def after_write(self) -> None:
        """Copy a log that has grown long; writers and readers go on meanwhile. While somebody writes all the time a
        copy never comes to the end of it, so that it is cut now and then, for which they wait a moment."""
        self._seen = self._written
        if self.is_long:
            self._copy("PASSIVE")
            written = self._written
            if written - self._cut >= 2 * FULL_PAGES and self._copy("TRUNCATE"):
                self._cut = written

    def at_rest(self) -> None:
        """Copy what there is and cut the file to nothing, unless someone wrote since this or `after_write` was last
        called."""
        if self._seen != self._written:
            self.after_write()
        elif not self.is_clean:
            # The first does the long part without keeping a writer out.
            self._copy("PASSIVE")
            self._cut = self._written
            self._copy("TRUNCATE")

    def close(self) -> None:
        """Close the connection; the last one of a database copies and removes the log."""
        self._connection.close()

    def _copy(self, mode: str) -> bool:
        """Whether nobody was in the way."""
        self._copied = self._written
        # Everything is safe in the log. A disk that cannot take it now (full, say) gets it after the next write.
        with suppress(sqlite3.Error):
            ((busy, _, _),) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            return not busy
        return False
