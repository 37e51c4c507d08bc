"""`write`: a whole file, on disk only, never over text that somebody has not saved or the agent has not read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from agentls.core.json import JsonObject
from agentls.core.visible import one_line
from agentls.tools.paths import failures, locate, shown
from agentls.tools.stopping import change_in_thread, in_thread
from agentls.tools.tool import OUTPUT_MAX, Arguments, Output, ToolContext, ToolError, bounded
from agentls.workspace import disk
from agentls.workspace.diffs import Diff, unified
from agentls.workspace.roots import real
from agentls.workspace.texts import Form, NotText, Text, content_hash, decode
from agentls.workspace.uris import to_uri

FILE_MAX = 10 << 20
"""Bytes of a file before and after."""

_HEAD_MAX = 10_000


class WriteArguments(Arguments):
    """What `write` takes."""

    path: str = Field(description="The file, relative to the workspace or absolute.")
    content: str = Field(description="All of the new content.")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done to a file. `before` is what it holds and `expected` its hash, both None for one that is not
    there; `diff` is of what it holds before and after."""

    path: Path
    name: str
    before: Text | None
    data: bytes
    expected: str | None
    diff: Diff

    @property
    def change(self) -> Literal["created", "replaced", "none"]:
        if self.before is None:
            return "created"
        return "replaced" if content_hash(self.data) != self.expected else "none"


class Write:
    """Writes one file, after a person has allowed it."""

    name = "write"
    description = (
        "Write a whole file: a new one, with the folders it needs, or all of an existing one, which has to be read "
        "before. Line endings and encoding of an existing file are kept. The person is asked first."
    )
    arguments = WriteArguments
    read_only = False

    def parallel(self, arguments: WriteArguments) -> bool:
        return False

    async def asks(self, arguments: WriteArguments, context: ToolContext) -> JsonObject | None:
        """Where it would change something, and shows the path and the whole content or diff."""
        return _shows(arguments, await _plan(arguments, context))

    async def run(self, arguments: WriteArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        plan = await _plan(arguments, context)
        shows = _shows(arguments, plan)
        if shows is None:
            return Output(f"{plan.name} has this content already; nothing was written", _meta(plan))
        if shows != allowed:
            text = f'"{plan.name}" has changed since it was looked at, and nobody has allowed to write what it is now'
            raise ToolError("STALE", f"{text}; read it again, then write it")
        await change_in_thread(context, partial(_write, plan))
        context.seen[str(plan.path)] = content_hash(plan.data)
        return Output(_text(plan), _meta(plan))


def _shows(arguments: WriteArguments, plan: _Plan) -> JsonObject | None:
    """All that a person has to see before it is done, and None for nothing to do."""
    shows: dict[str, str] = {"path": arguments.path, "realPath": str(plan.path), "change": plan.change}
    match plan.change:
        case "created":
            return {**shows, "content": arguments.content}
        case "replaced":
            return {**shows, "diff": plan.diff.text}
    return None


async def _plan(arguments: WriteArguments, context: ToolContext) -> _Plan:
    """What `write` would do now; ToolError where it must not."""
    path = locate(context, arguments.path)
    name = shown(context.roots, path)
    seen = context.seen.get(str(path))
    _refuse_unsaved(context, path, name)
    plan = await in_thread(context, partial(_planned, path, name, arguments.content, seen))
    _refuse_unsaved(context, path, name)  # Nothing is waited for any more, so that it is what the person has now.
    return plan


def _refuse_unsaved(context: ToolContext, path: Path, name: str) -> None:
    unsaved = context.documents.unsaved(path)
    if unsaved:
        editors = ", ".join(dict.fromkeys(one_line(buffer.editor.name, 40) for buffer in unsaved))
        raise ToolError(
            "UNSAVED_BUFFER",
            f'"{name}" has unsaved text in {editors}; ask the person to save or discard it, then read it again',
        )


def _planned(path: Path, name: str, content: str, seen: str | None) -> _Plan:
    if "\0" in content:
        raise ToolError("INVALID_ARGS", '"content" has a null character in it, which no text file has')
    before = _before(path, name, seen)
    form = Form() if before is None else before.form
    text = content if before is None else form.fit(content)
    try:
        data = form.encode(text)
    except UnicodeEncodeError as error:
        char = text[error.start]
        raise ToolError(
            "INVALID_ARGS",
            f'"content" has "{char}" (U+{ord(char):04X}) in it, which the encoding {form.encoding} of "{name}" lacks; '
            "leave it out or ask the person to convert the file to UTF-8",
        ) from error
    if len(data) > FILE_MAX:
        raise ToolError("TOO_LARGE", f'"content" has {len(data)} bytes, more than the {FILE_MAX} that write takes')
    try:
        after = decode(data).text
    except NotText as error:
        text = f'with this "content" the file "{name}" could not be read as text any more: {error}'
        raise ToolError("INVALID_ARGS", text) from error
    diff = unified(None if before is None else before.text, after, name)
    return _Plan(path, name, before, data, seen if before is not None else None, diff)


def _before(path: Path, name: str, seen: str | None) -> Text | None:
    """What the file holds, as the agent has seen it; None for one that is not there."""
    with failures(name):
        try:
            data = disk.read(path, FILE_MAX)
            text = decode(data)
        except FileNotFoundError:
            return None
        except disk.TooLarge as error:
            raise ToolError(
                "TOO_LARGE", f'"{name}" has {error.size} bytes, more than the {FILE_MAX} that write takes'
            ) from error
        except NotText as error:
            raise ToolError("BINARY", f'"{name}" is not text: {error}; write replaces only text files') from error
    if seen is None:
        raise ToolError("STALE", f'"{name}" exists and was not read; read it first, then write it')
    if content_hash(data) != seen:
        raise ToolError("STALE", f'"{name}" has changed since it was read; read it again, then write it')
    return text


def _write(plan: _Plan) -> None:
    """Do it, and look whether it is done: what the result says is what is on disk."""
    with failures(plan.name):
        # Once more, right before: a link may stand there now that leads out of the workspace.
        if real(plan.path) != plan.path:
            raise ToolError("STALE", f'"{plan.name}" leads to another place now; read it again, then write it')
        try:
            disk.write(plan.path, plan.data, expected=plan.expected)
        except disk.Changed as error:
            text = f'"{plan.name}" was changed by somebody else just now; read it again, then write it'
            raise ToolError("STALE", text) from error
        if disk.read(plan.path, FILE_MAX) != plan.data:
            raise ToolError("IO", f'"{plan.name}" was written, but something else is there now; read it again')


def _text(plan: _Plan) -> str:
    head = f"{plan.change} {plan.name} (+{plan.diff.added} -{plan.diff.removed} lines)"
    # A new file's diff is its content, which the model has just written.
    return head if plan.before is None else f"{head}\n{bounded(plan.diff.text, OUTPUT_MAX - _HEAD_MAX)}"


def _meta(plan: _Plan) -> JsonObject:
    return {
        "uri": to_uri(plan.path),
        "hash": content_hash(plan.data),
        "change": plan.change,
        "added": plan.diff.added,
        "removed": plan.diff.removed,
        "diff": bounded(plan.diff.text),
    }
