"""What becomes of a send: the table of fates as one pure decision on the state at its arrival."""

from __future__ import annotations

from typing import Literal

from agentls.agent.agent import IfIdle, Now, Refusal, Sent, Target
from agentls.core.events import Fate, Lane
from agentls.core.ids import MessageId
from agentls.core.session import SessionState


def repeated(state: SessionState, message: MessageId, hashed: str) -> Sent | Literal["id-conflict"] | None:
    """The answer to an id that is known already, or None for a new one. A repeat changes nothing."""
    known = state.inbox.known.get(message)
    if known is None:
        return None
    if known.content_hash != hashed:
        return "id-conflict"
    fate = known.fate
    now = _now(state, message)
    return Sent(message, fate.outcome, turn=fate.turn, position=fate.position, repeated=True, now=now)


def _now(state: SessionState, message: MessageId) -> Now:
    pending = state.inbox.find(message)
    if pending is not None:
        return "held" if state.inbox.is_held(pending) else "pending"
    return "discarded" if state.inbox.known[message].exit == "discarded" else "taken"


def judge(
    state: SessionState, target: Target, *, wakeup: bool, expected_turn: int | None, if_idle: IfIdle
) -> tuple[Lane, Fate, int | None] | Refusal:
    """Lane, fate and position (None: at the end of the lane) of a new followup, steer or quiet item."""
    turn = state.turns.open
    queue_end = len(state.inbox.queued)
    if target == "next-step" and turn is not None:
        if expected_turn is None or expected_turn == turn.turn:
            return "steering", Fate("steering", turn=turn.turn, position=len(state.inbox.steering)), None
        if if_idle == "refuse":
            return "no-turn"
        return "queued", Fate("queued", position=0), 0
    if target == "next-step" and if_idle == "refuse":
        return "no-turn"
    if not wakeup:
        return "queued", Fate("queued", position=queue_end), None
    if turn is None and not state.inbox.free():
        return "queued", Fate("started", turn=state.turns.last + 1), None
    return "queued", Fate("queued", position=queue_end), None
