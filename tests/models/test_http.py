"""A model over HTTP, against a real server on loopback: every fault is one finish, every end closes the connection."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from agentls.core.blocks import Attachment, ImageBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, Finish, TextDelta, Usage
from agentls.core.ids import CallId
from agentls.core.reasons import Failed, Failure, Stop, ToolCalls
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Decoder
from agentls.models.dialects.openai_chat import OpenAiChat, OpenAiChatDecoder
from agentls.models.http import HttpModel, HttpModels, Network, Timeouts
from tests.conformance.cases import cases
from tests.model_server import (
    CUT,
    DONE,
    KILL,
    SILENCE,
    Answer,
    ModelServer,
    content,
    delta,
    error_body,
    event,
    finish,
    reply,
    usage,
)
from tests.models.requests import ROW, asking, assemble, failure_of, read, texts, user

KEY = "sk-secret-123"
SOON = 10.0
"""Seconds for what happens at once. The server is silent for ever, so that no other end comes before the one meant."""
GOOD = reply("all good")


def model(
    server: ModelServer, network: Network, environ: Mapping[str, str] | None = None, row: ModelRow = ROW
) -> HttpModel:
    return HttpModel(replace(row, base_url=server.url), OpenAiChat(), network, environ or {})


@contextlib.asynccontextmanager
async def limited(**seconds: float) -> AsyncIterator[Network]:
    """A network with other limits."""
    network = Network(Timeouts(**seconds))
    try:
        yield network
    finally:
        await network.close()


# Requests


async def test_a_request_is_one_post_with_all_its_headers(server: ModelServer, network: Network) -> None:
    server.script(GOOD)
    row = replace(ROW, key_variable="THE_KEY")
    chunks = await read(model(server, network, {"THE_KEY": f" {KEY}\n"}, row).stream(asking("hi")))
    assert texts(chunks) == ["all good"]
    exchange = await server.exchange(0)
    assert (exchange.method, exchange.path) == ("POST", "/v1/chat/completions")
    assert exchange.json()["messages"] == [{"role": "user", "content": "hi"}]
    wanted = {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "agentls/test",
    }
    assert {name: exchange.headers[name] for name in wanted} == wanted


async def test_without_a_key_variable_no_key_is_sent(server: ModelServer, network: Network) -> None:
    server.script(GOOD)
    await read(model(server, network, {"THE_KEY": KEY}).stream(asking()))
    assert "authorization" not in (await server.exchange(0)).headers


async def test_the_key_is_looked_up_at_each_request(server: ModelServer, network: Network) -> None:
    server.script(GOOD, GOOD)
    environ = {"THE_KEY": "one"}
    asked = model(server, network, environ, replace(ROW, key_variable="THE_KEY"))
    await read(asked.stream(asking()))
    environ["THE_KEY"] = "two"
    await read(asked.stream(asking()))
    assert [exchange.headers["authorization"] for exchange in server.exchanges] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({}, "MISSING_CREDENTIAL"),
        ({"THE_KEY": " \n"}, "MISSING_CREDENTIAL"),
        ({"THE_KEY": f"{KEY} {KEY}"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\u2028x"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\r\nx-evil: 1"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\x7fx"}, "INVALID_CREDENTIAL"),
    ],
)
async def test_a_key_that_cannot_be_sent_is_a_failure_that_names_its_variable(
    server: ModelServer, network: Network, environ: dict[str, str], code: str
) -> None:
    row = replace(ROW, key_variable="THE_KEY")
    failure = failure_of(await read(model(server, network, environ, row).stream(asking())))
    assert failure.code == code
    assert "THE_KEY" in failure.message
    assert KEY not in failure.message
    assert server.exchanges == []
    assert not HttpModels(OpenAiChat(), network, environ).usable(row)


async def test_an_image_is_refused_before_any_request(server: ModelServer, network: Network) -> None:
    image = ImageBlock(Attachment("a", "image/png"))
    failure = failure_of(await read(model(server, network).stream(asking(user(image)))))
    assert failure.code == "UNSUPPORTED_CONTENT"
    assert server.connections == 0


# Answers


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


# Ends


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


# Refusals


@pytest.mark.parametrize(
    ("status", "code"), [(401, "AUTH"), (429, "RATE_LIMIT"), (500, "SERVER"), (503, "SERVER"), (404, "HTTP_404")]
)
async def test_a_refusal_is_a_failure_and_the_next_request_works(
    server: ModelServer, network: Network, status: int, code: str
) -> None:
    headers = {"retry-after": "7", "x-request-id": "req-1"}
    server.script(error_body(status, "no luck", headers=headers), GOOD)
    asked = model(server, network)
    message = f'"127.0.0.1:{server.port}" answered {status}: no luck'
    assert await read(asked.stream(asking())) == [Finish(Failed(Failure(message, code, status, 7000, "req-1")))]
    assert texts(await read(asked.stream(asking()))) == ["all good"]


async def test_a_redirect_is_not_followed(server: ModelServer, network: Network) -> None:
    """The key would go with it."""
    server.script(Answer((), 307, {"location": f"{server.url}/elsewhere"}))
    assert failure_of(await read(model(server, network).stream(asking()))).code == "HTTP_307"
    assert len(server.exchanges) == 1


async def test_a_refusal_that_breaks_off_keeps_its_status(server: ModelServer, network: Network) -> None:
    server.script(Answer((b'{"error":', CUT), 429))
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert (failure.code, failure.status) == ("RATE_LIMIT", 429)


@pytest.mark.parametrize("status", [401, 200])
async def test_a_key_that_the_provider_quotes_is_struck_out(server: ModelServer, network: Network, status: int) -> None:
    server.script(error_body(status, f"bad key {KEY}", type="auth"))
    row = replace(ROW, key_variable="THE_KEY")
    failure = failure_of(await read(model(server, network, {"THE_KEY": KEY}, row).stream(asking())))
    assert failure.code == "AUTH"
    assert failure.message.endswith("bad key …")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_an_error_body_with_status_200_is_a_failure_with_its_message_in_whatever_pieces(
    server: ModelServer, network: Network, size: int
) -> None:
    """S13b."""
    (case,) = cases("http-body")
    pieces = tuple(case.data[at : at + size] for at in range(0, len(case.data), size))
    server.script(Answer(pieces, headers={"content-type": "application/json"}))
    assert failure_of(await read(model(server, network).stream(asking()))) == Failure("bad key", "AUTH")


# The network


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_names_the_endpoint_and_the_cause(network: Network, host: str) -> None:
    port = free_port()
    row = replace(ROW, base_url=f"http://{host}:{port}/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure(f'"{host}:{port}" cannot be reached: connection refused', "TRANSPORT")


async def test_a_host_that_does_not_exist_is_named(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure('"nowhere.invalid:80" cannot be reached: name or service not known', "TRANSPORT")


async def test_a_server_that_hangs_up_before_it_answers_is_a_failure(server: ModelServer, network: Network) -> None:
    server.script(Answer((), before=CUT), GOOD)
    asked = model(server, network)
    failure = failure_of(await read(asked.stream(asking())))
    assert failure.code == "TRANSPORT"
    assert "closed the connection" in failure.message
    assert texts(await read(asked.stream(asking()))) == ["all good"]


async def test_something_that_is_no_http_server_is_a_failure(network: Network) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        row = replace(ROW, base_url=f"http://127.0.0.1:{port}/v1")
        failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure.code == "TRANSPORT"


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment whose proxy answers nothing."""
    address = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, address)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("proxies")
