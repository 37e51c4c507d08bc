"""The real server over files that were damaged: it starts, says so, and goes on with what is whole."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE
from tests.e2e.editors import Editor, on_stdio
from tests.store.damaging import flip

LOG = f"{SESSIONS_FILE}-wal"
SAID = ("one", "two", "three")


async def _three_agents(base: Path) -> None:
    """What a server that ended leaves of three agents, and what one leaves that was killed."""
    script = base / "script.json"
    script.write_text(json.dumps({"pace": 1, "replies": []}))  # Whatever is said, the model says it back.
    (base / "work").mkdir()
    async with on_stdio(base / "ended", "--script", str(script)) as editor:
        for said in SAID:
            agent = await editor.create(workspaceUri=(base / "work").as_uri())
            for n in range(4):
                await editor.say("followup", agent, f"{said} {n}", f"{said}-{n}")
                await editor.closed(agent, n + 1)
        shutil.copytree(base / "ended", base / "killed")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    asyncio.run(_three_agents(folder))
    return folder


Damage: TypeAlias = Callable[[Path], object]


def _cut(file: str, part: float) -> Damage:
    def cut(state: Path) -> None:
        raw = (state / file).read_bytes()
        (state / file).write_bytes(raw[: int(len(raw) * part)])

    return cut


def _garbage(state: Path) -> None:
    for file in (SESSIONS_FILE, DRAFTS_FILE):
        (state / file).write_bytes(random.Random(file).randbytes(20_000))


CASES: dict[str, Damage] = {
    "a flipped byte of an event": lambda state: flip(
        state / SESSIONS_FILE, (state / SESSIONS_FILE).stat().st_size * 7 // 10
    ),
    "a flipped byte of the first page": lambda state: flip(state / SESSIONS_FILE, 17),
    "half of the database": _cut(SESSIONS_FILE, 0.5),
    "half of the log of changes": _cut(LOG, 0.5),
    "no database at all": _garbage,
}


@pytest.mark.parametrize("case", CASES)
async def test_a_server_starts_over_damage_and_tells_it(base: Path, tmp_path: Path, case: str) -> None:
    state = tmp_path / "state"
    shutil.copytree(base / ("killed" if "log of changes" in case else "ended"), state)
    CASES[case](state)
    async with on_stdio(state, "--script", str(base / "script.json")) as editor:
        rows = (await editor.ask("agent/list"))["agents"]
        told = editor.warnings
        assert len(rows) == len(SAID) or told, "nobody is told of what is gone"
        whole = [await _goes_on(editor, row["id"]) for row in rows]
        after = (await editor.ask("agent/list"))["agents"]
        assert sum("damaged" in row for row in after) == whole.count(False)
        new = await editor.create(workspaceUri=(base / "work").as_uri())
        assert await _goes_on(editor, new)
    kept = [str(path) for path in sorted(state.glob("*.damaged-1"))]
    assert len(kept) == len(told)
    for sentence, path in zip(sorted(told, reverse=True), kept, strict=True):
        assert f'it is kept as it was in "{path}"' in sentence
        assert (f"agentls sessions export --all --database {path}" in sentence) == (SESSIONS_FILE in path)


async def _goes_on(editor: Editor, agent: str) -> bool:
    """Whether the agent takes a message and answers; one that does not says why and gives the message back."""
    await editor.attach(agent)
    number = (editor.state(agent).get("lastTurn") or {"number": 0})["number"] + 1
    sent = await editor.say("followup", agent, "go on", f"go-on-{agent}")
    if sent["outcome"] == "started":
        await editor.closed(agent, number)
        assert "go on" in editor.row(agent, "assistant")["body"]
        return True
    assert (sent["outcome"], sent["reason"]) == ("refused", "read-only")
    assert sent["content"] == [{"type": "text", "text": "go on"}]
    assert editor.state(agent)["store"] == "read-only"
    assert editor.row(agent, "error")["title"] == "This session can only be read"
    refused = await editor.refused("agent/configure", agentId=agent, title="no")
    assert refused.code == -32056
    return False


async def test_a_kill_is_no_damage(base: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(base / "killed", state)
    async with on_stdio(state, "--script", str(base / "script.json")) as editor:
        rows = (await editor.ask("agent/list"))["agents"]
        assert [row.get("damaged") for row in rows] == [None] * len(SAID)
        assert await _goes_on(editor, rows[0]["id"])
        assert editor.warnings == []
    assert not list(state.glob("*.damaged-*"))
