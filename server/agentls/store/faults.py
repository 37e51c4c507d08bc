"""What SQLite and the operating system say, in words that a person can act on."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from agentls.core.errors import StoreUnavailable

_GOES_ON = "then it goes on by itself"
_AT_START = ("open", "make")
"""What is done when a store is opened, and never again: nothing goes on after it fails."""

# By primary result code (https://sqlite.org/rescode.html).
_CAUSES = {
    sqlite3.SQLITE_FULL: f"disk full; free some space, {_GOES_ON}",
    sqlite3.SQLITE_READONLY: f"it is read-only; make it writable, {_GOES_ON}",
    sqlite3.SQLITE_BUSY: f"another process keeps it locked; end that process, {_GOES_ON}",
    sqlite3.SQLITE_LOCKED: f"another connection keeps it locked; wait, {_GOES_ON}",
    sqlite3.SQLITE_CANTOPEN: f"it cannot be opened; check that its folder exists and is yours, {_GOES_ON}",
    sqlite3.SQLITE_PERM: f"permission denied; make it yours, {_GOES_ON}",
    sqlite3.SQLITE_NOMEM: f"out of memory; close other programs, {_GOES_ON}",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restart agentls, which keeps it and goes on with what can be read",
}


def unavailable(error: sqlite3.Error | OSError, path: Path, doing: str = "write to") -> StoreUnavailable:
    """The error for a person: what could not be done to which file, why, and what helps."""
    cause = _cause(error)
    if doing in _AT_START:
        cause = cause.replace(_GOES_ON, "then start agentls again")
    return StoreUnavailable(f'cannot {doing} the session store "{path}": {cause}')


def is_disk_fault(error: Exception) -> bool:
    """Whether the file or the disk is to blame, and not the statement or its values."""
    if isinstance(error, sqlite3.DatabaseError):
        ours = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, sqlite3.InternalError)
        return not isinstance(error, ours)
    return isinstance(error, OSError)


def is_locked(error: Exception) -> bool:
    """Whether another process was in the way for longer than we wait."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_BUSY


def is_read_only(error: Exception) -> bool:
    """Whether the file, or how it was opened, takes no writes at all."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_READONLY


def is_no_database(error: Exception) -> bool:
    """Whether the file is something else altogether."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_NOTADB


def is_damage(error: Exception) -> bool:
    """Whether the file's contents are to blame."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_CORRUPT


def reason(error: OSError) -> str:
    """What the operating system says, in lower case."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _cause(error: sqlite3.Error | OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"it was moved or removed; put it back, {_GOES_ON}"
    if isinstance(error, OSError):
        if error.errno == errno.ESTALE:
            return "it was moved or removed, and another file has its name; put it back, or restart agentls"
        return f"{reason(error)}; mend it, {_GOES_ON}"
    code = _code(error)
    if code == sqlite3.SQLITE_IOERR:
        # A quota and a file size limit arrive here too; only ENOSPC is SQLITE_FULL.
        return f"the disk reports an error ({error.sqlite_errorname}); check the disk and its quota, {_GOES_ON}"
    return _CAUSES.get(code, str(error))


def _code(error: sqlite3.Error) -> int:
    # Errors of the Python module itself (a closed connection) carry no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
