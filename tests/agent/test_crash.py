"""The process dies at every write of ten scripted turns, and where a person meets it: what must be there after it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agentls.agent.agent import Agent, Answered, Sent
from agentls.agent.hooks import Enter, Entry, Hooks
from agentls.agent.pages import render
from agentls.agent.retries import Retries
from agentls.agent.state import AgentState
from agentls.core.answer import parse_arguments
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    Dequeue,
    Discard,
    Enqueue,
    Event,
    ToolCall,
    ToolResult,
    ToolStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import AgentId
from agentls.core.invariants import check_log
from agentls.core.json import JsonObject
from agentls.core.reasons import Completed
from agentls.core.repair import repair
from agentls.core.rows import Block
from agentls.core.session import SessionState
from agentls.models.retry import RetryPolicy
from agentls.store.store import SessionStore
from agentls.tools.registry import Registry
from agentls.tools.tool import Output, ToolContext
from tests.agent.dying import Death, Life, Lives, Side, lives
from tests.agent.hands import AtArguments, state
from tests.agent.scenario import TOUCH, TURNS, Look, Scene, ScriptModel, called
from tests.harness import Rig, content, mid, notice, rows, sent_texts, until

Play: TypeAlias = Callable[[Scene, Agent, list[Sent]], Coroutine[Any, Any, None]]


async def _two_messages(scene: Scene, agent: Agent, sent: list[Sent]) -> None:
    """The turn, and one that waits behind it."""
    scene.decides(agent)
    sent.append(await agent.followup(content("one"), id=mid("first")))
    sent.append(await agent.followup(content("two"), id=mid("second")))
    await _rest(agent)


async def _all_verbs(scene: Scene, agent: Agent, sent: list[Sent]) -> None:
    """Everything that waits in some way, and every change to it."""
    scene.decides(agent)
    sent.append(await agent.inject(content("a note"), id=mid("note"), source=notice()))
    sent.append(await agent.send(content("quiet"), id=mid("quiet"), wakeup=False))
    sent.append(await agent.followup(content("one"), id=mid("first")))
    sent.append(await agent.steer(content("steered"), id=mid("steered")))
    sent.append(await agent.followup(content("two"), id=mid("second")))
    sent.append(await agent.followup(content("withdrawn"), id=mid("withdrawn")))
    await agent.edit(mid("second"), content("two"))
    await agent.remove(mid("withdrawn"))
    sent.append(await agent.inject(content("another note"), id=mid("another"), source=notice()))
    await _rest(agent)


async def _stopped(scene: Scene, agent: Agent, sent: list[Sent], *, keep_inbox: bool) -> None:
    """A turn that is stopped while a person is asked, with a message behind it."""
    sent.append(await agent.followup(content("one"), id=mid("first")))
    sent.append(await agent.followup(content("two"), id=mid("second")))
    await until(lambda: state(agent).requests)
    await agent.cancel("user", keep_inbox=keep_inbox)
    await _rest(agent)


PLAYS: dict[str, tuple[str, Play]] = {
    **{turn: (turn, _two_messages) for turn in TURNS},
    "all verbs": ("text", _all_verbs),
    "a stop": ("allowed", partial(_stopped, keep_inbox=False)),
    "a stop that keeps": ("allowed", partial(_stopped, keep_inbox=True)),
}

BEFORE_REPAIR = (partial(Death.at, 1, "before"),)
"""A load that dies with nothing of its repair on disk."""
AFTER_REPAIR = (partial(Death.at, 1, "after"), partial(Death.at, 1, "before"))
"""One that dies with all of it, and one that then dies before the text in flight is gone."""


@pytest.fixture(autouse=True)
def _nothing_is_reported(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No life finds a fault of ours, and the watch over the log no broken rule."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("play", PLAYS)
async def test_a_death_at_any_write_loses_nothing_and_runs_nothing_twice(play: str, side: Side, tmp_path: Path) -> None:
    """Statements 37, 47 and 58."""
    turn, acts = PLAYS[play]
    kinds: set[str] = set()
    rigs: list[Scene] = []  # All of them are kept, since their ids differ by where they lie in memory.
    number, died = 1, True  # The first write makes the agent.
    while died:
        number += 1
        async with lives(tmp_path) as every:
            life = every.begin(partial(_scene, turn), Death.at(number, side))
            rigs.append(life.rig)
            agent = await life.agent()
            sent: list[Sent] = []
            died = not await life.survives(acts(life.rig, agent, sent))
            if died:
                last = life.death.writes[-1]
                kinds.update(last.types)
                # What is on disk before a write is what is there after the one before it, so that one side is enough.
                loads = AFTER_REPAIR if side == "after" else ()
                try:
                    await _goes_on(every, life, agent.id, sent, life.rig.bodies.begun, loads)
                except AssertionError as wrong:
                    wrong.add_note(f"it died {side} {last}")
                    raise
    assert {"agent/inbox/enqueue", "request/sent", "drafts", "turn/end", "drop"} <= kinds


@pytest.mark.parametrize(
    ("side", "event", "begun", "code"),
    [
        ("before", "tool/start", False, "TOOL_NOT_STARTED"),
        ("after", "tool/start", False, "TOOL_OUTCOME_UNKNOWN"),
        ("before", "tool/result", True, "TOOL_OUTCOME_UNKNOWN"),
        ("after", "tool/result", True, None),
    ],
    ids=["before its start", "before its body", "before its result", "after its result"],
)
async def test_a_death_around_a_body_leaves_what_is_known_of_it(
    side: Side, event: str, begun: bool, code: str | None, tmp_path: Path
) -> None:
    """Statement 37: the model is told, and repeats nothing by itself."""
    async with lives(tmp_path) as every:
        life = every.begin(partial(_scene, "allowed"), Death.around(event, side))
        agent = await life.agent()
        sent: list[Sent] = []
        assert not await life.survives(_two_messages(life.rig, agent, sent))
        assert life.rig.bodies.begun == (["touch b"] if begun else [])
        last = await _goes_on(every, life, agent.id, sent, life.rig.bodies.begun)
        assert await _codes(last, agent.id) == [code]


async def test_a_death_while_a_body_runs(tmp_path: Path) -> None:
    """Statement 37."""
    async with lives(tmp_path) as every:
        tool = Stubborn()
        life = every.begin(tool.rig)
        agent = await life.agent()
        sent = [await agent.followup(content("one"), id=mid("first"))]
        await until(lambda: tool.begun)
        await life.kill()
        last = await _goes_on(every, life, agent.id, sent, tool.begun, BEFORE_REPAIR)
        assert await _codes(last, agent.id) == ["TOOL_OUTCOME_UNKNOWN"]


@pytest.mark.parametrize("keep_inbox", [False, True])
@pytest.mark.parametrize("told", [False, True])
async def test_a_death_in_the_middle_of_a_cancel(told: bool, keep_inbox: bool, tmp_path: Path) -> None:
    """Statements 37 and 56: the cancel was never acknowledged, so what waits is kept. It dies once the cancel is on
    disk, or while the work is being stopped."""
    async with lives(tmp_path) as every:
        tool = Stubborn()
        life = every.begin(tool.rig, Death() if told else Death.around("turn/cancel", "after"))
        agent = await life.agent()
        sent = [await agent.followup(content("one"), id=mid("first"))]
        sent.append(await agent.followup(content("two"), id=mid("second")))
        await until(lambda: tool.begun)
        cancelling = asyncio.ensure_future(agent.cancel("user", keep_inbox=keep_inbox))
        await until(lambda: tool.stopping if told else life.death.over.is_set())
        await life.kill()
        assert cancelling.cancelled()
        assert any(isinstance(event.data, TurnCancel) for event in await life.stored())
        last = await _goes_on(every, life, agent.id, sent, tool.begun, AFTER_REPAIR)
        assert await _codes(last, agent.id) == ["TOOL_OUTCOME_UNKNOWN"]
        assert "two" in sent_texts(last.model.requests[-1])


async def test_a_death_while_hooks_are_asked_leaves_the_message_where_it_waits(tmp_path: Path) -> None:
    """Statement 58: a claim is nothing before its step has begun."""
    async with lives(tmp_path) as every:
        hook = Pondering()
        life = every.begin(lambda store: Rig(Path(), store=store, hooks=Hooks(pre_step=(hook,))))
        agent = await life.agent()
        sent = [await agent.followup(content("one"), id=mid("first"))]
        await until(lambda: hook.asked)
        await life.kill()
        assert not any(isinstance(event.data, TurnStart) for event in await life.stored())
        last = await _goes_on(every, life, agent.id, sent, [])
        assert sent_texts(last.model.requests[0])[0] == "one"


async def test_a_death_while_a_retry_waits_ends_the_turn(tmp_path: Path) -> None:
    """The failed attempt stays drawn and unsent, and a person may try again at once."""
    async with lives(tmp_path) as every:
        waits = Hooks(request_error=(Retries(RetryPolicy(initial_delay_ms=10_000), lambda: 0.5),))
        life = every.begin(lambda store: Rig(Path(), store=store, hooks=waits))
        agent = await life.agent()
        await agent.followup(content("one"), id=mid("first"))
        await life.rig.model.asked(1)
        life.rig.model.text("half")
        life.rig.model.fail()
        await until(lambda: any(block.kind == "retry" for block in rows(agent.view)))
        await life.kill()
        again = every.begin(_next_scene)
        agent = await again.agent(agent.id)
        _check_rows(life.death.drawn, rows(agent.view))
        failed = next(block for block in rows(agent.view) if block.kind == "assistant")
        assert (failed.body, failed.state) == ("half", "failed")
        assert (await agent.retry(1, id=mid("again"))).outcome == "started"
        await _rest(agent)
        assert sent_texts(again.rig.model.requests[0])[0] == "one"
        assert "half" not in sent_texts(again.rig.model.requests[0])
        check_log(await again.rig.log(agent))


async def test_a_death_while_a_person_is_asked_takes_the_question_back(tmp_path: Path) -> None:
    """Statement 37: nothing was done, and an answer that comes now is too late."""
    async with lives(tmp_path) as every:
        life = every.begin(partial(_scene, "allowed"))
        agent = await life.agent()
        sent = [await agent.followup(content("one"), id=mid("first"))]
        await until(lambda: state(agent).requests)
        (asked,) = state(agent).requests
        await life.kill()
        last = await _goes_on(every, life, agent.id, sent, life.rig.bodies.begun, BEFORE_REPAIR)
        assert await _codes(last, agent.id) == ["TOOL_NOT_STARTED"]
        agent = await last.host.get(agent.id)
        late = await agent.answer(asked.request_id, "allow", shown=asked.shown, by="late")
        assert late == Answered("already-resolved", None)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_death_while_an_agent_is_made_leaves_it_whole_or_not_at_all(side: Side, tmp_path: Path) -> None:
    async with lives(tmp_path) as every:
        life = every.begin(_next_scene, Death.at(1, side))
        assert not await life.survives(life.agent())
        again = every.begin(_next_scene)
        listed, _ = await again.rig.host.list()
        assert len(listed) == (1 if side == "after" else 0)
        for row in listed:
            await _finish(again.rig, await again.agent(AgentId(row.summary.header.id)))


# What holds after a death ----------------------------------------------------------------------------------------


async def _goes_on(
    every: Lives,
    dead: Life[Any],
    name: AgentId,
    sent: list[Sent],
    begun: list[str],
    loads: Sequence[Callable[[], Death]] = (Death,),
) -> Rig:
    """Load what a life has left, as often as there are `loads` that end so and once more, and have a person go on; the
    rig of the last life. `sent` was acknowledged, and `begun` are the bodies that ran."""
    left = repaired = await dead.stored()
    for load in loads:
        life = every.begin(_next_scene, load())
        await life.survives(life.rig.host.get(name))
        await life.kill()
        repaired = _loaded(left, repaired, await life.stored())
    life = every.begin(_next_scene)
    agent = await life.agent(name)
    repaired = _loaded(left, repaired, tuple(await life.rig.log(agent)))
    assert repair(SessionState().apply_all(repaired), {}) == ()
    check_log(repaired)
    _check_calls(repaired, len(left), begun)
    _check_sends(repaired, state(agent), sent)
    _check_rows(dead.death.drawn, rows(agent.view))
    assert rows(agent.view) == render(repaired)[1]
    assert state(agent).status == "idle", "nothing runs before a person says so"
    assert life.rig.model.requests == []
    await _finish(life.rig, agent)
    return life.rig


def _loaded(left: tuple[Event, ...], before: tuple[Event, ...], after: tuple[Event, ...]) -> tuple[Event, ...]:
    """The log after a load: nothing of it is lost, and once it is repaired nothing more is added."""
    assert after[: len(before)] == before
    assert before == left or after == before, "another load adds nothing"
    return after


async def _finish(scene: Scene, agent: Agent) -> None:
    """Let go of what is held, and ask once more: the model reads all that there was."""
    answers = [block for block in rows(agent.view) if block.kind == "assistant"]
    interrupted = {block.body for block in answers if block.state == "interrupted"}
    await agent.resume()
    assert (await agent.followup(content("three"), id=mid("last"))).outcome in ("started", "queued")
    await _rest(agent)
    assert state(agent).inbox == ()
    events = await scene.log(agent)
    check_log(events)
    end = next(event.data for event in reversed(events) if isinstance(event.data, TurnEnd))
    assert end.reason == Completed()
    assert rows(agent.view) == render(events)[1]
    read = sent_texts(scene.model.requests[-1])
    assert read.count("three") == 1
    assert interrupted <= set(read), "the model reads what a person saw of an answer that was cut"
    assert scene.bodies.begun == [], "what ran in another life does not run again"


def _check_calls(events: Iterable[Event], left: int, begun: list[str]) -> None:
    """Every body had its start in the log and ran once; every call has one result, which says what is known of it."""
    calls: dict[str, str] = {}
    asked: dict[str, str] = {}
    denied: set[str] = set()
    started: set[str] = set()
    results: Counter[str] = Counter()
    for event in events:
        match event.data:
            case ToolCall(call_id=call, name=tool, arguments=arguments):
                calls[call] = f"{tool} {(parse_arguments(arguments) or {}).get('at')}"
            case ApprovalAsked(request, call):
                asked[request] = call
            case ApprovalDecided(request, "deny" | "deny-and-stop"):
                denied.add(asked[request])
            case ToolStart(call):
                assert event.seq < left, "nothing is started by a load"
                started.add(call)
            case ToolResult(call_id=call, error=error):
                results[call] += 1
                if event.seq >= left:
                    assert error is not None
                    unstarted = "DENIED" if call in denied else "TOOL_NOT_STARTED"
                    assert error.code == ("TOOL_OUTCOME_UNKNOWN" if call in started else unstarted)
    assert results == Counter(calls.keys())
    assert Counter(begun) <= Counter(calls[call] for call in started)


def _check_sends(events: Iterable[Event], state: AgentState, sent: list[Sent]) -> None:
    """What was acknowledged is there once: it waits, was taken into history, or was discarded."""
    entered: Counter[str] = Counter()
    said: Counter[str] = Counter()
    left: dict[str, str] = {}
    for event in events:
        match event.data:
            case Enqueue(item):
                entered[item.id] += 1
            case UserMessage(message):
                said[message.id] += 1
            case Dequeue(taken):
                assert taken not in left
                left[taken] = "taken"
            case Discard(ids):
                assert not left.keys() & set(ids)
                left |= dict.fromkeys(ids, "discarded")
    for one in sent:
        assert one.outcome in ("started", "queued", "steering", "injected")
        assert (said if one.outcome == "injected" else entered)[one.message_id] == 1, one
    waiting = [item.message_id for item in state.inbox]
    assert all(item.held for item in state.inbox)
    assert sorted((*waiting, *left)) == sorted(entered)
    for name, times in entered.items():
        assert times == 1
        assert said[name] == (1 if left.get(name) == "taken" else 0)


def _check_rows(seen: list[Block], drawn: list[Block]) -> None:
    """What a person had seen is there as it was, or as far as it had come."""
    now = {block.id: block for block in drawn}
    assert [block.id for block in seen if block.id not in now] == []
    for block in seen:
        if block.state != "streaming":
            assert now[block.id] == block
            continue
        assert now[block.id].state != "streaming", block
        if block.kind in ("assistant", "reasoning"):
            assert now[block.id].body.startswith(block.body)
    assert all(block.state != "streaming" for block in drawn)


async def _codes(rig: Rig, name: AgentId) -> list[str | None]:
    """How each call of the log has ended: the code of its error, None where it went well."""
    results = (event.data for event in await rig.log(await rig.host.get(name)))
    return [data.error.code if data.error else None for data in results if isinstance(data, ToolResult)]


# Lives -----------------------------------------------------------------------------------------------------------


def _scene(turn: str, store: SessionStore) -> Scene:
    return Scene(Path(), turn, store)


def _next_scene(store: SessionStore) -> Scene:
    """A process with a model that only talks."""
    return Scene(Path(), "text", store)


class Stubborn(Look):
    """A tool whose body does not end, and takes its time to stop."""

    name = "touch"

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopping = False

    def rig(self, store: SessionStore) -> Rig:
        """A process whose model calls it."""
        registry = Registry()
        registry.register(self)
        return Rig(Path(), ScriptModel((called(TOUCH),)), store=store, registry=registry)

    async def run(self, arguments: AtArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        self.begun.append(f"touch {arguments.at}")
        try:
            await asyncio.Event().wait()
        finally:
            self.stopping = True
            await asyncio.Event().wait()
        return Output("never")


class Pondering:
    """A hook that never answers."""

    asked = False

    async def pre_step(self, entry: Entry) -> Enter:
        self.asked = True
        await asyncio.Event().wait()
        return Enter()


async def _rest(agent: Agent) -> None:
    await until(lambda: state(agent).status == "idle" and agent._loop._driver.done())  # type: ignore[attr-defined]
