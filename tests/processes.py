"""Server processes for tests: started, talked to with plain pipes, and never left behind."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import orjson

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.framing import Framer, framed

REPOSITORY = Path(__file__).resolve().parents[1]
SECONDS = 30

INITIALIZE: JsonObject = {"processId": None, "capabilities": {"experimental": {"agent": {"version": 1}}}}


def message(method: str, params: JsonValue = None, *, id: JsonValue = None) -> bytes:
    """A request, or a notification where it has no id."""
    head: JsonObject = {"jsonrpc": "2.0", "method": method, "params": params}
    return framed(orjson.dumps(head if id is None else {**head, "id": id}))


def agentls(*arguments: str) -> list[str]:
    """The command of the real program."""
    return [sys.executable, "-P", "-m", "agentls", *arguments]


def environment() -> dict[str, str]:
    """Where a child finds our packages."""
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(REPOSITORY / "server"), str(REPOSITORY)))}


@contextmanager
def started(
    command: Sequence[str], *, stdin: int = subprocess.PIPE, stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end if it still runs."""
    process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


class Talk:
    """Frames to and from a process or a socket; whatever is no frame fails."""

    def __init__(self, out: IO[bytes] | socket.socket, into: IO[bytes] | socket.socket) -> None:
        self._out = out.fileno()
        self._in = into.fileno()
        self._framer = Framer()

    @classmethod
    def to(cls, process: subprocess.Popen[bytes]) -> Talk:
        assert process.stdin is not None
        assert process.stdout is not None
        return cls(process.stdin, process.stdout)

    def send(self, *messages: bytes) -> None:
        data = memoryview(b"".join(messages))
        while data:
            data = data[os.write(self._out, data) :]

    def read(self) -> JsonObject | None:
        """The next message; None at the end."""
        while (item := self._framer.next()) is None:
            ready, _, _ = select.select([self._in], [], [], SECONDS)
            assert ready, "the server says nothing"
            data = os.read(self._in, 1 << 16)
            if not data:
                assert not self._framer.inside
                return None
            self._framer.feed(data)
        assert isinstance(item, bytes), item
        return cast(JsonObject, orjson.loads(item))

    def call(self, method: str, params: JsonValue = None) -> JsonObject:
        """The answer to a request; notifications before it are passed over."""
        self.send(message(method, params, id="call"))
        return self.answer("call")

    def answer(self, id: JsonValue) -> JsonObject:
        """The next answer under this id, which is null where the server could not tell whose it is."""
        while True:
            answer = self.read()
            assert answer is not None, "the server has left"
            if "method" not in answer and answer["id"] == id:
                return answer

    def initialize(self) -> None:
        assert "result" in self.call("initialize", INITIALIZE)
        self.send(message("initialized", {}))


def wait_gone(pid: int) -> None:
    """Wait until process `pid` has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([fd], [], [], SECONDS)
        assert ready, f"process {pid} is still there"
    finally:
        os.close(fd)
