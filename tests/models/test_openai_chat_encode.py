"""What a request looks like on the wire: accepted by every server, and the same bytes for the same request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from agentls.core.blocks import (
    Attachment,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from agentls.core.events import ToolSchema
from agentls.core.ids import CallId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.messages import Message, tool_result
from agentls.core.reasons import Failure
from agentls.core.sources import HookSource, Notice, PluginSource
from agentls.models.catalog import ModelRow
from agentls.models.dialects import openai_chat
from agentls.models.dialects.openai_chat import NO_OUTPUT, OpenAiChat
from agentls.models.model import Memo, ModelRequest
from tests.models.requests import ROW, asking, assistant, message, user

READ = ToolSchema("read", "Read a file", {"type": "object", "properties": {"path": {"type": "string"}}})


def encoded(request: ModelRequest, row: ModelRow = ROW) -> dict[str, Any]:
    body = OpenAiChat().encode(request, row)
    assert isinstance(body, bytes)
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def messages(*given: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = encoded(asking(*given))["messages"]
    return found


def call(arguments: str, name: str = "read", id: str = "t1.1.1") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), name, arguments)


def test_a_plain_request_has_what_it_needs_and_nothing_else() -> None:
    assert encoded(asking("hi", system="be brief")) == {
        "model": "m1",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_same_request_gives_the_same_bytes_whatever_the_order_of_its_options() -> None:
    """Providers cache prefixes by their bytes."""
    request = replace(asking("hi"), tools=(READ,))
    orders: list[JsonObject] = [{"stop": ["x"], "seed": 1}, {"seed": 1, "stop": ["x"]}]
    one, two = (replace(request, options=options) for options in orders)
    assert OpenAiChat().encode(one, ROW) == OpenAiChat().encode(two, ROW)


def test_a_system_message_of_history_stays_in_its_place() -> None:
    assert [entry["role"] for entry in messages(user("a"), message("system", HookSource("h"), "b"))] == [
        "user",
        "system",
    ]


def test_texts_of_a_user_message_are_joined_with_nothing_between() -> None:
    assert messages(user("a", "b")) == [{"role": "user", "content": "ab"}]


def test_a_user_message_without_blocks_is_an_empty_text() -> None:
    assert messages(user()) == [{"role": "user", "content": ""}]


def test_injected_messages_next_to_each_other_stay_messages_of_their_own() -> None:
    injected = message("user", PluginSource("p", Notice("n")), "ctx")
    assert [entry["content"] for entry in messages(injected, injected, user("go"))] == ["ctx", "ctx", "go"]


def test_text_and_two_results_are_one_user_and_two_tool_messages() -> None:
    """Statement 24: and an empty result has a placeholder that is not empty."""
    mixed = user(
        ToolResultBlock(CallId("t1.1.1"), (TextBlock("a"), TextBlock("b"))),
        "text",
        ToolResultBlock(CallId("t1.1.2"), ()),
    )
    assert messages(mixed) == [
        {"role": "user", "content": "text"},
        {"role": "tool", "tool_call_id": "t1.1.1", "content": "ab"},
        {"role": "tool", "tool_call_id": "t1.1.2", "content": NO_OUTPUT},
    ]


def test_a_message_of_results_alone_makes_no_user_message() -> None:
    assert messages(tool_result(CallId("t1.1.1"), (TextBlock("x"),))) == [
        {"role": "tool", "tool_call_id": "t1.1.1", "content": "x"}
    ]


@pytest.mark.parametrize("content", [(call("{}"),), (ReasoningBlock("r"),), ()])
def test_an_answer_without_text_has_empty_content_and_never_null(content: tuple[Any, ...]) -> None:
    """Statement 23, first half: null bricks a session. Reasoning is not sent back by this dialect."""
    (answer,) = messages(assistant(*content))
    assert answer["content"] == ""
    assert "reasoning_content" not in answer


def test_calls_keep_their_order_ids_and_raw_arguments() -> None:
    raw = '{ "path" : "ü",\n "a":1.0}'
    (answer,) = messages(assistant("look", call(raw), call("{}", id="t1.1.2")))
    assert answer["tool_calls"] == [
        {"id": "t1.1.1", "type": "function", "function": {"name": "read", "arguments": raw}},
        {"id": "t1.1.2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
    ]


@pytest.mark.parametrize("arguments", ["", "  ", '{"a":', '"text"', "[1]", "null", '{"a": NaN}', '{"a": "\\ud83d"}'])
def test_arguments_that_are_no_json_object_go_back_as_an_empty_one(arguments: str) -> None:
    """S18: a bad text would have every later request refused."""
    (answer,) = messages(assistant(call(arguments)))
    assert answer["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("name", "sent"), [("read file!", "read_file_"), ("", "unknown"), ("é" * 3, "___"), ("x" * 80, "x" * 64)]
)
def test_a_name_that_the_model_made_up_is_made_sendable(name: str, sent: str) -> None:
    (answer,) = messages(assistant(call("{}", name)))
    assert answer["tool_calls"][0]["function"]["name"] == sent


def test_the_name_of_a_tool_that_is_offered_is_sent_as_it_is_offered() -> None:
    dotted = replace(READ, name="fs.read")
    request = replace(asking(assistant(call("{}", "fs.read"))), tools=(dotted,))
    body = encoded(request)
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == body["tools"][0]["function"]["name"] == "fs.read"


def test_unknown_blocks_are_skipped() -> None:
    assert messages(user("a", UnknownBlock("video", {"url": "x"}), "b")) == [{"role": "user", "content": "ab"}]


@pytest.mark.parametrize("nested", [False, True])
def test_an_image_is_refused_and_not_dropped(nested: bool) -> None:
    image = ImageBlock(Attachment("a", "image/png"))
    block = ToolResultBlock(CallId("t1.1.1"), (image,)) if nested else image
    failure = OpenAiChat().encode(asking(user("see", block)), ROW)
    assert failure == Failure('"test/m1" takes no images', "UNSUPPORTED_CONTENT")


def test_tools_have_the_function_shape() -> None:
    body = encoded(replace(asking("hi"), tools=(READ,)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "read", "description": "Read a file", "parameters": READ.parameters}}
    ]


def test_options_of_the_request_win_over_those_of_the_row_and_none_is_left_out() -> None:
    row = replace(ROW, max_tokens=100, options={"temperature": 0.2, "top_p": 1})
    options: Mapping[str, JsonValue] = {"temperature": 0, "top_p": None, "stop": ["x"]}
    body = encoded(replace(asking("hi"), options=options), row)
    assert body["temperature"] == 0
    assert body["max_tokens"] == 100
    assert body["stop"] == ["x"]
    assert "top_p" not in body


def test_no_option_changes_what_is_asked_for() -> None:
    options: JsonObject = {"model": "x", "messages": [], "stream": False, "stream_options": {}}
    assert encoded(replace(asking("hi"), options=options)) == encoded(asking("hi"))


def test_a_lone_surrogate_is_sent_as_a_visible_replacement() -> None:
    body = encoded(replace(asking("a\ud83db", "c\ud83d\ude42d", system="\ude42"), options={"stop": ["\ud83d"]}))
    assert [entry["content"] for entry in body["messages"]] == ["\ufffd", "a\ufffdb", "c🙂d"]
    assert body["stop"] == ["\ufffd"]


def test_values_that_the_fast_encoder_does_not_know_are_sent() -> None:
    options: JsonObject = MappingProxyType({"seed": 2**70, "extra": MappingProxyType({"a": (1, 2)})})
    body = encoded(replace(asking("hi"), options=options))
    assert body["seed"] == 2**70
    assert body["extra"] == {"a": [1, 2]}


def test_the_key_is_in_the_one_header_that_needs_it() -> None:
    assert OpenAiChat().headers("k")["authorization"] == "Bearer k"
    assert "authorization" not in OpenAiChat().headers(None)


def test_a_memo_changes_what_is_made_anew_and_not_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that goes on only new messages are encoded; other tools have all of them encoded again."""
    said = (
        user("one"),
        assistant(call('{"path": "a"}', "odd name")),
        tool_result(CallId("t1.1.1"), (TextBlock("two"),)),
        user("é"),
    )
    memo = Memo()
    made: list[Message] = []
    plain = openai_chat._encoded

    def noted(message: Message, tools: frozenset[str]) -> bytes | None:
        made.append(message)
        return plain(message, tools)

    monkeypatch.setattr(openai_chat, "_encoded", noted)
    for length in range(1, len(said) + 1):
        request = replace(asking(*said[:length], system="s"), memo=memo)
        assert OpenAiChat().encode(request, ROW) == OpenAiChat().encode(replace(request, memo=Memo()), ROW)
    assert len(made) == 4 + (1 + 2 + 3 + 4)
    request = replace(asking(*said), memo=memo, tools=(replace(READ, name="odd name"),))
    assert encoded(request)["messages"][1]["tool_calls"][0]["function"]["name"] == "odd name"
