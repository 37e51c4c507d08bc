"""The model server that end-to-end tests let the real server talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.model_server import ModelServer


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def endpoint(model: ModelServer) -> tuple[str, ...]:
    """Options that make the model server the default model."""
    return ("--base-url", model.url, "--model-id", "played")
