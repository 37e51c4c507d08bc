"""What a producer is: it says how one side of the world stands, whenever a step is about to begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, Literal, Protocol

from agentls.core.contexts import Retained
from agentls.core.ids import SessionId
from agentls.core.sources import Section
from agentls.workspace.editor import Editor
from agentls.workspace.roots import Roots


@dataclass(frozen=True, slots=True)
class Moment:
    """What a producer may look at. `now` is the time with the zone of the person; `opens_turn` says whether the step is
    the first of its turn. `editor` is the one that the turn's newest message came from, else one that draws the agent,
    and `attached` names every client that does. `seen` maps the real path of a file to the hash of its
    content as the agent last knew it. `retained` is what history holds of this producer, or None."""

    session: SessionId
    roots: Roots
    now: datetime
    opens_turn: bool
    editor: Editor | None = None
    attached: tuple[str, ...] = ()
    seen: Mapping[str, str] = field(default_factory=dict)
    retained: Retained | None = None


class _Unchanged(Enum):
    UNCHANGED = "unchanged"


UNCHANGED: Final = _Unchanged.UNCHANGED
"""What a producer says when what history holds of it still is to stand, whatever it would say now."""

Reading = tuple[Section, ...] | Literal[_Unchanged.UNCHANGED]


class Producer(Protocol):
    """One producer, shared by all agents. Its name is that of its file, and the plugin name of its messages. One that
    keeps nothing of a session inherits `committed` and `forget`."""

    @property
    def name(self) -> str:
        """Letters, digits and `-`."""

    async def read(self, moment: Moment) -> Reading:
        """How it stands now, as named sections in a fixed order; nothing at all for nothing to say. What it says
        stays to be said until `committed`: the step that asks may never begin, and it may be asked again before one
        does. It may be cancelled at any wait."""

    def committed(self, session: SessionId, reading: Reading) -> None:
        """The step of an earlier `read` has begun, and the model is told of what it gave."""
        return

    def forget(self, session: SessionId) -> None:
        """The session has been closed: let go of what is kept for it."""
        return
