"""`editor`: what the person has before their eyes, and which files hold work that is not on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentls.context.producer import Moment, Producer, Reading
from agentls.core.sources import Section
from agentls.core.visible import fenced, one_line, preview
from agentls.workspace.documents import Buffer, Documents
from agentls.workspace.editor import Editor
from agentls.workspace.positions import Range, split_lines
from agentls.workspace.roots import Roots, real
from agentls.workspace.uris import NotAFileUri, to_path

SELECTED_MAX = 4096
"""UTF-8 bytes of selected text that are given."""
PLACES_MAX = 5
"""Cursors, selections and visible parts that are listed, of each kind."""
OPEN_MAX = 50
"""Open files that are listed."""
UNSAVED_MAX = 20
"""Unsaved files that are listed."""

_NAME_MAX = 200


class EditorView(Producer):
    """Of one editor what it shows, of all editors which files are unsaved. Only the active file may be one outside of
    the workspace: it is named, and no text of it is given. So is what is no file, which is told of the one editor
    only."""

    name = "editor"

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def read(self, moment: Moment) -> Reading:
        """It looks at no more of the disk than `Documents` does."""
        shown = _shown(self._documents, moment.roots, moment.editor) if moment.editor is not None else ()
        return (*shown, Section("unsaved files", _unsaved(self._documents, moment.roots, moment.editor)))


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
    opened = Section("open files", _open(roots, editor))
    focus = editor.focus
    if focus.active is None:
        return (opened,)
    file = _file(roots, focus.active)
    buffer = _buffer(documents, editor, file)
    places = tuple(_selected(selection, buffer, focus.selected_at) for selection in focus.selections)
    selected = [place for place, told in zip(places, focus.selections, strict=True) if told.start != told.end]
    cursors = [place for place, told in zip(places, focus.selections, strict=True) if told.start == told.end]
    last = buffer.last_line if buffer is not None else None
    visible = [_lines(*_within(lines, last)) for lines in focus.visible]
    return (
        Section("active file", f"{file.name} in {one_line(editor.name)}"),
        Section("cursor", _bounded([_start(cursor) for cursor in cursors], PLACES_MAX, "cursors")),
        Section("selection", _bounded([_span(place) for place in selected], PLACES_MAX, "selections")),
        Section("selected text", _text(buffer, selected) if buffer is not None and file.inside else ""),
        Section("visible lines", _bounded(visible, PLACES_MAX, "parts")),
        opened,
    )


def _buffer(documents: Documents, editor: Editor, file: _File) -> Buffer | None:
    """What the editor itself has of a file, however it spells its URI."""
    if file.path is None:
        return None
    return next((buffer for buffer in documents.at(file.path) if buffer.editor is editor), None)


@dataclass(frozen=True, slots=True)
class _Selected:
    """What is selected, from 0: lines, and where it is known to which text they belong, characters in code points."""

    lines: tuple[int, int]
    characters: tuple[int, int] | None


def _selected(told: Range, buffer: Buffer | None, act: int) -> _Selected:
    """A selection that `act` told. In a text that nobody knows, or that has changed since, a character may be any."""
    lines = told.start.line, told.end.line
    if buffer is None:
        return _Selected(lines, None)
    if buffer.changed > act:
        return _Selected(_within(lines, buffer.last_line), None)
    start, end = buffer.locate(told.start), buffer.locate(told.end)
    return _Selected((start[0], end[0]), (start[1], end[1]))


def _within(lines: tuple[int, int], last: int | None) -> tuple[int, int]:
    return lines if last is None else (min(lines[0], last), min(lines[1], last))


def _text(buffer: Buffer, selected: Sequence[_Selected]) -> str:
    """The text of the first selections, as the editor has it, saved or not."""
    lines = split_lines(buffer.text)
    left = SELECTED_MAX
    parts = []
    for place in selected[:PLACES_MAX]:
        if place.characters is None:
            continue
        text, omitted = preview(_cut(lines, place.lines, place.characters), left)
        left -= len(text.encode())
        parts.append(fenced(text) + (f"\n... ({omitted} more bytes are left out)" if omitted else ""))
    return "\n".join(parts)


def _cut(lines: list[str], covered: tuple[int, int], characters: tuple[int, int]) -> str:
    chosen = lines[covered[0] : covered[1] + 1]
    chosen[-1] = chosen[-1][: characters[1]]
    chosen[0] = chosen[0][characters[0] :]
    return "".join(chosen)


# People and tools count from 1.


def _start(place: _Selected) -> str:
    return _place(place.lines[0], place.characters[0] if place.characters is not None else None)


def _span(place: _Selected) -> str:
    first, last = place.lines
    if place.characters is not None:
        return f"{_place(first, place.characters[0])}, up to {_place(last, place.characters[1])}"
    return _place(first, None) if first == last else f"lines {_lines(first, last)}"


def _place(line: int, character: int | None) -> str:
    return f"line {line + 1}" + (f", character {character + 1}" if character is not None else "")


def _lines(first: int, last: int) -> str:
    return f"{first + 1} to {last + 1}"


def _bounded(lines: Sequence[str], most: int, what: str) -> str:
    more = len(lines) - most
    return "\n".join((*lines[:most], *((f"... ({more} more {what})",) if more > 0 else ())))


def _open(roots: Roots, editor: Editor) -> str:
    """The files of the workspace that the editor has open."""
    files = (_file(roots, uri) for uri in editor.focus.open)
    names = tuple(dict.fromkeys(file.name for file in files if file.inside))
    return _bounded(names, OPEN_MAX, "files")


# What is unsaved -----------------------------------------------------------------------------------------------


def _unsaved(documents: Documents, roots: Roots, editor: Editor | None) -> str:
    lines = (*_buffers(documents.all_unsaved(), roots), *_without_a_file(roots, editor))
    return _bounded(lines, UNSAVED_MAX, "files")


def _buffers(unsaved: Iterable[Buffer], roots: Roots) -> list[str]:
    """One line a file, with the editors that hold unsaved text of it. The files of other workspaces are nobody's
    business here."""
    holders: dict[Path, list[str]] = {}
    for buffer in unsaved:
        if roots.root_of(buffer.path) is not None:
            holders.setdefault(buffer.path, []).append(one_line(buffer.editor.name))
    return [f"{_at(roots, path).name} in {' and '.join(sorted(set(names)))}" for path, names in holders.items()]


def _without_a_file(roots: Roots, editor: Editor | None) -> list[str]:
    """What has never been saved anywhere, such as VS Code's `untitled:Untitled-1`."""
    if editor is None:
        return []
    files = (_file(roots, uri) for uri in dict.fromkeys(editor.focus.dirty))
    return [f"{file.name} in {one_line(editor.name)}" for file in files if file.path is None]
