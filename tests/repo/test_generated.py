"""Pages made from the code agree with it; `scripts/generate` writes them."""

from __future__ import annotations

from pathlib import Path

from agentls.app import build_registry
from agentls.core.event_table import event_table
from agentls.tools.reference import reference

ROOT = Path(__file__).resolve().parents[2]


def test_the_event_table_is_that_of_the_code() -> None:
    assert (ROOT / "docs/events.md").read_text() == event_table(), "stale; run scripts/generate"


def test_the_catalog_of_tools_is_that_of_the_code() -> None:
    assert (ROOT / "docs/tools.md").read_text() == reference(build_registry()), "stale; run scripts/generate"
