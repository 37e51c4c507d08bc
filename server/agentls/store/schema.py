"""The two database files: their tables, and how one is made, checked and connected to."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentls.core.errors import UnsupportedFormat, UserError
from agentls.store.faults import is_no_database, is_read_only, unavailable

SEQ_BITS = 32
"""An event's rowid is its session's key shifted by this much, plus its seq."""

TURN_END = 0
TURN_START = 1
"""Keys of the types that bound turns; the index of turns is made of them."""


_TABLE = re.compile(r"CREATE TABLE (\w+)")


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file of ours is known by, and its tables."""

    application_id: int
    version: int
    tables: str
    sealed: tuple[str, ...]
    """Tables whose rows have a seal. A file of before there were any gets the column; nothing else differs, so that it
    is of the same version and those who know no seals go on with it."""
    trial: tuple[str, ...]
    """What is done and taken back to see whether a file can be used: each table is read through that is small, and a
    row put into each."""

    @property
    def names(self) -> set[str]:
        """The tables."""
        return set(_TABLE.findall(self.tables))


# `pulse` is written where a transaction must write something: an empty one syncs nothing.
_PULSE = """
CREATE TABLE pulse (one INTEGER PRIMARY KEY CHECK (one = 1), beats INTEGER NOT NULL) STRICT;
INSERT INTO pulse VALUES (1, 0);
"""
BEAT = "UPDATE pulse SET beats = beats + 1"

# One integer key for session and seq, and a plain table, since rows reach from 20 bytes to a quarter of a megabyte:
# against PRIMARY KEY (session, seq) WITHOUT ROWID a mixed log took 20 % less disk and 35 % less time to write.
SESSIONS = Schema(
    application_id=int.from_bytes(b"agls", "big"),
    version=1,
    tables=f"""
CREATE TABLE session (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    workspace TEXT NOT NULL,
    cwd TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    parent TEXT,
    seed_length INTEGER,
    title TEXT,
    summary TEXT,
    model_provider TEXT,
    model_id TEXT,
    next_seq INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    seal INTEGER -- seal.py; NULL in a row of before there were any
) STRICT;
CREATE TABLE type (key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO type VALUES ({TURN_END}, 'turn/end'), ({TURN_START}, 'turn/start');
CREATE TABLE event (
    at INTEGER PRIMARY KEY, -- session.key << {SEQ_BITS} | seq
    time INTEGER NOT NULL,
    type INTEGER NOT NULL,
    ignorable INTEGER NOT NULL,
    data BLOB NOT NULL, -- payload.py
    seal INTEGER
) STRICT;
CREATE INDEX turn ON event (type) WHERE type <= {TURN_START};
{_PULSE}""",
    sealed=("session", "event"),
    trial=(
        "SELECT key, name FROM type",
        "SELECT max(created_at), max(title), max(summary) FROM session",
        "INSERT INTO session (id, version, workspace, cwd, created_at, next_seq, last_time, seal) "
        "VALUES (hex(randomblob(16)), 1, '', '', 0, 0, 0, 0)",
        f"INSERT INTO event SELECT max(key) << {SEQ_BITS}, 0, {TURN_START}, 0, x'', 0 FROM session",
        f"INSERT INTO event SELECT (max(key) << {SEQ_BITS}) + 1, 0, {TURN_END}, 0, x'', 0 FROM session",
        "INSERT INTO type (name) VALUES (hex(randomblob(16)))",
    ),
)

# `text` is UTF-8 that may hold a lone surrogate, which TEXT cannot.
DRAFTS = Schema(
    application_id=int.from_bytes(b"agld", "big"),
    version=1,
    tables=f"""
CREATE TABLE piece (
    session TEXT NOT NULL,
    n INTEGER NOT NULL,
    message TEXT NOT NULL,
    idx INTEGER NOT NULL,
    kind TEXT NOT NULL,
    offset INTEGER NOT NULL,
    text BLOB NOT NULL,
    seal INTEGER,
    PRIMARY KEY (session, n)
) STRICT, WITHOUT ROWID;
{_PULSE}""",
    sealed=("piece",),
    trial=(
        "SELECT max(message), max(text) FROM piece",
        "INSERT INTO piece VALUES (hex(randomblob(16)), 0, '', 0, '', 0, x'', 0)",
    ),
)


