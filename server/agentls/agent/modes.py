"""The modes of an agent: one that asks before it changes anything, and one that only reads.

A `request` hook and a `guard`: a model of a read-only agent is not told of the tools that change something, and a call
that it makes all the same does not start, also one that was allowed before a person changed the mode.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from agentls.agent.hooks import Proposal, Use
from agentls.core.session import SessionState
from agentls.tools.tool import ToolError


class ReadOnlyMode:
    """Keeps an agent in mode `read-only` from changing anything; `harmless` names the tools that never do."""

    def __init__(self, harmless: Set[str]) -> None:
        self._harmless = harmless

    def request(self, proposal: Proposal, state: SessionState) -> Proposal:
        """Leave out the tools that change something."""
        if state.mode != "read-only":
            return proposal
        return replace(proposal, tools=tuple(tool for tool in proposal.tools if tool.name in self._harmless))

    async def pre_execute(self, use: Use) -> None:
        """Refuse a call before a person is bothered with it."""
        await self.guard(use)

    async def guard(self, use: Use) -> None:
        """Refuse a call that changes something."""
        if use.state.mode == "read-only" and not use.read_only:
            text = f'the agent may only read, so "{use.call.name}" did not run; tell the person what you would change'
            raise ToolError("READ_ONLY", text)
