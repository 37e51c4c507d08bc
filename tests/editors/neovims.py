"""A real Neovim with the plugin, in its own process and with settings of its own; driven over its RPC."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pynvim  # type: ignore[import-untyped]

from tests.editors.programs import nvim

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "editors" / "neovim"
SECONDS = 15
"""How long a test waits, unless it says otherwise."""


class Neovim:
    """What a test asks of it. Lua code is given as text; it returns what Lua returns."""

    def __init__(self, rpc: pynvim.Nvim, seconds: int) -> None:
        self._rpc = rpc
        self._seconds = seconds

    @property
    def pid(self) -> int:
        """Its process."""
        return cast(int, self.lua("return vim.fn.getpid()"))

    def lua(self, code: str, *arguments: object) -> Any:
        """Run Lua code; `...` are the arguments."""
        return self._rpc.exec_lua(code, *arguments)

    def command(self, line: str) -> None:
        """Run a command of the command line."""
        self._rpc.command(line)

    def keys(self, keys: str) -> None:
        """Type."""
        self._rpc.input(keys)

    def until(self, condition: str, *arguments: object) -> None:
        """Wait until a Lua expression holds; `select(n, ...)` are the arguments."""
        code = f"local a = {{...}}; return (vim.wait({self._seconds * 1000}, function() return {condition} end, 5))"
        if not self.lua(code, *arguments):
            raise AssertionError(f"waited {self._seconds} s for {condition}\n{self.screen()}\n{self.messages()}")

    def messages(self) -> str:
        """What was told in the message area."""
        return cast(str, self.lua("return vim.fn.execute('messages')"))

    def screen(self) -> str:
        """The text of all windows, each under the name of its buffer and its bar."""
        return cast(
            str,
            self.lua("""
                local found = {}
                for _, window in ipairs(vim.api.nvim_list_wins()) do
                  local buffer = vim.api.nvim_win_get_buf(window)
                  table.insert(found, "== " .. vim.api.nvim_buf_get_name(buffer) .. " | " .. vim.wo[window].winbar)
                  vim.list_extend(found, vim.api.nvim_buf_get_lines(buffer, 0, -1, false))
                end
                return table.concat(found, "\\n")
            """),
        )

    def transcript(self) -> list[str]:
        """The lines of the transcript's buffer."""
        return cast(
            list[str],
            self.lua("""
                for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
                  if vim.bo[buffer].filetype == "agentls" then
                    return vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
                  end
                end
                return {}
            """),
        )

    def shows(self, text: str) -> None:
        """Wait until a line of the transcript holds the text."""
        self.until(
            """(function()
              for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
                if vim.bo[buffer].filetype == "agentls" then
                  local lines = vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
                  return table.concat(lines, "\\n"):find(a[1], 1, true) ~= nil
                end
              end
            end)()""",
            text,
        )

    def state(self, condition: str) -> None:
        """Wait until the state of the current agent, as `s`, fulfils a Lua expression, and all before it is drawn."""
        drawn = "not require('agentls.session').get(s.agentId).drawing"
        self.until(f"(function() local s = require('agentls').state(); return s and ({condition}) and {drawn} end)()")


def command(home: Path, folder: Path, settings: str, *arguments: str) -> list[str]:
    """The command of a Neovim in a folder; `settings` is the Lua table that the plugin is set up with."""
    home.mkdir(parents=True, exist_ok=True)
    names = ("CONFIG", "DATA", "STATE", "CACHE", "RUNTIME")
    xdg = {f"XDG_{name}_{'DIR' if name == 'RUNTIME' else 'HOME'}": str(home / name.lower()) for name in names}
    for path in xdg.values():
        Path(path).mkdir(mode=0o700, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    script = home / "init.lua"
    script.write_text(
        f"vim.opt.runtimepath:append({str(PLUGIN)!r})\nrequire('agentls').setup({settings})\n", encoding="utf-8"
    )
    program = ["env", "-i", "-C", str(folder), *(f"{name}={value}" for name, value in {**kept, **xdg}.items())]
    program += [f"HOME={home}", "TERM=tmux-256color"]
    return [*program, str(nvim()), "--clean", "-u", str(script), *arguments]


@contextmanager
def neovim(
    home: Path, folder: Path, settings: str, arguments: Sequence[str] = (), *, seconds: int = SECONDS
) -> Iterator[Neovim]:
    """That Neovim without a terminal."""
    rpc = pynvim.attach("child", argv=command(home, folder, settings, "--headless", "--embed", *arguments))
    try:
        rpc.ui_attach(120, 40, rgb=True)
        yield Neovim(rpc, seconds)
    finally:
        # It goes before it answers, which is what was asked.
        with suppress(OSError, EOFError):
            rpc.command("qall!")
        rpc.close()
