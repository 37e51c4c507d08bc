"""The wire types of what clients send; `replies.py` has those of what they get.

`docs/protocol/` is generated from both: a docstring is what its reader sees. What is `Any` here is the JSON of others,
before it has been taken apart.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    StrictInt,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agentls.agent.agent import Decision, IfIdle, Mode, Target
from agentls.core.ids import MESSAGE_ID_MAX, is_server_form

VERSION = 1
"""The version of the extension that both sides must name."""
LIST_MAX = 200
PAGE_MAX = 500
TITLE_MAX = 200
NOTE_MAX = 10_000


class Wire(BaseModel):
    """A JSON object with camelCase keys; unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


class Told(Wire):
    """What a client sends. An empty list counts as an empty object: Lua cannot tell them apart, and Neovim writes both
    as `[]`."""

    @model_validator(mode="before")
    @classmethod
    def _as_object(cls, raw: Any) -> Any:
        return {} if raw == [] else raw


class Params(Told):
    """What a client sends: a field that is null counts as left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        return {name: value for name, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


Order = Annotated[tuple[Annotated[StrictInt, Field(ge=0)], Annotated[StrictInt, Field(ge=0)]], Strict(False)]
"""Where a block stands: `[seq, n]`, compared in turn."""


def _minted(value: str) -> str:
    if is_server_form(value):
        raise ValueError("has a form that only the server uses; take a random id, such as a UUID")
    if "\ufffd" in value:
        # What a lone surrogate becomes: two ids of the client might be one here.
        raise ValueError("holds what is no character; take a random id, such as a UUID")
    return value


MintedId = Annotated[str, Field(min_length=1, max_length=MESSAGE_ID_MAX), AfterValidator(_minted)]
"""An id that the client makes up: unique in its session, and in none of the forms that the server uses."""

AnyId = Annotated[str, Field(min_length=1)]


_LINE_BREAKS_AND_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _one_line(value: str) -> str:
    if not value.strip() or _LINE_BREAKS_AND_CONTROLS.search(value):
        raise ValueError("is no line of text; take some words without line breaks")
    return value


Title = Annotated[str, Field(min_length=1, max_length=TITLE_MAX), AfterValidator(_one_line)]
"""One line."""


def _not_served(_: Any) -> None:
    raise ValueError("is not served by this version; leave it out")


NotServed = Annotated[None, BeforeValidator(_not_served)]
"""What would change the meaning of a request if it were ignored: it is refused until it is served."""


def _none_served(items: list[Any]) -> list[Any]:
    if items:
        _not_served(items)
    return items


NoneServed = Annotated[list[Any], AfterValidator(_none_served), Field(json_schema_extra={"maxItems": 0})]
"""The same of a list, which may be there as long as it is empty."""


# Initialize ----------------------------------------------------------------------------------------------------


class ClientName(Params):
    """The name and version of a client."""

    name: str
    version: str | None = None


class General(Params):
    """`capabilities.general`, as far as it matters here."""

    position_encodings: list[str] | None = None


class Window(Params):
    """`capabilities.window`, as far as it matters here."""

    work_done_progress: bool = False


class WatchedFiles(Params):
    """`capabilities.workspace.didChangeWatchedFiles`, as far as it matters here."""

    dynamic_registration: bool = False


class Workspace(Params):
    """`capabilities.workspace`, as far as it matters here."""

    did_change_watched_files: WatchedFiles = WatchedFiles()


class Capabilities(Params):
    """The client's capabilities, as far as they matter here."""

    general: General | None = None
    window: Window = Window()
    workspace: Workspace = Workspace()
    experimental: Any = None


class InitializeParams(Params):
    """What `initialize` is asked with, as far as it matters here."""

    process_id: int | None = None
    client_info: ClientName | None = None
    capabilities: Capabilities = Capabilities()


