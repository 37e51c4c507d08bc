"""The calls of one step: checked, allowed by a person where they ask for it, run, and answered in the model's order.

    validate -> pre_execute -> approval -> guard -> tool/start (durable) -> execute -> post_execute -> tool/result

Calls that say `parallel` run beside each other, at most `LIMIT` at once; every other one waits for those before it and
holds up those after it. A failure is an answer for the model; only a fault of the server itself ends the turn, and
then what had run keeps its result.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from agentls.agent.entering import produced
from agentls.agent.hooks import Context, Execute, Hooks, Outcome, Use
from agentls.agent.journal import Journal
from agentls.core.answer import error_result, parse_arguments
from agentls.core.blocks import TextBlock
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    EventData,
    ToolCall,
    ToolResult,
    ToolStart,
    UserMessage,
)
from agentls.core.ids import CallId, request
from agentls.core.json import JsonObject, canonical, digest
from agentls.core.messages import tool_result
from agentls.core.session import SessionState
from agentls.core.turn import OpenTurn
from agentls.core.visible import one_line
from agentls.tools.registry import Call, Registry
from agentls.tools.tool import Output, ToolContext, ToolError

logger = logging.getLogger(__name__)
T = TypeVar("T")

LIMIT = 10
"""Bodies of parallel calls that run at once."""


@dataclass(frozen=True, slots=True)
class _Answer:
    result: ToolResult
    contexts: tuple[Context, ...] = ()


class ToolCalls:
    """Runs the calls of an agent, one step's at a time. `finished` holds the results of those of the last step that are
    done; one stays there when it is given to the log, which may not be able to save it."""

    def __init__(self, journal: Journal, registry: Registry, hooks: Hooks, context: ToolContext) -> None:
        self.finished: dict[CallId, ToolResult] = {}
        self._journal = journal
        self._registry = registry
        self._hooks = hooks
        self._context = context
        self._contexts: dict[CallId, tuple[Context, ...]] = {}
        self._order: list[CallId] = []
        self._running: set[asyncio.Task[None]] = set()
        self._unstarted: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._stopped = False

    async def run(self, turn: OpenTurn) -> None:
        """Answer every call of the step. It returns early once `stop` was called, when nothing of them runs any more;
        a fault of the server is raised then, the first one."""
        calls = [open_call.call for open_call in turn.unanswered()]
        self.finished, self._contexts, self._fault, self._stopped = {}, {}, None, False
        self._order = [call.call_id for call in calls]
        self._unstarted.clear()
        try:
            for call in calls:
                parallel = self._parallel(call)
                await self._room(0 if not parallel else LIMIT - 1)
                if self._ends:
                    break
                task = asyncio.create_task(self._answer(call), name=f"tool {call.name}")
                self._running.add(task)
                self._unstarted.add(task)
                if not parallel:
                    await self._room(0)
            await self._room(0)
        finally:
            await self._drained()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Start nothing more, and stop what runs."""
        self._stopped = True
        for task in self._running:
            task.cancel()

    # One call --------------------------------------------------------------------------------------------------

    async def _answer(self, call: ToolCall) -> None:
        try:
            answer = await self._outcome(call)
        except Exception as fault:  # noqa: BLE001 - the boundary of a call: the first fault ends the turn
            self._fault = self._fault or fault
            # Nothing starts any more, so nobody is to be asked about it either.
            for task in self._unstarted:
                task.cancel()
            return
        self.finished[call.call_id] = answer.result
        self._contexts[call.call_id] = answer.contexts

    async def _outcome(self, call: ToolCall) -> _Answer:
        context = replace(self._context, stop=threading.Event())
        try:
            use, prepared = await self._allowed(call, context)
        except ToolError as error:
            return _Answer(error_result(call, error.code, error.text))
        self._unstarted.discard(_this_task())
        await self._journal.append((ToolStart(call.call_id),), durable=True)
        outcome = Outcome(await self._body(use, prepared, context))
        for hook in self._hooks.post_execute:
            outcome = await hook.post_execute(use, outcome)
        return _Answer(_result(call, outcome.result), outcome.contexts)

    async def _allowed(self, call: ToolCall, context: ToolContext) -> tuple[Use, Call]:
        """The call as it may start; ToolError where it may not."""
        arguments = parse_arguments(call.arguments)
        if arguments is None:
            text = (
                f'the arguments of "{one_line(call.name)}" are not a JSON object; send the call again with valid JSON'
            )
            raise ToolError("INVALID_ARGS", text)
        prepared = self._registry.prepare(call.name, arguments)
        use = Use(call, arguments, prepared.read_only, self._state)
        for hook in self._hooks.pre_execute:
            others = await hook.pre_execute(use)
            if others is not None:
                prepared = self._registry.prepare(call.name, others)
                use = replace(use, arguments=others)
        # What is shown is what will run: the model's own text, unless a hook has put other arguments in its place.
        told = call.arguments if use.arguments == arguments else canonical(use.arguments)
        await self._ask(call, told, await _of_tool(call.name, prepared.asks(context)))
        for guard in self._hooks.guard:
            await guard.guard(replace(use, state=self._state))
        return use, prepared

    async def _body(self, use: Use, prepared: Call, context: ToolContext) -> Output | ToolError:
        body: Callable[[], Awaitable[Output]] = lambda: _of_tool(use.call.name, prepared.run(context))  # noqa: E731
        for hook in reversed(self._hooks.execute):
            body = _around(hook, use, body)
        try:
            return await body()
        except ToolError as error:
            return error

    # A person's leave ------------------------------------------------------------------------------------------

    async def _ask(self, call: ToolCall, arguments: str, what: JsonObject | None) -> None:
        """Wait until a person has allowed `what`; ToolError where they do not."""
        if what is None:
            return
        number = self._state.requests.in_step + 1
        asked = request(call.turn, call.step, number)
        shown: JsonObject = {**what, "tool": call.name, "arguments": arguments}
        await self._journal.append((ApprovalAsked(asked, call.call_id, shown, digest(shown)),), durable=False)
        await self._journal.until(lambda state: asked in state.requests.closed)
        decided = self._state.requests.closed[asked]
        if isinstance(decided, ApprovalDecided) and decided.decision != "allow":
            said = f": {decided.note}" if decided.note else ""
            text = f"the person did not allow this call{said}; do not repeat it, go on without it or ask what they want"
            raise ToolError("DENIED", text)

    # All of them -----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> SessionState:
        return self._journal.state

    @property
    def _ends(self) -> bool:
        return self._stopped or self._fault is not None

    def _parallel(self, call: ToolCall) -> bool:
        """Whether it may run beside others; one that is going to fail its checks holds nothing up."""
        arguments = parse_arguments(call.arguments)
        try:
            return arguments is not None and self._registry.prepare(call.name, arguments).parallel
        except ToolError:
            return False

    async def _room(self, most: int) -> None:
        """Wait until at most `most` calls run, and put into the log what is finished, in the model's order."""
        while True:
            done = {task for task in self._running if task.done()}
            self._running -= done
            self._record()
            if len(self._running) <= most:
                return
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    def _record(self) -> None:
        while not self._ends and self._order and self._order[0] in self.finished:
            call_id = self._order.pop(0)
            result, contexts = self.finished[call_id], self._contexts[call_id]
            turn = self._state.turns.open
            assert turn is not None, "calls run inside a turn"
            added = produced(turn.turn, turn.step, contexts, turn.produced)
            events: list[EventData] = [result, *(UserMessage(message) for message in added)]
            self._journal.append(events, durable=False)

    async def _drained(self) -> None:
        """Wait until nothing runs. A fault lets bodies that run come to their end; whoever stops them says so."""
        while self._running:
            try:
                await asyncio.wait(self._running)
            except asyncio.CancelledError:
                self.stop()
                await asyncio.wait(self._running)
                raise
            self._running = {task for task in self._running if not task.done()}


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None, "a call runs in a task of its own"
    return task


