"""From a session's state to a model request, and the events that record it before it goes out."""

from __future__ import annotations

from dataclasses import replace

from agentls.agent.prompt import Prompt
from agentls.core import tokens
from agentls.core.events import (
    EventData,
    InboxItem,
    LedgerItem,
    ModelRef,
    RequestHeader,
    RequestSent,
    StepStart,
    TurnStart,
    UserMessage,
)
from agentls.core.messages import Message
from agentls.core.reasons import MessageTrigger
from agentls.core.session import SessionState
from agentls.core.sources import FORMS, SOURCES, form_of
from agentls.core.turn import EnterStep, claimed
from agentls.models.model import ModelRequest


def enter_step(state: SessionState, action: EnterStep, prompt: Prompt, model: ModelRef) -> tuple[EventData, ...]:
    """`dequeue…, turn/start?, step/start, user/message…, request/header?, request/sent`: one batch, so that a crash
    never parts a message from its place in the queue before it has one in history."""
    items = [pending.item for pending in state.inbox.pending() if pending.item.id in action.claim]
    messages = [_message(item) for item in items]
    header = _header(state, prompt, model)
    events: list[EventData] = list(claimed(action))
    if state.turns.open is None:
        events.append(TurnStart(action.turn, MessageTrigger(action.claim)))
    events.append(StepStart(action.turn, action.step))
    events += [UserMessage(message) for message in messages]
    if header != state.request_header:
        events.append(header)
    boundary = state.next_seq + len(events) - 1
    ledger = _ledger(state, prompt, messages, with_prompt=header != state.request_header)
    events.append(RequestSent(action.turn, action.step, 1, boundary, ledger))
    return tuple(events)


def model_request(state: SessionState, prompt: Prompt) -> ModelRequest:
    """What the log says the model is to see."""
    return ModelRequest(prompt.system(), state.history.messages, prompt.tools)


def _message(item: InboxItem) -> Message:
    return Message(item.id, "user", item.content, item.source)


def _header(state: SessionState, prompt: Prompt, model: ModelRef) -> RequestHeader:
    was = state.request_header
    new = RequestHeader(prompt.system(), prompt.tools, model, {}, "initial" if was is None else "change")
    return was if was is not None and replace(new, reason=was.reason) == was else new


def _ledger(
    state: SessionState, prompt: Prompt, messages: list[Message], *, with_prompt: bool
) -> tuple[LedgerItem, ...]:
    """What this request sends and none before it did.

    Why not all of it: docs/rfc/implemented/architecture/2026-11-30-ledger-of-what-is-new.md.
    """
    items = []
    if with_prompt:
        items.append(LedgerItem("system", "prompt", tokens.of_system(prompt.system())))
        if prompt.tools:
            items.append(LedgerItem("tools", "prompt", tokens.of_tools(prompt.tools)))
    sent = state.history.sent
    for message in (*state.history.messages[sent:], *messages):
        form = form_of(message.source)
        items.append(
            LedgerItem(
                message.id,
                SOURCES.kind_of(message.source) or "unknown",
                tokens.of_message(message),
                FORMS.kind_of(form) if form is not None else None,
            )
        )
    return tuple(items)
