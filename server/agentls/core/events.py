"""The events of a session's log: what each holds, in the order in which a turn writes them.

The class docstring's first line is the row of the generated table (docs/events.md); `surface` types are what the
model's history is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentls.core.blocks import ContentBlock
from agentls.core.chunks import Usage
from agentls.core.ids import CallId, MessageId, RequestId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.kinds import OpenUnion
from agentls.core.messages import Message
from agentls.core.reasons import CancelCause, Failure, FinishReason, TurnEndReason, TurnTrigger
from agentls.core.sources import MessageSource

FORMAT_VERSION = 1
"""The log's format; a reader refuses a newer one before it looks at anything else."""

Lane = Literal["queued", "steering"]
HoldCause = Literal["cancel", "error", "blocked", "interrupted", "person"]
Outcome = Literal["started", "queued", "steering", "injected", "refused"]


@dataclass(frozen=True, slots=True)
class EventData:
    """The open union of event payloads; tag `type`."""


@dataclass(frozen=True, slots=True)
class UnknownEvent(EventData):
    """An event of another version that its writer marked as ignorable."""

    kind: str
    fields: JsonObject


EVENTS: OpenUnion[EventData] = OpenUnion("event", tag="type", unknown=UnknownEvent)


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log. `seq` counts from 0 without gaps; `time` is epoch milliseconds, for people only."""

    seq: int
    time: int
    data: EventData
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """The row beside the log. `workspace` is a URI, `cwd` an absolute path, `created_at` epoch milliseconds."""

    id: str
    workspace: str
    cwd: str
    created_at: int
    version: int = FORMAT_VERSION
    parent: str | None = None
    seed_length: int | None = None


# The inbox -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mention:
    """Something that a message points at; lines count from 0."""

    kind: str
    label: str
    uri: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a send when it was accepted: `position` counts from 0 in its lane."""

    outcome: Outcome
    turn: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A message that waits. `content_hash` is that of the content as first sent, whatever edits follow."""

    id: MessageId
    lane: Lane
    wakeup: bool
    content: tuple[ContentBlock, ...]
    source: MessageSource
    content_hash: str
    fate: Fate
    contexts: tuple[Mention, ...] = ()
    expected_turn: int | None = None
    meta: JsonValue = None


@EVENTS.register("agent/inbox/enqueue")
@dataclass(frozen=True, slots=True)
class Enqueue(EventData):
    """A message was accepted: the durable receipt of a send."""

    item: InboxItem
    position: int | None = None


@EVENTS.register("agent/inbox/dequeue")
@dataclass(frozen=True, slots=True)
class Dequeue(EventData):
    """A pending message left into a step, or into a blocked or cancelled turn where no step is given."""

    id: MessageId
    turn: int
    step: int | None = None


@EVENTS.register("agent/inbox/discard")
@dataclass(frozen=True, slots=True)
class Discard(EventData):
    """Pending messages left unrun."""

    ids: tuple[MessageId, ...]
    cause: Literal["cancel", "removed", "disposed"]


@EVENTS.register("agent/inbox/update")
@dataclass(frozen=True, slots=True)
class Update(EventData):
    """A pending message was edited, moved or changed lane; never an exit."""

    id: MessageId
    content: tuple[ContentBlock, ...] | None = None
    contexts: tuple[Mention, ...] | None = None
    lane: Lane | None = None
    position: int | None = None


@EVENTS.register("agent/inbox/hold")
@dataclass(frozen=True, slots=True)
class Hold(EventData):
    """Pending messages enqueued before seq `before` are held, or let go again; later ones run."""

    held: bool
    cause: HoldCause
    before: int | None = None


# Turns and steps -----------------------------------------------------------------------------------------------


@EVENTS.register("turn/start")
@dataclass(frozen=True, slots=True)
class TurnStart(EventData):
    """A turn opened."""

    turn: int
    trigger: TurnTrigger


@EVENTS.register("step/start")
@dataclass(frozen=True, slots=True)
class StepStart(EventData):
    """A step opened: one model request and its tools."""

    turn: int
    step: int


@EVENTS.register("user/message")
@dataclass(frozen=True, slots=True)
class UserMessage(EventData):
    """A message entered history: by a claim, a producer or an injection."""

    message: Message


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model of a provider."""

    provider: str
    id: str


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the model is told of it; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: JsonObject


@EVENTS.register("request/header")
@dataclass(frozen=True, slots=True)
class RequestHeader(EventData):
    """What a request holds beside history; written only when it changed."""

    system: str
    tools: tuple[ToolSchema, ...]
    model: ModelRef
    options: JsonObject
    reason: Literal["initial", "change"]


@dataclass(frozen=True, slots=True)
class LedgerItem:
    """One thing that a request sends: `what` is `system`, `tools` or a message's id; `tokens` is our estimate."""

    what: str
    source: str
    tokens: int
    form: str | None = None


@EVENTS.register("request/sent")
@dataclass(frozen=True, slots=True)
class RequestSent(EventData):
    """A request is about to go out; `boundary` is the last seq that its history was built from."""

    turn: int
    step: int
    attempt: int
    boundary: int
    ledger: tuple[LedgerItem, ...] = ()


