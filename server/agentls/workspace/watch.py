"""What happens to the files of a workspace, whoever does it: numbered, so that every reader goes on where it was."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentls.workspace.inotify import Inotify
from agentls.workspace.roots import Roots
from agentls.workspace.tree import Looked, Tree, look_at

Kind = Literal["created", "changed", "deleted"]

KEPT_MAX = 10_000
"""Paths whose last change is remembered."""
QUIET = 0.1
"""Seconds without a change after which it is quiet."""
LONGEST = 0.5
"""Seconds that anybody waits for that, at most."""

_GATHERED = 0.01
"""Seconds in which changes are gathered before they are looked at, so that many of one file are one."""
_CAUGHT_UP = 0.005
_TOGGLES_MAX = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of a file since the reader looked."""

    path: Path
    kind: Kind


@dataclass(frozen=True, slots=True)
class News:
    """What has happened since a position, the oldest first, and where to go on. `missed`: more than that, and nobody
    knows what."""

    position: int
    changes: tuple[Change, ...]
    missed: bool


class Watches:
    """All watchers of a process: one for each set of roots, in a thread of its own, for as long as somebody watches."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[Path, ...], _Watcher] = {}
        self._holders: dict[tuple[Path, ...], int] = {}

    def watch(self, roots: Roots) -> Watch:
        """Watch the files of these roots. It returns at once; see `Watch.on`."""
        key = roots.folders
        watcher = self._watchers.get(key)
        if watcher is None:
            watcher = self._watchers[key] = _Watcher(roots)
        self._holders[key] = self._holders.get(key, 0) + 1
        return Watch(self, watcher, key)

    def told(self, paths: Iterable[Path]) -> None:
        """Somebody says that something happened to these files, such as an editor. It is looked at on disk, and ignored
        files are left out."""
        listed = tuple(paths)
        for watcher in self._watchers.values():
            watcher.told(listed)

    def close(self) -> None:
        """End all watchers, also those that somebody still holds; their threads are gone when it returns."""
        for watcher in self._watchers.values():
            watcher.ask_to_stop()
        for watcher in self._watchers.values():
            watcher.join()
        self._watchers.clear()
        self._holders.clear()

    def _let_go(self, key: tuple[Path, ...], watcher: _Watcher) -> None:
        if self._watchers.get(key) is not watcher:
            return
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._watchers[key], self._holders[key]
            watcher.ask_to_stop()
            watcher.join()


class Watch:
    """One reader's hold on a watcher. A closed one still tells what it knew."""

    def __init__(self, watches: Watches, watcher: _Watcher, key: tuple[Path, ...]) -> None:
        self._watches = watches
        self._watcher = watcher
        self._key = key
        self._closed = False

    @property
    def on(self) -> bool:
        """Whether all folders that can be watched are. What happened before is not told, and where the system allows
        no watches only what others tell is."""
        return self._watcher.on

    @property
    def position(self) -> int:
        """Where a new reader begins."""
        return self._watcher.record.position

    def since(self, position: int) -> News:
        """What has happened since: each file once, where it has come to. It does not wait, and looks at no disk."""
        return self._watcher.record.since(position)

    async def quiet(self) -> None:
        """Wait until all that has happened so far is known, and no more comes for a moment, or until it has taken
        `LONGEST`. When nothing is going on it does not wait at all."""
        end = time.monotonic() + LONGEST
        goal = self._watcher.goal()
        # A thread has no event that a loop could wait for, and this takes half a second at most.
        while (left := min(self._watcher.unrest(goal), end - time.monotonic())) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)

    def close(self) -> None:
        """Let go. With the last one the watcher ends, and its thread is gone when this returns; twice is once."""
        if not self._closed:
            self._closed = True
            self._watches._let_go(self._key, self._watcher)


# What is remembered --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """A file's last change. `toggles` are the numbers of the last changes by which it came or went."""

    number: int
    exists: bool
    toggles: tuple[int, ...] = ()

    def kind_since(self, position: int) -> Kind | None:
        """What a reader who knows all up to `position` is to be told; None when it came and went since."""
        existed = self.exists ^ bool(sum(number > position for number in self.toggles) % 2)
        if existed:
            return "changed" if self.exists else "deleted"
        return "created" if self.exists else None


