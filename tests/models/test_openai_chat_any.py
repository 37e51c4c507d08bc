"""Payloads of any kind keep the chunk grammar and never raise."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.models.payloads import decoded, tool
from tests.models.requests import assemble

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "index",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "error",
                    "finish_reason",
                    "usage",
                    "prompt_tokens",
                    "message",
                    "reasoning",
                    "code",
                    "type",
                    "object",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
CHUNK = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "index": st.sampled_from([0, 0, None, 1]),
                    "delta": st.fixed_dictionaries(
                        {},
                        optional={
                            "content": st.sampled_from(["a", "", " ", "<think>", "</think>", "\ud83d", "\ude42"])
                            | JSON,
                            "reasoning_content": st.sampled_from(["r", ""]) | JSON,
                            "tool_calls": st.lists(
                                st.builds(
                                    tool,
                                    st.sampled_from([None, 0, 1]),
                                    st.sampled_from([None, "a", "b", ""]),
                                    st.sampled_from([None, "read", "list"]),
                                    st.sampled_from(["", "{", "}", "{}", None, {"a": 1}]) | JSON,
                                ),
                                max_size=2,
                            ),
                        },
                    ),
                    "finish_reason": st.sampled_from([None, None, None, "stop", "length", "tool_calls", "odd", ""]),
                }
            ),
            max_size=2,
        )
    }
)


@given(st.lists(CHUNK | JSON, max_size=8), st.booleans(), st.none() | st.text(max_size=5))
def test_any_payloads_keep_the_chunk_grammar_and_never_raise(
    payloads: list[Any], think_tags: bool, tail: str | None
) -> None:
    chunks = decoded(*(json.dumps(payload) for payload in payloads), think_tags=think_tags, tail=tail)
    for block in assemble(chunks).blocks():
        json.dumps([getattr(block, "text", ""), getattr(block, "arguments", "")], ensure_ascii=False).encode()
