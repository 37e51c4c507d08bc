"""A name for a session that nobody named: the `turn_stopping` hook that takes it from the first question."""

from __future__ import annotations

from agentls.agent.agent import Agent
from agentls.core.blocks import text_of
from agentls.core.session import SessionState
from agentls.core.sources import is_person
from agentls.core.visible import one_line

TITLE_MAX = 60
"""Characters of a title, at most."""


class FirstTitle:
    """Names a session after what was asked first."""

    async def turn_stopping(self, agent: Agent, state: SessionState) -> None:
        """Give the title, once."""
        if state.title is not None:
            return
        asked = next((m for m in state.history.messages if is_person(m.source)), None)
        title = one_line(text_of(asked.content), TITLE_MAX) if asked is not None else ""
        if title:
            await agent.configure(title=title, by="agent")
