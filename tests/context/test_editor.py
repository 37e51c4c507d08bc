"""`editor`: what one editor shows, what all of them have not saved, and no text from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.context.editor import PLACES_MAX, SELECTED_MAX, UNSAVED_MAX, EditorView
from agentls.workspace.documents import Documents
from agentls.workspace.editor import Focus, Selection
from agentls.workspace.positions import Change
from agentls.workspace.uris import to_uri
from tests.context.support import moment, text
from tests.workspace.support import FakeEditor

BODY = "one\ntwo 🙂 too\nthree\nfour\n"


class Space:
    """A workspace with a file, another one outside of it, and what editors have open."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.documents = Documents()
        self.file = self.make(self.root / "src/a.py")
        self.outside = self.make(folder / "outside.py")
        self.view = EditorView(self.documents)

    def make(self, path: Path, body: str = BODY) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
        return path

    def open(self, editor: FakeEditor, path: Path, unsaved: str | None = None) -> None:
        self.documents.open(editor, to_uri(path), version=1, text=path.read_text())
        if unsaved is not None:
            self.documents.change(editor, to_uri(path), version=2, changes=(Change(unsaved),))

    async def told(self, editor: FakeEditor | None) -> dict[str, str]:
        return text(await self.view.read(moment(self.root, editor=editor)))


@pytest.fixture
def space(tmp_path: Path) -> Space:
    return Space(tmp_path.resolve())


def looking(at: Path, *selections: tuple[int, int, int, int], visible: tuple[tuple[int, int], ...] = ()) -> FakeEditor:
    return FakeEditor(focus=Focus(to_uri(at), tuple(Selection(*each) for each in selections), visible))


# What is shown -------------------------------------------------------------------------------------------------


async def test_without_an_editor_or_a_document_nothing_is_said(space: Space) -> None:
    assert await space.told(None) == {}
    assert await space.told(FakeEditor()) == {}


async def test_file_cursor_and_visible_lines_are_counted_from_one(space: Space) -> None:
    editor = looking(space.file, (1, 3, 1, 3), visible=((0, 39),))
    space.open(editor, space.file)
    assert await space.told(editor) == {
        "active file": "src/a.py in neovim 0.11.4",
        "cursor": "line 2, character 4",
        "visible lines": "1 to 40",
    }


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ((1, 4, 1, 7), "🙂 t"),
        ((0, 1, 2, 2), "ne\ntwo 🙂 too\nth"),
        ((1, 0, 3, 0), "two 🙂 too\nthree\n"),
        ((2, 0, 90, 5), "three\nfour\n"),
        ((0, 90, 1, 90), "two 🙂 too\n"),
    ],
)
async def test_selected_text_is_that_of_the_buffer(
    space: Space, selection: tuple[int, int, int, int], selected: str
) -> None:
    editor = looking(space.file, selection)
    space.make(space.file, "what is on disk\n" * 5)
    space.open(editor, space.file, unsaved=BODY)
    told = await space.told(editor)
    fence = "```\n" if selected.endswith("\n") else "\n```\n"
    assert told["selected text"] + "\n" == f"```\n{selected}{fence}"
    assert told["selection"].startswith(f"line {selection[0] + 1}, character {selection[1] + 1}, up to ")


async def test_a_selection_past_the_end_has_no_text(space: Space) -> None:
    editor = looking(space.file, (50, 0, 60, 0))
    space.open(editor, space.file)
    assert (await space.told(editor))["selected text"] == "```\n```"


