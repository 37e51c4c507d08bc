"""From payloads to calls, also where index, id or name deviate from the rules."""

from __future__ import annotations

from typing import Any

import pytest

from agentls.core.blocks import ToolCallBlock
from agentls.core.chunks import ToolCallDelta
from agentls.core.ids import CallId
from tests.models.payloads import calls, decoded, delta, tool
from tests.models.requests import assemble


def test_fragments_of_several_calls_go_by_index() -> None:
    assert calls(
        tool(0, "a", "read", '{"p'), tool(1, "b", "list"), tool(0, arguments='":1}'), tool(1, arguments="{}")
    ) == [
        ("a", "read", '{"p":1}'),
        ("b", "list", "{}"),
    ]


def test_without_an_index_a_new_id_starts_a_call_and_a_bare_fragment_joins_the_last() -> None:
    """S09, S09b."""
    found = calls(
        tool(None, "a", "read", '{"p'), tool(arguments='":1}'), tool(None, "b", "read", "{"), tool(arguments="}")
    )
    assert found == [("a", "read", '{"p":1}'), ("b", "read", "{}")]


def test_without_an_index_an_id_that_is_known_goes_on_with_its_call() -> None:
    assert calls(tool(None, "a", "read", '{"p'), tool(None, "b", "list"), tool(None, "a", arguments='":1}')) == [
        ("a", "read", '{"p":1}'),
        ("b", "list", ""),
    ]


def test_without_index_and_id_a_named_fragment_after_a_whole_call_starts_one() -> None:
    assert calls(tool(None, None, "read", '{"p":1}'), tool(None, None, "read", '{"p":2}')) == [
        ("call-0", "read", '{"p":1}'),
        ("call-1", "read", '{"p":2}'),
    ]


def test_a_whole_call_under_an_id_that_is_taken_is_a_call_of_its_own() -> None:
    """S19 without an index."""
    assert calls(tool(None, "k", "read", '{"p":1}'), tool(None, "k", "read", '{"p":2}')) == [
        ("k", "read", '{"p":1}'),
        ("k", "read", '{"p":2}'),
    ]


def test_calls_that_share_one_index_are_told_apart_by_id() -> None:
    assert calls(tool(0, "a", "read", "{}"), tool(0, "b", "list", "")) == [("a", "read", "{}"), ("b", "list", "")]


def test_an_id_and_a_name_in_every_fragment_are_one_call() -> None:
    assert calls(tool(0, "a", "read"), tool(0, "a", "read", '{"p'), tool(0, "a", "read", '":1}')) == [
        ("a", "read", '{"p":1}')
    ]


def test_an_id_that_changes_in_every_fragment_stays_the_first() -> None:
    assert calls(tool(0, "a", "read", '{"p'), tool(0, "b", arguments='":1}')) == [("a", "read", '{"p":1}')]


def test_a_call_without_an_id_gets_one_that_stays_the_same() -> None:
    """S10."""
    chunks = decoded(delta(tool_calls=[tool(0, None, "read", "{")]), delta("stop", tool_calls=[tool(0, arguments="}")]))
    assert {chunk.id for chunk in chunks if isinstance(chunk, ToolCallDelta)} == {"call-0"}
    assert assemble(chunks).blocks() == (ToolCallBlock(CallId("call-0"), "read", "{}", None),)


def test_a_call_delta_repeats_the_id_and_name_that_are_known() -> None:
    chunks = decoded(delta(tool_calls=[tool(0, "a", "read")]), delta("stop", tool_calls=[tool(0, arguments="{}")]))
    assert [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [
        ToolCallDelta(0, "a", "read", ""),
        ToolCallDelta(0, "a", "read", "{}"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"), [({"b": 1, "a": "ü"}, '{"a":"ü","b":1}'), (None, ""), ([1], "[1]"), (True, "true")]
)
def test_arguments_that_are_json_in_place_of_text_become_text(arguments: Any, text: str) -> None:
    """S11, S11b."""
    assert calls(tool(0, "a", "read", arguments)) == [("a", "read", text)]


def test_numbers_for_ids_are_taken() -> None:
    assert calls({"index": 0, "id": 7, "function": {"name": "read", "arguments": "{}"}}) == [("7", "read", "{}")]
