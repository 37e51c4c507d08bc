"""One short function per request: decode, call the host or the agent, encode.

Nothing is waited for before an agent's method is called, so that messages count in the order in which they arrive;
only an agent that has to be loaded first is waited for, and then the requests that name it queue up in order. What is
given to an agent goes on when its request is cancelled: the answer is taken back, not the deed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from agentls.agent.agent import Agent, Content
from agentls.agent.host import Listed
from agentls.agent.state import EditorFacts
from agentls.core.blocks import TextBlock
from agentls.core.codec import decode
from agentls.core.errors import DecodeError, UserError
from agentls.core.ids import AgentId, MessageId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.shown import shown
from agentls.core.sources import FORMS, ContextForm, PluginSource
from agentls.lsp import encode, methods, wire
from agentls.lsp.editors import Editors
from agentls.lsp.errors import InvalidParams, NotAttached
from agentls.lsp.methods import Method
from agentls.lsp.outbox import Outboxes

logger = logging.getLogger(__name__)
T = TypeVar("T")
P = TypeVar("P", bound=wire.Wire)

Handler = Callable[[JsonValue], Coroutine[None, None, JsonObject]]


class Host(Protocol):
    """What the handlers ask of `AgentHost`."""

    instance: str

    def live(self, agent_id: AgentId) -> Agent | None:
        """The agent of that id, where it is live."""

    async def get(self, agent_id: AgentId) -> Agent:
        """A live agent, or a stored one, loaded."""

    async def create(
        self, workspace_uri: str, *, model: str | None = None, mode: str | None = None, title: str | None = None
    ) -> Agent:
        """A new agent."""

    async def list(
        self, workspace_uri: str | None = None, *, query: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> tuple[tuple[Listed, ...], str | None]:
        """A page of agents and the cursor of the next one."""


class Client(Protocol):
    """What the handlers ask of the connection."""

    @property
    def editor(self) -> EditorFacts:
        """How other clients see this one."""

    @property
    def producer(self) -> str:
        """Who makes the contexts that this client injects."""

    def after_answer(self, hook: Callable[[bool], None]) -> None:
        """Call `hook` when the answer to the request at hand is queued: with true for a result, false for an error."""


class Handlers:
    """The requests of one connection."""

    def __init__(self, host: Host, client: Client, outboxes: Outboxes, editors: Editors) -> None:
        self._host = host
        self._client = client
        self._outboxes = outboxes
        self._editors = editors
        self._turnstiles: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._deeds: set[asyncio.Task[object]] = set()

    def table(self) -> Mapping[str, Handler]:
        """Every method that is served, by name."""
        return dict(
            (
                _bound(methods.LIST, self.list),
                _bound(methods.CREATE, self.create),
                _bound(methods.ATTACH, self.attach),
                _bound(methods.DETACH, self.detach),
                _bound(methods.PAGE, self.page),
                _bound(methods.SEND, self.send),
                _bound(methods.FOLLOWUP, self.followup),
                _bound(methods.STEER, self.steer),
                _bound(methods.INJECT, self.inject),
                _bound(methods.REMOVE, self.remove),
                _bound(methods.RESUME, self.resume),
                _bound(methods.CANCEL, self.cancel),
            )
        )

    def leave(self) -> None:
        """The connection has ended: draw nothing more for it."""
        for agent_id in self._outboxes.close():
            self._editors.leave(agent_id, self._client.editor.connection)

    # Agents ----------------------------------------------------------------------------------------------------

    async def list(self, params: wire.ListParams) -> JsonObject:
        rows, following = await self._host.list(
            params.workspace_uri, query=params.query, cursor=params.cursor, limit=params.limit
        )
        result: dict[str, JsonValue] = {"agents": [encode.listed_json(row) for row in rows]}
        return result if following is None else {**result, "nextCursor": following}

    async def create(self, params: wire.CreateParams) -> JsonObject:
        agent = await self._whole(
            self._host.create(params.workspace_uri, model=params.model, mode=params.mode, title=params.title)
        )
        return encode.state_of(agent.view)

    # Drawing ---------------------------------------------------------------------------------------------------

    async def attach(self, params: wire.AttachParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        # From here to the return nothing is waited for, so that no frame falls between the answer and the outbox.
        self._editors.attach(agent, self._client.editor)
        caught, outbox = self._outboxes.attach(agent, params.epoch, params.since)
        self._client.after_answer(lambda given: outbox.resume() if given else self._undraw(agent.id))
        return encode.attach_json(agent.view, caught)

    async def detach(self, params: wire.AgentParams) -> JsonObject:
        agent_id = AgentId(params.agent_id)
        if self._outboxes.of(agent_id) is None:
            raise NotAttached(agent_id)
        self._undraw(agent_id)
        return {}

    async def page(self, params: wire.PageParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        outbox = self._outboxes.of(agent.id)
        if outbox is not None:
            # Else a change of one of these blocks could be told before the block itself, and be lost.
            outbox.pause()
            self._client.after_answer(lambda _: outbox.resume())
        return encode.page_json(await agent.page(params.before, params.limit))

    # Messages --------------------------------------------------------------------------------------------------

    async def send(self, params: wire.SendParams) -> JsonObject:
        if params.target == "next-step" and not params.wakeup:
            problem = 'a quiet "next-step" message is a context; use agent/inject, which names its form'
            raise InvalidParams(methods.SEND.name, "wakeup", problem)
        agent = await self._agent(params.agent_id)
        sending = agent.send(
            _content(params),
            id=MessageId(params.message_id),
            target=params.target,
            wakeup=params.wakeup,
        )
        return encode.sent_json(await self._whole(sending))

    async def followup(self, params: wire.FollowupParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        sending = agent.followup(_content(params), id=MessageId(params.message_id))
        return encode.sent_json(await self._whole(sending))

    async def steer(self, params: wire.SteerParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        sending = agent.steer(
            _content(params),
            id=MessageId(params.message_id),
            expected_turn=params.expected_turn,
            if_idle=params.if_idle,
        )
        return encode.sent_json(await self._whole(sending))

    async def inject(self, params: wire.InjectParams) -> JsonObject:
        source = PluginSource(plugin=self._client.producer, context=_form(params.context))
        agent = await self._agent(params.agent_id)
        sending = agent.inject(_content(params), id=MessageId(params.message_id), source=source)
        return encode.sent_json(await self._whole(sending))

    async def remove(self, params: wire.RemoveParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        return encode.outcome_json(await self._whole(agent.remove(MessageId(params.message_id))))

    async def resume(self, params: wire.AgentParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        return encode.outcome_json(await self._whole(agent.resume()))

    async def cancel(self, params: wire.CancelParams) -> JsonObject:
        agent = await self._agent(params.agent_id)
        cancelling = agent.cancel("user", keep_inbox=params.keep_inbox, turn=params.turn)
        return encode.outcome_json(await self._whole(cancelling))

    # Shared ----------------------------------------------------------------------------------------------------

    async def _agent(self, named: str) -> Agent:
        """The agent; requests of this connection that name it pass in the order of their arrival."""
        agent_id = AgentId(named)
        turnstile = self._turnstiles.setdefault(named, asyncio.Lock())
        async with turnstile:
            live = self._host.live(agent_id)
            return live if live is not None else await self._whole(self._host.get(agent_id))

    async def _whole(self, deed: Coroutine[None, None, T]) -> T:
        """What `deed` gives; it goes on to its end when the request is cancelled meanwhile."""
        task = asyncio.create_task(deed)
        self._deeds.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._deeds.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, UserError):
            logger.debug("a request's work failed", exc_info=error)

    def _undraw(self, agent_id: AgentId) -> None:
        self._outboxes.detach(agent_id)
        self._editors.leave(agent_id, self._client.editor.connection)


def _bound(method: Method[P], handle: Callable[[P], Awaitable[JsonObject]]) -> tuple[str, Handler]:
    async def run(params: JsonValue) -> JsonObject:
        return await handle(method.decode(params))

    return method.name, run


def _content(params: wire.MessageParams) -> Content:
    content = params.content
    if isinstance(content, str):
        return (TextBlock(content),)
    return tuple(TextBlock(block.text) for block in content)


def _form(context: JsonObject) -> ContextForm:
    """The form that a client declares, with its facts; unlike one from the log it must be known and whole."""
    kind = context.get("form")
    cls = FORMS.type_for(kind) if isinstance(kind, str) else None
    if cls is None:
        kinds = ", ".join(f'"{known}"' for known in FORMS.kinds())
        raise InvalidParams(methods.INJECT.name, "context.form", f"expected one of {kinds}, not {shown(kind)}")
    try:
        return decode(cls, context)
    except DecodeError as error:
        path = f"context.{error.path}" if error.path else "context"
        raise InvalidParams(methods.INJECT.name, path, str(error).removeprefix(f"{error.path}: ")) from None
