"""Snapshots: a producer is quoted when it says something else than history, and holds up nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentls.context.producer import UNCHANGED, Moment, Reading
from agentls.context.snapshots import (
    SECONDS,
    Candidate,
    Snapshots,
    render_context_sections,
    render_context_snapshot,
)
from agentls.core.contexts import Contexts
from agentls.core.frames import mark_for
from agentls.core.ids import SessionId
from agentls.core.sources import Notice, Section, Snapshot
from tests.context.support import SESSION, History, moment, section
from tests.harness import until


class Saying:
    """A producer that says what the test puts in its mouth; an exception is raised."""

    def __init__(self, name: str, says: Reading | BaseException = ()) -> None:
        self.name = name
        self.says = says
        self.asked: list[Moment] = []
        self.begun: list[Reading] = []
        self.forgotten: list[SessionId] = []

    async def read(self, moment: Moment) -> Reading:
        self.asked.append(moment)
        await asyncio.sleep(0)
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says

    def committed(self, session: SessionId, reading: Reading) -> None:
        self.begun.append(reading)

    def forget(self, session: SessionId) -> None:
        self.forgotten.append(session)


async def for_ever() -> Reading:
    await asyncio.get_running_loop().create_future()
    return ()


class Rig:
    """Producers over a history of their own."""

    def __init__(self, root: Path, *producers: Saying, seconds: float = SECONDS) -> None:
        self.snapshots = Snapshots(producers, seconds)
        self.history = History()
        self.root = root

    async def offered(self) -> tuple[Candidate, ...]:
        return await self.snapshots.candidates(moment(self.root), self.history.contexts)

    async def step(self) -> list[tuple[str, str]]:
        """A step that begins: producer and form of what it begins with."""
        candidates = await self.offered()
        self.history.commit(candidates)
        self.snapshots.committed(candidates)
        return [(one.source.plugin, type(one.source.context).__name__) for one in candidates]


# Text ----------------------------------------------------------------------------------------------------------


def test_empty_sections_are_dropped_and_the_others_keep_their_order() -> None:
    sections = (section("b"), section("empty", ""), section("a", " x\n"), section("blank", " \n"))
    assert render_context_sections(sections) == (section("b"), section("a", " x\n"))


def test_a_snapshot_says_that_it_takes_the_place_of_those_before() -> None:
    text = render_context_snapshot("git", (section("branch", "main"), section("head", "abc\n def")))
    framing, *parts = text.split("\n\n")
    assert "git" in framing
    assert "takes the place of everything that git said before" in framing
    assert parts == ["branch:\nmain", "head:\nabc\n def"]


# Supersede -----------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_told_when_it_is_new_or_another_one_or_empty(tmp_path: Path) -> None:
    """Statement 67."""
    git = Saying("git")
    rig = Rig(tmp_path, git)
    assert await rig.step() == []
    git.says = (section("branch", "main"),)
    assert await rig.step() == [("git", "Snapshot")]
    assert await rig.step() == []
    git.says = (section("branch", "main"), section("unused", ""))
    assert await rig.step() == []
    git.says = (section("branch", "topic"), section("head"))
    assert await rig.step() == [("git", "Snapshot")]
    git.says = UNCHANGED
    assert await rig.step() == []
    git.says = (section("empty", ""),)
    assert await rig.step() == [("git", "Notice")]
    assert await rig.step() == []
    git.says = ()
    assert await rig.step() == []
    git.says = (section("branch", "topic"), section("head"))
    assert await rig.step() == [("git", "Snapshot")]


async def test_what_history_lost_is_told_again_and_in_full(tmp_path: Path) -> None:
    """Statement 67: as after compaction."""
    sections = (section("branch", "main"), section("head"))
    rig = Rig(tmp_path, Saying("git", sections))
    await rig.step()
    (again,) = await rig.snapshots.candidates(moment(tmp_path), Contexts())
    assert again.source.context == Snapshot(sections)


async def test_a_snapshot_of_a_step_that_did_not_begin_is_offered_again(tmp_path: Path) -> None:
    """Statement 68."""
    git = Saying("git", (section("branch"),))
    rig = Rig(tmp_path, git)
    (first,) = await rig.offered()
    (second,) = await rig.offered()
    assert (first.source, first.text) == (second.source, second.text)
    assert git.begun == []
    assert await rig.step() == [("git", "Snapshot")]
    assert git.begun == [git.says]
    assert await rig.step() == []
    assert git.begun == [git.says]


async def test_a_cleared_marker_of_a_step_that_did_not_begin_is_offered_again(tmp_path: Path) -> None:
    """Statement 68."""
    git = Saying("git", (section("branch"),))
    rig = Rig(tmp_path, git)
    await rig.step()
    git.says = ()
    for _ in range(2):
        (marker,) = await rig.offered()
        assert isinstance(marker.source.context, Notice)
        assert marker.source.context.summary == marker.text


async def test_a_candidate_carries_its_text_unframed_and_the_mark_of_its_frame(tmp_path: Path) -> None:
    sections = (section("branch", "</agentls-context>"),)
    (one,) = await Rig(tmp_path, Saying("git", sections)).offered()
    assert one.text == render_context_snapshot("git", sections)
    assert one.source.mark == mark_for(one.text)


async def test_each_producer_gets_what_history_holds_of_it(tmp_path: Path) -> None:
    one, other = Saying("one", (section("a"),)), Saying("other", (section("b"),))
    rig = Rig(tmp_path, one, other)
    await rig.step()
    await rig.step()
    for producer in (one, other):
        first, second = producer.asked
        assert first.retained is None
        assert second.retained is not None
        assert second.retained.sections == producer.says


# Order and failure ---------------------------------------------------------------------------------------------


async def test_messages_stand_in_the_order_of_the_producers(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Saying("z", (section("s"),)), Saying("a", (section("s"),)))
    assert await rig.step() == [("z", "Snapshot"), ("a", "Snapshot")]


async def test_a_producer_that_fails_is_left_out_and_logged_once_for_each_kind_of_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Saying("bad", KeyError("x"))
    rig = Rig(tmp_path, bad, Saying("good", (section("s"),)))
    assert await rig.step() == [("good", "Snapshot")]
    assert await rig.step() == []
    assert caplog.messages == ['producer "bad" failed and was left out']
    bad.says = OSError("y")
    await rig.step()
    assert len(caplog.messages) == 2
    rig.snapshots.forget(SESSION)
    await rig.step()
    assert len(caplog.messages) == 3
    bad.says = (section("s"),)
    assert await rig.step() == [("bad", "Snapshot")]


async def test_a_producer_that_hangs_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(Saying):
        async def read(self, moment: Moment) -> Reading:
            return await for_ever()

    rig = Rig(tmp_path, Hanging("slow"), Saying("good", (section("s"),)), seconds=0.01)
    assert await rig.step() == [("good", "Snapshot")]
    assert await rig.step() == []
    assert caplog.messages == ['producer "slow" took longer than 0.01 seconds and was left out']


async def test_a_producer_that_says_what_is_no_snapshot_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path, Saying("bad", (Section("", "text"),)), Saying("good", (section("s"),)))
    assert await rig.step() == [("good", "Snapshot")]
    assert caplog.messages == ['producer "bad" failed and was left out']


async def test_a_cancel_passes(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    class Waiting(Saying):
        async def read(self, moment: Moment) -> Reading:
            self.asked.append(moment)
            try:
                return await for_ever()
            finally:
                cancelled.set()

    waiting = Waiting("slow")
    rig = Rig(tmp_path, waiting)
    task = asyncio.create_task(rig.offered())
    await until(lambda: waiting.asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_what_fails_after_a_step_has_begun_or_a_session_has_ended_keeps_no_other_from_being_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(Saying):
        def committed(self, session: SessionId, reading: Reading) -> None:
            raise KeyError

        def forget(self, session: SessionId) -> None:
            raise OSError

    good = Saying("good", (section("s"),))
    rig = Rig(tmp_path, Bad("bad", (section("s"),)), good)
    await rig.step()
    assert good.begun == [good.says]
    rig.snapshots.forget(SESSION)
    assert good.forgotten == [SESSION]
    assert len(caplog.messages) == 2


def test_two_producers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match='"git"'):
        Snapshots([Saying("git"), Saying("git")])
