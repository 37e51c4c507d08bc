"""Calls that fail: each failure is an answer that the model can act on, and the turn goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.agent.hooks import Hooks
from agentls.agent.repeats import REFUSED, REMINDED, RepeatedCalls
from agentls.agent.time_limit import TimeLimit
from agentls.core.reasons import Completed
from tests.agent.hands import asked, call, codes, ends, hands, over, results
from tests.harness import rows, sent_texts, until


@pytest.mark.parametrize(
    ("name", "arguments", "code", "says"),
    [
        ("none", "a", "UNKNOWN_TOOL", 'there is no tool "none"'),
        ("solo", '{"at": 5}', "INVALID_ARGS", '"at" must be a string'),
        ("solo", '{"at": "a", "to": "b"}', "INVALID_ARGS", '"to" is no argument'),
        ("solo", '{"at": ', "INVALID_ARGS", "are not a JSON object"),
        ("solo", "", "INVALID_ARGS", '"at" is missing'),
    ],
)
async def test_a_call_that_does_not_fit_is_answered_and_the_turn_goes_on(
    tmp_path: Path, name: str, arguments: str, code: str, says: str
) -> None:
    """Statement 64, where ours differs: arguments that do not parse never reach the tool; blank ones are an empty
    object."""
    async with hands(tmp_path) as on:
        agent = await asked(on)
        call(on.model, (name, arguments))
        ((_, text),) = results(await over(on, agent, 2))
        assert says in text
        log = await on.log(agent)
        assert (codes(log), ends(log), on.bodies.begun) == ([("t1.1.1", code)], [Completed()], [])


async def test_a_tool_that_fails_by_its_own_mistake_fails_its_call_only(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.bodies.end("a", ZeroDivisionError("secret"))
        ((_, text),) = results(await over(on, agent, 2))
        assert "secret" not in text
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_FAILED")]


async def test_a_body_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(execute=(TimeLimit(0.01),))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"), ("solo", "b"))
        assert results(await over(on, agent, 2))[1] == ("t1.1.2", "did b")
        assert on.bodies.stopped == ["a"]
        assert codes(await on.log(agent)) == [("t1.1.1", "TIMEOUT"), ("t1.1.2", None)]


async def test_a_body_with_a_time_limit_of_its_own_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(execute=(TimeLimit(),))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.bodies.end("a", TimeoutError())
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_FAILED")]


async def test_a_model_that_runs_in_circles_is_reminded_and_then_stopped(tmp_path: Path) -> None:
    repeats = RepeatedCalls()
    async with hands(tmp_path, Hooks(pre_execute=(repeats,), post_execute=(repeats,))) as on:
        agent = await asked(on)
        for times in range(1, REFUSED + 1):
            await on.model.asked(times)
            call(on.model, ("look", "a" if times % 2 else '{ "at" :"a"}'))
        sent = await on.model.asked(REFUSED + 1)
        reminders = [text for text in sent_texts(sent) if text.startswith("You have called")]
        assert [f"{times} times" in text for times, text in zip(REMINDED, reminders, strict=True)] == [True, True]
        assert len(on.bodies.begun) == REFUSED - 1
        assert codes(await on.log(agent))[-1] == (f"t1.{REFUSED}.1", "REPEATED_CALL")
        assert [row.summary for row in rows(agent.view) if row.kind == "context"] == ["look × 3", "look × 5"]
        call(on.model, ("look", "b"))
        await on.model.asked(REFUSED + 2)
        call(on.model, ("look", "a"))
        await over(on, agent, REFUSED + 3)
        assert on.bodies.begun[-2:] == ["b", "a"], "another call between starts the count anew"
