"""Model servers that fail: the failure is a row that says what to do, nothing is lost, the next send works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.editors import Editor, on_stdio, texts_of
from tests.model_server import CUT, DONE, KILL, Answer, ModelServer, content, error_body, event, finish, reply


@pytest.fixture
async def editor(tmp_path: Path, endpoint: tuple[str, ...]) -> AsyncIterator[Editor]:
    """One that tries nothing again by itself."""
    async with on_stdio(tmp_path, *endpoint, "--max-retries", "0") as made:
        yield made


@dataclass(frozen=True)
class Fault:
    """How the model server answers, what is kept of it, and what the person is told."""

    answer: Callable[[], Answer]
    title: str
    advice: str
    kept: str = ""


FAULTS = {
    "killed in mid-stream": Fault(
        lambda: Answer((content("half a "), content("sen"), KILL)),
        "The provider cannot be reached",
        "model server runs",
        "half a sen",
    ),
    "cut in mid-stream": Fault(
        lambda: Answer((content("half"), CUT)), "The provider cannot be reached", "model server runs", "half"
    ),
    "closed without a finish": Fault(
        lambda: Answer((content("half"),), framing="close"), "The reply broke off", "Send again", "half"
    ),
    "empty": Fault(lambda: Answer((finish(), DONE)), "The model sent an empty reply", "Send again"),
    "empty body": Fault(lambda: Answer(()), "The model sent an empty reply", "Send again"),
    "401": Fault(lambda: error_body(401, "bad key"), "The provider refused the key", "Check the API key"),
    "429": Fault(
        lambda: error_body(429, "slow down", headers={"retry-after": "7"}), "Too many requests", "wait 7 seconds"
    ),
    "quota": Fault(
        lambda: error_body(429, "You exceeded your current quota", type="insufficient_quota"),
        "The account's quota is used up",
        "Top up",
    ),
    "500": Fault(lambda: error_body(500, "boom"), "The provider has a problem", "send again in a moment"),
    "overflow": Fault(
        lambda: error_body(400, "maximum context length is 2048 tokens"),
        "The conversation is longer than the model can read",
        "Start a new agent",
    ),
    "an error inside the stream": Fault(
        lambda: Answer((content("half"), event({"error": {"message": "upstream is full"}}), DONE)),
        "The request failed",
        "Read the provider's message below and send again",
        "half",
    ),
    "no JSON": Fault(lambda: Answer((event("not json"),)), "The provider sent something unreadable", "compatible API"),
}


def seen(editor: Editor, agent: str) -> list[tuple[str, str, str]]:
    return [(row["id"], row["body"], row["state"]) for row in editor.rows(agent)]


@pytest.mark.parametrize("name", FAULTS)
async def test_a_failure_is_a_row_and_the_next_send_works(editor: Editor, model: ModelServer, name: str) -> None:
    fault = FAULTS[name]
    gate = asyncio.Event()
    answer = fault.answer()
    model.script(Answer((gate, *answer.pieces), answer.status, answer.headers, answer.framing), reply("fine"))
    agent = await editor.create()
    await editor.say("followup", agent, "go", "m1")
    await model.exchange(0)
    await editor.say("followup", agent, "waiting", "m2")
    await editor.say("steer", agent, "steered", "s1")
    gate.set()
    await editor.ended(agent)
    error = editor.row(agent, "error")
    assert error["title"] == fault.title
    assert fault.advice in error["body"]
    assert "Traceback" not in error["body"]
    assert editor.answer(agent) == fault.kept
    if fault.kept:
        assert editor.row(agent, "assistant")["state"] == "failed"
    state = editor.state(agent)
    assert state["lastTurn"] == {"number": 1, "reason": "error"}
    assert state["hold"] == {"cause": "error"}
    assert [(item["messageId"], item["held"]) for item in state["inbox"]] == [("s1", True), ("m2", True)]
    assert (await editor.say("followup", agent, "again", "m3"))["outcome"] == "started"
    await editor.until(lambda: editor.answer(agent).endswith("fine"))
    await editor.idle(agent)
    assert texts_of(await model.exchange(1), "user") == ["go", "again"], (
        "a failed answer is never sent, what is held waits"
    )
    await editor.ask("agent/detach", agentId=agent)
    before = seen(editor, agent)
    await editor.attach(agent)
    assert seen(editor, agent) == before


async def test_a_refused_connection_says_where_and_the_server_may_come_later(
    editor: Editor, model: ModelServer
) -> None:
    agent = await editor.create()
    await model.stop()
    await editor.say("followup", agent, "go")
    await editor.ended(agent)
    error = editor.row(agent, "error")
    assert error["title"] == "The provider cannot be reached"
    assert f"127.0.0.1:{model.port}" in error["body"]
    assert "refused" in error["body"]
    model.script(reply("here now"))
    async with model:
        await editor.say("followup", agent, "again")
        await editor.until(lambda: editor.answer(agent) == "here now")
        await editor.idle(agent)


async def test_a_missing_key_names_its_variable_and_a_key_is_never_shown(tmp_path: Path, model: ModelServer) -> None:
    options = ("--base-url", model.url, "--model-id", "played", "--key-variable", "PLAYED_KEY")
    async with on_stdio(tmp_path / "a", *options, env={"PLAYED_KEY": ""}) as editor:
        agent = await editor.create()
        assert editor.state(agent)["model"]["usable"] is False
        await editor.say("followup", agent, "go")
        await editor.ended(agent)
        assert "PLAYED_KEY" in editor.row(agent, "error")["body"]
    secret = "sk-planted-7f3a9"
    model.script(error_body(401, f"incorrect key {secret}"))
    async with on_stdio(tmp_path / "b", *options, env={"PLAYED_KEY": secret}) as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "go")
        await editor.ended(agent)
        assert secret not in str(editor.drawn[agent].blocks)
    assert (await model.exchange(0)).headers["authorization"] == f"Bearer {secret}"
    for file in (tmp_path / "b").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()


async def test_finished_text_followed_by_silence_ends_the_turn(editor: Editor, model: ModelServer) -> None:
    """Case S07."""
    model.script(Answer((content("A"), finish(), asyncio.Event())))
    agent = await editor.create()
    await editor.say("followup", agent, "go")
    await editor.idle(agent)
    assert (editor.answer(agent), editor.row(agent, "turn-end")["reason"]) == ("A", "completed")
    await (await model.exchange(0)).gone.wait()
