"""What the workspace asks of an attached editor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentls.workspace.positions import PositionEncoding


@dataclass(frozen=True, slots=True)
class Selection:
    """What is selected, or where the cursor is where both ends are the same: lines and characters from 0, the
    characters in code points."""

    start_line: int
    start_character: int
    end_line: int
    end_character: int


@dataclass(frozen=True, slots=True)
class Focus:
    """What a person looks at in an editor: the URI of the active document, its selections, the lines of it that are
    visible as (first, last), and the URIs of all documents that are shown or hold unsaved text."""

    active: str | None = None
    selections: tuple[Selection, ...] = ()
    visible: tuple[tuple[int, int], ...] = ()
    open: tuple[str, ...] = ()
    dirty: tuple[str, ...] = ()


NO_FOCUS = Focus()


class Editor(Protocol):
    """One editor for as long as its connection lives; two of them are the same only if they are one object."""

    @property
    def id(self) -> str:
        """Names it among all that ever attached to any process."""

    @property
    def name(self) -> str:
        """What a person knows it by, such as `neovim 0.11.4`; never empty."""

    @property
    def encoding(self) -> PositionEncoding:
        """What its positions count, as it was agreed on when it attached."""

    @property
    def focus(self) -> Focus:
        """What the person looks at, as it last said."""
