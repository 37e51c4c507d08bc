"""The plugin and the local model, set up as the plugin's README says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.editors.neovims import ROOT, neovim

TRANSCRIPT = "table.concat(vim.api.nvim_buf_get_lines(vim.fn.bufnr('/transcript$'), 0, -1, false), '\\n')"

pytestmark = [pytest.mark.local, pytest.mark.timeout(400)]


def test_it_chats_is_steered_and_stops_with_what_waits_kept(tmp_path: Path) -> None:
    """A reply streams, is redirected, and is stopped; a message that waits is held and runs when it is let go."""
    work = tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-P", "-m", "agentls", "serve", "--state-dir", str(tmp_path / "state")]
    settings = "{ cmd = { %s }, env = { AGENTLS_MODELS_DIR = %s } }" % (  # noqa: UP031 - braces are Lua's
        ", ".join(json.dumps(word) for word in command),
        json.dumps(str(ROOT / ".tools" / "models")),
    )
    with neovim(tmp_path / "home", work, settings, seconds=120) as vim:
        vim.command("Agent")
        vim.state("s.model.provider == 'local' and s.model.usable")
        vim.command("AgentSend Tell me what a text editor is.")
        vim.until(f"{TRANSCRIPT}:find('editor is%.\\n.-▌ Assistant\\n%S')")
        vim.command("AgentSteer Now say hello.")
        # An answer that runs into its limit ends its turn, and what steered it opens the next one.
        vim.shows("\nNow say hello.\n")
        vim.state("s.status == 'idle'")
        vim.command("AgentSend Tell me a long story about a river.")
        vim.until(f"{TRANSCRIPT}:find('a river%.\\n.-▌ Assistant\\n%S')")
        vim.command("AgentSend Count to three.")
        vim.command("AgentCancel")
        vim.state("s.status == 'idle' and s.hold and #s.inbox == 1")
        vim.command("AgentQueue")
        vim.keys("R")
        vim.shows("▌ You\nCount to three.")
        vim.command("AgentCancel")
        vim.state("s.status == 'idle' and #s.inbox == 0")
