"""Split a server-sent event stream into its payloads, cut anywhere: bytes in, texts out, no IO.

The framing is that of the HTML standard (section 9.2.6, "Interpreting an event stream"). Lines are cut as bytes, since
neither CR nor LF is ever a part of another UTF-8 character, and decoded whole, so that no cut can damage a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"
_CR = 0x0D
_LF = 0x0A


class SseParser:
    """Feed bytes as they come, then iterate `payloads()`; call `close` at the end of the stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0  # where the line that is being read begins
        self._scanned = 0  # up to here there is no line end, so it is never searched again
        self._after_cr = False
        self._has_cr = False
        self._first_line = True
        self._data: list[str] = []
        self._data_size = 0

    @property
    def held(self) -> int:
        """Bytes kept for an event that is not complete, about."""
        return len(self._buffer) - self._start + self._data_size

    def feed(self, data: bytes) -> None:
        """Take the next bytes; nothing is parsed before `payloads` is iterated."""
        self._buffer += data

    def payloads(self) -> Iterator[str]:
        """The payloads that are complete by now, each once.

        Parsing goes on only as the iterator does, so a caller may stop in the middle of a burst and go on later, also
        with a new iterator. An event without a `data` field has no payload; `data:` alone has an empty one.
        """
        while True:
            payload = self._plain_event()
            if payload is None:
                line = self._line()
                if line is None:
                    return
                if line:
                    self._field(line)
                    continue
                if not self._data:
                    continue
                payload = self._dispatch()
            yield payload

    def close(self) -> str | None:
        """The payload of a last event whose blank line never came, or None.

        The standard drops it; whether it is complete is for the dialect to say. Iterate `payloads()` before.
        """
        rest = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._scanned = 0
        if rest:
            self._field(self._without_bom(rest))
        return self._dispatch() if self._data else None

    def _plain_event(self) -> str | None:
        """The next event, if it is one `data` line between LFs, as nearly all are: read at one go."""
        buffer, start = self._buffer, self._start
        if self._has_cr or self._data or not buffer.startswith(b"data: ", start):
            return None
        end = buffer.find(b"\n", self._scanned)
        if end < 0 or not buffer.startswith(b"\n", end + 1) or buffer.find(b"\r", start, end) >= 0:
            return None
        self._start = self._scanned = end + 2
        self._first_line = False
        return buffer[start + 6 : end].decode("utf-8", "replace")

    def _line(self) -> bytes | None:
        buffer = self._buffer
        if self._after_cr and self._start < len(buffer):
            # A CR has ended its line already; the LF of a CRLF, which may come much later, ends nothing more.
            self._after_cr = False
            if buffer[self._start] == _LF:
                self._start += 1
                self._scanned = self._start
        found = _LINE_END.search(buffer, self._scanned)
        if found is None:
            del buffer[: self._start]
            self._start = 0
            self._scanned = len(buffer)
            return None
        end = found.start()
        line = bytes(buffer[self._start : end])
        self._after_cr = buffer[end] == _CR
        # In a stream that ends its lines by CR a search for LF would read to its end for each line.
        self._has_cr = self._has_cr or self._after_cr
        self._start = self._scanned = end + 1
        return self._without_bom(line)

    def _without_bom(self, line: bytes) -> bytes:
        if not self._first_line:
            return line
        self._first_line = False
        return line.removeprefix(_BOM)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        # Comments have no name; `event`, `id` and `retry` say nothing that a chat dialect needs; the standard ignores
        # all other names.
        if name == b"data":
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
            self._data_size += len(value)

    def _dispatch(self) -> str:
        payload = "\n".join(self._data)
        self._data.clear()
        self._data_size = 0
        return payload
