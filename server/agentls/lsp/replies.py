"""The wire types of what clients get: the shape of every result and notification.

What goes out is built as plain dicts in `encode.py`, since a frame a token must be cheap; tests hold those against
these models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentls.agent.agent import Now, Refusal
from agentls.agent.state import Status, StoreState
from agentls.core.events import HoldCause, Lane, Outcome
from agentls.core.rows import BlockKind, BlockState, CallState
from agentls.lsp.wire import Order, Wire

SENT_KINDS: tuple[BlockKind, ...] = (
    "user", "assistant", "reasoning", "tool", "approval", "question", "context", "retry", "error", "turn-end",
)  # fmt: skip
"""The kinds that this version sends; the others are named already, so that a client can be ready for them."""


class AgentServer(Wire):
    """`capabilities.experimental.agent` of the server."""

    version: Literal[1]
    """Of this extension."""
    instance: str
    """Names this process; another one has other epochs."""
    methods: list[str]
    """The requests that it answers and the notifications that it takes."""
    block_kinds: list[BlockKind]
    """The kinds of blocks that it sends; a client draws others as text."""


class Usage(Wire):
    """Tokens in disjoint buckets; `reasoningTokens` is a part of `outputTokens`."""

    input_tokens: int
    """Uncached input only."""
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


class Call(Wire):
    """The call of a tool block."""

    name: str
    arguments: str
    """JSON text as the model wrote it, which may not parse."""
    state: CallState


class Location(Wire):
    """Lines of a file, from 0. Announced for later."""

    uri: str
    line: int
    end_line: int | None = None


class Action(Wire):
    """A command that a client may offer with a block. Announced for later."""

    title: str
    command: str
    arguments: list[object] = Field(default_factory=list)


class FileDiff(Wire):
    """Changes of one file. Announced for later."""

    uri: str
    hunks: list[object]


class Image(Wire):
    """An image that can be fetched by its id; pixels. Announced for later."""

    id: str
    media_type: str
    width: int | None = None
    height: int | None = None


class Block(Wire):
    """One row of the transcript. In a `put` of a block that the client holds, a field left out is unchanged and null
    clears it; a `put` of a new block has at least `state`, `title`, `body` and `collapsed`."""

    id: str
    order: Order
    """Where it stands."""
    rev: int
    """Its last change."""
    kind: BlockKind
    seq: int | None = None
    """The event of the log that it stems from."""
    turn: int | None = None
    step: int | None = None
    role: Literal["user", "assistant"] | None = None
    state: BlockState | None = None
    volatile: bool | None = None
    """It is in no log and is gone after a restart."""
    title: str | None = None
    """One plain line."""
    summary: str | None = None
    """One plain line, for a collapsed row."""
    body: str | None = None
    """CommonMark; in a `put` at most 64 KiB of it, the rest follows in appends of the same frame."""
    more: int | None = None
    """Bytes of a long body that were left out."""
    collapsed: bool | None = None
    """Draw only title and summary at first."""
    form: str | None = None
    """Of a context: `instructions`, `catalog`, `snapshot`, `notice`, `relay`, `recall`, or another, drawn as text."""
    producer: str | None = None
    """Who made a context."""
    locations: list[Location] | None = None
    """What it is about. Announced for later: this version sends none."""
    actions: list[Action] | None = None
    """What a client may offer. Announced for later: this version sends none."""
    diff: list[FileDiff] | None = None
    """What a tool changed. Announced for later: this version sends none."""
    images: list[Image] | None = None
    """What it shows. Announced for later: this version sends none."""
    call: Call | None = None
    finish: str | None = None
    """Why the model stopped, of an assistant block."""
    reason: str | None = None
    """Why the turn ended, of a turn-end block."""
    request: str | None = None
    """The open request that it shows."""
    usage: Usage | None = None
    children: list[str] | None = None
    """Ids of blocks that belong under it. Announced for later: this version sends none."""


class PutOp(Wire):
    """Draw a block, in place of the one with its id where there is one. A client ignores a put of a block that it does
    not hold and that stands before the blocks it has paged in: the page will bring it."""

    op: Literal["put"]
    block: Block
    cleared: list[str] | None = None
    """The fields of the block that are null, for a client whose reader of JSON drops nulls, as Neovim's does."""


