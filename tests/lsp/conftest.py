"""A hub over one fake agent, and its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentls.lsp.server import Hub
from tests.lsp.clients import Client, Served, serving
from tests.lsp.doubles import FakeAgent, FakeHost


@pytest.fixture
async def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
async def host(agent: FakeAgent) -> FakeHost:
    return FakeHost(agent)


@pytest.fixture
async def served(host: FakeHost) -> AsyncIterator[Served]:
    async with serving(Hub(host)) as hub:
        yield hub


@pytest.fixture
async def client(served: Served) -> Client:
    return await served.started()
