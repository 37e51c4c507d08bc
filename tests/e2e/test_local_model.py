"""The embedded local model: a real llama.cpp server behind the same pipe, no key and no network."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentls.models import weights
from tests.e2e.editors import Editor, on_stdio, process_of
from tests.harness import until

# A real model on a busy machine says its most tokens in about a minute.
PATIENCE = 150.0
pytestmark = [pytest.mark.local, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def local(state: Path) -> AsyncIterator[Editor]:
    """An editor whose server has the weights."""
    models = Path(os.environ.get("AGENTLS_MODELS_DIR", ROOT / ".tools" / "models"))
    assert weights.is_there(models), "the weights are missing; run scripts/setup --local"
    async with on_stdio(state, env={"AGENTLS_MODELS_DIR": str(models)}) as editor:
        editor.patience = PATIENCE
        yield editor


def children_of(pid: int) -> list[int]:
    """The live children of a process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


async def test_it_is_the_default_and_answers_steers_and_stops(tmp_path: Path) -> None:
    async with local(tmp_path) as editor:
        agent = await editor.create()
        assert editor.state(agent)["model"] == {"provider": "local", "id": "smollm2", "usable": True}
        await editor.say("followup", agent, "Count slowly from one to twenty, in words.", "m1")
        await editor.until(lambda: editor.answer(agent))
        assert children_of(process_of(editor).pid), "llama.cpp runs in a process of its own"
        assert (await editor.say("steer", agent, "Now say hello.", "s1"))["outcome"] == "steering"
        # An answer that runs into its limit ends its turn, and the steer opens the next one.
        await editor.until(lambda: any(row["id"].startswith(("a1.2.1/", "a2.1.1/")) for row in editor.rows(agent)))
        cancelled = await editor.ask("agent/cancel", agentId=agent, keepInbox=True)
        assert cancelled["outcome"] == "cancelled"
        await editor.idle(agent)
        assert [row["id"] for row in editor.rows(agent) if row["kind"] == "user"] == ["u:m1", "u:s1"]
        stopped = editor.row(agent, "turn-end")
        assert stopped["reason"] == "aborted"
        await editor.say("followup", agent, "Say goodbye.", "m2")
        await editor.until(lambda: editor.row(agent, "turn-end")["turn"] == stopped["turn"] + 1)
        usage = editor.state(agent)["usage"]
        assert usage["outputTokens"] > 0
        assert usage["contextWindow"] == 2048


async def test_a_model_that_is_killed_leaves_its_text_and_a_row_and_is_asked_again(tmp_path: Path) -> None:
    async with local(tmp_path) as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "Write a long story about a lighthouse and its keeper.", "m1")
        await editor.until(lambda: editor.answer(agent))
        (child,) = children_of(process_of(editor).pid)
        os.kill(child, signal.SIGKILL)
        await editor.until(lambda: "retry" in editor.kinds(agent))
        told = editor.row(agent, "retry")
        assert "The local model stopped" in told["title"]
        assert "ended while it answered" in told["body"]
        await editor.ended(agent)
        failed, answered = (row for row in editor.rows(agent) if row["kind"] == "assistant")
        assert (failed["state"], bool(failed["body"])) == ("failed", True)
        assert (answered["state"], bool(answered["body"])) == ("done", True)
        assert editor.row(agent, "retry")["title"].startswith("Tried again after")
        assert editor.row(agent, "turn-end")["reason"] in ("completed", "max-tokens")
        (again,) = children_of(process_of(editor).pid)
        assert again != child


async def talked(editor: Editor) -> int:
    """The process of the model, once it has said something."""
    agent = await editor.create()
    await editor.say("followup", agent, "Say hello.")
    await editor.until(lambda: editor.answer(agent))
    (child,) = children_of(process_of(editor).pid)
    return child


async def test_it_ends_with_the_server(tmp_path: Path) -> None:
    async with local(tmp_path) as editor:
        child = await talked(editor)
    await until(lambda: not Path(f"/proc/{child}").exists())


async def test_it_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    async with local(tmp_path) as editor:
        child = await talked(editor)
        process_of(editor).kill()
        await process_of(editor).wait()
    await until(lambda: not Path(f"/proc/{child}").exists())
