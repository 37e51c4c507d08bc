"""What waits for a person, and who answered what: approvals and questions as session state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import immutables

from agentls.core.errors import LogicError
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    EndSeed,
    Event,
    EventData,
    QuestionAnswered,
    QuestionAsked,
    StepStart,
)
from agentls.core.ids import CallId, RequestId
from agentls.core.json import digest

Asked: TypeAlias = ApprovalAsked | QuestionAsked
Closed: TypeAlias = ApprovalDecided | QuestionAnswered


@dataclass(frozen=True, slots=True)
class Requests:
    """The fold. `open` is in the order of asking, `closed` what ended each of the others; `in_step` counts those of the
    step at hand, for their ids, and `denied` has its calls that a person said no to."""

    open: tuple[Asked, ...] = ()
    closed: immutables.Map[RequestId, Closed] = field(default_factory=immutables.Map)
    in_step: int = 0
    denied: immutables.Map[CallId, ApprovalDecided] = field(default_factory=immutables.Map)

    @staticmethod
    def shown(asked: Asked) -> str:
        """The hash of what a person sees of a request, which an answer has to carry."""
        return asked.shown if isinstance(asked, ApprovalAsked) else digest(asked.question)

    def find(self, request: RequestId) -> Asked | None:
        """The open request of an id."""
        return next((asked for asked in self.open if asked.request_id == request), None)

    def apply(self, event: Event) -> Requests:
        """The state after `event`; LogicError for an answer to what is not asked, or asked twice."""
        match event.data:
            case StepStart():
                return self if not self.in_step else replace(self, in_step=0, denied=immutables.Map())
            case ApprovalAsked() | QuestionAsked():
                asked = event.data
                if asked.request_id in self.closed or self.find(asked.request_id) is not None:
                    raise LogicError(f'request "{asked.request_id}" was asked before')
                return replace(self, open=(*self.open, asked), in_step=self.in_step + 1)
            case ApprovalDecided():
                return self._close(event.data, ApprovalAsked)
            case QuestionAnswered():
                return self._close(event.data, QuestionAsked)
            case EndSeed():
                return Requests()
        return self

    def _close(self, closed: Closed, kind: type[Asked]) -> Requests:
        request = closed.request_id
        asked = self.find(request)
        if not isinstance(asked, kind):
            raise LogicError(f'request "{request}" is not open')
        denied = self.denied
        if (
            isinstance(asked, ApprovalAsked)
            and isinstance(closed, ApprovalDecided)
            and closed.decision in ("deny", "deny-and-stop")
        ):
            denied = denied.set(asked.call_id, closed)
        rest = tuple(other for other in self.open if other.request_id != request)
        return replace(self, open=rest, closed=self.closed.set(request, closed), denied=denied)

    def cancelled(self, but: RequestId | None = None) -> tuple[EventData, ...]:
        """The events that close all that is open, except `but`, without an answer."""
        return tuple(unanswered(asked) for asked in self.open if asked.request_id != but)


def unanswered(asked: Asked) -> Closed:
    """The event that closes a request without an answer."""
    if isinstance(asked, ApprovalAsked):
        return ApprovalDecided(asked.request_id, "cancelled")
    return QuestionAnswered(asked.request_id, cancelled=True)