class AppendOp(Wire):
    """Extend a block's body; a client whose body is not exactly `offset` bytes long attaches again."""

    op: Literal["append"]
    id: str
    offset: int
    """UTF-8 bytes of the body before it."""
    text: str
    """At most 64 KiB."""


class DropOp(Wire):
    """Remove a block; harmless where there is none."""

    op: Literal["drop"]
    id: str


Op = Annotated[PutOp | AppendOp | DropOp, Field(discriminator="op")]


class BlocksParams(Wire):
    """A frame: its ops are applied in order and at once, where `rev` is higher than the last one applied."""

    agent_id: str
    epoch: str
    rev: int
    ops: list[Op]


class Turn(Wire):
    """The open turn."""

    number: int
    step: int
    trigger: str
    """Why it started: `message`, `injection` or `retry`."""
    started_at: int
    """Epoch milliseconds."""


class LastTurn(Wire):
    """How the last closed turn ended."""

    number: int
    reason: str
    """`completed`, `aborted`, `blocked`, `error`, `max-tokens` or `interrupted`."""


class Waiting(Wire):
    """A pending message, in the order in which its lane runs."""

    message_id: str
    lane: Lane
    wakeup: bool
    """Whether it makes an idle agent run."""
    held: bool
    """It stays until `agent/inbox/resume`."""
    text: str
    """What it says, at most 4 KiB of it: the whole is drawn once it runs."""
    more: int | None = None
    """UTF-8 bytes of it that were left out."""


class Hold(Wire):
    """Why pending messages are held."""

    cause: HoldCause


class Model(Wire):
    """The model that answers."""

    provider: str
    id: str
    usable: bool
    """Whether a request could work, as far as can be told without the network."""


class StateUsage(Usage):
    """What the agent has used."""

    context_tokens: int
    """Tokens of the last request and its answer."""
    context_window: int
    """Tokens that a request and its answer may take together."""
    cost_usd: float | None = None
    """Null where it is not known."""


class Editor(Wire):
    """An attached client."""

    client: str
    """Its name and version."""
    connection: int
    """Its number among the connections of the server."""


class OpenRequest(Wire):
    """Something that waits for a person."""

    request_id: str
    kind: Literal["approval", "question"]
    block_id: str
    shown: str
    """The hash of what is shown, to be sent with the answer."""
    agent_id: str


class AgentState(Wire):
    """The whole state of an agent; of two the one with the higher `rev` counts."""

    agent_id: str
    epoch: str
    """Names one life of the view; it changes with a restart of the server."""
    rev: int
    """The revision at which the state became this."""
    title: str | None
    status: Status
    """`waiting`: for a person's answer. `suspended`: the disk takes no writes."""
    turn: Turn | None
    """The open turn."""
    last_turn: LastTurn | None
    inbox: list[Waiting]
    """Pending messages, steering first."""
    hold: Hold | None
    """Set while some of them are held."""
    requests: list[OpenRequest]
    """What waits for a person."""
    model: Model
    mode: str
    usage: StateUsage
    todos: list[object]
    jobs: list[object]
    editors: list[Editor]
    """The clients that draw the agent."""
    store: StoreState
    """Whether the session can be written."""


class ListedModel(Wire):
    """The model that answers."""

    provider: str
    id: str
    usable: bool | None = None
    """Of a live agent: whether a request could work, as far as can be told without the network."""


class Listed(Wire):
    """A row of the list."""

    id: str
    workspace_uri: str
    parent: str | None = None
    """The agent that it was forked from or started by."""
    title: str | None = None
    status: Literal["idle", "running", "waiting", "suspended", "stored"]
    """`stored`: it is loaded when somebody attaches or sends."""
    model: ListedModel | None = None
    """Left out where none was ever chosen."""
    created_at: int
    """Epoch milliseconds."""
    updated_at: int
    """Epoch milliseconds."""
    summary: str | None = None
    """One plain line of what the person or the model said last."""
    damaged: str | None = None
    """Why it cannot be opened for writing."""


