"""A folder to watch, and what watches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentls.workspace.watch import Watches
from tests.workspace.watching import watched


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    return root


@pytest.fixture
def watches() -> Iterator[Watches]:
    with watched() as watches:
        yield watches
