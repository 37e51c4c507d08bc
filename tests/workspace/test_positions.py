"""Positions and incremental changes: the server's text is the editor's, in every encoding and after every edit."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.workspace.positions import Change, Lines, Position, PositionEncoding, Range, column, split_lines
from tests.conformance.cases import folder

ENCODINGS: tuple[PositionEncoding, ...] = ("utf-8", "utf-16", "utf-32")
# Characters of one to four bytes, one and two units, both line endings and their halves, and separators that end no
# line in an editor.
TEXTS = st.text(alphabet="aZé日🙂\n\r\t \u2028\x0b\x0c\x85", max_size=30) | st.text(alphabet="a🙂\n\r", max_size=8)


def units(text: str, encoding: PositionEncoding) -> int:
    """How many characters an editor counts in a text."""
    return (
        len(text)
        if encoding == "utf-32"
        else len(text.encode(encoding + ("-le" if encoding == "utf-16" else ""))) // (2 if encoding == "utf-16" else 1)
    )


def editor_lines(text: str) -> list[str]:
    """Lines as an editor sees them, without their endings, found the slow way."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def position_of(text: str, offset: int, encoding: PositionEncoding) -> Position:
    """Where an editor says that a place in its text is. Between `\\r` and `\\n` there is none: it is before both."""
    if text[offset - 1 : offset + 1] == "\r\n":
        offset -= 1
    before = editor_lines(text[:offset])
    return Position(len(before) - 1, units(before[-1], encoding))


@st.composite
def sessions(draw: st.DrawFn) -> tuple[str, PositionEncoding, list[Change], str]:
    """A text, edits as an editor sends them, and what the editor has in the end."""
    text = first = draw(TEXTS)
    encoding = draw(st.sampled_from(ENCODINGS))
    changes = []
    for _ in range(draw(st.integers(0, 8))):
        fresh = draw(TEXTS)
        if draw(st.integers(0, 9)) == 0:
            changes.append(Change(fresh))
            text = fresh
            continue
        a, b = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        a -= text[a - 1 : a + 1] == "\r\n"
        b -= text[b - 1 : b + 1] == "\r\n"
        changes.append(Change(fresh, Range(position_of(text, a, encoding), position_of(text, b, encoding))))
        text = text[:a] + fresh + text[b:]
    return first, encoding, changes, text


@given(sessions())
def test_any_sequence_of_edits_in_any_encoding_gives_the_editors_text(
    session: tuple[str, PositionEncoding, list[Change], str],
) -> None:
    """L01, L11: also when an edit joins or parts the two halves of a line ending."""
    first, encoding, changes, last = session
    lines = Lines(first)
    for change in changes:
        lines.apply(change, encoding)
    assert lines.text == last
    whole = Lines(last)
    places = [Position(line, character) for line in range(8) for character in range(8)]
    assert [lines.locate(place, encoding) for place in places] == [whole.locate(place, encoding) for place in places]


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        ("a\rb", Change("\n", Range(Position(1, 0), Position(1, 0))), ["a\r\n", "b"]),
        ("a\nb", Change("\r", Range(Position(0, 1), Position(0, 1))), ["a\r\n", "b"]),
        ("a\rx\n\nb", Change("", Range(Position(1, 0), Position(1, 1))), ["a\r\n", "\n", "b"]),
        ("a\r\nb", Change("x", Range(Position(0, 1), Position(1, 0))), ["axb"]),
        ("a\nx\n\nb", Change("y\r", Range(Position(0, 1), Position(2, 0))), ["ay\r\n", "b"]),
    ],
)
def test_an_edit_may_join_two_line_endings_to_one(text: str, change: Change, after: list[str]) -> None:
    lines = Lines(text)
    lines.apply(change, "utf-16")
    assert lines.text == "".join(after)
    ends = [lines.locate(Position(n, 99), "utf-16") for n in range(len(after) + 1)]
    assert ends == [*((n, len(line.rstrip("\r\n"))) for n, line in enumerate(after)), (len(after) - 1, len(after[-1]))]


@given(TEXTS)
def test_lines_end_where_an_editor_ends_them_and_join_to_the_same_text(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert [line.rstrip("\r\n") for line in lines] == editor_lines(text)


def test_utf16_positions_of_the_case_file() -> None:
    """L01: emoji on and before the line, inside a pair, past the end."""
    case = json.loads((folder() / "cases" / "l01_utf16.json").read_text("utf-8"))
    lines = Lines(case["text"])
    for each in case["cases"]:
        line, index = lines.locate(Position(each["line"], each["character"]), "utf-16")
        assert (line, index) == (each["line"], each["py"]), each
        assert sum(len(line) for line in split_lines(case["text"])[:line]) + index == each["offset"], each


def test_each_change_is_in_the_coordinates_left_by_the_one_before() -> None:
    """L11."""
    case = json.loads((folder() / "cases" / "l11_changes.json").read_text("utf-8"))
    lines = Lines(case["text"])
    for change in case["changes"]:
        start, end = (Position(line, character) for line, character in change["range"])
        lines.apply(Change(change["text"], Range(start, end)), "utf-16")
    assert lines.text == case["result"]


@pytest.mark.parametrize(
    ("encoding", "at"),
    [
        ("utf-8", [0, 0, 1, 1, 1, 1, 2, 3, 3]),
        ("utf-16", [0, 1, 1, 2, 3, 3]),
        ("utf-32", [0, 1, 2, 3, 3]),
    ],
)
def test_a_place_inside_a_character_is_its_start_and_past_the_end_is_the_end(
    encoding: PositionEncoding, at: list[int]
) -> None:
    assert [column("é🙂x", character, encoding) for character in range(len(at))] == at


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_past_the_last_line_is_the_end_of_the_text(encoding: PositionEncoding) -> None:
    lines = Lines("é\nab")
    lines.apply(Change("!", Range(Position(7, 3), Position(9, 0))), encoding)
    assert lines.text == "é\nab!"


def test_a_range_that_is_the_wrong_way_round_is_turned() -> None:
    lines = Lines("abc")
    lines.apply(Change("-", Range(Position(0, 2), Position(0, 1))), "utf-16")
    assert lines.text == "a-c"
