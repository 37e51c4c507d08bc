"""How a connection begins and ends, and what it is offered."""

from __future__ import annotations

from typing import cast

import pytest

from agentls.core.json import JsonObject, JsonValue
from tests.lsp.clients import Client, Served
from tests.lsp.doubles import FakeAgent

SEND: JsonObject = {"agentId": "one", "messageId": "m1", "content": "hello"}


async def test_nothing_is_served_before_initialize(served: Served) -> None:
    client = await served.connect()
    assert (await client.refusal("agent/list", {})).code == -32002
    client.notify("initialized")
    await client.start()
    assert (await client.call("agent/list"))["agents"]


async def test_a_malformed_initialize_is_answered_and_may_be_tried_again(served: Served) -> None:
    client = await served.connect()
    error = await client.refusal("initialize", {"processId": "five"})
    assert error.message == 'initialize: processId: expected a whole number, not "five"'
    wrong: JsonObject = {"capabilities": {"experimental": {"agent": {"version": "1"}}}}
    error = await client.refusal("initialize", wrong)
    assert error.data == {"path": "capabilities.experimental.agent.version"}
    assert error.message == 'initialize: capabilities.experimental.agent.version: expected a whole number, not "1"'
    await client.start()
    assert (await client.refusal("initialize", {})).code == -32600


async def test_after_shutdown_only_exit_is_taken(client: Client, served: Served) -> None:
    assert await client.call("shutdown") is None
    error = await client.refusal("agent/list", {})
    assert (error.code, error.message) == (-32600, "agent/list came after shutdown")
    client.notify("exit")
    assert await served.runs[0] == 0


async def test_requests_under_way_are_answered_after_shutdown(client: Client, agent: FakeAgent) -> None:
    agent.gate.clear()
    sent, down = client.ask("agent/send", SEND), client.ask("shutdown")
    await down
    agent.gate.set()
    assert cast(JsonObject, await sent)["outcome"] == "started"


async def test_exit_without_shutdown_ends_the_connection_with_status_1(client: Client, served: Served) -> None:
    client.notify("exit")
    assert await served.runs[0] == 1
    await client.ended.wait()


async def test_what_every_person_is_to_be_told_is_shown_once_to_each_client(served: Served) -> None:
    served.hub.host.warnings = ("the session store was damaged",)
    for _ in range(2):
        client = await served.connect()
        await client.start()
        await client.call("agent/list")
        client.notify("initialized")
        await client.call("agent/list")
        shown = client.told("window/showMessage")
        assert shown == [{"type": 2, "message": "the session store was damaged"}]


# Negotiation ---------------------------------------------------------------------------------------------------


async def test_the_extension_is_offered_to_who_announces_it(served: Served) -> None:
    client = await served.connect()
    result = await client.start()
    capabilities = cast(JsonObject, result["capabilities"])
    offered = cast(JsonObject, cast(JsonObject, capabilities["experimental"])["agent"])
    assert offered["version"] == 1
    assert offered["instance"] == "instance-1"
    assert "agent/inbox/resume" in cast(list[str], offered["methods"])
    assert "agent/editorState" in cast(list[str], offered["methods"])
    assert offered["blockKinds"] == [
        "user", "assistant", "reasoning", "tool", "approval", "question", "context", "retry", "error", "turn-end",
    ]  # fmt: skip
    assert capabilities["textDocumentSync"] == {"openClose": True, "change": 2, "save": {"includeText": False}}
    assert result["serverInfo"] == {"name": "agentls", "version": "0.1.0"}


@pytest.mark.parametrize("announced", [None, {"version": 2}])
async def test_others_get_the_standard_surface_only(served: Served, announced: JsonValue) -> None:
    client = await served.connect()
    result = await client.start(announced)
    assert "experimental" not in cast(JsonObject, result["capabilities"])
    assert "textDocumentSync" in cast(JsonObject, result["capabilities"])
    error = await client.refusal("agent/list", {})
    assert error.code == -32601
    assert error.message == 'agent/list needs capabilities.experimental.agent {"version": 1} in initialize'


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["utf-16", "utf-32", "utf-8"], "utf-8"),
        (["utf-16", "utf-32"], "utf-32"),
        (["utf-7", "utf-16"], "utf-16"),
        ([], "utf-16"),
        (None, "utf-16"),
    ],
)
async def test_the_position_encoding_is_the_one_closest_to_our_texts_that_the_client_has(
    served: Served, offered: JsonValue, chosen: str
) -> None:
    client = await served.connect()
    result = await client.start(general={"positionEncodings": offered})
    assert cast(JsonObject, result["capabilities"])["positionEncoding"] == chosen


@pytest.mark.parametrize("experimental", [None, 5, [], {"other": {"agent": 1}}])
async def test_what_others_keep_in_experimental_does_no_harm(served: Served, experimental: JsonValue) -> None:
    client = await served.connect()
    assert await client.call("initialize", {"capabilities": {"experimental": experimental}})
