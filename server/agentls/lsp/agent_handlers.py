"""The requests about agents and what is drawn of them."""

from __future__ import annotations

from collections.abc import Mapping

from agentls.agent.host import Fork
from agentls.core.errors import UserError
from agentls.core.events import ModelRef
from agentls.core.ids import AgentId, BlockId
from agentls.core.json import JsonObject, JsonValue
from agentls.lsp import encode, methods, wire
from agentls.lsp.binding import Request, request
from agentls.lsp.deeds import Deeds
from agentls.lsp.drawing import Drawing
from agentls.lsp.errors import InvalidParams, NotAttached
from agentls.lsp.ports import Client, Host

PART_MAX = 1 << 20
"""UTF-8 bytes of a body in one answer."""


class AgentHandlers:
    """One short function per request: decode, call the host or the agent, encode."""

    def __init__(self, host: Host, client: Client, drawing: Drawing, deeds: Deeds) -> None:
        self._host = host
        self._client = client
        self._drawing = drawing
        self._deeds = deeds

    def table(self) -> Mapping[str, Request]:
        """Each by the name of its method."""
        return dict(
            (
                request(methods.LIST, self.list),
                request(methods.CREATE, self.create),
                request(methods.CONFIGURE, self.configure),
                request(methods.DELETE, self.delete),
                request(methods.MODELS, self.models),
                request(methods.ATTACH, self.attach),
                request(methods.DETACH, self.detach),
                request(methods.PAGE, self.page),
                request(methods.BLOCK, self.block),
            )
        )

    async def list(self, params: wire.ListParams) -> JsonObject:
        rows, following = await self._host.list(
            params.workspace_uri, query=params.query, cursor=params.cursor, limit=params.limit
        )
        result: dict[str, JsonValue] = {"agents": [encode.listed_json(row) for row in rows]}
        return result if following is None else {**result, "nextCursor": following}

    async def create(self, params: wire.CreateParams) -> JsonObject:
        begin = params.from_
        if params.model is not None:
            self._model(methods.CREATE, params.model)
        creating = self._host.create(
            params.workspace_uri,
            model=params.model,
            mode=params.mode,
            title=params.title,
            fork=Fork(AgentId(begin.agent_id), begin.turn) if begin is not None else None,
        )
        agent = await self._deeds.whole(creating)
        return encode.state_of(agent.view)

    async def configure(self, params: wire.ConfigureParams) -> JsonObject:
        model = self._model(methods.CONFIGURE, params.model) if params.model is not None else None
        agent = await self._deeds.agent(params.agent_id)
        await self._deeds.whole(agent.configure(model=model, mode=params.mode, title=params.title))
        return encode.state_of(agent.view)

    def _model(self, method: methods.Method[wire.Wire], named: str) -> ModelRef:
        try:
            return self._host.find_model(named)
        except UserError as error:
            raise InvalidParams(method.name, "model", str(error)) from error

    async def delete(self, params: wire.AgentParams) -> JsonObject:
        # Whoever draws it is told by its view.
        await self._deeds.whole(self._host.delete(AgentId(params.agent_id)))
        return {"outcome": "deleted"}

    async def models(self, _: wire.ModelsParams) -> JsonObject:
        return encode.models_json(self._host.models())

    # Drawing ---------------------------------------------------------------------------------------------------

    async def attach(self, params: wire.AttachParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        # From here to the return nothing is waited for, so that no frame falls between the answer and the outbox.
        caught, outbox = self._drawing.attach(agent, params.epoch, params.since)
        self._client.after_answer(lambda given: outbox.resume() if given else self._drawing.detach(agent.id))
        return encode.attach_json(agent.view, caught)

    async def detach(self, params: wire.AgentParams) -> JsonObject:
        agent_id = AgentId(params.agent_id)
        await self._deeds.passed(agent_id)
        if self._drawing.outbox(agent_id) is None:
            raise NotAttached(agent_id)
        self._drawing.detach(agent_id)
        return {}

    async def page(self, params: wire.PageParams) -> JsonObject:
        agent = await self._deeds.agent(params.agent_id)
        outbox = self._drawing.outbox(agent.id)
        if outbox is not None:
            # Else a change of one of these blocks could be told before the block itself, and be lost.
            outbox.pause()
            self._client.after_answer(lambda _: outbox.resume())
        return encode.page_json(await agent.page(params.before, params.limit))

    async def block(self, params: wire.BlockParams) -> JsonObject:
        start, block = params.from_, BlockId(params.id)
        end = start + PART_MAX if params.to is None else min(params.to, start + PART_MAX)
        if end < start:
            raise InvalidParams(methods.BLOCK.name, "to", f"expected a whole number from {start}, not {end}")
        agent = await self._deeds.agent(params.agent_id)
        return encode.part_json(block, await agent.block(block, start, end))
