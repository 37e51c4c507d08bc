"""The patterns of one ignore file, matched as git does it (but for `**\\/` and `a**/b`, whose quirks nobody needs).

Why not the pathspec library (1.1.1 was tried): it raises on patterns that git skips (`a\\`, `[z-a]`), does not know
`[[:alpha:]]`, and needs 48 seconds for `*a*a*a*a*a*a*a*ab` on a name of 60 letters, which any repository can bring.
Here each star is matched once, from left to right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# git's own table (wildmatch.c): ASCII only, whatever the locale is.
_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb"\t-\r ",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}
_STAR = b"*"
_SLASH = b"/"


class _Never(Exception):
    """A pattern that matches nothing, as git skips it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Patterns that follow each other and say the same, so that their order does not matter: those for a name, which
    are without a slash, and those for a path. A folder's name and path end in a slash here."""

    ignored: bool
    names: re.Pattern[bytes] | None
    paths: re.Pattern[bytes] | None


class Patterns:
    """The rules of one ignore file, for paths relative to its folder."""

    __slots__ = ("_runs",)

    def __init__(self, data: bytes) -> None:
        self._runs = tuple(reversed(_runs(data)))

    def verdict(self, path: bytes, *, is_folder: bool) -> bool | None:
        """True for ignored, False for taken back by a `!`, None when no pattern speaks of it; the last one counts.

        A path is judged by itself: that nothing below an ignored folder can be taken back is up to who walks.
        """
        whole = path + _SLASH if is_folder else path
        name = whole[path.rfind(_SLASH) + 1 :]
        for run in self._runs:
            if (run.names is not None and run.names.match(name)) or (run.paths is not None and run.paths.match(whole)):
                return run.ignored
        return None


def _runs(data: bytes) -> list[_Run]:
    runs: list[_Run] = []
    names: list[bytes] = []
    paths: list[bytes] = []
    ignored = True

    def end() -> None:
        if names or paths:
            runs.append(_Run(ignored, _any_of(names), _any_of(paths)))
            names.clear()
            paths.clear()

    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        pattern = _trimmed(line.removesuffix(b"\r"))
        if not pattern or pattern.startswith(b"#"):
            continue
        says = not pattern.startswith(b"!")
        try:
            expression, is_path = _expression(pattern.removeprefix(b"!"))
        except _Never:
            continue
        if says != ignored:
            end()
            ignored = says
        (paths if is_path else names).append(expression)
    end()
    return runs


def _any_of(expressions: list[bytes]) -> re.Pattern[bytes] | None:
    return re.compile(b"|".join(expressions), re.DOTALL) if expressions else None


def _trimmed(line: bytes) -> bytes:
    """Without spaces at its end, but for one after a backslash; one backslash at the very end keeps them all."""
    end = at = 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 1
            if at == len(line):
                return line
            end = at + 1
        elif line[at : at + 1] != b" ":
            end = at + 1
        at += 1
    return line[:end]


def _expression(pattern: bytes) -> tuple[bytes, bool]:
    """A regular expression, and whether it is for a path instead of a name."""
    only_folders = pattern.endswith(_SLASH)
    body = pattern[:-1] if only_folders else pattern
    end = rb"/\Z" if only_folders else rb"/?\Z"
    if not body:
        raise _Never
    if _SLASH not in body:
        return _segment(_tokens(body), end), False
    segments: list[list[bytes]] = [[]]
    for token in _tokens(body.removeprefix(_SLASH)):
        if token == _SLASH:
            segments.append([])
        else:
            segments[-1].append(token)
    return _path(segments, end), True


def _path(segments: list[list[bytes]], end: bytes) -> bytes:
    """Between two `**` the first place that fits is as good as any, hence the groups that are not tried again."""
    if not all(segments):
        raise _Never  # Two slashes together, which no path has.
    parts: list[bytes] = []
    loose = False
    run: list[list[bytes]] = []
    *folders, last = segments

    def close(run: list[list[bytes]]) -> bytes:
        inner = b"".join(_segment(segment, _SLASH) for segment in run)
        return rb"(?>(?:[^/]+/)*?" + inner + b")" if loose else inner

    for segment in folders:
        if _is_deep(segment):
            if run or not loose:
                parts.append(close(run))
            loose, run = True, []
        else:
            run.append(segment)
    if _is_deep(last):
        return b"".join([*parts, close(run), rb".+\Z"])
    inner = b"".join(_segment(segment, _SLASH) for segment in run) + _segment(last, end)
    return b"".join([*parts, rb"(?:[^/]+/)*" if loose else b"", inner])


def _is_deep(segment: list[bytes]) -> bool:
    return len(segment) > 1 and all(token == _STAR for token in segment)


def _segment(tokens: list[bytes], end: bytes) -> bytes:
    """One name: what stands before the first star, then each piece between two stars where it first fits, then the
    last piece at the end."""
    pieces: list[bytes] = [b""]
    for token in tokens:
        if token == _STAR:
            pieces.append(b"")
        else:
            pieces[-1] += token
    first, *rest = pieces
    if not rest:
        return first + end
    if not any(pieces):
        return rb"[^/]+" + end  # No name is empty; `a/*` is not the folder `a/`.
    middle = b"".join(rb"(?>[^/]*?" + piece + b")" for piece in rest[:-1] if piece)
    return first + middle + rb"[^/]*" + rest[-1] + end


def _tokens(pattern: bytes) -> list[bytes]:
    """A star and a slash as they are, everything else as an expression for one byte."""
    tokens: list[bytes] = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        match char:
            case b"*" | b"/":
                tokens.append(char)
            case b"?":
                tokens.append(rb"[^/]")
            case b"[":
                token, at = _bracket(pattern, at)
                tokens.append(token)
            case b"\\":
                if at == len(pattern):
                    raise _Never
                char = pattern[at : at + 1]
                tokens.append(char if char == _SLASH else re.escape(char))
                at += 1
            case _:
                tokens.append(re.escape(char))
    return tokens


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """The expression of a set whose `[` stands before `at`, and where the pattern goes on."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: list[bytes] = []
    start = at
    previous: int | None = None
    while True:
        char = pattern[at : at + 1]
        if not char:
            raise _Never
        if char == b"]" and at > start:
            break
        if char == b"[" and pattern[at + 1 : at + 2] == b":":
            closing = pattern.find(b"]", at + 2)
            if closing < 0:
                raise _Never
            if pattern[closing - 1 : closing] == b":" and closing - 1 >= at + 2:
                name = pattern[at + 2 : closing - 1]
                if name not in _CLASSES:
                    raise _Never
                members.append(_CLASSES[name])
                at, previous = closing + 1, None
                continue
        if char == b"-" and previous is not None and pattern[at + 1 : at + 2] not in (b"", b"]"):
            upper, at = _member(pattern, at + 1)
            if previous <= upper:
                members.append(b"\\x%02x-\\x%02x" % (previous, upper))
            previous = None
            continue
        previous, at = _member(pattern, at)
        members.append(b"\\x%02x" % previous)
    inside = b"".join(members)
    if negated:
        return rb"[^/" + inside + b"]", at + 1
    return (rb"(?!/)[" + inside + b"]" if inside else rb"(?!)"), at + 1


def _member(pattern: bytes, at: int) -> tuple[int, int]:
    """One byte of a set, which a backslash may stand before, and where the next one is."""
    if pattern[at : at + 1] == b"\\":
        at += 1
    if at >= len(pattern):
        raise _Never
    return pattern[at], at + 1
