"""Inside or outside: by the real path, whatever links and dots are on the way."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agentls.workspace.roots import OutsideRoots, Roots, real


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A workspace with a file and a folder, and something outside of it."""
    for folder in ("ws/src", "ws-other", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ws/src/a.py").write_text("a\n")
    (tmp_path / "outside/secret").write_text("s\n")
    return tmp_path.resolve()


def test_a_path_is_found_relative_absolute_and_through_links_inside(space: Path) -> None:
    (space / "ws/link.py").symlink_to("src/a.py")
    (space / "ws/again").symlink_to(space / "ws/link.py")
    roots = Roots([space / "ws"])
    for path in ("src/a.py", "./src/../src/a.py", "link.py", "again", str(space / "ws/src/a.py")):
        assert roots.resolve(Path(path)) == space / "ws/src/a.py"


def test_what_does_not_exist_yet_is_inside_where_it_would_be(space: Path) -> None:
    (space / "ws/dangling").symlink_to("src/new.py")
    roots = Roots([space / "ws"])
    assert roots.resolve(Path("src/new/deep.py")) == space / "ws/src/new/deep.py"
    assert roots.resolve(Path("dangling")) == space / "ws/src/new.py"


@pytest.mark.parametrize(
    "path", ["../outside/secret", "src/../../outside/secret", "/etc/passwd", "out/secret", "out2", "../ws-other", ".."]
)
def test_a_path_that_leads_out_is_outside_by_dots_by_links_and_by_a_name_that_only_begins_alike(
    space: Path, path: str
) -> None:
    """E10: a link whose target is outside of the workspace."""
    (space / "ws/out").symlink_to(space / "outside")
    (space / "ws/out2").symlink_to("../outside/not-there-yet")
    with pytest.raises(OutsideRoots):
        Roots([space / "ws"]).resolve(Path(path))


def test_dots_after_a_link_go_up_from_where_the_link_leads(space: Path) -> None:
    (space / "ws/out").symlink_to(space / "outside")
    with pytest.raises(OutsideRoots) as outside:
        Roots([space / "ws"]).resolve(Path("out/../ws-other"))
    assert outside.value.path == space / "ws-other"


def test_a_loop_of_links_is_an_error(space: Path) -> None:
    """E10: loop."""
    (space / "ws/one").symlink_to("two")
    (space / "ws/two").symlink_to("one")
    for path in ("one", "two/below"):
        with pytest.raises(OSError, match="symbolic links") as loop:
            Roots([space / "ws"]).resolve(Path(path))
        assert loop.value.errno == errno.ELOOP


def test_a_root_that_is_a_link_holds_what_its_target_holds(space: Path) -> None:
    (space / "shortcut").symlink_to("ws")
    roots = Roots([space / "shortcut"])
    assert roots.folders == (space / "ws",)
    assert roots.resolve(space / "shortcut/src/a.py") == space / "ws/src/a.py"


def test_of_several_roots_the_innermost_holds_a_path_and_the_first_one_names_it(space: Path) -> None:
    roots = Roots([space / "ws", space / "outside", space / "ws/src", space / "ws"])
    assert roots.folders == (space / "ws", space / "outside", space / "ws/src")
    path = roots.resolve(Path("src/a.py"))
    assert roots.root_of(path) == space / "ws/src"
    assert roots.name(path) == "src/a.py"
    secret = roots.resolve(space / "outside/secret")
    assert roots.name(secret) == str(space / "outside/secret")
    assert roots.resolve(Path(roots.name(secret))) == secret
    assert roots.name(space / "ws") == "."


def test_a_workspace_without_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Roots([])


def test_a_file_where_a_folder_should_be_is_an_error(space: Path) -> None:
    with pytest.raises(NotADirectoryError):
        real(space / "ws/src/a.py/below")
