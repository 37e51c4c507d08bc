"""Stopping a turn: what stays, what waits, what never starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.core.blocks import ToolCallBlock
from agentls.core.chunks import BlockEnd, Chunk, TextDelta
from agentls.core.events import TurnCancel, TurnEnd
from agentls.core.ids import CallId
from agentls.core.reasons import TurnAborted
from agentls.models.model import ModelRequest
from tests.agent.hands import state, streaming
from tests.harness import HandModel, Rig, content, idle, mid, notice, rig, row_ids, rows, sent_texts, types, until


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


@pytest.fixture
async def agent(on: Rig) -> Agent:
    return await on.agent()


async def test_text_already_shown_stays_in_history_and_the_connection_is_closed(on: Rig) -> None:
    """Statement 60."""
    agent = await streaming(on)
    cancelled = await agent.cancel("user", keep_inbox=True)
    assert cancelled.outcome == "cancelled"
    assert on.model.closed == 1
    assert [(b.kind, b.body, b.state) for b in rows(agent.view)[1:]] == [
        ("assistant", "half", "interrupted"),
        ("turn-end", "", "interrupted"),
    ]
    await agent.followup(content("two"), id=mid("m2"))
    assert sent_texts(await on.model.answer("ok", 2)) == ["go", "half", "two"]
    await idle(agent)


async def test_a_call_that_was_cut_off_leaves_no_message_and_never_runs(agent: Agent, on: Rig) -> None:
    """Statement 60: after only a call, none."""
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    on.model.give(BlockEnd(0, ToolCallBlock(CallId("x"), "ls", "{}")))
    await on.model.taken()
    await agent.cancel("user")
    log = types(await on.log(agent))
    assert "assistant/message" not in log
    assert "tool/call" not in log


async def test_with_keep_the_queue_is_held_and_resume_runs_it_in_order(on: Rig) -> None:
    """Cases Q01 and Q03, statement 56."""
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    await agent.steer(content("s"), id=mid("s"))
    cancelled = await agent.cancel("user", keep_inbox=True)
    assert [(w.message_id, w.held) for w in cancelled.inbox] == [("s", True), ("b", True)]
    assert (state(agent).status, state(agent).hold) == ("idle", "cancel")
    assert len(on.model.requests) == 1
    ahead = await agent.followup(content("ahead"), id=mid("m2"))
    assert ahead.outcome == "started", "a waking send runs ahead of what is held"
    assert sent_texts(await on.model.answer("1", 2))[-1] == "ahead"
    await idle(agent)
    assert [w.held for w in state(agent).inbox] == [True, True]
    await agent.resume()
    assert sent_texts(await on.model.answer("2", 3))[-1] == "s"
    assert sent_texts(await on.model.answer("3", 4))[-1] == "b"
    await idle(agent)
    assert state(agent).hold is None


async def test_without_keep_what_waits_is_discarded_in_one_event(on: Rig) -> None:
    """Statement 55."""
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    await agent.steer(content("s"), id=mid("s"))
    cancelled = await agent.cancel("user")
    assert cancelled.inbox == ()
    assert types(await on.log(agent)).count("agent/inbox/discard") == 1
    assert (await agent.followup(content("b"), id=mid("b"))).now == "discarded"


async def test_an_idle_cancel_does_and_arms_nothing(agent: Agent, on: Rig) -> None:
    """Case Q19."""
    before = await on.log(agent)
    assert (await agent.cancel("user")).outcome == "idle"
    assert await on.log(agent) == before
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.answer("whole", 1)
    await idle(agent)
    assert rows(agent.view)[1].body == "whole"


async def test_a_cancel_right_after_the_send_hits_that_turn(agent: Agent, on: Rig) -> None:
    """Case Q19: stop pressed before anything could have run."""
    sending = asyncio.ensure_future(agent.followup(content("one"), id=mid("m1")))
    stopping = asyncio.ensure_future(agent.cancel("user", keep_inbox=True))
    assert (await sending).outcome == "started"
    # Both were given in one tick; nothing was awaited in between.
    assert (await stopping).outcome == "cancelled"
    assert on.model.requests == []
    assert row_ids(agent.view) == ["u:m1", "turn1"]


async def test_a_cancel_in_the_gap_between_two_turns_hits_the_second(on: Rig) -> None:
    """Q03: what waits must not slip through the moment in which one turn has ended and the next begins."""
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    on.model.finish()
    await until(lambda: agent._journal.state.turns.last == 2)  # type: ignore[attr-defined]
    assert (await agent.cancel("user", keep_inbox=True)).outcome == "cancelled"
    assert len(on.model.requests) <= 2
    assert rows(agent.view)[-1].reason == "aborted"


async def test_a_cancel_that_names_another_turn_is_stale(on: Rig) -> None:
    agent = await streaming(on)
    assert (await agent.cancel("user", turn=7)).outcome == "stale"
    on.model.finish()
    await idle(agent)
    assert rows(agent.view)[-1].reason == "completed"


async def test_the_first_cancel_counts(on: Rig) -> None:
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    first = asyncio.ensure_future(agent.cancel("user", keep_inbox=True))
    second = asyncio.ensure_future(agent.cancel("parent"))
    assert [(await first).outcome, (await second).outcome] == ["cancelled", "cancelled"]
    log = await on.log(agent)
    cancels = [event.data for event in log if isinstance(event.data, TurnCancel)]
    assert cancels == [TurnCancel(1, "user", keep_inbox=True)]
    (end,) = (event.data for event in log if isinstance(event.data, TurnEnd))
    assert end.reason == TurnAborted("user")
    assert [w.held for w in state(agent).inbox] == [True]


async def test_what_comes_while_a_turn_is_being_stopped_runs_after_it(on: Rig) -> None:
    """Statement 56: a waking send after the abort runs at convergence, with no further wake."""
    agent = await streaming(on)
    await agent.followup(content("held"), id=mid("b"))
    stopping = asyncio.ensure_future(agent.cancel("user", keep_inbox=True))
    later = asyncio.ensure_future(agent.followup(content("later"), id=mid("c")))
    note = asyncio.ensure_future(agent.inject(content("note"), id=mid("i"), source=notice()))
    assert (await stopping).outcome == "cancelled"
    assert (await later).outcome == "queued"
    assert (await note).outcome == "injected"
    assert sent_texts(await on.model.answer("ok", 2)) == ["go", "half", "note", "later"]
    await idle(agent)
    assert [(w.message_id, w.held) for w in state(agent).inbox] == [("b", True)]


async def test_removing_a_pending_message_takes_only_that_one(on: Rig) -> None:
    """Case Q12."""
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    await agent.followup(content("c"), id=mid("c"))
    changed = await agent.remove(mid("b"))
    assert (changed.outcome, [w.message_id for w in changed.inbox]) == ("done", ["c"])
    assert (await agent.remove(mid("b"))).outcome == "gone"
    assert (await agent.remove(mid("m1"))).outcome == "gone"
    assert (await agent.remove(mid("never"))).outcome == "gone"


async def test_resuming_what_is_not_held_is_harmless(agent: Agent, on: Rig) -> None:
    before = await on.log(agent)
    assert (await agent.resume()).outcome == "done"
    assert await on.log(agent) == before


async def test_a_cancel_loses_no_text_that_was_waiting_for_its_frame(on: Rig) -> None:
    agent = await streaming(on)
    on.model.give(TextDelta(0, " a sen"))
    await on.model.taken()
    await agent.cancel("user")
    assert rows(agent.view)[1].body == "half a sen"


async def test_a_cancel_while_the_turn_before_is_closing_hits_the_one_that_follows(on: Rig) -> None:
    """There is no moment in which one turn is closed and the next, which must follow, is not open."""
    agent = await streaming(on)
    stopping = asyncio.ensure_future(agent.cancel("user", keep_inbox=True))
    await asyncio.sleep(0)
    sending = asyncio.ensure_future(agent.followup(content("two"), id=mid("m2")))
    journal = agent._journal  # type: ignore[attr-defined]
    async with asyncio.timeout(10):
        while journal.state.turns.last == 1 and journal.state.turns.open is not None:  # noqa: ASYNC110 - each step counts
            await asyncio.sleep(0)
    assert journal.state.current_turn() == 2, "the next turn is about to start in the step that closes this one"
    assert (await agent.cancel("user", keep_inbox=True)).outcome == "cancelled"
    assert (await stopping).outcome == "cancelled"
    assert (await sending).outcome == "queued"
    assert len(on.model.requests) <= 2
    assert [b.id for b in rows(agent.view) if b.kind == "turn-end"] == ["turn1", "turn2"]


class RudeModel(HandModel):
    """One with a bug: it answers a cancellation with an error of its own."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        try:
            async for chunk in super().stream(request):
                yield chunk
        except asyncio.CancelledError:
            raise RuntimeError("no manners") from None


async def test_a_cancel_wins_over_a_fault_of_our_own(tmp_path: Path) -> None:
    on = Rig(tmp_path, RudeModel())
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    assert (await agent.cancel("user")).outcome == "cancelled"
    assert [(b.kind, b.state, b.reason) for b in rows(agent.view)[1:]] == [
        ("assistant", "interrupted", None),
        ("turn-end", "interrupted", "aborted"),
    ]
    assert state(agent).inbox == ()
    await on.host.close()


async def test_a_hold_that_holds_nothing_any_more_is_not_told(on: Rig) -> None:
    agent = await streaming(on)
    await agent.followup(content("b"), id=mid("b"))
    await agent.cancel("user", keep_inbox=True)
    assert state(agent).hold == "cancel"
    await agent.remove(mid("b"))
    assert state(agent).hold is None
