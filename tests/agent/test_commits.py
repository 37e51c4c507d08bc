"""What is committed together, what is a barrier, and what comes only after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentls.core.blocks import ToolCallBlock
from agentls.core.chunks import BlockEnd
from agentls.core.ids import CallId
from agentls.core.reasons import ToolCalls
from tests.agent.hands import died, streaming
from tests.agent.watched import watched
from tests.harness import content, idle, mid, notice, row_ids, until

ENTER = "D agent/inbox/dequeue, turn/start, step/start, user/message, request/header, request/sent"
ENQUEUE = "D agent/inbox/enqueue"


async def test_a_turn_is_accepted_entered_answered_and_closed(tmp_path: Path) -> None:
    """The model is asked only once the request is on disk; drafts go only after the answer that replaces them."""
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        disk.acts.clear()
        await agent.followup(content("a"), id=mid("m1"))
        await on.model.asked(1)
        on.model.text("hi")
        on.model.finish()
        await idle(agent)
        assert disk.acts == [ENQUEUE, ENTER, "ask", "assistant/message", "drop a1.1.1", "D step/end, turn/end"]


async def test_calls_go_with_their_answer_and_results_after_them(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        await agent.followup(content("a"), id=mid("m1"))
        await on.model.asked(1)
        disk.acts.clear()
        on.model.give(
            BlockEnd(0, ToolCallBlock(CallId("x"), "ls", "")), BlockEnd(1, ToolCallBlock(CallId("y"), "ls", ""))
        )
        on.model.finish(ToolCalls())
        await on.model.answer("no tools then", 2)
        await idle(agent)
        assert disk.acts == [
            "assistant/message, tool/call, tool/call",
            "drop a1.1.1",
            "tool/result",
            "tool/result",
            "step/end",
            "D step/start, request/sent",
            "ask",
            "assistant/message",
            "drop a1.2.1",
            "D step/end, turn/end",
        ]


async def test_a_failed_attempt_closes_the_turn_and_holds_what_waits(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        await agent.followup(content("a"), id=mid("m1"))
        await on.model.asked(1)
        await agent.followup(content("b"), id=mid("m2"))
        await agent.steer(content("s"), id=mid("s1"))
        disk.acts.clear()
        on.model.fail()
        await idle(agent)
        closing = "D step/end, agent/inbox/update, turn/end, agent/inbox/hold"
        assert disk.acts == ["assistant/attempt", "drop a1.1.1", closing]


async def test_a_cancel_is_on_disk_before_it_closes_the_turn_in_one_batch(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on)
        await agent.followup(content("b"), id=mid("m2"))
        disk.acts.clear()
        await agent.cancel("user", keep_inbox=True)
        await until(lambda: len(disk.acts) == 3)
        closing = "D assistant/message, step/end, turn/end, agent/inbox/hold"
        assert disk.acts == ["D turn/cancel", closing, "drop a1.1.1"]
        disk.acts.clear()
        await agent.remove(mid("m2"))
        await agent.inject(content("c"), id=mid("i1"), source=notice())
        assert disk.acts == ["D agent/inbox/discard", "D turn/start, user/message, turn/end"]


async def test_a_cancel_without_keep_discards_after_the_turns_end(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        await agent.followup(content("a"), id=mid("m1"))
        await on.model.asked(1)
        await agent.followup(content("b"), id=mid("m2"))
        disk.acts.clear()
        await agent.cancel("user")
        assert disk.acts[:2] == ["D turn/cancel", "D step/end, turn/end, agent/inbox/discard"]


async def test_an_injection_into_a_running_turn_and_a_resume_are_barriers(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        await agent.followup(content("a"), id=mid("m1"))
        await on.model.asked(1)
        disk.acts.clear()
        await agent.inject(content("c"), id=mid("i1"), source=notice())
        assert disk.acts == ["D user/message"]
        await agent.followup(content("b"), id=mid("m2"))
        await agent.cancel("user", keep_inbox=True)
        disk.acts.clear()
        await agent.resume()
        assert "D agent/inbox/hold" in disk.acts
        await on.model.answer("ok", 2)
        await idle(agent)


async def test_a_repair_is_one_barrier_and_drafts_go_after_it(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, _):
        name = await died(on, await streaming(on))
        async with watched(tmp_path) as (again, disk):
            await again.host.get(name)
            assert disk.acts == ["D assistant/message, step/end, turn/end", "drop a1.1.1"]


async def test_a_send_is_acknowledged_only_after_its_commit(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await on.agent()
        disk.gate = asyncio.Event()
        sending = asyncio.ensure_future(agent.followup(content("a"), id=mid("m1")))
        repeating = asyncio.ensure_future(agent.followup(content("a"), id=mid("m1")))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sending.done()
        assert not repeating.done(), "a repeat rests on the first one's commit"
        assert on.model.requests == []
        assert row_ids(agent.view) == [], "nothing is drawn that is not committed"
        disk.gate.set()
        assert (await sending).outcome == "started"
        assert (await repeating).repeated
        await on.model.answer("ok", 1)
        await idle(agent)


async def test_an_answer_tells_no_more_of_the_inbox_than_is_committed(tmp_path: Path) -> None:
    """What comes in while a change is being written would be lost if the server died now."""
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on)
        await agent.followup(content("b"), id=mid("m2"))
        removing = asyncio.ensure_future(agent.remove(mid("m2")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        disk.gate = asyncio.Event()
        sending = asyncio.ensure_future(agent.followup(content("c"), id=mid("m3")))
        removed = await removing
        assert (removed.outcome, removed.inbox) == ("done", ())
        assert (await agent.cancel("user", turn=7)).inbox == ()
        disk.gate.set()
        await sending
        assert [waiting.message_id for waiting in (await agent.cancel("user", turn=7)).inbox] == ["m3"]


async def test_a_repeat_tells_where_its_message_is_by_what_is_committed(tmp_path: Path) -> None:
    async with watched(tmp_path) as (on, disk):
        agent = await streaming(on)
        await agent.followup(content("b"), id=mid("m2"))
        disk.gate = asyncio.Event()
        removing = asyncio.ensure_future(agent.remove(mid("m2")))
        await asyncio.sleep(0)
        assert (await agent.followup(content("b"), id=mid("m2"))).now == "pending"
        disk.gate.set()
        await removing
        assert (await agent.followup(content("b"), id=mid("m2"))).now == "discarded"
