"""The requests about messages: sending, what waits, stopping, trying again, and answering what an agent asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any

from agentls.agent.agent import Agent, Cancelled, Changed, Content, Sent
from agentls.core.blocks import TextBlock
from agentls.core.codec import decode
from agentls.core.errors import DecodeError
from agentls.core.ids import AgentId, MessageId, RequestId, user_block
from agentls.core.json import JsonObject
from agentls.core.shown import shown
from agentls.core.sources import FORMS, ContextForm, PluginSource
from agentls.lsp import encode, methods, wire
from agentls.lsp.binding import Request, request
from agentls.lsp.deeds import Deeds
from agentls.lsp.errors import InvalidParams, Overloaded
from agentls.lsp.ports import Client

PENDING_MAX = 1_000
"""Messages that may wait for an agent; one more is refused, and may be sent again when some have gone."""


class MessageHandlers:
    """One short function per request: decode, call the agent, encode."""

    def __init__(self, client: Client, deeds: Deeds) -> None:
        self._client = client
        self._deeds = deeds
        self._under_way: Counter[AgentId] = Counter()

    def table(self) -> Mapping[str, Request]:
        """Each by the name of its method."""
        return dict(
            (
                request(methods.SEND, self.send),
                request(methods.FOLLOWUP, self.followup),
                request(methods.STEER, self.steer),
                request(methods.INJECT, self.inject),
                request(methods.RETRY, self.retry),
                request(methods.EDIT, self.edit),
                request(methods.REMOVE, self.remove),
                request(methods.MOVE, self.move),
                request(methods.PROMOTE, self.promote),
                request(methods.RESUME, self.resume),
                request(methods.CANCEL, self.cancel),
                request(methods.ANSWER, self.answer),
            )
        )

    # Sending ---------------------------------------------------------------------------------------------------

    async def send(self, params: wire.SendParams) -> JsonObject:
        if params.target == "next-step" and not params.wakeup:
            problem = 'a quiet "next-step" message is a context; use agent/inject, which names its form'
            raise InvalidParams(methods.SEND.name, "wakeup", problem)
        agent = await self._deeds.agent(params.agent_id)
        message = self._room(agent, params)
        return await self._added(
            agent,
            agent.send(
                _content(params.content),
                id=message,
                target=params.target,
                wakeup=params.wakeup,
                meta=self._meta(),
            ),
        )

    async def followup(self, params: wire.FollowupParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        message = self._room(agent, params)
        return await self._added(agent, agent.followup(_content(params.content), id=message, meta=self._meta()))

    async def steer(self, params: wire.SteerParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        message = self._room(agent, params)
        return await self._added(
            agent,
            agent.steer(
                _content(params.content),
                id=message,
                meta=self._meta(),
                expected_turn=params.expected_turn,
                if_idle=params.if_idle,
            ),
        )

    async def inject(self, params: wire.InjectParams) -> JsonObject:
        source = PluginSource(plugin=self._client.producer, context=_form(params.context))
        agent = await self._deeds.agent(params.agent_id)
        content, message = _content(params.content), MessageId(params.message_id)
        return await self._sent(agent.inject(content, id=message, source=source))

    async def retry(self, params: wire.RetryParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._sent(agent.retry(params.turn, id=MessageId(params.message_id)))

    # What waits, and what runs ---------------------------------------------------------------------------------

    async def edit(self, params: wire.EditParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._outcome(agent.edit(MessageId(params.message_id), _content(params.content)))

    async def remove(self, params: wire.PendingParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._outcome(agent.remove(MessageId(params.message_id)))

    async def move(self, params: wire.MoveParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        before = MessageId(params.before) if params.before is not None else None
        return await self._outcome(agent.move(MessageId(params.message_id), before))

    async def promote(self, params: wire.PendingParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._outcome(agent.promote(MessageId(params.message_id)))

    async def resume(self, params: wire.AgentParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._outcome(agent.resume())

    async def cancel(self, params: wire.CancelParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        return await self._outcome(agent.cancel("user", keep_inbox=params.keep_inbox, turn=params.turn))

    async def answer(self, params: wire.AnswerParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        answering = agent.answer(
            RequestId(params.request_id),
            params.answer.decision,
            shown=params.shown,
            by=self._client.editor.client,
            note=params.answer.note,
            content=params.answer.content,
        )
        return encode.answered_json(await self._deeds.whole(answering))

    # Shared ----------------------------------------------------------------------------------------------------

    def _meta(self) -> JsonObject:
        """What is kept with a message: the editor that it was sent from."""
        return {"editor": self._client.workspace_editor.id}

    def _room(self, agent: Agent, params: wire.MessageParams) -> MessageId:
        """The id of a message that may wait for an agent; Overloaded for one too many. One that is known by its id adds
        nothing."""
        message = MessageId(params.message_id)
        waiting = agent.view.state.inbox if agent.view.state is not None else ()
        count = len(waiting) + self._under_way[agent.id]
        if count >= PENDING_MAX:
            known = any(one.message_id == message for one in waiting)
            if not known and agent.view.drawn(user_block(message)) is None:
                raise Overloaded(agent.id, count)
        return message

    async def _added(self, agent: Agent, sending: Coroutine[Any, Any, Sent]) -> JsonObject:
        # What many requests at once add is not in the state yet.
        self._under_way[agent.id] += 1
        try:
            return await self._sent(sending)
        finally:
            self._under_way[agent.id] -= 1

    async def _sent(self, sending: Coroutine[Any, Any, Sent]) -> JsonObject:
        return encode.sent_json(await self._deeds.whole(sending))

    async def _outcome(self, changing: Coroutine[Any, Any, Changed | Cancelled]) -> JsonObject:
        return encode.outcome_json(await self._deeds.whole(changing))


def _content(content: str | list[wire.TextContent]) -> Content:
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
