"""Measure what the server adds between a model and an editor: `.venv/bin/python -m bench.relay [ROUNDS]`.

A model server that notes when it writes each token answers at full speed and at fifty tokens a second; a client of the
real server notes when it has each. In the same run two programs with no server between say what is possible: `httpx`,
the library that the server uses, with nothing but JSON decoded, and `socket`, plain asyncio that only looks for texts.
All three are processes of their own, and so is the model. Figures are medians of the rounds, which take turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson

from bench.client import Turn, client, cpu, memory
from bench.model_server import TOKEN, ModelServer, Record, Script, model_server

BURST = Script(20_000)
PACED = Script(200, pace=50)
SHORT = Script(3)
SENDS = 40
BODY = json.dumps({"model": "m", "stream": True, "messages": []}).encode()

Row = dict[str, float]


# What is possible: programs with no server between ---------------------------------------------------------------


async def by_httpx(url: str) -> list[int]:
    """Ask as the server does, and decode each payload; when each token was there."""
    marks: list[int] = []
    async with httpx.AsyncClient() as http, http.stream("POST", f"{url}/chat/completions", content=BODY) as response:
        held = b""
        async for data in response.aiter_bytes():
            now = time.monotonic_ns()
            *events, held = (held + data).split(b"\n\n")
            for event in events:
                if event[6:] == b"[DONE]":
                    continue
                choices = orjson.loads(event[6:])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    marks.append(now)
    return marks


async def by_socket(url: str) -> list[int]:
    """Ask over a bare socket and look for texts only; when each token was there."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: model\r\nContent-Length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    marks: list[int] = []
    data, needle = b"", b'"content": "'
    while not data.endswith(b"0\r\n\r\n"):
        new = await reader.read(1 << 16)
        now = time.monotonic_ns()
        seen = data.count(needle)
        data = data[-len(needle) - 64 :] + new if seen == 0 else data + new
        marks += [now] * (data.count(needle) - seen)
    writer.close()
    return marks


async def bare(how: str, url: str) -> None:
    """One answer taken by one of these, as a line of JSON; what its imports cost is left out."""
    began = time.process_time()
    marks = await (by_httpx(url) if how == "httpx" else by_socket(url))
    facts = {"cpu": time.process_time() - began, "memory": memory(os.getpid())[1], "marks": marks}
    sys.stdout.write(json.dumps(facts) + "\n")


async def run_bare(how: str, model: ModelServer, script: Script) -> Row:
    """Run one of these in a process of its own."""
    await model.play(script)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.relay", how, model.url, stdout=PIPE)
    said, _ = await process.communicate()
    facts = json.loads(said)
    turn = Turn(0, [(when, number * TOKEN) for number, when in enumerate(facts["marks"], 1)])
    return row(turn, await model.record(), script) | {"cpu": facts["cpu"], "memory": facts["memory"]}


# The measurement -------------------------------------------------------------------------------------------------


def row(turn: Turn, record: Record, script: Script) -> Row:
    """What a turn and the model's record of it say together."""
    delays = turn.delays(record.written, TOKEN)
    took = (turn.marks[-1][0] - record.written[0]) / 1e9
    return {"rate": script.tokens / took, "p50": statistics.median(delays), "p95": part(delays, 0.95)}


def part(values: Sequence[float], share: float) -> float:
    """The value that such a share of sorted values does not exceed."""
    return values[min(int(len(values) * share), len(values) - 1)]


async def run(rounds: int, state: Path, work: Path) -> None:
    """Measure all of it, and print it."""
    async with (
        model_server() as model,
        client(state, "--base-url", model.url, "--model-id", "measured") as editor,
    ):
        agent = await editor.create(work)
        pid = editor.process.pid

        async def served(script: Script) -> tuple[Row, float]:
            await model.play(script)
            before = cpu(pid)
            turn = await editor.turn(agent, "go on")
            facts = {"cpu": cpu(pid) - before, "memory": memory(pid)[1], "frames": float(turn.frames)}
            record = await model.record()
            facts["bytes"] = turn.received / script.tokens
            return row(turn, record, script) | facts, (record.arrived - turn.sent) / 1e6

        await served(SHORT)  # what is imported, and the connection
        rows: dict[str, dict[str, list[Row]]] = {"burst": {}, "paced": {}}
        for _ in range(rounds):
            for name, script in ("paced", PACED), ("burst", BURST):
                for how in ("httpx", "socket"):
                    rows[name].setdefault(how, []).append(await run_bare(how, model, script))
                found, _ = await served(script)
                rows[name].setdefault("agentls", []).append(found)
        agent = await editor.create(work)  # whose history is short
        await served(SHORT)
        sends = sorted([(await served(SHORT))[1] for _ in range(SENDS)])
    report(rows, sends)


def report(rows: dict[str, dict[str, list[Row]]], sends: Sequence[float]) -> None:
    """Print the medians, and each beside that of httpx."""
    columns = {"rate": "tokens/s", "p50": "p50 ms", "p95": "p95 ms", "cpu": "CPU ms", "memory": "peak MiB"}
    columns |= {"bytes": "bytes/token", "frames": "frames"}
    for name, script in ("burst", BURST), ("paced", PACED):
        pace = f"{script.pace} a second" if script.pace else "at full speed"
        say(f"{script.tokens} tokens {pace}")
        say(f"  {'':8}" + "".join(f"{title:>13}" for title in columns.values()))
        for how, found in rows[name].items():
            say(f"  {how:8}" + "".join(f"{cell(found, key):>13}" for key in columns))
        ours, theirs = rows[name]["agentls"], rows[name]["httpx"]
        say(f"  {'ratio':8}" + "".join(f"{ratio(ours, theirs, key):>13}" for key in columns))
    say(f"send to request, {len(sends)} turns: p50 {part(sends, 0.5):.2f} ms, p95 {part(sends, 0.95):.2f} ms")


def cell(found: Iterable[Row], key: str) -> str:
    """A median for reading."""
    value = median(found, key)
    if value is None:
        return ""
    return f"{value * 1000:.0f}" if key == "cpu" else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio(ours: Iterable[Row], theirs: Iterable[Row], key: str) -> str:
    """One median over the other."""
    one, other = median(ours, key), median(theirs, key)
    return f"{one / other:.2f} x" if one and other else ""


def median(found: Iterable[Row], key: str) -> float | None:
    """Over the rounds; None for what is not measured there."""
    values = [row[key] for row in found if key in row]
    return statistics.median(values) if values else None


def say(line: str) -> None:
    """Print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Measure in so many rounds, or with `httpx URL` or `socket URL` be one of the programs to compare with."""
    if arguments and arguments[0] in ("httpx", "socket"):
        asyncio.run(bare(arguments[0], arguments[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder, "work")
            work.mkdir()
            asyncio.run(run(int(arguments[0]) if arguments else 3, Path(folder, "state"), work))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
