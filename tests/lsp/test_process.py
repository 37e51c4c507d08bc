"""The server as a process: its streams are the protocol alone, and it ends when it should."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import orjson
import pytest

from agentls.core.json import JsonObject
from agentls.lsp.framing import Framer
from tests.processes import INITIALIZE, SECONDS, Talk, agentls, environment, message, started, wait_gone

FAKE_HOST = """
import asyncio, sys
from agentls.lsp.transport import take_stdio
fds = take_stdio()
{before}
from agentls.lsp.server import serve_stdio
from tests.lsp.doubles import FakeAgent, FakeHost
async def main():
    return await serve_stdio(FakeHost(FakeAgent()), fds, asyncio.Event())
sys.exit(asyncio.run(main()))
"""


def fake_server(before: str = "") -> list[str]:
    """The command of the stdio server over a fake agent, in a process of its own."""
    return [sys.executable, "-c", FAKE_HOST.format(before=before)]


NOISE = """
import os, subprocess
print("a print", flush=True)
os.write(1, b"a raw write")
subprocess.run(["sh", "-c", "echo a child; cat; ls -l /proc/self/fd"], check=True, close_fds=False)
"""


def test_nothing_but_the_protocol_reaches_stdout() -> None:
    with started(fake_server(NOISE)) as process:
        talk = Talk.to(process)
        talk.initialize()
        assert "result" in talk.call("agent/list")
        talk.send(message("shutdown", id=1), message("exit"))
        assert talk.read() == {"jsonrpc": "2.0", "id": 1, "result": None}
        assert talk.read() is None
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        said = process.stderr.read().decode()
    for noise in ("a print", "a raw write", "a child"):
        assert noise in said
    # The child has a null input, our stderr twice, and nothing of the two pipes.
    assert said.count("pipe:") == 2, said


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ((message("shutdown", id=2), message("exit")), 0),
        ((message("exit"),), 1),
        ((), 1),
        ((message("shutdown", id=2),), 0),
    ],
    ids=["shutdown and exit", "exit", "end of stream", "shutdown and end of stream"],
)
def test_the_status_says_whether_the_client_left_in_order(messages: tuple[bytes, ...], status: int) -> None:
    with started(fake_server()) as process:
        talk = Talk.to(process)
        talk.initialize()
        talk.send(*messages)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_real_server_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with started(agentls("serve", "--model", "demo", "--state-dir", str(tmp_path))) as process:
        talk = Talk.to(process)
        talk.initialize()
        assert "result" in talk.call("agent/create", {"workspaceUri": tmp_path.as_uri()})
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_killed_editor_leaves_no_server_behind(tmp_path: Path) -> None:
    command = agentls("stdio", "--model", "demo", "--state-dir", str(tmp_path))
    editor = (
        "import subprocess, sys\n"
        f"server = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"server.stdin.write({message('initialize', INITIALIZE, id=1)!r}); server.stdin.flush()\n"
        "server.stdout.readline()\n"
        "print(server.pid, flush=True)\n"
        "server.wait()\n"
    )
    with started([sys.executable, "-c", editor]) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        wait_gone(pid)


def test_a_client_that_vanishes_in_a_turn_leaves_no_process_and_loses_no_message(tmp_path: Path) -> None:
    command = agentls("serve", "--model", "demo", "--state-dir", str(tmp_path))
    with started(command) as process:
        talk = Talk.to(process)
        talk.initialize()
        made = cast(JsonObject, talk.call("agent/create", {"workspaceUri": tmp_path.as_uri()})["result"])
        message_json: JsonObject = {"agentId": made["agentId"], "messageId": "m", "content": "hello"}
        talk.call("agent/attach", {"agentId": made["agentId"]})
        sent = cast(JsonObject, talk.call("agent/send", message_json)["result"])
        assert sent["outcome"] == "started"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    with started(command) as process:
        talk = Talk.to(process)
        talk.initialize()
        again = cast(JsonObject, talk.call("agent/send", message_json)["result"])
        assert (again["repeated"], again["turn"]) == (True, sent["turn"])


def test_a_client_that_reads_nothing_does_not_keep_the_server(tmp_path: Path) -> None:
    with started(fake_server()) as process:
        talk = Talk.to(process)
        talk.initialize()
        # More answers than the pipe takes.
        talk.send(*(message("agent/list", id=number) for number in range(2000)))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 1


# Streams of other kinds ----------------------------------------------------------------------------------------

CONVERSATION = b"".join(
    (
        message("initialize", INITIALIZE, id=1),
        message("initialized"),
        message("agent/none", id=2),
        message("shutdown", id=3),
        message("exit"),
    )
)


def answers(data: bytes) -> dict[object, JsonObject]:
    framer = Framer()
    framer.feed(data)
    found = []
    while isinstance(item := framer.next(), bytes):
        found.append(orjson.loads(item))
    assert not framer.inside
    return {answer["id"]: answer for answer in found}


def test_it_works_from_file_to_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(CONVERSATION)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        done = subprocess.run(fake_server(), stdin=given, stdout=taken, env=environment(), check=False)
    assert done.returncode == 0
    found = answers((tmp_path / "out").read_bytes())
    assert set(found) == {1, 2, 3}
    assert cast(JsonObject, found[2]["error"])["code"] == -32601


def test_an_output_that_takes_nothing_ends_the_connection_and_nothing_else() -> None:
    with open("/dev/full", "wb") as full, started(fake_server(), stdout=full.fileno()) as process:
        assert process.stdin is not None
        process.stdin.write(message("initialize", INITIALIZE, id=1))
        process.stdin.flush()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b"the output cannot be written: No space left on device\n"


def test_it_works_on_the_socket_pairs_that_editors_make() -> None:
    ours, theirs = socket.socketpair()
    back, out = socket.socketpair()
    with ours, theirs, back, out, started(fake_server(), stdin=theirs.fileno(), stdout=out.fileno()) as process:
        theirs.close()
        out.close()
        talk = Talk(ours, back)
        talk.send(CONVERSATION)
        assert [answer["id"] for answer in iter(talk.read, None)] == [1, 2, 3]
        assert process.wait(SECONDS) == 0


def test_it_works_where_both_directions_are_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, started(fake_server(), stdin=theirs.fileno(), stdout=theirs.fileno()) as process:
        theirs.close()
        talk = Talk(ours, ours)
        talk.initialize()
        assert "result" in talk.call("agent/list")
        talk.send(message("shutdown", id=3), message("exit"))
        assert process.wait(SECONDS) == 0


def test_without_any_input_it_ends_at_once() -> None:
    done = subprocess.run(
        fake_server(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment(), check=False
    )
    assert done.returncode == 1


# The command line ----------------------------------------------------------------------------------------------


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        agentls(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment() | more,
        timeout=SECONDS,
        check=False,
    )


def test_the_version_is_told() -> None:
    assert run("--version").stdout == "agentls 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no command; agentls serve speaks LSP on standard input and output"),
        (("sing",), "invalid choice: 'sing'"),
        (("serve", "--log-level", "loud"), "invalid choice: 'loud'"),
        (("serve", "--base-url", "http://localhost:1"), "has no model; name one with --model-id"),
        (("stdio", "--script", "/nowhere"), 'the script "/nowhere" is no file'),
        (("stdio", "--socket", "x"), "unrecognized arguments: --socket x"),
        (("serve", "--model", "gpt-9"), '"gpt-9"'),
    ],
)
def test_a_wrong_command_line_has_status_2_and_says_what_to_do(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run(*arguments, AGENTLS_STATE_DIR=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_wrong_log_level_in_the_environment_is_told() -> None:
    done = run("serve", AGENTLS_LOG="loud")
    assert done.returncode == 2
    assert 'AGENTLS_LOG is "loud"; set it to one of debug, info, warning, error' in done.stderr


def test_closed_streams_are_told() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *agentls("serve")],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 2
    assert "standard input or output is closed; start it from an editor, or use --socket PATH" in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", "2</dev/null"])
def test_it_works_without_a_place_for_its_log(tmp_path: Path, closed: str) -> None:
    (tmp_path / "in").write_bytes(CONVERSATION)
    command = ["sh", "-c", f'exec "$@" <{tmp_path}/in >{tmp_path}/out {closed}', "sh"]
    server = agentls("serve", "--model", "demo", "--state-dir", str(tmp_path / "state"))
    done = subprocess.run(command + server, env=environment(), timeout=SECONDS, check=False)
    assert done.returncode == 0
    assert set(answers((tmp_path / "out").read_bytes())) == {1, 2, 3}


def test_the_command_line_imports_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "import agentls.__main__, agentls.cli\n"
        "agentls.cli._parser().parse_args(['serve', '--socket', 'x'])\n"
        "import agentls.lsp.transport\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "sys.stdout.write(' '.join(sorted(names - set(sys.stdlib_module_names))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.split() == ["agentls"]


def test_no_environment_is_needed_to_say_the_version() -> None:
    done = subprocess.run(
        agentls("--version"), capture_output=True, env={"PYTHONPATH": environment()["PYTHONPATH"]}, check=True
    )
    assert done.stdout == b"agentls 0.1.0\n"
