"""Random messages: params that fit the protocol's schema, and what becomes of them when they are spoiled."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "protocol" / "schema.json").read_text())
METHODS = [name for name, method in SCHEMA["methods"].items() if method["direction"] == "client to server"]
OTHERS = [
    "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose", "textDocument/hover",
    "workspace/didChangeWatchedFiles", "workspace/executeCommand", "$/cancelRequest", "$/setTrace", "initialized",
    "initialize", "agent/nothing", "", "rpc.discover",
]  # fmt: skip
"""Methods of plain LSP, with few of the params that they want, and of nobody."""

_ODD: list[Callable[[random.Random], Any]] = [
    lambda _: None,
    lambda _: True,
    lambda r: r.randint(-(2**70), 2**70),
    lambda r: r.random() * 10 ** r.randint(-300, 300),
    lambda _: "",
    lambda _: "\ud83d",
    lambda _: "\x00\x1b[31m\u202e",
    lambda r: "x" * r.choice((10, 1000, 200_000)),
    lambda _: [],
    lambda _: {},
    lambda r: _nested(r.choice((50, 300))),
    lambda r: {str(n): n for n in range(r.choice((1, 1000)))},
    lambda _: "../../../../etc/passwd",
    lambda _: "file:///nowhere/at/all",
]


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Values:
    """Gives values from a seed. `known` has texts that occur in the session, so that some of what is asked is real."""

    def __init__(self, seed: int, known: list[str]) -> None:
        self.random = random.Random(seed)
        self.known = known

    def params(self, method: str) -> Any:
        """Params of a method, nearly always such that fit."""
        if method not in SCHEMA["methods"]:
            return self.odd()
        value = self._fitting(SCHEMA["methods"][method]["params"], 0)
        return self._spoiled(value) if self.random.random() < 0.5 else value

    def odd(self) -> Any:
        """Any value at all."""
        return self.random.choice(_ODD)(self.random)

    def _fitting(self, schema: dict[str, Any], depth: int) -> Any:
        r = self.random
        if "$ref" in schema:
            return self._fitting(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], depth)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self._fitting(r.choice(schema[choice]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return r.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                required = schema.get("required", ())
                return {
                    name: self._fitting(inner, depth + 1)
                    for name, inner in schema.get("properties", {}).items()
                    if name in required or (depth < 5 and r.random() < 0.4)
                }
            case "array":
                return [self._fitting(schema.get("items", {}), depth + 1) for _ in range(r.randint(0, 3))]
            case "string":
                return r.choice(self.known) if self.known and r.random() < 0.7 else f"text {r.randint(0, 99)}"
            case "integer":
                return r.choice((0, 1, 2, 100, -1, 2**31, 2**53))
            case "number":
                return r.random() * 100
            case "boolean":
                return r.random() < 0.5
            case "null":
                return None
        return self.odd()

    def _spoiled(self, value: Any) -> Any:
        """A value with one thing in it changed."""
        r = self.random
        if isinstance(value, dict) and value and r.random() < 0.8:
            name = r.choice(list(value))
            match r.randint(0, 3):
                case 0:
                    return {other: inner for other, inner in value.items() if other != name}
                case 1:
                    return {**value, name: self.odd()}
                case 2:
                    return {**value, "surplus": self.odd()}
                case _:
                    return {**value, name: self._spoiled(value[name])}
        if isinstance(value, list) and value and r.random() < 0.8:
            at = r.randrange(len(value))
            return [*value[:at], self._spoiled(value[at]), *value[at + 1 :]]
        return self.odd()


def framed(body: bytes) -> bytes:
    """A message as it stands in the stream."""
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def dumped(message: Any) -> bytes:
    """Its JSON, with halves of characters and all."""
    return json.dumps(message).encode()


def noise(r: random.Random, good: bytes) -> bytes:
    """Bytes that are no stream of messages, or hardly one; `good` is one that is."""
    match r.randint(0, 7):
        case 0:
            return r.randbytes(r.choice((1, 100, 100_000)))
        case 1:
            spoiled = bytearray(good)
            for _ in range(r.randint(1, 20)):
                spoiled[r.randrange(len(spoiled))] = r.randrange(256)
            return bytes(spoiled)
        case 2:
            return good[: r.randrange(len(good))]
        case 3:
            return b"Content-Length: %d\r\n\r\n" % r.choice((-1, 0, 2**31, 2**63, 10**30)) + good
        case 4:
            return b"Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}" + good
        case 5:
            return b"X" * r.choice((100, 20_000)) + b"\r\n\r\n" + good
        case 6:
            return framed(b"[" * 100_000) + framed(b'{"jsonrpc": "2.0", "id": 1, "method": 5}') + good
        case _:
            return framed(good) + framed(b"\xff\xfe\x00") + good
