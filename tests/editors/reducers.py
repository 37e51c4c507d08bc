"""The plugin's reducer of what a server sends, run by Neovim without a screen."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, cast

from tests.editors.neovims import PLUGIN
from tests.editors.programs import nvim

GOLDEN = Path(__file__).with_name("golden")
"""The folder of the sequences that every reducer plays."""


def played(folder: Path) -> dict[str, dict[str, Any]]:
    """What the reducer makes of the sequences in a folder, by the names of their files, in one Neovim."""
    done = subprocess.run(
        [nvim(), "--clean", "-l", GOLDEN.with_name("golden.lua"), PLUGIN, folder],
        capture_output=True,
        text=True,
        check=True,
    )
    # `print` of `nvim -l` goes to standard error.
    return cast(dict[str, dict[str, Any]], json.loads(done.stdout or done.stderr))
