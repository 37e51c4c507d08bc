"""Watching: what is kept, what is lost, and how long anybody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentls.workspace.watch import LIMITS, Change, Limits, Watches
from tests.harness import until
from tests.workspace.watching import elsewhere, files, news, watched, watching

QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


# Bounds --------------------------------------------------------------------------------------------------------


async def test_more_than_is_kept_is_said(root: Path) -> None:
    with watched(Limits(kept=100)) as watches:
        watch = await watching(watches, root)
        files(root, *(f"{n}" for n in range(150)))
        await until(lambda: watch.since(0).missed)
        await news(watch, root, watch.position)
        told = watch.since(0)
        assert told.missed
        assert len(told.changes) == 100
        assert not watch.since(told.position - 10).missed


async def test_what_the_kernel_drops_is_found_on_disk_and_said(root: Path, watches: Watches) -> None:
    """Its queue holds some thousand events, and nobody reads it meanwhile: the thread has to wait for a lock."""
    files(root, "old", "gone")
    if QUEUE > 100_000:
        pytest.skip("the kernel's queue is too long to fill")
    watch = await watching(watches, root)
    (root / "gone").unlink()
    await news(watch, root)
    with watch._watcher.record._lock:
        files(root, "noticed")  # The thread takes it, and then waits for us.
        await until(lambda: watch._thread._begun > watch._thread._done and not watch._thread._pending(watch._watcher))
        script = "for n in range(int(sys.argv[2])):\n for name in 'ab':\n  open(f'{sys.argv[1]}/{name}', 'w').close()"
        elsewhere(script, root, Path(str(QUEUE)))
        files(root, "late/x")
    await until(lambda: any(change.path == root / "late/x" for change in watch.since(0).changes))
    assert watch.since(0).missed
    files(root, "late/y")
    await until(lambda: any(change.path == root / "late/y" for change in watch.since(0).changes))


# Quiet ---------------------------------------------------------------------------------------------------------


async def test_nothing_going_on_is_not_waited_for(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    waited = asyncio.create_task(watch.quiet())
    await asyncio.sleep(0)
    assert waited.done()


async def test_what_was_done_before_is_known_after_a_wait(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    for n in range(10):
        files(root, f"{n}")
        await watch.quiet()
        assert watch.since(0).changes[-1].path == root / f"{n}"


@asynccontextmanager
async def storm(root: Path, name: str = "x", pause: str = ":") -> AsyncIterator[None]:
    """Somebody who writes to a file without end."""
    script = f'cd "$0" && while {pause}; do echo >> {name}; done'
    process = await asyncio.create_subprocess_exec("sh", "-c", script, root)
    try:
        await until(lambda: (root / name).exists())
        yield
    finally:
        process.kill()
        await process.wait()


async def test_a_storm_is_waited_for_but_not_for_ever(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    loop = asyncio.get_running_loop()
    async with storm(root):
        await until(lambda: watch.position > 0)
        start = loop.time()
        await watch.quiet()
        assert LIMITS.longest - 0.01 <= loop.time() - start < 5


@pytest.mark.timeout(20)
async def test_what_is_known_does_not_wait_for_a_storm(root: Path) -> None:
    with watched(Limits(longest=60)) as watches:
        watch = await watching(watches, root)
        async with storm(root):
            for n in range(10):
                files(root, f"{n}")
                await watch.known()
                assert root / f"{n}" in {change.path for change in watch.since(0).changes}


@pytest.mark.timeout(20)
async def test_a_steady_writer_of_ignored_files_is_quiet_and_gathered_longer(root: Path) -> None:
    (root / ".gitignore").write_text("*.log\n")
    # So long that whoever had to wait for it would be noticed.
    with watched(Limits(longest=60, gathered=60)) as watches:
        watch = await watching(watches, root)
        async with storm(root, "x.log", "sleep 0.002"):
            await until(lambda: watch._thread._gather > 1)
            await watch.quiet()
            assert watch.position == 0
            files(root, "x")
            await watch.quiet()
            assert watch.since(0).changes == (Change(root / "x", "created"),)
