"""Messages in a byte stream: pure, whatever way the bytes are cut.

A message is a header block, an empty line and as many bytes as `Content-Length` says. Header names are matched in any
case and other headers are tolerated, as a bare LF at a line's end is. Where the end of a message can still be told, a
wrong one is a fault and the stream goes on; where it cannot, the fault is fatal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentls.core.shown import shown

MESSAGE_MAX = 64 * 1024 * 1024
"""Bytes of a message's body, at most."""

_HEADER_MAX = 16 * 1024
_SKIPPED_MAX = 16 * MESSAGE_MAX
"""A longer message is not waited out: its length is more likely noise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the stream, for the client to read; after a fatal one nothing can be read any more."""

    message: str
    fatal: bool = False


class Framer:
    """Bytes in by `feed`, message bodies and faults out by `next`."""

    def __init__(self, limit: int = MESSAGE_MAX) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._header = 0
        self._length: int | None = None
        self._named = False
        self._body: int | None = None
        self._skip = 0
        self._dead = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._buffer += data

    @property
    def inside(self) -> bool:
        """Whether the stream stands within a message, so that an end of it here would cut one."""
        return bool(self._buffer or self._skip or self._header or self._body is not None)

    def next(self) -> bytes | Fault | None:
        """The next body or fault, or None until there is more to read."""
        while not self._dead and not self._skip:
            if self._body is not None:
                return self._take_body(self._body)
            line = self._take_line()
            if line is None:
                if self._header + len(self._buffer) > _HEADER_MAX:
                    return self._fatal(f"a header of more than {_HEADER_MAX} bytes; is this a Language Server client?")
                return None
            fault = self._read_line(line)
            if fault is not None:
                return fault
        return None

    def _take_body(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        self._body = None
        return body

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        self._header += end + 1
        return line.removesuffix(b"\r")

    def _read_line(self, line: bytes) -> Fault | None:
        if not line:
            return self._end_header()
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            return Fault(f"{shown(name)} is no header; each message starts with Content-Length: <bytes of its body>")
        self._named = True
        if name.strip().lower() != "content-length":
            return None
        if re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII) is None:
            return self._fatal(f"Content-Length {shown(value.strip())} is no number of bytes")
        length = int(value)
        if self._length not in (None, length):
            return self._fatal(f"two lengths for one message, {self._length} and {length}")
        self._length = length
        return None

    def _end_header(self) -> Fault | None:
        length, named = self._length, self._named
        self._header, self._length, self._named = 0, None, False
        if length is None:
            # An empty line between messages does no harm; a header block without a length leaves the end unknown.
            return self._fatal("a header without Content-Length, so that its message has no end") if named else None
        if length <= self._limit:
            self._body = length
            return None
        text = f"a message of {length} bytes; at most {self._limit} are taken, so send it in parts"
        if length > _SKIPPED_MAX:
            return self._fatal(text)
        self._skip = length
        rest, self._buffer = bytes(self._buffer), bytearray()
        self.feed(rest)
        return Fault(text)

    def _fatal(self, message: str) -> Fault:
        self._dead = True
        self._buffer.clear()
        return Fault(message, fatal=True)


def framed(body: bytes) -> bytes:
    """A body as it goes on the wire."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
