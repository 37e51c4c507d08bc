"""The calls of a step: what runs beside what, what is on disk before it, and what a stop or a full disk leaves."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from agentls.agent.agent import Agent, Answered
from agentls.agent.hooks import Enter, Entry, Hooks, Use
from agentls.agent.request import Requests
from agentls.agent.tool_calls import LIMIT
from agentls.core.events import ApprovalAsked, ApprovalDecided, RequestSent, ToolResult, ToolStart
from agentls.core.json import JsonValue
from agentls.core.reasons import Completed, TurnAborted, TurnFailed
from agentls.core.session import SessionState
from agentls.tools.tool import Output
from tests.agent.hands import (
    Before,
    Guarding,
    HandRig,
    asked,
    call,
    codes,
    datas,
    ends,
    hands,
    over,
    request,
    results,
    state,
)
from tests.agent.watched import Disk
from tests.harness import content, idle, mid, notice, sent_texts, until


async def test_a_call_starts_on_disk_before_its_body_and_is_answered_after_it(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        on.disk.acts.clear()
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        assert on.disk.acts == ["assistant/message, tool/call", "drop a1.1.1", "D tool/start"]
        on.bodies.end("a", "seen")
        assert results(await over(on, agent, 2)) == [("t1.1.1", "seen")]
        assert on.disk.acts[3:6] == ["tool/result", "step/end", "D step/start, request/sent"]


# Beside each other, and in turn ----------------------------------------------------------------------------------


async def test_calls_run_in_groups_and_are_answered_in_the_models_order(tmp_path: Path) -> None:
    """Statement 61: two beside each other, one alone, two beside each other."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold(*"abcde")
        call(on.model, ("look", "a"), ("look", "b"), ("solo", "c"), ("look", "d"), ("look", "e"))
        await until(lambda: on.bodies.begun == ["a", "b"])
        on.bodies.end("b")
        await until(lambda: "t1.1.2" in [str(one) for one in agent._loop._tools.finished])  # type: ignore[attr-defined]
        assert on.bodies.begun == ["a", "b"], "the one that stands alone waits for both"
        assert codes(await on.log(agent)) == [], "the second one waits for the first one's result"
        on.bodies.end("a")
        await until(lambda: on.bodies.begun == ["a", "b", "c"])
        assert codes(await on.log(agent)) == [("t1.1.1", None), ("t1.1.2", None)]
        on.bodies.end("c")
        await until(lambda: on.bodies.begun == ["a", "b", "c", "d", "e"])
        on.bodies.end("e")
        on.bodies.end("d")
        sent = await over(on, agent, 2)
        assert results(sent) == [(f"t1.1.{n}", f"did {at}") for n, at in enumerate("abcde", start=1)]


