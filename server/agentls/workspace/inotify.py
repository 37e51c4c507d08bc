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
_UNMOUNT = 0x2000
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_ONLY_FOLDERS = 0x1000000
_NO_LINKS = 0x2000000
_NOT_UNLINKED = 0x4000000
_IS_FOLDER = 0x40000000

_CHANGES = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_SELF = _DELETE_SELF | _MOVE_SELF
_GONE = _SELF | _UNMOUNT | _IGNORED
_WATCHED = _CHANGES | _SELF | _ONLY_FOLDERS | _NO_LINKS | _NOT_UNLINKED

_HEAD = struct.Struct("iIII")
_LENGTH = struct.Struct("I")


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
        """All that has happened by now, without waiting, each thing once. What happens meanwhile is for the next time,
        so that no storm can keep anybody in here."""
        size = self.pending()
        data = os.read(self._descriptor, size) if size else b""
        # In a storm most of them say the same.
        raw: dict[bytes, None] = {}
        at = 0
        while at < len(data):
            end = at + _HEAD.size + _LENGTH.unpack_from(data, at + _HEAD.size - _LENGTH.size)[0]
            raw[data[at:end]] = None
            at = end
        happened = []
        for event in raw:
            watch, mask, _, _ = _HEAD.unpack_from(event)
            if mask & _OVERFLOW:
                happened.append(Happened(watch, overflow=True))
            elif mask & (_CHANGES | _GONE):
                name = event[_HEAD.size :].rstrip(b"\0")
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


class Shared:
    """One instance for several readers who know nothing of each other, since a system gives a user few (128)."""

    def __init__(self, inotify: Inotify) -> None:
        self._inotify = inotify
        self._holders: dict[int, set[Part]] = {}

    def part(self) -> Part:
        """For one more reader."""
        return Part(self._inotify, self._holders)

    def read(self) -> dict[Part, list[Happened]]:
        """What has happened to each reader's folders, as `Inotify.read` says."""
        parts: dict[Part, list[Happened]] = {}
        for one in self._inotify.read():
            for part in self._everybody() if one.overflow else self._holders.get(one.watch, ()):
                parts.setdefault(part, []).append(one)
        return parts

    def _everybody(self) -> set[Part]:
        return {part for holders in self._holders.values() for part in holders}


class Part:
    """A reader's own watches. A folder that several watch has one watch in the kernel, which goes with the last."""

    def __init__(self, inotify: Inotify, holders: dict[int, set[Part]]) -> None:
        self._inotify = inotify
        self._holders = holders
        self._watches: set[int] = set()

    def add(self, folder: str) -> int:
        """As `Inotify.add` says."""
        watch = self._inotify.add(folder)
        self._watches.add(watch)
        self._holders.setdefault(watch, set()).add(self)
        return watch

    def remove(self, watch: int) -> None:
        """Watch that folder no longer; nothing happens where it is gone, or is not watched."""
        if watch not in self._watches:
            return
        self._watches.remove(watch)
        holders = self._holders[watch]
        holders.remove(self)
        if not holders:
            del self._holders[watch]
            self._inotify.remove(watch)

    def close(self) -> None:
        """Watch nothing any more."""
        for watch in tuple(self._watches):
            self.remove(watch)
