"""The editor at the other end of a connection, as the workspace and the producers of context know it."""

from __future__ import annotations

from agentls.lsp import wire
from agentls.workspace.editor import NO_FOCUS, Focus
from agentls.workspace.positions import Position, PositionEncoding, Range
from agentls.workspace.uris import NotAFileUri, to_path


class ConnectedEditor:
    """One for the life of a connection. `id` names it among all that ever attached to any process."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = "unknown client"
        self.encoding: PositionEncoding = "utf-16"
        self.focus = NO_FOCUS

    def introduce(self, name: str, encoding: PositionEncoding) -> None:
        """Say what a person knows it by, and what was agreed on."""
        self.name, self.encoding = name, encoding

    def look(self, said: wire.EditorStateParams, act: int) -> None:
        """Take what the person looks at now, told by the act of that number."""
        before, told = self.focus, said.model_fields_set
        active = before.active
        if "active_uri" in told:
            active = said.active_uri or None
        same = active is not None and active == before.active
        selections, visible = (before.selections, before.visible) if same else ((), ())
        selected_at = before.selected_at
        if active is not None and "selections" in told:
            selections, selected_at = tuple(map(to_range, said.selections or ())), act
        if active is not None and "visible_ranges" in told:
            visible = tuple(map(_lines, said.visible_ranges or ()))
        self.focus = Focus(
            active,
            selections,
            visible,
            open=tuple(filter(is_file, said.open_uris or ())) if "open_uris" in told else before.open,
            dirty=tuple(filter(None, said.dirty_uris or ())) if "dirty_uris" in told else before.dirty,
            selected_at=selected_at if selections else 0,
        )


def to_range(told: wire.Range) -> Range:
    """The same as the workspace knows it, turned where it is the wrong way round."""
    start, end = sorted(Position(place.line, place.character) for place in (told.start, told.end))
    return Range(start, end)


def _lines(told: wire.Range) -> tuple[int, int]:
    first, last = sorted((told.start.line, told.end.line))
    return first, last


def is_file(uri: str) -> bool:
    """Whether a document is a file of this machine. Of others, such as `untitled:` and `output:`, an agent is told at
    most what they are called."""
    try:
        to_path(uri)
    except NotAFileUri:
        return False
    return True
