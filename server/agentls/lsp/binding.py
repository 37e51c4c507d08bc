"""From a method's row and a function of its params to what the protocol calls with whatever the client sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.methods import Method
from agentls.lsp.wire import Wire

P = TypeVar("P", bound=Wire)

Request = Callable[[JsonValue], Coroutine[None, None, JsonObject]]
Notification = Callable[[JsonValue], None]


def request(method: Method[P], handle: Callable[[P], Awaitable[JsonObject]]) -> tuple[str, Request]:
    """The name of a method and what answers it."""

    async def run(params: JsonValue) -> JsonObject:
        return await handle(method.decode(params))

    return method.name, run


def notification(method: Method[P], handle: Callable[[P], None]) -> tuple[str, Notification]:
    """The name of a method and what hears it."""

    def run(params: JsonValue) -> None:
        handle(method.decode(params))

    return method.name, run
