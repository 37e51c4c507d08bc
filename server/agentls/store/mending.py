"""A damaged database file, before it is opened: what was there is kept beside it, and what can be read goes on.

Only where nobody else has the file open. Nothing here is done to a file that is as it was written.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from agentls.core.errors import DecodeError, UserError
from agentls.store import salvage, wal
from agentls.store.faults import is_damage, is_no_database, reason
from agentls.store.schema import BEAT, SESSIONS, Schema, add_seals, as_text, connect, form_of, fresh_form, make

_MAGIC = b"SQLite format 3\0"
_PAGE = 4096
_HEADER = 100
_INDEX_HEAD = 96
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file may raise: an error of SQLite may name what is no text any more."""
_NEVER = 256
"""No version is that high; those below are believed, since a newer file is not to be touched."""
_MARK = ".mend"
_SCRATCH = ".mending-"
_FORM = struct.pack(">HBBBBBB", _PAGE, 2, 2, 0, 64, 32, 32)
"""What follows the magic in a file of ours: the size of a page, the write-ahead log, and what never varies."""
# Where SQLite keeps the locks of those who have a file open (https://sqlite.org/src/file/src/os.h).
_SHARED_FIRST, _SHARED_SIZE = 0x40000000 + 2, 510

_INSERT_EVENT = f"INSERT OR IGNORE INTO event ({salvage.EVENT}) VALUES (?, ?, ?, ?, ?, ?)"
_TELLS = "title, summary, model_provider, model_id, next_seq, last_time, seal"
_INSERT_SESSION = f"""
INSERT OR IGNORE INTO session (key, {salvage.HEADER}, {_TELLS})
VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, CAST(? AS TEXT), ?,
    CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?)"""
_PIECE = "session, n, message, idx, kind, offset, text, seal"


@dataclass(frozen=True, slots=True)
class Mended:
    """What was wrong with a file, and where it is kept as it was; `lost` says that nothing of it could be read."""

    path: Path
    wrong: str
    kept: Path
    lost: bool
    holds_sessions: bool

    def told(self) -> str:
        """A sentence for the person."""
        left = (
            "nothing of it could be read, so that it begins anew"
            if self.lost
            else "what could be read goes on, and sessions that have lost something say so"
        )
        told = f'"{self.path}" was damaged ({self.wrong}): it is kept as it was in "{self.kept}", and {left}'
        if not self.holds_sessions:
            return f"the text in flight in {told}"
        rest = f'"agentls sessions export --all --database {self.kept}" writes what is left there'
        return f"the session store {told}; {rest}"


def mend(path: Path, schema: Schema) -> Mended | None:
    """Have SQLite be able to use the file, whatever it holds; what was wrong with it, or None where nothing was.
    UserError where there is no room to keep it as it was."""
    if not path.exists() or is_used(path):
        return None
    for left in path.parent.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)  # Of one that was killed at it.
    patient = _Patient(path, schema)
    patient.outside()
    treatments = (
        (patient.first_page, "its first page could not be read"),
        (patient.rebuilt, "parts of it could not be read"),
        (patient.replaced, "it is no database of agentls"),
    )
    marked = _beside(path, _MARK).exists()
    if marked or not patient.works():
        # What could not be written is found by nothing short of writing all of it.
        for treat, wrong in treatments[1:] if marked else treatments:
            if treat() and patient.works():
                patient.wrong.append(wrong)
                break
    return patient.mended()


def mark(path: Path) -> None:
    """Have a file be made anew when it is opened next: there is damage that a look at it does not find."""
    _beside(path, _MARK).touch(mode=0o600)


