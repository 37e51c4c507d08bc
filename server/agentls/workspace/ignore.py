"""Walking a folder as git would list it: `.gitignore` files of all levels, `.git/info/exclude`, never `.git`.

Of a longer file than `_RULES_MAX` the lines that lie whole within it count, and the rest is left out.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentls.workspace import disk
from agentls.workspace.gitignore import Patterns

Kind = Literal["file", "folder", "link"]

GIT = ".git"
"""Where a repository keeps its own files, which no walk enters."""
GITIGNORE = ".gitignore"
"""A folder's ignore file."""
_RULES_MAX = 128 << 10
"""Bytes of an ignore file that count; nobody writes more by hand, and a megabyte takes seconds. git takes 100 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that is not ignored; `path` is relative to where the walk began. A link is not followed, and what is
    neither file nor folder counts as a file."""

    path: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Level:
    """The rules that hold in a folder: of its own ignore file, then those of the folders above it."""

    patterns: Patterns | None
    path: bytes
    above: _Level | None


class Walk:
    """One walk over a folder, in order of the names, each folder before what is in it.

    The rules come from the repository that the folder is in, or from `root` on where it is in none; a repository
    inside starts anew. A folder that is walked although it is ignored itself is walked all the same. `ignored` and
    `unreadable` count what was passed over so far.
    """

    def __init__(self, folder: Path, root: Path, *, stopped: Callable[[], bool] = lambda: False) -> None:
        """Both are real paths, `folder` is `root` or in it. When `stopped` says so, the walk ends early."""
        self.ignored = 0
        self.unreadable = 0
        self._folder = folder
        self._root = root
        self._stopped = stopped

    def __iter__(self) -> Iterator[Entry]:
        # A stack of our own, since folders may stand deeper than Python's.
        open_folders = [self._entries("", _rules_above(self._folder, self._root))]
        while open_folders and not self._stopped():
            for entry, rules in open_folders[-1]:
                yield entry
                if entry.kind == "folder":
                    open_folders.append(self._entries(entry.path, rules))
                    break
            else:
                open_folders.pop()

    def _entries(self, below: str, above: _Level | None) -> Iterator[tuple[Entry, _Level | None]]:
        folder = self._folder / below
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
        except OSError:
            # The first one is the caller's, who has to say why.
            if not below:
                raise
            self.unreadable += 1
            return
        rules = _level(folder, above)
        for entry in entries:
            if entry.name == GIT:
                continue
            kind = _kind(entry)
            if _is_ignored(rules, os.fsencode(entry.path), is_folder=kind == "folder"):
                self.ignored += 1
                continue
            yield Entry(f"{below}/{entry.name}" if below else entry.name, kind), rules


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    # A folder that vanishes meanwhile is a file here, and fails where it is read.
    with suppress(OSError):
        if entry.is_dir(follow_symlinks=False):
            return "folder"
    return "file"


