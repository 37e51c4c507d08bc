"""Two clients of one agent who do the same thing at the same time: one of them is first, both see the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.editors import Editor, SocketServer, on_socket, results_of, texts_of
from tests.model_server import DONE, Answer, ModelServer, calls, content, finish, reply

TWO = {"agent": {"version": 1, "client": {"name": "two", "version": "2"}}}


@pytest.fixture
async def server(tmp_path: Path, endpoint: tuple[str, ...]) -> AsyncIterator[SocketServer]:
    async with on_socket(tmp_path, *endpoint) as made:
        yield made


def view(editor: Editor, agent: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Blocks and state as a person sees them: at which revision a block was drawn is the client's own business."""
    rows = [{name: value for name, value in row.items() if name != "rev"} for row in editor.whole(agent)]
    return rows, editor.state(agent)


async def both_see(one: Editor, two: Editor, agent: str, turn: int) -> None:
    """Both have come to the end of a turn, and see the same."""
    for editor in (one, two):
        await editor.closed(agent, turn)
    assert view(one, agent) == view(two, agent)


def write(name: str) -> Answer:
    return calls(("write", {"path": name, "content": f"{name}\n"}))


async def test_of_two_answers_at_the_same_time_one_counts(server: SocketServer, model: ModelServer, work: Path) -> None:
    """Each turn both decide, one this way and the other that way, in turns who sends first."""
    async with server.editor() as one, server.editor(TWO) as two:
        agent = await one.create(workspaceUri=work.as_uri())
        await two.attach(agent)
        for turn in range(1, 9):
            model.script(write(f"{turn}.txt"), reply("done"))
            await one.say("followup", agent, "go")
            request = await one.asked(agent)
            assert await two.asked(agent) == request
            first, second = (one, two) if turn % 2 else (two, one)
            answers = await asyncio.gather(first.decide(agent, "allow"), second.decide(agent, "deny"))
            await both_see(one, two, agent, turn)
            assert sorted(answer["outcome"] for answer in answers) == ["accepted", "already-resolved"]
            allowed = answers[0]["outcome"] == "accepted"
            winner = "tester 1.0" if (first if allowed else second) is one else "two 2"
            assert [answer["by"] for answer in answers] == [winner, winner]
            assert (work / f"{turn}.txt").exists() == allowed
            row = one.row(agent, "approval")
            assert (row["title"].split(":")[0], row["summary"]) == ("Allowed" if allowed else "Denied", f"by {winner}")
            result = results_of(model.exchanges[-1])[-1]
            assert result.startswith("created" if allowed else "the person did not allow")


async def test_an_edit_that_meets_the_claim_comes_in_time_or_is_given_back(
    server: SocketServer, model: ModelServer
) -> None:
    """One client edits what waits while the turn before it ends, sooner or later. It was done, and then the model has
    read the new text, or the message was gone, and then it has read the old one."""
    runs = 60
    gates = [asyncio.Event() for _ in range(runs + 1)]
    model.script(*(Answer((content(f"answer {n} "), gate, finish(), DONE)) for n, gate in enumerate(gates)))
    outcomes = []
    async with server.editor() as one, server.editor(TWO) as two:
        agent = await one.create()
        await two.attach(agent)
        await one.say("followup", agent, "first")
        for run in range(runs):
            await one.streaming(agent, f"answer {run} ")
            message = f"q{run}"
            assert (await one.say("followup", agent, f"old {run}", message))["outcome"] == "queued"
            editing = two.ask("agent/inbox/edit", agentId=agent, messageId=message, content=f"new {run}")
            if run == 0:
                edited = await editing
                gates[run].set()
            else:
                gates[run].set()
                for _ in range(run * run):
                    await asyncio.sleep(0)
                if run == runs - 1:
                    await model.exchange(run + 1)
                edited = await editing
            said = texts_of(await model.exchange(run + 1), "user")[-1]
            outcomes.append(edited["outcome"])
            if edited["outcome"] == "done":
                assert (said, "content" in edited) == (f"new {run}", False)
            else:
                assert (said, edited["outcome"]) == (f"old {run}", "gone")
                assert edited["content"] == [{"type": "text", "text": f"new {run}"}]
            await one.until(lambda: f"u:{message}" in one.ids(agent))  # noqa: B023
            assert one.row(agent, "user")["body"] == said
        gates[runs].set()
        await both_see(one, two, agent, runs + 1)
    assert (outcomes[0], outcomes[-1]) == ("done", "gone")


async def test_who_comes_while_something_is_asked_sees_it_and_may_answer(
    server: SocketServer, model: ModelServer, work: Path
) -> None:
    model.script(write("new.txt"), reply("done"))
    async with server.editor() as one:
        agent = await one.create(workspaceUri=work.as_uri())
        await one.say("followup", agent, "go")
        await one.asked(agent)
        async with server.editor(TWO) as two:
            await two.attach(agent)
            (asked,) = two.state(agent)["requests"]
            assert two.row(agent, "approval") == {
                **one.row(agent, "approval"),
                "rev": two.row(agent, "approval")["rev"],
            }
            assert two.state(agent)["status"] == "waiting"
            assert (await two.decide(agent, "allow"))["outcome"] == "accepted"
            await both_see(one, two, agent, 1)
            assert (work / "new.txt").exists()
            late = await one.decide(agent, "deny", request=asked)
            assert late == {"outcome": "already-resolved", "by": "two 2"}


async def test_an_answer_to_something_else_than_is_asked_changes_nothing(
    server: SocketServer, model: ModelServer, work: Path
) -> None:
    model.script(write("new.txt"), reply("done"))
    async with server.editor() as one, server.editor(TWO) as two:
        agent = await one.create(workspaceUri=work.as_uri())
        await two.attach(agent)
        await one.say("followup", agent, "go")
        asked = await two.asked(agent)
        seen = {**asked, "shown": "sha256:" + "0" * 64}
        assert await two.decide(agent, "allow", request=seen) == {"outcome": "changed"}
        assert two.state(agent)["requests"] == [asked]
        assert not (work / "new.txt").exists()
        assert (await two.decide(agent, "allow"))["outcome"] == "accepted"
        await both_see(one, two, agent, 1)
        assert await one.decide(agent, "allow", request=seen) == {"outcome": "already-resolved", "by": "two 2"}


async def test_who_goes_while_something_is_asked_leaves_it_to_the_others(
    server: SocketServer, model: ModelServer, work: Path
) -> None:
    model.script(write("new.txt"), reply("done"))
    async with server.editor() as one:
        async with server.editor(TWO) as two:
            agent = await two.create(workspaceUri=work.as_uri())
            await one.attach(agent)
            await two.say("followup", agent, "go")
            await two.asked(agent)
        await one.until(lambda: len(one.state(agent)["editors"]) == 1)
        assert one.state(agent)["status"] == "waiting"
        assert (await one.decide(agent, "allow"))["outcome"] == "accepted"
        await one.closed(agent, 1)
        assert (work / "new.txt").exists()
