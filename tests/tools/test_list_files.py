"""`list_files`: as deep as fits, sorted, without what is ignored, and what is left out is counted."""

from __future__ import annotations

import os

from agentls.tools import list_files
from agentls.tools.list_files import ListFiles
from agentls.tools.registry import Registry
from agentls.tools.tool import OUTPUT_MAX
from tests.tools.support import Space


async def listed(space: Space, path: str = ".") -> list[str]:
    return (await space.call("list_files", path=path)).text.split("\n")


async def test_files_are_listed_sorted_by_the_paths_that_read_takes(space: Space) -> None:
    for name in ("src/b.py", "src/a/x.py", "README.md", "src/a.py", ".github/ci.yml"):
        space.file(name)
    (space.root / "empty").mkdir()
    (space.root / "link").symlink_to("src")
    lines = await listed(space)
    assert lines == [
        ".: 6 files in 4 folders, 0 ignored",
        ".github/ci.yml",
        "README.md",
        "empty/ (0 files)",
        "link (link)",
        "src/a/x.py",
        "src/a.py",
        "src/b.py",
    ]
    assert await listed(space, "src/a") == ["src/a: 1 file in 0 folders, 0 ignored", "src/a/x.py"]
    for line in ("src/a/x.py", ".github/ci.yml"):
        await space.refusal("read", path=line, offset=2)  # It is found, and empty.


async def test_what_git_ignores_is_left_out_and_counted(space: Space) -> None:
    space.file(".gitignore", "*.log\nnode_modules/\n")
    for name in ("a.log", "node_modules/x/y", "b.py", ".git/config"):
        space.file(name)
    output = await space.call("list_files")
    assert output.text == ".: 2 files in 0 folders, 2 ignored\n.gitignore\nb.py"
    assert output.meta == {
        "uri": space.root.as_uri(),
        "files": 2,
        "folders": 0,
        "ignored": 2,
        "unreadable": 0,
        "more": False,
    }


async def test_deeper_folders_are_counted_where_there_are_too_many_lines(space: Space) -> None:
    for folder in range(20):
        for name in range(20):
            space.file(f"src/p{folder:02}/deep/{name}.py")
    space.file("README.md")
    lines = await listed(space)
    assert lines[0] == ".: 401 files in 41 folders, 0 ignored"
    assert lines[1:3] == ["README.md", "src/p00/deep/ (20 files)"]
    assert len(lines) == 22


async def test_a_folder_with_more_entries_than_lines_says_how_many_are_left_out(space: Space) -> None:
    for n in range(list_files.LINES_MAX + 50):
        space.file(f"{n:04}.txt")
    lines = await listed(space)
    assert lines[0] == f".: {list_files.LINES_MAX + 50} files in 0 folders, 0 ignored"
    assert len(lines) == list_files.LINES_MAX + 2
    assert lines[-2:] == [f"{list_files.LINES_MAX - 1:04}.txt", "50 more are not shown."]


async def test_a_listing_is_never_over_the_limit_of_bytes(space: Space) -> None:
    deep = "/".join(["é" * 100] * 4)
    for n in range(200):
        space.file(f"{deep}/{n:03}{'x' * 200}")
    space.file("wide/a")
    output = await space.call("list_files")
    assert len(output.text.encode()) <= OUTPUT_MAX
    assert f"{deep}/ (200 files)" in output.text
    for n in range(250):
        space.file(f"wide/{'y' * 240}{n:03}")
    output = await space.call("list_files", path="wide")
    assert len(output.text.encode()) <= OUTPUT_MAX
    shown = output.text.count("\nwide/")
    assert 0 < shown < 251
    assert output.text.endswith(f"\n{251 - shown} more are not shown.")


async def test_a_walk_that_takes_too_long_ends_and_says_so(space: Space) -> None:
    tools = Registry()
    tools.register(ListFiles(walked_max=10))
    for n in range(11):
        space.file(f"{n:02}")
    lines = (await tools.prepare("list_files", {}).run(space.context, None)).text.split("\n")
    assert lines[0] == ".: 10 files in 0 folders and more, 0 ignored"
    assert lines[-1] == "Only the first 10 were counted; list a folder in it for the rest."


async def test_what_is_no_folder_is_answered_with_the_reason(space: Space) -> None:
    space.file("a.py")
    error = await space.refusal("list_files", path="a.py")
    assert (error.code, error.text) == ("NOT_A_DIRECTORY", '"a.py" is a file; use read to see what is in it')
    assert (await space.refusal("list_files", path="gone")).code == "NOT_FOUND"


async def test_a_name_with_a_line_break_is_one_line(space: Space) -> None:
    space.file("a\nREADME.md")
    assert await listed(space) == [".: 1 file in 0 folders, 0 ignored", "a⟨U+000A⟩README.md"]


async def test_a_listing_changes_nothing_and_asks_nobody(space: Space) -> None:
    space.file("a")
    assert await space.asks("list_files") is None
    await space.call("list_files")
    assert space.context.seen == {}
    assert os.listdir(space.root) == ["a"]


async def test_a_listing_that_was_stopped_gives_nothing(space: Space) -> None:
    space.file("a")
    space.context.stop.set()
    assert (await space.refusal("list_files")).code == "ABORTED"
