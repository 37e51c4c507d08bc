"""What a person's changes to pending messages write into the log: pure decisions, None for a message that has left."""

from __future__ import annotations

from agentls.agent.agent import Content, NotPending
from agentls.core.events import EventData, Update
from agentls.core.ids import MessageId
from agentls.core.inbox import Inbox


def edit(inbox: Inbox, message: MessageId, content: Content) -> tuple[EventData, ...] | None:
    """Another content for it."""
    return (Update(message, content=content),) if inbox.find(message) is not None else None


def move(inbox: Inbox, message: MessageId, before: MessageId | None) -> tuple[EventData, ...] | None:
    """Another place in its lane; no event where it stands there already."""
    pending = inbox.find(message)
    if pending is None:
        return None
    ids = [other.item.id for other in inbox.lane(pending.item.lane)]
    rest = [other for other in ids if other != message]
    position = _position(inbox, rest, message, before)
    return (Update(message, position=position),) if position != ids.index(message) else ()


def _position(inbox: Inbox, rest: list[MessageId], message: MessageId, before: MessageId | None) -> int:
    if before is None:
        return len(rest)
    if before == message:
        raise NotPending(f'message "{message}" cannot stand before itself; name another one')
    if before in rest:
        return rest.index(before)
    if inbox.find(before) is not None:
        raise NotPending(f'message "{before}" waits in another lane than "{message}"; promote one of them first')
    if before in inbox.known:
        return 0  # It was taken or discarded just now: whoever was to stand before it comes next.
    raise NotPending(f'there is no message "{before}"; name one that waits')


def promote(inbox: Inbox, message: MessageId) -> tuple[EventData, ...] | None:
    """Release from the hold, and steering from now on; no event where it is steering already."""
    pending = inbox.find(message)
    if pending is None:
        return None
    return (Update(message, lane="steering"),) if pending.item.lane == "queued" else ()
