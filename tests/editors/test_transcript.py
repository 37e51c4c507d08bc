"""Golden sequences of what a server sends, and the blocks that a client then holds: in Python and in Lua alike.

A golden file is `{rule, steps: [{attached | frame | state | page: params}], said: [ok | old | gap], blocks}`, where
`said` is what becomes of each step, and `blocks` are the final ones in their order, with the fields that matter; null
is a field that must not be there. A step that is not `ok` changes nothing.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from tests.editors import reducers
from tests.reducer import Broken, Reducer

GOLDEN = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(reducers.GOLDEN.glob("*.json"))}


@cache
def in_lua() -> dict[str, dict[str, Any]]:
    """What the plugin's reducer makes of all of them."""
    return reducers.played(reducers.GOLDEN)


def in_python(golden: dict[str, Any]) -> dict[str, Any]:
    """What the reducer of the tests makes of it, which refuses what a client answers by another attach."""
    reducer, said = Reducer(), []
    for step in golden["steps"]:
        ((verb, params),) = step.items()
        before = deepcopy((reducer.blocks, reducer.rev))
        try:
            match verb:
                case "attached":
                    reducer.attached(params)
                case "page":
                    reducer.paged(params)
                case _:
                    reducer.notified("agent/blocks" if verb == "frame" else "agent/state", params)
        except Broken:
            reducer.blocks, reducer.rev = before
            said.append("refused")
        else:
            said.append("ok")
    return {"said": said, "blocks": reducer.ordered()}


def check(golden: dict[str, Any], blocks: list[dict[str, Any]]) -> None:
    wanted = golden["blocks"]
    assert [block["id"] for block in blocks] == [block["id"] for block in wanted], golden["rule"]
    for block, fields in zip(blocks, wanted, strict=True):
        assert {name: block.get(name) for name in fields} == fields, golden["rule"]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_plugin_for_neovim_holds_what_the_sequence_says(name: str) -> None:
    golden, found = GOLDEN[name], in_lua()[name]
    assert found["said"] == golden["said"], golden["rule"]
    check(golden, found["blocks"] or [])


@pytest.mark.parametrize("name", GOLDEN)
def test_the_reducer_of_the_tests_holds_the_same(name: str) -> None:
    golden = GOLDEN[name]
    found = in_python(golden)
    assert found["said"] == ["ok" if said == "ok" else "refused" for said in golden["said"]], golden["rule"]
    check(golden, found["blocks"])
