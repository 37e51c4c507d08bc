"""A failed request that is tried again by itself: when, how often, and what stops it. Time is the stepping loop's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from agentls.agent.agent import Agent
from agentls.agent.hooks import Hooks
from agentls.agent.retries import Retries
from agentls.agent.view import Frame, PutOp
from agentls.core.chunks import Finish, TextDelta, Usage, UsageChunk
from agentls.core.events import AssistantAttempt, ModelRef, RequestHeader, RequestSent, Retry, RetryStarted, TurnEnd
from agentls.core.invariants import check_log
from agentls.core.reasons import Completed, Failed, Failure, TurnAborted, TurnFailed
from agentls.models.retry import RetryPolicy
from agentls.store.store import SessionStore
from tests.agent.hands import Bodies, call, datas, ends, registry, state
from tests.agent.memory import MemoryStore
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.harness import HandModel, Rig, content, idle, mid, notice, rows, sent_texts, types, until

POLICY = RetryPolicy(max_retries=2, initial_delay_ms=2000, max_delay_ms=10_000, jitter_ratio=0)
SOON = 0.02
"""Seconds that the loop itself may take of its own time between two things."""


class TimedModel(HandModel):
    """Notes when it is asked, in the loop's seconds."""

    def __init__(self, loop: SteppingLoop) -> None:
        super().__init__()
        self.loop = loop
        self.times: list[float] = []

    async def stream(self, request: Any) -> Any:
        self.times.append(self.loop.time())
        async for chunk in super().stream(request):
            yield chunk

    def refuse(self, code: str = "SERVER", after_ms: int | None = None, text: str = "") -> None:
        if text:
            self.give(TextDelta(0, text))
        self.give(Finish(Failed(Failure("it broke", code, retry_after_ms=after_ms))))


class Timed(Rig):
    model: TimedModel

    def __init__(self, directory: Path, loop: SteppingLoop, policy: RetryPolicy) -> None:
        hooks = Hooks(request_error=(Retries(policy, lambda: 0.5),))
        super().__init__(
            directory,
            TimedModel(loop),
            store=cast(SessionStore, MemoryStore()),
            hooks=hooks,
            registry=registry(Bodies()),
        )

    async def waiting(self, agent: Agent) -> None:
        """Once the wait after the first attempt has gone on for a while."""
        await until(lambda: [row for row in rows(agent.view) if row.title.startswith("Trying again in 2 s")])
        began = self.model.loop.time()
        await until(lambda: self.model.loop.time() > began + 0.3)


Play = Callable[[Timed, Agent], Coroutine[Any, Any, None]]


def played(directory: Path, play: Play, policy: RetryPolicy = POLICY) -> None:
    """Play it with an agent whose first request is out; its log keeps the rules in the end."""

    async def main(loop: SteppingLoop) -> None:
        on = Timed(directory, loop, policy)
        agent = await on.agent()
        await agent.followup(content("go"), id=mid("m1"))
        await on.model.asked(1)
        await play(on, agent)
        check_log(await on.log(agent))
        await on.host.close()

    run_stepping(main)


def test_a_failed_request_is_sent_again_as_it_was_after_its_delay(tmp_path: Path) -> None:
    """Statement 15, where ours differs: the text that failed is a row and no part of the answer, and each attempt is
    logged as a request of its own."""

    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse(text="half")
        await on.model.answer("whole", 2)
        await idle(agent)
        log = await on.log(agent)
        assert types(log)[types(log).index("request/sent") :] == [
            "request/sent", "assistant/attempt", "llm/retry", "llm/retry-started", "request/sent", "assistant/message",
            "step/end", "turn/end",
        ]  # fmt: skip
        (retry,) = datas(log, Retry)
        assert retry == Retry("y1.1.1", 1, 1, 1, 2000, Failure("it broke", "SERVER"))
        assert datas(log, RetryStarted) == [RetryStarted("y1.1.1", 1, 1, 1)]
        assert on.model.requests[0] == on.model.requests[1]
        first, second = datas(log, RequestSent)
        assert isinstance(first, RequestSent)
        assert isinstance(second, RequestSent)
        assert (second.attempt, second.boundary, second.ledger) == (2, first.boundary, ())
        assert 2.0 <= on.model.times[1] - on.model.times[0] < 2.0 + SOON
        drawn = [(row.id, row.body, row.state) for row in rows(agent.view) if row.kind == "assistant"]
        assert drawn == [("a1.1.1/0", "half", "failed"), ("a1.1.2/0", "whole", "done")]
        assert ends(log) == [Completed()]

    played(tmp_path, play)


def test_a_provider_that_says_how_long_to_wait_is_obeyed(tmp_path: Path) -> None:
    """Statement 16."""

    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse("RATE_LIMIT", after_ms=7300)
        await on.model.answer("ok", 2)
        await idle(agent)
        assert 7.3 <= on.model.times[1] - on.model.times[0] < 7.3 + SOON
        assert [retry.delay_ms for retry in datas(await on.log(agent), Retry)] == [7300]  # type: ignore[attr-defined]

    played(tmp_path, play)


