from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.support import Space


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return Space(tmp_path / "ws")
