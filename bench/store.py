"""Measure the session store in one run: `.venv/bin/python -m bench.store [DIRECTORY]`, on the disk of that directory.

Commits and drafts are timed one at a time as an agent makes them; bytes are those of the whole directory at rest, after
turn 1 and after turn 200. The last figures time commits while the event loop parses without a pause of its own, in
slices of two milliseconds, as the reader of a model's stream does.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from agentls.core.events import SessionHeader, StepStart
from agentls.core.ids import MessageId, SessionId
from agentls.store.log import SqliteLog
from agentls.store.sqlite import SqliteStore
from agentls.store.store import DraftPiece
from bench.logs import EVENTS_A_TURN, LONG_LOG, fill, numbered, small_turn

TURNS = 200


def show(name: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    p50, p95 = ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100]
    sys.stdout.write(f"{name:44} p50 {p50 * 1e3:8.3f} ms  p95 {p95 * 1e3:8.3f} ms  ({len(ordered)})\n")


async def timed(act: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await act()
    return time.perf_counter() - start


async def turns(log: SqliteLog, first: int, last: int, seq: int, out: dict[bool, list[float]]) -> int:
    for turn in range(first, last + 1):
        for payloads, durable in small_turn(turn):
            events = numbered(payloads, seq)
            seq += len(events)
            out[durable].append(await timed(lambda events=events, durable=durable: log.commit(events, durable=durable)))  # type: ignore[misc]
    return seq


async def at_rest(directory: Path) -> int:
    while _size(directory, "*-wal"):  # noqa: ASYNC110 - the writer tells nobody that it rests
        await asyncio.sleep(0.01)
    return _size(directory, "**/*")


def _size(directory: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in directory.glob(pattern) if path.is_file())


async def busy(stop: asyncio.Event) -> None:
    while not stop.is_set():
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def main(directory: Path) -> None:
    opened = time.perf_counter()
    store = SqliteStore(directory)
    show("open, files made", [time.perf_counter() - opened])
    log = await store.create(SessionHeader("small", "file:///w", "/w", 0))
    times: dict[bool, list[float]] = {True: [], False: []}
    seq = await turns(log, 1, 1, 0, times)
    before = await at_rest(directory)
    seq = await turns(log, 2, TURNS, seq, times)
    after = await at_rest(directory)
    show("commit, durable", times[True])
    show("commit, not durable", times[False])

    drafts = []
    for n in range(2000):
        piece = DraftPiece(MessageId("a1.1.1"), 0, "text", n * 20, "word " * 4)
        start = time.perf_counter()
        log.append_drafts([piece])
        drafts.append(time.perf_counter() - start)
    show("append a draft", drafts)
    drops = time.perf_counter()
    log.drop_drafts(MessageId("a1.1.1"))
    show("drop 2,000 drafts", [time.perf_counter() - drops])
    sys.stdout.write(f"{'bytes on disk per small turn':44} {(after - before) / (TURNS - 1):8.0f}\n")

    show("read 200 turns (1,800 events), first", [await timed(log.read)])
    show("read 200 turns, again", [await timed(log.read) for _ in range(9)])
    show("page of 50 events", [await timed(lambda: log.page(seq, 50)) for _ in range(200)])

    long = await store.create(SessionHeader("long", "file:///w", "/w", 0))
    length = await fill(long, LONG_LOG // EVENTS_A_TURN)
    show(f"page of 50 events of {length:,}", [await timed(lambda: long.page(length, 50)) for _ in range(200)])

    logs = [await store.create(SessionHeader(SessionId(f"many{n}"), "file:///w", "/w", 0)) for n in range(50)]

    async def one_each(seq: int) -> None:
        await asyncio.gather(*(log.commit(numbered([StepStart(1, 1)], seq), durable=True) for log in logs))

    show("50 durable commits at once", [await timed(lambda n=n: one_each(n)) for n in range(40)])  # type: ignore[misc]

    stop, times = asyncio.Event(), {True: [], False: []}
    burst = asyncio.create_task(busy(stop))
    seq = await turns(log, TURNS + 1, TURNS + 40, seq, times)
    stop.set()
    await burst
    show("commit, durable, while the loop is busy", times[True])
    show("commit, not durable, while the loop is busy", times[False])
    await store.close()
    opened = time.perf_counter()
    store = SqliteStore(directory)
    show("open again", [time.perf_counter() - opened])
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        asyncio.run(main(Path(folder)))
