"""What a person can do with a message that waits: each change is on disk when it is told, and none is an exit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent, NotPending
from agentls.core.events import Discard, Update
from tests.agent.hands import HandRig, asked, datas, hands, over, state, waits
from tests.harness import content, idle, mid, sent_texts


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[HandRig]:
    async with hands(tmp_path) as made:
        yield made


async def running(on: HandRig, *queued: str, steering: tuple[str, ...] = ()) -> Agent:
    """An agent with a request out and messages behind it."""
    agent = await asked(on)
    for name in queued:
        await agent.followup(content(name), id=mid(name))
    for name in steering:
        await agent.steer(content(name), id=mid(name))
    on.disk.acts.clear()
    return agent


async def held(on: HandRig, *queued: str) -> Agent:
    """An idle agent whose messages are held."""
    agent = await running(on, *queued)
    await agent.cancel("user", keep_inbox=True)
    assert waits(agent) == [(name, "queued", True) for name in queued]
    on.disk.acts.clear()
    return agent


def order(agent: Agent) -> list[str]:
    return [name for name, _, _ in waits(agent)]


async def test_an_edit_keeps_the_place_and_the_turn_reads_the_new_text(on: HandRig) -> None:
    agent = await running(on, "a", "b", steering=("s",))
    for name in ("a", "s"):
        changed = await agent.edit(mid(name), content(f"{name}, edited"))
        assert (changed.outcome, changed.content) == ("done", None)
    assert on.disk.acts == ["D agent/inbox/update"] * 2
    assert [item.text for item in state(agent).inbox] == ["s, edited", "a, edited", "b"]
    assert order(agent) == ["s", "a", "b"]
    await on.model.answer("1", 1)
    assert sent_texts(await on.model.answer("2", 2))[-1] == "s, edited"
    assert sent_texts(await on.model.answer("3", 3))[-1] == "a, edited"
    await over(on, agent, 4)


@pytest.mark.parametrize(
    ("message", "before", "then"),
    [
        ("c", "a", ["s", "t", "c", "a", "b"]),
        ("a", "c", ["s", "t", "b", "a", "c"]),
        ("a", None, ["s", "t", "b", "c", "a"]),
        ("t", "s", ["t", "s", "a", "b", "c"]),
        ("b", "m1", ["s", "t", "b", "a", "c"]),
    ],
)
async def test_a_message_moves_within_its_lane(on: HandRig, message: str, before: str | None, then: list[str]) -> None:
    """Before one that has just been taken means next."""
    agent = await running(on, "a", "b", "c", steering=("s", "t"))
    changed = await agent.move(mid(message), mid(before) if before else None)
    assert changed.outcome == "done"
    assert [str(item.message_id) for item in changed.inbox] == order(agent) == then
    assert on.disk.acts == ["D agent/inbox/update"]


@pytest.mark.parametrize("before", ["s", "b", "nobody"])
async def test_a_move_that_names_no_place_changes_nothing(on: HandRig, before: str) -> None:
    agent = await running(on, "a", "b", steering=("s",))
    with pytest.raises(NotPending, match=f'"{before}"'):
        await agent.move(mid("b"), mid(before))
    assert (on.disk.acts, order(agent)) == ([], ["s", "a", "b"])


async def test_a_promoted_message_joins_the_turn_that_runs(on: HandRig) -> None:
    agent = await running(on, "a", "b", steering=("s",))
    await agent.promote(mid("b"))
    assert (await agent.promote(mid("b"))).outcome == "done"
    assert on.disk.acts == ["D agent/inbox/update"], "it is steering already"
    assert waits(agent) == [("s", "steering", False), ("b", "steering", False), ("a", "queued", False)]
    await on.model.answer("1", 1)
    assert sent_texts(await on.model.answer("2", 2))[-2:] == ["s", "b"]
    await over(on, agent, 3)


async def test_a_quiet_message_that_is_promoted_runs(on: HandRig) -> None:
    agent = await on.agent()
    await agent.send(content("q"), id=mid("q"), wakeup=False)
    assert state(agent).status == "idle"
    await agent.promote(mid("q"))
    assert sent_texts(await over(on, agent, 1)) == ["q"]


async def test_a_held_message_that_is_promoted_starts_a_turn_and_the_others_stay_held(on: HandRig) -> None:
    agent = await held(on, "a", "b", "c")
    await agent.promote(mid("b"))
    assert sent_texts(await over(on, agent, 2))[-1] == "b"
    assert waits(agent) == [("a", "queued", True), ("c", "queued", True)]


async def test_a_promoted_message_that_no_step_took_is_held_again(on: HandRig) -> None:
    agent = await running(on, "a", "b")
    await agent.promote(mid("b"))
    await agent.cancel("user", keep_inbox=True)
    assert waits(agent) == [("b", "queued", True), ("a", "queued", True)]


async def test_what_is_held_can_be_edited_moved_and_removed_and_stays_held(on: HandRig) -> None:
    agent = await held(on, "a", "b", "c")
    await agent.edit(mid("a"), content("edited"))
    await agent.move(mid("c"), mid("a"))
    await agent.remove(mid("b"))
    assert waits(agent) == [("c", "queued", True), ("a", "queued", True)]
    told = [act for act in on.disk.acts if not act.startswith("drop")]
    assert told == ["D agent/inbox/update", "D agent/inbox/update", "D agent/inbox/discard"]
    assert (state(agent).status, len(on.model.requests)) == ("idle", 1)


async def test_a_waking_message_runs_ahead_of_what_is_held_and_resume_runs_the_rest_in_order(on: HandRig) -> None:
    agent = await held(on, "a", "b")
    assert (await agent.followup(content("now"), id=mid("n"))).outcome == "started"
    assert sent_texts(await over(on, agent, 2))[-1] == "now"
    assert waits(agent) == [("a", "queued", True), ("b", "queued", True)]
    await agent.resume()
    await on.model.answer("1", 3)
    sent = await over(on, agent, 4)
    assert [text for text in sent_texts(sent) if text in "ab"] == ["a", "b"]
    assert state(agent).hold is None


@pytest.mark.parametrize("how", ["taken", "removed", "unknown"])
async def test_what_waits_no_more_is_gone_for_every_change(on: HandRig, how: str) -> None:
    agent = await running(on, "a")
    name = mid({"taken": "m1", "removed": "a", "unknown": "nobody"}[how])
    if how == "removed":
        assert (await agent.remove(name)).outcome == "done"
        assert datas(await on.log(agent), Discard) == [Discard((name,), "removed")]
    edited = await agent.edit(name, content("too late"))
    assert (edited.outcome, edited.content) == ("gone", content("too late"))
    for changed in (await agent.remove(name), await agent.move(name, None), await agent.promote(name)):
        assert (changed.outcome, changed.content) == ("gone", None)
    assert datas(await on.log(agent), Update) == []
    await on.model.answer("1", 1)
    if how != "removed":
        await on.model.answer("2", 2)
    await idle(agent)
