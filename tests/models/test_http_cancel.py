"""One who stops listening: the connection is closed at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from agentls.core.chunks import Chunk, TextDelta
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Decoder
from agentls.models.dialects.openai_chat import OpenAiChat, OpenAiChatDecoder
from agentls.models.http import HttpModel, Network
from tests.model_server import SILENCE, Answer, ModelServer, content, finish
from tests.models.asked import GOOD, SOON, model
from tests.models.requests import ROW, asking, read, texts


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
