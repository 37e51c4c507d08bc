"""Ignore patterns: git itself says what is right."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentls.workspace.gitignore import Patterns

# In pieces that a pattern is put together from at random; the rare ones are where implementations differ.
PIECES = ["a", "b", "ab", "c", "é", "*", "?", "**", "***", "/", "/", "!", "#", " ", "\\ ", "\t", "-", "]", "[", "\\"]
PIECES += ["[ab]", "[!a]", "[^b-]", "[b-a]", "[a-", "[]a]", "[]-a]", "[\\]]", "[é]", "[a/b]", "\\a", "\\*", "."]
PIECES += ["[[:alpha:]]", "[![:digit:]-]", "[[:nonsense:]]", "[[:al]"]
FOLDERS = ["", "a", "b", "a/b", "a/b/a", "ab", "é", "c", "b/c", "a/b/c", ".a"]
NAMES = ["a", "b", "ab", "ba", "aab", "c", "-", "]", "é", "!", "#a", "a ", "\\", "[", "abc", "*", "a*", ".", "1"]


class Repository:
    """A real one, in which git is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        self.git("init", "-q")
        for folder, name in itertools.product(FOLDERS, NAMES):
            path = root / folder / name
            if name != "." and f"{folder}/{name}".strip("/") not in FOLDERS:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()

    def git(self, *arguments: str) -> bytes:
        return subprocess.run(
            ["git", *arguments], cwd=self.root, env=self._environment, capture_output=True, check=True
        ).stdout

    def not_ignored(self, rules: bytes) -> set[bytes]:
        (self.root / ".git/info/exclude").write_bytes(rules)
        return set(self.git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")) - {b""}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))


def ours(root: Path, rules: bytes) -> set[bytes]:
    patterns = Patterns(rules)

    def walk(below: bytes) -> Iterator[bytes]:
        with os.scandir(os.path.join(os.fsencode(root), below)) as entries:
            for entry in entries:
                path = os.path.join(below, entry.name)
                if entry.name != b".git" and not patterns.verdict(path, is_folder=entry.is_dir()):
                    yield from walk(path) if entry.is_dir() else [path]

    return set(walk(b""))


@pytest.mark.parametrize("seed", range(8))
def test_any_patterns_ignore_what_git_ignores(repository: Repository, seed: int) -> None:
    """Four hundred files of one to four random patterns each: order, `!`, folders only, `**`, sets, escapes."""
    choose = random.Random(seed)
    for _ in range(50):
        lines = ["".join(choose.choices(PIECES, k=choose.randint(1, 6))) for _ in range(choose.randint(1, 4))]
        # An escaped slash after `**` is no slash to git, and nothing that anybody writes.
        rules = "\n".join(lines).replace("\\/", "/").encode()
        assert ours(repository.root, rules) == repository.not_ignored(rules), rules


@pytest.mark.parametrize(
    "rules",
    [
        b"*\n!*/\n!a.*\n",
        b"/a\n!/a/b\n",
        b"a/*\n!a/b/\n",
        b"**/b/**\n!**/b/a\n",
        b"\xef\xbb\xbfab\r\nb/\r\n",
        b"b\\ \na  \n#a\n\\#a\n\\!\n",
        b"",
        b"\n\n/\n//\n!\n!/\n",
        b"?\n!??\n",
        b"ab",
    ],
)
def test_patterns_that_people_write_ignore_what_git_ignores(repository: Repository, rules: bytes) -> None:
    assert ours(repository.root, rules) == repository.not_ignored(rules)


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (b"*a" * 100 + b"b", b"a" * 250),
        (b"?*" * 60 + b"b", b"a" * 250),
        (b"**/a/" * 100 + b"b", b"a/" * 2000 + b"c"),
        (b"**/*a*a*a*/" * 30 + b"b", (b"a" * 200 + b"/") * 20 + b"c"),
        (b"*a*a*a*a*a*a*a*b\n" * 5000, b"a" * 250),
    ],
)
def test_no_pattern_takes_long_to_fail(rules: bytes, path: bytes) -> None:
    """A repository that nobody trusts yet brings its patterns with it."""
    assert Patterns(rules).verdict(path, is_folder=False) is None
