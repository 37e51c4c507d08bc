"""A minute of random bytes and random messages; `scripts/fuzz` goes on for as long as it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.run import fuzz

SECONDS = 60


@pytest.mark.timeout(SECONDS + 120)
async def test_the_server_answers_and_goes_on(tmp_path: Path) -> None:
    """No exit, one answer to each request, another client served in between, and the memory back where it was."""
    work = tmp_path / "work"
    work.mkdir()
    counts = await fuzz(tmp_path, work, seconds=SECONDS, seed=int.from_bytes(os.urandom(4)))
    assert counts["requests"] > 100, counts
