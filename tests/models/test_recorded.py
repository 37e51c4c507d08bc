"""Streams of a real llama.cpp server, replayed: what it sends is what we must understand.

Recorded from llama.cpp's own server with SmolLM2 (`smol`) and a 0.5B coder model (`qwen`), which alone makes calls;
each file holds a response body as it came, `err_401_with_headers.txt` the whole response.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from agentls.core.assembler import BlockAssembler, check_stream
from agentls.core.blocks import ContentBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, Usage
from agentls.core.reasons import Failed, Failure, FinishReason, MaxTokens, Stop, ToolCalls
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.sse import SseParser
from tests.models.requests import ROW, assemble

RECORDED = Path(__file__).with_name("recorded")

CLOSED = Failed(Failure("the stream ended before the model had finished", "STREAM_CLOSED"))
EMPTY = Failed(Failure("the model wrote nothing", "EMPTY_RESPONSE"))


def bytes_of(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def decoded(pieces: Iterable[bytes]) -> list[Chunk]:
    decoder, parser = OpenAiChat().decoder(ROW), SseParser()
    chunks: list[Chunk] = []
    for piece in pieces:
        parser.feed(piece)
        for payload in parser.payloads():
            chunks += decoder.feed(payload)
    chunks += decoder.close(parser.close())
    return list(check_stream(chunks))


def stream_of(name: str) -> BlockAssembler:
    return assemble(decoded([bytes_of(f"{name}.sse")]))


TEXTS: list[tuple[str, FinishReason, str, Usage | None]] = [
    ("smol_text_usage", Stop(), "Hello, I'm here to help with any", Usage(13, 14, 24)),
    ("smol_text_no_usage", MaxTokens(), "One two is a classic example", None),
    ("smol_text_length", MaxTokens(), "In the heart of", Usage(12, 4, 24)),
    ("smol_text_stop", Stop(), "a: 1", Usage(15, 5, 24)),
    ("smol_unicode", MaxTokens(), "🌟 héllo ☁🌟", Usage(22, 24, 24)),
    ("smol_logprobs", MaxTokens(), "x is", None),
    ("smol_json_object", Stop(), '{\n    "a": {\n        "b": {', Usage(12, 44, 26)),
    ("smol_json_schema", Stop(), '{\n  "file": "main.py",\n  "line": 7,', Usage(17, 37, 24)),
    ("smol_tool_auto", Stop(), "```python\ndef read_file_main():", Usage(1, 66, 32)),
    ("smol_tool_named", Stop(), "The TODO is located at the end", Usage(10, 59, 19)),
    ("smol_tool_parallel", MaxTokens(), "```python\n# Read a.py and b.py", Usage(20, 160, 20)),
    ("smol_tool_required", Stop(), "```python\ndef read_file_main():", Usage(27, 66, 6)),
    ("smol_tool_result", MaxTokens(), "The `config.txt` file is located at", Usage(32, 40, 19)),
    ("smol_context_full_midstream", MaxTokens(), "The number of times you can repeat", Usage(34, 478, 0)),
    ("smol_truncated_server_killed", CLOSED, "A well-known story", None),
    ("qwen_text_usage", Stop(), "Hello!", Usage(18, 3, 8)),
    ("qwen_text_no_usage", Stop(), "One two", None),
    ("qwen_text_length", MaxTokens(), "In the heart of", Usage(11, 4, 14)),
    ("qwen_text_stop", Stop(), "The list you provided is: a", Usage(14, 8, 14)),
    ("qwen_unicode", Stop(), "✓ héllo 你好 😀", Usage(15, 8, 14)),
    ("qwen_logprobs", MaxTokens(), "I'm", None),
    ("qwen_json_object", Stop(), '{\n  "a": "value"\n}', Usage(11, 14, 16)),
    ("qwen_json_schema", Stop(), '{\n  "file": "main.py",\n  "line": 7,', Usage(15, 29, 14)),
]
CALLS = [
    ("qwen_tool_auto", "read_file", '{"path": "src/main.py"}', Usage(43, 19, 92)),
    ("qwen_tool_named", "grep", '{"pattern": "TODO", "glob": "*"}', Usage(9, 21, 189)),
    ("qwen_tool_parallel", "read_file", '{"path": "read.py"}', Usage(17, 18, 125)),
    ("qwen_tool_required", "read_file", '{"path": "src/main.py"}', Usage(194, 19, 6)),
    ("qwen_tool_result", "read_file", '{"path": "config.txt"}', Usage(54, 18, 124)),
]
NO_CONTENT = "smol_sse_ping_comments"
STREAMS = sorted([name for name, *_ in TEXTS] + [name for name, *_ in CALLS] + [NO_CONTENT])


def test_every_recorded_stream_is_replayed() -> None:
    streams = [file.stem for file in RECORDED.glob("*.sse") if b"\ndata: " in b"\n" + file.read_bytes()]
    assert sorted(streams) == STREAMS


@pytest.mark.parametrize(("name", "finish", "start", "usage"), TEXTS)
def test_a_recorded_text_is_read(name: str, finish: FinishReason, start: str, usage: Usage | None) -> None:
    stream = stream_of(name)
    assert stream.finish == finish
    assert stream.usage == usage
    (placed,) = stream.interrupted()
    assert isinstance(placed.block, TextBlock)
    assert placed.block.text.startswith(start)


@pytest.mark.parametrize(("name", "tool", "arguments", "usage"), CALLS)
def test_a_recorded_call_is_read(name: str, tool: str, arguments: str, usage: Usage) -> None:
    stream = stream_of(name)
    assert (stream.finish, stream.usage) == (ToolCalls(), usage)
    blocks: tuple[ContentBlock, ...] = stream.blocks()
    assert [(block.name, block.arguments) for block in blocks if isinstance(block, ToolCallBlock)] == [
        (tool, arguments)
    ]


def test_comments_in_a_long_silence_are_no_content() -> None:
    data = bytes_of(f"{NO_CONTENT}.sse")
    assert data.count(b":\n\n") == 7
    parser = SseParser()
    parser.feed(data)
    assert len(list(parser.payloads())) == 3
    assert stream_of(NO_CONTENT).finish == EMPTY


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_gives_the_same_chunks_whatever_the_cuts(name: str) -> None:
    data = bytes_of(f"{name}.sse")
    whole = decoded([data])
    assert decoded(data[at : at + 1] for at in range(len(data))) == whole
    for size in (2, 3, 7, 64, 1000):
        assert decoded(data[at : at + size] for at in range(0, len(data), size)) == whole
    for cut in range(1, len(data), max(1, len(data) // 200)):
        assert decoded([data[:cut], data[cut:]]) == whole


def test_a_recorded_answer_that_was_not_streamed_is_read() -> None:
    chunks = OpenAiChat().decoder(ROW).whole(bytes_of("smol_text_nostream.sse"))
    stream = assemble(check_stream(chunks))
    assert (stream.finish, stream.usage) == (MaxTokens(), Usage(9, 16, 24))
    (block,) = stream.blocks()
    assert isinstance(block, TextBlock)
    assert block.text.startswith("Hello there! I'm here to help with any")


@pytest.mark.parametrize(
    ("name", "status", "code", "message"),
    [
        ("qwen_err_context_overflow", 400, "CONTEXT_WINDOW_EXCEEDED", "request (12020 tokens) exceeds the available"),
        ("qwen_err_bad_messages", 400, "INVALID_REQUEST", "Expected 'messages' to be an array"),
        ("qwen_err_bad_schema", 400, "INVALID_REQUEST", "Unable to generate parser"),
        ("qwen_err_invalid_json", 400, "INVALID_REQUEST", "[json.exception.parse_error.101]"),
        ("qwen_n_2", 400, "INVALID_REQUEST", "Field 'n'"),
        ("qwen_err_bad_tools", 500, "SERVER", "Failed to parse tools"),
        ("qwen_err_404", 404, "HTTP_404", "File Not Found"),
        ("err_503_loading", 503, "SERVER", "Loading model"),
    ],
)
def test_a_recorded_refusal_has_its_code_and_message(name: str, status: int, code: str, message: str) -> None:
    failure = OpenAiChat().classify(status, {}, bytes_of(f"{name}.sse"), 0)
    assert (failure.code, failure.status) == (code, status)
    assert failure.message.startswith(message)


def test_the_recorded_401_is_a_refused_key() -> None:
    body = (
        bytes_of("err_401_with_headers.txt").partition(b"\r\n\r\n")[2]
        or bytes_of("err_401_with_headers.txt").partition(b"\n\n")[2]
    )
    assert OpenAiChat().classify(401, {}, body, 0) == Failure("Invalid API Key", "AUTH", 401)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"upstream timed out\n", "upstream timed out"),
        (b"<html><body>502</body></html>", "no reason given"),
        (b"", "no reason given"),
        (b'{"detail":[{"loc":["body"],"msg":"missing"}]}', '[{"loc":["body"],"msg":"missing"}]'),
        (b'{"object":"error","message":"no","code":40303}', "no"),
        (b'"text"', '"text"'),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_a_refusal_in_any_other_shape_keeps_its_words(body: bytes, message: str) -> None:
    assert OpenAiChat().classify(502, {}, body, 0) == Failure(message, "SERVER", 502)


def test_a_refusal_keeps_retry_after_and_request_id() -> None:
    headers = {"retry-after": "20", "x-request-id": "req-1"}
    failure = OpenAiChat().classify(429, headers, b'{"error":{"message":"slow down"}}', 0)
    assert failure == Failure("slow down", "RATE_LIMIT", 429, 20_000, "req-1")
