"""What a client holds, by the letter of the protocol: the golden reducer that editors' own are measured against.

It refuses what a lenient client would swallow: a frame that comes twice or out of order, an append that does not fit, a
put of a part of a block that it does not hold. So "the client shows what the server has" is one comparison in a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp.replies import SENT_KINDS

TEXT_MAX = 64 * 1024
WHOLE = {"state", "title", "body", "collapsed"}


class Broken(AssertionError):
    """The server broke a rule of the protocol."""


class Reducer:
    """The blocks and the state of one agent at one client."""

    def __init__(self) -> None:
        self.blocks: dict[str, dict[str, JsonValue]] = {}
        self.state: JsonObject = {}
        self.epoch: str | None = None
        self.rev: int | None = None
        self.before: tuple[int, int] | None = None
        self.frames = 0
        self._early: list[tuple[str, JsonObject]] = []
        self._passed_over: set[str] = set()

    # What arrives ----------------------------------------------------------------------------------------------

    def attached(self, result: JsonObject) -> None:
        """The answer to an attach."""
        if result["reset"]:
            self.blocks.clear()
            self.before = _order(result.get("before"))
        elif self.epoch != result["epoch"]:
            raise Broken("another epoch without a reset")
        self.epoch, self.rev = cast(str, result["epoch"]), cast(int, result["rev"])
        self._passed_over.clear()
        for op in _ops(result):
            if op["op"] == "put" and not set(_object(op["block"])) >= WHOLE:
                raise Broken(f"an attach puts a part of a block: {op}")
            self._apply(op, self.rev, paged=bool(result["reset"]))
        self.state = _object(result["state"])
        early, self._early = self._early, []
        for method, params in early:
            if cast(int, params["rev"]) > self.rev and params["epoch"] == self.epoch:
                self.notified(method, params)

    def paged(self, result: JsonObject) -> None:
        """The answer to a page: it adds what is not held yet."""
        held = set(self.blocks)
        for op in _ops(result):
            block = _object(op["block"])["id"] if op["op"] == "put" else op["id"]
            if block not in held:
                self._apply(op, None, paged=True)
        self.before = _order(result.get("before"))

    def expect_attach(self) -> None:
        """An attach was asked for: until its answer, what arrives is kept."""
        self.rev = None

    def notified(self, method: str, params: JsonObject) -> None:
        """A notification."""
        if self.rev is None:
            self._early.append((method, params))
            return
        if params["epoch"] != self.epoch:
            raise Broken(f"a frame of epoch {params['epoch']} in epoch {self.epoch}")
        rev = cast(int, params["rev"])
        if rev <= self.rev:
            raise Broken(f"rev {rev} after {self.rev}")
        self.rev = rev
        self.frames += 1
        self._passed_over.clear()
        if method == "agent/state":
            self.state = params
        elif method == "agent/blocks":
            for op in _ops(params):
                self._apply(op, rev, paged=False)

    # Ops -------------------------------------------------------------------------------------------------------

    def _apply(self, op: JsonObject, rev: int | None, *, paged: bool) -> None:
        match op["op"]:
            case "put":
                self._put(_object(op["block"]), rev, paged=paged)
            case "append":
                self._append(cast(str, op["id"]), cast(int, op["offset"]), cast(str, op["text"]))
            case "drop":
                self.blocks.pop(cast(str, op["id"]), None)
            case other:
                raise Broken(f"unknown op {other}")

    def _put(self, block: JsonObject, rev: int | None, *, paged: bool) -> None:
        block_id = cast(str, block["id"])
        if block["kind"] not in SENT_KINDS:
            raise Broken(f"block {block_id} is of the kind {block['kind']}, which was not announced")
        # A page may be newer than the frames so far, which were held back for it.
        if rev is not None and cast(int, block["rev"]) > rev:
            raise Broken(f"block {block_id} has rev {block['rev']} in a frame of rev {rev}")
        if len(cast(str, block.get("body") or "").encode()) > TEXT_MAX:
            raise Broken(f"a put of {block_id} with a body of more than 64 KiB")
        known = self.blocks.get(block_id)
        if known is None:
            if not paged and self.before is not None and _at(block) < self.before:
                self._passed_over.add(block_id)
                return
            if not set(block) >= WHOLE:
                raise Broken(f"a put of a part of {block_id}, which is not held")
            known = self.blocks[block_id] = {}
        for name, value in block.items():
            if value is None:
                known.pop(name, None)
            else:
                known[name] = value

    def _append(self, block_id: str, offset: int, text: str) -> None:
        known = self.blocks.get(block_id)
        if known is None:
            if block_id in self._passed_over:
                return  # The rest of a long body, whose block a page will bring.
            raise Broken(f"an append to {block_id}, which is not held")
        body = cast(str, known["body"])
        if len(body.encode()) != offset:
            raise Broken(f"an append to {block_id} at {offset}, which has {len(body.encode())} bytes")
        if len(text.encode()) > TEXT_MAX:
            raise Broken(f"an append to {block_id} of more than 64 KiB")
        known["body"] = body + text

    # What is shown ---------------------------------------------------------------------------------------------

    def ordered(self) -> list[dict[str, JsonValue]]:
        """The blocks as they stand on the screen."""
        return sorted(self.blocks.values(), key=lambda block: (_at(block), str(block["id"])))

    def texts(self, kind: str) -> list[str]:
        """The bodies of the blocks of a kind, in order."""
        return [cast(str, block["body"]) for block in self.ordered() if block["kind"] == kind]


def _ops(value: JsonObject) -> Sequence[JsonObject]:
    return cast(Sequence[JsonObject], value["ops"])


def _object(value: JsonValue) -> JsonObject:
    if not isinstance(value, Mapping):
        raise Broken(f"no object: {value}")
    return value


def _order(value: JsonValue) -> tuple[int, int] | None:
    return None if value is None else _at({"order": value})


def _at(block: JsonObject) -> tuple[int, int]:
    seq, n = cast(Sequence[int], block["order"])
    return seq, n
