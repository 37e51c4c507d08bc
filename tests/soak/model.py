"""The models of the soak: one behind HTTP that answers by chance and looks at each request, and a script for the other.

What the HTTP model says follows from the seed and the number of the request. Each answer begins with a mark of its
own, so that a text in a log or on a screen can be traced to what was sent. A request that the API would refuse is kept
in `faults`.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agentls.core.json import JsonObject
from tests.model_server import DONE, content, delta, finish, usage

MARK = re.compile(r"^«(\d+)»")
"""What a text of the HTTP model begins with: the number of its answer."""
PERSON = re.compile(r"^\[(?P<agent>[hs]\d+)-m(?P<number>\d+)\]")
"""What a text of ours begins with: the agent, by the soak's name for it, and the number of the message there."""
_CONTEXT = re.compile(r"^<agentls-context [^>]*>\n(.*)\n</agentls-context-[0-9a-f]+>$", re.DOTALL)

STEPS = 4
"""Steps of a turn, at most."""
_WORDS = (
    "plain", "wörter", "日本語", "👩\u200d👩\u200d👧", "e\u0301te\u0301", "`code`", "<b>", "**bold**", "\u202eodd",
    "tab\there", "end.\n\n",
)  # fmt: skip


@dataclass(slots=True)
class Asked:
    """One request, and what was to be said to it (the texts of the answer, reasoning apart)."""

    number: int
    agent: str
    messages: Sequence[JsonObject]
    said: str = ""
    thought: str = ""
    whole: bool = False
    """Whether all of it was handed to the system."""


@dataclass(slots=True)
class ScriptedHttp:
    """The model behind HTTP."""

    seed: int
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    calm: bool = False
    """Whether it answers shortly and never fails, so that what waits comes to its end."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = json.loads(await request.read())
        messages = body["messages"]
        number = len(self.asked) + 1
        one = Asked(number, agent_of(messages), messages)
        self.asked.append(one)
        self.faults += [f"request {number} of agent {one.agent}: {fault}" for fault in faults_of(body)]
        chance = random.Random(f"{self.seed}/answer/{number}")
        if not self.calm and chance.random() < 0.05:
            headers = {"retry-after": str(chance.choice((0, 0, 1)))}
            error = {"error": {"message": "the model is busy", "type": "server_error", "code": 503}}
            return web.json_response(error, status=503, headers=headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        try:
            await response.prepare(request)
            for piece in self._answer(one, chance):
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    await response.write(piece)
            one.whole = True
            await response.write_eof()
        except (ConnectionError, RuntimeError):
            pass  # The server was killed, or a turn was stopped.
        return response

    def _answer(self, one: Asked, chance: random.Random) -> Sequence[bytes | float]:
        """Pieces to write, and seconds to wait between them."""
        pieces: list[bytes | float] = []
        pace = 0.0 if self.calm else chance.choice((0.0, 0.001, 0.002, 0.004, 0.008))
        if chance.random() < 0.2:
            one.thought = f"«{one.number}» " + _prose(chance, 12)
            pieces += _paced("reasoning_content", one.thought, pace)
        steps = sum(1 for _ in _since_person(one.messages, "assistant"))
        calls = steps < (1 if self.calm else STEPS) and chance.random() < 0.6
        if not calls or chance.random() < 0.7:
            words = 8 if self.calm else chance.choice((10, 40, 120, 120))
            if not self.calm and chance.random() < 0.1:
                words, pace = 3000, 0.0
            one.said = f"«{one.number}» " + _prose(chance, words)
            pieces += _paced("content", one.said, pace)
        if not self.calm and chance.random() < 0.04:
            return pieces  # It breaks off, which is a failed attempt.
        if not calls:
            cut = not self.calm and chance.random() < 0.03
            return [*pieces, finish("length" if cut else "stop"), usage(100, 20), DONE]
        for index in range(chance.choice((1, 1, 2, 3))):
            name, arguments = self._call(one.number, index, chance)
            raw = json.dumps(arguments, ensure_ascii=False)
            half = len(raw) // 2
            head: JsonObject = {
                "index": index,
                "id": f"call-{one.number}-{index}",
                "function": {"name": name, "arguments": ""},
            }
            pieces.append(delta({"tool_calls": [head]}))
            for part in (raw[:half], raw[half:]):
                pieces += [pace, delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]})]
        return [*pieces, finish("tool_calls"), usage(100, 20), DONE]

    def _call(self, number: int, index: int, chance: random.Random) -> tuple[str, JsonObject]:
        kind = chance.choice(("read", "list_files", "write", "write", "write"))
        if kind == "read":
            return kind, {"path": "in.txt"}
        if kind == "list_files":
            return kind, {"path": "."}
        name = f"h-{number}-{index}.txt"
        lines = chance.choice((1, 10, 200))
        return kind, {"path": name, "content": written(name, lines)}


def written(name: str, lines: int) -> str:
    """What a call writes into the file of that name."""
    return "".join(f"{name}, line {line}\n" for line in range(1, lines + 1))


@asynccontextmanager
async def http_model(seed: int) -> AsyncIterator[ScriptedHttp]:
    """The model behind HTTP on loopback, until the end of the block."""
    model = ScriptedHttp(seed)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", model.handle)
    # A server that was killed leaves answers that nobody takes.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield model
    finally:
        await runner.cleanup()


SCRIPT: JsonObject = {
    "pace": 2,
    "replies": [
        {
            "when": r"write (?P<file>[\w-]+\.txt)",
            "step": 0,
            "pieces": [
                {"reasoning": "a file is wanted, and I look first"},
                {"text": "I look at *in.txt* before I write {file}, as {user} says; 日本語 👩\u200d👩\u200d👧."},
                {"call": {"name": "read", "arguments": {"path": "in.txt"}}},
                {"call": {"name": "list_files", "arguments": {}}},
                {"call": {"name": "write", "arguments": {"path": "{file}", "content": "{file}, line 1\n"}}},
            ],
        },
        {"when": r"write [\w-]+\.txt", "step": 1, "pieces": [{"text": "It is done: {result}"}]},
        {"when": "briefly", "pieces": [{"text": "Yes: {user}"}]},
        {
            "when": "tell",
            "pieces": [
                {"reasoning": "they want to hear a story, and a long one"},
                {"text": "You said {user}. " + "So I tell you of wörter, 日本語, 👩\u200d👩\u200d👧 and more. " * 12},
            ],
        },
    ],
}
"""What the other model, the server's own scripted one, answers: it follows from the words of the message."""


