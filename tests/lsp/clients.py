"""A client of the edge in the test's own loop, over a real socket pair."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import orjson

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.framing import Framer, framed
from agentls.lsp.server import AgentServer, Hub
from agentls.lsp.transport import StreamSink, StreamSource, Writer
from tests.reducer import Reducer

AGENT: JsonObject = {"version": 1, "client": {"name": "tester", "version": "1.0"}}


class Failed(Exception):
    """An error answer."""

    def __init__(self, error: JsonObject) -> None:
        self.code = cast(int, error["code"])
        self.message = cast(str, error["message"])
        self.data = cast(JsonObject, error.get("data") or {})
        super().__init__(f"{self.code} {self.message}")


class Client:
    """Sends what a test wants and sorts what comes back; notifications go to the reducer of their agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.reducers: dict[str, Reducer] = {}
        self.answers: dict[JsonValue, asyncio.Future[JsonValue]] = {}
        self.orphans: list[JsonObject] = []
        self.requests: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.notices: list[tuple[str, JsonObject]] = []
        self.received = 0
        self.changed = asyncio.Condition()
        self.ended = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self._ids = itertools.count(1)
        self._drawing: dict[JsonValue, Callable[[JsonObject], None]] = {}
        self._task = asyncio.create_task(self._read())

    # Sending ---------------------------------------------------------------------------------------------------

    def send(self, message: JsonValue) -> None:
        self.send_bytes(framed(orjson.dumps(message)))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def notify(self, method: str, params: JsonValue = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def expect(self, id: JsonValue) -> asyncio.Future[JsonValue]:
        """The answer to a request that the test writes itself."""
        answer = self.answers[id] = asyncio.get_running_loop().create_future()
        return answer

    def ask(self, method: str, params: JsonValue = None, *, id: JsonValue = None) -> asyncio.Future[JsonValue]:
        """Send a request; the future of its result, or of Failed."""
        msg_id = next(self._ids) if id is None else id
        answer = self.expect(msg_id)
        if method in ("agent/attach", "agent/page"):
            agent_id = cast(JsonObject, params).get("agentId")
            reducer = self.reducers.setdefault(agent_id, Reducer()) if isinstance(agent_id, str) else Reducer()
            if method == "agent/attach":
                reducer.expect_attach()
            # Where the answer stands among the frames counts, so it is not left to who waits for it.
            self._drawing[msg_id] = reducer.attached if method == "agent/attach" else reducer.paged
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return answer

    async def call(self, method: str, params: JsonValue = None) -> JsonObject:
        """The result of a request; Failed for an error."""
        return cast(JsonObject, await asyncio.wait_for(self.ask(method, params), 20))

    async def refusal(self, method: str, params: JsonValue = None) -> Failed:
        """The error of a request, which must have one."""
        try:
            result = await self.call(method, params)
        except Failed as failed:
            return failed
        raise AssertionError(f"{method} was answered with {result}")

    async def start(self, agent: JsonValue = AGENT, **capabilities: JsonValue) -> JsonObject:
        """Initialize."""
        experimental: JsonObject = {} if agent is None else {"experimental": {"agent": agent}}
        result = await self.call(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": "plain", "version": "0"},
                "capabilities": {**capabilities, **experimental},
            },
        )
        self.notify("initialized", {})
        return result

    def told(self, method: str) -> list[JsonObject]:
        """The notifications of a method beside blocks and states, in order."""
        return [params for name, params in self.notices if name == method]

    async def attach(self, agent_id: str = "one", *, since: bool = False) -> Reducer:
        """Attach, with what is held when `since`; the reducer of the agent."""
        known = self.reducers.get(agent_id)
        held: JsonObject = {}
        if since and known is not None:
            held = {"epoch": known.epoch, "since": known.rev}
        await self.call("agent/attach", {"agentId": agent_id, **held})
        return self.reducers[agent_id]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds` is true; it is looked at after each message."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(holds)

    async def heard(self) -> None:
        """Return when the server has taken all that was sent before."""
        await self.refusal("agent/none")

    async def settled(self) -> None:
        """Return when what the server had to do and to ask after that has come, too."""
        for _ in range(3):
            await self.call("agent/list")

    async def close(self) -> None:
        self.writer.close()
        self._task.cancel()
        await asyncio.wait([self._task])

    def vanish(self) -> None:
        """End without a word, as a killed process does."""
        self.writer.transport.abort()

    # Receiving -------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        framer = Framer(1 << 30)
        try:
            while data := await self.reader.read(1 << 16):
                framer.feed(data)
                while (item := framer.next()) is not None:
                    assert isinstance(item, bytes), item
                    self._take(orjson.loads(item))
                    async with self.changed:
                        self.changed.notify_all()
                await self.reading.wait()
        except ConnectionError:
            pass
        finally:
            self.ended.set()
            for answer in self.answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the server is gone"))
                    answer.exception()

    def _take(self, message: JsonObject) -> None:
        self.received += 1
        assert message["jsonrpc"] == "2.0"
        if "method" in message and "id" in message:
            self.requests.put_nowait(message)
        elif "method" in message:
            method, params = cast(str, message["method"]), cast(JsonObject, message["params"])
            if method not in ("agent/blocks", "agent/state"):
                self.notices.append((method, params))
                return
            reducer = self.reducers.setdefault(cast(str, params["agentId"]), Reducer())
            reducer.notified(method, params)
        elif message["id"] in self.answers:
            self._settle(message)
        else:
            self.orphans.append(message)

    def _settle(self, message: JsonObject) -> None:
        draw = self._drawing.pop(message["id"], None)
        if draw is not None and "result" in message:
            draw(cast(JsonObject, message["result"]))
        answer = self.answers.pop(message["id"])
        if "error" in message:
            answer.set_exception(Failed(cast(JsonObject, message["error"])))
            answer.exception()
        else:
            answer.set_result(message["result"])


class Served:
    """A hub with its connections."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.clients: list[Client] = []
        self.servers: list[AgentServer] = []
        self.runs: list[asyncio.Task[int]] = []

    async def connect(
        self, *, stall: float = 30.0, backlog: int = 1 << 26, buffer: int | None = None, watches_parent: bool = False
    ) -> Client:
        """A new client; `buffer` bounds what the system keeps between the two."""
        ours, theirs = socket.socketpair()
        if buffer is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        reader, writer = await asyncio.open_connection(sock=ours)
        sink = Writer(StreamSink(writer), stall=stall, backlog=backlog)
        server = AgentServer(self.hub, StreamSource(reader), sink, watches_parent=watches_parent)
        self.servers.append(server)
        self.runs.append(asyncio.create_task(server.run()))
        client = Client(*await asyncio.open_connection(sock=theirs, limit=1 << 16))
        self.clients.append(client)
        return client

    async def started(self) -> Client:
        """A new client that has initialized."""
        client = await self.connect()
        await client.start()
        return client


@asynccontextmanager
async def serving(hub: Hub) -> AsyncIterator[Served]:
    """Serve in this loop; at the end every connection has ended."""
    served = Served(hub)
    try:
        yield served
    finally:
        for client in served.clients:
            await client.close()
        if served.runs:
            await asyncio.wait_for(asyncio.gather(*served.runs), 20)
