"""A disk that fails below the real server: told at once, nothing unsaved acknowledged, and it goes on by itself."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentls.core.events import Enqueue, Event
from agentls.core.invariants import check_log
from tests.e2e.editors import Editor, log_of, on_stdio, process_of
from tests.e2e.storage import Disk, Faulty, Limited, Moved, small_file_system
from tests.model_server import SILENCE, Answer, ModelServer, calls, content, reply

STORE_UNAVAILABLE = -32053

GOES_ON = "then it goes on by itself"
FULL = f"disk full; free some space, {GOES_ON}"
REFUSES = f"the disk reports an error (SQLITE_IOERR_WRITE); check the disk and its quota, {GOES_ON}"
MOVED = f"it was moved or removed; put it back, {GOES_ON}"


def long() -> str:
    """A text that no compression makes shorter than a page of a file."""
    return os.urandom(5_000).hex()


def shown(editor: Editor, agent: str) -> list[tuple[str, str, str]]:
    """What a person sees of an agent."""
    return [(row["id"], row["state"], row["body"]) for row in editor.rows(agent)]


def check(events: tuple[Event, ...], acknowledged: Sequence[str]) -> None:
    """The rules hold, and what was acknowledged is there once."""
    check_log(events)
    entered = Counter(str(event.data.item.id) for event in events if isinstance(event.data, Enqueue))
    assert {id: entered[id] for id in acknowledged} == dict.fromkeys(acknowledged, 1)


class Scene:
    """An agent that a fault finds in some state: `begin` brings it there, `meanwhile` is during the fault and
    `afterwards` when the disk is well and the agent says so."""

    def __init__(self, editor: Editor, model: ModelServer, work: Path) -> None:
        self.editor = editor
        self.model = model
        self.work = work
        self.agent = ""
        self.acknowledged: list[str] = []

    async def begin(self) -> None:
        raise NotImplementedError

    async def meanwhile(self, cause: str) -> None:
        raise NotImplementedError

    async def afterwards(self, cause: str) -> None:
        raise NotImplementedError

    @property
    def state(self) -> dict[str, Any]:
        return self.editor.state(self.agent)

    def row(self, kind: str) -> dict[str, Any]:
        return self.editor.row(self.agent, kind)

    async def create(self) -> None:
        self.agent = await self.editor.create(workspaceUri=self.work.as_uri())

    async def say(self, text: str, id: str) -> dict[str, Any]:
        """A message; remembered where it is acknowledged."""
        sent = await self.editor.say("followup", self.agent, text, id)
        if sent["outcome"] != "refused":
            self.acknowledged.append(id)
        return sent

    async def lost(self, cause: str) -> None:
        """Wait until the agent says that it cannot be saved, why, and what helps."""
        await self.editor.until(lambda: self.state["store"] == "unavailable")
        assert self.state["status"] == "suspended"
        told = self.editor.whole(self.agent)[-1]
        assert (told["kind"], told["title"], told["volatile"]) == ("error", "The session cannot be saved", True)
        assert told["summary"].startswith('cannot write to the session store "')
        assert told["summary"].endswith(cause)

    async def refuses(self, id: str) -> None:
        """Whatever is asked of it gets an answer, and nothing of it is taken."""
        text = long()
        sent = await self.say(text, id)
        assert (sent["outcome"], sent["reason"]) == ("refused", "store-unavailable")
        assert sent["content"] == [{"type": "text", "text": text}]
        notice = {"form": "notice", "summary": "something moved"}
        sends: list[tuple[str, dict[str, Any]]] = [
            ("agent/inject", {"messageId": f"{id}-i", "content": text, "context": notice}),
            ("agent/retry", {"messageId": f"{id}-r", "turn": 1}),
        ]
        for method, params in sends:
            sent = await self.editor.ask(method, agentId=self.agent, **params)
            assert (sent["outcome"], sent["reason"]) == ("refused", "store-unavailable")
        error = await self.editor.refused("agent/configure", agentId=self.agent, title="t")
        assert error.code == STORE_UNAVAILABLE
        assert error.message.endswith(GOES_ON)

    async def well(self) -> None:
        """Wait until the agent says that it can be saved again, by itself."""
        await self.editor.until(lambda: self.state["store"] == "ok" and self.state["status"] == "idle")
        assert not any(row.get("volatile") for row in self.editor.whole(self.agent))

    async def goes_on(self, id: str, turn: int) -> None:
        self.model.script(reply("all is well"))
        assert (await self.say("and now?", id))["outcome"] == "started"
        await self.editor.closed(self.agent, turn)
        assert self.row("turn-end")["reason"] == "completed"


class Idle(Scene):
    async def begin(self) -> None:
        await self.create()
        await self.goes_on("i1", 1)

    async def meanwhile(self, cause: str) -> None:
        assert self.state["store"] == "ok", "nobody has tried to write"
        await self.refuses("i2")
        await self.lost(cause)

    async def afterwards(self, cause: str) -> None:
        assert self.editor.ids(self.agent)[-1] == "turn1"
        await self.goes_on("i2", 2)


class Streaming(Scene):
    async def begin(self) -> None:
        await self.create()
        self.gate = asyncio.Event()
        self.number = len(self.model.exchanges)
        self.model.script(Answer((content("shown"), self.gate, content(long()), SILENCE)))
        await self.say("go", "s1")
        await self.editor.streaming(self.agent, "shown")
        await self.say("waits", "s2")

    async def meanwhile(self, cause: str) -> None:
        # Its own text is what cannot be saved; nobody asks anything.
        self.gate.set()
        await self.lost(cause)
        await self.model.exchanges[self.number].gone.wait()
        assert self.editor.answer(self.agent) == "shown"
        await self.refuses("s3")
        assert (await self.editor.refused("agent/cancel", agentId=self.agent)).code == STORE_UNAVAILABLE
        edit = await self.editor.refused("agent/inbox/edit", agentId=self.agent, messageId="s2", content="else")
        assert edit.code == STORE_UNAVAILABLE

    async def afterwards(self, cause: str) -> None:
        answer = self.row("assistant")
        assert (answer["body"], answer["state"]) == ("shown", "interrupted")
        assert self.row("turn-end")["reason"] == "error"
        assert cause in self.row("error")["body"]
        assert [(item["messageId"], item["held"], item["text"]) for item in self.state["inbox"]] == [
            ("s2", True, "waits")
        ]
        self.model.script(reply("later"))
        await self.editor.ask("agent/inbox/resume", agentId=self.agent)
        await self.editor.closed(self.agent, 2)
        await self.goes_on("s3", 3)


class Asking(Scene):
    async def begin(self) -> None:
        await self.create()
        self.model.script(calls(("write", {"path": "new.txt", "content": "x"})))
        await self.say("write it", "a1")
        self.asked = await self.editor.asked(self.agent)

    async def meanwhile(self, cause: str) -> None:
        named = {"agentId": self.agent, "requestId": self.asked["requestId"], "shown": self.asked["shown"]}
        error = await self.editor.refused("agent/answer", **named, answer={"decision": "allow", "note": long()})
        assert error.code == STORE_UNAVAILABLE
        await self.lost(cause)
        await self.refuses("a2")

    async def afterwards(self, cause: str) -> None:
        assert self.state["requests"] == []
        assert not (self.work / "new.txt").exists(), "what was not saved as allowed is not done"
        assert self.row("approval")["state"] == "interrupted"
        assert self.row("turn-end")["reason"] == "error"
        await self.goes_on("a2", 2)


async def through(
    disk: Disk, faults: Sequence[tuple[Disk, str]], model: ModelServer, work: Path, options: Sequence[str]
) -> None:
    """A server with agents in all states lives through these faults of its disk, each with what it says of it; another
    one finds all of it."""
    drawn: dict[str, list[tuple[str, str, str]]] = {}
    acknowledged: dict[str, list[str]] = {}
    async with on_stdio(disk.state, *options, env=disk.env, before=disk.before) as editor:
        for fault, cause in faults:
            scenes = [kind(editor, model, work) for kind in (Idle, Streaming, Asking)]
            for scene in scenes:
                await scene.begin()
            fault.begin(process_of(editor).pid)
            for scene in scenes:
                await scene.meanwhile(cause)
            assert (await editor.refused("agent/create", workspaceUri=work.as_uri(), title=long()[:200])).code == (
                STORE_UNAVAILABLE
            )
            assert len((await editor.ask("agent/list"))["agents"]) == len(drawn) + len(scenes), "it can be looked at"
            fault.end(process_of(editor).pid)
            for scene in scenes:
                await scene.well()
                await scene.afterwards(cause)
                drawn[scene.agent] = shown(editor, scene.agent)
                acknowledged[scene.agent] = scene.acknowledged
    async with on_stdio(disk.state, *options, env=disk.env, before=disk.before) as editor:
        for agent, rows in drawn.items():
            await editor.attach(agent)
            assert shown(editor, agent) == rows
    # A database is opened by the name that it has for us.
    left = shutil.copytree(disk.seen, work.with_name("left"))
    for agent, ids in acknowledged.items():
        check(await log_of(left, agent), ids)


async def test_a_full_disk_costs_nothing_that_was_acknowledged(
    tmp_path: Path, model: ModelServer, work: Path, endpoint: tuple[str, ...]
) -> None:
    with small_file_system(tmp_path / "state") as disk:
        await through(disk, [(disk, FULL)], model, work, endpoint)


async def test_a_disk_that_refuses_costs_nothing_that_was_acknowledged(
    tmp_path: Path, library: Path, model: ModelServer, work: Path, endpoint: tuple[str, ...]
) -> None:
    """A folder that was moved away, a limit, a quota, a file system that has become read-only."""
    state = tmp_path / "state"
    disk = Faulty(state, library)
    faults = [
        (Moved(state), MOVED),
        (Limited(state), REFUSES),
        (disk.saying(errno.EDQUOT), REFUSES),
        (disk.saying(errno.EROFS), REFUSES),
    ]
    await through(disk, faults, model, work, endpoint)
