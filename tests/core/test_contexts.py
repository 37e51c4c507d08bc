"""What history holds of each producer: only what the server itself put there counts."""

from __future__ import annotations

from agentls.core.blocks import TextBlock
from agentls.core.contexts import Contexts
from agentls.core.events import Event, UserMessage
from agentls.core.ids import MessageId
from agentls.core.messages import Message
from agentls.core.sources import ContextForm, Notice, PluginSource, Section, Snapshot

READING = Snapshot((Section("branch", "main"),))


def said(message: str, form: ContextForm, producer: str = "git", time: int = 5) -> Event:
    source = PluginSource(producer, form)
    return Event(0, time, UserMessage(Message(MessageId(message), "user", (TextBlock("t"),), source)))


def test_the_newest_snapshot_of_a_producer_is_kept_until_its_marker_clears_it() -> None:
    contexts = Contexts().apply(said("p1.1.1", READING))
    kept = contexts.of("git")
    assert kept is not None
    assert (kept.sections, kept.time) == (READING.sections, 5)
    cleared = contexts.apply(said("p1.2.1", Notice("gone"), time=7)).of("git")
    assert cleared is not None
    assert (cleared.sections, cleared.time) == ((), 7)


def test_a_client_that_has_the_name_of_a_producer_does_not_speak_for_it() -> None:
    contexts = Contexts().apply(said("i1", READING))
    assert contexts.of("git") is None
    contexts = contexts.apply(said("p1.1.1", READING))
    assert contexts.apply(said("i2", Snapshot((Section("branch", "theirs"),)))) is contexts
    assert contexts.apply(said("i3", Notice("gone"))) is contexts
