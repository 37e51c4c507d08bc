"""Input that no step has taken yet: two FIFOs, the hold over them, and what became of every id.

Conservation: enqueued = dequeued + discarded + pending, and each id leaves exactly once. `Inbox.apply` refuses an
event that would break it; `invariants.py` proves it from a log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import immutables

from agentls.core.blocks import ContentBlock
from agentls.core.codec import encode
from agentls.core.errors import LogicError
from agentls.core.events import (
    Dequeue,
    Discard,
    EndSeed,
    Enqueue,
    Event,
    Fate,
    Hold,
    HoldCause,
    InboxItem,
    Lane,
    TurnStart,
    Update,
    UserMessage,
)
from agentls.core.ids import MessageId, is_server_form
from agentls.core.json import digest
from agentls.core.messages import Message
from agentls.core.reasons import RetryTrigger
from agentls.core.sources import ContextForm, form_of, is_person

Exit = Literal["pending", "taken", "discarded"]


def content_hash(content: Sequence[ContentBlock], form: ContextForm | None = None) -> str:
    """What makes two sends under one id the same: their content, and the form of an injected one."""
    blocks = [encode(block) for block in content]
    return digest(blocks if form is None else [blocks, encode(form)])


def retry_hash(turn: int) -> str:
    """The same of a retry: which turn it tries again."""
    return digest({"retry": turn})


@dataclass(frozen=True, slots=True)
class Pending:
    """An item that waits, with the seq of its enqueue; `released` ones no hold of before covers."""

    item: InboxItem
    seq: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the log remembers of an id: its first fate, the hash of its first content, and whether it left."""

    fate: Fate
    content_hash: str
    exit: Exit


