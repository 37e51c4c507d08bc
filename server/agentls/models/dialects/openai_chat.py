"""The chat completions format that OpenAI made and most servers speak, with the deviations seen in the wild.

Each tolerance in the decoder stands for a reported fault of a real server; tests/conformance/ has the streams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson

from agentls.core.blocks import (
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    text_of,
)
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
from agentls.core.events import ToolSchema
from agentls.core.ids import CallId
from agentls.core.json import JsonObject, JsonValue, canonical
from agentls.core.messages import Message
from agentls.core.reasons import Failed, Failure, FinishReason, MaxTokens, Stop, ToolCalls
from agentls.core.surrogates import Joiner, dump, mend, parse_with_halves
from agentls.models.catalog import ModelRow
from agentls.models.dialects import Decoder
from agentls.models.failures import bounded, code_of_error, code_of_status, request_id, retry_after_ms
from agentls.models.model import ModelRequest
from agentls.models.think_tags import ThinkTags

NO_OUTPUT = "(no output)"
"""What stands for an empty tool result, since servers refuse or misread an empty one."""


class OpenAiChat:
    """The dialect."""

    path = "/chat/completions"

    def encode(self, request: ModelRequest, row: ModelRow) -> bytes | Failure:
        """The body of a streaming request. The same request gives the same bytes, so that prefixes are cached.

        Options of the request win over the row's; one that is None is left out, and none can change what is asked for.
        """
        names = frozenset(tool.name for tool in request.tools)
        encoded = request.memo.of(self.path, names, partial(_encoded, tools=names)).of(request.messages)
        if None in encoded:
            return Failure(f'"{row.name}" takes no images', "UNSUPPORTED_CONTENT")
        system = dump({"role": "system", "content": request.system}) if request.system else b""
        limit: JsonObject = {} if row.max_tokens is None else {"max_tokens": row.max_tokens}
        options = {**limit, **row.options, **request.options}
        rest: dict[str, JsonValue] = {"tools": [_tool(tool) for tool in request.tools]} if request.tools else {}
        free = options.keys() - {"model", "messages"} - rest.keys()
        rest |= {name: options[name] for name in sorted(free) if options[name] is not None}
        rest |= {"stream": True, "stream_options": {"include_usage": True}}
        messages = b",".join(filter(None, (system, *encoded)))
        return b'{"model":%s,"messages":[%s],%s' % (dump(row.id), messages, dump(rest)[1:])

    def headers(self, key: str | None) -> Mapping[str, str]:
        """JSON out, events in."""
        plain = {"content-type": "application/json", "accept": "text/event-stream"}
        return plain if key is None else {"authorization": f"Bearer {key}", **plain}

    def decoder(self, row: ModelRow) -> Decoder:
        """A decoder for one answer of this model."""
        return OpenAiChatDecoder(think_tags=row.think_tags)

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, now: float) -> Failure:
        """The failure of an answer with another status than 200."""
        record = _parse(body)
        facts = _error_facts(record)
        if facts is not None:
            message, words = facts.message, facts.words
        else:
            message = words = _plain_text(body)
        return Failure(
            message=bounded(mend(message)) or "no reason given",
            code=code_of_status(status, words),
            status=status,
            retry_after_ms=retry_after_ms(headers.get("retry-after"), now),
            request_id=request_id(headers),
        )


# Requests ------------------------------------------------------------------------------------------------------


def _encoded(message: Message, tools: frozenset[str]) -> bytes | None:
    """A message as the JSON of one or more, joined by commas; None for one that holds an image."""
    if _holds_image(message.content):
        return None
    return b",".join(map(dump, _messages(message, tools)))


def _messages(message: Message, tools: frozenset[str]) -> Iterator[JsonObject]:
    text = text_of(message.content)
    if message.role == "system":
        yield {"role": "system", "content": text}
    elif message.role == "assistant":
        # `content` is never null: servers that refuse null would refuse every later request of the session too.
        answer: dict[str, JsonValue] = {"role": "assistant", "content": text}
        calls = [_call(block, tools) for block in message.content if isinstance(block, ToolCallBlock)]
        if calls:
            answer["tool_calls"] = calls
        yield answer
    else:
        results = [block for block in message.content if isinstance(block, ToolResultBlock)]
        if text or not results:
            yield {"role": "user", "content": text}
        for result in results:
            content = text_of(result.content)
            yield {"role": "tool", "tool_call_id": result.tool_call_id, "content": content or NO_OUTPUT}


def _call(block: ToolCallBlock, tools: frozenset[str]) -> JsonObject:
    name = block.name if block.name in tools else _sendable_name(block.name)
    return {
        "id": block.id,
        "type": "function",
        "function": {"name": name, "arguments": _sendable_arguments(block.arguments)},
    }


def _sendable_name(name: str) -> str:
    # A name that the model made up would have every later request refused: OpenAI takes ^[a-zA-Z0-9_-]{1,64}$ only.
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"


def _sendable_arguments(arguments: str) -> str:
    """The text as the model wrote it if it is a JSON object, since servers that parse it refuse all else."""
    return arguments if isinstance(_parse_strictly(arguments), dict) else "{}"


def _tool(tool: ToolSchema) -> JsonObject:
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _holds_image(content: Iterable[ContentBlock]) -> bool:
    return any(
        isinstance(block, ImageBlock) or (isinstance(block, ToolResultBlock) and _holds_image(block.content))
        for block in content
    )


# Answers -------------------------------------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"
_SUCCESS = frozenset({"stop", "tool_calls", "function_call"})


@dataclass(slots=True)
class _Lane:
    """A block of text that grows: the answer's or its reasoning."""

    index: int
    parts: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class _Call:
    """A call that grows. `key` is its index on the wire, None where the server sends none."""

    index: int
    key: int | str | None
    provider_id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    joiner: Joiner = field(default_factory=Joiner)

    @property
    def id(self) -> str:
        """The provider's id, or one made of the block's index: the same in every chunk of the answer."""
        return self.provider_id or f"call-{self.index}"

    def arguments(self) -> str:
        return "".join(self.parts)

    def is_blank(self) -> bool:
        return not self.arguments().strip()

    def is_whole(self) -> bool:
        return _parse_strictly(self.arguments()) is not None

    def delta(self, arguments: str) -> ToolCallDelta:
        return ToolCallDelta(self.index, self.id, self.name, arguments)

    def block(self) -> ToolCallBlock:
        return ToolCallBlock(CallId(self.id), self.name, self.arguments(), self.provider_id or None)


