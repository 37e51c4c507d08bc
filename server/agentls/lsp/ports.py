"""What the handlers ask of the host and of their connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from agentls.agent.agent import Agent
from agentls.agent.host import Fork, Listed
from agentls.agent.state import EditorFacts
from agentls.core.events import ModelRef
from agentls.core.ids import AgentId
from agentls.lsp.editor import ConnectedEditor
from agentls.models.model import ModelFacts
from agentls.workspace.documents import Documents


class Host(Protocol):
    """What is asked of `AgentHost`."""

    instance: str
    documents: Documents
    """What every editor of the process has open."""
    warnings: tuple[str, ...]
    """What whoever connects is to be told, a sentence each."""

    def live(self, agent_id: AgentId) -> Agent | None:
        """The agent of that id, where it is live."""

    async def get(self, agent_id: AgentId) -> Agent:
        """A live agent, or a stored one, loaded."""

    async def create(
        self,
        workspace_uri: str,
        *,
        model: str | None = None,
        mode: str | None = None,
        title: str | None = None,
        fork: Fork | None = None,
    ) -> Agent:
        """A new agent, or a copy of another one up to the end of a turn: InvalidBoundary where it cannot end there, and
        BadWorkspace where no workspace can be."""

    async def delete(self, agent_id: AgentId) -> None:
        """Stop an agent and delete its stored session; UnknownAgent where there is none."""

    async def list(
        self, workspace_uri: str | None = None, *, query: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[tuple[Listed, ...], str | None]:
        """A page of agents and the cursor of the next one; BadWorkspace where no workspace can be."""

    def on_list_changed(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the URI of a workspace whose agents are not what they were; the answer unsubscribes."""

    def models(self) -> tuple[ModelFacts, ...]:
        """Every model, in order of preference."""

    def find_model(self, text: str) -> ModelRef:
        """The model that a person means; a UserError that lists what there is."""

    def told_changed(self, paths: Sequence[Path]) -> None:
        """A client saw these files change on disk."""


class Client(Protocol):
    """What is asked of the connection."""

    workspace_editor: ConnectedEditor
    """How the workspace knows it."""

    @property
    def editor(self) -> EditorFacts:
        """How other clients see this one."""

    @property
    def producer(self) -> str:
        """Who makes the contexts that this client injects."""

    def after_answer(self, hook: Callable[[bool], None]) -> None:
        """Call `hook` when the answer to the request at hand is queued: with true for a result, false for an error."""
