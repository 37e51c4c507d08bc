"""The programs of others that tests of the editors run; `scripts/setup --editors` puts them into the tool folder."""

from __future__ import annotations

from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools"


def nvim() -> Path:
    """A real Neovim."""
    return _there("Neovim", TOOLS / "nvim" / "bin" / "nvim")


def stylua() -> Path:
    """The package of StyLua, which scripts/stylua.mjs runs."""
    return _there("StyLua", TOOLS / "stylua" / "node_modules" / "@johnnymorganz" / "stylua" / "package.json")


def luacheck() -> Path:
    """luacheck, run by Neovim."""
    return _there("luacheck", TOOLS / "luacheck" / "luacheck")


def tmux() -> Path:
    """A terminal that programs type into."""
    return _there("tmux", TOOLS / "tmux" / "tmux")


def _there(name: str, path: Path) -> Path:
    assert path.is_file(), f'there is no {name} at "{path}"; get it by: scripts/setup --editors'
    return path
