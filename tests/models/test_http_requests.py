"""What a model over HTTP sends: one post with its key, and none where it cannot be right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentls.core.blocks import Attachment, ImageBlock
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModels, Network
from tests.model_server import ModelServer
from tests.models.asked import GOOD, KEY, model
from tests.models.requests import ROW, asking, failure_of, read, texts, user


async def test_a_request_is_one_post_with_all_its_headers(server: ModelServer, network: Network) -> None:
    server.script(GOOD)
    row = replace(ROW, key_variable="THE_KEY")
    chunks = await read(model(server, network, {"THE_KEY": f" {KEY}\n"}, row).stream(asking("hi")))
    assert texts(chunks) == ["all good"]
    exchange = await server.exchange(0)
    assert (exchange.method, exchange.path) == ("POST", "/v1/chat/completions")
    assert exchange.json()["messages"] == [{"role": "user", "content": "hi"}]
    wanted = {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "agentls/test",
    }
    assert {name: exchange.headers[name] for name in wanted} == wanted


async def test_without_a_key_variable_no_key_is_sent(server: ModelServer, network: Network) -> None:
    server.script(GOOD)
    await read(model(server, network, {"THE_KEY": KEY}).stream(asking()))
    assert "authorization" not in (await server.exchange(0)).headers


async def test_the_key_is_looked_up_at_each_request(server: ModelServer, network: Network) -> None:
    server.script(GOOD, GOOD)
    environ = {"THE_KEY": "one"}
    asked = model(server, network, environ, replace(ROW, key_variable="THE_KEY"))
    await read(asked.stream(asking()))
    environ["THE_KEY"] = "two"
    await read(asked.stream(asking()))
    assert [exchange.headers["authorization"] for exchange in server.exchanges] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({}, "MISSING_CREDENTIAL"),
        ({"THE_KEY": " \n"}, "MISSING_CREDENTIAL"),
        ({"THE_KEY": f"{KEY} {KEY}"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\u2028x"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\r\nx-evil: 1"}, "INVALID_CREDENTIAL"),
        ({"THE_KEY": f"{KEY}\x7fx"}, "INVALID_CREDENTIAL"),
    ],
)
async def test_a_key_that_cannot_be_sent_is_a_failure_that_names_its_variable(
    server: ModelServer, network: Network, environ: dict[str, str], code: str
) -> None:
    row = replace(ROW, key_variable="THE_KEY")
    failure = failure_of(await read(model(server, network, environ, row).stream(asking())))
    assert failure.code == code
    assert "THE_KEY" in failure.message
    assert KEY not in failure.message
    assert server.exchanges == []
    assert HttpModels(OpenAiChat(), network, environ).problem(row) == (
        f"{failure.message}; put the key for {row.name} into it and start agentls again"
    )


async def test_an_image_is_refused_before_any_request(server: ModelServer, network: Network) -> None:
    image = ImageBlock(Attachment("a", "image/png"))
    failure = failure_of(await read(model(server, network).stream(asking(user(image)))))
    assert failure.code == "UNSUPPORTED_CONTENT"
    assert server.connections == 0