async def test_selected_text_is_bounded_and_says_what_is_left_out(space: Space) -> None:
    editor = looking(space.file, (0, 0, 0, 5_000), (0, 0, 0, 3))
    space.open(editor, space.file, unsaved="é" * 5_000)
    told = (await space.told(editor))["selected text"]
    kept = "é" * (SELECTED_MAX // 2)
    assert told == f"```\n{kept}\n```\n... ({10_000 - SELECTED_MAX} more bytes are left out)\n```\n```\n" + (
        "... (6 more bytes are left out)"
    )


async def test_selected_text_cannot_end_its_fence(space: Space) -> None:
    editor = looking(space.file, (0, 0, 2, 0))
    space.open(editor, space.file, unsaved="````\nx\n")
    assert (await space.told(editor))["selected text"] == "`````\n````\nx\n`````"


async def test_places_are_bounded_and_the_rest_counted(space: Space) -> None:
    many = PLACES_MAX + 3
    editor = looking(
        space.file,
        *((n, 0, n, 0) for n in range(many)),
        *((n, 0, n, 1) for n in range(many)),
        visible=tuple((n, n) for n in range(many)),
    )
    space.open(editor, space.file)
    told = await space.told(editor)
    assert told["cursor"].endswith("line 5, character 1\n... (3 more cursors)")
    assert told["selection"].endswith("\n... (3 more selections)")
    assert told["visible lines"].endswith("5 to 5\n... (3 more parts)")
    assert told["selected text"].count("```") == 2 * PLACES_MAX


async def test_text_that_the_editor_has_not_opened_here_is_not_given(space: Space) -> None:
    editor = looking(space.file, (0, 0, 1, 0))
    space.open(FakeEditor("other"), space.file)
    assert set(await space.told(editor)) == {"active file", "selection"}


# What is outside -----------------------------------------------------------------------------------------------


async def test_a_file_outside_is_named_without_its_text(space: Space) -> None:
    editor = looking(space.outside, (0, 0, 1, 0))
    space.open(editor, space.outside, unsaved="secret\n")
    told = await space.told(editor)
    assert told["active file"] == f"{space.outside} (outside of the workspace) in neovim 0.11.4"
    assert told["unsaved files"] == f"{space.outside} (outside of the workspace) in neovim 0.11.4"
    assert "secret" not in str(told)


async def test_a_link_that_leads_outside_is_outside(space: Space) -> None:
    link = space.root / "link.py"
    link.symlink_to(space.outside)
    editor = looking(link, (0, 0, 1, 0))
    space.open(editor, link)
    told = await space.told(editor)
    assert "outside of the workspace" in told["active file"]
    assert "selected text" not in told


async def test_what_is_no_file_is_named_by_its_uri(space: Space) -> None:
    editor = FakeEditor(focus=Focus("untitled:Untitled-1", (Selection(0, 0, 0, 3),), dirty=("untitled:Untitled-1",)))
    assert await space.told(editor) == {
        "active file": "untitled:Untitled-1 in neovim 0.11.4",
        "selection": "line 1, character 1, up to line 1, character 4",
        "unsaved files": "untitled:Untitled-1 in neovim 0.11.4",
    }


# What is unsaved -----------------------------------------------------------------------------------------------


async def test_unsaved_files_of_all_editors_are_named_with_their_editors(space: Space) -> None:
    neovim, code = FakeEditor(), FakeEditor("Visual Studio Code 1.107")
    other = space.make(space.root / "b.py")
    space.open(neovim, space.file, unsaved="mine")
    space.open(code, space.file, unsaved="yours")
    space.open(code, other, unsaved="")
    space.open(neovim, other)
    for editor in (neovim, code, None):
        assert await space.told(editor) == {
            "unsaved files": "b.py in Visual Studio Code 1.107\nsrc/a.py in Visual Studio Code 1.107 and neovim 0.11.4"
        }


async def test_unsaved_files_of_other_workspaces_are_not_named(space: Space) -> None:
    space.open(FakeEditor("other"), space.outside, unsaved="x")
    assert await space.told(FakeEditor()) == {}


async def test_unsaved_files_are_bounded_and_the_rest_counted(space: Space) -> None:
    editor = FakeEditor()
    for n in range(UNSAVED_MAX + 7):
        space.open(editor, space.make(space.root / f"{n:03}\nx"), unsaved="x")
    lines = (await space.told(editor))["unsaved files"].split("\n")
    assert len(lines) == UNSAVED_MAX + 1
    assert lines[0] == "000 x in neovim 0.11.4"
    assert lines[-1] == "... (7 more files)"
