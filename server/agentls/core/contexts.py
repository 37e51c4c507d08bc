"""What history holds of each producer of snapshots: its newest snapshot, or that it was cleared."""

from __future__ import annotations

from dataclasses import dataclass, field

import immutables

from agentls.core.events import Event, UserMessage
from agentls.core.ids import is_producer_message
from agentls.core.sources import Notice, PluginSource, Section, Snapshot


@dataclass(frozen=True, slots=True)
class Retained:
    """The newest snapshot of a producer in history. `sections` is empty once a marker has cleared it; `time` is when
    it entered, in epoch milliseconds."""

    sections: tuple[Section, ...]
    time: int


@dataclass(frozen=True, slots=True)
class Contexts:
    """The fold. A notice of a producer that has a snapshot is its cleared marker. Only what the server's own producers
    said counts: a client that has the name of one speaks for itself."""

    by_producer: immutables.Map[str, Retained] = field(default_factory=immutables.Map)

    def apply(self, event: Event) -> Contexts:
        """The state after `event`."""
        data = event.data
        if not isinstance(data, UserMessage) or not isinstance(data.message.source, PluginSource):
            return self
        if not is_producer_message(data.message.id):
            return self
        source = data.message.source
        match source.context:
            case Snapshot(sections):
                retained = Retained(sections, event.time)
            case Notice() if source.plugin in self.by_producer:
                retained = Retained((), event.time)
            case _:
                return self
        return Contexts(self.by_producer.set(source.plugin, retained))

    def of(self, producer: str) -> Retained | None:
        """What history holds of a producer."""
        return self.by_producer.get(producer)
