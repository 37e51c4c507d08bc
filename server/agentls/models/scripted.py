"""A model that reads its answers from a file: for demos without a key and for tests of the whole program.

A script is a JSON object `{"pace": 40, "replies": [...]}`. A reply says when it is due and what it is made of:

    {"when": "tests?", "context": "", "answers": 0, "step": 0, "pace": 20, "pieces": [{"text": "Hello {user}"}, …]}

The first reply whose conditions all hold is given. `when` is a regular expression searched in the newest text of a
person, `context` one searched in `producer: title` of the newest injected context that came after the person's message
before that; `answers` is how many answers the request holds, `step` how many of them came after the newest text of a
person. `result` is a regular expression searched in the newest tool result after that text, written `read ok: …` or
`read failed: …`; `offers` lists tools that the request has to offer. A reply without any condition is due after as many
answers as there are such replies before it, so that a plain list is a conversation. Where none is due the newest text
of a person is quoted back.

A piece is one of `text`, `reasoning`, `call {name, arguments, id?}`, `usage {inputTokens, …}`, `wait` (milliseconds),
`finish` (`stop`, `length`, …) or `failure {message, code, …}`. Texts and arguments come word by word, `pace`
milliseconds apart, and may hold `{user}`, `{previous}` (the text of a person before that), `{producer}`, `{context}`,
`{result}`, and the named groups of the conditions: `(?P<file>…)` is `{file}`. Each stands for one line.

The model keeps no state: what it says follows from the request alone, so that it is the same after a crash.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from agentls.core.blocks import ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock, text_of
from agentls.core.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from agentls.core.errors import UserError
from agentls.core.ids import CallId, is_producer_message
from agentls.core.json import canonical
from agentls.core.messages import Message
from agentls.core.reasons import Failed, Failure, FinishReason, MaxTokens, Stop, ToolCalls
from agentls.core.sources import (
    Catalog,
    Instructions,
    Notice,
    Recall,
    Relay,
    Snapshot,
    ToolSource,
    form_of,
    is_person,
    producer_of,
)
from agentls.core.visible import one_line
from agentls.models.catalog import ModelRow
from agentls.models.model import Model, ModelRequest

DEMO_SCRIPT = Path(__file__).with_name("demo.json")
"""The script of the built-in demo."""

_WORD = re.compile(r"\S+\s*|\s+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

_Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    # Built on first use: most servers never read a script.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Call(_Part):
    """A tool call; arguments that are a text are sent as they are, so that they may be broken."""

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str | None = None


class Fault(_Part):
    """A failure as a provider would cause it."""

    message: str
    code: str = "SERVER"
    status: int | None = None
    retry_after_ms: _Count | None = Field(default=None, alias="retryAfterMs")


class Tokens(_Part):
    """Token counts, in disjoint buckets."""

    input_tokens: _Count = Field(default=0, alias="inputTokens")
    output_tokens: _Count = Field(default=0, alias="outputTokens")
    cache_read_tokens: _Count = Field(default=0, alias="cacheReadTokens")
    reasoning_tokens: _Count = Field(default=0, alias="reasoningTokens")


class Piece(_Part):
    """One thing that an answer does; exactly one field is given."""

    text: str | None = None
    reasoning: str | None = None
    call: Call | None = None
    usage: Tokens | None = None
    wait: _Count | None = None
    finish: str | None = None
    failure: Fault | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a piece has exactly one of {', '.join(type(self).model_fields)}")
        return self


class Reply(_Part):
    """One answer and when it is due."""

    pieces: tuple[Piece, ...] = Field(strict=False)
    when: str | None = None
    context: str | None = None
    result: str | None = None
    answers: _Count | None = None
    step: _Count | None = None
    offers: tuple[str, ...] = Field(default=(), strict=False)
    pace: _Count | None = None

    @field_validator("when", "context", "result")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @property
    def is_plain(self) -> bool:
        """Whether it has no condition but its place."""
        return self.model_fields_set <= {"pieces", "pace"}


class Script(_Part):
    """All that a scripted model can say; `pace` is in milliseconds."""

    replies: tuple[Reply, ...] = Field(strict=False)
    pace: _Count = 0


def load(path: Path) -> Script:
    """The script in a file; UserError, with the file and the field, where it is none."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f'script "{path}" cannot be read: {(error.strerror or str(error)).lower()}') from error
    except ValueError as error:
        raise UserError(f'script "{path}" is not JSON: {error}') from error
    try:
        return Script.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(
            f'script "{path}" has a mistake at "{field or "its top"}": {message[:1].lower()}{message[1:]}'
        ) from error


