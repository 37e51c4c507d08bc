"""A session that can only be read, since its log is damaged or holds what this version does not know: all of it that
is left is drawn, each part that is not says so, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agentls.agent import fates
from agentls.agent.agent import (
    Agent,
    Answered,
    Cancelled,
    Changed,
    Content,
    Decision,
    IfIdle,
    Mode,
    Page,
    Part,
    Sent,
    Target,
    UnknownBlock,
    UnknownRequest,
)
from agentls.agent.state import AgentState, EditorFacts, agent_state, inbox_of
from agentls.agent.view import View
from agentls.core import rows
from agentls.core.bodies import PREVIEW_BYTES
from agentls.core.errors import LogicError, UserError
from agentls.core.events import (
    Dequeue,
    Enqueue,
    Event,
    EventData,
    Hold,
    Mention,
    ModelRef,
    SessionTitle,
    ToolCall,
    ToolResult,
)
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId, user_block, volatile_block
from agentls.core.inbox import content_hash, retry_hash
from agentls.core.json import JsonValue
from agentls.core.messages import Message
from agentls.core.reasons import CancelCause
from agentls.core.requests import Requests
from agentls.core.rows import Block
from agentls.core.session import SessionState
from agentls.core.sources import MessageSource, UserSource, form_of, is_person
from agentls.core.transcript import Append, Change, Drop, Put, Transcript
from agentls.store.store import Damaged, Salvage

_HELD = Hold(held=True, cause="interrupted", before=2**53)
_SENSELESS = (LogicError, AssertionError, LookupError)
"""What a fold may raise over events whose like no log of ours holds."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is drawn of a session that can only be read. `whole` is the log up to the first damage and `state` what it
    says, with what waits by all that is left; `full` are the blocks with nothing left out."""

    whole: tuple[Event, ...]
    state: SessionState
    blocks: tuple[Block, ...]
    full: tuple[Block, ...]


def what_is_left(salvage: Salvage, why: str) -> Left:
    """Fold and render what can be read; `why` is what is wrong, in plain words. It may take a while."""
    whole, state = _prefix(salvage)
    inbox = state.inbox
    for event in _events(salvage):
        if event.seq >= len(whole):
            with suppress(LogicError):  # Of a message that came or left in a part that is lost.
                inbox = inbox.apply(event)
            if isinstance(event.data, SessionTitle):
                state = replace(state, title=event.data.title)
    drawn = _Drawn(salvage, PREVIEW_BYTES)
    entered = (item.item.id for item in inbox.pending() if user_block(item.item.id) in drawn.blocks)
    inbox = inbox.without(tuple(entered)).apply(Event(state.next_seq, state.last_time, _HELD))
    # Nothing runs, and nobody can answer what was asked.
    state = replace(state, inbox=inbox, turns=replace(state.turns, open=None, early=None), requests=Requests())
    told = rows.read_only_row(why)
    return Left(whole, state, (*drawn.rows(), told), (*rendered(salvage), told))


def rendered(salvage: Salvage) -> tuple[Block, ...]:
    """The blocks of what is left of a session, with nothing left out."""
    return _Drawn(salvage, None).rows()


class ReadOnlyAgent(Agent):
    """An agent that refuses whatever would be written."""

    def __init__(
        self, agent_id: AgentId, left: Left, why: UserError, *, workspace: str, epoch: str, default_model: ModelRef
    ) -> None:
        self.id = agent_id
        self.workspace = workspace
        self.view = View(epoch, left.blocks)
        self._why = why
        self._whole = left.whole
        self._full = {block.id: block for block in left.full}
        self._state = left.state
        self._default_model = default_model
        self.set_editors(())

    async def send(
        self,
        content: Content,
        *,
        id: MessageId,
        target: Target = "next-turn",
        wakeup: bool = True,
        source: MessageSource | None = None,
        contexts: tuple[Mention, ...] = (),
        meta: JsonValue = None,
        expected_turn: int | None = None,
        if_idle: IfIdle = "start",
    ) -> Sent:
        return self._refused(id, content, content_hash(content, form_of(source or UserSource())))

    async def retry(self, turn: int, *, id: MessageId) -> Sent:
        return self._refused(id, (), retry_hash(turn))

    def _refused(self, message: MessageId, content: Content, hashed: str) -> Sent:
        known = fates.repeated(self._state, message, hashed)
        if isinstance(known, Sent):
            return known
        return Sent(message, "refused", reason=known or "read-only", content=content)

    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        return Cancelled("idle", inbox_of(self._state.inbox))

    async def remove(self, message: MessageId) -> Changed:
        raise self._refusal()

    async def edit(self, message: MessageId, content: Content) -> Changed:
        raise self._refusal()

    async def move(self, message: MessageId, before: MessageId | None) -> Changed:
        raise self._refusal()

    async def promote(self, message: MessageId) -> Changed:
        raise self._refusal()

    async def resume(self) -> Changed:
        raise self._refusal()

    async def answer(
        self,
        request: RequestId,
        decision: Decision,
        *,
        shown: str,
        by: str,
        note: str | None = None,
        content: JsonValue = None,
    ) -> Answered:
        raise UnknownRequest(request)

    async def configure(
        self, *, model: ModelRef | None = None, mode: Mode | None = None, title: str | None = None, by: str = "person"
    ) -> None:
        raise self._refusal()

    def _refusal(self) -> UserError:
        return type(self._why)(f"it can only be read: {self._why}")

    async def block(self, block: BlockId, start: int = 0, end: int | None = None) -> Part:
        whole = self._full.get(block)
        if whole is None:
            raise UnknownBlock(block)
        return Part.of(whole.body, start, end)

    async def page(self, before: tuple[int, int], limit: int) -> Page:
        blocks, more = self.view.page(before, limit)
        return Page(blocks, blocks[0].block.order if more else None)

    async def events(self) -> tuple[Event, ...]:
        """The log up to the first damage, which is all that anything may rest on."""
        return self._whole

    def set_editors(self, editors: tuple[EditorFacts, ...]) -> None:
        self.view.publish_state(self._facts(editors))

    async def close(self) -> None:
        self.view.end()

    def _facts(self, editors: tuple[EditorFacts, ...]) -> AgentState:
        return agent_state(
            self.id,
            self._state,
            model=self._state.model or self._default_model,
            usable=False,
            context_window=0,
            editors=editors,
            store="read-only",
        )


def _events(salvage: Salvage) -> Iterator[Event]:
    for part in salvage.log:
        event = part.event if isinstance(part, Damaged) else part
        if event is not None:
            yield event


def _prefix(salvage: Salvage) -> tuple[tuple[Event, ...], SessionState]:
    """The events before the first that is damaged or breaks a rule, and the state after them."""
    whole: list[Event] = []
    state = SessionState()
    for part in salvage.log:
        if isinstance(part, Damaged):
            break
        try:
            state = state.apply(part)
        except LogicError:
            break
        whole.append(part)
    return tuple(whole), state


class _Drawn:
    """The blocks of what is left, each damage a row of its own in its place."""

    def __init__(self, salvage: Salvage, preview_bytes: int | None) -> None:
        self.blocks: dict[BlockId, Block] = {}
        self._transcript = Transcript(preview_bytes)
        for n, part in enumerate(salvage.log):
            if isinstance(part, Damaged):
                self._damage(part, n)
            event = part.event if isinstance(part, Damaged) else part
            if event is not None:
                self._event(event)
        for piece in salvage.drafts:
            with suppress(*_SENSELESS):
                self._draw(*self._transcript.draft(piece.message, piece.index, piece.kind, piece.text))
        self._lost_messages(salvage)

    def rows(self) -> tuple[Block, ...]:
        """In order; nothing streams any more."""
        ended = (replace(one, state="interrupted") if one.state == "streaming" else one for one in self.blocks.values())
        return tuple(sorted(ended, key=lambda block: (block.order, block.id)))

    def _damage(self, damaged: Damaged, n: int) -> None:
        last = damaged.stop - 1
        row = rows.damage_row(volatile_block(n + 2), damaged.first, last, damaged.why, kept=damaged.event is not None)
        self.blocks[row.id] = row
        # What follows may have lost the request that it belongs to, and is to stand behind this.
        self._transcript = replace(self._transcript, request_seq=last)

    def _event(self, event: Event) -> None:
        data = event.data
        with suppress(*_SENSELESS):
            if isinstance(data, ToolResult) and data.call_id not in self._transcript.calls:
                call = ToolCall(data.turn, data.step, data.call_id, "a call that is lost", "")
                self._draw(*self._transcript.apply(replace(event, data=call)))
            self._draw(*self._transcript.apply(event))

    def _draw(self, transcript: Transcript, changes: Sequence[Change]) -> None:
        self._transcript = transcript
        for change in changes:
            match change:
                case Put(block):
                    self.blocks[block.id] = block
                case Append(block_id, text):
                    self.blocks[block_id] = replace(self.blocks[block_id], body=self.blocks[block_id].body + text)
                case Drop(block_id):
                    self.blocks.pop(block_id, None)

    def _lost_messages(self, salvage: Salvage) -> None:
        """What a person said stands in the log twice: where it came in, and where it was read."""
        left = {message for event in _events(salvage) for message in _left_by(event.data)}
        for event in _events(salvage):
            data = event.data
            if isinstance(data, Enqueue) and data.item.id in left and is_person(data.item.source):
                row = rows.person_row(
                    Message(data.item.id, "user", data.item.content, data.item.source), data.item.lane, event.seq
                )
                self.blocks.setdefault(row.id, row)


def _left_by(data: EventData) -> tuple[MessageId, ...]:
    """The message that enters a turn by this event."""
    return (data.id,) if isinstance(data, Dequeue) else ()
