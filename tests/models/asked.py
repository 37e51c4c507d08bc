"""A model over HTTP, asked on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from agentls.models.catalog import ModelRow
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModel, Network, Timeouts
from tests.model_server import ModelServer, reply
from tests.models.requests import ROW

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