class ListResult(Wire):
    """A page of agents, the last used first."""

    agents: list[Listed]
    next_cursor: str | None = None


class AttachResult(Wire):
    """What brings the client to `rev`; frames that follow have a higher one."""

    state: AgentState
    ops: list[Op]
    """Every put among them is whole."""
    reset: bool
    """Forget all blocks first."""
    rev: int
    epoch: str
    before: Order | None = None
    """With `reset`: where older blocks end, for `agent/page`; left out where there are none. Without, it stays."""


class PageResult(Wire):
    """Older blocks. A client skips the ops of blocks that it already holds, since those are newer."""

    ops: list[Op]
    before: Order | None = None
    """Where still older ones end; left out where there are none."""


class SentResult(Wire):
    """What became of a message."""

    message_id: str
    outcome: Outcome
    turn: int | None = None
    """The turn that it started or joins."""
    position: int | None = None
    """Its place in the queue, from 0."""
    reason: Refusal | None = None
    """Why it was refused."""
    content: list[object] | None = None
    """With a refusal: what was sent, so that it is not lost."""
    repeated: bool | None = None
    """The id was known; the rest is the first outcome."""
    now: Now | None = None
    """Where a repeated message is now."""


class ChangedResult(Wire):
    """What became of a change to pending messages."""

    outcome: Literal["done", "gone"]
    """`gone`: the message waits no more."""
    inbox: list[Waiting]
    content: list[object] | None = None
    """With an edit that is `gone`: what it was to say, so that it is not lost."""


class AnsweredResult(Wire):
    """What became of an answer; the first one counts."""

    outcome: Literal["accepted", "already-resolved", "changed"]
    """`already-resolved`: somebody else was first, or a cancel. `changed`: what is asked is not what was shown; draw it
    again and decide anew."""
    by: str | None = None
    """The client that answered first; left out where a cancel closed the request."""


class DeletedResult(Wire):
    """The agent and all that was stored of it are gone."""

    outcome: Literal["deleted"]


class BlockResult(Wire):
    """A part of a block's whole body, cut between characters; UTF-8 bytes."""

    id: str
    text: str
    from_: int = Field(alias="from")
    to: int
    """Where the next part begins, unless it is `size`."""
    size: int
    """Of the whole body."""


class ModelRow(Wire):
    """A model that an agent can be given."""

    provider: str
    id: str
    usable: bool
    """Whether a request could work, as far as can be told without the network."""
    context_window: int
    """Tokens that a request and its answer may take together."""
    key_source: str | None = None
    """Where its key comes from, never the key; left out where it needs none."""
    problem: str | None = None
    """Why it is not usable, and what to do."""


class ModelsResult(Wire):
    """All models, the preferred ones first."""

    models: list[ModelRow]


class CancelledResult(Wire):
    """What became of a cancel."""

    outcome: Literal["cancelled", "idle", "stale"]
    """`stale`: another turn than the one named runs."""
    inbox: list[Waiting]


class ContextParams(Wire):
    """A context that has just been put before the model. Its block was in the frame before, so that a client which
    ignores this loses nothing."""

    agent_id: str
    rev: int
    """That of the frame."""
    form: str
    producer: str
    title: str
    """One plain line."""
    summary: str | None = None
    """One plain line, of a notice."""
    block_id: str
    supersedes: str | None = None
    """The block of the snapshot of this producer that it takes the place of."""


class AttentionParams(Wire):
    """Something that a person who looks elsewhere should know."""

    agent_id: str
    kind: Literal["needs-you", "done", "failed"]
    """`needs-you`: an approval or a question is open. `done`: a turn has completed. `failed`: it ended in another way,
    unless it was stopped."""
    title: str
    """The agent's, as one plain line."""


class ListChangedParams(Wire):
    """Whose list it is."""

    workspace_uri: str


class Empty(Wire):
    """Nothing to tell."""
