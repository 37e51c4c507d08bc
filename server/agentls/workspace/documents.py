"""Open documents over files on disk: what each editor has in its buffer, and whether it holds unsaved work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from agentls.workspace.disk import NotRegular, Stamp, TooLarge, read, stamp
from agentls.workspace.editor import Editor
from agentls.workspace.positions import Change, Lines, Position
from agentls.workspace.roots import real
from agentls.workspace.texts import shows
from agentls.workspace.uris import to_path

_COMPARED_MAX = 64 << 20
"""Bytes of a file that a buffer is compared with. VS Code sends no larger ones at all (50 MB)."""


class NotOpen(LookupError):
    """An editor speaks of a document that it has not opened."""


class Buffer:
    """A file's text as one editor has it. `uri` is as that editor spells it, `path` the real path when it was opened,
    `version` the editor's own count, and `changed` the act that changed it last since it was opened, or 0."""

    def __init__(self, editor: Editor, uri: str, path: Path, version: int, text: str) -> None:
        self.editor = editor
        self.uri = uri
        self.path = path
        self.version = version
        self.changed = 0
        self._lines = Lines(text)
        self._agreed: str | None = None
        self._differed: tuple[Stamp | None] | None = None

    @property
    def text(self) -> str:
        """All of it, with the line endings that the editor sends."""
        return self._lines.text

    @property
    def last_line(self) -> int:
        """The number of its last line."""
        return self._lines.last

    def locate(self, position: Position) -> tuple[int, int]:
        """Line and index in code points of a place as its editor counts; what is outside of the text is at its end."""
        return self._lines.locate(position, self.editor.encoding)

    @property
    def dirty(self) -> bool:
        """Whether it holds work that is not on disk: its text differs from the file as it was last saved or known to
        be the same, and from the file as it is now.

        So a file that another program changes under a clean buffer does not make the buffer dirty. An empty buffer
        of a file that is not there is clean.
        """
        if self._agreed is not None and self._agreed == self.text:
            return False
        now = _stamp(self.path)
        if self._differed == (now,):
            return True
        data = _bytes(self.path) if now is not None else b""
        if data is not None and shows(data, self.text):
            self._agreed = self.text
            return False
        self._differed = (now,)
        return True

    def change(self, version: int, changes: Iterable[Change]) -> None:
        """Each change is in the coordinates that the one before has left."""
        for change in changes:
            self._lines.apply(change, self.editor.encoding)
        self.version = version
        self._differed = None

    def saved(self) -> None:
        """The editor has written it."""
        self._agreed = self.text
        self._differed = None


class Documents:
    """The buffers of all editors of a workspace. It belongs to one thread, and looks at the disk only to follow links
    and to tell whether a buffer is dirty.

    A document is named by the URI under which its editor opened it. One that is no file is a NotAFileUri, one that
    its editor has not opened is a NotOpen.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[Editor, str], Buffer] = {}
        self._active: dict[Editor, int] = {}
        self._acts = 0

    # What editors tell -----------------------------------------------------------------------------------------

    def join(self, editor: Editor) -> None:
        """An editor is there, whether or not it ever opens anything. It counts as active last until one acts."""
        self._active.setdefault(editor, -len(self._active))

    def open(self, editor: Editor, uri: str, *, version: int, text: str) -> Buffer:
        """An editor opened a document; one that it has open already is taken anew. OSError where links lead nowhere."""
        buffer = Buffer(editor, uri, real(to_path(uri)), version, text)
        self._open[editor, uri] = buffer
        self.active(editor)
        _ = buffer.dirty  # Now is when it is most likely to be as on disk, and so known to be clean.
        return buffer

    def change(self, editor: Editor, uri: str, *, version: int | None, changes: Iterable[Change]) -> Buffer:
        """An editor changed a document; each change is in the coordinates that the one before has left. Without a
        version it is counted on."""
        buffer = self._of(editor, uri)
        buffer.change(buffer.version + 1 if version is None else version, changes)
        buffer.changed = self.active(editor)
        return buffer

    def save(self, editor: Editor, uri: str, text: str | None = None) -> Buffer:
        """An editor saved a document. `text` is what it wrote, where it says so."""
        buffer = self._of(editor, uri)
        act = self.active(editor)
        if text is not None and text != buffer.text:
            buffer.change(buffer.version, (Change(text),))
            buffer.changed = act
        buffer.saved()
        return buffer

    def close(self, editor: Editor, uri: str) -> None:
        """An editor closed a document, and with it whatever was unsaved."""
        self._of(editor, uri)
        del self._open[editor, uri]

    def active(self, editor: Editor) -> int:
        """A person did something in this editor; the number of this act, which rises from one to the next."""
        self._acts += 1
        self._active[editor] = self._acts
        return self._acts

    def leave(self, editor: Editor) -> None:
        """An editor is gone, and all its buffers with it."""
        self._open = {key: buffer for key, buffer in self._open.items() if buffer.editor is not editor}
        self._active.pop(editor, None)

    # What tools ask --------------------------------------------------------------------------------------------

    def at(self, path: Path) -> tuple[Buffer, ...]:
        """The buffers of a file by its real path, the one that holds it first: a dirty one, else that of the editor
        that was active last."""
        return self._ranked(buffer for buffer in self._open.values() if buffer.path == path)

    def unsaved(self, path: Path) -> tuple[Buffer, ...]:
        """Those of a file's buffers that are dirty, the one that holds it first. Two with different texts are a
        conflict that only a person can settle."""
        return tuple(buffer for buffer in self.at(path) if buffer.dirty)

    def editors(self) -> tuple[Editor, ...]:
        """All editors that are there, the one that was active last first."""
        return tuple(sorted(self._active, key=lambda editor: -self._active[editor]))

    def all_unsaved(self) -> tuple[Buffer, ...]:
        """All dirty buffers by path, of each file the one that holds it first."""
        dirty = self._ranked(buffer for buffer in self._open.values() if buffer.dirty)
        return tuple(sorted(dirty, key=lambda buffer: buffer.path))

    # -----------------------------------------------------------------------------------------------------------

    def _ranked(self, buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
        return tuple(sorted(buffers, key=lambda buffer: (not buffer.dirty, -self._active[buffer.editor])))

    def _of(self, editor: Editor, uri: str) -> Buffer:
        try:
            return self._open[editor, uri]
        except KeyError:
            raise NotOpen(f'{editor.name} has not opened "{uri}"') from None


def _stamp(path: Path) -> Stamp | None:
    """A file's stamp, or None where there is none."""
    try:
        return stamp(os.stat(path))
    except OSError:
        return None


def _bytes(path: Path) -> bytes | None:
    """The file, or None for what cannot be compared with: it is then not known to be saved."""
    try:
        return read(path, _COMPARED_MAX)
    except (OSError, NotRegular, TooLarge):
        return None
