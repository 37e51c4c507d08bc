"""What a client is sent brings it to what the view draws, however slow it is and whenever it attaches."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentls.agent.view import PAGE, Frame
from agentls.core.chunks import Usage
from agentls.core.ids import BlockId
from agentls.core.json import JsonObject
from agentls.core.rows import Block, CallFacts
from agentls.core.transcript import Append, Change, Drop, Put
from agentls.lsp.framing import Framer, framed
from agentls.lsp.outbox import Outboxes
from agentls.lsp.transport import STALL_SECONDS, FileSink, Writer
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.lsp.doubles import FakeAgent, block
from tests.lsp.lines import Line, Valve, assert_same, attached
from tests.reducer import Reducer

TEXTS = ["", "a", "é", "測試🙂", "\n\n", "x" * 50, "é" * 40_000, "🙂x" * 20_000]
PARTS = ["done", "failed", "summary", "bare", "call"]

Step = tuple[object, ...]


def _steps(choose: Callable[[int], int], count: int) -> list[Step]:
    """Random steps. A stall is ended by chance only, so that most changes meet a client that is behind."""
    return [_step(choose) for _ in range(count)]


def _step(choose: Callable[[int], int]) -> Step:
    match choose(22):
        case 0 | 1 | 2:
            return "put", choose(4), TEXTS[choose(len(TEXTS))]
        case 3 | 4 | 5:
            return "rest", choose(4), PARTS[choose(len(PARTS))]
        case 6 | 7 | 8 | 9:
            return "append", choose(4), TEXTS[choose(len(TEXTS))]
        case 10 | 11:
            return "drop", choose(4)
        case 12 | 13:
            return "state", choose(3)
        case 14:
            return "stall", True
        case 15:
            return "stall", choose(3) > 0
        case 16:
            return "attach", choose(2) == 1
        case 17:
            return ("answer",)
        case 18:
            return ("settle",)
        case 19 | 20:
            return "context", choose(1 << 30)
        case _:
            return "reconnect", choose(4) > 0


def _change(agent: FakeAgent, step: Step) -> Change | None:
    name = f"b{step[1]}"
    drawn = agent.view.drawn(BlockId(name))
    match step[0], step[2] if len(step) > 2 else None:
        case "put", str(text):
            return Put(block(name, cast(int, step[1]), text))
        case "append", str(text) if drawn is not None:
            return Append(BlockId(name), text)
        case "drop", None:
            return Drop(BlockId(name))
        case "rest", what if drawn is not None:
            return Put(_with(drawn.block, cast(str, what)))
    return None


def _with(shown: Block, what: str) -> Block:
    match what:
        case "summary":
            return replace(shown, summary="a line", usage=Usage(1, 2), volatile=True)
        case "bare":
            return replace(shown, summary=None, usage=None, call=None, volatile=False)
        case "call":
            return replace(shown, call=CallFacts("grep", "{}", "running"))
    return replace(shown, state=what)  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_client_ends_with_what_the_view_draws(data: st.DataObject) -> None:
    choose = data.draw(st.functions(like=_choose, returns=st.integers(0, 1 << 30)))
    count = data.draw(st.integers(0, 30))
    asyncio.run(_run(_steps(lambda below: choose(below) % below, count)))


def _choose(below: int) -> int:
    """The shape of a choice: a number that hypothesis draws for each bound."""
    return below


@pytest.mark.parametrize("seed", range(100))
async def test_so_it_does_after_a_long_time(seed: int) -> None:
    for length in (20, 60, 300):
        await _run(_steps(random.Random(seed + length).randrange, length))


async def _run(steps: list[Step]) -> None:
    agent = FakeAgent()
    line = Line(agent)
    line.ask_attach(since=False)
    line.answer()
    for step in steps:
        match step:
            case "state", number:
                agent.title(f"title {number}")
            case "context", int(number):
                name = f"c:{number}"
                agent.put(block(name, 1000 + number, "x", kind="context", form="snapshot", producer=f"p{number % 3}"))
            case "stall", True:
                line.valve.open.clear()
            case "stall", False:
                line.valve.release()
            case "attach", bool(since):
                await line.settle()
                if not line.answered and line.reducer.rev is not None:
                    line.ask_attach(since=since)
            case ("answer",):
                line.answer()
            case ("settle",):
                await line.settle()
            case "reconnect", bool(since):
                # What was not received is lost with the connection.
                line.receive()
                known = line.reducer.rev is not None
                await line.end()
                if not known:
                    line.reducer = Reducer()
                line.connect()
                line.ask_attach(since=since and known)
            case _:
                if (change := _change(agent, step)) is not None:
                    agent.view.publish((change,))
    line.valve.open.set()
    line.answer()
    await line.settle()
    assert_same(line.reducer, agent)
    told = [notice["blockId"] for notice in line.notices if notice["method"] == "agent/context"]
    assert len(told) == len(set(told))
    await line.end()


@pytest.mark.parametrize("seed", range(40))
async def test_pages_and_changes_of_old_blocks_do_not_miss_each_other(seed: int) -> None:
    chance = random.Random(seed)
    old = tuple(block(f"b{n}", n, f"body {n}", state="done") for n in range(PAGE + 30))
    streaming = chance.randrange(len(old))
    old = (*old[:streaming], replace(old[streaming], state="streaming"), *old[streaming + 1 :])
    agent = FakeAgent(blocks=old)
    line = Line(agent)
    line.ask_attach(since=False)
    line.answer()
    await line.settle()
    while line.reducer.before is not None or chance.random() < 0.8:
        match chance.randrange(6):
            case 0:
                line.ask_page()
            case 1:
                line.answer()
            case 2:
                drawn = agent.view.drawn(BlockId(f"b{chance.randrange(len(old))}"))
                if drawn is not None:
                    agent.put(replace(drawn.block, summary=f"changed {chance.random()}", state="rewound"))
            case 3:
                drawn = agent.view.drawn(BlockId(f"b{streaming}"))
                if drawn is not None and drawn.block.state == "streaming":
                    agent.append(f"b{streaming}", " and more")
            case 4:
                line.valve.open.clear() if chance.random() < 0.5 else line.valve.open.set()
            case 5:
                line.valve.open.set()
                await line.settle()
    line.valve.open.set()
    line.answer()
    await line.settle()
    assert_same(line.reducer, agent)
    await line.end()


async def test_a_block_that_came_back_while_a_client_was_away_holds_nothing_of_before() -> None:
    agent, line = await attached(block("a", 1, "first", summary="a line"))
    await line.end()
    agent.drop("a")
    agent.put(block("a", 1, "second"))
    line.connect()
    line.ask_attach(since=True)
    line.answer()
    await line.settle()
    assert_same(line.reducer, agent)
    await line.end()


# Single rules --------------------------------------------------------------------------------------------------


@dataclass
class Captured:
    line: Line

    def frames(self) -> list[JsonObject]:
        framer = Framer()
        framer.feed(bytes(self.line.valve.taken))
        self.line.valve.taken.clear()
        found = []
        while isinstance(body := framer.next(), bytes):
            found.append(cast(JsonObject, orjson.loads(body)))
        return found


async def test_a_frame_is_written_at_once_and_made_once_for_all() -> None:
    agent, one = await attached()
    two = Line(agent)
    two.ask_attach(since=False)
    two.answer()
    await two.settle()
    frames: list[Frame] = []
    agent.view.subscribe(frames.append)
    agent.put(block("a", 1, "hello"))
    assert frames[0].encoded is not None
    assert bytes(one.valve.taken) == bytes(two.valve.taken) == frames[0].encoded
    await one.end()
    await two.end()


async def test_a_changed_field_travels_alone() -> None:
    agent, line = await attached(block("a", 1, "a long body"))
    agent.put(block("a", 1, "a long body", state="done", finish="stop"))
    (frame,) = Captured(line).frames()
    (op,) = cast(list[JsonObject], cast(JsonObject, frame["params"])["ops"])
    assert op == {
        "op": "put",
        "block": {"id": "a", "order": [1, 0], "rev": 2, "kind": "assistant", "state": "done", "finish": "stop"},
    }
    await line.end()


async def test_a_cleared_field_is_null_and_named() -> None:
    """A client whose reader of JSON drops nulls goes by the names."""
    agent, line = await attached(block("a", 1, "text", finish="stop"))
    agent.put(block("a", 1, "text"))
    (frame,) = Captured(line).frames()
    (op,) = cast(list[JsonObject], cast(JsonObject, frame["params"])["ops"])
    assert op == {
        "op": "put",
        "block": {"id": "a", "order": [1, 0], "rev": 2, "kind": "assistant", "finish": None},
        "cleared": ["finish"],
    }
    await line.end()


async def test_a_stalled_client_costs_its_blocks_and_not_its_frames() -> None:
    agent, line = await attached(block("a", 1, ""))
    line.valve.open.clear()
    line.writer.write(b"x")  # the first byte that the client does not take
    outbox = line.outboxes.of(agent.id)
    assert outbox is not None
    for number in range(5000):
        agent.append("a", "token ")
        agent.put(block(f"v{number}", 2 + number, "passing by"))
        agent.drop(f"v{number}")
        agent.title(f"title {number}")
    assert outbox.kept == 2
    assert line.writer.pending == 1
    line.valve.open.set()
    await asyncio.sleep(0)
    line.valve.taken[:1] = b""
    await line.settle()
    assert_same(line.reducer, agent)
    assert line.reducer.frames == 2
    await line.end()


async def test_a_merged_append_sends_only_what_is_new() -> None:
    agent, line = await attached(block("a", 1, "é" * 1000))
    line.valve.open.clear()
    line.writer.write(framed(b"{}"))
    agent.append("a", "one ")
    agent.append("a", "two")
    agent.put(block("a", 1, "é" * 1000 + "one two", state="done"))
    line.valve.open.set()
    for _ in range(4):
        await asyncio.sleep(0)
    frame = Captured(line).frames()[-1]
    put, append = cast(list[JsonObject], cast(JsonObject, frame["params"])["ops"])
    assert "body" not in cast(JsonObject, put["block"])
    assert append == {"op": "append", "id": "a", "offset": 2000, "text": "one two"}
    await line.end()


async def test_merged_frames_rise_around_the_state() -> None:
    agent, line = await attached()
    line.valve.open.clear()
    line.writer.write(framed(b"{}"))
    agent.put(block("early", 1, "x"))
    agent.title("told between")
    agent.put(block("late", 2, "y"))
    line.valve.open.set()
    for _ in range(4):
        await asyncio.sleep(0)
    frames = Captured(line).frames()[1:]
    assert [frame["method"] for frame in frames] == ["agent/blocks", "agent/state", "agent/blocks"]
    revs = [cast(JsonObject, frame["params"])["rev"] for frame in frames]
    assert revs == sorted(set(cast(list[int], revs)))
    await line.end()


async def test_a_long_body_is_a_put_and_appends_of_at_most_64_kib() -> None:
    agent, line = await attached()
    agent.put(block("a", 1, "🙂" * 50_000))
    (frame,) = Captured(line).frames()
    ops = cast(list[JsonObject], cast(JsonObject, frame["params"])["ops"])
    assert [op["op"] for op in ops] == ["put", "append", "append", "append"]
    sizes = [len(cast(str, cast(JsonObject, ops[0]["block"])["body"]).encode())]
    sizes += [len(cast(str, op["text"]).encode()) for op in ops[1:]]
    assert max(sizes) <= 64 * 1024
    assert sum(sizes) == 200_000
    await line.end()


async def test_a_lone_surrogate_becomes_a_sign_that_can_be_written() -> None:
    agent, line = await attached()
    agent.title("half \ud83d of it")
    (frame,) = Captured(line).frames()
    assert cast(JsonObject, frame["params"])["title"] == "half \ufffd of it"
    await line.end()


async def test_a_client_without_progress_and_a_great_backlog_is_disconnected() -> None:
    valve = Valve()
    valve.open.clear()
    writer = Writer(valve, backlog=100, stall=0.01)
    writer.write(b"x" * 60)
    await asyncio.sleep(0)
    writer.write(b"y" * 60)
    async with asyncio.timeout(10):
        await writer.lost()
    assert valve.aborted
    await writer.close()


async def test_an_output_that_fails_hurts_nobody_but_its_client() -> None:
    agent, line = await attached(block("a", 1, "x"))
    writer = Writer(FileSink(os.open("/dev/full", os.O_WRONLY)))
    outboxes = Outboxes(writer)
    outboxes.attach(agent, None, None)[1].resume()
    agent.append("a", " and more")
    async with asyncio.timeout(10):
        await writer.lost()
    agent.append("a", " and more again")
    await line.settle()
    assert_same(line.reducer, agent)
    outboxes.close()
    await writer.close()
    await line.end()


def test_a_slow_client_with_little_waiting_is_kept() -> None:
    async def main(_: SteppingLoop) -> None:
        valve = Valve()
        valve.open.clear()
        writer = Writer(valve, backlog=100)
        writer.write(b"x" * 60)
        await asyncio.sleep(10 * STALL_SECONDS)
        assert not valve.aborted
        valve.open.set()
        await writer.close()
        assert bytes(valve.taken) == b"x" * 60

    run_stepping(main)
