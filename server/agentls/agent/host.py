"""The agents of a user's workspaces: made, found, loaded and closed here. It knows nothing of connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from agentls.agent.agent import Agent
from agentls.agent.journal import Journal
from agentls.agent.loop import LoopAgent
from agentls.agent.pages import placed_drafts, render
from agentls.agent.prompt import Prompt
from agentls.agent.view import View
from agentls.core.errors import LogicError, SessionDamaged, UnknownSession, UserError
from agentls.core.events import AgentConfig, Event, EventData, SessionHeader, SessionTitle, TurnStart
from agentls.core.ids import AgentId, SessionId
from agentls.core.repair import repair
from agentls.core.session import Session, SessionState
from agentls.core.transcript import Block, Transcript
from agentls.models.model import Models
from agentls.store.store import SessionLog, SessionStore, SessionSummary

logger = logging.getLogger(__name__)

RECENT_TURNS = 50
"""Turns that a loaded agent draws at once; older ones are read from the log page by page."""


class UnknownAgent(UserError):
    """No agent of that id is live or stored."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        super().__init__(f'there is no agent "{agent_id}"; list the agents of the workspace to see which there are')


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the list: what is stored, and the live agent where there is one."""

    summary: SessionSummary
    agent: Agent | None


class AgentHost:
    """Makes agents and finds them again. One host serves every connection of a process."""

    def __init__(
        self,
        store: SessionStore,
        models: Models,
        *,
        instance: str,
        prompt: Prompt,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.instance = instance
        self._store = store
        self._models = models
        self._prompt = prompt
        self._now = now
        self._new_id = new_id
        self._live: dict[AgentId, Agent] = {}
        self._coming: dict[AgentId, asyncio.Task[Agent]] = {}
        self._closed = False

    def live(self, agent_id: AgentId) -> Agent | None:
        """The agent of that id, where it is live."""
        return self._live.get(agent_id)

    async def create(
        self, workspace_uri: str, *, model: str | None = None, mode: str | None = None, title: str | None = None
    ) -> Agent:
        """A new agent in a workspace; a model that is not in the catalog is a UserError that lists what there is."""
        self._require_open()
        ref = self._models.find(model) if model is not None else self._models.default()
        header = SessionHeader(self._new_id(), workspace_uri, _path(workspace_uri), self._now())
        opening: list[EventData] = [AgentConfig(model=ref, mode=mode)]
        if title:
            opening.append(SessionTitle(title, by="person"))
        return await self._bring_up(AgentId(header.id), self._make(header, opening))

    async def get(self, agent_id: AgentId) -> Agent:
        """A live agent, or a stored one that is loaded and repaired first; UnknownAgent where there is none."""
        if (agent := self._live.get(agent_id)) is not None:
            return agent
        self._require_open()
        return await self._bring_up(agent_id, self._load(agent_id))

    async def list(
        self, workspace_uri: str | None = None, *, query: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[tuple[Listed, ...], str | None]:
        """Rows of one workspace or all, newest first; `query` keeps those whose title holds it."""
        summaries, following = await self._store.list(workspace_uri, limit=limit, after=cursor)
        wanted = (query or "").casefold()
        rows = (Listed(summary, self._live.get(AgentId(summary.header.id))) for summary in summaries)
        return tuple(row for row in rows if wanted in (row.summary.title or "").casefold()), following

    async def close(self) -> None:
        """Stop every agent, keep what waits, and let the files go."""
        self._closed = True
        for task in tuple(self._coming.values()):
            await asyncio.wait([task])
        agents, self._live = tuple(self._live.values()), {}
        for result in await asyncio.gather(*(agent.close() for agent in agents), return_exceptions=True):
            if isinstance(result, Exception):
                logger.error("an agent did not close well", exc_info=result)
        await self._models.close()
        await self._store.close()

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("the server is ending; start it again")

    async def _bring_up(self, agent_id: AgentId, coming: Coroutine[None, None, Agent]) -> Agent:
        """What `coming` gives, once for all who ask; it goes on when whoever asked is gone."""
        task = self._coming.get(agent_id)
        if task is None:
            task = self._coming[agent_id] = asyncio.create_task(coming)
            task.add_done_callback(lambda _: self._coming.pop(agent_id, None))
        else:
            coming.close()
        return await asyncio.shield(task)

    async def _make(self, header: SessionHeader, opening: Sequence[EventData]) -> Agent:
        log = await self._store.create(header)
        return await self._open(self._agent(Session(header), log, Transcript(), [], older=False), opening)

    async def _load(self, agent_id: AgentId) -> Agent:
        try:
            log = await self._store.open(SessionId(agent_id))
        except UnknownSession as error:
            raise UnknownAgent(agent_id) from error
        try:
            events = await log.read()
            # A long log takes a while to fold; other agents go on meanwhile.
            session = Session(log.header, await asyncio.to_thread(_folded, agent_id, events))
            shown = placed_drafts(await log.drafts())
            recent = events[_recent(events) :]
            transcript, blocks = render(recent)
        except BaseException:
            await log.close()
            raise
        agent = self._agent(session, log, transcript, blocks, older=len(recent) < len(events))
        await self._open(agent, repair(session.state, shown))
        for message in shown:
            log.drop_drafts(message)
        return agent

    async def _open(self, agent: LoopAgent, events: Sequence[EventData]) -> Agent:
        try:
            await agent.open(events)
        except BaseException:
            await agent.close()
            raise
        self._live[agent.id] = agent
        return agent

    def _agent(
        self, session: Session, log: SessionLog, transcript: Transcript, blocks: Sequence[Block], *, older: bool
    ) -> LoopAgent:
        return LoopAgent(
            AgentId(session.header.id),
            view=View(self._new_id(), blocks, older=older),
            transcript=transcript,
            models=self._models,
            default_model=self._models.default(),
            prompt=self._prompt,
            journal=lambda agent: Journal(session, log, now=self._now, broken=agent.suspended),
        )


def _folded(agent_id: AgentId, events: Sequence[Event]) -> SessionState:
    try:
        return SessionState().apply_all(events)
    except LogicError as error:
        raise SessionDamaged(f'the log of session "{agent_id}" breaks a rule: {error}') from error


def _recent(events: Sequence[Event]) -> int:
    """Where the part of a log begins that a loaded agent draws at once: its last turns, whole."""
    starts = [index for index, event in enumerate(events) if isinstance(event.data, TurnStart)]
    return starts[-RECENT_TURNS] if len(starts) > RECENT_TURNS else 0


def _path(workspace_uri: str) -> str:
    """The folder of a `file:` URI; a UserError for another scheme, since an agent works on files."""
    parts = urlsplit(workspace_uri)
    if parts.scheme != "file" or not parts.path:
        raise UserError(f'the workspace "{workspace_uri}" is no file URI; open a folder and give its "file://" address')
    return unquote(parts.path)
