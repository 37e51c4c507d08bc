"""What a tool is, what it is given, and what it answers.

A failure is an answer too: a code of `CODES` and a text that tells the model what to do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from agentls.core.ids import SessionId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.visible import preview
from agentls.workspace.documents import Documents
from agentls.workspace.roots import Roots
from agentls.workspace.uris import to_path

OUTPUT_MAX = 51_200
"""UTF-8 bytes of a result's text, at most, all notices included."""

GRACE_SECONDS = 5.0
"""How long what was stopped may take to end. After that it is left behind: nobody waits for it any more."""

THREADS = ThreadPoolExecutor(64, "agentls-tool")
"""The threads of tools, theirs alone: one that hangs on a dead disk keeps nothing else from being done."""

CODES: Mapping[str, str] = MappingProxyType(
    {
        "INVALID_ARGS": "the arguments do not fit; names the field",
        "UNKNOWN_TOOL": "there is no tool of that name",
        "NOT_FOUND": "there is no such file or folder",
        "IS_DIRECTORY": "a folder where a file is needed",
        "NOT_A_DIRECTORY": "a file where a folder is needed",
        "BINARY": "the file is no text",
        "TOO_LARGE": "more bytes than the tool takes",
        "OUTSIDE_WORKSPACE": "the path leads out of the workspace",
        "UNSAVED_BUFFER": "an editor has unsaved text of the file",
        "STALE": "the file is not as it was last read, or was never read",
        "PERMISSION": "the system does not allow it",
        "IO": "anything else that the system says",
        "DENIED": "the person did not allow it",
        "BLOCKED": "a guard refused it",
        "READ_ONLY": "the agent is in read-only mode, and the tool changes something",
        "REPEATED_CALL": "the same call came too many times in a row",
        "TIMEOUT": "it took longer than is allowed",
        "TOOL_FAILED": "a fault of the tool itself",
        "ABORTED": "it had begun and was stopped",
        "ABORTED_BEFORE_DISPATCH": "it was stopped before it began",
        "TOOL_OUTCOME_UNKNOWN": "the server ended while it ran; it may have happened or not",
        "TOOL_NOT_STARTED": "the server ended before it began",
    }
)
"""What the code of a failed call means. Others rely on the codes; one that is here is never renamed."""


class Arguments(BaseModel):
    """What a tool takes. The description of each field is read by the model; others than these are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=Arguments)


class ToolError(Exception):
    """Becomes the result of a call: `code` is one of `CODES`, `text` says what failed and what to do."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")


@dataclass(frozen=True, slots=True)
class Output:
    """What a call gives: `text` for the model, at most `OUTPUT_MAX` bytes of it, and `meta` for the log and those
    who draw it. A file whose content the agent now knows is in `meta` as `uri` and `hash` (see `observed`)."""

    text: str
    meta: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may look at. `seen` is the session's: it maps the real path of a file to the hash of its content
    as the agent last knew it; tools add to it, and a resumed session fills it from the log with `observed`. `stop` is
    the call's own: it is set when the call's task is cancelled, and threads look at it. `threads` is where they run,
    and `grace` how many seconds a stopped call has to end. The agent's own is what each call's is made from."""

    session: SessionId
    roots: Roots
    documents: Documents
    seen: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    threads: Executor = THREADS
    grace: float = GRACE_SECONDS


class Tool(Protocol[A]):
    """One tool, shared by all agents. Its name is that of its file."""

    @property
    def name(self) -> str:
        """Letters, digits and `_`."""

    @property
    def description(self) -> str:
        """When to use it and what it gives, for the model. It never changes, since providers cache by prefix."""

    @property
    def arguments(self) -> type[A]:
        """What it takes."""

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing outside of itself, so that it is offered also to an agent that may only read."""

    def parallel(self, arguments: A) -> bool:
        """Whether this call may run beside others; one that may not waits for those before it and holds up those
        after it."""

    async def asks(self, arguments: A, context: ToolContext) -> JsonObject | None:
        """What a person has to allow, exactly as `run` will do it, or None for a call that needs no leave. It changes
        nothing; a ToolError ends the call before anybody is asked. Its docstring is one sentence for people on when it
        asks and what it shows: the reference of tools has it."""

    async def run(self, arguments: A, context: ToolContext, allowed: JsonObject | None) -> Output:
        """Do it. ToolError for a failure that the model can act on.

        `allowed` is what a person gave leave for: exactly what `asks` showed, or None where it asked nobody. Time has
        passed since, so a tool that asks has to look again, and does nothing that is not in it: what would be done
        now, where it differs, is `STALE`.

        When its task is cancelled, nothing of it runs any more by the time it has ended, and how it ends tells what
        was done: CancelledError only where nothing was changed. What could not be stopped any more is answered as
        always, with its Output or ToolError, so whoever cancels a call has to look at what it returned. It has the
        context's `grace` to end; what goes on after that is left behind, and the call is answered without it.
        """


def observed(meta: JsonValue) -> dict[str, str]:
    """What a result's `meta` adds to `ToolContext.seen`: nothing, or one file's real path and content hash."""
    if not isinstance(meta, dict):
        return {}
    uri, content_hash = meta.get("uri"), meta.get("hash")
    if not isinstance(uri, str) or not isinstance(content_hash, str):
        return {}
    return {str(to_path(uri)): content_hash}


def bounded(text: str, limit: int = OUTPUT_MAX) -> str:
    """The text in at most `limit` UTF-8 bytes: as it is, or its beginning and how much is left out."""
    kept, omitted = preview(text, limit)
    if not omitted:
        return text
    # The longest notice there can be, so that the cut text and its notice fit together.
    kept, omitted = preview(text, max(limit - len(_notice(len(text.encode()))), 0))
    return (kept + _notice(omitted))[-limit:] if limit else ""


def _notice(omitted: int) -> str:
    return f"\n... ({omitted} more bytes are left out)"
