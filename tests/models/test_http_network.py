"""A network that does not get there: no route, no server, a proxy; and faults of our own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace

import pytest

from agentls.core.reasons import Failure
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModel, Network
from tests.model_server import CUT, Answer, ModelServer
from tests.models.asked import GOOD, model
from tests.models.requests import ROW, asking, failure_of, read, texts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_names_the_endpoint_and_the_cause(network: Network, host: str) -> None:
    port = free_port()
    row = replace(ROW, base_url=f"http://{host}:{port}/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure(f'"{host}:{port}" cannot be reached: connection refused', "TRANSPORT")


async def test_a_host_that_does_not_exist_is_named(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure('"nowhere.invalid:80" cannot be reached: name or service not known', "TRANSPORT")


async def test_a_server_that_hangs_up_before_it_answers_is_a_failure(server: ModelServer, network: Network) -> None:
    server.script(Answer((), before=CUT), GOOD)
    asked = model(server, network)
    failure = failure_of(await read(asked.stream(asking())))
    assert failure.code == "TRANSPORT"
    assert "closed the connection" in failure.message
    assert texts(await read(asked.stream(asking()))) == ["all good"]


async def test_something_that_is_no_http_server_is_a_failure(network: Network) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        row = replace(ROW, base_url=f"http://127.0.0.1:{port}/v1")
        failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure.code == "TRANSPORT"


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment whose proxy answers nothing."""
    address = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, address)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("proxies")
async def test_this_machine_is_asked_without_the_proxy_of_the_environment(
    server: ModelServer, network: Network
) -> None:
    server.script(GOOD)
    assert texts(await read(model(server, network).stream(asking()))) == ["all good"]


@pytest.mark.usefixtures("proxies")
async def test_other_machines_are_asked_through_the_proxy_of_the_environment(network: Network) -> None:
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure == Failure('"nowhere.invalid:80" cannot be reached: connection refused', "TRANSPORT")


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "odd://127.0.0.1:9"])
async def test_a_proxy_that_cannot_be_used_is_named_and_this_machine_is_asked_all_the_same(
    server: ModelServer, network: Network, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("all_proxy", proxy)
    row = replace(ROW, base_url="http://nowhere.invalid/v1")
    failure = failure_of(await read(HttpModel(row, OpenAiChat(), network, {}).stream(asking())))
    assert failure.code == "TRANSPORT"
    assert failure.message.startswith("the proxy that the environment names cannot be used: ")
    server.script(GOOD)
    assert texts(await read(model(server, network).stream(asking()))) == ["all good"]


async def test_a_fault_of_our_own_is_a_finish_too(server: ModelServer, network: Network) -> None:
    class Broken(OpenAiChat):
        def headers(self, key: str | None) -> Mapping[str, str]:
            raise LookupError("a bug")

    broken = HttpModel(replace(ROW, base_url=server.url), Broken(), network, {})
    assert failure_of(await read(broken.stream(asking()))) == Failure("LookupError: a bug", "INTERNAL")
