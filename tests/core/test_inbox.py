"""Two FIFOs, the hold, and the one exit of every id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.blocks import TextBlock
from agentls.core.errors import LogicError
from agentls.core.events import Dequeue, Discard, EndSeed, Event, EventData, Hold, Update
from agentls.core.ids import MessageId
from agentls.core.inbox import Inbox
from agentls.core.invariants import check_log
from tests.core.logs import append, context, enqueue, session, state, user

A, B, C, D = (MessageId(name) for name in "abcd")


def queue(inbox: Inbox) -> list[str]:
    return [pending.item.id for pending in inbox.queued]


def test_lanes_are_first_in_first_out_and_a_position_inserts() -> None:
    inbox = state(enqueue("a"), enqueue("b"), enqueue("s", "steering"), enqueue("c", position=0)).inbox
    assert queue(inbox) == ["c", "a", "b"]
    assert [pending.item.id for pending in inbox.pending()] == ["s", "c", "a", "b"]


@pytest.mark.parametrize("second", [enqueue("a"), Dequeue(B, 1, 1), Discard((B,), "cancel"), Update(B, position=0)])
def test_an_id_enters_once_and_only_what_is_pending_leaves(second: EventData) -> None:
    """Statements 58 and 59: the log is unchanged by the refusal."""
    log = session(enqueue("a"))
    before = log.state
    with pytest.raises(LogicError, match=r"pending|before"):
        log.prepare((second,), time=0)
    assert log.state is before


def test_what_left_cannot_leave_again() -> None:
    log = session(enqueue("a"), Dequeue(A, 1, 1))
    with pytest.raises(LogicError, match="is not pending"):
        log.prepare((Discard((A,), "cancel"),), time=0)


def test_an_update_edits_moves_and_changes_lane_without_leaving() -> None:
    log = session(enqueue("a"), enqueue("b"), enqueue("c"))
    append(log, Update(C, position=0))
    append(log, Update(B, content=(TextBlock("B!"),)))
    assert queue(log.state.inbox) == ["c", "a", "b"]
    found = log.state.inbox.find(B)
    assert found is not None
    assert found.item.content == (TextBlock("B!"),)
    append(log, Update(A, lane="steering"))
    assert queue(log.state.inbox) == ["c", "b"]
    assert log.state.inbox.known[A].exit == "pending"


def test_a_hold_covers_what_came_before_it_and_later_messages_run() -> None:
    log = session(enqueue("a"), Hold(held=True, cause="cancel"), enqueue("b"))
    inbox = log.state.inbox
    assert [inbox.is_held(pending) for pending in inbox.queued] == [True, False]
    assert inbox.claim_for_turn() == ("b",)
    append(log, Hold(held=False, cause="person"))
    assert log.state.inbox.free() == log.state.inbox.pending()
    assert log.state.inbox.hold_cause is None


def test_promotion_releases_one_message_from_the_hold_until_the_next_one() -> None:
    log = session(enqueue("a"), enqueue("b"), Hold(held=True, cause="error"), Update(B, lane="steering"))
    assert [pending.item.id for pending in log.state.inbox.free()] == ["b"]
    append(log, Update(B, lane="queued", position=0))
    assert [pending.item.id for pending in log.state.inbox.free()] == ["b"]
    append(log, Hold(held=True, cause="cancel"))
    assert log.state.inbox.free() == ()


def test_a_quiet_message_waits_for_a_wake_and_then_keeps_its_place() -> None:
    """Statement 52."""
    log = session(enqueue("q", wakeup=False))
    assert log.state.inbox.claim_for_turn() == ()
    append(log, enqueue("a"))
    assert log.state.inbox.claim_for_turn() == ("q",)


def test_an_injected_id_is_known_and_a_producers_is_not() -> None:
    inbox = state(context("i"), context("p1.1.1")).inbox
    assert set(inbox.known) == {MessageId("i")}
    assert (inbox.known[MessageId("i")].fate.outcome, inbox.known[MessageId("i")].exit) == ("injected", "taken")


def test_the_end_of_a_seed_empties_the_inbox_and_forgets_its_ids() -> None:
    """Statement 44."""
    assert state(enqueue("a"), Hold(held=True, cause="cancel"), EndSeed()).inbox == Inbox()


def numbered(*payloads: EventData) -> list[Event]:
    return [Event(seq, 0, payload) for seq, payload in enumerate(payloads)]


@pytest.mark.parametrize(
    ("payloads", "fault"),
    [
        ((enqueue("a"), enqueue("a")), "enqueued twice"),
        ((enqueue("a"), Dequeue(A, 1, 1), enqueue("a")), "enqueued twice"),
        ((Dequeue(A, 1, 1),), "does not wait"),
        ((enqueue("a"), Dequeue(A, 1, 1), Discard((A,), "cancel")), "does not wait"),
        ((enqueue("a"), Discard((A, A), "cancel")), "does not wait"),
    ],
)
def test_the_invariant_sees_a_log_that_does_not_add_up(payloads: tuple[EventData, ...], fault: str) -> None:
    """Statement 58: the guard turns red on a seeded fault."""
    with pytest.raises(LogicError, match=fault):
        check_log(numbered(*payloads))


moves = st.one_of(
    st.builds(enqueue, st.sampled_from("abcd"), st.sampled_from(["queued", "steering"]), wakeup=st.booleans()),
    st.builds(Dequeue, st.sampled_from([A, B, C, D]), st.just(1), st.just(1)),
    st.builds(
        Discard,
        st.lists(st.sampled_from([A, B, C, D]), min_size=1, max_size=2, unique=True).map(tuple),
        st.just("cancel"),
    ),
    st.builds(Update, st.sampled_from([A, B, C, D]), lane=st.sampled_from(["queued", "steering"])),
    st.builds(Update, st.sampled_from([A, B, C, D]), position=st.integers(0, 3)),
    st.builds(Hold, st.booleans(), st.just("person")),
    st.sampled_from([user("x"), context("i")]),
)


@given(st.lists(moves, max_size=25))
def test_whatever_the_fold_accepts_is_conserved(payloads: list[EventData]) -> None:
    """Fold and invariant were written apart: they agree on every log, and refusing changes nothing."""
    log = session()
    accepted: list[Event] = []
    for payload in payloads:
        before = log.state
        try:
            accepted += append(log, payload)
        except LogicError:
            assert log.state is before
    check_log(accepted)
    pending = {item.item.id for item in log.state.inbox.pending()}
    assert pending == {name for name, known in log.state.inbox.known.items() if known.exit == "pending"}
