"""What a person sees: rendered blocks, from the log's events and from the text in flight.

The fold keeps only what later events need; the blocks themselves are the caller's. `apply` and `draft` answer with
changes in the order in which they are to be drawn. It may start at any turn's first event, so that an old page is
rendered from its own events alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from agentls.core import ids
from agentls.core.advice import advice, headline
from agentls.core.blocks import ReasoningBlock, TextBlock, ToolResultBlock
from agentls.core.bodies import (
    ARGUMENTS_BYTES,
    Body,
    arguments_body,
    context_body,
    person_body,
    plain_text,
    result_body,
)
from agentls.core.chunks import Usage
from agentls.core.events import (
    AssistantAttempt,
    AssistantMessage,
    CutCall,
    Discard,
    Enqueue,
    Event,
    Lane,
    RequestSent,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    Update,
    UserMessage,
)
from agentls.core.ids import BlockId, CallId, MessageId
from agentls.core.messages import Message
from agentls.core.reasons import (
    FINISHES,
    TURN_ENDS,
    Blocked,
    Completed,
    Failure,
    FinishReason,
    InjectionTrigger,
    Interrupted,
    OutputLimit,
    TurnAborted,
    TurnFailed,
)
from agentls.core.sources import (
    FORMS,
    Notice,
    form_of,
    is_person,
    producer_of,
)
from agentls.core.visible import fenced, one_line, preview, visible

BlockKind = Literal[
    "user", "assistant", "reasoning", "tool", "approval", "question", "context", "plan", "todo", "retry",
    "compaction", "error", "turn-end",
]  # fmt: skip
BlockState = Literal["streaming", "done", "failed", "interrupted", "rewound"]
PieceKind = Literal["text", "reasoning"]
CallState = Literal["running", "done", "failed", "denied", "not-run"]


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a tool block tells a client about its call."""

    name: str
    arguments: str
    state: CallState


