"""The plugin and the local model, set up as the plugin's README says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.editors.neovims import neovim
from tests.editors.servers import local

TRANSCRIPT = "table.concat(vim.api.nvim_buf_get_lines(vim.fn.bufnr('/transcript$'), 0, -1, false), '\\n')"

pytestmark = [pytest.mark.local, pytest.mark.timeout(400)]


def test_it_chats_is_steered_and_stops_with_what_waits_kept(tmp_path: Path) -> None:
    """A reply streams, is redirected, and is stopped; a message that waits is held and runs when it is let go."""
    work = tmp_path / "work"
    work.mkdir()
    with neovim(tmp_path / "home", work, local(tmp_path), seconds=120) as vim:
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
