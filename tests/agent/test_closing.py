"""An agent that is being closed: what lands in that time waits for the next load, and no model is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from agentls.agent.agent import Agent, Sent
from agentls.core.events import Enqueue
from agentls.core.invariants import check_log
from agentls.store.store import SessionStore
from tests.agent.hands import Bodies, call, datas, registry, request, state
from tests.agent.memory import MemoryStore
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.harness import HandModel, Rig, content, idle, mid, until


async def resting(on: Rig, agent: Agent) -> None:
    await on.model.answer("done", 1)
    await idle(agent)


async def streaming(on: Rig, agent: Agent) -> None:
    on.model.text("half")


async def asking(on: Rig, agent: Agent) -> None:
    call(on.model, ("touch", "a"))
    await request(agent)


async def calling(on: Rig, agent: Agent) -> None:
    on.bodies.hold("a")  # type: ignore[attr-defined]
    call(on.model, ("solo", "a"))
    await until(lambda: on.bodies.begun)  # type: ignore[attr-defined]


@pytest.mark.parametrize("comes_to", [resting, streaming, asking, calling])
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
