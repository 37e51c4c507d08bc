"""The rows of a transcript: what a block is, and how each kind of it is drawn from what the log holds.

Every function here is pure and knows one row; which rows there are and when they change is the fold's business
(transcript.py).
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Literal

from agentls.core import ids
from agentls.core.advice import advice, headline, seconds
from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock
from agentls.core.bodies import (
    Body,
    approval_body,
    arguments_body,
    arguments_limit,
    context_body,
    person_body,
    plain_text,
    question_body,
    result_body,
    said_body,
)
from agentls.core.chunks import Usage
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    CutCall,
    Lane,
    QuestionAnswered,
    QuestionAsked,
    Retry,
    ToolCall,
    TurnEnd,
)
from agentls.core.ids import BlockId, MessageId, RequestId
from agentls.core.json import JsonObject, JsonValue, canonical
from agentls.core.messages import Message
from agentls.core.reasons import (
    TURN_ENDS,
    Blocked,
    Completed,
    Failure,
    Interrupted,
    OutputLimit,
    TurnAborted,
    TurnFailed,
)
from agentls.core.sources import FORMS, Notice, form_of, producer_of
from agentls.core.visible import fenced, one_line, preview, visible

BlockKind = Literal[
    "user", "assistant", "reasoning", "tool", "approval", "question", "context", "plan", "todo", "retry",
    "compaction", "error", "turn-end",
]  # fmt: skip
BlockState = Literal["streaming", "done", "failed", "interrupted", "rewound"]
CallState = Literal["running", "done", "failed", "denied", "not-run"]


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a tool block tells a client about its call."""

    name: str
    arguments: str
    state: CallState


@dataclass(frozen=True, slots=True)
class Block:
    """One row of the transcript. `order` says where it stands, `body` is CommonMark, `title` and `summary` one plain
    line each, `more` the UTF-8 bytes of the body that were left out, `request` the open request that it shows."""

    id: BlockId
    order: tuple[int, int]
    kind: BlockKind
    title: str
    body: str = ""
    state: BlockState = "done"
    collapsed: bool = False
    seq: int | None = None
    turn: int | None = None
    step: int | None = None
    role: Literal["user", "assistant"] | None = None
    summary: str | None = None
    more: int | None = None
    form: str | None = None
    producer: str | None = None
    call: CallFacts | None = None
    finish: str | None = None
    reason: str | None = None
    request: RequestId | None = None
    usage: Usage | None = None
    volatile: bool = False


# Messages ------------------------------------------------------------------------------------------------------

_FORM_TITLES = {
    "instructions": "Instructions",
    "catalog": "Catalog",
    "snapshot": "Snapshot",
    "notice": "Notice",
    "relay": "Relay",
    "recall": "Recall",
}


def person_row(message: Message, lane: Lane, seq: int) -> Block:
    """What a person said."""
    return Block(
        id=ids.user_block(message.id),
        order=(seq, 0),
        kind="user",
        title="Steering" if lane == "steering" else "You",
        body=person_body(message.content),
        seq=seq,
        role="user",
    )


def context_row(message: Message, seq: int, limit: int | None, *, supersedes: bool = False) -> Block:
    """What somebody else put before the model; `limit` is that of its body, and `supersedes` says whether an earlier
    snapshot of its producer is known."""
    form = form_of(message.source)
    name = FORMS.kind_of(form) if form is not None else None
    body = context_body(message, limit, supersedes=supersedes)
    return Block(
        id=ids.context_block(message.id),
        order=(seq, 0),
        kind="context",
        title=_FORM_TITLES.get(name or "", "Context"),
        summary=one_line(form.summary) if isinstance(form, Notice) else None,
        body=body.text,
        more=body.more or None,
        collapsed=True,
        seq=seq,
        role="user",
        form=name or "opaque",
        producer=one_line(producer_of(message.source)),
    )


def piece_row(
    message: MessageId, index: int, content: TextBlock | ReasoningBlock, state: BlockState, request_seq: int
) -> Block:
    """A piece of an answer. A summary is made of the whole text, so that one in flight has none."""
    reasoning = isinstance(content, ReasoningBlock)
    return Block(
        id=ids.answer_block(message, index),
        order=(request_seq, index),
        kind="reasoning" if reasoning else "assistant",
        title="Reasoning" if reasoning else "Assistant",
        body=visible(content.text),
        state=state,
        collapsed=reasoning,
        role="assistant",
        summary=one_line(content.text) if reasoning and state != "streaming" else None,
    )


# Calls ---------------------------------------------------------------------------------------------------------


def cut_row(cut: CutCall, seq: int, request_seq: int, limit: int | None) -> Block:
    """A call that the output limit cut off."""
    body = arguments_body(cut.arguments, limit)
    return Block(
        id=ids.call_block(cut.call_id),
        order=(request_seq, cut.index),
        kind="tool",
        title=one_line(cut.name),
        body=f"{body.text}\n\nThe output limit cut the answer here, so this call was not run.",
        more=body.more or None,
        state="failed",
        collapsed=True,
        seq=seq,
        summary="not run: the answer was cut at the output limit",
        call=_facts(cut.name, cut.arguments, "not-run", limit),
    )


