"""A model over HTTP that answers well, against a real server on loopback: streamed, whole, at the same time."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from dataclasses import replace

from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, TextDelta, Usage
from agentls.core.ids import CallId
from agentls.core.reasons import Stop, ToolCalls
from agentls.models.http import Network
from tests.model_server import DONE, Answer, ModelServer, content, finish, usage
from tests.models.asked import GOOD, model
from tests.models.requests import asking, assemble, failure_of, read, texts


async def test_an_answer_streams_as_it_comes(server: ModelServer, network: Network) -> None:
    gate = asyncio.Event()
    server.script(Answer((content("Hel"), gate, content("lo"), finish(), usage(10, 5), DONE)))
    seen: list[Chunk] = []
    async for chunk in model(server, network).stream(asking()):
        seen.append(chunk)
        if isinstance(chunk, TextDelta) and chunk.text == "Hel":
            gate.set()
    stream = assemble(seen)
    assert stream.blocks() == (TextBlock("Hello"),)
    assert stream.finish == Stop()
    assert stream.usage == Usage(input_tokens=10, output_tokens=5)


async def test_a_connection_is_used_again_after_a_whole_answer(server: ModelServer, network: Network) -> None:
    server.script(GOOD, GOOD)
    for _ in range(2):
        await read(model(server, network).stream(asking()))
    assert [exchange.connection for exchange in server.exchanges] == [1, 1]


async def test_agents_ask_at_the_same_time(server: ModelServer, network: Network) -> None:
    gate = asyncio.Event()
    server.script(*(Answer((content("a"), gate, finish(), DONE)) for _ in range(20)))
    asked = model(server, network)
    tasks = [asyncio.create_task(read(asked.stream(asking()))) for _ in range(20)]
    await server.exchange(19)
    gate.set()
    assert [assemble(await task).finish for task in tasks] == [Stop()] * 20


async def test_the_loop_is_let_go_within_a_burst(server: ModelServer) -> None:
    """The reader of a stream yields after at most 2 ms of parsing; here each look at the clock takes 1 ms."""
    ticks = itertools.count()
    network = Network(clock=lambda: next(ticks) / 1000)
    burst = b"".join(content("word ") for _ in range(3000))
    server.script(Answer((burst, finish(), DONE)))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    before: list[int] = []
    async for chunk in model(server, network).stream(asking()):
        if isinstance(chunk, TextDelta):
            before.append(turns)
    counting.cancel()
    await network.close()
    assert len(before) == 3000
    # The waits for bytes are some ten turns; a breath after every second or third payload is a thousand.
    assert before[-1] - before[0] > 900


async def test_a_completion_that_was_not_streamed_is_taken(server: ModelServer, network: Network) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    server.script(Answer((json.dumps(body).encode(),), headers={"content-type": "application/json"}))
    stream = assemble(await read(model(server, network).stream(asking())))
    assert stream.finish == ToolCalls()
    assert stream.blocks() == (ToolCallBlock(CallId("a"), "read", "{}", "a"),)


async def test_a_stream_is_known_by_its_bytes_and_not_by_its_header(server: ModelServer, network: Network) -> None:
    server.script(replace(GOOD, headers={"content-type": "application/json"}), replace(GOOD, headers={}))
    for _ in range(2):
        assert texts(await read(model(server, network).stream(asking()))) == ["all good"]


async def test_a_compressed_answer_is_read_though_nobody_asked_for_it(server: ModelServer, network: Network) -> None:
    body = gzip.compress(content("a") + finish() + DONE)
    server.script(Answer((body,), headers={"content-type": "text/event-stream", "content-encoding": "gzip"}))
    server.script(Answer((b"no gzip at all",), headers={"content-encoding": "gzip"}))
    assert texts(await read(model(server, network).stream(asking()))) == ["a"]
    assert failure_of(await read(model(server, network).stream(asking()))).code == "MALFORMED_RESPONSE"
