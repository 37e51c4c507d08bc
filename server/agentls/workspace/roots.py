"""The workspace's folders, and whether a path is really inside of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class OutsideRoots(Exception):
    """A path that leads out of the workspace's folders; `path` is where to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f'"{path}" is outside of the workspace')


def real(path: Path) -> Path:
    """The path with every link followed, as the kernel does it (`..` after the link that stands before it).

    What does not exist yet is allowed at the end, also as the target of a link. A loop of links, a file in the place
    of a folder and a folder that cannot be searched are the OSError that the kernel gives.
    """
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))


class Roots:
    """The folders of one workspace, by their real paths as they were when this was made. The first one is where
    relative paths begin."""

    __slots__ = ("folders",)

    def __init__(self, folders: Iterable[Path]) -> None:
        """ValueError without a folder; OSError for one whose path cannot be followed."""
        self.folders = tuple(dict.fromkeys(real(folder.absolute()) for folder in folders))
        if not self.folders:
            raise ValueError("a workspace has at least one folder")

    def resolve(self, path: Path) -> Path:
        """The real path of `path`, relative ones from the first folder; OutsideRoots when it leads out, OSError as
        `real` says."""
        found = real(self.folders[0] / path)
        if self.root_of(found) is None:
            raise OutsideRoots(found)
        return found

    def root_of(self, path: Path) -> Path | None:
        """The innermost folder that a real path is in, or None when it is in none."""
        holding = [folder for folder in self.folders if path.is_relative_to(folder)]
        return max(holding, key=lambda folder: len(folder.parts), default=None)

    def name(self, path: Path) -> str:
        """How a real path is written for the model and for people, so that `resolve` finds it again: relative in the
        first folder, absolute everywhere else."""
        first = self.folders[0]
        return str(path.relative_to(first) if path.is_relative_to(first) else path)
