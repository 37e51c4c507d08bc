"""The methods of the agent extension: one row each, and the decoding of what a client sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import ValidationError

from agentls.core.json import JsonValue
from agentls.core.shown import shown
from agentls.lsp import errors, replies, schema, wire
from agentls.lsp.errors import InvalidParams

P_co = TypeVar("P_co", bound=wire.Wire, covariant=True)

Direction = Literal["client to server", "server to client"]


@dataclass(frozen=True, slots=True)
class Method(Generic[P_co]):
    """A row of the table; without a result it is a notification. `errors` are the codes beside those that every
    request may be answered with."""

    name: str
    doc: str
    params: type[P_co]
    result: type[wire.Wire] | None = None
    direction: Direction = "client to server"
    errors: tuple[int, ...] = ()

    def decode(self, raw: JsonValue, *, under: str = "") -> P_co:
        """The params in `raw`, where nothing counts as an empty object; InvalidParams names what is wrong, with a path
        from where `raw` stands, if that is not the top."""
        try:
            return self.params.model_validate({} if raw is None else raw)
        except ValidationError as error:
            raise self._invalid(error, under) from None

    def _invalid(self, error: ValidationError, under: str) -> InvalidParams:
        path, kind, value, text = wire.first_problem(error)
        if kind == "value_error":
            problem = f"{shown(value)} {text.removeprefix('Value error, ')}"
        elif kind == "missing":
            problem = f"expected {schema.expected(self.params, path)}, but it is missing"
        else:
            problem = f"expected {schema.expected(self.params, path)}, not {shown(value)}"
        return InvalidParams(self.name, ".".join(filter(None, (under, at(path)))) or "params", problem)


def at(path: Sequence[str | int]) -> str:
    """A path as people write it: `content[0].text`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


INITIALIZE = Method("initialize", "Start a connection.", wire.InitializeParams)
"""Only for its decoding; it is a part of LSP."""

AGENT_CLIENT = Method("initialize", "Announce the extension.", wire.AgentClient)
"""Only for its decoding."""

LIST = Method(
    "agent/list",
    "List live and stored agents, the last used first.",
    wire.ListParams,
    replies.ListResult,
    errors=(errors.STORE_UNAVAILABLE, errors.REQUEST_FAILED),
)
CREATE = Method(
    "agent/create",
    "Make an agent in a workspace. The answer is its whole state; attach to see its blocks.",
    wire.CreateParams,
    replies.AgentState,
    errors=(errors.STORE_UNAVAILABLE, errors.REQUEST_FAILED),
)
ATTACH = Method(
    "agent/attach",
    "Draw an agent from now on: the answer brings the client up to date and every later change follows as a frame. "
    "A stored agent is loaded. Attaching again replaces the earlier attach.",
    wire.AttachParams,
    replies.AttachResult,
    errors=errors.OPENING,
)
DETACH = Method(
    "agent/detach",
    "Draw an agent no more. It goes on without the client.",
    wire.AgentParams,
    replies.Empty,
    errors=(errors.NOT_ATTACHED,),
)
PAGE = Method(
    "agent/page",
    "Older blocks of an agent.",
    wire.PageParams,
    replies.PageResult,
    errors=errors.OPENING,
)
SEND = Method(
    "agent/send",
    "Send a message: target and wakeup say where it goes and whether it makes the agent run. The answer comes when the "
    "message is on disk.",
    wire.SendParams,
    replies.SentResult,
    errors=errors.OPENING,
)
FOLLOWUP = Method(
    "agent/followup",
    "Send a message that gets a turn of its own, after those that wait.",
    wire.FollowupParams,
    replies.SentResult,
    errors=errors.OPENING,
)
STEER = Method(
    "agent/steer",
    "Send a message into the running turn; it is read at the turn's next step.",
    wire.SteerParams,
    replies.SentResult,
    errors=errors.OPENING,
)
INJECT = Method(
    "agent/inject",
    "Put a context before the model without running anything. The client's name is given as its producer.",
    wire.InjectParams,
    replies.SentResult,
    errors=errors.OPENING,
)
REMOVE = Method(
    "agent/inbox/remove",
    "Take a pending message out.",
    wire.RemoveParams,
    replies.ChangedResult,
    errors=errors.OPENING,
)
RESUME = Method(
    "agent/inbox/resume",
    "Let go of the hold, so that what waited runs, first come first.",
    wire.AgentParams,
    replies.ChangedResult,
    errors=errors.OPENING,
)
CANCEL = Method(
    "agent/cancel",
    "Stop the running turn; what was shown of it stays. The answer comes when the turn has closed.",
    wire.CancelParams,
    replies.CancelledResult,
    errors=errors.OPENING,
)
BLOCKS = Method(
    "agent/blocks",
    "Changes of the blocks of an attached agent.",
    replies.BlocksParams,
    direction="server to client",
)
STATE = Method(
    "agent/state",
    "The whole state of an attached agent, when it has changed.",
    replies.AgentState,
    direction="server to client",
)

METHODS: tuple[Method[wire.Wire], ...] = (
    LIST, CREATE, ATTACH, DETACH, PAGE, SEND, FOLLOWUP, STEER, INJECT, REMOVE, RESUME, CANCEL, BLOCKS, STATE,
)  # fmt: skip
"""Every method of the extension that is served, in the order of the reference."""

SERVED = tuple(method.name for method in METHODS if method.direction == "client to server")
"""The names that the server announces."""
