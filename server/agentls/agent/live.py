"""The agent that the host makes: what a person and others ask of it becomes events, and its loop does the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from agentls.agent import changes, fates
from agentls.agent.agent import (
    Agent,
    Answered,
    Cancelled,
    Changed,
    Content,
    Decision,
    IfIdle,
    Mode,
    Page,
    Part,
    Refusal,
    Sent,
    Target,
    UnknownBlock,
    UnknownRequest,
    WrongAnswer,
)
from agentls.agent.drawing import Drawing
from agentls.agent.entering import cancel_step
from agentls.agent.journal import Journal
from agentls.agent.loop import Loop, Parts
from agentls.agent.pages import older_blocks, stored_block, whole_block
from agentls.agent.state import EditorFacts, WaitingMessage, inbox_of
from agentls.agent.view import Drawn, View
from agentls.core.errors import StoreUnavailable
from agentls.core.events import (
    AgentConfig,
    ApprovalAsked,
    ApprovalDecided,
    Discard,
    Enqueue,
    Event,
    EventData,
    Fate,
    Hold,
    InboxItem,
    Mention,
    ModelRef,
    QuestionAnswered,
    SessionTitle,
    TurnCancel,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.frames import sealed
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId
from agentls.core.inbox import content_hash, retry_hash
from agentls.core.json import JsonValue
from agentls.core.messages import Message
from agentls.core.reasons import (
    CancelCause,
    Completed,
    InjectionTrigger,
    RetryTrigger,
)
from agentls.core.requests import Asked
from agentls.core.session import Observer, Session, SessionState
from agentls.core.sources import MessageSource, UserSource, form_of, is_person
from agentls.core.transcript import Transcript
from agentls.core.turn import open_turn
from agentls.store.store import SessionLog
from agentls.tools.tool import ToolContext

logger = logging.getLogger(__name__)


class LiveAgent(Agent):
    """One session in memory, its drawing, and the loop that drives it."""

    def __init__(
        self,
        agent_id: AgentId,
        parts: Parts,
        *,
        workspace: str,
        session: Session,
        log: SessionLog,
        now: Callable[[], int],
        view: View,
        transcript: Transcript,
        default_model: ModelRef,
        context: ToolContext,
        watch: Observer | None = None,
    ) -> None:
        """`workspace` is a URI; `session` is what `log` holds, and `now` gives the time of what follows, in epoch
        milliseconds; `context` is what its tools may look at, its `seen` the session's; `watch` is told of each batch
        before it is drawn."""
        self.id = agent_id
        self.workspace = workspace
        self.view = view
        self._parts = parts
        self._context = context
        self._journal = Journal(session, log, now=now, broken=lambda error: self._loop.suspended(error))
        drawing = Drawing(
            agent_id,
            view,
            transcript,
            models=parts.models,
            default_model=default_model,
            committed=lambda: session.committed,
        )
        if watch is not None:
            session.observe(watch)
        session.observe(drawing.batch)
        self._drawing = drawing
        self._loop = Loop(
            self, parts, journal=self._journal, drawing=drawing, default_model=default_model, context=context
        )
        drawing.state()

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
        if (early := await self._early(id, content, hashed)) is not None:
            return early
        if injects:
            message = Message(id, "user", content, sealed(stamped, content))
            return await self._accept(id, content, self._injection(message), Fate("injected"))
        verdict = fates.judge(self._state, target, wakeup=wakeup, expected_turn=expected_turn, if_idle=if_idle)
        if isinstance(verdict, str):
            return _refused(id, content, verdict)
        lane, fate, position = verdict
        item = InboxItem(id, lane, wakeup, content, stamped, hashed, fate, contexts, expected_turn, meta)
        return await self._accept(id, content, (Enqueue(item, position),), fate)

    def _injection(self, message: Message) -> tuple[EventData, ...]:
        if self._state.current_turn() is not None:
            return (UserMessage(message),)
        turn = self._state.turns.last + 1
        return TurnStart(turn, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(turn, Completed())

    async def retry(self, turn: int, *, id: MessageId) -> Sent:
        if (early := await self._early(id, (), retry_hash(turn))) is not None:
            return early
        refusal = fates.judge_retry(self._state, turn)
        if refusal is not None:
            return _refused(id, (), refusal)
        number = self._state.turns.last + 1
        return await self._accept(id, (), (TurnStart(number, RetryTrigger(turn, id)),), Fate("started", turn=number))

    async def _early(self, message: MessageId, content: Content, hashed: str) -> Sent | None:
        """The answer to an id that is known, or where the store refuses; None, without having waited, for what is to be
        judged."""
        known = fates.repeated(self._state, message, hashed)
        if isinstance(known, Sent):
            return await self._repeat(known, content)
        if known is not None:
            return _refused(message, content, known)
        return _refused(message, content, "store-unavailable") if self._journal.failure is not None else None

    async def _accept(self, message: MessageId, content: Content, events: Sequence[EventData], fate: Fate) -> Sent:
        try:
            # What starts a turn is followed by its first step.
            committed = self._journal.append(events, durable=True, more=fate.outcome == "started")
            self._loop.wake()
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
        # Where it is now is told as it is committed, as all else is.
        return replace(known, now=fates.now(self._journal.session.committed, known.message_id))

    # Control ---------------------------------------------------------------------------------------------------

    async def edit(self, message: MessageId, content: Content) -> Changed:
        return await self._change(changes.edit(self._state.inbox, message, content), content)

    async def move(self, message: MessageId, before: MessageId | None) -> Changed:
        return await self._change(changes.move(self._state.inbox, message, before))

    async def promote(self, message: MessageId) -> Changed:
        return await self._change(changes.promote(self._state.inbox, message))

    async def remove(self, message: MessageId) -> Changed:
        gone = self._state.inbox.find(message) is None
        return await self._change(None if gone else (Discard((message,), "removed"),))

    async def resume(self) -> Changed:
        held = self._state.inbox.hold_cause is not None
        return await self._change((Hold(held=False, cause="person"),) if held else ())

    async def _change(self, events: Sequence[EventData] | None, content: Content | None = None) -> Changed:
        """Append a change to what waits, None for a message that has left; a step that was about to take it asks
        anew."""
        if not events:
            await self._journal.settled()
            return Changed("gone", self._waiting(), content) if events is None else Changed("done", self._waiting())
        changed = self._journal.append(events, durable=True)
        self._loop.stop_hooks()
        self._loop.wake()
        await changed
        return Changed("done", self._waiting())

    async def configure(
        self, *, model: ModelRef | None = None, mode: Mode | None = None, title: str | None = None, by: str = "person"
    ) -> None:
        events: list[EventData] = [AgentConfig(model=model, mode=mode)] if model is not None or mode is not None else []
        if title is not None:
            events.append(SessionTitle(title, by=by))
        if events:
            await self._journal.append(events, durable=True)

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
        requests = self._state.requests
        closed = requests.closed.get(request)
        if closed is not None:
            await self._journal.settled()
            return Answered("already-resolved", None if _was_cancelled(closed) else closed.by)
        asked = requests.find(request)
        if asked is None:
            raise UnknownRequest(request)
        answer = _answer(asked, decision, by, note, content)
        if requests.shown(asked) != shown:
            return Answered("changed")
        events: list[EventData] = [answer]
        stops = decision == "deny-and-stop"
        if stops:
            events += self._cancelling("user", keep_inbox=True, but=request)
        decided = self._journal.append(events, durable=True)
        if stops:
            self._loop.stop_work()
        await decided
        return Answered("accepted", by)

    async def cancel(self, cause: CancelCause, *, keep_inbox: bool = False, turn: int | None = None) -> Cancelled:
        state = self._state
        number = state.current_turn()
        if number is None:
            await self._journal.settled()
            return Cancelled("idle", self._waiting())
        if turn is not None and turn != number:
            return Cancelled("stale", self._waiting())
        entering = state.entering()
        if entering is not None:
            await self._append_now(cancel_step(state, entering, cause, keep_inbox=keep_inbox))
        elif open_turn(state.turns).cancel is None:
            await self._append_now(self._cancelling(cause, keep_inbox=keep_inbox))
        await self._closed(number)
        return Cancelled("cancelled", self._waiting())

    def _waiting(self) -> tuple[WaitingMessage, ...]:
        """What waits, for an answer: no more than what is committed."""
        return inbox_of(self._journal.session.committed.inbox)

    def _cancelling(
        self, cause: CancelCause, *, keep_inbox: bool, but: RequestId | None = None
    ) -> tuple[EventData, ...]:
        turn = open_turn(self._state.turns)
        return TurnCancel(turn.turn, cause, keep_inbox), *self._state.requests.cancelled(but)

    async def _append_now(self, events: Sequence[EventData]) -> None:
        """Append what stops the work, and stop it in the same loop step."""
        stopping = self._journal.append(events, durable=True)
        self._loop.stop_work()
        self._loop.wake()
        await stopping

    # Looking ---------------------------------------------------------------------------------------------------

    async def page(self, before: tuple[int, int], limit: int) -> Page:
        blocks, more = self.view.page(before, limit)
        missing = limit - len(blocks)
        if more or not self.view.has_older:
            return Page(blocks, blocks[0].block.order if more else None)
        oldest = self.view.oldest or before
        edge = min(before, oldest)
        if not missing:
            return Page(blocks, edge)
        older, has_more = await older_blocks(self._journal.log, self._state.contexts, edge, missing)
        drawn = (*(Drawn(block, 0, len(block.body.encode())) for block in older), *blocks)
        return Page(drawn, drawn[0].block.order if has_more and drawn else None)

    async def block(self, block: BlockId, start: int = 0, end: int | None = None) -> Part:
        drawn, log, contexts = self.view.drawn(block), self._journal.log, self._state.contexts
        if drawn is not None:
            whole = await whole_block(log, contexts, drawn.block) or drawn.block
        else:
            oldest = self.view.oldest
            if oldest is None or not self.view.has_older:
                raise UnknownBlock(block)
            stored = await stored_block(log, contexts, block, oldest[0])
            if stored is None:
                raise UnknownBlock(block)
            whole = stored
        return Part.of(whole.body, start, end)

    async def events(self) -> tuple[Event, ...]:
        """The whole log, as it is committed."""
        return await self._journal.log.read()

    def set_editors(self, editors: tuple[EditorFacts, ...]) -> None:
        self._drawing.attached(editors)

    async def close(self) -> None:
        try:
            await self._loop.refuse_steps()
            try:
                with suppress(StoreUnavailable):  # the end tries once more
                    await self._stop_turn()
            finally:
                await self._loop.end()
        except StoreUnavailable:
            logger.warning("session %s is closed with events that could not be saved", self.id)
        finally:
            # Whatever went wrong, nobody else could have the session while it is held here.
            self.view.end()
            self._tell_closed()
            await self._journal.log.close()

    async def _stop_turn(self) -> None:
        """Close the turn that is open. What waits stays as it is, also what a step was about to take: unlike a person's
        cancel this means none of it."""
        turn = self._state.turns.open
        if turn is None:
            return
        if turn.cancel is None:
            await self._append_now(self._cancelling("disposed", keep_inbox=True))
        await self._closed(turn.turn)

    async def _closed(self, turn: int) -> None:
        # Its start may still be on its way to the disk.
        await self._journal.until(
            lambda state: state.turns.last >= turn and (state.turns.open is None or state.turns.open.turn != turn)
        )

    def _tell_closed(self) -> None:
        for closed in self._parts.hooks.closed:
            try:
                closed(self._context.session)
            except Exception:
                logger.exception("a hook failed when agent %s was closed", self.id)

    @property
    def _state(self) -> SessionState:
        return self._journal.state


def _answer(
    asked: Asked, decision: Decision, by: str, note: str | None, content: JsonValue
) -> ApprovalDecided | QuestionAnswered:
    if isinstance(asked, ApprovalAsked):
        if content is not None:
            raise WrongAnswer("an approval takes no content in this version; leave it out")
        return ApprovalDecided(asked.request_id, decision, by=by, note=note)
    if decision != "allow":
        return QuestionAnswered(asked.request_id, note, by=by)
    if content is None:
        raise WrongAnswer("a question needs an answer; give it as content")
    return QuestionAnswered(asked.request_id, content, by=by)


def _was_cancelled(closed: ApprovalDecided | QuestionAnswered) -> bool:
    return closed.cancelled if isinstance(closed, QuestionAnswered) else closed.decision == "cancelled"


def _refused(message: MessageId, content: Content, reason: Refusal) -> Sent:
    return Sent(message, "refused", reason=reason, content=content)
