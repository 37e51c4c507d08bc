"""Core and agent values as they go on the wire: plain dicts in the shapes of `replies.py`, and whole messages as bytes.

A text op holds at most 64 KiB: a longer body is a put of its beginning and appends of the rest, all in one frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from agentls.agent.agent import Answered, Cancelled, Changed, Content, Page, Part, Sent
from agentls.agent.host import Listed
from agentls.agent.state import AgentState, WaitingMessage
from agentls.agent.view import AppendOp, CatchUp, Drawn, DropOp, Frame, Op, PutOp, View
from agentls.core import surrogates
from agentls.core.chunks import Usage
from agentls.core.codec import camel
from agentls.core.codec import encode as core_json
from agentls.core.ids import AgentId, BlockId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.rows import Block, CallFacts
from agentls.core.visible import boundary, one_line, preview
from agentls.lsp import methods
from agentls.lsp.framing import framed
from agentls.models.model import ModelFacts

TEXT_MAX = 64 * 1024
"""UTF-8 bytes of text in one op."""
WAITING_MAX = 4 * 1024
"""UTF-8 bytes of a pending message in a state, which names all of them each time it changes."""

_ALWAYS = ("id", "order", "kind")
_NAMES = {field.name: camel(field.name) for field in fields(Block)}
_USAGE = tuple((field.name, camel(field.name)) for field in fields(Usage))


# Blocks and frames ---------------------------------------------------------------------------------------------


def ops_json(ops: Iterable[Op]) -> list[JsonValue]:
    """Ops for the wire, long texts in pieces."""
    found: list[JsonValue] = []
    for op in ops:
        match op:
            case PutOp(drawn, wanted):
                found += put_json(drawn, wanted)
            case AppendOp(block, offset, text):
                found += append_json(block, offset, text)
            case DropOp(block):
                found.append({"op": "drop", "id": block})
    return found


def put_json(drawn: Drawn, wanted: frozenset[str] | None = None) -> Iterator[JsonValue]:
    """A put of some fields of a block, or of all of it with those cleared that it has no more."""
    block = drawn.block
    shown: dict[str, JsonValue] = {"id": block.id, "order": block.order, "rev": drawn.rev, "kind": block.kind}
    cleared: list[JsonValue] = []
    rest: Iterator[tuple[int, str]] = iter(())
    for name, wire_name in _NAMES.items():
        if name in _ALWAYS or (wanted is not None and name not in wanted):
            continue
        value: object = getattr(block, name)
        if value is None and wanted is None and name not in drawn.cleared:
            continue
        if value is None:
            cleared.append(wire_name)
        if name == "body":
            rest = pieces(block.body)
            _, value = next(rest)
        shown[wire_name] = _field_json(value)
    yield {"op": "put", "block": shown, "cleared": cleared} if cleared else {"op": "put", "block": shown}
    for at, piece in rest:
        yield {"op": "append", "id": block.id, "offset": at, "text": piece}


def append_json(block: BlockId, offset: int, text: str) -> Iterator[JsonValue]:
    """Appends of a text that begins at `offset`."""
    for at, piece in pieces(text):
        yield {"op": "append", "id": block, "offset": offset + at, "text": piece}


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """A text in parts of at most 64 KiB of UTF-8, cut between characters, each with its offset; at least one part."""
    if len(text) <= TEXT_MAX // 4:
        yield 0, text
        return
    data = text.encode(errors="replace")
    at = 0
    while at == 0 or at < len(data):
        end = boundary(data, at + TEXT_MAX)
        yield at, data[at:end].decode()
        at = end


def _field_json(value: object) -> JsonValue:
    match value:
        case None | str() | bool() | int():
            return value
        case CallFacts(name, arguments, state):
            return {"name": name, "arguments": arguments, "state": state}
        case Usage():
            return _usage_json(value)
    raise TypeError(f"a block holds a {type(value).__name__}, which has no wire form")


def _usage_json(usage: Usage) -> dict[str, JsonValue]:
    return {wire_name: getattr(usage, name) for name, wire_name in _USAGE}


def blocks_message(agent: AgentId, epoch: str, rev: int, ops: Sequence[JsonValue]) -> bytes:
    """A frame as complete bytes."""
    return notification(methods.BLOCKS.name, {"agentId": agent, "epoch": epoch, "rev": rev, "ops": ops})


def state_message(epoch: str, rev: int, state: AgentState) -> bytes:
    """A state as complete bytes."""
    return notification(methods.STATE.name, state_json(epoch, rev, state))


def frame_message(agent: AgentId, epoch: str, frame: Frame) -> bytes:
    """A published frame as complete bytes, made once for all clients."""
    if frame.encoded is None:
        frame.encoded = (
            blocks_message(agent, epoch, frame.rev, ops_json(frame.ops))
            if frame.state is None
            else state_message(epoch, frame.rev, frame.state)
        )
    return frame.encoded


def context_message(agent: AgentId, rev: int, block: Block, supersedes: BlockId | None) -> bytes:
    """The notice of a context as complete bytes."""
    notice: JsonObject = {
        "agentId": agent,
        "rev": rev,
        "form": block.form,
        "producer": block.producer,
        "title": block.title,
        "summary": block.summary,
        "blockId": block.id,
        "supersedes": supersedes,
    }
    return notification(methods.CONTEXT.name, _without_none(notice))


def attention_message(agent: AgentId, kind: str, state: AgentState | None) -> bytes:
    """A call for the person's attention as complete bytes."""
    title = title_of(state.title if state is not None else None)
    return notification(methods.ATTENTION.name, {"agentId": agent, "kind": kind, "title": title})


