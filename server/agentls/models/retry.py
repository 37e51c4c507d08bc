"""When a failed model request is tried again, and after how long: a pure policy, no clock and no chance of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentls.core.errors import UserError
from agentls.core.json import JsonObject, JsonValue, canonical
from agentls.core.reasons import Failure

RETRYABLE = ("EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT")
DELAY_MAX_MS = 2**31 - 1
"""The longest delay that a policy may name: the limit of the timers that editors have."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The policy of a provider; delays in milliseconds.

    `normal` tries failures with one of `retryable_codes` again, at most `max_retries` times in a step. `always` tries
    every failure again without end; it reads neither of the two.
    """

    mode: Literal["normal", "always"] = "normal"
    max_retries: int = 5
    retryable_codes: tuple[str, ...] = RETRYABLE
    initial_delay_ms: float = 500
    max_delay_ms: float = 10_000
    jitter_ratio: float = 0.1

    def __post_init__(self) -> None:
        if self.mode not in ("normal", "always"):
            raise UserError(f'retry mode "{self.mode}" is unknown; pick one of "normal", "always"')
        for name, delay in (("initial_delay_ms", self.initial_delay_ms), ("max_delay_ms", self.max_delay_ms)):
            if not _is_number(delay) or not 0 < delay <= DELAY_MAX_MS:
                raise UserError(f'retry {name} "{delay}" is out of range; give milliseconds from 1 to {DELAY_MAX_MS}')
        if self.initial_delay_ms > self.max_delay_ms:
            raise UserError(
                f'retry initial_delay_ms "{self.initial_delay_ms}" is above the longest delay; '
                f'lower it or raise max_delay_ms "{self.max_delay_ms}"'
            )
        if not _is_number(self.jitter_ratio) or not 0 <= self.jitter_ratio <= 1:
            raise UserError(f'retry jitter_ratio "{self.jitter_ratio}" is out of range; give a number from 0 to 1')
        if self.mode == "always":
            return
        if type(self.max_retries) is not int or not 0 <= self.max_retries <= 2**53 - 1:
            raise UserError(f'retry max_retries "{self.max_retries}" is no count; give a whole number from 0')
        codes = self.retryable_codes
        if not all(codes) or len(set(codes)) != len(codes):
            raise UserError(
                f'retry retryable_codes "{", ".join(codes)}" has an empty or a repeated code; name each once'
            )

    def delay_ms(self, retry: int, failure: Failure, chance: float) -> int | None:
        """How long to wait before retry number `retry` (from 1) of a step, or None where it is not tried again.

        `chance` is a random number from 0 to 1. A provider's own wish is followed exactly, without jitter; one above
        our cap ends it in normal mode (a person should hear of it at once) and is replaced by our delay in the other.
        """
        if self.mode == "normal" and (failure.code not in self.retryable_codes or retry > self.max_retries):
            return None
        wish = failure.retry_after_ms
        if wish is not None and wish > 0:
            if wish <= self.max_delay_ms:
                return wish
            if self.mode == "normal":
                return None
        # The exponent is bounded since a retry without end would overflow a float after some 1000 attempts.
        backoff = min(self.initial_delay_ms * 2.0 ** min(retry - 1, 64), self.max_delay_ms)
        jittered = backoff * (1 - self.jitter_ratio + 2 * self.jitter_ratio * chance)
        return round(min(jittered, self.max_delay_ms))

    def key(self) -> str:
        """The same text for policies that act the same: retries are counted on only under an equal one."""
        facts: dict[str, JsonValue] = {
            "mode": self.mode,
            "initialDelayMs": float(self.initial_delay_ms),
            "maxDelayMs": float(self.max_delay_ms),
            "jitterRatio": float(self.jitter_ratio),
        }
        if self.mode == "normal":
            facts |= {"maxRetries": self.max_retries, "retryableCodes": sorted(self.retryable_codes)}
        return canonical(facts)


_FIELDS: Mapping[str, str] = {
    "mode": "mode",
    "maxRetries": "max_retries",
    "retryableCodes": "retryable_codes",
    "initialDelayMs": "initial_delay_ms",
    "maxDelayMs": "max_delay_ms",
    "jitterRatio": "jitter_ratio",
}


def policy_from(settings: JsonObject) -> RetryPolicy:
    """The policy of a settings object; a name or value that does not fit is a UserError."""
    unknown = sorted(settings.keys() - _FIELDS.keys())
    if unknown:
        raise UserError(f'retry setting "{unknown[0]}" is unknown; pick from {", ".join(_FIELDS)}')
    fields: dict[str, object] = {_FIELDS[name]: value for name, value in settings.items()}
    codes = fields.get("retryable_codes")
    if codes is not None:
        if not isinstance(codes, list | tuple) or not all(isinstance(code, str) for code in codes):
            raise UserError(f'retry setting "retryableCodes" is "{codes}"; write a list like ["SERVER"]')
        fields["retryable_codes"] = tuple(codes)
    return RetryPolicy(**fields)  # type: ignore[arg-type]  # each field is checked by the class itself


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
