"""From an assembled stream to the events that record it: the answer, its calls under our own ids, what was cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentls.core.assembler import BlockAssembler, Placed
from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.chunks import Usage
from agentls.core.codec import encode
from agentls.core.events import (
    AssistantAttempt,
    AssistantMessage,
    CutCall,
    EventData,
    ModelRef,
    ToolCall,
    ToolError,
    ToolResult,
)
from agentls.core.ids import CallId, assistant_message, call
from agentls.core.json import JsonObject, JsonValue
from agentls.core.messages import Message, tool_result
from agentls.core.reasons import Aborted, Failure, FinishReason, ToolCalls
from agentls.core.sources import ModelSource
from agentls.core.turn import OpenCall, OpenTurn


def answered(turn: OpenTurn, model: ModelRef, stream: BlockAssembler) -> tuple[EventData, ...]:
    """`assistant/message, tool/call…` of a stream that finished well.

    Each call gets the id `t<turn>.<step>.<n>`; identical calls (name and arguments) under one provider id are one.
    """
    placed, calls = _own_calls(turn, _distinct(stream.placed()))
    cut = tuple(
        CutCall(place.index, call(turn.turn, turn.step, n), place.block.name, place.block.arguments)
        for n, place in enumerate(_distinct(stream.cut()), start=1)
        if isinstance(place.block, ToolCallBlock)
    )
    finish = ToolCalls() if calls else stream.finish
    return (
        AssistantMessage(
            turn=turn.turn,
            step=turn.step,
            attempt=turn.attempt,
            message=_message(turn, model, placed, _replay_state(stream, placed)),
            finish=finish,
            usage=stream.usage,
            cut=cut,
        ),
        *calls,
    )


def failed(
    turn: OpenTurn, model: ModelRef, shown: Sequence[Placed], failure: Failure, stream: BlockAssembler
) -> AssistantAttempt:
    """What an attempt that failed leaves in the log."""
    return AssistantAttempt(turn.turn, turn.step, turn.attempt, _message(turn, model, shown), failure, stream.usage)


def interrupted(
    turn: OpenTurn, model: ModelRef, shown: Sequence[Placed], usage: Usage | None = None
) -> tuple[AssistantMessage, ...]:
    """The answer of a cancelled or crashed stream: what was shown of it, or nothing where nothing was."""
    if not shown:
        return ()
    finish: FinishReason = Aborted(Failure("the turn was stopped", "ABORTED"))
    message = _message(turn, model, shown)
    return (AssistantMessage(turn.turn, turn.step, turn.attempt, message, finish, usage, interrupted=True),)


def parse_arguments(arguments: str) -> JsonObject | None:
    """A call's arguments as an object; blank is `{}`; None for what is not a JSON object."""
    if not arguments.strip():
        return {}
    try:
        value: JsonValue = json.loads(arguments)
    except (ValueError, RecursionError):  # a model that repeats itself nests deeper than the parser follows
        return None
    return value if isinstance(value, dict) else None


def error_result(tool_call: ToolCall, code: str, text: str) -> ToolResult:
    """A call answered with an error: `code` is stable, `text` tells the model what to do."""
    message = tool_result(tool_call.call_id, (TextBlock(text),), is_error=True)
    return ToolResult(tool_call.turn, tool_call.step, tool_call.call_id, message, ToolError(code))


_STOPPED = "the turn was stopped while the call ran; it may have taken effect, so look before you repeat it"


def aborted_results(turn: OpenTurn, finished: Mapping[CallId, ToolResult]) -> tuple[ToolResult, ...]:
    """Results for the calls that a cancel left open, in model order: what those that had `finished` gave, else that
    started ones may have acted and the others did not."""
    return tuple(finished.get(open_call.call.call_id) or _stopped(open_call) for open_call in turn.unanswered())


def _stopped(open_call: OpenCall) -> ToolResult:
    if open_call.started:
        return error_result(open_call.call, "ABORTED", _STOPPED)
    return error_result(open_call.call, "ABORTED_BEFORE_DISPATCH", "the turn was stopped before the call started")


def _distinct(placed: Sequence[Placed]) -> tuple[Placed, ...]:
    seen: set[tuple[str, str, str]] = set()
    kept = []
    for place in placed:
        if isinstance(place.block, ToolCallBlock):
            key = (place.block.id, place.block.name, place.block.arguments)
            if key in seen:
                continue
            seen.add(key)
        kept.append(place)
    return tuple(kept)


def _own_calls(turn: OpenTurn, placed: Sequence[Placed]) -> tuple[tuple[Placed, ...], tuple[ToolCall, ...]]:
    blocks: list[Placed] = []
    calls: list[ToolCall] = []
    for place in placed:
        block = place.block
        if isinstance(block, ToolCallBlock):
            own = replace(block, id=call(turn.turn, turn.step, len(calls) + 1), provider_id=str(block.id))
            calls.append(ToolCall(turn.turn, turn.step, own.id, own.name, own.arguments, own.provider_id))
            place = Placed(place.index, own)
        blocks.append(place)
    return tuple(blocks), tuple(calls)


def _message(turn: OpenTurn, model: ModelRef, placed: Sequence[Placed], replay: JsonValue = None) -> Message:
    return Message(
        id=assistant_message(turn.turn, turn.step, turn.attempt),
        role="assistant",
        content=tuple(place.block for place in placed),
        source=ModelSource(model.provider, model.id, replay),
        indices=tuple(place.index for place in placed),
    )


def _replay_state(stream: BlockAssembler, kept: Sequence[Placed]) -> JsonValue:
    envelope = stream.replay_state()
    if envelope is None:
        return None
    if envelope.blocks is not None:
        # The entries of calls that were dropped as twins go with them.
        indices = {place.index for place in kept}
        pairs = zip(stream.placed(), envelope.blocks, strict=True)
        envelope = replace(envelope, blocks=tuple(entry for place, entry in pairs if place.index in indices))
    return encode(envelope)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """What is to become of a call: `arguments` is the parsed object, or None where the text does not parse."""

    call: ToolCall
    arguments: JsonObject | None


def plan(calls: Sequence[ToolCall]) -> tuple[PlannedCall, ...]:
    """Which calls may run: one whose arguments do not parse is answered `INVALID_ARGS` instead."""
    return tuple(PlannedCall(tool_call, parse_arguments(tool_call.arguments)) for tool_call in calls)
