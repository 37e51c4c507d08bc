"""The registry: names once, schemas in stable bytes, arguments checked before anything runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import jsonschema
import pytest
from pydantic import Field, field_validator

from agentls.core.json import JsonObject, JsonValue
from agentls.tools.reference import reference
from agentls.tools.registry import Registry, parameters
from agentls.tools.tool import CODES, OUTPUT_MAX, Arguments, Output, ToolContext, ToolError
from tests.tools.support import Space, registry

REPOSITORY = Path(__file__).resolve().parents[2]


class Inner(Arguments):
    title: str


class TryArguments(Arguments):
    """Not for the model."""

    title: str = Field(description="A title.")
    how: Literal["a", "b"] = "a"
    loud: bool = False
    many: list[Inner] = Field(default=[Inner(title="x")])


class Try:
    name = "try"
    description = "Try."
    arguments = TryArguments
    read_only = False

    def parallel(self, arguments: TryArguments) -> bool:
        return arguments.loud

    async def asks(self, arguments: TryArguments, context: ToolContext) -> JsonObject | None:
        """Always, and shows
        the title."""
        return {"title": arguments.title}

    async def run(self, arguments: TryArguments, context: ToolContext, allowed: JsonObject | None) -> Output:
        return Output(arguments.title, {"how": arguments.how})


@pytest.fixture
def tried() -> Registry:
    made = Registry()
    made.register(Try())
    return made


def refused(tools: Registry, **arguments: JsonValue) -> str:
    with pytest.raises(ToolError) as error:
        tools.prepare("try", arguments)
    assert error.value.code == "INVALID_ARGS"
    return error.value.text


def test_a_name_that_is_taken_is_refused(tried: Registry) -> None:
    with pytest.raises(ValueError, match='"try" is registered already'):
        tried.register(Try())


def test_schemas_come_by_name_and_name_every_tool() -> None:
    assert [schema.name for schema in registry().schemas()] == ["list_files", "read", "write"]


def test_only_what_changes_nothing_is_read_only(tried: Registry) -> None:
    tools = registry()
    assert tools.read_only() == {"read", "list_files"}
    assert tools.prepare("read", {"path": "a"}).read_only
    assert not tools.prepare("write", {"path": "a", "content": ""}).read_only
    assert tried.read_only() == set()


def test_what_people_read_of_a_tool_is_what_it_says_of_itself(tried: Registry) -> None:
    (facts,) = tried.facts()
    assert (facts.schema, facts.read_only, facts.asks) == (tried.schemas()[0], False, "Always, and shows the title.")


def test_the_reference_has_every_tool_its_arguments_and_every_code(tried: Registry) -> None:
    page = reference(tried)
    assert (
        """
## `try`

Try.

- Changes: something; not offered in read-only mode.
- Asks the person: always, and shows the title.

| argument | takes | default | meaning |
|---|---|---|---|
| `title` | text |  | A title. |
| `how` | `"a"` or `"b"` | `"a"` |  |
| `loud` | true or false | `false` |  |
| `many` | list of object `Inner` | `[{"title": "x"}]` |  |

