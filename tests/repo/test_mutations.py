"""The table of guards that `scripts/mutate` breaks fits the code that it names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "scripts" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["mutate"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GUARDS = load().guards()


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.promise)
def test_a_guard_stands_once_and_its_tests_are_there(guard: Any) -> None:
    text = (ROOT / "server" / "agentls" / guard.file).read_text()
    assert text.count(guard.whole) == 1
    assert guard.broken != guard.whole
    for test in guard.tests:
        assert (ROOT / test).is_file()


def test_there_are_at_least_fifteen() -> None:
    assert len(GUARDS) >= 15
    assert len({guard.promise for guard in GUARDS}) == len(GUARDS)
