"""Decide what a session owes next, from its log alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from agentls.core.chunks import NO_USAGE, Usage
from agentls.core.errors import LogicError
from agentls.core.events import (
    AssistantAttempt,
    AssistantMessage,
    Discard,
    Event,
    EventData,
    Hold,
    HoldCause,
    RequestSent,
    Retry,
    RetryStarted,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    ToolStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
    Update,
    UserMessage,
)
from agentls.core.ids import CallId, MessageId, assistant_message, is_producer_message
from agentls.core.inbox import Inbox
from agentls.core.reasons import (
    Completed,
    Failure,
    InjectionTrigger,
    MaxTokens,
    OutputLimit,
    TurnAborted,
    TurnEndReason,
    TurnFailed,
    TurnTrigger,
)

# The fold ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of the open step; `started` once its body may have run."""

    call: ToolCall
    started: bool = False
    answered: bool = False


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """The turn that runs. `step` is 0 before its first; `attempt` is the request in flight or the last one, `boundary`
    what the step's first one was built from; `retry` is the wait before the next one; `produced` counts the messages
    that producers and hooks added to the step."""

    turn: int
    trigger: TurnTrigger
    started_at: int
    step: int = 0
    step_open: bool = False
    attempt: int = 0
    boundary: int = 0
    asking: bool = False
    calls: tuple[OpenCall, ...] = ()
    failure: Failure | None = None
    retry: Retry | None = None
    produced: int = 0
    limited: bool = False
    cancel: TurnCancel | None = None
    cancel_seq: int = 0
    usage: Usage = NO_USAGE

    def answer_id(self) -> MessageId:
        """The id of the answer that the current attempt gives."""
        return assistant_message(self.turn, self.step, self.attempt)

    def unanswered(self) -> tuple[OpenCall, ...]:
        """Calls of this step that owe a result."""
        return tuple(call for call in self.calls if not call.answered)


