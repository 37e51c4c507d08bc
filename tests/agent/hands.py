"""Tools whose bodies end when the test says so, hooks made of plain functions, and short ways to look at a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from agentls.agent.agent import Agent
from agentls.agent.hooks import Enter, Entry, Hooks, Outcome, Reject, Use
from agentls.agent.state import AgentState, OpenRequest
from agentls.core.blocks import ToolCallBlock, ToolResultBlock, text_of
from agentls.core.chunks import BlockEnd
from agentls.core.events import Event, EventData, ToolResult, TurnEnd
from agentls.core.ids import AgentId, CallId
from agentls.core.invariants import check_log
from agentls.core.json import JsonObject
from agentls.core.reasons import ToolCalls, TurnEndReason
from agentls.core.session import SessionState
from agentls.models.model import ModelRequest
from agentls.store.store import SessionStore
from agentls.tools.registry import Registry
from agentls.tools.tool import GRACE_SECONDS, Arguments, Output, ToolContext
from tests.agent.watched import Disk, WatchedModel, WatchedStore
from tests.harness import HandModel, Rig, content, idle, mid, row_ids, until

# Tools -----------------------------------------------------------------------------------------------------------


class AtArguments(Arguments):
    at: str


class Bodies:
    """What the bodies of all tools do: one that is held runs until the test ends it, any other one ends at once."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.stubborn: set[str] = set()
        """Where a body that is stopped has done its work all the same."""
        self.deaf: set[str] = set()
        """Where a body goes on however often it is stopped, until the test ends it."""
        self.allowed: list[JsonObject | None] = []
        """What each body was allowed."""
        self._held: dict[str, asyncio.Future[Output]] = {}

    def hold(self, *places: str) -> None:
        for at in places:
            self._held[at] = asyncio.get_running_loop().create_future()

    def end(self, at: str, result: str | Output | Exception = "") -> None:
        """Let the body that is held there give that."""
        if isinstance(result, Exception):
            self._held[at].set_exception(result)
        else:
            self._held[at].set_result(result if isinstance(result, Output) else Output(result or f"did {at}"))

    def give_up(self, at: str) -> None:
        """Have the body that is held there end as cancelled, by nobody but itself."""
        self._held[at].cancel()

    async def run(self, at: str) -> Output:
        self.begun.append(at)
        if at not in self._held:
            return Output(f"did {at}")
        while True:
            try:
                return await asyncio.shield(self._held[at])
            except asyncio.CancelledError:
                self.stopped.append(at)
                if at in self.stubborn:
                    return Output(f"did {at} before it stopped")
                if at not in self.deaf:
                    raise


