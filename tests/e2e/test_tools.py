"""What the tools do to a real folder: what the person is asked, what the model is told, what is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentls.core.events import ApprovalAsked, ApprovalDecided, ToolResult
from agentls.core.json import JsonObject, digest
from tests.e2e.editors import Desk, log_of, on_stdio, process_of, results_of, texts_of, tools_of
from tests.model_server import ModelServer, calls, reply

NEW = {"path": "new.txt", "content": "tab\there\nend\n"}


# Reading -------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_from_disk(desk: Desk) -> None:
    told = await desk.turn(1, calls(("read", {"path": "a.txt"})), reply("done"))
    assert results_of(told) == ['<file path="a.txt" lines="1-2 of 2">\n1\tone\n2\ttwo\n</file>']
    row = desk.row("tool")
    assert (row["title"], row["state"], row["call"]["state"]) == ("read", "done", "done")
    assert desk.editor.kinds(desk.agent) == ["user", "tool", "assistant", "turn-end"]


async def test_unsaved_text_is_read_from_the_editor_that_has_it(desk: Desk) -> None:
    """Case L16."""
    path = desk.work / "a.txt"
    desk.editor.open(path, path.read_text())
    desk.editor.change(path, "not saved\n")
    told = await desk.turn(1, calls(("read", {"path": "a.txt"})), reply("done"))
    (result,) = results_of(told)
    assert result.startswith('<file path="a.txt" lines="1-1 of 1" unsaved-in="tester 1.0">\n1\tnot saved\n</file>')
    assert "unsaved text in tester 1.0; the file on disk differs" in result
    assert path.read_text() == "one\ntwo\n"


async def test_a_list_of_files_has_none_that_git_ignores(desk: Desk) -> None:
    (desk.work / ".gitignore").write_text("*.log\n/build/\n")
    for name in ("b.log", "build/c.txt", "src/d.py", "src/e.log"):
        path = desk.work / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    told = await desk.turn(1, calls(("list_files", {})), reply("done"))
    head, *names = results_of(told)[0].splitlines()
    assert sorted(names) == [".gitignore", "a.txt", "src/d.py"]
    assert "3 ignored" in head


async def test_calls_of_one_answer_are_answered_in_the_models_order(desk: Desk) -> None:
    """The first takes much longer than the second."""
    (desk.work / "long.txt").write_text("a line of a long file\n" * 400_000)
    both = calls(("read", {"path": "long.txt", "offset": 399_999}), ("read", {"path": "a.txt"}))
    told = await desk.turn(1, both, reply("done"))
    long, short = results_of(told)
    assert long.startswith('<file path="long.txt" lines="399999-400000 of 400000">')
    assert short.startswith('<file path="a.txt"')


async def test_calls_that_cannot_run_are_answered_and_the_turn_goes_on(desk: Desk) -> None:
    """Statement 64."""
    made = calls(
        ("read", {"path": 7}), ("read", '{"path": "a.t'), ("fly", {"to": "moon"}), ("read", {"path": "a.txt", "x": 1})
    )
    told = await desk.turn(1, made, calls(("read", {"path": "a.txt"})), reply("done"))
    wrong, broken, unknown, extra, good = results_of(told)
    assert wrong.startswith('"path" must be')
    assert 'the arguments of "read" are not a JSON object' in broken
    assert unknown.startswith('there is no tool "fly"; there are "list_files", "read", "write"')
    assert extra.startswith('"x" is no argument of "read"')
    assert good.startswith('<file path="a.txt"')
    states = [row["call"]["state"] for row in desk.editor.rows(desk.agent) if row["kind"] == "tool"]
    assert states == ["not-run"] * 4 + ["done"]
    assert desk.row("turn-end")["reason"] == "completed"


# Asking --------------------------------------------------------------------------------------------------------


async def test_a_write_shows_exactly_what_it_will_do_and_does_it_once_allowed(desk: Desk) -> None:
    desk.model.script(calls(("write", NEW)), reply("done"))
    await desk.say("write it")
    asked = await desk.editor.asked(desk.agent)
    assert (desk.state["status"], asked["kind"]) == ("waiting", "approval")
    row = desk.row("approval")
    assert (row["id"], row["request"], row["state"]) == (asked["blockId"], asked["requestId"], "streaming")
    assert row["title"] == "Allow write to new.txt?"
    assert f"```\n{NEW['content']}" in row["body"]
    assert str(desk.work / "new.txt") in row["body"]
    # It follows the state by which the approval was found.
    attention = ("agent/attention", "needs-you")
    await desk.editor.until(lambda: attention in [(name, told.get("kind")) for name, told in desk.editor.told])
    assert sorted(path.name for path in desk.work.iterdir()) == ["a.txt"]
    assert (await desk.decide("allow")) == {"outcome": "accepted", "by": "tester 1.0"}
    await desk.editor.closed(desk.agent, 1)
    assert (desk.work / "new.txt").read_text() == NEW["content"]
    assert results_of(await desk.model.exchange(1)) == ["created new.txt (+2 -0 lines)"]
    row = desk.row("approval")
    assert (row["title"], row["summary"], "request" in row) == ("Allowed: write to new.txt", "by tester 1.0", False)
    assert desk.state["requests"] == []


async def test_the_hash_to_answer_with_is_that_of_what_is_shown(
    tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> None:
    """Of the canonical JSON of tool, raw arguments and what the tool shows, as the log has it."""
    raw = '{ "content": "new\\n",  "path": "a.txt" }'
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        agent = await editor.create(workspaceUri=work.as_uri())
        model.script(calls(("read", {"path": "a.txt"})), calls(("write", raw)), reply("done"))
        await editor.say("followup", agent, "go")
        asked = await editor.asked(agent)
        body = editor.row(agent, "approval")["body"]
        assert all(line in body for line in ("-one", "-two", "+new"))
        shown: JsonObject = {
            "tool": "write",
            "arguments": raw,
            "path": "a.txt",
            "realPath": str(work / "a.txt"),
            "change": "replaced",
            "diff": next(part for part in body.split("```diff\n")[1:]).split("\n```")[0],
        }
        await editor.decide(agent, "allow")
        await editor.closed(agent, 1)
    (logged,) = (
        event.data for event in await log_of(tmp_path / "state", agent) if isinstance(event.data, ApprovalAsked)
    )
    assert asked["shown"] == logged.shown == digest(logged.what)
    assert {**logged.what, "diff": str(logged.what["diff"]).rstrip("\n")} == shown


async def test_a_denied_write_is_told_with_the_persons_note_and_the_turn_goes_on(desk: Desk) -> None:
    desk.model.script(calls(("write", NEW)), reply("as you wish"))
    await desk.say("go")
    assert (await desk.decide("deny", note="not in this folder"))["outcome"] == "accepted"
    await desk.editor.closed(desk.agent, 1)
    (result,) = results_of(await desk.model.exchange(1))
    assert result.startswith("the person did not allow this call: not in this folder;")
    assert desk.editor.answer(desk.agent) == "as you wish"
    assert (desk.row("tool")["call"]["state"], desk.row("approval")["summary"]) == (
        "denied", "by tester 1.0: not in this folder",
    )  # fmt: skip
    assert desk.row("turn-end")["reason"] == "completed"
    assert not (desk.work / "new.txt").exists()


async def test_denying_and_stopping_ends_the_turn_and_holds_the_queue(desk: Desk) -> None:
    desk.model.script(calls(("write", NEW), ("read", {"path": "a.txt"})))
    await desk.say("go")
    await desk.editor.asked(desk.agent)
    await desk.say("later", id="later")
    assert (await desk.decide("deny-and-stop"))["outcome"] == "accepted"
    await desk.editor.closed(desk.agent, 1)
    assert desk.row("turn-end")["reason"] == "aborted"
    assert desk.state["hold"] == {"cause": "cancel"}
    assert [(item["messageId"], item["held"]) for item in desk.state["inbox"]] == [("later", True)]
    assert len(desk.model.exchanges) == 1
    assert not (desk.work / "new.txt").exists()
    assert desk.row("approval")["title"] == "Denied: write to new.txt"
    told = await desk.turn(2, reply("on we go"), text="ahead of it")
    assert len(results_of(told)) == 2, "each call has a result, whatever became of it"


async def test_a_cancel_closes_what_is_asked(desk: Desk) -> None:
    desk.model.script(calls(("write", NEW)))
    await desk.say("go")
    asked = await desk.editor.asked(desk.agent)
    assert (await desk.editor.ask("agent/cancel", agentId=desk.agent))["outcome"] == "cancelled"
    await desk.editor.closed(desk.agent, 1)
    assert desk.state["requests"] == []
    row = desk.row("approval")
    assert (row["title"], row["state"]) == ("Not answered: write to new.txt", "interrupted")
    assert await desk.decide("allow", request=asked) == {"outcome": "already-resolved"}
    assert (desk.row("tool")["call"]["state"], desk.row("turn-end")["reason"]) == ("not-run", "aborted")
    assert not (desk.work / "new.txt").exists()


async def test_a_request_that_was_never_made_cannot_be_answered(desk: Desk) -> None:
    refused = await desk.editor.refused(
        "agent/answer", agentId=desk.agent, requestId="q9.9.9", shown="x", answer={"decision": "allow"}
    )
    assert (refused.code, refused.data) == (-32602, {"path": "requestId"})


# Refusing ------------------------------------------------------------------------------------------------------


def _type_over(desk: Desk) -> None:
    path = desk.work / "a.txt"
    desk.editor.open(path, path.read_text())
    desk.editor.change(path, "not saved\n")


def _change(desk: Desk) -> None:
    (desk.work / "a.txt").write_text("somebody else's\n")


@dataclass(frozen=True)
class Refusal:
    """A write that must not happen: what was read before it, what happens in between, and what the model is told."""

    code: str
    says: str
    path: str = "a.txt"
    reads: bool = True
    meanwhile: Callable[[Desk], None] = lambda _: None


REFUSALS = {
    "over unsaved text": Refusal("UNSAVED_BUFFER", "unsaved text in tester 1.0", meanwhile=_type_over),
    "over what has changed": Refusal("STALE", "has changed since it was read", meanwhile=_change),
    "over what was not read": Refusal("STALE", "exists and was not read", reads=False),
    "out of the workspace": Refusal("OUTSIDE_WORKSPACE", "is outside of the workspace", path="../b.txt"),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_write_that_would_lose_something_is_refused_and_nobody_is_asked(
    name: str, tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> None:
    """Case L16."""
    refusal, gate = REFUSALS[name], asyncio.Event()
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        desk = Desk(editor, model, work, await editor.create(workspaceUri=work.as_uri()))
        read = calls(("read" if refusal.reads else "list_files", {"path": "a.txt" if refusal.reads else "."}))
        model.script(read, calls(("write", {"path": refusal.path, "content": "mine\n"}), before=gate), reply("I see"))
        await desk.say("go")
        await model.exchange(1)
        refusal.meanwhile(desk)
        await editor.ask("agent/list")
        before = (work / "a.txt").read_text()
        gate.set()
        await editor.closed(desk.agent, 1)
        assert refusal.says in results_of(await model.exchange(2))[-1]
        assert editor.answer(desk.agent) == "I see"
        assert "approval" not in editor.kinds(desk.agent)
    assert (work / "a.txt").read_text() == before
    assert not (tmp_path / "b.txt").exists()
    assert (await codes(tmp_path / "state", desk.agent))[-1] == refusal.code


@pytest.mark.parametrize(("meanwhile", "says"), [(_type_over, "unsaved text"), (_change, "has changed since")])
async def test_what_was_allowed_is_not_done_over_what_came_after_the_question(
    desk: Desk, meanwhile: Callable[[Desk], None], says: str
) -> None:
    """Case L16."""
    writes = calls(("write", {"path": "a.txt", "content": "mine\n"}))
    desk.model.script(calls(("read", {"path": "a.txt"})), writes, reply("I see"))
    await desk.say("go")
    await desk.editor.asked(desk.agent)
    meanwhile(desk)
    before = (desk.work / "a.txt").read_text()
    assert (await desk.decide("allow"))["outcome"] == "accepted"
    await desk.editor.closed(desk.agent, 1)
    assert says in results_of(desk.model.exchanges[-1])[-1]
    assert (desk.work / "a.txt").read_text() == before
    assert desk.row("tool")["call"]["state"] == "failed"


async def codes(state: Path, agent: str) -> list[str | None]:
    """The codes of all results in a log."""
    results = [event.data for event in await log_of(state, agent) if isinstance(event.data, ToolResult)]
    return [result.error.code if result.error is not None else None for result in results]


async def test_a_read_out_of_the_workspace_is_refused(desk: Desk) -> None:
    (desk.work.parent / "secret.txt").write_text("secret")
    (desk.work / "link.txt").symlink_to(desk.work.parent / "secret.txt")
    made = calls(("read", {"path": "../secret.txt"}), ("read", {"path": "link.txt"}), ("list_files", {"path": "/"}))
    told = await desk.turn(1, made, reply("done"))
    results = results_of(told)
    assert len(results) == 3
    assert all("is outside of the workspace" in result for result in results)
    assert "secret\n" not in str(results)


async def test_a_read_only_agent_has_no_tool_that_writes(
    tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> None:
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        agent = await editor.create(workspaceUri=work.as_uri(), mode="read-only")
        desk = Desk(editor, model, work, agent)
        told = await desk.turn(1, calls(("write", NEW)), reply("I may not"))
        assert [tools_of(exchange) for exchange in model.exchanges] == [["list_files", "read"]] * 2
        assert "the agent may only read" in results_of(told)[0]
        assert "approval" not in editor.kinds(agent)
        await editor.ask("agent/configure", agentId=agent, mode="ask")
        model.script(calls(("write", NEW)), reply("done"))
        await desk.say("now")
        await desk.decide("allow")
        await editor.closed(agent, 2)
        assert tools_of(model.exchanges[-1]) == ["list_files", "read", "write"]
    assert (work / "new.txt").exists()
    assert await codes(tmp_path / "state", agent) == ["READ_ONLY", None]


# After a crash -------------------------------------------------------------------------------------------------


async def test_a_server_that_dies_while_it_asks_leaves_nothing_open(
    tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> None:
    """Statement 37."""
    model.script(calls(("write", NEW)))
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        agent = await editor.create(workspaceUri=work.as_uri())
        await editor.say("followup", agent, "go", "m1")
        asked = await editor.asked(agent)
        await editor.say("followup", agent, "next", "m2")
        process_of(editor).kill()
        await process_of(editor).wait()
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        await editor.attach(agent)
        state = editor.state(agent)
        assert (state["status"], state["requests"], state["hold"]) == ("idle", [], {"cause": "interrupted"})
        assert [(item["messageId"], item["held"]) for item in state["inbox"]] == [("m2", True)]
        assert editor.row(agent, "approval")["state"] == "interrupted"
        assert editor.row(agent, "tool")["call"]["state"] == "not-run"
        assert await editor.decide(agent, "allow", request=asked) == {"outcome": "already-resolved"}
        model.script(reply("again?"))
        await editor.say("followup", agent, "well?")
        await editor.closed(agent, 2)
        (result,) = results_of(await model.exchange(1))
        assert "nothing was done" in result
    events = [event.data for event in await log_of(tmp_path / "state", agent)]
    assert [data.decision for data in events if isinstance(data, ApprovalDecided)] == ["cancelled"]
    assert await codes(tmp_path / "state", agent) == ["TOOL_NOT_STARTED"]
    assert not (work / "new.txt").exists()


async def test_what_was_read_before_a_restart_may_be_written_after_it(
    tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> None:
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        desk = Desk(editor, model, work, await editor.create(workspaceUri=work.as_uri()))
        await desk.turn(1, calls(("read", {"path": "a.txt"})), reply("done"))
    async with on_stdio(tmp_path / "state", *endpoint) as editor:
        desk = Desk(editor, model, work, desk.agent)
        await editor.attach(desk.agent)
        model.script(calls(("write", {"path": "a.txt", "content": "new\n"})), reply("done"))
        await desk.say("go")
        await desk.decide("allow")
        await editor.closed(desk.agent, 2)
        assert results_of(model.exchanges[-1])[-1].startswith("replaced a.txt (+1 -2 lines)")
        assert texts_of(model.exchanges[-1], "user") == ["go", "go"], "nothing to tell of files that others changed"
    assert (work / "a.txt").read_text() == "new\n"
