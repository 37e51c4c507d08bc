"""Several clients on one socket: one agent, equal transcripts, nobody in anybody's way."""

from __future__ import annotations

import asyncio
import random
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.editors import COMMAND, WORKSPACE, Editor, SocketServer, on_socket
from tests.model_server import DONE, Answer, ModelServer, Piece, content, finish, reply

STORM_CLIENTS = 40
STORM_WORDS = 400


@pytest.fixture
async def server(tmp_path: Path, endpoint: tuple[str, ...]) -> AsyncIterator[SocketServer]:
    async with on_socket(tmp_path, *endpoint) as made:
        yield made


def drawn(editor: Editor, agent: str) -> list[dict[str, Any]]:
    """The blocks as a person sees them: the revision at which each was drawn is the client's own business."""
    return [{name: value for name, value in row.items() if name != "rev"} for row in editor.rows(agent)]


async def test_two_clients_see_and_steer_the_same_running_agent(server: SocketServer, model: ModelServer) -> None:
    gate = asyncio.Event()
    model.script(Answer((content("fir"), gate, content("st"), finish(), DONE)), reply("second"))
    async with server.editor() as one, server.editor(KNOWN_AS_TWO) as two:
        agent = await one.create()
        await two.attach(agent)
        await one.say("followup", agent, "go", "m1")
        await two.streaming(agent, "fir")
        assert two.row(agent, "user")["body"] == "go"
        await two.say("steer", agent, "shorter", "s1")
        await one.until(lambda: [item["messageId"] for item in one.state(agent)["inbox"]] == ["s1"])
        gate.set()
        for editor in (one, two):
            await editor.ended(agent)
        assert drawn(one, agent) == drawn(two, agent)
        assert one.ids(agent) == ["u:m1", "a1.1.1/0", "u:s1", "a1.2.1/0", "turn1"]
        assert {facts["client"] for facts in one.state(agent)["editors"]} == {"tester 1.0", "two 2"}


async def test_what_one_client_does_the_other_sees(server: SocketServer, model: ModelServer) -> None:
    """The second client sends, injects and cancels before the eyes of the first, and then the other way round."""
    model.script(*(Answer((content(f"answer {n}"), asyncio.Event())) for n in (1, 2)))
    async with server.editor() as one, server.editor(KNOWN_AS_TWO) as two:
        agent = await one.create()
        await two.attach(agent)
        assert (await two.say("followup", agent, "from two", "m1"))["outcome"] == "started"
        await one.streaming(agent, "answer 1")
        assert one.row(agent, "user")["body"] == "from two"
        assert (await two.say("inject", agent, "the branch is dev", "i1", context=NOTICE))["outcome"] == "injected"
        await one.until(lambda: "c:i1" in one.ids(agent))
        assert (one.row(agent, "context")["producer"], one.row(agent, "context")["summary"]) == ("two", "it moved")
        await two.say("followup", agent, "waits", "m2")
        await one.until(lambda: [item["messageId"] for item in one.state(agent)["inbox"]] == ["m2"])
        cancelled = await two.ask("agent/cancel", agentId=agent, keepInbox=True)
        assert cancelled["outcome"] == "cancelled"
        await one.until(lambda: one.state(agent)["hold"] == {"cause": "cancel"})
        await one.ended(agent)
        assert one.row(agent, "turn-end")["reason"] == "aborted"
        assert (one.answer(agent), one.row(agent, "assistant")["state"]) == ("answer 1", "interrupted")
        assert drawn(one, agent) == drawn(two, agent)

        await one.ask("agent/inbox/resume", agentId=agent)
        await two.streaming(agent, "answer 2")
        assert (await one.ask("agent/cancel", agentId=agent))["outcome"] == "cancelled"
        await two.until(lambda: two.ids(agent)[-1] == "turn2" and two.state(agent)["status"] == "idle")
        assert two.row(agent, "turn-end")["reason"] == "aborted"
        assert (await two.ask("agent/cancel", agentId=agent))["outcome"] == "idle", "it was stopped already"
        assert drawn(one, agent) == drawn(two, agent)
        states = [{**editor.state(agent), "rev": None} for editor in (one, two)]
        assert states[0] == states[1]


NOTICE = {"form": "notice", "summary": "it moved"}
KNOWN_AS_TWO = {"agent": {"version": 1, "client": {"name": "two", "version": "2"}}}


