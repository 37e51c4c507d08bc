"""Play a client over LSP, and show the transcript as it grows.

With either model: one turn, steered and given a context while it runs. With the demo model also what a person decides:
a call that reads, one that writes and is allowed, one that is denied, a message that is edited while it waits, and a
queue that a cancel holds until it is resumed.

The server is its own process on standard input and output; this program knows nothing of it but the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pygls.client import JsonRPCClient

ROOT = Path(__file__).resolve().parent.parent
PROMPT = "In a few sentences: what is a language server, and why would an editor talk to one?"
STEERING = "Please finish with one short example."
CONTEXT = {"form": "notice", "summary": "the branch changed from main to demo"}
CONTEXT_TEXT = "The git branch of the workspace changed from main to demo."
TASK = "What is in notes.md? Then write a summary to summary.md."
NOTES = "Buy milk.\nCall the plumber.\n"
NOTE = "keep my notes"
QUEUED, EDITED = "Thaks, that was it.", "Thanks, that was all."
LONG, HELD = "Tell me more about yourself.", "And this one waited until it was let go."
SECONDS = 600


class Failed(Exception):
    """The demo did not show what it promises."""


class Transcript:
    """The blocks as the server put them, printed as they grow."""

    def __init__(self) -> None:
        self.blocks: dict[str, dict[str, Any]] = {}
        self.state: dict[str, Any] = {}
        self.changed = asyncio.Event()
        self._printed: dict[str, tuple[str, str]] = {}
        self._last: str | None = None

    def on_blocks(self, params: Any) -> None:
        for op in plain(params)["ops"]:
            match op:
                case {"op": "put", "block": block}:
                    known = self.blocks.setdefault(block["id"], {})
                    known.update(block)
                    self._print(known)
                case {"op": "append", "id": block_id, "text": text}:
                    self.blocks[block_id]["body"] += text
                    self._print(self.blocks[block_id])
                case {"op": "drop", "id": block_id}:
                    del self.blocks[block_id]
        self._tell()

    def on_state(self, params: Any) -> None:
        self.state = plain(params)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until `holds()`; what is waited for is named when it never comes."""
        try:
            async with asyncio.timeout(SECONDS):
                while not holds():
                    await self.changed.wait()
        except TimeoutError:
            raise Failed(f"waited {SECONDS} s in vain for {what}") from None

    def _print(self, block: dict[str, Any]) -> None:
        # A summary may change while the rest stays, which is no reason to print it all again.
        facts, body = [block["kind"], block["title"], block.get("producer")], block.get("body", "")
        head = " · ".join(fact for fact in facts if fact)
        last_head, last_body = self._printed.get(block["id"], ("", ""))
        if (head, body) == (last_head, last_body):
            return
        if self._last != block["id"] or head != last_head:
            summary = f" · {block['summary']}" if block.get("summary") else ""
            print(f"\n\n── {head}{summary}", flush=True)
            self._last = block["id"]
        shown = body[len(last_body) :] if body.startswith(last_body) else body
        print(shown, end="", flush=True)
        self._printed[block["id"]] = head, body

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The blocks of a kind, in their order."""
        found = [block for block in self.blocks.values() if block["kind"] == kind]
        return sorted(found, key=lambda block: block["order"])

    def said(self) -> str:
        """Everything that assistant rows say so far."""
        return "".join(block.get("body", "") for block in self.of("assistant"))

    def idle(self) -> bool:
        """Whether the agent has nothing to do."""
        return self.state.get("status") == "idle"


def plain(value: Any) -> Any:
    """pygls hands custom notifications over as named tuples; the demo wants the JSON they were."""
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


class Client(JsonRPCClient):
    """A client that a demo needs: requests by name, two notifications."""

    leaving = False

    async def server_exit(self, server: asyncio.subprocess.Process) -> None:
        """Say so when the server ends before it was asked to: nothing that is waited for comes any more."""
        if not self.leaving:
            sys.stderr.write(f"demo: the server ended with status {server.returncode}\n")
            os._exit(1)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = plain(await self.protocol.send_request_async(method, params))
        return result


class Demo:
    """One agent, drawn by one client."""

    def __init__(self, client: Client, transcript: Transcript, agent: str) -> None:
        self._client = client
        self._agent = agent
        self.transcript = transcript

    async def tell(self, method: str, text: str, **more: Any) -> dict[str, Any]:
        """Send a message."""
        message = {"agentId": self._agent, "messageId": str(uuid.uuid4()), "content": text}
        return await self._client.ask(method, **message, **more)

    async def do(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask for something else."""
        return await self._client.ask(method, agentId=self._agent, **params)

    async def talk(self) -> None:
        """A turn that is steered and given a context while it runs."""
        transcript = self.transcript
        await self.tell("agent/followup", PROMPT)
        await transcript.until("the reply to begin", lambda: transcript.said() or transcript.idle())
        steered = await self.tell("agent/steer", STEERING)
        injected = await self.tell("agent/inject", CONTEXT_TEXT, context=CONTEXT)
        await transcript.until("the turn to end", transcript.idle)
        note(f'the steering was taken as "{steered["outcome"]}", the context as "{injected["outcome"]}"')
        # An answer that runs into its limit ends its turn, and what steered it opens the next one.
        said = [block["body"] for block in transcript.of("user")]
        require(said == [PROMPT, STEERING], "a prompt and a steering message")
        require(bool(transcript.said()), "an answer")
        require(any(block["producer"] == "demo" for block in transcript.of("context")), "the context")

    async def work(self, workspace: Path) -> None:
        """A turn with tools: reading needs no leave, writing does."""
        transcript = self.transcript
        (workspace / "notes.md").write_text(NOTES)
        await self.tell("agent/followup", TASK)
        first = await self._asked()
        require(not (workspace / "summary.md").exists(), "nothing written before it is allowed")
        note("a person allows it")
        await self._answer(first, decision="allow")
        second = await self._asked()
        require((workspace / "summary.md").is_file(), "the file that was allowed")
        queued = await self.tell("agent/followup", QUEUED)
        edited = await self.do("agent/inbox/edit", messageId=queued["messageId"], content=EDITED)
        note(f'a message waits ("{queued["outcome"]}") and is edited ("{edited["outcome"]}")')
        note(f"a person denies it: {NOTE}")
        await self._answer(second, decision="deny", note=NOTE)
        await transcript.until("the turns to end", transcript.idle)
        require((workspace / "notes.md").read_text() == NOTES, "the file that was kept")
        states = [block["call"]["state"] for block in transcript.of("tool")]
        require(states == ["done", "done", "denied"], "a read, a write, and one that was denied")
        require(transcript.of("user")[-1]["body"] == EDITED, "the queued message as it was edited")

    async def wait(self) -> None:
        """A cancel keeps what waits, held until a person lets it go."""
        transcript = self.transcript
        said = len(transcript.said())
        await self.tell("agent/followup", LONG)
        await transcript.until("the reply to begin", lambda: len(transcript.said()) > said)
        await self.tell("agent/followup", HELD)
        await self.do("agent/cancel", keepInbox=True)
        await transcript.until("the hold", lambda: transcript.state["hold"])
        note(f"stopped; held: {transcript.state['inbox'][0]['text']!r}")
        await self.do("agent/inbox/resume")
        await transcript.until("the held message to run", lambda: transcript.idle() and not transcript.state["inbox"])
        require(transcript.of("user")[-1]["body"] == HELD, "the held message")
        require([b["reason"] for b in transcript.of("turn-end")][-2:] == ["aborted", "completed"], "the two turns")

    async def _asked(self) -> dict[str, Any]:
        """The request that waits for a person, once there is one that was not answered yet."""
        answered = {block["id"] for block in self.transcript.of("approval") if not block.get("request")}

        def fresh() -> list[dict[str, Any]]:
            return [one for one in self.transcript.state["requests"] if one["requestId"] not in answered]

        await self.transcript.until("an approval to be asked", fresh)
        return fresh()[0]

    async def _answer(self, request: dict[str, Any], **answer: Any) -> None:
        given = await self.do("agent/answer", requestId=request["requestId"], shown=request["shown"], answer=answer)
        require(given["outcome"] == "accepted", "an answer that counts")


