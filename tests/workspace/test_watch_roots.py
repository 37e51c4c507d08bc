"""Watching: roots that come, go and come back, and a system that allows no more."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agentls.workspace.inotify import Inotify
from agentls.workspace.roots import Roots
from agentls.workspace.watch import Change, Limits, News, Watches
from tests.harness import until
from tests.workspace.watching import elsewhere, files, news, watched, watching


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
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watched(inotify=Limited) as watches:
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


async def test_no_instance_at_all_is_one_line(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    def none() -> Inotify:
        raise OSError(errno.EMFILE, "Too many open files")

    with watched(inotify=none) as watches:
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


async def test_a_root_is_looked_for_though_nobody_asks(root: Path) -> None:
    with watched(Limits(retried=0.01)) as watches:
        watch = await watching(watches, root)
        elsewhere("os.rmdir(sys.argv[1])", root)
        await until(lambda: not watch.on)
        files(root, "x")
        await until(lambda: watch.on)
