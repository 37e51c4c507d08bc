"""The beginning of a step: what is claimed leaves the inbox and enters history in one batch, or the turn ends there.

A claim is tentative until that batch: a person may still edit or withdraw what a step is about to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentls.agent.hooks import Context, Proposal
from agentls.agent.request import header, ledger
from agentls.core.blocks import TextBlock
from agentls.core.events import (
    Dequeue,
    EventData,
    Hold,
    HoldCause,
    InboxItem,
    RequestSent,
    StepStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.frames import sealed
from agentls.core.ids import producer_message
from agentls.core.inbox import Inbox
from agentls.core.messages import Message
from agentls.core.reasons import CancelCause, MessageTrigger, TurnAborted, TurnEndReason
from agentls.core.session import SessionState
from agentls.core.turn import EnterStep, cancel_waiting, steering_to_queue


def claim_of(inbox: Inbox, action: EnterStep) -> tuple[InboxItem, ...]:
    """The messages that a step takes, in the order in which they enter history."""
    return tuple(pending.item for pending in inbox.pending() if pending.item.id in action.claim)


def produced(turn: int, step: int, contexts: Iterable[Context], after: int = 0) -> tuple[Message, ...]:
    """The messages of contexts that the server's own producers and hooks give, numbered within their step."""
    return tuple(
        Message(producer_message(turn, step, n), "user", (TextBlock(text),), sealed(source, (TextBlock(text),)))
        for n, (text, source) in enumerate(((one.text, one.source) for one in contexts), start=after + 1)
    )


def enter_step(
    state: SessionState, action: EnterStep, proposal: Proposal, contexts: Sequence[Context] = ()
) -> tuple[EventData, ...]:
    """`dequeue…, turn/start?, step/start, user/message…, request/header?, request/sent`: one batch, so that a crash
    never parts a message from its place in the queue before it has one in history."""
    messages = (*_messages(state, action), *produced(action.turn, action.step, contexts))
    new = header(state, proposal)
    events: list[EventData] = [
        *_dequeues(action, runs=True),
        *_opening(state, action),
        StepStart(action.turn, action.step),
    ]
    events += [UserMessage(message) for message in messages]
    if new != state.request_header:
        events.append(new)
    boundary = state.next_seq + len(events) - 1
    items = ledger(state, proposal, messages, with_prompt=new != state.request_header)
    events.append(RequestSent(action.turn, action.step, 1, boundary, items))
    return tuple(events)


def reject_step(
    state: SessionState, action: EnterStep, reason: TurnEndReason, hold: HoldCause
) -> tuple[EventData, ...]:
    """`dequeue…, turn/start?, user/message…, update…, turn/end, hold?` of a step that does not begin: its messages are
    in the turn that ends, and whatever else waits is held."""
    rest = _rest(state, action)
    usage = state.turns.open.usage if state.turns.open is not None else None
    return (
        *_dequeues(action, runs=False),
        *_opening(state, action),
        *(UserMessage(message) for message in _messages(state, action)),
        *steering_to_queue(rest),
        TurnEnd(action.turn, reason, usage),
        *((Hold(held=True, cause=hold),) if rest.free() else ()),
    )


def cancel_step(
    state: SessionState, action: EnterStep, cause: CancelCause, *, keep_inbox: bool
) -> tuple[EventData, ...]:
    """`turn/cancel, dequeue…, turn/start?, user/message…, turn/end aborted, discard | update…, hold?`: a turn that was
    cancelled before this step of it began."""
    usage = state.turns.open.usage if state.turns.open is not None else None
    return (
        TurnCancel(action.turn, cause, keep_inbox),
        *_dequeues(action, runs=False),
        *_opening(state, action),
        *(UserMessage(message) for message in _messages(state, action)),
        TurnEnd(action.turn, TurnAborted(cause), usage),
        *cancel_waiting(_rest(state, action), state.next_seq, keep_inbox=keep_inbox),
    )


def _dequeues(action: EnterStep, *, runs: bool) -> tuple[EventData, ...]:
    """The events by which claimed messages leave the inbox: into the step, or without it where it never `runs`."""
    return tuple(Dequeue(message, action.turn, action.step if runs else None) for message in action.claim)


def _messages(state: SessionState, action: EnterStep) -> tuple[Message, ...]:
    items = claim_of(state.inbox, action)
    return tuple(Message(item.id, "user", item.content, sealed(item.source, item.content)) for item in items)


def _opening(state: SessionState, action: EnterStep) -> tuple[EventData, ...]:
    return (TurnStart(action.turn, MessageTrigger(action.claim)),) if state.turns.open is None else ()


def _rest(state: SessionState, action: EnterStep) -> Inbox:
    """The inbox without what the step claims."""
    return state.inbox.without(action.claim)
