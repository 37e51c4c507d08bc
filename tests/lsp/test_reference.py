"""The reference pages are those of the code, and what the server writes has the shapes that they promise."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import cast

import jsonschema
import orjson
import pytest

from agentls.agent.agent import Answered, Cancelled, Changed, Page, Part, Sent
from agentls.agent.host import Listed
from agentls.agent.state import EditorFacts, LastTurn, OpenRequest, TurnFacts, WaitingMessage
from agentls.agent.view import AppendOp, CatchUp, DropOp, PutOp
from agentls.core.blocks import TextBlock
from agentls.core.chunks import Usage
from agentls.core.events import ModelRef, SessionHeader
from agentls.core.ids import AgentId, BlockId, MessageId, RequestId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.rows import Block, CallFacts
from agentls.lsp import encode, errors, methods, reference
from agentls.lsp.methods import METHODS, Method
from agentls.lsp.wire import Wire
from agentls.models.model import ModelFacts
from agentls.store.store import SessionSummary
from tests.lsp.clients import Served
from tests.lsp.doubles import FakeAgent, block, state_of

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_that_of_the_code() -> None:
    assert reference.stale(ROOT) == [], "stale; run python -m agentls.lsp.reference"


def test_a_stale_reference_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check", "--root", str(tmp_path)]) == 1
    assert "docs/protocol/schema.json is stale" in capsys.readouterr().err
    assert reference.main(["--root", str(tmp_path)]) == 0
    assert reference.main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "docs/protocol/README.md").write_text("other")
    assert reference.stale(tmp_path) == [Path("docs/protocol/README.md")]


@cache
def schema() -> JsonObject:
    return cast(JsonObject, orjson.loads(reference.pages()[Path("docs/protocol/schema.json")]))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


async def test_every_method_of_the_table_has_a_handler(served: Served) -> None:
    await served.started()
    protocol = served.servers[0].protocol
    assert set(methods.REQUESTS) <= set(protocol.requests)
    assert set(protocol.requests) - set(methods.REQUESTS) == {"initialize", "shutdown"}
    heard = {method.name for method in methods.STANDARD} | (set(methods.SERVED) - set(methods.REQUESTS))
    assert set(protocol.notifications) - heard == {"initialized", "exit"}
    assert heard <= set(protocol.notifications)


def test_every_code_that_a_method_names_has_a_meaning() -> None:
    for method in METHODS:
        assert set(method.errors) <= set(errors.MEANINGS)


def check(method: Method[Wire], value: JsonValue, *, part: str = "result") -> None:
    """Hold a value against its definition, and against it alone: no field that the definition does not know."""
    whole = schema()
    definitions = cast(JsonObject, whole["$defs"])
    closed = {name: {"additionalProperties": False, **cast(JsonObject, node)} for name, node in definitions.items()}
    model = method.result if part == "result" else method.params
    assert model is not None
    plain = orjson.loads(orjson.dumps(value))
    jsonschema.validate(plain, {"$ref": f"#/$defs/{model.__name__}", "$defs": closed}, jsonschema.Draft202012Validator)
    model.model_validate(plain)


FULL = Block(
    id=BlockId("t1.1.1"),
    order=(4, 0),
    kind="tool",
    title="grep",
    body="x" * 200_000,
    state="failed",
    collapsed=True,
    seq=4,
    turn=1,
    step=1,
    role="assistant",
    summary="not run",
    more=5,
    form="notice",
    producer="git",
    call=CallFacts("grep", "{}", "not-run"),
    finish="stop",
    reason="completed",
    request=RequestId("q1.1.1"),
    usage=Usage(1, 2, 3, 4, 5),
    volatile=True,
)

MODEL = ModelFacts(ModelRef("p", "m"), usable=False, context_window=5)


def test_frames_and_states_have_their_shapes() -> None:
    agent = FakeAgent()
    agent.put(block("a", 1, "text", summary="s", usage=Usage(1)))
    agent.put(block("a", 1, "text"))
    agent.put(FULL)
    cleared = agent.view.drawn(BlockId("a"))
    full = agent.view.drawn(FULL.id)
    assert cleared is not None
    assert full is not None
    ops = encode.ops_json(
        (
            PutOp(cleared),
            PutOp(full),
            PutOp(full, frozenset({"state"})),
            AppendOp(BlockId("a"), 4, "é" * 50_000),
            DropOp(BlockId("a")),
        )
    )
    check(methods.BLOCKS, {"agentId": "one", "epoch": "e", "rev": 9, "ops": ops}, part="params")
    check(methods.ATTACH, encode.attach_json(agent.view, agent.view.catch_up()))
    check(methods.ATTACH, encode.attach_json(agent.view, CatchUp((), reset=True, rev=1, before=(3, 1))))
    check(methods.PAGE, encode.page_json(Page((full,), (3, 0))))
    waiting = WaitingMessage(MessageId("m"), "queued", True, False, "text")
    check(methods.STATE, encode.state_json("e", 1, state_of("one")), part="params")
    busy = replace(
        state_of("one"),
        title="t",
        status="running",
        turn=TurnFacts(2, 1, "message", 5),
        last_turn=LastTurn(1, "aborted"),
        inbox=(waiting,),
        hold="cancel",
        requests=(OpenRequest(RequestId("q1.1.1"), "approval", BlockId("q1.1.1"), "sha256:0", AgentId("one")),),
        editors=(EditorFacts("nvim 0.11", 1),),
    )
    check(methods.CREATE, encode.state_json("e", 1, busy))
    check(methods.CANCEL, encode.outcome_json(Cancelled("stale", (waiting,))))
    check(methods.REMOVE, encode.outcome_json(Changed("gone", ())))
    check(methods.EDIT, encode.outcome_json(Changed("gone", (), (TextBlock("late"),))))
    check(methods.ANSWER, encode.answered_json(Answered("already-resolved", by="nvim")))
    check(methods.BLOCK, encode.part_json(BlockId("a"), Part("x", 0, 1, 5)))
    check(methods.MODELS, encode.models_json((MODEL, replace(MODEL, key_source="variable KEY", problem="no key"))))
    header = SessionHeader("one", "file:///w", "/w", 1, parent="zero")
    stored = SessionSummary(header, "t", 3, 2, "said", ModelRef("p", "m"), "torn")
    rows = [encode.listed_json(Listed(stored, None)), encode.listed_json(Listed(stored, agent))]
    check(methods.LIST, {"agents": rows, "nextCursor": "2.1"})
    sent = Sent(MessageId("m"), "refused", 1, 0, "id-conflict", (TextBlock("x"),), repeated=True, now="taken")
    check(methods.SEND, encode.sent_json(sent))


def test_notices_have_their_shapes() -> None:
    def params(message: bytes) -> JsonValue:
        return cast(JsonObject, orjson.loads(message.partition(b"\r\n\r\n")[2]))["params"]

    one = AgentId("one")
    check(methods.CONTEXT, params(encode.context_message(one, 3, FULL, BlockId("c:0"))), part="params")
    check(methods.ATTENTION, params(encode.attention_message(one, "needs-you", state_of("one"))), part="params")
    check(methods.LIST_CHANGED, params(encode.list_changed_message("file:///w")), part="params")


def test_a_closed_shape_refuses_a_field_that_it_does_not_know() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(methods.REMOVE, {"outcome": "gone", "inbox": [], "extra": 1})