"""
        in page
    )
    assert all(f"| `{code}` | {meaning} |" in page for code, meaning in CODES.items())
    assert "whole number, at least 1" in reference(registry())


def test_a_schema_is_canonical_without_titles_and_in_the_order_of_the_fields() -> None:
    assert json.dumps(parameters(TryArguments)) == (
        '{"$defs": {"Inner": {"additionalProperties": false, "properties": {"title": {"type": "string"}}, '
        '"required": ["title"], "type": "object"}}, "additionalProperties": false, "properties": '
        '{"title": {"description": "A title.", "type": "string"}, '
        '"how": {"default": "a", "enum": ["a", "b"], "type": "string"}, '
        '"loud": {"default": false, "type": "boolean"}, '
        '"many": {"default": [{"title": "x"}], "items": {"$ref": "#/$defs/Inner"}, "type": "array"}}, '
        '"required": ["title"], "type": "object"}'
    )


def test_schemas_are_the_same_bytes_in_every_process() -> None:
    code = (
        "import json; from tests.tools.support import registry\n"
        "print(json.dumps([[s.name, s.description, s.parameters] for s in registry().schemas()]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPOSITORY,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "server:."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    ours = json.dumps([[s.name, s.description, s.parameters] for s in registry().schemas()])
    assert {output.decode().strip() for output in outputs} == {ours}


def test_schemas_are_json_schemas() -> None:
    for schema in registry().schemas():
        jsonschema.Draft202012Validator.check_schema(schema.parameters)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, '"title" is missing; send the call again'),
        ({"title": 3}, '"title" must be a string, it is 3; send the call again'),
        ({"title": None}, '"title" must be a string, it is null; send the call again'),
        ({"title": "\ud800"}, "the arguments have halves of characters in them; send the call again"),
        ({"title": "t", "how": "c"}, "\"how\" must be 'a' or 'b', it is \"c\"; send the call again"),
        ({"title": "t", "loud": "?"}, '"loud" must be true or false, it is "?"; send the call again'),
        ({"title": "t", "many": [{}]}, '"many.0.title" is missing; send the call again'),
        (
            {"title": "t", "path": "x"},
            '"path" is no argument of "try", which takes "title", "how", "loud", "many"; send the call again',
        ),
        (
            {"how": 1, "title": "t" * 5, "loud": []},
            "\"how\" must be 'a' or 'b', it is 1; \"loud\" must be true or false",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_said_in_plain_words_with_the_field(
    tried: Registry, arguments: dict[str, JsonValue], text: str
) -> None:
    assert refused(tried, **arguments).startswith(text)


def test_a_long_value_is_cut_in_the_text(tried: Registry) -> None:
    assert len(refused(tried, title=["x" * 10_000])) < 200


def test_a_tool_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(ToolError, match='there is no tool "raed"; there are "list_files", "read", "write"') as error:
        registry().prepare("raed", {})
    assert error.value.code == "UNKNOWN_TOOL"


async def test_a_prepared_call_is_its_tools_answer_for_its_arguments(tried: Registry, space: Space) -> None:
    call = tried.prepare("try", {"title": "t", "loud": True})
    assert call.parallel
    assert not tried.prepare("try", {"title": "t"}).parallel
    assert await call.asks(space.context) == {"title": "t"}
    assert await call.run(space.context, None) == Output("t", {"how": "a"})


async def test_no_output_is_over_the_limit_or_has_halves_of_characters(tried: Registry, space: Space) -> None:
    output = await tried.prepare("try", {"title": "é" * OUTPUT_MAX}).run(space.context, None)
    assert len(output.text.encode()) <= OUTPUT_MAX
    assert output.text.endswith("more bytes are left out)")


# A tool's own mistakes -----------------------------------------------------------------------------------------


class Mistaken(Try):
    """Its `parallel`, its `read_only` or what it shows is a mistake."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._registered = False

    @property
    def read_only(self) -> bool:  # type: ignore[override]
        if self._where == "read_only" and self._registered:
            raise RuntimeError("a mistake")
        self._registered = True
        return False

    def parallel(self, arguments: TryArguments) -> bool:
        if self._where == "parallel":
            raise RuntimeError("a mistake")
        return True


class Fussy(Arguments):
    title: str

    @field_validator("title")
    @classmethod
    def look(cls, title: str) -> str:
        raise KeyError(title)


class FussyTry(Mistaken):
    arguments = Fussy  # type: ignore[assignment]


@pytest.mark.parametrize("tool", [Mistaken("parallel"), Mistaken("read_only"), FussyTry("arguments")])
def test_a_tool_that_makes_a_mistake_before_it_runs_fails_its_call(tool: Mistaken) -> None:
    made = Registry()
    made.register(tool)
    with pytest.raises(ToolError) as error:
        made.prepare("try", {"title": "secret"})
    assert error.value.code == "TOOL_FAILED"
    assert "secret" not in error.value.text


def test_arguments_that_are_nested_too_deeply_do_not_fit(tried: Registry) -> None:
    deep: JsonValue = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ToolError, match="nested too deeply") as error:
        tried.prepare("try", {"title": deep})
    assert error.value.code == "INVALID_ARGS"
