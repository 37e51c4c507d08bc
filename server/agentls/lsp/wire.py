"""The wire types of what clients send; `replies.py` has those of what they get.

`docs/protocol/` is generated from both: a docstring is what its reader sees. What is `Any` here is the JSON of others,
before it has been taken apart.
"""

from __future__ import annotations

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

from agentls.agent.agent import IfIdle, Target
from agentls.core.ids import MESSAGE_ID_MAX, is_server_form

VERSION = 1
"""The version of the extension that both sides must name."""
LIST_MAX = 200
PAGE_MAX = 500


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


class Params(Wire):
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

Mode = Literal["ask", "read-only"]


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


class Capabilities(Params):
    """The client's capabilities, as far as they matter here."""

    general: General | None = None
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
    """It lets a person answer approvals."""
    editor_state: bool = False
    """It sends `agent/editorState`."""
    diagnostics: bool = False
    """It sends `agent/diagnostics`."""
    saves: bool = False
    """It answers `agent/save`."""
    editor_queries: list[str] = Field(default_factory=list)
    """Methods that it answers by `agent/query`."""
    open_diff: bool = False
    """It answers `agent/openDiff`."""


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


class CreateParams(Params):
    """A new agent."""

    workspace_uri: AnyId
    """Its workspace, a `file:` URI."""
    model: str | None = None
    """`provider/id`, or an id alone where it is unique; else the default model."""
    mode: Mode | None = None
    """Whether tools that change something ask first (the default) or are not there."""
    title: str | None = None
    from_: NotServed = Field(default=None, alias="from")
    """A fork of another agent, which this version does not make."""
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


class RemoveParams(AgentParams):
    """Which pending message to take out."""

    message_id: AnyId


class CancelParams(AgentParams):
    """What to stop."""

    turn: int | None = Field(default=None, ge=1)
    """Only this turn, so that a late cancel does not hit the next one."""
    keep_inbox: bool = False
    """Hold what waits instead of discarding it; a person's stop button should set it."""


def first_problem(error: ValidationError) -> tuple[tuple[str | int, ...], str, Any, str]:
    """Path, kind, value and text of the first thing that is wrong."""
    problem = error.errors(include_url=False)[0]
    path = tuple(step for step in problem["loc"] if not str(step).startswith("#"))
    return path, problem["type"], problem["input"], problem["msg"]