async def test_a_cancel_keeps_what_finished_and_says_what_had_begun(tmp_path: Path) -> None:
    """Statement 62, where ours differs: a call that had begun when it was stopped is told as `ABORTED`, since it may
    have acted. At most so many run at once; what finished keeps its own result."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        places = [f"p{n}" for n in range(LIMIT + 3)]
        on.bodies.hold(*places)
        call(on.model, *(("look", at) for at in places))
        await until(lambda: len(on.bodies.begun) == LIMIT)
        on.bodies.end("p1", "seen")
        await until(lambda: len(on.bodies.begun) == LIMIT + 1)
        await agent.cancel("user")
        assert on.bodies.begun == places[: LIMIT + 1], "never more than that at once"
        assert sorted(on.bodies.stopped) == sorted(at for at in on.bodies.begun if at != "p1")
        log = await on.log(agent)
        began = [("t1.1.1", "ABORTED"), ("t1.1.2", None), *((f"t1.1.{n}", "ABORTED") for n in range(3, LIMIT + 2))]
        rest = [(f"t1.1.{n}", "ABORTED_BEFORE_DISPATCH") for n in (LIMIT + 2, LIMIT + 3)]
        assert codes(log) == [*began, *rest]
        assert ends(log) == [TurnAborted("user")]
        await agent.followup(content("again"), id=mid("m2"))
        assert results(await over(on, agent, 2))[1] == ("t1.1.2", "seen")


async def test_a_fault_of_ours_starts_nothing_more_and_lets_run_what_runs(tmp_path: Path) -> None:
    """Statement 63, where ours differs: calls without a result get one that says what is known of them, since no
    provider takes a request without."""

    async def fails(use: Use) -> None:
        if use.arguments["at"] == "c":
            await until(lambda: on.bodies.begun == ["a", "b"])
            raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(guard=(Guarding(fails),))) as on:
        agent = await asked(on)
        on.bodies.hold("a", "b")
        await agent.followup(content("later"), id=mid("m2"))
        call(on.model, ("look", "a"), ("look", "b"), ("look", "c"), ("solo", "d"))
        await until(lambda: agent._loop._tools._fault)  # type: ignore[attr-defined]
        on.bodies.end("b")
        on.bodies.end("a")
        await idle(agent)
        assert on.bodies.begun == ["a", "b"]
        log = await on.log(agent)
        assert codes(log) == [
            ("t1.1.1", None), ("t1.1.2", None),
            *((f"t1.1.{n}", "TOOL_NOT_STARTED") for n in (3, 4)),
        ]  # fmt: skip
        (end,) = ends(log)
        assert isinstance(end, TurnFailed)
        assert (end.failure.code, state(agent).hold) == ("INTERNAL", "error")


async def test_a_fault_takes_back_what_another_call_asks_a_person(tmp_path: Path) -> None:
    async def fails(use: Use) -> None:
        raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(guard=(Guarding(fails),))) as on:
        agent = await asked(on)
        call(on.model, ("peek", "a"), ("look", "b"))
        await idle(agent)
        assert on.bodies.begun == []
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "TOOL_NOT_STARTED"), ("t1.1.2", "TOOL_NOT_STARTED")]
        assert len(datas(log, ApprovalAsked)) == 1
        assert [one.decision for one in datas(log, ApprovalDecided)] == ["cancelled"]  # type: ignore[attr-defined]
        assert state(agent).requests == ()


async def test_after_a_fault_leave_is_not_taken_any_more_while_bodies_run_on(tmp_path: Path) -> None:
    """Statement 63."""

    async def fails(use: Use) -> None:
        if use.arguments["at"] == "c":
            await until(lambda: on.bodies.begun and state(agent).requests)
            raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(guard=(Guarding(fails),))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("look", "a"), ("peek", "b"), ("look", "c"))
        waiting = await request(agent)
        await until(lambda: not state(agent).requests)
        late = await agent.answer(waiting.request_id, "allow", shown=waiting.shown, by="vim")
        assert late == Answered("already-resolved")
        assert ends(await on.log(agent)) == [], "the body of the first call still runs"
        on.bodies.end("a")
        await idle(agent)
        assert codes(await on.log(agent)) == [
            ("t1.1.1", None), ("t1.1.2", "TOOL_NOT_STARTED"), ("t1.1.3", "TOOL_NOT_STARTED"),
        ]  # fmt: skip


async def deaf(on: HandRig) -> Agent:
    """An agent with two calls, of which the first runs and does not hear of its end."""
    agent = await asked(on)
    on.bodies.hold("a")
    on.bodies.deaf.add("a")
    call(on.model, ("solo", "a"), ("solo", "b"))
    await until(lambda: on.bodies.begun)
    return agent


async def test_a_body_that_does_not_hear_of_its_end_is_left_behind(tmp_path: Path) -> None:
    async with hands(tmp_path, grace=0.01) as on:
        agent = await deaf(on)
        await agent.cancel("user")
        assert codes(await on.log(agent)) == [("t1.1.1", "ABORTED"), ("t1.1.2", "ABORTED_BEFORE_DISPATCH")]
        await agent.followup(content("go on"), id=mid("m2"))
        await on.model.asked(2)
        call(on.model, ("solo", "c"))
        await on.model.asked(3)
        on.bodies.end("a", "far too late")
        assert results(await over(on, agent, 3))[2:] == [("t2.1.1", "did c")]
        assert len(codes(await on.log(agent))) == 3


async def test_a_close_leaves_behind_what_does_not_hear_of_it(tmp_path: Path) -> None:
    async with hands(tmp_path, grace=0.01) as on:
        agent = await deaf(on)
        await on.host.close()
        async with hands(tmp_path) as again:
            log = await again.log(await again.host.get(agent.id))
            assert codes(log) == [("t1.1.1", "ABORTED"), ("t1.1.2", "ABORTED_BEFORE_DISPATCH")]
            assert ends(log) == [TurnAborted("disposed")]
        on.bodies.end("a")


async def test_a_disk_that_refuses_is_tried_again_also_beside_a_body_that_does_not_end(tmp_path: Path) -> None:
    async with hands(tmp_path, grace=0.01) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        on.bodies.deaf.add("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.disk.full = True
        await agent.followup(content("more"), id=mid("m2"))
        await until(lambda: state(agent).store == "unavailable")
        on.disk.full = False
        await until(lambda: state(agent).store == "ok")
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_OUTCOME_UNKNOWN")]
        on.bodies.end("a")


async def test_a_cancel_ends_what_a_fault_waits_for(tmp_path: Path) -> None:
    async def fails(use: Use) -> None:
        if use.arguments["at"] == "b":
            await until(lambda: on.bodies.begun)
            raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(guard=(Guarding(fails),))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("look", "a"), ("look", "b"))
        await until(lambda: agent._loop._tools._fault)  # type: ignore[attr-defined]
        await agent.cancel("user")
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "ABORTED"), ("t1.1.2", "ABORTED_BEFORE_DISPATCH")]
        assert ends(log) == [TurnAborted("user")]


async def test_a_body_that_cannot_be_stopped_any_more_keeps_its_result(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        on.bodies.stubborn.add("a")
        call(on.model, ("solo", "a"), ("solo", "b"))
        await until(lambda: on.bodies.begun)
        await agent.cancel("user")
        assert codes(await on.log(agent)) == [("t1.1.1", None), ("t1.1.2", "ABORTED_BEFORE_DISPATCH")]
        barriers = [act for act in on.disk.acts if act.startswith("D ")]
        assert barriers[-2:] == ["D turn/cancel", "D tool/result, tool/result, step/end, turn/end"]
        await agent.followup(content("and?"), id=mid("m2"))
        assert results(await over(on, agent, 2))[0] == ("t1.1.1", "did a before it stopped")


async def test_a_cancel_while_a_start_is_being_saved_says_that_the_call_may_have_acted(tmp_path: Path) -> None:
    """What is on disk then is that it started, so that is what is told; its body does not run."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        gate = asyncio.Event()
        call(on.model, ("touch", "a"))
        waiting = await request(agent)
        on.disk.gate = gate
        answering = asyncio.ensure_future(agent.answer(waiting.request_id, "allow", shown=waiting.shown, by="vim"))
        await until(lambda: agent._journal.state.requests.closed)  # type: ignore[attr-defined]
        for _ in range(20):
            await asyncio.sleep(0)
        (one,) = agent._journal.state.turns.open.calls  # type: ignore[attr-defined]
        assert not one.started, "leave counts once it is on disk"
        gate.set()
        await answering
        gate.clear()
        await until(lambda: agent._journal.state.turns.open.calls[0].started)  # type: ignore[attr-defined]
        assert on.bodies.begun == []
        cancelling = asyncio.ensure_future(agent.cancel("user"))
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await cancelling
        assert codes(await on.log(agent)) == [("t1.1.1", "ABORTED")]
        assert on.bodies.begun == []