def _prose(chance: random.Random, words: int) -> str:
    return "".join(f"{chance.choice(_WORDS)}{n} " for n in range(words))


def _paced(name: str, text: str, pace: float) -> list[bytes | float]:
    words = re.findall(r"\S+\s*|\s+", text)
    if not pace:
        joined = ["".join(words[at : at + 40]) for at in range(0, len(words), 40)]
        return [delta({name: part}) if name != "content" else content(part) for part in joined]
    return [piece for word in words for piece in (pace, delta({name: word}))]


# What a request has to be ----------------------------------------------------------------------------------------


def faults_of(body: JsonObject) -> list[str]:
    """What the API, or a server that is stricter than most, would refuse in a request."""
    faults: list[str] = []
    messages: Sequence[Any] = body["messages"]  # type: ignore[assignment]
    if body.get("stream") is not True or not body.get("tools"):
        faults.append("it asks for no stream, or offers no tools")
    if not messages or messages[0]["role"] != "system":
        faults.append("it does not begin with the system's message")
    owed: list[str] = []
    ids: set[str] = set()
    for at, message in enumerate(messages):
        role = message["role"]
        if not isinstance(message.get("content"), str):
            faults.append(f"message {at} has a content that is no text: {message}")
        elif not message["content"].strip() and role != "assistant":
            faults.append(f"message {at} is empty: {message}")  # Of an answer that only thought no text is left.
        if role == "tool":
            if owed[:1] != [message["tool_call_id"]]:
                faults.append(f'message {at} answers the call "{message["tool_call_id"]}" where {owed[:1]} is owed')
            owed = owed[1:]
            continue
        if owed:
            faults.append(f"message {at} stands where the calls {owed} are owed an answer")
            owed = []
        if role == "system" and at:
            faults.append(f"message {at} is of the system, within the conversation")
        if role not in ("system", "user", "assistant"):
            faults.append(f'message {at} is of the role "{role}"')
        for call in message.get("tool_calls") or ():
            owed.append(call["id"])
            if call["id"] in ids:
                faults.append(f'message {at} makes the call "{call["id"]}" a second time')
            ids.add(call["id"])
            if not _is_object(call["function"]["arguments"]):
                faults.append(f"message {at} has arguments that are no JSON object: {call}")
    if owed:
        faults.append(f"the calls {owed} have no answer")
    return faults


def _is_object(raw: str) -> bool:
    try:
        return isinstance(json.loads(raw), dict)
    except ValueError:
        return False


def text_of(message: JsonObject) -> str:
    """The text of a message, out of its frame where it is a context."""
    text = str(message.get("content") or "")
    framed = _CONTEXT.match(text)
    return framed[1] if framed else text


def agent_of(messages: Sequence[JsonObject]) -> str:
    """The soak's name of the agent that a request is of."""
    for message in messages:
        if message["role"] == "user" and (found := PERSON.match(text_of(message))):
            return found["agent"]
    return "?"


def _since_person(messages: Sequence[JsonObject], role: str) -> Iterator[JsonObject]:
    """The messages of a role after the newest text of a person."""
    for message in reversed(messages):
        if message["role"] == "user" and PERSON.match(str(message["content"])):
            return
        if message["role"] == role:
            yield message
