"""When a request is tried again, and after how long."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.errors import UserError
from agentls.core.reasons import Failure
from agentls.models.retry import DELAY_MAX_MS, RETRYABLE, RetryPolicy, policy_from

FULL = Failure("busy", "SERVER")
EVEN = 0.5  # the middle of the jitter: none


def wishing(milliseconds: int) -> Failure:
    return Failure("busy", "RATE_LIMIT", retry_after_ms=milliseconds)


def test_delays_double_up_to_the_cap_and_end_after_the_last_retry() -> None:
    delays = [RetryPolicy().delay_ms(retry, FULL, EVEN) for retry in range(1, 7)]
    assert delays == [500, 1000, 2000, 4000, 8000, None]
    assert RetryPolicy(max_retries=9).delay_ms(9, FULL, EVEN) == 10_000


@pytest.mark.parametrize("code", RETRYABLE)
def test_a_failure_that_may_pass_is_tried_again(code: str) -> None:
    assert RetryPolicy().delay_ms(1, Failure("x", code), EVEN) == 500


@pytest.mark.parametrize("code", ["AUTH", "QUOTA", "INVALID_REQUEST", "STREAM_CLOSED", "MALFORMED_RESPONSE", "UNKNOWN"])
def test_a_failure_that_stays_is_not_tried_again_but_in_always_mode(code: str) -> None:
    assert RetryPolicy().delay_ms(1, Failure("x", code), EVEN) is None
    assert RetryPolicy("always").delay_ms(1, Failure("x", code), EVEN) == 500


def test_a_policy_without_retries_never_tries_again() -> None:
    assert RetryPolicy(max_retries=0).delay_ms(1, FULL, EVEN) is None


def test_always_mode_has_no_end_and_no_overflow() -> None:
    assert RetryPolicy("always").delay_ms(10**6, FULL, EVEN) == 10_000


def test_the_wish_of_the_provider_is_followed_exactly() -> None:
    """Statement 16: 3 s under a cap of 10 s is 3 s, without jitter."""
    assert RetryPolicy(jitter_ratio=1).delay_ms(1, wishing(3000), 0) == 3000


def test_a_wish_above_the_cap_ends_normal_mode_and_is_passed_over_in_always_mode() -> None:
    """Statement 16."""
    assert RetryPolicy().delay_ms(1, wishing(20_000), EVEN) is None
    assert RetryPolicy("always").delay_ms(1, wishing(20_000), EVEN) == 500


@given(st.integers(1, 100), st.floats(0, 1), st.floats(0, 1))
def test_jitter_stays_in_its_band_and_under_the_cap(retry: int, jitter: float, chance: float) -> None:
    policy = RetryPolicy("always", jitter_ratio=jitter)
    bare = min(500 * 2 ** (retry - 1), 10_000)
    delay = policy.delay_ms(retry, FULL, chance)
    assert delay is not None
    assert bare * (1 - jitter) - 1 <= delay <= min(bare * (1 + jitter) + 1, 10_000)


def test_full_jitter_may_not_wait_at_all() -> None:
    assert RetryPolicy(jitter_ratio=1).delay_ms(1, FULL, 0) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "sometimes"},
        {"initialDelayMs": 0},
        {"initialDelayMs": -1},
        {"initialDelayMs": math.inf},
        {"initialDelayMs": math.nan},
        {"initialDelayMs": True},
        {"initialDelayMs": "1"},
        {"maxDelayMs": DELAY_MAX_MS + 1},
        {"initialDelayMs": 100, "maxDelayMs": 50},
        {"jitterRatio": 1.1},
        {"jitterRatio": -0.1},
        {"maxRetries": -1},
        {"maxRetries": 1.5},
        {"maxRetries": True},
        {"retryableCodes": ["SERVER", "SERVER"]},
        {"retryableCodes": [""]},
        {"retryableCodes": [5]},
        {"retryableCodes": "SERVER"},
        {"retries": 3},
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="retry"):
        policy_from(settings)


def test_settings_become_a_policy() -> None:
    assert policy_from({}) == RetryPolicy()
    assert policy_from({"maxRetries": 2, "retryableCodes": ["A"], "jitterRatio": 0}) == RetryPolicy(
        max_retries=2, retryable_codes=("A",), jitter_ratio=0
    )


def test_what_only_normal_mode_reads_is_passed_over_in_always_mode() -> None:
    policy = policy_from({"mode": "always", "maxRetries": -1, "retryableCodes": ["A", "A"]})
    assert policy.delay_ms(1, FULL, EVEN) == 500


def test_policies_that_act_the_same_have_one_key() -> None:
    one = RetryPolicy(retryable_codes=("A", "B"), initial_delay_ms=500)
    assert one.key() == RetryPolicy(retryable_codes=("B", "A"), initial_delay_ms=500.0).key()
    assert one.key() != RetryPolicy(retryable_codes=("A",)).key()
    assert RetryPolicy("always", max_retries=1).key() == RetryPolicy("always", max_retries=2).key()
