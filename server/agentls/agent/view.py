"""What is drawn of an agent: its blocks with their revisions, and the frames that tell of each change.

A view knows no connection. Whoever draws it subscribes a listener and is told of every frame in order, and by `on_end`
when there are no more; whoever was away asks `catch_up`. `rev` counts frames and states within an `epoch`, which names
one life of this view.
"""

from __future__ import annotations

import dataclasses
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agentls.agent.state import AgentState
from agentls.core.ids import BlockId
from agentls.core.rows import Block
from agentls.core.transcript import Append, Change, Drop, Put

logger = logging.getLogger(__name__)

PAGE = 100
"""Blocks of a first page."""
TOMBSTONES = 1000
"""Dropped ids that are remembered; a client that was away longer gets a new page."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A block as it stands: `rev` of its last change, its body's length in UTF-8 bytes, and the optional fields that
    it once had and has no more, which a put must clear by name."""

    block: Block
    rev: int
    size: int
    cleared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PutOp:
    """Put a block: only `fields` of it, or all of it where that is None."""

    drawn: Drawn
    fields: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class AppendOp:
    """Extend the body of a block by `text` at `offset` UTF-8 bytes."""

    id: BlockId
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class DropOp:
    """Remove a block."""

    id: BlockId


Op: TypeAlias = PutOp | AppendOp | DropOp
_Place: TypeAlias = tuple[tuple[int, int], BlockId]


