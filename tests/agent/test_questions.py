"""A question waits for a person as an approval does, and takes an answer of any shape.

No tool asks one yet, so that the tests put it into the log themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.agent.agent import Agent, Answered, WrongAnswer
from agentls.agent.state import OpenRequest
from agentls.core.events import QuestionAnswered, QuestionAsked, TurnCancel
from agentls.core.ids import RequestId
from agentls.core.json import JsonObject, digest
from tests.agent.hands import HandRig, asked, call, datas, hands, over, request, state
from tests.harness import rows, until

QUESTION: JsonObject = {"text": "Which one?", "options": ["this", "that"]}
ASKED = RequestId("q1.1.1")


async def wondering(on: HandRig) -> tuple[Agent, OpenRequest]:
    """An agent in whose turn a question is open."""
    agent = await asked(on)
    on.bodies.hold("a")
    call(on.model, ("look", "a"))
    await until(lambda: on.bodies.begun)
    await agent._journal.append((QuestionAsked(ASKED, QUESTION),), durable=True)  # type: ignore[attr-defined]
    return agent, await request(agent)


async def test_a_question_is_answered_once_and_a_late_answer_is_told_by_whom(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, waiting = await wondering(on)
        assert (waiting.kind, waiting.shown, state(agent).status) == ("question", digest(QUESTION), "waiting")
        first = await agent.answer(ASKED, "allow", shown=waiting.shown, by="vim", content={"choice": "that"})
        late = await agent.answer(ASKED, "allow", shown=waiting.shown, by="code", content="this")
        assert (first, late) == (Answered("accepted", "vim"), Answered("already-resolved", "vim"))
        assert datas(await on.log(agent), QuestionAnswered) == [QuestionAnswered(ASKED, {"choice": "that"}, "vim")]
        (row,) = [row for row in rows(agent.view) if row.kind == "question"]
        assert (row.request, row.state, row.title) == (None, "done", "Answered: Which one?")
        assert state(agent).requests == ()
        on.bodies.end("a")
        await over(on, agent, 2)


async def test_an_answer_to_something_else_or_of_the_wrong_kind_changes_nothing(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, waiting = await wondering(on)
        assert await agent.answer(ASKED, "allow", shown="sha256:0", by="vim", content="x") == Answered("changed")
        with pytest.raises(WrongAnswer, match="needs an answer"):
            await agent.answer(ASKED, "allow", shown=waiting.shown, by="vim")
        assert [one.request_id for one in state(agent).requests] == [ASKED]
        await agent.cancel("user")


async def test_a_person_may_refuse_to_answer(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent, waiting = await wondering(on)
        refused = await agent.answer(ASKED, "deny", shown=waiting.shown, by="vim", note="ask later")
        assert refused == Answered("accepted", "vim")
        assert datas(await on.log(agent), QuestionAnswered) == [QuestionAnswered(ASKED, "ask later", "vim")]
        on.bodies.end("a")
        await over(on, agent, 2)


@pytest.mark.parametrize("how", ["deny-and-stop", "cancel"])
async def test_a_stop_closes_it(tmp_path: Path, how: str) -> None:
    async with hands(tmp_path) as on:
        agent, waiting = await wondering(on)
        if how == "cancel":
            await agent.cancel("user")
        else:
            await agent.answer(ASKED, "deny-and-stop", shown=waiting.shown, by="vim")
        await until(lambda: state(agent).status == "idle")
        log = await on.log(agent)
        (answered,) = datas(log, QuestionAnswered)
        assert isinstance(answered, QuestionAnswered)
        assert (answered.by, answered.cancelled) == ((None, True) if how == "cancel" else ("vim", False))
        assert len(datas(log, TurnCancel)) == 1
        late = await agent.answer(ASKED, "allow", shown=waiting.shown, by="code", content="x")
        assert late == Answered("already-resolved", answered.by)


async def test_an_approval_takes_no_content(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        call(on.model, ("touch", "a"))
        waiting = await request(agent)
        with pytest.raises(WrongAnswer, match="takes no content"):
            await agent.answer(waiting.request_id, "allow", shown=waiting.shown, by="vim", content="mine")
        assert len(state(agent).requests) == 1
        await agent.cancel("user")
