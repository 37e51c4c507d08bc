"""One server object per connection over what the connections of a process share, on stdio or on a socket."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from cattrs import Converter
from lsprotocol import converters, types
from pygls.lsp.server import LanguageServer

from agentls import __version__
from agentls.agent.state import EditorFacts
from agentls.core.json import JsonObject, JsonValue
from agentls.core.visible import one_line
from agentls.lsp import methods, replies, sockets, wire
from agentls.lsp.drawing import Drawing
from agentls.lsp.editor import ConnectedEditor
from agentls.lsp.editors import Editors
from agentls.lsp.framing import MESSAGE_MAX, Framer
from agentls.lsp.handlers import Handlers
from agentls.lsp.lists import Lists
from agentls.lsp.outbox import Outboxes
from agentls.lsp.parent import when_gone
from agentls.lsp.ports import Host
from agentls.lsp.progress import Progress
from agentls.lsp.protocol import Protocol
from agentls.lsp.transport import CHUNK, Source, StreamSink, StreamSource, Writer, open_stdio
from agentls.workspace.positions import PositionEncoding

logger = logging.getLogger(__name__)


class Hub:
    """What the connections of a process share: the host, the list of attached editors, and a converter, which is slow
    to build."""

    def __init__(self, host: Host, *, message_max: int = MESSAGE_MAX) -> None:
        self.host = host
        self.editors = Editors()
        self.message_max = message_max
        self.numbers = itertools.count(1)
        self.converter: Converter = converters.get_converter()


class AgentServer(LanguageServer):
    """The server of one connection."""

    protocol: Protocol

    def __init__(self, hub: Hub, source: Source, writer: Writer, *, watches_parent: bool = False) -> None:
        """`watches_parent` ends the connection with the process that the client names as its own: on a socket that may
        be the number of another machine's or container's, or of whoever is passed on."""
        super().__init__("agentls", __version__, protocol_cls=Protocol, converter_factory=lambda: hub.converter)
        self.protocol.out = writer
        self._hub = hub
        self._source = source
        self._writer = writer
        self._number = next(hub.numbers)
        self._client = wire.ClientName(name="unknown client")
        self.workspace_editor = ConnectedEditor(f"{hub.host.instance}:{self._number}")
        self._drawing = Drawing(self, Outboxes(writer), hub.editors)
        self._handlers = Handlers(hub.host, self, self._drawing)
        self._watches_parent = watches_parent
        self._watches_files = False
        self._untold = hub.host.warnings
        self._unlist: Callable[[], None] = lambda: None
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unwatch: Callable[[], None] = lambda: None

    async def run(self) -> int:
        """Serve the client until it leaves or is gone; the status that a process of its own would end with. Then its
        requests have been cancelled and it draws no agent any more."""
        reading = asyncio.create_task(self._read(), name="agentls reader")
        losing = asyncio.create_task(self._writer.lost(), name="agentls lost")
        try:
            for end in (reading, losing):
                end.add_done_callback(lambda _: self.leave(self.protocol.status))
            status = await self._ended
            if reading.done():
                reading.result()
        finally:
            self._unwatch()
            reading.cancel()
            losing.cancel()
            await asyncio.wait({reading, losing})
            self._unlist()
            self._handlers.leave()
            await self.protocol.cancel_requests()
            await self._writer.close()
            self._source.close()
        return status

    def leave(self, status: int) -> None:
        """End the connection."""
        if not self._ended.done():
            self._ended.set_result(status)

    async def _read(self) -> None:
        framer = Framer(self._hub.message_max)
        with suppress(OSError):
            while not self._ended.done() and (data := await self._source.read(CHUNK)):
                framer.feed(data)
                while not self._ended.done() and (item := framer.next()) is not None:
                    if isinstance(item, bytes):
                        self.protocol.receive(item)
                    else:
                        self.protocol.fault(item)
                        if item.fatal:
                            return
                    await self._writer.room()
                # A client that never pauses must not keep the loop to itself.
                await asyncio.sleep(0)
        if framer.inside:
            logger.warning("a client's stream ended within a message")

    # What the handlers ask -------------------------------------------------------------------------------------

    @property
    def producer(self) -> str:
        """Who makes the contexts that this client injects: its name."""
        return one_line(self._client.name) or "unknown client"

    @property
    def editor(self) -> EditorFacts:
        """How other clients see this one."""
        name = one_line(f"{self.producer} {self._client.version or ''}")
        return EditorFacts(name, self._number, self.workspace_editor.id)

    def after_answer(self, hook: Callable[[bool], None]) -> None:
        """Call `hook` when the answer to the request at hand is queued."""
        self.protocol.after_answer(hook)

    # Lifecycle -------------------------------------------------------------------------------------------------

    def initialize(self, params: wire.InitializeParams) -> JsonObject:
        """Negotiate; the result of `initialize`."""
        offered = _agent_client(params.capabilities.experimental)
        client = (offered.client if offered else None) or params.client_info
        if client is not None:
            self._client = client
        if self._watches_parent and params.process_id is not None and params.process_id > 0:
            self._unwatch = when_gone(params.process_id, lambda: self.leave(self.protocol.status))
        encoding = _encoding(params.capabilities.general)
        capabilities: dict[str, JsonValue] = {
            "positionEncoding": encoding,
            "textDocumentSync": {
                "openClose": True,
                "change": types.TextDocumentSyncKind.Incremental.value,
                "save": {"includeText": False},
            },
        }
        # A client without the extension still tells what it has open, which the agents of others read.
        self.workspace_editor.introduce(self.editor.client, encoding)
        self._hub.host.documents.join(self.workspace_editor)
        self.protocol.notifications.update(self._handlers.notifications())
        self._watches_files = params.capabilities.workspace.did_change_watched_files.dynamic_registration
        self.protocol.notifications[types.INITIALIZED] = self._register
        if offered is not None and offered.version == wire.VERSION:
            self._extend(shows_progress=params.capabilities.window.work_done_progress)
            capabilities["experimental"] = {
                "agent": {
                    "version": wire.VERSION,
                    "instance": self._hub.host.instance,
                    "methods": list(methods.SERVED),
                    "blockKinds": list(replies.SENT_KINDS),
                }
            }
        return {"capabilities": capabilities, "serverInfo": {"name": self.name, "version": __version__}}

    def _extend(self, *, shows_progress: bool) -> None:
        """Speak the extension."""
        self.protocol.requests.update(self._handlers.requests())
        self._unlist = Lists(self._hub.host, self._writer).close
        if shows_progress:
            self._drawing.progress = Progress(self._create_progress, self._writer)

    def _register(self, _: JsonValue) -> None:
        """Say what the person is to be told, and ask the client to say which files change on disk; once."""
        for sentence in self._untold:
            self.window_show_message(types.ShowMessageParams(type=types.MessageType.Warning, message=sentence))
        self._untold = ()
        if not self._watches_files:
            return
        self._watches_files = False
        every = types.FileSystemWatcher(glob_pattern="**/*")
        registration = types.Registration(
            id="agentls-files",
            method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
            register_options=types.DidChangeWatchedFilesRegistrationOptions(watchers=[every]),
        )
        params = types.RegistrationParams(registrations=[registration])
        asked = self.protocol.send_request_async(types.CLIENT_REGISTER_CAPABILITY, params)
        asked.add_done_callback(_log_refusal)

    def _create_progress(self, token: str) -> Awaitable[object]:
        params = types.WorkDoneProgressCreateParams(token=token)
        asked: asyncio.Future[object] = self.protocol.send_request_async(types.WINDOW_WORK_DONE_PROGRESS_CREATE, params)
        return asked

    def report_server_error(self, error: Exception, source: type[Exception]) -> None:
        """Only to the log: pygls would show a message box for a fault of ours or of another client."""
        logger.error("%s: %s", source.__name__, error)


def _encoding(general: wire.General | None) -> PositionEncoding:
    """What positions count: bytes, which our texts are closest to, else code points, else what every client has."""
    offered = (general.position_encodings if general else None) or ()
    known: tuple[PositionEncoding, ...] = ("utf-8", "utf-32")
    return next((encoding for encoding in known if encoding in offered), "utf-16")


def _log_refusal(asked: asyncio.Future[object]) -> None:
    if not asked.cancelled() and asked.exception() is not None:
        logger.warning("a client does not tell which files change: %s", asked.exception())


def _agent_client(experimental: object) -> wire.AgentClient | None:
    """What the client announced of the extension, if anything; whatever else stands in `experimental` is others'."""
    raw = experimental.get("agent") if isinstance(experimental, dict) else None
    if raw is None:
        return None
    return methods.AGENT_CLIENT.decode(raw, under="capabilities.experimental.agent")


