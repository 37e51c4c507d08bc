"""What the model sees: the surface of the log, in the one order that every provider accepts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentls.core.events import AssistantMessage, Event, RequestSent, StepEnd, ToolResult, UserMessage
from agentls.core.messages import Message


@dataclass(frozen=True, slots=True)
class History:
    """The fold. `messages` is what the next request sends; `after_step` waits for the open step to end.

    A message that comes in after a step's first request and before its end (an injection) is placed after that
    step's answer and results: never between a call and its result, and every attempt of a step sends the same.
    """

    messages: tuple[Message, ...] = ()
    after_step: tuple[Message, ...] = ()
    in_request: bool = False
    sent: int = 0
    """How many of the messages the last step's request held."""

    def apply(self, event: Event) -> History:
        """The state after `event`."""
        match event.data:
            case UserMessage(message) if self.in_request:
                return replace(self, after_step=(*self.after_step, message))
            case UserMessage(message) | ToolResult(message=message):
                return replace(self, messages=(*self.messages, message))
            case AssistantMessage(message=message) if message.content:
                return replace(self, messages=(*self.messages, message))
            case RequestSent():
                return self if self.in_request else replace(self, in_request=True, sent=len(self.messages))
            case StepEnd():
                return History(messages=self.messages + self.after_step, sent=self.sent)
        return self
