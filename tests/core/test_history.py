"""The order in which the model sees things."""

from __future__ import annotations

import pytest

from agentls.core.answer import error_result
from agentls.core.blocks import TextBlock, ToolCallBlock
from agentls.core.events import EventData, RequestSent, StepEnd, StepStart, TurnEnd
from agentls.core.ids import CallId
from agentls.core.reasons import Completed
from tests.core.logs import answer, append, context, ids_of, opened, session, state, tool_call

CALLING = answer(ToolCallBlock(CallId("t1.1.1"), "read", "{}"))
RESULT = error_result(tool_call(), "UNKNOWN_TOOL", "no")


def test_messages_stand_in_the_order_of_the_log() -> None:
    turn = (*opened("a"), answer(TextBlock("hi")), StepEnd(1, 1), TurnEnd(1, Completed()))
    assert ids_of(state(*turn, *opened("b", turn=2)).history.messages) == ["a", "a1.1.1", "b"]


def test_an_empty_answer_is_in_the_log_and_not_in_history() -> None:
    """Statement 36."""
    assert ids_of(state(*opened("a"), answer()).history.messages) == ["a"]


@pytest.mark.parametrize("at", range(5))
def test_an_injection_never_stands_between_a_call_and_its_result(at: int) -> None:
    """Wherever it lands after the request: the answer and its results come first."""
    rest: list[EventData] = [CALLING, tool_call(), RESULT, StepEnd(1, 1)]
    rest.insert(at, context("i"))
    log = session(*opened("a"))
    append(log, *rest)
    assert ids_of(log.state.history.messages) == ["a", "a1.1.1", "r:t1.1.1", "i"]


def test_an_injection_before_the_request_stands_where_it_came() -> None:
    turn = opened("a")
    assert ids_of(state(context("i"), *turn).history.messages) == ["i", "a"]
    assert ids_of(state(*turn[:2], context("i"), *turn[2:]).history.messages) == ["i", "a"]


def test_every_attempt_of_a_step_sends_the_same_history() -> None:
    log = session(*opened("a"))
    first = log.state.history.messages
    append(log, context("i"))
    assert log.state.history.messages == first


def test_a_request_extends_the_one_before() -> None:
    """Statement 66."""
    log = session(*opened("a"))
    first = log.state.history.messages
    append(log, CALLING, tool_call(), RESULT, StepEnd(1, 1), StepStart(1, 2), RequestSent(1, 2, 1, 8))
    assert log.state.history.messages[: len(first)] == first
    assert log.state.history.sent == len(log.state.history.messages)
