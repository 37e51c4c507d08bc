"""What the soak holds a server to: the log on disk after a kill, and the transcript after the restart, against what
clients had been told and shown.

Each check gives the faults that it finds, as sentences that say what was expected and what was found.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from agentls.agent.state import inbox_of
from agentls.core.blocks import ReasoningBlock, TextBlock, text_of
from agentls.core.errors import LogicError
from agentls.core.events import (
    ApprovalDecided,
    AssistantAttempt,
    AssistantMessage,
    Discard,
    Enqueue,
    Event,
    EventData,
    RequestHeader,
    RequestSent,
    ToolCall,
    ToolResult,
    ToolStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
    Update,
    UserMessage,
)
from agentls.core.frames import framed
from agentls.core.history import History
from agentls.core.inbox import Inbox
from agentls.core.invariants import check_log
from agentls.core.json import JsonObject
from agentls.core.messages import Message
from agentls.core.reasons import RetryTrigger
from agentls.models.catalog import ModelRow
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.model import ModelRequest
from tests.soak import model
from tests.soak.ledger import Ledger, Sent
from tests.soak.model import MARK, PERSON, Asked

T = TypeVar("T", bound=EventData)
Row = dict[str, Any]
Waiting = tuple[tuple[str, str, bool, bool, str], ...]

_ROW = ModelRow("openai", "played", "openai_chat")


def of(events: Iterable[Event], kind: type[T]) -> list[T]:
    """The payloads of one type."""
    return [event.data for event in events if isinstance(event.data, kind)]


# The log against the acknowledgements ------------------------------------------------------------------------------


def rules(ledger: Ledger) -> Iterator[str]:
    """The log keeps the rules of every log."""
    try:
        check_log(ledger.events)
    except LogicError as error:
        yield f"the log of {ledger.name} breaks a rule: {error}"


def messages(ledger: Ledger) -> Iterator[str]:
    """Every message that was acknowledged is in the log once, with the fate that was told; others at most once."""
    enqueued: dict[str, list[Enqueue]] = {}
    for enqueue in of(ledger.events, Enqueue):
        enqueued.setdefault(enqueue.item.id, []).append(enqueue)
    entered = Counter(str(data.message.id) for data in of(ledger.events, UserMessage))
    retried = Counter(
        str(start.trigger.id) for start in of(ledger.events, TurnStart) if isinstance(start.trigger, RetryTrigger)
    )
    for sent in ledger.sent.values():
        items = enqueued.pop(sent.id, [])
        times = {"inject": entered[sent.id], "retry": retried[sent.id]}.get(sent.verb, len(items))
        outcome = None if sent.answer is None else sent.answer["outcome"]
        least, most = (0, 1) if outcome is None else (0, 0) if outcome == "refused" else (1, 1)
        if not least <= times <= most:
            yield f"message {sent.id} ({sent.verb}) was answered {sent.answer}, and the log has it {times} times"
        if outcome is None:
            sent.stored = times > 0
        if items:
            yield from _one_fate(sent, items[0], entered[sent.id], ledger)
    for unknown in enqueued:
        yield f"the log of {ledger.name} has a message {unknown} that nobody sent"


def _one_fate(sent: Sent, enqueue: Enqueue, entered: int, ledger: Ledger) -> Iterator[str]:
    fate = enqueue.item.fate
    told = sent.answer or {}
    if sent.accepted and (fate.outcome, fate.turn, fate.position) != (
        told["outcome"],
        told.get("turn"),
        told.get("position"),
    ):
        yield f"message {sent.id} was answered {told}, and the log says {fate}"
    if text_of(enqueue.item.content) != sent.text:
        yield f'message {sent.id} says "{sent.text}", and the log has "{text_of(enqueue.item.content)}"'
    known = ledger.inbox.known[enqueue.item.id].exit
    if entered != (known == "taken"):
        yield f"message {sent.id} is {known} by the log, and stands {entered} times before the model"


def leaving(ledger: Ledger) -> Iterator[str]:
    """What left the inbox unread was thrown out by somebody, and what was read says what it was last edited to."""
    removed = {change.target for change in ledger.changes if change.change == "remove"}
    cleared = any(change.change == "cancel" and change.what == "clear" for change in ledger.changes)
    for discard in of(ledger.events, Discard):
        for one in discard.ids:
            if not (discard.cause == "removed" and one in removed) and not (discard.cause == "cancel" and cleared):
                yield f"message {one} was discarded ({discard.cause}), and nobody had asked for that"
    texts = {data.item.id: text_of(data.item.content) for data in of(ledger.events, Enqueue)}
    for event in ledger.events:
        match event.data:
            case Update(message, content=content) if content is not None:
                texts[message] = text_of(content)
            case UserMessage(message) if message.id in texts and text_of(message.content) != texts[message.id]:
                yield f'message {message.id} was "{texts[message.id]}", and the model reads "{message.content}"'


def changes(ledger: Ledger) -> Iterator[str]:
    """Every change that was acknowledged is in the log, and no other but those that had no answer yet."""
    edits = Counter(text_of(data.content) for data in of(ledger.events, Update) if data.content is not None)
    removed = {one for data in of(ledger.events, Discard) if data.cause == "removed" for one in data.ids}
    steering = {data.id for data in of(ledger.events, Update) if data.lane == "steering"}
    steering |= {data.item.id for data in of(ledger.events, Enqueue) if data.item.lane == "steering"}
    cancelled = {str(data.turn) for data in of(ledger.events, TurnCancel)}
    ended = {str(data.turn) for data in of(ledger.events, TurnEnd)}
    decided = {data.request_id: data.decision for data in of(ledger.events, ApprovalDecided)}
    asked = {change.target for change in ledger.changes if change.change == "answer"}
    for change in ledger.changes:
        there = {
            "edit": edits[change.what] == 1,
            "remove": change.target in removed,
            "promote": change.target in steering,
            "cancel": change.target in cancelled and change.target in ended,
            "answer": decided.get(cast(Any, change.target)) == change.what,
        }.get(change.change, True)
        if change.outcome in ("done", "cancelled", "accepted") and not there:
            yield f"the change {change} of {ledger.name} was acknowledged, and the log does not have it"
        if change.change == "edit" and change.outcome in ("gone", "error") and edits[change.what]:
            yield f"the change {change} of {ledger.name} was refused, and the log has it"
        if change.change == "edit" and edits[change.what] > 1:
            yield f"the change {change} of {ledger.name} is in the log {edits[change.what]} times"
    for request, decision in decided.items():
        if decision != "cancelled" and request not in asked:
            yield f"the request {request} of {ledger.name} was decided ({decision}), and nobody had answered it"


def queue(ledger: Ledger, fresh: Sequence[Event], seen: Sequence[Sequence[JsonObject]]) -> Iterator[str]:
    """Whatever a client was told of the inbox is what the log on disk went through, and states in its order. `fresh`
    are the events since the last kill, `seen` what the states have said; the ledger's inbox is taken further."""
    inbox, went = ledger.inbox, [waiting(ledger.inbox)]
    for event in fresh:
        changed = inbox.apply(event)
        if changed is not inbox:
            inbox = changed
            went.append(waiting(inbox))
    ledger.inbox = inbox
    at = 0
    for state in map(told, seen):
        if state not in went[at:]:
            yield f"a client of {ledger.name} was shown the inbox {state}, and the log on disk never came to that"
            break
        at = went.index(state, at)
    for answer in map(told, ledger.told_inboxes):
        if answer not in went:
            yield f"a client of {ledger.name} was answered with the inbox {answer}, and the log on disk never had it"
    ledger.told_inboxes.clear()


