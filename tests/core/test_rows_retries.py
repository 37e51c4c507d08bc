"""How a failed attempt is told: while the next one waits, when it begins, and for good."""

from __future__ import annotations

import pytest

from agentls.core.advice import LOCAL, advice, headline
from agentls.core.blocks import TextBlock
from agentls.core.events import (
    AssistantAttempt,
    AssistantMessage,
    EventData,
    RequestSent,
    Retry,
    RetryStarted,
    StepEnd,
    TurnEnd,
)
from agentls.core.ids import assistant_message
from agentls.core.messages import Message
from agentls.core.reasons import Failure, Stop, TurnAborted, TurnFailed
from agentls.core.sources import ModelSource
from agentls.core.transcript import Put
from agentls.models.retry import RETRYABLE
from tests.core.logs import opened
from tests.core.test_transcript import Sheet

BUSY = Failure("slow down ```\x1b", "RATE_LIMIT", 429, 2000)
RETRY_ID = "y1.1.1"
CODES = (
    "AUTH", "MISSING_CREDENTIAL", "INVALID_CREDENTIAL", "QUOTA", "RATE_LIMIT", "CONTEXT_WINDOW_EXCEEDED",
    "INVALID_REQUEST", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED", "EMPTY_RESPONSE", "MALFORMED_RESPONSE",
    "CONTENT_FILTER", "UNSUPPORTED_CONTENT", "STORE_UNAVAILABLE", "LOCAL_MODEL", "NO_MODEL", "INTERNAL", "UNKNOWN",
    "HTTP_418",
)  # fmt: skip


def said(text: str, attempt: int, provider: str = "p") -> Message:
    return Message(assistant_message(1, 1, attempt), "assistant", (TextBlock(text),), ModelSource(provider, "m"), (0,))


def failing(failure: Failure = BUSY, provider: str = "p", delay_ms: int = 2000) -> tuple[EventData, ...]:
    return (
        *opened("a"),
        AssistantAttempt(1, 1, 1, said("half", 1, provider), failure),
        Retry(RETRY_ID, 1, 1, 1, delay_ms, failure),
    )


def again() -> tuple[EventData, ...]:
    return RetryStarted(RETRY_ID, 1, 1, 1), RequestSent(1, 1, 2, 2)


def test_a_retry_that_waits_says_why_and_for_how_long() -> None:
    row = Sheet().log(*failing()).one("retry")
    assert (row.id, row.order, row.state, row.collapsed) == (RETRY_ID, (row.seq, 0), "streaming", False)
    assert (row.turn, row.step) == (1, 1)
    assert row.title == "Trying again in 2 s: Too many requests"
    assert "asks to wait 2 seconds" in row.body
    assert "````\nslow down ```␛\n````" in row.body, "the provider's words cannot leave their fence"
    assert "HTTP 429" in row.body


def test_both_attempts_stand_in_order_with_the_retry_between_them() -> None:
    done = AssistantMessage(1, 1, 2, said("whole", 2), Stop())
    sheet = Sheet().log(*failing(), *again())
    assert [(row.kind, row.state) for row in sheet.rows()] == [
        ("user", "done"),
        ("assistant", "failed"),
        ("retry", "done"),
    ]
    sheet = Sheet().log(*failing(), *again(), done)
    assert [(row.id, row.state, row.body) for row in sheet.rows()[1:] if row.kind == "assistant"] == [
        ("a1.1.1/0", "failed", "half"),
        ("a1.1.2/0", "done", "whole"),
    ]
    assert sheet.kinds() == ["user", "assistant", "retry", "assistant"]


def test_a_retry_that_began_is_a_collapsed_row() -> None:
    row = Sheet().log(*failing(delay_ms=1500), *again()).one("retry")
    assert (row.title, row.state, row.collapsed) == ("Tried again after 2 s: Too many requests", "done", True)


@pytest.mark.parametrize("reason", [TurnAborted("user"), TurnFailed(Failure("disk", "STORE_UNAVAILABLE"))])
def test_a_retry_that_its_turn_did_not_wait_for_says_so(reason: TurnAborted | TurnFailed) -> None:
    row = Sheet().log(*failing(), StepEnd(1, 1), TurnEnd(1, reason)).one("retry")
    assert (row.title, row.state) == ("Not tried again: Too many requests", "interrupted")
    assert row.collapsed


