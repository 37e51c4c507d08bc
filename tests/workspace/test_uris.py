"""File URIs: every path comes back as the same bytes, and what is no file is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.workspace.uris import NotAFileUri, is_uri, to_path, to_uri

NAMES = st.lists(
    st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & {0, ord("/")} and name not in (b".", b"..")),
    min_size=1,
    max_size=4,
)

# As VS Code (what Uri.toString gives), Neovim (vim.uri_from_fname) and a client that escapes nothing write them.
SPELLINGS = [
    ("/a/c#.py", ["file:///a/c%23.py", "file:///a/c#.py"]),
    ("/a/100%.txt", ["file:///a/100%25.txt", "file:///a/100%.txt"]),
    ("/a/%3A.txt", ["file:///a/%253A.txt"]),
    ("/a/$x+y.ts", ["file:///a/%24x%2By.ts", "file:///a/$x+y.ts"]),
    ("/a/[id].tsx", ["file:///a/%5Bid%5D.tsx", "file:///a/[id].tsx"]),
    ("/a/two words.md", ["file:///a/two%20words.md", "file:///a/two words.md"]),
    (
        "/a/Grüße 日本 🙂.md",
        ["file:///a/Gr%C3%BC%C3%9Fe%20%E6%97%A5%E6%9C%AC%20%F0%9F%99%82.md", "file:///a/Grüße 日本 🙂.md"],
    ),
    ("/a/why?.txt", ["file:///a/why%3F.txt", "file:///a/why?.txt"]),
]


@pytest.mark.parametrize(("path", "uris"), SPELLINGS)
def test_every_spelling_of_a_uri_is_its_path_decoded_once(path: str, uris: list[str]) -> None:
    """L09: #, %, $, +, brackets, spaces and non-ASCII, neither escaped twice nor left out."""
    for uri in [*uris, to_uri(Path(path))]:
        assert to_path(uri) == Path(path)
    assert to_uri(Path(path)).isascii()


@given(NAMES)
def test_any_path_comes_back_from_its_uri_with_the_same_bytes(names: list[bytes]) -> None:
    """L09, and names that are no UTF-8."""
    path = Path(os.fsdecode(b"/" + b"/".join(names)))
    assert os.fsencode(to_path(to_uri(path))) == os.fsencode(path)


@pytest.mark.parametrize("uri", ["file:///a/b", "FILE:///a/b", "file:/a/b", "file://localhost/a/b"])
def test_all_forms_of_a_local_file_uri_are_taken(uri: str) -> None:
    assert to_path(uri) == Path("/a/b")


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("untitled:Untitled-1", '"untitled:Untitled-1" is no file on disk, its scheme is "untitled"'),
        ("vscode-notebook-cell:/a/b.ipynb#W0", 'its scheme is "vscode-notebook-cell"'),
        ("https://example.org/a", 'its scheme is "https"'),
        ("file://server/share/a", 'a file of the host "server"'),
        ("file:a/b", "no absolute path"),
        ("file://", "no absolute path"),
        ("/a/b", "is no URI"),
        ("", "is no URI"),
        ("file:///a%00b", "a null byte"),
    ],
)
def test_what_is_no_file_of_this_machine_is_refused_with_the_reason(uri: str, says: str) -> None:
    """L09: non-file schemes are refused with a clear error."""
    with pytest.raises(NotAFileUri) as refused:
        to_path(uri)
    assert says in str(refused.value)


def test_only_an_absolute_path_has_a_uri() -> None:
    with pytest.raises(ValueError, match="no absolute path"):
        to_uri(Path("a/b"))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("file:///a", True), ("file:a", True), ("https://x", True), ("src/a:b.py", False), ("a:b", False), ("/a", False)],
)
def test_a_path_with_a_colon_is_not_taken_for_a_uri(text: str, is_one: bool) -> None:
    assert is_uri(text) is is_one
