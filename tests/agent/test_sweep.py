"""Something happens at every step of the event loop of ten turns: what must hold all the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agentls.agent.agent import Agent, Sent
from agentls.agent.pages import render
from agentls.core.blocks import ToolCallBlock, ToolResultBlock
from agentls.core.events import Dequeue, Discard, Enqueue, Event
from agentls.core.ids import CallId
from agentls.core.invariants import check_log
from agentls.core.session import SessionState
from agentls.models.model import ModelRequest
from agentls.store.store import SessionStore
from tests.agent.memory import MemoryStore
from tests.agent.scenario import TURNS, Scene
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.harness import content, mid, notice, rows

ACTIONS: dict[str, Callable[[Agent], Awaitable[object]]] = {
    "send": lambda agent: agent.followup(content("sent"), id=mid("x")),
    "quiet": lambda agent: agent.send(content("quiet"), id=mid("x"), wakeup=False),
    "steer": lambda agent: agent.steer(content("steered"), id=mid("x")),
    "inject": lambda agent: agent.inject(content("note"), id=mid("x"), source=notice()),
    "cancel": lambda agent: agent.cancel("user"),
    "cancel and keep": lambda agent: agent.cancel("user", keep_inbox=True),
    "edit": lambda agent: agent.edit(mid("second"), content("edited")),
    "remove": lambda agent: agent.remove(mid("second")),
    "remove the first": lambda agent: agent.remove(mid("first")),
    "promote": lambda agent: agent.promote(mid("second")),
    "move": lambda agent: agent.move(mid("second"), mid("first")),
    "answer": lambda agent: _answer(agent),
}


REORDERING = ("promote", "move", "remove the first")
"""Actions after which the two messages may stand in another order."""


async def _answer(agent: Agent) -> object:
    state = agent.view.state
    assert state is not None
    for request in state.requests:
        return await agent.answer(request.request_id, "allow", shown=request.shown, by="another")
    return None


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("turn", TURNS)
def test_whatever_comes_at_any_step_of_a_turn_the_log_adds_up(
    turn: str, action: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Statements 49 and 58 at every step: nothing hangs, what waits has its turn in its order, every id has one exit,
    what is drawn is what the log says, and each request has the answers of its calls where a provider takes them."""
    step, steps = 0, 1
    while step < steps:
        steps = run_stepping(lambda loop, step=step: _play(loop, tmp_path, turn, action, step))  # type: ignore[misc]
        bad = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert not bad, f"step {step} of {steps}: {bad[0]}"
        step += 1


async def _play(loop: SteppingLoop, tmp_path: Path, turn: str, action: str, step: int) -> int:
    """Play a turn and one that waits behind it, with the action at one step; how many steps it took."""
    store = MemoryStore()
    scene = Scene(tmp_path, turn, cast(SessionStore, store))
    agent = await scene.agent()
    scene.decides(agent)
    deeds: list[asyncio.Future[object]] = []
    loop.at(step, lambda: deeds.append(asyncio.ensure_future(ACTIONS[action](agent))))
    began = loop.steps
    sent = [
        await agent.followup(content("one"), id=mid("first")),
        await agent.followup(content("two"), id=mid("second")),
    ]
    await _rest(agent)
    took = loop.steps - began
    while not deeds:  # noqa: ASYNC110 - the loop counts steps, and so must the test
        await asyncio.sleep(0)
    done = await deeds[0]
    if isinstance(done, Sent):
        sent.append(done)
    await _rest(agent)
    await agent.resume()
    assert (await agent.followup(content("three"), id=mid("last"))).outcome in ("started", "queued")
    await _rest(agent)
    events = await scene.log(agent)
    _check(events, agent, sent)
    if action not in REORDERING:
        turns = {str(event.data.id): event.data.turn for event in events if isinstance(event.data, Dequeue)}
        # What a hold keeps to the end has no turn.
        taken = [turns[name] for name in ("first", "second", "last") if name in turns]
        assert taken == sorted(taken)
    for request in scene.model.requests:
        _check_request(request)
    await scene.host.close()
    return took


async def _rest(agent: Agent) -> None:
    for _ in range(5000):
        state = agent.view.state
        assert state is not None
        if state.status == "idle" and agent._loop._driver.done():  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0)
    raise AssertionError("it never comes to rest")


def _check(events: list[Event], agent: Agent, sent: list[Sent]) -> None:
    check_log(events)
    exits: dict[str, list[str]] = {}
    entered = {str(event.data.item.id) for event in events if isinstance(event.data, Enqueue)}
    for event in events:
        match event.data:
            case Dequeue(message):
                exits.setdefault(message, []).append("taken")
            case Discard(ids):
                for gone in ids:
                    exits.setdefault(gone, []).append("discarded")
    queued = {str(one.message_id) for one in sent if one.outcome in ("started", "queued", "steering")} | {"last"}
    assert entered == queued, "what was accepted is in the log, and nothing else"
    waiting = {str(item.message_id) for item in cast(Any, agent.view.state).inbox}
    for name in entered:
        assert len(exits.get(name, ())) == (0 if name in waiting else 1), name
    assert SessionState().apply_all(events) == agent._journal.state  # type: ignore[attr-defined]
    _, drawn = render(events)
    assert rows(agent.view) == drawn, "live and replayed transcripts are one"


def _check_request(request: ModelRequest) -> None:
    """Every call is answered, in order and before anything else is said, and nothing else is."""
    due: list[CallId] = []
    for message in request.messages:
        results = [block.tool_call_id for block in message.content if isinstance(block, ToolResultBlock)]
        assert results == due[: len(results)], "results answer the calls before them, in their order"
        due = due[len(results) :]
        if not results:
            assert due == [], "nothing is said between a call and its result"
            due = [block.id for block in message.content if isinstance(block, ToolCallBlock)]
    assert due == [], "no call is left open"
