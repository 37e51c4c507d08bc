"""What closes a turn that broke off: every call answered, step and turn closed, the rest held.

A cold load appends it to a log whose process died, a live agent after a fault of its store or its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentls.core.answer import denial, error_result, interrupted
from agentls.core.assembler import Placed
from agentls.core.events import ApprovalDecided, EventData, Hold, HoldCause, StepEnd, ToolResult, TurnEnd
from agentls.core.ids import CallId, MessageId
from agentls.core.reasons import Interrupted, TurnEndReason, TurnFailed
from agentls.core.session import SessionState
from agentls.core.turn import OpenCall, OpenTurn, steering_to_queue

INTERRUPTED = Interrupted()

_UNKNOWN = (
    "{what} while this call ran, so whether it took effect is not known: repeat it only if it is safe to run twice, "
    "otherwise look at its effect first or ask the person"
)
_NOT_STARTED = "{what} before this call started: nothing was done, it may be repeated"


def repair(
    state: SessionState,
    shown: Mapping[MessageId, tuple[Placed, ...]],
    reason: TurnEndReason = INTERRUPTED,
    hold: HoldCause = "interrupted",
    finished: Mapping[CallId, ToolResult] | None = None,
) -> tuple[EventData, ...]:
    """The closing batch of an unclosed log; empty for a closed one, so that loading twice adds nothing.

    `shown` holds the text in flight of unfinished answers, by message. A live agent whose store or loop failed is
    closed the same way, for another reason, which the model is told, and with the results of calls that had `finished`
    by then.
    """
    turn = state.turns.open
    closing: list[EventData] = []
    if turn is not None:
        closing += _answer(turn, state, shown)
        what, denied = _what_happened(reason), state.requests.denied
        for open_call in turn.unanswered():
            call_id = open_call.call.call_id
            closing.append((finished or {}).get(call_id) or _unfinished(open_call, denied.get(call_id), what))
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


def _what_happened(reason: TurnEndReason) -> str:
    return f"the turn failed ({reason.failure.message})" if isinstance(reason, TurnFailed) else "the server died"


def _unfinished(open_call: OpenCall, denied: ApprovalDecided | None, what: str) -> ToolResult:
    if denied is not None:
        return error_result(open_call.call, "DENIED", denial(denied))
    if open_call.started:
        return error_result(open_call.call, "TOOL_OUTCOME_UNKNOWN", _UNKNOWN.format(what=what))
    return error_result(open_call.call, "TOOL_NOT_STARTED", _NOT_STARTED.format(what=what))
