"""The programs of others that tests of the editors run; `scripts/setup --editors` puts them into the tool folder."""

from __future__ import annotations

from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools"


def nvim() -> Path:
    """A real Neovim."""
    path = TOOLS / "nvim" / "bin" / "nvim"
    assert path.is_file(), f'there is no Neovim at "{path}"; get it by: scripts/setup --editors'
    return path
