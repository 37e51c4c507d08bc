"""Messages are found in a stream whatever way its bytes are cut, and a wrong one is told from a right one."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.surrogates import dump
from agentls.lsp.encode import TEXT_MAX, pieces
from agentls.lsp.framing import Fault, Framer, framed


def case_bytes(name: str) -> bytes:
    return (Path(__file__).parents[1] / "conformance" / "cases" / name).read_bytes()


def read(*parts: bytes, limit: int = 1 << 20) -> list[bytes | Fault]:
    framer = Framer(limit)
    found: list[bytes | Fault] = []
    for part in parts:
        framer.feed(part)
        while (item := framer.next()) is not None:
            found.append(item)
    return found


def methods(items: list[bytes | Fault]) -> list[object]:
    return [json.loads(item)["method"] for item in items if isinstance(item, bytes)]


# Case L04: the length counts bytes, also where characters take several.


def test_frames_are_found_at_every_cut() -> None:
    stream = case_bytes("l04_frames.bin")
    for cut in range(len(stream) + 1):
        assert methods(read(stream[:cut], stream[cut:])) == ["x/block", "x/end"], cut


def test_frames_are_found_byte_by_byte() -> None:
    stream = case_bytes("l04_frames.bin")
    assert methods(read(*(stream[at : at + 1] for at in range(len(stream))))) == ["x/block", "x/end"]


# Case L03: what a print leaves in the stream is not fatal as long as the messages can be told.


def test_noise_that_looks_like_a_header_is_passed_over() -> None:
    stream = case_bytes("l03_stdout_noise.bin")
    for cut in range(len(stream) + 1):
        assert methods(read(stream[:cut], stream[cut:])) == ["x/block", "x/end"], cut


def test_noise_between_messages_is_told_and_the_stream_goes_on() -> None:
    noise, message = read(b"loading plugins\n" + framed(b'{"method":"x"}'))
    assert isinstance(noise, Fault)
    assert noise.message.startswith('"loading plugins" is no header')
    assert not noise.fatal
    assert message == b'{"method":"x"}'


@pytest.mark.parametrize(
    "header",
    [
        b"content-length: 2\r\n\r\n",
        b"CONTENT-LENGTH:2\r\n\r\n",
        b"Content-Length : 2 \r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\r\nX-Other: \xff\r\n\r\n",
        b"Content-Length: 2\n\n",
        b"\r\n\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_headers_are_taken_in_any_case_and_with_others(header: bytes) -> None:
    stream = header + b"{}" + header + b"[]"
    for cut in range(len(stream) + 1):
        assert read(stream[:cut], stream[cut:]) == [b"{}", b"[]"], cut


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"Content-Length: two\r\n\r\n{}", 'Content-Length "two" is no number of bytes'),
        (b"Content-Length: -2\r\n\r\n{}", 'Content-Length "-2" is no number of bytes'),
        (b"Content-Length: \xb2\r\n\r\n{}", 'Content-Length "²" is no number of bytes'),
        (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "two lengths for one message, 2 and 3"),
        (b"Content-Type: text/plain\r\n\r\n{}", "a header without Content-Length, so that its message has no end"),
        (b"x" * 20_000, "a header of more than 16384 bytes; is this a Language Server client?"),
        (b"Content-Length: 99999999999999999\r\n\r\n{}", "a message of 99999999999999999 bytes"),
    ],
)
def test_a_stream_whose_messages_cannot_be_told_is_given_up(stream: bytes, said: str) -> None:
    (fault,) = read(stream, framed(b"{}"))
    assert isinstance(fault, Fault)
    assert fault.fatal
    assert fault.message.startswith(said)


def test_a_message_that_is_too_long_is_told_at_once_and_skipped() -> None:
    stream = framed(b"x" * 1000)
    for cut in range(len(stream) + 1):
        fault, message = read(stream[:cut], stream[cut:], framed(b"{}"), limit=100)
        assert isinstance(fault, Fault)
        assert fault.message == "a message of 1000 bytes; at most 100 are taken, so send it in parts"
        assert not fault.fatal
        assert message == b"{}"


def test_a_stream_that_ends_within_a_message_can_be_told() -> None:
    framer = Framer()
    assert not framer.inside
    for part in (b"Content-", b"Length: 2\r\n", b"\r\n", b"{"):
        framer.feed(part)
        assert framer.next() is None
        assert framer.inside
    framer.feed(b"}")
    assert framer.next() == b"{}"
    assert not framer.inside


@given(st.lists(st.text(), max_size=5), st.lists(st.integers(0, 400)))
def test_what_is_framed_is_read_however_it_is_cut(texts: list[str], cuts: list[int]) -> None:
    bodies = [dump({"text": text}) for text in texts]
    stream = b"".join(map(framed, bodies))
    at = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert read(*(stream[start:end] for start, end in pairwise(at))) == bodies


# Pieces --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3), st.text("aé測🙂", min_size=1, max_size=7), st.integers(1, 40_000))
def test_a_text_in_pieces_is_the_text(lead: int, pattern: str, times: int) -> None:
    text = "a" * lead + pattern * times
    found = list(pieces(text))
    assert "".join(piece for _, piece in found) == text
    assert all(len(piece.encode()) <= TEXT_MAX for _, piece in found)
    offset = 0
    for at, piece in found:
        assert at == offset
        offset += len(piece.encode())


def test_no_text_is_one_empty_piece() -> None:
    assert list(pieces("")) == [(0, "")]
