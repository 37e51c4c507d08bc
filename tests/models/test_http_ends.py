"""How an answer over HTTP ends: every fault is one finish, every end closes the connection."""

from __future__ import annotations

import asyncio

import pytest

from agentls.core.blocks import TextBlock
from agentls.core.chunks import TextDelta, Usage
from agentls.core.reasons import Failure, Stop
from agentls.models.http import Network
from tests.conformance.cases import cases
from tests.model_server import CUT, DONE, KILL, SILENCE, Answer, ModelServer, content, delta, event, finish, usage
from tests.models.asked import GOOD, limited, model
from tests.models.requests import asking, assemble, failure_of, read, texts


async def test_a_finish_without_done_ends_within_the_grace_time_and_the_connection_is_closed(
    server: ModelServer,
) -> None:
    """S07, with the grace time shortened."""
    (case,) = (case for case in cases("openai-sse") if case.name == "S07")
    server.script(Answer((case.data, SILENCE)))
    async with limited(grace=0.05) as network:
        chunks = await read(model(server, network).stream(asking()))
    assert assemble(chunks).finish == Stop()
    assert texts(chunks) == ["A"]
    await (await server.exchange(0)).gone.wait()


async def test_usage_that_comes_within_the_grace_time_is_taken(server: ModelServer, network: Network) -> None:
    """S12."""
    gate = asyncio.Event()
    server.script(Answer((content("A"), finish(), gate, usage(3, 1), DONE)))
    task = asyncio.create_task(read(model(server, network).stream(asking())))
    await server.exchange(0)
    gate.set()
    assert assemble(await task).usage == Usage(input_tokens=3, output_tokens=1)


async def test_a_finish_reason_in_every_chunk_does_not_cut_a_slow_answer(server: ModelServer) -> None:
    first, last, later = asyncio.Event(), asyncio.Event(), asyncio.Event()
    start = (delta({"content": "a"}, "stop"), first, delta({"content": "b"}))
    pieces = (*start, last, finish(), later, usage(3, 1), DONE)
    server.script(Answer(pieces))
    async with limited(grace=1.0, idle=30) as network:
        stream = model(server, network).stream(asking())
        seen = []
        async for chunk in stream:
            seen.append(chunk)
            if isinstance(chunk, TextDelta) and chunk.text == "a":
                first.set()
            if isinstance(chunk, TextDelta) and chunk.text == "b":
                asyncio.get_running_loop().call_later(1.5, last.set)
                asyncio.get_running_loop().call_later(1.55, later.set)
    assert texts(seen) == ["a", "b"]
    assert assemble(seen).finish == Stop()
    assert assemble(seen).usage == Usage(input_tokens=3, output_tokens=1)


async def test_a_drop_after_the_finish_reason_is_a_success(server: ModelServer, network: Network) -> None:
    server.script(Answer((content("A"), finish(), KILL)), Answer((content("A"), finish(), CUT)))
    for _ in range(2):
        chunks = await read(model(server, network).stream(asking()))
        assert assemble(chunks).finish == Stop()


@pytest.mark.parametrize("how", [KILL, CUT])
async def test_a_server_that_dies_in_the_middle_leaves_what_it_had_sent(
    server: ModelServer, network: Network, how: object
) -> None:
    """Its process was killed, or it closed the connection; the next request works."""
    shown = asyncio.Event()
    server.script(Answer((content("half a sen"), shown, KILL if how is KILL else CUT)), GOOD)
    asked = model(server, network)
    chunks = []
    async for chunk in asked.stream(asking()):
        chunks.append(chunk)
        if isinstance(chunk, TextDelta):
            shown.set()
    failure = failure_of(chunks)
    assert failure.code == "TRANSPORT"
    assert f'"127.0.0.1:{server.port}" closed the connection' in failure.message
    assert [placed.block for placed in assemble(chunks).interrupted()] == [TextBlock("half a sen")]
    assert texts(await read(asked.stream(asking()))) == ["all good"]


async def test_what_had_come_before_a_break_reaches_a_reader_that_is_late(
    server: ModelServer, network: Network
) -> None:
    """The HTTP library forgets it: a body that broke off gives nothing but its error."""
    go_on = asyncio.Event()
    server.script(Answer((content("a"), go_on, content("b"), content("c"), CUT)))
    chunks = []
    async for chunk in model(server, network).stream(asking()):
        chunks.append(chunk)
        if texts([chunk]) == ["a"]:
            go_on.set()
            await (await server.exchange(0)).sent.wait()
            for _ in range(100):  # the end of the connection is noticed
                await asyncio.sleep(0)
    assert texts(chunks) == ["a", "b", "c"]
    assert failure_of(chunks).code == "TRANSPORT"


async def test_a_body_that_ends_without_a_finish_is_a_stream_that_broke_off(
    server: ModelServer, network: Network
) -> None:
    """S08."""
    server.script(Answer((content("half"),)), Answer((content("half"),), framing="close"))
    for _ in range(2):
        chunks = await read(model(server, network).stream(asking()))
        assert failure_of(chunks).code == "STREAM_CLOSED"
        assert texts(chunks) == ["half"]


@pytest.mark.parametrize("body", [b"", b"\n\n", b"\xef\xbb\xbf"])
async def test_an_empty_body_is_an_empty_response(server: ModelServer, network: Network, body: bytes) -> None:
    server.script(Answer((body,) if body else ()))
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert failure == Failure(f'"127.0.0.1:{server.port}" sent an empty answer', "EMPTY_RESPONSE")


async def test_an_answer_without_content_is_an_empty_response(server: ModelServer, network: Network) -> None:
    server.script(Answer((finish(), DONE)))
    assert failure_of(await read(model(server, network).stream(asking()))).code == "EMPTY_RESPONSE"


async def test_a_stream_of_comments_alone_is_a_failure(server: ModelServer, network: Network) -> None:
    """S13c."""
    server.script(Answer((b": one\n\n", b": two\n\n")))
    assert failure_of(await read(model(server, network).stream(asking()))).code == "STREAM_CLOSED"


async def test_a_web_page_is_a_malformed_response(server: ModelServer, network: Network) -> None:
    server.script(Answer((b"<!doctype html><p>hi",), headers={"content-type": "text/html"}))
    assert failure_of(await read(model(server, network).stream(asking()))).code == "MALFORMED_RESPONSE"


async def test_a_payload_that_is_no_json_ends_the_stream_and_the_connection(
    server: ModelServer, network: Network
) -> None:
    server.script(Answer((content("a"), event("{"), SILENCE)))
    chunks = await read(model(server, network).stream(asking()))
    assert failure_of(chunks).code == "MALFORMED_RESPONSE"
    assert texts(chunks) == ["a"]
    await (await server.exchange(0)).gone.wait()