async def _of_tool(name: str, work: Awaitable[T]) -> T:
    """What a tool's own code gives. What it raises by mistake is a failure of the call, not of the turn."""
    try:
        return await work
    except ToolError:
        raise
    except Exception as fault:
        logger.exception("the tool %s failed", name)
        text = f'"{name}" failed by a mistake of its own; try another way, and tell the person'
        raise ToolError("TOOL_FAILED", text) from fault


def _around(hook: Execute, use: Use, body: Callable[[], Awaitable[Output]]) -> Callable[[], Awaitable[Output]]:
    return lambda: hook.execute(use, body)


def _result(call: ToolCall, result: Output | ToolError) -> ToolResult:
    if isinstance(result, ToolError):
        return error_result(call, result.code, result.text)
    if not _is_json(result.meta):
        logger.error("the tool %s gave a meta that is no JSON", call.name)
        text = f'"{call.name}" ran and its answer is lost by a mistake of its own; look at what it did before you go on'
        return error_result(call, "TOOL_FAILED", text)
    message = tool_result(call.call_id, (TextBlock(result.text),))
    return ToolResult(call.turn, call.step, call.call_id, message, meta=result.meta or None)


def _is_json(meta: JsonObject) -> bool:
    """Whether the log can hold it: a tool's mistake must not cost the turn."""
    try:
        canonical(meta)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
