"""Which clients draw which agent: kept once for all connections of a process, told to the agents."""

from __future__ import annotations

from agentls.agent.agent import Agent
from agentls.agent.state import EditorFacts
from agentls.core.ids import AgentId


class Editors:
    """The attached clients by agent."""

    def __init__(self) -> None:
        self._attached: dict[AgentId, tuple[Agent, dict[int, EditorFacts]]] = {}

    def attach(self, agent: Agent, editor: EditorFacts) -> None:
        """A client draws an agent from now on."""
        known = self._attached.get(agent.id)
        editors = {**(known[1] if known else {}), editor.connection: editor}
        self._tell(agent, editors)

    def leave(self, agent_id: AgentId, connection: int) -> None:
        """A client draws an agent no more."""
        agent, editors = self._attached.get(agent_id, (None, {}))
        if agent is not None and connection in editors:
            self._tell(agent, {number: editor for number, editor in editors.items() if number != connection})

    def _tell(self, agent: Agent, editors: dict[int, EditorFacts]) -> None:
        if editors:
            self._attached[agent.id] = agent, editors
        else:
            self._attached.pop(agent.id, None)
        agent.set_editors(tuple(editors[number] for number in sorted(editors)))