@dataclass(frozen=True, slots=True)
class Turns:
    """The fold: the number of the last turn (they count from 1), the open one, and how the last one ended. `early` is
    the cancel of a turn that was about to start, with its seq.

    It refuses what no log of ours holds: a second open turn, a wrong number, a result without its call.
    """

    last: int = 0
    open: OpenTurn | None = None
    last_end: TurnEnd | None = None
    early: tuple[TurnCancel, int] | None = None

    def apply(self, event: Event) -> Turns:
        """The state after `event`."""
        data = event.data
        if isinstance(data, TurnStart):
            _require(self.open is None, f"turn {data.turn} starts while turn {self.last} is open")
            _require(data.turn == self.last + 1, f"turn {data.turn} starts after turn {self.last}")
            turn = OpenTurn(data.turn, data.trigger, event.time)
            if self.early is not None:
                turn = replace(turn, cancel=self.early[0], cancel_seq=self.early[1])
            return replace(self, last=data.turn, open=turn, early=None)
        if isinstance(data, TurnEnd):
            turn = self._open(data.turn)
            _require(not turn.step_open, f"turn {data.turn} ends inside step {turn.step}")
            # An injection's turn runs nothing, so that it hides neither how the last one ended nor what can be retried.
            silent = isinstance(turn.trigger, InjectionTrigger)
            return Turns(last=self.last, last_end=self.last_end if silent else data)
        if self.open is None:
            return self._outside(event)
        changed = self._in_turn(self.open, event)
        return self if changed is self.open else replace(self, open=changed)

    def _outside(self, event: Event) -> Turns:
        if isinstance(event.data, TurnCancel) and self.early is None and event.data.turn == self.last + 1:
            return replace(self, early=(event.data, event.seq))
        turn_bound = (
            StepStart | StepEnd | RequestSent | AssistantMessage | ToolCall | ToolStart | ToolResult | TurnCancel
        )
        _require(not isinstance(event.data, turn_bound), f"{type(event.data).__name__} outside a turn")
        return self

    def _open(self, number: int) -> OpenTurn:
        if self.open is None or self.open.turn != number:
            raise LogicError(f"turn {number} is not open")
        return self.open

    def _in_turn(self, turn: OpenTurn, event: Event) -> OpenTurn:
        match event.data:
            case StepStart(number, step):
                _require(number == turn.turn, f"a step of turn {number} starts in turn {turn.turn}")
                _require(not turn.step_open and step == turn.step + 1, f"step {step} starts after step {turn.step}")
                return replace(turn, step=step, step_open=True, attempt=0, calls=(), asking=False, produced=0)
            case StepEnd(number, step):
                _require(turn.step_open and (number, step) == (turn.turn, turn.step), f"step {step} is not open")
                return replace(turn, step_open=False, asking=False, retry=None)
            case RequestSent(_, step, attempt, boundary):
                _require(turn.step_open and step == turn.step, f"a request of step {step} outside it")
                _require(attempt == turn.attempt + 1, f"attempt {attempt} follows attempt {turn.attempt}")
                _require(turn.retry is None, f"attempt {attempt} does not wait for its retry")
                first = boundary if attempt == 1 else turn.boundary
                return replace(turn, attempt=attempt, asking=True, failure=None, boundary=first)
            case AssistantMessage(usage=usage, finish=finish):
                _require(turn.asking, "an answer without a request")
                limited = turn.limited or isinstance(finish, MaxTokens)
                return replace(turn, asking=False, limited=limited, usage=_sum(turn.usage, usage))
            case AssistantAttempt(failure=failure, usage=usage):
                _require(turn.asking, "a failed attempt without a request")
                return replace(turn, asking=False, failure=failure, usage=_sum(turn.usage, usage))
            case Retry():
                _require(turn.failure is not None and turn.retry is None, "a retry without a failed attempt")
                return replace(turn, retry=event.data)
            case RetryStarted(retry_id):
                _require(turn.retry is not None and turn.retry.retry_id == retry_id, f'"{retry_id}" does not wait')
                return replace(turn, failure=None, retry=None)
            case UserMessage(message) if is_producer_message(message.id):
                return replace(turn, produced=turn.produced + 1)
            case ToolCall():
                return replace(turn, calls=(*turn.calls, OpenCall(event.data)))
            case ToolStart(call_id):
                return self._call(turn, call_id, started=True)
            case ToolResult(call_id=call_id):
                return self._call(turn, call_id, answered=True)
            case TurnCancel():
                _require(turn.cancel is None, f"turn {turn.turn} is cancelled twice")
                return replace(turn, cancel=event.data, cancel_seq=event.seq)
        return turn

    def _call(self, turn: OpenTurn, call_id: CallId, *, started: bool = False, answered: bool = False) -> OpenTurn:
        known = [call.call.call_id for call in turn.calls if not call.answered]
        _require(call_id in known, f'call "{call_id}" is not open')
        return replace(
            turn,
            calls=tuple(
                replace(call, started=call.started or started, answered=call.answered or answered)
                if call.call.call_id == call_id
                else call
                for call in turn.calls
            ),
        )


def open_turn(turns: Turns) -> OpenTurn:
    """The open turn, for whoever works inside of one; LogicError where there is none."""
    if turns.open is None:
        raise LogicError("no turn is open")
    return turns.open


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise LogicError(what)


def _sum(total: Usage, more: Usage | None) -> Usage:
    return total if more is None else total.plus(more)


# What is owed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is owed."""


@dataclass(frozen=True, slots=True)
class EnterStep:
    """Claim these pending messages into a step; the first step of a turn opens it."""

    turn: int
    step: int
    claim: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class AskModel:
    """A request is recorded as sent and has no answer."""

    turn: int
    step: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AwaitRetry:
    """An attempt failed and the next one is due after the wait of `retry`."""

    turn: int
    step: int
    retry: Retry


