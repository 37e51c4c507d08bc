"""Open documents: what editors have, who holds a file, and whose work is unsaved."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentls.workspace.documents import Documents, NotOpen
from agentls.workspace.positions import Change, Position, Range
from agentls.workspace.roots import real
from agentls.workspace.uris import NotAFileUri, to_path, to_uri
from tests.workspace.support import FakeEditor

VSCODE = FakeEditor("Visual Studio Code 1.107")
NEOVIM = FakeEditor("neovim 0.11.4", encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "a.py"
    path.write_bytes(b"one\ntwo\n")
    return path


def typed(text: str, line: int = 0, character: int = 0) -> tuple[Change, ...]:
    return (Change(text, Range(Position(line, character), Position(line, character))),)


def opened(path: Path, editor: FakeEditor = NEOVIM, text: str | None = None) -> Documents:
    documents = Documents()
    documents.open(editor, to_uri(path), version=1, text=path.read_text() if text is None else text)
    return documents


# Text ----------------------------------------------------------------------------------------------------------


def test_changes_are_applied_in_the_editors_own_encoding(path: Path) -> None:
    """L01, L11."""
    documents = opened(path, VSCODE, "🙂\n")
    documents.open(NEOVIM, to_uri(path), version=1, text="🙂\n")
    for editor, end in ((VSCODE, 2), (NEOVIM, 4)):
        both = (*typed("a", 0, end), *typed("b", 0, end + 1))
        assert documents.change(editor, to_uri(path), version=2, changes=both).text == "🙂ab\n"
    assert {buffer.version for buffer in documents.at(path)} == {2}


def test_what_is_asked_between_many_changes_sees_those_before_it(path: Path) -> None:
    """L13: two hundred changes, one after the other."""
    documents = opened(path, text="")
    for n in range(200):
        documents.change(NEOVIM, to_uri(path), version=n + 2, changes=typed(f"{n}\n", n))
        assert documents.at(path)[0].text == "".join(f"{each}\n" for each in range(n + 1))


def test_a_document_that_is_opened_again_is_taken_anew(path: Path) -> None:
    documents = opened(path)
    documents.change(NEOVIM, to_uri(path), version=2, changes=typed("x"))
    documents.open(NEOVIM, to_uri(path), version=1, text="one\ntwo\n")
    assert [(buffer.text, buffer.dirty) for buffer in documents.at(path)] == [("one\ntwo\n", False)]


def test_what_a_save_wrote_is_the_text(path: Path) -> None:
    documents = opened(path)
    assert documents.save(NEOVIM, to_uri(path), "formatted\n").text == "formatted\n"


def test_what_is_not_open_cannot_be_changed_saved_or_closed(path: Path) -> None:
    documents = opened(path)
    documents.close(NEOVIM, to_uri(path))
    assert documents.at(path) == ()
    with pytest.raises(NotOpen, match=r'neovim 0.11.4 has not opened "file:'):
        documents.change(NEOVIM, to_uri(path), version=2, changes=())
    with pytest.raises(NotOpen):
        documents.save(NEOVIM, to_uri(path))
    with pytest.raises(NotOpen):
        documents.close(NEOVIM, to_uri(path))


def test_what_is_no_file_cannot_be_opened() -> None:
    """L09."""
    with pytest.raises(NotAFileUri, match='scheme is "untitled"'):
        Documents().open(NEOVIM, "untitled:Untitled-1", version=1, text="")


# Which document ------------------------------------------------------------------------------------------------


def test_a_document_is_found_by_any_spelling_of_its_uri_and_through_links(tmp_path: Path) -> None:
    """L09: VS Code escapes what Neovim does not."""
    folder = tmp_path.resolve() / "[id] +$"
    folder.mkdir()
    (folder / "a#.py").write_text("")
    (tmp_path / "link.py").symlink_to(folder / "a#.py")
    documents = Documents()
    spelled = f"file://{tmp_path.resolve()}/[id]%20+$/a%23.py"
    documents.open(NEOVIM, spelled, version=1, text="x")
    documents.open(VSCODE, to_uri(tmp_path / "link.py"), version=1, text="x")
    for uri in (spelled, to_uri(folder / "a#.py"), to_uri(tmp_path / "link.py")):
        assert {buffer.uri for buffer in documents.at(real(to_path(uri)))} == {spelled, to_uri(tmp_path / "link.py")}
    assert len(documents.at(folder / "a#.py")) == 2


# Dirty ---------------------------------------------------------------------------------------------------------


def test_a_buffer_is_dirty_from_a_change_until_it_is_saved_or_undone(path: Path) -> None:
    documents = opened(path)
    (buffer,) = documents.at(path)
    assert not buffer.dirty
    documents.change(NEOVIM, to_uri(path), version=2, changes=typed("x"))
    assert buffer.dirty
    documents.change(NEOVIM, to_uri(path), version=3, changes=(Change("", Range(Position(0, 0), Position(0, 1))),))
    assert not buffer.dirty
    documents.change(NEOVIM, to_uri(path), version=4, changes=typed("y"))
    documents.save(NEOVIM, to_uri(path))
    assert not buffer.dirty


def test_a_buffer_that_comes_with_unsaved_text_is_dirty(path: Path) -> None:
    """A client that attaches to a buffer which was edited before, or restores one."""
    documents = opened(path, text="other\n")
    assert documents.at(path)[0].dirty
    documents.change(NEOVIM, to_uri(path), version=1, changes=(Change("one\ntwo\n"),))
    assert not documents.at(path)[0].dirty


def test_a_file_that_others_change_does_not_make_a_clean_buffer_dirty(path: Path) -> None:
    documents = opened(path)
    path.write_bytes(b"changed by git checkout\n")
    assert not documents.at(path)[0].dirty
    path.unlink()
    assert not documents.at(path)[0].dirty


def test_a_buffer_that_is_loaded_again_from_a_changed_file_is_clean(path: Path) -> None:
    documents = opened(path)
    path.write_bytes(b"new\n")
    documents.change(NEOVIM, to_uri(path), version=2, changes=(Change("new\n"),))
    assert not documents.at(path)[0].dirty


def test_a_dirty_buffer_becomes_clean_when_the_file_gets_its_text(path: Path) -> None:
    documents = opened(path, text="mine\n")
    assert documents.unsaved(path)
    path.write_bytes(b"mine\n")
    assert not documents.unsaved(path)


def test_a_new_buffer_is_clean_while_it_is_empty_and_dirty_with_text(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "new.py"
    documents = Documents()
    (buffer,) = (documents.open(NEOVIM, to_uri(path), version=1, text="\n"),)
    assert not buffer.dirty
    documents.change(NEOVIM, to_uri(path), version=2, changes=typed("x"))
    assert documents.unsaved(path) == (buffer,)


@pytest.mark.parametrize(
    ("data", "text"), [(b"\xef\xbb\xbfa\r\nb\n", "a\r\nb\r\n"), (b"caf\xe9\n", "caf\ufffd\n"), (b"caf\xe9", "café\n")]
)
def test_an_editors_way_of_reading_a_file_is_not_dirty(path: Path, data: bytes, text: str) -> None:
    path.write_bytes(data)
    assert not opened(path, text=text).at(path)[0].dirty


def test_what_cannot_be_compared_is_dirty_and_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "pipe"
    os.mkfifo(path)
    assert opened(path, text="x").at(path)[0].dirty


# Several editors -----------------------------------------------------------------------------------------------


def test_the_editor_with_the_dirty_buffer_holds_a_file_else_the_one_active_last(path: Path) -> None:
    documents = opened(path, VSCODE)
    documents.open(NEOVIM, to_uri(path), version=1, text="one\ntwo\n")

    def holder() -> str:
        return documents.at(path)[0].editor.name

    assert holder() == NEOVIM.name
    documents.active(VSCODE)
    assert holder() == VSCODE.name
    documents.change(NEOVIM, to_uri(path), version=2, changes=typed("x"))
    documents.active(VSCODE)
    assert holder() == NEOVIM.name
    documents.change(VSCODE, to_uri(path), version=2, changes=typed("y"))
    assert holder() == VSCODE.name
    assert [buffer.text for buffer in documents.unsaved(path)] == ["yone\ntwo\n", "xone\ntwo\n"]


def test_editors_of_one_name_are_two(path: Path) -> None:
    documents = opened(path)
    documents.open(FakeEditor(NEOVIM.name), to_uri(path), version=1, text="x")
    assert len(documents.at(path)) == 2
    assert len(documents.unsaved(path)) == 1


def test_an_editor_that_leaves_takes_its_buffers_with_it(path: Path) -> None:
    documents = opened(path, text="unsaved\n")
    documents.open(VSCODE, to_uri(path), version=1, text="one\ntwo\n")
    documents.leave(NEOVIM)
    assert [buffer.editor for buffer in documents.at(path)] == [VSCODE]
    documents.leave(VSCODE)
    documents.leave(VSCODE)
    assert documents.at(path) == ()


def test_all_unsaved_buffers_are_told_by_path(tmp_path: Path) -> None:
    documents = Documents()
    for name in ("b", "a", "c"):
        path = tmp_path.resolve() / name
        path.write_text("c")
        documents.open(NEOVIM, to_uri(path), version=1, text=name)
    assert [buffer.path.name for buffer in documents.all_unsaved()] == ["a", "b"]
