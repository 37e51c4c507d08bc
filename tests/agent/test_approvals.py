"""A person's leave: asked for before anything starts, given once, and closed with the turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentls.agent.agent import Agent, Answered, UnknownRequest
from agentls.agent.state import OpenRequest
from agentls.core.errors import StoreUnavailable
from agentls.core.events import ApprovalAsked, ApprovalDecided, TurnCancel
from agentls.core.ids import CallId, RequestId
from agentls.core.json import digest
from agentls.core.reasons import Completed, TurnAborted
from agentls.tools.write import Write
from tests.agent.hands import HandRig, asked, call, codes, datas, ends, hands, over, request, results, state, waits
from tests.harness import content, idle, mid, rows, until

START = "assistant/message, tool/call"


async def asking(on: HandRig, *more: tuple[str, str]) -> tuple[Agent, OpenRequest]:
    """An agent whose call of `touch` waits for leave."""
    agent = await asked(on)
    on.disk.acts.clear()
    call(on.model, ("touch", "a"), *more)
    return agent, await request(agent)


async def test_a_call_that_asks_comes_in_its_order_and_with_its_barriers(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        assert on.bodies.begun == []
        answered = await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        assert answered == Answered("accepted", "vim")
        sent = await over(on, agent, 2)
        assert results(sent) == [("t1.1.1", "did a")]
        assert on.disk.acts[:7] == [
            START, "drop a1.1.1", "approval/asked", "D approval/decided", "D tool/start", "tool/result", "step/end",
        ]  # fmt: skip


async def test_what_waits_for_a_person_is_in_the_state_with_the_hash_of_what_is_shown(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        what = {"at": "a", "tool": "touch", "arguments": '{"at": "a"}'}
        assert open_request == OpenRequest(
            RequestId("q1.1.1"), "approval", open_request.block_id, digest(what), agent.id
        )
        assert state(agent).status == "waiting"
        assert state(agent).turn is not None
        (row,) = [row for row in rows(agent.view) if row.kind == "approval"]
        assert (row.id, row.request, row.state) == (open_request.block_id, "q1.1.1", "streaming")
        assert datas(await on.log(agent), ApprovalAsked) == [
            ApprovalAsked(RequestId("q1.1.1"), CallId("t1.1.1"), what, digest(what))
        ]
        await agent.cancel("user")
        assert (state(agent).status, state(agent).requests) == ("idle", ())


async def test_a_denied_call_is_told_with_the_note_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on, ("look", "b"))
        await agent.answer(
            open_request.request_id, "deny", shown=open_request.shown, by="vim", note="use the other file"
        )
        (denied, looked) = results(await over(on, agent, 2))
        assert "use the other file" in denied[1]
        assert looked == ("t1.1.2", "did b")
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "DENIED"), ("t1.1.2", None)]
        assert (ends(log), on.bodies.begun) == ([Completed()], ["b"])


async def test_deny_and_stop_is_one_batch_and_holds_what_waits(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on, ("look", "b"))
        await agent.followup(content("later"), id=mid("m2"))
        on.disk.acts.clear()
        answered = await agent.answer(
            open_request.request_id, "deny-and-stop", shown=open_request.shown, by="vim", note="use the other file"
        )
        assert answered.outcome == "accepted"
        await idle(agent)
        assert on.disk.acts[:2] == [
            "D approval/decided, turn/cancel",
            "D tool/result, tool/result, step/end, turn/end, agent/inbox/hold",
        ]
        log = await on.log(agent)
        assert datas(log, TurnCancel) == [TurnCancel(1, "user", keep_inbox=True)]
        assert codes(log) == [("t1.1.1", "DENIED"), ("t1.1.2", "ABORTED_BEFORE_DISPATCH")]
        assert ends(log) == [TurnAborted("user")]
        assert [row.call.state for row in rows(agent.view) if row.call is not None] == ["denied", "not-run"]
        assert (waits(agent), state(agent).hold) == ([("m2", "queued", True)], "cancel")
        assert (on.bodies.begun, len(on.model.requests)) == ([], 1)
        await agent.resume()
        (denied, _) = results(await over(on, agent, 2))
        assert denied[0] == "t1.1.1"
        assert "the person did not allow this call: use the other file" in denied[1]


async def test_deny_and_stop_closes_what_else_is_asked(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        call(on.model, ("peek", "a"), ("peek", "b"))
        second = await request(agent, 2)
        await agent.answer(second.request_id, "deny-and-stop", shown=second.shown, by="vim")
        await idle(agent)
        decided = datas(await on.log(agent), ApprovalDecided)
        assert decided == [
            ApprovalDecided(RequestId("q1.1.2"), "deny-and-stop", "vim"),
            ApprovalDecided(RequestId("q1.1.1"), "cancelled"),
        ]


async def test_an_answer_to_something_else_than_what_is_asked_changes_nothing(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        before = await on.log(agent)
        assert await agent.answer(open_request.request_id, "allow", shown="sha256:0", by="vim") == Answered("changed")
        assert (await on.log(agent), on.bodies.begun) == (before, [])
        await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        await over(on, agent, 2)


async def test_a_late_answer_names_who_came_first(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        name, shown = open_request.request_id, open_request.shown
        await agent.answer(name, "deny", shown=shown, by="vim")
        assert await agent.answer(name, "allow", shown=shown, by="code") == Answered("already-resolved", "vim")
        assert await agent.answer(name, "allow", shown="sha256:0", by="code") == Answered("already-resolved", "vim")
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "DENIED")]
        assert await agent.answer(name, "allow", shown=shown, by="code") == Answered("already-resolved", "vim")


async def test_of_two_answers_at_once_one_counts(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        name, shown = open_request.request_id, open_request.shown
        first, second, third = await asyncio.gather(
            agent.answer(name, "deny", shown=shown, by="vim"),
            agent.answer(name, "allow", shown=shown, by="code"),
            agent.answer(name, "deny-and-stop", shown=shown, by="code"),
        )
        assert (first, second, third) == (
            Answered("accepted", "vim"), Answered("already-resolved", "vim"), Answered("already-resolved", "vim"),
        )  # fmt: skip
        await over(on, agent, 2)
        assert datas(await on.log(agent), ApprovalDecided) == [ApprovalDecided(name, "deny", "vim")]
        assert on.bodies.begun == []


async def test_a_cancel_closes_what_is_asked_in_its_own_batch(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        on.disk.acts.clear()
        await agent.cancel("user", keep_inbox=True)
        assert on.disk.acts[:2] == ["D turn/cancel, approval/decided", "D tool/result, step/end, turn/end"]
        assert codes(await on.log(agent)) == [("t1.1.1", "ABORTED_BEFORE_DISPATCH")]
        late = await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        assert late == Answered("already-resolved")
        (row,) = [row for row in rows(agent.view) if row.kind == "approval"]
        assert (row.state, on.bodies.begun) == ("interrupted", [])


async def test_a_call_that_was_denied_right_before_a_cancel_is_told_as_denied(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        await asyncio.gather(
            agent.answer(open_request.request_id, "deny", shown=open_request.shown, by="vim"), agent.cancel("user")
        )
        assert codes(await on.log(agent)) == [("t1.1.1", "DENIED")]


async def test_a_body_is_told_what_a_person_allowed(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on, ("look", "b"))
        await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        await over(on, agent, 2)
        assert on.bodies.allowed == [{"at": "a"}, None]


async def test_what_becomes_something_else_while_a_person_reads_is_not_done(tmp_path: Path) -> None:
    """They allowed a new file in `docs`, which has become a link to the scripts that git runs."""
    (tmp_path / "docs").mkdir()
    (tmp_path / ".git/hooks").mkdir(parents=True)
    async with hands(tmp_path / "state") as on:
        on.registry.register(Write())
        agent = await on.agent(tmp_path.as_uri())
        await agent.followup(content("go"), id=mid("m1"))
        await on.model.asked(1)
        call(on.model, ("write", '{"path": "docs/post-checkout", "content": "#!/bin/sh\\n"}'))
        open_request = await request(agent)
        (tmp_path / "docs").rmdir()
        (tmp_path / "docs").symlink_to(".git/hooks")
        await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "STALE")]
    assert list((tmp_path / ".git/hooks").iterdir()) == []


async def test_an_answer_and_a_cancel_in_one_tick_are_taken_in_their_order(tmp_path: Path) -> None:
    """What was allowed and then stopped never starts."""
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        answered, _ = await asyncio.gather(
            agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim"),
            agent.cancel("user"),
        )
        assert answered.outcome == "accepted"
        await idle(agent)
        assert codes(await on.log(agent)) == [("t1.1.1", "ABORTED_BEFORE_DISPATCH")]
        assert on.bodies.begun == []


@pytest.mark.parametrize("name", ["q9.9.9", "q1.1.2", ""])
async def test_what_was_never_asked_cannot_be_answered(tmp_path: Path, name: str) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        with pytest.raises(UnknownRequest, match=f'"{name}"'):
            await agent.answer(RequestId(name), "allow", shown=open_request.shown, by="vim")


async def test_calls_beside_each_other_are_asked_about_at_once_and_answered_in_any_order(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        call(on.model, ("peek", "a"), ("look", "b"), ("peek", "c"), ("touch", "d"))
        await request(agent, 2)
        await until(lambda: on.bodies.begun == ["b"])
        first, second = state(agent).requests
        await agent.answer(second.request_id, "allow", shown=second.shown, by="vim")
        await until(lambda: on.bodies.begun == ["b", "c"])
        assert codes(await on.log(agent)) == [], "results wait for the first call's"
        await agent.answer(first.request_id, "deny", shown=first.shown, by="vim")
        await until(lambda: [one.request_id for one in state(agent).requests] == ["q1.1.3"])
        last = await request(agent)
        await agent.answer(last.request_id, "allow", shown=last.shown, by="vim")
        await over(on, agent, 2)
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "DENIED"), ("t1.1.2", None), ("t1.1.3", None), ("t1.1.4", None)]


async def test_what_a_person_does_while_they_are_asked_waits_for_the_next_step(tmp_path: Path) -> None:
    """An agent that waits for an answer counts as running."""
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        assert (await agent.steer(content("s"), id=mid("s1"))).outcome == "steering"
        assert (await agent.followup(content("f"), id=mid("m2"))).outcome == "queued"
        await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        sent = await on.model.answer("done", 2)
        assert [str(message.id) for message in sent.messages] == ["m1", "a1.1.1", "r:t1.1.1", "s1"]
        await over(on, agent, 3)


async def test_an_answer_that_cannot_be_saved_starts_nothing(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, open_request = await asking(on)
        on.disk.full = True
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        on.disk.full = False
        await until(lambda: state(agent).store == "ok")
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_NOT_STARTED")]
        assert on.bodies.begun == []
        late = await agent.answer(open_request.request_id, "allow", shown=open_request.shown, by="vim")
        assert late == Answered("already-resolved")
