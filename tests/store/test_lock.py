"""Who holds a session: one process at a time, and nobody who is dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentls.core.errors import SessionHeld, UnknownSession
from agentls.core.ids import SessionId
from agentls.store.lock import SessionLock, file_name
from agentls.store.sqlite import LOCKS_FOLDER, SqliteStore
from tests.store.support import A, B, Child, header, message


async def stored(directory: Path) -> None:
    store = SqliteStore(directory)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    await store.close()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_a_second_opener_in_this_process_is_refused_with_our_pid(store: SqliteStore) -> None:
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    with pytest.raises(SessionHeld) as held:
        await store.open(A)
    assert held.value.pid == os.getpid()
    await log.close()
    await (await store.open(A)).close()


async def test_a_second_process_is_refused_with_the_holders_pid(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    with Child("try_to_open", tmp_path) as child:
        assert child.hear() == f"held by {os.getpid()}"
    await store.close()


async def test_a_killed_holder_frees_its_session_at_once_though_its_child_lives(tmp_path: Path) -> None:
    await stored(tmp_path)
    store = SqliteStore(tmp_path)
    with Child("hold", tmp_path) as child:
        grandchild = int(child.hear())
        with pytest.raises(SessionHeld) as held:
            await store.open(A)
        assert held.value.pid == child.process.pid
        child.process.kill()
        child.process.wait()
        os.kill(grandchild, 0)
        log = await store.open(A)
        await log.commit(message(1), durable=True)
    await store.close()


def test_of_two_processes_that_race_one_gets_the_lock_and_the_other_its_pid(tmp_path: Path) -> None:
    stale = dead_pid()
    with Child("race", tmp_path) as one, Child("race", tmp_path) as other:
        assert one.hear() == other.hear() == "ready"
        pids = {one: one.process.pid, other: other.process.pid}
        for n in range(20):
            # Left by a holder that died: its pid must mislead nobody.
            (tmp_path / file_name(f"r{n}")).write_text(f"{stale}\n")
            for child in (one, other):
                child.tell(f"r{n}")
            said = {child: child.hear() for child in (one, other)}
            assert sorted(said.values())[0] == "got it", said
            winner, loser = (one, other) if said[one] == "got it" else (other, one)
            assert said[loser] in (f"held by {pids[winner]}", "held by None")
            for child in (one, other):
                child.tell("on")


def test_there_are_never_two_inside_however_often_the_lock_changes_hands(tmp_path: Path) -> None:
    with Child("contend", tmp_path, 1500) as one, Child("contend", tmp_path, 1500) as other:
        assert one.hear() == other.hear() == "ready"
        one.tell("go")
        other.tell("go")
        assert [one.hear(), other.hear()] == ["done", "done"]


def test_a_stale_pid_in_a_free_lock_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / file_name(A)
    path.write_text(f"{dead_pid()}\n")
    lock = SessionLock.acquire(tmp_path, A)
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()
    assert not path.exists()


def test_a_lock_file_without_a_readable_pid_names_nobody(tmp_path: Path) -> None:
    lock = SessionLock.acquire(tmp_path, A)
    for text in ("", "nonsense", str(dead_pid()), str(2**70)):
        (tmp_path / file_name(A)).write_text(text)
        with pytest.raises(SessionHeld, match="another process") as held:
            SessionLock.acquire(tmp_path, A)
        assert held.value.pid is None
    lock.release()


def test_a_lock_outlives_the_removal_of_its_file_by_the_holder_before(tmp_path: Path) -> None:
    first = SessionLock.acquire(tmp_path, A)
    (tmp_path / file_name(A)).unlink()
    second = SessionLock.acquire(tmp_path, A)
    first.release()
    with pytest.raises(SessionHeld):
        SessionLock.acquire(tmp_path, A)
    second.release()


def test_every_id_has_a_lock_file_of_its_own_inside_the_folder(tmp_path: Path) -> None:
    long = "x" * 400
    names = ["a", "A", "", ".", "..", "../a", "a/b", "a%2Fb", "a\0b", "ä", "\udce4", long, long + "x", "a.lock"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    locks = [SessionLock.acquire(tmp_path, name) for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    for lock in locks:
        lock.release()


async def test_an_unknown_session_is_said_to_be_unknown_and_leaves_no_lock(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(UnknownSession, match='no session "b"'):
        await store.open(B)
    assert list((tmp_path / LOCKS_FOLDER).iterdir()) == []
    await store.close()


async def test_an_id_that_is_taken_cannot_be_created_again(store: SqliteStore) -> None:
    log = await store.create(header())
    with pytest.raises(ValueError, match="exists already"):
        await store.create(header())
    await log.commit(message(0), durable=True)
    await log.close()
    with pytest.raises(ValueError, match="exists already"):
        await store.create(header())
    assert await (await store.open(A)).read() == message(0)


async def test_a_session_without_an_event_leaves_nothing(store: SqliteStore) -> None:
    log = await store.create(header())
    assert await log.read() == ()
    assert await store.list() == ((), None)
    await log.close()
    with pytest.raises(UnknownSession):
        await store.open(A)
    await (await store.create(header())).close()


async def test_processes_share_the_files(tmp_path: Path) -> None:
    children = [Child("write_beside", tmp_path, f"s{n}", 30) for n in range(3)]
    for child in children:
        with child:
            assert child.hear() == "done"
    store = SqliteStore(tmp_path)
    for n in range(3):
        log = await store.open(SessionId(f"s{n}"))
        assert [event.seq for event in await log.read()] == list(range(30))
        assert [piece.text for piece in await log.drafts()] == [f"s{n} {seq}" for seq in range(30)]
    await store.close()
