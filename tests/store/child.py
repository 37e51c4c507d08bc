"""What a second process does in a test: `python -m tests.store.child PART ARGUMENTS`, one line out for each step."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentls.core.errors import SessionHeld, StoreUnavailable
from agentls.core.ids import SessionId
from agentls.store.lock import SessionLock
from agentls.store.log import SqliteLog
from agentls.store.sqlite import SqliteStore
from tests.store.support import A, header, message, piece


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hear() -> str:
    return sys.stdin.readline().strip()


async def outcome(log: SqliteLog, seq: int, text: str) -> str:
    try:
        await log.commit(message(seq, text), durable=True)
    except StoreUnavailable as error:
        return f"refused: {error}"
    return "stored"


async def commit_for_ever(directory: str) -> None:
    """Acknowledge event after event, with a draft of the next; the parent ends this."""
    log = await SqliteStore(Path(directory)).create(header())
    seq = 0
    while True:
        await log.commit(message(seq), durable=True)
        log.append_drafts([piece(f"draft {seq}", seq)])
        say(seq)
        seq += 1


async def hold(directory: str) -> None:
    """Hold a session, with a child of one's own that was given every descriptor it could be given."""
    await SqliteStore(Path(directory)).open(A)
    grandchild = await asyncio.create_subprocess_exec("cat", close_fds=False)
    say(grandchild.pid)
    hear()


async def try_to_open(directory: str) -> None:
    """Open a session that another process holds."""
    store = SqliteStore(Path(directory))
    try:
        await store.open(SessionId(A))
    except SessionHeld as error:
        say(f"held by {error.pid}")
    await store.close()


async def race(directory: str) -> None:
    """Try to lock each session that is named; keep it until the next name."""
    say("ready")
    while name := hear():
        try:
            lock = SessionLock.acquire(Path(directory), name)
        except SessionHeld as error:
            say(f"held by {error.pid}")
            hear()
        else:
            say("got it")
            hear()
            lock.release()


async def contend(directory: str, rounds: str) -> None:
    """Take and leave one lock as fast as it goes; say so if anyone else is ever inside."""
    say("ready")
    hear()
    say("done" if all(_alone_inside(Path(directory)) for _ in range(int(rounds))) else "two inside")


def _alone_inside(directory: Path) -> bool:
    while True:
        try:
            lock = SessionLock.acquire(directory, "contended")
            break
        except SessionHeld:
            continue
    inside = directory / "inside"
    try:
        inside.touch(exist_ok=False)
        inside.unlink()
    except FileExistsError:
        return False
    lock.release()
    return True


async def write_beside(directory: str, session: str, count: str) -> None:
    """One of several processes on the same files."""
    store = SqliteStore(Path(directory))
    log = await store.create(header(session))
    for seq in range(int(count)):
        await log.commit(message(seq), durable=seq % 2 == 0)
        log.append_drafts([piece(f"{session} {seq}", seq)])
    await store.close()
    say("done")


async def open_store(directory: str) -> None:
    """Try to open a store and say what happens."""
    try:
        store = SqliteStore(Path(directory))
    except StoreUnavailable as error:
        say(f"refused: {error}")
    else:
        say("opened")
        await store.close()


async def delete_and_die_at(directory: str, statement: str) -> None:
    """Delete a session, and be killed right before a statement of it runs."""

    def die(traced: str) -> None:
        if traced.startswith(statement):
            os.kill(os.getpid(), signal.SIGKILL)

    store = SqliteStore(Path(directory), trace=die)
    say("deleting")
    await store.delete(A)
    say("deleted")


async def delete(directory: str) -> None:
    """Delete a session."""
    await SqliteStore(Path(directory)).delete(A)
    say("deleted")


async def delete_without_writes(directory: str) -> None:
    """Delete a session on a disk that takes no byte, and when it does again."""
    store = SqliteStore(Path(directory))
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    log.append_drafts([piece("in flight")])
    await log.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        await store.delete(A)
    except StoreUnavailable as error:
        say(f"refused: {error}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log = await store.open(A)
    say("whole" if await log.read() == message(0) and await log.drafts() == (piece("in flight"),) else "half")
    await log.close()
    await store.delete(A)
    say("deleted" if await store.list() == ((), None) else "still there")
    await store.close()


async def no_writes(directory: str) -> None:
    """A disk that takes no byte, and then does again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    await _through_a_fault(
        Path(directory),
        fail=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard)),
        mend=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)),
    )


async def full_disk(directory: str) -> None:
    """A file system of one megabyte, full to its last byte, and then not."""
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=1m", "none", directory)
    assert await mount.wait() == 0
    filler = Path(directory, "filler")

    def fail() -> None:
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    await _through_a_fault(Path(directory), fail=fail, mend=filler.unlink)


async def _through_a_fault(directory: Path, *, fail: Callable[[], None], mend: Callable[[], None]) -> None:
    long = os.urandom(100_000).hex()
    store = SqliteStore(directory)
    log, other = await store.create(header()), await store.create(header("b"))
    say(await outcome(log, 0, "first"))
    say(await outcome(other, 0, "first"))
    fail()
    # Given together: the second rests on the first, the third is another session's.
    for line in await asyncio.gather(outcome(log, 1, long), outcome(log, 2, "after"), outcome(other, 1, long)):
        say(line)
    say([event.seq for event in await log.read()])
    say(await outcome(log, 1, "again, unasked"))
    try:
        log.append_drafts([piece(long)])
        say("draft stored")
    except StoreUnavailable as error:
        say(f"draft refused: {error}")
    mend()
    await log.probe()
    say(await outcome(log, 1, long))
    say(await outcome(other, 1, long))
    await other.probe()
    say(await outcome(other, 1, long))
    log.append_drafts([piece("after")])
    say([event.seq for event in await log.read()])
    await store.close()


PARTS = {
    part.__name__: part
    for part in (
        contend,
        commit_for_ever,
        delete,
        delete_and_die_at,
        delete_without_writes,
        full_disk,
        hold,
        no_writes,
        open_store,
        race,
        try_to_open,
        write_beside,
    )
}

if __name__ == "__main__":
    asyncio.run(PARTS[sys.argv[1]](*sys.argv[2:]))
