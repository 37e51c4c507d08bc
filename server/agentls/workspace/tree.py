"""The files of a workspace that are not ignored, kept up to date by what the kernel tells of their folders."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentls.workspace.ignore import Rules, Walk
from agentls.workspace.inotify import Happened, Inotify
from agentls.workspace.roots import Roots, real

_GIT = ".git"
_RULES = ".gitignore"
_OURS = re.compile(r"\..*\.agentls-(?:new|old)", re.DOTALL)
"""What disk.py puts beside a file for as long as it writes it."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A file that something happened to: whether it was there before, and whether it is there now."""

    existed: bool
    exists: bool


@dataclass(eq=False, slots=True)
class _Folder:
    """A watched folder, with the names of what is in it and not ignored."""

    path: str
    top: Path
    watch: int
    identity: tuple[int, int]
    files: set[str] = field(default_factory=set)
    folders: dict[str, _Folder] = field(default_factory=dict)
    gone: bool = False

    def all_folders(self) -> Iterator[_Folder]:
        """This one and all below it."""
        waiting = [self]
        while waiting:
            folder = waiting.pop()
            yield folder
            waiting.extend(folder.folders.values())

    def all_files(self) -> Iterator[str]:
        """The paths of all files in it and below it."""
        for folder in self.all_folders():
            for name in folder.files:
                yield os.path.join(folder.path, name)


