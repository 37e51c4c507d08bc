"""Ten turns as a script: what the model answers, what the tools do, what the person decides. Every part of the loop is
in at least one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

from agentls.agent.agent import Agent, Decision
from agentls.agent.go_on import GoOn
from agentls.agent.hooks import Context, Enter, Entry, Hooks
from agentls.agent.repeats import RepeatedCalls
from agentls.agent.retries import Retries
from agentls.agent.time_limit import TimeLimit
from agentls.agent.titles import FirstTitle
from agentls.agent.view import Frame
from agentls.core.blocks import ToolCallBlock
from agentls.core.chunks import BlockEnd, Chunk, Finish, ReasoningDelta, TextDelta
from agentls.core.ids import CallId
from agentls.core.json import JsonObject
from agentls.core.reasons import Failed, Failure, MaxTokens, Stop, ToolCalls
from agentls.core.sources import PluginSource, Section, Snapshot
from agentls.models.model import ModelRequest
from agentls.models.retry import RetryPolicy
from agentls.store.store import SessionStore
from agentls.tools.registry import Registry
from agentls.tools.tool import Output, ToolContext
from tests.agent.hands import AtArguments
from tests.harness import HandModel, Rig

Answer = tuple[Chunk, ...]


def said(text: str) -> Answer:
    return TextDelta(0, text[:3]), TextDelta(0, text[3:]), Finish(Stop())


def called(*calls: tuple[str, str]) -> Answer:
    blocks = (
        BlockEnd(n, ToolCallBlock(CallId(f"c{n}"), name, arguments)) for n, (name, arguments) in enumerate(calls, 1)
    )
    return TextDelta(0, "let me see"), *blocks, Finish(ToolCalls())


def broke(code: str) -> Answer:
    return TextDelta(0, "half"), Finish(Failed(Failure("it broke", code)))


LOOK, TOUCH = ("look", '{"at": "a"}'), ("touch", '{"at": "b"}')

TURNS: dict[str, tuple[tuple[Answer, ...], Decision]] = {
    "text": ((said("hello"),), "allow"),
    "reasoning": (((ReasoningDelta(0, "hm"), TextDelta(1, "well"), Finish(Stop())),), "allow"),
    "two tools": ((called(LOOK, LOOK), said("seen")), "allow"),
    "allowed": ((called(TOUCH), said("done")), "allow"),
    "denied": ((called(TOUCH, LOOK), said("as you wish")), "deny"),
    "stopped": ((called(LOOK, TOUCH, LOOK), said("never said")), "deny-and-stop"),
    "retry": ((broke("SERVER"), said("again")), "allow"),
    "failed": ((broke("AUTH"),), "allow"),
    "limit": (((TextDelta(0, "too lo"), Finish(MaxTokens())),), "allow"),
    "mixed": ((called(LOOK, TOUCH, ("look", "{"), ("none", "{}")), broke("SERVER"), said("so")), "allow"),
}


class ScriptModel(HandModel):
    """Gives one answer after the other, and a short text when there are no more."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        super().__init__()
        self._answers = list(answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else said("okay")
        for chunk in answer:
            await asyncio.sleep(0)
            yield chunk


@dataclass
class Bodies:
    """What ran: the arguments of each body, once it began."""

    begun: list[str] = field(default_factory=list)


class Look:
    """Looks, beside others."""

    name = "look"
    description = "Look."
    arguments = AtArguments
    read_only = True

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def parallel(self, arguments: AtArguments) -> bool:
        return True

    async def asks(self, arguments: AtArguments, context: ToolContext) -> JsonObject | None:
        return None

    async def run(self, arguments: AtArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        self._bodies.begun.append(f"look {arguments.at}")
        await asyncio.sleep(0.001)
        return Output("seen")


class Touch(Look):
    """Asks first, and stands alone."""

    name = "touch"
    description = "Touch."
    read_only = False

    def parallel(self, arguments: AtArguments) -> bool:
        return False

    async def asks(self, arguments: AtArguments, context: ToolContext) -> JsonObject | None:
        await asyncio.sleep(0)
        return {"at": arguments.at}

    async def run(self, arguments: AtArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        self._bodies.begun.append(f"touch {arguments.at}")
        await asyncio.sleep(0)
        return Output("touched")


class Weather:
    """A producer that takes a moment and says something once a turn."""

    async def pre_step(self, entry: Entry) -> Enter:
        await asyncio.sleep(0)
        if entry.step != 1:
            return Enter()
        section = Section("sky", f"turn {entry.turn}")
        return Enter((Context(f"sky: turn {entry.turn}", PluginSource("weather", Snapshot((section,)))),))


def hooks() -> Hooks:
    repeats = RepeatedCalls()
    return Hooks(
        pre_step=(Weather(), GoOn()),
        request_error=(Retries(RetryPolicy(initial_delay_ms=2, max_retries=1), lambda: 0.5),),
        pre_execute=(repeats,),
        execute=(TimeLimit(),),
        post_execute=(repeats,),
        turn_stopping=(FirstTitle(),),
    )


class Scene(Rig):
    """A rig for one of the turns."""

    def __init__(self, directory: Path, turn: str, store: SessionStore | None = None) -> None:
        self.bodies = Bodies()
        registry = Registry()
        registry.register(Look(self.bodies))
        registry.register(Touch(self.bodies))
        answers, self.decision = TURNS[turn]
        super().__init__(directory, ScriptModel(answers), store=store, hooks=hooks(), registry=registry)
        self.asked: set[str] = set()
        self._deeds: set[asyncio.Task[object]] = set()

    def decides(self, agent: Agent) -> None:
        """Have a person answer every approval of the agent as the script says, in the step after it is drawn."""

        def look(frame: Frame) -> None:
            for request in frame.state.requests if frame.state is not None else ():
                if request.request_id not in self.asked:
                    self.asked.add(request.request_id)
                    deed = agent.answer(request.request_id, self.decision, shown=request.shown, by="script")
                    task: asyncio.Task[object] = asyncio.ensure_future(deed)
                    self._deeds.add(task)
                    task.add_done_callback(self._deeds.discard)

        agent.view.subscribe(look)
