"""A turn from send to end: what is logged, what the model sees, what is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentls.core.blocks import TextBlock, ToolCallBlock, ToolResultBlock
from agentls.core.chunks import BlockEnd, Finish, ReasoningDelta, TextDelta, Usage, UsageChunk
from agentls.core.events import RequestSent, ToolResult
from agentls.core.ids import CallId
from agentls.core.invariants import check_log
from agentls.core.reasons import MaxTokens, Stop, ToolCalls
from tests.agent.hands import state
from tests.harness import Rig, content, idle, mid, notice, rig, row_ids, rows, sent_texts, types, until


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as made:
        yield made


async def test_a_followup_is_answered_and_the_log_holds_every_step(on: Rig) -> None:
    """Statement 48: the turn is open before the send returns."""
    agent = await on.agent()
    sent = await agent.followup(content("hello"), id=mid("m1"))
    assert (sent.outcome, sent.turn) == ("started", 1)
    assert state(agent).status == "running"
    request = await on.model.asked(1)
    assert sent_texts(request) == ["hello"]
    assert request.system.startswith("You are")
    on.model.give(ReasoningDelta(0, "hm"), TextDelta(1, "hi "), TextDelta(1, "there"), UsageChunk(Usage(7, 3)))
    on.model.finish()
    await idle(agent)
    log = await on.log(agent)
    assert types(log) == [
        "agent/config", "agent/inbox/enqueue", "agent/inbox/dequeue", "turn/start", "step/start", "user/message",
        "request/header", "request/sent", "assistant/message", "step/end", "turn/end",
    ]  # fmt: skip
    assert [event.seq for event in log] == list(range(11))
    assert [(b.kind, b.body, b.state) for b in rows(agent.view)] == [
        ("user", "hello", "done"),
        ("reasoning", "hm", "done"),
        ("assistant", "hi there", "done"),
        ("turn-end", "", "done"),
    ]
    assert state(agent).usage == Usage(7, 3)
    assert state(agent).context_tokens == 10
    check_log(log)


async def test_a_request_records_the_history_it_was_built_from(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.answer("first", 1)
    await idle(agent)
    await agent.followup(content("two"), id=mid("m2"))
    await on.model.answer("second", 2)
    await idle(agent)
    log = await on.log(agent)
    sent = [event for event in log if isinstance(event.data, RequestSent)]
    assert [event.data.boundary for event in sent if isinstance(event.data, RequestSent)] == [
        event.seq - 1 for event in sent
    ]
    ledgers = [[item.what for item in e.data.ledger] for e in sent if isinstance(e.data, RequestSent)]
    assert ledgers == [["system", "m1"], ["a1.1.1", "m2"]]
    assert types(log).count("request/header") == 1, "an unchanged header is not written again"


async def test_two_followups_in_one_tick_are_two_turns_in_order(on: Rig) -> None:
    """Statement 49."""
    agent = await on.agent()
    first = asyncio.ensure_future(agent.followup(content("one"), id=mid("m1")))
    second = asyncio.ensure_future(agent.followup(content("two"), id=mid("m2")))
    assert ((await first).outcome, (await second).outcome) == ("started", "queued")
    assert sent_texts(await on.model.answer("1", 1)) == ["one"]
    assert sent_texts(await on.model.answer("2", 2)) == ["one", "1", "two"]
    await idle(agent)
    assert row_ids(agent.view) == ["u:m1", "a1.1.1/0", "turn1", "u:m2", "a2.1.1/0", "turn2"]


async def test_a_steer_joins_the_running_turn_at_its_next_step(on: Rig) -> None:
    """Case Q07: an acknowledged steer is in the next request of the same turn."""
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    on.model.text("fir")
    steered = await agent.steer(content("shorter"), id=mid("s1"))
    assert (steered.outcome, steered.turn) == ("steering", 1)
    on.model.text("st")
    on.model.finish()
    assert sent_texts(await on.model.answer("second", 2)) == ["one", "first", "shorter"]
    await idle(agent)
    assert row_ids(agent.view) == ["u:m1", "a1.1.1/0", "u:s1", "a1.2.1/0", "turn1"]
    assert [b.title for b in rows(agent.view) if b.kind == "user"] == ["You", "Steering"]


async def test_an_injection_while_idle_draws_one_row_and_asks_no_model(on: Rig) -> None:
    """Statement 51, in the older reading that ours follows: a turn of its own, closed at once."""
    agent = await on.agent()
    sent = await agent.inject(content("main -> dev"), id=mid("i1"), source=notice())
    assert sent.outcome == "injected"
    assert row_ids(agent.view) == ["c:i1"]
    assert (state(agent).status, state(agent).last_turn) == ("idle", None)
    assert on.model.requests == []
    await agent.followup(content("go"), id=mid("m1"))
    assert sent_texts(await on.model.answer("ok", 1)) == ["main -> dev", "go"]
    await idle(agent)


async def test_an_injection_into_a_running_turn_waits_for_the_next_request(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    assert (await agent.inject(content("note"), id=mid("i1"), source=notice())).outcome == "injected"
    await on.model.answer("first", 1)
    await idle(agent)
    assert len(on.model.requests) == 1, "an injection runs nothing"
    await agent.followup(content("two"), id=mid("m2"))
    assert sent_texts(await on.model.answer("second", 2)) == ["one", "first", "note", "two"]
    await idle(agent)


async def test_an_injection_needs_a_source_that_is_no_person(on: Rig) -> None:
    agent = await on.agent()
    with pytest.raises(ValueError, match="not a person"):
        await agent.send(content("x"), id=mid("i"), target="next-step", wakeup=False)


async def test_a_quiet_message_waits_for_the_next_wake_and_keeps_its_place(on: Rig) -> None:
    """Statement 52."""
    agent = await on.agent()
    quiet = await agent.send(content("quiet"), id=mid("q1"), wakeup=False)
    assert (quiet.outcome, quiet.position) == ("queued", 0)
    assert state(agent).status == "idle"
    loud = await agent.followup(content("loud"), id=mid("m1"))
    assert (loud.outcome, loud.position) == ("queued", 1)
    assert sent_texts(await on.model.answer("1", 1)) == ["quiet"]
    assert sent_texts(await on.model.answer("2", 2))[-1] == "loud"
    await idle(agent)


async def test_a_call_of_a_tool_that_is_not_there_is_answered_and_the_turn_goes_on(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("list"), id=mid("m1"))
    await on.model.asked(1)
    on.model.give(
        BlockEnd(0, ToolCallBlock(CallId("x"), "ls", "")), BlockEnd(1, ToolCallBlock(CallId("x"), "ls", "{bad"))
    )
    on.model.finish(ToolCalls())
    request = await on.model.answer("then not", 2)
    results = [b for m in request.messages for b in m.content if isinstance(b, ToolResultBlock)]
    assert [(r.tool_call_id, r.is_error) for r in results] == [("t1.1.1", True), ("t1.1.2", True)]
    await idle(agent)
    log = await on.log(agent)
    codes = [event.data.error.code for event in log if isinstance(event.data, ToolResult) and event.data.error]
    assert codes == ["UNKNOWN_TOOL", "INVALID_ARGS"]
    assert "tool/start" not in types(log), "nothing ran"


async def test_the_output_limit_ends_the_turn_and_a_waiting_steer_opens_the_next(on: Rig) -> None:
    """Statement 65."""
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    on.model.give(TextDelta(0, "lo"), BlockEnd(1, ToolCallBlock(CallId("x"), "ls", "{}")))
    await agent.steer(content("s"), id=mid("s1"))
    on.model.finish(MaxTokens())
    assert sent_texts(await on.model.answer("ok", 2)) == ["one", "lo", "s"]
    await idle(agent)
    assert row_ids(agent.view) == ["u:m1", "a1.1.1/0", "t1.1.1", "turn1", "u:s1", "a2.1.1/0", "turn2"]
    last = state(agent).last_turn
    assert last is not None
    assert (state(agent).hold, last.reason) == (None, "completed")


async def test_a_failed_request_ends_the_turn_holds_what_waits_and_the_next_send_works(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    on.model.text("half")
    await agent.followup(content("waiting"), id=mid("m2"))
    on.model.fail("RATE_LIMIT", "slow down")
    await idle(agent)
    last = state(agent).last_turn
    assert last is not None
    assert (last.reason, state(agent).hold) == ("error", "error")
    assert [(w.message_id, w.held) for w in state(agent).inbox] == [("m2", True)]
    assert [(b.kind, b.state) for b in rows(agent.view)] == [
        ("user", "done"), ("assistant", "failed"), ("error", "failed"), ("turn-end", "failed"),
    ]  # fmt: skip
    assert "wait a little" in rows(agent.view)[2].body
    again = await agent.followup(content("again"), id=mid("m3"))
    assert again.outcome == "started"
    assert sent_texts(await on.model.answer("ok", 2)) == ["one", "again"], "what failed is never sent"
    await idle(agent)
    assert [w.message_id for w in state(agent).inbox] == ["m2"]


async def test_a_model_that_left_the_catalog_is_a_failure_that_says_so(on: Rig) -> None:
    agent = await on.agent()
    on.models.gone = True
    await agent.followup(content("one"), id=mid("m1"))
    await idle(agent)
    error = next(block for block in rows(agent.view) if block.kind == "error")
    assert "not in the catalog any more" in error.body
    on.models.gone = False
    await agent.followup(content("two"), id=mid("m2"))
    await on.model.answer("ok", 1)
    await idle(agent)


async def test_a_fault_of_our_own_closes_the_turn_and_loses_nothing(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    await agent.followup(content("two"), id=mid("m2"))
    on.model.text("half")
    on.model.give("no chunk")  # type: ignore[arg-type]
    await idle(agent)
    last = state(agent).last_turn
    assert last is not None
    assert (last.reason, state(agent).hold) == ("error", "error")
    kinds = [(b.kind, b.state) for b in rows(agent.view)]
    assert ("assistant", "interrupted") in kinds
    await agent.resume()
    await on.model.answer("ok", 2)
    await idle(agent)


async def test_a_stream_is_drawn_while_it_comes_and_stored_before_it_is_drawn(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("one"), id=mid("m1"))
    await on.model.asked(1)
    on.model.text("fir")
    await until(lambda: "a1.1.1/0" in row_ids(agent.view))
    log = agent._journal.log  # type: ignore[attr-defined]
    assert [piece.text for piece in await log.drafts()] == ["fir"]
    on.model.give(TextDelta(0, "st"), Finish(Stop()))
    await idle(agent)
    assert [b.body for b in rows(agent.view) if b.kind == "assistant"] == ["first"]
    assert await log.drafts() == ()
    assert (await on.log(agent))[-3].data.message.content == (TextBlock("first"),)  # type: ignore[attr-defined]


async def test_arguments_nested_beyond_any_parser_are_a_row_and_never_block_a_load(on: Rig) -> None:
    """A small model that repeats itself writes such a call; the session must open for good."""
    agent = await on.agent()
    await agent.followup(content("go"), id=mid("m1"))
    await on.model.asked(1)
    on.model.give(TextDelta(0, "so"), BlockEnd(1, ToolCallBlock(CallId("x"), "ls", "[" * 5000)))
    on.model.finish(ToolCalls())
    await on.model.answer("ok", 2)
    await idle(agent)
    assert [b.kind for b in rows(agent.view)] == ["user", "assistant", "tool", "assistant", "turn-end"]
    name, drawn = agent.id, rows(agent.view)
    await agent.close()
    on.forget(agent)
    assert rows((await on.host.get(name)).view) == drawn


async def test_a_waking_message_of_no_person_runs_like_any_other(on: Rig) -> None:
    agent = await on.agent()
    assert (await agent.send(content("report"), id=mid("a"), source=notice())).outcome == "started"
    assert sent_texts(await on.model.answer("1", 1)) == ["report"]
    await idle(agent)
    assert row_ids(agent.view)[0] == "c:a"
    await agent.followup(content("go"), id=mid("b"))
    await on.model.answer("2", 2)
    await idle(agent)
    check_log(await on.log(agent))


async def test_a_cancelled_request_still_counts_what_it_cost(on: Rig) -> None:
    agent = await on.agent()
    await agent.followup(content("go"), id=mid("m1"))
    await on.model.asked(1)
    on.model.give(TextDelta(0, "half"), UsageChunk(Usage(100, 5)))
    await on.model.taken()
    await until(lambda: "a1.1.1/0" in row_ids(agent.view))
    await agent.cancel("user")
    assert state(agent).usage == Usage(100, 5)
