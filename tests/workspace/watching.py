"""A folder that is watched, what is told of it, and others that change it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentls.workspace.inotify import Inotify
from agentls.workspace.roots import Roots
from agentls.workspace.watch import LIMITS, Limits, Watch, Watches
from tests.harness import until


@contextmanager
def watched(limits: Limits = LIMITS, inotify: Callable[[], Inotify] = Inotify) -> Iterator[Watches]:
    """Watches that leave no thread behind."""
    watches = Watches(limits, inotify)
    try:
        yield watches
    finally:
        watches.close()
    assert not watcher_threads()


def watcher_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentls-watch"]


async def watching(watches: Watches, *folders: Path) -> Watch:
    watch = watches.watch(Roots(folders))
    await until(lambda: watch.on)
    return watch


async def news(watch: Watch, root: Path, position: int = 0) -> dict[str, str]:
    """All that is told from a position on, once it is quiet, however long that takes on a loaded machine."""
    goal = watch._thread.goal(watch._watcher)
    await until(lambda: watch._thread.unrest(watch._watcher, goal) <= 0)
    told = watch.since(position)
    assert not told.missed
    return {str(change.path.relative_to(root)): change.kind for change in told.changes}


def elsewhere(script: str, *arguments: Path) -> None:
    """Something that another process does."""
    subprocess.run([sys.executable, "-c", f"import os, sys\n{script}", *map(str, arguments)], check=True)


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
