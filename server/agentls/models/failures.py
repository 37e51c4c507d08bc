"""From a provider's words to a failure's code: what every dialect's error classification shares.

Codes are what the loop and the retry policy decide on; texts are for people. The two text classifiers look at the
provider's code, type and message, joined by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_CONTEXT_OVERFLOW = re.compile(
    r"""
      context [\s_-]* (?:length|window|size) [\s_-]* (?:exceed|overflow)
    | exceed (?:s|ed|ing)? (?: [\s_-]+ (?:the|available|maximum|max|model'?s) )* [\s_-]+
      context [\s_-]* (?:length|window|size)
    | \b max (?:imum)? \s context \s (?:length|window)
    | \b (?:request|prompt|input|messages?) \b [^.;]{0,60} \b too \s (?:large|long) \s for \s (?:this|the) \s model
    | \b too \s (?:large|long) \s for \s (?:this|the) \s (?:model|context)
    | \b (?:prompt|input) \s is \s too \s long \b
    | \b (?:request|prompt|input|messages?|tokens?) \b [^.;]{0,80} \b exceed (?:s|ed)? \b [^.;]{0,60} \b context \b
    | \b input \s token \s count \b [^.;]{0,40} \b exceeds \b
    """,
    re.IGNORECASE | re.VERBOSE,
)

_QUOTA = re.compile(
    r"""
      insufficient [\s_-]* (?:quota|balance|credits?|funds)
    | \b exceeded \s your \s current \s quota
    | (?:quota|usage [\s_-]* limits?) [\s_-]* (?: (?:has|have|is|was) \s (?:been \s)? )? (?:exceeded|exhausted|reached)
    | (?:balance|credits?) [\s_-]* (?: (?:has|have|is|are|was|were) \s (?:been \s)? )? (?:exhausted|depleted)
    | \b out \s of \s (?:credits?|budget)
    """,
    re.IGNORECASE | re.VERBOSE,
)

# What an error inside a successful response calls itself, where it names no status.
_KINDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"\bauth(?:entication|orization|\b|_)|unauthori[sz]ed|api[\s_-]?key|permission", "AUTH"),
        (r"rate[\s_-]?limit|too many requests", "RATE_LIMIT"),
        (r"overload|server[\s_-]?error|internal[\s_-]?error|unavailable|bad gateway", "SERVER"),
        (r"time(?:d[\s_-])?out", "TIMEOUT"),
        (r"invalid[\s_-]?request|bad[\s_-]?request", "INVALID_REQUEST"),
    )
)

_MESSAGE_MAX = 2000


def is_context_overflow(text: str) -> bool:
    """Whether an error says that the input does not fit the model's context."""
    return _CONTEXT_OVERFLOW.search(text) is not None


def is_quota(text: str) -> bool:
    """Whether an error says that the account has nothing left, which waiting does not mend."""
    return _QUOTA.search(text) is not None


def code_of_status(status: int, text: str) -> str:
    """The failure code of an HTTP status; `text` is the provider's code, type and message."""
    if status == 413:
        return "INVALID_REQUEST"
    if is_quota(text):
        return "QUOTA"
    if status in (401, 403):
        return "AUTH"
    if status == 429:
        return "RATE_LIMIT"
    if status == 400:
        return "CONTEXT_WINDOW_EXCEEDED" if is_context_overflow(text) else "INVALID_REQUEST"
    if status >= 500:
        return "SERVER"
    return f"HTTP_{status}"


def code_of_error(status: int | None, text: str) -> str:
    """The failure code of an error that came inside a successful response; `status` is the one it names, if any."""
    if status is not None and 400 <= status <= 599:
        return code_of_status(status, text)
    if is_quota(text):
        return "QUOTA"
    if is_context_overflow(text):
        return "CONTEXT_WINDOW_EXCEEDED"
    return next((code for pattern, code in _KINDS if pattern.search(text)), "UNKNOWN")


def retry_after_ms(value: str | None, now: float) -> int | None:
    """A `Retry-After` header in milliseconds from `now` (epoch seconds); None unless it names a time to come."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000 or None
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:  # RFC 5322's "-0000", which HTTP does not have but servers send
        when = when.replace(tzinfo=UTC)
    wait = round((when.timestamp() - now) * 1000)
    return wait if wait > 0 else None


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id of a request, to quote in a report; header names in lower case."""
    return headers.get("x-request-id") or headers.get("x-deepseek-request-id") or None


def bounded(message: str) -> str:
    """A provider's message, cut where it is too long to be read."""
    text = message.strip()
    return text if len(text) <= _MESSAGE_MAX else text[: _MESSAGE_MAX - 1] + "…"
