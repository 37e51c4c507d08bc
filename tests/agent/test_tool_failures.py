"""Calls that fail: each failure is an answer that the model can act on, and the turn goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from agentls.agent.hooks import Hooks
from agentls.agent.repeats import REFUSED, REMINDED, RepeatedCalls
from agentls.agent.time_limit import TimeLimit
from agentls.core.invariants import check_log
from agentls.core.json import JsonObject, JsonValue
from agentls.core.reasons import Completed
from agentls.store.store import SessionStore
from agentls.tools.tool import ToolContext
from tests.agent.hands import AtArguments, Bodies, Tool, asked, call, codes, ends, hands, over, registry, results
from tests.agent.memory import MemoryStore
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.harness import Rig, rows, sent_texts, until


@pytest.mark.parametrize(
    ("name", "arguments", "code", "says"),
    [
        ("none", "a", "UNKNOWN_TOOL", 'there is no tool "none"'),
        ("solo", '{"at": 5}', "INVALID_ARGS", '"at" must be a string'),
        ("solo", '{"at": "a", "to": "b"}', "INVALID_ARGS", '"to" is no argument'),
        ("solo", '{"at": ', "INVALID_ARGS", "are not a JSON object"),
        ("solo", '{"at": "a", "n": NaN}', "INVALID_ARGS", "are not a JSON object"),
        ("solo", f'{{"at": {"[" * 600 + "]" * 600}}}', "INVALID_ARGS", "of at most 100 levels"),
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


@pytest.mark.parametrize("deaf", [False, True])
def test_a_body_that_takes_too_long_is_stopped_or_left_behind(tmp_path: Path, deaf: bool) -> None:
    """In counted time, since another call has to end within the same limit."""

    async def main(_: SteppingLoop) -> None:
        bodies, store = Bodies(), cast(SessionStore, MemoryStore())
        limit = Hooks(execute=(TimeLimit(0.01),))
        on = Rig(tmp_path, store=store, hooks=limit, registry=registry(bodies), grace=0.01)
        agent = await asked(on)
        bodies.hold("a")
        bodies.deaf |= {"a"} if deaf else set()
        call(on.model, ("solo", "a"), ("solo", "b"))
        await on.model.asked(2)
        assert bodies.stopped == ["a"]
        bodies.end("a", "too late")
        assert results(await over(on, agent, 2))[1] == ("t1.1.2", "did b")
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "TIMEOUT"), ("t1.1.2", None)]
        check_log(log)
        await on.host.close()

    run_stepping(main)


async def test_a_body_with_a_time_limit_of_its_own_is_not_taken_for_ours(tmp_path: Path) -> None:
    async with hands(tmp_path, Hooks(execute=(TimeLimit(),))) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.bodies.end("a", TimeoutError())
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_FAILED")]


@dataclass(frozen=True)
class Mistaken(Tool):
    """It makes a mistake before its body runs."""

    mistake: Callable[[], JsonValue] = lambda: None
    where: str = "asks"

    def parallel(self, arguments: AtArguments) -> bool:
        return self.where == "parallel" and bool(self.mistake())

    async def asks(self, arguments: AtArguments, context: ToolContext) -> JsonObject | None:
        return cast(JsonObject | None, self.mistake() if self.where == "asks" else None)


def _fails() -> JsonValue:
    raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("where", "mistake"),
    [
        ("parallel", _fails),
        ("asks", _fails),
        ("asks", lambda: {"at": float("nan")}),
        ("asks", lambda: {"at": cast(JsonValue, object())}),
        ("asks", lambda: ["at"]),
    ],
)
async def test_a_tool_that_makes_a_mistake_before_its_body_fails_its_call_only(
    tmp_path: Path, where: str, mistake: Callable[[], JsonValue]
) -> None:
    async with hands(tmp_path) as on:
        on.registry.register(Mistaken(on.bodies, "wrong", mistake=mistake, where=where))
        agent = await asked(on)
        call(on.model, ("wrong", "a"), ("solo", "b"))
        (failed, did) = results(await over(on, agent, 2))
        assert ("secret" not in failed[1], did) == (True, ("t1.1.2", "did b"))
        log = await on.log(agent)
        assert (codes(log), ends(log)) == ([("t1.1.1", "TOOL_FAILED"), ("t1.1.2", None)], [Completed()])
        assert on.bodies.begun == ["b"]


async def test_a_body_that_cancels_itself_fails_its_call_only(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.bodies.hold("a")
        call(on.model, ("solo", "a"))
        await until(lambda: on.bodies.begun)
        on.bodies.give_up("a")
        await over(on, agent, 2)
        assert codes(await on.log(agent)) == [("t1.1.1", "TOOL_FAILED")]


async def test_a_call_with_what_is_no_number_costs_no_later_call(tmp_path: Path) -> None:
    """Those who compare calls with earlier ones meet it again in history."""
    repeats = RepeatedCalls()
    async with hands(tmp_path, Hooks(pre_execute=(repeats,), post_execute=(repeats,))) as on:
        agent = await asked(on)
        for n, odd in enumerate(("NaN", "-Infinity", "1e999"), start=1):
            await on.model.asked(2 * n - 1)
            call(on.model, ("look", f'{{"at": "a", "n": {odd}}}'))
            await on.model.asked(2 * n)
            call(on.model, ("look", "a"))
        await over(on, agent, 7)
        log = await on.log(agent)
        assert [code for _, code in codes(log)] == ["INVALID_ARGS", None] * 3
        assert ends(log) == [Completed()]


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
