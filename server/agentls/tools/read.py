"""`read`: lines of a file, as the person sees them: unsaved text of an editor first, else what is on disk."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import Field

from agentls.core.json import JsonObject, JsonValue
from agentls.core.visible import one_line
from agentls.tools.paths import failures, locate, shown
from agentls.tools.stopping import check, in_thread
from agentls.tools.tool import OUTPUT_MAX, Arguments, Output, ToolContext, ToolError
from agentls.workspace import disk
from agentls.workspace.documents import Buffer
from agentls.workspace.large import ENCODINGS, open_large
from agentls.workspace.positions import split_lines
from agentls.workspace.texts import Form, NotText, content_hash, decode
from agentls.workspace.uris import to_uri

LINES_MAX = 2000
LINE_MAX = 2000
"""Characters of one line that are shown."""
WHOLE_MAX = 10 << 20
"""Bytes of a file that is held in memory; a larger one is read line by line."""
FILE_MAX = 256 << 20

_NOTES_MAX = 1000
_CHUNK = 1 << 16
_ENDINGS = {"\r\n": "CRLF", "\r": "CR"}


class ReadArguments(Arguments):
    """What `read` takes."""

    path: str = Field(description="The file, relative to the workspace or absolute.")
    offset: int = Field(default=1, ge=1, description="The first line to read, counted from 1.")
    limit: int = Field(default=LINES_MAX, ge=1, description=f"How many lines to read, at most {LINES_MAX}.")


@dataclass(frozen=True, slots=True)
class _Window:
    """Lines of a text, numbered and cut to what may be shown; `total` counts all lines of the text. `final_newline`
    is whether the text's last line has its ending."""

    lines: tuple[str, ...]
    total: int
    final_newline: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file holds."""

    window: _Window
    form: Form
    hash: str


class Read:
    """Reads text, never changes anything."""

    name = "read"
    description = (
        "Read a text file. Lines are numbered; long files come in pieces, and the answer says where to read on. "
        "Text that the person has not saved yet is read from their editor."
    )
    arguments = ReadArguments
    read_only = True

    def parallel(self, arguments: ReadArguments) -> bool:
        return True

    async def asks(self, arguments: ReadArguments, context: ToolContext) -> JsonObject | None:
        """Never."""
        return None

    async def run(self, arguments: ReadArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        path = locate(context, arguments.path)
        name = shown(context.roots, path)
        budget = OUTPUT_MAX - _NOTES_MAX - len(json.dumps(name))
        wanted = partial(
            _window, start=arguments.offset, limit=min(arguments.limit, LINES_MAX), budget=budget, stop=context.stop
        )
        on_disk: _Found | ToolError
        try:
            on_disk = await in_thread(context, partial(_load, path, name, wanted))
        except ToolError as error:
            on_disk = error
        # Looked up when nothing is waited for any more, so that it is what the person has now.
        unsaved = context.documents.unsaved(path)
        if unsaved:
            found = _from_buffer(unsaved[0], on_disk, wanted)
        elif isinstance(on_disk, ToolError):
            raise on_disk
        else:
            found = on_disk
        first, window = arguments.offset, found.window
        if first > max(window.total, 1):
            raise ToolError("INVALID_ARGS", f'"offset" is {first}, but "{name}" has only {window.total} lines')
        context.seen[str(path)] = found.hash
        return Output(_text(name, first, found, unsaved), _meta(path, first, found, unsaved))


# Where the text is from ----------------------------------------------------------------------------------------


def _load(path: Path, name: str, wanted: partial[_Window]) -> _Found:
    with failures(name):
        try:
            try:
                data = disk.read(path, WHOLE_MAX)
            except disk.TooLarge as error:
                if error.size > FILE_MAX:
                    raise ToolError(
                        "TOO_LARGE", f'"{name}" has {error.size} bytes, more than the {FILE_MAX} that read takes'
                    ) from error
                return _load_large(path, wanted)
            text = decode(data)
        except NotText as error:
            raise ToolError("BINARY", f'"{name}" is not text: {error}; read takes only text files') from error
    return _Found(wanted(io.StringIO(text.text, newline="")), text.form, content_hash(data))


def _load_large(path: Path, wanted: partial[_Window]) -> _Found:
    for encoding in ENCODINGS:
        try:
            with open_large(path, encoding) as large:
                window = wanted(large.lines)
                return _Found(window, Form(encoding), large.content_hash)
        except UnicodeDecodeError:
            continue
    raise AssertionError("the last encoding reads everything")


def _from_buffer(buffer: Buffer, on_disk: _Found | ToolError, wanted: partial[_Window]) -> _Found:
    """An editor's text, under the hash that the file will have once it is saved."""
    form = Form() if isinstance(on_disk, ToolError) else on_disk.form
    try:
        data = form.encode(buffer.text)
    except UnicodeEncodeError:
        data = buffer.text.encode("utf-8", "surrogatepass")
    return _Found(wanted(io.StringIO(buffer.text, newline="")), form, content_hash(data))