async def test_this_machine_is_asked_without_the_proxy_of_the_environment(
    server: ModelServer, network: Network
) -> None:
    server.script(GOOD)
    assert texts(await read(model(server, network).stream(asking()))) == ["all good"]


@pytest.mark.usefixtures("proxies")
async def test_other_machines_are_asked_through_the_proxy_of_the_environment(network: Network) -> None:
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure('"nowhere.invalid:80" cannot be reached: connection refused', "TRANSPORT")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "odd://127.0.0.1:9"])
async def test_a_proxy_that_cannot_be_used_is_named_and_this_machine_is_asked_all_the_same(
    server: ModelServer, network: Network, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("all_proxy", proxy)
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure.code == "TRANSPORT"
    assert failure.message.startswith("the proxy that the environment names cannot be used: ")
    server.script(GOOD)
    assert texts(await read(model(server, network).stream(asking()))) == ["all good"]


async def test_a_fault_of_our_own_is_a_finish_too(server: ModelServer, network: Network) -> None:
    class Broken(OpenAiChat):
        def headers(self, key: str | None) -> Mapping[str, str]:
            raise LookupError("a bug")

    broken = HttpModel(replace(ROW, base_url=server.url), Broken(), network, {})
    assert failure_of(await read(broken.stream(asking()))) == Failure("LookupError: a bug", "INTERNAL")


# Silence


async def test_silence_before_the_answer_is_a_timeout(server: ModelServer) -> None:
    server.script(Answer((), before=SILENCE))
    async with limited(idle=0.5) as network:
        failure = failure_of(await read(model(server, network).stream(asking())))
    assert failure == Failure(f'"127.0.0.1:{server.port}" was silent for 0.5 s', "TIMEOUT")
    await (await server.exchange(0)).gone.wait()


async def test_silence_in_the_answer_is_a_timeout_that_keeps_what_came(server: ModelServer) -> None:
    """S25, second half."""
    server.script(Answer((content("a"), SILENCE)))
    async with limited(idle=0.5) as network:
        chunks = await read(model(server, network).stream(asking()))
    assert failure_of(chunks).code == "TIMEOUT"
    assert texts(chunks) == ["a"]
    await (await server.exchange(0)).gone.wait()


async def test_comments_are_a_sign_of_life(server: ModelServer) -> None:
    """S25, first half: many times the idle limit, and never longer than it without a byte."""
    beats = [asyncio.Event() for _ in range(6)]
    loop = asyncio.get_running_loop()
    for number, beat in enumerate(beats, start=1):
        loop.call_later(number * 0.2, beat.set)
    pieces = [piece for beat in beats for piece in (beat, b": ping\n\n")]
    server.script(Answer((*pieces, content("a"), finish(), DONE)))
    async with limited(idle=0.8) as network:
        began = loop.time()
        chunks = await read(model(server, network).stream(asking()))
    assert loop.time() - began > 1.0
    assert assemble(chunks).finish == Stop()


async def test_the_time_of_the_one_who_reads_is_not_the_servers_silence(server: ModelServer) -> None:
    server.script(Answer((content("a"), content("b"), finish(), DONE)))
    released = asyncio.Event()
    async with limited(idle=1.0) as network:
        seen = []
        async for chunk in model(server, network).stream(asking()):
            seen.append(chunk)
            if isinstance(chunk, TextDelta) and chunk.text == "a":
                asyncio.get_running_loop().call_later(1.5, released.set)
                await released.wait()
    assert assemble(seen).finish == Stop()


# Cancellation


async def _first_text(stream: AsyncIterator[Chunk]) -> None:
    async for chunk in stream:
        if isinstance(chunk, TextDelta):
            return


async def test_closing_the_stream_closes_the_connection_at_once(server: ModelServer, network: Network) -> None:
    server.script(Answer((content("a"), SILENCE)))
    stream = model(server, network).stream(asking())
    await _first_text(stream)
    exchange = await server.exchange(0)
    async with asyncio.timeout(SOON):
        await stream.aclose()
        await exchange.gone.wait()


async def test_cancelling_the_reader_closes_the_connection_at_once(server: ModelServer, network: Network) -> None:
    server.script(Answer((content("a"), SILENCE)))
    shown = asyncio.Event()

    async def reading() -> None:
        async for chunk in model(server, network).stream(asking()):
            if isinstance(chunk, TextDelta):
                shown.set()

    task = asyncio.create_task(reading())
    await shown.wait()
    exchange = await server.exchange(0)
    task.cancel()
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await task
        await exchange.gone.wait()


async def test_cancelling_before_the_answer_closes_the_connection_at_once(
    server: ModelServer, network: Network
) -> None:
    server.script(Answer((), before=SILENCE))
    task = asyncio.create_task(read(model(server, network).stream(asking())))
    exchange = await server.exchange(0)
    task.cancel()
    async with asyncio.timeout(SOON):
        with pytest.raises(asyncio.CancelledError):
            await task
        await exchange.gone.wait()


async def test_cancelling_within_the_grace_time_passes(server: ModelServer, network: Network) -> None:
    """The end of the wait for usage is a timeout inside, which must not swallow a cancellation from outside."""
    finished = asyncio.Event()

    class Noticing(OpenAiChatDecoder):
        def feed(self, payload: str) -> Sequence[Chunk]:
            chunks = super().feed(payload)
            if self.finished:
                finished.set()
            return chunks

    class Noticed(OpenAiChat):
        def decoder(self, row: ModelRow) -> Decoder:
            return Noticing()

    server.script(Answer((content("a"), finish(), SILENCE)))
    asked = HttpModel(replace(ROW, base_url=server.url), Noticed(), network, {})
    task = asyncio.create_task(read(asked.stream(asking())))
    exchange = await server.exchange(0)
    await finished.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await exchange.gone.wait()


async def test_one_who_cancels_while_the_client_is_made_takes_it_from_nobody(
    server: ModelServer, network: Network
) -> None:
    server.script(GOOD)
    first = asyncio.create_task(read(model(server, network).stream(asking())))
    second = asyncio.create_task(read(model(server, network).stream(asking())))
    await asyncio.sleep(0)
    first.cancel()
    assert texts(await second) == ["all good"]


async def test_a_closed_network_can_be_used_again(server: ModelServer, network: Network) -> None:
    server.script(GOOD, GOOD)
    for _ in range(2):
        assert texts(await read(model(server, network).stream(asking()))) == ["all good"]
        await network.close()
        await network.close()
