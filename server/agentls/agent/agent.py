"""The agent as everything else sees it: one primitive, `send`, its three presets, and control over what waits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from agentls.agent.state import EditorFacts, WaitingMessage
from agentls.agent.view import Drawn, View
from agentls.core.blocks import ContentBlock
from agentls.core.events import Mention, Outcome
from agentls.core.ids import AgentId, MessageId
from agentls.core.json import JsonValue
from agentls.core.reasons import CancelCause
from agentls.core.sources import MessageSource, UserSource

Target = Literal["next-turn", "next-step"]
IfIdle = Literal["start", "refuse"]
Now = Literal["pending", "held", "taken", "discarded"]
Refusal = Literal["id-conflict", "store-unavailable", "read-only", "no-turn", "not-retryable", "turn-open"]

Content = tuple[ContentBlock, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a send. `position` counts from 0 in the queue; a refusal carries `reason` and the content back;
    a repeat carries the first fate and where the message is `now`."""

    message_id: MessageId
    outcome: Outcome
    turn: int | None = None
    position: int | None = None
    reason: Refusal | None = None
    content: Content | None = None
    repeated: bool = False
    now: Now | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a change to a pending message: `gone` when it waits no more."""

    outcome: Literal["done", "gone"]
    inbox: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancel: `idle` when nothing ran, `stale` when another turn than the one named runs."""

    outcome: Literal["cancelled", "idle", "stale"]
    inbox: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Older blocks in order; `before` is where the next older page ends, or None when there is none."""

    blocks: tuple[Drawn, ...]
    before: tuple[int, int] | None


class Agent(ABC):
    """One live agent. Everything that changes its log returns only when that is on disk.

    Calls are taken in the order in which they are made: the part of each method before its first wait decides.
    """

    id: AgentId
    view: View

    @abstractmethod
    async def send(
        self,
        content: Content,
        *,
        id: MessageId,
        target: Target = "next-turn",
        wakeup: bool = True,
        source: MessageSource | None = None,
        contexts: tuple[Mention, ...] = (),
        meta: JsonValue = None,
        expected_turn: int | None = None,
        if_idle: IfIdle = "start",
    ) -> Sent:
        """Take a message: target × wakeup say where it goes and whether it makes the agent run.

        Without a source it is a person's (`UserSource`), except for a quiet next-step send: an injection needs the
        source that says who produced it, and a person's is a ValueError there. A refusal is a value and carries the
        content back.
        """

    async def followup(self, content: Content, *, id: MessageId, contexts: tuple[Mention, ...] = ()) -> Sent:
        """A turn of its own, after those that wait."""
        return await self.send(content, id=id, target="next-turn", wakeup=True, source=UserSource(), contexts=contexts)

    async def steer(
        self,
        content: Content,
        *,
        id: MessageId,
        contexts: tuple[Mention, ...] = (),
        expected_turn: int | None = None,
        if_idle: IfIdle = "start",
    ) -> Sent:
        """Join the running turn at its next step; when idle, start one, or refuse where `if_idle` says so."""
        return await self.send(
            content,
            id=id,
            target="next-step",
            wakeup=True,
            source=UserSource(),
            contexts=contexts,
            expected_turn=expected_turn,
            if_idle=if_idle,
        )

    async def inject(self, content: Content, *, id: MessageId, source: MessageSource) -> Sent:
        """Put a context before the model at the next step without running anything."""
        return await self.send(content, id=id, target="next-step", wakeup=False, source=source)

    @abstractmethod
    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        """Stop the running turn, or only turn `turn`; what was shown stays. Without `keep_inbox` what waits is
        discarded, with it it is held. It returns when the turn has closed. Idle, it does and arms nothing."""

    @abstractmethod
    async def remove(self, message: MessageId) -> Changed:
        """Take a pending message out."""

    @abstractmethod
    async def resume(self) -> Changed:
        """Let go of the hold; what waited runs, first come first."""

    @abstractmethod
    async def page(self, before: tuple[int, int], limit: int) -> Page:
        """Blocks that stand before `before`, from memory or from the log."""

    @abstractmethod
    def set_editors(self, editors: tuple[EditorFacts, ...]) -> None:
        """Say which clients are attached; it is a part of the state."""

    @abstractmethod
    async def close(self) -> None:
        """Stop what runs, keep what waits, and let the session go."""
