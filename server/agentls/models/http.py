"""The only network code: one streaming POST for each answer, its deadlines, and its end at every kind of fault."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentls.core.chunks import Chunk, Finish
from agentls.core.reasons import Failed, Failure
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Decoder, Dialect
from agentls.models.failures import bounded
from agentls.models.model import Model, ModelRequest
from agentls.models.sse import SseParser

if TYPE_CHECKING:
    import httpx

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
    """The process's HTTP clients: made on first use, off the event loop, and shared by all models.

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
        self._making: dict[_Reach, asyncio.Future[httpx.AsyncClient]] = {}

    async def client(self, base_url: str) -> httpx.AsyncClient:
        """The client for an address. The first call imports the library and reads the certificates (0.1 to 0.3 s, in a
        thread): make it when a person begins to type. `NoAnswer` where the environment's proxy cannot be used."""
        reach = _reach(base_url)
        making = self._making.get(reach)
        if making is None:
            making = self._making[reach] = asyncio.ensure_future(asyncio.to_thread(self._make, reach))
        try:
            # Shielded, since the one who asked first may be cancelled while others wait for the same client.
            return await asyncio.shield(making)
        except (ImportError, ValueError) as error:
            self._making.pop(reach, None)
            raise NoAnswer(
                Failure(f"the proxy that the environment names cannot be used: {_cause(error)}", "TRANSPORT")
            ) from error

    def _make(self, reach: _Reach) -> httpx.AsyncClient:
        import httpx

        limits = self.timeouts
        # Without TLS there are no certificates to read, which takes longer than all the rest; this context trusts none.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if reach is _Reach.PLAIN_LOOPBACK else True
        return httpx.AsyncClient(
            headers={"user-agent": self._user_agent, "accept-encoding": "identity"},
            timeout=httpx.Timeout(limits.idle, connect=min(limits.connect, limits.idle), pool=None),
            # Below the 5 s after which llama.cpp and uvicorn close theirs, so that none is reused as it closes.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=4.0),
            verify=verify,
            trust_env=reach is _Reach.OTHER,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections; a later use makes new clients."""
        making, self._making = self._making, {}
        for client in await asyncio.gather(*making.values(), return_exceptions=True):
            if not isinstance(client, BaseException):
                await client.aclose()


class _Reach(enum.Enum):
    """The kinds of addresses that need a client of their own."""

    PLAIN_LOOPBACK = "http on this machine"
    LOOPBACK = "https on this machine"
    OTHER = "other machines"


def _reach(base_url: str) -> _Reach:
    address = urlsplit(base_url)
    host = address.hostname or ""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        return _Reach.OTHER
    return _Reach.PLAIN_LOOPBACK if address.scheme == "http" else _Reach.LOOPBACK


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
        client = await self._network.client(self._row.base_url)
        url = self._row.base_url.rstrip("/") + self._dialect.path
        async with client.stream("POST", url, content=sent, headers=dict(self._dialect.headers(key))) as response:
            pieces = response.aiter_bytes()
            if response.status_code != 200:
                raise NoAnswer(await self._refusal(response, pieces))
            first = await _beginning(pieces)
            kind = first.lstrip(_BLANK)[:1]
            if not kind:
                raise NoAnswer(self._fault("sent an empty answer", "EMPTY_RESPONSE"))
            if kind == b"<":
                raise NoAnswer(self._fault("sent a web page; the base url is not that of an API", "MALFORMED_RESPONSE"))
            yield _Body(pieces, first, kind in (b"{", b"["), self._network.timeouts.grace)

    async def _refusal(self, response: httpx.Response, pieces: AsyncIterator[bytes]) -> Failure:
        body = b""
        # An error is an error, however much of its text can be had.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(self._network.timeouts.connect):
                body, _ = await _read(pieces, b"", _ERROR_BODY_MAX)
        headers = {name.lower(): value for name, value in response.headers.items()}
        failure = self._dialect.classify(response.status_code, headers, body, self._network.wall_clock())
        return replace(failure, message=f'"{self._endpoint}" answered {response.status_code}: {failure.message}')

    def _failure_of(self, error: Exception) -> Failure:
        import httpx

        if isinstance(error, NoAnswer):
            return error.failure
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            return self._fault(f"was silent for {self._network.timeouts.idle:g} s", "TIMEOUT")
        if isinstance(error, httpx.DecodingError):
            return self._fault(f"sent what cannot be decompressed: {_cause(error)}", "MALFORMED_RESPONSE")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError | httpx.InvalidURL):
            return self._fault(f"cannot be reached: {_cause(error)}", "TRANSPORT")
        if isinstance(error, httpx.TransportError | OSError):
            return self._fault(f"closed the connection: {_cause(error)}", "TRANSPORT")
        _log.exception("model %s failed in a way that is a bug", self._row.name, exc_info=error)
        return Failure(f"{type(error).__name__}: {error}", "INTERNAL")

    def _fault(self, what: str, code: str) -> Failure:
        return Failure(f'"{self._endpoint}" {what}', code)


class _Body:
    """The body of a good answer: what came first, and the rest as it comes."""

    def __init__(self, pieces: AsyncIterator[bytes], first: bytes, is_json: bool, grace: float) -> None:
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
            return await anext(self._pieces, None)
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._grace
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(self._pieces, None)
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


async def _beginning(pieces: AsyncIterator[bytes]) -> bytes:
    """The first bytes of a body, up to the first that is not blank; all of them where none is."""
    body = b""
    while not body.lstrip(_BLANK) and len(body) < _ERROR_BODY_MAX:
        piece = await anext(pieces, None)
        if piece is None:
            break
        body += piece
    return body


async def _read(pieces: AsyncIterator[bytes], first: bytes, limit: int) -> tuple[bytes, bool]:
    """A body up to `limit` bytes, and whether that was all of it."""
    body = bytearray(first)
    async for piece in pieces:
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]), False
    return bytes(body), True


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a body that is on its way, so that the connection can be used again."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN):
            await anext(pieces, None)


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
            # httpcore suppresses the context of what it wraps, and that is the only place where the reason is.
            inner = inner.__cause__ or inner.__context__
    text = bounded(text) or type(error).__name__
    return text[:1].lower() + text[1:].rstrip(".")
