"""Requests that fail and are tried again, by the server and by the person: what is waited for, sent and shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.editors import Desk, on_stdio, texts_of
from tests.model_server import KILL, Answer, ModelServer, content, error_body, reply

FULL = error_body(500, "boom")


@pytest.fixture
async def once(tmp_path: Path, work: Path, model: ModelServer, endpoint: tuple[str, ...]) -> AsyncIterator[Desk]:
    """A server that tries a request again once."""
    async with on_stdio(tmp_path / "state", *endpoint, "--max-retries", "1") as editor:
        yield Desk(editor, model, work, await editor.create(workspaceUri=work.as_uri()))


def later(seconds: int) -> Answer:
    """A refusal that asks to wait so long."""
    return error_body(429, "slow down", headers={"retry-after": str(seconds)})


async def test_a_failed_request_is_sent_again_as_it_was_and_what_came_of_it_stays_drawn(desk: Desk) -> None:
    desk.model.script(Answer((content("half a "), content("sen"), KILL)), reply("a whole sentence"))
    await desk.say("go", id="m1")
    await desk.editor.closed(desk.agent, 1)
    failed, retry, answer = (row for row in desk.editor.rows(desk.agent) if row["kind"] not in ("user", "turn-end"))
    assert (failed["body"], failed["state"]) == ("half a sen", "failed")
    assert (retry["kind"], retry["state"]) == ("retry", "done")
    assert retry["title"] == "Tried again after 1 s: The provider cannot be reached"
    assert (answer["body"], answer["state"]) == ("a whole sentence", "done")
    first, second = desk.model.exchanges
    assert second.json() == first.json()
    assert desk.row("turn-end")["reason"] == "completed"
    told = await desk.turn(2, FULL, reply("fine"))
    assert texts_of(told)[1:] == ["go", "a whole sentence", "go"], "no answer that failed is ever sent"
    assert _title(desk) == "Tried again after 1 s: The provider has a problem"


async def test_the_provider_says_how_long_to_wait_and_the_row_counts_down(desk: Desk) -> None:
    """Statement 16."""
    desk.model.script(later(2), reply("now"))
    await desk.say("go")
    await desk.model.exchange(0)
    began = time.monotonic()
    for title in ("Trying again in 2 s", "Trying again in 1 s", "Tried again after 2 s"):
        await desk.editor.until(lambda: title in _title(desk))  # noqa: B023
        assert _title(desk) == f"{title}: Too many requests"
    await desk.model.exchange(1)
    assert time.monotonic() - began > 1.9
    await desk.editor.closed(desk.agent, 1)
    assert desk.editor.answer(desk.agent) == "now"


def _title(desk: Desk) -> str:
    rows = [row["title"] for row in desk.editor.rows(desk.agent) if row["kind"] == "retry"]
    return str(rows[-1]) if rows else ""


async def test_what_no_other_attempt_would_cure_is_not_tried_again(desk: Desk) -> None:
    refusals = (
        error_body(401, "bad key"),
        error_body(429, "You exceeded your current quota", type="insufficient_quota"),
        error_body(400, "maximum context length is 2048 tokens"),
        later(3600),
    )
    for turn, refusal in enumerate(refusals, start=1):
        await desk.turn(turn, refusal)
        assert desk.state["lastTurn"] == {"number": turn, "reason": "error"}
    assert "retry" not in desk.editor.kinds(desk.agent)


async def test_a_cancel_ends_the_wait_and_nothing_is_sent(desk: Desk) -> None:
    desk.model.script(later(9))
    await desk.say("go")
    await desk.editor.until(lambda: "Trying again in 9 s" in _title(desk))
    assert desk.state["status"] == "running"
    assert (await desk.editor.ask("agent/cancel", agentId=desk.agent))["outcome"] == "cancelled"
    await desk.editor.closed(desk.agent, 1)
    assert (desk.row("retry")["title"], desk.row("retry")["state"]) == (
        "Not tried again: Too many requests", "interrupted",
    )  # fmt: skip
    assert desk.row("turn-end")["reason"] == "aborted"
    await desk.turn(2, reply("well"), text="something else")
    assert len(desk.model.exchanges) == 2, "that of the next turn is the second one"


async def test_a_server_that_is_told_to_try_once_gives_up_then(once: Desk) -> None:
    once.model.script(FULL, FULL)
    await once.say("go")
    await once.editor.closed(once.agent, 1)
    assert once.state["lastTurn"] == {"number": 1, "reason": "error"}
    assert len(once.model.exchanges) == 2
    assert once.editor.kinds(once.agent) == ["user", "retry", "error", "turn-end"]
    assert once.row("retry")["state"] == "done"


async def test_a_person_tries_the_failed_turn_again(once: Desk) -> None:
    once.model.script(FULL, FULL)
    await once.say("go", id="m1")
    await once.editor.closed(once.agent, 1)
    gate = asyncio.Event()
    once.model.script(Answer((gate, *reply("at last").pieces)))

    async def retry(id: str, turn: int) -> tuple[str, object]:
        said = await once.editor.ask("agent/retry", agentId=once.agent, messageId=id, turn=turn)
        return said["outcome"], said.get("reason") or said.get("turn")

    assert await retry("r0", 7) == ("refused", "not-retryable")
    assert await retry("r1", 1) == ("started", 2)
    await once.model.exchange(2)
    assert once.state["turn"]["trigger"] == "retry"
    assert await retry("r2", 1) == ("refused", "turn-open")
    again = await once.editor.ask("agent/retry", agentId=once.agent, messageId="r1", turn=1)
    assert (again["outcome"], again["repeated"]) == ("started", True)
    assert await retry("m1", 1) == ("refused", "id-conflict")
    gate.set()
    await once.editor.closed(once.agent, 2)
    assert once.editor.answer(once.agent) == "at last"
    assert texts_of(once.model.exchanges[-1])[1:] == ["go"], "the same question, once"
    assert once.state["lastTurn"] == {"number": 2, "reason": "completed"}
    assert [await retry("r3", turn) for turn in (1, 2)] == [("refused", "not-retryable")] * 2
    assert len(once.model.exchanges) == 3


async def test_an_answer_that_was_stopped_goes_on_when_it_is_tried_again(desk: Desk) -> None:
    desk.model.script(Answer((content("half"), asyncio.Event())), reply("the rest"))
    await desk.say("go")
    await desk.editor.streaming(desk.agent, "half")
    await desk.editor.ask("agent/cancel", agentId=desk.agent)
    await desk.editor.closed(desk.agent, 1)
    started = await desk.editor.ask("agent/retry", agentId=desk.agent, messageId="r1", turn=1)
    assert (started["outcome"], started["turn"]) == ("started", 2)
    await desk.editor.closed(desk.agent, 2)
    *before, notice = texts_of(desk.model.exchanges[-1])[1:]
    assert before == ["go", "half"]
    assert notice.startswith("Your last answer broke off. Go on from where it ended")
    row = desk.editor.snapshots(desk.agent)[-1]
    assert (row["producer"], row["form"], row["summary"]) == ("retry", "notice", "asked to go on")
    assert desk.editor.answer(desk.agent) == "halfthe rest"
