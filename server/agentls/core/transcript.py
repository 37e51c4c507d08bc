"""What a person sees: rendered blocks, from the log's events and from the text in flight.

The fold keeps only what later events need; the blocks themselves are the caller's. `apply` and `draft` answer with
changes in the order in which they are to be drawn. It may start at any turn's first event, so that an old page is
rendered from its own events alone. What each row looks like is in rows.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from agentls.core import ids, rows
from agentls.core.blocks import ReasoningBlock, TextBlock, ToolResultBlock
from agentls.core.bodies import PREVIEW_BYTES
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantAttempt,
    AssistantMessage,
    Dequeue,
    Event,
    Lane,
    QuestionAnswered,
    QuestionAsked,
    RequestSent,
    Retry,
    RetryStarted,
    StepStart,
    ToolCall,
    ToolResult,
    ToolStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import BlockId, CallId, MessageId, RequestId
from agentls.core.messages import Message
from agentls.core.reasons import FINISHES, FinishReason, InjectionTrigger, TurnFailed
from agentls.core.requests import unanswered
from agentls.core.rows import Block, BlockState
from agentls.core.sources import ModelSource, Snapshot, form_of, is_person, producer_of
from agentls.core.visible import visible

PieceKind = Literal["text", "reasoning"]
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Put:
    """Draw this block, in place of the one with its id if there is one."""

    block: Block


@dataclass(frozen=True, slots=True)
class Append:
    """Extend a streaming block's body by `text`."""

    id: BlockId
    text: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove a block."""

    id: BlockId


Change: TypeAlias = Put | Append | Drop


@dataclass(frozen=True, slots=True)
class _Flight:
    """A block in flight: its text is kept back while it is blank, since a blank row is no row."""

    blank: str = ""
    shown: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    """A call without a result, and its row; `started` once its body may have run."""

    row: Block
    started: bool = False


@dataclass(frozen=True, slots=True)
class _Request:
    """An open request and its row; `tool` is the name of the call that it belongs to."""

    row: Block
    asked: ApprovalAsked | QuestionAsked
    tool: str = ""

    def closed(self, by: ApprovalDecided | QuestionAnswered) -> Block:
        """The row once it is answered or closed."""
        match self.asked, by:
            case ApprovalAsked(), ApprovalDecided():
                return rows.decided_row(self.row, self.asked, self.tool, by)
            case QuestionAsked(), QuestionAnswered():
                return rows.answered_row(self.row, self.asked, by)
        raise AssertionError("an approval is decided and a question answered")


@dataclass(frozen=True, slots=True)
class _Wait:
    """A retry that waits, and its row."""

    row: Block
    retry: Retry
    provider: str | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """The fold's state: where in the log it is and what is still open. `provider` is that of the last failed attempt,
    `asked` counts the requests of each call, `steering` are messages that an open turn has just taken, and `producers`
    those whose snapshots it has come by, or that stand before where it begins. `preview_bytes` bounds the bodies of
    tools and contexts; with None they are whole."""

    preview_bytes: int | None = PREVIEW_BYTES
    turn: int | None = None
    step: int | None = None
    injection: bool = False
    request_seq: int = 0
    provider: str | None = None
    steering: frozenset[MessageId] = frozenset()
    flights: Mapping[BlockId, _Flight] = field(default_factory=dict)
    calls: Mapping[CallId, _Call] = field(default_factory=dict)
    asked: Mapping[CallId, int] = field(default_factory=dict)
    requests: Mapping[RequestId, _Request] = field(default_factory=dict)
    wait: _Wait | None = None
    producers: frozenset[str] = frozenset()

    # From the log ----------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> tuple[Transcript, tuple[Change, ...]]:
        """The state after `event`, and what it draws."""
        match event.data:
            case Dequeue(message) if self.turn is not None:
                return replace(self, steering=self.steering | {message}), ()
            case TurnStart(turn, trigger):
                injection = isinstance(trigger, InjectionTrigger)
                return replace(self, turn=turn, step=None, injection=injection, provider=None), ()
            case StepStart(_, step):
                return replace(self, step=step), ()
            case RequestSent():
                return replace(self, request_seq=event.seq, provider=None), ()
            case UserMessage(message):
                return self._message(message, event.seq)
            case AssistantMessage():
                return self._answer(event.data, event.seq)
            case AssistantAttempt():
                return self._attempt(event.data, event.seq)
            case Retry():
                return self._retry(event.data, event.seq)
            case RetryStarted(retry_id):
                return self._retried(retry_id)
            case ToolCall():
                return self._call(event.data, event.seq)
            case ToolStart(call_id) if call_id in self.calls:
                started = replace(self.calls[call_id], started=True)
                return replace(self, calls={**self.calls, call_id: started}), ()
            case ApprovalAsked() | QuestionAsked():
                return self._ask(event.data, event.seq)
            case ApprovalDecided() | QuestionAnswered():
                return self._close(event.data)
            case ToolResult():
                return self._result(event.data)
            case TurnEnd():
                return self._end(event.data, event.seq)
        return self, ()

    def _placed(self, row: Block) -> Block:
        """A row that says which turn and step it belongs to."""
        return replace(row, turn=self.turn, step=self.step)

    def _message(self, message: Message, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        # What an open turn takes steers it, and what starts one steers none. In which lane it waited may stand before
        # its turn, where a page of the log does not reach.
        lane: Lane = "steering" if message.id in self.steering else "queued"
        producers = self.producers
        if is_person(message.source):
            row = rows.person_row(message, lane, seq)
        else:
            producer = producer_of(message.source)
            row = rows.context_row(message, seq, self.preview_bytes, supersedes=producer in producers)
            if isinstance(form_of(message.source), Snapshot):
                producers |= {producer}
        return replace(self, steering=self.steering - {message.id}, producers=producers), (Put(self._placed(row)),)

    def _answer(self, answer: AssistantMessage, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        state: BlockState = "interrupted" if answer.interrupted else "done"
        changes = self._settle(answer.message, seq, state, answer.finish)
        cut = (rows.cut_row(cut, seq, self.request_seq, self.preview_bytes) for cut in answer.cut)
        return replace(self, flights={}), (*changes, *(Put(self._placed(row)) for row in cut))

    def _attempt(self, attempt: AssistantAttempt, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        source = attempt.shown.source
        provider = source.provider if isinstance(source, ModelSource) else None
        return replace(self, flights={}, provider=provider), self._settle(attempt.shown, seq, "failed", None)

    def _settle(self, message: Message, seq: int, state: BlockState, finish: FinishReason | None) -> tuple[Change, ...]:
        """The finished blocks of a message, and the drop of those in flight that it does not hold."""
        changes: list[Change] = []
        drawn = set()
        for index, content in zip(message.indices, message.content, strict=False):
            if not isinstance(content, TextBlock | ReasoningBlock) or not content.text.strip():
                continue
            block = self._piece(message.id, index, content, state)
            reason = FINISHES.kind_of(finish) if finish is not None else None
            finish_name = reason if block.kind == "assistant" else None
            drawn.add(block.id)
            changes.append(Put(replace(block, seq=seq, finish=finish_name)))
        lost = [block for block, flight in self.flights.items() if flight.shown and block not in drawn]
        return (*changes, *map(Drop, lost))

    def _piece(self, message: MessageId, index: int, content: TextBlock | ReasoningBlock, state: BlockState) -> Block:
        return self._placed(rows.piece_row(message, index, content, state, self.request_seq))

    def _retry(self, retry: Retry, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        row = self._placed(rows.retry_row(retry, self.provider, seq))
        return replace(self, wait=_Wait(row, retry, self.provider)), (Put(row),)

    def _retried(self, retry_id: str) -> tuple[Transcript, tuple[Change, ...]]:
        wait = self.wait
        if wait is None or wait.retry.retry_id != retry_id:
            return self, ()
        return replace(self, wait=None), (Put(rows.retried_row(wait.row, wait.retry, wait.provider, started=True)),)

    def _call(self, call: ToolCall, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        row = self._placed(rows.call_row(call, seq, self.preview_bytes))
        return replace(self, calls={**self.calls, call.call_id: _Call(row)}), (Put(row),)

    def _result(self, result: ToolResult) -> tuple[Transcript, tuple[Change, ...]]:
        call = self.calls.get(result.call_id)
        if call is None:
            return self, ()
        content = tuple(
            inner for outer in result.message.content if isinstance(outer, ToolResultBlock) for inner in outer.content
        )
        error = result.error.code if result.error is not None else None
        done = rows.result_row(call.row, content, error, self.preview_bytes, started=call.started)
        return replace(self, calls=_without(self.calls, result.call_id)), (Put(done),)

    def _ask(self, asked: ApprovalAsked | QuestionAsked, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        """A request stands behind the call that it belongs to, after those that came before it."""
        call = self.calls.get(asked.call_id) if asked.call_id is not None else None
        order, counts, tool = (seq, 0), self.asked, "a call"
        if asked.call_id is not None and call is not None:
            earlier = self.asked.get(asked.call_id, 0)
            order, tool = (call.row.order[0], 1 + earlier), call.row.title
            counts = {**self.asked, asked.call_id: earlier + 1}
        if isinstance(asked, ApprovalAsked):
            row = self._placed(rows.approval_row(asked, tool, order, seq))
        else:
            row = self._placed(rows.question_row(asked, order, seq))
        requests = {**self.requests, asked.request_id: _Request(row, asked, tool)}
        return replace(self, asked=counts, requests=requests), (Put(row),)

    def _close(self, closed: ApprovalDecided | QuestionAnswered) -> tuple[Transcript, tuple[Change, ...]]:
        request = self.requests.get(closed.request_id)
        if request is None:
            return self, ()
        return replace(self, requests=_without(self.requests, closed.request_id)), (Put(request.closed(closed)),)

    def _end(self, end: TurnEnd, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        state = Transcript(self.preview_bytes, request_seq=self.request_seq, producers=self.producers)
        if self.injection:
            return state, ()
        changes: list[Change] = [Drop(block) for block, flight in self.flights.items() if flight.shown]
        changes += [Put(request.closed(unanswered(request.asked))) for request in self.requests.values()]
        if self.wait is not None:
            changes.append(Put(rows.retried_row(self.wait.row, self.wait.retry, self.wait.provider, started=False)))
        if isinstance(end.reason, TurnFailed):
            changes.append(Put(replace(rows.failure_row(end.reason.failure, self.provider, seq), turn=end.turn)))
        changes.append(Put(replace(rows.end_row(end, self.provider, seq), turn=end.turn)))
        return state, tuple(changes)

    # From the text in flight, and from the clock ---------------------------------------------------------------

    def draft(
        self, message: MessageId, index: int, kind: PieceKind, text: str
    ) -> tuple[Transcript, tuple[Change, ...]]:
        """The state after `text` more of a block in flight, and what it draws: a put, then appends."""
        block = ids.answer_block(message, index)
        flight = self.flights.get(block, _Flight())
        if flight.shown:
            return self, (Append(block, visible(text)),)
        whole = flight.blank + text
        if not whole.strip():
            return self._fly(block, _Flight(blank=whole)), ()
        content = ReasoningBlock(whole) if kind == "reasoning" else TextBlock(whole)
        return self._fly(block, _Flight(shown=True)), (Put(self._piece(message, index, content, "streaming")),)

    def _fly(self, block: BlockId, flight: _Flight) -> Transcript:
        return replace(self, flights={**self.flights, block: flight})

    def countdown(self, left_ms: int) -> tuple[Change, ...]:
        """What is drawn anew when the retry that waits begins in `left_ms` milliseconds; nothing where none waits."""
        wait = self.wait
        if wait is None:
            return ()
        return (Put(replace(wait.row, title=rows.waiting_title(wait.retry, wait.provider, left_ms))),)


def _without(known: Mapping[_K, _V], gone: _K) -> Mapping[_K, _V]:
    return {key: value for key, value in known.items() if key != gone}
