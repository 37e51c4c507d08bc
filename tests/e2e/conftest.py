"""The model server that end-to-end tests let the real server talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.editors import Desk, on_stdio
from tests.e2e.storage import compiled
from tests.model_server import ModelServer


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def endpoint(model: ModelServer) -> tuple[str, ...]:
    """Options that make the model server the default model."""
    return ("--base-url", model.url, "--model-id", "played")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that has a server's disk fail."""
    return compiled(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with a file in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
async def desk(tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]) -> AsyncIterator[Desk]:
    """An agent in that workspace, and an editor that draws it, with a server of its own."""
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        yield Desk(editor, model, work, await editor.create(workspaceUri=work.as_uri()))
