"""Every row of the table of fates over the wire, in the state that its row names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.editors import Editor, on_stdio
from tests.model_server import DONE, Answer, ModelServer, content, finish, reply

NOTICE = {"form": "notice", "summary": "something moved"}


@dataclass
class Scene:
    """An agent in some state, and the gate that its running answer waits at."""

    editor: Editor
    model: ModelServer
    agent: str
    gate: asyncio.Event

    async def say(self, verb: str, id: str, text: str | None = None, **more: Any) -> dict[str, Any]:
        if verb == "inject":
            more["context"] = NOTICE
        return await self.editor.say(verb, self.agent, text or f"text of {id}", id, **more)

    async def run(self) -> None:
        """Have turn 1 running."""
        self.model.script(Answer((content("going"), self.gate, finish(), DONE)))
        await self.say("followup", "run")
        await self.editor.streaming(self.agent, "going")

    async def hold(self, *ids: str) -> None:
        """Be idle with these held."""
        await self.run()
        for id in ids:
            await self.say("followup", id)
        await self.editor.ask("agent/cancel", agentId=self.agent, keepInbox=True)
        await self.editor.idle(self.agent)

    async def waiting(self) -> list[tuple[str, str, bool]]:
        await self.editor.attach(self.agent)
        return [(item["messageId"], item["lane"], item["held"]) for item in self.editor.state(self.agent)["inbox"]]


@pytest.fixture
async def scene(tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer) -> AsyncIterator[Scene]:
    async with on_stdio(tmp_path, *endpoint) as editor:
        yield Scene(editor, model, await editor.create(), asyncio.Event())


def fate(answer: dict[str, Any]) -> tuple[Any, ...]:
    return answer["outcome"], answer.get("turn"), answer.get("position")


@pytest.mark.parametrize("verb", ["followup", "steer", "send"])
async def test_idle_starts(scene: Scene, verb: str) -> None:
    scene.model.script(reply("x"))
    assert fate(await scene.say(verb, "a")) == ("started", 1, None)


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_idle_with_held_messages_starts_ahead_of_them(scene: Scene, verb: str) -> None:
    await scene.hold("b")
    scene.model.script(reply("x"))
    assert fate(await scene.say(verb, "a")) == ("started", 2, None)
    await scene.editor.idle(scene.agent)
    assert await scene.waiting() == [("b", "queued", True)]


@pytest.mark.parametrize("verb", ["followup", "steer"])
async def test_idle_with_quiet_messages_queues_behind_them(scene: Scene, verb: str) -> None:
    assert fate(await scene.say("send", "q", wakeup=False)) == ("queued", None, 0)
    assert scene.editor.state(scene.agent)["status"] == "idle"
    scene.model.script(reply("x"), reply("y"))
    assert fate(await scene.say(verb, "a")) == ("queued", None, 1)
    await scene.editor.until(lambda: scene.editor.ids(scene.agent)[-1:] == ["turn2"])
    said = [row["id"] for row in scene.editor.rows(scene.agent) if row["kind"] == "user"]
    assert said == ["u:q", "u:a"], "first in, first out, one queued message a turn"


async def test_running_followup_queues(scene: Scene) -> None:
    await scene.run()
    assert fate(await scene.say("followup", "a")) == ("queued", None, 0)
    assert fate(await scene.say("followup", "b")) == ("queued", None, 1)


async def test_running_steer_steers(scene: Scene) -> None:
    await scene.run()
    assert fate(await scene.say("steer", "a")) == ("steering", 1, 0)
    assert fate(await scene.say("steer", "b", expectedTurn=1)) == ("steering", 1, 1)
    assert fate(await scene.say("steer", "c", expectedTurn=1, ifIdle="refuse")) == ("steering", 1, 2)


async def test_running_steer_of_another_turn_is_first_in_the_queue_or_refused(scene: Scene) -> None:
    await scene.run()
    await scene.say("followup", "a")
    assert fate(await scene.say("steer", "b", expectedTurn=4)) == ("queued", None, 0)
    assert [item[0] for item in await scene.waiting()] == ["b", "a"]
    refused = await scene.say("steer", "c", expectedTurn=4, ifIdle="refuse")
    assert (refused["outcome"], refused["reason"]) == ("refused", "no-turn")
    assert refused["content"] == [{"type": "text", "text": "text of c"}]


async def test_idle_steer_may_rather_be_refused(scene: Scene) -> None:
    refused = await scene.say("steer", "a", ifIdle="refuse")
    assert (refused["outcome"], refused["reason"]) == ("refused", "no-turn")
    assert refused["content"] == [{"type": "text", "text": "text of a"}]


async def test_a_quiet_message_queues_in_any_state(scene: Scene) -> None:
    assert fate(await scene.say("send", "q1", wakeup=False)) == ("queued", None, 0)
    await scene.editor.ask("agent/inbox/remove", agentId=scene.agent, messageId="q1")
    await scene.run()
    assert fate(await scene.say("send", "q2", wakeup=False)) == ("queued", None, 0)
    scene.gate.set()
    await scene.editor.ended(scene.agent)
    assert await scene.waiting() == [("q2", "queued", False)], "it waits for the next wake"


async def test_an_injection_is_injected_in_any_state(scene: Scene) -> None:
    assert fate(await scene.say("inject", "i1")) == ("injected", None, None)
    assert scene.editor.state(scene.agent)["status"] == "idle"
    assert scene.editor.kinds(scene.agent) == ["context"]
    await scene.run()
    assert fate(await scene.say("inject", "i2")) == ("injected", None, None)
    await scene.say("followup", "b")
    await scene.editor.ask("agent/cancel", agentId=scene.agent, keepInbox=True)
    assert (await scene.say("inject", "i3"))["outcome"] == "injected"
    assert await scene.waiting() == [("b", "queued", True)], "no effect on a hold"


async def test_a_known_id_gives_its_first_fate_and_where_it_is_now(scene: Scene) -> None:
    await scene.run()
    first = await scene.say("followup", "a")
    steered = await scene.say("steer", "s")
    injected = await scene.say("inject", "i")
    assert await scene.say("followup", "a") == {**first, "repeated": True, "now": "pending"}
    assert await scene.say("steer", "s") == {**steered, "repeated": True, "now": "pending"}
    assert await scene.say("inject", "i") == {**injected, "repeated": True, "now": "taken"}
    assert (await scene.say("followup", "run"))["now"] == "taken"
    await scene.editor.ask("agent/cancel", agentId=scene.agent, keepInbox=True)
    assert (await scene.say("followup", "a"))["now"] == "held"
    assert scene.editor.state(scene.agent)["status"] == "idle", "a repeat wakes nothing"
    await scene.editor.ask("agent/inbox/remove", agentId=scene.agent, messageId="a")
    assert (await scene.say("followup", "a"))["now"] == "discarded"
    assert len(scene.model.exchanges) == 1


@pytest.mark.parametrize("verb", ["followup", "steer", "send", "inject"])
async def test_a_known_id_with_other_content_conflicts_in_any_state(scene: Scene, verb: str) -> None:
    await scene.run()
    for _ in range(2):
        refused = await scene.say(verb, "run", "other words")
        assert (refused["outcome"], refused["reason"]) == ("refused", "id-conflict")
        assert refused["content"] == [{"type": "text", "text": "other words"}]
        scene.gate.set()
        await scene.editor.ended(scene.agent)


async def test_a_turn_that_is_being_stopped_counts_as_running(scene: Scene) -> None:
    await scene.run()
    scene.model.script(reply("after"))
    await scene.say("followup", "waits")
    with scene.editor.in_one_piece():
        stopping = asyncio.ensure_future(scene.editor.ask("agent/cancel", agentId=scene.agent, keepInbox=True))
        steered = asyncio.ensure_future(scene.say("steer", "s"))
        await asyncio.sleep(0)
    assert (await stopping)["outcome"] == "cancelled"
    assert fate(await steered) == ("steering", 1, 0)
    await scene.editor.until(lambda: scene.editor.ids(scene.agent)[-1:] == ["turn2"])
    await scene.editor.idle(scene.agent)
    drawn = [(row["id"], row["turn"]) for row in scene.editor.rows(scene.agent)]
    assert drawn == [("u:run", 1), ("a1.1.1/0", 1), ("turn1", 1), ("u:s", 2), ("a2.1.1/0", 2), ("turn2", 2)]
    assert scene.editor.row(scene.agent, "user")["title"] == "You", "it steers nothing any more"
    assert scene.editor.answer(scene.agent) == "goingafter"
    assert await scene.waiting() == [("waits", "queued", True)], "what came before the cancel is held"
