"""`files`: what others did to files is told once, and until the agent has looked."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentls.context.files import LISTED_MAX, Files
from agentls.context.producer import UNCHANGED, Reading
from agentls.context.snapshots import Candidate, Snapshots
from agentls.core.ids import SessionId
from agentls.core.sources import Snapshot
from agentls.workspace.disk import write
from agentls.workspace.inotify import Inotify
from agentls.workspace.roots import Roots
from agentls.workspace.texts import content_hash
from agentls.workspace.watch import LIMITS, Limits, Watches
from tests.context.support import SESSION, History, moment, retaining, text
from tests.harness import until


class Agent:
    """An agent that looks at files and is told of them, over a real folder and a real watcher. Where a test needs
    other limits or none of the system's watching, it meets others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.history = History()
        self.seen: dict[str, str] = {}
        self.meet(Watches())

    def meet(self, watches: Watches, kept: int = LIMITS.kept) -> None:
        self.watches = watches
        self.files = Files(watches, kept)
        self.snapshots = Snapshots([self.files])

    async def begin(self) -> None:
        """The first step, by which the agent begins to watch."""
        assert await self.step() is UNCHANGED
        watch = self.watches.watch(Roots([self.root]))
        await until(lambda: watch.on)
        watch.close()
        # From here on it is known that all folders were watched when it last looked.
        assert await self.step() is UNCHANGED

    async def offered(self) -> tuple[Candidate, ...]:
        return await self.snapshots.candidates(moment(self.root, seen=self.seen), self.history.contexts)

    async def step(self) -> Reading:
        """A step that begins: what its snapshot says."""
        candidates = await self.offered()
        self.history.commit(candidates)
        self.snapshots.committed(candidates)
        if not candidates:
            return UNCHANGED
        (one,) = candidates
        assert isinstance(one.source.context, Snapshot)
        return one.source.context.sections

    async def told(self) -> dict[str, str]:
        return text(await self.step())

    def path(self, name: str) -> Path:
        return self.root / name

    def make(self, *names: str, body: str = "by another") -> None:
        """What somebody else writes."""
        for name in names:
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(body)

    def look(self, *names: str) -> None:
        """What the `read` tool leaves behind."""
        for name in names:
            self.seen[str(self.path(name))] = content_hash(self.path(name).read_bytes())

    def write(self, name: str, body: str) -> None:
        """What the `write` tool does."""
        path = self.path(name)
        write(path, body.encode(), expected=content_hash(path.read_bytes()) if path.exists() else None)
        self.look(name)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    root = tmp_path.resolve() / "root"
    root.mkdir()
    agent = Agent(root)
    yield agent
    agent.snapshots.forget(SESSION)
    assert not agent.watches._watchers
    agent.watches.close()


# What is told --------------------------------------------------------------------------------------------------


async def test_what_others_create_change_and_delete_is_told(agent: Agent) -> None:
    agent.make("changed", "gone", "deep/seen", "kept")
    agent.look("deep/seen", "kept")
    await agent.begin()
    agent.make("new/file", "changed", "deep/seen", "kept", body="other")
    agent.make("kept")
    agent.path("gone").unlink()
    assert await agent.told() == {"created": "new/file", "changed": "changed\ndeep/seen", "deleted": "gone"}


async def test_nothing_changed_says_nothing(agent: Agent) -> None:
    """Statement 67: unchanged."""
    agent.make("a")
    await agent.begin()
    assert await agent.step() is UNCHANGED
    agent.make("a")
    assert await agent.told() == {"changed": "a"}
    assert await agent.step() is UNCHANGED
    agent.make("a", body="again, though the agent has not looked")
    assert await agent.step() is UNCHANGED


async def test_the_list_grows_until_the_agent_has_looked(agent: Agent) -> None:
    agent.make("a", "b", "c")
    await agent.begin()
    agent.make("a")
    assert await agent.told() == {"changed": "a"}
    agent.make("b")
    assert await agent.told() == {"changed": "a\nb"}
    agent.look("a")
    assert await agent.step() is UNCHANGED
    agent.make("c")
    assert await agent.told() == {"changed": "b\nc"}
    agent.look("b", "c")
    assert await agent.step() is UNCHANGED
    assert await agent.step() is UNCHANGED