@dataclass(frozen=True)
class Tool:
    """One tool; `asking` ones show a person their argument."""

    bodies: Bodies
    name: str
    together: bool = False
    asking: bool = False
    read_only: bool = True
    description: str = "A tool of a test."
    arguments: type[AtArguments] = AtArguments

    def parallel(self, arguments: AtArguments) -> bool:
        return self.together

    async def asks(self, arguments: AtArguments, context: ToolContext) -> JsonObject | None:
        return {"at": arguments.at} if self.asking else None

    async def run(self, arguments: AtArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        self.bodies.allowed.append(allowed)
        return await self.bodies.run(arguments.at)


def registry(bodies: Bodies) -> Registry:
    """`look` runs beside others, `solo` alone, `touch` asks first and changes something, `peek` asks and is `look`."""
    made = Registry()
    made.register(Tool(bodies, "look", together=True))
    made.register(Tool(bodies, "solo"))
    made.register(Tool(bodies, "touch", asking=True, read_only=False))
    made.register(Tool(bodies, "peek", together=True, asking=True))
    return made


def call(model: HandModel, *calls: tuple[str, str]) -> None:
    """Have the model call tools, each with the place it is called at; what begins with `{` is the raw arguments."""
    for n, (name, at) in enumerate(calls):
        arguments = at if at.startswith("{") or not at else f'{{"at": "{at}"}}'
        model.give(BlockEnd(n, ToolCallBlock(CallId(f"c{n}"), name, arguments)))
    model.finish(ToolCalls())


# Hooks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """A `pre_step` hook."""

    does: Callable[[Entry], Awaitable[Enter | Reject]]

    async def pre_step(self, entry: Entry) -> Enter | Reject:
        return await self.does(entry)


@dataclass
class Gate:
    """A `pre_step` hook that lets a step in when the test opens it; `claims` are the ids of each time it was asked."""

    shut: bool = True
    verdict: Enter | Reject = field(default_factory=Enter)
    claims: list[list[str]] = field(default_factory=list)

    async def pre_step(self, entry: Entry) -> Enter | Reject:
        self.claims.append([str(item.id) for item in entry.items])
        await until(lambda: not self.shut)
        return self.verdict

    async def reached(self, times: int = 1) -> None:
        await until(lambda: len(self.claims) >= times)


@dataclass(frozen=True)
class Guarding:
    """A `guard` hook; `does` may raise."""

    does: Callable[[Use], Awaitable[None]]

    async def guard(self, use: Use) -> None:
        await self.does(use)


@dataclass(frozen=True)
class Changing:
    """A `pre_execute` hook."""

    does: Callable[[Use], JsonObject | None]

    async def pre_execute(self, use: Use) -> JsonObject | None:
        return self.does(use)


@dataclass(frozen=True)
class After:
    """A `post_execute` hook."""

    does: Callable[[Use, Outcome], Outcome]

    async def post_execute(self, use: Use, outcome: Outcome) -> Outcome:
        return self.does(use, outcome)


@dataclass(frozen=True)
class Stopping:
    """A `turn_stopping` hook."""

    does: Callable[[Agent, SessionState], Awaitable[object]]

    async def turn_stopping(self, agent: Agent, state: SessionState) -> None:
        await self.does(agent, state)


# A host, and looking at it ---------------------------------------------------------------------------------------


class HandRig(Rig):
    """A rig with the tools of above, over a store whose writes are `disk.acts`."""

    def __init__(
        self,
        directory: Path,
        hooks: Hooks | None = None,
        disk: Disk | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self.disk = disk or Disk()
        self.bodies = Bodies()
        super().__init__(
            directory,
            WatchedModel(self.disk),
            lambda store: cast(SessionStore, WatchedStore(store, self.disk)),
            hooks=hooks,
            registry=registry(self.bodies),
            grace=grace,
        )


@asynccontextmanager
async def hands(
    directory: Path, hooks: Hooks | None = None, disk: Disk | None = None, *, grace: float = GRACE_SECONDS
) -> AsyncIterator[HandRig]:
    """A rig that is closed in the end, when every log of it is found to keep the rules."""
    made = HandRig(directory, hooks, disk, grace)
    try:
        yield made
        for agent in tuple(made.host._live.values()):
            check_log(await made.log(agent))
    finally:
        made.disk.full = made.disk.drafts_full = False
        await made.host.close()


async def asked(on: Rig, text: str = "go", times: int = 1) -> Agent:
    """A new agent whose first request is out."""
    agent = await on.agent()
    await agent.followup(content(text), id=mid("m1"))
    await on.model.asked(times)
    return agent


async def shown(on: Rig, agent: Agent, text: str = "half") -> None:
    """Answer the first request as far as that, and wait until it is drawn."""
    on.model.text(text)
    await until(lambda: "a1.1.1/0" in row_ids(agent.view))


async def streaming(on: Rig, text: str = "half") -> Agent:
    """A new agent whose answer is drawn as far as that."""
    agent = await asked(on)
    await shown(on, agent, text)
    return agent


async def died(on: Rig, agent: Agent) -> AgentId:
    """Have the agent's process die: nothing is closed, only the lock is let go as the system does."""
    agent._loop._driver.cancel()  # type: ignore[attr-defined]
    await agent._journal.log.close()  # type: ignore[attr-defined]
    on.forget(agent)
    return agent.id


def state(agent: Agent) -> AgentState:
    assert agent.view.state is not None
    return agent.view.state


def waits(agent: Agent) -> list[tuple[str, str, bool]]:
    """Id, lane and hold of each message that waits."""
    return [(str(item.message_id), item.lane, item.held) for item in state(agent).inbox]


async def request(agent: Agent, number: int = 1) -> OpenRequest:
    """The approval that is open, once `number` are."""
    await until(lambda: len(state(agent).requests) >= number)
    return state(agent).requests[number - 1]


def results(asked: ModelRequest) -> list[tuple[str, str]]:
    """Id and text of each result that a request sends."""
    blocks = [block for message in asked.messages for block in message.content if isinstance(block, ToolResultBlock)]
    return [(str(block.tool_call_id), text_of(block.content)) for block in blocks]


def datas(events: Sequence[Event], kind: type[EventData]) -> list[EventData]:
    return [event.data for event in events if isinstance(event.data, kind)]


def codes(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    """Id and error code of each result in the log."""
    found = [event.data for event in events if isinstance(event.data, ToolResult)]
    return [(str(result.call_id), result.error.code if result.error is not None else None) for result in found]


def ends(events: Sequence[Event]) -> list[TurnEndReason]:
    """How each turn ended."""
    return [event.data.reason for event in events if isinstance(event.data, TurnEnd)]


async def over(on: Rig, agent: Agent, times: int, text: str = "so be it") -> ModelRequest:
    """Answer that request with a text, and wait until the agent rests."""
    request = await on.model.answer(text, times)
    await idle(agent)
    return request
