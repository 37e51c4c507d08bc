"""What each request asks of the host and the agent, and how their answers and errors come back."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import cast

import pytest

from agentls.agent.agent import Answered, Changed, Sent
from agentls.agent.host import BadWorkspace, Fork, InvalidBoundary
from agentls.agent.state import WaitingMessage
from agentls.core.blocks import TextBlock
from agentls.core.errors import SessionDamaged, SessionHeld, StoreUnavailable, UnsupportedFormat, UserError
from agentls.core.events import ModelRef
from agentls.core.ids import AgentId, BlockId, MessageId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.sources import Catalog, CatalogEntry, Notice, PluginSource, Snapshot, UserSource
from agentls.lsp.agent_handlers import PART_MAX
from agentls.lsp.framing import framed
from agentls.lsp.message_handlers import PENDING_MAX
from agentls.models.model import ModelFacts
from tests.lsp.clients import Client, Failed, Served
from tests.lsp.doubles import FakeAgent, FakeHost, Noted, block

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
    assert {noted.meta for noted in map(_frozen, agent.noted)} == {("editor", "instance-1:1")}
    assert (c.content, c.source) == ((TextBlock("one "), TextBlock("two")), UserSource())
    assert (d.target, d.expected_turn, d.if_idle, d.source) == ("next-step", 3, "refuse", UserSource())
    assert agent.cancels == [("user", True, 4)]


def _frozen(noted: Noted) -> Noted:
    (item,) = cast(dict[str, str], noted.meta).items()
    return replace(noted, meta=cast(JsonValue, item))


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
    agent.reply = lambda noted: Sent(noted.id, "refused", reason="no-turn", content=noted.content)
    assert await client.call("agent/steer", SEND) == {
        "messageId": "m1",
        "outcome": "refused",
        "reason": "no-turn",
        "content": [{"type": "text", "text": "hello"}],
    }


async def test_a_repeat_says_so(client: Client, agent: FakeAgent) -> None:
    agent.reply = lambda noted: Sent(MessageId("m1"), "queued", position=0, repeated=True, now="held")
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


# What waits ----------------------------------------------------------------------------------------------------

ONE: JsonObject = {"agentId": "one"}
WAITING = WaitingMessage(MessageId("m1"), "queued", True, False, "text")


async def test_what_waits_is_edited_moved_and_promoted(client: Client, agent: FakeAgent) -> None:
    agent.changed = Changed("done", (WAITING,))
    edited = await client.call("agent/inbox/edit", {**ONE, "messageId": "m1", "content": "better"})
    await client.call("agent/inbox/move", {**ONE, "messageId": "m1", "before": "m2"})
    await client.call("agent/inbox/move", {**ONE, "messageId": "m1", "before": None})
    await client.call("agent/inbox/promote", {**ONE, "messageId": "m1"})
    assert edited == {
        "outcome": "done",
        "inbox": [{"messageId": "m1", "lane": "queued", "wakeup": True, "held": False, "text": "text"}],
    }
    assert agent.changes == [
        ("edit", "m1", (TextBlock("better"),)), ("move", "m1", "m2"), ("move", "m1", None), ("promote", "m1"),
    ]  # fmt: skip


async def test_an_edit_that_comes_too_late_gives_its_content_back(client: Client, agent: FakeAgent) -> None:
    agent.changed = Changed("gone", ())
    assert await client.call("agent/inbox/edit", {**ONE, "messageId": "m1", "content": "late"}) == {
        "outcome": "gone",
        "inbox": [],
        "content": [{"type": "text", "text": "late"}],
    }
    assert await client.call("agent/inbox/promote", {**ONE, "messageId": "m1"}) == {"outcome": "gone", "inbox": []}


async def test_a_place_that_is_none_is_named(client: Client, agent: FakeAgent) -> None:
    error = await client.refusal("agent/inbox/move", {**ONE, "messageId": "m1", "before": "nowhere"})
    assert (error.code, error.data) == (-32602, {"path": "before"})
    assert error.message == 'agent/inbox/move: before: "nowhere" is no pending message'


async def test_a_turn_is_tried_again(client: Client, agent: FakeAgent) -> None:
    params: JsonObject = {**ONE, "messageId": "again", "turn": 3}
    assert await client.call("agent/retry", params) == {
        "messageId": "again", "outcome": "refused", "reason": "not-retryable",
    }  # fmt: skip
    assert agent.changes == [("retry", 3, "again")]


# Answers -------------------------------------------------------------------------------------------------------


async def test_an_answer_is_that_of_the_client(client: Client, agent: FakeAgent) -> None:
    answer: JsonObject = {**ONE, "requestId": "q1.1.1", "shown": "sha256:0"}
    yes = await client.call("agent/answer", {**answer, "answer": {"decision": "allow"}})
    agent.answered = Answered("already-resolved", by="other 2")
    late = await client.call("agent/answer", {**answer, "answer": {"decision": "deny-and-stop", "note": "not that"}})
    assert (yes, late) == ({"outcome": "accepted"}, {"outcome": "already-resolved", "by": "other 2"})
    assert agent.changes == [
        ("answer", "q1.1.1", "allow", "sha256:0", "tester 1.0", None, None),
        ("answer", "q1.1.1", "deny-and-stop", "sha256:0", "tester 1.0", "not that", None),
    ]


async def test_an_answer_to_nothing_names_its_field(client: Client, agent: FakeAgent) -> None:
    params: JsonObject = {**ONE, "requestId": "q9.9.9", "shown": "x", "answer": {"decision": "deny"}}
    error = await client.refusal("agent/answer", params)
    assert (error.code, error.data) == (-32602, {"path": "requestId"})
    assert 'nothing was asked under "q9.9.9"' in error.message


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


async def test_a_fork_begins_at_the_end_of_a_turn(client: Client, host: FakeHost) -> None:
    await client.call("agent/create", {"workspaceUri": "file:///w", "from": {"agentId": "one", "turn": 2}})
    await client.call("agent/create", {"workspaceUri": "file:///w", "from": None})
    assert host.forks == [Fork(AgentId("one"), 2), None]


async def test_settings_change_and_the_answer_is_the_state(client: Client, agent: FakeAgent) -> None:
    model: JsonObject = {**ONE, "model": "demo/scripted", "mode": "read-only"}
    await client.call("agent/configure", model)
    state = await client.call("agent/configure", {**ONE, "title": "better 👩‍🚀"})
    assert agent.changes == [
        ("configure", ModelRef("demo", "scripted"), "read-only", None, "person"),
        ("configure", None, None, "better 👩‍🚀", "person"),
    ]
    assert (state["agentId"], state["title"]) == ("one", "better 👩‍🚀")


async def test_a_model_that_is_not_there_is_refused_with_those_that_are(client: Client, agent: FakeAgent) -> None:
    error = await client.refusal("agent/configure", {**ONE, "model": "gpt-9"})
    assert (error.code, error.data) == (-32602, {"path": "model"})
    assert error.message == 'agent/configure: model: model "gpt-9" is not in the catalog; pick "demo/scripted"'
    assert agent.changes == []


async def test_models_are_listed(client: Client, host: FakeHost) -> None:
    local = ModelFacts(ModelRef("local", "small"), usable=True, context_window=2048)
    other = ModelFacts(ModelRef("x", "big"), False, 200_000, "environment variable X_KEY", "set X_KEY")
    host.facts = (local, other)
    assert (await client.call("agent/models"))["models"] == [
        {"provider": "local", "id": "small", "usable": True, "contextWindow": 2048},
        {
            "provider": "x",
            "id": "big",
            "usable": False,
            "contextWindow": 200_000,
            "keySource": "environment variable X_KEY",
            "problem": "set X_KEY",
        },
    ]


async def test_a_deleted_agent_is_drawn_no_more(client: Client, agent: FakeAgent, host: FakeHost) -> None:
    await client.attach()
    assert await client.call("agent/delete", ONE) == {"outcome": "deleted"}
    assert host.deleted == ["one"]
    assert agent.view._listeners == []
    assert (await client.refusal("agent/delete", ONE)).code == -32050
    assert (await client.refusal("agent/detach", ONE)).code == -32051


async def test_an_agent_that_somebody_else_deletes_is_drawn_no_more(served: Served, agent: FakeAgent) -> None:
    one, two = await served.started(), await served.started()
    await one.attach()
    await two.attach()
    await two.attach(since=True)
    await one.call("agent/delete", ONE)
    assert (await two.refusal("agent/detach", ONE)).code == -32051
    assert (agent.view._listeners, agent.view._end_listeners, served.hub.editors._attached) == ([], [], {})


async def test_an_agent_that_has_ended_cannot_be_drawn(client: Client, agent: FakeAgent) -> None:
    agent.view.end()
    assert (await client.refusal("agent/attach", ONE)).code == -32050
    assert (await client.refusal("agent/detach", ONE)).code == -32051


async def test_a_model_or_a_workspace_that_is_none_names_its_field(client: Client, host: FakeHost) -> None:
    error = await client.refusal("agent/create", {"workspaceUri": "file:///w", "model": "nowhere/none"})
    assert (error.code, error.data) == (-32602, {"path": "model"})
    assert 'pick "demo/scripted"' in error.message
    assert host.forks == []
    host.error = BadWorkspace('"untitled:x" is no file')
    error = await client.refusal("agent/create", {"workspaceUri": "untitled:x"})
    assert (error.code, error.data) == (-32602, {"path": "workspaceUri"})


# What waits in a state -----------------------------------------------------------------------------------------


def waiting(agent: FakeAgent, count: int, text: str = "x") -> None:
    """Let messages wait for an agent."""
    assert agent.view.state is not None
    inbox = tuple(WaitingMessage(MessageId(f"w{n}"), "queued", True, False, text) for n in range(count))
    agent.view.publish_state(replace(agent.view.state, inbox=inbox))


async def test_of_a_long_message_that_waits_the_beginning_is_told(client: Client, agent: FakeAgent) -> None:
    reducer = await client.attach()
    waiting(agent, 1, "é" * 3000)
    await client.until(lambda: reducer.state["inbox"])
    (item,) = cast(list[JsonObject], reducer.state["inbox"])
    assert (item["text"], item["more"]) == ("é" * 2048, 6000 - 4096)
    waiting(agent, 1, "é" * 2048)
    await client.until(lambda: "more" not in cast(list[JsonObject], reducer.state["inbox"])[0])


@pytest.mark.parametrize("verb", ["send", "followup", "steer"])
async def test_one_message_too_many_is_refused_for_now(client: Client, agent: FakeAgent, verb: str) -> None:
    waiting(agent, PENDING_MAX - 1)
    message: JsonObject = {**ONE, "messageId": "m1", "content": "hello"}
    await client.call(f"agent/{verb}", message)
    waiting(agent, PENDING_MAX)
    error = await client.refusal(f"agent/{verb}", {**message, "messageId": "m2"})
    assert (error.code, error.data) == (-32054, {"retryAfterMs": 1000})
    await client.call(f"agent/{verb}", {**message, "messageId": "w5"})
    await client.call("agent/inject", {**message, "messageId": "m3", "context": {"form": "notice", "summary": "s"}})
    for deed in ("remove", "promote"):
        await client.call(f"agent/inbox/{deed}", {**ONE, "messageId": "w1"})
    assert [noted.id for noted in agent.noted] == ["m1", "w5", "m3"]


async def test_what_is_sent_at_once_counts_before_the_state_tells_of_it(client: Client, agent: FakeAgent) -> None:
    agent.gate.clear()
    message: JsonObject = {**ONE, "content": "hello"}
    sent = [client.ask("agent/followup", {**message, "messageId": f"m{n}"}) for n in range(PENDING_MAX + 1)]
    with pytest.raises(Failed, match="-32054"):
        await sent[-1]
    agent.gate.set()
    await asyncio.gather(*sent[:-1])
    await client.call("agent/followup", {**message, "messageId": "again"})


async def test_a_long_body_is_read_in_parts_of_at_most_1_mib(client: Client, agent: FakeAgent) -> None:
    body = "é🙂" * 400_000
    agent.bodies[BlockId("t1.1.1")] = body
    found, at = "", 0
    while True:
        part = await client.call("agent/block", {**ONE, "id": "t1.1.1", "from": at})
        text = cast(str, part["text"])
        assert 0 < len(text.encode()) == cast(int, part["to"]) - at <= PART_MAX
        found, at = found + text, cast(int, part["to"])
        if at == part["size"]:
            break
    assert found == body
    asked = {**ONE, "id": "t1.1.1", "from": 2, "to": 7}
    assert await client.call("agent/block", asked) == {
        "id": "t1.1.1", "text": "🙂", "from": 2, "to": 6, "size": len(body.encode()),
    }  # fmt: skip


async def test_a_body_that_is_not_there_names_its_field(client: Client) -> None:
    error = await client.refusal("agent/block", {**ONE, "id": "none"})
    assert (error.code, error.data) == (-32602, {"path": "id"})
    error = await client.refusal("agent/block", {**ONE, "id": "none", "from": 5, "to": 4})
    assert error.data == {"path": "to"}


async def test_detach_needs_an_attach(client: Client, agent: FakeAgent) -> None:
    assert (await client.refusal("agent/detach", {"agentId": "one"})).code == -32051
    reducer = await client.attach()
    assert await client.call("agent/detach", {"agentId": "one"}) == {}
    agent.put(block("a", 1, "unseen"))
    await client.call("agent/list")
    assert reducer.blocks == {}


async def test_a_detach_does_not_overtake_the_attach_before_it(client: Client, host: FakeHost) -> None:
    old = FakeAgent("old")
    host.stored[old.id] = old
    attached = client.ask("agent/attach", {"agentId": "old"})
    detached = client.ask("agent/detach", {"agentId": "old"})
    await client.call("agent/list")
    host.loaded.set()
    await attached
    assert await detached == {}
    assert old.view._listeners == []


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
        Told(InvalidBoundary("OPEN_TURN", "turn 2 still runs"), -32058, {"reason": "OPEN_TURN"}),
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
    agent.reply = lambda noted: Sent(noted.id, "started", turn=cast(int, object()))
    error = await client.refusal("agent/send", SEND)
    assert (error.code, error.message) == (-32603, "the answer could not be written; the server's log says why")
    assert "a message could not be written" in caplog.text


async def test_bodies_are_never_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await client.call("agent/send", {**SEND, "content": "a secret of the person"})
        await client.refusal("agent/send", {**SEND, "content": [{"type": "a secret of the person"}]})
        await client.attach()
    assert "a secret of the person" not in caplog.text
