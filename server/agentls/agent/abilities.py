"""What a model can do: the `request` hook that tells none of tools that cannot call them."""

from __future__ import annotations

from dataclasses import replace

from agentls.agent.hooks import Proposal
from agentls.core.errors import UserError
from agentls.core.session import SessionState
from agentls.models.model import Models


class Abilities:
    """Asks the catalog."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def request(self, proposal: Proposal, state: SessionState) -> Proposal:
        """Leave all tools out for a model that takes none."""
        try:
            model = self._models.open(proposal.model)
        except UserError:
            return proposal  # The request fails, and says so.
        return proposal if model.takes_tools else replace(proposal, tools=())
