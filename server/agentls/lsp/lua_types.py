"""The wire types as classes for the language server of Lua, from the same definitions as the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from agentls.core.json import JsonObject, JsonValue

_PLAIN = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "null": "nil",
    "object": "table<string, any>",
}


def lua_types(known: JsonObject) -> str:
    """A Lua module that declares every definition as `agentls.NAME` and does nothing else."""
    return "\n".join(_module(known)) + "\n"


def _module(known: JsonObject) -> Iterator[str]:
    yield "-- Made by `python -m agentls.lsp.reference`; do not edit."
    for name, definition in sorted(known.items()):
        found = cast(JsonObject, definition)
        properties = found.get("properties")
        yield ""
        if isinstance(properties, dict):
            required = cast(list[str], found.get("required", []))
            yield f"---@class agentls.{name}"
            for field, value in properties.items():
                kind = _type(cast(JsonObject, value))
                # What may be null is not there for a reader that drops nulls.
                optional = field not in required or kind.endswith("|nil")
                yield f"---@field {field}{'?' if optional else ''} {kind.removesuffix('|nil')}"
        else:
            yield f"---@alias agentls.{name} {_type(found)}"
    yield ""
    yield "return {}"


def _type(value: JsonObject) -> str:
    match value:
        case {"$ref": str(reference)}:
            return f"agentls.{reference.rsplit('/', 1)[-1]}"
        case {"anyOf": list(options)} | {"oneOf": list(options)}:
            return _union([_type(cast(JsonObject, option)) for option in options])
        case {"const": constant}:
            return _literal(constant)
        case {"enum": list(constants)}:
            return _union([_literal(constant) for constant in constants])
        case {"type": "array", "items": dict(items)}:
            kind = _type(items)
            return f"({kind})[]" if "|" in kind else f"{kind}[]"
        case {"type": "array", "prefixItems": list(items)}:
            return f"[{', '.join(_type(cast(JsonObject, item)) for item in items)}]"
        case {"type": "array"}:
            return "any[]"
        case {"type": list(kinds)}:
            return _union([_PLAIN[str(kind)] for kind in kinds])
        case {"type": str(kind)}:
            return _PLAIN[kind]
        case _:
            return "any"


def _literal(value: JsonValue) -> str:
    return json.dumps(value)


def _union(kinds: list[str]) -> str:
    """Each kind once, and nil last."""
    once = dict.fromkeys(kinds)
    return "|".join([kind for kind in once if kind != "nil"] + ["nil"] * ("nil" in once))
