"""Walks: what git would list, in order, and nothing followed that leads astray."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentls.workspace import ignore
from agentls.workspace.ignore import Parsed, Rules, Walk
from tests.workspace.support import ordinary_user


def make(folder: Path, *paths: str, **rules: str) -> None:
    """Files; each keyword is an ignore file in the folder of that name, `here` being this one."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    for name, text in rules.items():
        (folder / ("" if name == "here" else name) / ".gitignore").write_text(text)


def files(folder: Path, root: Path | None = None) -> list[str]:
    entries = list(Walk(folder, root or folder))
    return [entry.path for entry in entries if entry.kind != "folder" and not entry.path.endswith(".gitignore")]


def git(root: Path, *arguments: str) -> str:
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_entries_come_in_order_of_names_each_folder_before_what_is_in_it(tmp_path: Path) -> None:
    make(tmp_path, "b/z", "b/a/x", "a", "c", "B", "é")
    (tmp_path / "d").mkdir()
    assert [(entry.path, entry.kind) for entry in Walk(tmp_path, tmp_path)] == [
        ("B", "file"),
        ("a", "file"),
        ("b", "folder"),
        ("b/a", "folder"),
        ("b/a/x", "file"),
        ("b/z", "file"),
        ("c", "file"),
        ("d", "folder"),
        ("é", "file"),
    ]


def test_a_deeper_ignore_file_overrules_and_its_patterns_are_relative_to_it(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "sub/a.log", "sub/b.log", "sub/x/y", "x/y", here="*.log\n", sub="!a.log\n/x\n")
    assert files(tmp_path) == ["sub/a.log", "x/y"]


def test_nothing_below_an_ignored_folder_is_taken_back(tmp_path: Path) -> None:
    make(tmp_path, "out/keep", "b", here="out/\n!out/keep\n")
    walk = Walk(tmp_path, tmp_path)
    assert [entry.path for entry in walk] == [".gitignore", "b"]
    assert walk.ignored == 1


def test_git_folders_are_never_walked_and_the_repositorys_own_excludes_count_least(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    make(tmp_path, "a.tmp", "b.tmp", "c", "sub/.git/x", "sub/d", here="!b.tmp\n")
    (tmp_path / ".git/info/exclude").write_text("*.tmp\n")
    assert files(tmp_path) == ["b.tmp", "c", "sub/d"]


def test_rules_above_a_folder_hold_in_it_up_to_the_repository(tmp_path: Path) -> None:
    make(tmp_path, "repo/x/y/a.log", "repo/x/y/b", "repo/x/y/c", here="c\n")
    git(tmp_path / "repo", "init", "-q")
    make(tmp_path / "repo", here="*.log\n", x="y/b\n")
    assert files(tmp_path / "repo/x/y", tmp_path / "repo/x") == ["c"]


def test_without_a_repository_the_rules_begin_at_the_root(tmp_path: Path) -> None:
    make(tmp_path, "root/x/a.log", "root/x/b", here="b\n")
    make(tmp_path / "root", here="*.log\n")
    assert files(tmp_path / "root/x", tmp_path / "root") == ["b"]


def test_an_ignored_folder_that_is_asked_for_is_walked(tmp_path: Path) -> None:
    make(tmp_path, "out/a", "out/b.log", here="out/\n*.log\n")
    assert files(tmp_path) == []
    assert files(tmp_path / "out", tmp_path) == ["a"]


def test_a_repository_inside_starts_anew(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    make(tmp_path, "inner/a.log", "inner/b.tmp", "c.log", here="*.log\n")
    git(tmp_path / "inner", "init", "-q")
    make(tmp_path / "inner", here="*.tmp\n")
    assert files(tmp_path) == ["inner/a.log"]


def test_a_worktree_has_the_excludes_of_its_repository(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", str(tree))
    (main / ".git/info/exclude").write_text("*.tmp\n")
    make(tree, "a.tmp", "b")
    assert files(tree) == ["b"]
    assert git(tree, "ls-files", "--others", "--exclude-standard").split() == ["b"]


def test_links_are_told_and_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "sub/a", here="ignored/\n")
    (tmp_path / "sub/up").symlink_to("..")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "ignored").symlink_to("sub")  # To git a link is no folder.
    entries = {entry.path: entry.kind for entry in Walk(tmp_path, tmp_path)}
    assert entries == {
        ".gitignore": "file",
        "gone": "link",
        "ignored": "link",
        "sub": "folder",
        "sub/a": "file",
        "sub/up": "link",
    }


def test_an_ignore_file_that_is_a_link_a_pipe_or_a_folder_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, "one/a", "two/a", "three/.gitignore/b", "three/a", "rules")
    (tmp_path / "rules").write_text("a\n")
    (tmp_path / "one/.gitignore").symlink_to("../rules")
    os.mkfifo(tmp_path / "two/.gitignore")
    assert files(tmp_path) == ["one/a", "rules", "three/.gitignore/b", "three/a", "two/a"]


