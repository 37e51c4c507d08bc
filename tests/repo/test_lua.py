"""The Lua code is formatted and linted by real programs, run in a way of our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.editors import programs

ROOT = Path(__file__).resolve().parents[2]
CLEAN = """local M = {}

function M.start()
  vim.g.agentls = "started"
end

return M
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a folder" / "lua" / "code.lua"
    path.parent.mkdir(parents=True)
    path.write_text(CLEAN)
    return path


def stylua(*arguments: object, toml: Path = ROOT / "editors/neovim/stylua.toml") -> subprocess.CompletedProcess[str]:
    write = [argument for argument in arguments if argument == "--write"]
    rest = [argument for argument in arguments if argument != "--write"]
    command = ["node", str(ROOT / "scripts/stylua.mjs"), *map(str, [*write, toml, *rest])]
    programs.stylua()
    return subprocess.run(command, capture_output=True, text=True, check=False)


def luacheck(place: Path) -> subprocess.CompletedProcess[str]:
    config = ROOT / "editors/neovim/.luacheckrc"
    options = ["--quiet", "--no-cache", "--no-color", "--codes"]
    command: list[str | Path] = [programs.luacheck(), *options, "--config", config, place]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_code_that_is_not_formatted_is_named_and_written_anew_only_when_asked(file: Path) -> None:
    assert stylua(file.parent).returncode == 0
    ugly = CLEAN.replace("  vim", "\tvim").replace('"', "'")
    file.write_text(ugly)
    checked = stylua(file.parents[1])
    assert (checked.returncode, file.read_text()) == (1, ugly)
    assert f"not formatted: {file}" in checked.stdout
    assert stylua("--write", file).returncode == 0
    assert file.read_text() == CLEAN


def test_code_that_does_not_parse_fails_and_is_left_as_it_is(file: Path) -> None:
    file.write_text("local =\n")
    for arguments in ((file,), ("--write", file)):
        done = stylua(*arguments)
        assert done.returncode == 1
        assert f"{file}: error parsing" in done.stdout
    assert file.read_text() == "local =\n"


def test_a_setting_that_the_formatter_does_not_know_is_an_error(file: Path, tmp_path: Path) -> None:
    toml = tmp_path / "stylua.toml"
    for line in ("colum_width = 120", 'indent_type = "Spicks"', "column_width = 1.5", "[sort_requires]"):
        toml.write_text(f"{line}\n")
        done = stylua(file, toml=toml)
        assert done.returncode == 1
        assert f'"{line}" is not a setting' in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("started = true", "W111"),
        ("print(unknown)", "W113"),
        ("vim.api = nil", "W122"),
        ("local unused = 1", "W211"),
        (f"-- {'long ' * 30}", "W631"),
        ("local =", "E011"),
    ],
)
def test_a_fault_in_the_code_is_found(line: str, code: str, file: Path) -> None:
    assert luacheck(file.parents[1]).returncode == 0
    file.write_text(CLEAN.replace('  vim.g.agentls = "started"', f"  {line}"))
    done = luacheck(file.parents[1])
    assert done.returncode != 0
    assert f"({code})" in done.stdout
