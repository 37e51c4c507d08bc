"""Reported faults of streams, at decoder and assembler: each case whole, at every cut, and byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from agentls.core.answer import answered, error_result, parse_arguments
from agentls.core.assembler import BlockAssembler, check_stream
from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock
from agentls.core.chunks import Chunk
from agentls.core.events import AssistantMessage, ModelRef, ToolCall
from agentls.core.reasons import Failed, FinishReason, MaxTokens, MessageTrigger, Stop, ToolCalls
from agentls.core.turn import OpenTurn
from agentls.models.catalog import ModelRow
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.model import ModelRequest
from agentls.models.sse import SseParser
from tests.conformance.cases import Case, cases

STREAMS = cases("openai-sse")
BODIES = cases("http-body")
MODEL = ModelRef("test", "test")


def decoded(case: Case, pieces: Iterable[bytes]) -> list[Chunk]:
    """The chunks of a stream that came in these pieces, checked against the chunk grammar."""
    return list(check_stream(_decode(case, pieces)))


def _decode(case: Case, pieces: Iterable[bytes]) -> Iterator[Chunk]:
    decoder = OpenAiChat().decoder(row(case))
    parser = SseParser()
    for piece in pieces:
        parser.feed(piece)
        for payload in parser.payloads():
            yield from decoder.feed(payload)
    yield from decoder.close(parser.close())


def row(case: Case) -> ModelRow:
    return ModelRow("test", "test", "openai-chat", think_tags=case.think_tags)


def assembled(chunks: Iterable[Chunk]) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def outcome(stream: BlockAssembler) -> dict[str, Any]:
    """What a stream came to, in the words of the manifest."""
    finish = stream.finish
    good = not isinstance(finish, Failed)
    blocks = stream.blocks() if good else tuple(placed.block for placed in stream.interrupted())
    calls = [data for data in logged(stream) if isinstance(data, ToolCall)] if good else []
    arguments = {call.call_id: parse_arguments(call.arguments) for call in calls}
    return {
        "text": _joined(blocks, TextBlock),
        "reasoning": _joined(blocks, ReasoningBlock),
        "outcome": _word(finish),
        "error": finish.failure.message if isinstance(finish, Failed) else None,
        "run": [[call.name, arguments[call.call_id]] for call in calls if arguments[call.call_id] is not None],
        "invalid": [call.provider_id for call in calls if arguments[call.call_id] is None],
        "usage": stream.usage.total() if stream.usage else None,
        "distinct_ids": len(arguments),
    }


def logged(stream: BlockAssembler) -> Sequence[object]:
    turn = OpenTurn(turn=1, trigger=MessageTrigger(()), started_at=0, step=1, attempt=1)
    return answered(turn, MODEL, stream)


def _joined(blocks: Sequence[ContentBlock], kind: type[TextBlock] | type[ReasoningBlock]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, kind))


def _word(finish: FinishReason) -> str:
    match finish:
        case Stop():
            return "ok"
        case ToolCalls():
            return "tool"
        case MaxTokens():
            return "truncated"
        case Failed(failure):
            return "incomplete" if failure.code in ("STREAM_CLOSED", "EMPTY_RESPONSE") else "error"
    raise AssertionError(f"no word for {finish!r}")


def assert_as_expected(case: Case, chunks: Sequence[Chunk]) -> None:
    found = outcome(assembled(chunks))
    assert {name: found[name] for name in case.expect} == case.expect


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_stream_has_its_right_outcome_fed_whole(case: Case) -> None:
    assert_as_expected(case, decoded(case, [case.data]))


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_stream_gives_the_same_chunks_at_every_cut_and_byte_by_byte(case: Case) -> None:
    """S01, S02, S20: cuts inside a character, between CR and LF, inside a tag."""
    whole = decoded(case, [case.data])
    for cut in range(1, len(case.data)):
        assert decoded(case, [case.data[:cut], case.data[cut:]]) == whole, f"cut at byte {cut}"
    assert decoded(case, [case.data[at : at + 1] for at in range(len(case.data))]) == whole


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_stream_that_ends_at_any_byte_never_runs_a_call_it_did_not_finish(case: Case) -> None:
    """S08, S17, S18: whatever is cut off, calls run only after a finish reason."""
    for end in range(len(case.data)):
        cut = outcome(assembled(decoded(case, [case.data[:end]])))
        assert cut["outcome"] == "incomplete" or cut["outcome"] == case.expect["outcome"], f"ended at byte {end}"
        assert cut["run"] in ([], case.expect.get("run", [])), f"ended at byte {end}"


@pytest.mark.parametrize("case", BODIES, ids=lambda case: case.name)
def test_a_body_that_is_no_stream_has_its_right_outcome(case: Case) -> None:
    """S13b: an error with status 200 and no stream at all."""
    chunks = list(check_stream(OpenAiChat().decoder(row(case)).whole(case.data)))
    assert_as_expected(case, chunks)


@pytest.mark.parametrize(
    "case", [case for case in STREAMS if case.expect["outcome"] == "tool"], ids=lambda case: case.name
)
def test_the_next_request_is_valid_and_answers_each_call_once(case: Case) -> None:
    """S10, S11, S18, S19: calls keep one distinct id each, and arguments go back as the text of a JSON object."""
    message, *calls = logged(assembled(decoded(case, [case.data])))
    assert isinstance(message, AssistantMessage)
    results = [
        error_result(call, "UNKNOWN_TOOL", "no such tool").message for call in calls if isinstance(call, ToolCall)
    ]
    request = ModelRequest("", (message.message, *results))
    body = OpenAiChat().encode(request, row(case))
    assert isinstance(body, bytes)
    answer, *answers = json.loads(body)["messages"]
    ids = [call["id"] for call in answer["tool_calls"]]
    assert len(set(ids)) == len(ids)
    assert [entry["tool_call_id"] for entry in answers] == ids
    for call in answer["tool_calls"]:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