def call_row(call: ToolCall, seq: int, limit: int | None) -> Block:
    """A call that has no result yet."""
    body = arguments_body(call.arguments, limit)
    return Block(
        id=ids.call_block(call.call_id),
        order=(seq, 0),
        kind="tool",
        title=one_line(call.name) or "(no name)",
        body=body.text,
        more=body.more or None,
        state="streaming",
        collapsed=True,
        seq=seq,
        summary=one_line(call.arguments),
        call=_facts(call.name, call.arguments, "running", limit),
    )


def result_row(
    row: Block, content: tuple[ContentBlock, ...], error: str | None, limit: int | None, *, started: bool
) -> Block:
    """A call's row with its result; `error` is the code of one that has no ordinary result, and `started` says whether
    its body may have run."""
    body = result_body(Body(row.body, row.more or 0), content, limit)
    return replace(
        row,
        body=body.text,
        more=body.more or None,
        state="done" if error is None else "failed",
        summary=row.summary if error is None else one_line(plain_text(content)),
        call=replace(row.call, state=_call_state(error, started=started)) if row.call is not None else None,
    )


def _facts(name: str, arguments: str, state: CallState, limit: int | None) -> CallFacts:
    shown = visible(arguments)
    room = arguments_limit(limit)
    return CallFacts(one_line(name), shown if room is None else preview(shown, room)[0], state)


def _call_state(error: str | None, *, started: bool) -> CallState:
    if error is None:
        return "done"
    if error == "DENIED":
        return "denied"
    return "failed" if started else "not-run"


# Requests ------------------------------------------------------------------------------------------------------


def approval_row(asked: ApprovalAsked, tool: str, order: tuple[int, int], seq: int) -> Block:
    """What a person is asked to allow: its body is exactly that, whatever its length. `tool` is the name of the call,
    for a request that does not say it."""
    return Block(
        id=BlockId(asked.request_id),
        order=order,
        kind="approval",
        title=_asking(f"Allow {_subject(asked.what, tool)}"),
        body=approval_body(asked.what),
        state="streaming",
        seq=seq,
        request=asked.request_id,
    )


_DECIDED = {"allow": "Allowed", "deny": "Denied", "deny-and-stop": "Denied", "cancelled": "Not answered"}


def decided_row(row: Block, asked: ApprovalAsked, tool: str, decided: ApprovalDecided) -> Block:
    """An approval's row with what became of it, in words that no longer ask."""
    facts = (
        f"by {decided.by}" if decided.by else "",
        "and the turn stopped" if decided.decision == "deny-and-stop" else "",
        f"remembered for the {decided.remember}" if decided.remember else "",
    )
    return replace(
        row,
        title=one_line(f"{_DECIDED[decided.decision]}: {_subject(asked.what, tool)}"),
        summary=_summary(", ".join(fact for fact in facts if fact), decided.note),
        body="\n\n".join(part for part in (row.body, said_body("note", decided.note)) if part),
        state="interrupted" if decided.decision == "cancelled" else "done",
        collapsed=True,
        request=None,
    )


def question_row(asked: QuestionAsked, order: tuple[int, int], seq: int) -> Block:
    """What a person is asked, with all that may be answered."""
    return Block(
        id=BlockId(asked.request_id),
        order=order,
        kind="question",
        title=_question(asked.question),
        body=question_body(asked.question),
        state="streaming",
        seq=seq,
        request=asked.request_id,
    )


def answered_row(row: Block, asked: QuestionAsked, answered: QuestionAnswered) -> Block:
    """A question's row with its answer."""
    said = "" if answered.cancelled else _said(answered.answer)
    answer = None if answered.cancelled else answered.answer
    return replace(
        row,
        title=one_line(f"{'Not answered' if answered.cancelled else 'Answered'}: {_question(asked.question)}"),
        summary=_summary(f"by {answered.by}" if answered.by else "", said),
        body="\n\n".join(part for part in (row.body, said_body("answer", answer)) if part),
        state="interrupted" if answered.cancelled else "done",
        collapsed=True,
        request=None,
    )


def _subject(what: JsonObject, tool: str) -> str:
    """What is to be done, in a few words. Where a path leads elsewhere, the place that it leads to is told first."""
    name, path, command = what.get("tool"), what.get("path"), what.get("command")
    name = name if isinstance(name, str) and name.strip() else tool
    if isinstance(path, str):
        place = what.get("realPath")
        elsewhere = isinstance(place, str) and not _spells(path, place)
        return f"{name} {'to' if 'change' in what else 'of'} {f'{place} (reached by {path})' if elsewhere else path}"
    return f"{name}: {command}" if isinstance(command, str) else name


def _spells(path: str, place: str) -> bool:
    """Whether a path, which may be relative, spells the place that it leads to. Where a relative one begins is not
    known here, so that the body says both in any case."""
    plain = posixpath.normpath(path)
    return place == plain or (not plain.startswith("/") and place.endswith(f"/{plain}"))


def _question(question: JsonObject) -> str:
    text = question.get("text")
    return (one_line(text) if isinstance(text, str) else "") or "Question"


