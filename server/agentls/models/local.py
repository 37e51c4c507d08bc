"""The embedded local model: a child process that is started when it is first asked, and asked over loopback HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import agentls
from agentls.core.chunks import Chunk, Finish
from agentls.core.reasons import Failed, Failure
from agentls.models import weights
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Dialect
from agentls.models.http import HttpModel, Network
from agentls.models.model import Model, ModelRequest

_KEY_VARIABLE = "the key of the local model's process"
# What a child needs to find its libraries and to speak the person's language; no key of a provider is among it.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a running child answers, and the key that it wants."""

    url: str
    key: str


class StartError(Exception):
    """The child did not come up; the text says why."""


class LocalServer:
    """The child process: started on demand, again when it died, ended with this process however that ends.

    `log` is where its standard error goes (owner only, overwritten at each start), None for nowhere; `ready` is how
    many seconds loading may take.
    """

    def __init__(self, command: Sequence[str], *, log: Path | None = None, ready: float = 60.0) -> None:
        self._command = tuple(command)
        self._log = log
        self._ready = ready
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None

    @property
    def pid(self) -> int | None:
        """The running child's, or None."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def endpoint(self, *, instead_of: Endpoint | None = None) -> Endpoint:
        """Where it answers, once it does; StartError where it does not come up.

        `instead_of` is an endpoint that did not answer: unless another one has replaced it by now, the child is ended
        and started again.
        """
        async with self._starting:
            current = self._endpoint
            if current is not None and self.pid is not None and current != instead_of:
                return current
            await self._end()
            # A caller that is cancelled while it waits must not leave a child that nobody holds.
            try:
                self._endpoint = await self._start()
            except BaseException:
                await self._end()
                raise
            return self._endpoint

    async def close(self) -> None:
        """End the child; a later use starts one again."""
        async with self._starting:
            await self._end()

    async def _start(self) -> Endpoint:
        key = secrets.token_urlsafe(32)
        with self._open_log() as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=_environment(),
                    process_group=0,
                )
            except OSError as error:
                raise StartError(f'"{self._command[0]}" cannot be run: {error.strerror}') from error
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(key.encode() + b"\n")
            await process.stdin.drain()
        try:
            async with asyncio.timeout(self._ready):
                line = await process.stdout.readline()
        except TimeoutError:
            raise StartError(f"it was not ready within {self._ready:g} s{self._last_words()}") from None
        try:
            return Endpoint(json.loads(line)["url"], key)
        except (ValueError, KeyError, TypeError):
            raise StartError(f"its process ended while it loaded{self._last_words()}") from None

    async def _end(self) -> None:
        process, self._process, self._endpoint = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # The pipe's transport is closed as well, which asyncio does only once it has read its end.
        await process.communicate()

    def _open_log(self) -> IO[bytes]:
        if self._log is None:
            return open(os.devnull, "wb")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        try:
            lines = self._log.read_text("utf-8", "replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f'; its last words are "{last[:200]}", see "{self._log}"' if last else f'; see "{self._log}"'


class LocalModels:
    """Opens rows of the local model; each has a child of its own, started by its first request."""

    def __init__(self, dialect: Dialect, network: Network, directory: Path, *, log: Path | None = None) -> None:
        """`directory` is where the weights are; `log` as in `LocalServer`."""
        self._dialect = dialect
        self._network = network
        self._directory = directory
        self._log = log
        self._servers: list[LocalServer] = []

    def open(self, row: ModelRow) -> Model:
        """The model of a row."""
        command = serve_command(self._directory / weights.SMOLLM2.name, row)
        server = LocalServer(command, log=self._log)
        self._servers.append(server)
        return LocalModel(row, self._dialect, self._network, server, lambda: missing(self._directory))

    def problem(self, row: ModelRow) -> str | None:
        """That llama.cpp or the weights are missing, with the command that adds them."""
        failure = missing(self._directory)
        return None if failure is None else failure.message

    async def close(self) -> None:
        """End the children, and the network's connections to them."""
        for server in self._servers:
            await server.close()
        await self._network.close()


class LocalModel:
    """The local model: its requests go the way of every other model's, to an address that its child chose."""

    def __init__(
        self,
        row: ModelRow,
        dialect: Dialect,
        network: Network,
        server: LocalServer,
        lacks: Callable[[], Failure | None],
    ) -> None:
        """`lacks` says, before each request, what keeps the child from starting (see `missing`), or None."""
        self.context_window = row.context_window
        self.takes_tools = row.takes_tools
        self._row = row
        self._dialect = dialect
        self._network = network
        self._server = server
        self._lacks = lacks

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of one answer (see `Model.stream`); a child that has died is started again first."""
        endpoint: Endpoint | None = None
        for attempt in (1, 2):
            failure = self._lacks()
            if failure is None:
                try:
                    endpoint = await self._server.endpoint(instead_of=endpoint)
                except (StartError, OSError) as error:
                    failure = Failure(f'the local model "{self._row.id}" did not start: {error}', "LOCAL_MODEL")
            if failure is not None or endpoint is None:
                yield Finish(Failed(failure or Failure("the local model has no address", "LOCAL_MODEL")))
                return
            model = self._at(endpoint)
            async with contextlib.aclosing(model.stream(request)) as chunks:
                first = await anext(chunks)
                if attempt == 1 and _is_lost(first):
                    # It died since it was last asked, which its parent may learn a little later than its socket.
                    continue
                yield first
                async for chunk in chunks:
                    yield self._broken_off() if _is_lost(chunk) else chunk
            return

    def _broken_off(self) -> Finish:
        text = f'the local model "{self._row.id}" ended while it answered; the next message starts it again'
        return Finish(Failed(Failure(text, "TRANSPORT")))

    def _at(self, endpoint: Endpoint) -> HttpModel:
        row = replace(self._row, base_url=f"{endpoint.url.rstrip('/')}/v1", key_variable=_KEY_VARIABLE)
        return HttpModel(row, self._dialect, self._network, {_KEY_VARIABLE: endpoint.key})


def serve_command(file: Path, row: ModelRow) -> tuple[str, ...]:
    """The command line of the child.

    `-P` keeps the working folder out of Python's search path: it may be a workspace, which is not trusted.
    """
    # All cores would spin on each other's barriers: beside any other work that made 2 threads 5 times slower than 1.
    threads = max(1, min(4, (os.cpu_count() or 1) // 2))
    options = ("--ctx", str(row.context_window), "--threads", str(threads), "--alias", row.id)
    return (sys.executable, "-P", "-m", "agentls.models.local_server", str(file), *options)


def missing(directory: Path) -> Failure | None:
    """What the local model lacks and how to get it, or None."""
    if importlib.util.find_spec("xllamacpp") is None:
        return Failure(
            "llama.cpp is not installed; add it by: pip install xllamacpp, "
            "and the weights by: python -m agentls.models.weights fetch",
            "LOCAL_MODEL",
        )
    if not weights.is_there(directory):
        return Failure(
            f'the weights "{weights.SMOLLM2.name}" are not in "{directory}"; '
            "fetch them by: python -m agentls.models.weights fetch",
            "LOCAL_MODEL",
        )
    return None


def _environment() -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed_on, "PYTHONPATH": str(Path(agentls.__file__).parent.parent)}


def _is_lost(chunk: Chunk) -> bool:
    return isinstance(chunk, Finish) and isinstance(chunk.reason, Failed) and chunk.reason.failure.code == "TRANSPORT"
