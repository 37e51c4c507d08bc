"""The owner-only Unix socket: where it may stand, who else listens there, and who may connect."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from agentls.core.errors import UserError

_PATH_MAX = 107
"""Bytes of a socket's path, a limit of Linux."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A bound socket and the lock that says that its server lives."""

    socket: socket.socket
    path: Path
    lock: int

    def close(self) -> None:
        """Take the socket's file away and let the lock go."""
        self.socket.close()
        self.path.unlink(missing_ok=True)
        os.close(self.lock)


def listen(path: Path) -> Listening:
    """Bind `path` for this user alone: its folder has mode 0700 (it is made where missing), the socket 0600.

    The file of a dead server is replaced. UserError where another server listens, the folder is open to others, or
    something else stands there.
    """
    path = path.absolute()
    if len(os.fsencode(path)) > _PATH_MAX:
        raise UserError(f'the path "{path}" is too long for a socket, at most {_PATH_MAX} bytes; choose a shorter one')
    try:
        _own_folder(path.parent)
        lock = _lock(path)
        try:
            _clear(path)
            return Listening(_bind(path), path, lock)
        except BaseException:
            os.close(lock)
            raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f'cannot listen on "{path}": {reason}; choose another path') from error


def same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end runs as this user, by the kernel's word."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())


def _own_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        facts = folder.stat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise UserError(
                f'the folder "{folder}" is open to others; put the socket into one of your own with mode 0700'
                f' (chmod 700 "{folder}")'
            ) from None


def _lock(path: Path) -> int:
    """The lock beside the socket, which the system frees when its holder dies, however that happens."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _taken(path) from None
    return lock


def _clear(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise UserError(f'"{path}" exists and is no socket; choose another path')
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise _taken(path)
    path.unlink()


def _bind(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    umask = os.umask(0o177)
    try:
        bound.bind(str(path))
        bound.listen(128)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(umask)
    return bound


def _taken(path: Path) -> UserError:
    return UserError(f'a server listens on "{path}" already; connect to it or choose another path')
