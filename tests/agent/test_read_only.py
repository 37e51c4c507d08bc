"""A session whose log is damaged, or holds what this version does not know: it is read and told, and never written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentls.agent.agent import UnknownRequest
from agentls.agent.host import Fork, InvalidBoundary, UnknownAgent
from agentls.agent.read_only import ReadOnlyAgent
from agentls.core.errors import SessionDamaged, UnsupportedFormat
from agentls.core.events import Discard, Event, UnknownEvent
from agentls.core.ids import BlockId, RequestId, SessionId
from agentls.store.sqlite import SESSIONS_FILE, SqliteStore
from tests.agent.test_host import talk
from tests.harness import agent_id, content, idle, mid, rig, row_ids, rows, sent_texts, types


def change(folder: Path, statement: str, *parameters: object) -> None:
    connection = sqlite3.connect(folder / SESSIONS_FILE)
    with connection:
        assert connection.execute(statement, parameters).rowcount > 0
    connection.close()


async def three_turns(folder: Path) -> tuple[str, list[Event]]:
    """A session of three turns; its id and its log."""
    async with rig(folder) as on:
        agent = await on.agent()
        await talk(on, agent, 3)
        return agent.id, await on.log(agent)


def place(log: list[Event], kind: str, number: int) -> int:
    """The seq of the n-th event of a type."""
    return [seq for seq, name in enumerate(types(log)) if name == kind][number - 1]


async def test_a_hole_is_a_row_and_all_around_it_is_drawn(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    seq = place(log, "assistant/message", 2)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", seq)
    async with rig(tmp_path) as again:
        agent = await again.host.get(agent_id(name))
        assert isinstance(agent, ReadOnlyAgent)
        drawn = rows(agent.view)
        assert [row.body for row in drawn if row.kind in ("user", "assistant")] == ["q1", "a1", "q2", "q3", "a3"]
        hole, told = [row for row in drawn if row.kind == "error"]
        assert (hole.title, hole.order) == ("A part of this session is lost", (seq, 2))
        assert f"event {seq}: it is missing" in hole.body
        assert drawn.index(hole) < [row.id for row in drawn].index(BlockId("u:m3"))
        assert told is drawn[-1]
        assert told.title == "This session can only be read"
        assert f"cannot be read at event {seq}" in told.body
        assert "`agentls sessions export`" in told.body
        state = agent.view.state
        assert state is not None
        assert (state.store, state.status, state.turn) == ("read-only", "idle", None)
        (row,) = (await again.host.list())[0]
        assert f"at event {seq}" in (row.summary.damaged or "")


async def test_what_a_damaged_event_seems_to_hold_is_drawn_as_such(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    seq = place(log, "assistant/message", 2)
    change(tmp_path, "UPDATE event SET seal = seal + 1 WHERE at & 0xffffffff = ?", seq)
    async with rig(tmp_path) as again:
        drawn = rows((await again.host.get(agent_id(name))).view)
        answers = [row.body for row in drawn if row.kind == "assistant"]
        assert answers == ["a1", "a2", "a3"]
        row = next(row for row in drawn if row.title == "A part of this session is damaged")
        assert "may be wrong" in row.body
        assert "its bytes are not those that were written" in row.body


async def test_a_message_whose_place_in_its_turn_is_lost_is_drawn_where_it_came_in(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", place(log, "user/message", 2))
    async with rig(tmp_path) as again:
        drawn = rows((await again.host.get(agent_id(name))).view)
        assert [row.body for row in drawn if row.kind in ("user", "assistant")] == ["q1", "a1", "q2", "a2", "q3", "a3"]


async def test_nothing_is_written_to_a_session_that_can_only_be_read(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", place(log, "assistant/message", 3))
    before = (tmp_path / SESSIONS_FILE).read_bytes()
    async with rig(tmp_path) as again:
        agent = await again.host.get(agent_id(name))
        sent = await agent.followup(content("more"), id=mid("m9"))
        assert (sent.outcome, sent.reason, sent.content) == ("refused", "read-only", content("more"))
        known = await agent.followup(content("q1"), id=mid("m1"))
        assert (known.outcome, known.repeated, known.now) == ("started", True, "taken")
        assert (await agent.retry(3, id=mid("m10"))).reason == "read-only"
        assert (await agent.cancel("user")).outcome == "idle"
        with pytest.raises(SessionDamaged, match="it can only be read: "):
            await agent.configure(title="another")
        with pytest.raises(SessionDamaged):
            await agent.remove(mid("m3"))
        with pytest.raises(UnknownRequest):
            await agent.answer(RequestId("q1.1.1"), "allow", shown="", by="somebody")
        part = await agent.block(BlockId("a1.1.1/0"))
        assert part.text == "a1"
        page = await agent.page(rows(agent.view)[3].order, 2)
        assert [drawn.block for drawn in page.blocks] == rows(agent.view)[1:3]
    assert (tmp_path / SESSIONS_FILE).read_bytes() == before


async def test_a_fork_goes_on_with_what_was_before_the_damage(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", place(log, "assistant/message", 3))
    async with rig(tmp_path) as again:
        with pytest.raises(InvalidBoundary, match="still open"):
            await again.host.create("file:///workspace", fork=Fork(agent_id(name), 3))
        agent = await again.host.create("file:///workspace", fork=Fork(agent_id(name), 2))
        await agent.followup(content("q4"), id=mid("m4"))
        assert sent_texts(await again.model.answer("a4", 1)) == ["q1", "a1", "q2", "a2", "q4"]
        await idle(agent)


async def test_what_waits_in_a_damaged_session_is_shown(tmp_path: Path) -> None:
    async with rig(tmp_path) as on:
        agent = await on.agent()
        await talk(on, agent, 1)
        await agent.followup(content("q2"), id=mid("m2"))
        await on.model.asked(2)
        await agent.followup(content("waits"), id=mid("m3"))
        name, log = agent.id, await on.log(agent)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", place(log, "assistant/message", 1))
    async with rig(tmp_path) as again:
        state = (await again.host.get(name)).view.state
        assert state is not None
        assert [(item.text, item.held) for item in state.inbox] == [("waits", True)]


async def test_nobody_holds_a_session_that_can_only_be_read_and_it_can_be_deleted(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    change(tmp_path, "DELETE FROM event WHERE at & 0xffffffff = ?", place(log, "assistant/message", 3))
    change(tmp_path, "UPDATE session SET cwd = '/elsewhere'")
    async with rig(tmp_path) as one, rig(tmp_path) as other:
        assert isinstance(await one.host.get(agent_id(name)), ReadOnlyAgent)
        assert isinstance(await other.host.get(agent_id(name)), ReadOnlyAgent)
        await one.host.delete(agent_id(name))
        with pytest.raises(UnknownAgent):
            await one.host.get(agent_id(name))
        assert (await one.host.list())[0] == ()


async def test_an_event_of_an_unknown_type_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    """Statement 42: refused for going on, since what comes after it may mean something else than it says."""
    name, log = await three_turns(tmp_path)
    store = SqliteStore(tmp_path)
    held = await store.open(SessionId(name))
    later = Event(len(log), 0, UnknownEvent("later/event", {"x": 1}))
    await held.commit([later], durable=True)
    await store.close()
    async with rig(tmp_path) as again:
        agent = await again.host.get(agent_id(name))
        assert isinstance(agent, ReadOnlyAgent)
        assert row_ids(agent.view)[-3] == "turn3"
        row, told = rows(agent.view)[-2:]
        assert 'type "later/event" that this version does not know; upgrade agentls' in row.body
        assert "upgrade agentls" in told.body
        with pytest.raises(UnsupportedFormat, match="upgrade agentls"):
            await agent.configure(title="another")


async def test_an_event_of_an_unknown_type_that_may_be_ignored_is_kept(tmp_path: Path) -> None:
    """Statement 42."""
    name, log = await three_turns(tmp_path)
    store = SqliteStore(tmp_path)
    held = await store.open(SessionId(name))
    later = Event(len(log), 0, UnknownEvent("later/event", {"x": 1}), ignorable=True)
    await held.commit([later], durable=True)
    await store.close()
    async with rig(tmp_path) as again:
        agent = await again.host.get(agent_id(name))
        await agent.followup(content("q4"), id=mid("m4"))
        await again.model.answer("a4", 1)
        await idle(agent)
        assert (await again.log(agent))[len(log)] == later


async def test_a_log_that_breaks_a_rule_is_read_up_to_its_end(tmp_path: Path) -> None:
    name, log = await three_turns(tmp_path)
    store = SqliteStore(tmp_path)
    held = await store.open(SessionId(name))
    await held.commit([Event(len(log), 0, Discard((mid("m1"),), "removed"))], durable=True)
    await store.close()
    async with rig(tmp_path) as again:
        agent = await again.host.get(agent_id(name))
        assert isinstance(agent, ReadOnlyAgent)
        assert [row.body for row in rows(agent.view) if row.kind == "assistant"] == ["a1", "a2", "a3"]
        assert 'breaks a rule: message "m1" is not pending' in rows(agent.view)[-1].body
