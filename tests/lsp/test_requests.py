"""Every request is answered, a wrong one with what is wrong and where."""

from __future__ import annotations

import json
from typing import cast

import orjson
import pytest

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.framing import framed
from tests.lsp.clients import AGENT, Client, Served
from tests.lsp.doubles import FakeAgent, FakeHost

ONE: JsonObject = {"agentId": "one"}
ANSWER: JsonObject = {**ONE, "requestId": "q1.1.1", "shown": "sha256:0", "answer": {"decision": "allow"}}
SEND: JsonObject = {"agentId": "one", "messageId": "m1", "content": "hello"}


# Malformed params ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "path", "said"),
    [
        ("agent/send", None, "agentId", "expected a string of at least 1 character, but it is missing"),
        ("agent/send", [1], "params", "expected an object, not a list of 1"),
        ("agent/send", "text", "params", 'expected an object, not "text"'),
        ("agent/send", {**SEND, "agentId": 7}, "agentId", "expected a string of at least 1 character, not 7"),
        ("agent/send", {**SEND, "messageId": ""}, "messageId", 'expected a string of 1 to 128 characters, not ""'),
        (
            "agent/send",
            {**SEND, "messageId": "x" * 129},
            "messageId",
            f'expected a string of 1 to 128 characters, not "{"x" * 39}…"',
        ),
        *(
            (
                "agent/send",
                {**SEND, "messageId": form},
                "messageId",
                f'"{form}" has a form that only the server uses; take a random id, such as a UUID',
            )
            for form in ("u:1", "c:x", "r:t1.1.1", "a1.2.3", "a1.2.3/0", "p1.1.1", "t1.1.1", "q1.1.1", "turn1", "e5")
        ),
        ("agent/send", {**SEND, "content": 5}, "content", "expected a string or a list, not 5"),
        ("agent/send", {**SEND, "content": ""}, "content", '"" is blank; a message needs some text'),
        ("agent/send", {**SEND, "content": " \n\t"}, "content", '" \\n\\t" is blank; a message needs some text'),
        ("agent/send", {**SEND, "content": []}, "content", "a list of 0 is blank; a message needs some text"),
        (
            "agent/send",
            {**SEND, "content": [{"type": "text", "text": " "}]},
            "content",
            "a list of 1 is blank; a message needs some text",
        ),
        (
            "agent/send",
            {**SEND, "content": [{"type": "text", "text": "a"}, {"type": "text", "text": 5}]},
            "content[1].text",
            "expected a string, not 5",
        ),
        (
            "agent/send",
            {**SEND, "content": [{"type": "image", "data": "…"}]},
            "content[0].type",
            'expected "text", not "image"',
        ),
        ("agent/send", {**SEND, "content": ["a"]}, "content[0]", 'expected an object, not "a"'),
        (
            "agent/send",
            {**SEND, "target": "now"},
            "target",
            'expected "next-turn" or "next-step", not "now"',
        ),
        ("agent/send", {**SEND, "wakeup": "yes"}, "wakeup", 'expected true or false, not "yes"'),
        (
            "agent/send",
            {**SEND, "target": "next-step", "wakeup": False},
            "wakeup",
            'a quiet "next-step" message is a context; use agent/inject, which names its form',
        ),
        (
            "agent/followup",
            {**SEND, "mentions": [{"kind": "file", "label": "a"}]},
            "mentions",
            "a list of 1 is not served by this version; leave it out",
        ),
        ("agent/steer", {**SEND, "expectedTurn": 1.5}, "expectedTurn", "expected a whole number from 1, not 1.5"),
        ("agent/steer", {**SEND, "ifIdle": "wait"}, "ifIdle", 'expected "start" or "refuse", not "wait"'),
        ("agent/inject", SEND, "context", "expected an object, but it is missing"),
        (
            "agent/inject",
            {**SEND, "context": {"form": "poem"}},
            "context.form",
            'expected one of "instructions", "catalog", "snapshot", "notice", "relay", "recall", not "poem"',
        ),
        (
            "agent/inject",
            {**SEND, "context": {"form": "notice"}},
            "context.summary",
            "is missing",
        ),
        (
            "agent/inject",
            {**SEND, "context": {"form": "notice", "summary": "x" * 121}},
            "context",
            "a summary is at most 120 characters long, not 121",
        ),
        (
            "agent/inject",
            {**SEND, "context": {"form": "snapshot", "sections": [{"name": "git", "text": 5}]}},
            "context.sections[0].text",
            "expected a text, not 5",
        ),
        ("agent/attach", {"agentId": "one", "since": -1}, "since", "expected a whole number from 0, not -1"),
        ("agent/page", {"agentId": "one"}, "before", "expected a list of 2 whole numbers, but it is missing"),
        (
            "agent/page",
            {"agentId": "one", "before": [1]},
            "before[1]",
            "expected a whole number from 0, but it is missing",
        ),
        (
            "agent/page",
            {"agentId": "one", "before": [1, True]},
            "before[1]",
            "expected a whole number from 0, not true",
        ),
        ("agent/list", {"limit": 0}, "limit", "expected a whole number from 1 to 200, not 0"),
        ("agent/create", {}, "workspaceUri", "expected a string of at least 1 character, but it is missing"),
        (
            "agent/create",
            {"workspaceUri": "file:///w", "preset": "careful"},
            "preset",
            '"careful" is not served by this version; leave it out',
        ),
        (
            "agent/create",
            {"workspaceUri": "file:///w", "from": {"agentId": "one"}},
            "from.turn",
            "expected a whole number from 1, but it is missing",
        ),
        (
            "agent/configure",
            {**ONE, "archived": True},
            "archived",
            "true is not served by this version; leave it out",
        ),
        (
            "agent/configure",
            {**ONE, "mode": "yolo"},
            "mode",
            'expected "ask" or "read-only", not "yolo"',
        ),
        ("agent/configure", {**ONE, "title": ""}, "title", 'expected a string of 1 to 200 characters, not ""'),
        (
            "agent/configure",
            {**ONE, "title": "x" * 201},
            "title",
            f'expected a string of 1 to 200 characters, not "{"x" * 39}…"',
        ),
        *(
            (
                "agent/configure",
                {**ONE, "title": title},
                "title",
                f"{json.dumps(title)} is no line of text; take some words without line breaks",
            )
            for title in ("two\nlines", "  ", "a\rb")
        ),
        ("agent/block", {**ONE, "id": "a", "from": -1}, "from", "expected a whole number from 0, not -1"),
        ("agent/retry", {**ONE, "messageId": "m", "turn": 0}, "turn", "expected a whole number from 1, not 0"),
        (
            "agent/retry",
            {**ONE, "messageId": "u:m", "turn": 1},
            "messageId",
            '"u:m" has a form that only the server uses; take a random id, such as a UUID',
        ),
        (
            "agent/inbox/edit",
            {**ONE, "messageId": "m1", "content": " "},
            "content",
            '" " is blank; a message needs some text',
        ),
        (
            "agent/answer",
            {**ANSWER, "answer": {"decision": "yes"}},
            "answer.decision",
            'expected "allow", "deny" or "deny-and-stop", not "yes"',
        ),
        (
            "agent/answer",
            {**ANSWER, "answer": {"decision": "allow", "remember": "session"}},
            "answer.remember",
            '"session" is not served by this version; leave it out',
        ),
        (
            "agent/answer",
            {**ANSWER, "answer": {"decision": "allow", "content": "other"}},
            "answer.content",
            "an approval takes no content",
        ),
        (
            "agent/answer",
            {**ANSWER, "shown": None},
            "shown",
            "expected a string of at least 1 character, but it is missing",
        ),
        ("agent/cancel", {"agentId": "one", "turn": "2"}, "turn", 'expected a whole number from 1, not "2"'),
        (
            "agent/inbox/remove",
            {"agentId": "one"},
            "messageId",
            "expected a string of at least 1 character, but it is missing",
        ),
    ],
)
async def test_a_malformed_request_is_answered_with_the_path_of_what_is_wrong(
    client: Client, agent: FakeAgent, method: str, params: JsonValue, path: str, said: str
) -> None:
    error = await client.refusal(method, params)
    assert (error.code, error.message) == (-32602, f"{method}: {path}: {said}")
    assert error.data == {"path": path}
    assert agent.noted == []


