"""What happens to the files of a workspace, whoever does it: numbered, so that every reader goes on where it was."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentls.workspace.inotify import Happened, Inotify, Part, Shared
from agentls.workspace.roots import Roots
from agentls.workspace.tree import Looked, Tree, look_at

Kind = Literal["created", "changed", "deleted"]

_GATHERED = 0.01
"""Seconds in which changes are gathered before they are looked at, so that many of one file are one."""
_MUCH = 1 << 15
"""Bytes that the kernel holds at which nobody gathers any longer: some 1,000 events, where it drops all from 16,384 on
and a shell's loop makes 400,000 a second."""
_CAUGHT_UP = 0.005
_TOGGLES_MAX = 8

_INSTANCES = "the system may allow more of them (sysctl fs.inotify.max_user_instances)"
_FOLDERS = "the system may allow more folders (sysctl fs.inotify.max_user_watches)"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What watching may take: `kept` paths whose last change is remembered. All others are seconds: it is `quiet` after
    so many without a change, and `longest` is what anybody waits for that, at most; while nothing comes but what is
    ignored, `gathered` is how long that is gathered; a large root is looked through a `slice` at a time, while others
    wait; roots that are missing are looked for after `retried`."""

    kept: int = 10_000
    quiet: float = 0.1
    longest: float = 0.5
    gathered: float = 0.1
    slice: float = 0.02
    retried: float = 2.0


LIMITS = Limits()


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
    """All watchers of a process: one for each set of roots, for as long as somebody watches, and one thread for all."""

    def __init__(self, limits: Limits = LIMITS, inotify: Callable[[], Inotify] = Inotify) -> None:
        """`inotify` makes the one instance that is needed; an OSError of it means that only what is told counts."""
        self._limits = limits
        self._inotify = inotify
        self._watchers: dict[tuple[Path, ...], _Watcher] = {}
        self._holders: dict[tuple[Path, ...], int] = {}
        self._thread: _Thread | None = None

    def watch(self, roots: Roots) -> Watch:
        """Watch the files of these roots. It returns at once; see `Watch.on`."""
        key = roots.folders
        if self._thread is None:
            self._thread = _Thread(self._limits, self._inotify)
        watcher = self._watchers.get(key)
        if watcher is None:
            watcher = self._watchers[key] = _Watcher(roots, self._limits)
            self._thread.add(watcher)
        self._holders[key] = self._holders.get(key, 0) + 1
        return Watch(self, self._thread, watcher, key)

    def told(self, paths: Iterable[Path]) -> None:
        """Somebody says that something happened to these files, such as an editor. It is looked at on disk, and ignored
        files are left out."""
        if self._thread is not None:
            self._thread.told(tuple(paths))

    def close(self) -> None:
        """End all watchers, also those that somebody still holds; their thread is gone when it returns."""
        thread, self._thread = self._thread, None
        self._watchers.clear()
        self._holders.clear()
        if thread is not None:
            thread.close()

    def _let_go(self, key: tuple[Path, ...], watcher: _Watcher) -> None:
        if self._watchers.get(key) is not watcher or self._thread is None:
            return
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._watchers[key], self._holders[key]
            self._thread.drop(watcher)
        if not self._watchers:
            self.close()


class Watch:
    """One reader's hold on a watcher. A closed one still tells what it knew."""

    def __init__(self, watches: Watches, thread: _Thread, watcher: _Watcher, key: tuple[Path, ...]) -> None:
        self._watches = watches
        self._thread = thread
        self._watcher = watcher
        self._key = key
        self._closed = False

    @property
    def on(self) -> bool:
        """Whether all folders are watched. What happened before is not told, and where a root is not there, or the
        system allows no watches, only what others tell is. A root that is lost is `missed` in the news; once it is
        there again it is watched again, and its files are news."""
        return self._watcher.on

    @property
    def position(self) -> int:
        """Where a new reader begins."""
        return self._watcher.record.position

    def since(self, position: int) -> News:
        """What has happened since: each file once, where it has come to. It does not wait, and looks at no disk."""
        return self._watcher.record.since(position)

    async def known(self) -> None:
        """Wait until all that has happened so far is known, or until that has taken longest. It does not wait for what
        is still going on."""
        await self._wait(lambda goal: self._thread.behind(self._watcher, goal))

    async def quiet(self) -> None:
        """Wait until all that has happened so far is known, and no more comes for a moment, or until that has taken
        longest. When nothing is going on it does not wait at all; what happens to ignored files is nothing."""
        await self._wait(lambda goal: self._thread.unrest(self._watcher, goal))

    def close(self) -> None:
        """Let go. With the last one the watcher ends, and the thread is gone when this returns if no other one is left;
        twice is once."""
        if not self._closed:
            self._closed = True
            self._watches._let_go(self._key, self._watcher)

    async def _wait(self, seconds: Callable[[int], float]) -> None:
        end = time.monotonic() + self._thread.limits.longest
        goal = self._thread.goal(self._watcher)
        # A thread has no event that a loop could wait for, and this takes half a second at most.
        while (left := min(seconds(goal), end - time.monotonic())) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)


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

    def __init__(self, kept: int) -> None:
        self._kept = kept
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
            while len(self._known) > self._kept:
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


