"""Bytes to text and back: nothing lost, nothing guessed that cannot be written back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.workspace.texts import Form, NotText, content_hash, decode, shows
from tests.conformance.cases import folder

BOM = "\ufeff"


def case(name: str) -> bytes:
    return (folder() / "cases" / name).read_bytes()


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
def test_what_is_read_as_text_is_written_back_byte_for_byte(data: bytes) -> None:
    """E03: no byte is replaced, whatever the encoding is."""
    try:
        text = decode(data)
    except NotText:
        return
    assert text.form.encode(text.text) == data


@pytest.mark.parametrize(
    ("data", "text", "form"),
    [
        (b"", "", Form(final_newline=False)),
        ("é\n".encode(), "é\n", Form()),
        (b"\xef\xbb\xbfa\r\nb", "a\r\nb", Form("utf-8", b"\xef\xbb\xbf", "\r\n", final_newline=False)),
        (b"\xff\xfea\0\n\0", "a\n", Form("utf-16-le", b"\xff\xfe")),
        (b"\xfe\xff\0a\0\n", "a\n", Form("utf-16-be", b"\xfe\xff")),
        (b"caf\xe9\n", "café\n", Form("cp1252")),
        (b"it\x92s\r", "it’s\r", Form("cp1252", ending="\r")),
        (b"\x81\n", "\x81\n", Form("latin-1")),
        (b"\xef\xbb\xbf\xff\n", "ï»¿ÿ\n", Form("cp1252")),
        (b"a\r\nb\r\nc\n", "a\r\nb\r\nc\n", Form(ending="\r\n")),
        (b"50%\r100%\r\ndone\ndone\n", "50%\r100%\r\ndone\ndone\n", Form()),
    ],
)
def test_encoding_mark_endings_and_final_newline_are_told(data: bytes, text: str, form: Form) -> None:
    assert decode(data).text == text
    assert decode(data).form == form


@pytest.mark.parametrize(
    "data",
    [
        case("e14_binary.bin"),
        b"a\0b",
        b"text first" * 800 + b"\0",
        b"\x7fELF\x02\x01\x01\xff",
        b"\xff\xfe\x00\x00a\x00\x00\x00",
        b"\xff\xfea",
        b"\xff\xfe\x00\xd8",
        b"\x1f\x8b\x08\x08\xde\xad\xbe\xef",
    ],
    ids=lambda data: data[:8].hex(),
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    """E14: null bytes, control characters of no 8-bit text, halves of UTF-16, UTF-32."""
    with pytest.raises(NotText):
        decode(data)


def test_a_null_byte_far_from_the_beginning_does_not_hide_a_text() -> None:
    data = b"a" * 8192 + b"\0\n"
    assert decode(data).form.encode(decode(data).text) == data


def test_a_models_line_feeds_become_the_files_line_endings() -> None:
    """E01."""
    text = decode(case("e01_crlf.txt"))
    assert text.form.ending == "\r\n"
    assert text.form.encode(text.form.fit("a = 9\nb = 8\nc = 3\n")) == case("e01_crlf.after.txt")
    assert Form(ending="\r\n").fit("a\r\nb\n") == "a\r\nb\r\n"
    assert Form().fit("a\r\nb\n") == "a\nb\n"
    assert Form(ending="\r").fit("a\r\nb\n") == "a\rb\r"


def test_a_character_that_the_files_encoding_lacks_is_an_error_and_no_question_mark() -> None:
    """E03."""
    with pytest.raises(UnicodeEncodeError):
        Form("cp1252").encode("→")


def test_a_mark_that_is_also_in_the_text_is_written_once() -> None:
    form = decode(b"\xef\xbb\xbfa").form
    assert form.encode("b") == form.encode(BOM + "b") == b"\xef\xbb\xbfb"
    assert Form().encode(BOM + "b") == b"\xef\xbb\xbfb"


def test_a_hash_is_that_of_the_bytes() -> None:
    assert content_hash(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# What an editor shows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\nb\n", "a\nb\n"),
        (b"", "\n"),
        (b"a", "a\n"),
        (b"a\r\nb\n", "a\nb\n"),
        (b"a\r\nb\n", "a\r\nb\r\n"),
        (b"\xef\xbb\xbfa\n", "a\n"),
        (b"\xff\xfea\0\n\0", "a\n"),
        (b"caf\xe9\n", "caf\ufffd\n"),
        (b"caf\xe9\n", "café\n"),
        (b"it\x92s\n", "it\x92s\n"),
        (b"it\x92s\n", "it’s\n"),
    ],
)
def test_what_an_editor_makes_of_a_file_by_opening_it_is_nobodys_work(data: bytes, text: str) -> None:
    assert shows(data, text)


@pytest.mark.parametrize(
    ("data", "text"), [(b"a\n", "b\n"), (b"a\n", "a\n\n"), (b"a\n", "a \n"), (b"", "x"), (b"caf\xe9\n", "cafe\n")]
)
def test_another_text_is_another_text(data: bytes, text: str) -> None:
    assert not shows(data, text)