async def test_a_field_that_is_null_counts_as_left_out(client: Client, agent: FakeAgent) -> None:
    await client.call("agent/steer", {**SEND, "mentions": None, "expectedTurn": None, "ifIdle": None})
    assert agent.noted[0].if_idle == "start"
    error = await client.refusal("agent/send", {**SEND, "content": None})
    assert error.message == "agent/send: content: expected a string or a list, but it is missing"


async def test_an_empty_list_counts_as_an_empty_object(served: Served, host: FakeHost) -> None:
    """As Neovim writes an empty table."""
    client = await served.connect()
    capabilities: JsonObject = {"window": [], "workspace": {"didChangeWatchedFiles": []}, "general": []}
    await client.call("initialize", {"capabilities": {**capabilities, "experimental": {"agent": AGENT}}})
    assert (await client.call("agent/list", []))["agents"]
    assert (await client.call("agent/models", []))["models"] == []
    client.notify("agent/editorState", {"activeUri": "file:///w/a"})
    client.notify("agent/editorState", [])
    error = await client.refusal("agent/create", {"workspaceUri": "file:///w", "from": []})
    assert error.data == {"path": "from.agentId"}
    assert host.documents.editors()[0].focus.active == "file:///w/a"
    assert (await client.refusal("agent/list", [1])).data == {"path": "params"}


async def test_unknown_fields_are_ignored(client: Client) -> None:
    assert (await client.call("agent/send", {**SEND, "colour": "green"}))["outcome"] == "started"


# Trap 2 of pygls: an object with a `jsonrpc` key at any depth is taken for a message.


