"""An event loop whose time is counted, not measured, and that calls a test back at one exact step.

Each turn of the loop takes half a millisecond of its own time; when nothing is ready it jumps to the next timer. So a
scenario without threads takes the same steps every time, and something can be put at each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TICK = 0.0005


class SteppingLoop(asyncio.SelectorEventLoop):
    """See above; `at(step, call)` counts from the call of it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self.steps = 0
        self._due: tuple[int, Callable[[], None]] | None = None

    def time(self) -> float:
        return self._now

    def at(self, step: int, call: Callable[[], None]) -> None:
        self._due = self.steps + step, call

    def _run_once(self) -> None:
        self.steps += 1
        self._now += TICK
        if self._due is not None and self.steps >= self._due[0]:
            call, self._due = self._due[1], None
            self.call_soon(call)
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self._now = max(self._now, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run_stepping(main: Callable[[SteppingLoop], Coroutine[Any, Any, T]]) -> T:
    """What `main` gives, in a loop of its own."""
    with asyncio.Runner(loop_factory=SteppingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SteppingLoop)
        return runner.run(main(loop))
