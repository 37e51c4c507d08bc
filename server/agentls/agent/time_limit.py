"""How long a call may take: the `execute` hook that ends one that takes longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agentls.agent.hooks import Use
from agentls.tools.tool import Output, ToolError

SECONDS = 120.0


class TimeLimit:
    """Ends a body after `seconds`; one that goes on all the same is left behind (see `stoppable`)."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds

    async def execute(self, use: Use, body: Callable[[], Awaitable[Output]]) -> Output:
        """What the body gives in time; a ToolError `TIMEOUT` otherwise, once it has ended or was left behind."""
        try:
            async with asyncio.timeout(self._seconds):
                return await body()
        except TimeoutError as error:
            text = f'"{use.call.name}" was stopped after {self._seconds:g} s, maybe half done; ask for less at once'
            raise ToolError("TIMEOUT", text) from error