async def serve_stdio(host: Host, fds: tuple[int, int], stop: asyncio.Event) -> int:
    """Serve the one client on the descriptors that `take_stdio` gave, until it is gone or `stop` is set; the exit
    status of the process."""
    source, sink = await open_stdio(fds)
    server = AgentServer(Hub(host), source, Writer(sink), watches_parent=True)
    stopping = asyncio.create_task(_when(stop, lambda: server.leave(0)), name="agentls stop")
    try:
        return await server.run()
    finally:
        stopping.cancel()


async def serve_socket(
    host: Host,
    path: Path,
    stop: asyncio.Event,
    ready: Callable[[], None],
    *,
    admits: Callable[[socket.socket], bool] = sockets.same_user,
) -> None:
    """Serve every client that connects to the owner-only socket at `path` and that `admits` lets in, until `stop` is
    set; `ready` is called once it listens. UserError where it cannot listen there."""
    listening = sockets.listen(path)
    hub = Hub(host)
    clients: dict[AgentServer, asyncio.Task[int]] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: socket.socket = writer.get_extra_info("socket")
        if not admits(peer) or stop.is_set():
            logger.warning("a connection was refused: it is another user's, or the server is stopping")
            return writer.transport.abort()
        server = AgentServer(hub, StreamSource(reader), Writer(StreamSink(writer)))
        clients[server] = asyncio.create_task(server.run(), name="agentls connection")
        try:
            await clients[server]
        except Exception:  # the boundary of a connection: one that fails leaves the others alone
            logger.exception("a connection failed")
        finally:
            del clients[server]
        return None

    try:
        async with await asyncio.start_unix_server(connected, sock=listening.socket, limit=CHUNK):
            ready()
            await stop.wait()
            tasks = tuple(clients.values())
            for server in tuple(clients):
                server.leave(0)
            if tasks:
                await asyncio.wait(tasks)
    finally:
        listening.close()


async def _when(event: asyncio.Event, call: Callable[[], None]) -> None:
    await event.wait()
    call()
