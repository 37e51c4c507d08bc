"""What comes while a step is about to begin: until it has, nothing is claimed, and everything can still be changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentls.agent.agent import Agent, NotPending
from agentls.agent.hooks import Context, Enter, Hooks, Reject
from agentls.core.events import Dequeue, Discard, Enqueue, StepStart, TurnEnd, TurnStart, UserMessage
from agentls.core.reasons import Completed, MessageTrigger, TurnAborted
from agentls.core.sources import Notice, PluginSource
from tests.agent.hands import Gate, HandRig, asked, call, datas, ends, hands, over, state, waits
from tests.harness import content, idle, mid, notice, rows, sent_texts, types, until

REMARK = Context("remark", PluginSource("test", Notice("remark")))


@asynccontextmanager
async def entering(directory: Path, *queued: str) -> AsyncIterator[tuple[HandRig, Agent, Gate]]:
    """An agent whose first step waits for its `pre_step`; it claims `m1`, and `queued` wait behind it."""
    gate = Gate(verdict=Enter((REMARK,)))
    async with hands(directory, Hooks(pre_step=(gate,))) as on:
        agent = await on.agent()
        for name in ("m1", *queued):
            await agent.followup(content(name), id=mid(name))
        await gate.reached()
        assert gate.claims == [["m1"]]
        on.disk.acts.clear()
        yield on, agent, gate


async def test_an_agent_that_is_about_to_begin_runs_and_its_turn_has_a_number(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        assert state(agent).status == "running"
        turn = state(agent).turn
        assert turn is not None
        assert (turn.number, turn.step) == (1, 1)
        assert waits(agent) == [("m1", "queued", False)]
        assert rows(agent.view) == []
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["m1", "remark"]
        assert on.disk.acts[0] == (
            "D agent/inbox/dequeue, turn/start, step/start, user/message, user/message, request/header, request/sent"
        )


async def test_a_message_that_is_edited_meanwhile_is_asked_about_anew(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        assert (await agent.edit(mid("m1"), content("edited"))).outcome == "done"
        await gate.reached(2)
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["edited", "remark"]
        assert gate.claims == [["m1"], ["m1"]]
        repeat = await agent.followup(content("m1"), id=mid("m1"))
        assert (repeat.outcome, repeat.turn, repeat.repeated) == ("started", 1, True), "its fate and its hash stay"
        late = await agent.edit(mid("m1"), content("again"))
        assert (late.outcome, late.content) == ("gone", content("again"))


async def test_a_message_that_is_removed_meanwhile_leaves_no_turn(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        assert (await agent.remove(mid("m1"))).outcome == "done"
        await idle(agent)
        log = await on.log(agent)
        assert types(log)[1:] == ["agent/inbox/enqueue", "agent/inbox/discard"]
        assert (on.model.requests, state(agent).last_turn) == ([], None)
        gate.shut = False
        sent = await agent.followup(content("m2"), id=mid("m2"))
        assert (sent.outcome, sent.turn) == ("started", 1), "its number is free again"
        assert sent_texts(await over(on, agent, 1)) == ["m2", "remark"]


async def test_where_another_message_waits_its_turn_begins_instead(tmp_path: Path) -> None:
    async with entering(tmp_path, "m2") as (on, agent, gate):
        await agent.remove(mid("m1"))
        await gate.reached(2)
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["m2", "remark"]
        assert gate.claims == [["m1"], ["m2"]]
        assert datas(await on.log(agent), TurnStart) == [TurnStart(1, MessageTrigger((mid("m2"),)))]


async def test_a_message_that_is_moved_ahead_is_the_one_that_begins(tmp_path: Path) -> None:
    async with entering(tmp_path, "m2", "m3") as (on, agent, gate):
        await agent.move(mid("m3"), mid("m1"))
        await gate.reached(2)
        gate.shut = False
        await on.model.answer("1", 1)
        await on.model.answer("2", 2)
        sent = await over(on, agent, 3)
        assert [text for text in sent_texts(sent) if text.startswith("m")] == ["m3", "m1", "m2"]
        assert gate.claims == [["m1"], ["m3"], ["m1"], ["m2"]]


async def test_a_message_that_is_promoted_meanwhile_joins_the_turn_ahead_of_its_message(tmp_path: Path) -> None:
    async with entering(tmp_path, "m2") as (on, agent, gate):
        await agent.promote(mid("m2"))
        await gate.reached(2)
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["m2", "m1", "remark"]
        assert gate.claims == [["m1"], ["m2", "m1"]]
        assert len(ends(await on.log(agent))) == 1


async def test_a_move_to_no_place_is_refused_and_asks_nobody_anew(tmp_path: Path) -> None:
    async with entering(tmp_path, "m2") as (on, agent, gate):
        await agent.steer(content("s"), id=mid("s1"))
        before = await on.log(agent)
        for target in ("m2", "s1", "nobody"):
            with pytest.raises(NotPending, match=target):
                await agent.move(mid("m2"), mid(target))
        assert (await agent.move(mid("m2"), None)).outcome == "done", "it is there already"
        assert (await agent.move(mid("gone"), None)).outcome == "gone"
        assert await on.log(agent) == before
        assert len(gate.claims) == 1


async def test_a_context_that_comes_meanwhile_is_committed_alone(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        sent = await agent.inject(content("note"), id=mid("i1"), source=notice())
        assert sent.outcome == "injected"
        assert on.disk.acts == ["D user/message"]
        assert len(gate.claims) == 1, "nothing that is claimed has changed"
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["note", "m1", "remark"]
        assert ends(await on.log(agent)) == [Completed()]


async def test_a_steer_that_comes_meanwhile_joins_the_next_step(tmp_path: Path) -> None:
    """Statement 50: in the turn that is about to begin, and after its first answer."""
    async with entering(tmp_path) as (on, agent, gate):
        sent = await agent.steer(content("s"), id=mid("s1"))
        assert (sent.outcome, sent.turn) == ("steering", 1)
        assert (await agent.steer(content("t"), id=mid("t1"), expected_turn=1)).outcome == "steering"
        gate.shut = False
        assert sent_texts(await on.model.answer("done", 1)) == ["m1", "remark"]
        assert sent_texts(await over(on, agent, 2)) == ["m1", "remark", "done", "s", "t", "remark"]
        assert gate.claims == [["m1"], ["s1", "t1"]]


async def test_a_steer_during_a_tool_enters_before_the_next_request_of_its_turn(tmp_path: Path) -> None:
    """Statement 50."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        await agent.steer(content("s"), id=mid("s1"))
        on.bodies.end("a")
        sent = await over(on, agent, 2)
        assert [str(message.id) for message in sent.messages] == ["m1", "a1.1.1", "r:t1.1.1", "s1"]
        log = await on.log(agent)
        at = types(log).index("step/end")
        assert types(log)[at : at + 5] == [
            "step/end", "agent/inbox/dequeue", "step/start", "user/message", "request/sent",
        ]  # fmt: skip
        assert datas(log, StepStart) == [StepStart(1, 1), StepStart(1, 2)]


