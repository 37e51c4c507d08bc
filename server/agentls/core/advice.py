"""What to do about a failure, in plain words for a person."""

from __future__ import annotations

from collections.abc import Mapping

from agentls.core.reasons import Failure

_BY_CODE: Mapping[str, tuple[str, str]] = {
    "AUTH": ("The provider refused the key", "Check the API key of this model and send again."),
    "MISSING_CREDENTIAL": (
        "There is no API key",
        "Set the key that the message names, restart the server and send again.",
    ),
    "INVALID_CREDENTIAL": (
        "The API key is unusable",
        "Set the key again without spaces or line breaks, restart the server and send again.",
    ),
    "QUOTA": ("The account's quota is used up", "Top up the account or choose another model, then send again."),
    "RATE_LIMIT": ("Too many requests", "Wait a little and send again."),
    "CONTEXT_WINDOW_EXCEEDED": (
        "The conversation is longer than the model can read",
        "Start a new agent, or choose a model with a larger context window.",
    ),
    "INVALID_REQUEST": ("The provider refused the request", "Read its message below; another model may accept it."),
    "SERVER": ("The provider has a problem", "Nothing is wrong on your side: send again in a moment."),
    "TIMEOUT": ("The provider went silent", "Send again; if it stays silent, choose another model."),
    "TRANSPORT": (
        "The provider cannot be reached",
        "Check that the model server runs and that its address is right, then send again.",
    ),
    "STREAM_CLOSED": ("The reply broke off", "What came is kept above. Send again to go on."),
    "EMPTY_RESPONSE": ("The model sent an empty reply", "Send again, or say it in other words."),
    "MALFORMED_RESPONSE": (
        "The provider sent something unreadable",
        "Check that its address is that of a compatible API, then send again.",
    ),
    "CONTENT_FILTER": ("The provider withheld the reply", "Say it in other words and send again."),
    "UNSUPPORTED_CONTENT": ("The model cannot take this content", "Leave it out, or choose a model that takes it."),
    "STORE_UNAVAILABLE": (
        "The session cannot be saved",
        "Free disk space or make it writable; it goes on by itself then.",
    ),
    "LOCAL_MODEL": ("The local model did not start", "Run `scripts/setup --local` again, or choose another model."),
    "NO_MODEL": ("The model is not there any more", "Choose another model and send again."),
    "INTERNAL": (
        "The server made a mistake",
        "Nothing you wrote is lost. Send again; the server's log has the details.",
    ),
}


def headline(failure: Failure) -> str:
    """What went wrong, in a few words."""
    return _BY_CODE.get(failure.code, ("The request failed", ""))[0]


def advice(failure: Failure) -> str:
    """What to do about it: a full sentence or two."""
    text = _BY_CODE.get(failure.code, ("", "Read the provider's message below and send again."))[1]
    if failure.retry_after_ms is not None:
        seconds = max(1, round(failure.retry_after_ms / 1000))
        text += f" The provider asks to wait {seconds} second{'' if seconds == 1 else 's'}."
    return text
