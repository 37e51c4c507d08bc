"""Measure how long the plugin keeps Neovim from its person: `.venv/bin/python -m bench.neovim [SECONDS]`,
after `scripts/setup --editors`.

A server that only plays writes 10,000 frames a second, each one word of a reply, to a real Neovim with the transcript
in view; a timer in Neovim's own loop looks every millisecond how late it is. The same without the plugin's drawing,
where Neovim only reads and decodes, is the limit; the same at the 125 frames a second that a real server sends at most
is what a person has. The screen is drawn by a client that takes everything and shows nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.editors.neovims import ROOT, neovim

AGENT, EPOCH = "bench", "e"
BURST, PACED = 10_000, 125
WORDS_A_LINE = 12


# The server that only plays ------------------------------------------------------------------------------------


def serve(rate: int, seconds: float) -> None:
    """Answer what the plugin asks, and write the frames once it has attached."""
    out = sys.stdout.buffer
    while (message := _read()) is not None:
        if "id" not in message:
            continue
        result = _answer(message["method"])
        out.write(_framed({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        out.flush()
        if message["method"] == "agent/attach":
            _play(rate, seconds)


def _play(rate: int, seconds: float) -> None:
    out = sys.stdout.buffer
    put = {
        "id": "a1.1.1/0", "order": [1, 0], "rev": 2, "kind": "assistant", "state": "streaming", "title": "Assistant",
        "body": "", "collapsed": False,
    }  # fmt: skip
    out.write(_frame(2, {"op": "put", "block": put}))
    size, began = 0, time.monotonic()
    for number in range(int(rate * seconds)):
        text = "\n" if number % WORDS_A_LINE == WORDS_A_LINE - 1 else f"word{number} "
        out.write(_frame(3 + number, {"op": "append", "id": "a1.1.1/0", "offset": size, "text": text}))
        size += len(text)
        out.flush()
        ahead = began + (number + 1) / rate - time.monotonic()
        if ahead > 0.001:
            time.sleep(ahead)  # noqa: TID251 - it keeps a pace, and waits for nothing
    out.write(_framed({"jsonrpc": "2.0", "method": "agent/state", "params": _state(10_000_000)}))
    out.flush()


def _answer(method: str) -> object:
    match method:
        case "initialize":
            return {"capabilities": {"experimental": {"agent": {"version": 1}}}}
        case "agent/list":
            return {"agents": [{"id": AGENT, "status": "idle", "createdAt": 0, "updatedAt": 0}]}
        case "agent/attach":
            return {"state": _state(1), "ops": [], "reset": True, "rev": 1, "epoch": EPOCH}
        case _:
            return {}


def _state(rev: int) -> dict[str, object]:
    model = {"provider": "bench", "id": "bench", "usable": True}
    return {
        "agentId": AGENT, "epoch": EPOCH, "rev": rev, "status": "idle", "inbox": [], "requests": [], "model": model,
        "mode": "ask", "editors": [], "store": "ok", "title": "ended" if rev > 1 else "bench",
    }  # fmt: skip


def _frame(rev: int, op: object) -> bytes:
    params = {"agentId": AGENT, "epoch": EPOCH, "rev": rev, "ops": [op]}
    return _framed({"jsonrpc": "2.0", "method": "agent/blocks", "params": params})


def _framed(message: object) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _read() -> dict[str, str] | None:
    length = 0
    while line := sys.stdin.buffer.readline():
        if line == b"\r\n":
            found: dict[str, str] = json.loads(sys.stdin.buffer.read(length))
            return found
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return None


# The measurement -----------------------------------------------------------------------------------------------

WATCH = """
local now, last, timer = vim.uv.hrtime, vim.uv.hrtime(), vim.uv.new_timer()
_G.late = {}
timer:start(1, 1, function()
  local at = now()
  table.insert(late, (at - last) / 1e6)
  last = at
end)
"""
DRAW_NOTHING = """
require("agentls.view").new = function()
  local nothing = function() end
  return { buffer = vim.api.nvim_create_buf(false, true), draw = nothing, hint = nothing }
end
"""


def measure(name: str, rate: int, seconds: float, *, draws: bool = True) -> None:
    """Play once, and print how late the timer was; the last word must be there."""
    command = ["env", "-C", str(ROOT), sys.executable, "-m", "bench.neovim", "serve", str(rate), str(seconds)]
    settings = "{ cmd = { " + ", ".join(json.dumps(word) for word in command) + " } }"
    with (
        tempfile.TemporaryDirectory() as folder,
        neovim(Path(folder, "home"), Path(folder), settings, seconds=300) as vim,
    ):
        if not draws:
            vim.lua(DRAW_NOTHING)
        began = time.monotonic()
        vim.command("Agent")
        # Not what opening costs, which a person has asked for: what comes while they do something else.
        vim.until("require('agentls').state() ~= nil")
        vim.lua(WATCH)
        vim.until("(function() local s = require('agentls').state(); return s and s.title == 'ended' end)()")
        took = time.monotonic() - began
        late: list[float] = vim.lua("return late")
        lines = len(vim.transcript())
    late.sort()
    p99 = late[int(len(late) * 0.99)]
    sys.stdout.write(
        f"{name:34} {rate * seconds / took:8.0f} frames/s  worst {late[-1]:6.1f} ms  p99 {p99:5.1f} ms"
        f"  median {statistics.median(late):4.1f} ms  {lines} lines\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Measure all three, or with `serve RATE SECONDS` play the server."""
    if arguments[:1] == ["serve"]:
        serve(int(arguments[1]), float(arguments[2]))
        return 0
    seconds = float(arguments[0]) if arguments else 3.0
    measure("read and decoded only, burst", BURST, seconds, draws=False)
    measure("drawn, burst", BURST, seconds)
    measure("drawn, as a server sends at most", PACED, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
