"""The watch over a log that is being written, under `AGENTLS_INVARIANTS=1`: a broken rule is told, loudly.

It looks at what is committed. It cannot take an event back; it says in the server's log, at level CRITICAL, what is
wrong, so that tests fail and a person who was asked to turn it on has something to send.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from agentls.core.errors import LogicError
from agentls.core.events import Event
from agentls.core.ids import AgentId
from agentls.core.invariants import Invariants
from agentls.core.session import Batch, SessionState

logger = logging.getLogger(__name__)


class Watch:
    """Watches one session; an observer of it."""

    def __init__(self, agent: AgentId, events: Iterable[Event] = ()) -> None:
        """`events` are those that the session was loaded with."""
        self._agent = agent
        self._rules = Invariants()
        self._broken = False
        self._take(events)

    def __call__(self, batch: Batch) -> None:
        """Take a committed batch."""
        self._take(batch.events, batch.after)

    def _take(self, events: Iterable[Event], after: SessionState | None = None) -> None:
        if self._broken:
            return
        try:
            for event in events:
                self._rules.apply(event)
            if after is not None:
                _settled(after)
        except LogicError as error:
            self._broken = True
            logger.critical("the log of agent %s breaks a rule: %s", self._agent, error)


def _settled(state: SessionState) -> None:
    """What the folded state must be between two turns."""
    if state.turns.open is None and state.requests.open:
        raise LogicError("a request is open outside of a turn")