async def test_what_a_tool_does_to_its_answer_afterwards_is_not_in_the_log(tmp_path: Path) -> None:
    """Statement 33."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        meta: dict[str, JsonValue] = {"lines": 1}
        on.bodies.end("a", Output("seen", meta))
        await over(on, agent, 2)
        meta["lines"] = 2
        (result,) = datas(await on.log(agent), ToolResult)
        assert isinstance(result, ToolResult)
        assert result.meta == {"lines": 1}


async def test_each_request_extends_the_one_before_and_can_be_made_again_from_the_log(tmp_path: Path) -> None:
    """Statement 66, with calls, contexts and a retry by the person."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        await agent.inject(content("note"), id=mid("i1"), source=notice())
        call(on.model, ("look", "a"), ("none", "b"))
        await on.model.asked(2)
        on.model.fail()
        await idle(agent)
        await agent.retry(1, id=mid("again"))
        await over(on, agent, 3)
        log = await on.log(agent)
        requests = [event for event in log if isinstance(event.data, RequestSent)]
        assert len(requests) == len(on.model.requests) == 3
        for event, sent in zip(requests, on.model.requests, strict=True):
            assert isinstance(event.data, RequestSent)
            assert Requests().of(SessionState().apply_all(log[: event.data.boundary + 1])) == sent
        for sent, later in pairwise(on.model.requests):
            assert later.messages[: len(sent.messages)] == sent.messages