class ScriptedModels:
    """Opens rows whose base URL is the path of a script; an empty one stands for the demo's."""

    def open(self, row: ModelRow) -> Model:
        """The model of a row; its script is read now."""
        return Scripted(row, load(Path(row.base_url) if row.base_url else DEMO_SCRIPT))

    def problem(self, row: ModelRow) -> str | None:
        """That the script is not there; what is wrong in it is told when it is opened."""
        if not row.base_url or Path(row.base_url).is_file():
            return None
        return f'there is no script "{row.base_url}"; write it there or name another one'

    async def close(self) -> None:
        """Nothing was started."""


class Scripted:
    """The model that reads a script aloud; `sleep` takes seconds."""

    def __init__(
        self, row: ModelRow, script: Script, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.context_window = row.context_window
        self.takes_tools = row.takes_tools
        self._script = script
        self._sleep = sleep

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The chunks of the reply that is due (see `Model.stream`)."""
        conversation = _Conversation.of(request.messages)
        offered = frozenset(tool.name for tool in request.tools)
        reply, conversation = _due(self._script, conversation, offered)
        pieces, pace = (reply.pieces, reply.pace) if reply is not None else (_echo(conversation), None)
        seconds = (self._script.pace if pace is None else pace) / 1000
        run = _Run(conversation)
        for piece in pieces:
            if piece.wait is not None:
                await self._sleep(piece.wait / 1000)
            for chunk in run.take(piece):
                # Also without a pace, since the loop must not wait for a whole answer.
                if isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
                    await self._sleep(seconds)
                yield chunk
            if run.over:
                return
        for chunk in run.end():
            yield chunk


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What a script may ask of a request, and quote from it. `groups` are those of the reply that is due."""

    user: str = ""
    previous: str = ""
    producer: str = ""
    context: str = ""
    result: _Result | None = None
    answers: int = 0
    step: int = 0
    groups: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(messages: Sequence[Message]) -> _Conversation:
        user = previous = ""
        fresh: list[Message] = []
        earlier: list[Message] = []
        answers = step = 0
        names: dict[CallId, str] = {}
        result: _Result | None = None
        for message in messages:
            if message.role == "assistant":
                answers += 1
                step += 1
                names.update({call.id: call.name for call in message.content if isinstance(call, ToolCallBlock)})
            elif is_person(message.source):
                user, previous, step = text_of(message.content), user, 0
                earlier, fresh = fresh, []
                result = None
            elif isinstance(message.source, ToolSource):
                for block in message.content:
                    if isinstance(block, ToolResultBlock):
                        name = names.get(block.tool_call_id, "")
                        result = _Result(name, text_of(block.content), failed=block.is_error)
            elif message.role == "user" and not is_producer_message(message.id):
                # What the server adds by itself is no news that anybody tells the script.
                fresh.append(message)
        found = _Conversation(user, previous, result=result, answers=answers, step=step)
        newest = next(reversed(fresh or earlier), None)
        if newest is None:
            return found
        return replace(found, producer=producer_of(newest.source), context=_title(newest))

    def filled(self, text: str) -> str:
        """`text` with its placeholders replaced by one line each."""
        values = {
            "user": self.user,
            "previous": self.previous,
            "producer": self.producer,
            "context": self.context,
            "result": "" if self.result is None else self.result.text,
            **self.groups,
        }
        return _PLACEHOLDER.sub(lambda found: one_line(values[found[1]], 200) if found[1] in values else found[0], text)

    def filled_in(self, value: JsonValue) -> JsonValue:
        """A JSON value with all its texts filled, so that what they quote cannot break it."""
        match value:
            case str():
                return self.filled(value)
            case list():
                return [self.filled_in(item) for item in value]
            case dict():
                return {key: self.filled_in(item) for key, item in value.items()}
        return value


@dataclass(frozen=True, slots=True)
class _Result:
    """The newest answer of a tool."""

    tool: str
    text: str
    failed: bool

    @property
    def label(self) -> str:
        """What a reply's `result` is searched in."""
        return f"{self.tool} {'failed' if self.failed else 'ok'}: {self.text}"


def _title(message: Message) -> str:
    """What an injected context is about, from its form's facts; else its first line."""
    match form_of(message.source):
        case Notice(summary):
            return summary
        case Snapshot(sections):
            return ", ".join(section.name for section in sections)
        case Instructions(paths):
            return ", ".join(paths)
        case Catalog(entries):
            return ", ".join(entry.name for entry in entries) or "nothing any more"
        case Relay(sender):
            return f"a message of {sender}"
        case Recall(references):
            return ", ".join(reference.label for reference in references)
    return next((line.strip() for line in text_of(message.content).split("\n") if line.strip()), "no text")


def _due(script: Script, conversation: _Conversation, offered: frozenset[str]) -> tuple[Reply | None, _Conversation]:
    """The reply that is due, if any, and the conversation with the groups that its conditions have found."""
    place = 0
    for reply in script.replies:
        if reply.is_plain:
            if place == conversation.answers:
                return reply, conversation
            place += 1
        elif offered.issuperset(reply.offers) and (groups := _groups(reply, conversation)) is not None:
            return reply, replace(conversation, groups=groups)
    return None, conversation


def _groups(reply: Reply, conversation: _Conversation) -> dict[str, str] | None:
    """The named groups of a reply's conditions; None where one of them does not hold."""
    if reply.answers is not None and reply.answers != conversation.answers:
        return None
    if reply.step is not None and reply.step != conversation.step:
        return None
    context = f"{conversation.producer}: {conversation.context}" if conversation.producer else None
    result = None if conversation.result is None else conversation.result.label
    groups: dict[str, str] = {}
    for pattern, text in ((reply.when, conversation.user), (reply.context, context), (reply.result, result)):
        if pattern is None:
            continue
        found = None if text is None else re.search(pattern, text)
        if found is None:
            return None
        groups.update(found.groupdict(""))
    return groups


def _echo(conversation: _Conversation) -> tuple[Piece, ...]:
    quoted = "\n".join(f"> {line}" for line in (conversation.user or "(nothing)").split("\n"))
    return (Piece.model_validate({"text": f"You said:\n\n{quoted}\n"}),)


class _Run:
    """The chunks of one reply: a block for each run of pieces of one kind, and one for each call."""

    def __init__(self, conversation: _Conversation) -> None:
        self._conversation = conversation
        self._index = -1
        self._kind = ""
        self._parts: list[str] = []
        self._calls = 0
        self._usage: Usage | None = None
        self.over = False

    def take(self, piece: Piece) -> Iterator[Chunk]:
        if piece.text is not None:
            yield from self._grow("text", piece.text)
        elif piece.reasoning is not None:
            yield from self._grow("reasoning", piece.reasoning)
        elif piece.call is not None:
            yield from self._call(piece.call)
        elif piece.usage is not None:
            counts = piece.usage
            self._usage = Usage(
                input_tokens=counts.input_tokens,
                output_tokens=counts.output_tokens,
                cache_read_tokens=counts.cache_read_tokens,
                reasoning_tokens=counts.reasoning_tokens,
            )
        elif piece.failure is not None:
            fault = piece.failure
            # The block that was being written stays open, as it does when a provider breaks off.
            yield from self._last(Failed(Failure(fault.message, fault.code, fault.status, fault.retry_after_ms)))
        elif piece.finish is not None:
            yield from self._close()
            yield from self._last(self._reason(piece.finish))

    def end(self) -> Iterator[Chunk]:
        yield from self._close()
        if self._index < 0:
            yield from self._last(Failed(Failure("the script has an empty reply here", "EMPTY_RESPONSE")))
        else:
            yield from self._last(ToolCalls() if self._calls else Stop())

    def _grow(self, kind: str, text: str) -> Iterator[Chunk]:
        if self._kind != kind:
            yield from self._close()
            self._index += 1
            self._kind = kind
            yield BlockStart(self._index, kind)
        for word in _WORD.findall(self._conversation.filled(text)):
            self._parts.append(word)
            yield TextDelta(self._index, word) if kind == "text" else ReasoningDelta(self._index, word)

    def _call(self, call: Call) -> Iterator[Chunk]:
        yield from self._close()
        self._index += 1
        self._calls += 1
        provider_id = call.id or f"call-{self._index}"
        if isinstance(call.arguments, str):
            arguments = self._conversation.filled(call.arguments)
        else:
            arguments = canonical(self._conversation.filled_in(call.arguments))
        yield BlockStart(self._index, "tool-call")
        for word in _WORD.findall(arguments) or [""]:
            yield ToolCallDelta(self._index, provider_id, call.name, word)
        yield BlockEnd(self._index, ToolCallBlock(CallId(provider_id), call.name, arguments, provider_id))

    def _close(self) -> Iterator[Chunk]:
        text = "".join(self._parts)
        if self._kind == "text":
            yield BlockEnd(self._index, TextBlock(text))
        elif self._kind == "reasoning":
            yield BlockEnd(self._index, ReasoningBlock(text))
        self._kind = ""
        self._parts = []

    def _reason(self, reason: str) -> FinishReason:
        if reason == "length":
            return MaxTokens()
        if reason in ("stop", "tool_calls", "tool-calls"):
            return ToolCalls() if self._calls else Stop()
        return Failed(Failure(f'the model stopped with the reason "{reason}"', reason.upper()))

    def _last(self, reason: FinishReason) -> Iterator[Chunk]:
        if self._usage is not None:
            yield UsageChunk(self._usage)
        self.over = True
        yield Finish(reason)
