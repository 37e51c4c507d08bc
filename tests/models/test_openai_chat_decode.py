"""From payloads to chunks: the rules, and the deviations of real servers that are no case file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.assembler import check_stream
from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from agentls.core.ids import CallId
from agentls.core.reasons import Failed, Failure, FinishReason, MaxTokens, Stop, ToolCalls
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.requests import assemble

Payload = dict[str, Any] | str


def delta(reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def tool(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = ""
) -> dict[str, Any]:
    fragment: dict[str, Any] = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return fragment | ({} if index is None else {"index": index}) | ({} if id is None else {"id": id})


def decoded(*payloads: Payload, think_tags: bool = False, tail: str | None = None) -> list[Chunk]:
    decoder = OpenAiChatDecoder(think_tags=think_tags)
    chunks: list[Chunk] = []
    for payload in payloads:
        chunks += decoder.feed(payload if isinstance(payload, str) else json.dumps(payload))
    chunks += decoder.close(tail)
    return list(check_stream(chunks))


def blocks(*payloads: Payload, think_tags: bool = False) -> tuple[ContentBlock, ...]:
    return assemble(decoded(*payloads, think_tags=think_tags)).blocks()


def calls(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that these fragments, one in a chunk, make."""
    found = blocks(*(delta(tool_calls=[fragment]) for fragment in fragments), delta("tool_calls"))
    return [(block.id, block.name, block.arguments) for block in found if isinstance(block, ToolCallBlock)]


def finish(*payloads: Payload, tail: str | None = None) -> FinishReason:
    return assemble(decoded(*payloads, tail=tail)).finish


def code(*payloads: Payload, tail: str | None = None) -> str:
    reason = finish(*payloads, tail=tail)
    assert isinstance(reason, Failed), reason
    return reason.failure.code


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


# Calls


def test_fragments_of_several_calls_go_by_index() -> None:
    assert calls(
        tool(0, "a", "read", '{"p'), tool(1, "b", "list"), tool(0, arguments='":1}'), tool(1, arguments="{}")
    ) == [
        ("a", "read", '{"p":1}'),
        ("b", "list", "{}"),
    ]


def test_without_an_index_a_new_id_starts_a_call_and_a_bare_fragment_joins_the_last() -> None:
    """S09, S09b."""
    found = calls(
        tool(None, "a", "read", '{"p'), tool(arguments='":1}'), tool(None, "b", "read", "{"), tool(arguments="}")
    )
    assert found == [("a", "read", '{"p":1}'), ("b", "read", "{}")]


def test_without_an_index_an_id_that_is_known_goes_on_with_its_call() -> None:
    assert calls(tool(None, "a", "read", '{"p'), tool(None, "b", "list"), tool(None, "a", arguments='":1}')) == [
        ("a", "read", '{"p":1}'),
        ("b", "list", ""),
    ]


def test_without_index_and_id_a_named_fragment_after_a_whole_call_starts_one() -> None:
    assert calls(tool(None, None, "read", '{"p":1}'), tool(None, None, "read", '{"p":2}')) == [
        ("call-0", "read", '{"p":1}'),
        ("call-1", "read", '{"p":2}'),
    ]


def test_a_whole_call_under_an_id_that_is_taken_is_a_call_of_its_own() -> None:
    """S19 without an index."""
    assert calls(tool(None, "k", "read", '{"p":1}'), tool(None, "k", "read", '{"p":2}')) == [
        ("k", "read", '{"p":1}'),
        ("k", "read", '{"p":2}'),
    ]


def test_calls_that_share_one_index_are_told_apart_by_id() -> None:
    assert calls(tool(0, "a", "read", "{}"), tool(0, "b", "list", "")) == [("a", "read", "{}"), ("b", "list", "")]


def test_an_id_and_a_name_in_every_fragment_are_one_call() -> None:
    assert calls(tool(0, "a", "read"), tool(0, "a", "read", '{"p'), tool(0, "a", "read", '":1}')) == [
        ("a", "read", '{"p":1}')
    ]


def test_an_id_that_changes_in_every_fragment_stays_the_first() -> None:
    assert calls(tool(0, "a", "read", '{"p'), tool(0, "b", arguments='":1}')) == [("a", "read", '{"p":1}')]


