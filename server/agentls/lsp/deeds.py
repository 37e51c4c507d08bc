"""How the requests of one connection reach agents: in the order of their arrival, and to the end of what they began."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar
from weakref import WeakValueDictionary

from agentls.agent.agent import Agent
from agentls.core.errors import UserError
from agentls.core.ids import AgentId
from agentls.lsp.ports import Host

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Deeds:
    """What the requests of one connection have begun."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turnstiles: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: set[asyncio.Task[object]] = set()

    async def agent(self, named: str) -> Agent:
        """The agent; requests that name it pass in the order of their arrival, also while it is loaded."""
        agent_id = AgentId(named)
        async with self._turnstile(named):
            live = self._host.live(agent_id)
            return live if live is not None else await self.whole(self._host.get(agent_id))

    async def passed(self, named: str) -> None:
        """Return when the requests that name the agent and came earlier have passed; nothing is loaded for it."""
        async with self._turnstile(named):
            return

    def _turnstile(self, named: str) -> asyncio.Lock:
        return self._turnstiles.setdefault(named, asyncio.Lock())

    async def whole(self, deed: Coroutine[None, None, T]) -> T:
        """What `deed` gives; it goes on to its end when the request is cancelled meanwhile."""
        task = asyncio.create_task(deed)
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def alone(self, deed: Coroutine[None, None, object]) -> None:
        """Do what nobody waits for; the log says where it fails."""
        task = asyncio.create_task(deed)
        self._running.add(task)
        task.add_done_callback(self._done_alone)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, UserError):
            logger.debug("a request's work failed", exc_info=error)

    def _done_alone(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, UserError):
            logger.warning("a client's wish was not fulfilled: %s", error)
        elif error is not None:
            logger.error("a client's wish failed", exc_info=error)
