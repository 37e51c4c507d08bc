"""What is made of a growing tuple is made once of each item, and right whatever is asked next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentls.core.grown import Grown


@given(st.lists(st.lists(st.integers(0, 3)).map(tuple)))
def test_it_is_what_making_each_anew_would_give(asked: list[tuple[int, ...]]) -> None:
    grown = Grown(str)
    for items in asked:
        assert grown.of(items) == tuple(map(str, items))


@given(st.lists(st.integers()).map(tuple), st.lists(st.integers(1, 5)))
def test_of_a_tuple_that_grows_each_item_is_made_once(items: tuple[int, ...], steps: list[int]) -> None:
    made: list[int] = []

    def note(item: int) -> int:
        made.append(item)
        return item

    grown = Grown(note)
    end = 0
    for step in steps:
        end += step
        grown.of(items[:end])
    assert made == list(items[:end])
