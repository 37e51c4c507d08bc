"""What one connection answers and hears.

Nothing is waited for before an agent's method is called, so that messages count in the order in which they arrive;
only an agent that has to be loaded first is waited for, and then the requests that name it queue up in order. What is
given to an agent goes on when its request is cancelled: the answer is taken back, not the deed.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentls.lsp import methods, standard
from agentls.lsp.agent_handlers import AgentHandlers
from agentls.lsp.binding import Notification, Request, notification
from agentls.lsp.deeds import Deeds
from agentls.lsp.drawing import Drawing
from agentls.lsp.editor_handlers import EditorHandlers
from agentls.lsp.message_handlers import MessageHandlers
from agentls.lsp.ports import Client, Host


class Handlers:
    """All of one connection."""

    def __init__(self, host: Host, client: Client, drawing: Drawing) -> None:
        self._drawing = drawing
        self._deeds = Deeds(host)
        self._agents = AgentHandlers(host, client, drawing, self._deeds)
        self._messages = MessageHandlers(client, self._deeds)
        self._editors = EditorHandlers(host, client.workspace_editor)

    def requests(self) -> Mapping[str, Request]:
        """Every request of the extension, by name."""
        return {**self._agents.table(), **self._messages.table()}

    def notifications(self) -> Mapping[str, Notification]:
        """Every notification that is heard from any client, by name."""
        return {
            **self._editors.table(),
            **dict([notification(methods.PROGRESS_CANCEL, self._cancel_progress)]),
        }

    def leave(self) -> None:
        """The connection has ended: draw nothing more for it, and forget what it had open."""
        self._drawing.close()
        self._editors.leave()

    def _cancel_progress(self, params: standard.ProgressCancelParams) -> None:
        shown = self._drawing.progress.turn_of(params.token) if self._drawing.progress is not None else None
        if shown is not None:
            agent, turn = shown
            self._deeds.alone(agent.cancel("user", keep_inbox=True, turn=turn))
