"""Editors for end-to-end tests: pytest-lsp's client, driving the real server process over stdio or its socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.io_ import run_async
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    default_converter,
)
from pytest_lsp import LanguageClient

from agentls.core.json import JsonObject
from tests.reducer import Reducer

SECONDS = 30.0
"""How long a condition may take before the test has failed; nothing ever waits that long when all is well."""
WORKSPACE = "file:///workspace"
KNOWS_US: JsonObject = {"agent": {"version": 1, "client": {"name": "tester", "version": "1.0"}}}

COMMAND = (sys.executable, "-P", "-m", "agentls")


def _json_converter() -> Any:
    """pygls turns JSON of custom methods into named tuples, which cannot tell every key apart; tests want the JSON."""
    converter = default_converter()  # type: ignore[no-untyped-call]
    for envelope in (JsonRPCRequestMessage, JsonRPCNotification, JsonRPCResponseMessage):
        converter.register_structure_hook(envelope, lambda raw, cls: cls(**raw))
    return converter


class Editor:
    """One client: what it asks, and what it draws of each agent by the letter of the protocol."""

    def __init__(self) -> None:
        self.client = LanguageClient(converter_factory=_json_converter)
        self.client.capabilities = types.ClientCapabilities()  # else it refuses to send what comes before initialize
        self.drawn: dict[str, Reducer] = {}
        self.messages = 0
        self._news = asyncio.Event()
        self._ids = itertools.count(1)
        self.client.feature("agent/blocks")(lambda params: self._notified("agent/blocks", params))
        self.client.feature("agent/state")(lambda params: self._notified("agent/state", params))

    def _notified(self, method: str, params: JsonObject) -> None:
        self.messages += 1
        agent = cast(str, params["agentId"])
        assert agent in self.drawn, f"{method} of an agent that was never attached"
        self.drawn[agent].notified(method, params)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds()`; every notification and answer is a reason to look again."""
        async with asyncio.timeout(SECONDS):
            while not holds():
                await self._news.wait()

    # Requests --------------------------------------------------------------------------------------------------

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of a request; JsonRpcException for an error."""
        async with asyncio.timeout(SECONDS):
            asking: Awaitable[dict[str, Any]] = self.client.protocol.send_request_async(method, params)  # type: ignore[no-untyped-call]
            result = await asking
        self._tell()
        return result

    async def refused(self, method: str, /, **params: Any) -> JsonRpcException:
        """The error of a request that must fail."""
        try:
            result = await self.ask(method, **params)
        except JsonRpcException as error:
            return error
        raise AssertionError(f"{method} was not refused: {result}")

    async def hello(self, experimental: Any = KNOWS_US, **params: Any) -> dict[str, Any]:
        """Initialize as an editor that knows the extension; the server's offer in `capabilities.experimental`."""
        capabilities = types.ClientCapabilities(experimental=experimental)
        result = await self.client.initialize_session(types.InitializeParams(capabilities=capabilities, **params))
        offer: dict[str, Any] = self.client.protocol._converter.unstructure(result.capabilities.experimental) or {}
        return offer

    async def create(self, **params: Any) -> str:
        """A new agent, attached; its id."""
        created = await self.ask("agent/create", **{"workspaceUri": WORKSPACE, **params})
        agent: str = created["agentId"]
        await self.attach(agent)
        return agent

    async def attach(self, agent: str, **since: Any) -> dict[str, Any]:
        """Attach, and draw the answer."""
        reducer = self.drawn.setdefault(agent, Reducer())
        reducer.expect_attach()
        result = await self.ask("agent/attach", agentId=agent, **since)
        reducer.attached(result)
        self._tell()
        return result

    async def page(self, agent: str, limit: int) -> None:
        """Older blocks, drawn as well."""
        reducer = self.drawn[agent]
        reducer.paged(await self.ask("agent/page", agentId=agent, before=reducer.before, limit=limit))
        self._tell()

    @contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """What is asked within goes out at the end, as one piece that the server reads at once."""
        writer = self.client.protocol.writer
        kept = bytearray()
        self.client.protocol.set_writer(SimpleNamespace(write=kept.extend))
        try:
            yield
        finally:
            self.client.protocol.set_writer(cast(Any, writer))
        assert len(kept) < 4096, "more is no one write for a pipe"
        cast(Any, writer).write(bytes(kept))

    async def say(self, verb: str, agent: str, text: str, id: str | None = None, **more: Any) -> dict[str, Any]:
        """A message by `agent/<verb>`, under an id of its own unless one is given."""
        message = id or f"m{next(self._ids)}"
        return await self.ask(f"agent/{verb}", agentId=agent, messageId=message, content=text, **more)

    # What is drawn ---------------------------------------------------------------------------------------------

    def rows(self, agent: str) -> list[dict[str, Any]]:
        """The blocks in order."""
        return sorted(cast(Any, self.drawn[agent].blocks.values()), key=lambda block: block["order"])

    def ids(self, agent: str) -> list[str]:
        return [row["id"] for row in self.rows(agent)]

    def kinds(self, agent: str) -> list[str]:
        return [row["kind"] for row in self.rows(agent)]

    def row(self, agent: str, kind: str) -> dict[str, Any]:
        """The newest block of a kind."""
        return [row for row in self.rows(agent) if row["kind"] == kind][-1]

    def answer(self, agent: str) -> str:
        """All that assistant rows say."""
        return "".join(row["body"] for row in self.rows(agent) if row["kind"] == "assistant")

    def state(self, agent: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.drawn[agent].state)

    async def idle(self, agent: str) -> None:
        """Wait until the agent rests."""
        await self.until(lambda: self.state(agent)["status"] == "idle")

    async def ended(self, agent: str) -> None:
        """Wait until a turn has ended, in its row and in the state."""
        await self.until(lambda: "turn-end" in self.kinds(agent) and self.state(agent)["status"] == "idle")

    async def streaming(self, agent: str, text: str) -> None:
        """Wait until the answer so far holds `text`."""
        await self.until(lambda: text in self.answer(agent))


