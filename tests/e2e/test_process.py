"""The process itself: its streams, its end, and what it does with nonsense."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agentls.core.json import JsonObject
from agentls.lsp.framing import framed
from tests.e2e.editors import WORKSPACE, on_socket, on_stdio, process_of
from tests.model_server import DONE, Answer, ModelServer, content, finish, reply
from tests.processes import INITIALIZE, SECONDS, Talk, agentls, message, started


@contextmanager
def served(state: Path) -> Iterator[tuple[Talk, subprocess.Popen[bytes]]]:
    """A server of its own on pipes, said hello to."""
    with started(agentls("serve", "--state-dir", str(state), "--model", "demo")) as process:
        talk = Talk.to(process)
        talk.initialize()
        yield talk, process


def result(answer: JsonObject) -> dict[str, Any]:
    assert "result" in answer, answer
    return cast(dict[str, Any], answer["result"])


def error(answer: JsonObject) -> dict[str, Any]:
    assert "error" in answer, answer
    assert "Traceback" not in json.dumps(answer)
    return cast(dict[str, Any], answer["error"])


MESSAGE = {"agentId": "x", "messageId": "m", "content": "hi"}
MENTION = {"kind": "file", "label": "a.py", "uri": "file:///a.py"}


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("agent/create", {}, "workspaceUri"),
        ("agent/create", {"workspaceUri": 7}, "workspaceUri"),
        ("agent/create", [], "workspaceUri"),
        ("agent/create", {"workspaceUri": WORKSPACE, "from": {"agentId": "x"}}, "from.turn"),
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
        ("agent/send", {**MESSAGE, "mentions": [MENTION]}, "mentions"),
        ("agent/followup", {**MESSAGE, "mentions": [MENTION]}, "mentions"),
        ("agent/steer", {**MESSAGE, "mentions": [MENTION]}, "mentions"),
        ("agent/steer", {**MESSAGE, "ifIdle": "maybe"}, "ifIdle"),
        ("agent/steer", {**MESSAGE, "expectedTurn": 0}, "expectedTurn"),
        ("agent/inject", MESSAGE, "context"),
        ("agent/inject", {**MESSAGE, "context": {"form": "notice"}}, "context.summary"),
        ("agent/inject", {**MESSAGE, "context": {"form": "notice", "summary": "x" * 121}}, "context"),
        ("agent/inject", {**MESSAGE, "context": {"form": "weather"}}, "context.form"),
        ("agent/page", {"agentId": "x", "before": [1], "limit": 5}, "before[1]"),
        ("agent/page", {"agentId": "x", "before": [1, 0], "limit": 0}, "limit"),
        ("agent/attach", {"agentId": "x", "since": -1}, "since"),
        ("agent/inbox/remove", {"agentId": "x"}, "messageId"),
    ],
)
def test_a_malformed_request_names_the_field(tmp_path: Path, method: str, params: Any, path: str) -> None:
    """Rule 7: -32602 with the path of the wrong field, for its own id, and the connection goes on."""
    with served(tmp_path) as (talk, _):
        refused = error(talk.call(method, params))
        assert refused["code"] == -32602, refused
        assert method in refused["message"]
        assert refused["data"] == {"path": path}
        assert result(talk.call("agent/list"))["agents"] == []


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
def test_each_wrong_request_has_its_code(tmp_path: Path, method: str, params: Any, code: int) -> None:
    with served(tmp_path) as (talk, _):
        assert error(talk.call(method, params))["code"] == code


def test_a_nested_jsonrpc_key_is_only_data(tmp_path: Path) -> None:
    """pygls takes any object with such a key for a message of its own."""
    with served(tmp_path) as (talk, _):
        extra: JsonObject = {"deep": [{"jsonrpc": "2.0", "id": 9}]}
        agent = result(talk.call("agent/create", {"workspaceUri": WORKSPACE, "extra": extra}))["agentId"]
        context: JsonObject = {
            "form": "snapshot",
            "sections": [{"name": "n", "text": "t", "jsonrpc": "2.0"}],
            "jsonrpc": "2.0",
        }
        injected = talk.call("agent/inject", {**MESSAGE, "agentId": agent, "context": context})
        assert result(injected)["outcome"] == "injected"


def test_header_names_come_in_any_case_and_more_of_them(tmp_path: Path) -> None:
    with served(tmp_path) as (talk, _):
        for number, header in enumerate((b"content-length", b"CONTENT-LENGTH", b"X-Other: 1\r\nContent-length"), 1):
            talk.send(message("agent/list", {}, id=number).replace(b"Content-Length", header, 1))
            result(talk.answer(number))


def test_bad_json_is_answered_and_the_stream_goes_on(tmp_path: Path) -> None:
    with served(tmp_path) as (talk, _):
        talk.send(framed(b"{bad}"))
        assert error(talk.answer(None))["code"] == -32700
        talk.send(framed(b'[{"jsonrpc": "2.0", "id": 1, "method": "agent/list"}]'))
        assert error(talk.answer(None))["code"] == -32600
        result(talk.call("agent/list"))


def test_a_lone_surrogate_and_odd_characters_break_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (talk, _):
        agent = result(talk.call("agent/create", {"workspaceUri": WORKSPACE}))["agentId"]
        talk.call("agent/attach", {"agentId": agent})
        params = {"agentId": agent, "messageId": "m1", "content": "a\ud83db \x1b[31m\u202e \u2028 🙂"}
        request = {"jsonrpc": "2.0", "id": 3, "method": "agent/followup", "params": params}
        talk.send(framed(json.dumps(request).encode()))
        while "u:m1" not in json.dumps(told := talk.read()):
            pass
        body = cast(Any, told)["params"]["ops"][0]["block"]["body"]
        assert "🙂" in body
        assert not {"\x1b", "\u202e", "\ud83d"} & set(body)


def test_shutdown_and_exit_leave_status_zero_and_exit_alone_one(tmp_path: Path) -> None:
    """Case L14."""
    with served(tmp_path) as (talk, process):
        assert result(talk.call("shutdown")) is None
        assert error(talk.call("agent/list"))["code"] == -32600
        talk.send(message("exit"))
        assert process.wait(SECONDS) == 0
    with served(tmp_path) as (talk, process):
        talk.send(message("exit"))
        assert process.wait(SECONDS) == 1


async def test_a_vanished_client_leaves_no_process_and_its_text_is_kept(
    tmp_path: Path, endpoint: tuple[str, ...], model: ModelServer
) -> None:
    model.script(Answer((content("half"), asyncio.Event())))
    async with on_stdio(tmp_path, *endpoint) as editor:
        agent = await editor.create()
        await editor.say("followup", agent, "go", "m1")
        await editor.streaming(agent, "half")
        pipe = process_of(editor).stdin
        assert pipe is not None
        pipe.close()
        assert await asyncio.wait_for(process_of(editor).wait(), SECONDS) == 1, "it left without a shutdown"
        await asyncio.wait_for((await model.exchange(0)).gone.wait(), SECONDS)
    async with on_stdio(tmp_path, *endpoint) as editor:
        await editor.attach(agent)
        assert (editor.answer(agent), editor.row(agent, "assistant")["state"]) == ("half", "interrupted")


def test_a_dead_parent_ends_the_server(tmp_path: Path) -> None:
    """An editor that was killed may leave its end of the pipe open in a child of its own."""
    with (
        started([sys.executable, "-c", "input()"]) as parent,
        started(agentls("serve", "--state-dir", str(tmp_path), "--model", "demo")) as process,
    ):
        result(Talk.to(process).call("initialize", {**INITIALIZE, "processId": parent.pid}))
        parent.kill()
        parent.wait()
        assert process.wait(SECONDS) == 1, "nobody said shutdown"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path) as (_, process):
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "options", [("--model", "gpt-9"), ("--base-url", "nonsense", "--model-id", "x"), ("--model-id", "x")]
)
def test_wrong_options_are_refused_in_a_sentence(tmp_path: Path, options: tuple[str, ...]) -> None:
    with started(agentls("serve", "--state-dir", str(tmp_path), *options)) as process:
        assert process.wait(SECONDS) == 2
        assert process.stderr is not None
        said = process.stderr.read().decode()
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


def test_nothing_but_messages_reaches_standard_output(tmp_path: Path) -> None:
    """Case L03: a library of the model's that prints, run inside the server, must not break the stream."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "platformdirs.py").write_text(
        "import os, pathlib, sys\n"
        "print('noise'); sys.stdout.flush(); os.write(1, b'raw noise\\n')\n"
        f"def user_state_path(*a, **k):\n    return pathlib.Path({str(tmp_path)!r})\n"
        "user_data_path = user_state_path\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.argv = ['agentls', 'serve', '--model', 'demo'];"
        "from agentls.__main__ import main; sys.exit(main())"
    )
    with started([sys.executable, "-c", program]) as process:
        talk = Talk.to(process)
        talk.initialize()
        result(talk.call("agent/list"))
        assert process.stdin is not None
        process.stdin.close()
        assert talk.read() is None
        assert process.stderr is not None
        said = process.stderr.read()
    assert b"noise\n" in said
    assert b"raw noise\n" in said


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
