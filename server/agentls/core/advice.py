"""What to do about a failed request, in plain words for a person.

A failure is told twice where it is tried again: while the next attempt waits, when there is mostly nothing to do, and
for good, when the turn has ended with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agentls.core.reasons import Failure

LOCAL = "local"
"""The provider whose model runs on the person's own machine."""


@dataclass(frozen=True, slots=True)
class _Words:
    """What went wrong, what to do when it is final, and what to do while it is going to be tried again."""

    headline: str
    final: str
    waiting: str = "It is tried again by itself; there is nothing to do."


_BY_CODE: Mapping[str, _Words] = {
    "AUTH": _Words(
        "The provider refused the key",
        "Check the API key of this model, then retry the turn.",
        "Every attempt is refused until the API key of this model is right: stop the turn and check it.",
    ),
    "MISSING_CREDENTIAL": _Words(
        "There is no API key",
        "Set the key that the message names, restart the server and retry the turn.",
        "No attempt can work without the key that the message names: stop the turn and set it.",
    ),
    "INVALID_CREDENTIAL": _Words(
        "The API key is unusable",
        "Set the key again without spaces or line breaks, restart the server and retry the turn.",
        "No attempt can work with this key: stop the turn and set it again without spaces or line breaks.",
    ),
    "QUOTA": _Words(
        "The account's quota is used up",
        "Waiting does not help. Top up the account or choose another model, then retry the turn.",
        "No attempt can work before the account is topped up: do that, or stop the turn and choose another model.",
    ),
    "RATE_LIMIT": _Words(
        "Too many requests",
        "The account is in order, only too busy: wait a little, then retry the turn.",
        "The account is in order, only too busy: it is tried again by itself, and there is nothing to do.",
    ),
    "CONTEXT_WINDOW_EXCEEDED": _Words(
        "The conversation is longer than the model can read",
        "Trying again does not help. Start a new agent, or choose a model with a larger context window.",
        "Trying again does not help: stop the turn and choose a model with a larger context window.",
    ),
    "INVALID_REQUEST": _Words(
        "The provider refused the request",
        "Read its message below; another model may accept it.",
        "Read its message below; if it keeps refusing, stop the turn and choose another model.",
    ),
    "SERVER": _Words(
        "The provider has a problem",
        "Nothing is wrong on your side: retry the turn or send again in a moment.",
        "Nothing is wrong on your side, and it is tried again by itself.",
    ),
    "TIMEOUT": _Words(
        "The provider went silent",
        "Retry the turn; if it stays silent, choose another model.",
    ),
    "TRANSPORT": _Words(
        "The provider cannot be reached",
        "Check your network, that the model server runs and that its address is right, then retry the turn.",
        "It is tried again by itself. Check meanwhile your network and that the model server runs.",
    ),
    "STREAM_CLOSED": _Words(
        "The reply broke off",
        "What came is kept above, but the model does not read it. Send again or retry the turn.",
        "What came is kept above; it is asked for anew by itself.",
    ),
    "EMPTY_RESPONSE": _Words(
        "The model sent an empty reply",
        "Retry the turn. Send again in other words if it stays empty.",
    ),
    "MALFORMED_RESPONSE": _Words(
        "The provider sent something unreadable",
        "Check that its address is that of a compatible API, then retry the turn.",
        "It is tried again by itself. If it stays unreadable, check that the address is that of a compatible API.",
    ),
    "CONTENT_FILTER": _Words(
        "The provider withheld the reply",
        "Say it in other words and send again.",
        "It is asked for again by itself. If it is withheld again, stop the turn and say it in other words.",
    ),
    "UNSUPPORTED_CONTENT": _Words(
        "The model cannot take this content",
        "Leave it out, or choose a model that takes it.",
        "Trying again does not help: stop the turn, and leave the content out or choose a model that takes it.",
    ),
    "STORE_UNAVAILABLE": _Words(
        "The session cannot be saved",
        "Free disk space or make it writable; it goes on by itself then.",
    ),
    "LOCAL_MODEL": _Words(
        "The local model did not start",
        "The message below says what is missing: run `scripts/setup --local` again, or choose another model.",
        "The message below says what is missing; until it is there, no attempt can work.",
    ),
    "NO_MODEL": _Words(
        "The model is not there any more",
        "Choose another model and retry the turn.",
        "Stop the turn and choose another model.",
    ),
    "INTERNAL": _Words(
        "The server made a mistake",
        "Nothing you wrote is lost. Retry the turn; the server's log has the details.",
    ),
}

_OTHER = _Words("The request failed", "Read the provider's message below and send again, or retry the turn.")

_LOCAL: Mapping[str, _Words] = {
    "TRANSPORT": _Words(
        "The local model stopped",
        "It is started again when it is asked next: retry the turn. If it stops again, the machine may lack memory: "
        "close other programs, or choose another model.",
        "It is started again by itself; there is nothing to do.",
    ),
    "TIMEOUT": _Words(
        "The local model went silent",
        "It may be busy with a long text, or the machine with other work: retry the turn, or choose another model.",
    ),
    "SERVER": _Words(
        "The local model has a problem",
        "Read its message below and retry the turn; if that does not help, choose another model.",
    ),
}
"""Where a model on the person's own machine needs other words than a provider far away."""


def headline(failure: Failure, provider: str | None = None) -> str:
    """What went wrong, in a few words; `provider` is whose model was asked."""
    return _words(failure, provider).headline


def advice(failure: Failure, provider: str | None = None, *, again: bool = False) -> str:
    """What to do about it: a full sentence or two. With `again` the next attempt is waiting already."""
    words = _words(failure, provider)
    text = words.waiting if again else words.final
    if failure.retry_after_ms is not None:
        text += f" The provider asks to wait {_duration(failure.retry_after_ms)}."
    return text


def seconds(milliseconds: int) -> int:
    """Whole seconds, rounded up, so that nobody is told to come too early."""
    return max(0, math.ceil(milliseconds / 1000))


def _words(failure: Failure, provider: str | None) -> _Words:
    local = _LOCAL.get(failure.code) if provider == LOCAL else None
    return local or _BY_CODE.get(failure.code, _OTHER)


def _duration(milliseconds: int) -> str:
    count, unit = max(1, seconds(milliseconds)), "second"
    for size, larger in ((60, "minute"), (60, "hour")):
        if count >= 2 * size:
            count, unit = -(-count // size), larger
    return f"{count} {unit}{'' if count == 1 else 's'}"
