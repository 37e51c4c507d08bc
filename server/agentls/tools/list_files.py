"""`list_files`: what is in a folder, as deep as fits, without what git ignores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path

from pydantic import Field

from agentls.core.json import JsonObject
from agentls.tools.paths import failures, locate, shown
from agentls.tools.stopping import check, in_thread
from agentls.tools.tool import OUTPUT_MAX, Arguments, Output, ToolContext, ToolError
from agentls.workspace.ignore import Entry, Walk
from agentls.workspace.roots import Roots
from agentls.workspace.uris import to_uri

LINES_MAX = 300
WALKED_MAX = 50_000
"""Files and folders that are looked at; what comes after them is not counted."""

# The first line and the notes have the rest.
_TEXT_MAX = OUTPUT_MAX - 10_000


class ListFilesArguments(Arguments):
    """What `list_files` takes."""

    path: str = Field(default=".", description="The folder, relative to the workspace or absolute.")


@dataclass(frozen=True, slots=True)
class _Listing:
    """A walked folder. `more` is whether the walk ended before its end."""

    entries: tuple[Entry, ...]
    ignored: int
    unreadable: int
    more: bool


class ListFiles:
    """Lists files, never changes anything."""

    name = "list_files"
    description = (
        "List the files of a folder and of the folders in it, without what is ignored by git. Where there are too "
        "many, the deeper folders are given with the number of their files; list one of them to see more."
    )
    arguments = ListFilesArguments
    read_only = True

    def __init__(self, walked_max: int = WALKED_MAX) -> None:
        self._walked_max = walked_max

    def parallel(self, arguments: ListFilesArguments) -> bool:
        return True

    async def asks(self, arguments: ListFilesArguments, context: ToolContext) -> JsonObject | None:
        """Never."""
        return None

    async def run(self, arguments: ListFilesArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        folder = locate(context, arguments.path)
        return await in_thread(context, partial(_list, folder, context, self._walked_max))


def _list(folder: Path, context: ToolContext, walked_max: int) -> Output:
    name = shown(context.roots, folder)
    listing = _walk(folder, name, context, walked_max)
    below = _files_below(listing.entries)

    def drawn(depth: int) -> list[str]:
        entries = (entry for entry in listing.entries if _is_drawn(entry, below, depth))
        return [_line(entry, folder, below, context.roots) for entry in entries]

    depth = _depth(listing.entries, below)
    lines = drawn(depth)
    while depth > 1 and _size(lines) > _TEXT_MAX:
        depth -= 1
        lines = drawn(depth)
    kept = _fitting(lines)
    folders = sum(entry.kind == "folder" for entry in listing.entries)
    files = len(listing.entries) - folders
    more = " and more" if listing.more else ""
    head = f"{name}: {_count(files, 'file')} in {_count(folders, 'folder')}{more}, {listing.ignored} ignored"
    notes = []
    if len(lines) > len(kept):
        notes.append(f"{len(lines) - len(kept)} more are not shown.")
    if listing.more:
        notes.append(f"Only the first {walked_max} were counted; list a folder in it for the rest.")
    if listing.unreadable:
        notes.append(f"{_count(listing.unreadable, 'folder')} could not be read.")
    meta: JsonObject = {
        "uri": to_uri(folder),
        "files": files,
        "folders": folders,
        "ignored": listing.ignored,
        "unreadable": listing.unreadable,
        "more": listing.more,
    }
    return Output("\n".join([head, *kept, *notes]), meta)


def _walk(folder: Path, name: str, context: ToolContext, walked_max: int) -> _Listing:
    root = context.roots.root_of(folder)
    assert root is not None, "it was located in one"
    walk = Walk(folder, root, stopped=context.stop.is_set)
    with failures(name):
        try:
            entries = list(islice(walk, walked_max + 1))
        except NotADirectoryError as error:
            raise ToolError("NOT_A_DIRECTORY", f'"{name}" is a file; use read to see what is in it') from error
    check(context.stop)
    return _Listing(tuple(entries[:walked_max]), walk.ignored, walk.unreadable, len(entries) > walked_max)


def _files_below(entries: Sequence[Entry]) -> Counter[str]:
    """How many files are in a folder and in all below it."""
    counts: Counter[str] = Counter()
    for entry in entries:
        if entry.kind != "folder":
            counts.update(accumulate(entry.path.split("/")[:-1], "{}/{}".format))
    return counts


def _depth(entries: Sequence[Entry], below: Counter[str]) -> int:
    """How deep can be listed in `LINES_MAX` lines, at least 1."""
    deepest = max((_level(entry) for entry in entries), default=1)
    for depth in range(deepest, 1, -1):
        if sum(_is_drawn(entry, below, depth) for entry in entries) <= LINES_MAX:
            return depth
    return 1


def _level(entry: Entry) -> int:
    return entry.path.count("/") + 1


def _is_drawn(entry: Entry, below: Counter[str], depth: int) -> bool:
    """A folder has a line of its own only where what is in it has none."""
    level = _level(entry)
    return level <= depth and (entry.kind != "folder" or level == depth or not below[entry.path])


def _line(entry: Entry, folder: Path, below: Counter[str], roots: Roots) -> str:
    name = shown(roots, folder / entry.path)
    match entry.kind:
        case "folder":
            return f"{name}/ ({_count(below[entry.path], 'file')})"
        case "link":
            return f"{name} (link)"
    return name


def _fitting(lines: Sequence[str]) -> list[str]:
    """As many as fit."""
    sizes = accumulate(len(line.encode()) + 1 for line in lines[:LINES_MAX])
    return [line for line, size in zip(lines, sizes, strict=False) if size <= _TEXT_MAX]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