@pytest.mark.parametrize(
    ("left_ms", "title"),
    [
        (2000, "in 2 s"),
        (1999, "in 2 s"),
        (1001, "in 2 s"),
        (1000, "in 1 s"),
        (1, "in 1 s"),
        (0, "now"),
        (-5, "now"),
        (90_000, "in 90 s"),
    ],
)
def test_the_countdown_is_in_whole_seconds_rounded_up(left_ms: int, title: str) -> None:
    sheet = Sheet().log(*failing())
    was = sheet.one("retry")
    (change,) = sheet.transcript.countdown(left_ms)
    assert isinstance(change, Put)
    assert change.block.title == f"Trying again {title}: Too many requests"
    assert (change.block.id, change.block.body, change.block.state) == (was.id, was.body, "streaming")


def test_there_is_a_countdown_only_while_a_retry_waits() -> None:
    assert Sheet().log(*opened("a")).transcript.countdown(1000) == ()
    assert Sheet().log(*failing(), *again()).transcript.countdown(1000) == ()
    ended = (StepEnd(1, 1), TurnEnd(1, TurnAborted("user")))
    assert Sheet().log(*failing(), *ended).transcript.countdown(1000) == ()


def test_a_local_model_that_died_is_no_address_out_of_reach() -> None:
    died = Failure("the local model ended while it answered", "TRANSPORT")
    sheet = Sheet().log(*failing(died, LOCAL), *again())
    assert sheet.one("retry").title == "Tried again after 2 s: The local model stopped"
    second = AssistantAttempt(1, 1, 2, said("", 2, LOCAL), died)
    sheet = Sheet().log(*failing(died, LOCAL), *again(), second, StepEnd(1, 1), TurnEnd(1, TurnFailed(died)))
    assert sheet.one("error").title == "The local model stopped"
    assert sheet.one("turn-end").title == "Turn 1 failed: The local model stopped"
    for row in sheet.rows():
        assert "reach" not in row.body
        assert "address" not in row.body
        assert "network" not in row.body


def test_the_provider_of_one_failure_is_not_that_of_the_next() -> None:
    lost = Failure("nobody is there", "TRANSPORT")
    sheet = Sheet().log(*failing(lost, LOCAL), *again(), StepEnd(1, 1), TurnEnd(1, TurnFailed(lost)))
    assert sheet.one("error").title == "The provider cannot be reached"


@pytest.mark.parametrize("provider", ["p", LOCAL, None])
@pytest.mark.parametrize("code", CODES)
def test_who_is_going_to_be_tried_again_is_not_told_to_try_again(code: str, provider: str | None) -> None:
    failure = Failure("x", code)
    text = advice(failure, provider, again=True)
    assert text.endswith(".")
    assert "send" not in text.lower()
    assert "retry" not in text.lower()
    assert advice(failure, provider).endswith(".")


@pytest.mark.parametrize("provider", ["p", LOCAL])
def test_failures_that_need_different_things_say_different_things(provider: str) -> None:
    told = ("AUTH", "QUOTA", "RATE_LIMIT", "CONTEXT_WINDOW_EXCEEDED", "TRANSPORT", "LOCAL_MODEL", "SERVER", "TIMEOUT")
    failures = [Failure("x", code) for code in told]
    assert len({headline(failure, provider) for failure in failures}) == len(told)
    assert len({advice(failure, provider) for failure in failures}) == len(told)


@pytest.mark.parametrize("code", RETRYABLE)
def test_a_failure_that_was_tried_often_enough_says_how_to_go_on(code: str) -> None:
    assert "retry the turn" in advice(Failure("x", code)).lower()


@pytest.mark.parametrize(
    ("wish_ms", "words"),
    [
        (1, "1 second."),
        (1001, "2 seconds."),
        (119_000, "119 seconds."),
        (120_000, "2 minutes."),
        (121_000, "3 minutes."),
        (7_200_000, "2 hours."),
    ],
)
def test_the_providers_wish_is_said_in_words_and_never_shortened(wish_ms: int, words: str) -> None:
    for again in (True, False):
        assert advice(Failure("x", "RATE_LIMIT", 429, wish_ms), again=again).endswith(f"asks to wait {words}")
