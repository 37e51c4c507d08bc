"""Random walks through sessions, without clock, disk or model: what must hold after every batch, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from agentls.agent import changes, fates
from agentls.agent.entering import cancel_step, enter_step, reject_step
from agentls.agent.hooks import Context, Proposal
from agentls.agent.pages import render
from agentls.agent.prompt import IDENTITY, assemble
from agentls.core.answer import aborted_results, answered, error_result, failed, interrupted
from agentls.core.assembler import BlockAssembler
from agentls.core.blocks import TextBlock, ToolCallBlock, ToolResultBlock
from agentls.core.chunks import BlockEnd, Chunk, Finish, TextDelta
from agentls.core.events import (
    Discard,
    Enqueue,
    Event,
    EventData,
    Hold,
    InboxItem,
    ModelRef,
    RequestSent,
    Retry,
    RetryStarted,
    SessionHeader,
    StepEnd,
    TurnCancel,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import CallId, MessageId, retry_id
from agentls.core.inbox import content_hash
from agentls.core.invariants import check_log
from agentls.core.messages import Message
from agentls.core.reasons import Blocked, Completed, Failed, Failure, InjectionTrigger, MaxTokens, RetryTrigger
from agentls.core.repair import repair
from agentls.core.session import Session, SessionState
from agentls.core.sources import Notice, PluginSource, UserSource
from agentls.core.turn import (
    AskModel,
    AwaitRetry,
    EndStep,
    EndTurn,
    EnterStep,
    RunTools,
    SettleCancel,
    close_turn,
    settle_cancel,
)

MODEL = ModelRef("p", "m")
PROPOSAL = Proposal(assemble([IDENTITY]).system(), (), MODEL)
CALLS = (BlockEnd(1, ToolCallBlock(CallId("x"), "ls", "{}")), BlockEnd(2, ToolCallBlock(CallId("x"), "ls", "[")))
ANSWERS: dict[str, tuple[Chunk, ...]] = {
    "text": (TextDelta(0, "words"),),
    "calls": (TextDelta(0, "words"), *CALLS),
    "limit": (TextDelta(0, "words"), *CALLS, Finish(MaxTokens())),
    "empty": (),
    "fail": (TextDelta(0, "half"), Finish(Failed(Failure("down", "SERVER")))),
    "flaky": (TextDelta(0, "half"), Finish(Failed(Failure("down", "SERVER")))),
}
SENDS = ("followup", "steer", "quiet", "other-turn")
ENTRIES = ("followup, cancelled", "followup, cancelled and kept", "steer, rejected")
CHANGES = ("remove", "edit", "move", "promote", "resume", "retry")
VERBS = (*SENDS, *ENTRIES, *CHANGES, "inject", "cancel", "cancel-keep", "wait", *ANSWERS)


@dataclass
class Walk:
    """A session driven as the loop drives it; every batch is a point at which the process may die."""

    session: Session = field(default_factory=lambda: Session(SessionHeader("s", "file:///w", "/w", 0)))
    events: list[Event] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    count: int = 0

    def append(self, *payloads: EventData) -> None:
        batch = self.session.prepare(payloads, time=len(self.events))
        assert self.session.publish(batch) == []
        self.events += batch.events
        self.commits.append(len(self.events))

    @property
    def state(self) -> SessionState:
        return self.session.state

    def take(self, verb: str) -> None:
        self.count += 1
        turn, inbox = self.state.turns.open, self.state.inbox
        match verb:
            case "followup" | "steer" | "quiet" | "other-turn":
                self.send(verb)
            case "followup, cancelled" | "followup, cancelled and kept" | "steer, rejected":
                self.send(verb.split(",")[0])
                self.turn_away(verb)
            case "retry" if turn is None and fates.judge_retry(self.state, self.state.turns.last) is None:
                last = self.state.turns.last
                self.append(TurnStart(last + 1, RetryTrigger(last, MessageId(f"m{self.count}"))))
            case "edit" | "move" | "promote" if inbox.pending():
                self.change(verb)
            case "wait" if turn is not None and turn.retry is not None and turn.cancel is None:
                again = RequestSent(turn.turn, turn.step, turn.attempt + 1, turn.boundary)
                self.append(RetryStarted(turn.retry.retry_id, turn.turn, turn.step, turn.attempt), again)
            case "inject":
                self.inject(str(self.count))
            case "cancel" | "cancel-keep" if turn is not None and turn.cancel is None:
                self.append(TurnCancel(turn.turn, "user", keep_inbox=verb == "cancel-keep"))
            case "resume" if inbox.hold_cause is not None:
                self.append(Hold(held=False, cause="person"))
            case "remove" if inbox.pending():
                self.append(Discard((inbox.pending()[self.count % len(inbox.pending())].item.id,), "removed"))
            case answer if answer in ANSWERS and turn is not None and turn.asking and turn.cancel is None:
                self.answer(answer)
        self.drive()

    def send(self, verb: str) -> None:
        message, content = MessageId(f"m{self.count}"), (TextBlock("t"),)
        verdict = fates.judge(
            self.state,
            "next-step" if verb in ("steer", "other-turn") else "next-turn",
            wakeup=verb != "quiet",
            expected_turn=99 if verb == "other-turn" else None,
            if_idle="start",
        )
        assert not isinstance(verdict, str)
        lane, fate, position = verdict
        hashed = content_hash(content)
        self.append(Enqueue(InboxItem(message, lane, verb != "quiet", content, UserSource(), hashed, fate), position))

    def turn_away(self, verb: str) -> None:
        """End a step before it begins, as a cancel or a hook does it."""
        action = self.state.entering()
        if action is None:
            return
        if verb == "steer, rejected":
            self.append(*reject_step(self.state, action, Blocked("no"), "blocked"))
        else:
            self.append(*cancel_step(self.state, action, "user", keep_inbox=verb.endswith("kept")))

    def change(self, verb: str) -> None:
        inbox = self.state.inbox
        pending = inbox.pending()[self.count % len(inbox.pending())]
        message = pending.item.id
        lane = inbox.queued if pending.item.lane == "queued" else inbox.steering
        before = None if lane[0].item.id == message else lane[0].item.id
        events = {
            "edit": lambda: changes.edit(inbox, message, (TextBlock("other"),)),
            "move": lambda: changes.move(inbox, message, before),
            "promote": lambda: changes.promote(inbox, message),
        }[verb]()
        assert events is not None
        if events:
            self.append(*events)

    def inject(self, name: str) -> None:
        source = PluginSource("git", Notice("moved"))
        message = Message(MessageId(f"i{name}"), "user", (TextBlock("c"),), source)
        if self.state.turns.open is not None:
            self.append(UserMessage(message))
        else:
            turn = self.state.turns.last + 1
            self.append(TurnStart(turn, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(turn, Completed()))

    def answer(self, name: str) -> None:
        turn, stream = self.state.turns.open, BlockAssembler()
        assert turn is not None
        for chunk in ANSWERS[name]:
            stream.push(chunk)
        if isinstance(stream.finish, Failed):
            failure = stream.finish.failure
            again = Retry(retry_id(turn.turn, turn.step, turn.attempt), turn.turn, turn.step, turn.attempt, 5, failure)
            retried = (again,) if name == "flaky" else ()
            self.append(failed(turn, MODEL, stream.interrupted(), failure, stream), *retried)
        else:
            self.append(*answered(turn, MODEL, stream))

    def drive(self) -> None:
        """Do what needs no model, as the loop does; a session that never comes to rest is a fault."""
        for _ in range(100):
            state = self.state
            match state.next_action():
                case EnterStep() as action:
                    contexts = (Context("c", PluginSource("time", Notice("t"))),) if self.count % 3 else ()
                    self.append(*enter_step(state, action, PROPOSAL, contexts))
                case EndStep(turn, step):
                    self.append(StepEnd(turn, step))
                case EndTurn(_, reason, hold):
                    self.append(*close_turn(state.turns, state.inbox, reason, hold))
                case RunTools(calls=calls):
                    for call in calls:
                        self.append(error_result(call, "UNKNOWN_TOOL", "no"))
                        if self.count % 2:
                            self.inject(f"{self.count}.{call.call_id}")
                case SettleCancel():
                    turn_open = state.turns.open
                    assert turn_open is not None
                    shown = interrupted(turn_open, MODEL, ()) if turn_open.asking else ()
                    self.append(*shown, *aborted_results(turn_open, {}), *settle_cancel(state.turns, state.inbox))
                case AskModel() | AwaitRetry() | _:
                    return
        raise AssertionError("the session never comes to rest")


def paired(messages: tuple[Message, ...]) -> bool:
    """Whether each call is answered, in order, before anything else is said: what every provider wants."""
    owed: list[str] = []
    for message in messages:
        results = [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]
        calls = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
        if results:
            if owed[: len(results)] != results:
                return False
            owed = owed[len(results) :]
        elif owed:
            return False
        owed += calls
    return not owed


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(VERBS), min_size=1, max_size=25))
def test_whatever_happens_the_log_adds_up(verbs: list[str]) -> None:
    """Conservation; folds from the log alone; requests that a provider accepts; no id twice."""
    walk = Walk()
    for verb in verbs:
        walk.take(verb)
        turn = walk.state.turns.open
        if turn is not None and turn.asking:
            assert paired(walk.state.history.messages), "the next request would be refused"
    check_log(walk.events)
    assert SessionState().apply_all(walk.events) == walk.state
    said = [event.data.message.id for event in walk.events if isinstance(event.data, UserMessage)]
    assert len(said) == len(set(said)), "a message entered history twice"
    _, blocks = render(walk.events)
    assert len({block.id for block in blocks}) == len(blocks)
    assert len({(block.order, block.id) for block in blocks}) == len(blocks)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(VERBS), min_size=1, max_size=20), st.data())
def test_a_crash_after_any_commit_is_repaired_once(verbs: list[str], data: st.DataObject) -> None:
    """Nothing accepted is lost, nothing runs unasked, every call is answered, and loading twice adds nothing."""
    walk = Walk()
    for verb in verbs:
        walk.take(verb)
    if not walk.commits:
        return
    died = data.draw(st.sampled_from(walk.commits))
    session = Session(walk.session.header, SessionState().apply_all(walk.events[:died]))
    before = session.state.inbox.known
    repaired = session.prepare(repair(session.state, {}), time=0)
    state = repaired.after
    assert repair(state, {}) == ()
    assert state.turns.open is None
    assert not isinstance(state.next_action(), EnterStep | AskModel | AwaitRetry | RunTools)
    assert {name: known.exit for name, known in state.inbox.known.items()} == {n: k.exit for n, k in before.items()}
    assert paired(state.history.messages)
    check_log([*walk.events[:died], *repaired.events])
