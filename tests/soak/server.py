"""The server process of the soak: started, killed, and started again on what it left."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Self

from tests.processes import agentls, environment

SECONDS = 120.0
"""How long a start or an end may take, also on a machine that has much else to do."""

_FAULT = re.compile(r" (?:ERROR|CRITICAL) |^Traceback ")


class Server:
    """One life of the server. `said` is what it wrote on standard error."""

    def __init__(self, process: asyncio.subprocess.Process, began: float) -> None:
        self.said: list[str] = []
        self.began = began
        self._process = process
        self._listening = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls, socket: Path, state: Path, *options: str) -> Self:
        """A server that listens on `socket`; AssertionError with what it said when it does not in time."""
        began = time.monotonic()
        command = agentls("serve", "--socket", str(socket), "--state-dir", str(state), *options)
        server = cls(await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environment()), began)
        try:
            async with asyncio.timeout(SECONDS):
                await server._listening.wait()
        except TimeoutError:
            pass
        if not server._listening.is_set() or server._process.returncode is not None:
            await server.end()
            raise AssertionError(f"the server did not start within {SECONDS:.0f} s; it said: {server.said}")
        return server

    def kill(self) -> None:
        """Kill it, now, as the kernel would for want of memory."""
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def cpu(self) -> float:
        """Seconds that its threads have run so far: what a machine that is busy otherwise does not change."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    async def stop(self) -> int:
        """Ask it to leave; its status."""
        self._process.terminate()
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()

    async def end(self) -> None:
        """Have it gone, and all that it said in `said`."""
        self.kill()
        await self._process.wait()
        await self._reading

    def faults(self) -> list[str]:
        """That it said what it should not have had to say, with all of that."""
        return ["the server said: " + "\n".join(self.said)] if any(map(_FAULT.search, self.said)) else []

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.said.append(line.decode(errors="replace").rstrip())
            if "listening on" in self.said[-1]:
                self._listening.set()
        self._listening.set()
