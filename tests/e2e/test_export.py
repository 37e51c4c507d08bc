"""`agentls sessions export`, as a person runs it: also beside a server, and where the files are damaged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agentls import cli
from agentls.core.ids import SessionId
from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE, SqliteStore
from tests.e2e.editors import on_stdio
from tests.processes import agentls, environment, started
from tests.store.damaging import SESSIONS, Stored, flip, stored

SECONDS = 30


@pytest.fixture(scope="module")
def was(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return asyncio.run(stored(tmp_path_factory.mktemp("stored")))


Done: TypeAlias = tuple[int, str, str]
"""Status, standard output and standard error."""
Export: TypeAlias = Callable[..., Done]


def by_process(*arguments: object) -> Done:
    """Run the program."""
    command = agentls("sessions", "export", *map(str, arguments))
    done = subprocess.run(command, env=environment(), capture_output=True, timeout=SECONDS, check=False)
    assert b"Traceback" not in done.stderr
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def export(capfd: pytest.CaptureFixture[str]) -> Export:
    """Run the command as the program does, in this process, which need not start first."""

    def run(*arguments: object) -> Done:
        status = 2  # Of an error of usage, which leaves the parser by an exit of its own.
        with suppress(SystemExit):
            status = cli.run(["sessions", "export", *map(str, arguments)])
        return status, *capfd.readouterr()

    return run


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("left", ["ended", "killed"])
def test_a_session_is_written_whole_and_its_store_is_not_touched(
    was: Stored, tmp_path: Path, export: Export, left: str
) -> None:
    folder = was.folder(SESSIONS_FILE if left == "ended" else f"{SESSIONS_FILE}-wal", tmp_path / "s")
    before = contents(folder)
    status, out, err = export("b", "--state-dir", folder)
    assert (status, err) == (0, "")
    first, *rest = lines(out)
    assert first == {
        "type": "session",
        "version": 1,
        "id": "b",
        "workspace": "file:///w",
        "cwd": "/w",
        "createdAt": 1790000000000,
    }
    events = [line for line in rest if "seq" in line]
    assert [line["seq"] for line in events] == list(range(len(was.logs["b"])))
    assert events[0]["data"] == {"turn": 1, "trigger": {"kind": "message", "ids": ["1"]}}
    drafts = [line for line in rest if line["type"] == "draft"]
    assert "".join(line["text"] for line in drafts) == "in flight of b, and more"
    assert contents(folder) == before


def test_all_sessions_go_into_a_folder_a_file_each_for_their_owner_alone(
    was: Stored, tmp_path: Path, export: Export
) -> None:
    out = tmp_path / "new" / "out"
    assert export("--all", "--state-dir", was.ended, "--output", out) == (0, "", "")
    assert sorted(path.name for path in out.iterdir()) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
    together = export("--all", "--state-dir", was.ended)
    assert together == (0, "".join((out / f"{name}.jsonl").read_text() for name in SESSIONS), "")


def test_a_session_can_be_written_to_be_read(was: Stored, export: Export) -> None:
    status, out, err = export("a", "--state-dir", was.ended, "--format", "markdown")
    assert (status, err) == (0, "")
    assert out.startswith("# Session a\n")
    assert "## You\n\n3.1\n" in out


def test_what_exists_is_not_overwritten(was: Stored, tmp_path: Path, export: Export) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    status, out, err = export("a", "--state-dir", was.ended, "--output", path)
    assert (status, out) == (2, "")
    assert err == f'agentls: "{path}" is there already and is not overwritten; name another file or move it away\n'
    status, out, err = export("--all", "--state-dir", was.ended, "--output", tmp_path)
    assert (status, path.read_text()) == (2, "mine")
    assert (tmp_path / "b.jsonl").exists(), "the others are written all the same"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("zz", "--state-dir", "{folder}"), 'there is no session "zz"'),
        (("--all", "--state-dir", "/nowhere"), 'there is no session store "/nowhere/sessions.db"'),
        (("a", "--state-dir", "{folder}", "--output", "/nowhere/a"), 'cannot write "/nowhere/a": No such file'),
        (("a", "--all"), "not allowed with argument"),
        ((), "one of the arguments ID --all is required"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    was: Stored, export: Export, arguments: tuple[str, ...], said: str
) -> None:
    status, out, err = export(*(one.format(folder=was.ended) for one in arguments))
    assert (status, out) == (2, "")
    assert said in err


def test_damage_is_told_and_all_else_is_written(was: Stored, tmp_path: Path, export: Export) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    connection = sqlite3.connect(folder / SESSIONS_FILE)
    with connection:
        connection.execute("DELETE FROM event WHERE at = (2 << 32) + 7")
        connection.execute("UPDATE event SET seal = seal + 1 WHERE at = (2 << 32) + 9")
    connection.close()
    status, out, err = export("--all", "--state-dir", folder)
    assert status == 1
    assert err.splitlines() == [
        'agentls: session "b" is damaged at event 7: it is missing',
        'agentls: session "b" is damaged at event 9: its bytes are not those that were written; '
        "what it seems to hold is written and may be wrong",
    ]
    damaged = [line for line in lines(out) if line["type"] == "damaged"]
    assert [(line["first"], line["stop"], line["event"] is None) for line in damaged] == [(7, 8, True), (9, 10, False)]
    assert sum("seq" in line for line in lines(out)) == 3 * len(was.logs["b"]) - 2


@pytest.mark.parametrize("at", [0, 18, 100])
def test_a_database_that_cannot_be_opened_is_written_all_the_same(
    was: Stored, tmp_path: Path, export: Export, at: int
) -> None:
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    flip(folder / SESSIONS_FILE, at)
    before = contents(folder)
    status, out, err = export("--all", "--state-dir", folder)
    assert status == 1
    assert err.startswith(f'agentls: the session store "{folder / SESSIONS_FILE}" is damaged: ')
    assert err.endswith("its first page could not be read\n")
    assert sum("seq" in line for line in lines(out)) == 3 * len(was.logs["b"])
    assert contents(folder) == before


def test_a_file_that_was_set_aside_is_read_by_its_name(was: Stored, tmp_path: Path, export: Export) -> None:
    folder = was.folder(f"{SESSIONS_FILE}-wal", tmp_path / "s")
    for end in ("", "-wal", "-shm"):
        (folder / f"{SESSIONS_FILE}{end}").rename(folder / f"{SESSIONS_FILE}.damaged-1{end}")
    (folder / DRAFTS_FILE).unlink()
    status, out, err = export("--all", "--database", folder / f"{SESSIONS_FILE}.damaged-1")
    assert (status, err) == (0, "")
    assert sum("seq" in line for line in lines(out)) == 3 * len(was.logs["b"])


def test_a_session_of_a_newer_format_keeps_no_other_from_being_written(
    was: Stored, tmp_path: Path, export: Export
) -> None:
    """Statement 41."""
    folder = was.folder(SESSIONS_FILE, tmp_path / "s")
    connection = sqlite3.connect(folder / SESSIONS_FILE)
    with connection:
        connection.execute("UPDATE session SET version = 2, seal = NULL WHERE id = 'b'")
    connection.close()
    status, out, err = export("--all", "--state-dir", folder)
    assert status == 1
    assert err == 'agentls: session "b" has format 2 and this agentls knows 1; upgrade agentls\n'
    assert [line["id"] for line in lines(out) if line["type"] == "session"] == ["a", "c"]


def test_a_reader_that_has_had_enough_sees_no_traceback(was: Stored) -> None:
    command = agentls("sessions", "export", "--all", "--state-dir", str(was.ended))
    with started(command, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == 1


async def test_a_session_is_written_while_a_server_has_it_open(tmp_path: Path) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    async with on_stdio(state, "--model", "demo") as editor:
        agent = await editor.create(workspaceUri=work.as_uri())
        await editor.say("followup", agent, "hello", "m1")
        await editor.idle(agent)
        status, out, err = await asyncio.to_thread(by_process, agent, "--state-dir", state)
        assert (status, err) == (0, "")
        assert {"session/title", "turn/end"} <= {line["type"] for line in lines(out)}
        status, out, err = await asyncio.to_thread(by_process, agent, "--state-dir", state, "--format", "markdown")
        assert (status, err) == (0, "")
        assert "## You\n\nhello\n" in out
        await editor.say("followup", agent, "and more", "m2")
        await editor.idle(agent)
        assert editor.row(agent, "turn-end")["reason"] == "completed", "the server was not disturbed"
    store = SqliteStore(state)
    assert await (await store.open(SessionId(agent))).read()
    await store.close()
