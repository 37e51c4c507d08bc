"""How a stream of payloads ends: well, at a limit, with an error, or not at all."""

from __future__ import annotations

import json

import pytest

from agentls.core.blocks import TextBlock
from agentls.core.chunks import BlockStart, Finish, TextDelta, Usage
from agentls.core.reasons import Failed, Failure, MaxTokens, Stop, ToolCalls
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.payloads import Payload, code, decoded, delta, finish, tool
from tests.models.requests import assemble

# Finish


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "STOP"])
def test_a_success_is_named_by_its_content(reason: str) -> None:
    """S16."""
    assert finish(delta(reason, content="a")) == Stop()
    assert finish(delta(reason, tool_calls=[tool(0, "a", "read", "{}")])) == ToolCalls()


def test_a_limit_stays_a_limit_whatever_follows() -> None:
    """S17: also with calls, which the assembler then drops."""
    chunks = decoded(delta("length", content="a", tool_calls=[tool(0, "a", "read", "{}")]), delta("stop"), "[DONE]")
    assert assemble(chunks).finish == MaxTokens()
    assert assemble(chunks).blocks() == (TextBlock("a"),)


def test_another_reason_is_a_failure_with_the_reason_as_code() -> None:
    assert finish(delta("content_filter", content="a", tool_calls=[tool(0, "a", "read", "{}")])) == Failed(
        Failure('the model stopped with the reason "content_filter"', "CONTENT_FILTER")
    )
    assert code(delta("odd-reason 2", content="a")) == "ODD_REASON_2"


def test_done_without_a_finish_reason_is_a_success() -> None:
    assert finish(delta(content="a"), "[DONE]") == Stop()
    assert finish(delta(tool_calls=[tool(0, "a", "read", "{}")]), "[DONE]") == ToolCalls()


def test_a_finish_reason_without_done_is_a_success() -> None:
    """S07, S27."""
    assert finish(delta("stop", content="a")) == Stop()


def test_neither_of_them_is_a_stream_that_broke_off() -> None:
    """S08 and statement 22; S13c: a stream of comments alone has no payload."""
    assert code(delta(content="a")) == "STREAM_CLOSED"
    assert code() == "STREAM_CLOSED"


def test_a_failure_of_the_network_counts_only_before_the_finish() -> None:
    lost = Failure("lost", "TRANSPORT")
    decoder = OpenAiChatDecoder()
    decoder.feed(json.dumps(delta(content="a")))
    assert decoder.close(failure=lost) == [Finish(Failed(lost))]
    decoder = OpenAiChatDecoder()
    decoder.feed(json.dumps(delta("stop", content="a")))
    assert decoder.close(failure=lost)[-1] == Finish(Stop())


@pytest.mark.parametrize("blank", [None, "", " \n"])
@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length"])
def test_a_finish_without_anything_but_blanks_is_an_empty_response(reason: str, blank: str | None) -> None:
    """Statement 21: usage first."""
    chunks = decoded(delta(reason, content=blank) | {"usage": {"prompt_tokens": 3}}, "[DONE]")
    assert assemble(chunks).usage == Usage(input_tokens=3)
    assert isinstance(chunks[-1], Finish)
    assert isinstance(chunks[-1].reason, Failed)
    assert chunks[-1].reason.failure.code == "EMPTY_RESPONSE"


def test_reasoning_alone_is_an_answer() -> None:
    """Statement 21."""
    assert finish(delta("stop", reasoning_content="a"), "[DONE]") == Stop()


def test_nothing_counts_after_done() -> None:
    decoder = OpenAiChatDecoder()
    decoder.feed(json.dumps(delta("stop", content="a")))
    assert decoder.feed("[DONE]")[-1] == Finish(Stop())
    assert decoder.done
    assert not decoder.feed(json.dumps(delta(content="b")))
    assert not decoder.close("[DONE]")


def test_content_after_a_finish_reason_says_that_it_was_not_the_end() -> None:
    decoder = OpenAiChatDecoder()
    decoder.feed(json.dumps(delta("stop", content="a")))
    assert decoder.finished
    decoder.feed(json.dumps(delta(content="b")))
    assert not decoder.finished


def test_a_last_event_without_its_blank_line_is_taken_if_it_parses() -> None:
    """S27 and statement 22, as our own rule for a missing blank line has it."""
    end = json.dumps(delta("stop"))
    assert finish(delta(content="a"), tail=end) == Stop()
    assert finish(delta(content="a"), tail="[DONE]") == Stop()
    for size in range(len(end)):
        assert code(delta(content="a"), tail=end[:size]) == "STREAM_CLOSED"
    assert code(delta(content="a"), tail="[DONE") == "STREAM_CLOSED"


@pytest.mark.parametrize("payload", ["{", "no json", '{"a": NaN}', "[1]", "3", '{"choices": [', "[" * 5000])
def test_a_payload_that_is_no_json_object_is_a_malformed_response(payload: str) -> None:
    """Statement 22: what was shown stays shown."""
    chunks = decoded(delta(content="a"), payload, delta("stop"))
    assert code(delta(content="a"), payload) == "MALFORMED_RESPONSE"
    assert [placed.block for placed in assemble(chunks).interrupted()] == [TextBlock("a")]


# Errors


@pytest.mark.parametrize(
    ("payload", "failure"),
    [
        ({"error": {"code": 502, "message": "full"}}, Failure("full", "SERVER", 502)),
        ({"error": {"code": "429", "message": "slow"}}, Failure("slow", "RATE_LIMIT", 429)),
        ({"error": {"type": "insufficient_quota", "message": "pay"}}, Failure("pay", "QUOTA")),
        ({"error": {"code": "context_length_exceeded", "message": "long"}}, Failure("long", "CONTEXT_WINDOW_EXCEEDED")),
        ({"error": "boom"}, Failure("boom", "UNKNOWN")),
        ({"error": {"code": 500}}, Failure('{"code":500}', "SERVER", 500)),
        ({"error": True, "message": "boom"}, Failure("boom", "UNKNOWN")),
        ({"error": 7}, Failure('{"error":7}', "UNKNOWN")),
        ({"object": "error", "message": "gone", "code": 404}, Failure("gone", "HTTP_404", 404)),
        ({"type": "error", "message": "overloaded"}, Failure("overloaded", "SERVER")),
    ],
)
def test_an_error_inside_a_stream_is_a_failure_with_its_message(payload: Payload, failure: Failure) -> None:
    """S13: it ends the stream, and what was shown before stays."""
    chunks = decoded(delta(content="a"), payload, delta("stop", content="b"), "[DONE]")
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "a"), Finish(Failed(failure))]


def test_an_error_beside_a_finish_reason_is_an_error() -> None:
    inside = {"choices": [{"index": 0, "error": {"message": "died", "code": 500}, "finish_reason": "error"}]}
    assert finish(inside) == Failed(Failure("died", "SERVER", 500))
    assert code(delta("error", content="") | {"error": {"message": "died", "code": 500}}) == "SERVER"
