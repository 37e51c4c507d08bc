"""The soak: four agents at work, a server that is killed and started again, and a look at what is left each time."""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agentls.core.events import Event, ToolResult
from agentls.workspace.inotify import Inotify
from tests.soak import checks
from tests.soak.client import Client, Lost, Refused
from tests.soak.disk import held_locks, logs_of
from tests.soak.ledger import Ledger
from tests.soak.model import ScriptedHttp
from tests.soak.moments import Moment
from tests.soak.person import Counts, Person
from tests.soak.server import Server

LIVES = 25
"""Kills that the same four agents live through; then they come to rest, are deleted, and others take their place."""

COME_BACK = 10.0
"""Seconds of CPU within which a server has started and four agents are drawn."""

_TEMPORARY = re.compile(r"\.(?P<path>.+)\.[0-9a-f]+\.agentls-new")


class Failed(Exception):
    """Something is missing, or is there twice; `faults` are sentences."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


@dataclass(slots=True)
class Report:
    """What was reached."""

    kills: int = 0
    stillborn: int = 0
    at_work: list[int] = field(default_factory=list)
    shown: int = 0
    blocks: int = 0
    bodies: int = 0
    unknown: int = 0
    requests: int = 0
    leftovers: int = 0
    starts: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    agents: int = 0
    counts: Counts = field(default_factory=Counts)

    def lines(self, seconds: float) -> list[str]:
        """In words."""
        counts = self.counts
        starts, cpu = sorted(self.starts), sorted(self.cpu)
        slow = f"{starts[int(len(starts) * 0.95)]:.2f} s at the 95th percentile, {starts[-1]:.2f} s at most"
        used = f"{statistics.median(cpu):.2f} s of CPU at the median, {cpu[-1]:.2f} s at most"
        return [
            f"{self.kills} kills in {seconds:.0f} s, {statistics.mean(self.at_work):.1f} of four agents at work at a "
            f"kill ({self.agents} agents in all); {self.stillborn} of them while sessions were being opened",
            f"{counts.acknowledged} messages and {counts.changes} changes and answers acknowledged, all found; "
            f"{counts.in_doubt} messages in doubt when the server died, each there once or not at all",
            f"{self.shown} characters of {self.blocks} blocks shown between two kills, all found",
            f"{self.bodies} bodies of writes, each once ({self.unknown} with an unknown outcome; {self.leftovers} "
            "temporary files left beside)",
            f"{self.requests} requests at the model, all valid and made again from the log",
            f"{counts.repeated} messages sent once more, {counts.clashes} ids with other words, {counts.approvals} "
            "approvals answered",
            f"{len(starts)} starts took {statistics.median(starts):.2f} s at the median until all agents were drawn, "
            f"{slow}; {used}",
        ]


@dataclass(slots=True)
class Soak:
    """One run. `say` gets a line a kill."""

    kills: int
    seed: int
    folder: Path
    model: ScriptedHttp
    script: Path
    say: Callable[[str], None]
    report: Report = field(default_factory=Report)
    _chance: random.Random = field(init=False)
    _ledgers: list[Ledger] = field(default_factory=list)
    _names: int = 0
    _watches: dict[int, Ledger] = field(default_factory=dict)
    _inotify: Inotify = field(init=False)
    _moment: Moment | None = None
    _dropped: bool = False

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/soak")
        self._inotify = Inotify()

    async def run(self) -> None:
        """Kill and look, as often as was asked for; Failed where something is missing."""
        asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._files)
        try:
            while self.report.kills < self.kills:
                await self._generation(min(LIVES, self.kills - self.report.kills))
        finally:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()

    async def _generation(self, kills: int) -> None:
        """The life of four agents: so many kills, then a rest in which everything comes to its end."""
        old, self._ledgers = self._ledgers, []
        last = self.report.kills + kills
        while self.report.kills < last:
            if self._ledgers and last - self.report.kills > 1 and self._chance.random() < 0.1:
                await self._stillborn()
            await self._life(old)
            old = []
        await self._rest()

    # One life of the server --------------------------------------------------------------------------------------

    async def _life(self, old: list[Ledger]) -> None:
        """Start, look at what is left of the life before, work, kill."""
        moment = self._moment = Moment.drawn(self._chance)
        number = self.report.kills + 1
        server, client = await self._start(moment)
        moment.kill = server.kill
        try:
            started = self.report.starts[-1]
            await self._retire(client, old)
            people = await self._people(client, number)
            await asyncio.gather(*(person.again() for person in people))
            _raise(fault for person in people for fault in person.faults)
            grown = {(ledger.id, id): len(str(block["body"])) for ledger, id, block in self._blocks(client)}
            first, written = len(self.model.asked), self.report.bodies
            work = [asyncio.create_task(self._work(person)) for person in people]
            if self._chance.random() < 0.75:
                await self._streaming(client, first)
            moment.arm()
            await moment.over.wait()
        finally:
            await server.end()
        await client.gone()
        await asyncio.gather(*work)
        await asyncio.gather(*(person.ended() for person in people))
        faults = [fault for person in people for fault in person.faults]
        at_work = sum(client.state(ledger.id)["status"] != "idle" for ledger in self._ledgers)
        shown, blocks = self._shown(client, grown)
        report = self.report
        report.kills += 1
        report.at_work.append(at_work)
        report.shown += shown
        report.blocks += blocks
        doubts = sum(sent.answer is None for ledger in self._ledgers for sent in ledger.sent.values())
        report.counts.in_doubt += doubts
        await self._look(server, client, faults)
        self.say(
            f"kill {number} {moment}: {at_work} at work, {shown} characters shown in {blocks} blocks, {doubts} "
            f"messages in doubt, {report.bodies - written} writes, {len(self.model.asked) - first} requests; "
            f"started in {started:.2f} s"
        )

    async def _stillborn(self) -> None:
        """A server that is killed while it still mends what the one before it left."""
        server = await self._serve()
        seconds = self._chance.uniform(0, 0.3)
        try:
            client = await Client.connected(self._socket, lambda _: None)
            attaching = [asyncio.create_task(client.attach(ledger.id)) for ledger in self._ledgers]
            await asyncio.sleep(seconds)
        finally:
            await server.end()
        await asyncio.wait(attaching)
        refused = [task.exception() for task in attaching if isinstance(task.exception(), Refused)]
        _raise([*map(str, refused), *server.faults()])
        self.report.kills += 1
        self.report.stillborn += 1
        self.say(f"kill {self.report.kills} while sessions are opened, after {seconds:.2f} s")

    async def _streaming(self, client: Client, first: int) -> None:
        """Give the agents of the HTTP model the time to ask it: a new server is slower at that than later on."""
        with suppress(Lost, AssertionError):
            asked = self.model.asked
            await client.until(lambda: len({one.agent for one in asked[first:]}) == 2, "both had asked", seconds=1)

    async def _work(self, person: Person) -> None:
        try:
            await person.begin()
        except Lost:
            return
        await person.work()

    async def _rest(self) -> None:
        """One more life, without a kill: what waits runs, everything comes to its end, and the server leaves."""
        self.model.calm = True
        server, client = await self._start(None)
        try:
            people = await self._people(client, self.report.kills)
            await asyncio.gather(*(person.again() for person in people))
            await asyncio.gather(*(person.calm() for person in people))
            faults = [fault for person in people for fault in person.faults]
            for ledger in self._ledgers:
                ledger.shown = _copied(client.drawn[ledger.id].blocks)
            status = await server.stop()
            if status != 0:
                faults.append(f"the server left with the status {status}")
        finally:
            await server.end()
        await client.gone()
        self.model.calm = False
        await self._look(server, client, faults)
        for ledger in self._ledgers:
            whole = (await self._logs({ledger.id: 0}))[ledger.id]
            if list(whole) != ledger.events:
                raise Failed([f"events of {ledger.name} are not what they were when they were read first"])
            if waits := checks.waiting(ledger.inbox):
                raise Failed([f"{waits} still wait for {ledger.name} after everything has run"])

    async def _start(self, moment: Moment | None) -> tuple[Server, Client]:
        """A server on the same state, and a client that draws every agent; what came back is looked at."""
        server = await self._serve()
        try:
            return server, await self._back(server, moment)
        except (Lost, Refused, TimeoutError) as error:
            await server.end()
            raise Failed([f"a client could not come back: {error!r}", *server.said]) from error
        except BaseException:
            await server.end()
            raise

    async def _back(self, server: Server, moment: Moment | None) -> Client:
        client = await Client.connected(self._socket, lambda message: moment.told(message) if moment else None)
        for ledger in self._ledgers:
            await client.attach(ledger.id)
        took = time.monotonic() - server.began
        self.report.starts.append(took)
        cpu = server.cpu()
        self.report.cpu.append(cpu)
        faults = [] if cpu < COME_BACK else [f"the server needed {cpu:.1f} s of CPU to come back"]
        for ledger in self._ledgers:
            blocks = cast(dict[str, dict[str, Any]], client.drawn[ledger.id].blocks)
            faults += checks.restarted(ledger, client.drawn[ledger.id].state, blocks)
        _raise(faults)
        return client

    async def _serve(self) -> Server:
        options = ("--base-url", self.model.url, "--model-id", "played", "--script", str(self.script))
        return await Server.started(self._socket, self.folder / "state", *options, "--max-retries", "3")

    @property
    def _socket(self) -> Path:
        return self.folder / "run" / "s"

    async def _people(self, client: Client, number: int) -> list[Person]:
        """Somebody for each agent; where there is none yet it is made."""
        while len(self._ledgers) < 4:
            self._names += 1
            self.report.agents += 1
            http = len(self._ledgers) < 2
            name = f"{'h' if http else 's'}{self._names}"
            folder = self.folder / "work" / name
            folder.mkdir(parents=True)
            (folder / "in.txt").write_text("read me\nand go on\n")
            model = "played" if http else "demo/demo"
            created = await client.ask("agent/create", workspaceUri=folder.as_uri(), model=model)
            ledger = Ledger(name, created["agentId"], folder, http)
            self._watches[self._inotify.add(str(folder))] = ledger
            await client.attach(ledger.id)
            self._ledgers.append(ledger)
        return [
            Person(client, ledger, random.Random(f"{self.seed}/{ledger.name}/{number}"), self.report.counts)
            for ledger in self._ledgers
        ]

    async def _retire(self, client: Client, old: list[Ledger]) -> None:
        """Delete agents that have come to rest; what was acknowledged as deleted is gone."""
        for ledger in old:
            await client.ask("agent/delete", agentId=ledger.id)
        there = {agent["id"] for agent in (await client.ask("agent/list", limit=200))["agents"]}
        if left := [ledger.name for ledger in old if ledger.id in there]:
            raise Failed([f"{left} were deleted and are still listed"])

    # After a kill --------------------------------------------------------------------------------------------------

    async def _look(self, server: Server, client: Client, faults: list[str]) -> None:
        """Look at what is on disk, against what the client was told; Failed with all that is wrong."""
        self._files()
        faults += server.faults()
        faults += ["the kernel has dropped what happened to files, so that bodies cannot be counted"] * self._dropped
        faults += [f"a rule of the protocol was broken: {broken}" for broken in client.broken]
        faults += [f"the lock {lock} of the killed server is held" for lock in held_locks(self.folder / "state")]
        faults += [f"the API would refuse {fault}" for fault in self.model.faults]
        logs = await self._logs({ledger.id: len(ledger.events) for ledger in self._ledgers})
        for ledger in self._ledgers:
            fresh, since = logs[ledger.id], len(ledger.events)
            ledger.events += fresh
            faults += checks.queue(ledger, fresh, client.inboxes.get(ledger.id, ()))
            for check in checks.rules, checks.messages, checks.leaving, checks.changes, checks.bodies:
                faults += check(ledger)
            if ledger.http:
                asked = [one for one in self.model.asked if one.agent == ledger.name]
                faults += checks.answers(ledger, asked, since)
                faults += checks.requests(ledger, asked[ledger.requests :], since)
                self.report.requests += len(asked) - ledger.requests
                ledger.requests = len(asked)
            self.report.unknown += sum(
                data.error is not None and data.error.code == "TOOL_OUTCOME_UNKNOWN"
                for data in checks.of(fresh, ToolResult)
            )
            self._take_away(ledger)
        _raise(faults)

    async def _logs(self, since: dict[str, int]) -> dict[str, tuple[Event, ...]]:
        return await logs_of(self.folder / "state", self.folder / "copy", since)

    def _take_away(self, ledger: Ledger) -> None:
        """Take away what was written, so that a second run of a body would write it anew."""
        for path in ledger.folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                self.report.leftovers += 1
            if path.name != "in.txt":
                path.unlink()

    def _files(self) -> None:
        """Note what bodies have begun to write: each has a temporary file of its own."""
        for happened in self._inotify.read():
            self._dropped |= happened.overflow
            ledger, found = self._watches.get(happened.watch), _TEMPORARY.fullmatch(happened.name)
            if ledger is None or found is None:
                continue
            names = ledger.bodies.setdefault(found["path"], set())
            if happened.name not in names:
                names.add(happened.name)
                self.report.bodies += 1
                if self._moment is not None:
                    self._moment.happened("file")

    def _blocks(self, client: Client) -> list[tuple[Ledger, str, dict[str, Any]]]:
        return [
            (ledger, id, cast(dict[str, Any], block))
            for ledger in self._ledgers
            for id, block in client.drawn[ledger.id].blocks.items()
        ]

    def _shown(self, client: Client, grown: dict[tuple[str, str], int]) -> tuple[int, int]:
        """Keep what is drawn; how many characters of how many blocks are new."""
        characters = blocks = 0
        for ledger in self._ledgers:
            ledger.shown = _copied(client.drawn[ledger.id].blocks)
            for id, block in ledger.shown.items():
                more = len(block["body"]) - grown.get((ledger.id, id), 0)
                characters += max(more, 0)
                blocks += more > 0
        return characters, blocks


def _copied(blocks: Any) -> dict[str, dict[str, Any]]:
    return {id: dict(block) for id, block in blocks.items()}


def _raise(faults: Iterable[str]) -> None:
    if found := tuple(faults):
        raise Failed(found)