# The window ----------------------------------------------------------------------------------------------------


def _window(source: io.TextIOBase, *, start: int, limit: int, budget: int, stop: threading.Event) -> _Window:
    """`limit` lines from line `start` on, fewer when they would take more than `budget` bytes, but at least one.

    It goes through chunks, since a file may consist of one line, and looks only into those that hold a part of the
    window.
    """
    lines: list[str] = []
    total, full, open_line = 0, False, False
    head, length = "", 0
    while chunk := source.read(_CHUNK):
        check(stop)
        while chunk.endswith("\r") and (more := source.read(1)):
            chunk += more  # "\r\n" is one line ending.
        open_line = not chunk.endswith(("\n", "\r"))
        ends = chunk.count("\n") + chunk.count("\r") - chunk.count("\r\n")
        if full or total + ends + 1 < start:
            total += ends
            continue
        *ended, rest = split_lines(chunk)
        for line in (line.rstrip("\r\n") for line in ended):
            total += 1
            if total >= start and not full:
                budget -= _add(lines, total, head + line[:LINE_MAX], length + len(line), budget)
                full = len(lines) >= limit or budget < 0
            head, length = "", 0
        head, length = (head + rest)[:LINE_MAX], length + len(rest)
    if open_line:
        total += 1
        if total >= start and not full:
            _add(lines, total, head, length, budget)
    return _Window(tuple(lines), total, final_newline=not open_line)


def _add(lines: list[str], number: int, line: str, length: int, budget: int) -> int:
    """Add a numbered line, unless it goes over the budget and is not the first; what it takes in bytes."""
    cut = f"... ({length - LINE_MAX} more characters)" if length > LINE_MAX else ""
    drawn = f"{number}\t{line[:LINE_MAX]}{cut}\n"
    taken = len(drawn.encode("utf-8", "surrogatepass"))
    if taken <= budget or not lines:
        lines.append(drawn)
    return taken


# What is said --------------------------------------------------------------------------------------------------


def _text(name: str, first: int, found: _Found, unsaved: tuple[Buffer, ...]) -> str:
    window = found.window
    last = first + len(window.lines) - 1
    facts = {"path": name}
    if window.lines:
        facts["lines"] = f"{first}-{last} of {window.total}"
    if unsaved:
        facts["unsaved-in"] = _editor(unsaved[0])
    if found.form.encoding != "utf-8":
        facts["encoding"] = found.form.encoding
    if found.form.ending in _ENDINGS:
        facts["line-endings"] = _ENDINGS[found.form.ending]
    head = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in facts.items())
    # Every line begins with its number, so that none of them can look like the end of the file.
    return f"<file {head}>\n{''.join(window.lines)}</file>\n{' '.join(_notes(last, window, unsaved))}".rstrip("\n")


def _notes(last: int, window: _Window, unsaved: tuple[Buffer, ...]) -> list[str]:
    notes = []
    if not window.total:
        notes.append("The file is empty.")
    if last < window.total:
        notes.append(f"Lines {last + 1} to {window.total} follow; read on with offset {last + 1}.")
    elif window.total and not window.final_newline:
        notes.append("The last line has no line ending.")
    if unsaved:
        notes.append(f"This is unsaved text in {_editor(unsaved[0])}; the file on disk differs.")
    others = {_editor(buffer): None for buffer in unsaved[1:] if buffer.text != unsaved[0].text}
    if others:
        notes.append(f"Other unsaved text of the same file is in {', '.join(others)}: ask the person which one counts.")
    return notes


def _editor(buffer: Buffer) -> str:
    return one_line(buffer.editor.name, 40)


def _meta(path: Path, first: int, found: _Found, unsaved: tuple[Buffer, ...]) -> JsonObject:
    meta: dict[str, JsonValue] = {
        "uri": to_uri(path),
        "hash": found.hash,
        "firstLine": first,
        "lastLine": first + len(found.window.lines) - 1,
        "totalLines": found.window.total,
    }
    if unsaved:
        meta["unsavedIn"] = [buffer.editor.name for buffer in unsaved]
        meta["version"] = unsaved[0].version
    return meta
