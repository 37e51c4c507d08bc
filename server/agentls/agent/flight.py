"""Text in flight: a model's deltas, coalesced, stored as drafts, and only then drawn.

The first delta after a pause is passed on at once and later ones join at most every 8 ms, so that fifty tokens a
second never wait and a burst costs one commit a frame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentls.core.assembler import Placed
from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock
from agentls.core.errors import StoreUnavailable
from agentls.core.ids import MessageId
from agentls.core.transcript import PieceKind
from agentls.store.store import DraftPiece, SessionLog

FRAME_SECONDS = 0.008


@dataclass(slots=True)
class _Pending:
    kind: PieceKind
    texts: list[str]


class Flight:
    """The text in flight of one answer.

    `draw` is called with the pieces of a frame after they are stored; `failed` once, when they cannot be.
    """

    def __init__(
        self,
        log: SessionLog,
        message: MessageId,
        *,
        draw: Callable[[tuple[DraftPiece, ...]], None],
        failed: Callable[[StoreUnavailable], None],
    ) -> None:
        self._log = log
        self._message = message
        self._draw = draw
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _Pending] = {}
        self._stored: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._last = -FRAME_SECONDS
        self._over = False
        self._lost = False

    def add(self, index: int, kind: PieceKind, text: str) -> None:
        """Take more text of block `index`."""
        if not text or self._over:
            return
        pending = self._pending.get(index)
        if pending is None:
            self._pending[index] = _Pending(kind, [text])
        else:
            pending.texts.append(text)
        if self._timer is None:
            due = self._last + FRAME_SECONDS
            if self._loop.time() >= due:
                self.flush()
            else:
                self._timer = self._loop.call_at(due, self.flush)

    def flush(self) -> None:
        """Store and draw what waits, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending or self._over:
            return
        pieces = tuple(self._piece(index, pending) for index, pending in self._pending.items())
        self._pending = {}
        self._last = self._loop.time()
        try:
            self._log.append_drafts(pieces)
        except StoreUnavailable as error:
            self._over = self._lost = True
            self._failed(error)
            return
        for piece in pieces:
            self._stored[piece.index] = piece.offset + _size(piece.text)
        self._draw(pieces)

    def end(self) -> None:
        """Flush, and take no more."""
        self.flush()
        self._over = True

    def shown(self, placed: Sequence[Placed]) -> tuple[Placed, ...]:
        """What of these blocks was drawn: all of it, unless the store refused in between."""
        if not self._lost:
            return tuple(placed)
        kept = (Placed(place.index, self._cut(place.index, place.block)) for place in placed)
        return tuple(place for place in kept if _text(place.block).strip())

    def _cut(self, index: int, block: ContentBlock) -> ContentBlock:
        if not isinstance(block, TextBlock | ReasoningBlock):
            return block
        stored = block.text.encode("utf-8", "surrogatepass")[: self._stored.get(index, 0)]
        return replace(block, text=stored.decode("utf-8", "surrogatepass"))

    def _piece(self, index: int, pending: _Pending) -> DraftPiece:
        return DraftPiece(self._message, index, pending.kind, self._stored.get(index, 0), "".join(pending.texts))


def _text(block: ContentBlock) -> str:
    return block.text if isinstance(block, TextBlock | ReasoningBlock) else ""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