# A disk that refuses ---------------------------------------------------------------------------------------------


async def test_nothing_runs_before_its_start_is_on_disk(tmp_path: Path) -> None:
    """Statement 47: no body without its barrier; once the disk takes writes again the call has an error for a
    result."""
    disk = Disk()

    async def fills(use: Use) -> None:
        disk.full = True

    async with hands(tmp_path, Hooks(guard=(Guarding(fills),)), disk) as on:
        agent = await asked(on)
        call(on.model, ("solo", "a"))
        await until(lambda: state(agent).store == "unavailable")
        assert datas(await on.log(agent), ToolStart) == []
        disk.full = False
        await until(lambda: state(agent).store == "ok")
        assert on.bodies.begun == []
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "TOOL_NOT_STARTED")]
        (end,) = ends(log)
        assert isinstance(end, TurnFailed)
        assert end.failure.code == "STORE_UNAVAILABLE"


async def test_a_result_that_could_not_be_saved_is_saved_later(tmp_path: Path) -> None:
    """What a call has done is known, so that nobody is told to look for it."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"), ("solo", "b"))
        await until(lambda: on.bodies.begun)
        on.disk.full = True
        on.bodies.end("a", "seen")
        await until(lambda: state(agent).store == "unavailable")
        on.disk.full = False
        await until(lambda: state(agent).store == "ok")
        assert codes(await on.log(agent)) == [("t1.1.1", None), ("t1.1.2", "TOOL_NOT_STARTED")]
        await agent.followup(content("on"), id=mid("m2"))
        assert results(await over(on, agent, 2))[0] == ("t1.1.1", "seen")


async def test_no_model_is_asked_before_its_request_is_on_disk(tmp_path: Path) -> None:
    """Statement 47."""
    disk = Disk()

    async def fills(entry: Entry) -> Enter:
        if entry.step == 2:
            await until(lambda: "step/end" in disk.acts)
            disk.full = True
        return Enter()

    async with hands(tmp_path, Hooks(pre_step=(Before(fills),)), disk) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        await until(lambda: state(agent).store == "unavailable")
        assert len(on.model.requests) == 1
        disk.full = False
        await until(lambda: state(agent).store == "ok")
        log = await on.log(agent)
        assert (len(on.model.requests), len(datas(log, RequestSent))) == (1, 1)
        assert codes(log) == [("t1.1.1", None)]


def _circle() -> JsonValue:
    value: dict[str, JsonValue] = {}
    value["itself"] = value
    return value


NO_JSON = pytest.mark.parametrize("value", [float("nan"), object(), _circle()], ids=["nan", "object", "circle"])


@NO_JSON
async def test_what_json_cannot_hold_never_enters_the_log(tmp_path: Path, value: JsonValue) -> None:
    """Statement 29: it is refused, and neither the log nor its numbers are touched; ours finds it when it writes."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        await over(on, agent, 1)
        before = await on.log(agent)
        refused = await agent.followup(content("odd"), id=mid("m2"), meta={"odd": value})
        assert (refused.outcome, refused.reason, refused.content) == ("refused", "store-unavailable", content("odd"))
        await until(lambda: state(agent).store == "ok")
        assert await on.log(agent) == before
        assert (await agent.followup(content("even"), id=mid("m2"))).outcome == "started"
        assert sent_texts(await over(on, agent, 2))[-1] == "even"


@NO_JSON
async def test_an_answer_with_what_json_cannot_hold_fails_its_call_only(tmp_path: Path, value: JsonValue) -> None:
    """Statement 29."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.bodies.end("a", Output("seen", {"odd": value}))
        await over(on, agent, 2)
        log = await on.log(agent)
        assert (codes(log), ends(log)) == ([("t1.1.1", "TOOL_FAILED")], [Completed()])
