"""Short ways to fill a store and to start a second process on it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import agentls
from agentls.core.blocks import TextBlock
from agentls.core.events import AgentConfig, Event, EventData, SessionHeader, TurnEnd, TurnStart, UserMessage
from agentls.core.ids import MessageId, SessionId
from agentls.core.messages import Message
from agentls.core.reasons import Completed, MessageTrigger
from agentls.core.sources import UserSource
from agentls.store.store import DraftPiece

ROOT = Path(__file__).parents[2]
A = SessionId("a")
B = SessionId("b")
TIME = 1_790_000_000_000
SECONDS = 20.0


def header(session: str = A, *, workspace: str = "file:///w") -> SessionHeader:
    return SessionHeader(session, workspace, "/w", TIME)


def said(text: str) -> UserMessage:
    return UserMessage(Message(MessageId(text[:40]), "user", (TextBlock(text),), UserSource()))


def events(start: int, *payloads: EventData, time: int = TIME) -> tuple[Event, ...]:
    return tuple(Event(seq, time, payload) for seq, payload in enumerate(payloads, start))


def message(seq: int, text: str | None = None, *, time: int = TIME) -> tuple[Event, ...]:
    """A batch of one event."""
    return events(seq, said(f"message {seq}" if text is None else text), time=time)


def turn(number: int, start: int, *, said_in_it: int = 1) -> tuple[Event, ...]:
    """A closed turn, and an event after it that belongs to none."""
    inside = (said(f"{number}.{n}") for n in range(said_in_it))
    return events(
        start,
        TurnStart(number, MessageTrigger((MessageId(f"{number}"),))),
        *inside,
        TurnEnd(number, Completed()),
        AgentConfig(mode="ask"),
    )


def piece(text: str, offset: int = 0, *, message: str = "a1.1.1", index: int = 0) -> DraftPiece:
    return DraftPiece(MessageId(message), index, "text", offset, text)


def alter(database: Path, statement: str, *parameters: object) -> None:
    """What no agentls does to its files."""
    connection = sqlite3.connect(database)
    with connection:
        changed = connection.execute(statement, parameters).rowcount
    connection.close()
    assert changed != 0


class Child:
    """A second process that runs one part of tests/store/child.py and talks by lines."""

    def __init__(
        self,
        part: str,
        *arguments: object,
        before: Sequence[str] = (),
        preexec: Callable[[], None] | None = None,
    ) -> None:
        paths = (str(ROOT), str(Path(agentls.__file__).parents[1]))
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.store.child", part, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            preexec_fn=preexec,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
