"""A body that was not streamed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from agentls.core.assembler import check_stream
from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, Finish, Usage
from agentls.core.ids import CallId
from agentls.core.reasons import Failed, Failure, ToolCalls
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.payloads import tool
from tests.models.requests import assemble


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
