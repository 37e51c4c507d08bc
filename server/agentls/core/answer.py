"""From an assembled stream to the events that record it: the answer, its calls under our own ids, what was cut."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentls.core.assembler import BlockAssembler, Placed
from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.chunks import Usage
from agentls.core.codec import encode
from agentls.core.events import (
    ApprovalDecided,
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
from agentls.core.requests import Requests
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


LEVELS_MAX = 100
"""How deep arguments may be nested. A model that repeats itself nests without end, and whatever looks at a value by
recursion would fail at a depth of its own."""


def parse_arguments(arguments: str) -> JsonObject | None:
    """A call's arguments as an object; blank is `{}`; None for what is not a JSON object of at most `LEVELS_MAX` levels
    and of numbers that JSON has."""
    if not arguments.strip():
        return {}
    try:
        value: JsonValue = json.loads(arguments, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _levels(value) <= LEVELS_MAX else None


def _finite(number: str) -> float:
    """ValueError for NaN and the infinities, also those that a number which is too large becomes."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is no JSON number")
    return value


def _levels(value: JsonValue) -> int:
    """How deep a value is nested; 0 for one that holds no other."""
    levels, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        levels += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return levels


def error_result(tool_call: ToolCall, code: str, text: str) -> ToolResult:
    """A call answered with an error: `code` is stable, `text` tells the model what to do."""
    message = tool_result(tool_call.call_id, (TextBlock(text),), is_error=True)
    return ToolResult(tool_call.turn, tool_call.step, tool_call.call_id, message, ToolError(code))


_NOTHING_ASKED = Requests()
_STOPPED = "the turn was stopped while the call ran; it may have taken effect, so look before you repeat it"


def denial(decided: ApprovalDecided) -> str:
    """What the model is told of a call that a person said no to, with what they said beside it."""
    said = f": {decided.note}" if decided.note else ""
    return f"the person did not allow this call{said}; do not repeat it, go on without it or ask what they want"


def aborted_results(
    turn: OpenTurn, finished: Mapping[CallId, ToolResult], requests: Requests = _NOTHING_ASKED
) -> tuple[ToolResult, ...]:
    """Results for the calls that a cancel left open, in model order: what those that had `finished` gave, else that a
    person did not allow it, that started ones may have acted and that the others did not."""
    return tuple(
        finished.get(open_call.call.call_id) or _stopped(open_call, requests.denied.get(open_call.call.call_id))
        for open_call in turn.unanswered()
    )


def _stopped(open_call: OpenCall, denied: ApprovalDecided | None) -> ToolResult:
    if denied is not None:
        return error_result(open_call.call, "DENIED", denial(denied))
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
