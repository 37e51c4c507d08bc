"""The agents that one connection draws: each has an outbox, its place among the agent's editors, and its progress."""

from __future__ import annotations

from collections.abc import Callable

from agentls.agent.agent import Agent
from agentls.agent.host import UnknownAgent
from agentls.agent.view import CatchUp
from agentls.core.ids import AgentId
from agentls.lsp.editors import Editors
from agentls.lsp.outbox import Outbox, Outboxes
from agentls.lsp.ports import Client
from agentls.lsp.progress import Progress


class Drawing:
    """What one connection draws, each agent until it ends; `progress` is None for a client that shows none."""

    def __init__(self, client: Client, outboxes: Outboxes, editors: Editors) -> None:
        self.progress: Progress | None = None
        self._client = client
        self._outboxes = outboxes
        self._editors = editors
        self._following: dict[AgentId, Callable[[], None]] = {}

    def attach(self, agent: Agent, epoch: str | None, since: int | None) -> tuple[CatchUp, Outbox]:
        """Ops that bring the client up to date, and the paused outbox of what comes after, in one loop step.
        UnknownAgent for one that has been closed."""
        if agent.view.ended:
            raise UnknownAgent(agent.id)
        self._unfollow(agent.id)
        self._following[agent.id] = agent.view.on_end(lambda: self.detach(agent.id))
        self._editors.attach(agent, self._client.editor)
        caught, outbox = self._outboxes.attach(agent, epoch, since)
        if self.progress is not None:
            self.progress.attach(agent)
        return caught, outbox

    def outbox(self, agent_id: AgentId) -> Outbox | None:
        """The outbox of an agent that is drawn."""
        return self._outboxes.of(agent_id)

    def detach(self, agent_id: AgentId) -> None:
        """Draw an agent no more, if it was drawn."""
        self._outboxes.detach(agent_id)
        self._left(agent_id)

    def close(self) -> None:
        """Draw nothing any more."""
        for agent_id in self._outboxes.close():
            self._left(agent_id)

    def _unfollow(self, agent_id: AgentId) -> None:
        leave = self._following.pop(agent_id, None)
        if leave is not None:
            leave()

    def _left(self, agent_id: AgentId) -> None:
        self._unfollow(agent_id)
        self._editors.leave(agent_id, self._client.editor.connection)
        if self.progress is not None:
            self.progress.detach(agent_id)