class Rules:
    """Whether single paths are ignored, by the rules as they are when they are first asked for."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[bool, _Level | None]] = {}

    def ignore(self, path: str | Path, top: Path, *, is_folder: bool) -> bool:
        """Whether a path below `top` is ignored, or a folder between them. What is ignored above counts too, as do
        the rules above `top` in its repository."""
        ignored, level = self._inside(os.path.dirname(path), top)
        return ignored or _is_ignored(level, os.fsencode(path), is_folder=is_folder)

    def _inside(self, folder: str, top: Path) -> tuple[bool, _Level | None]:
        """Whether a folder is ignored, and the rules that hold in it."""
        unknown = []
        while folder not in self._folders and folder != str(top):
            unknown.append(folder)
            folder = os.path.dirname(folder)
        if folder not in self._folders:
            self._folders[folder] = False, _level(top, _rules_above(top, top))
        ignored, level = self._folders[folder]
        for each in reversed(unknown):
            ignored = ignored or _is_ignored(level, os.fsencode(each), is_folder=True)
            level = None if ignored else _level(Path(each), level)
            self._folders[each] = ignored, level
        return ignored, level


def _is_ignored(rules: _Level | None, path: bytes, *, is_folder: bool) -> bool:
    while rules is not None:
        if rules.patterns is not None:
            verdict = rules.patterns.verdict(path[len(rules.path) :], is_folder=is_folder)
            if verdict is not None:
                return verdict
        rules = rules.above
    return False


def _rules_above(folder: Path, root: Path) -> _Level | None:
    """The rules that hold around a folder, which its own come before."""
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / GIT)), root)
    if top == folder:
        return None
    level = None
    for each in (top, *(top / part for part in _between(top, folder))):
        level = _level(each, level)
    return level


def _between(top: Path, folder: Path) -> Iterator[Path]:
    below = folder.relative_to(top)
    return (parent for parent in reversed(below.parents) if parent != Path())


def _level(folder: Path, above: _Level | None) -> _Level | None:
    path = os.path.join(os.fsencode(folder), b"")
    if os.path.lexists(folder / GIT):
        excluded = _parsed.patterns(_git_folder(folder / GIT) / "info" / "exclude")
        above = _Level(excluded, path, None) if excluded is not None else None
    rules = _parsed.patterns(folder / GITIGNORE)
    return _Level(rules, path, above) if rules is not None else above


def _git_folder(git: Path) -> Path:
    """Where a repository's own files are: a worktree's and a submodule's `.git` is a file that says so."""
    with suppress(OSError, ValueError):
        if git.is_dir():
            return git
        named = _read(git)
        if named.startswith(b"gitdir:"):
            own = git.parent / os.fsdecode(named.removeprefix(b"gitdir:").strip())
            common = _read(own / "commondir").strip()
            return own / os.fsdecode(common) if common else own
    return git


# Ignore files --------------------------------------------------------------------------------------------------


class Parsed:
    """The patterns of ignore files, for any thread: those asked for last are kept for as long as the file is the same,
    since a walk asks for each one of them, and whoever watches a folder asks again and again."""

    def __init__(self, *, files: int = 1000, size: int = 1 << 20, settled: float = 0.1) -> None:
        """At most so many files are kept, with so many bytes in all. `settled` is the age in seconds from which a
        file's times tell whether it is the same one: clocks of file systems tick coarsely."""
        self._files_max = files
        self._size_max = size
        self._settled_ns = settled * 1e9
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[disk.Stamp, int, Patterns | None]] = {}
        self._size = 0

    def patterns(self, path: Path) -> Patterns | None:
        """What a file says now; None for one without patterns, as `_read` says."""
        name = str(path)
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return None
        stamp = disk.stamp(status)
        with self._lock:
            kept = self._kept.pop(name, None)
            if kept is not None and kept[0] == stamp:
                self._kept[name] = kept  # Put in anew, so that what was asked for last is the last.
                return kept[2]
            self._size -= kept[1] if kept is not None else 0
        rules = _read(path)
        patterns = Patterns(rules) if rules else None
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > self._settled_ns:
            self._keep(name, stamp, len(rules), patterns)
        return patterns

    @property
    def kept(self) -> tuple[int, int]:
        """How many files are kept, and the bytes of all of them."""
        with self._lock:
            return len(self._kept), self._size

    def _keep(self, name: str, stamp: disk.Stamp, size: int, patterns: Patterns | None) -> None:
        with self._lock:
            earlier = self._kept.pop(name, None)
            self._size += size - (earlier[1] if earlier is not None else 0)
            self._kept[name] = stamp, size, patterns
            while self._size > self._size_max or len(self._kept) > self._files_max:
                self._size -= self._kept.pop(next(iter(self._kept)))[1]


_parsed = Parsed()


def _read(path: Path) -> bytes:
    """A rules file's bytes; nothing for one that is not there, cannot be read, or is a link (git does not follow it,
    since a repository could point it at any file)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            data = file.read(_RULES_MAX + 1)
            # A pattern that is cut off could mean anything.
            return data if len(data) <= _RULES_MAX else data[: data.rfind(b"\n", 0, _RULES_MAX) + 1]
    except (OSError, ValueError):
        return b""
