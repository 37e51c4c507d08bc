"""A session store without disk and threads, for tests that count the steps of the event loop. What is committed is
there at once, and each commit is one wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentls.core.errors import UnknownSession
from agentls.core.events import Event, SessionHeader
from agentls.core.ids import MessageId, SessionId
from agentls.store.store import DraftPiece, SessionSummary


class MemoryLog:
    """One session."""

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        self.events: list[Event] = []
        self.pieces: list[DraftPiece] = []
        self.commits = 0

    async def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> None:
        self.commits += 1
        assert [event.seq for event in events] == list(range(len(self.events), len(self.events) + len(events)))
        self.events += events
        await asyncio.sleep(0)

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        self.pieces += pieces

    def drop_drafts(self, message: MessageId) -> None:
        self.pieces = [piece for piece in self.pieces if piece.message != message]

    async def drafts(self) -> tuple[DraftPiece, ...]:
        return tuple(self.pieces)

    async def read(self, start: int = 0, stop: int | None = None) -> tuple[Event, ...]:
        return tuple(self.events[start:stop])

    async def page(self, before: int, limit: int) -> tuple[Event, ...]:
        return ()

    async def probe(self) -> None:
        pass

    async def close(self) -> None:
        pass


class MemoryStore:
    """Its sessions live as long as it does."""

    def __init__(self) -> None:
        self.logs: dict[str, MemoryLog] = {}

    async def create(self, header: SessionHeader) -> MemoryLog:
        log = self.logs[header.id] = MemoryLog(header)
        return log

    async def open(self, session: SessionId) -> MemoryLog:
        if session not in self.logs:
            raise UnknownSession(session)
        return self.logs[session]

    async def delete(self, session: SessionId) -> None:
        del self.logs[session]

    async def list(
        self, workspace: str | None = None, *, limit: int = 50, after: str | None = None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        return (), None

    async def close(self) -> None:
        pass
