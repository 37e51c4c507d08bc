"""A server that says nothing for too long, and one that only seems to."""

from __future__ import annotations

import asyncio

from agentls.core.chunks import TextDelta
from agentls.core.reasons import Failure, Stop
from tests.model_server import DONE, SILENCE, Answer, ModelServer, content, finish
from tests.models.asked import limited, model
from tests.models.requests import asking, assemble, failure_of, read, texts


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
