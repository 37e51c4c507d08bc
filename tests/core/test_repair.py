"""What a cold load adds to a log whose process died, at whatever event it did."""

from __future__ import annotations

import pytest

from agentls.core.answer import error_result
from agentls.core.assembler import Placed
from agentls.core.blocks import TextBlock, ToolCallBlock, ToolResultBlock, text_of
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantMessage,
    Dequeue,
    EventData,
    ModelRef,
    RequestHeader,
    RequestSent,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolResult,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from agentls.core.ids import CallId, MessageId, RequestId, call
from agentls.core.invariants import check_log
from agentls.core.reasons import Completed, Failure, Interrupted, MessageTrigger, TurnEndReason, TurnFailed
from agentls.core.repair import repair
from agentls.core.session import Session, SessionState
from agentls.core.turn import Rest
from tests.core.logs import CALL, HEADER, answer, enqueue, opened, tool_call, user

A, B = MessageId("a"), MessageId("b")
FIRST = (
    enqueue("a"),
    enqueue("b"),
    enqueue("s", "steering"),
    Dequeue(A, 1, 1),
    TurnStart(1, MessageTrigger((A,))),
    StepStart(1, 1),
    user("a"),
    RequestHeader("", (), ModelRef("p", "m"), {}, "initial"),
    RequestSent(1, 1, 1, 7),
)
TWO_CALLS = answer(ToolCallBlock(CallId("t1.1.1"), "read", "{}"), ToolCallBlock(CallId("t1.1.2"), "read", "{}"))
LOG: tuple[EventData, ...] = (
    *FIRST,
    TWO_CALLS,
    tool_call(1),
    tool_call(2),
    ApprovalAsked(RequestId("q1.1.1"), CALL, {}, "sha256:0"),
    ApprovalDecided(RequestId("q1.1.1"), "allow"),
    ToolStart(CALL),
    error_result(tool_call(1), "X", "x"),
    error_result(tool_call(2), "X", "x"),
    StepEnd(1, 1),
    StepStart(1, 2),
    RequestSent(1, 2, 1, 17),
    answer(TextBlock("done"), step=2),
    StepEnd(1, 2),
    TurnEnd(1, Completed()),
)


COMMITS = (0, 1, 2, 3, 9, 12, 13, 14, 15, 16, 17, 18, 20, 21, 23)
"""Lengths of the log after each commit: what is in one batch is on disk together or not at all."""


@pytest.mark.parametrize("died_after", COMMITS)
def test_a_log_cut_after_any_commit_is_closed_once_and_stays_so(died_after: int) -> None:
    """Statement 37: every call answered, step and turn closed, nothing accepted lost, twice adds nothing."""
    log = Session(HEADER)
    events = log.prepare(LOG[:died_after], time=0).events
    shown = {MessageId("a1.1.1"): (Placed(0, TextBlock("half a sen")),)}
    closing = repair(log.state, shown)
    events += log.prepare(closing, time=0).events
    assert repair(log.state, shown) == ()
    assert log.state.next_action() == Rest()
    assert log.state.turns.open is None
    assert all(known.exit != "discarded" for known in log.state.inbox.known.values())
    check_log(events)
    answers = [event.data.call_id for event in events if isinstance(event.data, ToolResult)]
    asked = [block.id for m in log.state.history.messages for block in m.content if isinstance(block, ToolCallBlock)]
    assert sorted(answers) == sorted(asked)
    assert SessionState().apply_all(events) == log.state


def closed_at(died_after: int, shown: str = "") -> list[EventData]:
    log = Session(HEADER)
    log.prepare(LOG[:died_after], time=0)
    flights = {MessageId("a1.1.1"): (Placed(0, TextBlock(shown)),)} if shown else {}
    return list(repair(log.state, flights))


def test_a_started_call_is_of_unknown_outcome_and_the_other_was_not_started() -> None:
    results = [event for event in closed_at(LOG.index(ToolStart(CALL)) + 1) if isinstance(event, ToolResult)]
    assert [(r.call_id, r.error and r.error.code) for r in results] == [
        (CALL, "TOOL_OUTCOME_UNKNOWN"),
        (call(1, 1, 2), "TOOL_NOT_STARTED"),
    ]


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        (Interrupted(), "the server died"),
        (TurnFailed(Failure("the disk is full", "X")), "the turn failed (the disk is full)"),
    ],
)
def test_the_model_is_told_what_stopped_its_calls(reason: TurnEndReason, what: str) -> None:
    log = Session(HEADER)
    log.prepare(LOG[: LOG.index(ToolStart(CALL)) + 1], time=0)
    results = [event for event in repair(log.state, {}, reason) if isinstance(event, ToolResult)]
    blocks = [block for result in results for block in result.message.content]
    texts = [text_of(block.content) for block in blocks if isinstance(block, ToolResultBlock)]
    assert [text.split(" while ")[0].split(" before ")[0] for text in texts] == [what, what]


def test_a_call_that_a_person_said_no_to_is_denied_and_not_offered_for_another_try() -> None:
    denied = ApprovalDecided(RequestId("q1.1.1"), "deny", by="me", note="never")
    dead = Session(SessionHeader("s", "file:///w", "/w", 0))
    asked = ApprovalAsked(RequestId("q1.1.1"), CALL, {}, "sha256:0")
    dead.prepare((*FIRST, TWO_CALLS, tool_call(1), tool_call(2), asked, denied), time=0)
    results = [event for event in repair(dead.state, {}) if isinstance(event, ToolResult)]
    assert [result.error.code for result in results if result.error] == ["DENIED", "TOOL_NOT_STARTED"]


def test_text_in_flight_becomes_an_interrupted_answer_before_the_step_ends() -> None:
    closing = closed_at(len(FIRST), "half")
    assert isinstance(closing[0], AssistantMessage)
    assert closing[0].interrupted
    assert closing[0].message.content == (TextBlock("half"),)
    assert [type(event).__name__ for event in closing] == ["AssistantMessage", "StepEnd", "Update", "TurnEnd", "Hold"]
    assert closing[3] == TurnEnd(1, Interrupted(), closing[3].usage)  # type: ignore[attr-defined]


def test_drafts_of_an_answer_that_is_in_the_log_are_not_taken_again() -> None:
    assert not any(isinstance(event, AssistantMessage) for event in closed_at(len(FIRST) + 3, "half"))


def test_an_open_approval_is_closed() -> None:
    asked = LOG.index(ApprovalAsked(RequestId("q1.1.1"), CALL, {}, "sha256:0")) + 1
    assert ApprovalDecided(RequestId("q1.1.1"), "cancelled") in closed_at(asked)


def test_a_closed_log_with_nothing_waiting_gains_nothing() -> None:
    log = Session(HEADER)
    log.prepare((*opened("x"), answer(TextBlock("hi")), StepEnd(1, 1), TurnEnd(1, Completed())), time=0)
    assert repair(log.state, {}) == ()