def make_directory(directory: Path) -> None:
    """Make the state directory for its owner alone; one that exists is left as it is."""
    try:
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_directory(directory.parent)
    except OSError as error:
        raise unavailable(error, directory, "make") from error


def prepare(path: Path, schema: Schema) -> None:
    """Make the file if it is missing or empty, else check that it is ours and not newer: UnsupportedFormat comes
    before any other complaint, then UserError for a file of something else."""
    try:
        with alone_in(path.parent):
            # SQLite gives the -wal and -shm files the mode of the database.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = connect(path, wait=5.0)
            try:
                _check_or_make(connection, path, schema)
            finally:
                connection.close()
    except (sqlite3.Error, OSError) as error:
        if is_no_database(error):
            raise UserError(f'"{path}" is no database of agentls; move it away, then start again') from error
        raise unavailable(error, path, "open") from error


def connect(path: Path, *, wait: float) -> sqlite3.Connection:
    """A connection in autocommit that any one thread at a time may use; `wait` is for locks, in seconds. It syncs as
    `synchronous = NORMAL` and never checkpoints: that is the writer thread's work."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    connection.text_factory = _text
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, to a file that another process has open."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0, isolation_level=None)
    connection.text_factory = _text
    return connection


def require_writable(connection: sqlite3.Connection) -> None:
    """sqlite3.OperationalError where SQLite has opened the file, or its log, for reading only. It does so silently when
    the open for writing fails, be it for a moment, and then no write ever succeeds. Any other fault is told by the
    first write that meets it."""
    try:
        # The first alone is taken for the beginning of reads then.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(BEAT)
    except sqlite3.DatabaseError as error:
        if is_read_only(error):
            raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class Place:
    """The file behind a name: SQLite would go on writing to one that was removed, and all of it would be lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._look()

    def check(self) -> None:
        """OSError where the file is not there any more (ENOENT), or another one is (ESTALE)."""
        if self._look() != self._file:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def _look(self) -> tuple[int, int]:
        status = self._path.stat()
        return status.st_dev, status.st_ino


def as_text(value: str | None) -> bytes | None:
    """A parameter for `CAST(? AS TEXT)`: a path may hold bytes that are no UTF-8, which sqlite3 refuses as str."""
    return None if value is None else value.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # A damaged row is listed, not hidden behind an error of the whole query.
        return raw.decode("utf-8", "replace")


def _check_or_make(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if owner == schema.application_id and version > schema.version:
        raise UnsupportedFormat(
            f'the session store "{path}" has format {version} and this agentls knows {schema.version}; upgrade agentls'
        )
    if owner == 0 and version == 0 and tables == 0:
        make(connection, schema)
    elif owner != schema.application_id or version < 1:
        raise UserError(f'"{path}" belongs to another program; move it away, then start again')
    else:
        add_seals(connection, schema)


def add_seals(connection: sqlite3.Connection, schema: Schema) -> None:
    """Give a file of before there were seals room for them."""
    for table in schema.sealed:
        if not any(name == "seal" for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN seal INTEGER")


def form_of(connection: sqlite3.Connection, schema: Schema) -> tuple[object, ...]:
    """What the tables and indexes of a file are, but for seals, which it may not have yet."""
    columns = {table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in sorted(schema.names)}
    indexes = connection.execute("SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name")
    return *((table, [row[1:] for row in rows if row[1] != "seal"]) for table, rows in columns.items()), *indexes


@cache
def fresh_form(schema: Schema) -> tuple[object, ...]:
    """The same of a file that was made just now."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.tables)
        return form_of(connection, schema)


def make(connection: sqlite3.Connection, schema: Schema) -> None:
    """Make the tables in an empty file."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(
        f"""BEGIN IMMEDIATE;
        {schema.tables}
        PRAGMA application_id = {schema.application_id};
        PRAGMA user_version = {schema.version};
        COMMIT;"""
    )


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """While no other process makes or mends a file there."""
    # The change to WAL fails at once, without waiting, when a second process makes the same file.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
