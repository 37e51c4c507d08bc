"""Watching the process that a client named as its own, so that the death of an editor is seen even where something
else keeps its pipes open."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

logger = logging.getLogger(__name__)


def when_gone(pid: int, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` once process `pid` has ended; the answer stops the watch.

    A process that is not there is not watched: an editor outside this container has its number in another namespace.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        logger.debug("the client's process %d cannot be watched: %s", pid, error)
        return lambda: None
    loop = asyncio.get_running_loop()
    watched = True

    def stop() -> None:
        nonlocal watched
        if watched:
            watched = False
            loop.remove_reader(fd)
            os.close(fd)

    def gone() -> None:
        stop()
        callback()

    loop.add_reader(fd, gone)
    return stop
