"""Error answers: their codes, and what each exception of ours becomes. None ever carries a traceback or a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pygls.exceptions import JsonRpcException

from agentls.agent.agent import NotPending, UnknownBlock, UnknownRequest, WrongAnswer
from agentls.agent.host import BadWorkspace, InvalidBoundary, UnknownAgent
from agentls.core.errors import SessionDamaged, SessionHeld, StoreUnavailable, UnsupportedFormat, UserError
from agentls.core.json import JsonValue

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_INITIALIZED: Final = -32002
REQUEST_FAILED: Final = -32803
REQUEST_CANCELLED: Final = -32800
UNKNOWN_AGENT: Final = -32050
NOT_ATTACHED: Final = -32051
STORE_UNAVAILABLE: Final = -32053
OVERLOADED: Final = -32054
SESSION_HELD: Final = -32055
SESSION_DAMAGED: Final = -32056
UNSUPPORTED_FORMAT: Final = -32057
INVALID_BOUNDARY: Final = -32058

MEANINGS: Mapping[int, tuple[str, str]] = {
    PARSE_ERROR: ("parse error", "the bytes are no message or the body is no JSON; `id` is null"),
    INVALID_REQUEST: ("invalid request", "no JSON-RPC 2.0 message, a batch, or a request after shutdown"),
    METHOD_NOT_FOUND: ("method not found", "unknown here, or `experimental.agent` was not announced"),
    INVALID_PARAMS: ("invalid params", "`data.path` is the field that is wrong, as in `content[0].text`"),
    INTERNAL_ERROR: ("internal error", "a bug of the server, whose log on stderr tells more"),
    NOT_INITIALIZED: ("not initialized", "`initialize` comes first"),
    REQUEST_CANCELLED: ("request cancelled", "the client took it back; what was committed by then stays"),
    REQUEST_FAILED: ("request failed", "the text says what to do"),
    UNKNOWN_AGENT: ("unknown agent", "no live or stored agent has this id"),
    NOT_ATTACHED: ("not attached", "only `agent/detach` needs an attach"),
    STORE_UNAVAILABLE: ("store unavailable", "the disk takes no writes; a send gets its value instead"),
    OVERLOADED: ("overloaded", "too many messages wait; `data.retryAfterMs` says when to try again"),
    SESSION_HELD: ("session held", "another process has the session open; `data.pid` where it is known"),
    SESSION_DAMAGED: ("session damaged", "the session is damaged on disk and can only be read"),
    UNSUPPORTED_FORMAT: ("unsupported format", "a newer agentls wrote the session, or a part of it"),
    INVALID_BOUNDARY: (
        "invalid boundary",
        "a fork cannot begin there; `data.reason` is `OPEN_TURN` for a turn that still runs, else `INVALID_BOUNDARY`",
    ),
}
"""Name and meaning of every code, for the reference page."""

ALWAYS = (INVALID_PARAMS, INTERNAL_ERROR, REQUEST_CANCELLED)
"""Codes that every request may be answered with."""

OPENING = (UNKNOWN_AGENT, STORE_UNAVAILABLE, SESSION_HELD, SESSION_DAMAGED, UNSUPPORTED_FORMAT, REQUEST_FAILED)
"""Codes of a request that names an agent, which may have to be loaded first."""

SENDING = (*OPENING, OVERLOADED)
"""Codes of a request that adds to what waits."""


class NotAttached(UserError):
    """This connection does not draw the agent."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(f'this client is not attached to agent "{agent_id}"')


class Overloaded(UserError):
    """So many messages wait for an agent that it takes no more for now."""

    retry_after_ms = 1000

    def __init__(self, agent_id: str, waiting: int) -> None:
        super().__init__(
            f'{waiting} messages wait for agent "{agent_id}", and it takes no more; let some run or take some out'
        )


class InvalidParams(JsonRpcException):
    """A field is not what its method takes; `path` says which, as in `content[0].text`."""

    CODE = INVALID_PARAMS

    def __init__(self, method: str, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{method}: {path}: {problem}", data={"path": path})


_CODES: Mapping[type[UserError], int] = {
    UnknownAgent: UNKNOWN_AGENT,
    NotAttached: NOT_ATTACHED,
    StoreUnavailable: STORE_UNAVAILABLE,
    Overloaded: OVERLOADED,
    SessionHeld: SESSION_HELD,
    SessionDamaged: SESSION_DAMAGED,
    UnsupportedFormat: UNSUPPORTED_FORMAT,
    InvalidBoundary: INVALID_BOUNDARY,
}

_FIELDS: Mapping[type[UserError], str] = {
    BadWorkspace: "workspaceUri",
    UnknownBlock: "id",
    NotPending: "before",
    UnknownRequest: "requestId",
    WrongAnswer: "answer.content",
}
"""Those that become InvalidParams, and the field that they are about, whatever the method is."""


def answer_for(error: BaseException, method: str) -> tuple[JsonRpcException, bool]:
    """What a client is told of an exception, and whether it is a bug, of which the log tells the rest."""
    if isinstance(error, JsonRpcException):
        return error, False
    if isinstance(error, UserError):
        field = next((field for kind, field in _FIELDS.items() if isinstance(error, kind)), None)
        if field is not None:
            return InvalidParams(method, field, str(error)), False
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), REQUEST_FAILED)
        return JsonRpcException(str(error), code, _data(error)), False
    text = f"{method} failed inside the server; its log on stderr says why"
    return JsonRpcException(text, INTERNAL_ERROR), True


def _data(error: UserError) -> JsonValue:
    if isinstance(error, SessionHeld) and error.pid:
        return {"pid": error.pid}
    if isinstance(error, Overloaded):
        return {"retryAfterMs": error.retry_after_ms}
    return {"reason": error.reason} if isinstance(error, InvalidBoundary) else None
