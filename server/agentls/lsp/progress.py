"""The progress of turns in the way of plain LSP (`window/workDoneProgress`), which editors show without a plugin.

The client is asked first, one question at a time, and a turn goes on without where the answer does not come. What it
is told of a turn is told a few times a second at most, and nothing at all while it takes nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from pygls.exceptions import JsonRpcException

from agentls.agent.agent import Agent
from agentls.agent.state import AgentState
from agentls.agent.view import Frame, View
from agentls.core.ids import AgentId
from agentls.core.json import JsonObject
from agentls.lsp.encode import notification, title_of
from agentls.lsp.transport import Writer

PAUSE = 0.3
"""Seconds between two reports of a turn, at least."""

PATIENCE = 5.0
"""Seconds that an answer may take."""

Create = Callable[[str], Awaitable[object]]
"""Ask the client for a progress under a token; JsonRpcException where it refuses."""


class Progress:
    """The progress of the agents that one connection draws."""

    def __init__(self, create: Create, writer: Writer, *, pause: float = PAUSE, patience: float = PATIENCE) -> None:
        self.writer = writer
        self.pause = pause
        self.patience = patience
        self.question = asyncio.Lock()
        self.create = create
        self._numbers = itertools.count(1)
        self._watches: dict[AgentId, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, agent: Agent) -> None:
        """Show the turns of an agent, with the one that is open."""
        known = self._watches.get(agent.id)
        if known is None or known.agent is not agent:
            self.detach(agent.id)
            self._watches[agent.id] = _Watch(self, agent)

    def detach(self, agent_id: AgentId) -> None:
        """Show them no more."""
        watch = self._watches.pop(agent_id, None)
        if watch is not None:
            watch.close()

    def turn_of(self, token: int | str) -> tuple[Agent, int] | None:
        """The agent and the turn that a progress shows, where it is one of ours and still open."""
        for watch in self._watches.values():
            if watch.turn is not None and watch.turn.token == token:
                return watch.agent, watch.turn.number
        return None

    def token(self) -> str:
        """A new one."""
        return f"agentls-{next(self._numbers)}"

    def start(self, turn: _Turn) -> asyncio.Task[None]:
        """Show a turn until it is over."""
        task = asyncio.create_task(turn.run(), name="agentls progress")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Watch:
    """The turns of one agent."""

    def __init__(self, progress: Progress, agent: Agent) -> None:
        self.agent = agent
        self.turn: _Turn | None = None
        self._progress = progress
        self._leave = agent.view.subscribe(self._take)
        if agent.view.state is not None:
            self._see(agent.view.state)

    def close(self) -> None:
        self._leave()
        self._end()

    def _take(self, frame: Frame) -> None:
        if frame.state is not None:
            self._see(frame.state)

    def _see(self, state: AgentState) -> None:
        number = state.turn.number if state.turn is not None and state.turn.trigger != "injection" else None
        if self.turn is not None and self.turn.number != number:
            self._end()
        if number is None:
            return
        message = _message(state, self.agent.view)
        if self.turn is None:
            self.turn = _Turn(self._progress, number, title_of(state.title), message)
        else:
            self.turn.tell(message)

    def _end(self) -> None:
        if self.turn is not None:
            self.turn.finish()
            self.turn = None


class _Turn:
    """The progress of one turn."""

    def __init__(self, progress: Progress, number: int, title: str, message: str) -> None:
        self.token = progress.token()
        self.number = number
        self._progress = progress
        self._title = title
        self._message = message
        self._changed = asyncio.Event()
        self._asked = False
        self._shown = False
        self._over = False
        self._task = progress.start(self)

    def tell(self, message: str) -> None:
        """Say how it stands."""
        if message != self._message:
            self._message = message
            self._changed.set()

    def finish(self) -> None:
        """It is over, or not this client's any more."""
        self._over = True
        if self._shown:
            self._send({"kind": "end"})
        # One that was asked for is begun and ended when the client agrees: only so does it let go of it.
        if self._shown or not self._asked:
            self._task.cancel()

    async def run(self) -> None:
        """Ask, begin, and report until `finish`."""
        async with self._progress.question:
            self._asked = True
            try:
                async with asyncio.timeout(self._progress.patience):
                    await self._progress.create(self.token)
            except (JsonRpcException, TimeoutError):
                return None
        told = self._message
        self._send({"kind": "begin", "title": self._title, "message": told, "cancellable": True})
        if self._over:
            return self._send({"kind": "end"})
        self._shown = True
        while True:
            await self._changed.wait()
            if told != self._message and self._progress.writer.writable:
                told = self._message
                self._send({"kind": "report", "message": told})
            # To a client that takes nothing it is told later.
            if told == self._message:
                self._changed.clear()
            await asyncio.sleep(self._progress.pause)

    def _send(self, value: JsonObject) -> None:
        self._progress.writer.write(notification("$/progress", {"token": self.token, "value": value}))


def _message(state: AgentState, view: View) -> str:
    """What waits for the person, else where the turn is."""
    if state.requests:
        asked = view.drawn(state.requests[0].block_id)
        return f"waits for you: {asked.block.title if asked is not None else state.requests[0].kind}"
    return f"step {state.turn.step}" if state.turn is not None else ""
