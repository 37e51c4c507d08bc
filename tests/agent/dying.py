"""A process that dies, without one: what it writes ends at an exact write, and what it left is opened by another one.

A store in front of the real one takes nothing more from the moment of the death and answers nobody; whoever ran in
that life is cancelled, so that no closing batch is written; the files stay as they are, and locks are freed as the
kernel frees them, with their files left behind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from agentls.agent.agent import Agent
from agentls.core.events import Event, SessionHeader
from agentls.core.ids import AgentId, MessageId, SessionId
from agentls.core.rows import Block
from agentls.store.sqlite import SqliteStore
from agentls.store.store import DraftPiece, SessionLog, SessionStore
from tests.harness import SECONDS, Rig, rows, types

R = TypeVar("R", bound=Rig)
Side = Literal["before", "after"]
"""On which side of a write the process dies: it is not on disk, or it is and nobody was told."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a life, counted from 1; `types` are those of its events, or `drafts` or `drop`."""

    number: int
    types: tuple[str, ...]


class Death:
    """The end of one life, at the first write that `of` picks; without `of` only `now` brings it."""

    def __init__(self, of: Callable[[Write], bool] = lambda _: False, side: Side = "before") -> None:
        self.over = asyncio.Event()
        self.writes: list[Write] = []
        self.drawn: list[Block] = []
        """What a person saw last."""
        self._of = of
        self._side = side
        self._agent: Agent | None = None

    @classmethod
    def at(cls, number: int, side: Side) -> Death:
        """At write number `number` of the life; the first one of a new agent makes it."""
        return cls(lambda write: write.number == number, side)

    @classmethod
    def around(cls, event: str, side: Side) -> Death:
        """At the first write of an event of this type."""
        return cls(lambda write: event in write.types, side)

    def watch(self, agent: Agent) -> None:
        """Take note of what is drawn of the agent."""
        self._agent = agent

    def now(self) -> None:
        """Die."""
        if not self.over.is_set():
            self.drawn = rows(self._agent.view) if self._agent is not None else []
            self.over.set()

    def begins(self, *kinds: str) -> bool | None:
        """Count a write: None where it is not taken any more, True where it is the last one."""
        if self.over.is_set():
            return None
        write = Write(len(self.writes) + 1, kinds)
        self.writes.append(write)
        if not self._of(write):
            return False
        if self._side == "before":
            self.now()
            return None
        return True


class _DyingLog:
    def __init__(self, log: SessionLog, death: Death) -> None:
        self._log = log
        self._death = death
        self._last_commit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> None:
        if self._last_commit:
            # What is given while the last one is under way comes too late; text in flight has a file of its own.
            await self._never()
        last = self._death.begins(*types(events))
        self._last_commit = last is True
        if last is not None:
            await self._log.commit(events, durable=durable, more=more)
        if last:
            self._death.now()
        if last is not False:
            await self._never()

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        self._inline("drafts", lambda: self._log.append_drafts(pieces))

    def drop_drafts(self, message: MessageId) -> None:
        self._inline("drop", lambda: self._log.drop_drafts(message))

    async def close(self) -> None:
        if self._death.over.is_set():
            await self._never()  # A process that is dead lets go of nothing in good order.
        await self._log.close()

    def _inline(self, kind: str, write: Callable[[], None]) -> None:
        """The caller cannot be kept waiting: it goes on, and nobody sees to where."""
        last = self._death.begins(kind)
        if last is not None:
            write()
        if last:
            self._death.now()

    async def _never(self) -> None:
        await asyncio.Event().wait()


class _DyingStore:
    def __init__(self, store: SqliteStore, death: Death) -> None:
        self._store = store
        self._death = death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, header: SessionHeader) -> Any:
        return _DyingLog(await self._store.create(header), self._death)

    async def open(self, session: SessionId) -> Any:
        return _DyingLog(await self._store.open(session), self._death)


class Life(Generic[R]):
    """One process on the files: a rig, and how it ends."""

    def __init__(self, directory: Path, make: Callable[[SessionStore], R], death: Death) -> None:
        self._before = asyncio.all_tasks()
        self._dead = False
        self._store = SqliteStore(directory)
        self.death = death
        self.rig = make(cast(SessionStore, _DyingStore(self._store, death)))

    async def agent(self, known: AgentId | None = None) -> Agent:
        """A new agent or a stored one, at whose view a person looks."""
        agent = await (self.rig.agent() if known is None else self.rig.host.get(known))
        self.death.watch(agent)
        return agent

    async def survives(self, play: Coroutine[Any, Any, object]) -> bool:
        """Run `play` to its end, or until the process dies, which may also come later; whether it came to its end."""
        playing = asyncio.ensure_future(play)
        dead = asyncio.ensure_future(self.death.over.wait())
        async with asyncio.timeout(SECONDS):
            await asyncio.wait({playing, dead}, return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        if playing.done():
            playing.result()
        if not self.death.over.is_set():
            return True
        await self.kill()
        return False

    async def kill(self) -> None:
        """End all that runs in this life, at once where it has not died yet, and leave what it held."""
        self.death.now()
        if self._dead:
            return
        self._dead = True
        current = asyncio.current_task()
        async with asyncio.timeout(SECONDS):
            while tasks := {task for task in asyncio.all_tasks() - self._before if task is not current}:
                for task in tasks:
                    task.cancel()
                # One that will not end yet is cancelled again: a process that dies waits for nobody.
                await asyncio.wait(tasks, timeout=0.01)
        # What was given to the writer before the death is written, as it is when a process dies a moment later.
        for log in tuple(self._store._logs):
            await log.probe()
            _free(log._lock._descriptor)

    async def stored(self) -> tuple[Event, ...]:
        """The log that a dead life has left; one session's, the only one that it had open."""
        (log,) = self._store._logs
        return await log.read()

    async def bury(self) -> None:
        """Close the files, once nobody needs them as they were left."""
        await self._store.close()


def _free(descriptor: int) -> None:
    """Have the kernel drop a lock as it does for a dead process: the file stays where it is."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, descriptor, inheritable=False)
    os.close(null)


class Lives:
    """Life after life on one directory. Those that have died lie open until the end, so that nothing tidies up."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[Life[Any]] = []

    def begin(self, make: Callable[[SessionStore], R], death: Death | None = None) -> Life[R]:
        """Start a process; without `death` it lives until it is killed."""
        life = Life(self._directory, make, death or Death())
        self._all.append(life)
        return life

    async def end(self) -> None:
        """Kill what lives, and close all files."""
        for life in reversed(self._all):
            await life.kill()
            await life.bury()


@asynccontextmanager
async def lives(directory: Path) -> AsyncIterator[Lives]:
    """Lives that are over in the end."""
    made = Lives(directory)
    try:
        yield made
    finally:
        await made.end()
