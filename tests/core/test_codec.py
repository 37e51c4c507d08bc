"""Values to JSON and back: nothing unknown is lost, nothing wrong is read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.blocks import (
    Attachment,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UnknownBlock,
)
from agentls.core.chunks import Usage
from agentls.core.codec import camel, decode, decode_event_data, encode, encode_event
from agentls.core.errors import DecodeError, UnsupportedFormat
from agentls.core.events import (
    EVENTS,
    AssistantMessage,
    Enqueue,
    Event,
    EventData,
    Fate,
    Hold,
    InboxItem,
    ToolResult,
    TurnEnd,
    UnknownEvent,
    UserMessage,
)
from agentls.core.ids import CallId, MessageId, SessionId
from agentls.core.json import JsonObject
from agentls.core.messages import Message
from agentls.core.reasons import Failure, Stop, TurnEndReason, TurnFailed, UnknownTurnEnd
from agentls.core.sources import (
    Catalog,
    CatalogEntry,
    ContextForm,
    HookSource,
    Instructions,
    MessageSource,
    ModelSource,
    Notice,
    OpaqueForm,
    PluginSource,
    Recall,
    Recalled,
    Relay,
    Section,
    Snapshot,
    UnknownSource,
    UserSource,
)

counts = st.integers(1, 2**31)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
unknown_fields = st.dictionaries(words.filter(lambda key: key not in ("type", "kind", "form")), json_values, max_size=3)
forms: st.SearchStrategy[ContextForm] = st.one_of(
    st.builds(Notice, words),
    st.builds(Snapshot, st.lists(st.builds(Section, words, st.text(max_size=4)), min_size=1, max_size=2).map(tuple)),
    st.builds(Relay, words.map(SessionId)),
    st.builds(Catalog, st.lists(st.builds(CatalogEntry, words, words), max_size=2).map(tuple)),
    st.builds(Instructions, st.lists(words, min_size=1, max_size=2).map(tuple)),
    st.builds(
        Recall,
        st.lists(
            st.builds(Recalled, words.map(SessionId), words, st.integers(0, 9), st.integers(0, 9), st.booleans()),
            min_size=1,
            max_size=2,
        ).map(tuple),
    ),
    st.builds(OpaqueForm, words.map(lambda w: "x-" + w), unknown_fields),
)
sources: st.SearchStrategy[MessageSource] = st.one_of(
    st.just(UserSource()),
    st.builds(PluginSource, words, forms),
    st.builds(HookSource, words),
    st.builds(ModelSource, words, words, json_values),
    st.builds(UnknownSource, words.map(lambda w: "x-" + w), unknown_fields),
)
leaf_blocks: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextBlock, st.text(st.characters(exclude_categories=["Cs"]), max_size=6)),
    st.builds(ReasoningBlock, words),
    st.builds(ToolCallBlock, words.map(CallId), words, words, st.one_of(st.none(), words)),
    st.builds(ImageBlock, st.builds(Attachment, words, words, st.one_of(st.none(), st.integers(1, 9)))),
    st.builds(UnknownBlock, words.map(lambda w: "x-" + w), unknown_fields),
)
blocks = st.one_of(
    leaf_blocks, st.builds(ToolResultBlock, words.map(CallId), st.lists(leaf_blocks, max_size=2).map(tuple))
)
messages = st.builds(
    Message,
    words.map(MessageId),
    st.sampled_from(["user", "assistant"]),
    st.lists(blocks, max_size=3).map(tuple),
    sources,
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
)
payloads: st.SearchStrategy[EventData] = st.one_of(
    st.builds(UserMessage, messages),
    st.builds(AssistantMessage, counts, counts, counts, messages, st.just(Stop()), st.just(Usage(1))),
    st.builds(TurnEnd, counts, st.just(TurnFailed(Failure("m", "C", 500, 10, "r"))), st.none()),
    st.builds(Hold, st.booleans(), st.just("person"), st.one_of(st.none(), counts)),
    st.builds(ToolResult, counts, counts, words.map(CallId), messages, st.none(), json_values),
    st.builds(
        Enqueue,
        st.builds(
            InboxItem,
            words.map(MessageId),
            st.sampled_from(["queued", "steering"]),
            st.booleans(),
            st.lists(leaf_blocks, max_size=2).map(tuple),
            sources,
            words,
            st.just(Fate("queued", None, 0)),
        ),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
)


@given(payloads)
def test_every_event_comes_back_as_it_was(payload: EventData) -> None:
    line = orjson.loads(orjson.dumps(encode_event(Event(0, 1, payload))))
    assert decode_event_data(line["type"], line["data"], ignorable=False) == payload


@given(words.map(lambda w: "x-" + w), unknown_fields)
def test_an_unknown_block_is_kept_losslessly(kind: str, fields: dict[str, Any]) -> None:
    raw = {"type": kind, **fields}
    assert encode(decode(ContentBlock, raw)) == raw


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "plugin", "plugin": "git", "context": {"form": "notice"}},
        {"kind": "plugin", "plugin": "git", "context": {"form": "snapshot", "sections": [{"name": "", "text": "t"}]}},
        {"kind": "plugin", "plugin": "git", "context": {"form": "snapshot", "sections": [{"name": "a"}]}},
        {"kind": "plugin", "plugin": "git", "context": {"form": "relay", "sender": ""}},
        {
            "kind": "plugin",
            "plugin": "git",
            "context": {"form": "recall", "references": [{"sessionId": "s", "label": "l"}]},
        },
        {"kind": "plugin", "plugin": "git", "context": {"form": "weather", "sky": "grey"}},
    ],
)
def test_a_form_without_its_facts_falls_to_opaque_whole(source: dict[str, Any]) -> None:
    """Statement 70's rule: all or nothing, and the record itself is not lost."""
    read = decode(MessageSource, source)
    assert isinstance(read, PluginSource)
    assert isinstance(read.context, OpaqueForm)
    assert encode(read) == source


