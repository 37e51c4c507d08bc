"""Pages made from the code agree with it; `scripts/generate` writes them."""

from __future__ import annotations

from pathlib import Path

from agentls.core.event_table import event_table

ROOT = Path(__file__).resolve().parents[2]


def test_the_event_table_is_that_of_the_code() -> None:
    assert (ROOT / "docs/events.md").read_text() == event_table(), "stale; run scripts/generate"
