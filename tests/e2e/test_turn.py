"""One client on stdio: a turn through every layer of the real process, over a real HTTP connection to a model."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from agentls.core.json import JsonObject
from agentls.store.sqlite import SESSIONS_FILE
from tests.e2e.editors import WORKSPACE, Editor, on_stdio, started, texts_of
from tests.model_server import DONE, Answer, ModelServer, content, delta, finish, reply, usage
from tests.reducer import Reducer

NOTICE = {"form": "notice", "summary": "the branch changed"}


@pytest.fixture
async def editor(tmp_path: Path, endpoint: tuple[str, ...]) -> AsyncIterator[Editor]:
    async with on_stdio(tmp_path, *endpoint) as made:
        yield made


def held(*texts: str) -> tuple[Answer, asyncio.Event]:
    """An answer that stops after the first text until the event is set."""
    gate = asyncio.Event()
    return Answer((content(texts[0]), gate, *map(content, texts[1:]), finish(), usage(7, 3), DONE)), gate


async def test_initialize_offers_the_extension_to_those_who_know_it(tmp_path: Path) -> None:
    """Rule 1."""
    async with started(tmp_path, "--model", "demo") as editor:
        early = await editor.refused("agent/list")
        assert early.code == -32002
        offered = (await editor.hello())["agent"]
        assert (offered["version"], bool(offered["instance"])) == (1, True)
        assert {"agent/create", "agent/attach", "agent/send", "agent/inbox/resume"} <= set(offered["methods"])
        assert offered["blockKinds"] == [
            "user", "assistant", "reasoning", "tool", "approval", "question", "context", "retry", "error", "turn-end",
        ]  # fmt: skip
        with pytest.raises(JsonRpcException) as again:
            await editor.hello()
        assert again.value.code == -32600


@pytest.mark.parametrize("experimental", [None, {}, {"agent": {"version": 2}}])
async def test_other_clients_get_plain_lsp(tmp_path: Path, experimental: object) -> None:
    """Rule 1."""
    async with started(tmp_path, "--model", "demo") as editor:
        assert "agent" not in await editor.hello(experimental)


async def test_a_prompt_is_answered_in_blocks(editor: Editor, model: ModelServer) -> None:
    answer, gate = held("Hel", "lo")
    model.script(answer)
    agent = await editor.create()
    sent = await editor.say("followup", agent, "hi", "m1")
    assert sent == {"messageId": "m1", "outcome": "started", "turn": 1}
    await editor.streaming(agent, "Hel")
    assert editor.row(agent, "assistant")["state"] == "streaming"
    assert editor.state(agent)["status"] == "running"
    assert editor.state(agent)["turn"]["number"] == 1
    gate.set()
    await editor.idle(agent)
    assert [(row["id"], row["kind"], row["body"], row["state"]) for row in editor.rows(agent)] == [
        ("u:m1", "user", "hi", "done"),
        ("a1.1.1/0", "assistant", "Hello", "done"),
        ("turn1", "turn-end", "", "done"),
    ]
    state = editor.state(agent)
    assert state["lastTurn"] == {"number": 1, "reason": "completed"}
    assert (state["usage"]["inputTokens"], state["usage"]["outputTokens"]) == (7, 3)
    assert state["model"] == {"provider": "openai", "id": "played", "usable": True}
    request = await model.exchange(0)
    assert texts_of(request, "user") == ["hi"]
    assert request.json()["stream"] is True


async def test_send_covers_the_matrix(editor: Editor, model: ModelServer) -> None:
    first, gate = held("one")
    model.script(first, *map(reply, ("two", "three", "four", "five")))
    agent = await editor.create()
    assert (await editor.say("send", agent, "a"))["outcome"] == "started"
    await editor.streaming(agent, "one")
    assert (await editor.say("send", agent, "b", target="next-turn"))["outcome"] == "queued"
    assert (await editor.say("send", agent, "c", target="next-step"))["outcome"] == "steering"
    assert (await editor.say("send", agent, "d", wakeup=False))["outcome"] == "queued"
    quiet_step = {"target": "next-step", "wakeup": False}
    refused = await editor.refused("agent/send", agentId=agent, messageId="q", content="x", **quiet_step)
    assert refused.code == -32602, "an injection says who it is from: agent/inject does"
    gate.set()
    await editor.until(lambda: editor.state(agent)["status"] == "idle" and len(model.exchanges) >= 3)
    said = [row["body"] for row in editor.rows(agent) if row["kind"] == "user"]
    assert said == ["a", "c", "b"]
    assert [item["text"] for item in editor.state(agent)["inbox"]] == ["d"], "it waits for the next wake"
    await editor.say("followup", agent, "e")
    await editor.until(lambda: [row["body"] for row in editor.rows(agent) if row["kind"] == "user"][3:] == ["d", "e"])
    await editor.idle(agent)


async def test_a_steer_joins_the_turn_and_an_injection_the_next_request(editor: Editor, model: ModelServer) -> None:
    first, gate = held("fir", "st")
    model.script(first, reply("second"))
    agent = await editor.create()
    await editor.say("followup", agent, "go", "m1")
    await editor.streaming(agent, "fir")
    steered = await editor.say("steer", agent, "shorter", "s1", expectedTurn=1)
    assert steered == {"messageId": "s1", "outcome": "steering", "turn": 1, "position": 0}
    assert editor.state(agent)["inbox"] == [
        {"messageId": "s1", "lane": "steering", "wakeup": True, "held": False, "text": "shorter"}
    ]
    injected = await editor.say("inject", agent, "main -> dev", "i1", context=NOTICE)
    assert injected["outcome"] == "injected"
    gate.set()
    await editor.idle(agent)
    assert [(row["id"], row["title"]) for row in editor.rows(agent) if row["kind"] in ("user", "context")] == [
        ("u:m1", "You"),
        ("c:i1", "Notice"),
        ("u:s1", "Steering"),
    ]
    context = editor.row(agent, "context")
    assert (context["producer"], context["summary"], context["form"], context["collapsed"]) == (
        "tester", "the branch changed", "notice", True,
    )  # fmt: skip
    assert texts_of(await model.exchange(1))[1:] == ["go", "first", "main -> dev", "shorter"]


async def test_a_cancel_keeps_text_and_queue_and_closes_the_providers_connection(
    editor: Editor, model: ModelServer
) -> None:
    first, _ = held("half")
    model.script(first, reply("ahead"), reply("resumed"))
    agent = await editor.create()
    await editor.say("followup", agent, "go")
    await editor.streaming(agent, "half")
    await editor.say("followup", agent, "wait", "w1")
    assert (await editor.ask("agent/cancel", agentId=agent, turn=9, keepInbox=True))["outcome"] == "stale"
    cancelled = await editor.ask("agent/cancel", agentId=agent, turn=1, keepInbox=True)
    assert cancelled["outcome"] == "cancelled"
    assert [(item["messageId"], item["held"]) for item in cancelled["inbox"]] == [("w1", True)]
    async with asyncio.timeout(5):
        await (await model.exchange(0)).gone.wait()
    await editor.idle(agent)
    assert editor.state(agent)["hold"] == {"cause": "cancel"}
    assert (editor.row(agent, "assistant")["body"], editor.row(agent, "assistant")["state"]) == ("half", "interrupted")
    assert editor.row(agent, "turn-end")["reason"] == "aborted"
    assert (await editor.say("followup", agent, "ahead"))["outcome"] == "started"
    await editor.idle(agent)
    assert [item["held"] for item in editor.state(agent)["inbox"]] == [True]
    assert (await editor.ask("agent/inbox/resume", agentId=agent))["outcome"] == "done"
    await editor.until(lambda: editor.answer(agent).endswith("resumed"))
    await editor.idle(agent)
    assert editor.state(agent)["hold"] is None
    assert (await editor.ask("agent/cancel", agentId=agent))["outcome"] == "idle"


async def test_a_pending_message_can_be_removed_once(editor: Editor, model: ModelServer) -> None:
    first, gate = held("x")
    model.script(first)
    agent = await editor.create()
    await editor.say("followup", agent, "go")
    await editor.streaming(agent, "x")
    await editor.say("followup", agent, "no", "n1")
    removed = await editor.ask("agent/inbox/remove", agentId=agent, messageId="n1")
    assert removed == {"outcome": "done", "inbox": []}
    assert (await editor.ask("agent/inbox/remove", agentId=agent, messageId="n1"))["outcome"] == "gone"
    again = await editor.say("followup", agent, "no", "n1")
    assert (again["repeated"], again["now"]) == (True, "discarded")
    gate.set()
    await editor.idle(agent)
    assert "u:n1" not in editor.ids(agent)


async def test_a_repeated_send_is_one_message(editor: Editor, model: ModelServer) -> None:
    """Rule 6."""
    first, gate = held("x")
    model.script(first)
    agent = await editor.create()
    one, two = await asyncio.gather(*(editor.say("followup", agent, "go", "m1") for _ in range(2)))
    assert one == {"messageId": "m1", "outcome": "started", "turn": 1}
    assert two in [{**one, "repeated": True, "now": now} for now in ("pending", "taken")]
    conflict = await editor.say("followup", agent, "other", "m1")
    assert (conflict["outcome"], conflict["reason"]) == ("refused", "id-conflict")
    assert conflict["content"] == [{"type": "text", "text": "other"}]
    gate.set()
    await editor.idle(agent)
    assert editor.ids(agent) == ["u:m1", "a1.1.1/0", "turn1"]


async def test_reasoning_usage_and_calls_are_drawn(editor: Editor, model: ModelServer) -> None:
    call = delta({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "read", "arguments": '{"path":"x"}'}}]})
    model.script(
        Answer((delta({"reasoning_content": "look"}), content("I look."), call, finish("tool_calls"), DONE)),
        reply("There is no such file."),
    )
    agent = await editor.create()
    await editor.say("followup", agent, "read x")
    await editor.ended(agent)
    assert editor.kinds(agent) == ["user", "reasoning", "assistant", "tool", "assistant", "turn-end"]
    tool = editor.row(agent, "tool")
    assert tool["call"] == {"name": "read", "arguments": '{"path":"x"}', "state": "failed"}
    assert tool["state"] == "failed"
    second = cast(Any, (await model.exchange(1)).json())["messages"]
    assert [message["role"] for message in second[-2:]] == ["assistant", "tool"]


async def test_a_client_that_was_away_catches_up_from_where_it_was(editor: Editor, model: ModelServer) -> None:
    """Rules 2 and 3, and case U04: the text equals the log from every revision."""
    texts = [f"w{n} " for n in range(12)]
    gates = [asyncio.Event() for _ in texts]
    pieces = [piece for text, gate in zip(texts, gates, strict=True) for piece in (content(text), gate)]
    model.script(Answer((*pieces, finish(), DONE)))
    agent = await editor.create()
    await editor.say("followup", agent, "count")
    points = []
    for text, gate in zip(texts, gates, strict=True):
        await editor.streaming(agent, text)
        points.append((editor.drawn[agent].epoch, editor.drawn[agent].rev))
        gate.set()
    await editor.idle(agent)
    for epoch, rev in points:
        caught = await editor.attach(agent, epoch=epoch, since=rev)
        assert not caught["reset"]
        assert editor.answer(agent) == "".join(texts)
    for lost in ({}, {"epoch": "other", "since": 1}, {"epoch": points[0][0], "since": 10**6}):
        caught = await editor.attach(agent, **lost)
        assert caught["reset"]
        assert editor.answer(agent) == "".join(texts)
    assert (await editor.attach(agent, epoch=points[-1][0], since=editor.drawn[agent].rev))["ops"] == []


async def test_a_long_transcript_comes_page_by_page_from_memory_and_from_the_log(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    """Rule 3: a first page, and the older ones on request, also those that only the log still holds."""
    model.script(*(reply(f"answer {n}") for n in range(4)))
    async with on_stdio(tmp_path, *endpoint) as editor:
        agent = await editor.create()
        for n in range(4):
            for m in range(50):
                await editor.say("inject", agent, f"context {n} {m}", context=NOTICE)
            await editor.say("followup", agent, f"question {n}")
            await editor.until(lambda: editor.ids(agent)[-1] == f"turn{51 * (n + 1)}")  # noqa: B023
        await editor.idle(agent)
        whole = seen(editor, agent)
        assert len(whole) == 4 * (50 + 3) + len(editor.snapshots(agent))
        await read_in_pages(editor, agent)
        assert seen(editor, agent) == whole
    async with on_stdio(tmp_path, *endpoint) as editor:
        await read_in_pages(editor, agent)
        assert seen(editor, agent) == whole


async def read_in_pages(editor: Editor, agent: str) -> None:
    """Attach with nothing in hand, and ask for older blocks until there are none."""
    editor.drawn[agent] = Reducer()
    assert (await editor.attach(agent))["reset"]
    assert 0 < len(editor.whole(agent)) <= 100, "a first page"
    while editor.drawn[agent].before is not None:
        held = len(editor.whole(agent))
        await editor.page(agent, 30)
        assert held < len(editor.whole(agent)) <= held + 30


def seen(editor: Editor, agent: str) -> list[tuple[str, str, str]]:
    return [(row["id"], row["title"], row["body"]) for row in editor.whole(agent)]


async def test_a_long_context_is_a_preview_and_the_model_reads_all_of_it(editor: Editor, model: ModelServer) -> None:
    """Rule 8: at most 64 KiB of a context's body are on the wire, and `more` says how many bytes are not."""
    model.script(reply("read"))
    agent = await editor.create()
    text = "é" * 50_000
    await editor.say("inject", agent, text, "i1", context=NOTICE)
    await editor.until(lambda: editor.ids(agent) == ["c:i1"])
    row = editor.row(agent, "context")
    kept = len(row["body"].encode())
    assert 64 * 1024 - 2 <= kept <= 64 * 1024
    assert text.startswith(row["body"])
    assert row["more"] == 100_000 - kept
    await editor.say("followup", agent, "go")
    await editor.ended(agent)
    assert text in texts_of(await model.exchange(0))


