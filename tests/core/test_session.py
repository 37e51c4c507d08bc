"""Prepare, commit, publish: numbering, atomicity, observers."""

from __future__ import annotations

import pytest

from agentls.core.errors import LogicError
from agentls.core.events import Event, SessionTitle, TurnEnd
from agentls.core.history import History
from agentls.core.inbox import Inbox
from agentls.core.reasons import Completed
from agentls.core.session import Batch, Session, SessionState
from agentls.core.turn import Turns
from tests.core.logs import HEADER, enqueue, opened, session, user


def test_seq_counts_from_zero_across_batches_in_the_order_of_prepare() -> None:
    log = Session(HEADER)
    first = log.prepare((enqueue("a"), enqueue("b")), time=5)
    second = log.prepare((enqueue("c"),), time=4)
    assert [event.seq for event in first.events + second.events] == [0, 1, 2]
    assert [event.time for event in first.events + second.events] == [5, 5, 4]


def test_a_batch_is_taken_whole_or_not_at_all() -> None:
    log = session(enqueue("a"))
    before = log.state
    with pytest.raises(LogicError):
        log.prepare((enqueue("b"), enqueue("a")), time=0)
    assert log.state is before


def test_an_observer_that_fails_starves_no_other_and_leaves_the_log_alone() -> None:
    """Statement 30."""
    log = Session(HEADER)
    seen: list[int] = []

    def breaks(batch: Batch) -> None:
        raise RuntimeError(f"at {batch.events[0].seq}")

    log.observe(breaks)
    log.observe(lambda batch: seen.extend(event.seq for event in batch.events))
    errors = log.publish(log.prepare((enqueue("a"), enqueue("b")), time=0))
    assert [str(error) for error in errors] == ["at 0"]
    assert seen == [0, 1]
    assert log.committed.next_seq == 2


def test_an_observer_cannot_append() -> None:
    """Statement 31."""
    log = Session(HEADER)

    def appends(_: Batch) -> None:
        log.prepare((user("x"),), time=0)

    log.observe(appends)
    (error,) = log.publish(log.prepare((enqueue("a"),), time=0))
    assert isinstance(error, LogicError)
    assert log.state.next_seq == 1


def test_rolling_back_forgets_what_was_not_committed() -> None:
    log = session(enqueue("a"))
    log.prepare((enqueue("b"),), time=0)
    log.roll_back()
    assert [pending.item.id for pending in log.state.inbox.pending()] == ["a"]
    assert log.prepare((enqueue("b"),), time=0).events[0].seq == 1


def test_a_fold_returns_the_same_object_for_what_is_not_its_business() -> None:
    """Then all of them may run over every event, and "changed" is an identity check."""
    for fold in (Inbox(), Turns(), History()):
        assert fold.apply(Event(0, 0, SessionTitle("t", "person"))) is fold
    assert Inbox().apply(Event(0, 0, user("a"))).known == Inbox().known


def test_a_gap_in_the_log_is_refused() -> None:
    with pytest.raises(LogicError, match="event 3 follows"):
        SessionState().apply(Event(3, 0, user("a")))


def test_a_turn_ends_outside_its_steps() -> None:
    with pytest.raises(LogicError, match="inside step 1"):
        session(*opened("a"), TurnEnd(1, Completed()))
