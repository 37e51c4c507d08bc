"""What holds of every log of ours, checked from its events alone.

It is written apart from the folds, so that it also judges them. `check_log` is for tests and tools; with
`AGENTLS_INVARIANTS=1` every agent has its log watched while it is written.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentls.core.blocks import ToolCallBlock, ToolResultBlock
from agentls.core.errors import LogicError
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantAttempt,
    AssistantMessage,
    Dequeue,
    Discard,
    EndSeed,
    Enqueue,
    Event,
    QuestionAnswered,
    QuestionAsked,
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
)
from agentls.core.history import History
from agentls.core.messages import Message


def check_log(events: Iterable[Event]) -> None:
    """LogicError at the first event that breaks a rule."""
    watched = Invariants()
    for event in events:
        watched.apply(event)


class Invariants:
    """Watches one log. `apply` raises LogicError for an event that breaks a rule; what it says after that means
    nothing."""

    def __init__(self) -> None:
        self._seq = -1
        self._pending: dict[str, str] = {}  # id to lane
        self._left: set[str] = set()
        self._turn = 0
        self._turn_open = False
        self._step = 0
        self._step_open = False
        self._attempt = 0
        self._asking = False
        self._cancelled: int | None = None
        self._retry: str | None = None
        self._calls: dict[str, str] = {}  # of the open step: id to "called", "started" or "answered"
        self._started: set[str] = set()
        self._asked: dict[str, str | None] = {}
        self._closed: set[str] = set()
        self._denied: set[str] = set()
        self._history = History()

    def apply(self, event: Event) -> None:
        """Take the next event."""
        self._must(event.seq == self._seq + 1, event, f"it follows event {self._seq}")
        self._seq = event.seq
        self._inbox(event)
        self._structure(event)
        self._tools(event)
        self._history = self._history.apply(event)
        if isinstance(event.data, RequestSent):
            self._request(event)

    def _must(self, holds: bool, event: Event, what: str) -> None:
        if not holds:
            raise LogicError(f"event {event.seq} ({type(event.data).__name__}): {what}")

    # Every accepted message leaves the inbox exactly once --------------------------------------------------------

    def _inbox(self, event: Event) -> None:
        match event.data:
            case Enqueue(item):
                fresh = item.id not in self._pending and item.id not in self._left
                self._must(fresh, event, f'message "{item.id}" is enqueued twice')
                self._pending[item.id] = item.lane
            case Dequeue(message):
                self._leave(event, (message,))
            case Discard(ids):
                self._leave(event, ids)
            case Update(message, lane=lane):
                self._must(message in self._pending, event, f'message "{message}" does not wait')
                if lane is not None:
                    self._pending[message] = lane
            case EndSeed():
                self._pending.clear()

    def _leave(self, event: Event, ids: Iterable[str]) -> None:
        for message in ids:
            self._must(message in self._pending, event, f'message "{message}" leaves and does not wait')
            del self._pending[message]
            self._left.add(message)

    # Turns, steps and attempts are numbered and nested -----------------------------------------------------------

    def _structure(self, event: Event) -> None:
        match event.data:
            case TurnStart(turn):
                self._must(not self._turn_open and turn == self._turn + 1, event, f"turn {self._turn} came before")
                self._must(self._cancelled in (None, turn), event, f"turn {self._cancelled} was cancelled")
                self._turn, self._turn_open, self._step = turn, True, 0
            case StepStart(turn, step):
                self._must(self._turn_open and turn == self._turn and not self._step_open, event, "no place for it")
                self._must(step == self._step + 1, event, f"step {self._step} came before")
                self._must(self._cancelled is None, event, "the turn is cancelled")
                self._step, self._step_open, self._attempt, self._calls = step, True, 0, {}
            case RequestSent(turn, step, attempt, boundary):
                self._must(self._step_open and (turn, step) == (self._turn, self._step), event, "no step for it")
                self._must(not self._asking and attempt == self._attempt + 1, event, "an attempt is missing")
                self._must(self._retry is None, event, f"{self._retry} waits")
                self._must(boundary < event.seq, event, "its boundary lies after it")
                self._must(self._cancelled is None, event, "the turn is cancelled")
                self._attempt, self._asking = attempt, True
            case AssistantMessage() | AssistantAttempt():
                self._must(self._asking and event.data.attempt == self._attempt, event, "no request for it")
                self._asking = False
            case Retry(retry_id):
                self._must(not self._asking and self._retry is None, event, "no failed attempt for it")
                self._retry = retry_id
            case RetryStarted(retry_id):
                self._must(self._retry == retry_id, event, "it does not wait")
                self._retry = None
            case TurnCancel(turn):
                about = self._turn if self._turn_open else self._turn + 1
                self._must(turn == about and self._cancelled is None, event, "no turn for it, or a second cancel")
                self._cancelled = turn
            case StepEnd(turn, step):
                self._must(self._step_open and (turn, step) == (self._turn, self._step), event, "it is not open")
                owed = [call for call, state in self._calls.items() if state != "answered"]
                self._must(not owed, event, f"calls owe a result: {owed}")
                self._step_open, self._asking, self._retry = False, False, None
            case TurnEnd(turn):
                self._must(self._turn_open and turn == self._turn and not self._step_open, event, "it is not open")
                self._must(not self._asked, event, f"requests are open: {sorted(self._asked)}")
                self._turn_open, self._cancelled = False, None

    # A body runs at most once, after its leave, and every call has one result in the model's order ----------------

    def _tools(self, event: Event) -> None:
        match event.data:
            case ToolCall(call_id=call):
                self._must(self._step_open and call not in self._calls, event, f'call "{call}" has no place')
                self._calls[call] = "called"
            case ToolStart(call):
                self._must(self._calls.get(call) == "called", event, f'call "{call}" cannot start')
                self._must(call not in self._started, event, f'call "{call}" starts twice')
                self._must(call not in self._denied, event, f'call "{call}" was not allowed')
                self._must(call not in self._asked.values(), event, f'call "{call}" is still asked about')
                self._started.add(call)
                self._calls[call] = "started"
            case ToolResult(call_id=call):
                owed = [one for one, state in self._calls.items() if state != "answered"]
                self._must(owed[:1] == [call], event, f'the next result is that of "{owed[:1]}"')
                self._calls[call] = "answered"
            case ApprovalAsked(asked, call):
                fresh = asked not in self._asked and asked not in self._closed
                self._must(fresh and self._calls.get(call) == "called", event, "no call for it")
                self._asked[asked] = call
            case QuestionAsked(asked, _, call):
                self._must(asked not in self._asked and asked not in self._closed, event, "it was asked before")
                self._asked[asked] = call
            case ApprovalDecided(asked, decision):
                self._close(event, asked, allowed=decision == "allow")
            case QuestionAnswered(asked):
                self._close(event, asked, allowed=True)

    def _close(self, event: Event, asked: str, *, allowed: bool) -> None:
        self._must(asked in self._asked, event, f'"{asked}" is not open')
        call = self._asked.pop(asked)
        self._closed.add(asked)
        if not allowed and call is not None:
            self._denied.add(call)

    # A request can be read by every provider ---------------------------------------------------------------------

    def _request(self, event: Event) -> None:
        owed: list[str] = []
        ids: set[str] = set()
        for message in self._history.messages:
            self._must(message.id not in ids, event, f'message "{message.id}" is sent twice')
            ids.add(message.id)
            results = [str(block.tool_call_id) for block in message.content if isinstance(block, ToolResultBlock)]
            for result in results:
                self._must(owed[:1] == [result], event, f'the result of "{result}" stands where "{owed[:1]}" is owed')
                owed.pop(0)
            self._must(bool(results) or not owed, event, f'"{message.id}" stands between a call and its result')
            owed += _calls_of(message)
        self._must(not owed, event, f"calls without a result are sent: {owed}")


def _calls_of(message: Message) -> list[str]:
    return [str(block.id) for block in message.content if isinstance(block, ToolCallBlock)]
