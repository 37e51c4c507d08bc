"""File URIs to paths and back, so that every path comes back as the same bytes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LOCAL_HOSTS = frozenset({"", "localhost"})


class NotAFileUri(ValueError):
    """The URI names no file of this machine; the text says why."""


def to_path(uri: str) -> Path:
    """The absolute path that a `file:` URI names; any other is a NotAFileUri.

    It is decoded once, and only percent escapes are: a `+` is a plus. A `?` or `#` that a client forgot to escape
    belongs to the name, since a file has neither query nor fragment.
    """
    match = _SCHEME.match(uri)
    if match is None:
        raise NotAFileUri(f'"{uri}" is no URI; a file\'s begins with "file:///"')
    if match[1].lower() != "file":
        raise NotAFileUri(f'"{uri}" is no file on disk, its scheme is "{match[1]}"; only "file" can be used here')
    rest = uri[match.end() :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host.lower() not in _LOCAL_HOSTS:
            raise NotAFileUri(f'"{uri}" is a file of the host "{host}"; only files of this machine can be used')
        rest = slash + rest
    if not rest.startswith("/"):
        raise NotAFileUri(f'"{uri}" has no absolute path; a file\'s URI begins with "file:///"')
    # utf-8 with surrogateescape is what a client that takes text from us for a path sends back.
    path = unquote_to_bytes(rest.encode("utf-8", "surrogateescape"))
    if b"\0" in path:
        raise NotAFileUri(f'"{uri}" has a null byte in it, which no path can have')
    return Path(os.fsdecode(path))


def to_uri(path: Path) -> str:
    """The URI of an absolute path, ASCII only, with everything escaped that any client might read otherwise."""
    if not path.is_absolute():
        raise ValueError(f'"{path}" is no absolute path')
    return "file://" + quote_from_bytes(os.fsencode(path), safe="/")


def is_uri(text: str) -> bool:
    """Whether a text that could be a path is meant as a URI: `file:` or any scheme with `//`."""
    match = _SCHEME.match(text)
    return match is not None and (match[1].lower() == "file" or text.startswith("//", match.end()))
