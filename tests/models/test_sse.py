"""The event stream parser: the standard's framing, whatever the cuts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.models.sse import SseParser


def parsed(pieces: Iterable[bytes]) -> tuple[list[str], str | None]:
    """The payloads of a whole stream, and the one that its end left open."""
    parser = SseParser()
    found: list[str] = []
    for piece in pieces:
        parser.feed(piece)
        found += parser.payloads()
    return found, parser.close()


def payloads(data: bytes) -> list[str]:
    return parsed([data])[0]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    """S02, S02b."""
    assert payloads(b"data: A" + end + end + b"data: B" + end + end) == ["A", "B"]


def test_a_cut_between_cr_and_lf_makes_no_second_line_end() -> None:
    """S02."""
    assert parsed([b"data: A\r", b"\n\r", b"\ndata: B\r\n\r\n"]) == (["A", "B"], None)


def test_an_event_is_dispatched_at_its_blank_line_and_not_a_byte_later() -> None:
    parser = SseParser()
    parser.feed(b"data: A\r\n\r")
    assert list(parser.payloads()) == ["A"]


def test_one_space_after_the_colon_is_dropped_and_no_more() -> None:
    assert payloads(b"data:A\n\ndata:  B\n\n") == ["A", " B"]


def test_data_over_several_lines_is_one_payload() -> None:
    """S02c."""
    assert payloads(b'data: {"a":\ndata: 1}\n\n') == ['{"a":\n1}']


def test_blocks_without_data_are_not_dispatched() -> None:
    """S05."""
    assert payloads(b"retry: 3\n\nid: 7\n\nevent: note\n\n\n\ndata: A\n\n") == ["A"]


def test_a_data_field_that_is_empty_is_a_payload_that_is_empty() -> None:
    assert payloads(b"data\n\ndata:\n\n") == ["", ""]


def test_comments_are_never_payloads() -> None:
    """S04."""
    assert payloads(b": hello\n\n:\n\ndata: A\n: in between\ndata: B\n\n") == ["A\nB"]


def test_a_byte_order_mark_is_dropped_at_the_start_only() -> None:
    """S29."""
    assert parsed([b"\xef", b"\xbb", b"\xbfdata: A\n\ndata: \xef\xbb\xbfB\n\n"]) == (["A", "\ufeffB"], None)


def test_characters_that_other_line_splitters_know_are_text() -> None:
    """S03: str.splitlines would cut at each of these."""
    text = "a\x0bb\x0cc\x1cd\x1ee\x85f\u2028g\u2029h"
    assert payloads(f"data: {text}\n\n".encode()) == [text]


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert payloads(b"data: a\xffb\n\n") == ["a\ufffdb"]


def test_the_end_of_the_stream_gives_the_event_whose_blank_line_is_missing() -> None:
    """S27."""
    assert parsed([b"data: A\n\ndata: B"]) == (["A"], "B")
    assert parsed([b"data: A\n\ndata: B\r"]) == (["A"], "B")
    assert parsed([b"data: A\n\nid: 1"]) == (["A"], None)
    assert parsed([b"\xef\xbb\xbfdata: B"]) == ([], "B")
    assert parsed([b""]) == ([], None)


def test_parsing_can_stop_in_a_burst_and_go_on_later() -> None:
    parser = SseParser()
    parser.feed(b"data: 1\n\ndata: 2\n\nda")
    assert next(parser.payloads()) == "1"
    parser.feed(b"ta: 3\n\n")
    assert list(parser.payloads()) == ["2", "3"]


def test_what_is_held_is_known() -> None:
    parser = SseParser()
    parser.feed(b"data: " + b"x" * 1000)
    assert list(parser.payloads()) == []
    assert parser.held == 1006
    parser.feed(b"\n\n")
    assert list(parser.payloads()) == ["x" * 1000]
    assert parser.held == 0


def _seconds(size: int) -> float:
    line = b"data: " + b"x" * size + b"\n\n"
    began = time.process_time()
    found, _ = parsed(line[at : at + 1024] for at in range(0, len(line), 1024))
    assert found == ["x" * size]
    return time.process_time() - began


def test_a_line_of_5_mb_in_pieces_of_1_kb_takes_linear_time() -> None:
    # Quadratic work would copy or search 12 GB here, which takes seconds; linear work takes some 10 ms.
    assert min(_seconds(5_000_000) for _ in range(3)) < 0.5


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_burst_of_short_lines_in_one_piece_takes_linear_time(end: bytes) -> None:
    data = (b"data: x" + end * 2) * 200_000
    began = time.process_time()
    assert len(payloads(data)) == 200_000
    assert time.process_time() - began < 3


FIELD = st.sampled_from(
    ["data: ", "data:", "data", "event: x", "id: 1", "retry: 5", ":", ": comment", "unknown: 1", ""]
)
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), max_size=8)
LINE = st.tuples(FIELD, TEXT).map("".join)
END = st.sampled_from(["\n", "\r\n", "\r"])
STREAM = st.builds(
    lambda mark, lines, tail: ((mark and "\ufeff") + "".join(map("".join, lines)) + tail).encode(),
    st.sampled_from(["", "x"]),
    st.lists(st.tuples(LINE, END), max_size=20),
    TEXT,
)


@given(STREAM, st.lists(st.integers(0, 400), max_size=10))
def test_any_cuts_give_the_same_payloads(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert parsed(pieces) == parsed([data]) == parsed(data[at : at + 1] for at in range(len(data)))


@given(st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=5), END)
def test_what_is_written_as_events_is_read_back(events: list[list[str]], end: str) -> None:
    written = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in events)
    assert parsed([written.encode()]) == (["\n".join(lines) for lines in events], None)


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(data: bytes) -> None:
    parsed([data])
