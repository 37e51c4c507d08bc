"""Ask the log what is owed, do it, append: the driver of one agent. Model, prompt and log meet only here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agentls.agent import fates
from agentls.agent.agent import Agent, Cancelled, Changed, Content, IfIdle, Page, Refusal, Sent, Target
from agentls.agent.attempt import Attempt
from agentls.agent.journal import Journal
from agentls.agent.pages import older_blocks
from agentls.agent.prompt import Prompt
from agentls.agent.request import enter_step, model_request
from agentls.agent.state import EditorFacts, StoreState, agent_state, inbox_of
from agentls.agent.view import Drawn, View
from agentls.core.answer import aborted_results, answered, error_result, failed, interrupted, plan
from agentls.core.assembler import Placed
from agentls.core.chunks import Usage
from agentls.core.errors import StoreUnavailable, UserError
from agentls.core.events import (
    Discard,
    Enqueue,
    EventData,
    Fate,
    Hold,
    InboxItem,
    Mention,
    ModelRef,
    StepEnd,
    ToolCall,
    TurnCancel,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import AgentId, MessageId, volatile_block
from agentls.core.inbox import content_hash
from agentls.core.json import JsonValue
from agentls.core.messages import Message
from agentls.core.reasons import Aborted, CancelCause, Completed, Failed, Failure, InjectionTrigger, TurnFailed
from agentls.core.repair import repair
from agentls.core.session import Batch, SessionState
from agentls.core.sources import MessageSource, UserSource, form_of, is_person
from agentls.core.transcript import Block, Change, Drop, Put, Transcript
from agentls.core.turn import (
    AskModel,
    EndStep,
    EndTurn,
    EnterStep,
    OpenTurn,
    Rest,
    RunTools,
    SettleCancel,
    close_turn,
    settle_cancel,
)
from agentls.models.model import Models
from agentls.store.store import DraftPiece

logger = logging.getLogger(__name__)

PROBE_SECONDS = 1.0
"""How often a suspended agent tries whether the store takes writes again."""
_LOST_STORE = volatile_block(1)


class LoopAgent(Agent):
    """An agent whose loop asks its log what is owed; nothing else says what comes next."""

    def __init__(
        self,
        agent_id: AgentId,
        *,
        view: View,
        transcript: Transcript,
        models: Models,
        default_model: ModelRef,
        prompt: Prompt,
        journal: Callable[[LoopAgent], Journal],
    ) -> None:
        self.id = agent_id
        self.view = view
        self._transcript = transcript
        self._models = models
        self._default_model = default_model
        self._prompt = prompt
        self._journal = journal(self)
        self._journal.session.observe(self._published)
        self._editors: tuple[EditorFacts, ...] = ()
        self._store: StoreState = "ok"
        self._closing = False
        self._driver: asyncio.Task[None] | None = None
        self._attempt: Attempt | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._asked_about: ModelRef | None = None
        self._usable = False
        self._window = 0
        self._tell_state()

    async def open(self, events: Sequence[EventData]) -> None:
        """Append a new session's first events, or a loaded one's repair, before anyone else can."""
        if events:
            await self._journal.append(events, durable=True)

    # Input -----------------------------------------------------------------------------------------------------

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
        injects = target == "next-step" and not wakeup
        if injects and (source is None or is_person(source)):
            raise ValueError("an injection needs a source that is not a person")
        stamped = source or UserSource()
        hashed = content_hash(content, form_of(stamped))
        known = fates.repeated(self._state, id, hashed)
        if isinstance(known, Sent):
            return await self._repeat(known, content)
        if known is not None:
            return _refused(id, content, known)
        if self._journal.failure is not None:
            return _refused(id, content, "store-unavailable")
        if injects:
            message = Message(id, "user", content, stamped)
            return await self._accept(id, content, self._injection(message), Fate("injected"))
        verdict = fates.judge(self._state, target, wakeup=wakeup, expected_turn=expected_turn, if_idle=if_idle)
        if isinstance(verdict, str):
            return _refused(id, content, verdict)
        lane, fate, position = verdict
        item = InboxItem(id, lane, wakeup, content, stamped, hashed, fate, contexts, expected_turn, meta)
        return await self._accept(id, content, (Enqueue(item, position),), fate)

    def _injection(self, message: Message) -> tuple[EventData, ...]:
        if self._state.turns.open is not None:
            return (UserMessage(message),)
        turn = self._state.turns.last + 1
        return TurnStart(turn, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(turn, Completed())

    async def _accept(self, message: MessageId, content: Content, events: Sequence[EventData], fate: Fate) -> Sent:
        try:
            committed = self._journal.append(events, durable=True)
            self._wake()
            await committed
        except StoreUnavailable:
            return _refused(message, content, "store-unavailable")
        return Sent(message, fate.outcome, turn=fate.turn, position=fate.position)

    async def _repeat(self, known: Sent, content: Content) -> Sent:
        if known.message_id not in self._journal.session.committed.inbox.known:
            try:
                await self._journal.settled()
            except StoreUnavailable:
                return _refused(known.message_id, content, "store-unavailable")
        return known

    async def remove(self, message: MessageId) -> Changed:
        if self._state.inbox.find(message) is None:
            await self._journal.settled()
            return Changed("gone", inbox_of(self._state.inbox))
        await self._journal.append((Discard((message,), "removed"),), durable=True)
        return Changed("done", inbox_of(self._state.inbox))

    async def resume(self) -> Changed:
        if self._state.inbox.hold_cause is not None:
            committed = self._journal.append((Hold(held=False, cause="person"),), durable=True)
            self._wake()
            await committed
        return Changed("done", inbox_of(self._state.inbox))

    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        open_turn = self._state.turns.open
        if open_turn is None:
            await self._journal.settled()
            return Cancelled("idle", inbox_of(self._state.inbox))
        if turn is not None and turn != open_turn.turn:
            return Cancelled("stale", inbox_of(self._state.inbox))
        if open_turn.cancel is None:
            stopping = self._journal.append((TurnCancel(open_turn.turn, cause, keep_inbox),), durable=True)
            self._stop_attempt()
            self._wake()
            await stopping
        await self._until(lambda state: state.turns.open is None or state.turns.open.turn != open_turn.turn)
        return Cancelled("cancelled", inbox_of(self._state.inbox))

    async def page(self, before: tuple[int, int], limit: int) -> Page:
        blocks, more = self.view.page(before, limit)
        missing = limit - len(blocks)
        if more or not self.view.has_older:
            return Page(blocks, blocks[0].block.order if more else None)
        oldest = self.view.oldest or before
        edge = min(before, oldest)
        if not missing:
            return Page(blocks, edge)
        older, has_more = await older_blocks(self._journal.log, edge, missing)
        drawn = (*(Drawn(block, 0, len(block.body.encode())) for block in older), *blocks)
        return Page(drawn, drawn[0].block.order if has_more and drawn else None)

    def set_editors(self, editors: tuple[EditorFacts, ...]) -> None:
        self._editors = editors
        self._asked_about = None
        self._tell_state()

    async def close(self) -> None:
        self._closing = True
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        try:
            await self.cancel("disposed", keep_inbox=True)
        except StoreUnavailable:
            logger.warning("session %s is closed with events that could not be saved", self.id)
        self._stop_attempt()
        if self._driver is not None and not self._driver.done():
            self._driver.cancel()
            await asyncio.wait([self._driver])
        if self._attempt is not None:
            await self._attempt.stopped()
        await self._journal.log.close()

    # The driver ------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> SessionState:
        return self._journal.state

    def _wake(self) -> None:
        running = self._driver is not None and not self._driver.done()
        if not running and not isinstance(self._advance(), Rest):
            self._driver = asyncio.create_task(self._drive(), name=f"agent {self.id}")

    async def _drive(self) -> None:
        while self._journal.failure is None:
            try:
                if await self._step():
                    return
            except StoreUnavailable:
                return  # the journal has told us, and the recovery goes on from there
            except Exception:
                logger.exception("the loop of agent %s failed", self.id)
                if not await self._give_up():
                    return

    async def _step(self) -> bool:
        """Do what is owed; true when nothing is."""
        match self._advance():
            case AskModel():
                await self._ask(_open(self._state))
            case RunTools(calls=calls):
                await self._journal.append([_unrun(call) for call in calls], durable=False)
            case SettleCancel():
                await self._settle(_open(self._state))
            case Rest():
                return True
        return False

    def _advance(self) -> AskModel | RunTools | SettleCancel | Rest:
        """Append all that is owed and needs no waiting, and answer what does.

        It runs within one loop step, so that no cancel or send finds a gap between two turns, or between a send and
        the turn that it starts.
        """
        while True:
            state = self._state
            match state.next_action():
                case EnterStep() as action:
                    self._journal.append(enter_step(state, action, self._prompt, self._model_ref()), durable=True)
                case EndStep(turn, step):
                    self._journal.append((StepEnd(turn, step),), durable=False)
                case EndTurn(_, reason, hold):
                    self._journal.append(close_turn(state.turns, state.inbox, reason, hold), durable=True)
                case action:
                    return action

    async def _settle(self, turn: OpenTurn) -> None:
        spent = self._spent(turn) if turn.asking else None
        answer = interrupted(turn, self._model_ref(), self._shown(turn), spent) if turn.asking else ()
        end = settle_cancel(self._state.turns, self._state.inbox, spent)
        await self._close((*answer, *aborted_results(turn), *end), turn)

    async def _close(self, closing: Sequence[EventData], turn: OpenTurn) -> None:
        """Append what closes a turn, and in the same loop step what comes next: nothing finds a gap in between."""
        closed = self._journal.append(closing, durable=True)
        self._advance()
        await closed
        self._forget_drafts(turn)

    async def _give_up(self) -> bool:
        """Close the turn after a fault of our own, so that the person is told and can go on; false without one. A turn
        that is being stopped just stops."""
        state = self._state
        turn = state.turns.open
        if self._journal.failure is not None or turn is None:
            return False
        if turn.cancel is not None:
            await self._settle(turn)
            return True
        failure = Failure("the server made a mistake; its log has the details", "INTERNAL")
        closing = repair(state, {turn.answer_id(): self._shown(turn)}, TurnFailed(failure), "error")
        await self._close(closing, turn)
        return True

    # The model -------------------------------------------------------------------------------------------------

    def _model_ref(self) -> ModelRef:
        return self._state.model or self._default_model

    async def _ask(self, turn: OpenTurn) -> None:
        """Stream one attempt and record what came of it. A cancel ends the stream and leaves what was shown."""
        await self._journal.settled()
        if _open(self._state).cancel is not None:
            return
        log, draw = self._journal.log, self._draw_drafts
        attempt = self._attempt = Attempt(log, turn.answer_id(), draw=draw, failed=self._journal.break_off)
        try:
            model = self._models.open(self._model_ref())
        except UserError as error:
            attempt.fail(Failure(str(error), "NO_MODEL"))
        else:
            await attempt.run(model, model_request(self._state, self._prompt))
        if self._journal.failure is not None or _open(self._state).cancel is not None:
            return
        finish = attempt.stream.finish
        if isinstance(finish, Failed | Aborted):
            events: Sequence[EventData] = (
                failed(turn, self._model_ref(), attempt.shown, finish.failure, attempt.stream),
            )
        else:
            events = answered(turn, self._model_ref(), attempt.stream)
        await self._journal.append(events, durable=False)
        self._forget_drafts(turn)

    def _shown(self, turn: OpenTurn) -> tuple[Placed, ...]:
        """What a person has seen of the answer to the turn's current request."""
        attempt = self._attempt
        return attempt.shown if attempt is not None and attempt.message == turn.answer_id() else ()

    def _spent(self, turn: OpenTurn) -> Usage | None:
        """What the turn's current request has cost, as far as the provider has said."""
        attempt = self._attempt
        return attempt.stream.usage if attempt is not None and attempt.message == turn.answer_id() else None

    def _stop_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.stop()

    def _draw_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        changes: list[Change] = []
        for piece in pieces:
            self._transcript, drawn = self._transcript.draft(piece.message, piece.index, piece.kind, piece.text)
            changes += drawn
        self.view.publish(changes)

    def _forget_drafts(self, turn: OpenTurn) -> None:
        try:
            self._journal.log.drop_drafts(turn.answer_id())
        except StoreUnavailable:
            # The log holds the finished text, so that a left-over draft is only dead weight until the next load.
            logger.warning("the drafts of %s in session %s were not removed", turn.answer_id(), self.id)

    # What is told ----------------------------------------------------------------------------------------------

    def _published(self, batch: Batch) -> None:
        self._tell_news()
        changes: list[Change] = []
        for event in batch.events:
            self._transcript, drawn = self._transcript.apply(event)
            changes += drawn
        self.view.publish(changes)
        self._tell_state()

    def _tell_news(self) -> None:
        """Have everyone who waits for a state look again."""
        self._news.set()
        self._news = asyncio.Event()

    def _tell_state(self) -> None:
        state = self._journal.session.committed
        ref = state.model or self._default_model
        if ref != self._asked_about:
            self._asked_about, self._usable, self._window = ref, *_facts(self._models, ref)
        self.view.publish_state(
            agent_state(
                self.id,
                state,
                model=ref,
                usable=self._usable,
                context_window=self._window,
                context_tokens=state.context_tokens,
                editors=self._editors,
                store=self._store,
            )
        )

    async def _until(self, holds: Callable[[SessionState], bool]) -> None:
        """Wait until the committed state satisfies `holds`; StoreUnavailable when the store fails first."""
        while not holds(self._journal.session.committed):
            if self._journal.failure is not None:
                raise StoreUnavailable(str(self._journal.failure))
            await self._news.wait()

    # A store that refuses --------------------------------------------------------------------------------------

    def suspended(self, error: StoreUnavailable) -> None:
        """Stop everything, say so, and try the store until it takes writes again; the journal calls this once."""
        self._stop_attempt()
        self._store = "unavailable"
        self.view.publish((Put(_store_block(error)),))
        self._tell_state()
        self._tell_news()
        if not self._closing and (self._recovery is None or self._recovery.done()):
            self._recovery = asyncio.create_task(self._recover(error))

    async def _recover(self, cause: StoreUnavailable) -> None:
        if self._driver is not None and self._driver is not asyncio.current_task():
            await asyncio.wait([self._driver])
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                await self._journal.reopen()
                state = self._state
                turn = state.turns.open
                shown = {turn.answer_id(): self._shown(turn)} if turn is not None else {}
                closing = repair(state, shown, TurnFailed(Failure(str(cause), "STORE_UNAVAILABLE")), "error")
                if closing:
                    await self._journal.append(closing, durable=True)
            except StoreUnavailable:
                continue
            if turn is not None:
                self._forget_drafts(turn)
            break
        self._store = "ok"
        self.view.publish((Drop(_LOST_STORE),))
        self._tell_state()
        self._wake()


def _store_block(error: StoreUnavailable) -> Block:
    return Block(
        id=_LOST_STORE,
        order=(2**53 - 1, 0),
        kind="error",
        title="The session cannot be saved",
        summary=str(error),
        body=f"{error}\n\nWhat you see is kept in memory, and nothing new is taken until it can be saved again.",
        state="failed",
        volatile=True,
    )


def _facts(models: Models, ref: ModelRef) -> tuple[bool, int]:
    """Whether a model is usable, and its context window in tokens (0 where it is not known any more)."""
    try:
        return models.usable(ref), models.open(ref).context_window
    except UserError:
        return False, 0


def _open(state: SessionState) -> OpenTurn:
    turn = state.turns.open
    assert turn is not None, "the action names an open turn"
    return turn


def _unrun(call: ToolCall) -> EventData:
    (planned,) = plan((call,))
    if planned.arguments is None:
        text = f'the arguments of "{call.name}" are not a JSON object; send the call again with valid JSON'
        return error_result(call, "INVALID_ARGS", text)
    return error_result(call, "UNKNOWN_TOOL", f'there is no tool "{call.name}"; answer without it')


def _refused(message: MessageId, content: Content, reason: Refusal) -> Sent:
    return Sent(message, "refused", reason=reason, content=content)
