"""The notifications of an editor: its documents, what the person looks at, files on disk. None is answered.

The text of a document that is no file (`untitled:`, `output:`, …) is passed over without a word; that it is looked at
or unsaved is not. What a client says wrongly of a document is told to the log once, and its text never. A buffer is
forgotten that a change of it could not be taken into: what follows would be put in wrong places. A whole text brings it
back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from agentls.core.json import JsonValue
from agentls.lsp import methods, standard, wire
from agentls.lsp.binding import Notification, notification
from agentls.lsp.editor import ConnectedEditor, is_file, to_range
from agentls.lsp.errors import InvalidParams
from agentls.lsp.ports import Host
from agentls.workspace.documents import NotOpen
from agentls.workspace.positions import Change
from agentls.workspace.uris import to_path

logger = logging.getLogger(__name__)


class EditorHandlers:
    """One short function per notification: decode, and tell the host's documents."""

    def __init__(self, host: Host, editor: ConnectedEditor) -> None:
        self._host = host
        self._documents = host.documents
        self._editor = editor
        self._lost: set[str] = set()
        self._faulty: set[str] = set()

    def table(self) -> Mapping[str, Notification]:
        """Each by the name of its method."""
        return dict(
            (
                notification(methods.DID_OPEN, self.opened),
                (methods.DID_CHANGE.name, self._read_change),
                notification(methods.DID_SAVE, self.saved),
                notification(methods.DID_CLOSE, self.closed),
                notification(methods.DID_CHANGE_WATCHED_FILES, self.files_changed),
                notification(methods.EDITOR_STATE, self.looked),
            )
        )

    def leave(self) -> None:
        """The editor is gone, and all that it had open."""
        self._documents.leave(self._editor)
        self._lost.clear()

    # Documents -------------------------------------------------------------------------------------------------

    def opened(self, params: standard.DidOpenParams) -> None:
        document = params.text_document
        self._hear(document.uri, lambda: self._open(document))

    def _open(self, document: standard.OpenedDocument) -> None:
        self._documents.open(self._editor, document.uri, version=document.version, text=document.text)
        self._lost.discard(document.uri)
        self._faulty.discard(document.uri)

    def _read_change(self, raw: JsonValue) -> None:
        try:
            params = methods.DID_CHANGE.decode(raw)
        except InvalidParams:
            self._lose(_uri(raw))
            raise
        self.changed(params)

    def changed(self, params: standard.DidChangeParams) -> None:
        document = params.text_document
        changes = tuple(map(_change, params.content_changes))
        try:
            self._hear(document.uri, lambda: self._change(document, changes))
        except Exception:
            self._lose(document.uri)
            raise

    def _change(self, document: standard.ChangedDocument, changes: Sequence[Change]) -> None:
        uri, version = document.uri, document.version
        if uri in self._lost:
            whole = next((n for n, change in enumerate(changes) if change.range is None), None)
            if whole is None:
                return
            self._documents.open(self._editor, uri, version=version or 0, text=changes[whole].text)
            self._lost.discard(uri)
            self._faulty.discard(uri)
            changes = changes[whole + 1 :]
        self._documents.change(self._editor, uri, version=version, changes=changes)

    def _lose(self, uri: str | None) -> None:
        """Forget a buffer until its whole text comes: an agent reads the file then, and not what nobody has written."""
        if uri is None or uri in self._lost or not is_file(uri):
            return
        try:
            self._documents.close(self._editor, uri)
        except NotOpen:
            return
        self._lost.add(uri)
        logger.warning("a change of a document cannot be taken; it is read from disk until all of it is told: %s", uri)

    def saved(self, params: standard.DidSaveParams) -> None:
        uri = params.text_document.uri
        if uri not in self._lost:
            self._hear(uri, lambda: self._documents.save(self._editor, uri, params.text))

    def closed(self, params: standard.DidCloseParams) -> None:
        uri = params.text_document.uri
        if uri not in self._lost:
            self._hear(uri, lambda: self._documents.close(self._editor, uri))
        self._lost.discard(uri)
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
        self._editor.look(params, self._documents.active(self._editor))

    def files_changed(self, params: standard.DidChangeWatchedFilesParams) -> None:
        paths = [to_path(change.uri) for change in params.changes if is_file(change.uri)]
        if paths:
            self._host.told_changed(paths)


def _uri(raw: JsonValue) -> str | None:
    """The document that a notification is about, which is malformed elsewhere."""
    document = raw.get("textDocument") if isinstance(raw, Mapping) else None
    uri = document.get("uri") if isinstance(document, Mapping) else None
    return uri if isinstance(uri, str) else None


def _change(change: standard.ContentChange) -> Change:
    return Change(change.text, to_range(change.range) if change.range is not None else None)
