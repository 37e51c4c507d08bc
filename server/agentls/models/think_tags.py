"""Reasoning that a model writes into its text, between `<think>` and `</think>`: split off, whatever way it is cut."""

from __future__ import annotations

from collections.abc import Iterator

_THINK, _THINK_END = "<think>", "</think>"


class ThinkTags:
    """Parts a text into reasoning and answer at the one pair of think tags that it may begin with.

    Anything before the first tag but white space makes the whole text an answer, so that a text about the tags stays as
    it is; so does everything after the closing tag. White space next to the tags belongs to neither side.
    """

    def __init__(self) -> None:
        self._state = "start"
        self._blank: list[str] = []
        self._held = ""

    def feed(self, text: str) -> Iterator[tuple[str, str]]:
        """Pairs of `text` or `reasoning` and the next piece of it."""
        if self._state == "start":
            if not self._held and text.isspace():
                self._blank.append(text)
                return
            text = "".join(self._blank) + self._held + text
            self._blank.clear()
            self._held = ""
            bare = text.lstrip()
            if bare.startswith(_THINK):
                self._state = "opened"
                text = bare[len(_THINK) :]
            elif _THINK.startswith(bare):
                self._held = text
                return
            else:
                self._state = "text"
        if self._state == "opened":
            text = text.lstrip()
            if not text:
                return
            self._state = "reasoning"
        if self._state == "reasoning":
            text = self._held + text
            self._held = ""
            reasoning, end, text = text.partition(_THINK_END)
            if not end:
                kept = _prefix_at_end(reasoning, _THINK_END)
                self._held = reasoning[len(reasoning) - kept :]
                reasoning = reasoning[: len(reasoning) - kept]
            if reasoning:
                yield "reasoning", reasoning
            if not end:
                return
            self._state = "closed"
        if self._state == "closed":
            text = text.lstrip()
            if not text:
                return
            self._state = "text"
        yield "text", text

    def rest(self) -> Iterator[tuple[str, str]]:
        """What was held back while it could have been a tag: nothing more of it will come."""
        held = "".join(self._blank) + self._held
        self._blank.clear()
        self._held = ""
        if self._state == "start":
            self._state = "text"
            if held:
                yield "text", held
        elif held:
            yield "reasoning", held


def _prefix_at_end(text: str, tag: str) -> int:
    """How many characters at the end of `text` could be the beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
