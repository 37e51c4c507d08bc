"""The real server is killed while a turn reads and writes files, and another one goes on with what it left."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agentls.core.events import Dequeue, Enqueue, Event, ToolCall, ToolResult, ToolStart
from agentls.core.ids import SessionId
from agentls.core.invariants import check_log
from agentls.store.sqlite import SqliteStore
from tests.e2e.editors import SECONDS, Editor, on_stdio, process_of

SCRIPT = {
    "pace": 2,
    "replies": [
        {
            "when": "^do it$",
            "step": 0,
            "pieces": [
                {"text": "let me see"},
                {"call": {"name": "read", "arguments": {"path": "in.txt"}}},
                {"call": {"name": "write", "arguments": {"path": "out.txt", "content": "written\n" * 1000}}},
            ],
        },
        {"when": "^do it$", "step": 1, "pieces": [{"text": "all of it is done"}]},
    ],
}
"""Whatever else is said, the model says it back."""

Moment: TypeAlias = Callable[[Editor, str, Path], object]
MOMENTS: dict[str, Moment] = {
    "it speaks": lambda editor, agent, _: editor.answer(agent),
    "it asks": lambda editor, agent, _: editor.state(agent)["requests"],
    "it was allowed": lambda editor, agent, _: _state_of(editor, agent, "approval") == "done",
    "it has written": lambda editor, agent, out: out.exists(),
    "it has ended": lambda editor, agent, _: "turn-end" in editor.kinds(agent),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_killed_server_loses_nothing_and_writes_nothing_twice(moment: str, tmp_path: Path) -> None:
    """Statements 37 and 58."""
    work, script, state = tmp_path / "work", tmp_path / "script.json", tmp_path / "state"
    work.mkdir()
    (work / "in.txt").write_text("read me\n")
    script.write_text(json.dumps(SCRIPT))
    out = work / "out.txt"
    async with on_stdio(state, "--script", str(script)) as editor:
        agent = await editor.create(workspaceUri=work.as_uri())
        await editor.say("followup", agent, "do it", "first")
        await editor.say("followup", agent, "two", "second")
        await _comes(moment, editor, agent, out)
        process_of(editor).kill()
        await process_of(editor).wait()
        seen = editor.whole(agent)
    there = out.read_text() if out.exists() else None
    async with on_stdio(state, "--script", str(script)) as editor:
        await editor.attach(agent)
        assert editor.state(agent)["status"] == "idle", "nothing runs before a person says so"
        assert editor.state(agent)["requests"] == []
        assert all(item["held"] for item in editor.state(agent)["inbox"])
        _check_rows(seen, editor.whole(agent))
        await editor.ask("agent/inbox/resume", agentId=agent)
        await editor.say("followup", agent, "three", "last")
        await editor.until(lambda: "u:last" in editor.ids(agent))
        await editor.idle(agent)
        assert editor.state(agent)["inbox"] == []
        assert editor.row(agent, "turn-end")["reason"] == "completed"
        assert [row["id"] for row in editor.rows(agent) if row["kind"] == "user"] == ["u:first", "u:second", "u:last"]
    assert (out.read_text() if out.exists() else None) == there, "nothing was written in another life"
    _check_log(await _log(state, agent), there)


async def _comes(moment: str, editor: Editor, agent: str, out: Path) -> None:
    """Wait for the moment; whatever is asked before it is allowed."""
    asked: set[str] = set()
    async with asyncio.timeout(SECONDS):
        while not MOMENTS[moment](editor, agent, out):
            for request in editor.state(agent)["requests"]:
                if request["requestId"] not in asked:
                    asked.add(request["requestId"])
                    named = {"requestId": request["requestId"], "shown": request["shown"]}
                    await editor.ask("agent/answer", agentId=agent, answer={"decision": "allow"}, **named)
            await asyncio.sleep(0.0005)  # A file tells nobody that it is there.


def _check_rows(seen: list[dict[str, Any]], drawn: list[dict[str, Any]]) -> None:
    """What a person had seen is there, as it was or as far as it had come."""
    now = {row["id"]: row for row in drawn}
    for row in seen:
        assert row["kind"] == now[row["id"]]["kind"]
        if row["kind"] in ("assistant", "reasoning", "user"):
            assert now[row["id"]]["body"].startswith(row["body"])
        if row["state"] != "streaming":
            assert (now[row["id"]]["state"], now[row["id"]]["body"]) == (row["state"], row["body"])
    assert all(row["state"] != "streaming" for row in drawn)


def _check_log(events: tuple[Event, ...], there: str | None) -> None:
    """The rules hold, every call has one result that tells of the world, every message came in and left once."""
    check_log(events)
    calls = {data.call_id: data.name for data in _of(events, ToolCall)}
    results = _of(events, ToolResult)
    assert Counter(result.call_id for result in results) == Counter(calls.keys())
    began = {data.call_id for data in _of(events, ToolStart)}
    for result in results:
        code = result.error.code if result.error else None
        assert code in ((None, "TOOL_OUTCOME_UNKNOWN") if result.call_id in began else ("TOOL_NOT_STARTED",))
        if calls[result.call_id] == "write" and code != "TOOL_OUTCOME_UNKNOWN":
            assert (there is not None) == (code is None)
    assert there in (None, "written\n" * 1000), "a file is whole or not there"
    if there is not None:
        assert "write" in {calls[call] for call in began}, "a start is on disk before its body runs"
    assert [data.item.id for data in _of(events, Enqueue)] == ["first", "second", "last"]
    assert [data.id for data in _of(events, Dequeue)] == ["first", "second", "last"]


async def _log(state: Path, agent: str) -> tuple[Event, ...]:
    store = SqliteStore(state)
    try:
        return await (await store.open(SessionId(agent))).read()
    finally:
        await store.close()


def _of(events: tuple[Event, ...], kind: type[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


def _state_of(editor: Editor, agent: str, kind: str) -> str | None:
    """The state of the newest row of a kind."""
    rows = [row for row in editor.rows(agent) if row["kind"] == kind]
    return rows[-1]["state"] if rows else None
