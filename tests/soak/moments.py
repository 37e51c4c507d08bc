"""When a server is killed: at any time, or right at something that has just happened."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from agentls.core.json import JsonObject

LONGEST = 1.5
"""Seconds after which it is killed in any case."""

KINDS = ("time", "time", "frame", "text", "answer", "answer", "allowed", "file")


@dataclass(slots=True)
class Moment:
    """One moment, drawn by chance. `kill` is called once, in the step in which it has come."""

    kind: str
    seconds: float
    count: int
    delay: float
    kill: Callable[[], None] = lambda: None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _armed: bool = False
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.count

    @classmethod
    def drawn(cls, chance: random.Random) -> Moment:
        """The next one."""
        kind = chance.choice(KINDS)
        count = chance.randint(1, {"frame": 80, "text": 60, "answer": 12, "allowed": 2, "file": 2}.get(kind, 1))
        seconds = chance.uniform(0.02, 0.9) if kind == "time" else LONGEST
        # Half of them at once, the others a little later: what follows an answer takes a few milliseconds.
        return cls(kind, seconds, count, chance.choice((0.0, 0.0, chance.uniform(0, 0.003), chance.uniform(0, 0.012))))

    def __str__(self) -> str:
        if self.kind == "time":
            return f"after {self.seconds:.2f} s"
        return f"at {self.kind} {self.count}" + (f" and {self.delay * 1000:.1f} ms" if self.delay else "")

    def arm(self) -> None:
        """From now on it counts."""
        self._armed = True
        asyncio.get_running_loop().call_later(self.seconds, self._now)

    def told(self, message: JsonObject) -> None:
        """A message of the server has arrived."""
        if "method" not in message:
            result = message.get("result")
            outcome = result.get("outcome") if isinstance(result, dict) else None
            if outcome is not None:
                self.happened("allowed" if outcome == "accepted" else "answer")
        elif message["method"] == "agent/blocks":
            self.happened("frame")
            ops = message["params"]["ops"]  # type: ignore[index,call-overload]
            if any(op["op"] == "append" for op in ops):  # type: ignore[index,call-overload,union-attr]
                self.happened("text")

    def happened(self, kind: str) -> None:
        """Something of this kind has happened."""
        if not self._armed or kind != self.kind:
            return
        self._left -= 1
        if self._left == 0:
            if self.delay:
                asyncio.get_running_loop().call_later(self.delay, self._now)
            else:
                self._now()

    def _now(self) -> None:
        if not self.over.is_set():
            self.kill()
            self.over.set()
