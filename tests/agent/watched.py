"""A real store that writes down what is asked of it, and refuses where a test says: a disk that is full at one exact
write cannot be had otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from agentls.core.errors import StoreUnavailable
from agentls.core.events import Event, SessionHeader
from agentls.core.ids import MessageId, SessionId
from agentls.store.store import DraftPiece, SessionLog, SessionStore
from tests.harness import HandModel, Rig, types


class Disk:
    """What is refused, and what happened: `acts` are batches with a D where they are barriers, drafts and requests."""

    def __init__(self) -> None:
        self.full = False
        self.drafts_full = False
        self.undeletable = False
        self.acts: list[str] = []
        self.gate: asyncio.Event | None = None


class WatchedLog:
    """A log in front of the real one."""

    def __init__(self, log: SessionLog, disk: Disk) -> None:
        self._log = log
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> None:
        if self._disk.full:
            raise StoreUnavailable("the disk is full")
        waiting = self._log.commit(events, durable=durable, more=more)
        if self._disk.gate is not None:
            await self._disk.gate.wait()
        await waiting
        self._disk.acts.append(("D " if durable else "") + ", ".join(types(list(events))))

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        if self._disk.full or self._disk.drafts_full:
            raise StoreUnavailable("the disk is full")
        self._log.append_drafts(pieces)

    def drop_drafts(self, message: MessageId) -> None:
        self._disk.acts.append(f"drop {message}")
        self._log.drop_drafts(message)

    async def probe(self) -> None:
        if self._disk.full or self._disk.drafts_full:
            raise StoreUnavailable("the disk is full")
        await self._log.probe()


class WatchedModel(HandModel):
    """A model whose requests are acts like the rest."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    async def stream(self, request: Any) -> Any:
        self._disk.acts.append("ask")
        async for chunk in super().stream(request):
            yield chunk


class WatchedStore:
    def __init__(self, store: SessionStore, disk: Disk) -> None:
        self._store = store
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, header: SessionHeader) -> Any:
        return WatchedLog(await self._store.create(header), self._disk)

    async def delete(self, session: SessionId) -> None:
        if self._disk.undeletable:
            raise StoreUnavailable("the disk is full")
        await self._store.delete(session)

    async def open(self, session: SessionId) -> Any:
        return WatchedLog(await self._store.open(session), self._disk)


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[tuple[Rig, Disk]]:
    """A rig over a watched store."""
    disk = Disk()
    on = Rig(directory, WatchedModel(disk), lambda store: cast(SessionStore, WatchedStore(store, disk)))
    try:
        yield on, disk
    finally:
        disk.full = disk.drafts_full = False
        await on.host.close()
