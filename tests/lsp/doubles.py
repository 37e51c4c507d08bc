"""A small agent and host for the edge: the real view, and sends that are only noted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentls.agent.agent import Agent, Cancelled, Changed, Content, IfIdle, Page, Sent, Target
from agentls.agent.host import Listed, UnknownAgent
from agentls.agent.state import AgentState, EditorFacts
from agentls.agent.view import View
from agentls.core.chunks import Usage
from agentls.core.events import Mention, ModelRef, SessionHeader
from agentls.core.ids import AgentId, BlockId, MessageId
from agentls.core.json import JsonValue
from agentls.core.reasons import CancelCause
from agentls.core.sources import MessageSource
from agentls.core.transcript import Append, Block, Drop, Put
from agentls.store.store import SessionSummary


def state_of(agent_id: str) -> AgentState:
    """An idle agent's state."""
    return AgentState(
        agent_id=AgentId(agent_id),
        title=None,
        status="idle",
        turn=None,
        last_turn=None,
        inbox=(),
        hold=None,
        model=ModelRef("demo", "scripted"),
        model_usable=True,
        mode="ask",
        usage=Usage(),
        context_tokens=0,
        context_window=2048,
        editors=(),
        store="ok",
    )


def block(block_id: str, seq: int, body: str = "", **fields: object) -> Block:
    """A block of an answer in flight, or with other fields."""
    return replace(
        Block(BlockId(block_id), (seq, 0), "assistant", "Assistant", body, state="streaming", role="assistant"),
        **fields,  # type: ignore[arg-type]
    )


@dataclass
class Noted:
    """A send as the agent got it."""

    id: MessageId
    content: Content
    target: Target
    wakeup: bool
    source: MessageSource | None
    contexts: tuple[Mention, ...]
    expected_turn: int | None
    if_idle: IfIdle


class FakeAgent(Agent):
    """Notes each send at once and answers it when `gate` is open; draws what a test publishes."""

    def __init__(self, agent_id: str = "one", epoch: str = "epoch-1", blocks: tuple[Block, ...] = ()) -> None:
        self.id = AgentId(agent_id)
        self.view = View(epoch, blocks)
        self.view.publish_state(state_of(agent_id))
        self.gate = asyncio.Event()
        self.gate.set()
        self.noted: list[Noted] = []
        self.finished: list[MessageId] = []
        self.cancels: list[tuple[CancelCause, bool, int | None]] = []
        self.answer: Callable[[Noted], Sent] = lambda noted: Sent(noted.id, "started", turn=1)

    async def send(
        self,
        content: Content,
        *,
        id: MessageId,
        target: Target = "next-turn",
        wakeup: bool = True,
        source: MessageSource | None = None,
        contexts: tuple[Mention, ...] = (),
        meta: JsonValue = None,
        expected_turn: int | None = None,
        if_idle: IfIdle = "start",
    ) -> Sent:
        noted = Noted(id, content, target, wakeup, source, contexts, expected_turn, if_idle)
        self.noted.append(noted)
        await self.gate.wait()
        self.finished.append(id)
        return self.answer(noted)

    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        self.cancels.append((cause, keep_inbox, turn))
        await self.gate.wait()
        return Cancelled("idle", ())

    async def remove(self, message: MessageId) -> Changed:
        return Changed("gone", ())

    async def resume(self) -> Changed:
        return Changed("done", ())

    async def page(self, before: tuple[int, int], limit: int) -> Page:
        blocks, more = self.view.page(before, limit)
        await self.gate.wait()
        return Page(blocks, blocks[0].block.order if blocks and more else None)

    def set_editors(self, editors: tuple[EditorFacts, ...]) -> None:
        assert self.view.state is not None
        self.view.publish_state(replace(self.view.state, editors=editors))

    async def close(self) -> None:
        return

    # For tests -------------------------------------------------------------------------------------------------

    def put(self, shown: Block) -> None:
        self.view.publish((Put(shown),))

    def append(self, block_id: str, text: str) -> None:
        self.view.publish((Append(BlockId(block_id), text),))

    def drop(self, block_id: str) -> None:
        self.view.publish((Drop(BlockId(block_id)),))

    def title(self, title: str) -> None:
        assert self.view.state is not None
        self.view.publish_state(replace(self.view.state, title=title))


class FakeHost:
    """Has the agents that a test gives it; those in `stored` are loaded when `loaded` is set."""

    def __init__(self, *agents: FakeAgent) -> None:
        self.instance = "instance-1"
        self.agents = {agent.id: agent for agent in agents}
        self.stored: dict[AgentId, FakeAgent] = {}
        self.loaded = asyncio.Event()
        self.error: Exception | None = None
        self.closed = False

    def live(self, agent_id: AgentId) -> FakeAgent | None:
        return self.agents.get(agent_id)

    async def get(self, agent_id: AgentId) -> FakeAgent:
        if self.error is not None:
            raise self.error
        if agent_id in self.stored:
            await self.loaded.wait()
            self.agents[agent_id] = self.stored.pop(agent_id)
        if agent_id not in self.agents:
            raise UnknownAgent(agent_id)
        return self.agents[agent_id]

    async def create(
        self, workspace_uri: str, *, model: str | None = None, mode: str | None = None, title: str | None = None
    ) -> FakeAgent:
        if self.error is not None:
            raise self.error
        agent = FakeAgent(f"made-{len(self.agents)}")
        if title is not None:
            agent.title(title)
        self.agents[agent.id] = agent
        return agent

    async def list(
        self, workspace_uri: str | None = None, *, query: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[tuple[Listed, ...], str | None]:
        rows = tuple(
            Listed(SessionSummary(SessionHeader(agent_id, "file:///w", "/w", 1), None, 3, 2), agent)
            for agent_id, agent in self.agents.items()
        )
        stored = tuple(
            Listed(
                SessionSummary(
                    SessionHeader(agent_id, "file:///w", "/w", 1),
                    "old",
                    events=3,
                    last_time=2,
                    summary="what was said",
                    model=ModelRef("demo", "scripted"),
                    damaged="torn",
                ),
                None,
            )
            for agent_id in self.stored
        )
        return (rows + stored)[:limit], None