async def test_followups_that_come_meanwhile_stand_behind_what_is_claimed(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        sent = [await agent.followup(content(name), id=mid(name)) for name in ("m2", "m3")]
        assert [(one.outcome, one.position) for one in sent] == [("queued", 0), ("queued", 1)]
        other = await agent.steer(content("s"), id=mid("s1"), expected_turn=7)
        assert (other.outcome, other.position) == ("queued", 0)
        assert waits(agent) == [(name, "queued", False) for name in ("m1", "s1", "m2", "m3")]
        gate.shut = False
        await on.model.asked(1)
        await agent.cancel("user")


async def test_an_id_that_waits_already_is_refused_and_the_log_stays_as_it_was(tmp_path: Path) -> None:
    """Statement 59: as a value that carries the content back, not as an exception."""
    async with entering(tmp_path, "m2") as (on, agent, gate):
        before = await on.log(agent)
        for name in ("m1", "m2"):
            refused = await agent.followup(content("other"), id=mid(name))
            assert (refused.outcome, refused.reason, refused.content) == ("refused", "id-conflict", content("other"))
        assert (await on.log(agent), len(gate.claims)) == (before, 1)


@pytest.mark.parametrize("names", [None, 1])
async def test_a_cancel_meanwhile_ends_a_turn_that_holds_what_was_claimed(tmp_path: Path, names: int | None) -> None:
    """It may name the turn that has only its number yet."""
    async with entering(tmp_path, "m2") as (on, agent, gate):
        await agent.steer(content("s"), id=mid("s1"), expected_turn=9)
        assert (await agent.cancel("user", keep_inbox=True, turn=names)).outcome == "cancelled"
        assert on.disk.acts[1] == (
            "D turn/cancel, agent/inbox/dequeue, turn/start, user/message, turn/end, agent/inbox/hold"
        )
        log = await on.log(agent)
        assert ends(log) == [TurnAborted("user")]
        assert datas(log, Dequeue) == [Dequeue(mid("m1"), 1)]
        assert waits(agent) == [("s1", "queued", True), ("m2", "queued", True)]
        assert (on.model.requests, state(agent).status) == ([], "idle")
        gate.shut = False
        await agent.resume()
        await on.model.answer("1", 1)
        assert sent_texts(await over(on, agent, 2))[-2:] == ["m2", "remark"]


async def test_a_cancel_meanwhile_without_keep_discards_the_rest(tmp_path: Path) -> None:
    """Statement 55: one event for all of it."""
    async with entering(tmp_path, "m2", "m3") as (on, agent, _):
        await agent.cancel("user")
        assert on.disk.acts == [
            "D turn/cancel, agent/inbox/dequeue, turn/start, user/message, turn/end, agent/inbox/discard"
        ]
        log = await on.log(agent)
        assert datas(log, Discard) == [Discard((mid("m2"), mid("m3")), "cancel")]
        assert (waits(agent), on.model.requests) == ([], [])


async def test_a_cancel_meanwhile_that_names_another_turn_is_stale(tmp_path: Path) -> None:
    async with entering(tmp_path) as (on, agent, gate):
        assert (await agent.cancel("user", turn=2)).outcome == "stale"
        gate.shut = False
        await over(on, agent, 1)
        assert ends(await on.log(agent)) == [Completed()]


async def test_a_cancel_before_a_later_step_ends_the_turn_with_its_steering(tmp_path: Path) -> None:
    gate = Gate(shut=False)
    async with hands(tmp_path, Hooks(pre_step=(gate,))) as on:
        agent = await asked(on)
        gate.shut = True
        await agent.steer(content("s"), id=mid("s1"))
        call(on.model, ("look", "a"))
        await gate.reached(2)
        await agent.cancel("user", keep_inbox=True)
        assert on.disk.acts[-1] == "D turn/cancel, agent/inbox/dequeue, user/message, turn/end"
        assert ends(await on.log(agent)) == [TurnAborted("user")]
        gate.shut = False
        await agent.followup(content("on"), id=mid("m2"))
        assert sent_texts(await over(on, agent, 2))[-2:] == ["s", "on"]


async def test_a_rejected_step_holds_what_came_meanwhile(tmp_path: Path) -> None:
    """Statement 53: it stays, and nothing runs by itself."""
    async with entering(tmp_path, "m2") as (on, agent, gate):
        await agent.steer(content("s"), id=mid("s1"))
        gate.verdict = Reject("no")
        gate.shut = False
        await idle(agent)
        assert on.disk.acts[-1] == (
            "D agent/inbox/dequeue, turn/start, user/message, agent/inbox/update, turn/end, agent/inbox/hold"
        )
        assert waits(agent) == [("s1", "queued", True), ("m2", "queued", True)]
        assert (len(gate.claims), on.model.requests) == (1, [])


async def test_what_comes_in_one_tick_is_taken_in_its_order(tmp_path: Path) -> None:
    """Statement 58: whatever becomes of each, every id leaves once."""
    async with entering(tmp_path) as (on, agent, gate):
        await asyncio.gather(
            agent.edit(mid("m1"), content("first edit")),
            agent.followup(content("m2"), id=mid("m2")),
            agent.promote(mid("m2")),
            agent.edit(mid("m1"), content("second edit")),
            agent.followup(content("m3"), id=mid("m3")),
            agent.remove(mid("m3")),
        )
        await gate.reached(2)
        gate.shut = False
        assert sent_texts(await over(on, agent, 1)) == ["m2", "second edit", "remark"]
        log = await on.log(agent)
        assert len(datas(log, Enqueue)) == len(datas(log, Dequeue)) + len(datas(log, Discard)) == 3
        assert len(datas(log, TurnEnd)) == 1
        assert [event.message.id for event in datas(log, UserMessage)] == ["m2", "m1", "p1.1.1"]  # type: ignore[attr-defined]
