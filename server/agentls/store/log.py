"""One session's log in SQLite, held for writing by this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from agentls.core.blocks import text_of
from agentls.core.codec import encode
from agentls.core.errors import LogicError
from agentls.core.events import (
    AgentConfig,
    AssistantMessage,
    Event,
    EventData,
    SessionHeader,
    SessionTitle,
    UserMessage,
)
from agentls.core.ids import MessageId
from agentls.core.sources import is_person
from agentls.core.visible import one_line
from agentls.store import payload
from agentls.store.drafts import Drafts
from agentls.store.lock import SessionLock
from agentls.store.reader import ReadingThread
from agentls.store.store import DraftPiece
from agentls.store.transaction import Batch, Row, Tail
from agentls.store.writer import Answer, Writer

_PACK_INLINE = 16 * 1024  # Bytes that take the event loop a fifth of a millisecond; longer ones are the writer's.
_ROWS_INLINE = 100  # Events that take the event loop 3 ms; a fork copies thousands, whose rows the writer makes.
_EVENTS_A_READ = 1000
_SUMMARY_OF = 4096  # Characters that a summary is made of, since a long text need not be read whole for one line.

T = TypeVar("T")


class SqliteLog:
    """A SessionLog; made by SqliteStore."""

    def __init__(
        self,
        tail: Tail,
        lock: SessionLock,
        writer: Writer,
        drafts: Drafts,
        reads: ReadingThread,
        forget: Callable[[SqliteLog], None],
    ) -> None:
        self._tail = tail
        self._lock = lock
        self._writer = writer
        self._drafts = drafts
        self._reads = reads
        self._forget = forget
        self._next_piece = drafts.next_number(tail.header.id)
        self._released: Answer | None = None

    @property
    def header(self) -> SessionHeader:
        """The row beside the log."""
        return self._tail.header

    def commit(self, events: Sequence[Event], *, durable: bool, more: bool = False) -> Coroutine[Any, Any, None]:
        """See SessionLog. The batch is in line when this returns, so that it is written whatever becomes of the
        awaiting task, and order of call is order of commit. A batch that does not continue the stored log is a
        LogicError, and so is an event that JSON cannot hold; nothing of it is stored. After StoreUnavailable every
        batch is refused until `probe` succeeds."""
        self._require_held()
        for one, next_one in pairwise(events):
            if next_one.seq != one.seq + 1:
                raise LogicError(f'event {one.seq} of session "{self.header.id}" is followed by {next_one.seq}')
        batch = Batch(
            self._tail,
            _rows_of(tuple(events)),
            durable,
            more=more,
            title=_newest(events, lambda data: data.title if isinstance(data, SessionTitle) else None),
            summary=_newest(events, _said),
            model=_newest(events, lambda data: data.model if isinstance(data, AgentConfig) else None),
        )
        return _outcome(self._writer.append(batch))

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        """See SessionLog; one transaction."""
        self._require_held()
        if pieces:
            self._drafts.append(self.header.id, self._next_piece, pieces)
            self._next_piece += len(pieces)

    def drop_drafts(self, message: MessageId) -> None:
        """See SessionLog; StoreUnavailable when it fails."""
        self._require_held()
        self._drafts.drop(self.header.id, message)

    async def drafts(self) -> tuple[DraftPiece, ...]:
        """See SessionLog."""
        self._require_held()
        return self._drafts.pieces(self.header.id)

    async def read(self, start: int = 0, stop: int | None = None) -> tuple[Event, ...]:
        """See SessionLog. A long read is cut, so that those of other sessions get in between."""
        self._require_held()
        if start < 0:
            raise ValueError(f"a log starts at 0, not at {start}")
        if (key := self._tail.key) is None:
            return ()
        length = await self._reads.length(key)
        end = length if stop is None else min(stop, length)
        events: list[Event] = []
        for first in range(start, end, _EVENTS_A_READ):
            events += await self._reads.events(self.header.id, key, first, min(first + _EVENTS_A_READ, end))
        return tuple(events)

    async def page(self, before: int, limit: int) -> tuple[Event, ...]:
        """See SessionLog. What lies between turns comes along, so that pages, each asked for before the first seq of
        the one that follows it, give every event once."""
        self._require_held()
        if (key := self._tail.key) is None:
            return ()
        return await self._reads.page(self.header.id, key, before, limit)

    async def probe(self) -> None:
        """See SessionLog. Both databases are tried; success lets batches through again, and the first of them is what
        the failed one was to be."""
        self._require_held()
        await _outcome(self._writer.probe(self._tail))
        self._drafts.beat()

    async def close(self) -> None:
        """See SessionLog. Safe twice."""
        await asyncio.shield(self.let_go())

    def let_go(self) -> Answer:
        """Close without waiting: the session is free once all that was given is done."""
        if self._released is None:
            self._released = self._writer.release(self._lock)
            self._released.add_done_callback(lambda _: self._forget(self))
        return self._released

    def _require_held(self) -> None:
        if self._released is not None:
            raise LogicError(f'session "{self.header.id}" is closed')


async def _outcome(answer: Answer) -> None:
    fault = await answer
    if fault is not None:
        raise fault


def _newest(events: Sequence[Event], fact: Callable[[EventData], T | None]) -> T | None:
    """The last of what `fact` finds in the events, or None."""
    return next((found for event in reversed(events) if (found := fact(event.data)) is not None), None)


def _said(data: EventData) -> str | None:
    """What a person or the model says in an event, as one plain line; None where they say nothing."""
    match data:
        case UserMessage(message) if is_person(message.source):
            text = text_of(message.content)
        case AssistantMessage(message=message):
            text = text_of(message.content)
        case _:
            return None
    return one_line(text.lstrip()[:_SUMMARY_OF]) or None


def _rows_of(events: tuple[Event, ...]) -> Callable[[], tuple[Row, ...]]:
    """The events' rows, made now where that is short work, else when they are asked for."""
    if len(events) > _ROWS_INLINE:
        return lambda: tuple(map(_row, events))
    rows = tuple(map(_row, events))
    return lambda: rows


def _row(event: Event) -> Row:
    fields = dict(encode(event.data))
    kind = fields.pop("type")
    assert isinstance(kind, str)
    try:
        text = payload.dump(fields)
    except ValueError as error:
        raise LogicError(f'event {event.seq} of type "{kind}" cannot be written as JSON: {error}') from error
    stored = payload.pack(text) if len(text) <= _PACK_INLINE else text
    return Row(event.seq, event.time, kind, event.ignorable, stored)