class _Patient:
    """One file, and what was done to it."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._path = path
        self._log = _beside(path, "-wal")
        self._schema = schema
        self._kept: Path | None = None
        self.wrong: list[str] = []
        self._lost = False

    def mended(self) -> Mended | None:
        """See `mend`."""
        if self._kept is None:
            return None
        wrong = ", ".join(dict.fromkeys(self.wrong))
        return Mended(self._path, wrong, self._kept, self._lost, holds_sessions=self._schema is SESSIONS)

    def outside(self) -> None:
        """Mend what SQLite would pass over in silence or refuse as a whole, by the bytes of the files alone."""
        raw = self._log.read_bytes() if self._log.exists() else b""
        log = wal.read(raw)
        if log is not None and log.bad:
            self._find("its log of changes has damaged parts with later changes behind them")
            _replace(self._log, lambda new: new.write_bytes(log.mended))
        index = _beside(self._path, "-shm")
        written = wal.frames_written(index.read_bytes()[:_INDEX_HEAD], raw) if index.exists() else 0
        if written > (log.frames if log is not None else 0):
            self._find("the end of its log of changes is missing, and with it what was written last")
        head = _head(self._path)
        if not head and log is None:
            return  # Made a moment ago, or never used.
        ours = head[68:72] == self._schema.application_id.to_bytes(4, "big")
        if len(head) < _HEADER or head[:16] != _MAGIC or (ours and head[16:24] != _FORM):
            self._find("its first page could not be read")
            self.first_page()
            return
        size, pages = self._path.stat().st_size, int.from_bytes(head[28:32], "big")
        if log is None and head[24:28] == head[92:96] and pages * _PAGE > size and pages < 1 << 24:
            self._find("its end is missing")
            _replace(self._path, lambda new: _with_end(self._path, new, pages))

    # Each mends one thing more; true where the file is worth a try.

    def first_page(self) -> bool:
        """The first page, which is the same in all files of a schema but for counts."""
        self._keep()
        log = wal.read(self._log.read_bytes()) if self._log.exists() else None
        pages = max(-(-self._path.stat().st_size // _PAGE), log.size if log else 0, 1)
        _replace(self._path, lambda new: _with_first_page(self._path, new, self._schema, pages))
        return True

    def rebuilt(self) -> bool:
        """All rows that can be reached, in a new file."""
        self._keep()
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=_SCRATCH) as folder:
            new = Path(folder) / self._path.name
            try:
                with closing(connect(self._path, wait=1.0)) as old, closing(_made(new, self._schema)) as fresh:
                    copied = _copy(old, fresh, self._schema)
            except _UNREADABLE:
                return False
            if not copied:
                return False
            self._put(new)
        return True

    def replaced(self) -> bool:
        """A new file with nothing in it."""
        self._lost = True
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix=_SCRATCH) as folder:
            new = Path(folder) / self._path.name
            _made(new, self._schema).close()
            self._put(new)
        return True

    def works(self) -> bool:
        """Whether all tables can be read and a session be added; false only where the file is to blame."""
        try:
            with closing(connect(self._path, wait=1.0)) as connection:
                return _works(connection, self._schema)
        except sqlite3.Error as error:
            return not (is_damage(error) or is_no_database(error))
        except UnicodeDecodeError:
            return False

    def _put(self, new: Path) -> None:
        for end in ("-wal", "-shm"):
            _beside(self._path, end).unlink(missing_ok=True)
        new.replace(self._path)
        _beside(self._path, _MARK).unlink(missing_ok=True)
        _sync(self._path.parent)

    def _find(self, wrong: str) -> None:
        self.wrong.append(wrong)
        self._keep()

    def _keep(self) -> None:
        if self._kept is not None:
            return
        kept = next(place for n in range(1, 10_000) if not (place := _beside(self._path, f".damaged-{n}")).exists())
        try:
            if self._log.exists():
                _replace(_beside(kept, "-wal"), lambda new: copied(self._log, new))
            _replace(kept, lambda new: copied(self._path, new))
        except OSError as error:
            raise UserError(
                f'the session store "{self._path}" is damaged, and it cannot be kept as it is in "{kept}" '
                f"({reason(error)}); make room there, then start again"
            ) from error
        self._kept = kept


def _works(connection: sqlite3.Connection, schema: Schema) -> bool:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    form = form_of(connection, schema) if tables >= schema.names else None
    if not tables and owner == version == 0:
        return True  # To be made.
    if owner == schema.application_id and schema.version < version < _NEVER:
        return True  # To be refused.
    if form is None or owner != schema.application_id or not 1 <= version < _NEVER:
        return form is None and owner != schema.application_id  # Another program's is to be refused.
    if form != fresh_form(schema):
        return False
    try:
        connection.execute("BEGIN IMMEDIATE")
        add_seals(connection, schema)  # Taken back with the rest.
        for statement in schema.trial:
            connection.execute(statement).fetchall()
        connection.execute(BEAT)
    except sqlite3.OperationalError as error:
        # A name that is missing is one that was damaged; a disk that takes no writes is no damage.
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return False
        raise
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, schema: Schema) -> int:
    """Copy every row that can be reached as it stands, wrong ones too, which their seals tell; how many there were."""
    with suppress(*_UNREADABLE):
        add_seals(old, schema)
    new.execute("BEGIN IMMEDIATE")
    copied = _copy_sessions(old, new) if schema is SESSIONS else _copy_pieces(old, new)
    new.execute("COMMIT")
    return copied


def _copy_sessions(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    names = salvage.names_of(old)
    keys = {name: key for key, name in salvage.names_of(new).items()}
    copied = 0
    for key, length, header, fault in salvage.sessions_of(old):
        rows = salvage.rows_of(old, key, length)
        if not rows and fault == salvage.NO_ROW:
            continue
        texts, numbers = _told(old, key, rows, lost=fault == salvage.NO_ROW)
        placed = (as_text(header.id), as_text(header.workspace), as_text(header.cwd), header.created_at, header.version)
        new.execute(
            _INSERT_SESSION,
            (key, *placed, as_text(header.parent), header.seed_length, *map(as_text, texts), *numbers),
        )
        for row in rows.values():
            at, time, kind, ignorable, stored, sealed = row
            if not (isinstance(time, int) and isinstance(kind, int) and isinstance(stored, bytes)):
                continue  # The log says that it is missing.
            try:
                name = salvage.name_of(row, names)
            except DecodeError:
                name = names.get(kind, f"type {kind}")
            if name not in keys:
                keys[name] = new.execute("INSERT INTO type (name) VALUES (?) RETURNING key", (name,)).fetchone()[0]
            values = (at, time, keys[name], ignorable if isinstance(ignorable, int) else 0, stored)
            new.execute(_INSERT_EVENT, (*values, sealed if isinstance(sealed, int | None) else 0))
        copied += 1
    return copied


def _told(
    old: sqlite3.Connection, key: int, rows: Mapping[int, salvage.EventRow], *, lost: bool
) -> tuple[list[str | None], list[int | None]]:
    """What a session's row says beside its header; what it does not say is taken from its events."""
    values = [] if lost else salvage.some(old, f"SELECT {_TELLS} FROM session WHERE key = ?", key)
    if values:
        *texts, length, last_time, sealed = values[0]
        if isinstance(length, int) and isinstance(last_time, int) and isinstance(sealed, int | None):
            return [text if isinstance(text, str) else None for text in texts], [length, last_time, sealed]
    newest = rows[max(rows)][1] if rows else 0
    return [None] * 4, [max(rows, default=-1) + 1, newest if isinstance(newest, int) else 0, 0]


