"""What a tool is, what it is given, and what it answers.

A failure is an answer too: a code of `CODES` and a text that tells the model what to do.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from agentls.core.ids import SessionId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.visible import preview
from agentls.workspace.documents import Documents
from agentls.workspace.roots import Roots
from agentls.workspace.uris import to_path

logger = logging.getLogger(__name__)

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

T = TypeVar("T")

_left_behind: set[asyncio.Future[Any]] = set()
"""Held until they end, since asyncio holds on to no task that waits."""


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
    and `grace` how many seconds a stopped call has to end."""

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


def check(stop: threading.Event) -> None:
    """End a thread's work when its call was stopped."""
    if stop.is_set():
        raise ToolError("ABORTED", "the call was stopped")


async def stoppable(work: Awaitable[T], grace: float = GRACE_SECONDS) -> T:
    """What a tool's own code gives, in a task of its own. Once we are cancelled so is that, and how it ends tells what
    was done; what has not ended after `grace` seconds is left behind, and ends as cancelled for us."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise RuntimeError("a tool was cancelled by nobody but itself") from cancelled
        running.cancel()
        if not await _ended(running, grace):
            raise
    return running.result()


async def in_thread(context: ToolContext, work: Callable[[], T]) -> T:
    """Run what blocks, and changes nothing, in a thread. A cancelled call sets `context.stop` and waits for it, since
    a thread cannot be ended from outside and should not go on after its call has; what it found is dropped."""
    running = asyncio.get_running_loop().run_in_executor(context.threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        context.stop.set()
        await _ended(running, context.grace)
        raise


async def change_in_thread(context: ToolContext, work: Callable[[], T]) -> T:
    """Run what blocks and changes something in a thread. A call that is cancelled before the thread begins changes
    nothing; from then on the outcome is given, a cancelled call or not, unless `work` ended at a `check` of its own,
    which it may only do while nothing is changed. Of a thread that is left behind nobody knows what it changes."""

    def unless_stopped() -> T:
        check(context.stop)
        return work()

    running = asyncio.get_running_loop().run_in_executor(context.threads, unless_stopped)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        context.stop.set()
        if not await _ended(running, context.grace):
            text = "the call was stopped and did not end; it may still take effect, so look before you repeat it"
            raise ToolError("ABORTED", text) from None
        if running.cancelled():
            raise
        error = running.exception()
        if isinstance(error, ToolError) and error.code == "ABORTED":
            raise
        return running.result()


async def _ended(running: asyncio.Future[T], grace: float) -> bool:
    """Wait until it has ended, however often that is cancelled, but not for ever: false when it is left behind."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace
    while not running.done() and (left := until - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running], timeout=left)
    if running.done():
        return True
    logger.error("a tool was stopped %g s ago and goes on all the same; it is left behind", grace)
    _left_behind.add(running)
    running.add_done_callback(_ended_late)
    return False


def _ended_late(running: asyncio.Future[Any]) -> None:
    _left_behind.discard(running)
    # Nobody waits for it, so asyncio must not report that its fault was never retrieved.
    fault = None if running.cancelled() else running.exception()
    logger.info("a tool that was left behind has ended: %s", type(fault).__name__ if fault is not None else "well")
