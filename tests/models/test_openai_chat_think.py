"""Think tags in the text, at every cut."""

from __future__ import annotations

import json

import pytest

from agentls.core.blocks import ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import Finish
from agentls.core.reasons import Failed, Failure
from agentls.models.dialects.openai_chat import OpenAiChatDecoder
from tests.models.payloads import blocks, decoded, delta, tool
from tests.models.requests import assemble


def thought(*pieces: str) -> tuple[str, str]:
    """The reasoning and the text of an answer that came in these pieces."""
    found = blocks(*(delta(content=piece) for piece in pieces), delta("stop"), think_tags=True)
    by_kind = {type(block): block.text for block in found if isinstance(block, TextBlock | ReasoningBlock)}
    return by_kind.get(ReasoningBlock, ""), by_kind.get(TextBlock, "")


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("<think>plan</think>Done", "plan", "Done"),
        ("\n <think>\nplan</think>\n\nDone\n", "plan", "Done\n"),
        ("<think>never closed", "never closed", ""),
        ("<think>a</thi", "a</thi", ""),
        ("<think></think>Done", "", "Done"),
        ("<think>a < b </b></think>c", "a < b </b>", "c"),
        ("Write `<think>` like this: <think>x</think>", "", "Write `<think>` like this: <think>x</think>"),
        ("`<think>` is a tag", "", "`<think>` is a tag"),
        ("<thinking>x</thinking>", "", "<thinking>x</thinking>"),
        ("<think>a</think>The tags <think> and </think> stay", "a", "The tags <think> and </think> stay"),
        ("<thi", "", "<thi"),
        ("< b", "", "< b"),
        ("plain", "", "plain"),
    ],
)
def test_think_tags_part_reasoning_from_text_at_every_cut(answer: str, reasoning: str, text: str) -> None:
    """S20, S20b, S20c."""
    assert thought(answer) == (reasoning, text)
    assert thought(*answer) == (reasoning, text)
    for cut in range(1, len(answer)):
        assert thought(answer[:cut], answer[cut:]) == (reasoning, text)


def test_text_that_could_begin_a_tag_goes_out_before_a_call() -> None:
    found = decoded(delta(content="<th"), delta("stop", tool_calls=[tool(0, "a", "read", "{}")]), think_tags=True)
    assert [type(block) for block in assemble(found).blocks()] == [TextBlock, ToolCallBlock]


def test_without_the_flag_tags_are_text() -> None:
    assert blocks(delta("stop", content="<think>a</think>b")) == (TextBlock("<think>a</think>b"),)


def test_reasoning_that_never_leaves_the_tags_takes_linear_time() -> None:
    decoder = OpenAiChatDecoder(think_tags=True)
    decoder.feed(json.dumps(delta(content="<think>")))
    for _ in range(20_000):
        decoder.feed(json.dumps(delta(content="\n <")))
    assert decoder.close()[-1] == Finish(
        Failed(Failure("the stream ended before the model had finished", "STREAM_CLOSED"))
    )
