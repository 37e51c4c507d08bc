"""Blocks that are not in memory: rendered from the log by folding whole turns, and text in flight from its drafts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentls.core.assembler import Placed
from agentls.core.blocks import ReasoningBlock, TextBlock
from agentls.core.bodies import PREVIEW_BYTES
from agentls.core.contexts import Contexts
from agentls.core.events import Event, TurnEnd
from agentls.core.ids import BlockId, MessageId
from agentls.core.rows import Block
from agentls.core.transcript import Append, Drop, PieceKind, Put, Transcript
from agentls.store.store import DraftPiece, SessionLog

EVENTS_A_BLOCK = 8
"""Events that are read for each block wanted: a turn of one question and one answer has eight for three blocks."""

_NONE = Contexts()
_READ = 64
_SOUGHT = 512


def render(
    events: Sequence[Event], contexts: Contexts = _NONE, preview_bytes: int | None = PREVIEW_BYTES
) -> tuple[Transcript, list[Block]]:
    """The blocks of `events`, in order, and the fold behind them; bodies are whole where `preview_bytes` is None.
    `contexts` are those of the whole log, of which a row says whether a snapshot stands before it; a log that is drawn
    from its beginning needs none."""
    transcript = Transcript(preview_bytes, producers=contexts.known(events[0].seq) if events else frozenset())
    blocks: dict[BlockId, Block] = {}
    for event in events:
        transcript, changes = transcript.apply(event)
        for change in changes:
            match change:
                case Put(block):
                    blocks[block.id] = block
                case Drop(block_id):
                    blocks.pop(block_id, None)
                case Append():
                    raise AssertionError("only text in flight is appended")
    return transcript, sorted(blocks.values(), key=lambda block: (block.order, block.id))


def placed_drafts(pieces: Iterable[DraftPiece]) -> dict[MessageId, tuple[Placed, ...]]:
    """What stored text in flight shows of each message, blank blocks left out."""
    texts: dict[tuple[MessageId, int, PieceKind], str] = {}
    for piece in pieces:
        key = (piece.message, piece.index, piece.kind)
        texts[key] = texts.get(key, "") + piece.text
    shown: dict[MessageId, tuple[Placed, ...]] = {message: () for message, _, _ in texts}
    for (message, index, kind), text in sorted(texts.items(), key=lambda item: item[0][1]):
        if text.strip():
            block = ReasoningBlock(text) if kind == "reasoning" else TextBlock(text)
            shown[message] += (Placed(index, block),)
    return shown


async def older_blocks(
    log: SessionLog, contexts: Contexts, before: tuple[int, int], limit: int
) -> tuple[list[Block], bool]:
    """At most `limit` blocks that stand just before `before`, and whether there are older ones."""
    found: list[Block] = []
    edge = await _turn_end(log, before[0])
    while len(found) < limit:
        events = await log.page(edge, limit * EVENTS_A_BLOCK)
        if not events:
            return found, False
        edge = events[0].seq
        _, blocks = render(events, contexts)
        found = [block for block in blocks if block.order < before] + found
    return found[-limit:], len(found) > limit or bool(await log.page(edge, 1))


async def whole_block(log: SessionLog, contexts: Contexts, block: Block) -> Block | None:
    """A drawn block with nothing left out, rendered from the turn that it stands in, as the log has it now; None for
    one that the log does not hold.

    What was left out may have stood anywhere in the body, so that the whole one does not begin with the preview.
    """
    if block.more is None:
        return block
    if block.volatile:
        return None
    _, blocks = render(await _turn_around(log, block.order[0]), contexts, preview_bytes=None)
    return next((whole for whole in blocks if whole.id == block.id), None)


async def stored_block(log: SessionLog, contexts: Contexts, block: BlockId, before: int) -> Block | None:
    """A block from before seq `before` that is not in memory, with nothing left out; None where there is none. It reads
    back from there until it is found."""
    while events := await log.page(before, _SOUGHT):
        _, blocks = render(events, contexts, preview_bytes=None)
        found = next((one for one in blocks if one.id == block), None)
        if found is not None:
            return found
        before = events[0].seq
    return None


async def _turn_around(log: SessionLog, seq: int) -> tuple[Event, ...]:
    """The events of the turn that `seq` lies in, as many as there are of one that is open."""
    before = await log.page(seq + 1, 1)
    if before and before[-1].seq == seq:
        return before
    return await log.read(before[-1].seq + 1 if before else 0, await _turn_end(log, seq))


async def _turn_end(log: SessionLog, seq: int) -> int:
    """The seq after the end of the turn that `seq` lies in: a block that stands early may be drawn by a late event."""
    while events := await log.read(seq, seq + _READ):
        for event in events:
            if isinstance(event.data, TurnEnd):
                return event.seq + 1
        seq = events[-1].seq + 1
    return seq