@dataclass(frozen=True, slots=True)
class CutCall:
    """A call lost to the output limit; it never runs."""

    index: int
    call_id: CallId
    name: str
    arguments: str


@EVENTS.register("assistant/message")
@dataclass(frozen=True, slots=True)
class AssistantMessage(EventData):
    """The model's answer, or what was shown of it when it was interrupted."""

    turn: int
    step: int
    attempt: int
    message: Message
    finish: FinishReason
    usage: Usage | None = None
    interrupted: bool = False
    cut: tuple[CutCall, ...] = ()


@EVENTS.register("assistant/attempt")
@dataclass(frozen=True, slots=True)
class AssistantAttempt(EventData):
    """A failed attempt: what it had shown and why it failed; never sent to a model."""

    turn: int
    step: int
    attempt: int
    shown: Message
    failure: Failure
    usage: Usage | None = None


@EVENTS.register("llm/retry")
@dataclass(frozen=True, slots=True)
class Retry(EventData):
    """Another attempt is due in `delay_ms` milliseconds."""

    retry_id: str
    turn: int
    step: int
    attempt: int
    delay_ms: int
    failure: Failure


@EVENTS.register("llm/retry-started")
@dataclass(frozen=True, slots=True)
class RetryStarted(EventData):
    """The wait of a retry is over."""

    retry_id: str
    turn: int
    step: int
    attempt: int


# Tools ---------------------------------------------------------------------------------------------------------


@EVENTS.register("tool/call")
@dataclass(frozen=True, slots=True)
class ToolCall(EventData):
    """The model asked for a tool; `arguments` is its raw text."""

    turn: int
    step: int
    call_id: CallId
    name: str
    arguments: str
    provider_id: str | None = None


@EVENTS.register("approval/asked")
@dataclass(frozen=True, slots=True)
class ApprovalAsked(EventData):
    """A person is asked to allow a call; `shown` is the hash of what they see."""

    request_id: RequestId
    call_id: CallId
    what: JsonObject
    shown: str


@EVENTS.register("approval/decided")
@dataclass(frozen=True, slots=True)
class ApprovalDecided(EventData):
    """An approval was answered, or closed with `cancelled`."""

    request_id: RequestId
    decision: Literal["allow", "deny", "deny-and-stop", "cancelled"]
    by: str | None = None
    note: str | None = None
    remember: str | None = None


@EVENTS.register("question/asked")
@dataclass(frozen=True, slots=True)
class QuestionAsked(EventData):
    """A person is asked something."""

    request_id: RequestId
    question: JsonObject
    call_id: CallId | None = None


@EVENTS.register("question/answered")
@dataclass(frozen=True, slots=True)
class QuestionAnswered(EventData):
    """A question was answered, or closed with `cancelled`."""

    request_id: RequestId
    answer: JsonValue = None
    by: str | None = None
    cancelled: bool = False


@EVENTS.register("tool/start")
@dataclass(frozen=True, slots=True)
class ToolStart(EventData):
    """A call's body is about to run; durable before it does."""

    call_id: CallId


@dataclass(frozen=True, slots=True)
class ToolError:
    """A stable code that says why a call has no ordinary result."""

    code: str


@EVENTS.register("tool/result")
@dataclass(frozen=True, slots=True)
class ToolResult(EventData):
    """A call was answered."""

    turn: int
    step: int
    call_id: CallId
    message: Message
    error: ToolError | None = None
    meta: JsonValue = None


# Ends, settings and the session --------------------------------------------------------------------------------


@EVENTS.register("step/end")
@dataclass(frozen=True, slots=True)
class StepEnd(EventData):
    """A step closed."""

    turn: int
    step: int


@EVENTS.register("turn/cancel")
@dataclass(frozen=True, slots=True)
class TurnCancel(EventData):
    """Someone asked the turn to stop; the first one counts."""

    turn: int
    cause: CancelCause
    keep_inbox: bool


@EVENTS.register("turn/end")
@dataclass(frozen=True, slots=True)
class TurnEnd(EventData):
    """A turn closed; `usage` sums its requests."""

    turn: int
    reason: TurnEndReason
    usage: Usage | None = None


@EVENTS.register("agent/config")
@dataclass(frozen=True, slots=True)
class AgentConfig(EventData):
    """The agent's settings, whole values; what is absent did not change."""

    model: ModelRef | None = None
    mode: str | None = None


@EVENTS.register("session/title")
@dataclass(frozen=True, slots=True)
class SessionTitle(EventData):
    """The session got a title."""

    title: str
    by: str


@EVENTS.register("session/end-seed")
@dataclass(frozen=True, slots=True)
class EndSeed(EventData):
    """What a fork copied ends here: inbox and hold are empty, their ids unknown again."""


SURFACE: tuple[type[EventData], ...] = (UserMessage, AssistantMessage, ToolResult)
"""The types that the model's history is made of; each is appended with `surfaceOp: append`."""
