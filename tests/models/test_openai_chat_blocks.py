"""From payloads to blocks: text, reasoning and characters, however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentls.core.blocks import ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from agentls.core.ids import CallId
from agentls.core.reasons import Stop, ToolCalls
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.payloads import Payload, blocks, decoded, delta, finish, tool

# Blocks


def test_reasoning_then_text_then_calls_in_one_chunk_and_ends_in_order_of_opening() -> None:
    """Block ends come in the order of their starts, then usage, then the finish."""
    chunk = delta(content="b", reasoning_content="a", tool_calls=[tool(0, "k", "read", "{}")])
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    assert decoded(chunk, delta("tool_calls"), {"choices": [], "usage": usage}, "[DONE]") == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "a"),
        BlockStart(1, "text"),
        TextDelta(1, "b"),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, "k", "read", "{}"),
        BlockEnd(0, ReasoningBlock("a")),
        BlockEnd(1, TextBlock("b")),
        BlockEnd(2, ToolCallBlock(CallId("k"), "read", "{}", "k")),
        UsageChunk(Usage(input_tokens=1, output_tokens=2)),
        Finish(ToolCalls()),
    ]


def test_deltas_go_out_as_they_come() -> None:
    decoder = OpenAiChatDecoder()
    assert decoder.feed(json.dumps(delta(content="a"))) == [BlockStart(0, "text"), TextDelta(0, "a")]
    assert decoder.feed(json.dumps(delta(content="b"))) == [TextDelta(0, "b")]
    assert decoder.feed(json.dumps(delta(reasoning="c"))) == [BlockStart(1, "reasoning"), ReasoningDelta(1, "c")]


def test_interleaved_pieces_join_their_one_block() -> None:
    assert blocks(delta(content="a"), delta(reasoning="x"), delta(content="b"), delta("stop", reasoning="y")) == (
        TextBlock("ab"),
        ReasoningBlock("xy"),
    )


@pytest.mark.parametrize("empty", ["", None, 5, {}, []])
def test_an_empty_piece_opens_no_block(empty: Any) -> None:
    """Statement 20."""
    assert decoded(delta(content=empty, reasoning_content=empty, tool_calls=empty), delta("stop", content="a"))[:2] == [
        BlockStart(0, "text"),
        TextDelta(0, "a"),
    ]


def test_a_fragment_that_says_nothing_opens_no_call() -> None:
    assert blocks(
        delta(content="a", tool_calls=[{}, {"index": 0}, tool(0), {"function": None}, None]), delta("stop")
    ) == (TextBlock("a"),)


def test_reasoning_under_both_names_is_taken_once() -> None:
    assert blocks(delta("stop", reasoning="a", reasoning_content="a")) == (ReasoningBlock("a"),)


def test_content_in_parts_and_a_refusal_are_text() -> None:
    assert blocks(delta("stop", content=[{"type": "text", "text": "a"}, {"type": "x"}, {"text": "b"}])) == (
        TextBlock("ab"),
    )
    assert blocks(delta("stop", content=None, refusal="no")) == (TextBlock("no"),)


def test_only_the_first_answer_of_several_is_taken() -> None:
    second = {"index": 1, "delta": {"content": "B"}, "finish_reason": "length"}
    first = {"index": 0, "delta": {"content": "A"}, "finish_reason": "stop"}
    assert blocks({"choices": [second, first]}) == (TextBlock("A"),)
    assert finish({"choices": [second, first]}) == Stop()


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": "x"},
        {"choices": [None, 3]},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"index": 0}]},
        {"choices": [{"index": 0, "delta": {"content": "", "logprobs": {"a": 1}}, "logprobs": None}]},
        {"object": "ping", "unknown": [1, {"deep": None}]},
        {"error": None, "usage": None},
        {"error": {}, "usage": []},
        "",
        "  ",
    ],
)
def test_payloads_that_say_nothing_are_passed_over(odd: Payload) -> None:
    """S12, S12b and null fields."""
    assert blocks(odd, delta(content="A"), odd, delta("stop"), odd) == (TextBlock("A"),)


# Characters


def raw(content: str) -> str:
    """A chunk whose content is this JSON text, escapes as they are."""
    return '{"choices":[{"index":0,"delta":{"content":"' + content + '"},"finish_reason":null}]}'


def test_a_character_cut_between_two_chunks_is_joined() -> None:
    assert blocks(raw("a\\ud83d"), raw("\\ude42b"), delta("stop")) == (TextBlock("a🙂b"),)


def test_half_a_character_becomes_visible_and_breaks_nothing() -> None:
    """At the end of the text, in its middle, and in a call."""
    function = '{"name":"r","arguments":"\\ud83d"}'
    call = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"\\ud83d","function":' + function + "}]}}]}"
    assert blocks(raw("\\ude42a\\ud83d"), call, delta("stop")) == (
        TextBlock("\ufffda\ufffd"),
        ToolCallBlock(CallId("\ufffd"), "r", "\ufffd", "\ufffd"),
    )
