"""Agents made, found again, loaded and repaired."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.agent.host import RECENT_TURNS, BadWorkspace, UnknownAgent
from agentls.agent.view import Frame
from agentls.core.errors import SessionHeld, StoreUnavailable, UserError
from agentls.core.invariants import check_log
from tests.agent.hands import asked, call, hands, state
from tests.agent.watched import watched
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
        assert [(w.message_id, w.held) for w in state(agent).inbox] == [("m2", True)]
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


@pytest.mark.parametrize(
    "uri",
    [
        "untitled:x",
        "https://example.org/x",
        "/plain/path",
        "",
        "file://elsewhere/x",
        "file:///a%00b",
        "file:///a\ud800",
    ],
)
async def test_a_workspace_is_a_file_uri_of_this_machine(on: Rig, uri: str) -> None:
    with pytest.raises(BadWorkspace, match="open a folder"):
        await on.host.create(uri)
    with pytest.raises(BadWorkspace, match="open a folder"):
        await on.host.list(uri)
    assert await on.host.list() == ((), None)


async def test_a_workspace_is_a_folder_or_not_there_yet(on: Rig, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "file/below", "loop"):
        with pytest.raises(BadWorkspace, match="open a folder"):
            await on.host.create(f"file://{tmp_path}/{name}")
    await on.host.create(f"file://{tmp_path}/later")
    (listed,), _ = await on.host.list()
    assert listed.summary.header.cwd == f"{tmp_path}/later"


@pytest.mark.parametrize(
    ("written", "name"),
    [("c#", b"c#"), ("a?b", b"a?b"), ("%ff", b"\xff"), ("a+b", b"a+b"), ("a b", b"a b"), ("a%20b", b"a b")],
)
async def test_a_workspace_is_the_folder_that_its_uri_names(on: Rig, tmp_path: Path, written: str, name: bytes) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/" + name)
    await on.host.create(f"file://localhost{tmp_path}/{written}")
    (listed,), _ = await on.host.list(f"file://{tmp_path}/{written}")
    assert os.fsencode(listed.summary.header.cwd) == os.fsencode(tmp_path) + b"/" + name


async def test_a_folder_is_one_workspace_however_it_is_written(on: Rig, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "link").symlink_to("a b")
    told: list[str] = []
    on.host.on_list_changed(told.append)
    spellings = [f"file://{tmp_path}/{name}" for name in ("a b", "a%20b", "%61%20b", "link", "a%20b/", "x/../a%20b")]
    made = [(await on.host.create(uri)).id for uri in spellings]
    for uri in spellings:
        listed, _ = await on.host.list(uri)
        assert {row.summary.header.id for row in listed} == set(made)
        assert {row.summary.header.workspace for row in listed} == {f"file://{tmp_path}/a%20b"}
    assert set(told) == {f"file://{tmp_path}/a%20b"}


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


async def test_a_load_whose_workspace_cannot_be_used_lets_the_session_go(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    async with rig(tmp_path / "store") as on:
        name = (await on.agent(f"file://{workspace}")).id
    workspace.rmdir()
    workspace.symlink_to("w")
    async with rig(tmp_path / "store") as again:
        for _ in range(2):
            with pytest.raises(UserError, match="symbolic links"):
                await again.host.get(name)
        workspace.unlink()
        workspace.mkdir()
        assert (await again.host.get(name)).id == name


async def test_whatever_fails_in_a_load_or_a_create_lets_the_session_go(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, 1)
        name = agent.id
    async with rig(tmp_path) as again:
        again.models.undecided = True
        with pytest.raises(UserError, match="no model"):
            await again.host.get(name)
        with pytest.raises(UserError, match="no model"):
            await again.host.create(WORKSPACE, model="hand")
        again.models.undecided = False
        assert (await again.host.get(name)).id == name
        assert [row.summary.header.id for row in (await again.host.list())[0]] == [name]


async def test_a_deleted_agent_is_gone_for_all_and_whoever_draws_it_is_told(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        on.bodies.hold("a")
        agent = await asked(on)
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        frames: list[Frame] = []
        told: list[str] = []
        agent.view.subscribe(frames.append)
        agent.view.on_end(lambda: told.append("running" if state(agent).turn else "closed"))
        agent.view.on_end(lambda: told.append("gone"))()
        deleting = asyncio.ensure_future(on.host.delete(agent.id))
        await asyncio.sleep(0)
        assert on.host.live(agent.id) is None, "a message must not be taken into what is being deleted"
        for asking in (on.host.get(agent.id), on.host.delete(agent.id)):
            with pytest.raises(UnknownAgent):
                await asking
        await deleting
        assert told == ["closed"], "the turn's end was shown before"
        agent.view.on_end(lambda: told.append("late"))
        assert told == ["closed", "late"]
        with pytest.raises(UnknownAgent):
            await on.host.get(agent.id)


async def test_a_deletion_goes_to_its_end_without_whoever_asked_for_it(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await on.agent()
        deleting = asyncio.ensure_future(on.host.delete(agent.id))
        await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.wait([deleting])
        await until(lambda: not on.host._leaving)
        with pytest.raises(UnknownAgent):
            await on.host.get(agent.id)
        other = await on.agent()
        deleting = asyncio.ensure_future(on.host.delete(other.id))
        await asyncio.sleep(0)
        deleting.cancel()
    async with rig(tmp_path) as again:
        assert await again.host.list() == ((), None), "a host that closes waits for what it is deleting"


async def test_a_deletion_that_fails_leaves_the_session_to_be_loaded_again(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        name = agent.id
        disk.undeletable = True
        with pytest.raises(StoreUnavailable):
            await on.host.delete(name)
        assert (await on.host.get(name)) is not agent


async def test_a_host_that_is_closed_takes_no_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        name = (await on.agent()).id
    with pytest.raises(UserError, match="is ending"):
        await on.host.create(WORKSPACE)
    with pytest.raises(UserError, match="is ending"):
        await on.host.get(name)
