"""The values of a log: nobody changes them after the fact, and their place on the surface follows from their type."""

from __future__ import annotations

import dataclasses

import pytest

from agentls.core.blocks import TextBlock
from agentls.core.chunks import Usage
from agentls.core.codec import UNIONS, encode_event
from agentls.core.events import Event, EventData, Hold, InboxItem, StepEnd, ToolStart, TurnEnd
from agentls.core.messages import Message
from agentls.core.reasons import Completed
from tests.core.logs import CALL, HEADER, answer, append, enqueue, opened, session, tool_call, user
from tests.core.test_turn import RESULT

KINDS = [
    cls
    for union in UNIONS.values()
    for cls in (*(union.type_for(kind) for kind in union.kinds()), union.unknown)
    if isinstance(cls, type)
]


@pytest.mark.parametrize("cls", [*KINDS, Event, Message, InboxItem, Usage, type(HEADER)], ids=lambda cls: cls.__name__)
def test_every_value_of_the_log_is_frozen(cls: type) -> None:
    """Statement 33: what was given and what came back cannot be changed any more; lists in them are tuples."""
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(cls, "__slots__"), "nor can anything be added"
    for field in dataclasses.fields(cls):
        assert not str(field.type).startswith(("list", "dict", "set")), field.name


def test_an_event_that_came_back_cannot_be_changed() -> None:
    """Statement 33."""
    (event,) = append(session(), user("a"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seq = 7  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.data.message = None  # type: ignore[attr-defined]


WHOLE: tuple[EventData, ...] = (
    enqueue("q"),
    *opened("a"),
    answer(TextBlock("let me see")),
    tool_call(),
    ToolStart(CALL),
    RESULT,
    StepEnd(1, 1),
    TurnEnd(1, Completed()),
    Hold(held=True, cause="person"),
)


def test_what_is_on_the_surface_is_marked_and_nothing_else() -> None:
    """Statement 34, where ours differs: the marker follows from the type, so that none can be missing or misplaced; it
    is written for those who read an exported log."""
    events = session()
    marked = {str(line["type"]): line.get("surfaceOp") for line in (encode_event(e) for e in append(events, *WHOLE))}
    assert {kind for kind, marker in marked.items() if marker == "append"} == {
        "user/message",
        "assistant/message",
        "tool/result",
    }
    assert set(marked.values()) == {"append", None}
