"""One process at a time has a session's pen: an operating-system lock on a file that names its holder."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from agentls.core.errors import SessionHeld
from agentls.store.faults import unavailable

_NAME_MAX = 200
_ATTEMPTS = 200


class SessionLock:
    """A held lock. The kernel frees it when its process dies, however it dies; children do not inherit it."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path

    @classmethod
    def acquire(cls, directory: Path, session: str) -> SessionLock:
        """Take the lock at once, or SessionHeld with the holder's pid, also when the holder is this process;
        StoreUnavailable when the file cannot be written."""
        path = directory / file_name(session)
        pid = None
        for _ in range(_ATTEMPTS):
            try:
                lock = cls._attempt(path)
            except BlockingIOError:
                pid = _holder(path)
                if pid is not None:
                    break
                # It has the lock and not yet written its name over that of a dead holder.
                os.sched_yield()
            except OSError as error:
                raise unavailable(error, path, "lock a session in") from error
            else:
                if lock is not None:
                    return lock
        raise SessionHeld(session, pid)

    @classmethod
    def _attempt(cls, path: Path) -> SessionLock | None:
        """The lock, or None if the file was taken away between opening and locking it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(descriptor, path):
                os.close(descriptor)
                return None
        except BaseException:
            os.close(descriptor)
            raise
        # The name is for people: without it (disk full) the lock holds all the same.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return cls(descriptor, path)

    def release(self) -> None:
        """Let it go and take the file away; harmless when the file is gone already. Call it once."""
        # A read-only directory keeps the file; what counts is the lock.
        with suppress(OSError):
            if _is_at(self._descriptor, self._path):
                self._path.unlink()
        os.close(self._descriptor)


def file_name(session: str) -> str:
    """A file name for any id, another one for each."""
    name = quote(session, safe="", errors="surrogatepass")
    if len(name) > _NAME_MAX:
        name = "%%" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}.lock"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> int | None:
    """The pid in the file, if it is that of a living process."""
    try:
        pid = int(path.read_bytes())
    except (OSError, ValueError):
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return pid  # Alive, and another user's.
    except (ProcessLookupError, OverflowError):
        return None
    return pid