def waiting(inbox: Inbox) -> Waiting:
    """What waits by a log."""
    return tuple((one.message_id, one.lane, one.wakeup, one.held, one.text) for one in inbox_of(inbox))


def told(inbox: Iterable[JsonObject]) -> Waiting:
    """What waits as a client was told."""
    return tuple(cast(Any, (one["messageId"], one["lane"], one["wakeup"], one["held"], one["text"])) for one in inbox)


# What the restarted server shows -----------------------------------------------------------------------------------


def restarted(ledger: Ledger, state: JsonObject, blocks: dict[str, Row]) -> Iterator[str]:
    """Nothing runs, what waits is what waited, held, and all that was shown is there."""
    for name, expected in ("status", "idle"), ("requests", []), ("turn", None):
        if state[name] != expected:
            yield f"{ledger.name} came back with {name} {state[name]}, not {expected}"
    expected_inbox = tuple((id, "queued", wakeup, True, text) for id, _, wakeup, _, text in waiting(ledger.inbox))
    now = told(cast(Any, state["inbox"]))
    if now != expected_inbox:
        yield f"what waits for {ledger.name} is {now}; by the log that was on disk it is {expected_inbox}"
    if bool(state["hold"]) != bool(now):
        yield f"{ledger.name} came back with the hold {state['hold']} over {len(now)} messages"
    for id, before in ledger.shown.items():
        if before.get("volatile"):
            continue
        after = blocks.get(id)
        problem = "it is not there any more" if after is None else lost(before, after)
        if problem:
            yield f"block {id} of {ledger.name}: {problem}; shown was {before}, there is {after}"
    for id, after in blocks.items():
        if after["state"] == "streaming":
            yield f"block {id} of {ledger.name} came back as if it were still being written: {after}"


