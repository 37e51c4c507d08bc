"""Token counts of payloads, in buckets that do not overlap."""

from __future__ import annotations

from typing import Any

import pytest

from agentls.core.chunks import Usage, UsageChunk
from tests.models.payloads import decoded, delta
from tests.models.requests import assemble


def usage_of(usage: Any) -> Usage | None:
    return assemble(decoded(delta("stop", content="a") | {"usage": usage})).usage


def test_usage_buckets_are_disjoint() -> None:
    """Statement 19."""
    wire = {
        "prompt_tokens": 283,
        "completion_tokens": 69,
        "prompt_tokens_details": {"cached_tokens": 256},
        "completion_tokens_details": {"reasoning_tokens": 24},
    }
    assert usage_of(wire) == Usage(input_tokens=27, output_tokens=69, cache_read_tokens=256, reasoning_tokens=24)


def test_cached_tokens_come_from_the_details_before_the_older_field() -> None:
    both = {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    assert usage_of(both) == Usage(input_tokens=7, cache_read_tokens=3)
    assert usage_of({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}) == Usage(input_tokens=6, cache_read_tokens=4)


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({"prompt_tokens": 3, "completion_tokens": "x", "prompt_tokens_details": 5}, Usage(input_tokens=3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(cache_read_tokens=3)),
        ({"prompt_tokens": -3, "completion_tokens": 1}, Usage(output_tokens=1)),
        (
            {"completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 5}},
            Usage(output_tokens=1, reasoning_tokens=1),
        ),
        ({"prompt_tokens": True, "completion_tokens": None}, None),
        ({"prompt_tokens": 1.5}, None),
        ({}, None),
        ("many", None),
    ],
)
def test_counts_of_a_wrong_type_are_absent_and_none_is_negative(wire: Any, usage: Usage | None) -> None:
    assert usage_of(wire) == usage


def test_the_latest_usage_counts_and_comes_once() -> None:
    chunks = decoded(
        delta(content="a") | {"usage": {"prompt_tokens": 1}},
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 2}},
    )
    assert [chunk for chunk in chunks if isinstance(chunk, UsageChunk)] == [UsageChunk(Usage(input_tokens=2))]
