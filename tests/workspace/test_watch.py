"""Watching: whatever happens to files that are not ignored is told once, in order, to every reader."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agentls.workspace.inotify import Inotify
from agentls.workspace.roots import Roots
from agentls.workspace.watch import LONGEST, Change, News, Watch, Watches
from tests.harness import until

QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    return root


@pytest.fixture
def watches() -> Iterator[Watches]:
    watches = Watches()
    yield watches
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


# What is told --------------------------------------------------------------------------------------------------


async def test_files_that_come_change_and_go(root: Path, watches: Watches) -> None:
    files(root, "changed", "gone", "deep/er/changed", "untouched", "moved", "replaced")
    watch = await watching(watches, root)
    files(root, "new", "changed", "deep/er/changed", "deep/er/new")
    (root / "gone").unlink()
    (root / "moved").rename(root / "deep/moved")
    files(root, "temporary")
    (root / "temporary").rename(root / "replaced")
    os.symlink("nowhere", root / "link")
    assert await news(watch, root) == {
        "new": "created",
        "changed": "changed",
        "gone": "deleted",
        "deep/er/changed": "changed",
        "deep/er/new": "created",
        "moved": "deleted",
        "deep/moved": "created",
        "replaced": "changed",
        "link": "created",
    }


async def test_each_reader_goes_on_from_its_own_position(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    start = watch.position
    files(root, "a", "b")
    assert await news(watch, root, start) == {"a": "created", "b": "created"}
    middle = watch.since(start).position
    assert await news(watch, root, middle) == {}
    files(root, "a")
    (root / "b").unlink()
    files(root, "c")
    assert await news(watch, root, middle) == {"a": "changed", "b": "deleted", "c": "created"}
    assert await news(watch, root, start) == {"a": "created", "c": "created"}
    assert await news(watch, root, watch.position) == {}


async def test_what_came_and_went_between_two_looks_is_no_news(root: Path, watches: Watches) -> None:
    files(root, "kept")
    watch = await watching(watches, root)
    for _ in range(10):
        files(root, "lock")
        await news(watch, root)
        (root / "lock").unlink()
        (root / "kept").unlink()
        await news(watch, root)
        files(root, "kept")
    assert await news(watch, root) == {"kept": "changed"}


async def test_a_new_folder_is_looked_into_and_watched(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    files(root, "a/b/c/early")
    await news(watch, root)
    files(root, "a/b/c/late")
    assert await news(watch, root) == {"a/b/c/early": "created", "a/b/c/late": "created"}


async def test_a_folder_that_is_moved_in_brings_its_files(tmp_path: Path, root: Path, watches: Watches) -> None:
    files(tmp_path, "outside/x", "outside/deep/y")
    watch = await watching(watches, root)
    (tmp_path / "outside").rename(root / "inside")
    assert await news(watch, root) == {"inside/x": "created", "inside/deep/y": "created"}
    files(root, "inside/deep/z", "inside/deep/y")
    assert await news(watch, root) == {
        "inside/x": "created",
        "inside/deep/y": "created",
        "inside/deep/z": "created",
    }


async def test_a_folder_that_is_moved_out_takes_its_files(tmp_path: Path, root: Path, watches: Watches) -> None:
    files(root, "inside/x", "inside/deep/y")
    watch = await watching(watches, root)
    (root / "inside").rename(tmp_path / "outside")
    assert await news(watch, root) == {"inside/x": "deleted", "inside/deep/y": "deleted"}
    position = watch.position
    files(tmp_path, "outside/deep/y", "outside/z")
    assert await news(watch, root, position) == {}


async def test_a_folder_that_is_moved_is_watched_where_it_is(root: Path, watches: Watches) -> None:
    files(root, "here/deep/x")
    watch = await watching(watches, root)
    for n in range(5):
        (root / "here").rename(root / "there")
        await news(watch, root)
        position = watch.position
        files(root, f"there/deep/{n}")
        assert await news(watch, root, position) == {f"there/deep/{n}": "created"}
        (root / "there").rename(root / "here")
        await news(watch, root)
    position = watch.position
    files(root, "here/deep/x")
    assert await news(watch, root, position) == {"here/deep/x": "changed"}


async def test_a_folder_that_is_replaced_by_another_one(root: Path, watches: Watches) -> None:
    files(root, "build/both", "build/old", "build/deep/old", "next/both", "next/new")
    watch = await watching(watches, root)
    swap = "import shutil; shutil.rmtree(sys.argv[1]); os.rename(sys.argv[2], sys.argv[1])"
    elsewhere(swap, root / "build", root / "next")
    assert await news(watch, root) == {
        "build/both": "changed",
        "build/old": "deleted",
        "build/deep/old": "deleted",
        "build/new": "created",
        "next/both": "deleted",
        "next/new": "deleted",
    }
    position = watch.position
    files(root, "build/both")
    assert await news(watch, root, position) == {"build/both": "changed"}


async def test_a_file_in_the_place_of_a_folder_and_back(root: Path, watches: Watches) -> None:
    files(root, "a/x", "b")
    watch = await watching(watches, root)
    swap = "os.unlink('a/x'); os.rmdir('a'); open('a', 'w'); os.unlink('b'); os.mkdir('b'); open('b/y', 'w')"
    elsewhere(f"os.chdir(sys.argv[1]); {swap}", root)
    assert await news(watch, root) == {"a/x": "deleted", "a": "created", "b": "deleted", "b/y": "created"}


async def test_names_that_are_no_text_are_told(root: Path, watches: Watches) -> None:
    watch = await watching(watches, root)
    name = os.fsdecode(b"\xff\nx")
    files(root, name)
    assert await news(watch, root) == {name: "created"}


# What is left out ----------------------------------------------------------------------------------------------


async def test_ignored_files_are_left_out(root: Path, watches: Watches) -> None:
    files(root, "modules/deep/old", "src/old")
    (root / ".gitignore").write_text("modules/\n*.log\n/only-here\n")
    (root / "src/.gitignore").write_text("!kept.log\nown\n")
    (root / ".git/info").mkdir(parents=True)
    (root / ".git/info/exclude").write_text("excluded\n")
    watch = await watching(watches, root)
    files(root, "modules/deep/new", "modules/new", "x.log", "only-here", "excluded", "src/own", ".git/HEAD", ".git/a/b")
    files(root, "src/kept.log", "src/only-here", "own", "fresh/modules/x", "fresh/y.log", "fresh/z")
    (root / "src/.old.0123.agentls-new").touch()
    (root / "src/.old.0123.agentls-old").touch()
    assert await news(watch, root) == {
        "src/kept.log": "created",
        "src/only-here": "created",
        "own": "created",
        "fresh/z": "created",
    }


async def test_rules_that_change_count_from_then_on(root: Path, watches: Watches) -> None:
    files(root, "build/deep/x", "y.log")
    (root / ".gitignore").write_text("build\n")
    watch = await watching(watches, root)
    (root / ".gitignore").write_text("*.log\n")
    await news(watch, root)
    position = watch.position
    files(root, "build/deep/x", "y.log", "z.log")
    assert await news(watch, root, position) == {"build/deep/x": "changed"}


async def test_links_are_not_followed_out(tmp_path: Path, root: Path, watches: Watches) -> None:
    files(tmp_path, "outside/x")
    files(root, "real/x")
    os.symlink(tmp_path / "outside", root / "out")
    os.symlink(root, root / "round")
    os.symlink(root / "real", root / "alias")
    watch = await watching(watches, root)
    os.symlink(tmp_path / "outside", root / "later")
    files(root, "out/x", "out/y", "later/z", "alias/x")
    assert await news(watch, root) == {"later": "created", "real/x": "changed"}


async def test_several_roots_and_one_in_the_other(tmp_path: Path, root: Path, watches: Watches) -> None:
    files(root, "inner/x", "ignored/inner/x")
    (root / ".gitignore").write_text("ignored\n")
    (tmp_path / "other").mkdir()
    watch = await watching(watches, root / "ignored/inner", root / "inner", root, tmp_path / "other")
    files(root, "inner/x", "ignored/inner/x", "ignored/y")
    files(tmp_path, "other/z")
    assert await news(watch, root.parent) == {
        "root/inner/x": "changed",
        "root/ignored/inner/x": "changed",
        "other/z": "created",
    }


# What others tell ----------------------------------------------------------------------------------------------


async def test_what_a_client_tells_goes_the_same_way(tmp_path: Path, root: Path, watches: Watches) -> None:
    files(root, "known", "ignored/x", "x.log")
    (root / ".gitignore").write_text("ignored\n*.log\n")
    os.symlink(root, tmp_path / "alias")
    watch = await watching(watches, root)
    watches.told([root / "never-there", root / "ignored/x", root / "x.log", root / "ignored", root, tmp_path / "x"])
    watches.told([root / ".git/HEAD", root / ".known.1.agentls-new", Path("relative")])
    watches.told([tmp_path / "alias/known"])
    assert await news(watch, root) == {"known": "changed"}
    files(root, "fresh")
    (root / "known").unlink()
    watches.told([root / "fresh", root / "known", root / "known"])
    assert await news(watch, root) == {"known": "deleted", "fresh": "created"}


async def test_a_root_that_is_not_there_is_one_line_and_watched_once_it_is(
    root: Path, watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    watch = watches.watch(Roots([root / "later", root.parent / "beside"]))
    await until(lambda: len(caplog.messages) == 2)
    assert sorted(caplog.messages) == [
        f'files in "{root.parent}/beside" are not watched: No such file or directory',
        f'files in "{root}/later" are not watched: No such file or directory',
    ]
    for name in ("root/later/x", "beside/x"):
        assert not watch.on
        files(root.parent, name)
        await watch.known()
        assert await news(watch, root.parent, watch.position - 1) == {name: "created"}
    assert watch.on
    assert len(caplog.messages) == 2


class Limited(Inotify):
    """A system that allows two watches."""

    added = 0

    def add(self, folder: str) -> int:
        self.added += 1
        if self.added > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().add(folder)


async def test_a_limit_of_the_system_is_one_line_and_what_is_told_still_counts(
    root: Path, watches: Watches, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentls.workspace.watch.Inotify", Limited)
    files(root, "a/x", "b/x", "c/x")
    (root / ".gitignore").write_text("c\n*.log\n")
    watch = watches.watch(Roots([root]))
    await until(lambda: caplog.messages)
    (line,) = caplog.messages
    assert line.startswith(f'files in "{root}" are not watched: No space left on device; ')
    assert "fs.inotify.max_user_watches" in line
    assert "\n" not in line
    assert not watch.on
    assert watch.since(0).missed
    other = watches.watch(Roots([root / "a", root / "b", root / "c"]))
    await until(lambda: other.since(0).missed)
    assert caplog.messages == [line]
    other.close()
    start = watch.position
    files(root, "a/x")
    (root / "b/x").unlink()
    assert await news(watch, root, start) == {}
    watches.told([root / "a/x", root / "b/x", root / "c/x", root / "a/y.log", root / "a"])
    assert await news(watch, root, start) == {"a/x": "changed", "b/x": "deleted"}


async def test_no_instance_at_all_is_one_line(
    root: Path, watches: Watches, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Inotify:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("agentls.workspace.watch.Inotify", none)
    watch = watches.watch(Roots([root]))
    await until(lambda: caplog.messages)
    (line,) = caplog.messages
    assert line.startswith("files are not watched: Too many open files; ")
    assert "fs.inotify.max_user_instances" in line
    files(root, "x")
    watches.told([root / "x"])
    assert await news(watch, root) == {"x": "changed"}


REMOVE = "import shutil; shutil.rmtree(sys.argv[1])"


async def test_a_root_that_is_deleted_is_one_line_and_missed_once(
    root: Path, watches: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    files(root, "a/x")
    watch = await watching(watches, root)
    elsewhere(REMOVE, root)
    await until(lambda: watch.since(0).missed)
    assert not watch.on
    assert watch.since(0).changes == (Change(root / "a/x", "deleted"),)
    position = watch.position
    for _ in range(3):
        await watch.known()
    assert watch.since(position) == News(position, (), missed=False)
    assert caplog.messages == [f'files in "{root}" are not watched any more: it is gone or was moved']


async def test_a_root_that_is_made_again_is_watched_again(root: Path, watches: Watches) -> None:
    files(root, "old")
    watch = await watching(watches, root)
    for n in range(3):
        position = watch.position
        elsewhere(REMOVE, root)
        await until(lambda: not watch.on)
        files(root, "deep/new")
        await watch.known()
        assert watch.on
        assert watch.since(position).missed
        position = watch.position
        files(root, "deep/new", f"deep/{n}")
        assert await news(watch, root, position) == {"deep/new": "changed", f"deep/{n}": "created"}


async def test_a_root_in_whose_place_another_one_stands_is_watched_there(
    tmp_path: Path, root: Path, watches: Watches
) -> None:
    files(root, "old")
    files(tmp_path, "next/old", "next/new")
    watch = await watching(watches, root)
    elsewhere(
        "os.rename(sys.argv[1], sys.argv[2]); os.rename(sys.argv[3], sys.argv[1])",
        root,
        tmp_path / "away",
        tmp_path / "next",
    )
    await watch.known()
    await until(lambda: watch.since(0).missed)
    await watch.known()
    assert watch.on
    assert set(watch.since(0).changes) == {Change(root / "old", "changed"), Change(root / "new", "created")}
    files(tmp_path, "away/old", "away/x")
    files(root, "x")
    await watch.known()
    assert watch.since(0).changes[2:] == (Change(root / "x", "created"),)


async def test_a_root_is_looked_for_though_nobody_asks(
    root: Path, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentls.workspace.watch._RETRIED", 0.01)
    watch = await watching(watches, root)
    elsewhere("os.rmdir(sys.argv[1])", root)
    await until(lambda: not watch.on)
    files(root, "x")
    await until(lambda: watch.on)


# Bounds --------------------------------------------------------------------------------------------------------


async def test_more_than_is_kept_is_said(root: Path, watches: Watches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentls.workspace.watch.KEPT_MAX", 100)
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
        assert LONGEST - 0.01 <= loop.time() - start < 5


@pytest.mark.timeout(20)
async def test_what_is_known_does_not_wait_for_a_storm(
    root: Path, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentls.workspace.watch.LONGEST", 60)
    watch = await watching(watches, root)
    async with storm(root):
        for n in range(10):
            files(root, f"{n}")
            await watch.known()
            assert root / f"{n}" in {change.path for change in watch.since(0).changes}


@pytest.mark.timeout(20)
async def test_a_steady_writer_of_ignored_files_is_quiet_and_gathered_longer(
    root: Path, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentls.workspace.watch.LONGEST", 60)
    # So long that whoever had to wait for it would be noticed.
    monkeypatch.setattr("agentls.workspace.watch._GATHERED_MAX", 60)
    (root / ".gitignore").write_text("*.log\n")
    watch = await watching(watches, root)
    async with storm(root, "x.log", "sleep 0.002"):
        await until(lambda: watch._thread._gather > 1)
        await watch.quiet()
        assert watch.position == 0
        files(root, "x")
        await watch.quiet()
        assert watch.since(0).changes == (Change(root / "x", "created"),)


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


async def test_what_happens_while_a_root_is_looked_through_is_told(
    root: Path, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentls.workspace.watch._SLICE", -1)  # One folder or file at a time.
    files(root, "a/x", *(f"b{n}/x" for n in range(1000)))
    (root.parent / "other").mkdir()
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
