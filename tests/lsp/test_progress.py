"""A client that shows progress gets one a turn of each agent that it draws, and may stop the turn with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.progress import Progress
from agentls.lsp.server import Hub
from agentls.lsp.transport import Writer
from tests.harness import until
from tests.lsp.clients import Client, Served, serving
from tests.lsp.doubles import FakeAgent, FakeHost
from tests.lsp.lines import Valve

SHOWS: JsonObject = {"workDoneProgress": True}


@pytest.fixture
async def shower(served: Served) -> Client:
    """A client that shows progress and draws the agent."""
    return await drawing(served)


async def drawing(served: Served) -> Client:
    client = await served.connect()
    await client.start(window=SHOWS)
    await client.attach()
    return client


async def asked(client: Client) -> JsonObject:
    """The next request for a progress."""
    request = await asyncio.wait_for(client.requests.get(), 20)
    assert request["method"] == "window/workDoneProgress/create"
    return request


async def agreed(client: Client) -> JsonValue:
    """The token of the next progress, which the client agrees to."""
    request = await asked(client)
    client.send({"jsonrpc": "2.0", "id": request["id"], "result": None})
    return cast(JsonObject, request["params"])["token"]


def told(client: Client, token: JsonValue) -> list[JsonObject]:
    return [cast(JsonObject, params["value"]) for params in client.told("$/progress") if params["token"] == token]


def kinds(client: Client, token: JsonValue) -> list[JsonValue]:
    return [value["kind"] for value in told(client, token)]


async def test_a_turn_is_one_progress_from_its_beginning_to_its_end(shower: Client, agent: FakeAgent) -> None:
    agent.title("fix the tests")
    agent.run(1)
    token = await agreed(shower)
    await shower.until(lambda: told(shower, token))
    assert told(shower, token) == [
        {"kind": "begin", "title": "fix the tests", "message": "step 1", "cancellable": True}
    ]
    agent.run(1, 2)
    await shower.until(lambda: {"kind": "report", "message": "step 2"} in told(shower, token))
    agent.run(1, 2, asks="write a.py")
    await shower.until(lambda: {"kind": "report", "message": "waits for you: write a.py"} in told(shower, token))
    agent.end(1)
    await shower.until(lambda: kinds(shower, token)[-1] == "end")
    agent.run(2)
    second = await agreed(shower)
    assert second != token
    agent.end(2)
    await shower.until(lambda: kinds(shower, second) == ["begin", "end"])
    assert kinds(shower, token) == ["begin", "report", "report", "end"]


async def test_a_turn_that_follows_at_once_is_a_progress_of_its_own(shower: Client, agent: FakeAgent) -> None:
    agent.run(1)
    first = await agreed(shower)
    agent.run(2)
    second = await agreed(shower)
    agent.end(2)
    await shower.until(lambda: kinds(shower, second) == ["begin", "end"])
    assert kinds(shower, first) == ["begin", "end"]


async def test_a_client_that_attaches_during_a_turn_sees_it(served: Served, agent: FakeAgent) -> None:
    agent.run(3, 2)
    client = await drawing(served)
    token = await agreed(client)
    await client.until(lambda: told(client, token))
    assert told(client, token) == [{"kind": "begin", "title": "agentls", "message": "step 2", "cancellable": True}]
    await client.attach(since=True)
    await client.settled()
    assert client.requests.empty()
    assert kinds(client, token) == ["begin"]


async def test_an_injection_has_no_progress(shower: Client, agent: FakeAgent) -> None:
    agent.run(1, trigger="injection")
    agent.end(1, row=False)
    await shower.settled()
    assert shower.requests.empty()


@pytest.mark.parametrize("window", [None, {}, {"workDoneProgress": False}])
async def test_a_client_that_shows_none_is_not_asked(served: Served, agent: FakeAgent, window: JsonValue) -> None:
    client = await served.connect()
    await client.start(window=window)
    await client.attach()
    agent.run(1)
    await client.settled()
    assert client.requests.empty()


async def test_a_client_that_refuses_gets_no_begin_and_is_asked_again_for_the_next_turn(
    shower: Client, agent: FakeAgent
) -> None:
    agent.run(1)
    request = await asked(shower)
    shower.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "no"}})
    await shower.settled()
    agent.run(1, 2)
    agent.end(1)
    await shower.settled()
    assert shower.told("$/progress") == []
    agent.run(2)
    token = await agreed(shower)
    await shower.until(lambda: kinds(shower, token) == ["begin"])


async def test_an_answer_without_a_result_agrees(shower: Client, agent: FakeAgent) -> None:
    """As a JavaScript client writes one that is undefined."""
    agent.run(1)
    request = await asked(shower)
    shower.send({"jsonrpc": "2.0", "id": request["id"]})
    token = cast(JsonObject, request["params"])["token"]
    await shower.until(lambda: kinds(shower, token) == ["begin"])
    agent.end(1)
    agent.run(2)
    await agreed(shower)
    assert shower.orphans == []


async def test_a_turn_goes_on_without_an_answer_that_does_not_come(agent: FakeAgent) -> None:
    tokens: list[str] = []

    async def agrees_later(token: str) -> None:
        tokens.append(token)
        if len(tokens) == 1:
            await asyncio.Event().wait()

    valve = Valve()
    writer = Writer(valve)
    progress = Progress(agrees_later, writer, patience=0.01)
    progress.attach(agent)
    agent.run(1)
    await until(lambda: tokens)
    agent.run(2)
    await until(lambda: b"begin" in valve.taken)
    assert valve.taken.count(tokens[0].encode() + b'"') == 0
    progress.detach(agent.id)
    await writer.close()


async def test_reports_are_a_few_a_second(shower: Client, agent: FakeAgent) -> None:
    agent.run(1)
    token = await agreed(shower)
    await shower.until(lambda: told(shower, token))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for step in range(2, 500):
        agent.run(1, step)
        await asyncio.sleep(0)
    await shower.until(lambda: told(shower, token)[-1] == {"kind": "report", "message": "step 499"})
    assert kinds(shower, token).count("report") <= 2 + (loop.time() - began) / 0.25


async def test_a_cancel_stops_that_turn_and_keeps_what_waits(shower: Client, agent: FakeAgent) -> None:
    agent.run(4)
    token = await agreed(shower)
    await shower.until(lambda: told(shower, token))
    shower.notify("window/workDoneProgress/cancel", {"token": "another"})
    shower.notify("window/workDoneProgress/cancel", {"token": 7})
    shower.notify("window/workDoneProgress/cancel", {"token": token})
    await shower.settled()
    assert agent.cancels == [("user", True, 4)]
    agent.end(4, "aborted")
    shower.notify("window/workDoneProgress/cancel", {"token": token})
    await shower.settled()
    assert len(agent.cancels) == 1


async def test_a_client_that_detaches_sees_the_end_of_it(shower: Client, agent: FakeAgent) -> None:
    agent.run(1)
    token = await agreed(shower)
    await shower.until(lambda: told(shower, token))
    await shower.call("agent/detach", {"agentId": "one"})
    assert kinds(shower, token) == ["begin", "end"]
    agent.run(2)
    await shower.settled()
    assert shower.requests.empty()


async def test_a_connection_that_the_server_ends_sees_the_end_of_it(
    served: Served, shower: Client, agent: FakeAgent
) -> None:
    agent.run(1)
    token = await agreed(shower)
    await shower.until(lambda: told(shower, token))
    served.servers[0].leave(0)
    await shower.ended.wait()
    assert kinds(shower, token) == ["begin", "end"]


async def test_a_turn_that_is_over_before_the_client_agrees_is_begun_and_ended(
    shower: Client, agent: FakeAgent
) -> None:
    agent.run(1)
    request = await asked(shower)
    agent.end(1)
    await shower.settled()
    shower.send({"jsonrpc": "2.0", "id": request["id"], "result": None})
    token = cast(JsonObject, request["params"])["token"]
    await shower.until(lambda: kinds(shower, token) == ["begin", "end"])


def shows(agent: FakeAgent) -> Callable[[], bool]:
    return lambda: bool(agent.view._listeners)


async def test_a_client_that_never_answers_is_asked_once_and_leaves_nothing(host: FakeHost, agent: FakeAgent) -> None:
    before = asyncio.all_tasks()
    async with serving(Hub(host)) as served:
        client = await drawing(served)
        agent.run(1)
        await asked(client)
        for turn in range(2, 50):
            agent.run(turn)
            await asyncio.sleep(0)
        await client.settled()
        assert client.requests.empty()
        assert shows(agent)()
        client.vanish()
        await asyncio.wait_for(served.runs[0], 20)
        assert not shows(agent)()
    assert asyncio.all_tasks() == before


async def test_a_client_that_takes_nothing_is_told_only_how_it_stands_when_it_does(agent: FakeAgent) -> None:
    async def agrees(_: str) -> None:
        return

    valve = Valve()
    writer = Writer(valve)
    progress = Progress(agrees, writer, pause=0)
    progress.attach(agent)
    agent.run(1)
    await until(lambda: b"begin" in valve.taken)
    valve.open.clear()
    writer.write(b"x")
    for step in range(2, 200):
        agent.run(1, step)
        await asyncio.sleep(0)
    assert writer.pending == 1
    valve.open.set()
    await until(lambda: b"step 199" in valve.taken)
    assert valve.taken.count(b"report") == 1
    progress.detach(agent.id)
    await writer.close()
    assert valve.taken.endswith(b'"value":{"kind":"end"}}}')
