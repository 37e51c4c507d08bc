"""What the loop asks of a model: one stream of chunks for one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from agentls.core.chunks import Chunk
from agentls.core.events import ModelRef, ToolSchema
from agentls.core.json import JsonObject
from agentls.core.messages import Message


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """All that a request sends. `options` are the row's and the agent's (`temperature`, `max_tokens`, …), merged."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    options: JsonObject = field(default_factory=dict)


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
