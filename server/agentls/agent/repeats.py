"""A model that makes the same call again and again: it is told so, and stopped at last.

Small models run in circles. The count is read from history: identical calls (tool and arguments) without another call
or a person's word between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentls.agent.hooks import Context, Outcome, Use
from agentls.core.answer import parse_arguments
from agentls.core.blocks import ToolCallBlock
from agentls.core.json import JsonObject, canonical
from agentls.core.session import SessionState
from agentls.core.sources import Notice, PluginSource, bound_summary, is_person
from agentls.tools.tool import ToolError

NAME = "repeats"
REMINDED = (3, 5)
"""Which repetitions bring a reminder with them."""
REFUSED = 8
"""From which on the call does not run any more."""


class RepeatedCalls:
    """Counts, reminds (`post_execute`) and refuses (`pre_execute`)."""

    async def pre_execute(self, use: Use) -> JsonObject | None:
        """Refuse a call that has been made too often."""
        times = _times(use)
        if times >= REFUSED:
            text = f"this same call was made {times} times in a row and did not run again; do something else, or ask"
            raise ToolError("REPEATED_CALL", text)
        return None

    async def post_execute(self, use: Use, outcome: Outcome) -> Outcome:
        """Put a reminder after the result."""
        times = _times(use)
        if times not in REMINDED:
            return outcome
        summary = bound_summary(f"{use.call.name} × {times}")
        text = (
            f'You have called "{use.call.name}" {times} times in a row with the same arguments. Its result does not '
            "change: use what you have, or try something else."
        )
        reminder = Context(text, PluginSource(NAME, Notice(summary)))
        return Outcome(outcome.result, (*outcome.contexts, reminder))


def _times(use: Use) -> int:
    """How often the call has been made in a row, this time included."""
    mine = _key(use.call.name, use.call.arguments)
    times = 0
    for block in _calls_backwards(use.state):
        if block.id == use.call.call_id:
            times = 1
        elif times and _key(block.name, block.arguments) == mine:
            times += 1
        elif times:
            break
    return times


def _calls_backwards(state: SessionState) -> Iterator[ToolCallBlock]:
    """The newest calls first, back to a person's word."""
    for message in reversed(state.history.messages):
        if is_person(message.source):
            return
        for block in reversed(message.content):
            if isinstance(block, ToolCallBlock):
                yield block


def _key(name: str, arguments: str) -> tuple[str, str]:
    """What makes two calls the same one; arguments that have no canonical text are compared as they came."""
    parsed = parse_arguments(arguments)
    try:
        return name, arguments if parsed is None else canonical(parsed)
    except (ValueError, RecursionError):
        return name, arguments
