"""Play a client: one real turn over LSP, steered and given a context while it runs, its transcript shown as it grows.

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
WANTED = {"your prompt": "user", "an answer": "assistant", "a steering message": "steering", "a context": "context"}
SECONDS = 600


class Transcript:
    """The blocks as the server put them, printed as they grow."""

    def __init__(self) -> None:
        self.blocks: dict[str, dict[str, Any]] = {}
        self.state: dict[str, Any] = {}
        self.changed = asyncio.Event()
        self._printed: dict[str, int] = {}
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

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until `holds()`; what is waited for is named when it never comes."""
        try:
            async with asyncio.timeout(SECONDS):
                while not holds():
                    await self.changed.wait()
        except TimeoutError:
            raise SystemExit(f"demo: waited {SECONDS} s in vain for {what}") from None

    def _print(self, block: dict[str, Any]) -> None:
        body = block.get("body", "")
        done = self._printed.get(block["id"])
        if self._last != block["id"]:
            if done == len(body):
                return
            facts = [block["kind"], block["title"], block.get("producer"), block.get("summary")]
            print("\n\n── " + " · ".join(fact for fact in facts if fact), flush=True)
            self._last = block["id"]
        print(body[done or 0 :], end="", flush=True)
        self._printed[block["id"]] = len(body)

    def text(self) -> str:
        """Everything that assistant rows say so far."""
        return "".join(block.get("body", "") for block in self.blocks.values() if block["kind"] == "assistant")

    def missing(self) -> list[str]:
        """Which of the wanted rows are not there."""
        kinds = {"steering" if b["title"] == "Steering" else b["kind"] for b in self.blocks.values()}
        return [name for name, kind in WANTED.items() if kind not in kinds]


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


async def run(model: str, workspace: Path, state: Path) -> Transcript:
    """The turn itself."""
    client = Client()
    transcript = Transcript()
    client.feature("agent/blocks")(lambda params: transcript.on_blocks(params))
    client.feature("agent/state")(lambda params: transcript.on_state(params))
    server = [sys.executable, "-P", "-m", "agentls", "serve", "--state-dir", str(state), "--model", model]
    weights = {"AGENTLS_MODELS_DIR": str(ROOT / ".tools" / "models")}
    await client.start_io(*server, cwd=workspace, env={**os.environ, **weights})
    hello = {"version": 1, "client": {"name": "demo", "version": "1"}}
    await client.ask(
        "initialize",
        processId=None,
        rootUri=workspace.as_uri(),
        capabilities={"experimental": {"agent": hello}},
        workspaceFolders=[{"uri": workspace.as_uri(), "name": workspace.name}],
    )
    client.protocol.notify("initialized", {})
    agent = (await client.ask("agent/create", workspaceUri=workspace.as_uri()))["agentId"]
    attached = await client.ask("agent/attach", agentId=agent)
    transcript.state = attached["state"]
    print(f"model {attached['state']['model']['provider']}/{attached['state']['model']['id']}, agent {agent}")

    def message(text: str) -> dict[str, Any]:
        return {"agentId": agent, "messageId": str(uuid.uuid4()), "content": text}

    await client.ask("agent/followup", **message(PROMPT))
    await transcript.until("the reply to begin", lambda: bool(transcript.text()) or not running(transcript))
    steered = await client.ask("agent/steer", **message(STEERING))
    injected = await client.ask("agent/inject", **message(CONTEXT_TEXT), context=CONTEXT)
    await transcript.until("the turn to end", lambda: not running(transcript))
    print(f'\n\nthe steering was taken as "{steered["outcome"]}", the context as "{injected["outcome"]}"')
    client.leaving = True
    await client.ask("shutdown")
    client.protocol.notify("exit", None)
    await client.stop()  # type: ignore[no-untyped-call]
    return transcript


def running(transcript: Transcript) -> bool:
    """Whether the agent still has something to do."""
    return transcript.state.get("status") != "idle"


def main() -> int:
    """Run the demo; 0 when the transcript holds all that it promises."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=["local", "demo"], default="local", help="which model answers")
    chosen = parser.parse_args().model
    with tempfile.TemporaryDirectory(prefix="agentls-demo-") as folder:
        workspace, state = Path(folder, "workspace"), Path(folder, "state")
        workspace.mkdir()
        model = {"local": "local/smollm2", "demo": "demo/demo"}[chosen]
        transcript = asyncio.run(run(model, workspace, state))
    missing = transcript.missing()
    failed = [block["title"] for block in transcript.blocks.values() if block["kind"] == "error"]
    if missing or failed:
        print(f"demo: the transcript misses {', '.join(missing) or 'nothing'}; failures: {', '.join(failed) or 'none'}")
        return 1
    print("demo: prompt, answer, steering and context are all in the transcript")
    return 0


if __name__ == "__main__":
    sys.exit(main())
