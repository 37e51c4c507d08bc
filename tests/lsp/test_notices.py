"""Contexts, calls for the person and changed lists are told once, to those whom they concern, also to slow ones."""

from __future__ import annotations

import asyncio

import pytest

from agentls.core.json import JsonObject
from agentls.core.rows import Block
from agentls.lsp.framing import framed
from agentls.lsp.lists import Lists
from agentls.lsp.transport import Writer
from tests.lsp.clients import Client, Served
from tests.lsp.doubles import FakeAgent, FakeHost, block
from tests.lsp.lines import Line, Valve, attached


def context(name: str, seq: int, *, form: str = "snapshot", producer: str = "git", summary: str | None = None) -> Block:
    return block(
        f"c:{name}", seq, "text", kind="context", state="done", title="Context", form=form, producer=producer,
        summary=summary, role="user",
    )  # fmt: skip


def shut(line: Line) -> None:
    """From now on the client takes nothing."""
    line.valve.open.clear()
    line.writer.write(framed(b'{"method":"agent/none","params":{}}'))


async def opened(line: Line) -> list[JsonObject]:
    """What the client is told once it takes everything again."""
    line.valve.open.set()
    await line.settle()
    return [notice for notice in line.notices if notice["method"] != "agent/none"]


# Contexts ------------------------------------------------------------------------------------------------------


async def test_a_context_is_told_once_right_after_its_frame() -> None:
    agent, line = await attached()
    shown = context("p1.1.1", 3, form="notice", producer="lint", summary="two problems")
    agent.put(shown)
    agent.put(block("a", 4, "text"))
    agent.put(block("c:p1.1.1", 3, "text", kind="context", state="rewound", form="notice", producer="lint"))
    await line.settle()
    assert line.notices == [
        {
            "method": "agent/context",
            "agentId": "one",
            "rev": 2,
            "form": "notice",
            "producer": "lint",
            "title": "Context",
            "summary": "two problems",
            "blockId": "c:p1.1.1",
        }
    ]
    await line.end()


async def test_a_snapshot_names_the_one_of_its_producer_that_it_takes_the_place_of() -> None:
    agent, line = await attached(context("old", 1), context("other", 2, producer="time"), context("older", 0))
    agent.put(context("new", 5))
    agent.put(context("clear", 6, form="notice"))
    agent.put(context("newer", 7))
    agent.put(context("first", 8, producer="lint"))
    await line.settle()
    assert [(notice["blockId"], notice.get("supersedes")) for notice in line.notices] == [
        ("c:new", "c:old"), ("c:clear", None), ("c:newer", "c:new"), ("c:first", None),
    ]  # fmt: skip
    await line.end()


async def test_what_an_attach_or_a_page_brings_is_not_told() -> None:
    agent, line = await attached(*(context(f"{n}", n) for n in range(150)))
    line.ask_page()
    line.answer()
    await line.settle()
    await line.end()
    agent.put(context("away", 200))
    line.connect()
    line.ask_attach(since=True)
    line.answer()
    await line.settle()
    assert "c:away" in line.reducer.blocks
    assert line.notices == []
    await line.end()


async def test_a_context_that_comes_before_the_answer_to_an_attach_is_told_after_it() -> None:
    agent = FakeAgent()
    line = Line(agent)
    line.ask_attach(since=False)
    agent.put(context("new", 5))
    line.answer()
    await line.settle()
    assert [notice["blockId"] for notice in line.notices] == ["c:new"]
    await line.end()


async def test_a_slow_client_is_told_of_every_context_that_it_is_sent() -> None:
    agent, line = await attached()
    agent.put(context("early", 1))
    await line.settle()
    shut(line)
    agent.put(context("one", 2))
    agent.title("between")
    agent.put(context("two", 3))
    agent.put(context("gone", 4, producer="time"))
    agent.drop("c:gone")
    assert [notice.get("blockId") for notice in await opened(line)] == ["c:early", "c:one", "c:two"]
    assert line.notices[-1]["supersedes"] == "c:one"
    agent.put(block("c:one", 2, "other", kind="context", state="done", form="snapshot", producer="git"))
    await line.settle()
    assert len(await opened(line)) == 3
    await line.end()


