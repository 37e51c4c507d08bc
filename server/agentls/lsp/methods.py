"""The methods of the agent extension: one row each, and the decoding of what a client sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import ValidationError

from agentls.core.json import JsonValue
from agentls.core.shown import shown
from agentls.lsp import errors, replies, schema, standard, wire
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

DID_OPEN = Method(
    "textDocument/didOpen",
    "Say that the person has opened a document. Files only: what has another scheme is passed over, here and below.",
    standard.DidOpenParams,
)
DID_CHANGE = Method(
    "textDocument/didChange",
    "Say what changed in it, by ranges or as a whole, so that agents read what is not saved yet.",
    standard.DidChangeParams,
)
DID_SAVE = Method("textDocument/didSave", "Say that it was saved, with its text or without.", standard.DidSaveParams)
DID_CLOSE = Method("textDocument/didClose", "Say that it was closed.", standard.DidCloseParams)
DID_CHANGE_WATCHED_FILES = Method(
    "workspace/didChangeWatchedFiles",
    "Say that files changed on disk. The server registers for all files where the client can do that.",
    standard.DidChangeWatchedFilesParams,
)
PROGRESS_CANCEL = Method(
    "window/workDoneProgress/cancel",
    "Stop the turn that a progress shows; what waits is held.",
    standard.ProgressCancelParams,
)

STANDARD: tuple[Method[wire.Wire], ...] = (
    DID_OPEN, DID_CHANGE, DID_SAVE, DID_CLOSE, DID_CHANGE_WATCHED_FILES, PROGRESS_CANCEL,
)  # fmt: skip
"""The notifications of plain LSP that are taken from any client."""

LIST = Method(
    "agent/list",
    "List live and stored agents, the last used first.",
    wire.ListParams,
    replies.ListResult,
    errors=(errors.STORE_UNAVAILABLE, errors.REQUEST_FAILED),
)
CREATE = Method(
    "agent/create",
    "Make an agent in a workspace, or a copy of another one up to the end of a turn. The answer is its whole state; "
    "attach to see its blocks.",
    wire.CreateParams,
    replies.AgentState,
    errors=(*errors.OPENING, errors.INVALID_BOUNDARY),
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
BLOCK = Method(
    "agent/block",
    "A part of the whole body of a block, also of one that is drawn only in part (`more`).",
    wire.BlockParams,
    replies.BlockResult,
    errors=errors.OPENING,
)
CONFIGURE = Method(
    "agent/configure",
    "Change settings of an agent. The answer is its whole state.",
    wire.ConfigureParams,
    replies.AgentState,
    errors=errors.OPENING,
)
DELETE = Method(
    "agent/delete",
    "Stop an agent and delete all that is stored of it, for good.",
    wire.AgentParams,
    replies.DeletedResult,
    errors=(errors.UNKNOWN_AGENT, errors.STORE_UNAVAILABLE, errors.SESSION_HELD, errors.REQUEST_FAILED),
)
MODELS = Method("agent/models", "The models that an agent can be given.", wire.ModelsParams, replies.ModelsResult)
SEND = Method(
    "agent/send",
    "Send a message: target and wakeup say where it goes and whether it makes the agent run. The answer comes when the "
    "message is on disk.",
    wire.SendParams,
    replies.SentResult,
    errors=errors.SENDING,
)
FOLLOWUP = Method(
    "agent/followup",
    "Send a message that gets a turn of its own, after those that wait.",
    wire.FollowupParams,
    replies.SentResult,
    errors=errors.SENDING,
)
STEER = Method(
    "agent/steer",
    "Send a message into the running turn; it is read at the turn's next step.",
    wire.SteerParams,
    replies.SentResult,
    errors=errors.SENDING,
)
INJECT = Method(
    "agent/inject",
    "Put a context before the model without running anything. The client's name is given as its producer.",
    wire.InjectParams,
    replies.SentResult,
    errors=errors.OPENING,
)
RETRY = Method(
    "agent/retry",
    "Try the last turn again, where it did not complete: a turn without a message of its own.",
    wire.RetryParams,
    replies.SentResult,
    errors=errors.OPENING,
)
EDIT = Method(
    "agent/inbox/edit",
    "Give a pending message another content; its id and its place stay.",
    wire.EditParams,
    replies.ChangedResult,
    errors=errors.OPENING,
)
REMOVE = Method(
    "agent/inbox/remove",
    "Take a pending message out.",
    wire.PendingParams,
    replies.ChangedResult,
    errors=errors.OPENING,
)
MOVE = Method(
    "agent/inbox/move",
    "Move a pending message within its lane.",
    wire.MoveParams,
    replies.ChangedResult,
    errors=errors.OPENING,
)
PROMOTE = Method(
    "agent/inbox/promote",
    "Release a pending message from the hold and let it join the running turn at its next step, or, when nothing runs, "
    "start one.",
    wire.PendingParams,
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
ANSWER = Method(
    "agent/answer",
    "Answer an open request. Whoever is attached may; the first answer to what is asked counts.",
    wire.AnswerParams,
    replies.AnsweredResult,
    errors=errors.OPENING,
)
EDITOR_STATE = Method(
    "agent/editorState",
    "Say what the person looks at; it is what agents are told of the editor that a message came from.",
    wire.EditorStateParams,
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

CONTEXT = Method(
    "agent/context",
    "A context has been put before the model of an attached agent. Told once for each, not for those that an attach or "
    "a page brings.",
    replies.ContextParams,
    direction="server to client",
)
ATTENTION = Method(
    "agent/attention",
    "An attached agent needs the person, or a turn that a person began has ended.",
    replies.AttentionParams,
    direction="server to client",
)
LIST_CHANGED = Method(
    "agent/listChanged",
    "The agents of a workspace are not what `agent/list` said before. Told to every client.",
    replies.ListChangedParams,
    direction="server to client",
)

METHODS: tuple[Method[wire.Wire], ...] = (
    LIST, CREATE, ATTACH, DETACH, PAGE, BLOCK, CONFIGURE, DELETE, MODELS,
    SEND, FOLLOWUP, STEER, INJECT, RETRY, EDIT, REMOVE, MOVE, PROMOTE, RESUME, CANCEL, ANSWER,
    EDITOR_STATE,
    BLOCKS, STATE, CONTEXT, ATTENTION, LIST_CHANGED,
)  # fmt: skip
"""Every method of the extension that is served, in the order of the reference."""

REQUESTS = tuple(method.name for method in METHODS if method.result is not None)
"""The names of those that are answered."""

SERVED = tuple(method.name for method in METHODS if method.direction == "client to server")
"""The names that the server announces."""
