"""The agents of a user's workspaces: made, found, loaded and closed here. It knows nothing of connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from agentls.agent.agent import Agent
from agentls.agent.journal import Journal
from agentls.agent.live import LiveAgent
from agentls.agent.loop import Parts
from agentls.agent.pages import placed_drafts, render
from agentls.agent.view import View
from agentls.agent.watching import Watch
from agentls.core.errors import LogicError, SessionDamaged, UnknownSession, UserError
from agentls.core.events import (
    AgentConfig,
    EndSeed,
    Event,
    EventData,
    ModelRef,
    SessionHeader,
    SessionTitle,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from agentls.core.ids import AgentId, SessionId
from agentls.core.repair import repair
from agentls.core.session import Session, SessionState
from agentls.core.transcript import Block, Transcript
from agentls.models.model import ModelFacts
from agentls.store.store import SessionLog, SessionStore, SessionSummary
from agentls.tools.tool import ToolContext, observed
from agentls.workspace.documents import Documents
from agentls.workspace.roots import Roots

logger = logging.getLogger(__name__)

RECENT_TURNS = 50
"""Turns that a loaded agent draws at once; older ones are read from the log page by page."""


class UnknownAgent(UserError):
    """No agent of that id is live or stored."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        super().__init__(f'there is no agent "{agent_id}"; list the agents of the workspace to see which there are')


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a new agent begins: with what another one had at the end of its turn `turn`."""

    agent: AgentId
    turn: int


class InvalidBoundary(UserError):
    """A fork is asked for at a place where no turn has ended."""

    def __init__(self, reason: Literal["OPEN_TURN", "INVALID_BOUNDARY"], text: str) -> None:
        self.reason = reason
        super().__init__(text)


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
        parts: Parts,
        documents: Documents,
        *,
        instance: str,
        now: Callable[[], int],
        new_id: Callable[[], str],
        watches_logs: bool = False,
        told_changed: Callable[[Sequence[Path]], None] = lambda _: None,
        ended: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`watches_logs` has the rules of every log checked while it is written; `told_changed` is given the paths
        that a client says have changed on disk; `ended` is called when the host is closed, after its agents."""
        self.instance = instance
        self.documents = documents
        self.told_changed = told_changed
        self._store = store
        self._parts = parts
        self._now = now
        self._new_id = new_id
        self._watches_logs = watches_logs
        self._ended = ended
        self._live: dict[AgentId, LiveAgent] = {}
        self._coming: dict[AgentId, asyncio.Task[LiveAgent]] = {}
        self._leaving: set[AgentId] = set()
        self._list_listeners: list[Callable[[str], None]] = []
        self._closed = False

    def live(self, agent_id: AgentId) -> Agent | None:
        """The agent of that id, where it is live."""
        return self._live.get(agent_id)

    async def create(
        self,
        workspace_uri: str,
        *,
        model: str | None = None,
        mode: str | None = None,
        title: str | None = None,
        fork: Fork | None = None,
    ) -> Agent:
        """A new agent in a workspace, with nothing behind it or with what a fork takes over; a model that is not in
        the catalog is a UserError that lists what there is."""
        self._require_open()
        models = self._parts.models
        ref = models.find(model) if model is not None else models.default() if fork is None else None
        opening: list[EventData] = [AgentConfig(model=ref, mode=mode)] if ref or mode else []
        if title:
            opening.append(SessionTitle(title, by="person"))
        header = SessionHeader(self._new_id(), workspace_uri, _path(workspace_uri), self._now())
        seed: Sequence[Event] = ()
        if fork is not None:
            seed = await self._seed(fork)
            header = replace(header, parent=fork.agent, seed_length=len(seed))
            opening.insert(0, EndSeed())
        agent = await self._bring_up(AgentId(header.id), self._make(header, seed, opening))
        self._tell_list(workspace_uri)
        return agent

    async def delete(self, agent_id: AgentId) -> None:
        """Stop an agent and remove its session for good; UnknownAgent where there is none."""
        agent = await self.get(agent_id)  # Also a stored one is held first, so that nobody else has it open.
        if agent_id in self._leaving:
            raise UnknownAgent(agent_id)
        self._leaving.add(agent_id)
        try:
            await agent.close()
            await self._store.delete(SessionId(agent_id))
        finally:
            self._live.pop(agent_id, None)
            self._leaving.discard(agent_id)
        self._tell_list(agent.workspace)

    def models(self) -> tuple[ModelFacts, ...]:
        """Every model that there is."""
        return self._parts.models.all()

    def find_model(self, text: str) -> ModelRef:
        """The model of a name; a UserError that lists what there is."""
        return self._parts.models.find(text)

    def on_list_changed(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the URI of each workspace whose list of agents has changed; the answer ends that."""
        self._list_listeners.append(listener)
        return lambda: self._list_listeners.remove(listener)

    async def get(self, agent_id: AgentId) -> LiveAgent:
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
        for end in self._ended:
            end()
        await self._parts.models.close()
        await self._store.close()

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("the server is ending; start it again")

    async def _bring_up(self, agent_id: AgentId, coming: Coroutine[None, None, LiveAgent]) -> LiveAgent:
        """What `coming` gives, once for all who ask; it goes on when whoever asked is gone."""
        task = self._coming.get(agent_id)
        if task is None:
            task = self._coming[agent_id] = asyncio.create_task(coming)
            task.add_done_callback(lambda _: self._coming.pop(agent_id, None))
        else:
            coming.close()
        return await asyncio.shield(task)

    async def _make(self, header: SessionHeader, seed: Sequence[Event], opening: Sequence[EventData]) -> LiveAgent:
        log = await self._store.create(header)
        if not seed:
            return await self._open(self._agent(Session(header), log, Transcript(), [], ()), opening)
        try:
            # One batch: a fork has all of its seed and the end of it, or is not there.
            ending = Session(header, await asyncio.to_thread(_folded, header.id, seed))
            end = ending.prepare(opening, time=self._now())
            await log.commit((*seed, *end.events), durable=True)
        except BaseException:
            await log.close()
            raise
        events = (*seed, *end.events)
        transcript, blocks = render(events[_recent(events) :])
        return await self._open(self._agent(Session(header, end.after), log, transcript, blocks, events), ())

    async def _seed(self, fork: Fork) -> tuple[Event, ...]:
        """The events that a fork copies; InvalidBoundary where its turn has not ended."""
        parent = await self.get(fork.agent)
        events = await parent.events()
        for event in events:
            if isinstance(event.data, TurnEnd) and event.data.turn == fork.turn:
                return events[: event.seq + 1]
        if any(isinstance(event.data, TurnStart) and event.data.turn == fork.turn for event in events):
            raise InvalidBoundary("OPEN_TURN", f"turn {fork.turn} is still open; fork at an earlier one or wait")
        last = max((event.data.turn for event in events if isinstance(event.data, TurnEnd)), default=0)
        known = f"the last one is turn {last}" if last else "none has ended yet"
        raise InvalidBoundary("INVALID_BOUNDARY", f"there is no turn {fork.turn} to fork at; {known}")

    async def _load(self, agent_id: AgentId) -> LiveAgent:
        try:
            log = await self._store.open(SessionId(agent_id))
        except UnknownSession as error:
            raise UnknownAgent(agent_id) from error
        try:
            events = await log.read()
            # A long log takes a while to fold; other agents go on meanwhile.
            session = Session(log.header, await asyncio.to_thread(_folded, agent_id, events))
            shown = placed_drafts(await log.drafts())
            transcript, blocks = render(events[_recent(events) :])
        except BaseException:
            await log.close()
            raise
        agent = self._agent(session, log, transcript, blocks, events)
        await self._open(agent, repair(session.state, shown))
        for message in shown:
            log.drop_drafts(message)
        return agent

    async def _open(self, agent: LiveAgent, events: Sequence[EventData]) -> LiveAgent:
        try:
            await agent.open(events)
        except BaseException:
            await agent.close()
            raise
        self._live[agent.id] = agent
        return agent

    def _agent(
        self,
        session: Session,
        log: SessionLog,
        transcript: Transcript,
        blocks: Sequence[Block],
        events: Sequence[Event],
    ) -> LiveAgent:
        """The agent of a session whose log is `events`; `blocks` are drawn of its last turns."""
        header, agent_id = session.header, AgentId(session.header.id)
        return LiveAgent(
            agent_id,
            self._parts,
            workspace=header.workspace,
            view=View(self._new_id(), blocks, older=_recent(events) > 0),
            transcript=transcript,
            default_model=self._parts.models.default(),
            context=ToolContext(SessionId(header.id), _roots(header.cwd), self.documents, _seen(events)),
            journal=lambda broken: Journal(session, log, now=self._now, broken=broken),
            watch=Watch(agent_id, events) if self._watches_logs else None,
        )

    def _tell_list(self, workspace_uri: str) -> None:
        for listener in tuple(self._list_listeners):
            listener(workspace_uri)


def _roots(cwd: str) -> Roots:
    try:
        return Roots([Path(cwd)])
    except OSError as error:
        raise UserError(f'the workspace "{cwd}" cannot be used: {error.strerror or error}') from error


def _seen(events: Sequence[Event]) -> dict[str, str]:
    """What the agent knew last of each file, by its calls' results."""
    seen: dict[str, str] = {}
    for event in events:
        if isinstance(event.data, ToolResult):
            seen.update(observed(event.data.meta))
    return seen


def _folded(agent_id: str, events: Sequence[Event]) -> SessionState:
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
