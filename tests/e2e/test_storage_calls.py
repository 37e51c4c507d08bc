"""The n-th call of the store to its disk fails, for every n of a session that meets most of what an agent does.

Here a sample of the calls fails, the syncs of commits among it. `AGENTLS_STORAGE_CALLS=all` takes every one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from agentls.core.blocks import text_of
from agentls.core.events import ApprovalDecided, Enqueue, Event, ToolCall, ToolResult, ToolStart, UserMessage
from agentls.core.invariants import check_log
from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE
from tests.e2e.editors import SECONDS, Editor, log_of, on_stdio, process_of
from tests.e2e.storage import FOR_EVER, Faulty
from tests.e2e.test_storage import GOES_ON, STORE_UNAVAILABLE, shown
from tests.processes import INITIALIZE, Talk, agentls, message, started

ALL = os.environ.get("AGENTLS_STORAGE_CALLS") == "all"
SAMPLE = 24
SEED = 5

SCRIPT = {
    "pace": 1,
    "replies": [
        {
            "when": "^read$",
            "step": 0,
            "pieces": [{"text": "a look"}, {"call": {"name": "read", "arguments": {"path": "a.txt"}}}],
        },
        {"when": "^read$", "step": 1, "pieces": [{"text": "that is it"}]},
        {
            "when": "^write (?P<file>.+)$",
            "step": 0,
            "pieces": [
                {"text": "so be it"},
                {"call": {"name": "write", "arguments": {"path": "{file}", "content": "w\n"}}},
            ],
        },
        {"when": "^write", "step": 1, "pieces": [{"text": "it is written"}]},
        {"when": "^later", "pieces": [{"text": "one two three"}, {"wait": 600000}, {"text": "never"}]},
    ],
}
"""Whatever else is said, the model says it back."""


pytestmark = pytest.mark.timeout(7200 if ALL else 120)


class Failed(Exception):
    """The disk has failed, and this person gives up."""


class Person:
    """Somebody who works with an agent of their own while the disk may fail, and who asks again what was refused;
    or gives up, where they do not wait for it to get `well`."""

    def __init__(self, editor: Editor, disk: Faulty, work: Path, name: str, *, well: bool) -> None:
        self.editor = editor
        self.disk = disk
        self.work = work
        self.file = f"{name}.txt"
        self.agent = ""
        self.said: list[str] = []
        self.acknowledged: list[str] = []
        self.edited = False
        self.allowed = False
        self.waits = well
        self._refusals = 0
        self._failures = 0

    async def session(self) -> None:
        """Two turns with a read and a write, an edited message behind them, a cancel, and the rest after it."""
        created = await self._insist(lambda: self.editor.ask("agent/create", workspaceUri=self.work.as_uri()))
        self.agent = created["agentId"]
        await self.editor.attach(self.agent)
        read = await self._say("read", "m1")
        await self._until(lambda: self._has_ended(read["turn"]))
        write = await self._say(f"write {self.file}", "m2")
        await self._until(lambda: self._state["requests"] or self._has_ended(write["turn"]))
        await self._say("later", "m3")
        await self._edit("m3", "later, edited")
        await self._finish()
        await self._rest()

    async def end(self) -> None:
        """The disk is well: whatever still waits comes to its end, and so does one more message."""
        self.disk.mend()
        await self._mended()
        await self._finish()
        sent = await self._say("the end", "m4")
        await self._until(lambda: self._has_ended(sent["turn"]) and self._state["status"] == "idle")
        assert self.editor.row(self.agent, "turn-end")["reason"] == "completed"
        assert (self._state["store"], self._state["inbox"]) == ("ok", [])

    def check(self, events: Sequence[Event]) -> None:
        """What was acknowledged is there once, nothing ran twice, and the log tells of the world."""
        check_log(events)
        entered = Counter(str(event.data.item.id) for event in events if isinstance(event.data, Enqueue))
        assert entered == Counter(entered.keys())
        assert set(self.acknowledged) <= entered.keys() <= set(self.said)
        taken = [text_of(event.data.message.content) for event in events if isinstance(event.data, UserMessage)]
        assert not self.edited or "later" not in taken, "an edit that was acknowledged counts"
        decided = [event.data.decision for event in events if isinstance(event.data, ApprovalDecided)]
        assert not self.allowed or "allow" in decided
        starts = Counter(event.data.call_id for event in events if isinstance(event.data, ToolStart))
        assert starts == Counter(starts.keys())
        calls = {event.data.call_id: event.data.name for event in events if isinstance(event.data, ToolCall)}
        results = [event.data for event in events if isinstance(event.data, ToolResult)]
        assert Counter(result.call_id for result in results) == Counter(calls.keys())
        written = (self.work / self.file).exists()
        for result in results:
            code = result.error.code if result.error else None
            assert code in ((None, "TOOL_OUTCOME_UNKNOWN") if result.call_id in starts else ("TOOL_NOT_STARTED",))
            if calls[result.call_id] == "write" and code != "TOOL_OUTCOME_UNKNOWN":
                assert written == (code is None)
        assert not written or "write" in {calls[call] for call in starts}

    # What is done ----------------------------------------------------------------------------------------------

    async def _say(self, text: str, id: str) -> dict[str, Any]:
        self.said.append(id)
        sent = await self._insist(lambda: self.editor.say("followup", self.agent, text, id))
        self.acknowledged.append(id)
        return sent

    async def _edit(self, id: str, text: str) -> None:
        changed = await self._insist(
            lambda: self.editor.ask("agent/inbox/edit", agentId=self.agent, messageId=id, content=text)
        )
        self.edited = changed["outcome"] == "done"

    async def _finish(self) -> None:
        """Have everything run that waits: it is allowed, released, and stopped where it would go on for ever."""
        while True:
            await self._until(lambda: self._state["status"] == "idle" or self._state["requests"] or self._goes_on())
            if self._state["requests"]:
                asked = self._state["requests"][0]
                answer = await self._insist(partial(self.editor.decide, self.agent, "allow", request=asked))
                self.allowed |= answer["outcome"] == "accepted"
                await self._until(partial(self._is_closed, asked))
            elif self._goes_on():
                await self._insist(lambda: self.editor.ask("agent/cancel", agentId=self.agent))
            elif self._state["status"] == "idle" and self._state["hold"] and self._state["inbox"]:
                await self._insist(lambda: self.editor.ask("agent/inbox/resume", agentId=self.agent))
            elif self._state["status"] == "idle":
                return

    async def _rest(self) -> None:
        """Wait until the store has copied all of its logs, unless its disk fails."""
        logs = [self.disk.state / f"{name}-wal" for name in (SESSIONS_FILE, DRAFTS_FILE)]
        failed = self.disk.failed
        async with asyncio.timeout(SECONDS):
            # A file tells nobody that it was cut.
            while any(log.stat().st_size for log in logs) and self.disk.failed == failed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _insist(self, ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """What is answered. A disk that refuses, and does so again while it fails, is waited for, and then the same is
        asked once more."""
        while (result := await _answered(ask)) is None:
            if self.disk.fails:
                assert await _answered(ask) is None, "nothing is taken while nothing can be saved"
            await self._mended()
            self._refusals += 1
            assert self._refusals < 10, "it never ends"
        return result

    async def _until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds, or the disk has failed and is well again, whereupon it may never hold."""
        await self.editor.until(lambda: holds() or self._state["store"] != "ok" or self._failed() != self._failures)
        if self._state["store"] != "ok" or self._failed() != self._failures:
            await self._mended()

    async def _mended(self) -> None:
        """Have the disk mended, and wait until the agent has found that out by itself."""
        if not self.waits:
            raise Failed
        self.disk.mend()
        if self.agent:
            await self.editor.until(lambda: self._state["store"] == "ok" and self._state["status"] != "suspended")
            self._failures = self._failed()

    @property
    def _state(self) -> dict[str, Any]:
        return self.editor.state(self.agent)

    def _has_ended(self, turn: int) -> bool:
        return f"turn{turn}" in self.editor.ids(self.agent)

    def _is_closed(self, request: dict[str, Any]) -> bool:
        return request not in self._state["requests"]

    def _goes_on(self) -> bool:
        """Whether the answer that never ends is being given."""
        row = self.editor.rows(self.agent)[-1]
        return row["state"] == "streaming" and str(row["body"]).startswith("one two three")

    def _failed(self) -> int:
        """How many turns have ended in an error."""
        return sum(row["kind"] == "turn-end" and row["reason"] == "error" for row in self.editor.rows(self.agent))


