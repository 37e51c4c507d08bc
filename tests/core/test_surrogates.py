"""Halves of characters, in texts and in JSON: joined where both come, visible where one stays alone."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.json import JsonValue
from agentls.core.surrogates import Joiner, dump, mend, parse, parse_with_halves

ANY_TEXT = st.text(st.characters(), max_size=12) | st.text(st.characters(categories=["Cs"]), max_size=4)


def test_two_halves_are_joined_and_a_lone_one_becomes_visible() -> None:
    assert mend("a\ud83d\ude42b") == "a🙂b"
    assert mend("a\ud83db\ude42") == "a\ufffdb\ufffd"


def test_halves_that_come_in_two_pieces_are_joined() -> None:
    joiner = Joiner()
    assert [joiner.take("a\ud83d"), joiner.take("\ude42b"), joiner.rest()] == ["a", "🙂b", ""]


def test_a_half_whose_other_one_never_comes_is_visible_at_the_end() -> None:
    joiner = Joiner()
    assert [joiner.take("a\ud83d"), joiner.rest(), joiner.rest()] == ["a", "\ufffd", ""]


@given(ANY_TEXT)
def test_mended_text_can_be_encoded_and_good_text_stays(text: str) -> None:
    assert mend(mend(text)) == mend(text)
    mend(text).encode()
    good = text.encode("utf-8", "ignore").decode()
    assert mend(good) == good


@given(ANY_TEXT, st.lists(st.integers(0, 12)))
def test_any_cuts_give_the_same_text(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    joiner = Joiner()
    pieces = [joiner.take(text[start:end]) for start, end in itertools.pairwise(places)]
    assert "".join(pieces) + joiner.rest() == mend(text)


# JSON ----------------------------------------------------------------------------------------------------------


def test_a_half_is_read_as_a_replacement_in_keys_as_well() -> None:
    assert parse(b'{"a\\ud800": ["\\uDC00x", "\\ud83d\\ude42"]}') == {"a\ufffd": ["\ufffdx", "🙂"]}


def test_a_half_may_be_kept_to_be_joined_with_what_comes_in_the_next_text() -> None:
    assert parse_with_halves('"a\\ud83d"') == "a\ud83d"


def test_a_half_is_written_as_a_replacement() -> None:
    assert parse(dump({"a\ud800": ["\udc00x", ("🙂",)]})) == {"a\ufffd": ["\ufffdx", ["🙂"]]}


def test_so_it_is_in_what_json_does_not_know_by_itself() -> None:
    assert dump(["\ud800", 5j], lambda other: f"\udc00{other}") == '["\ufffd","\ufffd5j"]'.encode()


@pytest.mark.parametrize("value", ["é", 1 << 70, [1 << 70, "\ud800"], {"b": 1, "a": None}, 0.5, True])
def test_what_is_written_is_read_back_and_has_no_spaces(value: JsonValue) -> None:
    assert b" " not in dump(value)
    assert json.loads(dump(value)) == json.loads(json.dumps(value).replace("\\ud800", "\\ufffd"))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff", b'"\xed\xa0\x80"', b"NaN", b'["\\ud800", NaN]', b"[" * 5000, b'"\\ud800"' + b"[" * 100_000],
)
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


@pytest.mark.parametrize("value", [{"a": object()}, ["\ud800", object()], ["\ud800", float("nan")]])
def test_what_has_no_json_form_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        dump(value)


def test_what_is_nested_too_deeply_is_refused_and_not_an_error_of_ours() -> None:
    for text in ('["\\ud83d"' + ", [" * 700 + "]" * 701, "[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            parse(text)
