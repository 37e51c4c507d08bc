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
from typing import TypeAlias, TypeVar

from agentls.agent.entering import produced
from agentls.agent.hooks import Context, Execute, Hooks, Outcome, Use
from agentls.agent.journal import Journal
from agentls.core.answer import LEVELS_MAX, denial, error_result, parse_arguments
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
from agentls.core.turn import OpenTurn, open_turn
from agentls.core.visible import one_line
from agentls.tools.registry import Call, Registry, tool_failed
from agentls.tools.stopping import stoppable
from agentls.tools.tool import Output, ToolContext, ToolError

logger = logging.getLogger(__name__)
T = TypeVar("T")
Body: TypeAlias = Callable[[], Awaitable[Output]]

LIMIT = 10
"""Bodies of parallel calls that run at once."""


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A call whose arguments fit its tool."""

    arguments: JsonObject
    prepared: Call


class ToolCalls:
    """Runs the calls of an agent, one step's at a time. `finished` holds the results of those of the last step whose
    bodies are done; one stays there when it is given to the log, which may not be able to save it."""

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
        """Answer every call of the step. It returns early once `stop` was called, when nothing of them runs any more
        but what was left behind (see `stoppable`); a fault of the server is raised then, the first one."""
        calls = [open_call.call for open_call in turn.unanswered()]
        self.finished, self._contexts, self._fault, self._stopped = {}, {}, None, False
        self._order = [call.call_id for call in calls]
        self._unstarted.clear()
        try:
            for call in calls:
                fitting = self._fitting(call)
                parallel = isinstance(fitting, _Fitting) and fitting.prepared.parallel
                await self._room(0 if not parallel else LIMIT - 1)
                if self._ends:
                    break
                task = asyncio.create_task(self._answer(call, fitting), name=f"tool {call.name}")
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

    def _fitting(self, call: ToolCall) -> _Fitting | ToolError:
        arguments = parse_arguments(call.arguments)
        if arguments is None:
            name = one_line(call.name)
            text = f'the arguments of "{name}" are not a JSON object of at most {LEVELS_MAX} levels'
            return ToolError("INVALID_ARGS", f"{text}; send the call again with valid JSON")
        try:
            return _Fitting(arguments, self._registry.prepare(call.name, arguments))
        except ToolError as error:
            return error

    async def _answer(self, call: ToolCall, fitting: _Fitting | ToolError) -> None:
        try:
            contexts = await self._outcome(call, fitting)
        except Exception as fault:  # noqa: BLE001 - the boundary of a call: the first fault ends the turn
            self._fault = self._fault or fault
            self._start_nothing()
            return
        self._contexts[call.call_id] = contexts

    async def _outcome(self, call: ToolCall, fitting: _Fitting | ToolError) -> tuple[Context, ...]:
        """Have the result in `finished`, and give the contexts that follow it."""
        context = replace(self._context, stop=threading.Event())
        try:
            if isinstance(fitting, ToolError):
                raise fitting
            use, body = await self._allowed(call, fitting, context)
        except ToolError as error:
            self.finished[call.call_id] = _result(call, error)
            return ()
        self._unstarted.discard(_this_task())
        await self._journal.append((ToolStart(call.call_id),), durable=True)
        result = await self._run(use, body)
        # What was done is known from now on, whatever becomes of the hooks.
        self.finished[call.call_id] = _result(call, result)
        outcome = Outcome(result)
        for hook in self._hooks.post_execute:
            outcome = await hook.post_execute(use, outcome)
        if outcome.result is not result:
            self.finished[call.call_id] = _result(call, outcome.result)
        return outcome.contexts

    async def _allowed(self, call: ToolCall, fitting: _Fitting, context: ToolContext) -> tuple[Use, Body]:
        """The call as it may start; ToolError where it may not."""
        prepared = fitting.prepared
        use = Use(call, fitting.arguments, prepared.read_only, self._state)
        for hook in self._hooks.pre_execute:
            others = await hook.pre_execute(use)
            if others is not None:
                prepared = self._registry.prepare(call.name, others)
                use = replace(use, arguments=others)
        what = await _of_tool(call.name, prepared.asks(context), context.grace)
        if what is not None:
            # What is shown is what will run: the model's own text, unless a hook has put other arguments in its place.
            told = call.arguments if use.arguments == fitting.arguments else canonical(use.arguments)
            await self._ask(call, {**what, "tool": call.name, "arguments": told})
        for guard in self._hooks.guard:
            await guard.guard(replace(use, state=self._state))
        self._go_on()
        return use, lambda: _of_tool(call.name, prepared.run(context, what), context.grace)

    async def _run(self, use: Use, body: Body) -> Output | ToolError:
        for hook in reversed(self._hooks.execute):
            body = _around(hook, use, body)
        try:
            return await body()
        except ToolError as error:
            return error

    # A person's leave ------------------------------------------------------------------------------------------

    async def _ask(self, call: ToolCall, what: JsonObject) -> None:
        """Wait until a person has allowed `what` the call is going to do; ToolError where they do not."""
        self._go_on()
        number = self._state.requests.in_step + 1
        asked = request(call.turn, call.step, number)
        await self._journal.append((ApprovalAsked(asked, call.call_id, what, digest(what)),), durable=False)
        await self._journal.until(lambda state: asked in state.requests.closed)
        decided = self._state.requests.closed[asked]
        if isinstance(decided, ApprovalDecided) and decided.decision != "allow":
            raise ToolError("DENIED", denial(decided))

    # All of them -----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> SessionState:
        return self._journal.state

    @property
    def _ends(self) -> bool:
        return self._stopped or self._fault is not None

    def _go_on(self) -> None:
        """Go no further with a call that was stopped while a tool's own code would not hear of it."""
        if self._ends:
            raise asyncio.CancelledError

    def _start_nothing(self) -> None:
        """After a fault no call starts any more, so nobody is to be asked about one either."""
        for task in self._unstarted:
            task.cancel()
        closing = self._state.requests.cancelled()
        if closing and self._journal.failure is None:
            self._journal.append(closing, durable=False)

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
        while not self._ends and self._order and self._order[0] in self._contexts:
            call_id = self._order.pop(0)
            result, contexts = self.finished[call_id], self._contexts[call_id]
            turn = open_turn(self._state.turns)
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


async def _of_tool(name: str, work: Awaitable[T], grace: float) -> T:
    """What a tool's own code gives. What it raises by mistake is a failure of the call, not of the turn."""
    try:
        return await stoppable(work, grace)
    except ToolError:
        raise
    except Exception as fault:
        raise tool_failed(name, fault) from fault


def _around(hook: Execute, use: Use, body: Body) -> Body:
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