@dataclass(frozen=True, slots=True)
class RunTools:
    """These calls owe a result."""

    turn: int
    step: int
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class EndStep:
    """The step is done and the turn goes on."""

    turn: int
    step: int


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The turn is done; `hold` says why what waits is held from then on, if it is."""

    turn: int
    reason: TurnEndReason
    hold: HoldCause | None = None


@dataclass(frozen=True, slots=True)
class SettleCancel:
    """The turn was cancelled: stop its work and close it."""

    turn: int


Action: TypeAlias = Rest | EnterStep | AskModel | AwaitRetry | RunTools | EndStep | EndTurn | SettleCancel


def next_action(turns: Turns, inbox: Inbox) -> Action:
    """What a session owes next. The driver does it and asks again; there is no other durable state."""
    turn = turns.open
    if turn is None:
        claim = inbox.claim_for_turn()
        return EnterStep(turns.last + 1, 1, claim) if claim else Rest()
    if turn.cancel is not None:
        return SettleCancel(turn.turn)
    if not turn.step_open:
        return EnterStep(turn.turn, turn.step + 1, _steering(inbox))
    if turn.asking:
        return AskModel(turn.turn, turn.step, turn.attempt)
    if turn.retry is not None:
        return AwaitRetry(turn.turn, turn.step, turn.retry)
    if turn.failure is not None:
        return EndTurn(turn.turn, TurnFailed(turn.failure), "error")
    if turn.unanswered():
        return RunTools(turn.turn, turn.step, tuple(call.call for call in turn.unanswered()))
    if turn.limited:
        return EndTurn(turn.turn, OutputLimit())
    if turn.calls or inbox.steering:
        return EndStep(turn.turn, turn.step)
    return EndTurn(turn.turn, Completed())


def _steering(inbox: Inbox) -> tuple[MessageId, ...]:
    return tuple(pending.item.id for pending in inbox.steering)


# Batches that close --------------------------------------------------------------------------------------------


def close_turn(turns: Turns, inbox: Inbox, reason: TurnEndReason, hold: HoldCause | None) -> tuple[EventData, ...]:
    """`step/end?, update… (steering to the head of the queue, order kept), turn/end, hold?`. A hold is written only
    where it would hold something."""
    turn = open_turn(turns)
    return (
        *((StepEnd(turn.turn, turn.step),) if turn.step_open else ()),
        *steering_to_queue(inbox),
        TurnEnd(turn.turn, reason, turn.usage),
        *((Hold(held=True, cause=hold),) if hold and inbox.free() else ()),
    )


def settle_cancel(turns: Turns, inbox: Inbox, spent: Usage | None = None) -> tuple[EventData, ...]:
    """The end of a cancelled turn, once its work has stopped and its calls are answered, and what becomes of what
    waits: what came after the cancel runs. `spent` is what the request that was cut off has cost."""
    turn = open_turn(turns)
    cancel = turn.cancel
    if cancel is None:
        raise LogicError(f"turn {turn.turn} is not cancelled")
    return (
        *((StepEnd(turn.turn, turn.step),) if turn.step_open else ()),
        TurnEnd(turn.turn, TurnAborted(cancel.cause), _sum(turn.usage, spent)),
        *cancel_waiting(inbox, turn.cancel_seq, keep_inbox=cancel.keep_inbox),
    )


def cancel_waiting(inbox: Inbox, before: int, *, keep_inbox: bool) -> tuple[EventData, ...]:
    """What a cancel at seq `before` does to what waits: what was enqueued earlier is discarded, or held where the inbox
    is kept; steering moves to the queue either way."""
    earlier = tuple(pending for pending in inbox.pending() if pending.seq < before)
    if not keep_inbox:
        gone = tuple(pending.item.id for pending in earlier)
        return (*((Discard(gone, "cancel"),) if gone else ()), *steering_to_queue(inbox.without(gone)))
    holds = any(not inbox.is_held(pending) for pending in earlier)
    return (*steering_to_queue(inbox), *((Hold(held=True, cause="cancel", before=before),) if holds else ()))


def steering_to_queue(inbox: Inbox) -> tuple[EventData, ...]:
    """Steering that no step took goes to the head of the queue, in its order."""
    return tuple(Update(pending.item.id, lane="queued", position=place) for place, pending in enumerate(inbox.steering))
