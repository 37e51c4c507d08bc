"""What each request asks of the host and the agent, and how their answers and errors come back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

import pytest

from agentls.agent.agent import Sent
from agentls.core.blocks import TextBlock
from agentls.core.errors import SessionDamaged, SessionHeld, StoreUnavailable, UnsupportedFormat, UserError
from agentls.core.ids import MessageId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.sources import Catalog, CatalogEntry, Notice, PluginSource, Snapshot, UserSource
from agentls.lsp.framing import framed
from tests.lsp.clients import Client, Failed, Served
from tests.lsp.doubles import FakeAgent, FakeHost, block

SEND: JsonObject = {"agentId": "one", "messageId": "m1", "content": "hello"}


async def test_messages_reach_the_agent_with_all_they_carry(client: Client, agent: FakeAgent) -> None:
    blocks: JsonValue = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    await client.call("agent/send", {**SEND, "messageId": "a", "target": "next-step"})
    await client.call("agent/send", {**SEND, "messageId": "b", "wakeup": False, "mentions": []})
    await client.call("agent/followup", {**SEND, "messageId": "c", "content": blocks})
    await client.call("agent/steer", {**SEND, "messageId": "d", "expectedTurn": 3, "ifIdle": "refuse"})
    await client.call("agent/cancel", {"agentId": "one", "turn": 4, "keepInbox": True})
    a, b, c, d = agent.noted
    assert (a.target, a.wakeup, a.content) == ("next-step", True, (TextBlock("hello"),))
    assert (b.target, b.wakeup) == ("next-turn", False)
    assert a.contexts == b.contexts == ()
    assert (c.content, c.source) == ((TextBlock("one "), TextBlock("two")), UserSource())
    assert (d.target, d.expected_turn, d.if_idle, d.source) == ("next-step", 3, "refuse", UserSource())
    assert agent.cancels == [("user", True, 4)]


@pytest.mark.parametrize(
    ("context", "form"),
    [
        ({"form": "notice", "summary": "saved"}, Notice("saved")),
        ({"form": "catalog", "entries": [{"name": "a", "description": "b"}]}, Catalog((CatalogEntry("a", "b"),))),
    ],
)
async def test_an_injected_context_is_the_client_s_own(
    client: Client, agent: FakeAgent, context: JsonObject, form: object
) -> None:
    await client.call("agent/inject", {**SEND, "context": context})
    (noted,) = agent.noted
    assert noted.source == PluginSource("tester", form)  # type: ignore[arg-type]
    assert (noted.target, noted.wakeup) == ("next-step", False)


async def test_a_client_without_a_name_of_its_own_is_named_by_client_info(served: Served, agent: FakeAgent) -> None:
    client = await served.connect()
    await client.start({"version": 1})
    context: JsonObject = {"form": "snapshot", "sections": [{"name": "git", "text": "main"}]}
    await client.call("agent/inject", {**SEND, "context": context})
    assert isinstance(agent.noted[0].source, PluginSource)
    assert agent.noted[0].source.plugin == "plain"
    assert isinstance(agent.noted[0].source.context, Snapshot)


async def test_a_refusal_is_a_value_and_carries_the_content_back(client: Client, agent: FakeAgent) -> None:
    agent.answer = lambda noted: Sent(noted.id, "refused", reason="no-turn", content=noted.content)
    assert await client.call("agent/steer", SEND) == {
        "messageId": "m1",
        "outcome": "refused",
        "reason": "no-turn",
        "content": [{"type": "text", "text": "hello"}],
    }


async def test_a_repeat_says_so(client: Client, agent: FakeAgent) -> None:
    agent.answer = lambda noted: Sent(MessageId("m1"), "queued", position=0, repeated=True, now="held")
    assert await client.call("agent/send", SEND) == {
        "messageId": "m1", "outcome": "queued", "position": 0, "repeated": True, "now": "held",
    }  # fmt: skip


async def test_a_lone_surrogate_breaks_nothing(client: Client, agent: FakeAgent) -> None:
    body = (
        b'{"jsonrpc":"2.0","id":"s","method":"agent/send","params":{"agentId":"one","messageId":"%b","content":"%b"}}'
    )
    answer = client.expect("s")
    client.send_bytes(framed(body % (b"m\\ud800", b"x")))
    with pytest.raises(Failed, match="holds what is no character"):
        await answer
    answer = client.expect("s")
    client.send_bytes(framed(body % (b"m", b"half \\ud83d")))
    await answer
    assert [noted.content for noted in agent.noted] == [(TextBlock("half \ufffd"),)]


# The rest ------------------------------------------------------------------------------------------------------


async def test_an_agent_is_made_and_listed(client: Client, host: FakeHost) -> None:
    state = await client.call("agent/create", {"workspaceUri": "file:///w", "title": "mine"})
    assert (state["title"], state["status"], state["rev"]) == ("mine", "idle", 2)
    host.stored[FakeAgent("old").id] = FakeAgent("old")
    listed = cast(list[JsonObject], (await client.call("agent/list"))["agents"])
    assert [(row["id"], row["status"]) for row in listed] == [
        ("one", "idle"), (state["agentId"], "idle"), ("old", "stored"),
    ]  # fmt: skip
    assert listed[0]["model"] == {"provider": "demo", "id": "scripted", "usable": True}
    assert listed[2] == {
        "id": "old",
        "workspaceUri": "file:///w",
        "title": "old",
        "status": "stored",
        "model": {"provider": "demo", "id": "scripted"},
        "createdAt": 1,
        "updatedAt": 2,
        "summary": "what was said",
        "damaged": "torn",
    }


async def test_detach_needs_an_attach(client: Client, agent: FakeAgent) -> None:
    assert (await client.refusal("agent/detach", {"agentId": "one"})).code == -32051
    reducer = await client.attach()
    assert await client.call("agent/detach", {"agentId": "one"}) == {}
    agent.put(block("a", 1, "unseen"))
    await client.call("agent/list")
    assert reducer.blocks == {}


async def test_older_blocks_come_by_page(served: Served, host: FakeHost) -> None:
    many = FakeAgent("many", blocks=tuple(block(f"b{n}", n, "x" * n, state="done") for n in range(250)))
    host.agents[many.id] = many
    client = await served.started()
    reducer = await client.attach("many")
    assert len(reducer.blocks) == 100
    while reducer.before is not None:
        await client.call("agent/page", {"agentId": "many", "before": reducer.before, "limit": 60})
    assert [shown["id"] for shown in reducer.ordered()] == [f"b{n}" for n in range(250)]


@dataclass
class Told:
    error: Exception
    code: int
    data: JsonObject


@pytest.mark.parametrize(
    "told",
    [
        Told(StoreUnavailable("the disk is full; free some space"), -32053, {}),
        Told(SessionHeld("s", 77), -32055, {"pid": 77}),
        Told(SessionHeld("s", None), -32055, {}),
        Told(SessionDamaged("seq 3 is missing"), -32056, {}),
        Told(UnsupportedFormat("a newer agentls wrote it; upgrade"), -32057, {}),
        Told(UserError('model "x" is not in the catalog'), -32803, {}),
    ],
    ids=lambda told: type(told.error).__name__,
)
async def test_an_error_for_the_person_is_shown_as_it_is(client: Client, host: FakeHost, told: Told) -> None:
    host.error = told.error
    error = await client.refusal("agent/attach", {"agentId": "other"})
    assert (error.code, error.message, error.data) == (told.code, str(told.error), told.data)


async def test_an_unknown_agent_has_its_code(client: Client) -> None:
    assert (await client.refusal("agent/cancel", {"agentId": "nobody"})).code == -32050


async def test_a_bug_is_told_in_a_plain_sentence_and_its_traceback_only_to_the_log(
    client: Client, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.error = RuntimeError("secret-in-a-frame")
    with caplog.at_level(logging.ERROR):
        error = await client.refusal("agent/create", {"workspaceUri": "file:///w"})
    assert (error.code, error.message) == (-32603, "agent/create failed inside the server; its log on stderr says why")
    assert error.data == {}
    assert "secret-in-a-frame" in caplog.text
    assert (await client.call("agent/list"))["agents"]


async def test_an_answer_that_has_no_json_form_is_an_internal_error(
    client: Client, agent: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.answer = lambda noted: Sent(noted.id, "started", turn=cast(int, object()))
    error = await client.refusal("agent/send", SEND)
    assert (error.code, error.message) == (-32603, "the answer could not be written; the server's log says why")
    assert "a message could not be written" in caplog.text


async def test_bodies_are_never_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await client.call("agent/send", {**SEND, "content": "a secret of the person"})
        await client.refusal("agent/send", {**SEND, "content": [{"type": "a secret of the person"}]})
        await client.attach()
    assert "a secret of the person" not in caplog.text
