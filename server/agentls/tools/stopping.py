"""What a call has begun ends with the call: threads that look at its stop, and code that is given a while to end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from agentls.tools.tool import ToolContext, ToolError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_left_behind: set[asyncio.Future[Any]] = set()
"""Held until they end, since asyncio holds on to no task that waits."""


def check(stop: threading.Event) -> None:
    """End a thread's work when its call was stopped."""
    if stop.is_set():
        raise ToolError("ABORTED", "the call was stopped")


async def stoppable(work: Awaitable[T], grace: float) -> T:
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
        if not running.cancelled():
            running.exception()  # Whoever does not look at it may leave it.
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
