"""Halves of characters: joined where both come, visible where one stays alone."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentls.models.surrogates import Joiner, mend

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
