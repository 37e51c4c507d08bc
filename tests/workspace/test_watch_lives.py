"""Watching: one thread for all workspaces, for as long as somebody watches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from agentls.workspace.roots import Roots
from agentls.workspace.watch import Limits, Watches
from tests.harness import until
from tests.workspace.watching import files, news, watched, watcher_threads, watching

# Lives ---------------------------------------------------------------------------------------------------------


def instances() -> int:
    """How many instances of inotify this process has, of which a user has few."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
    return found


async def test_any_number_of_workspaces_is_one_thread_and_one_instance(root: Path, watches: Watches) -> None:
    files(root, *(f"{n}/x" for n in range(200)))
    before = instances()
    held = [await watching(watches, root / f"{n}") for n in range(200)]
    assert (len(watcher_threads()), instances() - before) == (1, 1)
    files(root, *(f"{n}/y" for n in range(200)))
    for n, watch in enumerate(held):
        assert await news(watch, root) == {f"{n}/y": "created"}
        watch.close()
    assert instances() == before


async def test_workspaces_that_share_folders_know_nothing_of_each_other(root: Path, watches: Watches) -> None:
    files(root, "a/b/x")
    outer, inner = await watching(watches, root), await watching(watches, root / "a")
    files(root, "a/b/x", "y")
    assert await news(outer, root) == {"a/b/x": "changed", "y": "created"}
    assert await news(inner, root) == {"a/b/x": "changed"}
    outer.close()
    files(root, "a/b/z", "z")
    assert await news(inner, root) == {"a/b/x": "changed", "a/b/z": "created"}
    again = await watching(watches, root)
    (root / "a/b").rename(root / "c")
    assert await news(inner, root) == {"a/b/x": "deleted"}
    position = again.position
    files(root, "c/new")
    assert await news(again, root, position) == {"c/new": "created"}
    assert await news(inner, root) == {"a/b/x": "deleted"}


async def test_what_happens_while_a_root_is_looked_through_is_told(root: Path) -> None:
    files(root, "a/x", *(f"b{n}/x" for n in range(1000)))
    (root.parent / "other").mkdir()
    with watched(Limits(slice=-1)) as watches:  # One folder or file at a time.
        other = await watching(watches, root.parent / "other")
        watch = watches.watch(Roots([root]))
        await until(lambda: watch._watcher.part is not None and len(watch._watcher.part._watches) > 10)
        files(root, "a/x", "a/y")
        files(root.parent, "other/z")
        assert await news(other, root.parent) == {"other/z": "created"}
        await until(lambda: watch.on)
        assert await news(watch, root) == {"a/x": "changed", "a/y": "created"}


async def test_a_watcher_is_shared_and_lives_as_long_as_its_last_holder(root: Path, watches: Watches) -> None:
    first, second = await watching(watches, root), await watching(watches, root)
    assert len(watcher_threads()) == 1
    first.close()
    first.close()
    files(root, "x")
    assert await news(second, root) == {"x": "created"}
    second.close()
    assert not watcher_threads()
    assert first.since(0) == second.since(0)
    third = await watching(watches, root)
    assert (third.position, watcher_threads() != []) == (0, True)


def test_a_watch_can_be_used_from_one_event_loop_after_another(root: Path, watches: Watches) -> None:
    watch = watches.watch(Roots([root]))

    async def once(name: str) -> dict[str, str]:
        await until(lambda: watch.on)
        files(root, name)
        return await news(watch, root)

    assert asyncio.run(once("a")) == {"a": "created"}
    assert asyncio.run(once("b")) == {"a": "created", "b": "created"}


async def test_closing_before_it_is_on_leaves_nothing(root: Path, watches: Watches) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        watches.watch(Roots([root])).close()
    assert not watcher_threads()
    assert len(os.listdir("/proc/self/fd")) == before
    watches.told([root / "x"])


def test_a_watcher_keeps_no_process_alive(root: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from agentls.workspace.watch import Watches; from agentls.workspace.roots import Roots\n"
        "watch = Watches().watch(Roots([Path(sys.argv[1])]))\n"
        "while not watch.on: pass\n"
    )
    subprocess.run([sys.executable, "-c", script, str(root)], check=True, timeout=30)