class Recording(Reducer):
    """Keeps what it was told as well."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[JsonObject] = []

    def notified(self, method: str, params: JsonObject) -> None:
        self.told += [params] if method == "agent/blocks" else []
        super().notified(method, params)


async def test_a_burst_is_drawn_in_few_frames_and_small_ops(editor: Editor, model: ModelServer) -> None:
    """Rule 8: the first change at once, then at most one frame per 8 ms, and no text longer than 64 KiB in one op."""
    words = [f"w{n} " for n in range(300)]
    words[150] = "long " * 30_000
    burst = b"".join(map(content, words))
    model.script(Answer((burst, finish(), DONE)))
    agent = (await editor.ask("agent/create", workspaceUri=WORKSPACE))["agentId"]
    editor.drawn[agent] = told = Recording()
    await editor.attach(agent)
    began = time.monotonic()
    await editor.say("followup", agent, "go")
    await editor.ended(agent)
    took = time.monotonic() - began
    assert editor.answer(agent) == "".join(words)
    ops: list[list[Any]] = [[op for op in frame["ops"] if _id(op) == "a1.1.1/0"] for frame in told.told]  # type: ignore[union-attr]
    frames = [of_the_answer for of_the_answer in ops if of_the_answer]
    # The answer's finished form is a frame of its own. All others fall into the time that this took, 8 ms apart.
    assert len(frames) - 1 <= 1 + took / 0.008
    assert len(frames) < len(words) / 2
    texts = [op["text"] if op["op"] == "append" else op["block"].get("body", "") for frame in frames for op in frame]
    assert max(len(text.encode()) for text in texts) <= 64 * 1024
    assert sum(map(len, texts)) == len("".join(words)), "each character travels once"


def _id(op: Any) -> str:
    return cast(str, op["block"]["id"] if op["op"] == "put" else op["id"])


async def test_a_cancelled_request_is_answered_at_once_and_its_effect_is_kept(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    """Rule 7: -32800 takes back the answer, not the deed; here the disk is busy while the message is being saved."""
    model.script(reply("still here"))
    async with on_stdio(tmp_path, *endpoint) as editor:
        agent = await editor.create()
        busy = sqlite3.connect(tmp_path / SESSIONS_FILE, isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        protocol = editor.client.protocol
        message = {"agentId": agent, "messageId": "m1", "content": "go"}
        asked = protocol.send_request_async("agent/followup", message, msg_id="slow")  # type: ignore[no-untyped-call]
        sending = asyncio.ensure_future(asked)
        await editor.ask("agent/list")
        protocol.notify("$/cancelRequest", types.CancelParams(id="slow"))
        with pytest.raises(JsonRpcException, match="agent/followup was cancelled") as cancelled:
            await sending
        assert cancelled.value.code == -32800
        assert editor.rows(agent) == []
        busy.execute("ROLLBACK")
        busy.close()
        await editor.ended(agent)
        assert editor.answer(agent) == "still here"
        again = await editor.say("followup", agent, "go", "m1")
        assert (again["outcome"], again["repeated"], again["now"]) == ("started", True, "taken")


async def test_a_detached_client_hears_no_more(editor: Editor, model: ModelServer) -> None:
    model.script(reply("one"), reply("two"))
    agent = await editor.create()
    await editor.say("followup", agent, "a")
    await editor.ended(agent)
    assert await editor.ask("agent/detach", agentId=agent) == {}
    assert (await editor.refused("agent/detach", agentId=agent)).code == -32051
    heard = editor.messages
    assert (await editor.say("followup", agent, "b"))["outcome"] == "started", "only detach needs an attach"
    await model.exchange(1)
    assert editor.messages == heard
    await editor.attach(agent)
    await editor.idle(agent)
    assert editor.answer(agent) == "onetwo"


async def test_agents_are_listed_page_by_page(editor: Editor) -> None:
    agent = await editor.create(title="First")
    other = await editor.create(title="Second", workspaceUri="file:///elsewhere")
    listed = await editor.ask("agent/list", workspaceUri=WORKSPACE)
    assert [(row["id"], row["title"], row["status"]) for row in listed["agents"]] == [(agent, "First", "idle")]
    everything = await editor.ask("agent/list", limit=1)
    assert len(everything["agents"]) == 1
    rest = await editor.ask("agent/list", limit=1, cursor=everything["nextCursor"])
    assert {everything["agents"][0]["id"], rest["agents"][0]["id"]} == {agent, other}


async def test_a_stored_agent_is_listed_with_its_model_and_what_was_said_last(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    model.script(reply("the *last*\nword"))
    async with on_stdio(tmp_path, *endpoint) as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "hello")
        await editor.ended(agent)
        (live,) = (await editor.ask("agent/list"))["agents"]
    async with on_stdio(tmp_path, "--model", "demo") as editor:
        (row,) = (await editor.ask("agent/list"))["agents"]
    assert (live["model"], live["summary"]) == ({"provider": "openai", "id": "played", "usable": True}, row["summary"])
    assert (row["status"], row["model"]) == ("stored", {"provider": "openai", "id": "played"})
    assert row["summary"] == "the *last* word"
