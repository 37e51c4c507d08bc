"""Snapshots: what the producers say, told to the model only when it is not what history says already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agentls.context.producer import UNCHANGED, Moment, Producer, Reading
from agentls.core.blocks import TextBlock
from agentls.core.bodies import snapshot_lead
from agentls.core.contexts import Contexts
from agentls.core.frames import sealed
from agentls.core.ids import SessionId
from agentls.core.sources import ContextForm, Notice, PluginSource, Section, Snapshot, bound_summary
from agentls.core.visible import one_line

SECONDS = 2.0
"""How long a producer may take. A turn waits for all of them, but not for one that hangs."""

logger = logging.getLogger(__name__)


def render_context_sections(reading: Iterable[Section]) -> tuple[Section, ...]:
    """The sections that say something, in their order."""
    return tuple(section for section in reading if section.text.strip())


def render_context_snapshot(producer: str, sections: Iterable[Section]) -> str:
    """A snapshot as the model reads it."""
    return "\n\n".join(
        (
            snapshot_lead(one_line(producer)),
            *(f"{one_line(section.name)}:\n{section.text}" for section in sections),
        )
    )


def cleared(producer: str) -> str:
    """What the model reads when nothing stands any more."""
    return f"There is nothing to know from {one_line(producer)} any more; what it said before holds no longer."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that a step is to begin with: its source, and its text without a frame. `session` and `reading` are
    what it came of."""

    source: PluginSource
    text: str
    session: SessionId
    reading: Reading


class Snapshots:
    """All producers, in the order in which their messages stand. It keeps nothing of what it offers: history does,
    once the step has begun."""

    def __init__(self, producers: Sequence[Producer], seconds: float = SECONDS) -> None:
        """`seconds` is how long each may take; ValueError for a name that comes twice."""
        self._seconds = seconds
        self._producers: dict[str, Producer] = {}
        for producer in producers:
            if self._producers.setdefault(producer.name, producer) is not producer:
                raise ValueError(f'producer "{producer.name}" is registered twice')
        self._told: dict[SessionId, set[tuple[str, type[Exception]]]] = {}

    async def candidates(self, moment: Moment, contexts: Contexts) -> tuple[Candidate, ...]:
        """What a step that begins now is to be told, beside what `contexts` says that history holds. One that fails or
        takes too long is left out this time, and logged."""
        # One after the other: nearly always none of them waits, and a task for each would cost more than all they do.
        offered = [
            await self._offer(producer, replace(moment, retained=contexts.of(name)))
            for name, producer in self._producers.items()
        ]
        return tuple(candidate for candidate in offered if candidate is not None)

    def committed(self, candidates: Iterable[Candidate]) -> None:
        """The step of these candidates has begun."""
        for candidate in candidates:
            producer = self._producers[candidate.source.plugin]
            try:
                producer.committed(candidate.session, candidate.reading)
            except Exception as error:  # noqa: BLE001 - a plugin's fault must not end a step that has begun
                self._log(producer, candidate.session, error)

    def forget(self, session: SessionId) -> None:
        """The session has been closed."""
        for producer in self._producers.values():
            try:
                producer.forget(session)
            except Exception as error:  # noqa: BLE001 - nor keep the others from letting go
                self._log(producer, session, error)
        self._told.pop(session, None)

    async def _offer(self, producer: Producer, moment: Moment) -> Candidate | None:
        try:
            async with asyncio.timeout(self._seconds):
                reading = await producer.read(moment)
            return _candidate(producer.name, moment, reading)
        except Exception as error:  # noqa: BLE001 - nor keep a turn from beginning
            self._log(producer, moment.session, error)
            return None

    def _log(self, producer: Producer, session: SessionId, error: Exception) -> None:
        told = self._told.setdefault(session, set())
        if (producer.name, type(error)) in told:
            return
        told.add((producer.name, type(error)))
        if isinstance(error, TimeoutError):
            logger.warning('producer "%s" took longer than %g seconds and was left out', producer.name, self._seconds)
        else:
            logger.error('producer "%s" failed and was left out', producer.name, exc_info=error)


def _candidate(producer: str, moment: Moment, reading: Reading) -> Candidate | None:
    if reading is UNCHANGED:
        return None
    sections = render_context_sections(reading)
    retained = moment.retained.sections if moment.retained is not None else ()
    if sections == retained:
        return None
    form: ContextForm
    if sections:
        form, text = Snapshot(sections), render_context_snapshot(producer, sections)
    else:
        text = cleared(producer)
        form = Notice(bound_summary(text))
    return Candidate(sealed(PluginSource(producer, form), (TextBlock(text),)), text, moment.session, reading)
