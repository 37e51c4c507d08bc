"""What the workspace asks of an attached editor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentls.workspace.positions import PositionEncoding, Range


@dataclass(frozen=True, slots=True)
class Focus:
    """What a person looks at in an editor: the URI of the active document, its selections, the lines of it that are
    visible as (first, last), and the URIs of all files that are shown and of all documents that hold unsaved text. A
    document is a file or something else, such as `untitled:Untitled-1`.

    A selection is as the editor told it, in units of its encoding and a cursor where both ends are the same: which text
    it means depends on the document at that moment. `selected_at` is the act by which it was told (see `Documents`).
    """

    active: str | None = None
    selections: tuple[Range, ...] = ()
    visible: tuple[tuple[int, int], ...] = ()
    open: tuple[str, ...] = ()
    dirty: tuple[str, ...] = ()
    selected_at: int = 0


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