@pytest.mark.parametrize(
    "make",
    [
        lambda: Notice(""),
        lambda: Notice("x" * 121),
        lambda: Snapshot(()),
        lambda: Snapshot((Section("", "text"),)),
        lambda: Relay(SessionId("")),
        lambda: Recall(()),
        lambda: Instructions(()),
    ],
)
def test_a_form_cannot_be_made_without_its_facts(make: Any) -> None:
    with pytest.raises(ValueError, match=r"needs|at most"):
        make()


def test_an_unknown_event_is_refused_unless_its_writer_marked_it() -> None:
    """Statement 42."""
    with pytest.raises(UnsupportedFormat, match=r'"weather/change".*upgrade'):
        decode_event_data("weather/change", {"sky": "blue"}, ignorable=False)
    kept = decode_event_data("weather/change", {"sky": "blue"}, ignorable=True)
    assert kept == UnknownEvent("weather/change", {"sky": "blue"})
    line = encode_event(Event(4, 0, kept, ignorable=True))
    assert line == {"seq": 4, "time": 0, "type": "weather/change", "data": {"sky": "blue"}, "ignorable": True}


def test_an_unknown_kind_inside_a_known_event_is_kept() -> None:
    raw: JsonObject = {"turn": 1, "reason": {"kind": "eclipse", "minutes": 7}}
    read = decode_event_data("turn/end", raw, ignorable=False)
    assert read == TurnEnd(1, UnknownTurnEnd("eclipse", {"minutes": 7}))
    assert {"type": "turn/end", **raw} == encode(read)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({}, "message"),
        ({"message": {"id": 3, "role": "user", "content": [], "source": {"kind": "user"}}}, "message.id"),
        ({"message": {"id": "m", "role": "king", "content": [], "source": {"kind": "user"}}}, "message.role"),
        ({"message": {"id": "m", "role": "user", "content": {}, "source": {"kind": "user"}}}, "message.content"),
        ({"message": {"id": "m", "role": "user", "content": [1], "source": {"kind": "user"}}}, "message.content[0]"),
        ({"message": {"id": "m", "role": "user", "content": [{}], "source": {"kind": "user"}}}, "message.content[0]"),
    ],
)
def test_a_record_that_does_not_fit_names_its_path(data: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_event_data("user/message", data, ignorable=False)
    assert caught.value.path == path


def test_true_is_no_number() -> None:
    with pytest.raises(DecodeError, match="turn: expected a whole number, not true"):
        decode_event_data("step/start", {"turn": True, "step": 1}, ignorable=False)


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(ValueError, match='"turn/start" is registered already'):
        EVENTS.register("turn/start")(UserMessage)


def test_open_reasons_and_camel_case() -> None:
    assert camel("tool_call_id") == "toolCallId"
    assert encode(decode(TurnEndReason, {"kind": "error", "failure": {"message": "m", "code": "C"}})) == {
        "kind": "error",
        "failure": {"message": "m", "code": "C"},
    }