@pytest.mark.parametrize("where", ["top", "deep", "content", "context"])
async def test_a_nested_jsonrpc_key_is_data(client: Client, agent: FakeAgent, where: str) -> None:
    envelope: JsonObject = {"jsonrpc": "2.0", "id": 3, "method": "shutdown", "params": {"jsonrpc": "2.0"}}
    if where == "context":
        form: JsonObject = {"form": "notice", "summary": "s", "jsonrpc": "2.0", "more": [envelope]}
        await client.call("agent/inject", {**SEND, "context": form})
    elif where == "content":
        await client.call("agent/send", {**SEND, "content": [{"type": "text", "text": "x", "jsonrpc": "2.0"}]})
    else:
        extra: JsonObject = {"jsonrpc": "2.0"} if where == "top" else {"a": [{"b": envelope}]}
        await client.call("agent/send", {**SEND, **extra})
    assert [noted.id for noted in agent.noted] == ["m1"]


# Envelopes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "msg_id", "code", "said"),
    [
        (b"{", None, -32700, "the message is no JSON: "),
        (b"\xff", None, -32700, "the message is no JSON: "),
        (b"5", None, -32600, "the message is 5: no object"),
        (
            b'[{"jsonrpc":"2.0","id":1,"method":"agent/list"}]',
            None,
            -32600,
            "the message is a list of 1: batches are not served; send each message by itself",
        ),
        (b"{}", None, -32600, "a message needs a method, or the id of the request that it answers"),
        (b'{"jsonrpc":"2.0","id":9,"method":5}', 9, -32600, "the method is 5, not a string"),
        (b'{"id":"nine","method":"agent/list"}', "nine", -32600, '"jsonrpc" is null, not "2.0"'),
        (b'{"jsonrpc":"1.0","id":9,"method":"agent/list"}', 9, -32600, '"jsonrpc" is "1.0", not "2.0"'),
        (
            b'{"jsonrpc":"2.0","id":1.5,"method":"agent/list"}',
            None,
            -32600,
            "the id is 1.5, not a whole number or a string",
        ),
        (
            b'{"jsonrpc":"2.0","id":null,"method":"agent/list"}',
            None,
            -32600,
            "the id is null, not a whole number or a string",
        ),
        (
            b'{"jsonrpc":"2.0","id":true,"method":"agent/list"}',
            None,
            -32600,
            "the id is true, not a whole number or a string",
        ),
        (b'{"jsonrpc":"2.0","id":9,"method":"agent/none"}', 9, -32601, 'there is no method "agent/none"'),
        (b'{"jsonrpc":"2.0","id":9,"method":"$/none"}', 9, -32601, 'there is no method "$/none"'),
    ],
)
async def test_a_malformed_message_is_answered_and_the_next_one_works(
    client: Client, body: bytes, msg_id: JsonValue, code: int, said: str
) -> None:
    client.send_bytes(framed(body))
    await client.until(lambda: client.orphans)
    (answer,) = client.orphans
    error = cast(JsonObject, answer["error"])
    assert (answer["id"], error["code"]) == (msg_id, code)
    assert cast(str, error["message"]).startswith(said)
    assert (await client.call("agent/list"))["agents"]


async def test_a_request_is_found_in_any_header_and_at_any_cut(client: Client) -> None:
    body = orjson.dumps({"jsonrpc": "2.0", "id": "x", "method": "agent/list"})
    stream = b"content-type: any\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    for cut in (0, 1, 7, 20, len(stream) - len(body) - 2, len(stream) - 1):
        answer = client.expect("x")
        client.send_bytes(stream[:cut])
        await client.writer.drain()
        client.send_bytes(stream[cut:])
        assert cast(JsonObject, await answer)["agents"]


async def test_params_may_be_missing(client: Client) -> None:
    answer = client.expect("bare")
    client.send({"jsonrpc": "2.0", "id": "bare", "method": "agent/list"})
    assert cast(JsonObject, await answer)["agents"]


async def test_wrong_answers_and_notifications_are_never_answered(client: Client) -> None:
    client.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "?"}})
    client.send({"jsonrpc": "2.0", "id": 77, "result": None})
    client.send({"jsonrpc": "2.0", "id": "77", "error": "broken"})
    client.notify("textDocument/didOpen", {"textDocument": 5})
    client.notify("$/setTrace", {"value": "verbose"})
    client.notify("$/cancelRequest", {"id": 12345})
    client.notify("$/cancelRequest", {"id": {"a": 1}})
    client.notify("$/cancelRequest")
    client.notify("agent/send", SEND)
    client.notify("shutdown")
    assert (await client.call("agent/list"))["agents"]
    assert client.orphans == []


async def test_an_overlong_message_is_answered_and_skipped(served: Served) -> None:
    served.hub.message_max = 2000
    client = await served.started()
    client.send({"jsonrpc": "2.0", "id": 5, "method": "agent/send", "params": {**SEND, "content": "x" * 5000}})
    await client.until(lambda: client.orphans)
    assert "at most 2000 are taken" in cast(str, cast(JsonObject, client.orphans[0]["error"])["message"])
    assert (await client.call("agent/list"))["agents"]


async def test_a_stream_without_lengths_is_told_why_and_closed(client: Client) -> None:
    client.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await client.ended.wait()
    errors = [cast(JsonObject, orphan["error"])["message"] for orphan in client.orphans]
    assert errors[-1] == "a header without Content-Length, so that its message has no end"
