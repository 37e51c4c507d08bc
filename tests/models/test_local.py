"""The child process of the local model: started when it is needed, ended whatever happens, never in the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import agentls
from agentls.core.chunks import TextDelta
from agentls.core.reasons import Failure
from agentls.models.catalog import LOCAL
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import Network
from agentls.models.local import LocalModel, LocalModels, LocalServer, missing, serve_command
from agentls.models.weights import SMOLLM2
from tests.models.requests import asking, failure_of, read, texts

HERE = Path(__file__).parent


def command(*mode: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "fake_child.py"), *mode)


@pytest.fixture
async def child() -> AsyncIterator[LocalServer]:
    server = LocalServer(command("serve"))
    yield server
    await server.close()


def model(server: LocalServer, network: Network) -> LocalModel:
    return LocalModel(LOCAL, OpenAiChat(), network, server, lambda: None)


async def facts(asked: LocalModel) -> dict[str, Any]:
    """What the fake child says of itself."""
    said: dict[str, Any] = json.loads("".join(texts(await read(asked.stream(asking())))))
    return said


async def gone(pid: int) -> None:
    """Wait for the end of a process, also of one that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def test_the_first_request_starts_the_child_and_the_next_uses_it(child: LocalServer, network: Network) -> None:
    asked = model(child, network)
    assert child.pid is None
    first = await facts(asked)
    assert first["pid"] == child.pid == (await facts(asked))["pid"]
    assert first["key"]
    assert first["path"] == "/v1/chat/completions"


async def test_requests_at_the_same_time_start_one_child(child: LocalServer, network: Network) -> None:
    asked = model(child, network)
    assert len({said["pid"] for said in await asyncio.gather(*(facts(asked) for _ in range(5)))}) == 1


async def test_a_child_that_died_is_started_again_by_the_next_request(child: LocalServer, network: Network) -> None:
    asked = model(child, network)
    pid = (await facts(asked))["pid"]
    os.kill(pid, signal.SIGKILL)
    assert (await facts(asked))["pid"] != pid
    assert (await facts(asked))["pid"] == child.pid


async def test_a_child_that_dies_while_it_answers_leaves_what_it_had_said(network: Network) -> None:
    server = LocalServer(command("breaks"))
    chunks = []
    async for chunk in model(server, network).stream(asking()):
        chunks.append(chunk)
        if isinstance(chunk, TextDelta):
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
    assert texts(chunks) == ["half"]
    assert failure_of(chunks) == Failure(
        'the local model "smollm2" ended while it answered; the next message starts it again',
        "TRANSPORT",
    )
    await server.close()


async def test_each_child_has_a_key_of_its_own(child: LocalServer) -> None:
    first = await child.endpoint()
    second = await child.endpoint(instead_of=first)
    assert len({first.key, second.key}) == 2
    assert await child.endpoint(instead_of=first) == second


async def test_the_child_gets_no_key_of_a_provider(
    child: LocalServer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert "OPENAI_API_KEY" not in (await facts(model(child, network)))["env"]


async def test_nothing_of_the_child_reaches_our_own_output(
    child: LocalServer, network: Network, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output is the protocol."""
    await facts(model(child, network))
    assert capfd.readouterr() == ("", "")


async def test_the_child_is_in_a_process_group_of_its_own(child: LocalServer) -> None:
    """A person's ^C is for the server, which ends the child itself."""
    await child.endpoint()
    assert child.pid is not None
    assert os.getpgid(child.pid) == child.pid


async def test_closing_ends_the_child(child: LocalServer) -> None:
    await child.endpoint()
    pid = child.pid
    assert pid is not None
    await child.close()
    await gone(pid)
    assert child.pid is None
    await child.close()


async def test_the_child_ends_when_its_parent_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(agentls.__file__).parent.parent)}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "fake_parent.py"), stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await gone(pid)


async def test_cancelling_a_request_while_the_child_starts_leaves_none(network: Network) -> None:
    said: asyncio.Queue[int] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said.put_nowait(int(await reader.readline()))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        server = LocalServer(command("hangs", str(port)))
        task = asyncio.create_task(read(model(server, network).stream(asking())))
        pid = await said.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(pid)
    assert server.pid is None


async def test_a_child_that_dies_while_it_loads_is_a_failure_with_its_last_words(
    network: Network, tmp_path: Path
) -> None:
    log = tmp_path / "logs" / "local.log"
    server = LocalServer(command("dies"), log=log)
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert failure.code == "LOCAL_MODEL"
    assert "its process ended while it loaded" in failure.message
    assert '"no such file: weights"' in failure.message
    assert str(log) in failure.message
    assert log.stat().st_mode & 0o777 == 0o600


async def test_a_child_that_is_never_ready_is_a_failure(network: Network) -> None:
    server = LocalServer(command("hangs"), ready=0.05)
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert failure == Failure('the local model "smollm2" did not start: it was not ready within 0.05 s', "LOCAL_MODEL")
    assert server.pid is None


async def test_a_program_that_cannot_be_run_is_a_failure(network: Network) -> None:
    server = LocalServer(("/nowhere/python",))
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert failure.code == "LOCAL_MODEL"
    assert '"/nowhere/python" cannot be run' in failure.message


async def test_missing_weights_are_a_failure_that_says_how_to_get_them(network: Network, tmp_path: Path) -> None:
    opener = LocalModels(OpenAiChat(), network, tmp_path)
    failure = failure_of(await read(opener.open(LOCAL).stream(asking())))
    assert failure == missing(tmp_path)
    assert failure.message == opener.problem(LOCAL)
    assert failure.code == "LOCAL_MODEL"
    assert SMOLLM2.name in failure.message
    assert "python -m agentls.models.weights fetch" in failure.message
    await opener.close()


def test_the_child_does_not_look_for_modules_in_the_working_folder(tmp_path: Path) -> None:
    """The working folder may be a workspace, which is not trusted."""
    assert serve_command(tmp_path / "w.gguf", LOCAL)[1] == "-P"
