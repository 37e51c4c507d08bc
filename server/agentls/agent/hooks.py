"""The extension points of the loop, in the order in which a turn comes by them.

    pre_step       before a step begins: add contexts to it, or reject it
    request        what a request holds beside history
    request_error  a failed request: try it again, after how long
    pre_execute    a call whose arguments fit: other arguments, or refuse it
    guard          a call that nobody forbade, right before it starts: refuse it
    execute        around a call's body
    post_execute   a call's outcome: another one, and contexts for the next step
    turn_stopping  a turn that would end by itself: steer it on, or only look

Why lists: docs/rfc/implemented/architecture/2026-11-30-hooks-are-lists.md.

A hook is shared by all agents and keeps no state of its own beside what it can lose. Whatever may wait is cancelled
with the turn. An exception of a hook is a fault of ours: the turn ends with an error, and what had run keeps its
result. `app.py` says which hooks there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from agentls.agent.agent import Agent
from agentls.agent.state import EditorFacts
from agentls.core.events import InboxItem, ModelRef, ToolCall, ToolSchema
from agentls.core.ids import SessionId
from agentls.core.json import JsonObject
from agentls.core.reasons import Failure
from agentls.core.session import SessionState
from agentls.core.sources import MessageSource, is_person
from agentls.tools.tool import Output, ToolContext, ToolError

# Steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A step that is about to begin. `items` are the messages that it claims, `scope` is what the agent's tools may
    look at, and `editors` are the clients that draw the agent."""

    state: SessionState
    turn: int
    step: int
    items: tuple[InboxItem, ...]
    scope: ToolContext
    editors: tuple[EditorFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """A context for the model; ValueError for a source that is a person's, since no hook speaks for one."""

    text: str
    source: MessageSource

    def __post_init__(self) -> None:
        if is_person(self.source):
            raise ValueError("a context needs a source that is not a person")


@dataclass(frozen=True, slots=True)
class Enter:
    """The step may begin, with these contexts after what it claims. `begun` is called once it has."""

    contexts: tuple[Context, ...] = ()
    begun: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Reject:
    """The step must not begin: its turn ends blocked, for a reason in plain words."""

    reason: str


class PreStep(Protocol):
    """See the top of this file. It may be asked again for the same step, and a step that it let in may not begin."""

    async def pre_step(self, entry: Entry) -> Enter | Reject:
        """Let the step in, or not."""


# Requests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a request is to hold beside history."""

    system: str
    tools: tuple[ToolSchema, ...]
    model: ModelRef
    options: JsonObject = field(default_factory=dict)


class RequestHook(Protocol):
    """See the top of this file."""

    def request(self, proposal: Proposal, state: SessionState) -> Proposal:
        """The proposal, or another one; it must be the same for the same state, since providers cache by prefix."""


class RequestError(Protocol):
    """See the top of this file; the first answer that is not None counts."""

    def request_error(self, failure: Failure, retry: int) -> int | None:
        """Milliseconds until retry number `retry` (from 1) of this step, or None to let it fail."""


# Tools ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """A call that is to run: its arguments fit its tool."""

    call: ToolCall
    arguments: JsonObject
    read_only: bool
    state: SessionState


class PreExecute(Protocol):
    """See the top of this file."""

    async def pre_execute(self, use: Use) -> JsonObject | None:
        """Other arguments, or None for those that it has; ToolError to refuse the call."""


class Guard(Protocol):
    """See the top of this file."""

    async def guard(self, use: Use) -> None:
        """ToolError to refuse the call. A person may have allowed it a while ago."""


class Execute(Protocol):
    """See the top of this file."""

    async def execute(self, use: Use, body: Callable[[], Awaitable[Output]]) -> Output:
        """What `body` gives, which must be called at most once; ToolError for a failure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to, and contexts that follow it."""

    result: Output | ToolError
    contexts: tuple[Context, ...] = ()


class PostExecute(Protocol):
    """See the top of this file."""

    async def post_execute(self, use: Use, outcome: Outcome) -> Outcome:
        """The outcome, or another one."""


# Turns ---------------------------------------------------------------------------------------------------------


class TurnStopping(Protocol):
    """See the top of this file. What counts in the end is whether steering waits, not who said so."""

    async def turn_stopping(self, agent: Agent, state: SessionState) -> None:
        """Look, or steer the agent by its own `send`. It must not cancel the turn and wait for that."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """All hooks of a server, at each point in their order."""

    pre_step: tuple[PreStep, ...] = ()
    request: tuple[RequestHook, ...] = ()
    request_error: tuple[RequestError, ...] = ()
    pre_execute: tuple[PreExecute, ...] = ()
    guard: tuple[Guard, ...] = ()
    execute: tuple[Execute, ...] = ()
    post_execute: tuple[PostExecute, ...] = ()
    turn_stopping: tuple[TurnStopping, ...] = ()
    closed: tuple[Callable[[SessionId], None], ...] = ()
    """Called when a session is closed, by those that keep something for it."""
