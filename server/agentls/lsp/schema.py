"""JSON Schemas of the wire types, and what they say in plain words: for error texts and for the reference page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import cast

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.wire import Wire


class _Plain(GenerateJsonSchema):
    """Without the titles that pydantic makes up from names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def definitions(models: Iterable[type[Wire]]) -> JsonObject:
    """The schemas of `models` and of all that they are made of, by class name."""
    _, schema = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/$defs/{model}", schema_generator=_Plain
    )
    found = cast(JsonObject, schema["$defs"])
    return {name: _clean(found[name]) for name in sorted(found)}


def reference(model: type[Wire]) -> JsonObject:
    """A pointer to a class's definition."""
    return {"$ref": f"#/$defs/{model.__name__}"}


def expected(model: type[Wire], path: Sequence[str | int]) -> str:
    """What the field at `path` of a class takes, in words."""
    known = _of(model)
    node = reference(model)
    for step in path:
        node = _inner(node, step, known)
    return words(node, known)


@cache
def _of(model: type[Wire]) -> JsonObject:
    return definitions((model,))


def words(node: JsonObject, known: JsonObject, *, link: bool = False) -> str:
    """A schema in words: `a string of 1 to 128 characters`. With `link` an object is named instead of explained."""
    if "$ref" in node:
        name = str(node["$ref"]).rpartition("/")[2]
        return f"`{name}`" if link else words(_object(known[name]), known)
    for union in ("anyOf", "oneOf"):
        if union in node:
            choices = [_object(choice) for choice in _list(node[union]) if _object(choice).get("type") != "null"]
            return " or ".join(words(choice, known, link=link) for choice in choices)
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        names = [f'"{name}"' for name in _list(node["enum"])]
        return f"{', '.join(names[:-1])} or {names[-1]}"
    return _simple(node, known, link=link)


def _simple(node: JsonObject, known: JsonObject, *, link: bool) -> str:
    match node.get("type"):
        case "string":
            return "a string" + _range(node.get("minLength"), node.get("maxLength"), " character")
        case "integer":
            return "a whole number" + _range(node.get("minimum"), node.get("maximum"), "")
        case "number":
            return "a number"
        case "boolean":
            return "true or false"
        case "array" if "prefixItems" in node:
            return f"a list of {node['minItems']} whole numbers"
        case "array":
            items = _object(node.get("items", {}))
            return f"a list of {_plural(items, known)}" if link and items else "a list"
        case "object":
            return "an object"
    return "any value"


def _plural(items: JsonObject, known: JsonObject) -> str:
    simple = {"string": "strings", "integer": "whole numbers"}.get(str(items.get("type")))
    return simple if simple and "enum" not in items else words(items, known, link=True)


def _range(low: JsonValue, high: JsonValue, unit: str) -> str:
    if low is None and high is None:
        return ""
    many = unit and unit + "s"
    if high is None:
        if unit:
            return f" of at least {low}{unit if low == 1 else many}"
        return f" from {low}"
    return f" of {low or 0} to {high}{many}" if unit else f" from {low} to {high}"


def _inner(node: JsonObject, step: str | int, known: JsonObject) -> JsonObject:
    if "$ref" in node:
        return _inner(_object(known[str(node["$ref"]).rpartition("/")[2]]), step, known)
    for union in ("anyOf", "oneOf"):
        for choice in _list(node.get(union, [])):
            if inner := _inner(_object(choice), step, known):
                return inner
    if isinstance(step, str):
        return _object(_object(node.get("properties", {})).get(step, {}))
    if "prefixItems" in node:
        items = _list(node["prefixItems"])
        return _object(items[step]) if step < len(items) else {}
    return _object(node.get("items", {}))


def _clean(node: JsonValue) -> JsonValue:
    """Without the class names as titles and with descriptions on one line."""
    if isinstance(node, Mapping):
        return {
            name: " ".join(value.split()) if name == "description" and isinstance(value, str) else _clean(value)
            for name, value in node.items()
            if name != "title" or isinstance(value, Mapping)
        }
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [_clean(item) for item in node]
    return node


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) else ()