# One set of roots ----------------------------------------------------------------------------------------------


class _Watcher:
    """What is watched for one set of roots. Other threads ask for `record`, `on`, `last`, `waiting` and `missing`,
    put into `told` and set `closed`; everything else is the watching thread's."""

    def __init__(self, roots: Roots, limits: Limits) -> None:
        self.record = _Record(limits.kept)
        self._limits = limits
        self.on = False
        self.last = float("-inf")
        self.told: deque[Path] = deque()
        self.closed = False
        self.roots = roots
        self.begun = False
        self.part: Part | None = None
        self._tree: Tree | None = None
        self._finding: Iterator[str | None] | None = None
        self._found_before = False
        # What happens while roots are looked through; the tree cannot take it yet.
        self._held: dict[Happened, None] = {}

    @property
    def waiting(self) -> bool:
        """Whether there is something to look at that the kernel does not have any more."""
        return bool(self.told or self._held)

    @property
    def finding(self) -> bool:
        """Whether roots are being looked through."""
        return self._finding is not None

    @property
    def missing(self) -> bool:
        """Whether a root is not watched that may come back."""
        tree = self._tree  # Once, since another thread may ask.
        return tree is not None and bool(tree.missing)

    def begin(self, part: Part, stopped: Callable[[], bool]) -> None:
        """Have the kernel watch, from the next `take` on."""
        self.begun = True
        self.part = part
        self._tree = Tree(part, self.roots, lambda: self.closed or stopped())

    def end(self) -> None:
        """Watch no longer; what is told still counts."""
        self.on = False
        self._tree = self._finding = None
        self._held.clear()
        part, self.part = self.part, None
        if part is not None:
            part.close()

    def take(self, happened: Iterable[Happened]) -> None:
        """Look at what has happened and what is told, and for roots that are missing. OSError where the system allows
        no more watches: then it has ended."""
        told = [self.told.popleft() for _ in range(len(self.told))]
        try:
            self._held |= dict.fromkeys(happened)
            looked = self._find() if self._tree is not None else {}
            if self._tree is None or self._finding is not None:
                looked |= look_at(told, self.roots)
                if len(self._held) > self._limits.kept:
                    self._held = {Happened(-1, overflow=True): None}
            elif self._held or told:
                looked = self._look(self._tree, told, looked)
        except OSError:
            self.end()
            self.record.miss()
            raise
        if looked:
            self.record.add(looked)
            self.last = time.monotonic()

    def _look(self, tree: Tree, told: list[Path], looked: dict[str, Looked]) -> dict[str, Looked]:
        known = set(tree.missing)
        for path, state in tree.take(self._held, told).items():
            looked[path] = Looked(looked[path].existed if path in looked else state.existed, state.exists)
        if any(one.overflow for one in self._held):
            logger.warning("more files changed at once than the system keeps track of; some changes are lost")
            looked |= tree.refill()
            self.record.miss()
        self._held.clear()
        lost = tree.missing.keys() - known
        for root in sorted(lost):
            logger.warning('files in "%s" are not watched any more: %s', root, tree.missing[root])
        if lost:
            # In this order everywhere, so that who is told of it finds it off, or on again.
            self.on = False
            self.record.miss()
        return looked

    def _find(self) -> dict[str, Looked]:
        """Look for what is missing, for a moment; the files of a root that came back are new."""
        tree = self._tree
        looked: dict[str, Looked] = {}
        if tree is None or not tree.missing:
            return looked
        if self._finding is None:
            self._finding = tree.find()
        end = time.monotonic() + self._limits.slice
        for path in self._finding:
            if path is not None and self._found_before:
                looked[path] = Looked(existed=False, exists=True)
            if time.monotonic() > end:
                return looked
        self._finding = None
        if not self._found_before:
            self._found_before = True
            for root, reason in tree.missing.items():
                logger.warning('files in "%s" are not watched: %s', root, reason)
        self.on = not tree.missing
        return looked


# The thread ----------------------------------------------------------------------------------------------------