async def test_a_file_that_changes_again_after_the_agent_has_looked_is_news(agent: Agent) -> None:
    agent.make("a")
    agent.look("a")
    await agent.begin()
    previous: dict[str, str] = {}
    for n in range(4):
        agent.make("a", body=f"{n}")
        told = await agent.told()
        assert told["changed"] == "a"
        assert told != previous
        previous = told
        agent.look("a")
        if n % 2:
            assert await agent.step() is UNCHANGED


async def test_own_writes_are_left_out(agent: Agent) -> None:
    agent.make("a", "b")
    agent.look("a", "b")
    await agent.begin()
    agent.write("a", "mine")
    agent.write("deep/new", "mine")
    assert await agent.step() is UNCHANGED
    agent.write("a", "mine again")
    agent.make("b", body="yours")
    assert await agent.told() == {"changed": "b"}
    agent.make("a", body="yours")
    agent.path("deep/new").unlink()
    assert await agent.told() == {"changed": "a\nb", "deleted": "deep/new"}
    agent.write("a", "mine")
    assert await agent.step() is UNCHANGED


async def test_ignored_files_are_left_out(agent: Agent) -> None:
    agent.make(".gitignore", body="build/\n*.log\n")
    agent.make("build/x")
    await agent.begin()
    agent.make("build/x", "build/deep/y", "z.log", ".git/HEAD", "src/build/q")
    assert await agent.step() is UNCHANGED
    agent.make("src/q")
    assert await agent.told() == {"created": "src/q"}


async def test_a_folder_that_is_moved_in_or_out_is_told_by_its_files(agent: Agent, tmp_path: Path) -> None:
    agent.make("../outside/x", "../outside/deep/y")
    await agent.begin()
    (tmp_path / "outside").rename(agent.path("inside"))
    assert await agent.told() == {"created": "inside/deep/y\ninside/x"}
    agent.look("inside/x")
    agent.path("inside").rename(tmp_path / "away")
    assert await agent.told() == {"deleted": "inside/x"}


async def test_what_came_and_went_is_not_told(agent: Agent) -> None:
    agent.make("kept")
    await agent.begin()
    agent.make("lock")
    agent.path("lock").unlink()
    agent.path("kept").unlink()
    assert await agent.told() == {"deleted": "kept"}
    agent.make("kept", "lock")
    assert await agent.told() == {"created": "lock", "changed": "kept"}
    agent.path("lock").unlink()
    assert await agent.step() is UNCHANGED
    agent.make("other")
    assert await agent.told() == {"created": "other", "changed": "kept"}


async def test_what_a_client_tells_is_told(agent: Agent) -> None:
    agent.make("a", "b")
    agent.look("b")
    await agent.begin()
    agent.watches.told([agent.path("a"), agent.path("b"), agent.root.parent])
    assert await agent.told() == {"changed": "a"}


# Many ----------------------------------------------------------------------------------------------------------


async def test_two_thousand_files_touched_at_once_are_one_snapshot(agent: Agent) -> None:
    await agent.begin()
    script = (
        "import os, sys\n"
        "for n in range(2000):\n"
        " folder = f'{sys.argv[1]}/{n % 20}'; os.makedirs(folder, exist_ok=True); open(f'{folder}/{n}', 'w').close()\n"
    )
    subprocess.run([sys.executable, "-c", script, agent.root], check=True)  # noqa: ASYNC221 - all of it comes before
    told = await agent.told()
    assert set(told) == {"created"}
    assert told["created"].split("\n") == sorted(f"{n}/ (100 files)" for n in range(20))
    assert await agent.step() is UNCHANGED


async def test_files_that_are_still_being_made_are_waited_for(agent: Agent) -> None:
    """A process of its own makes them, three and a pause, so that the step begins in the middle. A loaded machine takes
    longer pauses."""
    agent.meet(Watches(Limits(quiet=0.5, longest=30)))
    await agent.begin()
    script = 'cd "$0" && for n in 1 2 3 4 5; do touch a$n b$n c$n; sleep 0.02; done'
    with subprocess.Popen(["sh", "-c", script, agent.root]):  # noqa: ASYNC220 - it runs beside us
        await until(lambda: agent.path("a1").exists())
        assert len((await agent.told())["created"].split("\n")) == 15
    assert await agent.step() is UNCHANGED


