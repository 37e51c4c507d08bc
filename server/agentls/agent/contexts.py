"""What a step is told beside a person's words: the `pre_step` hook over the producers of `context/`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from agentls.agent.hooks import Context, Enter, Entry
from agentls.context.producer import Moment
from agentls.context.snapshots import Snapshots
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
        self._newest: dict[SessionId, tuple[int, str]] = {}

    async def pre_step(self, entry: Entry) -> Enter:
        """Add a snapshot of each producer that has news."""
        session = entry.scope.session
        sender = self._sender(entry)
        moment = Moment(
            session=session,
            roots=entry.scope.roots,
            now=self._now(),
            opens_turn=entry.step == 1,
            editor=sender if sender is not None else self._drawing(entry),
            attached=tuple(editor.client for editor in entry.editors),
            seen=entry.scope.seen,
        )
        candidates = await self._snapshots.candidates(moment, entry.state.contexts)
        contexts = tuple(Context(candidate.text, candidate.source) for candidate in candidates)

        def begun() -> None:
            if sender is not None:
                self._newest[session] = entry.turn, sender.id
            self._snapshots.committed(candidates)

        return Enter(contexts, begun)

    def forget(self, session: SessionId) -> None:
        """The session was closed."""
        self._newest.pop(session, None)
        self._snapshots.forget(session)

    def _sender(self, entry: Entry) -> Editor | None:
        """The editor that the newest message of the turn came from, of those that are still there."""
        metas = (item.meta for item in reversed(entry.items))
        named = [meta.get("editor") for meta in metas if isinstance(meta, dict)]
        turn, newest = self._newest.get(entry.scope.session, (0, ""))
        if turn == entry.turn:
            named.append(newest)
        there = {editor.id: editor for editor in self._documents.editors()}
        return next((there[name] for name in named if isinstance(name, str) and name in there), None)

    def _drawing(self, entry: Entry) -> Editor | None:
        """The editor that was active last of those that draw the agent: what others show is not its business."""
        drawing = {editor.id for editor in entry.editors}
        return next((editor for editor in self._documents.editors() if editor.id in drawing), None)
