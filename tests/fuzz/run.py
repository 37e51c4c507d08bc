"""Throw random bytes and random messages at a real server: `python -m tests.fuzz.run [--seconds N] [--seed S]`.

Connections come and go on its socket. Some write noise; some say hello and send random requests and notifications.
All the while a witness of its own asks for the list of agents. What has to hold: the process lives, every request has
exactly one answer, the witness is answered in time, and at the end, with all agents deleted that were made, the memory
is where it was after the first rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.values import METHODS, OTHERS, Values, dumped, framed, noise

COMMAND = (sys.executable, "-P", "-m", "agentls", "serve", "--model", "demo/demo", "--log-level", "error")
ANSWERED_WITHIN = 30.0
"""Seconds, on a busy machine; nothing takes that long when all is well."""
REQUESTS = 30
"""Of a connection that speaks."""
WARM = 0.3
"""Share of the time after which the memory is taken as its base."""
GROWTH_MAX = 24.0
"""MiB that may be more at the end than at the base: what an allocator keeps."""
HELLO = {"processId": None, "rootUri": None, "capabilities": {"experimental": {"agent": {"version": 1}}}}


class Broken(Exception):
    """What has to hold does not."""


class Line:
    """One connection: what was asked on it and what was answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.answers: Counter[int | str] = Counter()
        self.results: dict[int | str, Any] = {}
        self.asked: dict[int | str, str] = {}
        self.closed = False
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read(reader))

    def send(self, data: bytes) -> None:
        """Write bytes, whatever they are."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def ask(self, number: int | str, method: Any, params: Any) -> None:
        """Send a request."""
        self.asked[number] = f"{method} {str(params)[:300]}"
        self.send(framed(dumped({"jsonrpc": "2.0", "id": number, "method": method, "params": params})))

    async def until_answered(self, numbers: set[int | str]) -> None:
        """Wait until all of these have an answer; Broken where one has none in time."""
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                while not numbers <= self.answers.keys():
                    if self.closed:
                        raise Broken(f"the connection ended before it had an answer to\n{self._missing(numbers)}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Broken(f"no answer in {ANSWERED_WITHIN:g} s to\n{self._missing(numbers)}") from None

    def _missing(self, numbers: set[int | str]) -> str:
        return "\n".join(ascii(self.asked[number]) for number in numbers - self.answers.keys())

    async def read_up(self) -> None:
        """Wait until the server has taken all that was sent, or has ended the connection."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        """Leave."""
        self._writer.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
                self._take(json.loads(await reader.readexactly(length)))
                self._news.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed = True
            self._news.set()

    def _take(self, message: Any) -> None:
        if "method" in message:
            return
        number = message["id"]
        if number is not None:
            self.answers[number] += 1
            self.results[number] = message.get("result")


class Fuzz:
    """One server, and what is thrown at it."""

    def __init__(self, pid: int, socket: Path, work: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._pid = pid
        self._socket = socket
        self._values = Values(seed, [])
        self._work = work
        self._numbers = itertools.count(1)

    @property
    def _random(self) -> random.Random:
        return self._values.random

    async def open(self) -> Line:
        """A new connection."""
        return Line(*await asyncio.open_unix_connection(self._socket))

    async def hello(self) -> Line:
        """A new connection of a client that knows the extension."""
        line = await self.open()
        await self.answer(line, "initialize", HELLO)
        return line

    async def answer(self, line: Line, method: str, params: Any) -> Any:
        """The result of one request, or None for an error."""
        number = next(self._numbers)
        line.ask(number, method, params)
        await line.until_answered({number})
        return line.results[number]

    async def run(self, seconds: float) -> None:
        """Go on for so long; Broken as soon as something does not hold."""
        began, base = time.monotonic(), 0.0
        witness = await self.hello()
        while (passed := time.monotonic() - began) < seconds:
            if not base and passed > WARM * seconds:
                await self._clear(witness)
                base = memory(self._pid)
            await (self._noise() if self._random.random() < 0.4 else self._speak(witness))
            if not isinstance(await self.answer(witness, "agent/list", {}), dict):
                raise Broken("the witness was refused the list of agents")
            self.counts["witness"] += 1
        await self._clear(witness)
        grown = memory(self._pid) - base
        self.counts["MiB at the base"], self.counts["MiB more at the end"] = round(base), round(grown)
        if grown > GROWTH_MAX:
            raise Broken(f"the memory grew by {grown:.1f} MiB from {base:.1f} MiB")
        await witness.close()

    async def _noise(self) -> None:
        line = await (self.hello() if self._random.random() < 0.5 else self.open())
        good = framed(dumped({"jsonrpc": "2.0", "id": next(self._numbers), "method": "agent/list", "params": {}}))
        for _ in range(self._random.randint(1, 5)):
            line.send(noise(self._random, good))
        self.counts["connections of noise"] += 1
        # Half of them leave at once, the others when the server has read it all or ended the connection.
        if self._random.random() < 0.5:
            await line.read_up()
        await line.close()

    async def _speak(self, witness: Line) -> None:
        """A client that says hello, has an agent, and then asks at random."""
        line = await self.hello()
        created = await self.answer(line, "agent/create", {"workspaceUri": self._work.as_uri()})
        if not isinstance(created, dict):
            raise Broken("an agent was not made")
        agent = created["agentId"]
        await self.answer(line, "agent/attach", {"agentId": agent})
        self._values.known[:] = [agent, agent, agent, agent, f"m{next(self._numbers)}", self._work.as_uri()]
        asked: set[int | str] = set()
        for _ in range(REQUESTS):
            method = self._random.choice(METHODS if self._random.random() < 0.85 else OTHERS)
            params = self._values.params(method)
            if self._random.random() < 0.1:
                line.send(framed(dumped({"jsonrpc": "2.0", "method": method, "params": params})))
                self.counts["notifications"] += 1
                continue
            number = next(self._numbers)
            number_or_text: int | str = number if self._random.random() < 0.8 else f"id {number}"
            line.ask(number_or_text, method, params)
            asked.add(number_or_text)
        self.counts["requests"] += len(asked)
        await line.until_answered(asked)
        twice = [number for number, times in line.answers.items() if times > 1]
        if twice:
            raise Broken(f"more than one answer to {twice}")
        self.counts["connections that speak"] += 1
        await line.close()
        if self._random.random() < 0.5:
            await self._clear(witness)

    async def _clear(self, witness: Line) -> None:
        """Delete every agent."""
        while listed := (await self.answer(witness, "agent/list", {}))["agents"]:
            for row in listed:
                await self.answer(witness, "agent/delete", {"agentId": row["id"]})
                self.counts["agents deleted"] += 1


def memory(pid: int) -> float:
    """Resident memory in MiB."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(facts["VmRSS"].split()[0]) / 1024


