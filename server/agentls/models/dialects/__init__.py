"""One file a wire format: `encode(request)` and a `Decoder` from payloads to chunks, both pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentls.core.chunks import Chunk
from agentls.core.reasons import Failure
from agentls.models.catalog import ModelRow
from agentls.models.model import ModelRequest


class Decoder(Protocol):
    """Turns the payloads of one answer into chunks: an own object for each stream, never used again."""

    @property
    def finished(self) -> bool:
        """The provider has said why it stopped: only usage may follow, and nothing need be waited for."""

    @property
    def done(self) -> bool:
        """The `Finish` is out; whatever comes after it gives nothing."""

    def feed(self, payload: str) -> Sequence[Chunk]:
        """The chunks of the next payload."""

    def whole(self, body: bytes) -> Sequence[Chunk]:
        """The chunks of an answer that came as one JSON body in place of a stream."""

    def close(self, tail: str | None = None, failure: Failure | None = None) -> Sequence[Chunk]:
        """End the stream with exactly one `Finish`; nothing when it is out already.

        `tail` is a last payload whose end was not seen: it is taken if it parses. `failure` says what ended the stream;
        it counts only if the provider had not finished. Without it a stream that had not is `STREAM_CLOSED`.
        """


class Dialect(Protocol):
    """A wire format over HTTP; pure, shared by all models that speak it."""

    @property
    def path(self) -> str:
        """What is appended to a row's base URL."""

    def encode(self, request: ModelRequest, row: ModelRow) -> bytes | Failure:
        """The body of a request, or why there can be none (a content that the wire has no place for)."""

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The headers of a request; `key` is a checked credential, or None where the row needs none."""

    def decoder(self, row: ModelRow) -> Decoder:
        """A decoder for one answer."""

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """The failure of an answer that is no success: header names in lower case, `now` in epoch seconds."""
