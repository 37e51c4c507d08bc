"""Two real servers race for a session: one has it, the other is told who, and whoever is killed has it no more."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentls.core.events import AgentConfig, Event, SessionHeader
from agentls.core.ids import SessionId
from agentls.store.sqlite import SqliteStore
from tests.processes import Talk, agentls, message, started

RACES = int(os.environ.get("AGENTLS_RACES", "50"))
"""200 by hand, which takes a few minutes."""
KILLED_EVERY = 25
HELD = -32055


class Server:
    """A server process of one client."""

    def __init__(self, stack: ExitStack, state: Path) -> None:
        command = agentls("stdio", "--state-dir", str(state), "--model", "demo")
        self.process: subprocess.Popen[bytes] = stack.enter_context(started(command))
        self.talk = Talk.to(self.process)
        self.talk.initialize()

    def ask(self, session: str) -> None:
        self.talk.send(message("agent/attach", {"agentId": session}, id=session))

    def answer(self, session: str) -> dict[str, Any]:
        return dict(self.talk.answer(session))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def _fill(state: Path, work: Path, sessions: list[str]) -> None:
    store = SqliteStore(state)
    for session in sessions:
        log = await store.create(SessionHeader(session, work.as_uri(), str(work), 0))
        await log.commit([Event(0, 0, AgentConfig(mode="ask"))], durable=False)
        await log.close()
    await store.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.timeout(60 + 2 * RACES)
def test_of_two_servers_that_race_one_has_the_session_and_the_other_is_told_who(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Statement 39."""
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    sessions = [f"s{n}" for n in range(RACES)]
    asyncio.run(_fill(state, work, sessions))
    one, other = Server(stack, state), Server(stack, state)
    won = {one: 0, other: 0}
    for n, session in enumerate(sessions, start=1):
        # Whoever is asked first must not be whoever wins.
        for server in (one, other) if n % 2 else (other, one):
            server.ask(session)
        answers = {server: server.answer(session) for server in (one, other)}
        (holder,) = [server for server, answer in answers.items() if "result" in answer]
        (loser,) = [server for server, answer in answers.items() if "error" in answer]
        pid = holder.process.pid
        assert answers[loser]["error"] == {
            "code": HELD,
            "message": f'session "{session}" is open in process {pid}; close it there or attach to that server',
            "data": {"pid": pid},
        }
        won[holder] = won.get(holder, 0) + 1
        if n % KILLED_EVERY == 0:
            holder.kill()
            loser.ask(session)
            assert "result" in loser.answer(session), "a killed holder has it no more"
            one, other = loser, Server(stack, state)
    assert len([server for server, times in won.items() if times]) > 1, won


async def test_a_killed_holder_frees_all_that_it_had(tmp_path: Path) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    sessions = [f"s{n}" for n in range(5)]
    await _fill(state, work, sessions)
    with ExitStack() as stack:
        server = await asyncio.to_thread(Server, stack, state)
        for session in sessions:
            server.ask(session)
            assert "result" in server.answer(session)
        server.kill()
        store = SqliteStore(state)
        assert store.told == (), "a kill damages nothing"
        for session in sessions:
            await (await store.open(SessionId(session))).close()
        await store.close()
