"""Large files: the same text and hash as of a file that is read whole."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from agentls.workspace.large import ENCODINGS, open_large
from agentls.workspace.texts import NotText, content_hash, decode


@pytest.mark.parametrize(
    "data",
    [
        "é\r\nb\rc\n🙂".encode() * 50_000,
        codecs.BOM_UTF8 + b"a\n",
        codecs.BOM_UTF16_LE + "é\r\n".encode("utf-16-le") * 9000,
        b"a\n" * 100_000 + b"caf\xe9\n",
        b"a\n" * 100_000 + b"\x81\n",
        b"",
    ],
    ids=["utf-8", "utf-8 with a mark", "utf-16", "windows-1252", "latin-1", "empty"],
)
def test_text_and_hash_are_those_of_the_whole_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "large"
    path.write_bytes(data)
    for encoding in ENCODINGS:
        try:
            with open_large(path, encoding) as large:
                text = large.lines.read()
        except UnicodeDecodeError:
            continue
        assert text == decode(data).text
        assert large.content_hash == content_hash(data)
        return
    pytest.fail("no encoding reads it")


def test_what_begins_like_no_text_is_refused(tmp_path: Path) -> None:
    """E14."""
    (tmp_path / "large").write_bytes(b"a\0" * 100)
    with pytest.raises(NotText), open_large(tmp_path / "large", "utf-8"):
        pass
