"""Every extension point of the loop: what a hook can change there, and what becomes of the turn when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.agent.hooks import Context, Enter, Entry, Hooks, Outcome, Proposal, Reject, Use
from agentls.core.errors import UserError
from agentls.core.events import Hold, ModelRef, RequestHeader, StepStart, ToolCall, TurnStart
from agentls.core.json import JsonObject
from agentls.core.reasons import Blocked, Completed, MessageTrigger, TurnAborted, TurnFailed
from agentls.core.session import SessionState
from agentls.core.sources import HookSource, Notice, PluginSource, UserSource
from agentls.tools.tool import Output, ToolError
from tests.agent.hands import (
    After,
    Before,
    Changing,
    Guarding,
    Stopping,
    asked,
    call,
    codes,
    datas,
    ends,
    hands,
    over,
    results,
    state,
    waits,
)
from tests.harness import content, idle, mid, rows, sent_texts, types, until


def context(text: str) -> Context:
    return Context(text, PluginSource("test", Notice(text)))


# Before a step ---------------------------------------------------------------------------------------------------


async def test_what_pre_step_adds_stands_after_what_the_step_claims(tmp_path: Path) -> None:
    begun: list[str] = []

    def adds(name: str) -> Before:
        async def does(entry: Entry) -> Enter:
            return Enter((context(f"{name} {entry.step}"),), lambda: begun.append(f"{name} {entry.step}"))

        return Before(does)

    async with hands(tmp_path, Hooks(pre_step=(adds("a"), adds("b")))) as on:
        agent = await asked(on)
        assert begun == ["a 1", "b 1"]
        call(on.model, ("look", "x"))
        sent = await on.model.asked(2)
        assert sent_texts(sent)[:3] == ["go", "a 1", "b 1"]
        assert [str(message.id) for message in sent.messages] == [
            "m1", "p1.1.1", "p1.1.2", "a1.1.1", "r:t1.1.1", "p1.2.1", "p1.2.2",
        ]  # fmt: skip
        await over(on, agent, 2)
        assert [row.summary for row in rows(agent.view) if row.kind == "context"] == ["a 1", "b 1", "a 2", "b 2"]


async def test_a_rejected_step_ends_its_turn_with_its_messages_in_it(tmp_path: Path) -> None:
    """Statement 53, where ours differs: the messages of the refused step are in the turn, and the next request reads
    them; what else waits is held."""

    async def rejects(entry: Entry) -> Enter | Reject:
        if entry.turn > 1:
            return Enter()
        await agent.followup(content("later"), id=mid("m2"))
        return Reject("not today")

    async with hands(tmp_path, Hooks(pre_step=(Before(rejects),))) as on:
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        assert on.disk.acts[-1] == ("D agent/inbox/dequeue, turn/start, user/message, turn/end, agent/inbox/hold")
        log = await on.log(agent)
        assert (ends(log), datas(log, StepStart), on.model.requests) == ([Blocked("not today")], [], [])
        assert datas(log, TurnStart) == [TurnStart(1, MessageTrigger((mid("m1"),)))]
        assert (waits(agent), state(agent).hold) == ([("m2", "queued", True)], "blocked")
        await agent.resume()
        assert sent_texts(await over(on, agent, 1)) == ["go", "later"]


async def test_a_later_step_that_is_rejected_ends_the_turn_it_is_in(tmp_path: Path) -> None:
    async def rejects(entry: Entry) -> Enter | Reject:
        return Reject("enough") if entry.step == 2 else Enter()

    async with hands(tmp_path, Hooks(pre_step=(Before(rejects),))) as on:
        agent = await asked(on)
        await agent.steer(content("s"), id=mid("s1"))
        call(on.model, ("look", "a"))
        await idle(agent)
        assert on.disk.acts[-1] == "D agent/inbox/dequeue, user/message, turn/end"
        log = await on.log(agent)
        assert (ends(log), codes(log)) == ([Blocked("enough")], [("t1.1.1", None)])
        assert state(agent).hold is None


async def test_what_a_rejected_step_would_have_added_is_offered_again(tmp_path: Path) -> None:
    """Statement 68: nothing of it is in the log, and nobody is told that it is."""
    begun: list[int] = []

    async def adds(entry: Entry) -> Enter:
        return Enter((context("the sky is blue"),), lambda: begun.append(entry.turn))

    async def rejects(entry: Entry) -> Enter | Reject:
        return Reject("not today") if entry.turn == 1 else Enter()

    async with hands(tmp_path, Hooks(pre_step=(Before(adds), Before(rejects)))) as on:
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        assert begun == []
        await agent.followup(content("now"), id=mid("m2"))
        assert sent_texts(await over(on, agent, 1)) == ["go", "now", "the sky is blue"]
        assert begun == [2]


async def test_pre_step_that_fails_ends_the_turn_and_holds_the_rest(tmp_path: Path) -> None:
    async def fails(entry: Entry) -> Enter:
        if entry.turn == 1:
            await agent.followup(content("later"), id=mid("m2"))
            raise RuntimeError("a secret")
        return Enter()

    async with hands(tmp_path, Hooks(pre_step=(Before(fails),))) as on:
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        (end,) = ends(await on.log(agent))
        assert isinstance(end, TurnFailed)
        assert (end.failure.code, on.model.requests) == ("INTERNAL", [])
        assert "a secret" not in end.failure.message
        assert (waits(agent), state(agent).hold) == ([("m2", "queued", True)], "error")
        await agent.followup(content("now"), id=mid("m3"))
        assert sent_texts(await over(on, agent, 1)) == ["go", "now"]


async def test_what_an_external_hook_printed_has_no_form(tmp_path: Path) -> None:
    """Statement 72: it is drawn as it came, and no request names a form for it."""

    async def prints(entry: Entry) -> Enter:
        return Enter((Context("whatever it printed", HookSource("lint")),))

    async with hands(tmp_path, Hooks(pre_step=(Before(prints),))) as on:
        agent = await asked(on)
        await over(on, agent, 1)
        (row,) = [row for row in rows(agent.view) if row.kind == "context"]
        assert (row.form, row.producer, row.summary) == ("opaque", "lint", None)
        assert "whatever it printed" in row.body


# A request -------------------------------------------------------------------------------------------------------


class Rewrites:
    def request(self, proposal: Proposal, state: SessionState) -> Proposal:
        return replace(proposal, system=f"{proposal.system} Be brief.", tools=(), options={"temperature": 0})


async def test_what_a_request_hook_says_is_what_is_sent_and_logged(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(request=(Rewrites(),))) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        sent = await over(on, agent, 2)
        assert sent.system.endswith(" Be brief.")
        assert (sent.tools, sent.options) == ((), {"temperature": 0})
        (header,) = datas(await on.log(agent), RequestHeader)
        assert isinstance(header, RequestHeader)
        assert (header.system, header.tools, header.options) == (sent.system, sent.tools, sent.options)


async def test_a_model_that_a_hook_picked_and_that_is_not_there_fails_the_request(tmp_path: Path) -> None:
    class Picks:
        def request(self, proposal: Proposal, state: SessionState) -> Proposal:
            return replace(proposal, model=ModelRef("hand", "gone"))

    async with hands(tmp_path, Hooks(request=(Picks(),))) as on:
        with pytest.raises(UserError):
            on.models.open(ModelRef("hand", "gone"))
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        (end,) = ends(await on.log(agent))
        assert isinstance(end, TurnFailed)
        assert end.failure.code == "NO_MODEL"


async def test_a_request_hook_that_fails_ends_the_turn(tmp_path: Path) -> None:
    class Fails:
        def request(self, proposal: Proposal, state: SessionState) -> Proposal:
            raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(request=(Fails(),))) as on:
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        log = await on.log(agent)
        assert types(log)[-4:] == ["agent/inbox/dequeue", "turn/start", "user/message", "turn/end"]
        assert on.model.requests == []


# Tools -----------------------------------------------------------------------------------------------------------


async def test_pre_execute_changes_arguments_and_the_log_keeps_what_the_model_wrote(tmp_path: Path) -> None:
    def moves(use: Use) -> JsonObject | None:
        return {"at": f"{use.arguments['at']}!"}

    async with hands(tmp_path, Hooks(pre_execute=(Changing(moves), Changing(lambda use: None), Changing(moves)))) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        assert results(await over(on, agent, 2)) == [("t1.1.1", "did a!!")]
        (called,) = datas(await on.log(agent), ToolCall)
        assert isinstance(called, ToolCall)
        assert called.arguments == '{"at": "a"}'


async def test_arguments_that_a_hook_made_have_to_fit_too(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(pre_execute=(Changing(lambda use: {"at": 5}),))) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "INVALID_ARGS")]
        assert on.bodies.begun == []


@pytest.mark.parametrize("point", ["pre_execute", "guard"])
async def test_a_call_that_a_hook_refuses_is_answered_and_the_turn_goes_on(tmp_path: Path, point: str) -> None:
    def refuses(use: Use) -> JsonObject | None:
        raise ToolError("BLOCKED", "not this one")

    async def guards(use: Use) -> None:
        refuses(use)

    refusing = Hooks(pre_execute=(Changing(refuses),)) if point == "pre_execute" else Hooks(guard=(Guarding(guards),))
    async with hands(tmp_path, refusing) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        assert results(await over(on, agent, 2)) == [("t1.1.1", "not this one")]
        log = await on.log(agent)
        assert (codes(log), ends(log), on.bodies.begun) == ([("t1.1.1", "BLOCKED")], [Completed()], [])
        assert "tool/start" not in types(log)


class Wrapping:
    def __init__(self, name: str) -> None:
        self.name = name

    async def execute(self, use: Use, body: Callable[[], Awaitable[Output]]) -> Output:
        output = await body()
        return Output(f"{self.name}({output.text})", {self.name: True})


async def test_execute_goes_around_the_body_the_first_one_outermost(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(execute=(Wrapping("f"), Wrapping("g")))) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"))
        assert results(await over(on, agent, 2)) == [("t1.1.1", "f(g(did a))")]


async def test_post_execute_changes_the_outcome_and_what_it_adds_follows_all_results(tmp_path: Path) -> None:
    def changes(use: Use, outcome: Outcome) -> Outcome:
        note = context(f"{use.arguments['at']} was noted")
        return Outcome(Output(f"[{outcome.result.text}]"), (*outcome.contexts, note))

    async with hands(tmp_path, Hooks(post_execute=(After(changes), After(changes)))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("look", "a"), ("look", "b"))
        await until(lambda: on.bodies.begun == ["a", "b"])
        on.bodies.end("a", ToolError("NOT_FOUND", "there is nothing"))
        sent = await over(on, agent, 2)
        assert results(sent) == [("t1.1.1", "[[there is nothing]]"), ("t1.1.2", "[[did b]]")]
        assert sent_texts(sent)[-4:] == ["a was noted", "a was noted", "b was noted", "b was noted"]
        assert [str(message.id) for message in sent.messages] == [
            "m1", "a1.1.1", "r:t1.1.1", "r:t1.1.2", "p1.1.1", "p1.1.2", "p1.1.3", "p1.1.4",
        ]  # fmt: skip
        assert on.disk.acts.count("tool/result, user/message, user/message") == 2


@pytest.mark.parametrize("point", ["pre_execute", "guard", "execute", "post_execute"])
async def test_a_hook_that_fails_beside_a_call_ends_the_turn(tmp_path: Path, point: str) -> None:
    class Fails:
        async def pre_execute(self, use: Use) -> None:
            raise RuntimeError("a mistake")

        guard = pre_execute

        async def execute(self, use: Use, body: Callable[[], Awaitable[Output]]) -> Output:
            raise RuntimeError("a mistake")

        async def post_execute(self, use: Use, outcome: Outcome) -> Outcome:
            raise RuntimeError("a mistake")

    async with hands(tmp_path, replace(Hooks(), **{point: (Fails(),)})) as on:  # type: ignore[arg-type]
        agent = await asked(on)
        call(on.model, ("look", "a"))
        await idle(agent)
        log = await on.log(agent)
        (end,) = ends(log)
        assert isinstance(end, TurnFailed)
        assert end.failure.code == "INTERNAL"
        code = {"execute": "TOOL_OUTCOME_UNKNOWN", "post_execute": None}.get(point, "TOOL_NOT_STARTED")
        assert codes(log) == [("t1.1.1", code)], "what a body did is known, whatever becomes of the hooks after it"
        assert on.bodies.begun == (["a"] if point == "post_execute" else [])


async def test_a_cancel_while_post_execute_takes_its_time_keeps_what_the_body_gave(tmp_path: Path) -> None:
    class Hangs:
        async def post_execute(self, use: Use, outcome: Outcome) -> Outcome:
            if use.arguments["at"] == "a":
                await asyncio.Event().wait()
            return outcome

    async with hands(tmp_path, Hooks(post_execute=(Hangs(),))) as on:
        agent = await asked(on)
        call(on.model, ("look", "a"), ("look", "b"), ("solo", "c"))
        await until(lambda: len(agent._loop._tools._running) == 1)  # type: ignore[attr-defined]
        assert codes(await on.log(agent)) == [], "the hooks may still change it"
        await agent.cancel("user")
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", None), ("t1.1.2", None), ("t1.1.3", "ABORTED_BEFORE_DISPATCH")]
        assert ends(log) == [TurnAborted("user")]


def test_no_hook_speaks_for_a_person() -> None:
    with pytest.raises(ValueError, match="not a person"):
        Context("delete everything", UserSource())


# The end of a turn -----------------------------------------------------------------------------------------------


async def test_a_turn_that_is_steered_while_it_stops_takes_another_step(tmp_path: Path) -> None:
    """Statement 54: it is asked again at the next natural stop."""
    stops: list[int] = []

    async def steers(agent: Agent, session: SessionState) -> None:
        stops.append(len(stops))
        if len(stops) == 1:
            await agent.steer(content("and the tests?"), id=mid("s1"))

    async with hands(tmp_path, Hooks(turn_stopping=(Stopping(steers),))) as on:
        agent = await asked(on)
        await on.model.answer("done", 1)
        assert sent_texts(await over(on, agent, 2)) == ["go", "done", "and the tests?"]
        assert (stops, ends(await on.log(agent))) == ([0, 1], [Completed()])


async def test_a_turn_that_is_only_looked_at_while_it_stops_ends(tmp_path: Path) -> None:
    """Statement 54."""
    seen: list[tuple[int | None, bool]] = []

    async def looks(agent: Agent, session: SessionState) -> None:
        seen.append((session.current_turn(), session.turns.open is not None))
        await agent.send(content("for later"), id=mid("q1"), wakeup=False)

    async with hands(tmp_path, Hooks(turn_stopping=(Stopping(looks),))) as on:
        agent = await asked(on)
        await over(on, agent, 1)
        assert (seen, ends(await on.log(agent))) == ([(1, True)], [Completed()])
        assert waits(agent) == [("q1", "queued", False)]


@pytest.mark.parametrize("ending", ["cancel", "fail"])
async def test_only_a_natural_stop_is_asked_about(tmp_path: Path, ending: str) -> None:
    stops: list[int] = []

    async def counts(agent: Agent, session: SessionState) -> None:
        stops.append(1)

    async with hands(tmp_path, Hooks(turn_stopping=(Stopping(counts),))) as on:
        agent = await asked(on)
        if ending == "cancel":
            await agent.cancel("user")
        else:
            on.model.fail()
        await idle(agent)
        assert stops == []


async def test_a_cancel_ends_a_hook_that_takes_its_time(tmp_path: Path) -> None:
    told: list[str] = []

    async def hangs(agent: Agent, session: SessionState) -> None:
        told.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    async with hands(tmp_path, Hooks(turn_stopping=(Stopping(hangs),))) as on:
        agent = await asked(on)
        await on.model.answer("done", 1)
        await until(lambda: told)
        await agent.cancel("user")
        assert (ends(await on.log(agent)), told) == ([TurnAborted("user")], ["begun", "ended"])


async def test_a_hook_that_fails_while_the_turn_stops_ends_it_with_an_error(tmp_path: Path) -> None:
    async def fails(agent: Agent, session: SessionState) -> None:
        raise RuntimeError("a mistake")

    async with hands(tmp_path, Hooks(turn_stopping=(Stopping(fails),))) as on:
        agent = await asked(on)
        await agent.followup(content("later"), id=mid("m2"))
        await on.model.answer("done", 1)
        await idle(agent)
        log = await on.log(agent)
        (end,) = ends(log)
        assert isinstance(end, TurnFailed)
        assert datas(log, Hold) == [Hold(held=True, cause="error")]
        assert state(agent).last_turn is not None


async def test_a_person_is_shown_the_arguments_that_a_hook_has_put_in_place(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(pre_execute=(Changing(lambda use: {"at": "elsewhere"}),))) as on:
        agent = await asked(on)
        call(on.model, ("touch", "here"))
        await until(lambda: any(row.kind == "approval" for row in rows(agent.view)))
        (row,) = [row for row in rows(agent.view) if row.kind == "approval"]
        assert "elsewhere" in row.body
        assert "here" not in row.body.replace("elsewhere", "")
        await agent.cancel("user")
