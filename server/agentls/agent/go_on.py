"""A turn that is tried again after its answer broke off: the `pre_step` hook that tells the model to go on."""

from __future__ import annotations

from agentls.agent.hooks import Context, Enter, Entry
from agentls.core.reasons import RetryTrigger
from agentls.core.sources import Notice, PluginSource


class GoOn:
    """Says to go on to a model whose last answer broke off, when a person has the turn tried again: without it, the
    request would end with the model's own words, which not every provider takes."""

    async def pre_step(self, entry: Entry) -> Enter:
        """Add it to the first step of such a turn."""
        turn = entry.state.turns.open
        last = entry.state.history.messages[-1:]
        if entry.step != 1 or turn is None or not isinstance(turn.trigger, RetryTrigger):
            return Enter()
        if not last or last[0].role != "assistant" or entry.items:
            return Enter()
        text = "Your last answer broke off. Go on from where it ended, without repeating it."
        return Enter((Context(text, PluginSource("retry", Notice("asked to go on"))),))
