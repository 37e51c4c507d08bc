"""What becomes of a send: the table of fates as one pure decision on the state at its arrival."""

from __future__ import annotations

from typing import Literal

from agentls.agent.agent import IfIdle, Now, Refusal, Sent, Target
from agentls.core.events import Fate, Lane
from agentls.core.ids import MessageId
from agentls.core.reasons import TURN_ENDS
from agentls.core.session import SessionState


def repeated(state: SessionState, message: MessageId, hashed: str) -> Sent | Literal["id-conflict"] | None:
    """The answer to an id that is known already, or None for a new one. A repeat changes nothing."""
    known = state.inbox.known.get(message)
    if known is None:
        return None
    if known.content_hash != hashed:
        return "id-conflict"
    fate = known.fate
    return Sent(message, fate.outcome, turn=fate.turn, position=fate.position, repeated=True, now=now(state, message))


def now(state: SessionState, message: MessageId) -> Now:
    """Where a known message is."""
    pending = state.inbox.find(message)
    if pending is not None:
        return "held" if state.inbox.is_held(pending) else "pending"
    return "discarded" if state.inbox.known[message].exit == "discarded" else "taken"


def judge(
    state: SessionState, target: Target, *, wakeup: bool, expected_turn: int | None, if_idle: IfIdle
) -> tuple[Lane, Fate, int | None] | Refusal:
    """Lane, fate and position (None: at the end of the lane) of a new followup, steer or quiet item."""
    turn = state.current_turn()
    # What a step is about to take is not waited for any more, though it can still be taken back.
    entering = state.entering()
    rest = state.inbox.without(entering.claim) if entering is not None else state.inbox
    queue_end = len(rest.queued)
    if target == "next-step" and turn is not None:
        if expected_turn is None or expected_turn == turn:
            return "steering", Fate("steering", turn=turn, position=len(rest.steering)), None
        if if_idle == "refuse":
            return "no-turn"
        return "queued", Fate("queued", position=0), len(state.inbox.queued) - queue_end
    if target == "next-step" and if_idle == "refuse":
        return "no-turn"
    if not wakeup:
        return "queued", Fate("queued", position=queue_end), None
    if turn is None and not state.inbox.free():
        return "queued", Fate("started", turn=state.turns.last + 1), None
    return "queued", Fate("queued", position=queue_end), None


_RETRYABLE = ("error", "interrupted", "aborted", "max-tokens")
"""How a turn has to have ended to be tried again."""


def judge_retry(state: SessionState, turn: int) -> Refusal | None:
    """Why `turn` cannot be tried again, or None where it can."""
    if state.current_turn() is not None:
        return "turn-open"
    last = state.turns.last_end
    tried = last is not None and last.turn == turn and TURN_ENDS.kind_of(last.reason) in _RETRYABLE
    return None if tried else "not-retryable"
