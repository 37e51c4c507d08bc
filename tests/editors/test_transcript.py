"""The plugin's reducer of frames, in Lua without an editor's help."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.editors.neovims import PLUGIN
from tests.editors.programs import nvim

PLAY = """
package.path = arg[1] .. "/lua/?.lua;" .. package.path
local held = require("agentls.transcript").new()
local said = {}
for _, step in ipairs(vim.json.decode(io.read("a"), { luanil = { object = true } })) do
  local verb = step.attached and "attached" or step.frame and "frame" or step.state and "state" or "page"
  table.insert(said, held[verb](held, step[verb]) or "-")
end
local blocks = {}
for _, id in ipairs(held:all()) do
  local block = vim.deepcopy(held:block(id))
  block.body = held:body(id)
  table.insert(blocks, block)
end
print(vim.json.encode({ said = said, blocks = blocks, rev = held.rev }))
"""


def put(name: str, at: int, cleared: list[str] | None = None, **fields: Any) -> dict[str, Any]:
    op = {"op": "put", "block": {"id": name, "order": [at, 0], "rev": 1, "kind": "assistant", **fields}}
    return {**op, "cleared": cleared} if cleared else op


def append(name: str, offset: int, text: str) -> dict[str, Any]:
    return {"op": "append", "id": name, "offset": offset, "text": text}


def frame(rev: int, *ops: dict[str, Any], epoch: str = "e") -> dict[str, Any]:
    return {"frame": {"agentId": "a", "epoch": epoch, "rev": rev, "ops": ops}}


def attached(rev: int, *ops: dict[str, Any], reset: bool = True, **more: Any) -> dict[str, Any]:
    state = {"agentId": "a", "epoch": "e", "rev": rev}
    return {"attached": {"state": state, "ops": ops, "reset": reset, "rev": rev, "epoch": "e", **more}}


CASES: dict[str, tuple[list[dict[str, Any]], list[str], dict[str, str]]] = {
    "a body grows by appends that count bytes": (
        [attached(1, put("x", 1, body="é")), frame(2, append("x", 2, "a"), append("x", 3, "b"))],
        ["-", "ok"],
        {"x": "éab"},
    ),
    "an append at another place is a gap, and nothing of its frame is applied": (
        [attached(1, put("x", 1, body="é")), frame(2, append("x", 2, "a"), append("x", 2, "b"))],
        ["-", "gap"],
        {"x": "é"},
    ),
    "an append to what is not held is a gap": ([attached(1), frame(2, append("x", 0, "a"))], ["-", "gap"], {}),
    "a frame of another life is a gap": ([attached(1), frame(2, put("x", 1), epoch="f")], ["-", "gap"], {}),
    "a frame that is known changes nothing": (
        [attached(3, put("x", 1, body="new")), frame(3, put("x", 1, body="old"))],
        ["-", "old"],
        {"x": "new"},
    ),
    "blocks stand by their order, whenever they come": (
        [attached(1, put("z", 9, body="")), frame(2, put("x", 1, body=""), put("y", 5, body=""))],
        ["-", "ok"],
        {"x": "", "y": "", "z": ""},
    ),
    "a dropped block is gone, and may come again": (
        [attached(1, put("x", 1, body="1"), put("y", 2, body="2")), frame(2, {"op": "drop", "id": "x"})],
        ["-", "ok"],
        {"y": "2"},
    ),
    "a reset forgets what was held": (
        [attached(1, put("x", 1, body="1")), attached(9, put("y", 2, body="2"))],
        ["-", "-"],
        {"y": "2"},
    ),
    "without a reset the rest stays": (
        [attached(1, put("x", 1, body="1")), attached(9, put("y", 2, body="2"), reset=False)],
        ["-", "-"],
        {"x": "1", "y": "2"},
    ),
    "what stands before the page that is held waits for its page": (
        [
            attached(1, put("y", 5, body="y"), before=[5, 0]),
            frame(2, put("x", 1, body="x"), append("x", 1, "!")),
            {"page": {"ops": [put("x", 1, body="x!"), put("y", 5, body="older")]}},
        ],
        ["-", "ok", "-"],
        {"x": "x!", "y": "y"},
    ),
    "an older state does not count": (
        [attached(5), {"state": {"agentId": "a", "epoch": "e", "rev": 4}}],
        ["-", "old"],
        {},
    ),
}


def play(steps: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    script = folder / "play.lua"
    script.write_text(PLAY)
    done = subprocess.run(
        [nvim(), "--clean", "-l", script, PLUGIN], input=json.dumps(steps), capture_output=True, text=True, check=True
    )
    # `print` of `nvim -l` goes to standard error.
    found: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_reducer_follows_the_rules_of_the_protocol(case: str, tmp_path: Path) -> None:
    steps, said, bodies = CASES[case]
    found = play(steps, tmp_path)
    assert found["said"] == said
    assert [(block["id"], block["body"]) for block in found["blocks"] or []] == list(bodies.items())


def test_a_field_that_is_left_out_stays_and_a_cleared_one_goes(tmp_path: Path) -> None:
    """Neovim drops nulls when it reads JSON, so that `cleared` is what counts."""
    steps = [
        attached(1, put("x", 1, body="b", title="t", request="q1", summary="s")),
        frame(2, put("x", 1, cleared=["request"], request=None, title="u")),
    ]
    (block,) = play(steps, tmp_path)["blocks"]
    assert (block["title"], block["summary"], block["body"]) == ("u", "s", "b")
    assert "request" not in block
