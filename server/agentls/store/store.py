"""What the agent asks of a session store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentls.core.events import Event, ModelRef, SessionHeader
from agentls.core.ids import MessageId, SessionId
from agentls.core.transcript import PieceKind


@dataclass(frozen=True, slots=True)
class DraftPiece:
    """Text in flight: `text` extends block `index` of message `message` at `offset`, in UTF-8 bytes of the raw text.

    `kind` is `text` or `reasoning`; `index` is the block's place of first appearance in the stream.
    """

    message: MessageId
    index: int
    kind: PieceKind
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A row of the list; `last_time` is that of the newest event in epoch milliseconds. `summary` is one plain line of
    what the person or the model said last, `model` the one configured last. `damaged` says why the session cannot be
    opened for writing, in plain words, or is None."""

    header: SessionHeader
    title: str | None
    events: int
    last_time: int
    summary: str | None = None
    model: ModelRef | None = None
    damaged: str | None = None


@dataclass(frozen=True, slots=True)
class Damaged:
    """A part of a log that is not as it was written: events with first <= seq < stop, and why, in plain words. `event`
    is what a single one seems to hold, where that can be told; it may be wrong."""

    first: int
    stop: int
    why: str
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is left of a session. `fault` says what is wrong beside the log, or is None."""

    header: SessionHeader
    log: tuple[Event | Damaged, ...]
    drafts: tuple[DraftPiece, ...] = ()
    fault: str | None = None


class SessionLog(Protocol):
    """One session, held for writing by this process until `close`."""

    @property
    def header(self) -> SessionHeader:
        """The row beside the log."""

    async def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> None:
        """Write a batch in one transaction, in order after all earlier ones of this log; with `durable` it has
        reached the disk on return. Events must continue the stored log without a gap. Calls may overlap: the writer
        thread takes all that wait in one group, and `more` has it wait for a moment, since another batch is about to
        be given. A write that fails raises StoreUnavailable, nothing of the batch is stored, and every later batch
        already given fails too, since it rests on this one."""

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        """Write text in flight, inline and at once (no thread, synchronous NORMAL). StoreUnavailable when it fails."""

    def drop_drafts(self, message: MessageId) -> None:
        """Forget a message's text in flight, once its finished form is in the log."""

    async def drafts(self) -> tuple[DraftPiece, ...]:
        """All text in flight that is stored, in the order in which it was written."""

    async def read(self, start: int = 0, stop: int | None = None) -> tuple[Event, ...]:
        """Events with start <= seq < stop, in order; SessionDamaged or UnsupportedFormat when they cannot be read."""

    async def page(self, before: int, limit: int) -> tuple[Event, ...]:
        """Whole turns that end before seq `before`, newest last: as many as it takes for `limit` events, and at least
        one where there is any. An indexed read, whose cost does not grow with the log."""

    async def probe(self) -> None:
        """Write and sync one row to learn whether the disk takes writes again; StoreUnavailable while it does not."""

    async def close(self) -> None:
        """Wait for what was given, then let the session go."""


class SessionStore(Protocol):
    """All sessions of a user."""

    async def create(self, header: SessionHeader) -> SessionLog:
        """A new session, held; it is in no list before its first event. An id that is taken is a ValueError."""

    async def open(self, session: SessionId) -> SessionLog:
        """Hold a stored session for writing: SessionHeld (with the holder's pid) while another process has it, also
        a second time in this one; UnknownSession where there is none; UnsupportedFormat for a newer one; SessionDamaged
        where its row is not as it was written."""

    async def salvage(self, session: SessionId) -> Salvage:
        """All that can be read of a stored session, without holding it and whatever is wrong with it; nothing on disk
        changes. UnknownSession where there is none; UnsupportedFormat for a newer one."""

    async def list(
        self, workspace: str | None = None, *, limit: int = 50, after: str | None = None
    ) -> tuple[tuple[SessionSummary, ...], str | None]:
        """Summaries, newest first, of one workspace URI or all, and the cursor of the next page."""

    async def delete(self, session: SessionId) -> None:
        """Remove all of a session: row, events, text in flight. It is gone from the disk on return, and whole where
        this raises; whoever waits may be cancelled, and it is done all the same. SessionHeld while it is open, also in
        this process; UnknownSession where there is none; UnsupportedFormat for a newer one; StoreUnavailable."""

    async def close(self) -> None:
        """Close every log and the files."""
