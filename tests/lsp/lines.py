"""One client of an outbox behind a valve that a test opens and shuts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import orjson

from agentls.agent.view import Drawn, PutOp
from agentls.core.json import JsonObject, JsonValue
from agentls.core.rows import Block
from agentls.lsp import encode
from agentls.lsp.framing import Framer, framed
from agentls.lsp.outbox import Outbox, Outboxes
from agentls.lsp.transport import Writer
from tests.lsp.doubles import FakeAgent
from tests.reducer import Reducer


class Valve:
    """A sink that takes everything while it is open and keeps it while it is not."""

    def __init__(self) -> None:
        self.taken = bytearray()
        self.kept = bytearray()
        self.open = asyncio.Event()
        self.open.set()
        self.aborted = False
        self._closed = asyncio.Event()

    def release(self) -> None:
        """Open: what is kept leaves at once, before anyone who waits for that can hear of it."""
        self.taken += self.kept
        self.kept.clear()
        self.open.set()

    def write(self, data: bytes) -> None:
        (self.taken if self.open.is_set() and not self.kept else self.kept).extend(data)

    def waiting(self) -> int:
        return len(self.kept)

    async def drain(self) -> None:
        await self.open.wait()
        self.taken += self.kept
        self.kept.clear()

    async def lost(self) -> None:
        await self._closed.wait()

    def close(self) -> None:
        self._closed.set()

    def abort(self) -> None:
        self.aborted = True
        self.kept.clear()
        self._closed.set()


def expected(agent: FakeAgent) -> dict[str, JsonObject]:
    """The blocks of a view as a client should hold them."""
    return {drawn.block.id: _held(drawn) for drawn in _all(agent)}


def _all(agent: FakeAgent) -> list[Drawn]:
    return list(agent.view.page((1 << 60, 0), 1 << 30)[0])


def _held(drawn: Drawn) -> JsonObject:
    reducer = Reducer()
    reducer.rev = drawn.rev
    whole = orjson.loads(orjson.dumps(encode.ops_json([PutOp(replace(drawn, cleared=frozenset()))])))
    reducer.paged({"ops": whole})
    return _plain(reducer)[drawn.block.id]


def _plain(reducer: Reducer) -> dict[str, JsonObject]:
    return {name: {k: v for k, v in shown.items() if k != "rev"} for name, shown in reducer.blocks.items()}


def assert_same(reducer: Reducer, agent: FakeAgent) -> None:
    assert _plain(reducer) == expected(agent)
    assert agent.view.state is not None
    assert reducer.state["title"] == agent.view.state.title


class Line:
    """One client behind a valve: outboxes, and a reducer of what got through."""

    def __init__(self, agent: FakeAgent) -> None:
        self.agent = agent
        self.reducer = Reducer()
        self.notices: list[JsonObject] = []
        self.connect()

    def connect(self) -> None:
        self.valve = Valve()
        self.writer = Writer(self.valve)
        self.outboxes = Outboxes(self.writer)
        self.framer = Framer()
        self.answered: list[Callable[[], None]] = []

    def ask_attach(self, *, since: bool) -> None:
        """Attach; the answer is made now and queued by `answer`."""
        held = (self.reducer.epoch, self.reducer.rev) if since else (None, None)
        self.reducer.expect_attach()
        caught, outbox = self.outboxes.attach(self.agent, *held)
        message = _message({"attach": encode.attach_json(self.agent.view, caught)})
        self.answered.append(lambda: self._answer(message, outbox))

    def ask_page(self) -> None:
        """Ask for older blocks; as the handler does, the outbox waits for the answer."""
        outbox, before = self.outboxes.of(self.agent.id), self.reducer.before
        if outbox is None or before is None:
            return
        outbox.pause()
        blocks, more = self.agent.view.page(before, 7)
        page = {"ops": encode.ops_json(map(PutOp, blocks)), "before": blocks[0].block.order if more else None}
        message = _message({"page": page})
        self.answered.append(lambda: self._answer(message, outbox))

    def _answer(self, message: bytes, outbox: Outbox) -> None:
        self.writer.write(message)
        outbox.resume()

    def answer(self) -> None:
        answers, self.answered = self.answered, []
        for queue in answers:
            queue()

    def receive(self) -> None:
        self.framer.feed(bytes(self.valve.taken))
        self.valve.taken.clear()
        while isinstance(body := self.framer.next(), bytes):
            message = orjson.loads(body)
            if "attach" in message:
                self.reducer.attached(message["attach"])
            elif "page" in message:
                self.reducer.paged(message["page"])
            elif message["method"] in ("agent/blocks", "agent/state"):
                self.reducer.notified(message["method"], message["params"])
            else:
                self._notice(message)

    def _notice(self, message: JsonObject) -> None:
        params = cast(JsonObject, message["params"])
        self.notices.append({"method": message["method"], **params})
        if message["method"] == "agent/context" and self.reducer.rev is not None:
            assert self.reducer.rev == params["rev"], "a context is told right after the frame that brought it"
            assert params["blockId"] in self.reducer.blocks

    async def settle(self) -> None:
        """Let the pump come to rest and take what got through."""
        for _ in range(8):
            await asyncio.sleep(0)
        self.receive()

    async def end(self) -> None:
        self.outboxes.close()
        self.valve.open.set()
        await self.writer.close()


async def attached(*blocks: Block) -> tuple[FakeAgent, Line]:
    """An agent with those blocks, and a client that draws it."""
    agent = FakeAgent(blocks=blocks)
    line = Line(agent)
    line.ask_attach(since=False)
    line.answer()
    await line.settle()
    return agent, line


def _message(value: JsonValue) -> bytes:
    return framed(orjson.dumps(value))
