"""Text as a person may see it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.visible import fenced, one_line, preview, visible


def test_terminal_and_bidirectional_controls_become_visible() -> None:
    """Case Z15: OSC, CSI, DCS, C1 and bidi controls; the letters stay."""
    text = "A\x1b]52;c;eA==\x07B\x1b[2JC\x90D\x9bE\u202eF\u2066G\u200bH\rI\x00J\x7fK"
    shown = visible(text)
    assert not any(unicodedata.category(char) in ("Cc", "Cf") for char in shown)
    assert [char for char in "ABCDEFGHIJK" if char not in shown] == []
    assert "⟨U+202E⟩" in shown
    assert "␛" in shown


@pytest.mark.parametrize("text", ["a\n\tb", "日本 🙂 Grüße", "👨\u200d👩\u200d👧", "❤\ufe0f", "می\u200cخواهم"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text(st.characters(), max_size=30), st.integers(0, 30))
def test_pieces_give_the_same_as_the_whole(text: str, cut: int) -> None:
    """Deltas are made visible one by one, and the finished text at once: they must agree."""
    assert visible(text[:cut]) + visible(text[cut:]) == visible(text)


@given(st.text(st.characters(), max_size=30))
def test_what_is_visible_has_a_utf8_form_and_no_control(text: str) -> None:
    """A lone surrogate would break the wire."""
    shown = visible(text)
    shown.encode()
    assert not any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t" for char in shown)


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [(" a\n b\t c ", 120, "a b c"), ("x" * 121, 120, "x" * 119 + "…"), ("x" * 120, 120, "x" * 120), ("", 5, "")],
)
def test_one_line_folds_and_bounds(text: str, limit: int, line: str) -> None:
    """Statement 69's bound."""
    assert one_line(text, limit) == line


@given(st.text("`a\n", max_size=20))
def test_a_fence_is_longer_than_any_in_its_text(text: str) -> None:
    lines = fenced(text, "json").split("\n")
    fence = lines[-1]
    assert set(fence) == {"`"}
    assert len(fence) >= 3
    assert lines[0] == fence + "json"
    assert all(not line.lstrip().startswith(fence) for line in lines[1:-1])


@given(st.text(max_size=50), st.integers(1, 60))
def test_a_preview_counts_the_bytes_it_leaves_out(text: str, limit: int) -> None:
    kept, left = preview(text, limit)
    assert len(kept.encode()) <= limit
    assert text.startswith(kept)
    assert len(kept.encode()) + left == len(text.encode())
