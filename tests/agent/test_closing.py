"""An agent that is being closed: what lands in that time waits for the next load, and no model is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from agentls.agent.agent import Agent, Sent
from agentls.agent.hooks import Enter, Entry, Hooks
from agentls.core.events import Enqueue
from agentls.core.ids import SessionId
from agentls.core.invariants import check_log
from agentls.core.reasons import TurnAborted
from agentls.store.store import SessionStore
from tests.agent.hands import (
    Before,
    Bodies,
    Gate,
    asked,
    call,
    datas,
    ends,
    hands,
    over,
    registry,
    request,
    shown,
    state,
    waits,
)
from tests.agent.memory import MemoryStore
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.harness import HandModel, Rig, content, idle, mid, sent_texts, until


async def resting(on: Rig, agent: Agent) -> None:
    await on.model.answer("done", 1)
    await idle(agent)


async def asking(on: Rig, agent: Agent) -> None:
    call(on.model, ("touch", "a"))
    await request(agent)


async def calling(on: Rig, agent: Agent) -> None:
    on.bodies.hold("a")  # type: ignore[attr-defined]
    call(on.model, ("solo", "a"))
    await until(lambda: on.bodies.begun)  # type: ignore[attr-defined]


@pytest.mark.parametrize("comes_to", [resting, shown, asking, calling])
@pytest.mark.parametrize("lands", ["followup", "steer"])
def test_a_message_that_lands_while_an_agent_closes_asks_no_model(
    tmp_path: Path, comes_to: Callable[[Rig, Agent], Awaitable[None]], lands: str
) -> None:
    """Statement 57, at every step of the close: what is accepted is in the log."""

    async def play(loop: SteppingLoop, step: int) -> int:
        bodies = Bodies()
        store = MemoryStore()
        on = Rig(tmp_path, HandModel(), store=cast(SessionStore, store), registry=registry(bodies))
        on.bodies = bodies  # type: ignore[attr-defined]
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await on.model.asked(1)
        await comes_to(on, agent)
        late: list[asyncio.Future[Sent]] = []
        send = agent.steer if lands == "steer" else agent.followup
        began = loop.steps
        loop.at(step, lambda: late.append(asyncio.ensure_future(send(content("late"), id=mid("late")))))
        await agent.close()
        took = loop.steps - began
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(on.model.requests) == 1, f"step {step} of {took}"
        sent = await late[0]
        log = store.logs[agent.id].events
        check_log(log)
        items = [data.item.id for data in datas(log, Enqueue) if isinstance(data, Enqueue)]
        assert (sent.outcome != "refused") == ("late" in items)
        assert state(agent).status != "waiting"
        return took

    step, steps = 0, 1
    while step < steps:
        steps = run_stepping(lambda loop, step=step: play(loop, step))  # type: ignore[misc]
        step += 1


@pytest.mark.parametrize("apart", [0, 1, 2])
def test_a_cancel_is_answered_when_its_agent_closes_right_after_it(tmp_path: Path, apart: int) -> None:
    """At every step of a beginning turn, also while its start is on its way to the disk."""

    async def play(loop: SteppingLoop, step: int) -> int:
        on = Rig(tmp_path, HandModel(), store=cast(SessionStore, MemoryStore()))
        agent = await on.agent()
        began = loop.steps
        sent = asyncio.ensure_future(agent.followup(content("go"), id=mid("m1")))
        stopping: list[asyncio.Future[object]] = []

        def stop() -> None:
            stopping.append(asyncio.ensure_future(agent.cancel("user")))
            loop.at(apart, lambda: stopping.append(asyncio.ensure_future(agent.close())))

        loop.at(step, stop)
        await sent
        await until(lambda: on.model.requests or len(stopping) == 2)
        took = loop.steps - began
        await until(lambda: len(stopping) == 2 and all(one.done() for one in stopping))
        return took

    step, steps = 0, 1
    while step < steps:
        steps = run_stepping(lambda loop, step=step: play(loop, step))  # type: ignore[misc]
        step += 1
    assert step > 3


async def test_what_a_step_was_about_to_take_waits_for_the_next_load(tmp_path: Path) -> None:
    """Closing is no cancel: a message whose claim is still tentative is treated as well as a crash would."""
    gate = Gate()
    async with hands(tmp_path, Hooks(pre_step=(gate,))) as on:
        agent = await on.agent()
        await agent.followup(content("one"), id=mid("m1"))
        await gate.reached()
        await agent.steer(content("two"), id=mid("m2"))
        name = agent.id
    async with hands(tmp_path) as again:
        agent = await again.host.get(name)
        assert waits(agent) == [("m2", "queued", True), ("m1", "queued", True)]
        assert state(agent).last_turn is None
        await agent.resume()
        assert sent_texts(await again.model.answer("ok", 1)) == ["two"]
        await over(again, agent, 2)


async def test_steering_that_a_step_was_about_to_take_goes_back_to_the_queue(tmp_path: Path) -> None:
    gate = Gate(shut=False)
    async with hands(tmp_path, Hooks(pre_step=(gate,))) as on:
        agent = await asked(on)
        gate.shut = True
        await agent.steer(content("s"), id=mid("s1"))
        on.model.text("first")
        on.model.finish()
        await gate.reached(2)
        name = agent.id
    async with hands(tmp_path) as again:
        agent = await again.host.get(name)
        assert waits(agent) == [("s1", "queued", True)]
        assert ends(await again.log(agent)) == [TurnAborted("disposed")]


async def test_a_hook_that_fails_when_it_is_stopped_costs_no_message(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def failing(entry: Entry) -> Enter:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("a hook's mistake")

    async with hands(tmp_path, Hooks(pre_step=(Before(failing),))) as on:
        agent = await on.agent()
        await agent.followup(content("one"), id=mid("m1"))
        await reached.wait()
        name = agent.id
    async with hands(tmp_path) as again:
        assert waits(await again.host.get(name)) == [("m1", "queued", True)]


async def test_a_hook_that_fails_at_the_close_keeps_nothing_held(tmp_path: Path) -> None:
    told: list[str] = []

    def failing(session: SessionId) -> None:
        raise RuntimeError("a hook's mistake")

    async with hands(tmp_path, Hooks(closed=(failing, told.append))) as on:
        agent = await on.agent()
        await agent.close()
        on.forget(agent)
        assert told == [agent.id]
        assert (await on.host.get(agent.id)) is not agent


async def test_a_close_that_is_cancelled_lets_the_session_go(tmp_path: Path) -> None:
    ended: list[str] = []
    async with hands(tmp_path) as on:
        on.bodies.hold("a")
        agent = await asked(on)
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        agent.view.on_end(lambda: ended.append("ended"))
        on.disk.gate = asyncio.Event()
        closing = asyncio.ensure_future(agent.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        on.disk.gate.set()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert ended == ["ended"]
        on.forget(agent)
        assert (await on.host.get(agent.id)) is not agent


async def test_whoever_fails_to_hear_of_the_end_keeps_nobody_else_from_it(tmp_path: Path) -> None:
    ended: list[str] = []

    def failing() -> None:
        raise RuntimeError("a listener's mistake")

    async with hands(tmp_path) as on:
        agent = await on.agent()
        for listener in (failing, lambda: ended.append("ended")):
            agent.view.on_end(listener)
        await on.host.delete(agent.id)
        assert ended == ["ended"]
        assert on.host.live(agent.id) is None
