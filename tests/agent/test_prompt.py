"""The assembled prompt: ordered, named once, byte-stable."""

from __future__ import annotations

from itertools import permutations

import pytest

from agentls.agent.prompt import PromptSection, assemble
from agentls.core.events import ToolSchema

SECTIONS = (PromptSection("b", 1, "second"), PromptSection("a", 1, "first"), PromptSection("z", 0, "zeroth"))
TOOLS = (ToolSchema("write", "w", {}), ToolSchema("read", "r", {}))


def test_order_is_that_of_the_sections_and_not_of_their_registration() -> None:
    """Providers cache by prefix: the same parts give the same bytes."""
    prompts = {assemble(sections).system() for sections in permutations(SECTIONS)}
    assert prompts == {"zeroth\n\nfirst\n\nsecond"}
    assert [tool.name for tool in assemble((), TOOLS).tools] == ["read", "write"]


def test_an_empty_section_leaves_no_gap() -> None:
    assert (
        assemble((PromptSection("a", 0, "x"), PromptSection("b", 1, ""), PromptSection("c", 2, "y"))).system()
        == "x\n\ny"
    )


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match='section "a" is registered twice'):
        assemble((PromptSection("a", 0, "x"), PromptSection("a", 1, "y")))
    with pytest.raises(ValueError, match='tool "read" is registered twice'):
        assemble((), (*TOOLS, TOOLS[1]))
