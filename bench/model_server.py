"""A model that answers at a given speed and notes when: `python bench/model_server.py` prints its address.

It speaks OpenAI's chat completions. What it answers next is set by a line of JSON on standard input, which is
acknowledged by an empty line; after each answer it prints a line with the nanoseconds of the monotonic clock at which
the request had arrived and at which each token was handed to the system. Tokens are four characters each, so that a
client knows from what it shows which token that is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

TOKEN = 4
"""Characters of a token."""
_SLICE = 64
"""Tokens that a burst hands to the system at a time."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Script:
    """What is answered: so many tokens, so many a second (0: as fast as the system takes them)."""

    tokens: int
    pace: float = 0


@dataclass(frozen=True, slots=True)
class Record:
    """When a request was there, and when each token of its answer was written."""

    arrived: int
    written: list[int]
    request_bytes: int


class ModelServer:
    """The server in its process, from the side of who sets its answers."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self._process = process

    async def play(self, script: Script) -> None:
        """From now on answer so."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(script)).encode() + b"\n")
        assert await self._line() == b"\n"

    async def record(self) -> Record:
        """Of the next answer that has ended."""
        return Record(**json.loads(await self._line()))

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


@asynccontextmanager
async def model_server() -> AsyncIterator[ModelServer]:
    """A server of its own process, until the end of the block."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, stdin=pipe, stdout=pipe, limit=1 << 24)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ModelServer(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.stdin.close()
        await process.wait()


# The process ---------------------------------------------------------------------------------------------------


class _Server:
    def __init__(self) -> None:
        self.script = Script(0)
        delta = {"index": 0, "delta": {"content": "%s"}, "finish_reason": None}
        shared = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        before, after = json.dumps({**shared, "choices": [delta]}).split("%s")
        self._before, self._after = f"data: {before}".encode(), f"{after}\n\n".encode()
        end = {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001}
        last = {**shared, "choices": [], "usage": usage}
        self._end = b"".join(b"data: %s\n\n" % part for part in (json.dumps(end).encode(), json.dumps(last).encode()))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client leaves."""
        try:
            while head := await _head(reader):
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:")
                body = await reader.readexactly(length)
                arrived = time.monotonic_ns()
                written = await self._answer(writer)
                _say(json.dumps(asdict(Record(arrived, written, len(body)))))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> list[int]:
        script, written = self.script, []
        writer.write(_HEAD)
        began = time.monotonic()
        step = 1 if script.pace else _SLICE
        for first in range(0, script.tokens, step):
            numbers = range(first, min(first + step, script.tokens))
            data = b"".join(_chunk(self._before + b"%03x " % (n % 4096) + self._after) for n in numbers)
            if script.pace:
                # It keeps a pace, and waits for nothing.
                await asyncio.sleep(began + (first + 1) / script.pace - time.monotonic())
            written += [time.monotonic_ns()] * len(numbers)
            writer.write(data)
            await writer.drain()
        writer.write(_chunk(self._end) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        return written


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main() -> None:
    """Serve until standard input ends."""
    server = _Server()
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    _say(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1")
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        server.script = Script(**json.loads(line))
        _say("")


if __name__ == "__main__":
    asyncio.run(main())
