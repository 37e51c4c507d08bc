"""A store in a folder of its own, whose writer's statements a test may look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.store.sqlite import SqliteStore


@pytest.fixture
def trace() -> list[str]:
    """Every statement that the writer ran so far."""
    return []


@pytest.fixture
async def store(tmp_path: Path, trace: list[str]) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "state", trace=trace.append)
    yield store
    await store.close()
