"""The reference page of the tools, from the registry that the model is told of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import cast

from agentls.core.json import JsonObject, JsonValue
from agentls.tools.registry import Registry, ToolFacts
from agentls.tools.tool import CODES

_INTRO = """# Tools

Generated from `server/agentls/tools/` by `scripts/generate`; a test fails when this page is stale.

What a model can ask for. A call whose arguments do not fit is answered with what is wrong and does not run. A tool that changes nothing is offered also to an agent in read-only mode.
"""  # noqa: E501 - one line a paragraph

_CODES = """
## Codes

A call that fails is answered too: with a text that tells the model what to do, and with one of these codes for whoever draws or judges it.

| code | meaning |
|---|---|
"""  # noqa: E501 - one line a paragraph

_ARGUMENTS = """
| argument | takes | default | meaning |
|---|---|---|---|
"""


def reference(tools: Registry) -> str:
    """The page as Markdown."""
    codes = "".join(f"| `{code}` | {_cell(meaning)} |\n" for code, meaning in CODES.items())
    return _INTRO + "".join(map(_section, tools.facts())) + _CODES + codes


def _section(tool: ToolFacts) -> str:
    changes = "nothing; offered in read-only mode too" if tool.read_only else "something; not offered in read-only mode"
    rows = "".join(_rows(tool.schema.parameters))
    return (
        f"\n## `{tool.schema.name}`\n\n{tool.schema.description}\n\n"
        f"- Changes: {changes}.\n- Asks the person: {tool.asks[:1].lower()}{tool.asks[1:]}\n"
        f"{_ARGUMENTS + rows if rows else ''}"
    )


def _rows(parameters: JsonObject) -> Iterator[str]:
    required = cast(list[JsonValue], parameters.get("required", []))
    for name, schema in cast(JsonObject, parameters.get("properties", {})).items():
        node = cast(JsonObject, schema)
        default = "" if name in required else f"`{json.dumps(node.get('default'), ensure_ascii=False)}`"
        yield f"| `{name}` | {_cell(_takes(node))} | {_cell(default)} | {_cell(str(node.get('description', '')))} |\n"


def _takes(node: JsonObject) -> str:
    """A schema in few words: `whole number, at least 1`."""
    match node:
        case {"enum": list(values)}:
            return " or ".join(f"`{json.dumps(value, ensure_ascii=False)}`" for value in values)
        case {"anyOf": list(options)}:
            return " or ".join(_takes(cast(JsonObject, option)) for option in options)
        case {"type": "array"}:
            return f"list of {_takes(cast(JsonObject, node.get('items', {})))}"
        case {"$ref": str(target)}:
            return f"object `{target.rpartition('/')[2]}`"
    words = {"integer": "whole number", "boolean": "true or false", "string": "text"}
    kind = str(node.get("type", "anything"))
    limits = (f", {word} {node[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in node)
    return words.get(kind, kind) + "".join(limits)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
