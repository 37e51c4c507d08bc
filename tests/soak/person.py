"""A person who works with one agent, by chance and in a hurry: everything that the protocol offers, and several things
at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.soak.client import Client, Lost, Refused
from tests.soak.ledger import Answer, Changed, Ledger, Sent, Verb

AT_ONCE = 4
"""Requests that one person has under way."""
CROWDED = 10
"""Messages that wait before the person makes room."""
CALM = 3
"""Messages that still run when everything is to come to its end."""

_METHODS = {"followup": "agent/followup", "steer": "agent/steer", "quiet": "agent/send", "inject": "agent/inject"}
_MAY_FAIL = {"agent/inbox/move", "agent/answer"}
"""What is refused with an error where somebody was faster."""
_WEIGHTS = {
    "followup": 26, "steer": 16, "quiet": 7, "inject": 9, "edit": 9, "remove": 4, "move": 6, "promote": 4, "resume": 6,
    "stop": 3, "clear": 1, "retry": 5, "again": 7, "clash": 2,
}  # fmt: skip


@dataclass(slots=True)
class Counts:
    """What was asked of the server, over the whole run."""

    acknowledged: int = 0
    changes: int = 0
    in_doubt: int = 0
    repeated: int = 0
    clashes: int = 0
    approvals: int = 0


@dataclass(slots=True)
class Person:
    """Works with the agent of `ledger` for one life of the server."""

    client: Client
    ledger: Ledger
    chance: random.Random
    counts: Counts
    faults: list[str] = field(default_factory=list)
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _decided: set[str] = field(default_factory=set)

    async def again(self) -> None:
        """Send once more what was under way when the server died, and a few of those that were acknowledged."""
        doubtful = [sent for sent in self.ledger.sent.values() if sent.answer is None]
        known = self.ledger.settled()[-30:]
        for sent in (*doubtful, *self.chance.sample(known, min(len(known), 4))):
            await self._send(sent)

    async def begin(self) -> None:
        """Have the agent work."""
        held = [item for item in self.state["inbox"] if item["held"]]
        if held and self.chance.random() < 0.6:
            await self._change(Changed("resume", ""), "agent/inbox/resume")
            if self.state["status"] != "idle" or not any(item["wakeup"] for item in held):
                return
        await self._new("followup")

    async def work(self) -> None:
        """Do one thing after another until the server is gone."""
        while not self.client.is_gone:
            self._decide()
            if len(self._under_way) < AT_ONCE:
                self._start(self._something())
            await asyncio.sleep(self.chance.choice((0.002, 0.01, 0.02, 0.05)))

    async def calm(self) -> None:
        """Let go of what waits and allow what is asked, until nothing is left; of many messages only a few run."""
        for item in self.state["inbox"][CALM:]:
            change = Changed("remove", item["messageId"])
            await self._change(change, "agent/inbox/remove", messageId=item["messageId"])
        while True:
            await self._change(Changed("resume", ""), "agent/inbox/resume")
            await self._new("followup", "briefly")
            await self.client.until(self._rests, f"agent {self.ledger.name} had come to rest")
            if not self.state["inbox"]:
                break  # Else they are quiet ones, which run with the next that wakes.
        await self.ended()

    async def ended(self) -> None:
        """Wait until every request has its answer, or will have none."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _rests(self) -> bool:
        self._decide(calmly=True)
        return bool(self.state["status"] == "idle")

    @property
    def state(self) -> dict[str, Any]:
        """The agent's newest state."""
        return self.client.state(self.ledger.id)

    def _start(self, doing: Coroutine[Any, Any, None]) -> None:
        async def done() -> None:
            try:
                await doing
            except Lost:
                pass
            except (Refused, AssertionError, TimeoutError) as fault:
                self.faults.append(f"{type(fault).__name__}: {fault}")

        task = asyncio.create_task(done())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    # What a person does ----------------------------------------------------------------------------------------

    async def _something(self) -> None:
        waiting = [item["messageId"] for item in self.state["inbox"]]
        verb = self.chance.choices(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))[0]
        if len(waiting) > CROWDED and verb in ("followup", "steer", "quiet"):
            verb = self.chance.choice(("remove", "promote", "resume", "clear"))
        target = self.chance.choice(waiting) if waiting else None
        match verb:
            case "followup" | "steer" | "quiet" | "inject":
                await self._new(verb)
            case "edit" if target:
                text = f"[{target}] edited {self.chance.randrange(1 << 30)} {self._wish()}"
                await self._change(Changed("edit", target, text), "agent/inbox/edit", messageId=target, content=text)
            case "remove" | "promote" if target:
                await self._change(Changed(verb, target), f"agent/inbox/{verb}", messageId=target)
            case "move" if target:
                before = self.chance.choice((*waiting, None))
                await self._change(Changed("move", target), "agent/inbox/move", messageId=target, before=before)
            case "resume":
                await self._change(Changed("resume", ""), "agent/inbox/resume")
            case "stop" | "clear" if self.state["turn"]:
                keep, turn = verb == "stop", self.state["turn"]["number"]
                change = Changed("cancel", str(turn), "keep" if keep else "clear")
                await self._change(change, "agent/cancel", turn=turn, keepInbox=keep)
            case "retry" if self.state["lastTurn"]:
                await self._send(Sent(self.ledger.fresh(), "retry", "", turn=self.state["lastTurn"]["number"]))
            case "again" if known := self.ledger.settled():
                await self._send(self.chance.choice(known[-12:]))
            case "clash" if known := self.ledger.settled():
                await self._clash(self.chance.choice(known))

    def _wish(self) -> str:
        """What the scripted model goes by; the other one does as it likes."""
        if self.ledger.http or self.chance.random() < 0.4:
            return "tell me more, ünd 日本語"
        return f"write {self.ledger.name}-f{self.chance.randrange(1 << 30)}.txt"

    async def _new(self, verb: Verb, wish: str | None = None) -> None:
        name = self.ledger.fresh()
        await self._send(Sent(name, verb, f"[{name}] {wish or self._wish()}"))

    async def _send(self, sent: Sent) -> None:
        """Send it, for the first time or once more; a repeat must be answered as the first time was."""
        self.ledger.sent.setdefault(sent.id, sent)
        was = sent.answer if sent.accepted else None
        params: dict[str, Any] = {"agentId": self.ledger.id, "messageId": sent.id}
        match sent.verb:
            case "retry":
                answer = await self.client.ask("agent/retry", **params, turn=sent.turn)
            case "inject":
                context = {"form": "notice", "summary": sent.id}
                answer = await self.client.ask(_METHODS[sent.verb], **params, content=sent.text, context=context)
            case "quiet":
                answer = await self.client.ask(_METHODS[sent.verb], **params, content=sent.text, wakeup=False)
            case verb:
                answer = await self.client.ask(_METHODS[verb], **params, content=sent.text)
        if sent.stored is not None and bool(answer.get("repeated")) is not sent.stored:
            there = "was on disk" if sent.stored else "was not on disk"
            self.faults.append(f"message {sent.id} {there} when the server died, and was now answered {answer}")
        sent.stored = None
        if was is None:
            sent.answer = _fate(answer)
            self.counts.acknowledged += answer["outcome"] != "refused"
            return
        self.counts.repeated += 1
        if _fate(answer) != was or not answer.get("repeated"):
            self.faults.append(f"message {sent.id} was answered {was}, and when it was sent once more {answer}")

    async def _clash(self, sent: Sent) -> None:
        text = f"[{sent.id}] other words"
        answer = await self.client.ask("agent/followup", agentId=self.ledger.id, messageId=sent.id, content=text)
        self.counts.clashes += 1
        if (answer["outcome"], answer.get("reason")) != ("refused", "id-conflict"):
            self.faults.append(f"other words under the known id {sent.id} were answered {answer}")

    async def _change(self, change: Changed, method: str, **params: Any) -> None:
        self.ledger.changes.append(change)
        try:
            change.answer = await self.client.ask(method, agentId=self.ledger.id, **params)
        except Refused as refused:
            change.answer = {"outcome": "error"}
            if method not in _MAY_FAIL:
                raise
            if refused.code not in (-32602, -32803):
                raise
        self.counts.changes += 1
        if "inbox" in change.answer:
            self.ledger.told_inboxes.append(tuple(change.answer["inbox"]))

    def _decide(self, *, calmly: bool = False) -> None:
        """Answer what is asked, mostly by a yes, and some of it not at all."""
        for request in self.state["requests"]:
            name = request["requestId"]
            if name in self._decided:
                continue
            self._decided.add(name)
            decision = "allow" if calmly else self.chance.choices(
                ("allow", "deny", "deny-and-stop", ""), (80, 10, 4, 6)
            )[0]  # fmt: skip
            if decision:
                self.counts.approvals += 1
                answer = {"decision": decision}
                change = Changed("answer", name, decision)
                self._start(self._change(change, "agent/answer", requestId=name, shown=request["shown"], answer=answer))


def _fate(answer: Answer) -> Answer:
    """What of an answer has to be the same each time."""
    return {key: answer[key] for key in ("messageId", "outcome", "turn", "position", "reason") if key in answer}
