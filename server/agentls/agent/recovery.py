"""What becomes of a session whose store refuses: it is suspended, and what was open is closed when a write succeeds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from agentls.agent.drawing import Drawing
from agentls.agent.journal import Journal
from agentls.core.errors import StoreUnavailable
from agentls.core.events import EventData
from agentls.core.reasons import Failure, TurnEndReason, TurnFailed
from agentls.core.turn import OpenTurn

PROBE_SECONDS = 1.0
"""How often a suspended agent tries whether the store takes writes again."""


class Work(Protocol):
    """What a turn had under way in memory."""

    async def stopped(self) -> None:
        """Wait until nothing of it runs."""

    def closing(self, reason: TurnEndReason) -> tuple[EventData, ...]:
        """The batch that closes the open turn with what was shown and what had finished of it."""

    def forget_drafts(self, turn: OpenTurn) -> None:
        """Its text in flight is in the log now."""

    def wake(self) -> None:
        """Go on: the session can be written again."""


class Recovery:
    """Suspends one session and has it go on. What is to be saved waits in memory until then."""

    def __init__(self, journal: Journal, drawing: Drawing, work: Work) -> None:
        self._journal = journal
        self._drawing = drawing
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def suspend(self, error: StoreUnavailable) -> None:
        """Say that nothing can be saved, and try until it can."""
        self._drawing.store_lost(error)
        if not self._stopped and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._keep_trying())

    async def stop(self) -> None:
        """Try no more, but for `attempt`."""
        self._stopped = True
        await ended(self._task)

    async def attempt(self) -> None:
        """Close what was open, if the store takes writes again; StoreUnavailable while it does not."""
        await self._work.stopped()
        cause = self._journal.failure
        if cause is None:
            return
        await self._journal.reopen()
        turn = self._journal.state.turns.open
        closing = self._work.closing(TurnFailed(Failure(str(cause), "STORE_UNAVAILABLE")))
        if closing:
            await self._journal.append(closing, durable=True)
        if turn is not None:
            self._work.forget_drafts(turn)
        self._drawing.store_back()

    async def _keep_trying(self) -> None:
        while self._journal.failure is not None:
            await asyncio.sleep(PROBE_SECONDS)
            with suppress(StoreUnavailable):
                await self.attempt()
        self._work.wake()


async def ended(task: asyncio.Task[None] | None) -> None:
    """End a task, and wait for it."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])
