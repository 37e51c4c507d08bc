"""A store that refuses: nothing unsaved is acknowledged or kept, and it goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentls.core.blocks import ToolResultBlock, text_of
from agentls.core.errors import StoreUnavailable
from agentls.core.events import Event, ToolResult
from agentls.core.ids import AgentId
from agentls.core.invariants import check_log
from agentls.core.reasons import Failure, TurnFailed
from tests.agent.hands import asked, call, datas, ends, hands, state, streaming
from tests.agent.watched import watched
from tests.harness import content, idle, mid, rows, sent_texts, until


def result_texts(log: Sequence[Event]) -> list[str]:
    results = [data.message for data in datas(log, ToolResult) if isinstance(data, ToolResult)]
    blocks = [block for message in results for block in message.content if isinstance(block, ToolResultBlock)]
    return [text_of(block.content) for block in blocks]


async def test_a_failed_commit_suspends_and_recovery_closes_the_turn(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on, "shown")
        disk.full = True
        refused = await agent.followup(content("unsaved"), id=mid("m2"))
        assert (refused.outcome, refused.reason, refused.content) == (
            "refused",
            "store-unavailable",
            content("unsaved"),
        )
        assert state(agent).store == "unavailable"
        assert state(agent).status == "suspended"
        assert rows(agent.view)[-1].volatile
        assert on.model.closed == 1, "the model is stopped"
        repeat = await agent.followup(content("go"), id=mid("m1"))
        assert (repeat.outcome, repeat.repeated) == ("started", True), "a known id goes first in any state"
        with pytest.raises(StoreUnavailable):
            await agent.cancel("user")
        disk.full = False
        await until(lambda: state(agent).store == "ok")
        assert [(b.kind, b.body, b.state) for b in rows(agent.view)][1] == ("assistant", "shown", "interrupted")
        error = next(block for block in rows(agent.view) if block.kind == "error")
        assert "the disk is full" in error.body
        assert await agent._journal.log.drafts() == ()  # type: ignore[attr-defined]
        assert (await agent.followup(content("unsaved"), id=mid("m2"))).outcome == "started", "judged anew"
        assert sent_texts(await on.model.answer("ok", 2)) == ["go", "shown", "unsaved"]
        await idle(agent)
        check_log(await on.log(agent))


async def test_text_that_could_not_be_stored_is_neither_drawn_nor_kept(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on, "shown")
        disk.drafts_full = True
        on.model.text(" NEVER-STORED")
        await until(lambda: state(agent).store == "unavailable")
        disk.drafts_full = False
        await until(lambda: state(agent).store == "ok")
        assert [b.body for b in rows(agent.view) if b.kind == "assistant"] == ["shown"]
        await agent.followup(content("on"), id=mid("m2"))
        assert sent_texts(await on.model.answer("ok", 2)) == ["go", "shown", "on"]
        await idle(agent)


async def test_a_commit_that_was_under_way_when_a_draft_failed_counts(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on, "shown")
        disk.gate = asyncio.Event()
        steering = asyncio.ensure_future(agent.steer(content("s"), id=mid("s1")))
        await until(lambda: agent._journal.state.inbox.steering)  # type: ignore[attr-defined]
        agent._journal.break_off(StoreUnavailable("the disk is full"))  # type: ignore[attr-defined]
        disk.gate.set()
        assert (await steering).outcome == "steering"
        await until(lambda: state(agent).store == "ok")
        error = next(block for block in rows(agent.view) if block.kind == "error")
        assert "the disk is full" in error.body
        assert [(w.message_id, w.held) for w in state(agent).inbox] == [("s1", True)]
        check_log(await on.log(agent))


async def test_a_closed_agent_recovers_nothing_more(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on, "shown")
        disk.full = True
        await agent.followup(content("unsaved"), id=mid("m2"))
        await agent.close()
        disk.full = False
        on.forget(agent)
        name = agent.id
    async with watched(tmp_path) as (again, _):
        agent = await again.host.get(name)
        assert [(b.body, b.state) for b in rows(agent.view)][1] == ("shown", "interrupted")


async def test_a_close_saves_what_had_finished_where_the_disk_takes_writes_again(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        on.bodies.hold("a", "b")
        on.bodies.stubborn.add("a")
        agent = await asked(on)
        call(on.model, ("look", "a"), ("look", "b"))
        await until(lambda: len(on.bodies.begun) == 2)
        on.disk.full = True
        await agent.followup(content("unsaved"), id=mid("m2"))
        await until(lambda: len(on.bodies.stopped) == 2)
        on.disk.full = False
        name = agent.id
    async with hands(tmp_path) as again:
        log = await again.log(await again.host.get(name))
        done, unknown = result_texts(log)
        assert done == "did a before it stopped"
        assert unknown.startswith("the turn failed (the disk is full) while this call ran")
        assert ends(log) == [TurnFailed(Failure("the disk is full", "STORE_UNAVAILABLE"))]


async def closed_on_a_full_disk(directory: Path) -> AgentId:
    """An agent that was closed in the middle of an answer, and could not save that."""
    async with watched(directory) as (on, disk):
        agent = await streaming(on, "shown")
        disk.full = True
        await agent.close()
        on.forget(agent)
        disk.full = False
        return agent.id


async def test_a_close_that_meets_a_full_disk_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    name = await closed_on_a_full_disk(tmp_path)
    async with watched(tmp_path) as (again, _):
        agent = await again.host.get(name)
        assert [(b.body, b.state) for b in rows(agent.view)][1] == ("shown", "interrupted")


async def test_a_load_that_cannot_be_saved_keeps_the_text_in_flight(tmp_path: Path) -> None:
    name = await closed_on_a_full_disk(tmp_path)
    async with watched(tmp_path) as (again, disk):
        disk.full = True
        with pytest.raises(StoreUnavailable):
            await again.host.get(name)
        disk.full = False
        agent = await again.host.get(name)
        assert [(b.body, b.state) for b in rows(agent.view)][1] == ("shown", "interrupted")


async def test_an_agent_that_cannot_be_saved_is_not_made(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        disk.full = True
        with pytest.raises(StoreUnavailable, match="full"):
            await on.agent()
        disk.full = False
        await on.agent()
        listed, _ = await on.host.list()
        assert len(listed) == 1
