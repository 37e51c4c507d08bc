"""What a dead server has left: its logs as they are on disk, read from a copy, and whether its locks are free."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agentls.core.events import Event
from agentls.core.ids import SessionId
from agentls.store.sqlite import LOCKS_FOLDER, SqliteStore


async def logs_of(state: Path, scratch: Path, since: Mapping[str, int]) -> dict[str, tuple[Event, ...]]:
    """The events of these sessions from the given places on. They are read from a copy in `scratch`, so that whatever
    has to be mended when a store is opened is left to the next server."""
    _copy(state, scratch)
    store = SqliteStore(scratch)
    try:
        found = {}
        for session, start in since.items():
            log = await store.open(SessionId(session))
            found[session] = await log.read(start)
            await log.close()
        return found
    finally:
        await store.close()


def _copy(state: Path, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    for path in state.iterdir():
        if path.is_file() and not path.name.endswith("-shm"):  # An index of the -wal file, which is made anew.
            shutil.copy2(path, scratch)


def held_locks(state: Path) -> list[str]:
    """The locks that somebody holds."""
    held = []
    for path in sorted((state / LOCKS_FOLDER).iterdir()):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(path.name)
        finally:
            os.close(descriptor)
    return held
