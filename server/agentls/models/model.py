"""What the loop asks of a model: one stream of chunks for one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agentls.core.chunks import Chunk
from agentls.core.events import ModelRef, ToolSchema
from agentls.core.grown import Grown
from agentls.core.json import JsonObject
from agentls.core.messages import Message

T = TypeVar("T")


class Memo:
    """What dialects have made of a session's messages, so that a request encodes only those that are new."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, Grown[Message, Any]]] = {}

    def of(self, dialect: str, given: object, make: Callable[[Message], T]) -> Grown[Message, T]:
        """What `make`, which may depend on `given`, has made for this dialect; nothing where `given` has changed."""
        known = self._made.get(dialect)
        if known is None or known[0] != given:
            known = self._made[dialect] = given, Grown(make)
        return known[1]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """All that a request sends. `options` are the row's and the agent's (`temperature`, `max_tokens`, …), merged.
    `memo` is kept from request to request of a session."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    options: JsonObject = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)


class Model(Protocol):
    """A model that can be asked; shared by all agents that use it."""

    @property
    def context_window(self) -> int:
        """Tokens that a request and its answer may take together."""

    @property
    def takes_tools(self) -> bool:
        """Whether it can call tools; one that cannot is told of none."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of one answer, always closed by exactly one `Finish`: a failure of any kind (no route, no key,
        network, a stream that breaks off) is a `Failed` finish and never an exception. Closing the generator, or
        cancelling the task that reads it, closes the provider's connection before it returns."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as a person chooses it. `key_source` says where its key comes from (never the key), such as
    `environment variable OPENAI_API_KEY`; None where it needs none. `problem` says why it is not usable, and what to
    do."""

    ref: ModelRef
    usable: bool
    context_window: int
    key_source: str | None = None
    problem: str | None = None


class Models(Protocol):
    """The models that this server can ask."""

    def all(self) -> tuple[ModelFacts, ...]:
        """Every one, in order of preference."""

    def default(self) -> ModelRef:
        """The one that a new agent gets when nobody names one."""

    def find(self, text: str) -> ModelRef:
        """The model that `provider/id`, or an id alone where it is unique, names; else a UserError that lists them."""

    def open(self, ref: ModelRef) -> Model:
        """The model behind a ref of the log; one that is not in the catalog any more is a UserError."""

    def usable(self, ref: ModelRef) -> bool:
        """Whether a request to it could work as far as can be told without the network: weights there, key set."""

    async def close(self) -> None:
        """End what was started for them (connections, a local model's process)."""
