"""Who produced a message: what every source declares."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from agentls.core.ids import CallId
from agentls.core.sources import (
    SOURCES,
    SUMMARY_MAX,
    ContextForm,
    HookSource,
    InstructionsSource,
    MessageSource,
    ModelSource,
    Notice,
    PluginSource,
    ToolSource,
    UnknownSource,
    UserSource,
    bound_summary,
    form_of,
    is_person,
    producer_of,
)

NOT_CONTEXT = {"user", "model", "tool"}
NOTICE = Notice("n")


def test_every_context_source_but_hook_must_declare_a_form() -> None:
    """Statement 72: hooks are opaque by design, since nobody can promise what an external program prints."""
    for kind in set(SOURCES.kinds()) - NOT_CONTEXT:
        cls = SOURCES.type_for(kind)
        assert cls is not None
        hints = typing.get_type_hints(cls)
        required = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
        if kind == "hook":
            assert "context" not in hints
        else:
            assert hints["context"] is ContextForm
            assert "context" in required


@pytest.mark.parametrize(
    ("source", "person", "form", "producer"),
    [
        (UserSource(), True, None, "user"),
        (PluginSource("git", NOTICE), False, NOTICE, "git"),
        (InstructionsSource(NOTICE), False, NOTICE, "agent-instructions"),
        (HookSource("pre-commit"), False, None, "pre-commit"),
        (ModelSource("p", "m"), False, None, "model"),
        (ToolSource(CallId("t")), False, None, "tool"),
        (UnknownSource("horoscope", {"context": "x"}), False, None, "horoscope"),
    ],
)
def test_what_a_source_says(source: MessageSource, person: bool, form: ContextForm | None, producer: str) -> None:
    assert (is_person(source), form_of(source), producer_of(source)) == (person, form, producer)


@pytest.mark.parametrize(
    ("text", "bounded"), [("x" * SUMMARY_MAX, "x" * SUMMARY_MAX), ("é" * 121, "é" * 119 + "…"), ("", "")]
)
def test_a_summary_is_bounded_in_code_points(text: str, bounded: str) -> None:
    """Statement 69."""
    assert bound_summary(text) == bounded
