"""The editor at the other end of a connection, as the workspace and the producers of context know it."""

from __future__ import annotations

from collections.abc import Iterable

from agentls.lsp import wire
from agentls.workspace.documents import Buffer
from agentls.workspace.editor import NO_FOCUS, Focus, Selection
from agentls.workspace.positions import Lines, Position, PositionEncoding
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

    def look(self, said: wire.EditorStateParams, buffer: Buffer | None) -> None:
        """Take what the person looks at now. `buffer` is that of the active document after it, where that is open: its
        text says which characters are meant, and where it ends."""
        before, told = self.focus, said.model_fields_set
        active = self.active_after(said)
        same = active is not None and active == before.active
        selections, visible = (before.selections, before.visible) if same else ((), ())
        lines = Lines(buffer.text) if buffer is not None else None
        if active is not None and "selections" in told:
            selections = tuple(self._selection(one, lines) for one in said.selections or ())
        if active is not None and "visible_ranges" in told:
            visible = tuple(self._lines(one, lines) for one in said.visible_ranges or ())
        self.focus = Focus(
            active,
            selections,
            visible,
            open=_files(said.open_uris or ()) if "open_uris" in told else before.open,
            dirty=_files(said.dirty_uris or ()) if "dirty_uris" in told else before.dirty,
        )

    def active_after(self, said: wire.EditorStateParams) -> str | None:
        """The URI of the document that is active once `said` counts."""
        if "active_uri" not in said.model_fields_set:
            return self.focus.active
        return said.active_uri if said.active_uri is not None and is_file(said.active_uri) else None

    def _selection(self, told: wire.Range, lines: Lines | None) -> Selection:
        start, end = sorted((self._place(told.start, lines), self._place(told.end, lines)))
        return Selection(*start, *end)

    def _lines(self, told: wire.Range, lines: Lines | None) -> tuple[int, int]:
        first, last = sorted((self._place(told.start, lines)[0], self._place(told.end, lines)[0]))
        return first, last

    def _place(self, told: wire.Position, lines: Lines | None) -> tuple[int, int]:
        if lines is None:
            return told.line, told.character
        return lines.locate(Position(told.line, told.character), self.encoding)


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
