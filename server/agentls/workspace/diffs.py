"""Unified diffs of two texts, as git writes and applies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

_CONTEXT = 3
_COMPARED_MAX = 16_000_000
"""Lines of one text times lines of the other that are compared; beyond it all between them is one replacement."""

# From and to, in the lines of the old text and of the new one.
_Change = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Diff:
    """`text` is empty when nothing differs; `added` and `removed` count lines."""

    text: str
    added: int
    removed: int


def unified(before: str | None, after: str, name: str) -> Diff:
    """What makes `after` of `before` (None: there is no file). Only `\\n` ends a line, as for git, so that another
    line ending is a difference."""
    old, new = _lines(before or ""), _lines(after)
    changes = _changes(old, new)
    if not changes:
        return Diff("", 0, 0)
    text = [f"--- {'/dev/null' if before is None else f'a/{name}'}\n+++ b/{name}\n"]
    for hunk in _hunks(changes):
        text += _drawn(hunk, old, new)
    added = sum(change[3] - change[2] for change in changes)
    return Diff("".join(text), added, sum(change[1] - change[0] for change in changes))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _changes(old: list[str], new: list[str]) -> list[_Change]:
    """All places that differ, in order. What both begin and end with is set aside first, which is nearly everything
    of an edited file, since the comparison takes quadratic time at worst."""
    head = _same(zip(old, new, strict=False))
    tail = _same(zip(reversed(old[head:]), reversed(new[head:]), strict=False))
    middle, fresh = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(middle) * len(fresh) > _COMPARED_MAX:
        return [(head, head + len(middle), head, head + len(fresh))]
    return [
        (head + a, head + b, head + c, head + d)
        for tag, a, b, c, d in SequenceMatcher(None, middle, fresh).get_opcodes()
        if tag != "equal"
    ]


def _same(pairs: Iterator[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _hunks(changes: list[_Change]) -> list[list[_Change]]:
    """Changes whose context would touch are one hunk."""
    hunks = [[changes[0]]]
    for change in changes[1:]:
        if change[0] - hunks[-1][-1][1] <= 2 * _CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _drawn(hunk: list[_Change], old: list[str], new: list[str]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    lead = min(_CONTEXT, first[0])
    trail = min(_CONTEXT, len(old) - last[1])
    was = _span(first[0] - lead, last[1] + trail)
    becomes = _span(first[2] - lead, last[3] + trail)
    yield f"@@ -{was} +{becomes} @@\n"
    at = first[0] - lead
    for start, end, new_start, new_end in hunk:
        yield from _marked(" ", old[at:start])
        yield from _marked("-", old[start:end])
        yield from _marked("+", new[new_start:new_end])
        at = end
    yield from _marked(" ", old[at : at + trail])


def _span(start: int, end: int) -> str:
    """Where a hunk is: lines count from 1, and an empty place is named by the line before it."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + (count > 0)},{count}"


def _marked(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
