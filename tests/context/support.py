"""Moments, and the history that a log of snapshots leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from agentls.context.producer import UNCHANGED, Moment, Reading
from agentls.context.snapshots import Candidate
from agentls.core.blocks import TextBlock
from agentls.core.contexts import Contexts, Retained
from agentls.core.events import UserMessage
from agentls.core.ids import MessageId, SessionId
from agentls.core.messages import Message
from agentls.core.sources import Section
from agentls.workspace.editor import Editor
from agentls.workspace.roots import Roots
from tests.core.logs import append, session

NOW = datetime(2026, 3, 1, 14, 5, 59, tzinfo=timezone(timedelta(hours=1), "CET"))
SESSION = SessionId("s")


def moment(
    root: Path, *, editor: Editor | None = None, seen: Mapping[str, str] | None = None, opens_turn: bool = True
) -> Moment:
    return Moment(SESSION, Roots([root]), NOW, opens_turn=opens_turn, editor=editor, seen=seen or {})


def retaining(of: Moment, reading: Reading, time: int = 0) -> Moment:
    """The moment after history has taken in what a producer said."""
    if reading is UNCHANGED:
        return of
    return replace(of, retained=Retained(reading, time))


def text(reading: Reading) -> dict[str, str]:
    """The text of each section that says something."""
    assert reading is not UNCHANGED
    return {section.name: section.text for section in reading if section.text}


class History:
    """A log that what was offered is committed to."""

    def __init__(self) -> None:
        self._session = session()
        self._count = 0

    @property
    def contexts(self) -> Contexts:
        return self._session.state.contexts

    def commit(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            self._count += 1
            content = (TextBlock(candidate.text),)
            message = Message(MessageId(f"p1.1.{self._count}"), "user", content, candidate.source)
            append(self._session, UserMessage(message))


def section(name: str, text: str = "text") -> Section:
    return Section(name, text)