async def _answered(ask: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any] | None:
    """The answer to a request; None where the disk refuses."""
    try:
        result = await ask()
    except JsonRpcException as error:
        if error.code != STORE_UNAVAILABLE or not error.message.endswith(GOES_ON):
            raise
        return None
    if result.get("outcome") != "refused":
        return result
    assert result["reason"] == "store-unavailable"
    return None


def chosen(calls: Sequence[str]) -> list[tuple[int, int]]:
    """Which calls fail, of all that a session makes, and how many from each on: every one in both ways, or the first
    ones, syncs, and some of the rest in one of them."""
    ways = 1, FOR_EVER
    if ALL:
        return [(number, times) for times in ways for number in range(len(calls))]
    by_chance = random.Random(SEED)
    syncs = [number for number, call in enumerate(calls) if call.startswith("sync")]
    picked = {0, 1, 2, *by_chance.sample(syncs, SAMPLE // 2)}
    rest = [number for number in range(len(calls)) if number not in picked]
    picked.update(by_chance.sample(rest, SAMPLE - len(picked)))
    return [(number, ways[at % 2]) for at, number in enumerate(sorted(picked))]


WORDS = re.compile(r'agentls: cannot \w+ the session store ".*": .*, then start agentls again\n')


async def _learned(editor: Editor, disk: Faulty, work: Path, name: str) -> list[str]:
    """The calls of a session on a disk that is well."""
    first = disk.count
    person = Person(editor, disk, work, name, well=True)
    await person.session()
    assert disk.failed == 0
    return [disk.call(number) for number in range(first, disk.count)]


@pytest.fixture
def script(tmp_path: Path) -> tuple[str, str]:
    """Options that have the model speak by the script."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps(SCRIPT))
    return "--script", str(path)


def _error(number: int) -> int:
    return errno.ENOSPC if number % 2 else errno.EIO


async def test_whatever_call_fails_nothing_acknowledged_is_lost(
    tmp_path: Path, library: Path, work: Path, script: tuple[str, str]
) -> None:
    """One call alone, or all from it on until the disk is mended."""
    disk = Faulty(tmp_path / "state", library)
    people: list[Person] = []
    failed = 0
    async with on_stdio(disk.state, *script, env=disk.env) as editor:
        # The first one makes calls that no other one makes.
        await _learned(editor, disk, work, "first")
        calls = await _learned(editor, disk, work, "second")
        for number, times in chosen(calls):
            before = disk.failed
            person = Person(editor, disk, work, f"n{number} {times}", well=True)
            disk.fail(number, times, error=_error(number))
            await person.session()
            await person.end()
            assert person.acknowledged == ["m1", "m2", "m3", "m4"]
            people.append(person)
            failed += disk.failed > before
        drawn = {person.agent: shown(editor, person.agent) for person in people}
    assert failed > 0.8 * len(people), "the faults meet the session"
    async with on_stdio(disk.state, *script, env=disk.env) as editor:
        for agent, rows in drawn.items():
            await editor.attach(agent)
            assert shown(editor, agent) == rows
    for person in people:
        person.check(await log_of(disk.state, person.agent))


@pytest.mark.parametrize("number", range(200) if ALL else [67])
async def test_a_server_that_is_killed_on_a_disk_that_fails_loses_nothing_acknowledged(
    number: int, tmp_path: Path, library: Path, work: Path, script: tuple[str, str]
) -> None:
    disk = Faulty(tmp_path / "state", library)
    async with on_stdio(disk.state, *script, env=disk.env) as editor:
        person = Person(editor, disk, work, "killed", well=False)
        disk.fail(number, error=_error(number))
        with suppress(Failed):
            await person.session()
        process_of(editor).kill()
        await process_of(editor).wait()
    disk.mend()
    if not person.agent:
        return
    person.waits = True
    async with on_stdio(disk.state, *script, env=disk.env) as person.editor:
        await person.editor.attach(person.agent)
        await person.end()
    person.check(await log_of(disk.state, person.agent))


OPENS = ["open sessions.db", "open drafts.db"]
"""Calls of which the last one opens a file for writing that was there before."""


def test_a_server_that_starts_on_a_disk_that_fails_works_or_says_why_not(tmp_path: Path, library: Path) -> None:
    """A file that could be opened for reading only must not stay so."""
    calls, words = _started(tmp_path / "well", library, None)
    assert words == ""
    last = {call: number for number, call in enumerate(calls)}
    for number in range(len(calls)) if ALL else [last[call] for call in OPENS]:
        _, words = _started(tmp_path / str(number), library, number)
        assert re.fullmatch(r"(agentls: cannot \w+ the session store .*, then start agentls again\n)?", words), calls[
            number
        ]


def _started(state: Path, library: Path, number: int | None) -> tuple[list[str], str]:
    """The calls of a server that makes an agent, of which one fails, and what it says where it does not start."""
    disk = Faulty(state, library)
    if number is not None:
        disk.fail(number, 1)
    variables = [f"{name}={value}" for name, value in disk.env.items()]
    command = agentls("serve", "--state-dir", str(state), "--model", "demo")
    with started(["env", *variables, *command]) as process:
        talk = Talk.to(process)
        talk.send(message("initialize", INITIALIZE, id="hello"))
        if talk.read() is None:
            assert process.wait(SECONDS) == 2
            assert process.stderr is not None
            return [], process.stderr.read().decode()
        talk.send(message("initialized", {}))
        made = talk.call("agent/create", {"workspaceUri": state.as_uri()})
        if "error" in made:
            made = talk.call("agent/create", {"workspaceUri": state.as_uri()})
        assert "result" in made, made
        return [disk.call(made) for made in range(disk.count)], ""
