"""Editors for end-to-end tests: pytest-lsp's client, driving the real server process over stdio or its socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
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

from agentls.core.events import Event
from agentls.core.ids import SessionId
from agentls.core.json import JsonObject
from agentls.store.sqlite import SqliteStore
from tests.model_server import Answer, Exchange, ModelServer
from tests.reducer import Reducer

SECONDS = 30.0
"""How long a condition may take before the test has failed; nothing ever waits that long when all is well."""
WORKSPACE = "file:///workspace"
KNOWS_US: JsonObject = {"agent": {"version": 1, "client": {"name": "tester", "version": "1.0"}}}

_IDS = itertools.count(1)
_SNAPSHOT = re.compile(r"c:p\d+\.\d+\.\d+$")
COMMAND = (sys.executable, "-P", "-m", "agentls")
BROKEN = " CRITICAL agentls.agent.watching"
"""What a server's log has in a line about a log that breaks a rule (see tests/conftest.py)."""


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
        self.patience = SECONDS
        self._news = asyncio.Event()
        self.client.feature("agent/blocks")(lambda params: self._notified("agent/blocks", params))
        self.client.feature("agent/state")(lambda params: self._notified("agent/state", params))
        self.warnings: list[str] = []
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self.warnings.append(params.message))
        self.told: list[tuple[str, JsonObject]] = []
        for method in ("agent/context", "agent/attention", "agent/listChanged"):
            self.client.feature(method)(partial(self._told, method))

    def _notified(self, method: str, params: JsonObject) -> None:
        self.messages += 1
        agent = cast(str, params["agentId"])
        assert agent in self.drawn, f"{method} of an agent that was never attached"
        self.drawn[agent].notified(method, params)
        self.tell()

    def _told(self, method: str, params: JsonObject) -> None:
        self.told.append((method, params))
        self.tell()

    def tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds()`; every notification and answer is a reason to look again."""
        async with asyncio.timeout(self.patience):
            while not holds():
                await self._news.wait()

    # Requests --------------------------------------------------------------------------------------------------

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result of a request; JsonRpcException for an error."""
        async with asyncio.timeout(SECONDS):
            asking: Awaitable[dict[str, Any]] = self.client.protocol.send_request_async(method, params)  # type: ignore[no-untyped-call]
            result = await asking
        self.tell()
        return result

    async def refused(self, method: str, /, **params: Any) -> JsonRpcException:
        """The error of a request that must fail."""
        try:
            result = await self.ask(method, **params)
        except JsonRpcException as error:
            return error
        raise AssertionError(f"{method} was not refused: {result}")

    async def hello(
        self, experimental: Any = KNOWS_US, window: types.WindowClientCapabilities | None = None, **params: Any
    ) -> dict[str, Any]:
        """Initialize as an editor that knows the extension; the server's offer in `capabilities.experimental`."""
        capabilities = types.ClientCapabilities(experimental=experimental, window=window)
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
        self.tell()
        return result

    async def page(self, agent: str, limit: int) -> None:
        """Older blocks, drawn as well."""
        reducer = self.drawn[agent]
        reducer.paged(await self.ask("agent/page", agentId=agent, before=reducer.before, limit=limit))
        self.tell()

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
        message = id or f"auto-{next(_IDS)}"
        return await self.ask(f"agent/{verb}", agentId=agent, messageId=message, content=text, **more)

    async def decide(
        self, agent: str, decision: str, *, request: JsonObject | None = None, **more: Any
    ) -> dict[str, Any]:
        """Answer what the agent asks, or an earlier `request` as it was."""
        asked = request or await self.asked(agent)
        answer = {"decision": decision, **more}
        named = {"requestId": asked["requestId"], "shown": asked["shown"]}
        return await self.ask("agent/answer", agentId=agent, answer=answer, **named)

    # What the person does in it --------------------------------------------------------------------------------

    def open(self, path: Path, text: str) -> None:
        """Open a document; what is not on disk makes it unsaved."""
        document = types.TextDocumentItem(path.as_uri(), "plaintext", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def change(self, path: Path, text: str, version: int = 2) -> None:
        """Type over all of it."""
        document = types.VersionedTextDocumentIdentifier(version, path.as_uri())
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    def look(self, path: Path, *selected: int) -> None:
        """Look at a document; `selected` is start line and character, end line and character."""
        start, end = ({"line": line, "character": at} for line, at in zip(selected[::2], selected[1::2], strict=True))
        self.notify("agent/editorState", activeUri=path.as_uri(), selections=[{"start": start, "end": end}])

    def notify(self, method: str, /, **params: Any) -> None:
        """Send what has no answer."""
        self.client.protocol.notify(method, params)

    # What is drawn ---------------------------------------------------------------------------------------------

    def rows(self, agent: str) -> list[dict[str, Any]]:
        """The blocks in order, without the snapshots that the server makes by itself."""
        return [row for row in self.whole(agent) if not _SNAPSHOT.match(row["id"])]

    def snapshots(self, agent: str) -> list[dict[str, Any]]:
        """The rows of those, in order."""
        return [row for row in self.whole(agent) if _SNAPSHOT.match(row["id"])]

    def whole(self, agent: str) -> list[dict[str, Any]]:
        """All blocks in order."""
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

    async def closed(self, agent: str, turn: int) -> None:
        """Wait until this turn has ended and nothing runs."""
        await self.until(lambda: f"turn{turn}" in self.ids(agent) and self.state(agent)["status"] == "idle")

    async def asked(self, agent: str) -> dict[str, Any]:
        """Wait until the agent asks something; what it asks."""
        await self.until(lambda: self.state(agent)["requests"])
        return cast(dict[str, Any], self.state(agent)["requests"][0])

    async def streaming(self, agent: str, text: str) -> None:
        """Wait until the answer so far holds `text`."""
        await self.until(lambda: text in self.answer(agent))


@dataclass
class Desk:
    """An agent in a real folder with a scripted model, and the editor at which a person works with it."""

    editor: Editor
    model: ModelServer
    work: Path
    agent: str

    async def say(self, text: str, verb: str = "followup", **more: Any) -> dict[str, Any]:
        return await self.editor.say(verb, self.agent, text, **more)

    async def turn(self, number: int, *answers: Answer, text: str = "go") -> Exchange:
        """Have a turn of a new message, of which this number is expected; its last request."""
        before = len(self.model.exchanges)
        self.model.script(*answers)
        await self.say(text)
        await self.editor.closed(self.agent, number)
        assert len(self.model.exchanges) == before + len(answers)
        return self.model.exchanges[-1]

    async def decide(self, decision: str, **more: Any) -> dict[str, Any]:
        return await self.editor.decide(self.agent, decision, **more)

    @property
    def state(self) -> dict[str, Any]:
        return self.editor.state(self.agent)

    def row(self, kind: str) -> dict[str, Any]:
        return self.editor.row(self.agent, kind)


_FRAME = re.compile(r'<agentls-context producer="([^"]*)"[^>]*>\n(.*)\n</agentls-context-[0-9a-f]+>', re.DOTALL)


def texts_of(exchange: Exchange, role: str | None = None) -> list[str]:
    """The contents of a request's messages (of one role): contexts out of their frames, and without the snapshots that
    the server makes by itself."""
    texts = []
    for message in cast(Any, exchange.json())["messages"]:
        framed = _FRAME.fullmatch(message["content"] or "")
        if (role is None or message["role"] == role) and not (framed and framed[1] in SNAPSHOTS):
            texts.append(framed[2] if framed else message["content"])
    return texts


def snapshots_of(exchange: Exchange) -> list[tuple[str, str]]:
    """Those snapshots: who made them, and what they say."""
    found = (_FRAME.fullmatch(message["content"] or "") for message in cast(Any, exchange.json())["messages"])
    return [(framed[1], framed[2]) for framed in found if framed and framed[1] in SNAPSHOTS]


SNAPSHOTS = ("runtime", "time", "editor", "files")


def results_of(exchange: Exchange) -> list[str]:
    """The results of calls that a request holds, in its order."""
    return texts_of(exchange, "tool")


def tools_of(exchange: Exchange) -> list[str]:
    """The names of the tools that a request offers."""
    return [tool["function"]["name"] for tool in cast(Any, exchange.json()).get("tools", [])]


async def log_of(state: Path, agent: str) -> tuple[Event, ...]:
    """All events of a session whose server has ended."""
    store = SqliteStore(state)
    try:
        log = await store.open(SessionId(agent))
        return await log.read()
    finally:
        await store.close()


async def watched(pid: int, folder: Path) -> None:
    """Wait until the kernel tells a server what happens in a folder."""
    inode = f"ino:{os.stat(folder).st_ino:x} "
    async with asyncio.timeout(SECONDS):
        while not any(inode in facts for facts in _descriptors(pid)):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)


def _descriptors(pid: int) -> Iterator[str]:
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            yield path.read_text()


@asynccontextmanager
async def started(
    state: Path, *options: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> AsyncIterator[Editor]:
    """An editor with a server of its own on standard input and output, not yet said hello to, and a polite end
    unless the test has killed it. `before` is a command that becomes the server."""
    editor = Editor()
    command = [*before, *COMMAND, "serve", "--state-dir", str(state), *options]
    await editor.client.start_io(*command, env={**os.environ, **(env or {})})
    forwarding = editor.client._stderr_forwarder
    assert forwarding is not None
    forwarding.cancel()  # It has not begun: we read the same, and what it says.
    stderr = Stderr(process_of(editor))
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
        await stderr.end()
    stderr.check()


@asynccontextmanager
async def on_stdio(
    state: Path, *options: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> AsyncIterator[Editor]:
    """An editor that has said hello to a server of its own."""
    async with started(state, *options, env=env, before=before) as editor:
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
    async def editor(self, experimental: Any = KNOWS_US, **params: Any) -> AsyncIterator[Editor]:
        """A connection, said hello to; it just goes away in the end."""
        editor = Editor()
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        protocol = editor.client.protocol
        protocol.set_writer(cast(Any, writer))
        gone = editor.client._stop_event
        listening = asyncio.create_task(run_async(gone, reader, protocol))
        try:
            await editor.hello(experimental, **params)
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
        stderr = Stderr(process)
        yield SocketServer(process, path)
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), SECONDS)
    await stderr.end()
    stderr.check()


class Stderr:
    """What a server says on standard error, passed on to pytest; a broken rule of a log is kept."""

    def __init__(self, process: Process) -> None:
        self.broken: list[str] = []
        self._reading = asyncio.create_task(self._read(process))

    async def _read(self, process: Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.readline():
            line = data.decode(errors="replace")
            sys.stderr.write(line)
            if BROKEN in line:
                self.broken.append(line)

    async def end(self) -> None:
        """Wait until all is read; the process has ended."""
        await asyncio.wait_for(self._reading, SECONDS)

    def check(self) -> None:
        """Fail where the server has found a log that breaks a rule."""
        assert not self.broken, self.broken
