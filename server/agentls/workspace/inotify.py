"""What happens in folders, as the kernel tells it (inotify(7)).

Why no library: docs/rfc/implemented/architecture/2026-11-30-watching-by-inotify.md.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import termios
from array import array
from dataclasses import dataclass

_MODIFY = 0x2
_CLOSE_WRITE = 0x8
_MOVED_FROM = 0x40
_MOVED_TO = 0x80
_CREATE = 0x100
_DELETE = 0x200
_DELETE_SELF = 0x400
_MOVE_SELF = 0x800
_OVERFLOW = 0x4000
_ONLY_FOLDERS = 0x1000000
_NO_LINKS = 0x2000000
_NOT_UNLINKED = 0x4000000
_IS_FOLDER = 0x40000000

_CHANGES = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_SELF = _DELETE_SELF | _MOVE_SELF
_WATCHED = _CHANGES | _SELF | _ONLY_FOLDERS | _NO_LINKS | _NOT_UNLINKED

_HEAD = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Happened:
    """Something happened to `name` in the folder of that watch; a `folder` came or went. Without a name the watched
    folder itself is gone or moved. `overflow`: the kernel has dropped what it could not keep, of whatever watch."""

    watch: int
    name: str = ""
    folder: bool = False
    overflow: bool = False


class Inotify:
    """One instance, for one thread; `pending` may be asked from any other one as long as it is open."""

    def __init__(self) -> None:
        """OSError where the system gives no more of them."""
        # Calls through ctypes let go of the interpreter's lock.
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))

    def fileno(self) -> int:
        """Readable when something has happened."""
        return self._descriptor

    def add(self, folder: str) -> int:
        """Watch a folder, but nothing below it, and get the number of its watch, the same one when it is watched
        already. OSError with ENOSPC where the system allows no more, and others where it is no folder any more."""
        return self._checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _WATCHED))

    def remove(self, watch: int) -> None:
        """Watch that folder no longer; nothing happens where it is gone."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def read(self) -> list[Happened]:
        """All that has happened by now, without waiting. What happens meanwhile is for the next time, so that no storm
        can keep anybody in here."""
        size = self.pending()
        data = os.read(self._descriptor, size) if size else b""
        happened = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            if mask & _OVERFLOW:
                happened.append(Happened(watch, overflow=True))
            elif mask & (_CHANGES | _SELF):
                name = data[at - length : at].rstrip(b"\0")
                happened.append(Happened(watch, os.fsdecode(name), folder=bool(mask & _IS_FOLDER)))
        return happened

    def pending(self) -> int:
        """How many bytes there are to read."""
        size = array("i", [0])
        fcntl.ioctl(self._descriptor, termios.FIONREAD, size)
        return size[0]

    def close(self) -> None:
        """Let go of everything."""
        os.close(self._descriptor)

    def _checked(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
