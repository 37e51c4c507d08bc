"""From a session's state to a model request, and what the log says of it before it goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentls.agent.hooks import Proposal, RequestHook
from agentls.agent.prompt import Prompt
from agentls.core import tokens
from agentls.core.events import LedgerItem, ModelRef, RequestHeader
from agentls.core.frames import framed
from agentls.core.grown import Grown
from agentls.core.messages import Message
from agentls.core.session import SessionState
from agentls.core.sources import FORMS, SOURCES, form_of
from agentls.models.model import Memo, ModelRequest


def propose(state: SessionState, prompt: Prompt, model: ModelRef, hooks: Sequence[RequestHook]) -> Proposal:
    """What the next step's requests hold beside history, after every hook."""
    proposal = Proposal(prompt.system(), prompt.tools, model)
    for hook in hooks:
        proposal = hook.request(proposal, state)
    return proposal


class Requests:
    """The model requests of one session, each message of which is framed and encoded once."""

    def __init__(self) -> None:
        self._framed = Grown(framed)
        self._memo = Memo()

    def of(self, state: SessionState) -> ModelRequest:
        """What the log says the model is to see: the step's header, and history with contexts in their frames."""
        header = state.request_header
        assert header is not None, "a request is asked for after its header is in the log"
        messages = self._framed.of(state.history.messages)
        return ModelRequest(header.system, messages, header.tools, header.options, self._memo)


def header(state: SessionState, proposal: Proposal) -> RequestHeader:
    """The header of a proposal: the one that the log has where they say the same."""
    was = state.request_header
    new = RequestHeader(
        proposal.system, proposal.tools, proposal.model, proposal.options, "initial" if was is None else "change"
    )
    return was if was is not None and replace(new, reason=was.reason) == was else new


def ledger(
    state: SessionState, proposal: Proposal, messages: Sequence[Message], *, with_prompt: bool
) -> tuple[LedgerItem, ...]:
    """What this request sends and none before it did.

    Why not all of it: docs/rfc/implemented/architecture/2026-11-30-ledger-of-what-is-new.md.
    """
    items = []
    if with_prompt:
        items.append(LedgerItem("system", "prompt", tokens.of_system(proposal.system)))
        if proposal.tools:
            items.append(LedgerItem("tools", "prompt", tokens.of_tools(proposal.tools)))
    sent = state.history.sent
    for message in (*state.history.messages[sent:], *messages):
        form = form_of(message.source)
        items.append(
            LedgerItem(
                message.id,
                SOURCES.kind_of(message.source) or "unknown",
                tokens.of_message(framed(message)),
                FORMS.kind_of(form) if form is not None else None,
            )
        )
    return tuple(items)