def lost(before: Row, after: Row) -> str | None:
    """What of a block that was shown is not in the one that is there now."""
    for name in ("kind", "order", "turn", "step"):
        if before.get(name) != after.get(name):
            return f"its {name} was {before.get(name)} and is {after.get(name)}"
    if before["state"] == "streaming":
        return None if after["body"].startswith(before["body"]) else "text that was shown is lost"
    for name in ("state", "body", "title", "reason"):
        if before.get(name) != after.get(name):
            return f"its {name} has changed though it was done"
    return None


# What ran ----------------------------------------------------------------------------------------------------------


def bodies(ledger: Ledger) -> Iterator[str]:
    """No body of a write ran without its start in the log, or twice, or unasked; what a result says is on disk."""
    calls = {data.call_id: data for data in of(ledger.events, ToolCall) if data.name == "write"}
    starts = [data.call_id for data in of(ledger.events, ToolStart) if data.call_id in calls]
    began: Counter[str] = Counter(_arguments(calls[call])["path"] for call in starts)
    ok: Counter[str] = Counter()
    contents: dict[str, set[str]] = {}
    for call in calls.values():
        arguments = _arguments(call)
        contents.setdefault(arguments["path"], set()).add(arguments["content"])
    for result in of(ledger.events, ToolResult):
        if result.call_id in calls and result.error is None:
            meta = cast(Any, result.meta)
            ok[_arguments(calls[result.call_id])["path"]] += meta["change"] != "none"
    for path in sorted({*contents, *ledger.bodies}):
        ran = len(ledger.bodies.get(path, ()))
        if not ok[path] <= ran <= began[path]:
            yield (
                f"the file {path} of {ledger.name} was written by {ran} bodies; the log has {began[path]} starts and "
                f"{ok[path]} results that say so"
            )
        file = ledger.folder / path
        if file.exists() and file.read_text() not in contents.get(path, set()):
            yield f"the file {path} of {ledger.name} is not what any call writes: it has {file.stat().st_size} bytes"


def _arguments(call: ToolCall) -> dict[str, str]:
    return cast(dict[str, str], json.loads(call.arguments))


# What the model was asked, and what came of its answers --------------------------------------------------------------


def requests(ledger: Ledger, asked: Sequence[Asked], since: int) -> Iterator[str]:
    """Each request that the model got since that event stands in the log, can be made again from it, and holds no
    message twice."""
    made = _made(ledger.events, since)
    for one in asked:
        persons = Counter(
            found[0]
            for message in one.messages
            if message["role"] == "user" and (found := PERSON.match(model.text_of(message)))
        )
        if twice := [name for name, times in persons.items() if times > 1]:
            yield f"request {one.number} of {ledger.name} says {twice} more than once"
        if not any(messages == one.messages for messages in made):
            yield f"request {one.number} of {ledger.name} is none that its log has sent: {one.messages}"
            return


def _made(events: Sequence[Event], since: int) -> Iterator[list[JsonObject]]:
    """The messages of each request that the log has sent since that event, made again from what it had by then."""
    dialect = OpenAiChat()
    history = History()
    before: dict[int, History] = {}
    header: RequestHeader | None = None
    for event in events:
        match event.data:
            case RequestHeader():
                header = event.data
            case RequestSent(boundary=boundary) if event.seq >= since:
                assert header is not None, "a request comes after its header"
                then = before[boundary].messages if boundary in before else history.messages
                body = dialect.encode(ModelRequest(header.system, tuple(map(framed, then)), header.tools), _ROW)
                assert isinstance(body, bytes), body
                yield json.loads(body)["messages"]
        history = history.apply(event)
        before[event.seq] = history


def answers(ledger: Ledger, asked: Sequence[Asked], since: int) -> Iterator[str]:
    """Each text of the model in the log is what it said, all of it where the answer did not end early, and once."""
    said = {one.number: one for one in asked}
    seen: Counter[tuple[int, bool]] = Counter()
    for event in ledger.events[since:]:
        match event.data:
            case AssistantMessage(message=message):
                whole = not event.data.interrupted
            case AssistantAttempt(shown=message):
                whole = False
            case _:
                continue
        for number, thought, text in _texts(message):
            seen[number, thought] += 1
            one = said.get(number)
            expected = "" if one is None else one.thought if thought else one.said
            if not (text == expected if whole else expected.startswith(text)):
                yield f'answer {number} of {ledger.name} was "{expected}", and the log has "{text}"'
    for (number, _), times in seen.items():
        if times > 1:
            yield f"answer {number} of {ledger.name} is in the log {times} times"


def _texts(message: Message) -> Iterator[tuple[int, bool, str]]:
    for block in message.content:
        if isinstance(block, TextBlock | ReasoningBlock):
            found = MARK.match(block.text)
            yield int(found[1]) if found else 0, isinstance(block, ReasoningBlock), block.text
