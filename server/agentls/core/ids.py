"""Branded ids and the forms in which the server mints them."""

from __future__ import annotations

import re
from typing import NewType

SessionId = NewType("SessionId", str)
AgentId = NewType("AgentId", str)
"""An agent and its session are one identity; the second name says which side of it is meant."""
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
BlockId = NewType("BlockId", str)
RequestId = NewType("RequestId", str)

MESSAGE_ID_MAX = 128
"""Characters of an id that a client mints, at most."""

_SERVER_FORMS = re.compile(r"(?:[uc]:.*|r:.*|[apty]\d+\.\d+\.\d+(?:/\d+)?|q\d+\.\d+\.\d+|turn\d+|[ev]\d+)", re.DOTALL)

_PRODUCED = re.compile(r"p\d+\.\d+\.\d+")


def is_server_form(text: str) -> bool:
    """Whether `text` looks like an id that only the server mints, so that a client may not use it."""
    return _SERVER_FORMS.fullmatch(text) is not None


def assistant_message(turn: int, step: int, attempt: int) -> MessageId:
    """`a<turn>.<step>.<attempt>`, all counted from 1."""
    return MessageId(f"a{turn}.{step}.{attempt}")


def producer_message(turn: int, step: int, n: int) -> MessageId:
    """`p<turn>.<step>.<n>`: the n-th message that producers added to a step, from 1."""
    return MessageId(f"p{turn}.{step}.{n}")


def is_producer_message(message: MessageId) -> bool:
    """Whether a producer or a hook of the server made the message."""
    return _PRODUCED.fullmatch(message) is not None


def call(turn: int, step: int, n: int) -> CallId:
    """`t<turn>.<step>.<n>`: the n-th call of a step's answer, from 1; unique whatever the provider sends."""
    return CallId(f"t{turn}.{step}.{n}")


def result_message(call_id: CallId) -> MessageId:
    """`r:<callId>`: the message that answers a call."""
    return MessageId(f"r:{call_id}")


def request(turn: int, step: int, n: int) -> RequestId:
    """`q<turn>.<step>.<n>`: the n-th approval or question of a step, from 1."""
    return RequestId(f"q{turn}.{step}.{n}")


def retry_id(turn: int, step: int, attempt: int) -> str:
    """`y<turn>.<step>.<attempt>`: the retry that follows a failed attempt."""
    return f"y{turn}.{step}.{attempt}"


def user_block(message: MessageId) -> BlockId:
    """The block of a person's message."""
    return BlockId(f"u:{message}")


def context_block(message: MessageId) -> BlockId:
    """The block of an injected message."""
    return BlockId(f"c:{message}")


def answer_block(message: MessageId, index: int) -> BlockId:
    """The block of one piece of an answer; `index` is its place of first appearance in the stream, from 0."""
    return BlockId(f"{message}/{index}")


def call_block(call_id: CallId) -> BlockId:
    """A call and its block share one id."""
    return BlockId(call_id)


def turn_end_block(turn: int) -> BlockId:
    """The row that closes a turn."""
    return BlockId(f"turn{turn}")


def error_block(seq: int) -> BlockId:
    """The row of a failure that the log holds at `seq`."""
    return BlockId(f"e{seq}")


def volatile_block(n: int) -> BlockId:
    """A row that lives in this epoch only and is in no log."""
    return BlockId(f"v{n}")