async def test_a_long_list_is_folded_by_folders_and_its_rest_counted(agent: Agent) -> None:
    await agent.begin()
    agent.make(*(f"big/{n}" for n in range(300)), *(f"small/{n}" for n in range(LISTED_MAX - 1)))
    told = (await agent.told())["created"].split("\n")
    assert told == ["big/ (300 files)", *sorted(f"small/{n}" for n in range(LISTED_MAX - 1))]
    agent.make(*(f"many/{n}/x" for n in range(LISTED_MAX + 8)))
    both = await agent.told()
    assert len(both["created"].split("\n")) == LISTED_MAX
    left_out = 300 + LISTED_MAX - 1 + 8
    assert both["note"] == f"{left_out} more files, which were touched before these, are left out."


async def test_names_are_one_line(agent: Agent) -> None:
    await agent.begin()
    agent.make("a\nb", os.fsdecode(b"\xff"))
    assert await agent.told() == {"created": "a b\n⟨U+DCFF⟩"}


async def test_more_than_anybody_keeps_is_said(agent: Agent) -> None:
    agent.meet(Watches(Limits(kept=100)), kept=150)
    await agent.begin()
    agent.make(*(f"{n}" for n in range(130)))
    (one,) = await agent.offered()
    assert text(one.reading)["created"] == "./ (100 files)"
    assert "nobody kept track" in text(one.reading)["note"]
    agent.make(*(f"deep/{n}" for n in range(70)))
    told = await agent.told()
    assert told["created"] == "./ (80 files)\ndeep/ (70 files)"
    assert "nobody kept track" in told["note"]
    assert await agent.step() is UNCHANGED


# Steps and sessions --------------------------------------------------------------------------------------------


async def test_news_of_a_step_that_did_not_begin_are_offered_again(agent: Agent) -> None:
    """Statement 68."""
    agent.make("a", "b")
    await agent.begin()
    agent.make("a")
    (first,) = await agent.offered()
    (second,) = await agent.offered()
    assert (first.source, first.text) == (second.source, second.text)
    agent.make("b")
    (third,) = await agent.offered()
    assert text(third.reading) == {"changed": "a\nb"}
    assert await agent.told() == {"changed": "a\nb"}
    assert await agent.step() is UNCHANGED


async def test_a_loaded_session_is_told_what_changed_while_it_was_closed(agent: Agent) -> None:
    agent.make("same", "changed", "gone", "never-looked-at")
    agent.look("same", "changed", "gone")
    agent.make("changed", "never-looked-at", body="other")
    agent.path("gone").unlink()
    assert await agent.told() == {"changed": "changed", "deleted": "gone"}
    assert await agent.step() is UNCHANGED


async def test_a_loaded_session_whose_first_step_did_not_begin_is_told_in_the_next(agent: Agent) -> None:
    """Statement 68."""
    agent.make("a")
    agent.look("a")
    agent.make("a", body="other")
    await agent.offered()
    watch = agent.watches.watch(Roots([agent.root]))
    await until(lambda: watch.on)
    watch.close()
    for _ in range(3):
        (one,) = await agent.offered()
        assert text(one.reading) == {"changed": "a"}
    assert await agent.told() == {"changed": "a"}


async def test_a_first_reading_that_was_cut_short_is_made_again(agent: Agent) -> None:
    """Statement 68."""
    agent.make("a")
    agent.look("a")
    agent.make("a", body="other")
    reading = asyncio.create_task(agent.files.read(moment(agent.root, seen=agent.seen)))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert reading.cancelled()
    assert await agent.told() == {"changed": "a"}


async def test_unsaved_text_that_was_read_is_no_change_on_disk(agent: Agent) -> None:
    """The agent knows the hash that the file will have once it is saved."""
    agent.make("a")
    assert await agent.step() is UNCHANGED
    agent.seen[str(agent.path("a"))] = content_hash(b"unsaved")
    for _ in range(3):
        assert await agent.step() is UNCHANGED
    await agent.begin()
    agent.make("a", body="unsaved")
    assert await agent.step() is UNCHANGED


