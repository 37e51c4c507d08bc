"""Byte streams under a connection: pipes, sockets and files, read and written without ever blocking the loop."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

logger = logging.getLogger(__name__)

CHUNK = 64 * 1024
"""Bytes that are read or handed to the system at a time."""
BACKLOG_MAX = 64 * 1024 * 1024
"""Bytes that may wait for a client: beyond them nothing more is read from it, and it must make progress."""
STALL_SECONDS = 30.0
"""How long a client with such a backlog may take nothing before it is disconnected."""
FLUSH_SECONDS = 2.0
"""How long a closing connection waits for its last bytes to be taken."""


class Source(Protocol):
    """Where bytes come from."""

    async def read(self, n: int) -> bytes:
        """At most `n` bytes, at least one; none at the end of the stream."""

    def close(self) -> None:
        """Read no more."""


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes) -> None:
        """Take `data`; what the system does not take at once is kept in order. It never fails: where nothing can be
        written any more, the other side counts as gone."""

    def waiting(self) -> int:
        """Bytes kept."""

    async def drain(self) -> None:
        """Wait until nothing is kept; ConnectionError or OSError when the other side is gone."""

    async def lost(self) -> None:
        """Wait until the other side is gone."""

    def close(self) -> None:
        """Close once what is kept has been taken."""

    def abort(self) -> None:
        """Close now and forget what is kept."""


class Writer:
    """The outgoing side of a connection. `write` never waits; one task pumps what the system does not take at once.

    A client is behind while anything waits for it. Then those who can should merge what they have to say, and are
    called by `on_writable` when it has caught up.
    """

    def __init__(self, sink: Sink, *, backlog: int = BACKLOG_MAX, stall: float = STALL_SECONDS) -> None:
        self._sink = sink
        self._backlog = backlog
        self._stall = stall
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._callbacks: list[Callable[[], None]] = []
        self._closed = False
        self._task = asyncio.create_task(self._pump(), name="agentls writer")

    def write(self, data: bytes) -> None:
        """Send `data` after everything before it; dropped silently once the client is gone."""
        if self._closed:
            return
        if self.writable:
            self._sink.write(data)
            if self._sink.waiting():
                self._wake.set()
        else:
            self._queue.append(data)
            self._queued += len(data)
        if self.pending > self._backlog:
            self._room.clear()

    @property
    def pending(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._queued + self._sink.waiting()

    @property
    def writable(self) -> bool:
        """Whether nothing waits, so that a message would leave at once."""
        return not self._queued and not self._sink.waiting()

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the client has caught up."""
        self._callbacks.append(callback)

    async def room(self) -> None:
        """Wait while more than the backlog allowed waits for the client."""
        await self._room.wait()

    async def lost(self) -> None:
        """Wait until the client has closed its side of this direction."""
        await self._sink.lost()

    async def close(self, within: float = FLUSH_SECONDS) -> None:
        """Give the client a moment to take the rest, then close."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(within):
                while not self._closed and not self.writable:
                    await self._sink.drain()
                    self._refill()
        self._stop()
        self._task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._sink.lost()
        await asyncio.wait([self._task])

    async def _pump(self) -> None:
        try:
            while not self._closed:
                await self._wake.wait()
                self._wake.clear()
                while not self.writable:
                    await self._progress()
                    self._refill()
                for callback in self._callbacks:
                    callback()
        except OSError:
            logger.debug("a client is gone", exc_info=True)
        finally:
            # A connection that nobody pumps any more is closed, whatever the reason.
            self._stop()

    async def _progress(self) -> None:
        """Wait until the sink is empty, however slowly, unless a client with a great backlog takes nothing at all."""
        while True:
            before = self._sink.waiting()
            try:
                async with asyncio.timeout(self._stall):
                    return await self._sink.drain()
            except TimeoutError:
                if self.pending > self._backlog and self._sink.waiting() >= before:
                    logger.warning("a client took nothing of %d bytes in %g s: disconnected", self.pending, self._stall)
                    self._stop()
                    raise ConnectionAbortedError from None

    def _refill(self) -> None:
        """Hand the sink the next piece of the queue."""
        taken = 0
        pieces: list[bytes] = []
        while self._queue and taken < CHUNK:
            pieces.append(self._queue.popleft())
            taken += len(pieces[-1])
        self._queued -= taken
        if pieces:
            self._sink.write(b"".join(pieces))
        if self.pending <= self._backlog:
            self._room.set()

    def _stop(self) -> None:
        if self._closed:
            return
        self._closed = True
        behind = not self.writable
        self._queue.clear()
        self._queued = 0
        self._room.set()
        if behind:
            self._sink.abort()
        else:
            self._sink.close()


class StreamSource:
    """A pipe or a socket. `transport` is what to close where no `StreamSink` closes it."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.BaseTransport | None = None) -> None:
        self._reader = reader
        self._transport = transport

    async def read(self, n: int) -> bytes:
        return await self._reader.read(n)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class StreamSink:
    """A pipe or a socket."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream
        # With no buffer allowed, draining means that the system has taken everything.
        stream.transport.set_write_buffer_limits(high=0)
        self._lost = asyncio.create_task(self._wait_lost(), name="agentls lost")

    def write(self, data: bytes) -> None:
        if not self._stream.transport.is_closing():
            self._stream.write(data)

    def waiting(self) -> int:
        return 0 if self._stream.transport.is_closing() else self._stream.transport.get_write_buffer_size()

    async def drain(self) -> None:
        await self._stream.drain()

    async def lost(self) -> None:
        # Not awaited itself, since who stops waiting must not stop it.
        await asyncio.wait([self._lost])

    async def _wait_lost(self) -> None:
        with suppress(OSError):
            await self._stream.wait_closed()

    def close(self) -> None:
        self._stream.close()

    def abort(self) -> None:
        self._stream.transport.abort()


class FileSource:
    """A regular file, or a device that cannot be waited for, read by a thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def read(self, n: int) -> bytes:
        return await asyncio.to_thread(os.read, self._fd, n)

    def close(self) -> None:
        os.close(self._fd)