def test_names_that_are_no_utf8_are_walked_and_matched(tmp_path: Path) -> None:
    for name in (b"caf\xe9", b"caf\xe8"):
        (tmp_path / os.fsdecode(name)).touch()
    (tmp_path / ".gitignore").write_bytes(b"caf\xe9\n")
    assert [os.fsencode(entry.path) for entry in Walk(tmp_path, tmp_path)] == [b".gitignore", b"caf\xe8"]


def test_folders_may_stand_deeper_than_python_can_call(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
        os.chdir(here)
        assert sum(1 for _ in Walk(tmp_path, tmp_path)) == 1200
    finally:
        os.chdir(here)
        # pytest could not: shutil.rmtree does call itself.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_a_folder_that_cannot_be_read_is_counted_and_the_first_one_is_an_error(tmp_path: Path) -> None:
    with ordinary_user() as folder:
        make(folder, "a/b", "c")
        (folder / "a").chmod(0)
        walk = Walk(folder, folder)
        assert [entry.path for entry in walk] == ["a", "c"]
        assert walk.unreadable == 1
        with pytest.raises(PermissionError):
            list(Walk(folder / "a", folder))
        (folder / "a").chmod(0o755)
    for path, error in ((tmp_path / "gone", FileNotFoundError), (tmp_path / "file", NotADirectoryError)):
        (tmp_path / "file").touch()
        with pytest.raises(error):
            list(Walk(path, tmp_path))


def test_a_walk_that_is_stopped_ends(tmp_path: Path) -> None:
    make(tmp_path, *(f"d{n}/a" for n in range(9)))
    seen: list[str] = []
    for entry in Walk(tmp_path, tmp_path, stopped=lambda: len(seen) > 3):
        seen.append(entry.path)
    assert len(seen) == 4


# Ignore files that are kept ------------------------------------------------------------------------------------


@pytest.mark.timeout(10)
def test_rules_that_stay_the_same_are_parsed_once(tmp_path: Path) -> None:
    """Whoever watches a folder asks for them many times a second."""
    (tmp_path / ".gitignore").write_text("".join(f"folder{n}/**/x*{n}.[oa]\n" for n in range(3000)))
    for _ in range(300):
        assert Rules().ignore(tmp_path / "folder7/a/xb7.o", tmp_path, is_folder=False)


def test_rules_that_change_count_at_once_though_they_are_as_long(tmp_path: Path) -> None:
    for n in range(200):
        (tmp_path / ".gitignore").write_text("ab"[n % 2])
        for name in "ab":
            assert Rules().ignore(tmp_path / name, tmp_path, is_folder=False) == (name == "ab"[n % 2])


def test_of_a_long_ignore_file_the_whole_lines_at_its_beginning_count(tmp_path: Path) -> None:
    make(tmp_path, "early", "late", "cut")
    text = "early\n".ljust(ignore._RULES_MAX - 2, "\n") + "*t\nlate\n"
    (tmp_path / ".gitignore").write_text(text)
    assert files(tmp_path) == ["cut", "late"]
    (tmp_path / ".gitignore").write_text(text[1:])
    assert files(tmp_path) == ["early", "late"]


def test_a_bounded_number_of_ignore_files_is_kept(tmp_path: Path) -> None:
    parsed = Parsed(files=5, size=100, settled=-1000)
    held = {n: 2 * (1 if n < 10 else 20) for n in range(20)}
    for n, size in held.items():
        make(tmp_path, f"{n}/a", **{f"{n}": "a\n" * (size // 2)})
        assert parsed.patterns(tmp_path / f"{n}/.gitignore") is not None
        files, kept = parsed.kept
        assert files <= 5
        assert kept == sum(held[one] for one in range(n + 1 - files, n + 1)) <= 100, "the last ones, and no others"
    assert parsed.kept == (2, 80)
    assert parsed.patterns(tmp_path / "0/.gitignore") is not None, "one that was let go is read again"
