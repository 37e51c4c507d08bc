"""The tools of a server: registered by name, told to the model as schemas, their arguments checked."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from agentls.core.events import ToolSchema
from agentls.core.json import JsonObject, JsonValue, canonical
from agentls.core.surrogates import mend, mended
from agentls.core.visible import one_line
from agentls.tools.tool import A, Arguments, Output, Tool, ToolContext, ToolError, bounded

logger = logging.getLogger(__name__)

_VALUE_MAX = 80
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Parts of a schema that hold values and no schemas."""

# What pydantic says at more length, or in the words of its own making.
_WORDS = {
    "missing": "is missing",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose arguments are known to fit: its tool's answers for them (see `Tool`), its text bounded. `run` is
    given what `asks` gave, if a person has allowed that."""

    parallel: bool
    read_only: bool
    asks: Callable[[ToolContext], Awaitable[JsonObject | None]]
    run: Callable[[ToolContext, JsonObject | None], Awaitable[Output]]


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """A tool as people read of it: what the model is told, whether it only reads, and when it asks."""

    schema: ToolSchema
    read_only: bool
    asks: str


class Registry:
    """The tools that there are. Nothing registers itself: `app.py` says which."""

    def __init__(self) -> None:
        self._prepare: dict[str, Callable[[JsonObject], Call]] = {}
        self._facts: dict[str, ToolFacts] = {}

    def register(self, tool: Tool[A]) -> None:
        """Add a tool; a name that is taken is a ValueError."""
        if tool.name in self._facts:
            raise ValueError(f'tool "{tool.name}" is registered already')
        schema = ToolSchema(tool.name, tool.description, parameters(tool.arguments))
        asks = " ".join((inspect.getdoc(tool.asks) or "").split())
        self._facts[tool.name] = ToolFacts(schema, tool.read_only is True, asks)
        self._prepare[tool.name] = partial(_prepare, tool)

    def schemas(self) -> tuple[ToolSchema, ...]:
        """All tools as the model is told of them, by name."""
        return tuple(facts.schema for facts in self.facts())

    def read_only(self) -> frozenset[str]:
        """The names of those that are offered also to an agent that may only read."""
        return frozenset(name for name, facts in self._facts.items() if facts.read_only)

    def facts(self) -> tuple[ToolFacts, ...]:
        """All tools as people read of them, by name."""
        return tuple(self._facts[name] for name in sorted(self._facts))

    def prepare(self, name: str, arguments: JsonObject) -> Call:
        """A call that can run; a ToolError with `UNKNOWN_TOOL`, `INVALID_ARGS` or, for a mistake of the tool itself,
        `TOOL_FAILED` for one that cannot."""
        prepare = self._prepare.get(name)
        if prepare is None:
            names = ", ".join(f'"{known}"' for known in sorted(self._prepare))
            raise ToolError("UNKNOWN_TOOL", f'there is no tool "{one_line(name)}"; there are {names or "none"}')
        try:
            return prepare(arguments)
        except ToolError:
            raise
        except Exception as fault:
            raise tool_failed(name, fault) from fault


def tool_failed(name: str, fault: Exception) -> ToolError:
    """What becomes of a tool's own mistake: a failure of its call, and never more. It is called where it is caught."""
    logger.error("the tool %s failed", name, exc_info=fault)
    return ToolError("TOOL_FAILED", f'"{name}" failed by a mistake of its own; try another way, and tell the person')


def parameters(arguments: type[Arguments]) -> JsonObject:
    """The JSON Schema of a tool's arguments, the same bytes in every process: keys sorted, fields in the order in
    which they are declared, which is the one that a model writes them in, and no titles."""
    schema = cast(JsonObject, arguments.model_json_schema(schema_generator=_Plain))
    # The class's docstring is for those who read the code.
    return _ordered({key: value for key, value in schema.items() if key != "description"})


class _Plain(GenerateJsonSchema):
    """Without the titles that pydantic makes up from names."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _ordered(schema: JsonObject) -> JsonObject:
    """A schema node in canonical order. `properties` and `$defs` hold nodes by names that are not ours to drop."""
    ordered: dict[str, JsonValue] = {}
    for key in sorted(schema):
        value = schema[key]
        if key in ("properties", "$defs"):
            ordered[key] = {name: _ordered(cast(JsonObject, node)) for name, node in cast(JsonObject, value).items()}
        elif key in _DATA:
            ordered[key] = value
        elif key != "title":
            ordered[key] = _ordered_value(value)
    return ordered


def _ordered_value(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return _ordered(value)
    return [_ordered_value(item) for item in value] if isinstance(value, list) else value


def _prepare(tool: Tool[A], raw: JsonObject) -> Call:
    arguments = _parse(tool, raw)

    async def asks(context: ToolContext) -> JsonObject | None:
        what = await tool.asks(arguments, context)
        if what is not None and not isinstance(what, Mapping):
            raise TypeError(f"what a person is shown must be an object, not {type(what).__name__}")
        canonical(what)  # What JSON cannot hold cannot be shown either.
        return what

    async def run(context: ToolContext, allowed: JsonObject | None) -> Output:
        output = await tool.run(arguments, context, allowed)
        return Output(bounded(mend(output.text)), output.meta)

    return Call(tool.parallel(arguments) is True, tool.read_only is True, asks, run)


def _parse(tool: Tool[A], raw: JsonObject) -> A:
    try:
        if mended(raw) != raw:
            # A file, a wire and a hash could all take it in their own way, or not at all.
            raise ToolError("INVALID_ARGS", "the arguments have halves of characters in them; send the call again")
        return tool.arguments.model_validate(raw)
    except RecursionError as error:
        raise ToolError("INVALID_ARGS", "the arguments are nested too deeply; send the call again") from error
    except ValidationError as error:
        wrong = "; ".join(_said(details, tool) for details in error.errors(include_url=False))
        raise ToolError("INVALID_ARGS", f"{wrong}; send the call again") from error


def _said(details: ErrorDetails, tool: Tool[A]) -> str:
    """`"limit" must be a whole number, it is "many"`."""
    place = ".".join(str(step) for step in details["loc"])
    if details["type"] == "extra_forbidden":
        takes = ", ".join(f'"{name}"' for name in tool.arguments.model_fields) or "nothing"
        return f'"{one_line(place)}" is no argument of "{tool.name}", which takes {takes}'
    words = _WORDS.get(details["type"]) or details["msg"].replace("Input should be", "must be", 1)
    if details["type"] == "missing":
        return f'"{place}" {words}'
    value = one_line(json.dumps(details["input"], ensure_ascii=False, default=str), _VALUE_MAX)
    return f'"{place}" {words}, it is {value}'