class FileSink:
    """A regular file or such a device, which takes everything at once; the system offers no other way to write it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lost = asyncio.Event()

    def write(self, data: bytes) -> None:
        if self._lost.is_set():
            return
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            # What comes after a message that is cut could not be told from it.
            logger.warning("the output cannot be written: %s", error.strerror)
            self._lost.set()

    def waiting(self) -> int:
        return 0

    async def drain(self) -> None:
        return

    async def lost(self) -> None:
        await self._lost.wait()

    def close(self) -> None:
        os.close(self._fd)
        self._lost.set()

    def abort(self) -> None:
        self.close()


# stdio ---------------------------------------------------------------------------------------------------------


def take_stdio() -> tuple[int, int]:
    """Take standard input and output away for the protocol: descriptors that no child inherits.

    Afterwards a stray print reaches stderr, and a child that reads its input finds an end. To be called before
    anything that might print is imported. OSError where either is closed.
    """
    for fd in (0, 1):
        os.fstat(fd)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    # Never a number below 3, which a closed stderr leaves free.
    taken = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    os.dup2(null, 0)
    os.dup2(2, 1)
    if null > 2:
        os.close(null)
    else:
        os.set_inheritable(null, True)
    return taken


async def open_stdio(fds: tuple[int, int]) -> tuple[Source, Sink]:
    """Streams on the descriptors that `take_stdio` gave, whatever is behind them."""
    given, taken = fds
    if _same_socket(given, taken):
        os.close(taken)
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=given))
        return StreamSource(reader), StreamSink(writer)
    return await _source(given), await _sink(taken)


def _same_socket(one: int, other: int) -> bool:
    first, second = os.fstat(one), os.fstat(other)
    return stat.S_ISSOCK(first.st_mode) and (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _can_be_waited_for(fd: int) -> bool:
    # Regular files and the null device are refused by epoll, which asyncio would find out too late.
    with select.epoll() as poll:
        try:
            poll.register(fd)
        except PermissionError:
            return False
    return True


async def _source(fd: int) -> Source:
    if not _can_be_waited_for(fd):
        return FileSource(fd)
    reader = asyncio.StreamReader(limit=CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return StreamSource(reader, transport)


async def _sink(fd: int) -> Sink:
    if not _can_be_waited_for(fd):
        return FileSink(fd)
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(fd, "wb", 0))
    return StreamSink(asyncio.StreamWriter(transport, protocol, None, loop))