class AgentClient(Params):
    """`capabilities.experimental.agent` of a client; without it only plain LSP is spoken."""

    version: int
    """Of this extension: 1. A client that names another version is not offered it."""
    client: ClientName | None = None
    """Shown to other clients of the agent; else `clientInfo`."""
    answers: bool = False
    """It lets a person answer approvals. Announced for later: this version does not look at it."""
    editor_state: bool = False
    """It sends `agent/editorState`. Announced for later: this version takes it from every client."""
    diagnostics: bool = False
    """It sends `agent/diagnostics`. Announced for later: this version does not take them."""
    saves: bool = False
    """It answers `agent/save`. Announced for later: this version does not ask."""
    editor_queries: list[str] = Field(default_factory=list)
    """Methods that it answers by `agent/query`. Announced for later: this version does not ask."""
    open_diff: bool = False
    """It answers `agent/openDiff`. Announced for later: this version does not ask."""


# Client to server ----------------------------------------------------------------------------------------------


class ListParams(Params):
    """Which agents to list."""

    workspace_uri: str | None = None
    """Only those of this workspace."""
    query: str | None = None
    """Only those whose title holds this text, in any case."""
    cursor: str | None = None
    """`nextCursor` of the page before."""
    limit: int = Field(default=50, ge=1, le=LIST_MAX)
    """Rows of a page, at most."""


class ForkParams(Params):
    """Where a fork begins."""

    agent_id: AnyId
    turn: int = Field(ge=1)
    """The last turn that the fork has; it must be closed."""


class CreateParams(Params):
    """A new agent."""

    workspace_uri: AnyId
    """Its workspace, a `file:` URI."""
    model: str | None = None
    """`provider/id`, or an id alone where it is unique; else the default model."""
    mode: Mode | None = None
    """Whether tools that change something ask first (the default) or are not there."""
    title: Title | None = None
    from_: ForkParams | None = Field(default=None, alias="from")
    """Begin as a copy of another agent up to the end of a turn."""
    preset: NotServed = None
    """A preset, which this version does not have."""


class AgentParams(Params):
    """Which agent."""

    agent_id: AnyId


class AttachParams(AgentParams):
    """Which agent to draw, and what the client already holds of it."""

    epoch: str | None = None
    """That of the blocks which the client holds."""
    since: int | None = Field(default=None, ge=0)
    """The highest `rev` that the client has applied in that epoch."""


class PageParams(AgentParams):
    """Which older blocks."""

    before: Order
    """`before` of the attach answer or of the page before."""
    limit: int = Field(default=100, ge=1, le=PAGE_MAX)
    """Blocks of a page, at most."""


class BlockParams(AgentParams):
    """Which part of which body, in UTF-8 bytes."""

    id: AnyId
    """Of a block that was drawn."""
    from_: int = Field(default=0, ge=0, alias="from")
    """Where the part begins."""
    to: int | None = Field(default=None, ge=0)
    """Where it ends; else at the end of the body. An answer holds at most 1 MiB, so `to` of the answer may be less."""


class ConfigureParams(AgentParams):
    """Settings to change; what is left out stays."""

    model: str | None = None
    """`provider/id`, or an id alone where it is unique; it takes effect at the next step."""
    mode: Mode | None = None
    """Whether tools that change something ask first or are not there."""
    title: Title | None = None
    archived: NotServed = None
    """Whether it is put away, which this version does not do."""


class ModelsParams(Params):
    """Nothing to say."""


class TextContent(Params):
    """A piece of text; pieces are joined with nothing between."""

    type: Literal["text"]
    text: str


def _form_of_content(raw: Any) -> str | None:
    return "#text" if isinstance(raw, str) else "#blocks" if isinstance(raw, list) else None


def _not_blank(content: str | list[TextContent]) -> str | list[TextContent]:
    whole = content if isinstance(content, str) else "".join(block.text for block in content)
    if not whole.strip():
        raise ValueError("is blank; a message needs some text")
    return content


Content = Annotated[
    Annotated[str, Tag("#text")] | Annotated[list[TextContent], Tag("#blocks")],
    Discriminator(_form_of_content),
    AfterValidator(_not_blank),
]
"""A text, or a list of blocks. A message without any text, or with blank text only, is refused."""


