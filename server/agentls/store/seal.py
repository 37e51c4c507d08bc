"""Check values of stored rows, since SQLite keeps none: a byte that flipped on disk is noticed, not read as something
else. They are no signatures: whoever can write the file can write them too.

Why and what it costs: docs/rfc/implemented/architecture/2026-12-01-rows-have-seals.md.
"""

from __future__ import annotations

import zlib

from agentls.core.events import SessionHeader


def of_event(at: int, time: int, kind: str, ignorable: int, stored: bytes) -> int:
    """The seal of an event: of its bytes, and of where and as what they stand."""
    return _signed(zlib.crc32(stored, _of(at, time, kind, ignorable)))


def of_header(header: SessionHeader) -> int:
    """The seal of what never changes in a session's row."""
    facts = (header.id, header.version, header.workspace, header.cwd, header.created_at)
    return _signed(_of(*facts, header.parent, header.seed_length))


def of_piece(session: str, n: int, message: str, index: int, kind: str, offset: int, text: bytes) -> int:
    """The seal of a piece of text in flight."""
    return _signed(zlib.crc32(text, _of(session, n, message, index, kind, offset)))


def _signed(sum: int) -> int:
    """Such that SQLite takes four bytes for it, and never six."""
    return sum - (1 << 32) if sum >> 31 else sum


def _of(*facts: str | int | None) -> int:
    return zlib.crc32("\0".join(map(str, facts)).encode("utf-8", "surrogatepass"))