@dataclass(frozen=True, slots=True)
class Inbox:
    """The fold. Items that an earlier hold covers stay in their lane and are skipped by claims."""

    queued: tuple[Pending, ...] = ()
    steering: tuple[Pending, ...] = ()
    known: immutables.Map[MessageId, Known] = field(default_factory=immutables.Map)
    """Every id that was ever accepted: it grows with the session, so that a change must not copy it."""
    hold_cause: HoldCause | None = None
    hold_before: int = 0

    # Questions -------------------------------------------------------------------------------------------------

    def pending(self) -> tuple[Pending, ...]:
        """Everything that waits, steering first."""
        return self.steering + self.queued

    def find(self, message: MessageId) -> Pending | None:
        """The pending item of an id."""
        return next((pending for pending in self.pending() if pending.item.id == message), None)

    def is_held(self, pending: Pending) -> bool:
        """Whether the hold covers it."""
        return self.hold_cause is not None and pending.seq < self.hold_before and not pending.released

    def free(self) -> tuple[Pending, ...]:
        """Pending items that no hold covers, steering first."""
        return tuple(pending for pending in self.pending() if not self.is_held(pending))

    def claim_for_turn(self) -> tuple[MessageId, ...]:
        """The messages that open the next turn, or none: all steering and the first free one of the queue, once there
        is steering or any free one wakes."""
        free = [pending for pending in self.queued if not self.is_held(pending)]
        if not self.steering and not any(pending.item.wakeup for pending in free):
            return ()
        return tuple(pending.item.id for pending in (*self.steering, *free[:1]))

    def lane(self, lane: Lane) -> tuple[Pending, ...]:
        """The pending items of a lane, in their order."""
        return self.queued if lane == "queued" else self.steering

    def without(self, ids: Iterable[MessageId]) -> Inbox:
        """This inbox as if these messages had left; what is known of them stays."""
        gone = frozenset(ids)
        return replace(
            self,
            queued=tuple(pending for pending in self.queued if pending.item.id not in gone),
            steering=tuple(pending for pending in self.steering if pending.item.id not in gone),
        )

    # The fold --------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> Inbox:
        """The state after `event`; LogicError where it would break conservation."""
        match event.data:
            case Enqueue(item, position):
                return self._enqueue(item, position, event.seq)
            case Dequeue(message):
                return self._leave((message,), "taken")
            case Discard(ids):
                return self._leave(ids, "discarded")
            case Update():
                return self._update(event.data)
            case Hold(held, cause, before):
                return self._hold(held, cause, event.seq if before is None else before)
            case TurnStart(_, RetryTrigger(turn, message)) if message is not None:
                return self._retried(message, event.data.turn, turn)
            case UserMessage(message) if not is_person(message.source) and not is_server_form(message.id):
                return self._entered(message)
            case EndSeed():
                return self._end_seed()
        return self

    def _enqueue(self, item: InboxItem, position: int | None, seq: int) -> Inbox:
        if item.id in self.known:
            raise LogicError(f'message "{item.id}" was enqueued before')
        lane = self.lane(item.lane)
        at = len(lane) if position is None else position
        known = self.known.set(item.id, Known(item.fate, item.content_hash, "pending"))
        return replace(self._with(item.lane, (*lane[:at], Pending(item, seq), *lane[at:])), known=known)

    def _leave(self, ids: Iterable[MessageId], how: Exit) -> Inbox:
        known = self.known
        gone = set(ids)
        for message in gone:
            receipt = known.get(message)
            if receipt is None or receipt.exit != "pending":
                raise LogicError(f'message "{message}" is not pending')
            known = known.set(message, replace(receipt, exit=how))
        return replace(self.without(gone), known=known)

    def _update(self, update: Update) -> Inbox:
        pending = self.find(update.id)
        if pending is None:
            raise LogicError(f'message "{update.id}" is not pending')
        item = pending.item
        changed = replace(
            item,
            content=item.content if update.content is None else update.content,
            contexts=item.contexts if update.contexts is None else update.contexts,
            lane=update.lane or item.lane,
        )
        moved = replace(pending, item=changed, released=pending.released or update.lane == "steering")
        if update.lane is None and update.position is None:
            lane = self.lane(item.lane)
            return self._with(item.lane, tuple(moved if other.item.id == update.id else other for other in lane))
        rest = self._with(item.lane, tuple(other for other in self.lane(item.lane) if other.item.id != update.id))
        lane = rest.lane(changed.lane)
        at = len(lane) if update.position is None else update.position
        return rest._with(changed.lane, (*lane[:at], moved, *lane[at:]))

    def _hold(self, held: bool, cause: HoldCause, before: int) -> Inbox:
        if not held:
            return replace(self, hold_cause=None, hold_before=0)
        return replace(
            self,
            hold_cause=cause,
            hold_before=max(before, self.hold_before),
            queued=tuple(replace(pending, released=False) for pending in self.queued),
        )

    def _end_seed(self) -> Inbox:
        """Empty, and what waited is unknown; what a copied turn took stays known, since history holds it."""
        known = self.known
        for pending in self.pending():
            known = known.delete(pending.item.id)
        return Inbox(known=known)

    def _entered(self, message: Message) -> Inbox:
        """A message of no person in history: an injection, or one that was claimed."""
        known = self.known.get(message.id)
        if known is None:
            hashed = content_hash(message.content, form_of(message.source))
            return replace(self, known=self.known.set(message.id, Known(Fate("injected"), hashed, "taken")))
        if known.exit != "taken" or known.fate.outcome == "injected":
            raise LogicError(f'message "{message.id}" was accepted before')
        return self

    def _retried(self, message: MessageId, turn: int, of: int) -> Inbox:
        """The receipt of a retry, which is no message: only its id is remembered."""
        if message in self.known:
            raise LogicError(f'message "{message}" was accepted before')
        return replace(self, known=self.known.set(message, Known(Fate("started", turn), retry_hash(of), "taken")))

    def _with(self, lane: Lane, items: tuple[Pending, ...]) -> Inbox:
        return replace(self, queued=items) if lane == "queued" else replace(self, steering=items)
