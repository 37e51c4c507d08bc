"""Measure what a session costs as it grows: `.venv/bin/python -m bench.growth`.

One agent goes through a thousand small turns with the real server; at some of them it is looked at how long a message
takes until its request is at the model, what the session weighs on disk and what the server weighs in memory, and how
long another attach takes. Then a server that has just been started loads sessions of several lengths, one of them of
51,200 events. The ratios are those to turn 50, or to the shortest session.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from agentls.core.events import SessionHeader
from agentls.core.ids import SessionId
from agentls.store.sqlite import SqliteStore
from bench.client import Client, client, memory
from bench.logs import EVENTS_A_TURN, LONG_LOG, fill
from bench.model_server import ModelServer, Script, model_server

LOOKED_AT = (1, 50, 200, 1000)
SHORT = Script(20)
SENDS = 11
"""Turns whose sends are measured around each of these."""
STORED = (1, 50, 200, 1000, LONG_LOG // EVENTS_A_TURN)


def say(line: str) -> None:
    """Print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def at_rest(state: Path) -> int:
    """Bytes of all files, once the logs of the databases are written back, which nobody is told."""
    while _size(state, "*-wal"):  # noqa: ASYNC110 - the writer tells nobody that it rests
        await asyncio.sleep(0.01)
    return _size(state, "*.db")


def _size(state: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in state.glob(pattern))


async def attach(editor: Client, agent: str) -> float:
    """Milliseconds of an attach with its first page."""
    began = time.perf_counter()
    await editor.ask("agent/attach", agentId=agent)
    return (time.perf_counter() - began) * 1000


async def grow(model: ModelServer, state: Path, work: Path) -> None:
    """A thousand turns of one agent."""
    await model.play(SHORT)
    say("turn    send to request (ms)   attach (ms)   memory (MiB)   bytes a turn")
    async with client(state, "--base-url", model.url, "--model-id", "measured") as editor:
        idle = memory(editor.process.pid)[0]
        agent = await editor.create(work)
        empty, first = await at_rest(state), 0.0
        sends: list[float] = []
        for number in range(1, LOOKED_AT[-1] + SENDS // 2 + 1):
            turn = await editor.turn(agent, f"please explain turn {number:05}")
            sends.append((((await model.record()).arrived) - turn.sent) / 1e6)
            at = number - SENDS // 2
            if at not in LOOKED_AT:
                continue
            sent = statistics.median(sends[-SENDS:])
            first = sent if at == LOOKED_AT[1] else first
            attached = statistics.median([await attach(editor, agent) for _ in range(5)])
            weight = memory(editor.process.pid)[0]
            ratio = f"({sent / first:.2f} x)" if first else ""
            a_turn = (await at_rest(state) - empty) / number
            say(f"{at:4} {sent:13.2f} {ratio:9} {attached:13.2f} {weight:14.1f} {a_turn:14.0f}")
    say(f"memory before the first agent: {idle:.1f} MiB")


async def load(model: ModelServer, state: Path, work: Path) -> None:
    """Sessions of several lengths, loaded by a server that has just been started."""
    store = SqliteStore(state)
    lengths = {}
    for turns in STORED:
        log = await store.create(SessionHeader(SessionId(f"of-{turns}"), work.as_uri(), str(work), 0))
        lengths[turns] = await fill(log, turns)
    await store.close()
    say("events   first attach (ms)   send to request (ms)   memory more (MiB)")
    async with client(state, "--base-url", model.url, "--model-id", "measured") as editor:
        warm = await editor.create(work)
        for _ in range(SENDS):
            await editor.turn(warm, "go on")
            await model.record()
        shortest = 0.0
        for turns in STORED:
            before = memory(editor.process.pid)[0]
            took = await attach(editor, f"of-{turns}")
            turn = await editor.turn(f"of-{turns}", "go on")
            sent = ((await model.record()).arrived - turn.sent) / 1e6
            shortest = shortest or took
            more = memory(editor.process.pid)[0] - before
            say(f"{lengths[turns]:6} {took:13.1f} ({took / shortest:.1f} x) {sent:16.1f} {more:20.1f}")


async def run(folder: Path, work: Path) -> None:
    """Both, with one model."""
    async with model_server() as model:
        await grow(model, folder / "grown", work)
        await load(model, folder / "stored", work)


def main(_: Sequence[str]) -> int:
    """Measure in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        work.mkdir()
        asyncio.run(run(Path(folder), work))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