async def fuzz(folder: Path, work: Path, *, seconds: float, seed: int) -> Counter[str]:
    """Start a server in `folder`, throw at it, end it by a signal; the counts. Broken where something does not hold."""
    socket, log = folder / "run" / "agentls.sock", folder / "stderr"
    with log.open("wb") as stderr:
        command = (*COMMAND, "--socket", str(socket), "--state-dir", str(folder / "state"))
        process = await asyncio.create_subprocess_exec(*command, stderr=stderr)
    ended = asyncio.create_task(process.wait())
    try:
        while not socket.exists():
            if ended.done():
                raise Broken(f"the server did not start: {log.read_text()}")
            await asyncio.wait([ended], timeout=0.05)
        one = Fuzz(process.pid, socket, work, seed)
        running = asyncio.create_task(one.run(seconds))
        await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            running.cancel()
            raise Broken(f"the server ended with status {process.returncode}")
        if isinstance(fault := running.exception(), Broken):
            raise Broken(f"seed {seed}: {fault}")
        running.result()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(ANSWERED_WITHIN):
            await ended
        told = log.read_text(errors="replace")
        if "Traceback" in told:
            raise Broken(f"the server told of a fault of its own:\n{told[-4000:]}")
        return one.counts
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait([ended])


def main(arguments: Sequence[str]) -> int:
    """Fuzz for some time, and print what was thrown and whether all held."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=None, help="where the random values begin, to see a run again")
    given = parser.parse_args(arguments)
    seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    sys.stdout.write(f"seed {seed}, {given.seconds:g} s\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        try:
            counts = asyncio.run(fuzz(Path(folder), work, seconds=given.seconds, seed=seed))
        except Broken as broken:
            sys.stdout.write(f"broken: {broken}\n")
            return 1
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{name:24} {count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
