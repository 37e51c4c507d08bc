"""What an agent shows: its transcript as it grows, and its state, published to the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentls.agent.state import EditorFacts, StoreState, agent_state
from agentls.agent.view import View
from agentls.core.errors import StoreUnavailable, UserError
from agentls.core.events import ModelRef
from agentls.core.ids import AgentId, volatile_block
from agentls.core.rows import Block
from agentls.core.session import Batch, SessionState
from agentls.core.transcript import Change, Drop, Put, Transcript
from agentls.models.model import Models
from agentls.store.store import DraftPiece

_LOST_STORE = volatile_block(1)


class Drawing:
    """Draws one agent. Nothing is drawn before it is committed."""

    def __init__(
        self,
        agent_id: AgentId,
        view: View,
        transcript: Transcript,
        *,
        models: Models,
        default_model: ModelRef,
        committed: Callable[[], SessionState],
    ) -> None:
        self.editors: tuple[EditorFacts, ...] = ()
        self._agent_id = agent_id
        self._view = view
        self._transcript = transcript
        self._models = models
        self._default_model = default_model
        self._committed = committed
        self._store: StoreState = "ok"
        self._asked_about: ModelRef | None = None
        self._usable = False
        self._window = 0

    def batch(self, batch: Batch) -> None:
        """Draw what a committed batch changes."""
        changes: list[Change] = []
        for event in batch.events:
            self._transcript, drawn = self._transcript.apply(event)
            changes += drawn
        self._view.publish(changes)
        self.state()

    def drafts(self, pieces: Sequence[DraftPiece]) -> None:
        """Draw stored text in flight."""
        changes: list[Change] = []
        for piece in pieces:
            self._transcript, drawn = self._transcript.draft(piece.message, piece.index, piece.kind, piece.text)
            changes += drawn
        self._view.publish(changes)

    def countdown(self, left_ms: int) -> None:
        """Draw how long it still is until the next attempt."""
        self._view.publish(self._transcript.countdown(left_ms))

    def attached(self, editors: tuple[EditorFacts, ...]) -> None:
        """Other clients draw the agent from now on. What a model can do is asked anew: a key may be there now."""
        self.editors = editors
        self._asked_about = None
        self.state()

    def store_lost(self, error: StoreUnavailable) -> None:
        """Say that nothing can be saved."""
        self._store = "unavailable"
        self._view.publish((Put(_store_block(error)),))
        self.state()

    def store_back(self) -> None:
        """Say that it can again."""
        self._store = "ok"
        self._view.publish((Drop(_LOST_STORE),))
        self.state()

    def state(self) -> None:
        """Publish the state, where it has changed."""
        state = self._committed()
        ref = state.model or self._default_model
        if ref != self._asked_about:
            self._asked_about, self._usable, self._window = ref, *_facts(self._models, ref)
        self._view.publish_state(
            agent_state(
                self._agent_id,
                state,
                model=ref,
                usable=self._usable,
                context_window=self._window,
                editors=self.editors,
                store=self._store,
            )
        )


def _store_block(error: StoreUnavailable) -> Block:
    return Block(
        id=_LOST_STORE,
        order=(2**53 - 1, 0),
        kind="error",
        title="The session cannot be saved",
        summary=str(error),
        body=f"{error}\n\nWhat you see is kept in memory, and nothing new is taken until it can be saved again.",
        state="failed",
        volatile=True,
    )


def _facts(models: Models, ref: ModelRef) -> tuple[bool, int]:
    """Whether a model is usable, and its context window in tokens (0 where it is not known any more)."""
    try:
        return models.usable(ref), models.open(ref).context_window
    except UserError:
        return False, 0
