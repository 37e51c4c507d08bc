"""The agent as everything else sees it: one primitive, `send`, its three presets, and control over what waits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from agentls.agent.state import EditorFacts, WaitingMessage
from agentls.agent.view import Drawn, View
from agentls.core.blocks import ContentBlock
from agentls.core.errors import UserError
from agentls.core.events import Mention, ModelRef, Outcome
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId
from agentls.core.json import JsonValue
from agentls.core.reasons import CancelCause
from agentls.core.sources import MessageSource, UserSource
from agentls.core.visible import boundary

Target = Literal["next-turn", "next-step"]
IfIdle = Literal["start", "refuse"]
Now = Literal["pending", "held", "taken", "discarded"]
Refusal = Literal["id-conflict", "store-unavailable", "read-only", "no-turn", "not-retryable", "turn-open"]
Mode = Literal["ask", "read-only"]
Decision = Literal["allow", "deny", "deny-and-stop"]

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
    """What became of a change to a pending message: `gone` when it waits no more; an edit that came too late carries
    its content back."""

    outcome: Literal["done", "gone"]
    inbox: tuple[WaitingMessage, ...]
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancel: `idle` when nothing ran, `stale` when another turn than the one named runs."""

    outcome: Literal["cancelled", "idle", "stale"]
    inbox: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of an answer: `changed` when it was given to something else than what is asked; `by` names who
    answered first, or is None where a cancel closed the request."""

    outcome: Literal["accepted", "already-resolved", "changed"]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` to `end` of a block's whole body, cut between characters; `size` is that of all of it."""

    text: str
    start: int
    end: int
    size: int

    @classmethod
    def of(cls, body: str, start: int, end: int | None) -> Part:
        """That part of `body`; places inside of a character move to its beginning."""
        data = body.encode()
        first = boundary(data, start)
        last = boundary(data, len(data) if end is None else max(start, end))
        return cls(data[first:last].decode(), first, last, len(data))


class NotPending(UserError):
    """A message that was never accepted, or that waits in another lane, is named as a place in the queue."""


class UnknownRequest(UserError):
    """No approval or question of that id was ever asked."""

    def __init__(self, request: str) -> None:
        super().__init__(f'nothing was asked under "{request}"; take the requestId of an open request in the state')


class WrongAnswer(UserError):
    """The answer is not of the kind that the request takes."""


class UnknownBlock(UserError):
    """No block of that id has a body that can be read."""

    def __init__(self, block: str) -> None:
        super().__init__(f'there is no block "{block}"; take the id of a block that was drawn')


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

        `meta` is kept with the message: `{"editor": id}` names the editor that it was sent from (see workspace.Editor).
        Without a source it is a person's (`UserSource`), except for a quiet next-step send: an injection needs the
        source that says who produced it, and a person's is a ValueError there. A refusal is a value and carries the
        content back.
        """

    async def followup(
        self, content: Content, *, id: MessageId, contexts: tuple[Mention, ...] = (), meta: JsonValue = None
    ) -> Sent:
        """A turn of its own, after those that wait."""
        return await self.send(
            content, id=id, target="next-turn", wakeup=True, source=UserSource(), contexts=contexts, meta=meta
        )

    async def steer(
        self,
        content: Content,
        *,
        id: MessageId,
        contexts: tuple[Mention, ...] = (),
        meta: JsonValue = None,
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
            meta=meta,
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
    async def edit(self, message: MessageId, content: Content) -> Changed:
        """Give a pending message another content; its id, its place and its fate stay."""

    @abstractmethod
    async def move(self, message: MessageId, before: MessageId | None) -> Changed:
        """Move a pending message within its lane: before another one (where that has left meanwhile: to the head), or
        to the end. NotPending where `before` cannot be a place for it."""

    @abstractmethod
    async def promote(self, message: MessageId) -> Changed:
        """Release a pending message from the hold and make it steering; when idle, it starts a turn."""

    @abstractmethod
    async def answer(
        self,
        request: RequestId,
        decision: Decision,
        *,
        shown: str,
        by: str,
        note: str | None = None,
        content: JsonValue = None,
    ) -> Answered:
        """Answer an approval or a question. `shown` is the hash of what the person saw; the first valid answer wins.

        A question is answered by `allow` with `content`, and refused by the others. `deny-and-stop` also stops the turn
        and holds what waits. UnknownRequest where nothing was asked under that id, WrongAnswer for an approval with
        content or a question without."""

    @abstractmethod
    async def configure(
        self, *, model: ModelRef | None = None, mode: Mode | None = None, title: str | None = None, by: str = "person"
    ) -> None:
        """Change settings; what is None stays. A model takes effect at the next step. `by` says who gave the title."""

    @abstractmethod
    async def retry(self, turn: int, *, id: MessageId) -> Sent:
        """Try the last turn again, where it ended in an error, was interrupted, stopped or ran into the output limit:
        a turn without a message of its own."""

    @abstractmethod
    async def block(self, block: BlockId, start: int = 0, end: int | None = None) -> Part:
        """A part of a block's whole body, also where what is drawn of it is cut: from byte `start` to before `end`.
        UnknownBlock where there is none."""

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
