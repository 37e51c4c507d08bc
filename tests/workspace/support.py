"""Editors that only have a name, and a user without root's powers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentls.workspace.editor import NO_FOCUS, Focus
from agentls.workspace.positions import PositionEncoding

NOBODY = 65534


@dataclass(frozen=True, eq=False, slots=True)
class FakeEditor:
    """Two of them are never the same, whatever they are called."""

    name: str = "neovim 0.11.4"
    encoding: PositionEncoding = "utf-16"
    id: str = "test:1"
    focus: Focus = NO_FOCUS


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder that anybody can write to, and the rights of an ordinary user while in it: root may do everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o777)
        root = os.getuid() == 0
        if root:
            os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield folder
        finally:
            if root:
                os.setresuid(0, 0, 0)
