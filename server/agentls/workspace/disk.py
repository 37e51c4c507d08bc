"""Files read and written whole: never half a file, never a link or a mode lost, never over what one has not seen."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import threading
from contextlib import suppress
from pathlib import Path

from agentls.workspace.roots import real
from agentls.workspace.texts import content_hash

Stamp = tuple[int, int, int, int, int]
"""What changes when a file does, or another one takes its place."""

_NAME_MAX = 200
_OURS = re.compile(r"\..*\.agentls-(?:new|old)", re.DOTALL)
# Between looking at what a file holds and replacing it, so that of two agents that write one file at the same time
# the second is told. What another process writes in that moment is not seen.
_publishing = threading.Lock()


class NotRegular(Exception):
    """Something else than a file or a folder: a pipe, a socket, a device. It is not opened."""


class TooLarge(Exception):
    """A file of more bytes than are wanted; `size` is how many it has, as far as is known."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"it has {size} bytes")


class Changed(Exception):
    """The file is not what it was expected to be; nothing was written."""


def stamp(status: os.stat_result) -> Stamp:
    """A file's stamp, of what the system says of it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_ours(name: str) -> bool:
    """Whether it is the name of what `write` puts beside a file for as long as it writes it."""
    return _OURS.fullmatch(name) is not None


def read(path: Path, limit: int) -> bytes:
    """A file's bytes; TooLarge for more than `limit`, IsADirectoryError, NotRegular, or another OSError."""
    descriptor = -1
    try:
        _check_kind(os.stat(path), path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        _check_kind(status, path)
        if status.st_size > limit:
            raise TooLarge(status.st_size)
        with os.fdopen(descriptor, "rb") as file:
            descriptor = -1
            data = file.read(limit + 1)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    if len(data) > limit:
        raise TooLarge(len(data))
    return data


def write(path: Path, data: bytes, *, expected: str | None) -> None:
    """Make `data` the content of a file that now has the content hash `expected` (None: that is not there).

    A link is followed and stays. A new file and its folders get the mode that the umask leaves; an existing one keeps
    mode, owner and extended attributes where the system allows it. It is replaced whole by a rename within its
    folder, so that whoever reads sees the old or the new content, also after a crash. One with several hard links is
    written in place, so that they stay one file; until that is done a copy of the old content lies beside it, as
    `.<name>.<random>.agentls-old`.

    Changed when it is not as expected, PermissionError for a read-only file, IsADirectoryError, NotRegular, OSError.
    """
    target = real(path)
    try:
        status = os.stat(target)
    except FileNotFoundError:
        if expected is not None:
            raise Changed(f'"{target}" is gone') from None
        target.parent.mkdir(parents=True, exist_ok=True)
        _create(target, data)
        return
    _check_kind(status, target)
    if expected is None:
        raise Changed(f'"{target}" is there already')
    if not os.access(target, os.W_OK):
        raise PermissionError(f'"{target}" is read-only')
    if status.st_nlink > 1:
        _write_in_place(target, data, expected, status)
    else:
        _replace(target, data, expected, status)


def _create(target: Path, data: bytes) -> None:
    temporary = _beside(target, "new")
    try:
        _fill(temporary, data, 0o666)
        try:
            os.link(temporary, target)  # Unlike a rename, it fails when somebody else has just made that file.
        except FileExistsError:
            raise Changed(f'"{target}" is there already') from None
        except OSError:
            # A file system without hard links.
            with _publishing:
                if os.path.lexists(target):
                    raise Changed(f'"{target}" is there already') from None
                os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _replace(target: Path, data: bytes, expected: str, status: os.stat_result) -> None:
    temporary = _beside(target, "new")
    try:
        _fill(temporary, data, 0o600, like=(target, status))
        with _publishing:
            _check(target, expected)
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _write_in_place(target: Path, data: bytes, expected: str, status: os.stat_result) -> None:
    copy = _beside(target, "old")
    with _publishing:
        old = _check(target, expected)
        try:
            _fill(copy, old, 0o600, like=(target, status))
            _sync_folder(target.parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _overwrite(descriptor, data)
            except BaseException:
                _overwrite(descriptor, old)  # If this fails as well the copy stays, since it is raised from here.
                raise
            finally:
                os.close(descriptor)
        except BaseException:
            if _holds(target, old):
                copy.unlink(missing_ok=True)
            raise
        copy.unlink()


def _check(target: Path, expected: str) -> bytes:
    data = target.read_bytes()
    if content_hash(data) != expected:
        raise Changed(f'"{target}" has changed')
    return data


def _holds(target: Path, data: bytes) -> bool:
    try:
        return target.read_bytes() == data
    except OSError:
        return False


def _fill(path: Path, data: bytes, mode: int, like: tuple[Path, os.stat_result] | None = None) -> None:
    """A file that was not there, on disk before this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if like is not None:
            source, status = like
            # In this order: a new owner takes the set-uid bits away, as does a write.
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(OSError):
                    os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            _copy_attributes(source, path)
        os.fsync(descriptor)


def _overwrite(descriptor: int, data: bytes) -> None:
    """Cut last, so that whatever was there before can be put back without asking for more room."""
    rest, at = memoryview(data), 0
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written
    os.ftruncate(descriptor, len(data))
    os.fsync(descriptor)


def _copy_attributes(source: Path, target: Path) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listxattr(source):
                with suppress(OSError):
                    os.setxattr(target, name, os.getxattr(source, name))


def _check_kind(status: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f'"{path}" is a folder')
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(f'"{path}" is neither a file nor a folder')


def _beside(target: Path, what: str) -> Path:
    """A file of a name that `is_ours`."""
    # Bytes, since that is what a file system limits, and what a name may be that is no UTF-8.
    name = os.fsdecode(os.fsencode(target.name)[:_NAME_MAX])
    return target.with_name(f".{name}.{secrets.token_hex(8)}.agentls-{what}")


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot; the rename is then as durable as they make it.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
