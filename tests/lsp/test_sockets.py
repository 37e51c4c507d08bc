"""The socket is its owner's alone, and two servers never share one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from agentls.core.errors import UserError
from agentls.lsp import sockets
from agentls.lsp.server import serve_socket
from tests.lsp.clients import Client, Failed
from tests.lsp.doubles import FakeAgent, FakeHost
from tests.processes import SECONDS, Talk, agentls, message, started


def test_folder_and_socket_are_the_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "agentls.sock"
    umask = os.umask(0)
    try:
        listening = sockets.listen(path)
    finally:
        os.umask(umask)
    try:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.with_name("agentls.sock.lock").stat().st_mode) == 0o600
    finally:
        listening.close()
    assert not path.exists()


def test_the_umask_is_as_it_was(tmp_path: Path) -> None:
    before = os.umask(0o022)
    sockets.listen(tmp_path / "s").close()
    assert os.umask(before) == 0o022


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o1777])
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UserError, match="is open to others; put the socket into one of your own with mode 0700"):
        sockets.listen(folder / "s")
    assert list(folder.iterdir()) == []


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(UserError, match="exists and is no socket; choose another path"):
        sockets.listen(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"


def test_a_path_that_is_too_long_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is too long for a socket, at most 107 bytes"):
        sockets.listen(tmp_path / ("x" * 108))


def test_a_live_server_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listening = sockets.listen(path)
    with pytest.raises(UserError, match=r"a server listens on .* already; connect to it or choose another path"):
        sockets.listen(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listening.close()
    sockets.listen(path).close()


def test_another_program_s_live_socket_is_kept_as_well(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(UserError, match="a server listens on"):
            sockets.listen(path)
    sockets.listen(path).close()


def test_the_other_end_of_a_pair_is_the_same_user() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert sockets.same_user(one)


async def test_a_connection_that_is_not_admitted_is_closed(tmp_path: Path) -> None:
    path, stop, ready = tmp_path / "s", asyncio.Event(), asyncio.Event()
    host = FakeHost(FakeAgent())
    serving = asyncio.create_task(serve_socket(host, path, stop, ready.set, admits=lambda _: False))
    await ready.wait()
    reader, writer = await asyncio.open_unix_connection(str(path))
    assert await reader.read() == b""
    writer.close()
    stop.set()
    await serving


async def test_clients_of_a_socket_come_and_go_and_a_stop_ends_all(tmp_path: Path) -> None:
    path, stop, ready = tmp_path / "s", asyncio.Event(), asyncio.Event()
    agent = FakeAgent()
    serving = asyncio.create_task(serve_socket(FakeHost(agent), path, stop, ready.set))
    await ready.wait()
    clients = [Client(*await asyncio.open_unix_connection(str(path))) for _ in range(3)]
    for client in clients:
        await client.start()
        await client.attach()
    clients[0].vanish()
    await clients[1].call("shutdown")
    clients[1].notify("exit")
    await clients[1].ended.wait()
    await clients[2].until(lambda: len(clients[2].reducers["one"].state["editors"]) == 1)  # type: ignore[arg-type]
    agent.gate.clear()
    waiting = clients[2].ask("agent/send", {"agentId": "one", "messageId": "m", "content": "x"})
    await clients[2].call("agent/list")
    stop.set()
    await asyncio.wait_for(serving, SECONDS)
    with pytest.raises(Failed, match="agent/send was cancelled") as answered:
        await waiting
    assert answered.value.code == -32800, "a stop leaves no request without an answer"
    agent.gate.set()
    assert not path.exists()
    for client in clients:
        await client.close()


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def test_the_real_server_listens_is_refused_twice_and_replaces_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    command = agentls("serve", "--socket", str(path), "--model", "demo", "--state-dir", str(tmp_path / "state"))

    with started(command) as first:
        assert first.stderr is not None
        assert first.stderr.readline() == f'agentls: listening on "{path}"\n'.encode()
        with connect(path) as one, connect(path) as two:
            one_talk, two_talk = Talk(one, one), Talk(two, two)
            one_talk.initialize()
            two_talk.initialize()
            one_talk.send(message("exit"))
            assert one_talk.read() is None
            assert "result" in two_talk.call("agent/list")
        with started(command) as second:
            assert second.wait(SECONDS) == 2
            assert second.stderr is not None
            assert b"already; connect to it or choose another path" in second.stderr.read()
        first.kill()
        first.wait()
    assert path.exists()

    with started(command) as third:
        assert third.stderr is not None
        third.stderr.readline()
        with connect(path) as client:
            Talk(client, client).initialize()
            third.send_signal(signal.SIGTERM)
            assert third.wait(SECONDS) == 0
    assert not path.exists()
