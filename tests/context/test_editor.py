"""`editor`: what one editor shows, what all of them have not saved, and no text from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.context.editor import OPEN_MAX, PLACES_MAX, SELECTED_MAX, UNSAVED_MAX, EditorView
from agentls.workspace.documents import Documents
from agentls.workspace.editor import Focus
from agentls.workspace.positions import Change, Position, PositionEncoding, Range
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


def looking(
    at: Path | str,
    *selections: tuple[int, int, int, int],
    visible: tuple[tuple[int, int], ...] = (),
    encoding: PositionEncoding = "utf-32",
    selected_at: int = 100,
) -> FakeEditor:
    """An editor that shows a file; it was last edited before act 100 unless a test says otherwise."""
    ranges = tuple(Range(Position(*each[:2]), Position(*each[2:])) for each in selections)
    uri = at if isinstance(at, str) else to_uri(at)
    return FakeEditor(encoding=encoding, focus=Focus(uri, ranges, visible, selected_at=selected_at))


# What is shown -------------------------------------------------------------------------------------------------


async def test_without_an_editor_or_a_document_nothing_is_said(space: Space) -> None:
    assert await space.told(None) == {}
    assert await space.told(FakeEditor()) == {}


async def test_file_cursor_and_visible_lines_are_counted_from_one(space: Space) -> None:
    editor = looking(space.file, (1, 3, 1, 3), visible=((0, 3),))
    space.open(editor, space.file)
    assert await space.told(editor) == {
        "active file": "src/a.py in neovim 0.11.4",
        "cursor": "line 2, character 4",
        "visible lines": "1 to 4",
    }


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ((1, 4, 1, 7), "🙂 t"),
        ((0, 1, 2, 2), "ne\ntwo 🙂 too\nth"),
        ((1, 0, 3, 0), "two 🙂 too\nthree\n"),
        ((2, 0, 90, 5), "three\nfour\n"),
        ((0, 90, 1, 90), "\ntwo 🙂 too"),
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
    assert told["selection"].startswith(f"line {selection[0] + 1}, character ")


@pytest.mark.parametrize(("encoding", "start", "end"), [("utf-8", 8, 9), ("utf-16", 6, 7), ("utf-32", 5, 6)])
async def test_characters_are_counted_as_the_editor_counts_them(
    space: Space, encoding: PositionEncoding, start: int, end: int
) -> None:
    editor = looking(space.file, (1, start, 1, end), encoding=encoding)
    space.open(editor, space.file, unsaved=BODY.replace("two 🙂 too", "two 🙂too"))
    told = await space.told(editor)
    assert told["selection"] == "line 2, character 6, up to line 2, character 7"
    assert told["selected text"] == "```\nt\n```"


async def test_a_file_is_the_same_by_any_spelling_of_its_uri(space: Space) -> None:
    spelled = to_uri(space.file).replace("a.py", "%61.py").replace("file:///", "file://localhost/")
    editor = looking(spelled, (0, 0, 0, 3))
    space.open(editor, space.file)
    assert (await space.told(editor))["selected text"] == "```\none\n```"


async def test_of_a_selection_from_before_an_edit_only_the_lines_are_told(space: Space) -> None:
    editor = looking(space.file, (1, 4, 1, 7), (0, 1, 2, 2), (3, 1, 3, 1), visible=((0, 90),), selected_at=1)
    space.open(editor, space.file, unsaved="inserted\none\ntwo")
    told = await space.told(editor)
    assert told["selection"] == "line 2\nlines 1 to 3"
    assert (told["cursor"], told["visible lines"]) == ("line 3", "1 to 3")
    assert "selected text" not in told


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
    space.open(editor, space.file, unsaved="text\n" * many)
    told = await space.told(editor)
    assert told["cursor"].endswith("line 5, character 1\n... (3 more cursors)")
    assert told["selection"].endswith("\n... (3 more selections)")
    assert told["visible lines"].endswith("5 to 5\n... (3 more parts)")
    assert told["selected text"].count("```") == 2 * PLACES_MAX


async def test_text_that_the_editor_has_not_opened_here_is_not_given(space: Space) -> None:
    editor = looking(space.file, (0, 0, 1, 0))
    space.open(FakeEditor("other"), space.file)
    assert await space.told(editor) == {"active file": "src/a.py in neovim 0.11.4", "selection": "lines 1 to 2"}


async def test_open_files_of_the_workspace_are_named_and_bounded(space: Space) -> None:
    files = [space.make(space.root / f"{n:03}") for n in range(OPEN_MAX + 2)]
    opened = (to_uri(space.outside), "untitled:a", *map(to_uri, files), to_uri(files[0]))
    told = await space.told(FakeEditor(focus=Focus(open=opened)))
    lines = told["open files"].split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("000", "... (2 more files)", OPEN_MAX + 1)
    assert set(told) == {"open files"}


# What is outside -----------------------------------------------------------------------------------------------


async def test_a_file_outside_is_named_without_its_text(space: Space) -> None:
    editor = looking(space.outside, (0, 0, 1, 0))
    space.open(editor, space.outside, unsaved="secret\n")
    told = await space.told(editor)
    assert told["active file"] == f"{space.outside} (outside of the workspace) in neovim 0.11.4"
    assert "unsaved files" not in told
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
    selected = (Range(Position(0, 0), Position(0, 3)),)
    editor = FakeEditor(focus=Focus("untitled:Untitled-1", selected, dirty=("untitled:Untitled-1",)))
    assert await space.told(editor) == {
        "active file": "untitled:Untitled-1 in neovim 0.11.4",
        "selection": "line 1",
        "unsaved files": "untitled:Untitled-1 in neovim 0.11.4",
    }


async def test_what_is_no_file_is_one_line_each_and_bounded(space: Space) -> None:
    many = tuple(f"untitled:{n}\n{'x' * 1_000}" for n in range(UNSAVED_MAX + 7))
    told = await space.told(FakeEditor(focus=Focus(many[0], dirty=(*many, *many))))
    lines = told["unsaved files"].split("\n")
    assert told["active file"] == lines[0]
    assert lines[0].startswith("untitled:0 xxx")
    assert (len(lines), lines[-1]) == (UNSAVED_MAX + 1, "... (7 more files)")
    assert max(map(len, lines)) < 250


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
    editor = FakeEditor()
    space.open(FakeEditor("other"), space.outside, unsaved="x")
    space.open(editor, space.outside, unsaved="y")
    assert await space.told(editor) == {}


async def test_unsaved_files_are_bounded_and_the_rest_counted(space: Space) -> None:
    editor = FakeEditor()
    for n in range(UNSAVED_MAX + 7):
        space.open(editor, space.make(space.root / f"{n:03}\nx"), unsaved="x")
    lines = (await space.told(editor))["unsaved files"].split("\n")
    assert len(lines) == UNSAVED_MAX + 1
    assert lines[0] == "000 x in neovim 0.11.4"
    assert lines[-1] == "... (7 more files)"
