"""A model server on loopback that plays bytes: it stops, closes and breaks off where a test says, and sees its clients.

    async with ModelServer() as server:
        server.script(Answer((content("Hel"), gate, content("lo"), finish(), DONE)))
        ...                                # ask `server.url`
        exchange = await server.exchange(0)

Answers are given in the order of the requests; a request beyond the last one gets status 400, which nobody tries again.
A piece is bytes to send, an `asyncio.Event` to wait for, `KILL` (the connection is reset), `CUT` (it ends in the middle
of the body) or `SILENCE` (nothing more until the client goes away).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self, cast

from agentls.core.json import JsonObject, JsonValue


class Act(enum.Enum):
    """What a server can do in place of sending."""

    KILL = "kill"
    CUT = "cut"
    SILENCE = "silence"


KILL, CUT, SILENCE = Act.KILL, Act.CUT, Act.SILENCE

Piece = bytes | asyncio.Event | Act


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. `chunked` bodies end properly after the last piece, `close` ones by closing the connection."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    framing: Literal["chunked", "close"] = "chunked"
    before: Piece | None = None
    """Taken before the status line."""


def event(payload: JsonObject | str) -> bytes:
    """One event of a stream."""
    return f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()


DONE = event("[DONE]")


def delta(fields: JsonObject, reason: str | None = None) -> bytes:
    """A chunk of a completion."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]})


def content(text: str) -> bytes:
    """A chunk with a piece of the answer."""
    return delta({"content": text})


def finish(reason: str = "stop") -> bytes:
    """The chunk that says why the model stopped."""
    return delta({}, reason)


def usage(prompt: int, completion: int) -> bytes:
    """The chunk that follows it where usage was asked for."""
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def error_body(status: int, message: str, *, type: str = "error", headers: Mapping[str, str] | None = None) -> Answer:
    """A refusal as OpenAI's servers write it."""
    body = json.dumps({"error": {"message": message, "type": type, "code": status}}).encode()
    return Answer((body,), status, {"content-type": "application/json", **(headers or {})})


def reply(text: str) -> Answer:
    """A whole good answer."""
    words = [content(word) for word in text.split(" ")] if " " not in text else [content(text)]
    return Answer((*words, finish(), usage(10, 5), DONE))


def calls(*made: tuple[str, JsonObject | str], before: Piece | None = None) -> Answer:
    """An answer that calls tools: names and arguments, which are sent as they are where they are a text."""
    pieces = [
        delta(
            {"tool_calls": [{"index": n, "id": f"call-{n}", "function": {"name": name, "arguments": _raw(arguments)}}]}
        )
        for n, (name, arguments) in enumerate(made)
    ]
    return Answer((*pieces, finish("tool_calls"), usage(10, 5), DONE), before=before)


def _raw(arguments: JsonObject | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


@dataclass(slots=True)
class Exchange:
    """One request, and what became of its connection."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    gone: asyncio.Event
    """Set when the client has closed the connection."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when every piece of the answer has been taken."""

    def json(self) -> Mapping[str, JsonValue]:
        """The request's body."""
        return cast(Mapping[str, JsonValue], json.loads(self.body))


class ModelServer:
    """The server; `url` is the base URL for a row."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self._answers: list[Answer] = []
        self._served = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *answers: Answer) -> None:
        """Add the answers to the next requests."""
        self._answers += answers

    async def exchange(self, number: int) -> Exchange:
        """The request with that number, from 0, as soon as it is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection; `start` by entering again keeps the port."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        client = _Client(reader)
        pump = asyncio.create_task(client.pump())
        try:
            while (request := await client.request()) is not None:
                head, body = request
                method, path, headers = _parse_head(head)
                exchange = Exchange(method, path, headers, body, number, client.gone)
                async with self._changed:
                    self.exchanges.append(exchange)
                    self._changed.notify_all()
                answer = self._next_answer()
                with contextlib.suppress(ConnectionError):
                    if not await _play(answer, exchange, writer):
                        return
                exchange.sent.set()
                if answer.framing == "close":
                    return
        finally:
            pump.cancel()
            writer.close()

    def _next_answer(self) -> Answer:
        number, self._served = self._served, self._served + 1
        if number < len(self._answers):
            return self._answers[number]
        return error_body(400, "the test has no answer for this request")


class _Client:
    """The bytes that a client sends; `gone` is set at once when it closes, also in the middle of an answer."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = b""
        self._more = asyncio.Event()
        self.gone = asyncio.Event()

    async def pump(self) -> None:
        try:
            while data := await self._reader.read(65536):
                self._buffer += data
                self._more.set()
        except ConnectionError:
            pass
        self.gone.set()
        self._more.set()

    async def request(self) -> tuple[bytes, bytes] | None:
        while True:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if end:
                size = int(_parse_head(head)[2].get("content-length", "0"))
                if len(rest) >= size:
                    self._buffer = rest[size:]
                    return head, rest[:size]
            if self.gone.is_set():
                return None
            self._more.clear()
            await self._more.wait()


async def _play(answer: Answer, exchange: Exchange, writer: asyncio.StreamWriter) -> bool:
    """Send an answer; False when the connection is of no use any more."""
    head = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {value}" for name, value in answer.headers.items())]
    head.append("transfer-encoding: chunked" if answer.framing == "chunked" else "connection: close")
    start = ("\r\n".join(head) + "\r\n\r\n").encode()
    pieces = [*([] if answer.before is None else [answer.before]), start, *answer.pieces]
    for piece in pieces:
        if isinstance(piece, asyncio.Event):
            await _either(piece, exchange.gone)
        elif piece is SILENCE:
            await exchange.gone.wait()
        elif piece is KILL:
            # Linger of zero seconds: the client gets a reset, as from a process that was killed.
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            exchange.sent.set()
            return False
        elif piece is CUT:
            exchange.sent.set()
            return False
        elif isinstance(piece, bytes):
            framed = answer.framing == "chunked" and piece is not start
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece)
            await writer.drain()
        if exchange.gone.is_set():
            exchange.sent.set()
            return False
    if answer.framing == "chunked":
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return True


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _parse_head(head: bytes) -> tuple[str, str, Mapping[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    return method, path, {name.strip().lower(): value.strip() for name, value in pairs}
