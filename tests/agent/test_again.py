"""A turn that a person has tried again: which one can be, what it sends, and that asking twice is asking once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.agent.agent import Agent
from agentls.agent.go_on import GoOn
from agentls.agent.hooks import Enter, Entry, Hooks, Reject
from agentls.core.events import TurnStart
from agentls.core.reasons import Completed, MaxTokens, RetryTrigger
from tests.agent.hands import Before, HandRig, asked, call, datas, died, ends, hands, over, state, streaming, waits
from tests.harness import content, idle, mid, notice, rows, sent_texts, types, until


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[HandRig]:
    async with hands(tmp_path, Hooks(pre_step=(GoOn(),))) as made:
        yield made


async def ended(on: HandRig, how: str) -> Agent:
    """An agent whose first turn has ended like that."""
    agent = await asked(on)
    match how:
        case "error":
            on.model.fail()
        case "aborted":
            await agent.cancel("user")
        case "max-tokens":
            on.model.finish(MaxTokens())
        case "completed":
            await on.model.answer("done", 1)
    await idle(agent)
    last = state(agent).last_turn
    assert last is not None
    assert (last.number, last.reason) == (1, how)
    return agent


@pytest.mark.parametrize("how", ["error", "aborted", "max-tokens"])
async def test_a_turn_that_did_not_complete_is_tried_again_in_a_turn_of_its_own(on: HandRig, how: str) -> None:
    agent = await ended(on, how)
    sent = await agent.retry(1, id=mid("again"))
    assert (sent.message_id, sent.outcome, sent.turn) == ("again", "started", 2)
    assert sent_texts(await over(on, agent, 2)) == ["go"]
    log = await on.log(agent)
    assert datas(log, TurnStart)[1] == TurnStart(2, RetryTrigger(1, mid("again")))
    assert ends(log)[-1] == Completed()
    assert [row.kind for row in rows(agent.view)].count("user") == 1, "it is no message of the person's"


async def test_a_turn_that_a_dying_server_left_is_tried_again(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        name = await died(on, await asked(on))
        async with hands(tmp_path) as again:
            agent = await again.host.get(name)
            assert state(agent).last_turn is not None
            assert (await agent.retry(1, id=mid("again"))).outcome == "started"
            assert sent_texts(await over(again, agent, 1)) == ["go"]


@pytest.mark.parametrize("turn", [0, 1, 2])
async def test_a_completed_turn_is_not_tried_again(on: HandRig, turn: int) -> None:
    agent = await ended(on, "completed")
    refused = await agent.retry(turn, id=mid("again"))
    assert (refused.outcome, refused.reason, refused.content) == ("refused", "not-retryable", ())
    assert types(await on.log(agent))[-1] == "turn/end"


@pytest.mark.parametrize("turn", [0, 2])
async def test_only_the_last_turn_is_tried_again(on: HandRig, turn: int) -> None:
    agent = await ended(on, "error")
    assert (await agent.retry(turn, id=mid("again"))).reason == "not-retryable"


async def test_a_turn_that_was_blocked_or_never_was_is_not_tried_again(tmp_path: Path) -> None:
    async def rejects(entry: Entry) -> Enter | Reject:
        return Reject("no")

    async with hands(tmp_path, Hooks(pre_step=(Before(rejects),))) as on:
        agent = await on.agent()
        assert (await agent.retry(1, id=mid("a"))).reason == "not-retryable"
        await agent.followup(content("go"), id=mid("m1"))
        await idle(agent)
        assert (await agent.retry(1, id=mid("a"))).reason == "not-retryable"


async def test_nothing_is_tried_again_while_a_turn_runs(on: HandRig) -> None:
    agent = await ended(on, "error")
    await agent.followup(content("other"), id=mid("m2"))
    assert (await agent.retry(1, id=mid("a"))).reason == "turn-open"
    await on.model.asked(2)
    assert (await agent.retry(1, id=mid("a"))).reason == "turn-open"
    await over(on, agent, 2)


async def test_a_context_that_came_since_hides_nothing(on: HandRig) -> None:
    agent = await ended(on, "error")
    await agent.inject(content("note"), id=mid("i1"), source=notice())
    sent = await agent.retry(1, id=mid("again"))
    assert (sent.outcome, sent.turn) == ("started", 3)
    assert sent_texts(await over(on, agent, 2)) == ["go", "note"]


async def test_the_same_retry_twice_is_one(on: HandRig) -> None:
    agent = await ended(on, "error")
    first, second = await asyncio.gather(agent.retry(1, id=mid("r")), agent.retry(1, id=mid("r")))
    assert [(sent.outcome, sent.turn, sent.repeated) for sent in (first, second)] == [
        ("started", 2, False),
        ("started", 2, True),
    ]
    await on.model.asked(2)
    on.model.fail()
    await idle(agent)
    repeat = await agent.retry(1, id=mid("r"))
    assert (repeat.outcome, repeat.turn, repeat.repeated, repeat.now) == ("started", 2, True, "taken")
    assert (await agent.retry(2, id=mid("r"))).reason == "id-conflict"
    assert (await agent.followup(content("x"), id=mid("r"))).reason == "id-conflict"
    assert (await agent.retry(2, id=mid("m1"))).reason == "id-conflict"
    assert (len(on.model.requests), state(agent).status) == (2, "idle")


async def test_two_retries_at_once_are_one_turn(on: HandRig) -> None:
    agent = await ended(on, "error")
    first, second = await asyncio.gather(agent.retry(1, id=mid("r")), agent.retry(1, id=mid("s")))
    assert (first.outcome, second.reason) == ("started", "turn-open")
    await over(on, agent, 2)


async def test_what_is_held_stays_held(on: HandRig) -> None:
    agent = await asked(on)
    await agent.followup(content("later"), id=mid("m2"))
    on.model.fail()
    await idle(agent)
    await agent.retry(1, id=mid("again"))
    assert sent_texts(await over(on, agent, 2)) == ["go"]
    assert waits(agent) == [("m2", "queued", True)]
    assert state(agent).status == "idle"


async def test_a_retry_is_cancelled_and_steered_like_any_turn(on: HandRig) -> None:
    agent = await ended(on, "error")
    await agent.retry(1, id=mid("again"))
    await on.model.asked(2)
    assert (await agent.steer(content("s"), id=mid("s1"))).turn == 2
    await agent.cancel("user", keep_inbox=True, turn=2)
    assert waits(agent) == [("s1", "queued", True)]
    await agent.retry(2, id=mid("once more"))
    await over(on, agent, 3)


async def test_a_retry_that_cannot_be_saved_is_refused(on: HandRig) -> None:
    agent = await ended(on, "error")
    on.disk.full = True
    refused = await agent.retry(1, id=mid("again"))
    assert (refused.outcome, refused.reason) == ("refused", "store-unavailable")
    assert (await agent.retry(1, id=mid("again"))).reason == "store-unavailable"
    on.disk.full = False
    await until(lambda: state(agent).store == "ok")
    assert len(on.model.requests) == 1
    assert (await agent.retry(1, id=mid("again"))).outcome == "started", "a refusal is judged anew"
    await over(on, agent, 2)


async def test_a_model_whose_answer_broke_off_is_told_to_go_on(on: HandRig) -> None:
    agent = await streaming(on, "half a")
    await agent.cancel("user")
    await agent.retry(1, id=mid("again"))
    sent = sent_texts(await on.model.asked(2))
    assert sent[:2] == ["go", "half a"]
    assert "Go on from where it ended" in sent[2]
    call(on.model, ("look", "a"))
    later = sent_texts(await over(on, agent, 3))
    assert sum("Go on" in text for text in later) == 1, "once, not at each step"


async def test_a_model_that_has_not_begun_to_answer_is_told_nothing(on: HandRig) -> None:
    agent = await asked(on)
    call(on.model, ("solo", "a"))
    await on.model.asked(2)
    on.model.fail()
    await idle(agent)
    await agent.retry(1, id=mid("again"))
    sent = await over(on, agent, 3)
    assert [str(message.id) for message in sent.messages] == ["m1", "a1.1.1", "r:t1.1.1"]
