"""Agents made, found again, loaded and repaired."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.agent.host import RECENT_TURNS, UnknownAgent
from agentls.core.errors import SessionDamaged, SessionHeld, UserError
from agentls.core.invariants import check_log
from tests.harness import WORKSPACE, Rig, agent_id, content, idle, mid, rig, row_ids, rows, sent_texts, until


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def talk(on: Rig, agent: Agent, turns: int) -> None:
    for n in range(len(on.model.requests) + 1, len(on.model.requests) + turns + 1):
        await agent.followup(content(f"q{n}"), id=mid(f"m{n}"))
        await on.model.answer(f"a{n}", n)
        await idle(agent)


async def test_a_closed_agent_comes_back_as_it_was(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, 2)
        drawn, name, epoch = rows(agent.view), agent.id, agent.view.epoch
        log = await on.log(agent)
    async with rig(tmp_path) as again:
        agent = await again.host.get(name)
        assert await again.log(agent) == log, "a closed log gains nothing by a load"
        assert rows(agent.view) == drawn
        assert agent.view.epoch != epoch, "another life of the view is another epoch"
        await agent.followup(content("q3"), id=mid("m3"))
        assert sent_texts(await again.model.answer("a3", 1)) == ["q1", "a1", "q2", "a2", "q3"]
        await idle(agent)
        assert row_ids(agent.view)[-1] == "turn3"
        assert (await agent.followup(content("q1"), id=mid("m1"))).repeated, "ids stay known across a restart"


async def test_a_host_that_closes_keeps_text_and_queue(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await agent.followup(content("one"), id=mid("m1"))
        await on.model.asked(1)
        on.model.text("half")
        await until(lambda: "a1.1.1/0" in row_ids(agent.view))
        await agent.followup(content("two"), id=mid("m2"))
        name = agent.id
    async with rig(tmp_path) as again:
        agent = await again.host.get(name)
        assert [(b.kind, b.state) for b in rows(agent.view)] == [
            ("user", "done"), ("assistant", "interrupted"), ("turn-end", "interrupted"),
        ]  # fmt: skip
        assert agent.view.state is not None
        assert [(w.message_id, w.held) for w in agent.view.state.inbox] == [("m2", True)]
        assert again.model.requests == [], "nothing runs before a person says so"
        await agent.resume()
        assert sent_texts(await again.model.answer("ok", 1)) == ["one", "half", "two"]
        await idle(agent)
        check_log(await again.log(agent))


async def test_loading_twice_at_once_is_one_agent(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        name = (await on.agent()).id
    async with rig(tmp_path) as again:
        first, second = await asyncio.gather(again.host.get(name), again.host.get(name))
        assert first is second
        assert again.host.live(name) is first


async def test_an_agent_that_is_not_there_says_so(on: Rig) -> None:
    with pytest.raises(UnknownAgent, match='"nobody"'):
        await on.host.get(agent_id("nobody"))


async def test_a_session_that_another_holds_is_refused_with_its_pid(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        name = (await on.agent()).id
        async with rig(tmp_path) as other:
            with pytest.raises(SessionHeld, match=r"process \d+"):
                await other.host.get(name)


@pytest.mark.parametrize("uri", ["untitled:x", "https://example.org/x", "/plain/path", ""])
async def test_a_workspace_is_a_file_uri(on: Rig, uri: str) -> None:
    with pytest.raises(UserError, match="no file URI"):
        await on.host.create(uri)


async def test_a_model_that_is_not_there_lists_those_that_are(on: Rig) -> None:
    with pytest.raises(UserError, match='pick "hand"'):
        await on.host.create(WORKSPACE, model="gpt-9")


async def test_the_list_shows_live_and_stored_agents_newest_first(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        old = (await on.host.create(WORKSPACE, title="The old one")).id
    async with rig(tmp_path) as again:
        again.clock.time += 1000
        new = (await again.host.create(WORKSPACE, title="The new one")).id
        await again.host.create("file:///elsewhere")
        listed, following = await again.host.list(WORKSPACE)
        assert [(row.summary.header.id, row.summary.title, row.agent is not None) for row in listed] == [
            (new, "The new one", True),
            (old, "The old one", False),
        ]
        assert following is None
        found, _ = await again.host.list(WORKSPACE, query="OLD")
        assert [row.summary.header.id for row in found] == [old]


async def test_older_blocks_are_paged_from_the_log(tmp_path: Path) -> None:
    """Whatever the page size, paging back gives every block once, in order, and ends."""
    turns = RECENT_TURNS + 7
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, turns)
        whole, name = rows(agent.view), agent.id
        assert len(whole) == 3 * turns
    async with rig(tmp_path) as again:
        agent = await again.host.get(name)
        for limit in (1, 4, 50):
            caught = agent.view.catch_up()
            seen = [op.drawn.block for op in caught.ops]  # type: ignore[union-attr]
            before = caught.before
            while before is not None:
                page = await agent.page(before, limit)
                assert len(page.blocks) <= limit
                seen = [drawn.block for drawn in page.blocks] + seen
                before = page.before
            assert seen == whole


async def test_a_page_may_begin_in_the_middle_of_an_old_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, RECENT_TURNS + 3)
        whole, name = rows(agent.view), agent.id
    async with rig(tmp_path) as again:
        agent = await again.host.get(name)
        page = await agent.page(whole[4].order, 3)
        assert [drawn.block for drawn in page.blocks] == whole[1:4]


async def test_a_load_that_fails_lets_the_sessions_lock_go(tmp_path: Path) -> None:
    """A log with a hole is damaged; refusing it must not leave it held."""
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, 1)
        name = agent.id
    with sqlite3.connect(tmp_path / "sessions.db") as database:
        database.execute("DELETE FROM event WHERE rowid = (SELECT max(rowid) - 2 FROM event)")
    database.close()
    async with rig(tmp_path) as again:
        for _ in range(2):
            with pytest.raises(SessionDamaged, match=name):
                await again.host.get(name)
        await again.agent()


async def test_a_host_that_is_closed_takes_no_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        name = (await on.agent()).id
    with pytest.raises(UserError, match="is ending"):
        await on.host.create(WORKSPACE)
    with pytest.raises(UserError, match="is ending"):
        await on.host.get(name)
