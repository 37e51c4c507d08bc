"""The import contracts of pyproject.toml go red: a small tree of our layers, one forbidden import at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Every import here is allowed.
SOURCES = {
    "__init__.py": "",
    "__main__.py": "import agentls.app",
    "cli/__init__.py": "import agentls.app",
    "settings.py": "import agentls.core.ids",
    "app.py": "import agentls.settings, agentls.lsp.server, agentls.agent.loop, agentls.store.sqlite",
    "lsp/__init__.py": "",
    "lsp/server.py": "import pygls, lsprotocol, agentls.agent.loop",
    "agent/__init__.py": "",
    "agent/loop.py": "import asyncio, agentls.models.model, agentls.store.sqlite, agentls.core.session",
    "models/__init__.py": "",
    "models/model.py": "import agentls.core.ids",
    "models/dialects/__init__.py": "",
    "models/dialects/one.py": "import agentls.models.model",
    "models/dialects/two.py": "import json",
    "context/__init__.py": "",
    "context/producer.py": "import agentls.workspace.roots",
    "tools/__init__.py": "",
    "tools/tool.py": "import agentls.workspace.roots, pydantic",
    "store/__init__.py": "",
    "store/sqlite.py": "import sqlite3, agentls.core.session",
    "workspace/__init__.py": "",
    "workspace/roots.py": "import os, agentls.core.ids",
    "core/__init__.py": "",
    "core/ids.py": "import dataclasses, hashlib, typing",
    "core/session.py": "import agentls.core.ids",
}


def lint(root: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    for name, text in (SOURCES | changes).items():
        path = root / "server" / "agentls" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    (root / "pyproject.toml").write_bytes((REPOSITORY / "pyproject.toml").read_bytes())
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as run; run()",
            "--no-cache",
        ],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "server"), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_allowed_imports_keep_every_contract(tmp_path: Path) -> None:
    done = lint(tmp_path)
    assert "5 kept, 0 broken" in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("changes", "contract"),
    [
        ({"core/ids.py": "import agentls.agent.loop"}, "layers"),
        ({"models/model.py": "import agentls.store.sqlite"}, "layers"),
        ({"agent/loop.py": "import agentls.lsp.server"}, "layers"),
        ({"tools/tool.py": "import agentls.models.model"}, "layers"),
        ({"workspace/roots.py": "import agentls.tools.tool"}, "layers"),
        ({"managers.py": ""}, "layers"),
        ({"core/ids.py": "import asyncio"}, "core does no IO"),
        ({"core/ids.py": "from time import time"}, "core does no IO"),
        ({"agent/loop.py": "import pygls.lsp.server"}, "only lsp knows LSP"),
        ({"app.py": "from lsprotocol import types"}, "only lsp knows LSP"),
        ({"models/dialects/one.py": "import agentls.models.dialects.two"}, "dialects are independent"),
        ({"core/ids.py": "import agentls.core.session"}, "no cycles in core"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_forbidden_import_breaks_its_contract(changes: dict[str, str], contract: str, tmp_path: Path) -> None:
    done = lint(tmp_path, **changes)
    assert f"{contract} BROKEN" in done.stdout, done.stdout
    assert done.returncode == 1
