"""What holds for every test: the rules of every log are checked while it is written, here and in each server process.

A test that takes `caplog` looks at what was logged itself; any other fails when a rule was broken.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from agentls.agent import watching
from agentls.settings import INVARIANTS_VARIABLE

os.environ[INVARIANTS_VARIABLE] = "1"


class _Broken(logging.Handler):
    """Keeps what the watch says."""

    def __init__(self) -> None:
        super().__init__(logging.CRITICAL)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_log_breaks_a_rule(request: pytest.FixtureRequest) -> Iterator[None]:
    broken = _Broken()
    watching.logger.addHandler(broken)
    try:
        yield
    finally:
        watching.logger.removeHandler(broken)
    assert "caplog" in request.fixturenames or not broken.said, broken.said
