"""The one assembly of streams, and the strict grammar beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.assembler import BlockAssembler, Placed, check_stream
from agentls.core.blocks import BLOCKS, ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    ReplayEnvelope,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from agentls.core.errors import LogicError
from agentls.core.ids import CallId
from agentls.core.reasons import Aborted, Failed, Failure, MaxTokens, Stop, ToolCalls

USAGE = Usage(input_tokens=3, output_tokens=2)
FAILURE = Failure("gone", "TRANSPORT")


def assembled(*chunks: Chunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def call(name: str = "read", arguments: str = "{}", id: str = "x") -> ToolCallBlock:
    return ToolCallBlock(CallId(id), name, arguments)


def test_blocks_come_out_whole_and_in_order_with_usage_and_finish() -> None:
    """Statement 1."""
    stream = assembled(
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "hm"),
        BlockEnd(0, ReasoningBlock("hm")),
        BlockStart(1, "text"),
        TextDelta(1, "a"),
        TextDelta(1, "b"),
        BlockStart(2, "tool-call"),
        ToolCallDelta(2, "x", "read", '{"p":'),
        ToolCallDelta(2, "x", None, "1}"),
        UsageChunk(USAGE),
        Finish(ToolCalls()),
    )
    assert stream.blocks() == (ReasoningBlock("hm"), TextBlock("ab"), call(arguments='{"p":1}'))
    assert (stream.usage, stream.finish) == (USAGE, ToolCalls())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_order_is_that_of_first_appearance_not_of_closing(order: tuple[int, int]) -> None:
    """Statement 2."""
    texts = (TextBlock("zero"), TextBlock("one"))
    stream = assembled(BlockStart(0, "text"), BlockStart(1, "text"), *(BlockEnd(i, texts[i]) for i in order))
    assert stream.blocks() == texts


def test_a_delta_without_a_start_makes_a_block_and_the_finish_defaults_to_stop() -> None:
    """Statement 3."""
    stream = assembled(TextDelta(7, "hi"))
    assert stream.blocks() == (TextBlock("hi"),)
    assert (stream.finish, stream.usage) == (Stop(), None)


@pytest.mark.parametrize(
    "later", [TextDelta(0, "more"), BlockStart(0, "reasoning"), BlockEnd(0, ReasoningBlock("other"))]
)
def test_a_closed_block_never_changes_again(later: Chunk) -> None:
    """Statement 4: the first close counts, even over one of another type."""
    stream = assembled(TextDelta(0, "ignored"), BlockEnd(0, TextBlock("first")), later)
    assert stream.blocks() == (TextBlock("first"),)


def test_a_second_start_keeps_the_text_so_far() -> None:
    """Statement 5."""
    stream = assembled(BlockStart(0, "text"), TextDelta(0, "kept"), BlockStart(0, "text"))
    assert stream.blocks() == (TextBlock("kept"),)


def test_a_call_without_id_and_name_is_named_by_its_index() -> None:
    """Statement 6."""
    assert assembled(ToolCallDelta(4, "", None, "{}")).blocks() == (call("", "{}", "call-4"),)


def test_the_output_limit_drops_calls_and_their_replay_entries_alike() -> None:
    """Statement 7: one decision for both, or the next request is refused for good."""
    envelope = ReplayEnvelope("r", ("m0", "m1", "m2"))
    stream = assembled(
        BlockEnd(0, TextBlock("t")),
        BlockEnd(1, call()),
        BlockEnd(2, ReasoningBlock("r")),
        Finish(MaxTokens(), envelope),
    )
    assert stream.blocks() == (TextBlock("t"), ReasoningBlock("r"))
    assert stream.replay_state() == ReplayEnvelope("r", ("m0", "m2"))
    assert stream.placed() == (Placed(0, TextBlock("t")), Placed(2, ReasoningBlock("r")))
    assert stream.cut() == (Placed(1, call()),)


def test_replay_entries_that_do_not_match_the_blocks_are_left_out_whole() -> None:
    """Statement 8."""
    stream = assembled(TextDelta(0, "t"), Finish(Stop(), ReplayEnvelope("r", ("m0", "m1"))))
    assert stream.replay_state() is None


def test_replay_state_without_entries_passes_although_a_call_was_dropped() -> None:
    """Statement 8."""
    envelope = ReplayEnvelope({"id": "r"})
    assert assembled(BlockEnd(0, call()), Finish(MaxTokens(), envelope)).replay_state() is envelope


def test_an_interrupted_read_keeps_text_and_reasoning_that_is_not_blank() -> None:
    """Statement 9."""
    stream = assembled(
        BlockEnd(0, ReasoningBlock("why")),
        TextDelta(1, "half"),
        BlockEnd(2, call()),
        ToolCallDelta(3, "y", "write", "{"),
        TextDelta(4, " \n"),
        Finish(Aborted(FAILURE)),
    )
    assert stream.interrupted() == (Placed(0, ReasoningBlock("why")), Placed(1, TextBlock("half")))


@dataclass(frozen=True, slots=True)
class Chart(ContentBlock):
    """A kind that a plugin adds."""

    title: str


@pytest.fixture
def chart() -> Iterator[None]:
    BLOCKS.register("chart")(Chart)
    yield
    BLOCKS.unregister("chart")


@pytest.mark.usefixtures("chart")
def test_a_plugin_block_must_be_closed_and_is_no_part_of_an_interrupted_read() -> None:
    """Statement 10."""
    stream = assembled(TextDelta(0, "t"), BlockStart(1, "chart"))
    with pytest.raises(LogicError, match='block 1 of type "chart" was never closed'):
        stream.blocks()
    assert stream.interrupted() == (Placed(0, TextBlock("t")),)
    stream.push(BlockEnd(1, Chart("c")))
    assert stream.blocks() == (TextBlock("t"), Chart("c"))


@pytest.mark.parametrize(
    ("chunks", "fault"),
    [
        ((BlockStart(0, "text"), ReasoningDelta(0, "r"), Finish(Stop())), "of type"),
        ((BlockEnd(0, TextBlock("t")), Finish(Stop())), "not open"),
        ((TextDelta(0, "t"), Finish(Stop())), "not open"),
        ((BlockStart(0, "text"), BlockStart(0, "text"), Finish(Stop())), "open already"),
        ((BlockStart(0, "text"), BlockEnd(0, ReasoningBlock("r")), Finish(Stop())), "of type"),
        ((BlockStart(-1, "text"), Finish(Stop())), "negative"),
        ((UsageChunk(USAGE), UsageChunk(USAGE), Finish(Stop())), "twice"),
        ((BlockStart(0, "text"), Finish(Stop())), "still open"),
        ((Finish(Stop()), UsageChunk(USAGE)), "after the finish"),
        ((BlockStart(0, "text"), BlockEnd(0, TextBlock("t"))), "no finish"),
    ],
)
def test_the_strict_grammar_names_each_fault(chunks: tuple[Chunk, ...], fault: str) -> None:
    """Statement 11."""
    with pytest.raises(LogicError, match=fault):
        list(check_stream(chunks))


def test_the_strict_grammar_lets_blocks_interleave_and_a_failure_leave_one_open() -> None:
    """Statement 11; blocks may interleave."""
    stream = (
        BlockStart(0, "text"),
        BlockStart(1, "text"),
        BlockEnd(1, TextBlock("")),
        TextDelta(0, "a"),
        Finish(Failed(FAILURE)),
    )
    assert tuple(check_stream(stream)) == stream


def test_the_strict_grammar_lets_the_streams_own_error_through() -> None:
    """Statement 11."""

    def breaking() -> Iterator[Chunk]:
        yield BlockStart(0, "text")
        raise OSError("cable")

    with pytest.raises(OSError, match="cable"):
        list(check_stream(breaking()))


def test_an_unknown_chunk_is_an_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="surprise"):
        BlockAssembler().push("surprise")  # type: ignore[arg-type]


index = st.integers(0, 3)
words = st.text(max_size=4)
blocks = st.one_of(
    words.map(TextBlock), words.map(ReasoningBlock), st.builds(call, name=words, arguments=words, id=words)
)
chunks = st.one_of(
    st.builds(BlockStart, index, st.sampled_from(["text", "reasoning", "tool-call"])),
    st.builds(TextDelta, index, words),
    st.builds(ReasoningDelta, index, words),
    st.builds(ToolCallDelta, index, words, st.one_of(st.none(), words), words),
    st.builds(BlockEnd, index, blocks),
    st.just(UsageChunk(USAGE)),
    st.builds(Finish, st.sampled_from([Stop(), ToolCalls(), MaxTokens()])),
)


@given(st.lists(chunks, max_size=30))
def test_any_interleaving_assembles(stream: list[Chunk]) -> None:
    """The assembler never raises on kinds of ours; reading it twice gives the same; the last finish counts."""
    assembler = assembled(*stream)
    seen = {chunk.index for chunk in stream if not isinstance(chunk, UsageChunk | Finish)}
    finishes = [chunk.reason for chunk in stream if isinstance(chunk, Finish)]
    assert assembler.blocks() == assembler.blocks()
    assert len(assembler.blocks()) + len(assembler.cut()) == len(seen)
    assert assembler.finish == (finishes[-1] if finishes else Stop())
    assert {place.index for place in assembler.placed() + assembler.cut()} == set(range(len(seen)))
    assert all(not isinstance(place.block, ToolCallBlock) for place in assembler.interrupted())