def test_a_call_without_an_id_gets_one_that_stays_the_same() -> None:
    """S10."""
    chunks = decoded(delta(tool_calls=[tool(0, None, "read", "{")]), delta("stop", tool_calls=[tool(0, arguments="}")]))
    assert {chunk.id for chunk in chunks if isinstance(chunk, ToolCallDelta)} == {"call-0"}
    assert assemble(chunks).blocks() == (ToolCallBlock(CallId("call-0"), "read", "{}", None),)


def test_a_call_delta_repeats_the_id_and_name_that_are_known() -> None:
    chunks = decoded(delta(tool_calls=[tool(0, "a", "read")]), delta("stop", tool_calls=[tool(0, arguments="{}")]))
    assert [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [
        ToolCallDelta(0, "a", "read", ""),
        ToolCallDelta(0, "a", "read", "{}"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"), [({"b": 1, "a": "ü"}, '{"a":"ü","b":1}'), (None, ""), ([1], "[1]"), (True, "true")]
)
def test_arguments_that_are_json_in_place_of_text_become_text(arguments: Any, text: str) -> None:
    """S11, S11b."""
    assert calls(tool(0, "a", "read", arguments)) == [("a", "read", text)]


def test_numbers_for_ids_are_taken() -> None:
    assert calls({"index": 0, "id": 7, "function": {"name": "read", "arguments": "{}"}}) == [("7", "read", "{}")]


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


# Usage


def usage_of(usage: Any) -> Usage | None:
    return assemble(decoded(delta("stop", content="a") | {"usage": usage})).usage


def test_usage_buckets_are_disjoint() -> None:
    """Statement 19."""
    wire = {
        "prompt_tokens": 283,
        "completion_tokens": 69,
        "prompt_tokens_details": {"cached_tokens": 256},
        "completion_tokens_details": {"reasoning_tokens": 24},
    }
    assert usage_of(wire) == Usage(input_tokens=27, output_tokens=69, cache_read_tokens=256, reasoning_tokens=24)


def test_cached_tokens_come_from_the_details_before_the_older_field() -> None:
    both = {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    assert usage_of(both) == Usage(input_tokens=7, cache_read_tokens=3)
    assert usage_of({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}) == Usage(input_tokens=6, cache_read_tokens=4)


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": "x", "prompt_tokens_details": 5}, Usage(input_tokens=3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(cache_read_tokens=3)),
        ({"prompt_tokens": -3, "completion_tokens": 1}, Usage(output_tokens=1)),
        (
            {"completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(output_tokens=1, reasoning_tokens=1),
        ),
        ({"prompt_tokens": True, "completion_tokens": None}, None),
        ({"prompt_tokens": 1.5}, None),
        ({}, None),
        ("many", None),
    ],
)
def test_counts_of_a_wrong_type_are_absent_and_none_is_negative(wire: Any, usage: Usage | None) -> None:
    assert usage_of(wire) == usage


def test_the_latest_usage_counts_and_comes_once() -> None:
    chunks = decoded(
        delta(content="a") | {"usage": {"prompt_tokens": 1}},
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 2}},
    )
    assert [chunk for chunk in chunks if isinstance(chunk, UsageChunk)] == [UsageChunk(Usage(input_tokens=2))]


# Think tags


def thought(*pieces: str) -> tuple[str, str]:
    """The reasoning and the text of an answer that came in these pieces."""
    found = blocks(*(delta(content=piece) for piece in pieces), delta("stop"), think_tags=True)
    by_kind = {type(block): block.text for block in found if isinstance(block, TextBlock | ReasoningBlock)}
    return by_kind.get(ReasoningBlock, ""), by_kind.get(TextBlock, "")


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("<think>plan</think>Done", "plan", "Done"),
        ("\n <think>\nplan</think>\n\nDone\n", "plan", "Done\n"),
        ("<think>never closed", "never closed", ""),
        ("<think>a</thi", "a</thi", ""),
        ("<think></think>Done", "", "Done"),
        ("<think>a < b </b></think>c", "a < b </b>", "c"),
        ("Write `<think>` like this: <think>x</think>", "", "Write `<think>` like this: <think>x</think>"),
        ("`<think>` is a tag", "", "`<think>` is a tag"),
        ("<thinking>x</thinking>", "", "<thinking>x</thinking>"),
        ("<think>a</think>The tags <think> and </think> stay", "a", "The tags <think> and </think> stay"),
        ("<thi", "", "<thi"),
        ("< b", "", "< b"),
        ("plain", "", "plain"),
    ],
)
def test_think_tags_part_reasoning_from_text_at_every_cut(answer: str, reasoning: str, text: str) -> None:
    """S20, S20b, S20c."""
    assert thought(answer) == (reasoning, text)
    assert thought(*answer) == (reasoning, text)
    for cut in range(1, len(answer)):
        assert thought(answer[:cut], answer[cut:]) == (reasoning, text)


