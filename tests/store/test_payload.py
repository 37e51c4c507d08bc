"""Payloads: small, unchanged by the way to disk and back, and readable for as long as there are logs."""

from __future__ import annotations

import hashlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.codec import encode
from agentls.core.errors import DecodeError
from agentls.core.json import JsonObject
from agentls.store.payload import DICTIONARY, dump, is_packed, load, pack
from tests.store.support import turn

TEXT = st.text(st.characters(codec=None, categories=["L", "N", "P", "S", "Z", "Cc", "Cs", "Co"]), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_any_json_comes_back_unchanged(fields: JsonObject) -> None:
    text = dump(fields)
    assert load(text) == load(pack(text)) == fields
    assert len(pack(text)) <= len(text)


@pytest.mark.parametrize(
    ("stored", "fields"),
    [
        (bytes.fromhex("01830b1921c400"), {"turn": 12, "step": 1}),
        (b'{"turn":12}', {"turn": 12}),
        (b' {"text":"\\ud83d"}', {"text": "\ud83d"}),
    ],
)
def test_payloads_of_the_first_release_are_still_read(stored: bytes, fields: JsonObject) -> None:
    assert load(stored) == fields


def test_the_dictionary_is_part_of_the_format() -> None:
    digest = hashlib.sha256(DICTIONARY).hexdigest()
    assert digest == "a660f058d253e2e2c9c857e95247635dfc310d443d6c0f7e8a1805bd5bc95695"


def test_the_payloads_of_a_turn_shrink_to_less_than_half() -> None:
    texts = []
    for event in turn(1, 0):
        texts.append(dump({key: value for key, value in encode(event.data).items() if key != "type"}))
    assert sum(map(len, map(pack, texts))) < sum(map(len, texts)) / 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [None, {"deep": float("-inf")}]])
def test_a_number_that_json_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"value": value})  # type: ignore[dict-item]


def test_endless_nesting_is_refused() -> None:
    value: object = None
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="recursion"):
        dump({"value": value})  # type: ignore[dict-item]


def test_nesting_beyond_the_fast_encoder_is_kept() -> None:
    value: object = None
    for _ in range(400):
        value = [value]
    assert load(pack(dump({"value": value}))) == {"value": value}  # type: ignore[dict-item]


@given(st.binary(max_size=60))
def test_bytes_that_are_not_ours_are_refused_or_an_object(raw: bytes) -> None:
    for stored in (raw, b"\x01" + raw):
        try:
            assert isinstance(load(stored), dict)
        except DecodeError:
            continue


def test_a_cut_or_lengthened_payload_is_refused() -> None:
    stored = pack(orjson.dumps({"turn": 1, "step": 1, "text": "some words, and some more of them"}))
    assert is_packed(stored)
    for other in (stored[:-1], stored[:2], stored + b"\0"):
        with pytest.raises(DecodeError, match="not a payload"):
            load(other)