async def test_only_clients_that_are_attached_are_told(served: Served, client: Client, agent: FakeAgent) -> None:
    await client.attach()
    other = await served.started()
    agent.put(context("new", 5))
    await client.until(lambda: client.told("agent/context"))
    await other.call("agent/list")
    assert other.notices == []


# Attention -----------------------------------------------------------------------------------------------------


async def test_a_request_that_opens_calls_for_the_person(client: Client, agent: FakeAgent) -> None:
    agent.title("fix\nthe tests")
    await client.attach()
    agent.run(1)
    agent.run(1, asks="write a.py")
    agent.run(1, 2, asks="write a.py")
    await client.call("agent/list")
    assert client.told("agent/attention") == [{"agentId": "one", "kind": "needs-you", "title": "fix the tests"}]


async def test_a_request_that_was_open_before_is_a_part_of_the_state_only(client: Client, agent: FakeAgent) -> None:
    agent.run(1, asks="write a.py")
    reducer = await client.attach()
    agent.title("changed")
    await client.call("agent/list")
    assert reducer.state["requests"] == [
        {"requestId": "q1.1.1", "kind": "approval", "blockId": "q1.1.1", "shown": "sha256:0", "agentId": "one"}
    ]
    assert client.told("agent/attention") == []


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("completed", "done"), ("error", "failed"), ("max-tokens", "failed"), ("blocked", "failed"), ("aborted", None),
    ],
)  # fmt: skip
async def test_the_end_of_a_turn_is_told_unless_it_was_stopped(
    client: Client, agent: FakeAgent, reason: str, kind: str | None
) -> None:
    await client.attach()
    agent.run(1)
    agent.end(1, reason)
    await client.call("agent/list")
    told = client.told("agent/attention")
    assert told == ([] if kind is None else [{"agentId": "one", "kind": kind, "title": "agentls"}])


async def test_the_end_of_an_injection_is_not_told(client: Client, agent: FakeAgent) -> None:
    await client.attach()
    agent.put(context("c:x", 5))
    agent.end(1, row=False)
    await client.call("agent/list")
    assert client.told("agent/attention") == []


async def test_a_slow_client_is_told_what_still_calls_for_the_person() -> None:
    agent, line = await attached()
    shut(line)
    for turn in range(1, 100):
        agent.run(turn, asks="write a.py")
        agent.end(turn, "error" if turn % 2 else "completed")
    agent.run(100, asks="write b.py")
    (told,) = await opened(line)
    assert told["kind"] == "needs-you"
    shut(line)
    agent.run(101)
    agent.run(101, asks="write c.py")
    agent.run(101)
    assert await opened(line) == [told]
    shut(line)
    agent.end(101)
    assert [notice["kind"] for notice in await opened(line)] == ["needs-you", "done"]
    await line.end()


# Lists ---------------------------------------------------------------------------------------------------------


async def test_a_changed_list_is_told_to_every_client_with_the_extension(
    served: Served, client: Client, host: FakeHost
) -> None:
    other, plain = await served.started(), await served.connect()
    await plain.start(None)
    host.change_list("file:///w")
    for one in (client, other):
        await one.until(lambda one=one: one.told("agent/listChanged") == [{"workspaceUri": "file:///w"}])  # type: ignore[misc]
    await plain.refusal("agent/none")
    assert plain.notices == []


async def test_a_slow_client_is_told_of_a_changed_list_once(host: FakeHost) -> None:
    valve = Valve()
    valve.open.clear()
    writer = Writer(valve)
    lists = Lists(host, writer)
    writer.write(b"x")
    for _ in range(100):
        host.change_list("file:///a")
        host.change_list("file:///b")
    assert writer.pending == 1
    valve.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert valve.taken.count(b"file:///a") == valve.taken.count(b"file:///b") == 1
    lists.close()
    assert host.list_listeners == []
    await writer.close()
