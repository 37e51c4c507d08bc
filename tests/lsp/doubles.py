"""A small agent and host for the edge: the real view, and sends that are only noted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentls.agent.agent import (
    Agent,
    Answered,
    Cancelled,
    Changed,
    Content,
    Decision,
    IfIdle,
    Mode,
    NotPending,
    Page,
    Part,
    Sent,
    Target,
    UnknownBlock,
    UnknownRequest,
    WrongAnswer,
)
from agentls.agent.host import Fork, Listed, UnknownAgent
from agentls.agent.state import AgentState, EditorFacts, LastTurn, OpenRequest, TurnFacts
from agentls.agent.view import View
from agentls.core.chunks import Usage
from agentls.core.errors import UserError
from agentls.core.events import Mention, ModelRef, SessionHeader
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId
from agentls.core.json import JsonValue
from agentls.core.reasons import CancelCause
from agentls.core.rows import Block
from agentls.core.sources import MessageSource
from agentls.core.transcript import Append, Drop, Put
from agentls.models.model import ModelFacts
from agentls.store.store import SessionSummary
from agentls.workspace.documents import Documents


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
        requests=(),
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
    meta: JsonValue
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
        self.changes: list[tuple[object, ...]] = []
        self.bodies: dict[BlockId, str] = {}
        self.reply: Callable[[Noted], Sent] = lambda noted: Sent(noted.id, "started", turn=1)
        self.changed = Changed("done", ())
        self.answered = Answered("accepted")

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
        noted = Noted(id, content, target, wakeup, source, contexts, meta, expected_turn, if_idle)
        self.noted.append(noted)
        await self.gate.wait()
        self.finished.append(id)
        return self.reply(noted)

    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        self.cancels.append((cause, keep_inbox, turn))
        await self.gate.wait()
        return Cancelled("idle", ())

    async def remove(self, message: MessageId) -> Changed:
        return Changed("gone", ())

    async def edit(self, message: MessageId, content: Content) -> Changed:
        self.changes.append(("edit", message, content))
        return replace(self.changed, content=content if self.changed.outcome == "gone" else None)

    async def move(self, message: MessageId, before: MessageId | None) -> Changed:
        if before == "nowhere":
            raise NotPending('"nowhere" is no pending message')
        self.changes.append(("move", message, before))
        return self.changed

    async def promote(self, message: MessageId) -> Changed:
        self.changes.append(("promote", message))
        return self.changed

    async def answer(
        self,
        request: RequestId,
        decision: Decision,
        *,
        shown: str,
        by: str,
        note: str | None = None,
        content: JsonValue = None,
    ) -> Answered:
        if request == "q9.9.9":
            raise UnknownRequest(request)
        if content == "other":
            raise WrongAnswer("an approval takes no content")
        self.changes.append(("answer", request, decision, shown, by, note, content))
        return self.answered

    async def configure(
        self, *, model: ModelRef | None = None, mode: Mode | None = None, title: str | None = None, by: str = "person"
    ) -> None:
        self.changes.append(("configure", model, mode, title, by))
        if title is not None:
            self.title(title)

    async def retry(self, turn: int, *, id: MessageId) -> Sent:
        self.changes.append(("retry", turn, id))
        return Sent(id, "refused", reason="not-retryable")

    async def block(self, block: BlockId, start: int = 0, end: int | None = None) -> Part:
        if block not in self.bodies:
            raise UnknownBlock(block)
        self.changes.append(("block", block, start, end))
        return Part.of(self.bodies[block], start, end)

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

    def run(self, turn: int, step: int = 1, trigger: str = "message", *, asks: str | None = None) -> None:
        """A turn runs, or waits for what it `asks` in a block of that title."""
        assert self.view.state is not None
        requests: tuple[OpenRequest, ...] = ()
        if asks is not None:
            self.put(block("q1.1.1", 50, kind="approval", state="done", title=asks))
            requests = (OpenRequest(RequestId("q1.1.1"), "approval", BlockId("q1.1.1"), "sha256:0", self.id),)
        facts = TurnFacts(turn, step, trigger, 1)
        self.view.publish_state(replace(self.view.state, status="running", turn=facts, requests=requests))

    def end(self, turn: int, reason: str = "completed", *, row: bool = True) -> None:
        """The turn ends, with a row of its own unless it is an injection's."""
        assert self.view.state is not None
        if row:
            self.put(block(f"turn{turn}", 1000 + turn, kind="turn-end", state="done", reason=reason))
        last = LastTurn(turn, reason)
        self.view.publish_state(replace(self.view.state, status="idle", turn=None, requests=(), last_turn=last))


class FakeHost:
    """Has the agents that a test gives it; those in `stored` are loaded when `loaded` is set."""

    def __init__(self, *agents: FakeAgent) -> None:
        self.instance = "instance-1"
        self.documents = Documents()
        self.warnings: tuple[str, ...] = ()
        self.forks: list[Fork | None] = []
        self.deleted: list[AgentId] = []
        self.told: list[tuple[Path, ...]] = []
        self.list_listeners: list[Callable[[str], None]] = []
        self.facts: tuple[ModelFacts, ...] = ()
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
        self,
        workspace_uri: str,
        *,
        model: str | None = None,
        mode: str | None = None,
        title: str | None = None,
        fork: Fork | None = None,
    ) -> FakeAgent:
        if self.error is not None:
            raise self.error
        self.forks.append(fork)
        agent = FakeAgent(f"made-{len(self.agents)}")
        if title is not None:
            agent.title(title)
        self.agents[agent.id] = agent
        return agent

    async def delete(self, agent_id: AgentId) -> None:
        if agent_id not in self.agents:
            raise UnknownAgent(agent_id)
        self.agents.pop(agent_id).view.end()
        self.deleted.append(agent_id)

    def models(self) -> tuple[ModelFacts, ...]:
        return self.facts

    def find_model(self, text: str) -> ModelRef:
        if text != "demo/scripted":
            raise UserError(f'model "{text}" is not in the catalog; pick "demo/scripted"')
        return ModelRef("demo", "scripted")

    def on_list_changed(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self.list_listeners.append(listener)
        return lambda: self.list_listeners.remove(listener)

    def told_changed(self, paths: Sequence[Path]) -> None:
        self.told.append(tuple(paths))

    def change_list(self, workspace_uri: str) -> None:
        """The agents of a workspace are not what they were."""
        for listener in tuple(self.list_listeners):
            listener(workspace_uri)

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