class Tree:
    """The watched folders of some roots, for one thread. Links are not followed, `.git` is left out.

    OSError with ENOSPC from any method: the system allows no more watches.
    """

    def __init__(self, inotify: Inotify, roots: Roots, stopped: Callable[[], bool]) -> None:
        self._inotify = inotify
        self._roots = roots
        self._stopped = stopped
        self._tops: dict[Path, _Folder] = {}
        self._by_watch: dict[int, _Folder] = {}

    def fill(self) -> dict[Path, OSError]:
        """Look at everything, and say which roots cannot be watched."""
        failed = {}
        for root in sorted(self._roots.folders, key=lambda root: len(root.parts)):
            if self._at(root) is not None:
                continue
            try:
                os.scandir(root).close()
                top = self._add(str(root), root)
                self._tops[root] = top
                list(self._grow(top))
            except OSError as error:
                if _is_limit(error):
                    raise
                failed[root] = error
        return failed

    def refill(self) -> dict[str, Looked]:
        """Look at everything anew, after news were lost; what was changed in its place cannot be told any more."""
        before = {path for top in self._tops.values() for path in top.all_files()}
        for top in self._tops.values():
            self._forget(top)
        self._tops.clear()
        self.fill()
        after = {path for top in self._tops.values() for path in top.all_files()}
        return {path: Looked(path in before, path in after) for path in before ^ after}

    def take(self, happened: Iterable[Happened], told: Iterable[Path]) -> dict[str, Looked]:
        """What has become of files, by the kernel's word or that of somebody who may know more. The disk decides: what
        they say is only where to look."""
        rules = Rules()
        folders: dict[tuple[_Folder, str], None] = {}
        files: dict[tuple[_Folder, str], None] = {}
        for one in happened:
            folder = self._by_watch.get(one.watch)
            if folder is None:
                continue
            if not one.name:
                folder.gone = True
            elif one.folder:
                folders[folder, one.name] = None
            else:
                files[folder, one.name] = None
        elsewhere = []
        for path in told:
            where = _placed(path, self._roots)
            parent = self._at(where[0].parent) if where is not None else None
            if parent is None:
                elsewhere.append(path)
            elif path.name not in parent.folders:
                files[parent, path.name] = None
        looked = look_at(elsewhere, self._roots) if elsewhere else {}
        # All that went before all that came, since a folder that was moved keeps its watch.
        for folder, name in folders:
            self._lose(folder, name, looked)
        for folder, name in folders:
            self._gain(folder, name, rules, looked)
        for folder, name in files:
            self._look(folder, name, rules, looked)
        # Rules that were changed may have let go of folders that are not watched yet.
        for folder, name in files:
            if name == _RULES and self._is_watched(folder):
                list(self._grow(folder))
        return looked

    def lost(self) -> list[Path]:
        """The roots that were watched and are gone or moved; each is told once."""
        lost = [root for root, top in self._tops.items() if top.gone]
        for root in lost:
            self._forget(self._tops.pop(root))
        return lost

    # Folders ---------------------------------------------------------------------------------------------------

    def _add(self, path: str, top: Path) -> _Folder:
        watch = self._inotify.add(path)
        folder = _Folder(path, top, watch, _identity(os.lstat(path)))
        self._by_watch[watch] = folder
        return folder

    def _grow(self, folder: _Folder) -> Iterator[str]:
        """Watch what is not yet watched below a folder, and yield the files that are new. Each folder is watched
        before it is looked into, so that nothing can come in unnoticed."""
        by_path = {"": folder}
        try:
            for entry in Walk(Path(folder.path), folder.top, stopped=self._stopped):
                if self._stopped():
                    return
                above, _, name = entry.path.rpartition("/")
                parent = by_path.get(above)
                if parent is None:
                    continue
                if entry.kind != "folder":
                    if name not in parent.files and _OURS.fullmatch(name) is None:
                        parent.files.add(name)
                        yield os.path.join(parent.path, name)
                    continue
                child = parent.folders.get(name)
                if child is None:
                    try:
                        child = self._add(os.path.join(parent.path, name), folder.top)
                    except OSError as error:
                        if _is_limit(error):
                            raise
                        continue  # It is gone already, or nobody may look into it.
                    parent.folders[name] = child
                by_path[entry.path] = child
        except OSError as error:
            if _is_limit(error):
                raise

    def _forget(self, folder: _Folder) -> None:
        for each in folder.all_folders():
            # Not when the same folder is watched under another path by now.
            if self._is_watched(each):
                del self._by_watch[each.watch]
                self._inotify.remove(each.watch)

    def _lose(self, folder: _Folder, name: str, looked: dict[str, Looked]) -> None:
        child = folder.folders.get(name)
        if child is None or (not child.gone and child.identity == _identity_at(child.path)):
            return
        del folder.folders[name]
        self._forget(child)
        for path in child.all_files():
            looked[path] = Looked(existed=True, exists=False)

    def _gain(self, folder: _Folder, name: str, rules: Rules, looked: dict[str, Looked]) -> None:
        path = os.path.join(folder.path, name)
        if name in folder.folders or not self._is_watched(folder) or name == _GIT or not _is_folder(path):
            return
        if rules.ignore(path, folder.top, is_folder=True):
            return
        try:
            child = self._add(path, folder.top)
        except OSError as error:
            if _is_limit(error):
                raise
            return
        folder.folders[name] = child
        for found in self._grow(child):
            looked[found] = Looked(existed=found in looked, exists=True)

    def _is_watched(self, folder: _Folder) -> bool:
        return self._by_watch.get(folder.watch) is folder

    def _at(self, path: Path) -> _Folder | None:
        """The watched folder of a real path."""
        for root, folder in self._tops.items():
            if path.is_relative_to(root):
                found: _Folder | None = folder
                for part in path.relative_to(root).parts:
                    found = found.folders.get(part) if found is not None else None
                if found is not None:
                    return found
        return None

    # Files -----------------------------------------------------------------------------------------------------

    def _look(self, folder: _Folder, name: str, rules: Rules, looked: dict[str, Looked]) -> None:
        path = os.path.join(folder.path, name)
        if name == _GIT or _OURS.fullmatch(name) or rules.ignore(path, folder.top, is_folder=False):
            return
        existed, exists = name in folder.files, _is_file(path)
        if exists:
            folder.files.add(name)
        else:
            folder.files.discard(name)
        if path in looked:
            existed = looked[path].existed
        if existed or exists:
            looked[path] = Looked(existed, exists)


def look_at(told: Iterable[Path], roots: Roots) -> dict[str, Looked]:
    """What has become of files that somebody tells of, where no folder is watched: what was there before is unknown."""
    rules = Rules()
    looked: dict[str, Looked] = {}
    for path in told:
        where = _placed(path, roots)
        if where is not None and not _is_folder(str(where[0])) and not rules.ignore(*where, is_folder=False):
            looked[str(where[0])] = Looked(existed=True, exists=_is_file(str(where[0])))
    return looked


def _placed(path: Path, roots: Roots) -> tuple[Path, Path] | None:
    """A path with its folder's links followed, and the root that it is in; None for what nobody wants to know of."""
    try:
        path = real(path.parent) / path.name
    except OSError:
        return None
    root = roots.root_of(path)
    if root is None or path == root or _GIT in path.relative_to(root).parts or _OURS.fullmatch(path.name):
        return None
    return path, root


def _is_limit(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.ENOMEM)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _identity_at(path: str) -> tuple[int, int] | None:
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_file(path: str) -> bool:
    """Anything that is not a folder; a link is not followed."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
