"""`editor`: what the person has before their eyes, and which files hold work that is not on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentls.context.producer import Moment, Reading
from agentls.core.ids import SessionId
from agentls.core.sources import Section
from agentls.core.visible import fenced, one_line, preview
from agentls.workspace.documents import Buffer, Documents
from agentls.workspace.editor import Editor, Selection
from agentls.workspace.positions import split_lines
from agentls.workspace.roots import Roots, real
from agentls.workspace.uris import NotAFileUri, to_path

SELECTED_MAX = 4096
"""UTF-8 bytes of selected text that are given."""
PLACES_MAX = 5
"""Cursors, selections and visible parts that are listed, of each kind."""
UNSAVED_MAX = 20
"""Unsaved files that are listed."""

_NAME_MAX = 200


class EditorView:
    """Of one editor what it shows, of all editors what is unsaved. A file outside of the workspace is named, and no
    text of it is given."""

    name = "editor"

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def read(self, moment: Moment) -> Reading:
        """It looks at no more of the disk than `Documents` does."""
        shown = _shown(self._documents, moment.roots, moment.editor) if moment.editor is not None else ()
        return (*shown, Section("unsaved files", _unsaved(self._documents, moment.roots, moment.editor)))

    def committed(self, moment: Moment, reading: Reading) -> None:
        """Nothing is kept."""

    def forget(self, session: SessionId) -> None:
        """Nothing is kept."""


# What is shown -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """What a URI names; `path` is its real path, or None for what is no file."""

    name: str
    path: Path | None
    inside: bool


def _file(roots: Roots, uri: str) -> _File:
    try:
        path = real(to_path(uri))
    except (NotAFileUri, OSError):
        return _File(one_line(uri, _NAME_MAX), None, inside=False)
    return _at(roots, path)


def _at(roots: Roots, path: Path) -> _File:
    inside = roots.root_of(path) is not None
    name = one_line(roots.name(path), _NAME_MAX)
    return _File(name if inside else f"{name} (outside of the workspace)", path, inside)


def _shown(documents: Documents, roots: Roots, editor: Editor) -> tuple[Section, ...]:
    focus = editor.focus
    if focus.active is None:
        return ()
    file = _file(roots, focus.active)
    selected = [selection for selection in focus.selections if not _is_cursor(selection)]
    cursors = [selection for selection in focus.selections if _is_cursor(selection)]
    return (
        Section("active file", f"{file.name} in {one_line(editor.name)}"),
        Section("cursor", _listed([_place(c.start_line, c.start_character) for c in cursors], "cursors")),
        Section("selection", _listed([_span(selection) for selection in selected], "selections")),
        Section("selected text", _text(documents, editor, file, selected)),
        Section("visible lines", _listed([_lines(*lines) for lines in focus.visible], "parts")),
    )


def _text(documents: Documents, editor: Editor, file: _File, selected: Sequence[Selection]) -> str:
    """The text of the first selections, as the editor has it, saved or not."""
    if not selected or not file.inside or file.path is None:
        return ""
    buffer = next((buffer for buffer in documents.at(file.path) if buffer.editor is editor), None)
    if buffer is None:
        return ""
    lines = split_lines(buffer.text)
    left = SELECTED_MAX
    parts = []
    for selection in selected[:PLACES_MAX]:
        text, omitted = preview(_cut(lines, selection), left)
        left -= len(text.encode())
        parts.append(fenced(text) + (f"\n... ({omitted} more bytes are left out)" if omitted else ""))
    return "\n".join(parts)


def _cut(lines: list[str], selection: Selection) -> str:
    """What a selection covers; the text may have become shorter since it was made."""
    chosen = lines[selection.start_line : selection.end_line + 1]
    if not chosen:
        return ""
    if selection.start_line + len(chosen) > selection.end_line:
        chosen[-1] = chosen[-1][: selection.end_character]
    chosen[0] = chosen[0][selection.start_character :]
    return "".join(chosen)


def _is_cursor(selection: Selection) -> bool:
    return (selection.start_line, selection.start_character) == (selection.end_line, selection.end_character)


def _span(selection: Selection) -> str:
    start = _place(selection.start_line, selection.start_character)
    return f"{start}, up to {_place(selection.end_line, selection.end_character)}"


def _place(line: int, character: int) -> str:
    # People and tools count from 1.
    return f"line {line + 1}, character {character + 1}"


def _lines(first: int, last: int) -> str:
    return f"{first + 1} to {last + 1}"


def _listed(places: Sequence[str], what: str) -> str:
    more = len(places) - PLACES_MAX
    return "\n".join((*places[:PLACES_MAX], *((f"... ({more} more {what})",) if more > 0 else ())))


# What is unsaved -----------------------------------------------------------------------------------------------


def _unsaved(documents: Documents, roots: Roots, editor: Editor | None) -> str:
    lines = [*_buffers(documents.all_unsaved(), roots, editor), *_without_a_file(roots, editor)]
    more = len(lines) - UNSAVED_MAX
    return "\n".join((*lines[:UNSAVED_MAX], *((f"... ({more} more files)",) if more > 0 else ())))


def _buffers(unsaved: Iterable[Buffer], roots: Roots, editor: Editor | None) -> list[str]:
    """One line a file, with the editors that hold unsaved text of it."""
    holders: dict[Path, list[str]] = {}
    for buffer in unsaved:
        # The files of other workspaces are nobody's business here, but for those in the editor that asks.
        if roots.root_of(buffer.path) is not None or buffer.editor is editor:
            holders.setdefault(buffer.path, []).append(one_line(buffer.editor.name))
    return [f"{_at(roots, path).name} in {' and '.join(sorted(set(names)))}" for path, names in holders.items()]


def _without_a_file(roots: Roots, editor: Editor | None) -> list[str]:
    """What has never been saved anywhere, such as VS Code's `untitled:Untitled-1`."""
    if editor is None:
        return []
    files = (_file(roots, uri) for uri in dict.fromkeys(editor.focus.dirty))
    return [f"{file.name} in {one_line(editor.name)}" for file in files if file.path is None]
