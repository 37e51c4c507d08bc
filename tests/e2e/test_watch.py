"""A test over a server process fails when that process finds a log that breaks a rule."""

from __future__ import annotations

import sys
from asyncio.subprocess import PIPE, create_subprocess_exec

import pytest

from tests.e2e.editors import Stderr

PROGRAM = """
from agentls.agent.watching import Watch
from agentls.cli.serve import _log
from agentls.core.events import Event, StepStart

_log("info")
Watch("an agent", [Event(0, 0, StepStart(1, 1))])
"""


async def test_what_a_servers_watch_says_fails_the_test() -> None:
    process = await create_subprocess_exec(sys.executable, "-c", PROGRAM, stderr=PIPE)
    stderr = Stderr(process)
    assert await process.wait() == 0
    await stderr.end()
    with pytest.raises(AssertionError, match="the log of agent an agent breaks a rule"):
        stderr.check()
