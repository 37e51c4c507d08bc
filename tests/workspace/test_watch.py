"""Watching: whatever happens to files that are not ignored is told once, in order, to every reader."""

from __future__ import annotations

import os
from pathlib import Path

from agentls.workspace.watch import Watches
from tests.workspace.watching import elsewhere, files, news, watching

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
