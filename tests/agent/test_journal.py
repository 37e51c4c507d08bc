"""The chain of commits: what is told follows the order of the log, however the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentls.agent.journal import Journal
from agentls.core.events import Event, SessionHeader, SessionTitle
from agentls.core.ids import SessionId
from agentls.core.session import Session
from tests.agent.memory import MemoryLog
from tests.harness import until


class Gated(MemoryLog):
    """A log whose first commit is acknowledged last."""

    def __init__(self, header: SessionHeader) -> None:
        super().__init__(header)
        self.gate = asyncio.Event()

    async def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> None:
        first = not self.events
        await super().commit(events, durable=durable, more=more)
        if first:
            await self.gate.wait()


async def test_a_commit_that_is_acknowledged_early_is_told_in_its_turn() -> None:
    header = SessionHeader(SessionId("s"), "file:///w", "/w", 0)
    session, log = Session(header), Gated(header)
    told: list[int] = []
    session.observe(lambda batch: told.extend(event.seq for event in batch.events))
    journal = Journal(session, log, now=lambda: 0, broken=lambda _: None)
    appended = [journal.append((SessionTitle(f"title {n}", "person"),), durable=True) for n in range(3)]
    await until(lambda: len(log.events) == 3)
    for _ in range(10):
        await asyncio.sleep(0)
    assert told == []
    assert not any(one.done() for one in appended)
    log.gate.set()
    await asyncio.gather(*appended)
    assert told == [0, 1, 2]
