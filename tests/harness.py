"""A host over a real store, with a model that the test speaks for and a clock that it owns."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentls.agent.agent import Agent
from agentls.agent.hooks import Hooks
from agentls.agent.host import AgentHost
from agentls.agent.loop import Parts
from agentls.agent.prompt import IDENTITY, assemble
from agentls.agent.view import View
from agentls.core.blocks import TextBlock
from agentls.core.chunks import Chunk, Finish, TextDelta
from agentls.core.codec import encode
from agentls.core.errors import UserError
from agentls.core.events import Event, ModelRef
from agentls.core.ids import AgentId, MessageId
from agentls.core.reasons import Failed, Failure, FinishReason, Stop
from agentls.core.rows import Block
from agentls.core.sources import Notice, PluginSource
from agentls.models.model import Model, ModelFacts, ModelRequest
from agentls.store.sqlite import SqliteStore
from agentls.store.store import SessionStore
from agentls.tools.registry import Registry
from agentls.tools.tool import GRACE_SECONDS
from agentls.workspace.documents import Documents

WORKSPACE = "file:///workspace"
MODEL = ModelRef("hand", "hand")
SECONDS = 10.0
"""How long a condition may take before the test has failed; nothing ever waits that long when all is well."""


async def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - a condition may rest on more than one event
            await asyncio.sleep(0.001)


class HandModel:
    """A model whose every chunk the test gives. Requests that were made are in `requests`, closed streams counted."""

    ref = MODEL
    context_window = 1000
    takes_tools = True

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue()
        self._untaken = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        try:
            while True:
                chunk = await self._chunks.get()
                yield chunk
                self._untaken -= 1
                if isinstance(chunk, Finish):
                    return
        finally:
            self.closed += 1
            self._chunks = asyncio.Queue()
            self._untaken = 0

    def give(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self._chunks.put_nowait(chunk)
            self._untaken += 1

    async def taken(self) -> None:
        """Wait until whoever reads the stream has taken in every chunk that was given, and asks for the next."""
        await until(lambda: not self._untaken)

    def text(self, text: str) -> None:
        self.give(TextDelta(0, text))

    def finish(self, reason: FinishReason | None = None) -> None:
        self.give(Finish(reason or Stop()))

    def fail(self, code: str = "SERVER", message: str = "it broke") -> None:
        self.finish(Failed(Failure(message, code)))

    async def asked(self, times: int) -> ModelRequest:
        """The request of that number, counted from 1, once it was made."""
        await until(lambda: len(self.requests) >= times)
        return self.requests[times - 1]

    async def answer(self, text: str, times: int) -> ModelRequest:
        """Wait for a request and answer it whole."""
        request = await self.asked(times)
        self.text(text)
        self.finish()
        return request


class HandModels:
    """A catalog of one, which may be `gone`, or nobody's choice (`undecided`)."""

    def __init__(self, model: HandModel) -> None:
        self.model = model
        self.gone = False
        self.undecided = False

    def all(self) -> tuple[ModelFacts, ...]:
        return (ModelFacts(self.model.ref, not self.gone, self.model.context_window),)

    def default(self) -> ModelRef:
        if self.undecided:
            raise UserError("there is no model")
        return self.model.ref

    def find(self, text: str) -> ModelRef:
        if text != self.model.ref.id:
            raise UserError(f'model "{text}" is not in the catalog; pick "{self.model.ref.id}"')
        return self.model.ref

    def open(self, ref: ModelRef) -> Model:
        if self.gone or ref != self.model.ref:
            raise UserError(f'model "{ref.provider}/{ref.id}" is not in the catalog any more')
        return self.model

    def usable(self, ref: ModelRef) -> bool:
        return not self.gone and ref == self.model.ref

    async def close(self) -> None:
        pass


class Clock:
    """Epoch milliseconds that move when the test says so."""

    def __init__(self) -> None:
        self.time = 1_790_000_000_000

    def __call__(self) -> int:
        return self.time


class Rig:
    """One host and what it stands on."""

    def __init__(
        self,
        directory: Path,
        model: HandModel | None = None,
        over: Callable[[SessionStore], SessionStore] = lambda store: store,
        *,
        store: SessionStore | None = None,
        hooks: Hooks | None = None,
        registry: Registry | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """`over` puts something in front of the real store, `store` takes its place. Without `registry` there are no
        tools."""
        self.model = model or HandModel()
        self.models = HandModels(self.model)
        self.clock = Clock()
        self.registry = registry or Registry()
        self.documents = Documents()
        self.host = AgentHost(
            store or over(SqliteStore(directory)),
            Parts(self.models, assemble([IDENTITY], self.registry.schemas()), self.registry, hooks or Hooks(), grace),
            self.documents,
            instance="i",
            now=self.clock,
            new_id=self._new_id,
            watches_logs=True,
        )

    def _new_id(self) -> str:
        return uuid.uuid4().hex

    async def agent(self, workspace: str = WORKSPACE) -> Agent:
        return await self.host.create(workspace)

    def forget(self, agent: Agent) -> None:
        """Have the host know nothing of an agent, as a new process would."""
        self.host._live.pop(agent.id, None)

    async def log(self, agent: Agent) -> list[Event]:
        """The events of a live agent, as the store has them."""
        journal = agent._journal  # type: ignore[attr-defined]
        return list(await journal.log.read())


@asynccontextmanager
async def rig(directory: Path) -> AsyncIterator[Rig]:
    """A rig that is closed in the end."""
    made = Rig(directory)
    try:
        yield made
    finally:
        await made.host.close()


def content(text: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text),)


def mid(text: str) -> MessageId:
    return MessageId(text)


def notice(summary: str = "branch changed") -> PluginSource:
    return PluginSource("git", Notice(summary))


def rows(view: View) -> list[Block]:
    """The drawn blocks, in order."""
    page, _ = view.page((2**60, 0), 10_000)
    return [drawn.block for drawn in page]


def row_ids(view: View) -> list[str]:
    return [block.id for block in rows(view)]


def sent_texts(request: ModelRequest) -> list[str]:
    """The text of each message that a request sends, without the frames of contexts."""
    texts = ("".join(b.text for b in message.content if isinstance(b, TextBlock)) for message in request.messages)
    return [_FRAME.sub(r"\1", text) for text in texts]


_FRAME = re.compile(r"<agentls-context [^>]*>\n(.*)\n</agentls-context-[0-9a-f]+>", re.DOTALL)


def types(events: Sequence[Event]) -> list[str]:
    return [str(encode(event.data)["type"]) for event in events]


async def idle(agent: Agent) -> None:
    """Wait until the agent rests."""
    await until(lambda: agent.view.state is not None and agent.view.state.status == "idle")


def agent_id(text: str) -> AgentId:
    return AgentId(text)
