"""The watch over a log that is being written: it says what is broken, loudly and once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agentls.agent.watching import Watch
from agentls.core.events import ApprovalAsked, Event, EventData, TurnCancel, TurnStart
from agentls.core.ids import AgentId, MessageId, RequestId
from agentls.core.reasons import MessageTrigger
from agentls.core.session import Batch, SessionState
from tests.agent.hands import asked, call, hands, over
from tests.core.logs import CALL, answer, enqueue, opened, state, tool_call

NAME = AgentId("an agent")


def batch(start: int, *payloads: EventData, after: SessionState | None = None) -> Batch:
    return Batch(tuple(Event(seq, 0, data) for seq, data in enumerate(payloads, start)), after or SessionState())


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def test_a_broken_rule_is_told_once_with_the_agent_and_the_event(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(NAME)
    watch(batch(0, enqueue("a")))
    assert said(caplog) == []
    watch(batch(1, TurnStart(2, MessageTrigger((MessageId("a"),)))))
    (text,) = said(caplog)
    assert text.startswith(f"the log of agent {NAME} breaks a rule: event 1 (TurnStart)")
    watch(batch(2, TurnCancel(9, "user", keep_inbox=True)))
    assert len(said(caplog)) == 1


def test_what_was_loaded_is_looked_at_too(caplog: pytest.LogCaptureFixture) -> None:
    Watch(NAME, batch(0, enqueue("a"), enqueue("a")).events)
    assert "enqueued twice" in said(caplog)[0]


def test_a_request_that_outlives_its_turn_is_told(caplog: pytest.LogCaptureFixture) -> None:
    open_request = ApprovalAsked(RequestId("q1.1.1"), CALL, {}, "sha256:0")
    left = state(*opened("x"), answer(), tool_call(), open_request)
    Watch(NAME)(batch(0, enqueue("a"), after=SessionState(requests=left.requests)))
    assert "outside of a turn" in said(caplog)[0]


async def test_a_turn_with_tools_breaks_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"), ("none", "b"))
        await over(on, agent, 2)
        assert said(caplog) == []
