"""The agents of a user's workspaces: made, found, loaded and closed here. It knows nothing of connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from agentls.agent.agent import Agent
from agentls.agent.live import LiveAgent
from agentls.agent.loop import Parts
from agentls.agent.pages import placed_drafts, render
from agentls.agent.read_only import ReadOnlyAgent, what_is_left
from agentls.agent.view import View
from agentls.agent.watching import Watch
from agentls.core.errors import LogicError, SessionDamaged, UnknownSession, UnsupportedFormat, UserError
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
from agentls.models.model import ModelFacts
from agentls.store.store import SessionLog, SessionStore, SessionSummary
from agentls.tools.tool import ToolContext, observed
from agentls.workspace.documents import Documents
from agentls.workspace.roots import Roots, real
from agentls.workspace.uris import NotAFileUri, to_path, to_uri

logger = logging.getLogger(__name__)

RECENT_TURNS = 50
"""Turns that a loaded agent draws at once; older ones are read from the log page by page."""


Loaded: TypeAlias = LiveAgent | ReadOnlyAgent


class UnknownAgent(UserError):
    """No agent of that id is live or stored."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        super().__init__(f'there is no agent "{agent_id}"; list the agents of the workspace to see which there are')


class BadWorkspace(UserError):
    """A workspace's URI names nothing that an agent can work in."""

    def __init__(self, problem: str) -> None:
        super().__init__(f'{problem}; open a folder and give its "file://" address')


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
        warnings: Sequence[str] = (),
        watches_logs: bool = False,
        told_changed: Callable[[Sequence[Path]], None] = lambda _: None,
        ended: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`warnings` are for every client that comes, a sentence each; `watches_logs` has the rules of every log
        checked while it is written; `told_changed` is given the paths that a client says have changed on disk; `ended`
        is called when the host is closed, after its agents."""
        self.instance = instance
        self.documents = documents
        self.warnings = tuple(warnings)
        self.told_changed = told_changed
        self._store = store
        self._parts = parts
        self._now = now
        self._new_id = new_id
        self._watches_logs = watches_logs
        self._ended = ended
        self._live: dict[AgentId, Loaded] = {}
        self._coming: dict[AgentId, asyncio.Task[Loaded]] = {}
        self._leaving: dict[AgentId, asyncio.Task[None]] = {}
        self._list_listeners: list[Callable[[str], None]] = []
        self._closed = False

    def live(self, agent_id: AgentId) -> Agent | None:
        """The agent of that id, where it is live and stays so."""
        return None if agent_id in self._leaving else self._live.get(agent_id)

    async def create(
        self,
        workspace_uri: str,
        *,
        model: str | None = None,
        mode: str | None = None,
        title: str | None = None,
        fork: Fork | None = None,
    ) -> Agent:
        """A new agent in a workspace, with nothing behind it or with what a fork takes over. BadWorkspace where it can
        be none; a model that is not in the catalog is a UserError that lists what there is."""
        self._require_open()
        folder = _folder(workspace_uri)
        if not folder.exists():
            logger.info("the workspace %s is not there", folder)
        models = self._parts.models
        ref = models.find(model) if model is not None else models.default() if fork is None else None
        opening: list[EventData] = [AgentConfig(model=ref, mode=mode)] if ref or mode else []
        if title:
            opening.append(SessionTitle(title, by="person"))
        header = SessionHeader(self._new_id(), to_uri(folder), str(folder), self._now())
        seed: Sequence[Event] = ()
        if fork is not None:
            seed = await self._seed(fork)
            header = replace(header, parent=fork.agent, seed_length=len(seed))
            opening.insert(0, EndSeed())
        agent = await self._bring_up(AgentId(header.id), self._make(header, seed, opening))
        self._tell_list(header.workspace)
        return agent

    async def delete(self, agent_id: AgentId) -> None:
        """Stop an agent and remove its session for good, also when whoever asked is gone; UnknownAgent where there is
        none. From here on nobody finds it any more."""
        agent = await self.get(agent_id)  # Also a stored one is held first, so that nobody else has it open.
        if agent_id in self._leaving:
            raise UnknownAgent(agent_id)
        task = self._leaving[agent_id] = asyncio.create_task(self._remove(agent))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_report)
            raise

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

    async def get(self, agent_id: AgentId) -> Loaded:
        """A live agent, or a stored one that is loaded and repaired first; one whose log is damaged, or holds what this
        version does not know, can only be read. UnknownAgent where there is none or it is being deleted."""
        if agent_id in self._leaving:
            raise UnknownAgent(agent_id)
        if (agent := self._live.get(agent_id)) is not None:
            return agent
        self._require_open()
        return await self._bring_up(agent_id, self._load(agent_id))

    async def list(
        self, workspace_uri: str | None = None, *, query: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[tuple[Listed, ...], str | None]:
        """Rows of one workspace (BadWorkspace where it can be none) or all, newest first; `query` keeps those whose
        title holds it."""
        workspace = None if workspace_uri is None else to_uri(_folder(workspace_uri))
        summaries, following = await self._store.list(workspace, limit=limit, after=cursor)
        wanted = (query or "").casefold()
        rows = (Listed(summary, self.live(AgentId(summary.header.id))) for summary in summaries)
        return tuple(row for row in rows if wanted in (row.summary.title or "").casefold()), following

    async def close(self) -> None:
        """Stop every agent, keep what waits, and let the files go."""
        self._closed = True
        for task in (*self._coming.values(), *self._leaving.values()):
            await asyncio.wait([task])
        agents, self._live = tuple(self._live.values()), {}
        try:
            for result in await asyncio.gather(*(agent.close() for agent in agents), return_exceptions=True):
                if isinstance(result, Exception):
                    logger.error("an agent did not close well", exc_info=result)
            for end in self._ended:
                end()
            await self._parts.models.close()
        finally:
            await self._store.close()

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("the server is ending; start it again")

    async def _bring_up(self, agent_id: AgentId, coming: Coroutine[None, None, Loaded]) -> Loaded:
        """What `coming` gives, once for all who ask; it goes on when whoever asked is gone."""
        task = self._coming.get(agent_id)
        if task is None:
            task = self._coming[agent_id] = asyncio.create_task(coming)
            task.add_done_callback(lambda _: self._coming.pop(agent_id, None))
        else:
            coming.close()
        return await asyncio.shield(task)

    async def _remove(self, agent: Loaded) -> None:
        try:
            await agent.close()
            await self._store.delete(SessionId(agent.id))
        finally:
            self._live.pop(agent.id, None)
            del self._leaving[agent.id]
        self._tell_list(agent.workspace)

    async def _make(self, header: SessionHeader, seed: Sequence[Event], opening: Sequence[EventData]) -> LiveAgent:
        roots = _roots(header)
        log = await self._store.create(header)
        async with _closed_where_this_fails(log):
            # One batch: a fork has all of its seed and the end of it, or is not there.
            agent = await self._begin(log, roots, seed, lambda _: opening, stored=0)
        self._live[agent.id] = agent
        return agent

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

    async def _load(self, agent_id: AgentId) -> Loaded:
        try:
            agent: Loaded = await self._load_whole(agent_id)
        except UnknownSession as error:
            raise UnknownAgent(agent_id) from error
        except (SessionDamaged, UnsupportedFormat) as error:
            agent = await self._load_what_is_left(agent_id, error)
        self._live[agent.id] = agent
        return agent

    async def _load_whole(self, agent_id: AgentId) -> LiveAgent:
        log = await self._store.open(SessionId(agent_id))
        async with _closed_where_this_fails(log):
            events = await log.read()
            shown = placed_drafts(await log.drafts())
            closing = partial(repair, shown=shown)
            agent = await self._begin(log, _roots(log.header), events, closing, stored=len(events))
            for message in shown:
                log.drop_drafts(message)
        return agent

    async def _load_what_is_left(self, agent_id: AgentId, why: UserError) -> ReadOnlyAgent:
        """An agent that only shows its session, which nobody holds; UnsupportedFormat for a session whose format is
        newer as a whole."""
        salvage = await self._store.salvage(SessionId(agent_id))
        logger.warning("opened read-only: %s", why)
        return ReadOnlyAgent(
            agent_id,
            await asyncio.to_thread(what_is_left, salvage, str(why)),
            why,
            workspace=salvage.header.workspace,
            epoch=self._new_id(),
            default_model=self._parts.models.default(),
        )

    async def _begin(
        self,
        log: SessionLog,
        roots: Roots,
        events: Sequence[Event],
        opening: Callable[[SessionState], Sequence[EventData]],
        *,
        stored: int,
    ) -> LiveAgent:
        """The agent of a session whose log is `events`, of which `stored` are on disk, and then what `opening` adds
        before anyone else can."""
        header, agent_id = log.header, AgentId(log.header.id)
        default_model = self._parts.models.default()
        # A long log takes a while to fold; other agents go on meanwhile.
        begun = Session(header, await asyncio.to_thread(_folded, agent_id, events))
        batch = begun.prepare(opening(begun.state), time=self._now())
        events = (*events, *batch.events)
        if stored < len(events):
            await log.commit(events[stored:], durable=True)
        session = Session(header, batch.after)
        recent = _recent(events)
        transcript, blocks = render(events[recent:], batch.after.contexts)
        return LiveAgent(
            agent_id,
            self._parts,
            workspace=header.workspace,
            session=session,
            log=log,
            now=self._now,
            view=View(self._new_id(), blocks, older=recent > 0),
            transcript=transcript,
            default_model=default_model,
            context=ToolContext(SessionId(header.id), roots, self.documents, _seen(events), grace=self._parts.grace),
            watch=Watch(agent_id, events) if self._watches_logs else None,
        )

    def _tell_list(self, workspace_uri: str) -> None:
        for listener in tuple(self._list_listeners):
            listener(workspace_uri)


@asynccontextmanager
async def _closed_where_this_fails(log: SessionLog) -> AsyncIterator[None]:
    """Let a session go again that could not be begun."""
    try:
        yield
    except BaseException:
        await log.close()
        raise


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        logger.error("a session was not deleted", exc_info=fault)


def _roots(header: SessionHeader) -> Roots:
    try:
        return Roots([Path(header.cwd)])
    except (OSError, ValueError) as error:
        raise UserError(f'the workspace "{header.cwd}" cannot be used: {_told(error)}') from error


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


def _folder(workspace_uri: str) -> Path:
    """The real folder of a workspace, which is the same one however its URI is written; BadWorkspace where there can be
    none. It need not be there yet."""
    try:
        folder = real(to_path(workspace_uri))
        exists, usable = folder.exists(), folder.is_dir()
    except NotAFileUri as error:
        raise BadWorkspace(str(error)) from error
    except (OSError, ValueError) as error:
        raise BadWorkspace(f'the workspace "{workspace_uri}" cannot be used: {_told(error)}') from error
    if exists and not usable:
        raise BadWorkspace(f'the workspace "{workspace_uri}" is no folder')
    return folder


def _told(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