def note(text: str) -> None:
    """Say what the person does."""
    print(f"\n\n>> {text}", flush=True)


def require(holds: bool, what: str) -> None:
    """Fail where something that was promised is missing."""
    if not holds:
        raise Failed(f"it misses {what}")


async def run(model: str, workspace: Path, state: Path) -> None:
    """The whole of it."""
    client = Client()
    transcript = Transcript()
    client.feature("agent/blocks")(lambda params: transcript.on_blocks(params))
    client.feature("agent/state")(lambda params: transcript.on_state(params))
    for told in ("agent/context", "agent/attention", "agent/listChanged"):
        client.feature(told)(lambda _: None)  # What they say is in the blocks and the state as well.
    server = [sys.executable, "-P", "-m", "agentls", "serve", "--state-dir", str(state), "--model", model]
    weights = {"AGENTLS_MODELS_DIR": str(ROOT / ".tools" / "models")}
    await client.start_io(*server, cwd=workspace, env={**os.environ, **weights})
    hello = {"version": 1, "client": {"name": "demo", "version": "1"}, "answers": True}
    await client.ask(
        "initialize",
        processId=None,
        rootUri=workspace.as_uri(),
        capabilities={"experimental": {"agent": hello}},
        workspaceFolders=[{"uri": workspace.as_uri(), "name": workspace.name}],
    )
    client.protocol.notify("initialized", {})
    agent = (await client.ask("agent/create", workspaceUri=workspace.as_uri()))["agentId"]
    transcript.state = (await client.ask("agent/attach", agentId=agent))["state"]
    print(f"model {transcript.state['model']['provider']}/{transcript.state['model']['id']}, agent {agent}")
    demo = Demo(client, transcript, agent)
    try:
        await demo.talk()
        if model == "demo/demo":
            await demo.work(workspace)
            await demo.wait()
        failures = [block["title"] for block in transcript.of("error")]
        require(not failures, f"a run without failures: {', '.join(failures)}")
    finally:
        client.leaving = True
        await client.ask("shutdown")
        client.protocol.notify("exit", None)
        await client.stop()  # type: ignore[no-untyped-call]


def main() -> int:
    """Run the demo; 0 when the transcript holds all that it promises."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=["local", "demo"], default="local", help="which model answers")
    chosen = parser.parse_args().model
    with tempfile.TemporaryDirectory(prefix="agentls-demo-") as folder:
        workspace, state = Path(folder, "workspace"), Path(folder, "state")
        workspace.mkdir()
        model = {"local": "local/smollm2", "demo": "demo/demo"}[chosen]
        try:
            asyncio.run(run(model, workspace, state))
        except Failed as failed:
            print(f"\n\ndemo: {failed}")
            return 1
    shown = "prompt, answer, steering and context"
    if chosen == "demo":
        shown += ", a read, a write that was allowed, one that was denied, an edited message and a resumed queue"
    print(f"\n\ndemo: {shown} are all in the transcript")
    return 0


if __name__ == "__main__":
    sys.exit(main())
