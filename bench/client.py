"""A client that notes when each text of a reply is there, and what its server's process costs."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

COMMAND = (sys.executable, "-P", "-m", "agentls", "serve")
MIB = 1024 * 1024


@dataclass(slots=True)
class Turn:
    """What was seen of one turn: when how many characters of the reply were shown, and what came for it."""

    sent: int
    marks: list[tuple[int, int]] = field(default_factory=list)
    frames: int = 0
    received: int = 0

    def delays(self, written: Sequence[int], token: int) -> list[float]:
        """Milliseconds from when each token was written until it was shown, in order of size."""
        marks, at, found = self.marks, 0, []
        for number, when in enumerate(written, 1):
            while marks[at][1] < number * token:
                at += 1
            found.append((marks[at][0] - when) / 1e6)
        return sorted(found)


class Client:
    """One editor on the standard streams of a server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._bodies: dict[str, int] = {}
        self._turn: Turn | None = None
        self._state: dict[str, Any] = {}
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        number = len(self._asked) + 1
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return await answer

    async def hello(self) -> None:
        """Initialize as a client of the extension."""
        await self.ask(
            "initialize", processId=None, rootUri=None, capabilities={"experimental": {"agent": {"version": 1}}}
        )
        self._write({"jsonrpc": "2.0", "method": "initialized", "params": {}})

    async def create(self, workspace: Path) -> str:
        """A new agent, attached."""
        agent: str = (await self.ask("agent/create", workspaceUri=workspace.as_uri()))["agentId"]
        await self.ask("agent/attach", agentId=agent)
        return agent

    async def turn(self, agent: str, text: str) -> Turn:
        """Send a prompt, and wait until the agent is idle again."""
        turns = (self._state.get("lastTurn") or {}).get("number", 0)
        self._turn = turn = Turn(time.monotonic_ns())
        content = [{"type": "text", "text": text}]
        await self.ask("agent/followup", agentId=agent, messageId=str(uuid.uuid4()), content=content)
        while self._state.get("status") != "idle" or (self._state.get("lastTurn") or {}).get("number", 0) == turns:
            self._news.clear()
            await self._news.wait()
        self._turn = None
        return turn

    def _write(self, message: object) -> None:
        assert self.process.stdin is not None
        body = orjson.dumps(message)
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def _read(self) -> None:
        assert self.process.stdout is not None
        held = b""
        while data := await self.process.stdout.read(MIB):
            now = time.monotonic_ns()
            if self._turn is not None:
                self._turn.received += len(data)
            held += data
            while (end := held.find(b"\r\n\r\n")) >= 0:
                length = int(held[:end].split(b":")[1])
                if len(held) < end + 4 + length:
                    break
                self._take(orjson.loads(held[end + 4 : end + 4 + length]), now)
                held = held[end + 4 + length :]
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the server ended"))

    def _take(self, message: Any, now: int) -> None:
        method = message.get("method")
        if method is None:
            answer = self._asked[message["id"]]
            if "error" in message:
                answer.set_exception(RuntimeError(message["error"]["message"]))
            else:
                answer.set_result(message["result"])
        elif method == "agent/blocks":
            if self._turn is not None:
                self._turn.frames += 1
                if self._show(message["params"]["ops"]):
                    self._turn.marks.append((now, sum(self._bodies.values())))
        elif method == "agent/state":
            self._state = message["params"]
            if self._state["status"] == "idle":
                self._bodies.clear()
            self._news.set()

    def _show(self, ops: list[Any]) -> bool:
        """Take ops; whether a reply has grown."""
        grown = False
        for op in ops:
            if op["op"] == "append" and op["id"] in self._bodies:
                self._bodies[op["id"]] += len(op["text"])
                grown = True
            elif op["op"] == "put" and op["block"]["kind"] == "assistant" and "body" in op["block"]:
                self._bodies[op["block"]["id"]] = len(op["block"]["body"])
                grown = True
        return grown


@asynccontextmanager
async def client(state: Path, *options: str) -> AsyncIterator[Client]:
    """A client of a server of its own process, until the end of the block."""
    pipe = asyncio.subprocess.PIPE
    command = (*COMMAND, "--state-dir", str(state), *options)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=MIB)
    assert process.stdin is not None
    try:
        one = Client(process)
        await one.hello()
        yield one
    finally:
        process.stdin.close()
        await process.wait()


def cpu(pid: int) -> float:
    """Seconds that all threads of a process have run."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def memory(pid: int) -> tuple[float, float]:
    """Resident memory in MiB, now and at its highest."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(facts["VmRSS"].split()[0]) / 1024, int(facts["VmHWM"].split()[0]) / 1024