def test_each_step_has_a_budget_of_its_own_and_then_fails(tmp_path: Path) -> None:
    """Statement 18."""

    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse()
        await on.model.asked(2)
        on.model.refuse()
        await on.model.asked(3)
        call(on.model, ("look", "a"))
        for times in (4, 5, 6):
            await on.model.asked(times)
            on.model.refuse("TIMEOUT")
        await idle(agent)
        log = await on.log(agent)
        retries = [(r.step, r.attempt, r.delay_ms) for r in datas(log, Retry)]  # type: ignore[attr-defined]
        assert retries == [(1, 1, 2000), (1, 2, 4000), (2, 1, 2000), (2, 2, 4000)]
        assert len(datas(log, AssistantAttempt)) == 5
        (end,) = ends(log)
        assert end == TurnFailed(Failure("it broke", "TIMEOUT"))
        assert len(on.model.requests) == 6

    played(tmp_path, play)


@pytest.mark.parametrize("failure", [("AUTH", None), ("RATE_LIMIT", 60_000)])
def test_what_no_retry_can_help_fails_at_once(tmp_path: Path, failure: tuple[str, int | None]) -> None:
    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse(*failure)
        await idle(agent)
        assert len(on.model.requests) == 1
        assert datas(await on.log(agent), Retry) == []

    played(tmp_path, play)


@pytest.mark.parametrize("keep", [False, True])
def test_a_cancel_ends_the_wait_and_nothing_is_sent_again(tmp_path: Path, keep: bool) -> None:
    """Statement 17."""

    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse()
        await on.waiting(agent)
        began = on.model.loop.time()
        await agent.cancel("user", keep_inbox=keep)
        assert on.model.loop.time() - began < SOON, "at once, not when the wait is over"
        log = await on.log(agent)
        assert datas(log, RetryStarted) == []
        assert (ends(log), len(on.model.requests)) == ([TurnAborted("user")], 1)
        (row,) = [row for row in rows(agent.view) if row.kind == "retry"]
        assert row.state != "streaming"
        await agent.followup(content("on"), id=mid("m2"))
        assert sent_texts(await on.model.answer("ok", 2)) == ["go", "on"]
        await idle(agent)

    played(tmp_path, play)


def test_the_wait_counts_down_by_the_second(tmp_path: Path) -> None:
    async def play(on: Timed, agent: Agent) -> None:
        titles: list[str] = []

        def look(frame: Frame) -> None:
            for op in frame.ops:
                if isinstance(op, PutOp) and op.drawn.block.kind == "retry":
                    titles.append(op.drawn.block.title)

        agent.view.subscribe(look)
        on.model.refuse(after_ms=2500)
        await on.model.answer("ok", 2)
        await idle(agent)
        seconds = [title.split(" s:")[0] for title in titles[:-1]]
        assert list(dict.fromkeys(seconds)) == [f"Trying again in {n}" for n in (3, 2, 1)]
        (row,) = [row for row in rows(agent.view) if row.kind == "retry"]
        assert (row.id, row.state) == ("y1.1.1", "done")

    played(tmp_path, play)


def test_the_wait_runs_and_what_comes_in_it_waits_for_its_place(tmp_path: Path) -> None:
    """Every attempt of a step sends the same."""

    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse()
        await on.waiting(agent)
        assert state(agent).status == "running"
        assert (await agent.followup(content("later"), id=mid("m2"))).outcome == "queued"
        assert (await agent.steer(content("s"), id=mid("s1"))).outcome == "steering"
        assert (await agent.inject(content("note"), id=mid("i1"), source=notice())).outcome == "injected"
        assert sent_texts(await on.model.answer("ok", 2)) == ["go"]
        assert sent_texts(await on.model.answer("fine", 3)) == ["go", "ok", "note", "s"]
        assert sent_texts(await on.model.answer("end", 4))[-1] == "later"
        await idle(agent)

    played(tmp_path, play)


def test_the_open_step_keeps_its_model_whatever_is_chosen_meanwhile(tmp_path: Path) -> None:
    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse()
        await on.waiting(agent)
        await agent.configure(model=ModelRef("hand", "other"))
        await on.model.asked(2)
        call(on.model, ("look", "a"))
        await idle(agent)
        log = await on.log(agent)
        models = [header.model.id for header in datas(log, RequestHeader)]  # type: ignore[attr-defined]
        assert models == ["hand", "other"]
        (end,) = ends(log)
        assert isinstance(end, TurnFailed)
        assert end.failure.code == "NO_MODEL", "the next step asks the one that was chosen"

    played(tmp_path, play)


def test_what_each_attempt_has_cost_is_counted(tmp_path: Path) -> None:
    async def play(on: Timed, agent: Agent) -> None:
        on.model.give(UsageChunk(Usage(10, 1)))
        on.model.refuse()
        await on.model.asked(2)
        on.model.give(UsageChunk(Usage(20, 2)))
        await on.model.answer("ok", 2)
        await idle(agent)
        (end,) = datas(await on.log(agent), TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.usage == Usage(30, 3)

    played(tmp_path, play)


def test_a_host_that_closes_does_not_wait_for_the_retry(tmp_path: Path) -> None:
    async def play(on: Timed, agent: Agent) -> None:
        on.model.refuse()
        await on.waiting(agent)
        began = on.model.loop.time()
        await agent.close()
        assert on.model.loop.time() - began < SOON
        assert len(on.model.requests) == 1
        assert ends(await on.log(agent)) == [TurnAborted("disposed")]

    played(tmp_path, play)
