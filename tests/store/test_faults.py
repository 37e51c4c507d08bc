"""What goes wrong below us: a killed process, a full disk, a store that may not be written, a file that is gone."""

from __future__ import annotations

import ctypes
import sqlite3
import subprocess
from pathlib import Path

import pytest

from agentls.core.errors import StoreUnavailable
from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE, SqliteStore
from tests.store.support import A, Child, header, message, piece


@pytest.mark.parametrize("acknowledged", [1, 5, 30])
async def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    with Child("commit_for_ever", tmp_path) as child:
        for seq in range(acknowledged):
            assert child.hear() == str(seq)
        child.kill()
    store = SqliteStore(tmp_path)
    log = await store.open(A)
    events = await log.read()
    assert len(events) >= acknowledged
    assert events == tuple(event for seq in range(len(events)) for event in message(seq))
    drafts = await log.drafts()
    assert len(drafts) >= acknowledged
    assert drafts == tuple(piece(f"draft {n}", n) for n in range(len(drafts)))
    await log.commit(message(len(events)), durable=True)
    await store.close()


def check_fault(child: Child, cause: str) -> None:
    assert [child.hear(), child.hear()] == ["stored", "stored"]
    failed, rests, other, stored, again, draft = (child.hear() for _ in range(6))
    assert failed.startswith('refused: cannot write to the session store "')
    assert failed.endswith(f"{cause}, then it goes on by itself")
    assert rests == failed.replace("refused: ", "refused: not stored, since it rests on events that could not be: ")
    assert other == failed
    assert stored == "[0]"
    assert again == rests
    assert draft.startswith("draft refused: cannot write to the session store")
    assert draft.endswith(f"{cause}, then it goes on by itself")
    # The disk is well again: the session that probed goes on, the other when it has probed too.
    assert child.hear() == "stored"
    assert child.hear() == rests
    assert child.hear() == "stored"
    assert child.hear() == "[0, 1]"
    assert child.hear() == ""


def test_a_disk_that_takes_nothing_is_said_so_and_a_probe_ends_it(tmp_path: Path) -> None:
    with Child("no_writes", tmp_path) as child:
        check_fault(child, "the disk reports an error (SQLITE_IOERR_WRITE); check the disk and its quota")


def test_a_full_disk_is_said_so_and_a_probe_ends_it(tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", tmp_path], check=False).returncode:
        pytest.skip("this system lets no user mount a file system of their own")
    with Child("full_disk", tmp_path, before=alone) as child:
        check_fault(child, "disk full; free some space")


def without_root() -> None:
    """Let file modes bind a child that is root, too: the next program loses CAP_DAC_OVERRIDE."""
    pr_capbset_drop, cap_dac_override = 24, 1
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0)


@pytest.mark.parametrize("locked", ["the folder", SESSIONS_FILE, DRAFTS_FILE])
async def test_a_store_that_may_not_be_written_is_refused_in_plain_words(tmp_path: Path, locked: str) -> None:
    if locked == "the folder":
        path = tmp_path
        path.chmod(0o500)
    else:
        await SqliteStore(tmp_path).close()
        path = tmp_path / locked
        path.chmod(0o400)
    with Child("open_store", tmp_path, preexec=without_root) as child:
        said = child.hear()
    path.chmod(0o700)
    assert said.startswith("refused: cannot ")
    assert f'"{path}' in said
    assert said.endswith(": permission denied; mend it, then start agentls again")


async def test_a_file_that_was_removed_is_missed_and_one_that_is_back_is_not(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    await log.commit(message(0), durable=True)
    path, elsewhere = tmp_path / SESSIONS_FILE, tmp_path / "elsewhere"
    path.rename(elsewhere)
    with pytest.raises(StoreUnavailable, match="was moved or removed; put it back"):
        await log.commit(message(1), durable=True)
    with pytest.raises(StoreUnavailable, match="was moved or removed"):
        await log.probe()
    elsewhere.rename(path)
    with pytest.raises(StoreUnavailable, match="rests on"):
        await log.commit(message(1), durable=True)
    await log.probe()
    await log.commit(message(1), durable=True)
    assert await log.read() == message(0) + message(1)
    await store.close()


async def test_text_in_flight_is_missed_where_its_file_was_removed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    log.append_drafts([piece("one")])
    path, elsewhere = tmp_path / DRAFTS_FILE, tmp_path / "elsewhere"
    path.rename(elsewhere)
    with pytest.raises(StoreUnavailable, match="was moved or removed; put it back"):
        log.append_drafts([piece("two", 3), piece("three", 6)])
    with pytest.raises(StoreUnavailable, match="was moved or removed"):
        log.drop_drafts(piece("").message)
    with pytest.raises(StoreUnavailable, match="was moved or removed"):
        await log.probe()
    elsewhere.rename(path)
    await log.probe()
    log.append_drafts([piece("two", 3)])
    assert [piece.text for piece in await log.drafts()] == ["one", "two"]
    await store.close()


@pytest.mark.parametrize("name", [SESSIONS_FILE, DRAFTS_FILE])
async def test_a_file_that_another_one_replaced_is_missed(name: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    path = tmp_path / name
    path.rename(tmp_path / "elsewhere")
    path.touch()
    with pytest.raises(StoreUnavailable, match="another file has its name; put it back, or restart agentls"):
        await log.probe()
    await store.close()


async def test_a_lock_of_another_process_is_waited_for_and_then_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    log = await store.create(header())
    log.append_drafts([piece("one")])
    other = sqlite3.connect(tmp_path / DRAFTS_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
        log.append_drafts([piece("two", 3), piece("three", 6)])
    with pytest.raises(StoreUnavailable, match="another process keeps it locked"):
        await log.probe()
    other.execute("ROLLBACK")
    other.close()
    await log.probe()
    log.append_drafts([piece("two", 3)])
    assert [piece.text for piece in await log.drafts()] == ["one", "two"]
    await store.close()
