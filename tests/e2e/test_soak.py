"""The server is killed fifty times while four agents work, and must have lost nothing: a short run of `scripts/soak`.

It is a test and no step of its own in CI, so that whoever runs the tests runs it, beside the others that make the
machine busy. Each run takes another seed, which a failure names.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from tests.processes import environment

KILLS = 50


@pytest.mark.timeout(900)
async def test_nothing_is_lost_in_fifty_kills(tmp_path: Path) -> None:
    """Statements 37, 47 and 58; case Q09."""
    command = (sys.executable, "-P", "-m", "tests.soak", "--kill", str(KILLS))
    env = environment() | {"TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT, env=env)
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # It ends its server, too.
            await process.wait()
    assert process.returncode == 0, said.decode(errors="replace")
    assert f"{KILLS} kills in" in said.decode()
    assert os.listdir(tmp_path) == [], "it leaves nothing behind"
