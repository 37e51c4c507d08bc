"""What a session owes next, from its log alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentls.core.answer import error_result
from agentls.core.blocks import TextBlock
from agentls.core.errors import LogicError
from agentls.core.events import (
    AssistantAttempt,
    Dequeue,
    Discard,
    EventData,
    Hold,
    RequestSent,
    StepEnd,
    StepStart,
    ToolStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
    Update,
)
from agentls.core.ids import MessageId, assistant_message
from agentls.core.messages import Message
from agentls.core.reasons import (
    Completed,
    Failure,
    InjectionTrigger,
    MaxTokens,
    MessageTrigger,
    OutputLimit,
    TurnAborted,
    TurnFailed,
)
from agentls.core.session import SessionState
from agentls.core.sources import ModelSource
from agentls.core.turn import (
    AskModel,
    EndStep,
    EndTurn,
    EnterStep,
    Rest,
    RunTools,
    SettleCancel,
    close_turn,
    settle_cancel,
)
from tests.core.logs import CALL, answer, append, context, enqueue, opened, session, state, tool_call, user

A, S = MessageId("a"), MessageId("s")
DONE = answer(TextBlock("done"))
RESULT = error_result(tool_call(), "UNKNOWN_TOOL", "no")
FAILURE = Failure("down", "SERVER")
FAILED = AssistantAttempt(1, 1, 1, Message(assistant_message(1, 1, 1), "assistant", (), ModelSource("p", "m")), FAILURE)
CANCEL = TurnCancel(1, "user", keep_inbox=True)


@pytest.mark.parametrize(
    ("payloads", "owed"),
    [
        ((), Rest()),
        ((enqueue("a"),), EnterStep(1, 1, (A,))),
        ((enqueue("a", wakeup=False),), Rest()),
        ((enqueue("a"), enqueue("b"), enqueue("s", "steering")), EnterStep(1, 1, (S, A))),
        ((enqueue("a"), Hold(held=True, cause="cancel")), Rest()),
        (opened("x"), AskModel(1, 1, 1)),
        ((*opened("x"), DONE), EndTurn(1, Completed())),
        ((*opened("x"), DONE, enqueue("s", "steering")), EndStep(1, 1)),
        ((*opened("x"), DONE, enqueue("a")), EndTurn(1, Completed())),
        ((*opened("x"), DONE, enqueue("s", "steering"), StepEnd(1, 1)), EnterStep(1, 2, (S,))),
        ((*opened("x"), answer(), tool_call()), RunTools(1, 1, (tool_call(),))),
        ((*opened("x"), answer(), tool_call(), ToolStart(CALL)), RunTools(1, 1, (tool_call(),))),
        ((*opened("x"), answer(), tool_call(), RESULT), EndStep(1, 1)),
        ((*opened("x"), answer(), tool_call(), RESULT, StepEnd(1, 1)), EnterStep(1, 2, ())),
        ((*opened("x"), FAILED), EndTurn(1, TurnFailed(FAILURE), "error")),
        ((*opened("x"), FAILED, RequestSent(1, 1, 2, 0)), AskModel(1, 1, 2)),
        ((*opened("x"), CANCEL), SettleCancel(1)),
        ((*opened("x"), answer(), tool_call(), CANCEL), SettleCancel(1)),
        ((*opened("x"), answer(finish=MaxTokens())), EndTurn(1, OutputLimit())),
        ((*opened("x"), answer(finish=MaxTokens()), enqueue("s", "steering")), EndTurn(1, OutputLimit())),
    ],
)
def test_next_action_follows_from_the_log(payloads: tuple[EventData, ...], owed: object) -> None:
    assert state(*payloads).next_action() == owed


def test_an_output_limit_does_not_reach_into_the_next_turn() -> None:
    """Statement 65."""
    limited = (*opened("x"), answer(finish=MaxTokens()), StepEnd(1, 1), TurnEnd(1, OutputLimit()))
    assert state(*limited, *opened("y", turn=2), answer(turn=2)).next_action() == EndTurn(2, Completed())


@pytest.mark.parametrize(
    "wrong",
    [
        TurnStart(1, MessageTrigger((A,))),
        TurnStart(3, MessageTrigger((A,))),
        TurnEnd(1, Completed()),
        TurnEnd(2, Completed()),
        StepStart(1, 2),
        StepEnd(1, 2),
        RequestSent(1, 1, 3, 0),
        ToolStart(CALL),
        RESULT,
    ],
)
def test_what_no_log_holds_is_refused_and_changes_nothing(wrong: EventData) -> None:
    """Statement 32: the same seq is used by the next append."""
    log = session(*opened("x"))
    before = log.state
    with pytest.raises(LogicError):
        log.prepare((wrong,), time=0)
    assert log.state is before
    assert append(log, DONE)[0].seq == before.next_seq


def test_turn_bound_events_need_a_turn() -> None:
    for orphan in (StepStart(1, 1), StepEnd(1, 1), DONE, tool_call(), ToolStart(CALL), replace(CANCEL, turn=2)):
        with pytest.raises(LogicError):
            session(orphan)


def test_a_second_cancel_is_refused_since_the_first_cause_counts() -> None:
    with pytest.raises(LogicError, match="cancelled twice"):
        session(*opened("x"), CANCEL, CANCEL)


def closed(now: SessionState, *events: EventData) -> SessionState:
    log = session()
    log.state = log.committed = now
    append(log, *events)
    return log.state


def test_closing_moves_steering_to_the_head_of_the_queue_in_its_order() -> None:
    now = state(*opened("x"), enqueue("q"), enqueue("s1", "steering"), enqueue("s2", "steering"), FAILED)
    events = close_turn(now.turns, now.inbox, TurnFailed(FAILURE), "error")
    assert [type(event) for event in events] == [StepEnd, Update, Update, TurnEnd, Hold]
    after = closed(now, *events)
    assert [pending.item.id for pending in after.inbox.queued] == ["s1", "s2", "q"]
    assert after.inbox.free() == ()
    assert after.next_action() == Rest()


def test_a_hold_that_would_hold_nothing_is_not_written() -> None:
    now = state(*opened("x"), FAILED)
    assert not any(isinstance(event, Hold) for event in close_turn(now.turns, now.inbox, TurnFailed(FAILURE), "error"))


def test_a_cancel_that_keeps_the_inbox_holds_what_came_before_it_only() -> None:
    """Statement 56."""
    now = state(*opened("x"), enqueue("q"), enqueue("s", "steering"), CANCEL, enqueue("later"))
    after = closed(now, *settle_cancel(now.turns, now.inbox))
    assert [pending.item.id for pending in after.inbox.queued] == ["s", "q", "later"]
    assert [pending.item.id for pending in after.inbox.free()] == ["later"]
    assert after.next_action() == EnterStep(2, 1, (MessageId("later"),))


def test_a_cancel_without_keep_discards_what_came_before_it_in_one_event() -> None:
    """Statement 55."""
    cancel = TurnCancel(1, "user", keep_inbox=False)
    now = state(*opened("x"), enqueue("q"), enqueue("s", "steering"), cancel, enqueue("later", "steering"))
    events = settle_cancel(now.turns, now.inbox)
    assert Discard((S, MessageId("q")), "cancel") in events
    after = closed(now, *events)
    assert [pending.item.id for pending in after.inbox.queued] == ["later"]
    assert after.turns.last_end is not None
    assert after.turns.last_end.reason == TurnAborted("user")


def test_an_injections_turn_leaves_the_last_turns_end_as_it_was() -> None:
    i = MessageId("i")
    shot = (TurnStart(2, InjectionTrigger(i)), context("i"), TurnEnd(2, Completed()))
    log = session(
        *opened("x"),
        FAILED,
        StepEnd(1, 1),
        TurnEnd(1, TurnFailed(FAILURE)),
        enqueue("a"),
        Hold(held=True, cause="error"),
    )
    held = log.state.inbox
    append(log, *shot)
    assert log.state.turns.last_end == TurnEnd(1, TurnFailed(FAILURE))
    assert log.state.turns.last == 2
    assert (log.state.inbox.hold_cause, log.state.inbox.queued) == (held.hold_cause, held.queued)
    assert log.state.next_action() == Rest()


def test_claimed_messages_leave_in_the_step_that_takes_them() -> None:
    log = session(enqueue("a"))
    append(
        log, Dequeue(A, 1, 1), TurnStart(1, MessageTrigger((A,))), StepStart(1, 1), user("a"), RequestSent(1, 1, 1, 4)
    )
    assert log.state.inbox.pending() == ()
    assert log.state.next_action() == AskModel(1, 1, 1)
