"""One request to a model: its stream, what has been shown of it, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from agentls.agent.flight import Flight
from agentls.core.assembler import BlockAssembler, Placed
from agentls.core.chunks import Finish, ReasoningDelta, TextDelta
from agentls.core.errors import StoreUnavailable
from agentls.core.ids import MessageId
from agentls.core.reasons import Failed, Failure
from agentls.models.model import Model, ModelRequest
from agentls.store.store import DraftPiece, SessionLog


class Attempt:
    """Streams one answer. `stream` assembles it; `shown` is what a person has seen of it, once it is over."""

    def __init__(
        self,
        log: SessionLog,
        message: MessageId,
        *,
        draw: Callable[[tuple[DraftPiece, ...]], None],
        failed: Callable[[StoreUnavailable], None],
    ) -> None:
        self.message = message
        self.stream = BlockAssembler()
        self.shown: tuple[Placed, ...] = ()
        self._log = log
        self._draw = draw
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    async def run(self, model: Model, request: ModelRequest) -> None:
        """Stream until the model has finished or `stop` is called, which closes its connection. What the model's code
        raises, which it should not, is raised here."""
        self._task = asyncio.create_task(self._consume(model, request))
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (fault := self._task.exception()) is not None:
            raise fault

    def fail(self, failure: Failure) -> None:
        """End it before it began."""
        self.stream.push(Finish(Failed(failure)))

    def stop(self) -> None:
        """End the stream; what it has given is kept."""
        if self._task is not None:
            self._task.cancel()

    async def stopped(self) -> None:
        """Wait until nothing of it runs any more."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _consume(self, model: Model, request: ModelRequest) -> None:
        flight = Flight(self._log, self.message, draw=self._draw, failed=self._failed)
        stream = self.stream
        finished = False
        try:
            async with aclosing(model.stream(request)) as chunks:
                async for chunk in chunks:
                    stream.push(chunk)
                    match chunk:
                        case TextDelta(index, text):
                            flight.add(stream.place(index), "text", text)
                        case ReasoningDelta(index, text):
                            flight.add(stream.place(index), "reasoning", text)
                        case Finish():
                            finished = True
        finally:
            flight.end()
            self.shown = flight.shown(stream.interrupted())
        if not finished:
            self.fail(Failure("the reply ended without its finish", "STREAM_CLOSED"))
