"""The whole state of an agent as any client may see it: always complete, never a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentls.core.blocks import text_of
from agentls.core.chunks import Usage
from agentls.core.events import ApprovalAsked, HoldCause, Lane, ModelRef
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId
from agentls.core.inbox import Inbox, Pending
from agentls.core.reasons import TRIGGERS, TURN_ENDS
from agentls.core.requests import Asked, Requests
from agentls.core.session import SessionState
from agentls.core.turn import Rest

Status = Literal["idle", "running", "waiting", "suspended"]
StoreState = Literal["ok", "unavailable", "read-only"]


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """The open turn; `started_at` in epoch milliseconds."""

    number: int
    step: int
    trigger: str
    started_at: int


@dataclass(frozen=True, slots=True)
class LastTurn:
    """How the last closed turn ended."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A pending message, in the order in which its lane runs."""

    message_id: MessageId
    lane: Lane
    wakeup: bool
    held: bool
    text: str


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Something that waits for a person; `shown` is the hash to answer with."""

    request_id: RequestId
    kind: Literal["approval", "question"]
    block_id: BlockId
    shown: str
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class EditorFacts:
    """An attached client; `id` is that of its editor, which messages are marked with and clients do not see."""

    client: str
    connection: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class AgentState:
    """What `agent/state` carries beside `epoch` and `rev`."""

    agent_id: AgentId
    title: str | None
    status: Status
    turn: TurnFacts | None
    last_turn: LastTurn | None
    inbox: tuple[WaitingMessage, ...]
    hold: HoldCause | None
    requests: tuple[OpenRequest, ...]
    model: ModelRef
    model_usable: bool
    mode: str
    usage: Usage
    context_tokens: int
    context_window: int
    editors: tuple[EditorFacts, ...]
    store: StoreState


def inbox_of(inbox: Inbox) -> tuple[WaitingMessage, ...]:
    """The pending messages, steering first, as a client sees them."""
    return tuple(_waiting(inbox, pending) for pending in inbox.pending())


def _waiting(inbox: Inbox, pending: Pending) -> WaitingMessage:
    item = pending.item
    return WaitingMessage(item.id, item.lane, item.wakeup, inbox.is_held(pending), text_of(item.content))


def _request(agent_id: AgentId, asked: Asked) -> OpenRequest:
    kind: Literal["approval", "question"] = "approval" if isinstance(asked, ApprovalAsked) else "question"
    return OpenRequest(asked.request_id, kind, BlockId(asked.request_id), Requests.shown(asked), agent_id)


def agent_state(
    agent_id: AgentId,
    state: SessionState,
    *,
    model: ModelRef,
    usable: bool,
    context_window: int,
    editors: tuple[EditorFacts, ...],
    store: StoreState,
) -> AgentState:
    """The state that the log and what lies beside it give."""
    turn = state.turns.open
    entering = state.entering() if turn is None and store != "read-only" else None
    last = state.turns.last_end
    usage = state.usage.plus(turn.usage) if turn else state.usage
    return AgentState(
        agent_id=agent_id,
        title=state.title,
        status=_status(state, store),
        turn=TurnFacts(turn.turn, turn.step, TRIGGERS.kind_of(turn.trigger) or "unknown", turn.started_at)
        if turn
        # The number of a turn that is about to start is taken; its start is not in the log yet.
        else TurnFacts(entering.turn, entering.step, "message", state.last_time)
        if entering
        else None,
        last_turn=LastTurn(last.turn, TURN_ENDS.kind_of(last.reason) or "unknown") if last else None,
        inbox=inbox_of(state.inbox),
        hold=state.inbox.hold_cause if any(map(state.inbox.is_held, state.inbox.pending())) else None,
        requests=tuple(_request(agent_id, asked) for asked in state.requests.open),
        model=model,
        model_usable=usable,
        mode=state.mode,
        usage=usage,
        context_tokens=state.context_tokens,
        context_window=context_window,
        editors=editors,
        store=store,
    )


def _status(state: SessionState, store: StoreState) -> Status:
    if store == "unavailable":
        return "suspended"
    if store == "read-only":
        return "idle"
    if state.turns.open is not None:
        return "waiting" if state.requests.open else "running"
    return "idle" if isinstance(state.next_action(), Rest) else "running"
