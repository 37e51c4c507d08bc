"""What a person does to what waits and to whole agents, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from lsprotocol import types

from tests.e2e.editors import WORKSPACE, Desk, Editor, on_socket, on_stdio, started, texts_of
from tests.model_server import DONE, Answer, ModelServer, calls, content, finish, reply


@dataclass
class Running:
    """A turn whose answer waits at a gate."""

    desk: Desk
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self.desk.model.script(Answer((content("going"), self.gate, finish(), DONE)))
        await self.desk.say("first", id="first")
        await self.desk.editor.streaming(self.desk.agent, "going")

    async def queue(self, *ids: str) -> None:
        for id in ids:
            assert (await self.desk.say(f"text of {id}", id=id))["outcome"] == "queued"

    async def change(self, deed: str, message: str | None = None, **more: Any) -> dict[str, Any]:
        named = {} if message is None else {"messageId": message}
        return await self.desk.editor.ask(f"agent/inbox/{deed}", agentId=self.desk.agent, **named, **more)

    def waits(self) -> list[tuple[str, str, bool]]:
        return [(item["messageId"], item["lane"], item["held"]) for item in self.desk.state["inbox"]]

    def said(self) -> list[tuple[str, str, str]]:
        rows = [row for row in self.desk.editor.rows(self.desk.agent) if row["kind"] == "user"]
        return [(row["id"], row["title"], row["body"]) for row in rows]


@pytest.fixture
async def running(desk: Desk) -> Running:
    made = Running(desk)
    await made.start()
    return made


# What waits ----------------------------------------------------------------------------------------------------


async def test_what_waits_can_be_edited_until_it_is_taken(running: Running) -> None:
    desk = running.desk
    await running.queue("a")
    edited = await running.change("edit", "a", content="better")
    assert edited["outcome"] == "done"
    assert [(item["messageId"], item["text"]) for item in edited["inbox"]] == [("a", "better")]
    again = await desk.say("text of a", id="a")
    assert (again["outcome"], again["repeated"], again["now"]) == ("queued", True, "pending"), "as it was sent"
    desk.model.script(reply("I see"))
    running.gate.set()
    await desk.editor.closed(desk.agent, 2)
    assert texts_of(desk.model.exchanges[-1], "user") == ["first", "better"]
    assert running.said()[-1] == ("u:a", "You", "better")
    late = await running.change("edit", "a", content="too late")
    assert late == {"outcome": "gone", "inbox": [], "content": [{"type": "text", "text": "too late"}]}
    refused = await desk.editor.refused(
        "agent/inbox/edit", agentId=desk.agent, messageId="a", content=[{"type": "image"}]
    )
    assert (refused.code, refused.data) == (-32602, {"path": "content[0].type"})


async def test_what_waits_runs_in_the_order_that_a_person_gives_it(running: Running) -> None:
    """Case Q12."""
    desk = running.desk
    await running.queue("a", "b", "c")
    moved = await running.change("move", "c", before="a")
    assert [item["messageId"] for item in moved["inbox"]] == ["c", "a", "b"]
    assert (await running.change("move", "a"))["outcome"] == "done"
    assert [id for id, _, _ in running.waits()] == ["c", "b", "a"]
    wrong = await desk.editor.refused("agent/inbox/move", agentId=desk.agent, messageId="a", before="nobody")
    assert (wrong.code, wrong.data) == (-32602, {"path": "before"})
    assert (await running.change("move", "first", before="a"))["outcome"] == "gone"
    assert (await running.change("move", "a", before="first"))["outcome"] == "done", "whoever left stands for the head"
    assert [id for id, _, _ in running.waits()] == ["a", "c", "b"]
    assert (await running.change("remove", "c"))["outcome"] == "done"
    desk.model.script(reply("1"), reply("2"))
    running.gate.set()
    await desk.editor.closed(desk.agent, 3)
    assert [id for id, _, _ in running.said()] == ["u:first", "u:a", "u:b"]


async def test_a_promoted_message_joins_the_turn_that_runs(running: Running) -> None:
    desk = running.desk
    await running.queue("a", "b")
    assert (await running.change("promote", "b"))["outcome"] == "done"
    assert running.waits() == [("b", "steering", False), ("a", "queued", False)]
    desk.model.script(reply("to b"), reply("to a"))
    running.gate.set()
    await desk.editor.closed(desk.agent, 2)
    assert desk.editor.ids(desk.agent) == [
        "u:first", "a1.1.1/0", "u:b", "a1.2.1/0", "turn1", "u:a", "a2.1.1/0", "turn2",
    ]  # fmt: skip
    assert running.said()[1] == ("u:b", "Steering", "text of b")


async def test_a_promoted_message_starts_a_turn_when_nothing_runs(running: Running) -> None:
    desk = running.desk
    await running.queue("a", "b")
    await desk.editor.ask("agent/cancel", agentId=desk.agent, keepInbox=True)
    await desk.editor.closed(desk.agent, 1)
    assert running.waits() == [("a", "queued", True), ("b", "queued", True)]
    desk.model.script(reply("to b"))
    assert (await running.change("promote", "b"))["outcome"] == "done"
    await desk.editor.closed(desk.agent, 2)
    assert (running.waits(), desk.state["hold"]) == ([("a", "queued", True)], {"cause": "cancel"})
    assert texts_of(desk.model.exchanges[-1], "user") == ["first", "text of b"]
    desk.model.script(reply("to a"))
    resumed = await running.change("resume")
    assert resumed["outcome"] == "done"
    await desk.editor.closed(desk.agent, 3)
    assert (running.waits(), desk.state["hold"]) == ([], None)
    assert (await running.change("promote", "a"))["outcome"] == "gone"


# Agents --------------------------------------------------------------------------------------------------------


async def test_a_fork_goes_on_from_the_end_of_a_turn(desk: Desk) -> None:
    """Statement 44."""
    editor = desk.editor
    await desk.turn(1, reply("one"))
    await desk.turn(2, reply("two"))
    desk.model.script(Answer((content("three"), asyncio.Event())))
    await desk.say("go on")
    await editor.streaming(desk.agent, "three")
    await desk.say("waits")
    origin = {"workspaceUri": desk.work.as_uri(), "from": {"agentId": desk.agent, "turn": 1}}
    fork = await editor.create(**origin)
    assert editor.state(fork)["status"] == "idle"
    assert editor.state(fork)["inbox"] == []
    assert [(row["id"], row["body"]) for row in editor.rows(fork)] == [
        (row["id"], row["body"]) for row in editor.rows(desk.agent)[:3]
    ]
    desk.model.script(reply("another two"))
    await editor.say("followup", fork, "otherwise")
    await editor.closed(fork, 2)
    assert texts_of(desk.model.exchanges[-1])[1:] == ["go", "one", "otherwise"]
    assert editor.state(desk.agent)["status"] == "running"
    parents = {row["id"]: row.get("parent") for row in (await editor.ask("agent/list"))["agents"]}
    assert parents == {desk.agent: None, fork: desk.agent}
    for turn, reason in ((3, "OPEN_TURN"), (9, "INVALID_BOUNDARY")):
        refused = await editor.refused("agent/create", **{**origin, "from": {"agentId": desk.agent, "turn": turn}})
        assert (refused.code, refused.data) == (-32058, {"reason": reason})
    unknown = await editor.refused("agent/create", **{**origin, "from": {"agentId": "nobody", "turn": 1}})
    assert unknown.code == -32050


async def test_a_deleted_agent_is_gone_for_everybody(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    model.script(Answer((content("going"), asyncio.Event())))
    async with on_socket(tmp_path, *endpoint) as server, server.editor() as one, server.editor() as two:
        agent, other = await one.create(), await one.create()
        await two.attach(agent)
        await one.say("followup", agent, "go")
        await two.streaming(agent, "going")
        two.told.clear()
        assert await one.ask("agent/delete", agentId=agent) == {"outcome": "deleted"}
        await two.until(lambda: ("agent/listChanged", {"workspaceUri": WORKSPACE}) in two.told)
        assert (await two.refused("agent/detach", agentId=agent)).code == -32051, "it draws it no more"
        for editor in (one, two):
            assert [row["id"] for row in (await editor.ask("agent/list"))["agents"]] == [other]
            for method in ("agent/attach", "agent/delete", "agent/inbox/resume"):
                assert (await editor.refused(method, agentId=agent)).code == -32050
        await asyncio.wait_for((await model.exchange(0)).gone.wait(), 5)


async def test_an_agent_is_not_made_of_a_model_or_a_workspace_that_is_none(desk: Desk) -> None:
    for wrong, path in (({"model": "nobody/none"}, "model"), ({"workspaceUri": "untitled:x"}, "workspaceUri")):
        refused = await desk.editor.refused("agent/create", **{"workspaceUri": WORKSPACE, **wrong})
        assert (refused.code, refused.data) == (-32602, {"path": path})
    refused = await desk.editor.refused("agent/list", workspaceUri="untitled:x")
    assert (refused.code, refused.data) == (-32602, {"path": "workspaceUri"})
    assert [row["id"] for row in (await desk.editor.ask("agent/list"))["agents"]] == [desk.agent]


async def test_settings_of_an_agent_are_changed_and_wrong_ones_refused(desk: Desk) -> None:
    editor = desk.editor

    async def configure(**settings: Any) -> dict[str, Any]:
        return await editor.ask("agent/configure", agentId=desk.agent, **settings)

    state = await configure(title="A title", mode="read-only")
    assert (state["title"], state["mode"], state["model"]["id"]) == ("A title", "read-only", "played")
    await editor.until(lambda: desk.state["title"] == "A title")
    assert (await configure(model="demo"))["model"] == {"provider": "demo", "id": "demo", "usable": True}
    await desk.say("hello")
    await editor.closed(desk.agent, 1)
    assert editor.answer(desk.agent)
    assert desk.model.exchanges == []
    assert desk.state["title"] == "A title", "a name that a person gave stays"
    await configure(model="openai/played")
    await desk.turn(2, reply("back"))
    for wrong, path in (({"model": "gpt-9"}, "model"), ({"mode": "yolo"}, "mode"), ({"title": 7}, "title")):
        refused = await editor.refused("agent/configure", agentId=desk.agent, **wrong)
        assert (refused.code, refused.data) == (-32602, {"path": path})
    assert (await editor.refused("agent/configure", agentId="nobody", title="x")).code == -32050


async def test_the_models_are_listed_without_their_keys(tmp_path: Path, model: ModelServer) -> None:
    options = ("--base-url", model.url, "--model-id", "played", "--key-variable", "PLAYED_KEY")
    async with on_stdio(tmp_path, *options, env={"PLAYED_KEY": "sk-planted-91c"}) as editor:
        models = (await editor.ask("agent/models"))["models"]
        known = {(row["provider"], row["id"]): row for row in models}
        assert known["openai", "played"]["usable"] is True
        assert "PLAYED_KEY" in known["openai", "played"]["keySource"]
        assert known["demo", "demo"]["usable"] is True
        assert "keySource" not in known["demo", "demo"]
        assert "sk-planted-91c" not in str(models)
    async with on_stdio(tmp_path, *options, env={"PLAYED_KEY": ""}) as editor:
        (row,) = (row for row in (await editor.ask("agent/models"))["models"] if row["id"] == "played")
        assert row["usable"] is False
        assert "PLAYED_KEY" in row["problem"]


async def test_a_long_body_is_read_in_parts(desk: Desk) -> None:
    """Rule 8."""
    text = "é" * 40_000 + "\n"
    (desk.work / "long.txt").write_text((("é" * 999) + "\n") * 20)
    desk.model.script(
        calls(("read", {"path": "long.txt"}), ("write", {"path": "n.txt", "content": text})), reply("done")
    )
    await desk.say("go")
    await desk.editor.asked(desk.agent)
    assert text in desk.row("approval")["body"], "what is asked is shown whole"
    await desk.decide("deny", note="no")
    await desk.editor.closed(desk.agent, 1)
    read, write = (row for row in desk.editor.rows(desk.agent) if row["kind"] == "tool")
    assert "more" not in read
    assert await whole(desk.editor, desk.agent, read["id"], 7001) == read["body"]
    assert "20\t" + "é" * 999 in read["body"]
    body = await whole(desk.editor, desk.agent, write["id"], 30_001)
    assert write["more"] > 0
    assert text.rstrip() in body
    assert "did not allow this call" in body
    for wrong, path in (({"id": "nobody"}, "id"), ({"id": read["id"], "from": 5, "to": 2}, "to")):
        refused = await desk.editor.refused("agent/block", agentId=desk.agent, **wrong)
        assert (refused.code, refused.data) == (-32602, {"path": path})


async def whole(editor: Editor, agent: str, block: str, size: int) -> str:
    """A body, read in parts of at most so many bytes."""
    at = 0
    text: str = ""
    while True:
        part = await editor.ask("agent/block", agentId=agent, id=block, **{"from": at, "to": at + size})
        assert part["from"] == at
        assert len(part["text"].encode()) == part["to"] - at <= size
        at = part["to"]
        text += part["text"]
        if at == part["size"]:
            return text


# Progress ------------------------------------------------------------------------------------------------------


@dataclass
class Shown:
    """The progress that an editor shows: tokens it agreed to, and what came for them."""

    tokens: list[str] = field(default_factory=list)
    values: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def kinds(self, token: str) -> list[object]:
        return [value["kind"] for named, value in self.values if named == token and value["kind"] != "report"]


@pytest.fixture
async def shown(
    tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]
) -> AsyncIterator[tuple[Desk, Shown]]:
    """An editor that shows progress."""
    async with started(tmp_path / "state", *endpoint) as editor:
        seen = Shown()

        def create(params: types.WorkDoneProgressCreateParams) -> None:
            seen.tokens.append(str(params.token))

        def progress(params: types.ProgressParams) -> None:
            seen.values.append((str(params.token), cast(dict[str, Any], params.value)))
            editor.tell()

        editor.client.feature("window/workDoneProgress/create")(create)
        editor.client.feature("$/progress")(progress)
        await editor.hello(window=types.WindowClientCapabilities(work_done_progress=True))
        yield Desk(editor, model, work, await editor.create(workspaceUri=work.as_uri())), seen


async def test_a_turn_is_a_progress_of_the_editor(shown: tuple[Desk, Shown]) -> None:
    desk, progress = shown
    gate = asyncio.Event()
    desk.model.script(Answer((content("going"), gate, finish(), DONE)), reply("two"))
    await desk.say("go")
    await desk.editor.until(lambda: progress.values)
    (token,) = progress.tokens
    assert progress.values[0] == (
        token, {"kind": "begin", "title": "agentls", "message": "step 1", "cancellable": True},
    )  # fmt: skip
    gate.set()
    await desk.editor.until(lambda: progress.kinds(token) == ["begin", "end"])
    await desk.editor.closed(desk.agent, 1)
    await desk.say("again")
    await desk.editor.until(lambda: len(progress.tokens) == 2 and progress.kinds(progress.tokens[1])[-1:] == ["end"])
    assert progress.kinds(token) == ["begin", "end"]


async def test_stopping_the_progress_stops_the_turn_and_keeps_what_waits(shown: tuple[Desk, Shown]) -> None:
    desk, progress = shown
    desk.model.script(Answer((content("going"), asyncio.Event())))
    await desk.say("go")
    await desk.editor.streaming(desk.agent, "going")
    await desk.say("waits", id="waits")
    await desk.editor.until(lambda: progress.values)
    (token,) = progress.tokens
    desk.editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
    await desk.editor.closed(desk.agent, 1)
    await desk.editor.until(lambda: progress.kinds(token) == ["begin", "end"])
    assert desk.row("turn-end")["reason"] == "aborted"
    assert [(item["messageId"], item["held"]) for item in desk.state["inbox"]] == [("waits", True)]
    assert len(desk.model.exchanges) == 1
