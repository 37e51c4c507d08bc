"""What the tests of models share: a scripted server and a network that is closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentls.models.http import Network
from tests.model_server import ModelServer


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    made = Network(user_agent="agentls/test")
    yield made
    await made.close()
