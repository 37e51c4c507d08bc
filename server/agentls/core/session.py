"""One session: its folded state, and the three steps by which events become its log.

`prepare` validates, folds tentatively and numbers events in the order of the calls, before anything waits; the store
commits them; `publish` tells observers. Nothing here waits, writes or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agentls.core.chunks import NO_USAGE, Usage
from agentls.core.contexts import Contexts
from agentls.core.errors import LogicError
from agentls.core.events import (
    AgentConfig,
    AssistantMessage,
    EndSeed,
    Event,
    EventData,
    ModelRef,
    RequestHeader,
    SessionHeader,
    SessionTitle,
    TurnEnd,
)
from agentls.core.history import History
from agentls.core.inbox import Inbox
from agentls.core.requests import Requests
from agentls.core.turn import Action, EnterStep, Turns, next_action


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything that the log says, folded. `last_time` is the newest event's, in epoch milliseconds."""

    next_seq: int = 0
    last_time: int = 0
    inbox: Inbox = field(default_factory=Inbox)
    turns: Turns = field(default_factory=Turns)
    history: History = field(default_factory=History)
    requests: Requests = field(default_factory=Requests)
    contexts: Contexts = field(default_factory=Contexts)
    request_header: RequestHeader | None = None
    model: ModelRef | None = None
    mode: str = "ask"
    title: str | None = None
    usage: Usage = NO_USAGE
    context_tokens: int = 0
    """Tokens of the newest request and its answer, as the provider counted them."""

    def apply(self, event: Event) -> SessionState:
        """The state after `event`; LogicError, and no change, where the event breaks a rule of the log."""
        if event.seq != self.next_seq:
            raise LogicError(f"event {event.seq} follows event {self.next_seq - 1}")
        request_header, model, mode, title = self.request_header, self.model, self.mode, self.title
        usage, context_tokens = self.usage, self.context_tokens
        match event.data:
            case RequestHeader():
                request_header = event.data
            case AgentConfig(new_model, new_mode):
                model, mode = new_model or model, new_mode or mode
            case SessionTitle(new_title):
                title = new_title
            case TurnEnd(usage=spent) if spent is not None:
                usage = usage.plus(spent)
            case AssistantMessage(usage=spent) if spent is not None:
                context_tokens = spent.total()
            case EndSeed():
                # What the parent has spent is on its own account.
                usage = NO_USAGE
        # By name and at once: `replace` takes longer than all the folds together.
        return SessionState(
            next_seq=event.seq + 1,
            last_time=event.time,
            inbox=self.inbox.apply(event),
            turns=self.turns.apply(event),
            history=self.history.apply(event),
            requests=self.requests.apply(event),
            contexts=self.contexts.apply(event),
            request_header=request_header,
            model=model,
            mode=mode,
            title=title,
            usage=usage,
            context_tokens=context_tokens,
        )

    def apply_all(self, events: Iterable[Event]) -> SessionState:
        """The state after all of `events`."""
        state = self
        for event in events:
            state = state.apply(event)
        return state

    def next_action(self) -> Action:
        """What the session owes next."""
        return next_action(self.turns, self.inbox)

    def entering(self) -> EnterStep | None:
        """The step that is about to begin, if one is; its messages are claimed only when it does."""
        action = self.next_action()
        return action if isinstance(action, EnterStep) else None

    def current_turn(self) -> int | None:
        """The number of the open turn, or of the one that is about to start."""
        if self.turns.open is not None:
            return self.turns.open.turn
        action = self.entering()
        return action.turn if action is not None else None


@dataclass(frozen=True, slots=True)
class Batch:
    """Prepared events, to be committed as one and then published."""

    events: tuple[Event, ...]
    after: SessionState


Observer = Callable[[Batch], None]
"""Called with each committed batch, in the order of the log; what it raises never touches the log."""


class Session:
    """A session in memory. `state` is what has been prepared; `committed` what observers have been told."""

    def __init__(self, header: SessionHeader, state: SessionState | None = None) -> None:
        self.header = header
        self.state = state or SessionState()
        self.committed = self.state
        self._observers: list[Observer] = []
        self._publishing = False

    def observe(self, observer: Observer) -> None:
        """Have `observer` called for every batch from now on."""
        self._observers.append(observer)

    def prepare(self, payloads: Sequence[EventData], *, time: int) -> Batch:
        """Number and fold `payloads` as one batch. LogicError, and no change, where one breaks a rule of the log or
        where an observer calls it: what is being told must be told in order."""
        if self._publishing:
            raise LogicError("an observer cannot append to the log that it is being told of")
        state = self.state
        events = []
        for payload in payloads:
            event = Event(state.next_seq, time, payload)
            state = state.apply(event)
            events.append(event)
        self.state = state
        return Batch(tuple(events), state)

    def publish(self, batch: Batch) -> list[Exception]:
        """Tell observers of a committed batch, each for itself; what they raised comes back, to be reported."""
        self.committed = batch.after
        errors: list[Exception] = []
        self._publishing = True
        try:
            for observer in tuple(self._observers):
                try:
                    observer(batch)
                except Exception as error:  # noqa: BLE001 - an observer's fault must not reach the others or the log
                    errors.append(error)
        finally:
            self._publishing = False
        return errors

    def roll_back(self) -> None:
        """Forget what was prepared and not committed, since a commit failed."""
        self.state = self.committed
