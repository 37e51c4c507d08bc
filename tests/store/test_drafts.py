"""Text in flight: kept piece by piece, and gone when its message is in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.core.ids import MessageId
from agentls.store.sqlite import SqliteStore
from tests.store.support import A, B, header, message, piece


async def test_pieces_come_back_in_the_order_in_which_they_were_written(store: SqliteStore) -> None:
    log = await store.create(header())
    log.append_drafts([piece("b", index=1)])
    log.append_drafts([piece("a"), piece("ü", 1), piece("c", message="a1.2.1")])
    log.append_drafts([])
    assert await log.drafts() == (
        piece("b", index=1),
        piece("a"),
        piece("ü", 1),
        piece("c", message="a1.2.1"),
    )


async def test_pieces_that_fail_together_leave_none_and_no_open_transaction(store: SqliteStore) -> None:
    log = await store.create(header())
    with pytest.raises(OverflowError):
        log.append_drafts([piece("good"), piece("bad", 2**80)])
    log.append_drafts([piece("one"), piece("two", 3)])
    assert [piece.text for piece in await log.drafts()] == ["one", "two"]


async def test_half_of_a_surrogate_pair_is_kept(store: SqliteStore) -> None:
    log = await store.create(header())
    log.append_drafts([piece("\ud83d"), piece("\ude00", 3)])
    assert [piece.text for piece in await log.drafts()] == ["\ud83d", "\ude00"]


async def test_dropping_a_message_leaves_the_others(store: SqliteStore) -> None:
    a, b = await store.create(header(A)), await store.create(header(B))
    a.append_drafts([piece("1"), piece("2", message="a1.2.1")])
    b.append_drafts([piece("3")])
    a.drop_drafts(MessageId("a1.1.1"))
    a.drop_drafts(MessageId("never was"))
    assert [piece.text for piece in await a.drafts()] == ["2"]
    assert [piece.text for piece in await b.drafts()] == ["3"]


async def test_drafts_outlive_the_store_and_are_added_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=False)
    log.append_drafts([piece("one "), piece("two ", 4)])
    await store.close()
    store = SqliteStore(tmp_path)
    log = await store.open(A)
    log.append_drafts([piece("three", 8)])
    assert "".join(piece.text for piece in await log.drafts()) == "one two three"
    await store.close()