@dataclass(slots=True)
class Frame:
    """One published change: ops, or a whole state. `encoded` is for the edge, which writes it once for all clients."""

    rev: int
    ops: tuple[Op, ...] = ()
    state: AgentState | None = None
    encoded: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What brings a client to `rev`; with `reset` it forgets all blocks first. `before` is the order of the oldest
    block where older ones exist."""

    ops: tuple[Op, ...]
    reset: bool
    rev: int
    before: tuple[int, int] | None


Listener = Callable[[Frame], None]
"""Called with each frame in the loop step in which it is published; must not wait. One that raises is left out."""

_OPTIONAL = tuple(f.name for f in dataclasses.fields(Block) if f.default is None)


class View:
    """The drawn blocks of one agent."""

    def __init__(self, epoch: str, blocks: Iterable[Block] = (), *, older: bool = False) -> None:
        self.epoch = epoch
        self.rev = 0
        self.state: AgentState | None = None
        self.state_rev = 0
        self._older = older
        self._drawn: dict[BlockId, Drawn] = {block.id: _drawn(block, 0, None) for block in blocks}
        # In the order in which they stand, so that a page costs the same in a long session as in a short one.
        self._places = sorted(map(_place, self._drawn.values()))
        self._streaming = {drawn.block.id for drawn in self._drawn.values() if drawn.block.state == "streaming"}
        self._dropped: dict[BlockId, int] = {}
        self.ended = False
        self._forgotten = 0
        self._listeners: list[Listener] = []
        self._end_listeners: list[Callable[[], None]] = []

    # For those who draw ----------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each frame from now on; the answer unsubscribes it."""
        self._listeners.append(listener)

        def leave() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return leave

    def on_end(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` once when no frame comes any more, since the agent was closed or deleted: in the loop step of
        that, or at once where it has been. The answer takes this back."""
        self._end_listeners.append(listener)
        if self.ended:
            self._tell_end()

        def leave() -> None:
            if listener in self._end_listeners:
                self._end_listeners.remove(listener)

        return leave

    def catch_up(self, epoch: str | None = None, since: int | None = None) -> CatchUp:
        """Ops from `since`, or a first page where that cannot be told: another epoch, a rev from the future, or one
        older than the tombstones that are kept. Blocks that stream are always put whole."""
        if epoch != self.epoch or since is None or not self._forgotten <= since <= self.rev:
            return self._first_page()
        changed = [d for d in self._drawn.values() if d.rev > since or d.block.id in self._streaming]
        drops = tuple(DropOp(block) for block, rev in self._dropped.items() if rev > since)
        puts = tuple(PutOp(drawn) for drawn in sorted(changed, key=_place))
        return CatchUp((*drops, *puts), reset=False, rev=self.rev, before=None)

    def _first_page(self) -> CatchUp:
        page = self._places[-PAGE:]
        # Not the order of what streams: between that and the page others stand.
        before = page[0][0] if page and (self._older or len(page) < len(self._places)) else None
        streaming = (_place(self._drawn[block]) for block in self._streaming)
        shown = sorted(place for place in streaming if place < page[0]) + page if page else []
        return CatchUp(tuple(PutOp(self._drawn[block]) for _, block in shown), reset=True, rev=self.rev, before=before)

    def page(self, before: tuple[int, int], limit: int) -> tuple[tuple[Drawn, ...], bool]:
        """The `limit` blocks that stand just before `before`, in order, and whether this view holds older ones."""
        end = bisect_left(self._places, (before,))
        start = max(end - limit, 0)
        return tuple(self._drawn[block] for _, block in self._places[start:end]), start > 0

    def drawn(self, block: BlockId) -> Drawn | None:
        """A block as it stands."""
        return self._drawn.get(block)

    @property
    def oldest(self) -> tuple[int, int] | None:
        """The order of the oldest block held, or None for an empty view."""
        return self._places[0][0] if self._places else None

    @property
    def has_older(self) -> bool:
        """Whether the log holds blocks from before the oldest one here."""
        return self._older

    # For the agent ---------------------------------------------------------------------------------------------

    def publish(self, changes: Sequence[Change]) -> None:
        """Draw `changes` and tell of them in one frame; nothing is told where nothing changed."""
        ops = [op for change in changes if (op := self._draw(change, self.rev + 1)) is not None]
        if ops:
            self.rev += 1
            self._tell(Frame(self.rev, tuple(ops)))

    def publish_state(self, state: AgentState) -> None:
        """Tell of the whole state, where it differs from the last one told."""
        if state != self.state:
            self.rev += 1
            self.state, self.state_rev = state, self.rev
            self._tell(Frame(self.rev, state=state))

    def end(self) -> None:
        """Tell that nothing comes any more, once."""
        self.ended = True
        self._tell_end()

    def _draw(self, change: Change, rev: int) -> Op | None:
        match change:
            case Put(block):
                return self._put(block, rev)
            case Append(block_id, text):
                was = self._drawn[block_id]
                size = was.size + len(text.encode())
                grown = replace(was.block, body=was.block.body + text)
                self._drawn[block_id] = Drawn(grown, rev, size, was.cleared)
                return AppendOp(block_id, was.size, text)
            case Drop(block_id):
                if block_id not in self._drawn:
                    return None
                self._leave(block_id)
                del self._drawn[block_id]
                self._bury(block_id, rev)
                return DropOp(block_id)

    def _put(self, block: Block, rev: int) -> Op | None:
        was = self._drawn.get(block.id)
        if was is not None and was.block == block:
            return None
        drawn = _drawn(block, rev, was)
        if was is None or (was.block.order, was.block.state) != (block.order, block.state):
            if was is not None:
                self._leave(block.id)
            insort(self._places, _place(drawn))
            if block.state == "streaming":
                self._streaming.add(block.id)
        self._drawn[block.id] = drawn
        if was is None:
            return PutOp(drawn)
        return PutOp(drawn, frozenset(name for name in _FIELDS if getattr(was.block, name) != getattr(block, name)))

    def _leave(self, block: BlockId) -> None:
        """Take a drawn block out of its place."""
        del self._places[bisect_left(self._places, _place(self._drawn[block]))]
        self._streaming.discard(block)

    def _bury(self, block: BlockId, rev: int) -> None:
        # It stays when the block comes back: a client that was away must not keep anything of what it was.
        self._dropped.pop(block, None)
        self._dropped[block] = rev
        if len(self._dropped) > TOMBSTONES:
            oldest = next(iter(self._dropped))
            self._forgotten = max(self._forgotten, self._dropped.pop(oldest))

    def _tell_end(self) -> None:
        while self._end_listeners:
            listener = self._end_listeners.pop(0)
            try:
                listener()
            except Exception:
                logger.exception("a listener to the end of a view failed")

    def _tell(self, frame: Frame) -> None:
        if self.ended:
            return
        for listener in tuple(self._listeners):
            try:
                listener(frame)
            except Exception:
                # One that fails has missed a frame for good: it hears no more, and the others and the agent go on.
                logger.exception("a listener of a view failed and is left out from now on")
                self._listeners.remove(listener)


_FIELDS = tuple(f.name for f in dataclasses.fields(Block) if f.name != "id")


def _drawn(block: Block, rev: int, was: Drawn | None) -> Drawn:
    once = frozenset[str]()
    if was is not None:
        once = was.cleared | {name for name in _OPTIONAL if getattr(was.block, name) is not None}
    cleared = frozenset(name for name in once if getattr(block, name) is None)
    return Drawn(block, rev, len(block.body.encode()), cleared)


def _place(drawn: Drawn) -> _Place:
    return drawn.block.order, drawn.block.id