class _Thread:
    """The one thread that watches, with the one instance that it needs of the kernel, however many watchers there are.

    It goes in passes: each reads all that the kernel has, and looks at it."""

    def __init__(self, limits: Limits, inotify: Callable[[], Inotify]) -> None:
        self.limits = limits
        self._instance = inotify
        self._watchers: tuple[_Watcher, ...] = ()
        self._dropped: deque[_Watcher] = deque()
        self._stop = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._asked = False
        self._hurry = threading.Event()
        self._lock = threading.Lock()  # Around the life of the two descriptors.
        self._inotify: Inotify | None = None
        self._shared: Shared | None = None
        self._limit_told = False
        self._gather = _GATHERED
        self._begun = 0
        self._begun_at = 0.0
        self._done = 0
        # A daemon, since nobody's exit may wait for it.
        self._thread = threading.Thread(target=self._run, name="agentls-watch", daemon=True)
        self._thread.start()

    def add(self, watcher: _Watcher) -> None:
        """Begin to watch."""
        self._watchers = (*self._watchers, watcher)
        self._rouse()

    def drop(self, watcher: _Watcher) -> None:
        """Watch no longer."""
        watcher.closed = True
        self._watchers = tuple(each for each in self._watchers if each is not watcher)
        self._dropped.append(watcher)
        self._rouse()

    def told(self, paths: tuple[Path, ...]) -> None:
        """Somebody says that something happened to these files."""
        for watcher in self._watchers:
            watcher.told.extend(paths)
        self._rouse()

    def close(self) -> None:
        """End; the thread is gone when it returns."""
        self._stop = True
        self._hurry.set()
        self._rouse()
        self._thread.join()
        with self._lock:
            os.close(self._wake)
            self._wake = -1

    def goal(self, watcher: _Watcher) -> int:
        """The number of the pass after which all that has happened by now is known."""
        if watcher.missing:
            self._asked = True
            self._rouse()
        # In this order, since what is read is pending no more, but its pass has begun by then.
        pending = self._pending(watcher)
        return self._begun + pending

    def behind(self, watcher: _Watcher, goal: int) -> float:
        """How many seconds it will take at least until that pass is over; nobody gathers while somebody asks."""
        running = self._done < self._begun
        if not self._stop and (watcher.waiting or (self._done < goal and (running or self._pending(watcher)))):
            self._hurry.set()
            return _CAUGHT_UP
        return 0.0

    def unrest(self, watcher: _Watcher, goal: int) -> float:
        """How many seconds it will take at least until it is quiet."""
        behind = self.behind(watcher, goal)
        if behind > 0:
            return behind
        if self._done < self._begun:
            # What it will tell is not known yet; in a storm it may take longer than a moment.
            return _CAUGHT_UP if self._begun_at - watcher.last < self.limits.quiet else 0.0
        return watcher.last + self.limits.quiet - time.monotonic()

    def _pending(self, watcher: _Watcher) -> bool:
        with self._lock:
            return self._asked or watcher.waiting or (self._inotify is not None and self._inotify.pending() > 0)

    def _is_much(self) -> bool:
        return self._inotify is not None and self._inotify.pending() > _MUCH

    def _rouse(self) -> None:
        with self._lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            self._open()
            while not self._stop:
                self._wait()
                if self._stop:
                    break
                self._begun_at = time.monotonic()
                self._begun += 1
                self._asked = False
                self._hurry.clear()
                try:
                    self._pass()
                finally:
                    self._done = self._begun
        finally:
            for watcher in self._watchers:
                watcher.on = False
                if not self._stop:
                    watcher.record.miss()
            self._stop = True
            with self._lock:
                inotify, self._inotify = self._inotify, None
                if inotify is not None:
                    inotify.close()

    def _open(self) -> None:
        try:
            inotify = self._instance()
        except OSError as error:
            logger.warning("files are not watched: %s; %s", error.strerror or error, _INSTANCES)
            return
        self._shared = Shared(inotify)
        with self._lock:
            self._inotify = inotify

    def _wait(self) -> None:
        watchers = self._watchers
        if any(watcher.finding for watcher in watchers):
            return
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._inotify is not None:
            poll.register(self._inotify, select.POLLIN)
        if poll.poll(self.limits.retried * 1000 if any(watcher.missing for watcher in watchers) else None):
            end = time.monotonic() + self._gather
            while not self._hurry.wait(_GATHERED) and time.monotonic() < end:
                if self._is_much():
                    self._gather = _GATHERED
                    break

    def _pass(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        while self._dropped:
            self._dropped.popleft().end()
        watchers = self._watchers
        happened = self._shared.read() if self._shared is not None else {}
        before = [watcher.last for watcher in watchers]
        for watcher in watchers:
            self._take(watcher, happened)
        # Where only ignored files are written to there is no hurry, and whoever asks is not made to wait.
        news = before != [watcher.last for watcher in watchers]
        self._gather = _GATHERED if news or not happened else min(2 * self._gather, self.limits.gathered)

    def _take(self, watcher: _Watcher, happened: dict[Part, list[Happened]]) -> None:
        if watcher.closed:
            return
        try:
            if self._shared is not None and not watcher.begun:
                watcher.begin(self._shared.part(), lambda: self._stop)
            watcher.take(happened.get(watcher.part, ()) if watcher.part is not None else ())
        except OSError as error:
            if not self._limit_told:
                self._limit_told = True
                names = ", ".join(f'"{root}"' for root in watcher.roots.folders)
                logger.warning("files in %s are not watched: %s; %s", names, error.strerror, _FOLDERS)
