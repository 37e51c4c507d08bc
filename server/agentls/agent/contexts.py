"""What a step is told beside a person's words: the `pre_step` hook over the producers of `context/`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from agentls.agent.hooks import Context, Enter, Entry
from agentls.context.producer import Moment
from agentls.context.snapshots import Snapshots
from agentls.core.events import InboxItem
from agentls.core.ids import SessionId
from agentls.workspace.documents import Documents
from agentls.workspace.editor import Editor


class ProducedContexts:
    """Asks the producers what has changed; what they say is committed with the step."""

    def __init__(self, snapshots: Snapshots, documents: Documents, now: Callable[[], datetime]) -> None:
        """`now` gives the time with the person's zone."""
        self._snapshots = snapshots
        self._documents = documents
        self._now = now

    async def pre_step(self, entry: Entry) -> Enter:
        """Add a snapshot of each producer that has news."""
        moment = Moment(
            session=entry.tools.session,
            roots=entry.tools.roots,
            now=self._now(),
            opens_turn=entry.step == 1,
            editor=self._editor(entry.items),
            attached=entry.attached,
            seen=entry.tools.seen,
        )
        candidates = await self._snapshots.candidates(moment, entry.state.contexts)
        contexts = tuple(Context(candidate.text, candidate.source) for candidate in candidates)
        return Enter(contexts, lambda: self._snapshots.committed(candidates))

    def forget(self, session: SessionId) -> None:
        """The session was closed."""
        self._snapshots.forget(session)

    def _editor(self, items: tuple[InboxItem, ...]) -> Editor | None:
        """The editor that the newest claimed message came from, else the one that was active last."""
        editors = self._documents.editors()
        for item in reversed(items):
            named = item.meta.get("editor") if isinstance(item.meta, dict) else None
            for editor in editors:
                if editor.id == named:
                    return editor
        return editors[0] if editors else None
