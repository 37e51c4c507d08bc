"""The wire types as they are declared for Lua."""

from __future__ import annotations

import subprocess
from pathlib import Path

from agentls.core.json import JsonObject
from agentls.lsp import reference
from agentls.lsp.lua_types import lua_types
from tests.editors.programs import nvim

DEFINITIONS: JsonObject = {
    "Row": {
        "type": "object",
        "required": ["id", "hold", "order", "kinds"],
        "properties": {
            "id": {"type": "string"},
            "hold": {"anyOf": [{"$ref": "#/$defs/Hold"}, {"type": "null"}]},
            "order": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}]},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}},
            "more": {"type": "number"},
        },
    },
    "Hold": {"const": "held"},
}


def test_a_definition_is_a_class_with_its_fields() -> None:
    """What may be left out and what may be null are both optional: a reader that drops nulls sees no difference."""
    lines = lua_types(DEFINITIONS).splitlines()
    assert lines[2:] == [
        '---@alias agentls.Hold "held"',
        "",
        "---@class agentls.Row",
        "---@field id string",
        "---@field hold? agentls.Hold",
        "---@field order [integer, integer]",
        '---@field kinds ("a"|"b")[]',
        "---@field more? number",
        "",
        "return {}",
    ]


def test_the_module_loads_and_knows_every_type_that_it_names(tmp_path: Path) -> None:
    text = reference.pages()[reference.LUA]
    path = tmp_path / "types.lua"
    path.write_text(text)
    subprocess.run([nvim(), "--clean", "-l", path], check=True, capture_output=True)
    words = {word.rstrip("?[]()|,") for word in text.replace("|", " ").replace("(", " ").split()}
    declared = {line.split()[1] for line in text.splitlines() if line.startswith(("---@class", "---@alias"))}
    assert {word for word in words if word.startswith("agentls.") and word[8:9].isupper()} == declared
