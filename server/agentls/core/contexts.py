"""What history holds of each producer of snapshots: its newest snapshot, or that it was cleared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import immutables

from agentls.core.events import Event, UserMessage
from agentls.core.ids import is_producer_message
from agentls.core.messages import Message
from agentls.core.sources import Notice, PluginSource, Section, Snapshot, form_of, producer_of


@dataclass(frozen=True, slots=True)
class Retained:
    """The newest snapshot of a producer in history. `sections` is empty once a marker has cleared it; `time` is when
    it entered, in epoch milliseconds."""

    sections: tuple[Section, ...]
    time: int


@dataclass(frozen=True, slots=True)
class Contexts:
    """The fold. A notice of a producer that has a snapshot is its cleared marker. Only what the server's own producers
    said counts: a client that has the name of one speaks for itself. `first` is where the first snapshot of each
    producer stands in the log, whoever said it."""

    by_producer: immutables.Map[str, Retained] = field(default_factory=immutables.Map)
    first: immutables.Map[str, int] = field(default_factory=immutables.Map)

    def apply(self, event: Event) -> Contexts:
        """The state after `event`."""
        if not isinstance(event.data, UserMessage):
            return self
        message = event.data.message
        return self._met(message, event.seq)._retain(message, event.time)

    def _met(self, message: Message, seq: int) -> Contexts:
        name = producer_of(message.source)
        if name in self.first or not isinstance(form_of(message.source), Snapshot):
            return self
        return replace(self, first=self.first.set(name, seq))

    def _retain(self, message: Message, time: int) -> Contexts:
        source = message.source
        if not isinstance(source, PluginSource) or not is_producer_message(message.id):
            return self
        match source.context:
            case Snapshot(sections):
                retained = Retained(sections, time)
            case Notice() if source.plugin in self.by_producer:
                retained = Retained((), time)
            case _:
                return self
        return replace(self, by_producer=self.by_producer.set(source.plugin, retained))

    def known(self, before: int) -> frozenset[str]:
        """The producers that have a snapshot before seq `before`."""
        return frozenset(producer for producer, seq in self.first.items() if seq < before)

    def of(self, producer: str) -> Retained | None:
        """What history holds of a producer."""
        return self.by_producer.get(producer)