class OpenAiChatDecoder:
    """The decoder of one answer.

    One block for its text, one for its reasoning and one for each call, numbered as they first appear. Text and
    reasoning go out as they come; the ends of all blocks, then usage, then the finish go out at the end, since servers
    send usage after the finish reason and fragments of one block between those of another.
    """

    def __init__(self, *, think_tags: bool = False) -> None:
        self.done = False
        """The `Finish` is out."""
        self.finished = False
        """A finish reason came, and no content after it."""
        self._reason: str | None = None
        self._marked = False  # [DONE] came, or the body was whole
        self._usage: Usage | None = None
        self._order: list[_Lane | _Call] = []
        self._text: _Lane | None = None
        self._reasoning: _Lane | None = None
        self._calls: list[_Call] = []
        self._text_joiner = Joiner()
        self._reasoning_joiner = Joiner()
        self._tags = ThinkTags() if think_tags else None

    def feed(self, payload: str) -> Sequence[Chunk]:
        """The chunks of one payload; one that is no JSON object ends the stream."""
        if self.done:
            return ()
        if not payload.startswith("{"):
            payload = payload.strip()
            if payload == "[DONE]":
                self._marked = True
                return self.close()
            if not payload:
                return ()
        record = _parse(payload)
        if not isinstance(record, dict):
            return self._fail(Failure("the stream holds a line that is not JSON", "MALFORMED_RESPONSE"))
        out: list[Chunk] = []
        self._take(record, out)
        return out

    def whole(self, body: bytes) -> Sequence[Chunk]:
        """The chunks of a completion that was not streamed, or of an error with status 200."""
        if self.done:
            return ()
        record = _parse(body)
        choices = record.get("choices") if isinstance(record, dict) else None
        if not isinstance(record, dict) or not isinstance(choices, list):
            facts = _error_facts(record)
            if facts is not None:
                return self._fail(facts.failure())
            return self._fail(Failure("the answer is neither a stream nor a completion", "MALFORMED_RESPONSE"))
        out: list[Chunk] = []
        streamed = [{**choice, "delta": choice.get("message")} for choice in choices if isinstance(choice, dict)]
        self._take({**record, "choices": streamed}, out)
        self._marked = True
        out.extend(self.close())
        return out

    def close(self, tail: str | None = None, failure: Failure | None = None) -> Sequence[Chunk]:
        """The end of the stream: what was held back, the ends of all blocks, usage and the finish."""
        out: list[Chunk] = []
        if tail is not None and not self.done and (tail.strip() == "[DONE]" or isinstance(_parse(tail), dict)):
            out.extend(self.feed(tail))
        if self.done:
            return out
        self._flush(out)
        broke_off = self._reason is None and not self._marked
        if broke_off:
            reason: FinishReason = Failed(
                failure or Failure("the stream ended before the model had finished", "STREAM_CLOSED")
            )
        else:
            out.extend(BlockEnd(part.index, self._block(part)) for part in self._order)
            reason = self._finish()
        self._end(reason, out)
        return out

    # Payloads

    def _take(self, record: Mapping[str, JsonValue], out: list[Chunk]) -> None:
        if "usage" in record:
            self._usage = _usage(record["usage"]) or self._usage
        if record.get("error") or record.get("object") == "error" or record.get("type") == "error":
            out.extend(self._fail(_error_of(record)))
            return
        choices = record.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            # With n > 1 the other answers are nobody's: only the first is shown and kept.
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                self._choice(choice, out)
                return

    def _choice(self, choice: Mapping[str, JsonValue], out: list[Chunk]) -> None:
        if choice.get("error"):
            out.extend(self._fail(_error_of(choice)))
            return
        delta = choice.get("delta")
        if isinstance(delta, dict):
            before = len(out)
            self._delta(delta, out)
            if len(out) > before:
                # Some gateways name a finish reason in every chunk: only one that nothing follows is the end.
                self.finished = False
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finished = True
            if self._reason is None or self._reason.lower() in _SUCCESS:
                self._reason = reason  # a later "stop" does not take back that the answer was cut

    def _delta(self, delta: Mapping[str, JsonValue], out: list[Chunk]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._add_reasoning(_text(reasoning), out)
        content = delta.get("content") or delta.get("refusal")
        if content:
            if self._tags is None:
                self._add_text(_text(content), out)
            else:
                self._add_split(self._tags.feed(_text(content)), out)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for call in calls:
                if isinstance(call, dict):
                    self._add_call(call, out)

    def _add_text(self, text: str, out: list[Chunk]) -> None:
        text = self._text_joiner.take(text)
        if not text:
            return
        if self._text is None:
            self._text = self._open_lane("text", out)
        self._text.parts.append(text)
        out.append(TextDelta(self._text.index, text))

    def _add_reasoning(self, text: str, out: list[Chunk]) -> None:
        text = self._reasoning_joiner.take(text)
        if not text:
            return
        if self._reasoning is None:
            self._reasoning = self._open_lane("reasoning", out)
        self._reasoning.parts.append(text)
        out.append(ReasoningDelta(self._reasoning.index, text))

    def _open_lane(self, block_type: str, out: list[Chunk]) -> _Lane:
        lane = _Lane(len(self._order))
        self._order.append(lane)
        out.append(BlockStart(lane.index, block_type))
        return lane

    def _add_split(self, parts: Iterable[tuple[str, str]], out: list[Chunk]) -> None:
        for kind, text in parts:
            if kind == "reasoning":
                self._add_reasoning(text, out)
            else:
                self._add_text(text, out)

    def _add_call(self, fragment: Mapping[str, JsonValue], out: list[Chunk]) -> None:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        key = fragment.get("index")
        key = key if isinstance(key, int | str) else None
        provider_id = _word(fragment.get("id"))
        name = _word(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        call = self._call_of(key, provider_id, name)
        if call is None:
            if not provider_id and not name and not arguments:
                return
            if self._tags is not None:
                self._add_split(self._tags.rest(), out)
            call = _Call(len(self._order), key)
            self._order.append(call)
            self._calls.append(call)
            out.append(BlockStart(call.index, "tool-call"))
        call.provider_id = call.provider_id or provider_id
        call.name = name or call.name
        arguments = call.joiner.take(arguments)
        call.parts.append(arguments)
        out.append(call.delta(arguments))

    def _call_of(self, key: int | str | None, provider_id: str, name: str) -> _Call | None:
        """The call that a fragment goes on with, or None where it starts one.

        The index decides where there is one, else the id, else it is the last call's. A fragment with a name of its
        own starts a call where the other one could be complete: there are servers that send every call at index 0, and
        others that number none.
        """
        if key is not None:
            known = next((call for call in reversed(self._calls) if call.key == key), None)
            other = known is not None and provider_id and known.provider_id and provider_id != known.provider_id
            if known is not None and other and name and known.name and (known.is_blank() or known.is_whole()):
                return None
            return known
        if provider_id:
            known = next((call for call in reversed(self._calls) if call.provider_id == provider_id), None)
            return None if known is not None and name and known.is_whole() else known
        last = self._calls[-1] if self._calls else None
        if last is not None and name and last.name and (name != last.name or last.is_whole()):
            return None
        return last

    # The end

    def _flush(self, out: list[Chunk]) -> None:
        if self._tags is not None:
            self._add_split(self._tags.rest(), out)
        self._add_text(self._text_joiner.rest(), out)
        self._add_reasoning(self._reasoning_joiner.rest(), out)
        for call in self._calls:
            half = call.joiner.rest()
            if half:
                call.parts.append(half)
                out.append(call.delta(half))

    def _block(self, part: _Lane | _Call) -> ContentBlock:
        if isinstance(part, _Call):
            return part.block()
        return TextBlock(part.text()) if part is self._text else ReasoningBlock(part.text())

    def _finish(self) -> FinishReason:
        reason = (self._reason or "stop").lower()
        if reason not in _SUCCESS and reason != "length":
            return Failed(Failure(f'the model stopped with the reason "{self._reason}"', _reason_code(reason)))
        if not self._calls and not any(isinstance(part, _Lane) and part.text().strip() for part in self._order):
            said = "used up its output limit and wrote nothing" if reason == "length" else "wrote nothing"
            return Failed(Failure(f"the model {said}", "EMPTY_RESPONSE"))
        if reason == "length":
            return MaxTokens()
        # Decided by content: servers say "stop" after calls, and "tool_calls" without any.
        return ToolCalls() if self._calls else Stop()

    def _fail(self, failure: Failure) -> Sequence[Chunk]:
        out: list[Chunk] = []
        self._flush(out)
        self._end(Failed(failure), out)
        return out

    def _end(self, reason: FinishReason, out: list[Chunk]) -> None:
        if self._usage is not None:
            out.append(UsageChunk(self._usage))
        out.append(Finish(reason))
        self.done = True


def _text(value: JsonValue) -> str:
    """A text, or the texts of a list of parts; anything else is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _word(value: JsonValue) -> str:
    """An id or a name; some servers number their calls."""
    if isinstance(value, str):
        return mend(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _arguments(value: JsonValue) -> str:
    """A piece of a call's arguments; some servers send them as JSON instead of as a text of JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical(value)


def _reason_code(reason: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", reason.upper())[:64].strip("_") or "UNKNOWN"


# Facts of a record ---------------------------------------------------------------------------------------------


def _parse(text: str | bytes) -> JsonValue:
    """The JSON value of a text, None for what is none; some servers begin a body with a byte order mark."""
    try:
        return parse_with_halves(text.removeprefix(_BOM) if isinstance(text, bytes) else text)
    except ValueError:
        return None


def _parse_strictly(text: str) -> JsonValue:
    try:
        value: JsonValue = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value


def _usage(raw: JsonValue) -> Usage | None:
    """Token counts in disjoint buckets; None where none of them can be read."""
    if not isinstance(raw, dict):
        return None
    prompt = _count(raw.get("prompt_tokens"))
    output = _count(raw.get("completion_tokens"))
    if prompt is None and output is None:
        return None
    cached = _count(_member(raw.get("prompt_tokens_details"), "cached_tokens"))
    if cached is None:
        cached = _count(raw.get("prompt_cache_hit_tokens"))
    cached = min(cached or 0, prompt or 0)
    reasoning = _count(_member(raw.get("completion_tokens_details"), "reasoning_tokens"))
    return Usage(
        input_tokens=(prompt or 0) - cached,
        output_tokens=output or 0,
        cache_read_tokens=cached,
        reasoning_tokens=min(reasoning or 0, output or 0),
    )


def _count(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _member(value: JsonValue, name: str) -> JsonValue:
    return value.get(name) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class _ErrorFacts:
    message: str
    words: str  # code, type and message, which the classifiers look at
    status: int | None

    def failure(self) -> Failure:
        """The failure of an error that came with status 200."""
        return Failure(self.message, code_of_error(self.status, self.words), status=self.status)


def _error_facts(record: JsonValue) -> _ErrorFacts | None:
    """What an error body says: `{"error": {…}}`, `{"error": "…"}`, a bare `{"message": …}` or `{"detail": …}`, or a
    list with one of them."""
    if isinstance(record, list):
        record = record[0] if record else None
    if not isinstance(record, dict):
        return None
    error = record.get("error")
    if isinstance(error, str) and error:
        return _ErrorFacts(bounded(mend(error)), error, None)
    if not isinstance(error, dict) or not error:
        error = record
    message = error.get("message") or error.get("detail")
    if message is None and error is record:
        return None
    text = message if isinstance(message, str) else canonical(error if message is None else message)
    code = error.get("code")
    words = " ".join(str(word) for word in (code, error.get("type"), text) if isinstance(word, str | int))
    number = int(code) if isinstance(code, int) or (isinstance(code, str) and re.fullmatch(r"[45]\d\d", code)) else None
    status = number if number is not None and 400 <= number <= 599 else None
    return _ErrorFacts(bounded(mend(text)), words, status)


def _error_of(record: Mapping[str, JsonValue]) -> Failure:
    """The failure of a record that holds an error, however little it says."""
    return (_error_facts(record) or _ErrorFacts(bounded(canonical(record)), "", None)).failure()


def _plain_text(body: bytes) -> str:
    """An error body that is not JSON, unless it is a page for a browser."""
    text = body.decode("utf-8", "replace").strip()
    return "" if text.startswith("<") else text