def _asking(text: str) -> str:
    return one_line(text, 119) + "?"


def _said(answer: JsonValue) -> str:
    return answer if isinstance(answer, str) else "" if answer is None else canonical(answer)


def _summary(facts: str, said: str | None) -> str | None:
    return one_line(": ".join(part for part in (facts, said) if part)) or None


# Failures and ends ---------------------------------------------------------------------------------------------


def retry_row(retry: Retry, provider: str | None, seq: int) -> Block:
    """A failed attempt that is going to be made again; `provider` is whose model failed."""
    return Block(
        id=BlockId(retry.retry_id),
        order=(seq, 0),
        kind="retry",
        title=waiting_title(retry, provider, retry.delay_ms),
        summary=one_line(retry.failure.message),
        body=_failure_body(retry.failure, advice(retry.failure, provider, again=True)),
        state="streaming",
        seq=seq,
    )


def waiting_title(retry: Retry, provider: str | None, left_ms: int) -> str:
    """The title of a retry that begins in `left_ms` milliseconds."""
    left = seconds(left_ms)
    when = f"in {left} s" if left else "now"
    return one_line(f"Trying again {when}: {headline(retry.failure, provider)}")


def retried_row(row: Block, retry: Retry, provider: str | None, *, started: bool) -> Block:
    """A retry's row once its wait is over: it `started`, or the turn ended first."""
    what = f"Tried again after {seconds(retry.delay_ms)} s" if started else "Not tried again"
    return replace(
        row,
        title=one_line(f"{what}: {headline(retry.failure, provider)}"),
        state="done" if started else "interrupted",
        collapsed=True,
    )


def failure_row(failure: Failure, provider: str | None, seq: int) -> Block:
    """A failure that ended a turn: what went wrong, what to do, and the provider's own words."""
    return Block(
        id=ids.error_block(seq),
        order=(seq, 0),
        kind="error",
        title=headline(failure, provider),
        summary=one_line(failure.message),
        body=_failure_body(failure, advice(failure, provider)),
        state="failed",
        seq=seq,
    )


def _failure_body(failure: Failure, told: str) -> str:
    facts = [f"code `{failure.code}`"]
    if failure.status is not None:
        facts.append(f"HTTP {failure.status}")
    if failure.request_id:
        facts.append(f"request `{visible(failure.request_id)}`")
    return f"{told}\n\n{fenced(visible(failure.message))}\n\n{', '.join(facts)}"


# Damage --------------------------------------------------------------------------------------------------------


def damage_row(block: BlockId, first: int, last: int, why: str, *, kept: bool) -> Block:
    """A part of the log that is not as it was written; `kept` says that what it seems to hold is drawn."""
    where = f"event {first}" if first == last else f"events {first} to {last}"
    shown = (
        "What can be read of it is drawn before this row and may be wrong." if kept else "Nothing of it can be read."
    )
    return Block(
        id=block,
        order=(last, 2),
        kind="error",
        title="A part of this session is damaged" if kept else "A part of this session is lost",
        summary=one_line(f"{where}: {why}"),
        body=f"{shown}\n\n{fenced(visible(f'{where}: {why}'))}",
        state="failed",
        seq=first,
        volatile=True,
    )


def read_only_row(why: str) -> Block:
    """Says below a session why it can only be read, and what can be done."""
    return Block(
        id=ids.volatile_block(1),
        order=(2**53 - 1, 0),
        kind="error",
        title="This session can only be read",
        summary=one_line(why),
        body=f"{visible(why)}\n\n{_WHAT_HELPS}",
        state="failed",
        volatile=True,
    )


_WHAT_HELPS = (
    "Nothing of it is changed. `agentls sessions export` writes what is left to a file, and a new agent can begin with "
    "what this one had at the end of any turn before the damage (a fork)."
)


# Turns ---------------------------------------------------------------------------------------------------------


def end_row(end: TurnEnd, provider: str | None, seq: int) -> Block:
    """The row that closes a turn."""
    state: BlockState = "done"
    if isinstance(end.reason, TurnAborted | Interrupted):
        state = "interrupted"
    if isinstance(end.reason, TurnFailed):
        state = "failed"
    return Block(
        id=ids.turn_end_block(end.turn),
        order=(seq, 1),
        kind="turn-end",
        title=_end_title(end, provider),
        seq=seq,
        collapsed=True,
        reason=TURN_ENDS.kind_of(end.reason) or "unknown",
        usage=end.usage,
        state=state,
    )


def _end_title(end: TurnEnd, provider: str | None) -> str:
    match end.reason:
        case Completed():
            return f"Turn {end.turn} completed"
        case TurnAborted(cause):
            return f"Turn {end.turn} stopped" + ("" if cause == "user" else f" ({cause})")
        case Blocked(reason):
            return one_line(f"Turn {end.turn} blocked: {reason}")
        case TurnFailed(failure):
            return f"Turn {end.turn} failed: {headline(failure, provider)}"
        case OutputLimit():
            return f"Turn {end.turn} reached the output limit"
        case Interrupted():
            return f"Turn {end.turn} was interrupted: the server stopped"
    return f"Turn {end.turn} ended"
