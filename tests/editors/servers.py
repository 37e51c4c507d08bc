"""The server that editors talk to in these tests: the real one, whose model follows a script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.editors.programs import TOOLS

SERVE = (sys.executable, "-P", "-m", "agentls", "serve")
WORDS = " ".join(f"word{n}" for n in range(400))
SCRIPT = {
    "pace": 8,
    "replies": [
        {
            "when": "write it",
            "step": 0,
            "pieces": [{"call": {"name": "write", "arguments": {"path": "made.txt", "content": "made\n"}}}],
        },
        {"when": "write it", "pieces": [{"text": "I was told: {result}"}]},
        {"when": "at length", "pieces": [{"reasoning": "Let me think."}, {"text": WORDS}]},
        {"when": "for ever", "pieces": [{"text": "It begins "}, {"wait": 600000}]},
        {
            "when": "read it",
            "step": 0,
            "pieces": [{"call": {"name": "read", "arguments": {"path": "a.txt"}}}],
        },
        {"when": "read it", "result": "(?s)(?P<unsaved>typed just now)", "pieces": [{"text": "It says: {unsaved}"}]},
        {"when": "badly", "pieces": [{"text": "red \u001b[31m and \u202e back"}]},
    ],
}


def scripted(folder: Path) -> tuple[str, ...]:
    """The command of a server with the script, whose state is in a folder."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    return (*SERVE, "--model", "script/script", "--script", str(script), "--state-dir", str(folder / "state"))


def local(folder: Path) -> str:
    """The plugin's settings for a server with the local model, whose state is in a folder."""
    return started_by((*SERVE, "--state-dir", str(folder / "state")), AGENTLS_MODELS_DIR=str(TOOLS / "models"))


def started_by(command: Sequence[str], **env: str) -> str:
    """The plugin's settings, in Lua, for a server that it starts itself."""
    words = ", ".join(map(json.dumps, command))
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
    return f"{{ cmd = {{ {words} }}, env = {{ {given} }} }}"


def server_of(pid: int) -> int:
    """The server among the processes that a process has started, or that those have."""
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        if b"\0agentls\0" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
        if found := server_of(child):
            return found
    return 0


@contextmanager
def on_socket(folder: Path, serve: tuple[str, ...]) -> Iterator[Path]:
    """A server that listens, ended afterwards."""
    path = folder / "run" / "socket"
    process = subprocess.Popen((*serve, "--socket", str(path)), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while "listening on" not in (line := process.stderr.readline()):
            assert line, "the server has ended"
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=30)
