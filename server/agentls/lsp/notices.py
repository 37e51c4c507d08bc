"""What a client is told beside blocks and states: which contexts came, and what calls for the person."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentls.agent.state import AgentState
from agentls.agent.view import Drawn, Frame, PutOp, View
from agentls.core.ids import BlockId, RequestId

Attention: TypeAlias = Literal["needs-you", "done", "failed"]


@dataclass(frozen=True, slots=True)
class News:
    """What a frame brought: the contexts that it drew, each with the block of the snapshot that it takes the place of,
    and what calls for the person."""

    contexts: tuple[tuple[Drawn, BlockId | None], ...] = ()
    attention: Attention | None = None


class Notices:
    """Reads the frames of a view, each once and in order. What the view draws already is no news."""

    def __init__(self, view: View) -> None:
        drawn, _ = view.page((sys.maxsize, 0), sys.maxsize)
        self._snapshots = {
            one.block.producer: one.block.id for one in drawn if one.block.kind == "context" and _is_snapshot(one)
        }
        self._asked = _asked(view.state)

    def of(self, frame: Frame) -> News:
        """The news in `frame`."""
        # A put without a choice of fields is that of a block that was not there before.
        fresh = [op.drawn for op in frame.ops if isinstance(op, PutOp) and op.fields is None]
        contexts = tuple((one, self._place(one)) for one in fresh if one.block.kind == "context")
        ended = next((one for one in fresh if one.block.kind == "turn-end"), None)
        return News(contexts, self._needs_you(frame.state) if ended is None else _ending(ended.block.reason))

    def _place(self, drawn: Drawn) -> BlockId | None:
        if not _is_snapshot(drawn):
            return None
        before = self._snapshots.get(drawn.block.producer)
        self._snapshots[drawn.block.producer] = drawn.block.id
        return before

    def _needs_you(self, state: AgentState | None) -> Attention | None:
        if state is None:
            return None
        before, self._asked = self._asked, _asked(state)
        return "needs-you" if self._asked - before else None


def _is_snapshot(drawn: Drawn) -> bool:
    return drawn.block.form == "snapshot"


def _asked(state: AgentState | None) -> frozenset[RequestId]:
    return frozenset(request.request_id for request in state.requests) if state is not None else frozenset()


def _ending(reason: str | None) -> Attention | None:
    """Only turns that a person began have a row at their end. Whoever stopped one knows it."""
    if reason == "aborted":
        return None
    return "done" if reason == "completed" else "failed"
