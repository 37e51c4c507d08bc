"""Every row of the table of fates, and that a repeat changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.core.invariants import check_log
from tests.agent.hands import state
from tests.harness import Rig, content, idle, mid, notice, rig, row_ids, sent_texts, types


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


@pytest.fixture
async def agent(on: Rig) -> Agent:
    return await on.agent()


async def running(on: Rig, agent: Agent) -> None:
    await agent.followup(content("run"), id=mid("run"))
    await on.model.asked(1)


async def test_idle_followup_and_steer_start(agent: Agent, on: Rig) -> None:
    assert (await agent.followup(content("a"), id=mid("a"))).outcome == "started"
    await on.model.answer("x", 1)
    await idle(agent)
    sent = await agent.steer(content("b"), id=mid("b"))
    assert (sent.outcome, sent.turn) == ("started", 2)


async def test_idle_with_unheld_quiet_messages_queues_behind_them(agent: Agent) -> None:
    await agent.send(content("q"), id=mid("q"), wakeup=False)
    assert (await agent.steer(content("s"), id=mid("s"))).outcome == "queued"


async def test_running_followup_queues_with_its_position(agent: Agent, on: Rig) -> None:
    await running(on, agent)
    first = await agent.followup(content("a"), id=mid("a"))
    second = await agent.followup(content("b"), id=mid("b"))
    assert [(s.outcome, s.position) for s in (first, second)] == [("queued", 0), ("queued", 1)]


async def test_running_steer_joins_when_no_turn_or_this_one_is_named(agent: Agent, on: Rig) -> None:
    await running(on, agent)
    assert (await agent.steer(content("a"), id=mid("a"))).outcome == "steering"
    assert (await agent.steer(content("b"), id=mid("b"), expected_turn=1)).outcome == "steering"


async def test_running_steer_for_another_turn_goes_to_the_head_of_the_queue(agent: Agent, on: Rig) -> None:
    await running(on, agent)
    await agent.followup(content("a"), id=mid("a"))
    sent = await agent.steer(content("b"), id=mid("b"), expected_turn=7)
    assert (sent.outcome, sent.position) == ("queued", 0)
    assert [w.message_id for w in state(agent).inbox] == ["b", "a"]


async def test_steer_that_would_rather_not_start_is_refused_with_its_content(agent: Agent, on: Rig) -> None:
    refused = await agent.steer(content("a"), id=mid("a"), if_idle="refuse")
    assert (refused.outcome, refused.reason, refused.content) == ("refused", "no-turn", content("a"))
    await running(on, agent)
    refused = await agent.steer(content("a"), id=mid("a"), expected_turn=9, if_idle="refuse")
    assert (refused.outcome, refused.reason) == ("refused", "no-turn")
    assert (await agent.steer(content("a"), id=mid("a"))).outcome == "steering", "a refusal is judged anew"


async def test_a_steer_that_the_turn_did_not_take_is_the_head_of_the_queue(agent: Agent, on: Rig) -> None:
    await running(on, agent)
    await agent.followup(content("a"), id=mid("a"))
    await agent.steer(content("s"), id=mid("s"))
    on.model.fail()
    await idle(agent)
    assert [(w.message_id, w.lane, w.held) for w in state(agent).inbox] == [
        ("s", "queued", True),
        ("a", "queued", True),
    ]


async def test_any_injection_is_injected(agent: Agent, on: Rig) -> None:
    assert (await agent.inject(content("i"), id=mid("i"), source=notice())).outcome == "injected"
    await running(on, agent)
    assert (await agent.inject(content("j"), id=mid("j"), source=notice())).outcome == "injected"


async def test_a_repeat_returns_the_first_fate_and_where_the_message_is_now(agent: Agent, on: Rig) -> None:
    """Case Q09: idempotent by the client's id."""
    await running(on, agent)
    await agent.followup(content("a"), id=mid("a"))
    await agent.inject(content("i"), id=mid("i"), source=notice())
    before = await on.log(agent)
    repeat = await agent.followup(content("a"), id=mid("a"))
    assert (repeat.outcome, repeat.position, repeat.repeated, repeat.now) == ("queued", 0, True, "pending")
    repeat = await agent.followup(content("run"), id=mid("run"))
    assert (repeat.outcome, repeat.turn, repeat.repeated, repeat.now) == ("started", 1, True, "taken")
    repeat = await agent.inject(content("i"), id=mid("i"), source=notice())
    assert (repeat.outcome, repeat.repeated, repeat.now) == ("injected", True, "taken")
    assert await on.log(agent) == before
    await agent.remove(mid("a"))
    assert (await agent.steer(content("a"), id=mid("a"))).now == "discarded"


async def test_a_repeat_in_flight_is_one_message(agent: Agent, on: Rig) -> None:
    first = asyncio.ensure_future(agent.followup(content("a"), id=mid("a")))
    second = asyncio.ensure_future(agent.followup(content("a"), id=mid("a")))
    assert [(await first).repeated, (await second).repeated] == [False, True]
    await on.model.answer("x", 1)
    await idle(agent)
    assert types(await on.log(agent)).count("agent/inbox/enqueue") == 1


async def test_a_repeat_neither_wakes_nor_releases(agent: Agent, on: Rig) -> None:
    await running(on, agent)
    await agent.followup(content("a"), id=mid("a"))
    await agent.cancel("user", keep_inbox=True)
    repeat = await agent.followup(content("a"), id=mid("a"))
    assert (repeat.repeated, repeat.now) == (True, "held")
    assert state(agent).status == "idle"


@pytest.mark.parametrize("verb", ["followup", "inject"])
async def test_a_known_id_with_other_content_is_refused_with_it(agent: Agent, on: Rig, verb: str) -> None:
    await running(on, agent)
    if verb == "followup":
        refused = await agent.followup(content("other"), id=mid("run"))
    else:
        refused = await agent.inject(content("run"), id=mid("run"), source=notice())
    assert (refused.outcome, refused.reason) == ("refused", "id-conflict")
    assert refused.content is not None


async def test_every_id_leaves_exactly_once(agent: Agent, on: Rig) -> None:
    """Statement 58, over a history with every kind of exit."""
    await running(on, agent)
    await agent.followup(content("a"), id=mid("a"))
    await agent.steer(content("s"), id=mid("s"))
    await agent.followup(content("b"), id=mid("b"))
    await agent.remove(mid("b"))
    await on.model.answer("1", 1)
    await on.model.answer("2", 2)
    await on.model.asked(3)
    await agent.followup(content("c"), id=mid("c"))
    await agent.cancel("user")
    await idle(agent)
    check_log(await on.log(agent))
    assert state(agent).inbox == ()
    assert [request for request in on.model.requests if "c" in sent_texts(request)] == []
    assert "u:c" not in row_ids(agent.view)
