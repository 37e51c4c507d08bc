"""The way of events into the log: prepare at once, commit in order, publish what is committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agentls.core.errors import LogicError, StoreUnavailable
from agentls.core.events import EventData
from agentls.core.session import Batch, Session, SessionState
from agentls.store.store import SessionLog

logger = logging.getLogger(__name__)


class Journal:
    """One session's chain of commits.

    `append` prepares before it returns, so the order of the calls is the order of the log; its commit overlaps with
    others and is published strictly in that order. Once a commit has failed everything prepared is forgotten and every
    append fails until `reopen`.
    """

    def __init__(
        self,
        session: Session,
        log: SessionLog,
        *,
        now: Callable[[], int],
        broken: Callable[[StoreUnavailable], None],
    ) -> None:
        self.session = session
        self.log = log
        self.failure: StoreUnavailable | None = None
        self._now = now
        self._broken = broken
        self._tail: asyncio.Future[None] | None = None
        self._news = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """The state with all that has been prepared."""
        return self.session.state

    def append(self, payloads: Sequence[EventData], *, durable: bool, more: bool = False) -> asyncio.Future[None]:
        """Prepare now; the answer is done once the events are committed (with `durable`: on disk) and published.
        `more` says that what follows from them is about to be appended.

        Not awaiting it is fine, and a cancelled await loses nothing. It fails with StoreUnavailable; LogicError, at
        once, where an event would break a rule of the log.
        """
        if self.failure is not None:
            raise StoreUnavailable(str(self.failure))
        batch = self.session.prepare(payloads, time=self._now())
        task = asyncio.ensure_future(self._commit(batch, self._tail, durable=durable, more=more))
        task.add_done_callback(_retrieve)
        self._tail = task
        committed = asyncio.shield(task)
        committed.add_done_callback(_retrieve)
        return committed

    async def settled(self) -> None:
        """Wait until everything prepared so far is committed; StoreUnavailable where that failed."""
        if self._tail is not None:
            await asyncio.shield(self._tail)

    async def until(self, holds: Callable[[SessionState], bool]) -> None:
        """Wait until the committed state satisfies `holds`; StoreUnavailable when the store fails first."""
        while not holds(self.session.committed):
            if self.failure is not None:
                raise StoreUnavailable(str(self.failure))
            await self._news.wait()

    async def reopen(self) -> None:
        """Go on after a failed commit, once the store takes writes again; StoreUnavailable while it does not."""
        if self._tail is not None:
            await asyncio.wait([self._tail])
        await self.log.probe()
        self.failure = None
        self._tail = None

    async def _commit(self, batch: Batch, before: asyncio.Future[None] | None, *, durable: bool, more: bool) -> None:
        try:
            await self.log.commit(batch.events, durable=durable, more=more)
        except (StoreUnavailable, LogicError) as failure:
            if before is not None:
                await asyncio.wait([before])
            # A store that finds the log other than we left it is as lost to us as one that cannot write.
            error = failure if isinstance(failure, StoreUnavailable) else StoreUnavailable(str(failure))
            self.break_off(error)
            raise error from failure
        if before is not None and not before.done():
            await asyncio.wait([before])
        for fault in self.session.publish(batch):
            logger.error("an observer of the log failed", exc_info=fault)
        self._tell_news()
        if self.failure is not None:
            # This one was under way when a write beside the log failed: it is in the log, so what rests on it counts.
            self.session.roll_back()

    def break_off(self, error: StoreUnavailable) -> None:
        """Forget what is prepared and refuse what follows: a write has failed, of the log or beside it (a draft's)."""
        if self.failure is None:
            self.failure = error
            self.session.roll_back()
            self._broken(error)
            self._tell_news()

    def _tell_news(self) -> None:
        """Have everyone who waits for a state look again."""
        self._news.set()
        self._news = asyncio.Event()


def _retrieve(task: asyncio.Future[None]) -> None:
    # The awaiting side may be gone; asyncio must not report the failure a second time as never retrieved.
    if not task.cancelled():
        task.exception()
