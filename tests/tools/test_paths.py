"""Paths that a model names: inside the workspace, by any spelling, and plain words for everything else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentls.tools.paths import failures, locate, shown
from agentls.tools.tool import ToolError
from agentls.workspace.disk import NotRegular
from agentls.workspace.roots import Roots
from agentls.workspace.uris import to_uri
from tests.tools.support import Space

TOOLS = [("read", {}), ("list_files", {}), ("write", {"content": "x"})]


def test_a_path_may_be_relative_absolute_or_a_file_uri(space: Space) -> None:
    """L09."""
    path = space.file("[a] #1+$%.py")
    for text in ("[a] #1+$%.py", str(path), to_uri(path), f"./sub/../{path.name}"):
        assert locate(space.context, text) == path


@pytest.mark.parametrize(("tool", "arguments"), TOOLS)
@pytest.mark.parametrize("uri", ["untitled:///Untitled-1", "https://example.org/a.py", "vscode-remote://ssh/a"])
async def test_a_uri_that_is_no_file_is_refused_with_a_clear_error(
    space: Space, tool: str, arguments: dict[str, str], uri: str
) -> None:
    """L09."""
    error = await space.refusal(tool, path=uri, **arguments)
    assert error.code == "INVALID_ARGS"
    assert f'"{uri}" is no file on disk' in error.text


@pytest.mark.parametrize(("tool", "arguments"), TOOLS)
@pytest.mark.parametrize("path", ["../outside/secret", "link", "/etc/passwd", "sub/../../outside/secret"])
async def test_no_tool_leaves_the_workspace(space: Space, tool: str, arguments: dict[str, str], path: str) -> None:
    """E10: also by a link whose target is outside."""
    outside = space.root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (space.root / "link").symlink_to(outside / "secret")
    error = await space.refusal(tool, path=path, **arguments)
    assert error.code == "OUTSIDE_WORKSPACE"
    assert path in error.text
    assert str(space.root) in error.text
    assert (outside / "secret").read_text() == "s"


@pytest.mark.parametrize(("tool", "arguments"), TOOLS)
async def test_links_that_go_round_in_a_circle_are_an_error(space: Space, tool: str, arguments: dict[str, str]) -> None:
    """E10: loop."""
    (space.root / "one").symlink_to("two")
    (space.root / "two").symlink_to("one")
    error = await space.refusal(tool, path="one", **arguments)
    assert (error.code, error.text) == ("IO", '"one" cannot be used: its links go round in a circle')


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_a_path_that_can_be_none_is_refused(space: Space, text: str) -> None:
    with pytest.raises(ToolError) as error:
        locate(space.context, text)
    assert error.value.code == "INVALID_ARGS"


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (FileNotFoundError(), "NOT_FOUND", 'there is no "f"'),
        (IsADirectoryError(), "IS_DIRECTORY", '"f" is a folder'),
        (NotADirectoryError(), "NOT_A_DIRECTORY", '"f" is not there'),
        (PermissionError(), "PERMISSION", 'no permission for "f"'),
        (NotRegular(), "IO", '"f" is a pipe'),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "IO", '"f" cannot be used: No space left on device'),
        (OSError("odd"), "IO", '"f" cannot be used: odd'),
    ],
)
def test_what_the_system_says_has_a_stable_code_and_names_the_file(fault: Exception, code: str, says: str) -> None:
    with pytest.raises(ToolError) as error, failures("f"):
        raise fault
    assert error.value.code == code
    assert says in error.value.text


def test_a_name_is_one_line_with_nothing_hidden(tmp_path: Path) -> None:
    """Z15: a file name can hold what a terminal obeys."""
    roots = Roots([tmp_path])
    folder = roots.folders[0]
    assert shown(roots, folder / "src/a b.py") == "src/a b.py"
    assert shown(roots, folder / "a\nb\x1b[1m\u202ec") == "a⟨U+000A⟩b␛[1m⟨U+202E⟩c"
    assert shown(roots, folder / os.fsdecode(b"caf\xe9")) == "caf\ufffd"
