"""Revisions, catching up, and what a frame holds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agentls.agent.view import PAGE, TOMBSTONES, AppendOp, DropOp, Frame, PutOp, View
from agentls.core.ids import BlockId
from agentls.core.rows import Block
from agentls.core.transcript import Append, Change, Drop, Put


def block(name: str, body: str = "", **facts: object) -> Block:
    order = (int(name[1:]), 0)
    return replace(Block(BlockId(name), order, "assistant", "Assistant", body), **facts)  # type: ignore[arg-type]


def put(name: str, body: str = "", **facts: object) -> Put:
    return Put(block(name, body, **facts))


def frames(view: View) -> list[Frame]:
    seen: list[Frame] = []
    view.subscribe(seen.append)
    return seen


def test_each_frame_is_one_revision_and_nothing_changed_is_no_frame() -> None:
    view = View("e")
    seen = frames(view)
    view.publish([put("b1"), put("b2")])
    view.publish([put("b1")])
    view.publish([])
    view.publish([Drop(BlockId("b9"))])
    view.publish([put("b1", "x")])
    assert [(frame.rev, len(frame.ops)) for frame in seen] == [(1, 2), (2, 1)]
    assert view.rev == 2


def test_an_append_counts_utf8_bytes() -> None:
    view = View("e")
    seen = frames(view)
    view.publish([put("b1", "é", state="streaming")])
    view.publish([Append(BlockId("b1"), "🙂"), Append(BlockId("b1"), "x")])
    assert seen[1].ops == (AppendOp(BlockId("b1"), 2, "🙂"), AppendOp(BlockId("b1"), 6, "x"))
    drawn = view.drawn(BlockId("b1"))
    assert drawn is not None
    assert (drawn.block.body, drawn.size, drawn.rev) == ("é🙂x", 7, 2)


def test_a_second_put_names_only_what_changed_and_what_was_cleared() -> None:
    view = View("e")
    seen = frames(view)
    view.publish([put("b1", "text", state="streaming", summary="s")])
    view.publish([put("b1", "text")])
    (op,) = seen[1].ops
    assert isinstance(op, PutOp)
    assert op.fields == frozenset({"state", "summary"})
    assert op.drawn.cleared == frozenset({"summary"})
    view.publish([put("b1", "text", summary="again")])
    drawn = view.drawn(BlockId("b1"))
    assert drawn is not None
    assert drawn.cleared == frozenset()


def test_a_client_that_was_away_gets_what_changed_and_streaming_blocks_whole() -> None:
    view = View("e")
    view.publish([put("b1"), put("b2", state="streaming")])
    view.publish([put("b3"), Drop(BlockId("b1"))])
    caught = view.catch_up("e", 1)
    assert not caught.reset
    assert [type(op).__name__ for op in caught.ops] == ["DropOp", "PutOp", "PutOp"]
    assert view.catch_up("e", 2).ops == (PutOp(view.drawn(BlockId("b2"))),)  # type: ignore[arg-type]


def test_what_cannot_be_continued_is_reset() -> None:
    view = View("e")
    view.publish([put("b1")])
    for epoch, since in ((None, None), ("e", None), ("old", 1), (None, 1), ("e", 2)):
        assert view.catch_up(epoch, since).reset
    assert not view.catch_up("e", 0).reset
    assert not view.catch_up("e", 1).reset


def test_a_client_older_than_the_tombstones_is_reset() -> None:
    view = View("e")
    for n in range(TOMBSTONES + 1):
        view.publish([put(f"b{n}")])
        view.publish([Drop(BlockId(f"b{n}"))])
    assert view.catch_up("e", 1).reset
    assert not view.catch_up("e", 2).reset


def test_a_first_page_is_the_newest_blocks_and_says_where_it_ends() -> None:
    view = View("e", [block(f"b{n}") for n in range(PAGE + 5)])
    caught = view.catch_up()
    assert (len(caught.ops), caught.reset, caught.before) == (PAGE, True, (5, 0))
    page, more = view.page((5, 0), 3)
    assert ([drawn.block.id for drawn in page], more) == (["b2", "b3", "b4"], True)


def test_a_listener_that_left_hears_no_more() -> None:
    view = View("e")
    seen: list[Frame] = []
    leave = view.subscribe(seen.append)
    view.publish([put("b1")])
    leave()
    leave()
    view.publish([put("b2")])
    assert len(seen) == 1


names = st.sampled_from(["b1", "b2", "b3"])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        put,
        names,
        st.text(max_size=3),
        state=st.sampled_from(["streaming", "done"]),
        summary=st.sampled_from([None, "s"]),
    ),
    st.builds(lambda name: Drop(BlockId(name)), names),
)


@given(st.lists(st.lists(changes, max_size=3), max_size=10), st.integers(0, 10))
def test_catching_up_from_anywhere_gives_the_same_blocks(batches: list[list[Change]], at: int) -> None:
    """A client that left at any revision and comes back holds what one that never left holds."""
    view = View("e")
    held: dict[BlockId, Block] = {}
    left_at = 0
    for number, batch in enumerate(batches):
        view.publish(batch)
        if number < at:
            left_at = view.rev
            held = {drawn.block.id: drawn.block for drawn in view.page((99, 0), 99)[0]}
    for op in view.catch_up("e", left_at).ops:
        match op:
            case PutOp(drawn):
                held[drawn.block.id] = drawn.block
            case DropOp(gone):
                held.pop(gone, None)
    assert held == {drawn.block.id: drawn.block for drawn in view.page((99, 0), 99)[0]}