@asynccontextmanager
async def started(state: Path, *options: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Editor]:
    """An editor with a server of its own on standard input and output, not yet said hello to, and a polite end
    unless the test has killed it."""
    editor = Editor()
    command = [*COMMAND, "serve", "--state-dir", str(state), *options]
    await editor.client.start_io(*command, env={**os.environ, **(env or {})})
    try:
        yield editor
        if process_of(editor).returncode is None:
            await editor.ask("shutdown")
            editor.client.protocol.notify("exit", None)
            assert await asyncio.wait_for(process_of(editor).wait(), SECONDS) == 0
    finally:
        if process_of(editor).returncode is None:
            process_of(editor).kill()  # the test has failed, and the client's end waits for the process
        await editor.client.stop()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def on_stdio(state: Path, *options: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Editor]:
    """An editor that has said hello to a server of its own."""
    async with started(state, *options, env=env) as editor:
        await editor.hello()
        yield editor


def process_of(editor: Editor) -> Process:
    """The server process of an editor on stdio."""
    process = editor.client._server
    assert process is not None
    return process


class SocketServer:
    """A server process on a Unix socket."""

    def __init__(self, process: Process, path: Path) -> None:
        self.process = process
        self.path = path

    @asynccontextmanager
    async def editor(self, experimental: Any = KNOWS_US) -> AsyncIterator[Editor]:
        """A connection, said hello to; it just goes away in the end."""
        editor = Editor()
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        protocol = editor.client.protocol
        protocol.set_writer(cast(Any, writer))
        gone = editor.client._stop_event
        listening = asyncio.create_task(run_async(gone, reader, protocol))
        try:
            await editor.hello(experimental)
            yield editor
        finally:
            gone.set()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            listening.cancel()
            await asyncio.wait([listening])


@asynccontextmanager
async def on_socket(
    folder: Path, *options: str, state: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[SocketServer]:
    """A server on a socket in `folder`, ended by SIGTERM unless it has ended."""
    path = folder / "run" / "agentls.sock"
    command: Sequence[str] = (
        *COMMAND, "serve", "--socket", str(path), "--state-dir", str(state or folder / "state"), *options
    )  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env={**os.environ, **(env or {})})
    assert process.stderr is not None
    try:
        async with asyncio.timeout(SECONDS):
            heard = ""
            while "listening on" not in heard:
                line = await process.stderr.readline()
                assert line, f"the server ended: {heard}"
                heard += line.decode()
        draining = asyncio.create_task(_drain(process.stderr))
        yield SocketServer(process, path)
        draining.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), SECONDS)


async def _drain(stream: asyncio.StreamReader) -> None:
    while line := await stream.readline():
        sys.stderr.write(line.decode(errors="replace"))
