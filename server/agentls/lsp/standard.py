"""The wire types of plain LSP that clients send, as far as they matter here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from agentls.lsp.wire import Params, Range


class TextDocument(Params):
    """Which document."""

    uri: str


class VersionedDocument(TextDocument):
    """Which document, and the client's count of its changes."""

    version: int


class ChangedDocument(TextDocument):
    """Which document, and the client's count of its changes, where it keeps one."""

    version: int | None = None


class OpenedDocument(VersionedDocument):
    """A document and all of its text."""

    text: str


class DidOpenParams(Params):
    """An editor opened a document."""

    text_document: OpenedDocument


class ContentChange(Params):
    """A text in place of a range, or of everything."""

    range: Range | None = None
    text: str


class DidChangeParams(Params):
    """An editor changed a document; each change is in the coordinates that the one before has left."""

    text_document: ChangedDocument
    content_changes: list[ContentChange]


class DidSaveParams(Params):
    """An editor saved a document; `text` is what it wrote, where it says so."""

    text_document: TextDocument
    text: str | None = None


class DidCloseParams(Params):
    """An editor closed a document."""

    text_document: TextDocument


class FileEvent(Params):
    """A file that came, changed or went; which of them does not matter here."""

    uri: str


class DidChangeWatchedFilesParams(Params):
    """Files changed on disk."""

    changes: list[FileEvent]


def _form_of_token(raw: Any) -> str | None:
    return "#text" if isinstance(raw, str) else "#number" if isinstance(raw, int) else None


Token = Annotated[Annotated[int, Tag("#number")] | Annotated[str, Tag("#text")], Discriminator(_form_of_token)]
"""What names a progress. The tags keep the path of an error to the field."""


class ProgressCancelParams(Params):
    """A person stopped what a progress shows."""

    token: Token
