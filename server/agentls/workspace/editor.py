"""What the workspace asks of an attached editor."""

from __future__ import annotations

from typing import Protocol

from agentls.workspace.positions import PositionEncoding


class Editor(Protocol):
    """One editor for as long as its connection lives; two of them are the same only if they are one object."""

    @property
    def name(self) -> str:
        """What a person knows it by, such as `neovim 0.11.4`; never empty."""

    @property
    def encoding(self) -> PositionEncoding:
        """What its positions count, as it was agreed on when it attached."""