async def test_without_a_watcher_what_the_agent_knows_is_compared(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    def none() -> Inotify:
        raise OSError("Too many open files")

    agent.meet(Watches(inotify=none))
    agent.make("a", "b", "c")
    assert await agent.step() is UNCHANGED
    agent.look("a", "b", "c")
    assert await agent.step() is UNCHANGED
    agent.make("a", body="other")
    agent.path("b").unlink()
    assert await agent.told() == {"changed": "a", "deleted": "b"}
    assert await agent.step() is UNCHANGED
    agent.watches.told([agent.path("c"), agent.path("d")])
    assert await agent.told() == {"changed": "a", "deleted": "b\nd"}
    assert len(caplog.messages) == 1


async def test_each_session_has_its_own_news(agent: Agent) -> None:
    agent.make("a")
    await agent.begin()
    agent.make("a")
    other = moment(agent.root)
    object.__setattr__(other, "session", SessionId("other"))
    assert await agent.files.read(other) is UNCHANGED
    assert await agent.told() == {"changed": "a"}
    agent.make("a")
    reading = await agent.files.read(other)
    assert text(reading) == {"changed": "a"}
    agent.files.committed(other.session, reading)
    assert await agent.files.read(retaining(other, reading)) is UNCHANGED
    agent.files.forget(SessionId("other"))
    agent.files.forget(SessionId("other"))
    agent.files.committed(other.session, reading)


async def test_a_workspace_that_vanishes_is_told_by_the_files_that_the_agent_knew(agent: Agent) -> None:
    agent.make("a", "b")
    agent.look("a")
    await agent.begin()
    shutil.rmtree(agent.root)
    told = await agent.told()
    assert told.pop("deleted") == "a\nb"
    assert "nobody kept track" in told.pop("note", "nobody kept track")
    assert not told


async def test_a_workspace_that_is_made_again_is_told_of_again(agent: Agent) -> None:
    agent.make("a", "b", "c", "same")
    agent.look("a", "b", "same")
    await agent.begin()
    shutil.rmtree(agent.root)
    agent.make("a", "new", body="other")
    agent.make("same")
    watch = agent.watches.watch(Roots([agent.root]))
    await until(lambda: watch.since(0).missed)
    told = await agent.told()
    assert told.pop("note").startswith("More files than these may have changed")
    assert told == {"created": "new", "changed": "a", "deleted": "b\nc"}
    assert watch.on
    watch.close()
    assert await agent.step() is UNCHANGED
    agent.make("same", "later", body="other")
    assert await agent.told() == {"created": "later\nnew", "changed": "a\nsame", "deleted": "b\nc"}


async def test_what_the_agent_knows_is_compared_when_something_was_missed(agent: Agent) -> None:
    agent.meet(Watches(Limits(kept=10)))
    agent.make("a", "b", "unsaved")
    agent.look("a", "b")
    await agent.begin()
    agent.seen[str(agent.path("unsaved"))] = content_hash(b"unsaved")
    assert await agent.step() is UNCHANGED
    agent.make("a", body="other")
    await agent.offered()
    agent.make("b", body="other")
    agent.make(*(f"new/{n}" for n in range(20)))
    told = await agent.told()
    assert told["changed"] == "a\nb"
    assert "nobody kept track" in told["note"]


@pytest.mark.timeout(20)
async def test_a_step_within_a_turn_does_not_wait_for_a_storm(agent: Agent) -> None:
    agent.meet(Watches(Limits(longest=60)))
    await agent.begin()
    script = 'cd "$0" && while :; do echo >> x; done'
    with subprocess.Popen(["sh", "-c", script, agent.root]) as storm:  # noqa: ASYNC220 - it runs beside us
        await until(lambda: agent.path("x").exists())
        for n in range(5):
            agent.make(f"{n}")
            reading = await agent.files.read(moment(agent.root, opens_turn=False))
            assert f"{n}" in text(reading)["created"].split("\n")
        storm.kill()
