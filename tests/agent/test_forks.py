"""Agents that begin with what another one had, and agents that are removed for good."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.agent.host import Fork, InvalidBoundary, UnknownAgent
from agentls.core.chunks import NO_USAGE, Usage, UsageChunk
from agentls.core.errors import SessionHeld
from agentls.core.events import EndSeed, EventData, ModelRef
from agentls.core.invariants import check_log
from tests.agent.hands import asked, datas, died, hands, over, state, waits
from tests.harness import WORKSPACE, Rig, agent_id, content, idle, mid, rig, row_ids, rows, sent_texts, types


async def talk(on: Rig, agent: Agent, *names: str) -> None:
    for name in names:
        number = len(on.model.requests) + 1
        await agent.followup(content(name), id=mid(name))
        await on.model.asked(number)
        on.model.give(UsageChunk(Usage(10, 1)))
        await on.model.answer(f"re {name}", number)
        await idle(agent)


async def fork(on: Rig, agent: Agent, turn: int) -> Agent:
    return await on.host.create(WORKSPACE, fork=Fork(agent.id, turn))


def header(agent: Agent) -> tuple[str | None, int]:
    found = agent._journal.session.header  # type: ignore[attr-defined]
    return found.parent, found.seed_length


async def test_a_fork_begins_with_what_there_was_at_the_end_of_that_turn(tmp_path: Path) -> None:
    """Statement 43: its header names the parent and how much is copied, and its log says once where that ends."""
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a", "b", "c")
        whole = await on.log(parent)
        child = await fork(on, parent, 2)
        log = await on.log(child)
        length = types(whole).index("turn/end", types(whole).index("turn/end") + 1) + 1
        assert header(child) == (parent.id, length)
        assert log[:length] == whole[:length]
        assert [event.data for event in log[length:]] == [EndSeed()]
        assert [row.id for row in rows(child.view)] == row_ids(parent.view)[:6]
        assert (child.id, state(child).last_turn) != (parent.id, None)
        sent = await child.followup(content("other"), id=mid("d"))
        assert sent.turn == 3
        assert sent_texts(await over(on, child, 4)) == ["a", "re a", "b", "re b", "other"]
        assert await on.log(parent) == whole, "the parent is as it was"
        check_log(await on.log(child))


async def test_an_earlier_turn_can_be_forked_at_while_another_one_runs(tmp_path: Path) -> None:
    """Statement 43."""
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a")
        await parent.followup(content("b"), id=mid("b"))
        await on.model.asked(2)
        child = await fork(on, parent, 1)
        assert state(child).status == "idle"
        with pytest.raises(InvalidBoundary, match="turn 2 is still open") as refused:
            await fork(on, parent, 2)
        assert refused.value.reason == "OPEN_TURN"
        await over(on, parent, 2)


@pytest.mark.parametrize("turn", [0, -1, 2])
async def test_a_turn_that_never_was_cannot_be_forked_at(tmp_path: Path, turn: int) -> None:
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a")
        with pytest.raises(InvalidBoundary, match=f"no turn {turn} .* the last one is turn 1") as refused:
            await fork(on, parent, turn)
        assert refused.value.reason == "INVALID_BOUNDARY"
        listed, _ = await on.host.list()
        assert len(listed) == 1, "nothing is left of it"


async def test_what_waits_in_the_parent_is_not_taken_over(tmp_path: Path) -> None:
    """Statement 44: its ids are unknown to the child, while those that the copied turns took stay known."""
    async with hands(tmp_path) as on:
        parent = await asked(on)
        await parent.followup(content("later"), id=mid("m2"))
        on.model.fail()
        await idle(parent)
        assert waits(parent) == [("m2", "queued", True)]
        child = await fork(on, parent, 1)
        assert (waits(child), state(child).hold, state(child).requests) == ([], None, ())
        repeat = await child.followup(content("go"), id=mid("m1"))
        assert (repeat.repeated, repeat.now) == (True, "taken")
        assert (await child.followup(content("mine"), id=mid("m2"))).outcome == "started"
        assert sent_texts(await over(on, child, 2)) == ["go", "mine"]
        assert waits(parent) == [("m2", "queued", True)]


async def test_a_fork_has_the_parents_model_and_mode_and_nothing_on_its_account(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await parent.configure(mode="read-only", model=ModelRef("hand", "hand"))
        await talk(on, parent, "a", "b")
        assert state(parent).usage == Usage(20, 2)
        child = await fork(on, parent, 2)
        assert (state(child).mode, state(child).model, state(child).usage) == (
            "read-only", ModelRef("hand", "hand"), NO_USAGE,
        )  # fmt: skip
        await talk(on, child, "c")
        assert (state(child).usage, state(parent).usage) == (Usage(10, 1), Usage(20, 2))
        other = await on.host.create(WORKSPACE, mode="ask", title="Another way", fork=Fork(parent.id, 1))
        assert (state(other).mode, state(other).title) == ("ask", "Another way")


async def test_a_fork_is_loaded_again_as_it_was(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a", "b")
        child = await fork(on, parent, 1)
        await talk(on, child, "c")
        name, before, drawn = child.id, await on.log(child), rows(child.view)
        grandchild = await fork(on, child, 2)
        ended = [type(data) for data in datas(await on.log(grandchild), EventData)].count(EndSeed)
        assert ended == 2, "one of the child and one of its own"
    async with hands(tmp_path) as again:
        child = await again.host.get(name)
        assert (await again.log(child), rows(child.view)) == (before, drawn)
        assert header(child)[0] == parent.id
        check_log(await again.log(child))


async def test_a_stored_parent_is_loaded_for_it(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a")
    async with hands(tmp_path) as again:
        child = await again.host.create(WORKSPACE, fork=Fork(parent.id, 1))
        assert row_ids(child.view) == ["u:a", "a1.1.1/0", "turn1"]
        with pytest.raises(UnknownAgent, match='"nobody"'):
            await again.host.create(WORKSPACE, fork=Fork(agent_id("nobody"), 1))


# Live sessions, stored ones, and none any more -------------------------------------------------------------------


async def test_a_live_session_is_not_opened_again(tmp_path: Path) -> None:
    """Statement 39: who asks for it gets the agent that is there, another process is refused, and its turn goes on."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        before = await on.log(agent)
        assert await on.host.get(agent.id) is agent
        async with rig(tmp_path) as other:
            with pytest.raises(SessionHeld):
                await other.host.get(agent.id)
        assert await on.log(agent) == before
        await over(on, agent, 1)