def _copy_pieces(old: sqlite3.Connection, new: sqlite3.Connection) -> int:
    rows: dict[tuple[object, object], tuple[object, ...]] = {}
    for order in ("", " ORDER BY session DESC, n DESC"):
        for row in salvage.until_damage(old, f"SELECT {_PIECE} FROM piece{order}"):
            rows.setdefault((row[0], row[1]), row)
    copied = 0
    for row in rows.values():
        with suppress(sqlite3.Error):  # Of a form that the table does not take.
            new.execute(f"INSERT INTO piece ({_PIECE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            copied += 1
    return copied


def _made(path: Path, schema: Schema) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = connect(path, wait=1.0)
    make(connection, schema)
    return connection


def _with_first_page(old: Path, new: Path, schema: Schema, pages: int) -> None:
    with tempfile.TemporaryDirectory(dir=new.parent, prefix=_SCRATCH) as folder:
        fresh = Path(folder) / "fresh.db"
        _made(fresh, schema).close()
        page = bytearray(fresh.read_bytes()[:_PAGE])
    page[24:28] = page[92:96] = (1).to_bytes(4, "big")
    page[28:32] = pages.to_bytes(4, "big")
    # Free pages are not known any more and stay unused.
    page[32:40] = bytes(8)
    _with_end(old, new, pages)
    with new.open("r+b") as file:
        file.write(page)


def _with_end(old: Path, new: Path, pages: int) -> None:
    """A copy with empty pages in place of those that are missing, of which SQLite says that they are damaged."""
    copied(old, new)
    os.truncate(new, pages * _PAGE)


def copied(old: Path, new: Path) -> None:
    """Copy the bytes of a file."""
    shutil.copyfile(old, new)


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Put what `write` makes in the place of a file, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as folder:
        new = Path(folder) / "new"
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        write(new)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER)


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def is_used(path: Path) -> bool:
    """Whether a process has a connection to the file; also this one."""
    with path.open("rb") as file:
        asked = struct.pack("@hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked)
        (kind,) = struct.unpack("@h", answer[:2])
        return bool(kind != fcntl.F_UNLCK)