class MessageParams(AgentParams):
    """A message. Sending it again with the same id and content changes nothing and gives the first outcome."""

    message_id: MintedId
    """Made up by the client, and kept to ask again after a lost connection."""
    content: Content
    """What it says."""


class FollowupParams(MessageParams):
    """A message that gets a turn of its own."""

    mentions: NoneServed = Field(default_factory=list)
    """What it points at. This version reads none of it to the model, so that the list must be empty."""


class SendParams(FollowupParams):
    """A message with the choice of where it goes and whether it makes the agent run."""

    target: Target = "next-turn"
    """`next-turn`: a turn of its own. `next-step`: into the running turn."""
    wakeup: bool = True
    """Whether it makes an idle agent run; without, it waits for the next message that does."""


class SteerParams(FollowupParams):
    """A message that joins the running turn at its next step."""

    expected_turn: int | None = Field(default=None, ge=1)
    """Only into this turn; while another one runs it waits at the head of the queue."""
    if_idle: IfIdle = "start"
    """What happens when nothing runs: `start` a turn or `refuse`."""


class InjectParams(MessageParams):
    """A context that is put before the model at its next step and runs nothing."""

    context: dict[str, Any]
    """`{form, …facts}`: what kind of information it is, with the facts that the form needs."""


class RetryParams(AgentParams):
    """Which turn to try again."""

    message_id: MintedId
    """Made up by the client, as that of a message is: asking again with the same id changes nothing."""
    turn: int = Field(ge=1)
    """The last turn, where it did not complete."""


class PendingParams(AgentParams):
    """Which pending message."""

    message_id: AnyId


class EditParams(PendingParams):
    """A pending message and what it is to say."""

    content: Content
    """All of it."""


class MoveParams(PendingParams):
    """A pending message and its place in its lane."""

    before: AnyId | None = None
    """The pending message that is to follow it; else it goes to the end. One that has left meanwhile stands for the
    head."""


class CancelParams(AgentParams):
    """What to stop."""

    turn: int | None = Field(default=None, ge=1)
    """Only this turn, so that a late cancel does not hit the next one."""
    keep_inbox: bool = False
    """Hold what waits instead of discarding it; a person's stop button should set it."""


class Answer(Params):
    """What a person decided."""

    decision: Decision
    """`deny` lets the turn go on; `deny-and-stop` ends it and holds what waits. A question is answered by `allow`."""
    note: str | None = Field(default=None, max_length=NOTE_MAX)
    """What the model is told with it."""
    remember: NotServed = None
    """For how long it counts, which this version does not keep."""
    content: Any = None
    """Of a question: the answer, of any shape. An approval takes none in this version."""


class AnswerParams(AgentParams):
    """An answer to an open request."""

    request_id: AnyId
    """Of one of the state's `requests`."""
    shown: AnyId
    """`shown` of that request, as it stood when the person decided."""
    answer: Answer


# Notifications -------------------------------------------------------------------------------------------------


class Position(Params):
    """A place between two characters; `character` counts in the position encoding of the connection."""

    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Range(Params):
    """From `start` up to `end`."""

    start: Position
    end: Position


class EditorStateParams(Told):
    """What a person looks at. Here a field that is left out stays as it was, and null is none."""

    active_uri: str | None = None
    """The document that has the cursor. Another one, or none, forgets the selections and visible ranges of before. One
    that is no file, such as an untitled one, is told to agents by its URI, and none of its text."""
    selections: list[Range] | None = None
    """In the active document, the main one first; an empty range is a cursor."""
    visible_ranges: list[Range] | None = None
    """Of the active document."""
    open_uris: list[str] | None = None
    """The documents that are shown or in a tab; what is no file is passed over."""
    dirty_uris: list[str] | None = None
    """The documents that hold unsaved text. What is no file is told to agents by its URI; of files it is known by their
    text."""


def first_problem(error: ValidationError) -> tuple[tuple[str | int, ...], str, Any, str]:
    """Path, kind, value and text of the first thing that is wrong."""
    problem = error.errors(include_url=False)[0]
    path = tuple(step for step in problem["loc"] if not str(step).startswith("#"))
    return path, problem["type"], problem["input"], problem["msg"]
