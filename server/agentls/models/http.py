"""The only network code: one streaming POST for each answer, its deadlines, and its end at every kind of fault."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from agentls.core.chunks import Chunk, Finish
from agentls.core.reasons import Failed, Failure
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Decoder, Dialect
from agentls.models.failures import bounded
from agentls.models.model import Model, ModelRequest
from agentls.models.sse import SseParser

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

_BLANK = b"\xef\xbb\xbf \t\r\n"
_ERROR_BODY_MAX = 64 * 1024
_BODY_MAX = 64 * 1024 * 1024
_TOO_LONG = Failure(f"the answer has a part of more than {_BODY_MAX >> 20} MiB", "MALFORMED_RESPONSE")
_DRAIN = 0.005
"""Seconds after the last payload in which the end of the body may still come, so that the connection can be kept."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds. `idle` bounds each wait for bytes, the first one included; any byte counts as life, comments
    too. `grace` is how long usage is waited for once the model has finished. `breath` is how long one stream may keep
    the event loop busy at a time."""

    idle: float = 300.0
    connect: float = 30.0
    grace: float = 2.0
    breath: float = 0.002


class Network:
    """The process's HTTP client: made on first use, and shared by all models.

    HTTP/1.1, since closing a connection is the one way to stop a model that every server understands. Proxies of the
    environment are honoured, except for this machine's own addresses.
    """

    def __init__(
        self,
        timeouts: Timeouts | None = None,
        *,
        user_agent: str = "agentls",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.clock = clock
        self.wall_clock = wall_clock
        self._user_agent = user_agent
        self._making: asyncio.Future[aiohttp.ClientSession] | None = None

    async def client(self) -> aiohttp.ClientSession:
        """The client. The first call imports the library and reads the certificates (0.1 to 0.3 s, in a thread): make
        it when a person begins to type."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
        # Shielded, since the one who asked first may be cancelled while others wait for the same client.
        return await asyncio.shield(self._making)

    async def _make(self) -> aiohttp.ClientSession:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        limits = self.timeouts
        return aiohttp.ClientSession(
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(sock_read=limits.idle, connect=min(limits.connect, limits.idle)),
            # Below the 5 s after which llama.cpp and uvicorn close theirs, so that none is reused as it closes.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close all connections; a later use makes a new client."""
        making, self._making = self._making, None
        if making is not None:
            await (await making).close()


def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for an address, if any."""
    address = urlsplit(base_url)
    host = address.hostname or ""
    if _is_this_machine(host):
        return None
    import urllib.request  # with much behind it, which a model on this machine never needs

    if urllib.request.proxy_bypass(host):
        return None
    named = urllib.request.getproxies()
    proxy = named.get(address.scheme) or named.get("all")
    if proxy is None:
        return None
    # As other programs read it, curl among them.
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith(("http://", "https://")):
        kind = proxy.partition("://")[0]
        raise NoAnswer(
            Failure(f'the proxy that the environment names cannot be used: it is of the kind "{kind}"', "TRANSPORT")
        )
    return proxy


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpModels:
    """Opens the rows of one HTTP dialect."""

    def __init__(self, dialect: Dialect, network: Network, environ: Mapping[str, str]) -> None:
        """`environ` is where keys are looked up, at each request."""
        self._dialect = dialect
        self._network = network
        self._environ = environ

    def open(self, row: ModelRow) -> Model:
        """The model of a row."""
        return HttpModel(row, self._dialect, self._network, self._environ)

    def problem(self, row: ModelRow) -> str | None:
        """What keeps its key from being sent; None where it can be, or none is needed."""
        key = credential(row, self._environ)
        if not isinstance(key, Failure):
            return None
        # A server has the environment that it was started with.
        return f"{key.message}; put the key for {row.name} into it and start agentls again"

    async def close(self) -> None:
        """Close the network's connections."""
        await self._network.close()


class HttpModel:
    """A model behind a row's endpoint."""

    def __init__(self, row: ModelRow, dialect: Dialect, network: Network, environ: Mapping[str, str]) -> None:
        self.context_window = row.context_window
        self.takes_tools = row.takes_tools
        self._row = row
        self._dialect = dialect
        self._network = network
        self._environ = environ
        self._endpoint = endpoint_name(row.base_url)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of one answer (see `Model.stream`). The key is read once, as it starts."""
        key = credential(self._row, self._environ)
        decoder = self._dialect.decoder(self._row)
        parser = SseParser()
        failure: Failure | None = None
        try:
            async with self._answer(request, key) as body:
                if body.is_json:
                    for chunk in decoder.whole(await body.rest()):
                        yield _without_key(chunk, key)
                breathe_at = self._network.clock() + self._network.timeouts.breath
                piece: bytes | None = body.first
                # One flat loop: every layer of generators would cost each token of a burst.
                while piece is not None and not decoder.done:
                    parser.feed(piece)
                    for payload in parser.payloads():
                        for chunk in decoder.feed(payload):
                            yield _without_key(chunk, key) if isinstance(chunk, Finish) else chunk
                        if decoder.done:
                            break
                        if self._network.clock() >= breathe_at:
                            await asyncio.sleep(0)
                            breathe_at = self._network.clock() + self._network.timeouts.breath
                    piece = await body.next(decoder, parser.held)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the loop gets a finish and never an exception
            failure = self._failure_of(error)
        for chunk in decoder.close(parser.close(), failure):
            yield _without_key(chunk, key)

    @contextlib.asynccontextmanager
    async def _answer(self, request: ModelRequest, key: str | Failure | None) -> AsyncIterator[_Body]:
        """The body of a good answer, while it is open; `NoAnswer` where there is none."""
        if isinstance(key, Failure):
            raise NoAnswer(key)
        sent = self._dialect.encode(request, self._row)
        if isinstance(sent, Failure):
            raise NoAnswer(sent)
        client = await self._network.client()
        url = self._row.base_url.rstrip("/") + self._dialect.path
        headers, proxy = dict(self._dialect.headers(key)), _proxy(self._row.base_url)
        async with client.post(url, data=sent, headers=headers, proxy=proxy, allow_redirects=False) as response:
            if response.status != 200:
                raise NoAnswer(await self._refusal(response))
            pieces = _Pieces(response.content)
            first = await _beginning(pieces)
            kind = first.lstrip(_BLANK)[:1]
            if not kind:
                raise NoAnswer(self._fault("sent an empty answer", "EMPTY_RESPONSE"))
            if kind == b"<":
                raise NoAnswer(self._fault("sent a web page; the base url is not that of an API", "MALFORMED_RESPONSE"))
            yield _Body(pieces, first, kind in (b"{", b"["), self._network.timeouts.grace)

    async def _refusal(self, response: aiohttp.ClientResponse) -> Failure:
        body = b""
        # An error is an error, however much of its text can be had.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._network.timeouts.connect):
                body, _ = await _read(_Pieces(response.content), b"", _ERROR_BODY_MAX)
        headers = {name.lower(): value for name, value in response.headers.items()}
        failure = self._dialect.classify(response.status, headers, body, self._network.wall_clock())
        return replace(failure, message=f'"{self._endpoint}" answered {response.status}: {failure.message}')

    def _failure_of(self, error: Exception) -> Failure:
        import aiohttp
        from aiohttp.http_exceptions import ContentEncodingError

        if isinstance(error, NoAnswer):
            return error.failure
        if isinstance(error, aiohttp.SocketTimeoutError):
            return self._fault(f"was silent for {self._network.timeouts.idle:g} s", "TIMEOUT")
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            limits = self._network.timeouts
            return self._fault(f"cannot be reached within {min(limits.connect, limits.idle):g} s", "TRANSPORT")
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
            return self._fault(f"cannot be reached: {_cause(error)}", "TRANSPORT")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._fault(f"cannot be reached: the proxy answered {error.status} {error.message}", "TRANSPORT")
        if isinstance(error, aiohttp.ClientResponseError):
            return self._fault("does not speak HTTP", "TRANSPORT")
        if isinstance(error, aiohttp.ClientPayloadError):
            if isinstance(error.__cause__, ContentEncodingError):
                return self._fault("sent what cannot be decompressed", "MALFORMED_RESPONSE")
            return self._fault("closed the connection in the middle of its answer", "TRANSPORT")
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return self._fault("closed the connection without an answer", "TRANSPORT")
        if isinstance(error, aiohttp.ClientError | OSError):
            return self._fault(f"closed the connection: {_cause(error)}", "TRANSPORT")
        _log.exception("model %s failed in a way that is a bug", self._row.name, exc_info=error)
        return Failure(f"{type(error).__name__}: {error}", "INTERNAL")

    def _fault(self, what: str, code: str) -> Failure:
        return Failure(f'"{self._endpoint}" {what}', code)


class _Pieces:
    """A body as it comes."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._broken: Exception | None = None

    async def next(self) -> bytes | None:
        """The next piece, or None at the end; whatever the library raises for a body that breaks off, after all that
        had come of it."""
        if self._broken is not None:
            raise self._broken
        try:
            return await self._content.readany() or None
        except Exception as error:
            # The library holds back what had come before. To be asked for it, it must not know of the error.
            self._content.set_exception(cast(BaseException, None))
            if rest := self._content.read_nowait():
                self._broken = error
                return rest
            raise


class _Body:
    """The body of a good answer: what came first, and the rest as it comes."""

    def __init__(self, pieces: _Pieces, first: bytes, is_json: bool, grace: float) -> None:
        self.first = first
        self.is_json = is_json
        self._pieces = pieces
        self._grace = grace
        self._deadline: float | None = None

    async def rest(self) -> bytes:
        """All of it."""
        body, complete = await _read(self._pieces, self.first, _BODY_MAX)
        if not complete:
            raise NoAnswer(_TOO_LONG)
        return body

    async def next(self, decoder: Decoder, held: int) -> bytes | None:
        """The next piece, or None when there is none or it is not waited for any more; `held` are the bytes of an
        event that is not complete."""
        if decoder.done:
            await _drain(self._pieces)
            return None
        if held > _BODY_MAX:
            raise NoAnswer(_TOO_LONG)
        if not decoder.finished:
            self._deadline = None
            return await self._pieces.next()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._grace
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._pieces.next()
        except TimeoutError:
            return None


class NoAnswer(Exception):
    """The exchange is over with a failure that is known."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def credential(row: ModelRow, environ: Mapping[str, str]) -> str | Failure | None:
    """The key of a row: None where it needs none, a failure (which never holds any part of it) where it is unusable."""
    if row.key_variable is None:
        return None
    name = f'environment variable "{row.key_variable}"'
    if row.key_variable not in environ:
        return Failure(f"the {name} is not set", "MISSING_CREDENTIAL")
    key = environ[row.key_variable].strip()
    if not key:
        return Failure(f"the {name} is empty", "MISSING_CREDENTIAL")
    if not key.isascii() or not key.isprintable() or " " in key:
        # Such a header would fail deep in the network code, with a message that says nothing, or with the key in it.
        return Failure(
            f"the {name} has a space, a line break or a character that no key has",
            "INVALID_CREDENTIAL",
        )
    return key


def endpoint_name(base_url: str) -> str:
    """`host:port` of an address, for messages."""
    address = urlsplit(base_url)
    port = address.port or (443 if address.scheme == "https" else 80)
    return f"{address.hostname}:{port}"


def _without_key(chunk: Chunk, key: str | Failure | None) -> Chunk:
    """The chunk with the key struck out of a failure's message, since some providers quote what they refuse."""
    if not isinstance(key, str) or not isinstance(chunk, Finish) or not isinstance(chunk.reason, Failed):
        return chunk
    failure = chunk.reason.failure
    return Finish(Failed(replace(failure, message=failure.message.replace(key, "…"))), chunk.replay_state)


async def _beginning(pieces: _Pieces) -> bytes:
    """The first bytes of a body, up to the first that is not blank; all of them where none is."""
    body = b""
    while not body.lstrip(_BLANK) and len(body) < _ERROR_BODY_MAX:
        piece = await pieces.next()
        if piece is None:
            break
        body += piece
    return body


async def _read(pieces: _Pieces, first: bytes, limit: int) -> tuple[bytes, bool]:
    """A body up to `limit` bytes, and whether that was all of it."""
    body = bytearray(first)
    while piece := await pieces.next():
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]), False
    return bytes(body), True


async def _drain(pieces: _Pieces) -> None:
    """Read the end of a body that is on its way, so that the connection can be used again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN):
            await pieces.next()


def _cause(error: BaseException) -> str:
    """Why, in the words of the innermost error of the chain, which the network libraries wrap several times."""
    text = str(error)
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        if isinstance(inner, OSError) and inner.errno is not None and inner.strerror:
            # asyncio writes the address into the text of a refused connection; the message has it already.
            text = os.strerror(inner.errno) if inner.errno > 0 else inner.strerror
        elif str(inner):
            text = str(inner)
        if isinstance(inner, BaseExceptionGroup):  # one for each address that was tried
            inner = inner.exceptions[-1]
        else:
            inner = inner.__cause__ or inner.__context__
    text = bounded(text) or type(error).__name__
    return text[:1].lower() + text[1:].rstrip(".")
