"""From a provider's words to a code: what is matched, and what must not be."""

from __future__ import annotations

import pytest

from agentls.models.failures import (
    bounded,
    code_of_error,
    code_of_status,
    is_context_overflow,
    is_quota,
    request_id,
    retry_after_ms,
)

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    "text",
    [
        "context_length_exceeded",
        "context window exceeded",
        "context_window_overflow",
        "exceed_context_size_error",
        "request (12020 tokens) exceeds the available context size (4096 tokens), try increasing it",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "maximum context window of 8192",
        "Request too large for this model's context",
        "the prompt is too long for the model",
        "Input is too long for this model",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input (9000 tokens) exceeds the model's context",
        "Your messages exceeded the context window of this model",
    ],
)
def test_words_for_a_context_overflow_are_known(text: str) -> None:
    assert is_context_overflow(text)


@pytest.mark.parametrize(
    "text",
    [
        "temperature exceeds maximum allowed value",
        "max_tokens exceeds maximum allowed value",
        "context window size must be positive",
        "rate limit reached",
        "the file is too large",
        "Invalid API Key",
        "message content must not be empty",
    ],
)
def test_other_limits_are_no_context_overflow(text: str) -> None:
    """Statement 25: 'temperature exceeds maximum' is an invalid request."""
    assert not is_context_overflow(text)


@pytest.mark.parametrize(
    "text",
    [
        "insufficient_quota",
        "Insufficient Balance",
        "insufficient credits",
        "You exceeded your current quota, please check your plan and billing details.",
        "quota exceeded",
        "The quota has been exhausted",
        "usage limit reached",
        "usage_limit_exceeded",
        "balance exhausted",
        "credits are depleted",
        "You are out of credits",
        "out of budget",
    ],
)
def test_words_for_an_empty_account_are_known(text: str) -> None:
    assert is_quota(text)


@pytest.mark.parametrize(
    "text",
    ["rate limit reached", "quota resets in one minute", "Rate limit exceeded", "limit of 5 requests", "balance"],
)
def test_a_limit_that_passes_by_itself_is_no_empty_account(text: str) -> None:
    assert not is_quota(text)


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (401, "bad key", "AUTH"),
        (403, "forbidden", "AUTH"),
        (413, "context_length_exceeded", "INVALID_REQUEST"),
        (429, "rate limit reached", "RATE_LIMIT"),
        (429, "You exceeded your current quota", "QUOTA"),
        (402, "Insufficient Balance", "QUOTA"),
        (400, "context_length_exceeded", "CONTEXT_WINDOW_EXCEEDED"),
        (400, "temperature exceeds maximum", "INVALID_REQUEST"),
        (500, "boom", "SERVER"),
        (503, "Loading model", "SERVER"),
        (529, "overloaded", "SERVER"),
        (404, "not found", "HTTP_404"),
        (301, "", "HTTP_301"),
    ],
)
def test_a_status_has_its_code(status: int, text: str, code: str) -> None:
    """Statement 25, and the other statuses."""
    assert code_of_status(status, text) == code


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (502, "upstream is full", "SERVER"),
        (429, "slow down", "RATE_LIMIT"),
        (None, "insufficient_quota", "QUOTA"),
        (None, "context_length_exceeded", "CONTEXT_WINDOW_EXCEEDED"),
        (None, "auth bad key", "AUTH"),
        (None, "rate_limit_exceeded", "RATE_LIMIT"),
        (None, "overloaded_error try later", "SERVER"),
        (None, "request timed out", "TIMEOUT"),
        (None, "invalid_request_error", "INVALID_REQUEST"),
        (None, "the author is unknown", "UNKNOWN"),
        (7, "odd", "UNKNOWN"),
    ],
)
def test_an_error_inside_a_stream_has_its_code(status: int | None, text: str, code: str) -> None:
    assert code_of_error(status, text) == code


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("3", 3000),
        (" 20 ", 20_000),
        ("Fri, 15 Jan 2027 08:00:05 GMT", 5000),
        ("Fri, 15 Jan 2027 08:00:05 -0000", 5000),
        ("Fri, 15 Jan 2027 07:59:59 GMT", None),
        ("0", None),
        ("-3", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_dropped_when_it_says_nothing(
    value: str | None, wait: int | None
) -> None:
    assert retry_after_ms(value, NOW) == wait


def test_the_request_id_is_taken_from_the_first_header_that_has_one() -> None:
    assert request_id({"x-deepseek-request-id": "b", "x-request-id": "a"}) == "a"
    assert request_id({"x-deepseek-request-id": "b"}) == "b"
    assert request_id({}) is None


def test_a_long_message_is_cut() -> None:
    assert bounded(" x ") == "x"
    assert len(bounded("x" * 10_000)) == 2000
