"""A client of the soak: it takes all that a server wrote before it died, and draws it by the letter of the protocol."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, cast

import orjson

from agentls.core.json import JsonObject
from agentls.lsp.framing import Framer, framed
from tests.processes import INITIALIZE
from tests.reducer import Broken, Reducer

SECONDS = 120.0
"""How long an answer may take before the soak has failed, on a machine that has much else to do."""
PAGE = 500


class Lost(Exception):
    """The server went away before it answered."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, method: str, error: Mapping[str, Any]) -> None:
        self.code = int(error["code"])
        super().__init__(f"{method} was answered by the error {self.code}: {error['message']}")


class Client:
    """One connection. `told` is called with each message that arrives, in order, before anything else comes of it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Callable[[JsonObject], None]
    ) -> None:
        self.drawn: dict[str, Reducer] = {}
        self.broken: list[str] = []
        """Rules of the protocol that the server broke."""
        self.inboxes: dict[str, list[tuple[JsonObject, ...]]] = {}
        """What each agent's states have said of its inbox, in order."""
        self._reader = reader
        self._writer = writer
        self._told = told
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[JsonObject]] = {}
        self._attaching: dict[int, str] = {}
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connected(cls, path: Path, told: Callable[[JsonObject], None]) -> Self:
        """A connection to a server's socket that has said hello."""
        reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
        client = cls(reader, writer, told)
        await client.ask("initialize", **INITIALIZE)
        client._write({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        return client

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of a request; Refused for an error, Lost when none comes any more."""
        return cast(dict[str, Any], await self._ask(next(self._ids), method, params))

    async def attach(self, agent: str) -> None:
        """Draw an agent, with all of its older blocks."""
        reducer = self.drawn[agent] = Reducer()
        reducer.expect_attach()
        number = next(self._ids)
        self._attaching[number] = agent
        await self._ask(number, "agent/attach", {"agentId": agent})
        while reducer.before is not None:
            reducer.paged(await self.ask("agent/page", agentId=agent, before=list(reducer.before), limit=PAGE))

    def state(self, agent: str) -> dict[str, Any]:
        """The newest state of an agent."""
        return cast(dict[str, Any], self.drawn[agent].state)

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Wait until `holds()`; Lost when the server has gone, AssertionError with `what` when it takes too long."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    if self._reading.done():
                        raise Lost(what)
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"waited {seconds:.0f} s in vain until {what}") from None

    @property
    def is_gone(self) -> bool:
        """Whether the server is gone, and all that it wrote is taken."""
        return self._reading.done()

    async def gone(self) -> None:
        """Take what the server has still written, to its end."""
        async with asyncio.timeout(SECONDS):
            await self._reading
        self._writer.close()

    async def _ask(self, number: int, method: str, params: Mapping[str, Any]) -> JsonObject:
        if self._reading.done():
            raise Lost(method)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with asyncio.timeout(SECONDS):
            raw = await answer
        if "error" in raw:
            raise Refused(method, cast(Mapping[str, Any], raw["error"]))
        return cast(JsonObject, raw["result"])

    def _write(self, message: Mapping[str, Any]) -> None:
        self._writer.write(framed(orjson.dumps(message)))

    async def _read(self) -> None:
        framer = Framer()
        try:
            while data := await self._reader.read(1 << 20):
                framer.feed(data)
                while (body := framer.next()) is not None:
                    if not isinstance(body, bytes):
                        self.broken.append(f"what the server wrote is no message: {body}")
                        return
                    self._take(orjson.loads(body))
        except ConnectionError:
            pass  # The server died with something of ours unread.
        finally:
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(Lost("the server went away"))
                    answer.exception()  # Nobody may be waiting for it.
            self._tell()

    def _take(self, message: JsonObject) -> None:
        self._told(message)
        try:
            if "method" in message:
                self._notified(cast(str, message["method"]), cast(JsonObject, message.get("params") or {}))
            else:
                self._answered(message)
        except Broken as broken:
            self.broken.append(str(broken))
        self._tell()

    def _notified(self, method: str, params: JsonObject) -> None:
        if method in ("agent/blocks", "agent/state"):
            agent = cast(str, params["agentId"])
            self.drawn[agent].notified(method, params)
            if method == "agent/state":
                self._note(agent)

    def _answered(self, message: JsonObject) -> None:
        number = cast(int, message["id"])
        agent = self._attaching.pop(number, None)
        # In the step in which it arrives, since the frames that follow it rest on it.
        if agent is not None and "result" in message:
            self.drawn[agent].attached(cast(JsonObject, message["result"]))
            self._note(agent)
        answer = self._asked.pop(number)
        if not answer.done():
            answer.set_result(message)

    def _note(self, agent: str) -> None:
        inbox = tuple(cast(list[JsonObject], self.drawn[agent].state["inbox"]))
        self.inboxes.setdefault(agent, []).append(inbox)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
