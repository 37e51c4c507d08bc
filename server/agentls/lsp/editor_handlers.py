"""The notifications of an editor: its documents, what the person looks at, files on disk. None is answered.

A document that is no file (`untitled:`, `output:`, …) is passed over without a word. What a client says wrongly of a
document is told to the log once, and its text never.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from agentls.lsp import methods, standard, wire
from agentls.lsp.binding import Notification, notification
from agentls.lsp.editor import ConnectedEditor, is_file
from agentls.lsp.ports import Host
from agentls.workspace.documents import Buffer, NotOpen
from agentls.workspace.positions import Change, Position, Range
from agentls.workspace.uris import to_path

logger = logging.getLogger(__name__)


class EditorHandlers:
    """One short function per notification: decode, and tell the host's documents."""

    def __init__(self, host: Host, editor: ConnectedEditor) -> None:
        self._host = host
        self._documents = host.documents
        self._editor = editor
        self._buffers: dict[str, Buffer] = {}
        self._faulty: set[str] = set()

    def table(self) -> Mapping[str, Notification]:
        """Each by the name of its method."""
        return dict(
            (
                notification(methods.DID_OPEN, self.opened),
                notification(methods.DID_CHANGE, self.changed),
                notification(methods.DID_SAVE, self.saved),
                notification(methods.DID_CLOSE, self.closed),
                notification(methods.DID_CHANGE_WATCHED_FILES, self.files_changed),
                notification(methods.EDITOR_STATE, self.looked),
            )
        )

    def leave(self) -> None:
        """The editor is gone, and all that it had open."""
        self._documents.leave(self._editor)
        self._buffers.clear()

    # Documents -------------------------------------------------------------------------------------------------

    def opened(self, params: standard.DidOpenParams) -> None:
        document = params.text_document
        self._hear(document.uri, lambda: self._open(document))

    def _open(self, document: standard.OpenedDocument) -> None:
        self._buffers[document.uri] = self._documents.open(
            self._editor, document.uri, version=document.version, text=document.text
        )
        self._faulty.discard(document.uri)

    def changed(self, params: standard.DidChangeParams) -> None:
        document, changes = params.text_document, tuple(map(_change, params.content_changes))
        self._hear(
            document.uri,
            lambda: self._documents.change(self._editor, document.uri, version=document.version, changes=changes),
        )

    def saved(self, params: standard.DidSaveParams) -> None:
        uri = params.text_document.uri
        self._hear(uri, lambda: self._documents.save(self._editor, uri, params.text))

    def closed(self, params: standard.DidCloseParams) -> None:
        uri = params.text_document.uri
        self._buffers.pop(uri, None)
        self._hear(uri, lambda: self._documents.close(self._editor, uri))
        self._faulty.discard(uri)

    def _hear(self, uri: str, deed: Callable[[], object]) -> None:
        if not is_file(uri):
            return
        try:
            deed()
        except (NotOpen, OSError) as error:
            if uri not in self._faulty:
                self._faulty.add(uri)
                logger.warning("what a client says of a document is left out: %s", error)

    # The rest --------------------------------------------------------------------------------------------------

    def looked(self, params: wire.EditorStateParams) -> None:
        active = self._editor.active_after(params)
        self._editor.look(params, self._buffers.get(active) if active is not None else None)
        self._documents.active(self._editor)

    def files_changed(self, params: standard.DidChangeWatchedFilesParams) -> None:
        paths = [to_path(change.uri) for change in params.changes if is_file(change.uri)]
        if paths:
            self._host.told_changed(paths)


def _change(change: standard.ContentChange) -> Change:
    if change.range is None:
        return Change(change.text)
    start, end = change.range.start, change.range.end
    return Change(change.text, Range(Position(start.line, start.character), Position(end.line, end.character)))
