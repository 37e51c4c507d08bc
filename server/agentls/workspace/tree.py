"""The files of a workspace that are not ignored, kept up to date by what the kernel tells of their folders."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentls.workspace.disk import is_ours
from agentls.workspace.ignore import GIT, GITIGNORE, Rules, Walk
from agentls.workspace.inotify import Happened, Part
from agentls.workspace.roots import Roots, real

_LOST = "it is gone or was moved"


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

    def __init__(self, part: Part, roots: Roots, stopped: Callable[[], bool]) -> None:
        self.missing: dict[Path, str] = dict.fromkeys(roots.folders, "nobody has looked yet")
        """The roots that are not watched, and why; those that `take` adds were."""
        self._part = part
        self._roots = roots
        self._stopped = stopped
        self._tops: dict[Path, _Folder] = {}
        self._by_watch: dict[int, _Folder] = {}

    def find(self) -> Iterator[str | None]:
        """Watch the missing roots that are there, and yield the files in them, and None now and then, so that others
        can have their turn. Until it has ended nothing else may be asked; it keeps what happens for later."""
        for root in sorted(self.missing, key=lambda root: len(root.parts)):
            if self._at(root) is None:
                try:
                    os.scandir(root).close()
                    top = self._add(str(root), root)
                except OSError as error:
                    if _is_limit(error):
                        raise
                    self.missing[root] = os.strerror(error.errno or 0)
                    continue
                self._tops[root] = top
                yield from self._grow(top)
            del self.missing[root]

    def refill(self) -> dict[str, Looked]:
        """Look at everything anew, after news were lost; what was changed in its place cannot be told any more."""
        before = {path for top in self._tops.values() for path in top.all_files()}
        for top in self._tops.values():
            self._forget(top)
        self._tops.clear()
        self.missing |= dict.fromkeys(self._roots.folders, _LOST)
        for _ in self.find():
            pass
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
            if name == GITIGNORE and self._is_watched(folder):
                for _ in self._grow(folder):
                    pass
        self._lose_roots(looked)
        return looked

    # Folders ---------------------------------------------------------------------------------------------------

    def _add(self, path: str, top: Path) -> _Folder:
        watch = self._part.add(path)
        folder = _Folder(path, top, watch, _identity(os.lstat(path)))
        self._by_watch[watch] = folder
        return folder

    def _grow(self, folder: _Folder) -> Iterator[str | None]:
        """Watch what is not yet watched below a folder, and yield the files that are new, and None for each folder.
        Each folder is watched before it is looked into, so that nothing can come in unnoticed."""
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
                    if name not in parent.files and not is_ours(name):
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
                yield None
        except OSError as error:
            if _is_limit(error):
                raise

    def _forget(self, folder: _Folder) -> None:
        for each in folder.all_folders():
            # Not when the same folder is watched under another path by now.
            if self._is_watched(each):
                del self._by_watch[each.watch]
                self._part.remove(each.watch)

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
        if name in folder.folders or not self._is_watched(folder) or name == GIT or not _is_folder(path):
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
            if found is not None:
                looked[found] = Looked(existed=found in looked, exists=True)

    def _lose_roots(self, looked: dict[str, Looked]) -> None:
        """Let go of the roots that are gone or were moved, also where another one stands in their place by now."""
        lost = [root for root, top in self._tops.items() if top.gone or top.identity != _identity_at(top.path)]
        for root in lost:
            top = self._tops.pop(root)
            self._forget(top)
            for path in top.all_files():
                looked[path] = Looked(existed=path not in looked or looked[path].existed, exists=False)
        if lost:
            self.missing |= {root: _LOST for root in self._roots.folders if self._at(root) is None}

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
        if name == GIT or is_ours(name) or rules.ignore(path, folder.top, is_folder=False):
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
    if root is None or path == root or GIT in path.relative_to(root).parts or is_ours(path.name):
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
