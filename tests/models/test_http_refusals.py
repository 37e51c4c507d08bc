"""A server that answers with an error: a failure with its message, and without the key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentls.core.chunks import Finish
from agentls.core.reasons import Failed, Failure
from agentls.models.http import Network
from tests.conformance.cases import cases
from tests.model_server import CUT, Answer, ModelServer, error_body
from tests.models.asked import GOOD, KEY, model
from tests.models.requests import ROW, asking, failure_of, read, texts


@pytest.mark.parametrize(
    ("status", "code"), [(401, "AUTH"), (429, "RATE_LIMIT"), (500, "SERVER"), (503, "SERVER"), (404, "HTTP_404")]
)
async def test_a_refusal_is_a_failure_and_the_next_request_works(
    server: ModelServer, network: Network, status: int, code: str
) -> None:
    headers = {"retry-after": "7", "x-request-id": "req-1"}
    server.script(error_body(status, "no luck", headers=headers), GOOD)
    asked = model(server, network)
    message = f'"127.0.0.1:{server.port}" answered {status}: no luck'
    assert await read(asked.stream(asking())) == [Finish(Failed(Failure(message, code, status, 7000, "req-1")))]
    assert texts(await read(asked.stream(asking()))) == ["all good"]


async def test_a_redirect_is_not_followed(server: ModelServer, network: Network) -> None:
    """The key would go with it."""
    server.script(Answer((), 307, {"location": f"{server.url}/elsewhere"}))
    assert failure_of(await read(model(server, network).stream(asking()))).code == "HTTP_307"
    assert len(server.exchanges) == 1


async def test_a_refusal_that_breaks_off_keeps_its_status(server: ModelServer, network: Network) -> None:
    server.script(Answer((b'{"error":', CUT), 429))
    failure = failure_of(await read(model(server, network).stream(asking())))
    assert (failure.code, failure.status) == ("RATE_LIMIT", 429)


@pytest.mark.parametrize("status", [401, 200])
async def test_a_key_that_the_provider_quotes_is_struck_out(server: ModelServer, network: Network, status: int) -> None:
    server.script(error_body(status, f"bad key {KEY}", type="auth"))
    row = replace(ROW, key_variable="THE_KEY")
    failure = failure_of(await read(model(server, network, {"THE_KEY": KEY}, row).stream(asking())))
    assert failure.code == "AUTH"
    assert failure.message.endswith("bad key …")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_an_error_body_with_status_200_is_a_failure_with_its_message_in_whatever_pieces(
    server: ModelServer, network: Network, size: int
) -> None:
    """S13b."""
    (case,) = cases("http-body")
    pieces = tuple(case.data[at : at + size] for at in range(0, len(case.data), size))
    server.script(Answer(pieces, headers={"content-type": "application/json"}))
    assert failure_of(await read(model(server, network).stream(asking()))) == Failure("bad key", "AUTH")
