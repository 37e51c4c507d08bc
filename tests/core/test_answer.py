"""From a stream to its events: own call ids, one call for twins, nothing that was cut."""

from __future__ import annotations

import json

import pytest

from agentls.core.answer import answered, interrupted, parse_arguments
from agentls.core.assembler import BlockAssembler
from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.chunks import BlockEnd, Chunk, Finish, TextDelta
from agentls.core.events import AssistantMessage, ModelRef, ToolCall
from agentls.core.ids import CallId
from agentls.core.reasons import MaxTokens, Stop, ToolCalls
from agentls.core.turn import OpenTurn
from tests.core.logs import opened, state

MODEL = ModelRef("p", "m")
NESTED = '{"a":%s%s}'


def turn() -> OpenTurn:
    found = state(*opened("x")).turns.open
    assert found is not None
    return found


def stream(*chunks: Chunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def call(arguments: str, id: str = "same", name: str = "read") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), name, arguments)


def test_calls_get_ids_of_ours_and_keep_the_providers_beside_them() -> None:
    """Case S19: one provider id for two calls; both run under distinct ids."""
    message, *calls = answered(
        turn(), MODEL, stream(BlockEnd(0, call("1")), BlockEnd(1, call("2")), Finish(ToolCalls()))
    )
    assert isinstance(message, AssistantMessage)
    assert [(c.call_id, c.provider_id) for c in calls if isinstance(c, ToolCall)] == [
        ("t1.1.1", "same"),
        ("t1.1.2", "same"),
    ]
    assert [b.id for b in message.message.content if isinstance(b, ToolCallBlock)] == ["t1.1.1", "t1.1.2"]


def test_identical_calls_under_one_provider_id_are_one_call() -> None:
    """Case S19b: the body runs once, and history has one call for the one result."""
    message, *calls = answered(
        turn(),
        MODEL,
        stream(TextDelta(0, "t"), BlockEnd(1, call("1")), BlockEnd(2, call("1")), BlockEnd(3, call("1", "other"))),
    )
    assert isinstance(message, AssistantMessage)
    assert len(calls) == 2
    assert message.message.indices == (0, 1, 3)


def test_a_stop_with_calls_is_a_finish_by_calls() -> None:
    """Case S16: what came decides, not the word."""
    message, *_ = answered(turn(), MODEL, stream(BlockEnd(0, call("1")), Finish(Stop())))
    assert isinstance(message, AssistantMessage)
    assert message.finish == ToolCalls()


def test_the_output_limit_leaves_calls_in_cut_and_none_to_run() -> None:
    """Cases S17 and S17b."""
    events = answered(turn(), MODEL, stream(TextDelta(0, "t"), BlockEnd(1, call('{"a":1}')), Finish(MaxTokens())))
    (message,) = events
    assert isinstance(message, AssistantMessage)
    assert message.message.content == (TextBlock("t"),)
    assert [(cut.index, cut.call_id, cut.arguments) for cut in message.cut] == [(1, "t1.1.1", '{"a":1}')]
    assert message.finish == MaxTokens()


def test_an_interruption_that_showed_nothing_leaves_no_message() -> None:
    """Statement 60: after only a call, none."""
    assert interrupted(turn(), MODEL, stream(BlockEnd(0, call("1"))).interrupted()) == ()
    (kept,) = interrupted(turn(), MODEL, stream(TextDelta(0, "half")).interrupted())
    assert (kept.interrupted, kept.message.content) == (True, (TextBlock("half"),))


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("", {}),
        (" \n", {}),
        ('{"a":1.5e3}', {"a": 1500.0}),
        ("[1]", None),
        ("{", None),
        ("null", None),
        ('"{}"', None),
        ('{"a":NaN}', None),
        ('{"a":[-Infinity]}', None),
        ('{"a":1e999}', None),
        (NESTED % ("[" * 99, "]" * 99), json.loads(NESTED % ("[" * 99, "]" * 99))),
        (NESTED % ("[" * 100, "]" * 100), None),
        (NESTED % ("[" * 9**6, "]" * 9**6), None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_arguments_parse_to_an_object_or_not_at_all(raw: str, parsed: object) -> None:
    """Statement 64, where ours differs: blank is an empty object, and what does not parse never runs."""
    assert parse_arguments(raw) == parsed
