"""The process itself: its streams, its end, and what it does with nonsense."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.editors import COMMAND, WORKSPACE, on_socket, on_stdio, process_of
from tests.model_server import DONE, Answer, ModelServer, content, finish, reply

HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"processId": None, "rootUri": None, "capabilities": {"experimental": {"agent": {"version": 1}}}},
}  # fmt: skip


class Pipe:
    """Raw bytes to and from a server's standard streams."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.seen = b""

    def send(self, message: Any, header: str = "Content-Length") -> None:
        body = json.dumps(message).encode()
        self.raw(f"{header}: {len(body)}\r\n\r\n".encode() + body)

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def receive(self) -> Any:
        """The next message; everything on the pipe must be one."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            head = await self.process.stdout.readuntil(b"\r\n\r\n")
            assert head.startswith(b"Content-Length: "), head
            length = int(head.split(b"\r\n")[0].split(b":")[1])
            return json.loads(await self.process.stdout.readexactly(length))

    async def answer(self, id: Any) -> Any:
        """The answer to a request, past notifications."""
        while (message := await self.receive()).get("id", "none") != id or "method" in message:
            pass
        return message


@asynccontextmanager
async def piped(state: Path, *options: str) -> AsyncIterator[Pipe]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", "--state-dir", str(state), *options, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        yield Pipe(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def greeted(state: Path) -> AsyncIterator[Pipe]:
    async with piped(state, "--model", "demo") as pipe:
        pipe.send(HELLO)
        await pipe.answer(0)
        pipe.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        yield pipe


def request(method: str, id: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


MESSAGE = {"agentId": "x", "messageId": "m", "content": "hi"}


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("agent/create", {}, "workspaceUri"),
        ("agent/create", {"workspaceUri": 7}, "workspaceUri"),
        ("agent/create", [], ""),
        ("agent/create", {"workspaceUri": WORKSPACE, "from": {"agentId": "x", "turn": 1}}, "from"),
        ("agent/create", {"workspaceUri": WORKSPACE, "mode": "yolo"}, "mode"),
        ("agent/followup", {**MESSAGE, "content": None}, "content"),
        ("agent/followup", {**MESSAGE, "content": "  "}, "content"),
        ("agent/followup", {**MESSAGE, "content": []}, "content"),
        ("agent/followup", {**MESSAGE, "content": [{"type": "text"}]}, "content[0].text"),
        ("agent/followup", {**MESSAGE, "content": [{"type": "image", "data": "x"}]}, "content[0].type"),
        ("agent/followup", {**MESSAGE, "messageId": ""}, "messageId"),
        ("agent/followup", {**MESSAGE, "messageId": "x" * 129}, "messageId"),
        ("agent/followup", {**MESSAGE, "messageId": "a1.1.1"}, "messageId"),
        ("agent/followup", {**MESSAGE, "messageId": "u:x"}, "messageId"),
        ("agent/send", {**MESSAGE, "target": "moon"}, "target"),
        ("agent/send", {**MESSAGE, "wakeup": "yes"}, "wakeup"),
        ("agent/steer", {**MESSAGE, "ifIdle": "maybe"}, "ifIdle"),
        ("agent/steer", {**MESSAGE, "expectedTurn": 0}, "expectedTurn"),
        ("agent/inject", MESSAGE, "context"),
        ("agent/inject", {**MESSAGE, "context": {"form": "notice"}}, "context.summary"),
        ("agent/inject", {**MESSAGE, "context": {"form": "notice", "summary": "x" * 121}}, "context"),
        ("agent/inject", {**MESSAGE, "context": {"form": "weather"}}, "context.form"),
        ("agent/page", {"agentId": "x", "before": [1], "limit": 5}, "before"),
        ("agent/page", {"agentId": "x", "before": [1, 0], "limit": 0}, "limit"),
        ("agent/attach", {"agentId": "x", "since": -1}, "since"),
        ("agent/inbox/remove", {"agentId": "x"}, "messageId"),
    ],
)
async def test_a_malformed_request_names_the_field(tmp_path: Path, method: str, params: Any, path: str) -> None:
    """Rule 7: -32602 with the path of the wrong field, for its own id, and the connection goes on."""
    async with greeted(tmp_path) as pipe:
        pipe.send({"jsonrpc": "2.0", "id": "q", "method": method, "params": params})
        error = (await pipe.answer("q"))["error"]
        assert error["code"] == -32602, error
        assert method in error["message"]
        assert path in error["message"]
        assert "Traceback" not in json.dumps(error)
        pipe.send(request("agent/list", 2))
        assert (await pipe.answer(2))["result"]["agents"] == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("agent/nonsense", {}, -32601),
        ("agent/followup", {**MESSAGE, "agentId": "nobody"}, -32050),
        ("agent/attach", {"agentId": "nobody"}, -32050),
        ("agent/detach", {"agentId": "nobody"}, -32051),
        ("agent/cancel", {"agentId": "nobody"}, -32050),
    ],
)
async def test_each_wrong_request_has_its_code(tmp_path: Path, method: str, params: Any, code: int) -> None:
    async with greeted(tmp_path) as pipe:
        pipe.send({"jsonrpc": "2.0", "id": 5, "method": method, "params": params})
        error = (await pipe.answer(5))["error"]
        assert error["code"] == code, error
        assert "Traceback" not in json.dumps(error)


async def test_a_nested_jsonrpc_key_is_only_data(tmp_path: Path) -> None:
    """pygls takes any object with such a key for a message of its own."""
    async with greeted(tmp_path) as pipe:
        pipe.send(request("agent/create", 1, workspaceUri=WORKSPACE, extra={"deep": [{"jsonrpc": "2.0", "id": 9}]}))
        agent = (await pipe.answer(1))["result"]["agentId"]
        context = {"form": "snapshot", "sections": [{"name": "n", "text": "t", "jsonrpc": "2.0"}], "jsonrpc": "2.0"}
        pipe.send(request("agent/inject", 2, agentId=agent, messageId="i1", content="c", context=context))
        assert (await pipe.answer(2))["result"]["outcome"] == "injected"


async def test_header_names_come_in_any_case_and_more_of_them(tmp_path: Path) -> None:
    async with greeted(tmp_path) as pipe:
        for number, header in enumerate(("content-length", "CONTENT-LENGTH", "X-Other: 1\r\nContent-length"), 1):
            pipe.send(request("agent/list", number), header)
            assert "result" in await pipe.answer(number)


async def test_bad_json_is_answered_and_the_stream_goes_on(tmp_path: Path) -> None:
    async with greeted(tmp_path) as pipe:
        pipe.raw(b"Content-Length: 5\r\n\r\n{bad}")
        error = await pipe.answer(None)
        assert error["error"]["code"] == -32700
        pipe.send([request("agent/list", 1)])
        assert (await pipe.answer(None))["error"]["code"] == -32600
        pipe.send(request("agent/list", 2))
        assert "result" in await pipe.answer(2)


async def test_a_lone_surrogate_and_odd_characters_break_nothing(tmp_path: Path) -> None:
    async with greeted(tmp_path) as pipe:
        pipe.send(request("agent/create", 1, workspaceUri=WORKSPACE))
        agent = (await pipe.answer(1))["result"]["agentId"]
        pipe.send(request("agent/attach", 2, agentId=agent))
        await pipe.answer(2)
        text = "a\ud83db \x1b[31m\u202e \u2028 🙂"
        pipe.send(request("agent/followup", 3, agentId=agent, messageId="m1", content=text))
        while "u:m1" not in json.dumps(message := await pipe.receive()):
            pass
        body = message["params"]["ops"][0]["block"]["body"]
        assert "🙂" in body
        assert not {"\x1b", "\u202e", "\ud83d"} & set(body)


async def test_shutdown_and_exit_leave_status_zero_and_exit_alone_one(tmp_path: Path) -> None:
    """Case L14."""
    async with greeted(tmp_path) as pipe:
        pipe.send(request("shutdown", 1))
        assert (await pipe.answer(1))["result"] is None
        pipe.send(request("agent/list", 2))
        assert (await pipe.answer(2))["error"]["code"] == -32600
        pipe.send({"jsonrpc": "2.0", "method": "exit"})
        assert await asyncio.wait_for(pipe.process.wait(), 10) == 0
    async with greeted(tmp_path) as pipe:
        pipe.send({"jsonrpc": "2.0", "method": "exit"})
        assert await asyncio.wait_for(pipe.process.wait(), 10) == 1


async def test_a_vanished_client_leaves_no_process_and_its_text_is_kept(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    model.script(Answer((content("half"), asyncio.Event())))
    async with piped(tmp_path, *endpoint) as pipe:
        pipe.send(HELLO)
        await pipe.answer(0)
        pipe.send(request("agent/create", 1, workspaceUri=WORKSPACE))
        agent = (await pipe.answer(1))["result"]["agentId"]
        pipe.send(request("agent/attach", 2, agentId=agent))
        await pipe.answer(2)
        pipe.send(request("agent/followup", 3, agentId=agent, messageId="m1", content="go"))
        while "half" not in json.dumps(await pipe.receive()):
            pass
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        assert await asyncio.wait_for(pipe.process.wait(), 10) in (0, 1)
        await asyncio.wait_for((await model.exchange(0)).gone.wait(), 10)
    async with on_stdio(tmp_path, *endpoint) as editor:
        await editor.attach(agent)
        assert (editor.answer(agent), editor.row(agent, "assistant")["state"]) == ("half", "interrupted")


async def test_a_dead_parent_ends_the_server(tmp_path: Path) -> None:
    """An editor that was killed may leave its end of the pipe open in a child of its own."""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=PIPE)
    async with piped(tmp_path, "--model", "demo") as pipe:
        params = {**HELLO["params"], "processId": parent.pid}  # type: ignore[dict-item]
        pipe.send({**HELLO, "params": params})
        await pipe.answer(0)
        parent.kill()
        await parent.wait()
        assert await asyncio.wait_for(pipe.process.wait(), 15) in (0, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_end_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    async with greeted(tmp_path) as pipe:
        pipe.process.send_signal(number)
        assert await asyncio.wait_for(pipe.process.wait(), 10) in (0, 1)
        assert pipe.process.stderr is not None
        assert b"Traceback" not in await pipe.process.stderr.read()


async def test_wrong_options_are_refused_in_a_sentence(tmp_path: Path) -> None:
    for options in (("--model", "gpt-9"), ("--base-url", "nonsense", "--model-id", "x"), ("--model-id", "x")):
        async with piped(tmp_path, *options) as pipe:
            assert await asyncio.wait_for(pipe.process.wait(), 20) == 2
            assert pipe.process.stderr is not None
            said = (await pipe.process.stderr.read()).decode()
            assert said.startswith("agentls: ")
            assert "Traceback" not in said


async def test_a_full_disk_is_told_nothing_unsaved_is_acknowledged_and_it_goes_on_by_itself(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    """The limit on the size of files is lowered for the running process, and lifted again: real writes that fail."""
    gate = asyncio.Event()
    model.script(Answer((content("shown"), gate, content("never saved" * 1000), finish(), DONE)), reply("fine again"))
    async with on_stdio(tmp_path, *endpoint) as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "go", "m1")
        await editor.streaming(agent, "shown")
        pid = process_of(editor).pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
        gate.set()
        await editor.until(lambda: editor.state(agent)["store"] == "unavailable")
        assert editor.state(agent)["status"] == "suspended"
        told = editor.row(agent, "error")
        assert told["volatile"] is True
        refused = await editor.say("followup", agent, "unsaved", "m2")
        assert (refused["outcome"], refused["reason"]) == ("refused", "store-unavailable")
        assert refused["content"] == [{"type": "text", "text": "unsaved"}]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        await editor.until(lambda: editor.state(agent)["store"] == "ok")
        await editor.idle(agent)
        assert editor.row(agent, "turn-end")["reason"] == "error"
        assert "shown" in editor.answer(agent)
        assert (await editor.say("followup", agent, "unsaved", "m2"))["outcome"] == "started", "judged anew"
        await editor.until(lambda: editor.answer(agent).endswith("fine again"))
        await editor.idle(agent)


async def test_nothing_but_messages_reaches_standard_output(tmp_path: Path) -> None:
    """Case L03: a library of the model's that prints, run inside the server, must not break the stream."""
    site = tmp_path / "site"
    site.mkdir()
    noisy = "import os, sys\nprint('noise'); sys.stdout.flush(); os.write(1, b'raw noise\\n')\n"
    (site / "platformdirs.py").write_text(
        noisy + f"def user_state_path(*a, **k):\n    import pathlib\n    return pathlib.Path({str(tmp_path)!r})\n"
        f"user_data_path = user_state_path\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.argv = ['agentls', 'serve', '--model', 'demo'];"
        "from agentls.__main__ import main; sys.exit(main())",
        stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    pipe = Pipe(process)
    pipe.send(HELLO)
    assert (await pipe.answer(0))["result"]["capabilities"]
    assert process.stdin is not None
    process.stdin.close()
    _, said = await process.communicate()
    assert b"noise" in said


async def test_two_servers_share_one_store(tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer) -> None:
    """Until there is one daemon, each editor on stdio has a server of its own on the same files."""
    model.script(reply("one"), reply("two"))
    state = tmp_path / "state"
    async with (
        on_stdio(state, *endpoint) as one,
        on_socket(tmp_path, *endpoint, state=state) as server,
        server.editor() as two,
    ):
        first, second = await one.create(), await two.create()
        await asyncio.gather(one.say("followup", first, "a"), two.say("followup", second, "b"))
        await asyncio.gather(one.idle(first), two.idle(second))
        listed = await one.ask("agent/list", workspaceUri=WORKSPACE)
        assert {row["id"] for row in listed["agents"]} == {first, second}
