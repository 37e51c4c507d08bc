"""A workspace, and the server that is started in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.editors.servers import scripted


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> tuple[str, ...]:
    """The command of a server with the script."""
    return scripted(tmp_path)
