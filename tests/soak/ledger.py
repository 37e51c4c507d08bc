"""What the soak remembers of an agent beside the server: what was asked and acknowledged, and what was shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentls.core.events import Event
from agentls.core.inbox import Inbox
from agentls.core.json import JsonObject

Verb = Literal["followup", "steer", "quiet", "inject", "retry"]
Change = Literal["edit", "remove", "move", "promote", "resume", "cancel", "answer"]

Answer = dict[str, Any]


@dataclass(slots=True)
class Sent:
    """A message, and its acknowledgement: None as long as there was none, so that either may have happened."""

    id: str
    verb: Verb
    text: str
    turn: int | None = None
    """Of a retry."""
    answer: Answer | None = None
    stored: bool | None = None
    """Whether the log had it when the server died, where nobody was told; None where it does not matter any more."""

    @property
    def accepted(self) -> bool:
        """Whether the server said that it has it."""
        return self.answer is not None and self.answer["outcome"] != "refused"


@dataclass(slots=True)
class Changed:
    """A change to what waits, a cancel or an answer to a request: `target` is a message, a turn or a request, `what`
    the text of an edit, the decision of an answer, or whether a cancel keeps the inbox. `answer` as that of a send; an
    error counts as the outcome `error`, after which nothing may have happened."""

    change: Change
    target: str
    what: str = ""
    answer: Answer | None = None

    @property
    def outcome(self) -> str | None:
        """What the server said of it."""
        return None if self.answer is None else self.answer["outcome"]


@dataclass(slots=True)
class Ledger:
    """One agent. `name` is the soak's, `id` the server's; `http` says which of the two models it has."""

    name: str
    id: str
    folder: Path
    http: bool
    sent: dict[str, Sent] = field(default_factory=dict)
    changes: list[Changed] = field(default_factory=list)
    told_inboxes: list[tuple[JsonObject, ...]] = field(default_factory=list)
    """What answers have said of the inbox since the last kill."""
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The blocks that the client held when the server died."""
    events: list[Event] = field(default_factory=list)
    """The log, as it was on disk when the server died."""
    inbox: Inbox = field(default_factory=Inbox)
    """What waits by that log."""
    bodies: dict[str, set[str]] = field(default_factory=dict)
    """For each file that calls write: the temporary files that bodies have begun to write it in."""
    requests: int = 0
    """How many of its requests the model had had by the last kill."""
    _messages: int = 0

    def fresh(self) -> str:
        """The id of a new message, which its text begins with."""
        self._messages += 1
        return f"{self.name}-m{self._messages}"

    def settled(self) -> list[Sent]:
        """Messages of which is known what became of them."""
        return [sent for sent in self.sent.values() if sent.accepted]
