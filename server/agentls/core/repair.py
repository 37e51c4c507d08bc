"""What a cold load appends to a log whose process died: every call answered, step and turn closed, the rest held."""

from __future__ import annotations

from collections.abc import Mapping

from agentls.core.answer import error_result, interrupted
from agentls.core.assembler import Placed
from agentls.core.events import EventData, Hold, HoldCause, StepEnd, ToolResult, TurnEnd
from agentls.core.ids import CallId, MessageId
from agentls.core.reasons import Interrupted, TurnEndReason
from agentls.core.session import SessionState
from agentls.core.turn import OpenCall, OpenTurn, steering_to_queue

INTERRUPTED = Interrupted()

_UNKNOWN = (
    "the server died while this call ran, so whether it took effect is not known: repeat it only if it is safe to "
    "run twice, otherwise look at its effect first or ask the person"
)
_NOT_STARTED = "the server died before this call started: nothing was done, it may be repeated"


def repair(
    state: SessionState,
    shown: Mapping[MessageId, tuple[Placed, ...]],
    reason: TurnEndReason = INTERRUPTED,
    hold: HoldCause = "interrupted",
    finished: Mapping[CallId, ToolResult] | None = None,
) -> tuple[EventData, ...]:
    """The closing batch of an unclosed log; empty for a closed one, so that loading twice adds nothing.

    `shown` holds the text in flight of unfinished answers, by message. A live agent whose store or loop failed is
    closed the same way, for another reason, and with the results of calls that had `finished` by then.
    """
    turn = state.turns.open
    closing: list[EventData] = []
    if turn is not None:
        closing += _answer(turn, state, shown)
        closing += _results(turn, finished or {})
        closing += state.requests.cancelled()
        if turn.step_open:
            closing.append(StepEnd(turn.turn, turn.step))
    closing += steering_to_queue(state.inbox)
    if turn is not None:
        closing.append(TurnEnd(turn.turn, reason, turn.usage))
    if state.inbox.free():
        closing.append(Hold(held=True, cause=hold))
    return tuple(closing)


def _answer(
    turn: OpenTurn, state: SessionState, shown: Mapping[MessageId, tuple[Placed, ...]]
) -> tuple[EventData, ...]:
    if not turn.asking or state.request_header is None:
        return ()
    return interrupted(turn, state.request_header.model, shown.get(turn.answer_id(), ()))


def _results(turn: OpenTurn, finished: Mapping[CallId, ToolResult]) -> list[ToolResult]:
    return [finished.get(open_call.call.call_id) or _unfinished(open_call) for open_call in turn.unanswered()]


def _unfinished(open_call: OpenCall) -> ToolResult:
    if open_call.started:
        return error_result(open_call.call, "TOOL_OUTCOME_UNKNOWN", _UNKNOWN)
    return error_result(open_call.call, "TOOL_NOT_STARTED", _NOT_STARTED)