class _Record:
    """The changes, for readers in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._missed = 0
        self.position = 0

    def add(self, looked: dict[str, Looked]) -> None:
        with self._lock:
            for path, state in looked.items():
                known = self._known.get(path, _Known(0, state.existed))
                if not known.exists and not state.exists:
                    continue
                self.position += 1
                toggles = known.toggles if known.exists == state.exists else (*known.toggles, self.position)
                # Taken out first, so that the newest change is the last.
                self._known.pop(path, None)
                self._known[path] = _Known(self.position, state.exists, toggles[-_TOGGLES_MAX:])
            while len(self._known) > KEPT_MAX:
                self._missed = self._known.pop(next(iter(self._known))).number

    def miss(self) -> None:
        """Something happened that nobody can tell."""
        with self._lock:
            self.position += 1
            self._missed = self.position

    def since(self, position: int) -> News:
        changes = []
        with self._lock:
            for path, known in reversed(self._known.items()):
                if known.number <= position:
                    break
                kind = known.kind_since(position)
                if kind is not None:
                    changes.append(Change(Path(path), kind))
            return News(self.position, tuple(reversed(changes)), self._missed > position)


# The thread ----------------------------------------------------------------------------------------------------


class _Watcher:
    """The thread, and what it shares."""

    def __init__(self, roots: Roots) -> None:
        self.record = _Record()
        self.on = False
        self._roots = roots
        self._told: deque[Path] = deque()
        self._stop = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # Around the life of the two descriptors.
        self._inotify: Inotify | None = None
        self._begun = 0
        self._begun_at = 0.0
        self._done = 0
        self._last = float("-inf")
        # A daemon, since nobody's exit may wait for it.
        self._thread = threading.Thread(target=self._run, name="agentls-watch", daemon=True)
        self._thread.start()

    def told(self, paths: Iterable[Path]) -> None:
        self._told.extend(paths)
        self._rouse()

    def ask_to_stop(self) -> None:
        self._stop.set()
        self._rouse()

    def join(self) -> None:
        self._thread.join()
        with self._lock:
            os.close(self._wake)
            self._wake = -1

    def goal(self) -> int:
        """The number of the pass after which all that has happened by now is known."""
        # In this order, since what is read is pending no more, but its pass has begun by then.
        return self._done + 2 if self._pending() else self._begun

    def unrest(self, goal: int) -> float:
        """How many seconds it will take at least until it is quiet."""
        running = self._done < self._begun
        if self._done < goal and (running or self._pending()):
            return _CAUGHT_UP
        if running:
            # What it will tell is not known yet; in a storm it may take longer than a moment.
            return _CAUGHT_UP if self._begun_at - self._last < QUIET else 0.0
        return self._last + QUIET - time.monotonic()

    def _pending(self) -> bool:
        with self._lock:
            return bool(self._told) or (self._inotify is not None and self._inotify.pending() > 0)

    def _rouse(self) -> None:
        with self._lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        tree = self._start()
        while not self._stop.is_set():
            self._wait()
            if self._stop.is_set():
                break
            self._begun_at = time.monotonic()
            self._begun += 1
            try:
                tree = self._pass(tree)
            finally:
                self._done = self._begun
        self._silence()

    def _start(self) -> Tree | None:
        try:
            inotify = Inotify()
        except OSError as error:
            logger.warning("files are not watched: %s", error)
            return None
        with self._lock:
            self._inotify = inotify
        tree = Tree(inotify, self._roots, self._stop.is_set)
        try:
            for root, reason in tree.fill().items():
                logger.warning('files in "%s" are not watched: %s', root, reason.strerror)
        except OSError as error:
            self._give_up(error)
            return None
        self.on = True
        return tree

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify, select.POLLIN)
        poll.poll()
        self._stop.wait(_GATHERED)

    def _pass(self, tree: Tree | None) -> Tree | None:
        """Take what is there, and look at it."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        told = [self._told.popleft() for _ in range(len(self._told))]
        happened = self._inotify.read() if self._inotify is not None else []
        try:
            if tree is None:
                looked = look_at(told, self._roots)
            else:
                looked = tree.take(happened, told)
                if any(one.overflow for one in happened):
                    logger.warning("more files changed at once than the system keeps track of; some changes are lost")
                    looked |= tree.refill()
                    self.record.miss()
                for root in tree.lost():
                    logger.warning('files in "%s" are not watched any more: it is gone or was moved', root)
        except OSError as error:
            self.record.miss()
            self._give_up(error)
            return None
        if looked:
            self.record.add(looked)
            self._last = time.monotonic()
        return tree

    def _give_up(self, error: OSError) -> None:
        names = ", ".join(f'"{root}"' for root in self._roots.folders)
        logger.warning("files in %s are not watched: %s (see fs.inotify.max_user_watches)", names, error.strerror)
        self.on = False
        self._silence()

    def _silence(self) -> None:
        with self._lock:
            inotify, self._inotify = self._inotify, None
            if inotify is not None:
                inotify.close()