@dataclass(frozen=True, slots=True)
class Block:
    """One row of the transcript. `order` says where it stands, `body` is CommonMark, `title` and `summary` one plain
    line each, `more` the UTF-8 bytes of the body that were left out."""

    id: BlockId
    order: tuple[int, int]
    kind: BlockKind
    title: str
    body: str = ""
    state: BlockState = "done"
    collapsed: bool = False
    seq: int | None = None
    turn: int | None = None
    step: int | None = None
    role: Literal["user", "assistant"] | None = None
    summary: str | None = None
    more: int | None = None
    form: str | None = None
    producer: str | None = None
    call: CallFacts | None = None
    finish: str | None = None
    reason: str | None = None
    usage: Usage | None = None
    volatile: bool = False


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
class Transcript:
    """The fold's state: where in the log it is and what is still open."""

    turn: int | None = None
    step: int | None = None
    injection: bool = False
    request_seq: int = 0
    lanes: Mapping[MessageId, Lane] = field(default_factory=dict)
    flights: Mapping[BlockId, _Flight] = field(default_factory=dict)
    calls: Mapping[CallId, Block] = field(default_factory=dict)

    # From the log ----------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> tuple[Transcript, tuple[Change, ...]]:
        """The state after `event`, and what it draws."""
        match event.data:
            case Enqueue(item):
                return replace(self, lanes={**self.lanes, item.id: item.lane}), ()
            case Update(message, lane=lane) if lane is not None:
                return replace(self, lanes={**self.lanes, message: lane}), ()
            case Discard(gone):
                return replace(self, lanes={known: lane for known, lane in self.lanes.items() if known not in gone}), ()
            case TurnStart(turn, trigger):
                return replace(self, turn=turn, step=None, injection=isinstance(trigger, InjectionTrigger)), ()
            case StepStart(_, step):
                return replace(self, step=step), ()
            case RequestSent():
                return replace(self, request_seq=event.seq), ()
            case UserMessage(message):
                return self._message(message, event.seq)
            case AssistantMessage():
                return self._answer(event.data, event.seq)
            case AssistantAttempt():
                return self._attempt(event.data, event.seq)
            case ToolCall():
                return self._call(event.data, event.seq)
            case ToolResult():
                return self._result(event.data, event.seq)
            case TurnEnd():
                return self._end(event.data, event.seq)
        return self, ()

    def _message(self, message: Message, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        lane = self.lanes.get(message.id, "queued")
        lanes = {known: lane for known, lane in self.lanes.items() if known != message.id}
        render = _person if is_person(message.source) else _context
        block = render(message, lane, seq)
        return replace(self, lanes=lanes), (Put(replace(block, turn=self.turn, step=self.step)),)

    def _answer(self, answer: AssistantMessage, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        state: BlockState = "interrupted" if answer.interrupted else "done"
        changes = self._settle(answer.message, seq, state, answer.finish)
        changes += tuple(Put(self._cut(cut, seq)) for cut in answer.cut)
        return replace(self, flights={}), changes

    def _attempt(self, attempt: AssistantAttempt, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        return replace(self, flights={}), self._settle(attempt.shown, seq, "failed", None)

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
        reasoning = isinstance(content, ReasoningBlock)
        block = Block(
            id=ids.answer_block(message, index),
            order=(self.request_seq, index),
            kind="reasoning" if reasoning else "assistant",
            title="Reasoning" if reasoning else "Assistant",
            body=visible(content.text),
            state=state,
            collapsed=reasoning,
            turn=self.turn,
            step=self.step,
            role="assistant",
        )
        # A summary is made of the whole text, so that a block in flight has none.
        finished = reasoning and state != "streaming"
        return replace(block, summary=one_line(content.text)) if finished else block

    def _cut(self, cut: CutCall, seq: int) -> Block:
        body = arguments_body(cut.arguments)
        return Block(
            id=ids.call_block(cut.call_id),
            order=(self.request_seq, cut.index),
            kind="tool",
            title=one_line(cut.name),
            body=f"{body.text}\n\nThe output limit cut the answer here, so this call was not run.",
            more=body.more or None,
            state="failed",
            collapsed=True,
            seq=seq,
            turn=self.turn,
            step=self.step,
            summary="not run: the answer was cut at the output limit",
            call=_facts(cut.name, cut.arguments, "not-run"),
        )

    def _call(self, call: ToolCall, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        body = arguments_body(call.arguments)
        block = Block(
            id=ids.call_block(call.call_id),
            order=(seq, 0),
            kind="tool",
            title=one_line(call.name) or "(no name)",
            body=body.text,
            more=body.more or None,
            state="streaming",
            collapsed=True,
            seq=seq,
            turn=self.turn,
            step=self.step,
            summary=one_line(call.arguments),
            call=_facts(call.name, call.arguments, "running"),
        )
        return replace(self, calls={**self.calls, call.call_id: block}), (Put(block),)

    def _result(self, result: ToolResult, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        block = self.calls.get(result.call_id)
        if block is None or block.call is None:
            return self, ()
        content = tuple(
            inner for outer in result.message.content if isinstance(outer, ToolResultBlock) for inner in outer.content
        )
        body = result_body(Body(block.body, block.more or 0), content)
        state: CallState = "done" if result.error is None else _call_state(result.error.code)
        done = replace(
            block,
            body=body.text,
            more=body.more or None,
            state="done" if result.error is None else "failed",
            summary=one_line(plain_text(content)) if result.error is not None else block.summary,
            call=replace(block.call, state=state),
        )
        return replace(self, calls={call: b for call, b in self.calls.items() if call != result.call_id}), (Put(done),)

    def _end(self, end: TurnEnd, seq: int) -> tuple[Transcript, tuple[Change, ...]]:
        state = replace(self, turn=None, step=None, injection=False, flights={}, calls={})
        if self.injection:
            return state, ()
        lost = tuple(Drop(block) for block, flight in self.flights.items() if flight.shown)
        row = Block(
            id=ids.turn_end_block(end.turn),
            order=(seq, 1),
            kind="turn-end",
            title=_end_title(end),
            seq=seq,
            turn=end.turn,
            collapsed=True,
            reason=TURN_ENDS.kind_of(end.reason) or "unknown",
            usage=end.usage,
            state="interrupted" if isinstance(end.reason, TurnAborted | Interrupted) else "done",
        )
        if isinstance(end.reason, TurnFailed):
            return state, (
                *lost,
                Put(failure_block(end.reason.failure, seq, end.turn)),
                Put(replace(row, state="failed")),
            )
        return state, (*lost, Put(row))

    # From the text in flight -----------------------------------------------------------------------------------

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


def failure_block(failure: Failure, seq: int, turn: int | None) -> Block:
    """A failure as a row: what went wrong, what to do, and the provider's own words."""
    facts = [f"code `{failure.code}`"]
    if failure.status is not None:
        facts.append(f"HTTP {failure.status}")
    if failure.request_id:
        facts.append(f"request `{visible(failure.request_id)}`")
    return Block(
        id=ids.error_block(seq),
        order=(seq, 0),
        kind="error",
        title=headline(failure),
        summary=one_line(failure.message),
        body=f"{advice(failure)}\n\n{fenced(visible(failure.message))}\n\n{', '.join(facts)}",
        state="failed",
        seq=seq,
        turn=turn,
    )


# Rows ----------------------------------------------------------------------------------------------------------


def _person(message: Message, lane: Lane, seq: int) -> Block:
    return Block(
        id=ids.user_block(message.id),
        order=(seq, 0),
        kind="user",
        title="Steering" if lane == "steering" else "You",
        body=person_body(message.content),
        seq=seq,
        role="user",
    )


_FORM_TITLES = {
    "instructions": "Instructions",
    "catalog": "Catalog",
    "snapshot": "Snapshot",
    "notice": "Notice",
    "relay": "Relay",
    "recall": "Recall",
}


def _context(message: Message, _: Lane, seq: int) -> Block:
    form = form_of(message.source)
    name = FORMS.kind_of(form) if form is not None else None
    body = context_body(message)
    return Block(
        id=ids.context_block(message.id),
        order=(seq, 0),
        kind="context",
        title=_FORM_TITLES.get(name or "", "Context"),
        summary=one_line(form.summary) if isinstance(form, Notice) else None,
        body=body.text,
        more=body.more or None,
        collapsed=True,
        seq=seq,
        role="user",
        form=name or "opaque",
        producer=one_line(producer_of(message.source)),
    )


def _facts(name: str, arguments: str, state: CallState) -> CallFacts:
    shown, _ = preview(visible(arguments), ARGUMENTS_BYTES)
    return CallFacts(one_line(name), shown, state)


def _call_state(code: str) -> CallState:
    if code in ("ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED", "INVALID_ARGS", "UNKNOWN_TOOL"):
        return "not-run"
    return "denied" if code == "DENIED" else "failed"


def _end_title(end: TurnEnd) -> str:
    match end.reason:
        case Completed():
            return f"Turn {end.turn} completed"
        case TurnAborted(cause):
            return f"Turn {end.turn} stopped" + ("" if cause == "user" else f" ({cause})")
        case Blocked(reason):
            return one_line(f"Turn {end.turn} blocked: {reason}")
        case TurnFailed(failure):
            return f"Turn {end.turn} failed: {headline(failure)}"
        case OutputLimit():
            return f"Turn {end.turn} reached the output limit"
        case Interrupted():
            return f"Turn {end.turn} was interrupted: the server stopped"
    return f"Turn {end.turn} ended"
