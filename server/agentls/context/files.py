"""`files`: what others have done to files since the agent last looked at them."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentls.context.producer import UNCHANGED, Moment, Producer, Reading
from agentls.core.ids import SessionId
from agentls.core.sources import Section
from agentls.core.visible import one_line
from agentls.workspace import disk
from agentls.workspace.roots import Roots
from agentls.workspace.texts import content_hash
from agentls.workspace.watch import LIMITS, Kind, Watch, Watches

LISTED_MAX = 50
"""Lines of a list. Where there are more files than that, those of a folder become one line."""

_NAME_MAX = 300
_HASHED_MAX = 256 << 20
_KINDS: tuple[Kind, ...] = ("created", "changed", "deleted")
_MORE = "More files than these may have changed; nobody kept track of them."
_AGAIN = "This list is new, although it names the same files as the one before."


class Files(Producer):
    """A list that grows until the agent has looked: a file leaves it once the agent has read or written it as it is on
    disk. It speaks when something is new in the list, and never says that the list is empty.

    It watches the workspace of a session from the first time that it is asked about it until `forget`.
    """

    name = "files"

    def __init__(self, watches: Watches, kept: int = LIMITS.kept) -> None:
        """`kept` is how many files of a session are remembered, at most; more are said to be more."""
        self._watches = watches
        self._kept = kept
        self._sessions: dict[SessionId, _Session] = {}

    async def read(self, moment: Moment) -> Reading:
        """A step that opens a turn waits for a moment while files are being changed, so that many changes are one list;
        the others only until it is known what has happened so far."""
        session = self._sessions.get(moment.session)
        if session is None:
            session = self._sessions[moment.session] = _Session(self._watches.watch(moment.roots), self._kept)
        return await session.read(moment)

    def committed(self, session: SessionId, reading: Reading) -> None:
        """What it told is not new any more."""
        known = self._sessions.get(session)
        if known is not None:
            known.committed(reading)

    def forget(self, session: SessionId) -> None:
        """Watch no longer."""
        known = self._sessions.pop(session, None)
        if known is not None:
            known.watch.close()


@dataclass(frozen=True, slots=True)
class _Line:
    """A file in the list: what became of it, and the hash under which the agent knew it then."""

    kind: Kind
    known: str | None


@dataclass(frozen=True, slots=True)
class _Held:
    """What a file holds: a hash that is good for as long as the stamp is the same. Without a hash there is no file."""

    stamp: disk.Stamp | None
    hash: str | None


_NOTHING = _Held(None, None)


@dataclass(slots=True)
class _Session:
    """What is kept for a session. `told` is the list as the model has it, `pending` what has come since, and `offered`
    what the last reading was made of. `held` has every file that the agent knows, as it was at the last reading;
    `covered` says that the watch has told of everything that has happened to them since."""

    watch: Watch
    kept: int
    position: int | None = None
    told: dict[Path, _Line] = field(default_factory=dict)
    pending: dict[Path, Kind] = field(default_factory=dict)
    missed: bool = False
    covered: bool = False
    compared: bool = False
    held: dict[Path, _Held] = field(default_factory=dict)
    offered: tuple[Reading, dict[Path, _Line]] | None = None

    async def read(self, moment: Moment) -> Reading:
        await (self.watch.quiet() if moment.opens_turn else self.watch.known())
        seen = {Path(path): known for path, known in moment.seen.items()}
        before = self.held if self.compared else None
        self._collect()
        # After the news and before the files: what is lost later is missed in the next news, and what changes is told.
        on = self.watch.on
        looked_at = set(seen)
        if self.covered:
            looked_at &= self.told.keys() | self.pending.keys() | (seen.keys() - self.held.keys())
        kept = {path: held for path, held in self.held.items() if path in seen}
        # Without a file to look at nothing is waited for: a thread costs more than all the rest.
        self.held = kept | (await asyncio.to_thread(_held, looked_at, self.held) if looked_at else {})
        if not self.covered:
            self._compare(seen, before)
            self.compared = True
        self.covered = on
        lines = self._lines(seen)
        # What the agent has looked at is out of the list, and new when it changes again.
        self.told = {path: line for path, line in self.told.items() if path in lines}
        self.pending = {path: kind for path, kind in self.pending.items() if path in lines}
        if not self.missed and all(self.told.get(path) == line for path, line in lines.items()):
            return UNCHANGED
        notes = (_MORE,) if self.missed else ()
        reading = _sections(lines, moment.roots, notes)
        if moment.retained is not None and reading == moment.retained.sections:
            reading = _sections(lines, moment.roots, (*notes, _AGAIN))
        self.offered = reading, lines
        return reading

    def committed(self, reading: Reading) -> None:
        if self.offered is None or self.offered[0] != reading:
            return
        self.told = dict(list(self.offered[1].items())[-self.kept :])
        self.pending.clear()
        self.missed = False
        self.offered = None

    def _collect(self) -> None:
        """Take what the watch has to tell. For the model it is news until a step has begun with it."""
        if self.position is None:
            self.position = self.watch.position
            return
        news = self.watch.since(self.position)
        self.position = news.position
        if news.missed:
            self.missed, self.covered = True, False
        for change in news.changes:
            kind = _merged(self.pending.pop(change.path, None), change.kind)
            if kind is not None:
                self.pending[change.path] = kind
        while len(self.pending) > self.kept:
            self.missed = True
            del self.pending[next(iter(self.pending))]

    def _compare(self, seen: Mapping[Path, str], before: Mapping[Path, _Held] | None) -> None:
        """Find what has changed while nobody watched. At first, what is not as the agent knew it; from then on, what
        is not as it was the last time, since of unsaved text the agent knows the hash that the file will have."""
        for path, known in seen.items():
            now = self.held[path]
            if now.hash == known or (before is not None and (path not in before or before[path].hash == now.hash)):
                continue
            self.pending.setdefault(path, "changed")

    def _lines(self, seen: Mapping[Path, str]) -> dict[Path, _Line]:
        """The list as it stands now, what is newest last."""
        lines = {}
        for path in (*(path for path in self.told if path not in self.pending), *self.pending):
            line = self._line(path, seen.get(path))
            if line is not None:
                lines[path] = line
        return lines

    def _line(self, path: Path, known: str | None) -> _Line | None:
        told = self.told.get(path)
        if known is not None:
            now = self.held[path].hash
            return None if now == known else _Line("deleted" if now is None else "changed", known)
        kind: Kind | None = told.kind if told is not None else None
        if path in self.pending:
            kind = _merged(kind, self.pending[path])
        return None if kind is None else _Line(kind, None)


def _merged(earlier: Kind | None, later: Kind) -> Kind | None:
    """What two changes of a file come to; None for one that came and went."""
    if earlier is None:
        return later
    if earlier == "created":
        return None if later == "deleted" else "created"
    return "deleted" if later == "deleted" else "changed"


# Hashes --------------------------------------------------------------------------------------------------------


def _held(paths: Iterable[Path], known: Mapping[Path, _Held]) -> dict[Path, _Held]:
    """What files hold now. One that cannot be read, or is too large, holds something that nobody has seen."""
    return {path: _holds(path, known.get(path, _NOTHING)) for path in paths}


def _holds(path: Path, known: _Held) -> _Held:
    try:
        status = os.stat(path)
    except OSError:
        return _NOTHING
    if not stat.S_ISREG(status.st_mode):
        return _NOTHING
    stamp = disk.stamp(status)
    if stamp == known.stamp:
        return known
    try:
        return _Held(stamp, content_hash(disk.read(path, _HASHED_MAX)))
    except FileNotFoundError:
        return _NOTHING
    except (OSError, disk.NotRegular, disk.TooLarge):
        return _Held(stamp, "")


# The list ------------------------------------------------------------------------------------------------------


def _sections(lines: Mapping[Path, _Line], roots: Roots, notes: tuple[str, ...]) -> tuple[Section, ...]:
    """A section for each kind, and one of notes; at most `LISTED_MAX` lines for files."""
    groups: dict[tuple[Kind, Path], list[Path]] = {}
    for path, line in lines.items():
        group = groups.pop((line.kind, path.parent), [])
        group.append(path)
        groups[line.kind, path.parent] = group  # Put in anew, so that the group of the newest file is the last.
    total = len(lines)
    folded = set()
    for key in sorted(groups, key=lambda key: -len(groups[key])):
        if total <= LISTED_MAX:
            break
        folded.add(key)
        total -= len(groups[key]) - 1
    listed = list(groups)[-LISTED_MAX:] if total > LISTED_MAX else list(groups)
    more = len(lines) - sum(len(groups[key]) for key in listed)
    if more:
        notes = (f"{more} more files, which were touched before these, are left out.", *notes)
    drawn: dict[Kind, list[str]] = {kind: [] for kind in _KINDS}
    for kind, folder in listed:
        group = groups[kind, folder]
        names = [f"{_name(roots, folder)}/ ({len(group)} files)"] if (kind, folder) in folded else None
        drawn[kind] += names or [_name(roots, path) for path in group]
    sections = [Section(kind, "\n".join(sorted(names))) for kind, names in drawn.items()]
    return tuple(section for section in (*sections, Section("note", "\n".join(notes))) if section.text)


def _name(roots: Roots, path: Path) -> str:
    return one_line(roots.name(path), _NAME_MAX)
