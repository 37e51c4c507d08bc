"""The editor at the other end of a connection, as the workspace and the producers of context know it."""

from __future__ import annotations

from collections.abc import Iterable

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
            active = said.active_uri if said.active_uri is not None and is_file(said.active_uri) else None
        same = active is not None and active == before.active
        selections, visible = (before.selections, before.visible) if same else ((), ())
        selected_at = before.selected_at
        if active is not None and "selections" in told:
            selections, selected_at = tuple(map(_range, said.selections or ())), act
        if active is not None and "visible_ranges" in told:
            visible = tuple(map(_lines, said.visible_ranges or ()))
        self.focus = Focus(
            active,
            selections,
            visible,
            open=_files(said.open_uris or ()) if "open_uris" in told else before.open,
            dirty=_files(said.dirty_uris or ()) if "dirty_uris" in told else before.dirty,
            selected_at=selected_at if selections else 0,
        )


def _range(told: wire.Range) -> Range:
    start, end = sorted(Position(place.line, place.character) for place in (told.start, told.end))
    return Range(start, end)


def _lines(told: wire.Range) -> tuple[int, int]:
    first, last = sorted((told.start.line, told.end.line))
    return first, last


def is_file(uri: str) -> bool:
    """Whether a document is a file of this machine. Others, such as `untitled:` and `output:`, are no business of an
    agent's."""
    try:
        to_path(uri)
    except NotAFileUri:
        return False
    return True


def _files(uris: Iterable[str]) -> tuple[str, ...]:
    return tuple(uri for uri in uris if is_file(uri))