async def test_a_list_closes_nothing_of_what_it_shows(tmp_path: Path) -> None:
    """Statement 38: what a dead server left open is closed when it is loaded, not when it is looked at."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        before = await on.log(agent)
        name = await died(on, agent)
        async with hands(tmp_path) as again:
            ((listed,), _) = await again.host.list()
            assert (listed.summary.header.id, listed.agent, again.disk.acts) == (name, None, [])
            agent = await again.host.get(name)
            log = await again.log(agent)
            assert log[: len(before)] == before
            assert types(log[len(before) :]) == ["step/end", "turn/end"]


async def test_an_agent_that_is_deleted_is_stopped_and_gone(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        told: list[str] = []
        on.host.on_list_changed(told.append)
        await on.host.delete(agent.id)
        assert (on.model.closed, on.host.live(agent.id), told) == (1, None, [WORKSPACE])
        assert await on.host.list() == ((), None)
        with pytest.raises(UnknownAgent):
            await on.host.get(agent.id)
        with pytest.raises(UnknownAgent):
            await on.host.delete(agent.id)


async def test_a_stored_agent_is_deleted_and_its_fork_lives_on(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        parent = await on.agent()
        await talk(on, parent, "a")
        child = (await fork(on, parent, 1)).id
    async with hands(tmp_path) as again:
        await again.host.delete(parent.id)
        agent = await again.host.get(child)
        assert row_ids(agent.view) == ["u:a", "a1.1.1/0", "turn1"]
        await talk(again, agent, "b")


async def test_of_two_deletes_at_once_one_is_too_late(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        done = await asyncio.gather(on.host.delete(agent.id), on.host.delete(agent.id), return_exceptions=True)
        assert [type(one) for one in done] == [type(None), UnknownAgent]
