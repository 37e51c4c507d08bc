"""What a connection promises beside its answers: order, cancellation, several clients, and its end."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from agentls.core.ids import AgentId, BlockId
from agentls.core.json import JsonObject
from agentls.lsp.server import Hub
from tests.lsp.clients import AGENT, Client, Failed, Served, serving
from tests.lsp.doubles import FakeAgent, FakeHost, block


def send(number: int, agent_id: str = "one") -> JsonObject:
    return {"agentId": agent_id, "messageId": f"m-{number}", "content": f"text {number}"}


async def code_of(answer: asyncio.Future[object]) -> int:
    with pytest.raises(Failed) as failed:
        await answer
    return failed.value.code


# Order ---------------------------------------------------------------------------------------------------------


async def test_pipelined_messages_reach_the_agent_in_order(client: Client, agent: FakeAgent) -> None:
    methods = ["agent/send", "agent/followup", "agent/steer"]
    answers = [client.ask(methods[number % 3], send(number)) for number in range(500)]
    await asyncio.gather(*answers)
    assert [noted.id for noted in agent.noted] == [f"m-{number}" for number in range(500)]


async def test_messages_to_an_agent_that_is_loaded_first_keep_their_order(
    client: Client, agent: FakeAgent, host: FakeHost
) -> None:
    stored = FakeAgent("stored")
    host.stored[stored.id] = stored
    early = [client.ask("agent/send", send(number, "stored")) for number in range(20)]
    other = await client.call("agent/send", send(0))
    assert other["outcome"] == "started"
    host.loaded.set()
    late = [client.ask("agent/send", send(number, "stored")) for number in range(20, 40)]
    await asyncio.gather(*early, *late)
    assert [noted.id for noted in stored.noted] == [f"m-{number}" for number in range(40)]


# Cancellation --------------------------------------------------------------------------------------------------


async def test_a_cancelled_request_is_answered_and_what_it_gave_is_not_lost(client: Client, agent: FakeAgent) -> None:
    agent.gate.clear()
    answer = client.ask("agent/send", send(1), id="x")
    await client.call("agent/list")
    client.notify("$/cancelRequest", {"id": "x"})
    assert await code_of(cast(asyncio.Future[object], answer)) == -32800
    agent.gate.set()
    await client.call("agent/send", send(2))
    assert agent.finished == ["m-1", "m-2"]


async def test_a_storm_of_cancelled_requests_is_answered_without_running_them(client: Client, agent: FakeAgent) -> None:
    slow = client.ask("agent/cancel", {"agentId": "one"})
    agent.gate.clear()
    storm = []
    for number in range(30):
        storm.append(client.ask("agent/send", send(number), id=f"s{number}"))
        client.notify("$/cancelRequest", {"id": f"s{number}"})
    codes = [await code_of(cast(asyncio.Future[object], answer)) for answer in storm]
    assert codes == [-32800] * 30
    # They were in one chunk with their cancels, so that none had begun.
    assert agent.noted == []
    agent.gate.set()
    await slow


async def test_a_client_cannot_cancel_what_it_was_asked(client: Client, served: Served) -> None:
    asked = served.servers[0].protocol.send_request_async("agent/query", {}, msg_id="q")
    await client.requests.get()
    client.notify("$/cancelRequest", {"id": "q"})
    await client.call("agent/list")
    client.send({"jsonrpc": "2.0", "id": "q", "result": {"jsonrpc": "2.0", "ok": True}})
    assert await asked == {"jsonrpc": "2.0", "ok": True}


# Case L07: an answer to what is not asked any more is passed over.


async def test_a_late_answer_to_a_request_that_was_given_up_is_ignored(
    client: Client, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    protocol = served.servers[0].protocol
    given_up = asyncio.ensure_future(protocol.send_request_async("agent/query", {}, msg_id="late"))
    await client.requests.get()
    given_up.cancel()
    await asyncio.wait([given_up])
    client.send({"jsonrpc": "2.0", "id": "late", "result": "yes"})
    client.send({"jsonrpc": "2.0", "id": "late", "result": "yes"})
    assert (await client.call("agent/list"))["agents"]
    assert caplog.text == ""


async def test_the_answers_of_a_client_are_results_and_errors(client: Client, served: Served) -> None:
    protocol = served.servers[0].protocol
    params = types.ShowDocumentParams(uri="file:///a")
    one, two, three = (protocol.send_request_async("window/showDocument", params, msg_id=id) for id in ("1", "2", "3"))
    asked = [await client.requests.get() for _ in range(3)]
    assert [(request["id"], request["params"]) for request in asked] == [(id, {"uri": "file:///a"}) for id in "123"]
    client.send({"jsonrpc": "2.0", "id": "1", "result": {"success": True}})
    client.send({"jsonrpc": "2.0", "id": "2", "error": {"code": -32000, "message": "no window"}})
    client.send({"jsonrpc": "2.0", "id": "3", "result": {"unexpected": 1}})
    assert (await one).success is True
    with pytest.raises(JsonRpcException, match="no window"):
        await two
    with pytest.raises(JsonRpcException, match="has another shape"):
        await three


# Attaching -----------------------------------------------------------------------------------------------------


async def test_40_clients_attach_in_a_storm_and_none_misses_or_doubles_anything(
    served: Served, agent: FakeAgent
) -> None:
    chance = random.Random(1)
    over = asyncio.Event()

    async def publish() -> None:
        for number in range(60):
            agent.put(block(f"b{number}", number))
            for _ in range(chance.randrange(30)):
                agent.append(f"b{number}", chance.choice(["tok", "é", "🙂 ", "測試"]))
                if chance.random() < 0.2:
                    agent.title(f"title {number} {chance.random()}")
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            agent.put(block(f"b{number}", number, agent_body(agent, f"b{number}"), state="done", finish="stop"))
        over.set()

    async def join(number: int) -> Client:
        client = await served.connect()
        await client.start()
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        # Several at once, and with what is held: the later one replaces the earlier one.
        await client.attach()
        await client.attach(since=bool(number % 2))
        return client

    publishing = asyncio.create_task(publish())
    clients = await asyncio.gather(*(join(number) for number in range(40)))
    await over.wait()
    await publishing
    agent.title("the end")
    for client in clients:
        reducer = client.reducers["one"]
        await client.until(lambda reducer=reducer: reducer.state["title"] == "the end")  # type: ignore[misc]
        assert [shown["body"] for shown in reducer.ordered()] == [agent_body(agent, f"b{n}") for n in range(60)]
        assert {shown["state"] for shown in reducer.ordered()} == {"done"}
    assert {cast(int, editor["connection"]) for editor in editors(clients[0])} == set(range(1, 41))


def agent_body(agent: FakeAgent, name: str) -> str:
    drawn = agent.view.drawn(BlockId(name))
    assert drawn is not None
    return drawn.block.body


def editors(client: Client, agent_id: str = "one") -> list[JsonObject]:
    return cast(list[JsonObject], client.reducers[agent_id].state["editors"])


async def test_an_attach_that_was_cancelled_draws_nothing(client: Client, agent: FakeAgent, host: FakeHost) -> None:
    stored = FakeAgent("stored")
    host.stored[stored.id] = stored
    answer = client.ask("agent/attach", {"agentId": "stored"}, id="x")
    await client.call("agent/list")
    client.notify("$/cancelRequest", {"id": "x"})
    assert await code_of(cast(asyncio.Future[object], answer)) == -32800
    host.loaded.set()
    assert (await client.call("agent/send", send(1, "stored")))["outcome"] == "started"
    assert stored.view.state is not None
    assert stored.view.state.editors == ()


async def test_an_attach_whose_answer_cannot_be_written_draws_nothing(client: Client, agent: FakeAgent) -> None:
    agent.title(cast(str, object()))
    with pytest.raises(Failed, match="could not be written"):
        await client.attach()
    assert agent.view.state is not None
    assert agent.view.state.editors == ()
    agent.title("fine")
    assert (await client.attach()).state["title"] == "fine"


async def test_a_change_of_an_old_block_is_not_lost_between_its_page_and_the_answer(
    served: Served, host: FakeHost
) -> None:
    many = FakeAgent("many", blocks=tuple(block(f"b{n}", n, "x", state="done") for n in range(150)))
    host.agents[many.id] = many
    client = await served.started()
    reducer = await client.attach("many")
    many.gate.clear()
    page = client.ask("agent/page", {"agentId": "many", "before": reducer.before})
    await client.call("agent/list")
    many.put(block("b3", 3, "x", state="done", summary="changed meanwhile"))
    await client.call("agent/list")
    many.gate.set()
    await page
    await client.until(lambda: reducer.blocks["b3"].get("summary") == "changed meanwhile")


async def test_attached_clients_see_each_other_come_and_go(served: Served, agent: FakeAgent) -> None:
    one, two = await served.started(), await served.connect()
    await two.start({"version": 1, "client": {"name": "other", "version": "2"}})
    await one.attach()
    assert editors(one) == [{"client": "tester 1.0", "connection": 1}]
    await two.attach()
    both = [{"client": "tester 1.0", "connection": 1}, {"client": "other 2", "connection": 2}]
    assert editors(two) == both
    await one.until(lambda: editors(one) == both)
    await one.attach(since=True)
    assert editors(one) == both
    two.vanish()
    await one.until(lambda: editors(one) == both[:1])
    await one.call("agent/detach", {"agentId": "one"})
    assert agent.view.state is not None
    assert agent.view.state.editors == ()


# Slow clients --------------------------------------------------------------------------------------------------


async def test_a_client_that_reads_nothing_costs_little_and_slows_nobody(agent: FakeAgent, host: FakeHost) -> None:
    async with serving(Hub(host)) as served:
        slow, quick = await served.connect(buffer=4096), await served.started()
        await slow.start()
        await slow.attach()
        await quick.attach()
        slow.reading.clear()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        agent.put(block("a", 1))
        for number in range(20_000):
            agent.append("a", f"token {number} ")
            if number % 100 == 0:
                agent.title(f"at {number}")
                await quick.until(lambda number=number: quick.reducers["one"].state["title"] == f"at {number}")  # type: ignore[misc]
        await quick.until(lambda: quick.reducers["one"].texts("assistant") == [agent_body(agent, "a")])
        assert served.servers[0].protocol.out is not None
        assert served.servers[0].protocol.out.pending < 64 * 1024
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        slow.reading.set()
        await slow.until(lambda: slow.reducers["one"].texts("assistant") == quick.reducers["one"].texts("assistant"))
        assert slow.reducers["one"].frames < quick.reducers["one"].frames / 10


async def test_a_client_that_takes_nothing_of_a_great_backlog_is_disconnected(agent: FakeAgent, host: FakeHost) -> None:
    async with serving(Hub(host)) as served:
        client = await served.connect(buffer=4096, stall=0.05, backlog=100_000)
        await client.start()
        client.reading.clear()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        agent.put(block("a", 1, "x" * 200_000))
        client.ask("agent/attach", {"agentId": "one"})
        client.ask("agent/list")
        assert await asyncio.wait_for(served.runs[0], 20) == 1
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        client.reading.set()


async def test_requests_of_a_client_that_reads_no_answers_are_read_no_more(agent: FakeAgent, host: FakeHost) -> None:
    async with serving(Hub(host)) as served:
        client = await served.connect(buffer=4096, backlog=10_000)
        await client.start()
        client.reading.clear()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(3000):
            client.ask("agent/inject", {**send(number), "context": {"form": "notice", "summary": "s"}})
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(agent.noted) < 2000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        client.reading.set()
        await client.until(lambda: not client.answers)
        assert [noted.id for noted in agent.noted] == [f"m-{number}" for number in range(3000)]


# The end -------------------------------------------------------------------------------------------------------


async def test_a_vanished_client_ends_its_requests_and_draws_nothing_more(
    served: Served, client: Client, agent: FakeAgent
) -> None:
    await client.attach()
    agent.gate.clear()
    client.ask("agent/send", send(1))
    client.ask("agent/page", {"agentId": "one", "before": [5, 0]})
    await client.call("agent/list")
    client.vanish()
    assert await asyncio.wait_for(served.runs[0], 20) == 1
    assert agent.view.state is not None
    assert agent.view.state.editors == ()
    agent.put(block("a", 1, "for nobody"))
    agent.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert agent.finished == ["m-1"]


async def test_at_the_end_of_the_stream_every_request_still_has_its_answer(
    served: Served, client: Client, agent: FakeAgent
) -> None:
    agent.gate.clear()
    answer = client.ask("agent/send", send(1))
    done = client.ask("agent/list")
    client.writer.write_eof()
    await done
    assert await code_of(cast(asyncio.Future[object], answer)) == -32800
    assert await served.runs[0] == 1


async def test_one_client_s_exit_leaves_the_others_alone(served: Served, client: Client) -> None:
    other = await served.started()
    await other.attach()
    await client.call("shutdown")
    client.notify("exit")
    assert await served.runs[0] == 0
    assert (await other.call("agent/list"))["agents"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stays until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


async def test_the_death_of_the_client_s_process_ends_the_connection(
    served: Served, process: subprocess.Popen[bytes]
) -> None:
    client = await served.connect(watches_parent=True)
    await client.call("initialize", {"processId": process.pid, "capabilities": {"experimental": {"agent": AGENT}}})
    await client.attach()
    process.kill()
    assert await asyncio.wait_for(served.runs[0], 20) == 1


async def test_a_process_that_is_not_there_is_not_waited_for(served: Served, process: subprocess.Popen[bytes]) -> None:
    client = await served.connect(watches_parent=True)
    process.kill()
    process.wait()
    await client.call("initialize", {"processId": process.pid, "capabilities": {"experimental": {"agent": AGENT}}})
    assert (await client.call("agent/list"))["agents"]


async def test_on_a_socket_the_process_that_a_client_names_is_nobody_s(
    served: Served, process: subprocess.Popen[bytes]
) -> None:
    client = await served.connect()
    await client.call("initialize", {"processId": process.pid, "capabilities": {"experimental": {"agent": AGENT}}})
    process.kill()
    process.wait()
    for _ in range(3):
        assert (await client.call("agent/list"))["agents"]


async def test_connections_are_forgotten(served: Served, agent: FakeAgent, host: FakeHost) -> None:
    for _ in range(3):
        client = await served.started()
        await client.attach()
        await client.close()
    await asyncio.gather(*served.runs)
    assert served.hub.editors._attached == {}
    assert agent.view._listeners == []
    assert agent.view._end_listeners == []
    assert host.live(AgentId("one")) is agent
