"""An event's payload as stored bytes: JSON, deflated against a dictionary of what payloads look like.

A stored payload is either JSON text, which begins with `{` (or a space, see `dump`), or the byte 1 and a raw deflate
stream. A small turn is 1,160 bytes of JSON and 375 deflated, at 8 microseconds an event.
"""

from __future__ import annotations

import json
import re
import zlib

import orjson

from agentls.core.errors import DecodeError
from agentls.core.json import JsonObject

DICTIONARY = (
    b'{"callId":"t1.1.1"}{"requestId":"q1.1.1","callId":"t1.1.1","what":{"tool":"shell","command":"git ","diff":"'
    b'--- a/","shown":"sha256:","decision":"allow","by":"deny","note":"remember":"session"}{"retryId":"y1.1.1","tu'
    b'rn":1,"step":1,"attempt":1,"delayMs":1000,"failure":{"message":"HTTP 429","code":"RATE_LIMITED","status":429'
    b',"retryAfterMs":{"system":"","tools":[{"name":"edit","description":"","parameters":{"type":"object","properti'
    b'es":{"path":{"type":"string"},"additionalProperties":false,"required":["path"]}}}],"options":{"maxTokens":"te'
    b'mperature":},"reason":"initial"}"ledger":[{"what":"system","source":"tools","tokens":1,"form":"snapshot","sec'
    b'tions":[{"name":"git","text":"{"kind":"plugin","plugin":"notice","summary":"instructions","paths":["AGENTS.md'
    b'"]{"turn":1,"reason":{"kind":"aborted","cause":"user"},"held":true,"cause":"cancel","keepInbox":true,"before"'
    b':,"ids":["{"turn":1,"step":1,"callId":"t1.1.1","name":"read","arguments":"{\\"path\\": \\"src/main.py\\"}","p'
    b'roviderId":"call_00_"}{"turn":1,"step":1,"callId":"t1.1.1","message":{"id":"r:t1.1.1","role":"user","content"'
    b':[{"type":"tool-result","toolCallId":"t1.1.1","content":[{"type":"text","text":"\\n"}],"isError":true}],"sour'
    b'ce":{"kind":"tool","callId":"t1.1.1"}},"error":{"code":"TOOL_"},"meta":{"{"turn":1,"step":1,"attempt":1,"mess'
    b'age":{"id":"a1.1.1","role":"assistant","content":[{"type":"reasoning","text":"The user "},{"type":"tool-call"'
    b',"id":"t1.1.1","name":"edit","arguments":"{\\""}],"source":{"kind":"model","provider":"deepseek","model":"dee'
    b'pseek-chat"},"indices":[0,1]},"finish":{"kind":"tool-calls"},"usage":{"inputTokens":1,"outputTokens":1,"cache'
    b'ReadTokens":1,"cacheWriteTokens":1,"reasoningTokens":1},"interrupted":true}"indices":[0]},"finish":{"kind":"s'
    b'top"},"usage":{"inputTokens":{"item":{"id":"0","lane":"steering","wakeup":true,"content":[{"type":"text","tex'
    b't":" the "}],"source":{"kind":"user"},"contentHash":"sha256:0123456789abcdef","fate":{"outcome":"queued","tur'
    b'n":1,"position":0},"contexts":[{"kind":"file","label":"uri":"file:///home/"startLine":1,"endLine":{"item":{"i'
    b'd":"","lane":"queued","wakeup":true,"content":[{"type":"text","text":"{"message":{"id":"","role":"user","cont'
    b'ent":[{"type":"text","text":""}],"source":{"kind":"user"}}}"fate":{"outcome":"started","turn":1}}}{"turn":1,"'
    b'trigger":{"kind":"message","ids":["{"turn":1,"reason":{"kind":"completed"},"usage":{"inputTokens":{"turn":1,"'
    b'step":1,"attempt":1,"boundary":1}{"turn":1,"step":1}'
)
"""Part of the format: stored payloads cannot be read with another one. A better dictionary gets the next mark."""

_MARK = b"\x01"
_WINDOW = -15  # A raw stream of the largest window: the dictionary and the payload are both within reach.
_MEMORY = 5  # A small hash table, since clearing zlib's usual 64 KiB costs more than these payloads.
_LEVEL = 6

# orjson writes NaN and the infinities as null, silently.
_A_NULL = re.compile(rb"[:,\[]null")


def dump(fields: JsonObject) -> bytes:
    """JSON text that `load` gives back unchanged; ValueError for what JSON cannot hold (NaN, endless nesting).

    Text with lone surrogates (a client or a model may send half a pair) and integers of more than 64 bits are beyond
    orjson; such a payload is written by `json`, and a space in front tells the reader.
    """
    try:
        text = orjson.dumps(fields)
    except TypeError:
        return b" " + _exact(fields)
    if _A_NULL.search(text):
        _exact(fields)
    return text


def _exact(fields: JsonObject) -> bytes:
    try:
        return json.dumps(fields, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def is_packed(payload: bytes) -> bool:
    """Whether `pack` has been here and made it smaller."""
    return payload.startswith(_MARK)


def pack(text: bytes) -> bytes:
    """The text deflated, where that makes it smaller."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
    packed = _MARK + deflate.compress(text) + deflate.flush()
    return packed if len(packed) < len(text) else text


def load(payload: bytes) -> JsonObject:
    """The object of a stored payload; DecodeError when the bytes are not ours."""
    try:
        text = _inflated(payload) if is_packed(payload) else payload
        fields = json.loads(text) if text.startswith(b" ") else orjson.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise DecodeError(f"the stored bytes are not a payload ({error})") from error
    if not isinstance(fields, dict):
        raise DecodeError("the stored payload is not an object")
    return fields


def _inflated(payload: bytes) -> bytes:
    inflate = zlib.decompressobj(_WINDOW, DICTIONARY)
    text = inflate.decompress(payload[len(_MARK) :])
    if not inflate.eof or inflate.unused_data:
        raise ValueError("the deflate stream has another length")
    return text
