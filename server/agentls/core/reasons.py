"""Why things start and end: failures, finish reasons, turn triggers and turn ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentls.core.ids import MessageId
from agentls.core.json import JsonObject
from agentls.core.kinds import OpenUnion


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts of a failed model request; what to do about it is decided elsewhere, on `code`.

    `status` is the HTTP status, `retry_after_ms` the provider's own wish in milliseconds (> 0), `request_id` the
    provider's id of the request. `message` never holds a secret.
    """

    message: str
    code: str
    status: int | None = None
    retry_after_ms: int | None = None
    request_id: str | None = None


# Finish reasons ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a model stopped; open, tag `kind`. An unknown kind counts as an ordinary success."""


@dataclass(frozen=True, slots=True)
class UnknownFinish(FinishReason):
    """A reason that this version does not know."""

    kind: str
    fields: JsonObject


FINISHES: OpenUnion[FinishReason] = OpenUnion("finish reason", tag="kind", unknown=UnknownFinish)


@FINISHES.register("stop")
@dataclass(frozen=True, slots=True)
class Stop(FinishReason):
    """It was done."""


@FINISHES.register("tool-calls")
@dataclass(frozen=True, slots=True)
class ToolCalls(FinishReason):
    """It wants its calls answered."""


@FINISHES.register("max-tokens")
@dataclass(frozen=True, slots=True)
class MaxTokens(FinishReason):
    """It ran into its output limit; none of its calls may run."""


@FINISHES.register("aborted")
@dataclass(frozen=True, slots=True)
class Aborted(FinishReason):
    """We stopped it."""

    failure: Failure


@FINISHES.register("error")
@dataclass(frozen=True, slots=True)
class Failed(FinishReason):
    """It failed."""

    failure: Failure


# Turn triggers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnTrigger:
    """Why a turn started; open, tag `kind`."""


@dataclass(frozen=True, slots=True)
class UnknownTrigger(TurnTrigger):
    """A trigger that this version does not know."""

    kind: str
    fields: JsonObject


TRIGGERS: OpenUnion[TurnTrigger] = OpenUnion("turn trigger", tag="kind", unknown=UnknownTrigger)


@TRIGGERS.register("message")
@dataclass(frozen=True, slots=True)
class MessageTrigger(TurnTrigger):
    """Messages of the inbox."""

    ids: tuple[MessageId, ...]


@TRIGGERS.register("injection")
@dataclass(frozen=True, slots=True)
class InjectionTrigger(TurnTrigger):
    """A context that arrived while nothing ran: the turn holds it and runs nothing."""

    id: MessageId


@TRIGGERS.register("retry")
@dataclass(frozen=True, slots=True)
class RetryTrigger(TurnTrigger):
    """A person asked to try turn `turn` again; `id` is that of the asking, so that a repeated one is known."""

    turn: int
    id: MessageId | None = None


# Turn ends -----------------------------------------------------------------------------------------------------

CancelCause = Literal["user", "parent", "hook", "disposed"]


@dataclass(frozen=True, slots=True)
class TurnEndReason:
    """Why a turn ended; open, tag `kind`."""


@dataclass(frozen=True, slots=True)
class UnknownTurnEnd(TurnEndReason):
    """A reason that this version does not know."""

    kind: str
    fields: JsonObject


TURN_ENDS: OpenUnion[TurnEndReason] = OpenUnion("turn end", tag="kind", unknown=UnknownTurnEnd)


@TURN_ENDS.register("completed")
@dataclass(frozen=True, slots=True)
class Completed(TurnEndReason):
    """Nothing more was owed."""


@TURN_ENDS.register("aborted")
@dataclass(frozen=True, slots=True)
class TurnAborted(TurnEndReason):
    """It was cancelled; the first cause counts."""

    cause: CancelCause


@TURN_ENDS.register("blocked")
@dataclass(frozen=True, slots=True)
class Blocked(TurnEndReason):
    """A `pre_step` hook refused its input."""

    reason: str


@TURN_ENDS.register("error")
@dataclass(frozen=True, slots=True)
class TurnFailed(TurnEndReason):
    """The model or the store failed for good."""

    failure: Failure


@TURN_ENDS.register("max-tokens")
@dataclass(frozen=True, slots=True)
class OutputLimit(TurnEndReason):
    """An answer ran into its output limit."""


@TURN_ENDS.register("interrupted")
@dataclass(frozen=True, slots=True)
class Interrupted(TurnEndReason):
    """The server died in it; only crash repair writes this."""
