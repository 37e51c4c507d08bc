"""The local model for real: llama.cpp with SmolLM2, as a person without a key has it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentls.core.chunks import TextDelta
from agentls.core.reasons import MaxTokens, Stop
from agentls.models import weights
from agentls.models.catalog import LOCAL
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModel, Network
from agentls.models.local import LocalModel, LocalServer, serve_command
from tests.models.requests import asking, assemble, failure_of, read, texts

pytestmark = pytest.mark.local

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def directory() -> Path:
    """The weights' folder, filled where it is empty: these tests fail and do not hide where it cannot be."""
    named = os.environ.get(weights.DIRECTORY_VARIABLE)
    folder = Path(named) if named else ROOT / ".tools" / "models"
    weights.fetch(folder, say=lambda line: None)
    return folder


@pytest.fixture
async def server(directory: Path, tmp_path: Path) -> AsyncIterator[LocalServer]:
    command = serve_command(directory / weights.SMOLLM2.name, LOCAL)
    running = LocalServer(command, log=tmp_path / "llama.log")
    yield running
    await running.close()


def model(server: LocalServer, network: Network, max_tokens: int) -> LocalModel:
    row = replace(LOCAL, max_tokens=max_tokens, options={"temperature": 0, "seed": 1})
    return LocalModel(row, OpenAiChat(), network, server, lambda: None)


async def test_the_local_model_streams_a_short_reply(server: LocalServer, network: Network) -> None:
    chunks = await read(model(server, network, 12).stream(asking("Say hello in one short sentence.")))
    stream = assemble(chunks)
    assert stream.finish in (Stop(), MaxTokens())
    assert len(texts(chunks)) > 2
    assert "".join(texts(chunks)).strip()
    assert stream.usage is not None
    assert 0 < stream.usage.output_tokens <= 12


async def test_cancelling_frees_the_local_model_for_the_next_request(server: LocalServer, network: Network) -> None:
    """It has one slot: the second answer comes only if the first one was stopped."""
    stream = model(server, network, 2000).stream(asking("Write a very long story about a river."))
    async for chunk in stream:
        if isinstance(chunk, TextDelta):
            break
    await stream.aclose()
    async with asyncio.timeout(10):
        assert texts(await read(model(server, network, 4).stream(asking("Say hi."))))


async def test_nobody_else_can_use_the_local_model(server: LocalServer, network: Network) -> None:
    endpoint = await server.endpoint()
    row = replace(LOCAL, base_url=f"{endpoint.url}/v1", key_variable="KEY")
    stranger = HttpModel(row, OpenAiChat(), network, {"KEY": "guessed"})
    assert failure_of(await read(stranger.stream(asking("hi")))).code == "AUTH"


async def test_a_prompt_that_is_too_long_is_named_as_that(server: LocalServer, network: Network) -> None:
    failure = failure_of(await read(model(server, network, 4).stream(asking("word " * 4000))))
    assert failure.code == "CONTEXT_WINDOW_EXCEEDED"
