"""What is made of the items of a tuple that only grows, such as a session's messages: once of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Grown(Generic[S, T]):
    """`make` of every item of the last tuple that was asked about; a tuple that does not begin with it starts anew."""

    def __init__(self, make: Callable[[S], T]) -> None:
        self._make = make
        self._items: tuple[S, ...] = ()
        self._made: tuple[T, ...] = ()

    def of(self, items: tuple[S, ...]) -> tuple[T, ...]:
        """`make` of every item, in order."""
        known = len(self._items)
        # The items are the same objects, so that this compares pointers.
        if items[:known] != self._items:
            known, self._made = 0, ()
        self._made += tuple(map(self._make, items[known:]))
        self._items = items
        return self._made