def test_text_that_could_begin_a_tag_goes_out_before_a_call() -> None:
    found = decoded(delta(content="<th"), delta("stop", tool_calls=[tool(0, "a", "read", "{}")]), think_tags=True)
    assert [type(block) for block in assemble(found).blocks()] == [TextBlock, ToolCallBlock]


def test_without_the_flag_tags_are_text() -> None:
    assert blocks(delta("stop", content="<think>a</think>b")) == (TextBlock("<think>a</think>b"),)


def test_reasoning_that_never_leaves_the_tags_takes_linear_time() -> None:
    decoder = OpenAiChatDecoder(think_tags=True)
    decoder.feed(json.dumps(delta(content="<think>")))
    for _ in range(20_000):
        decoder.feed(json.dumps(delta(content="\n <")))
    assert decoder.close()[-1] == Finish(
        Failed(Failure("the stream ended before the model had finished", "STREAM_CLOSED"))
    )


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


# Whole bodies


def whole(body: bytes) -> Sequence[Chunk]:
    return list(check_stream(OpenAiChatDecoder().whole(body)))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_completion_that_was_not_streamed_is_an_answer(mark: bytes) -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [tool(None, "a", "read", "{}")]}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2}}
    stream = assemble(whole(mark + json.dumps(body).encode()))
    assert stream.blocks() == (TextBlock("hi"), ToolCallBlock(CallId("a"), "read", "{}", "a"))
    assert stream.finish == ToolCalls()
    assert stream.usage == Usage(input_tokens=2)


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (b'{"error":{"message":"bad key","type":"auth"}}', Failure("bad key", "AUTH")),
        (b'[{"error":{"message":"bad","code":400}}]', Failure("bad", "INVALID_REQUEST", 400)),
        (b'{"detail":"not here"}', Failure("not here", "UNKNOWN")),
        (b'{"ok":true}', Failure("the answer is neither a stream nor a completion", "MALFORMED_RESPONSE")),
        (b"{", Failure("the answer is neither a stream nor a completion", "MALFORMED_RESPONSE")),
        (b'{"choices":[]}', Failure("the model wrote nothing", "EMPTY_RESPONSE")),
    ],
)
def test_a_body_that_is_no_completion_is_a_failure(body: bytes, failure: Failure) -> None:
    """S13b."""
    assert whole(body) == [Finish(Failed(failure))]


# Anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "index",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "error",
                    "finish_reason",
                    "usage",
                    "prompt_tokens",
                    "message",
                    "reasoning",
                    "code",
                    "type",
                    "object",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
CHUNK = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "index": st.sampled_from([0, 0, None, 1]),
                    "delta": st.fixed_dictionaries(
                        {},
                        optional={
                            "content": st.sampled_from(["a", "", " ", "<think>", "</think>", "\ud83d", "\ude42"])
                            | JSON,
                            "reasoning_content": st.sampled_from(["r", ""]) | JSON,
                            "tool_calls": st.lists(
                                st.builds(
                                    tool,
                                    st.sampled_from([None, 0, 1]),
                                    st.sampled_from([None, "a", "b", ""]),
                                    st.sampled_from([None, "read", "list"]),
                                    st.sampled_from(["", "{", "}", "{}", None, {"a": 1}]) | JSON,
                                ),
                                max_size=2,
                            ),
                        },
                    ),
                    "finish_reason": st.sampled_from([None, None, None, "stop", "length", "tool_calls", "odd", ""]),
                }
            ),
            max_size=2,
        )
    }
)


@given(st.lists(CHUNK | JSON, max_size=8), st.booleans(), st.none() | st.text(max_size=5))
def test_any_payloads_keep_the_chunk_grammar_and_never_raise(
    payloads: list[Any], think_tags: bool, tail: str | None
) -> None:
    chunks = decoded(*(json.dumps(payload) for payload in payloads), think_tags=think_tags, tail=tail)
    for block in assemble(chunks).blocks():
        json.dumps([getattr(block, "text", ""), getattr(block, "arguments", "")], ensure_ascii=False).encode()
