"""Open unions: tagged values whose kinds a registration extends and whose unknown kinds are kept losslessly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from agentls.core.json import JsonObject

T = TypeVar("T")
S = TypeVar("S")


class OpenUnion(Generic[T]):
    """One tagged union: its tag field, its registered kinds and what an unknown kind becomes.

    `unknown(kind, fields)` builds the value that keeps a record of another kind, tag left out. With
    `keep_unreadable` a record of a known kind that does not fit its type is kept the same way, whole; without it that
    is a `DecodeError`, since a log must not be misread.
    """

    def __init__(
        self,
        name: str,
        *,
        tag: str,
        unknown: Callable[[str, JsonObject], T],
        keep_unreadable: bool = False,
    ) -> None:
        self.name = name
        self.tag = tag
        self.unknown = unknown
        self.keep_unreadable = keep_unreadable
        self._types: dict[str, type[T]] = {}
        self._kinds: dict[type[T], str] = {}

    def register(self, kind: str) -> Callable[[type[S]], type[S]]:
        """Class decorator that adds a kind; a kind that is taken is a ValueError."""

        def add(cls: type[S]) -> type[S]:
            if kind in self._types:
                raise ValueError(f'{self.name} kind "{kind}" is registered already')
            self._types[kind] = cls  # type: ignore[assignment]
            self._kinds[cls] = kind  # type: ignore[index]
            return cls

        return add

    def unregister(self, kind: str) -> None:
        """Take a kind back; its records are kept as unknown from now on."""
        self._kinds.pop(self._types.pop(kind))

    def kinds(self) -> tuple[str, ...]:
        """The registered kinds, in order of registration."""
        return tuple(self._types)

    def type_for(self, kind: str) -> type[T] | None:
        """The class of a kind, or None where it is unknown."""
        return self._types.get(kind)

    def kind_of(self, value: T) -> str | None:
        """The kind of a value's class, or None for one that stands for an unknown kind."""
        return self._kinds.get(type(value))
