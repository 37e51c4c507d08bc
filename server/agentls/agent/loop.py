"""Ask the log what is owed, do it, append: the driver of one agent. Model, tools, context and log meet only here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from agentls.agent.agent import Agent
from agentls.agent.attempt import Attempt
from agentls.agent.drawing import Drawing
from agentls.agent.entering import claim_of, enter_step, reject_step
from agentls.agent.hooks import Context, Enter, Entry, Hooks, Reject
from agentls.agent.journal import Journal
from agentls.agent.prompt import Prompt
from agentls.agent.recovery import Recovery, ended
from agentls.agent.request import Requests, propose
from agentls.agent.tool_calls import ToolCalls
from agentls.core.answer import aborted_results, answered, failed, interrupted
from agentls.core.assembler import Placed
from agentls.core.chunks import Usage
from agentls.core.errors import StoreUnavailable, UserError
from agentls.core.events import (
    EventData,
    ModelRef,
    RequestSent,
    Retry,
    RetryStarted,
    StepEnd,
)
from agentls.core.ids import retry_id
from agentls.core.reasons import (
    Aborted,
    Blocked,
    Completed,
    Failed,
    Failure,
    TurnEndReason,
    TurnFailed,
)
from agentls.core.repair import repair
from agentls.core.session import SessionState
from agentls.core.turn import (
    AskModel,
    AwaitRetry,
    EndStep,
    EndTurn,
    EnterStep,
    OpenTurn,
    Rest,
    RunTools,
    SettleCancel,
    close_turn,
    open_turn,
    settle_cancel,
)
from agentls.models.model import Models
from agentls.tools.registry import Registry
from agentls.tools.tool import GRACE_SECONDS, ToolContext

logger = logging.getLogger(__name__)
T = TypeVar("T")

_MISTAKE = Failure("the server made a mistake; its log has the details", "INTERNAL")


@dataclass(frozen=True, slots=True)
class Parts:
    """What an agent works with, the same for all agents of a host. `grace` is how many seconds a tool that was stopped
    has to end."""

    models: Models
    prompt: Prompt
    registry: Registry
    hooks: Hooks
    grace: float = GRACE_SECONDS


class Loop:
    """Drives one session; nothing but its log says what comes next. It runs while something is owed; `wake` has it look
    again."""

    def __init__(
        self,
        agent: Agent,
        parts: Parts,
        *,
        journal: Journal,
        drawing: Drawing,
        default_model: ModelRef,
        context: ToolContext,
    ) -> None:
        """`agent` is what hooks see of it; `context` is what tools may look at."""
        self._agent = agent
        self._parts = parts
        self._default_model = default_model
        self._context = context
        self._journal = journal
        self._drawing = drawing
        self._tools = ToolCalls(journal, parts.registry, parts.hooks, context)
        self._requests = Requests()
        self._attempt: Attempt | None = None
        self._driver: asyncio.Task[None] | None = None
        self._hooks_at_work: asyncio.Task[Any] | None = None
        self._interrupt = asyncio.Event()
        self._stopping_asked = (0, 0)
        self._closing = False
        self._recovery = Recovery(journal, drawing, self)

    def wake(self) -> None:
        """See what is owed, and do it, unless it is being done."""
        running = self._driver is not None and not self._driver.done()
        if not running and not isinstance(self._advance(), Rest):
            self._driver = asyncio.create_task(self._drive(), name=f"agent {self._agent.id}")

    def stop_hooks(self) -> None:
        """What hooks are asked about has changed: they are asked anew."""
        task, self._hooks_at_work = self._hooks_at_work, None
        # A hook that changes what waits stops itself.
        if task is not None:
            task.cancel()

    def stop_work(self) -> None:
        """Stop whatever the driver waits for; it goes on by what the log says then."""
        self.stop_hooks()
        self._tools.stop()
        self._interrupt.set()
        if self._attempt is not None:
            self._attempt.stop()

    async def refuse_steps(self) -> None:
        """Begin no step any more: the agent is being closed, and what waits is for the next time, also what a step was
        about to take."""
        self._closing = True
        self.stop_hooks()
        await self._recovery.stop()

    async def end(self) -> None:
        """End whatever still runs. What is in memory only, since the store refused, is tried once more:
        StoreUnavailable where that is lost."""
        self.stop_work()
        await ended(self._driver)
        if self._attempt is not None:
            await self._attempt.stopped()
        await self._recovery.attempt()

    def suspended(self, error: StoreUnavailable) -> None:
        """Stop everything until the store takes writes again; the journal calls this once each time it fails."""
        self.stop_work()
        self._recovery.suspend(error)

    # What is under way, for the recovery -------------------------------------------------------------------------

    async def stopped(self) -> None:
        """See Work."""
        if self._driver is not None and not self._driver.done():
            await asyncio.wait([self._driver])

    def closing(self, reason: TurnEndReason) -> tuple[EventData, ...]:
        """See Work."""
        turn = self._state.turns.open
        shown = {turn.answer_id(): self._shown(turn)} if turn is not None else {}
        return repair(self._state, shown, reason, "error", self._tools.finished)

    def forget_drafts(self, turn: OpenTurn) -> None:
        """See Work."""
        try:
            self._journal.log.drop_drafts(turn.answer_id())
        except StoreUnavailable:
            # The log holds the finished text, so that a left-over draft is only dead weight until the next load.
            logger.warning("the drafts of %s in session %s were not removed", turn.answer_id(), self._agent.id)

    # The driver --------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> SessionState:
        return self._journal.state

    async def _drive(self) -> None:
        while self._journal.failure is None:
            try:
                if await self._step():
                    return
            except StoreUnavailable:
                return  # the journal has told us, and the recovery goes on from there
            except Exception:
                logger.exception("the loop of agent %s failed", self._agent.id)
                if not await self._give_up():
                    return

    async def _step(self) -> bool:
        """Do what is owed; true when nothing is."""
        match self._advance():
            case EnterStep() if self._closing:
                return True  # what waits is for the next load
            case EnterStep() as action:
                await self._enter(action)
            case AskModel():
                await self._ask(open_turn(self._state.turns))
            case AwaitRetry(retry=retry):
                await self._wait_for(retry)
            case RunTools():
                await self._tools.run(open_turn(self._state.turns))
            case EndTurn():
                await self._turn_stopping(open_turn(self._state.turns))
            case SettleCancel():
                await self._settle(open_turn(self._state.turns))
            case Rest():
                return True
        return False

    def _advance(self) -> EnterStep | AskModel | AwaitRetry | RunTools | EndTurn | SettleCancel | Rest:
        """Append all that is owed and needs no waiting, and answer what does.

        It runs within one loop step, so that no cancel or send finds a gap between two turns.
        """
        while True:
            state = self._state
            match state.next_action():
                case EndStep(turn, step):
                    self._journal.append((StepEnd(turn, step),), durable=False)
                case EndTurn(reason=Completed()) as action if self._owes_stopping_hooks():
                    return action
                case EndTurn(_, reason, hold):
                    self._journal.append(close_turn(state.turns, state.inbox, reason, hold), durable=True)
                case action:
                    return action

    async def _settle(self, turn: OpenTurn) -> None:
        spent = self._spent(turn) if turn.asking else None
        answer = interrupted(turn, self._asked_model(), self._shown(turn), spent) if turn.asking else ()
        results = aborted_results(turn, self._tools.finished, self._state.requests)
        end = settle_cancel(self._state.turns, self._state.inbox, spent)
        await self._close((*answer, *results, *end), turn)

    async def _close(self, closing: Sequence[EventData], turn: OpenTurn) -> None:
        """Append what closes a turn, and in the same loop step what comes next: nothing finds a gap in between."""
        closed = self._journal.append(closing, durable=True)
        self._advance()
        await closed
        self.forget_drafts(turn)

    async def _give_up(self) -> bool:
        """Close the turn after a fault of our own, so that the person is told and can go on; false without one. A turn
        that is being stopped just stops."""
        state = self._state
        turn = state.turns.open
        if self._journal.failure is not None:
            return False
        entering = state.entering()
        if entering is not None:
            await self._journal.append(reject_step(state, entering, TurnFailed(_MISTAKE), "error"), durable=True)
            return True
        if turn is None:
            return False
        if turn.cancel is not None:
            await self._settle(turn)
            return True
        await self._close(self.closing(TurnFailed(_MISTAKE)), turn)
        return True

    # Hooks -----------------------------------------------------------------------------------------------------

    async def _enter(self, action: EnterStep) -> None:
        """Ask whoever has a say before the step begins, then begin it or end the turn. Nothing is claimed before that:
        when what it would claim changes meanwhile, it begins anew."""
        verdict = await self._unless_stopped(self._pre_step(action))
        if verdict is None:
            return
        state = self._state
        if isinstance(verdict, Reject):
            self._journal.append(reject_step(state, action, Blocked(verdict.reason), "blocked"), durable=True)
            return
        proposal = propose(state, self._parts.prompt, self._model_ref(), self._parts.hooks.request)
        entered = self._journal.append(enter_step(state, action, proposal, verdict.contexts), durable=True)
        entered.add_done_callback(lambda done: _tell_begun(done, verdict))

    async def _pre_step(self, action: EnterStep) -> Enter | Reject:
        state = self._state
        entry = Entry(
            state=state,
            turn=action.turn,
            step=action.step,
            items=claim_of(state.inbox, action),
            scope=self._context,
            editors=self._drawing.editors,
        )
        contexts: list[Context] = []
        begun: list[Callable[[], None]] = []
        for hook in self._parts.hooks.pre_step:
            verdict = await hook.pre_step(entry)
            if isinstance(verdict, Reject):
                return verdict
            contexts += verdict.contexts
            begun.append(verdict.begun)
        return Enter(tuple(contexts), lambda: _call_all(begun))

    def _owes_stopping_hooks(self) -> bool:
        turn = open_turn(self._state.turns)
        return bool(self._parts.hooks.turn_stopping) and self._stopping_asked != (turn.turn, turn.step)

    async def _turn_stopping(self, turn: OpenTurn) -> None:
        async def ask() -> bool:
            for hook in self._parts.hooks.turn_stopping:
                await hook.turn_stopping(self._agent, self._state)
            return True

        if await self._unless_stopped(ask()):
            self._stopping_asked = turn.turn, turn.step

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What hooks give, or None where `stop_hooks` ended them first. They run in the driver's own task, since nearly
        always none of them waits."""
        task = asyncio.current_task()
        assert task is not None, "the driver is a task"
        self._hooks_at_work = task
        try:
            result = await work
        except asyncio.CancelledError:
            if self._hooks_at_work is task:
                raise  # The driver itself is ended.
            result = None
        except Exception:
            if self._hooks_at_work is task:
                raise
            logger.exception("a hook of agent %s failed when it was stopped", self._agent.id)
            result = None
        finally:
            taken_back = self._hooks_at_work is not task
            self._hooks_at_work = None
        if taken_back:
            task.uncancel()
            return None
        return result

    # The model -------------------------------------------------------------------------------------------------

    def _model_ref(self) -> ModelRef:
        """The model of the next step."""
        return self._state.model or self._default_model

    def _asked_model(self) -> ModelRef:
        """The model of the open step; another choice counts from the next one on."""
        header = self._state.request_header
        assert header is not None, "a step has its header in the log"
        return header.model

    async def _ask(self, turn: OpenTurn) -> None:
        """Stream one attempt and record what came of it. A cancel ends the stream and leaves what was shown."""
        await self._journal.settled()
        if open_turn(self._state.turns).cancel is not None:
            return
        log, draw = self._journal.log, self._drawing.drafts
        attempt = self._attempt = Attempt(log, turn.answer_id(), draw=draw, failed=self._journal.break_off)
        try:
            model = self._parts.models.open(self._asked_model())
        except UserError as error:
            attempt.fail(Failure(str(error), "NO_MODEL"))
        else:
            await attempt.run(model, self._requests.of(self._state))
        if self._journal.failure is not None or open_turn(self._state.turns).cancel is not None:
            return
        finish = attempt.stream.finish
        if isinstance(finish, Failed | Aborted):
            events: Sequence[EventData] = (
                failed(turn, self._asked_model(), attempt.shown, finish.failure, attempt.stream),
                *self._retry(turn, finish.failure),
            )
        else:
            events = answered(turn, self._asked_model(), attempt.stream)
        await self._journal.append(events, durable=False)
        self.forget_drafts(turn)

    def _retry(self, turn: OpenTurn, failure: Failure) -> tuple[Retry, ...]:
        for hook in self._parts.hooks.request_error:
            delay = hook.request_error(failure, turn.attempt)
            if delay is not None:
                name = retry_id(turn.turn, turn.step, turn.attempt)
                return (Retry(name, turn.turn, turn.step, turn.attempt, delay, failure),)
        return ()

    async def _wait_for(self, retry: Retry) -> None:
        """Count down, then send the same request again."""
        loop = asyncio.get_running_loop()
        due = loop.time() + retry.delay_ms / 1000
        interrupt = self._interrupt = asyncio.Event()
        while (left := due - loop.time()) > 0 and not interrupt.is_set():
            self._drawing.countdown(math.ceil(left * 1000))
            with suppress(TimeoutError):
                async with asyncio.timeout(left % 1 or 1):
                    await interrupt.wait()
        if self._journal.failure is not None or open_turn(self._state.turns).cancel is not None:
            return
        turn = open_turn(self._state.turns)
        started = RetryStarted(retry.retry_id, retry.turn, retry.step, retry.attempt)
        again = RequestSent(turn.turn, turn.step, turn.attempt + 1, turn.boundary)
        self._journal.append((started, again), durable=True)

    def _shown(self, turn: OpenTurn) -> tuple[Placed, ...]:
        """What a person has seen of the answer to the turn's current request."""
        attempt = self._attempt
        return attempt.shown if attempt is not None and attempt.message == turn.answer_id() else ()

    def _spent(self, turn: OpenTurn) -> Usage | None:
        """What the turn's current request has cost, as far as the provider has said."""
        attempt = self._attempt
        return attempt.stream.usage if attempt is not None and attempt.message == turn.answer_id() else None


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _tell_begun(entered: asyncio.Future[None], verdict: Enter) -> None:
    if not entered.cancelled() and entered.exception() is None:
        verdict.begun()
