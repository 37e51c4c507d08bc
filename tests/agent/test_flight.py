"""Text in flight: one commit a frame, stored before it is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from agentls.agent.flight import Flight
from agentls.core.errors import StoreUnavailable
from agentls.store.store import DraftPiece
from tests.harness import mid, until


class Drafts:
    """A log that keeps drafts in memory, or refuses them."""

    def __init__(self) -> None:
        self.stored: list[tuple[DraftPiece, ...]] = []
        self.full = False

    def append_drafts(self, pieces: Sequence[DraftPiece]) -> None:
        if self.full:
            raise StoreUnavailable("no space left")
        self.stored.append(tuple(pieces))


class Watched:
    """A flight over such a log, and what came of it."""

    def __init__(self) -> None:
        self.log = Drafts()
        self.drawn: list[tuple[DraftPiece, ...]] = []
        self.failures: list[StoreUnavailable] = []
        self.flight = Flight(self.log, mid("a1.1.1"), draw=self._draw, failed=self.failures.append)  # type: ignore[arg-type]

    def _draw(self, pieces: tuple[DraftPiece, ...]) -> None:
        assert self.log.stored[-1] == pieces, "drawn before it was stored"
        self.drawn.append(pieces)

    def texts(self) -> list[str]:
        return [piece.text for frame in self.drawn for piece in frame]


async def test_the_first_piece_goes_at_once_and_a_burst_is_one_frame() -> None:
    on = Watched()
    for n in range(1000):
        on.flight.add(0, "text", f"{n} ")
    assert on.texts() == ["0 "]
    await until(lambda: len(on.drawn) == 2)
    assert "".join(on.texts()) == "".join(f"{n} " for n in range(1000))
    on.flight.end()
    assert len(on.drawn) == 2


async def test_the_end_lets_nothing_wait_and_takes_no_more() -> None:
    on = Watched()
    on.flight.add(0, "text", "a")
    on.flight.add(0, "text", "b")
    on.flight.end()
    on.flight.add(0, "text", "c")
    assert on.texts() == ["a", "b"]


async def test_blocks_of_one_frame_are_one_commit() -> None:
    on = Watched()
    on.flight.add(0, "reasoning", "why")
    on.flight.add(0, "reasoning", " so")
    on.flight.add(1, "text", "be")
    on.flight.end()
    assert [[(p.index, p.kind, p.text) for p in frame] for frame in on.drawn] == [
        [(0, "reasoning", "why")],
        [(0, "reasoning", " so"), (1, "text", "be")],
    ]


async def test_a_store_that_refuses_is_told_once_and_nothing_more_is_drawn() -> None:
    on = Watched()
    on.flight.add(0, "text", "a")
    on.log.full = True
    on.flight.add(0, "text", "b")
    on.flight.flush()
    on.flight.add(0, "text", "c")
    on.flight.end()
    assert on.texts() == ["a"]
    assert [str(failure) for failure in on.failures] == ["no space left"]


@given(st.lists(st.tuples(st.integers(0, 2), st.text(st.characters(), max_size=4), st.booleans()), max_size=12))
async def test_offsets_count_the_utf8_bytes_of_what_came_before(steps: list[tuple[int, str, bool]]) -> None:
    on = Watched()
    for index, text, flush in steps:
        on.flight.add(index, "text", text)
        if flush:
            on.flight.flush()
    on.flight.end()
    written = {0: 0, 1: 0, 2: 0}
    for frame in on.drawn:
        for piece in frame:
            assert piece.offset == written[piece.index]
            written[piece.index] += len(piece.text.encode("utf-8", "surrogatepass"))
    assert "".join(sorted("".join(on.texts()))) == "".join(sorted("".join(text for _, text, _ in steps)))
