"""When a failed request is tried again: the `request_error` hook over the policy of `models/retry.py`."""

from __future__ import annotations

from collections.abc import Callable

from agentls.core.reasons import Failure
from agentls.models.retry import RetryPolicy


class Retries:
    """Follows a policy; `chance` gives random numbers from 0 to 1."""

    def __init__(self, policy: RetryPolicy, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance

    def request_error(self, failure: Failure, retry: int) -> int | None:
        """Milliseconds until the retry, or None for none."""
        return self._policy.delay_ms(retry, failure, self._chance())