def title_of(title: str | None) -> str:
    """What a person knows an agent by that may have no title yet, as one plain line."""
    return one_line(title or "") or "agentls"


def list_changed_message(workspace_uri: str) -> bytes:
    """That the list of a workspace is another now, as complete bytes."""
    return notification(methods.LIST_CHANGED.name, {"workspaceUri": workspace_uri})


def notification(method: str, params: JsonValue) -> bytes:
    """A notification as complete bytes."""
    return framed(surrogates.dump({"jsonrpc": "2.0", "method": method, "params": params}))


# States and results --------------------------------------------------------------------------------------------


def state_json(epoch: str, rev: int, state: AgentState) -> JsonObject:
    """A whole state; what this version does not have yet is empty."""
    turn, last, hold = state.turn, state.last_turn, state.hold
    return {
        "agentId": state.agent_id,
        "epoch": epoch,
        "rev": rev,
        "title": state.title,
        "status": state.status,
        "turn": {"number": turn.number, "step": turn.step, "trigger": turn.trigger, "startedAt": turn.started_at}
        if turn
        else None,
        "lastTurn": {"number": last.number, "reason": last.reason} if last else None,
        "inbox": inbox_json(state.inbox),
        "hold": {"cause": hold} if hold else None,
        "requests": [
            {
                "requestId": request.request_id,
                "kind": request.kind,
                "blockId": request.block_id,
                "shown": request.shown,
                "agentId": request.agent_id,
            }
            for request in state.requests
        ],
        "model": _model_json(state),
        "mode": state.mode,
        "usage": {
            **_usage_json(state.usage),
            "contextTokens": state.context_tokens,
            "contextWindow": state.context_window,
            "costUsd": None,
        },
        "todos": [],
        "jobs": [],
        "editors": [{"client": editor.client, "connection": editor.connection} for editor in state.editors],
        "store": state.store,
    }


def state_of(view: View) -> JsonObject:
    """The state last published, with its revision."""
    if view.state is None:
        raise AssertionError("an agent publishes its state before anyone can see it")
    return state_json(view.epoch, view.state_rev, view.state)


def attach_json(view: View, caught: CatchUp) -> JsonObject:
    """The answer to an attach."""
    return _without_none(
        {
            "state": state_of(view),
            "ops": ops_json(caught.ops),
            "reset": caught.reset,
            "rev": caught.rev,
            "epoch": view.epoch,
            "before": caught.before,
        }
    )


def page_json(page: Page) -> JsonObject:
    """A page of older blocks."""
    return _without_none({"ops": ops_json(PutOp(drawn) for drawn in page.blocks), "before": page.before})


def part_json(block: BlockId, part: Part) -> JsonObject:
    """A part of a body."""
    return {"id": block, "text": part.text, "from": part.start, "to": part.end, "size": part.size}


def models_json(models: Iterable[ModelFacts]) -> JsonObject:
    """The models."""
    return {"models": [_model_facts_json(model) for model in models]}


def _model_facts_json(model: ModelFacts) -> JsonObject:
    return _without_none(
        {
            "provider": model.ref.provider,
            "id": model.ref.id,
            "usable": model.usable,
            "contextWindow": model.context_window,
            "keySource": model.key_source,
            "problem": model.problem,
        }
    )


def sent_json(sent: Sent) -> JsonObject:
    """The outcome of a send."""
    return _without_none(
        {
            "messageId": sent.message_id,
            "outcome": sent.outcome,
            "turn": sent.turn,
            "position": sent.position,
            "reason": sent.reason,
            "content": _content_json(sent.content),
            "repeated": sent.repeated or None,
            "now": sent.now,
        }
    )


def outcome_json(outcome: Changed | Cancelled) -> JsonObject:
    """The outcome of a cancel or of a change to what waits."""
    content = outcome.content if isinstance(outcome, Changed) else None
    return _without_none(
        {"outcome": outcome.outcome, "inbox": inbox_json(outcome.inbox), "content": _content_json(content)}
    )


def answered_json(answered: Answered) -> JsonObject:
    """The outcome of an answer."""
    return _without_none({"outcome": answered.outcome, "by": answered.by})


def inbox_json(inbox: Iterable[WaitingMessage]) -> list[JsonValue]:
    """What waits."""
    return [_waiting_json(waiting) for waiting in inbox]


def _waiting_json(waiting: WaitingMessage) -> JsonObject:
    text, more = preview(waiting.text, WAITING_MAX)
    return _without_none(
        {
            "messageId": waiting.message_id,
            "lane": waiting.lane,
            "wakeup": waiting.wakeup,
            "held": waiting.held,
            "text": text,
            "more": more or None,
        }
    )


def listed_json(listed: Listed) -> JsonObject:
    """A row of the list."""
    stored = listed.summary
    state = listed.agent.view.state if listed.agent is not None else None
    model = {"provider": stored.model.provider, "id": stored.model.id} if stored.model is not None else None
    return _without_none(
        {
            "id": stored.header.id,
            "workspaceUri": stored.header.workspace,
            "parent": stored.header.parent,
            "title": state.title if state else stored.title,
            "status": state.status if state else "stored",
            "model": _model_json(state) if state else model,
            "createdAt": stored.header.created_at,
            "updatedAt": stored.last_time,
            "summary": stored.summary,
            "damaged": stored.damaged,
        }
    )


def _model_json(state: AgentState) -> JsonObject:
    return {"provider": state.model.provider, "id": state.model.id, "usable": state.model_usable}


def _content_json(content: Content | None) -> JsonValue:
    return None if content is None else [core_json(block) for block in content]


def _without_none(value: JsonObject) -> JsonObject:
    return {name: item for name, item in value.items() if item is not None}