async def test_a_turn_outlives_the_client_that_started_it(server: SocketServer, model: ModelServer) -> None:
    gate = asyncio.Event()
    model.script(Answer((content("fir"), gate, content("st"), finish(), DONE)))
    async with server.editor() as one:
        agent = await one.create()
        await one.say("followup", agent, "go")
        await one.streaming(agent, "fir")
        seen = (one.drawn[agent].epoch, one.drawn[agent].rev, one.drawn[agent])
    gate.set()
    async with server.editor() as again:
        again.drawn[agent] = seen[2]
        caught = await again.attach(agent, epoch=seen[0], since=seen[1])
        assert not caught["reset"], "the epoch outlives the connection"
        await again.idle(agent)
        assert again.answer(agent) == "first"


async def test_forty_clients_attach_at_random_moments_of_a_stream(server: SocketServer, model: ModelServer) -> None:
    """Each ends with the text of the log; the reducer fails on a gap, a double and a frame out of order."""
    words = [f"w{n} " for n in range(STORM_WORDS)]
    moments = sorted(random.Random(4).sample(range(STORM_WORDS), STORM_CLIENTS))
    reached = {moment: asyncio.Event() for moment in moments}
    pieces: list[Piece] = []
    for n, word in enumerate(words):
        pieces.append(content(word))
        if n in reached:
            pieces.append(reached[n])
    model.script(Answer((*pieces, finish(), DONE)))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(server.editor())
        agent = await first.create()
        await first.say("followup", agent, "count")
        late = [await stack.enter_async_context(server.editor()) for _ in moments]
        attaching = []
        for editor, moment in zip(late, moments, strict=True):
            await first.streaming(agent, words[moment])
            attaching.append(asyncio.create_task(editor.attach(agent)))
            reached[moment].set()
        await asyncio.gather(*attaching)
        for editor in (first, *late):
            await editor.ended(agent)
            assert editor.answer(agent) == "".join(words)
            assert drawn(editor, agent) == drawn(first, agent)
        listed = await first.ask("agent/list", workspaceUri=WORKSPACE)
        assert len(listed["agents"]) == 1


async def test_the_socket_is_its_owners_alone_and_a_second_server_is_refused(server: SocketServer) -> None:
    mode = server.path.stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700
    second = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", "--socket", str(server.path), "--state-dir", str(server.path.parent),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await asyncio.wait_for(second.communicate(), 30)
    assert second.returncode == 2
    assert b"Traceback" not in said
    assert str(server.path).encode() in said
    async with server.editor() as still_there:
        await still_there.ask("agent/list")


async def test_a_dead_servers_socket_is_taken_over_and_its_session_comes_back(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    """A server that dies by SIGKILL in mid-stream: what was shown is there, marked, and nothing runs by itself."""
    model.script(Answer((content("half a sen"), asyncio.Event())))
    async with on_socket(tmp_path, *endpoint) as server, server.editor() as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "go", "m1")
        await editor.streaming(agent, "half a sen")
        await editor.say("followup", agent, "next", "m2")
        epoch, rev = editor.drawn[agent].epoch, editor.drawn[agent].rev
        server.process.kill()
        await server.process.wait()
    model.script(reply("resumed"))
    async with on_socket(tmp_path, *endpoint) as server, server.editor() as editor:
        caught = await editor.attach(agent, epoch=epoch, since=rev)
        assert caught["reset"], "another process is another epoch"
        assert [(row["id"], row["body"], row["state"]) for row in editor.rows(agent)] == [
            ("u:m1", "go", "done"),
            ("a1.1.1/0", "half a sen", "interrupted"),
            ("turn1", "", "interrupted"),
        ]
        assert editor.row(agent, "turn-end")["reason"] == "interrupted"
        state = editor.state(agent)
        assert (state["status"], state["hold"]) == ("idle", {"cause": "interrupted"})
        assert [(item["messageId"], item["held"]) for item in state["inbox"]] == [("m2", True)]
        assert (await editor.say("followup", agent, "go", "m1"))["repeated"], "ids survive a crash"
        await editor.ask("agent/inbox/resume", agentId=agent)
        await editor.until(lambda: editor.answer(agent).endswith("resumed"))
        await editor.idle(agent)
        assert len(model.exchanges) == 2


async def test_a_session_open_in_another_server_is_refused_with_its_pid(
    tmp_path: Path, endpoint: tuple[str, ...], server: SocketServer
) -> None:
    async with server.editor() as one:
        agent = await one.create()
        other = tmp_path / "other"
        async with on_socket(other, *endpoint, state=tmp_path / "state") as second, second.editor() as two:
            held = await two.refused("agent/attach", agentId=agent)
            assert held.code == -32055
            assert held.data == {"pid": server.process.pid}
            assert str(server.process.pid) in held.message
