"""The one thread that writes: all that waits goes into one transaction, and the answers go back to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from agentls.core.errors import LogicError, StoreUnavailable
from agentls.store.checkpoint import WriteAheadLog
from agentls.store.faults import is_damage, is_disk_fault, is_locked, unavailable
from agentls.store.lock import SessionLock
from agentls.store.mending import mark
from agentls.store.transaction import Batch, Tail, Transactions

T = TypeVar("T")

REST = 0.25
"""Seconds without a write after which the logs are copied and cut: at rest the files are as small as their contents."""
LINGER = 0.003
"""Seconds that a batch waits for the one that was said to follow it. A sync takes about one millisecond, and two that
follow each other are one when they go together."""

Outcome: TypeAlias = Exception | None
Answer: TypeAlias = "asyncio.Future[Outcome]"
"""The outcome is a value, so that an answer that nobody waits for any more makes no noise."""


@dataclass(frozen=True, slots=True)
class _Append:
    batch: Batch
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Probe:
    tail: Tail
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Delete:
    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Release:
    lock: SessionLock
    answer: Answer


@dataclass(frozen=True, slots=True)
class _Stop:
    answer: Answer


class _Wake:
    """Something else than a batch was written; it will want a checkpoint."""


_Job: TypeAlias = _Append | _Probe | _Delete | _Release | _Stop | _Wake


class Writer:
    """The thread and what waits for it. What is given is done in the order in which it is given, whether or not anyone
    still awaits the answer."""

    def __init__(self, path: Path, drafts: WriteAheadLog, trace: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._transactions = Transactions(path, trace)
        self._log = self._transactions.log
        self._drafts = drafts
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        # A daemon, so that a process that never closed its store can still end.
        self._thread = threading.Thread(target=self._run, name="agentls-store-write", daemon=True)
        self._thread.start()

    # On the event loop: each puts a job in line and gives the future of its outcome.

    def append(self, batch: Batch) -> Answer:
        """Its outcome is StoreUnavailable or LogicError (a gap) where it is not stored."""
        answer = _answer()
        self._jobs.put(_Append(batch, answer))
        return answer

    def probe(self, tail: Tail) -> Answer:
        """Write and sync one row; where that succeeds, the log takes batches again."""
        answer = _answer()
        self._jobs.put(_Probe(tail, answer))
        return answer

    def delete(self, key: int) -> Answer:
        """Remove a stored session that is held and in no log."""
        answer = _answer()
        self._jobs.put(_Delete(key, answer))
        return answer

    def release(self, lock: SessionLock) -> Answer:
        """Let a session go once all that was given before is done."""
        answer = _answer()
        self._jobs.put(_Release(lock, answer))
        return answer

    def stop(self) -> Answer:
        """End the thread once all that was given before is done; nothing may be given after it."""
        answer = _answer()
        self._jobs.put(_Stop(answer))
        return answer

    def wake(self) -> None:
        """Say that the drafts' log is to be looked at: one was written after a rest, or it has grown long."""
        self._jobs.put(_Wake())

    # On the writer thread.

    def _run(self) -> None:
        while True:
            group = self._take()
            stop = next((job for job in group if isinstance(job, _Stop)), None)
            self._work(group)
            if stop is not None:
                _deliver([(stop.answer, _attempt(self._close))])
                return
            self._log.after_write()
            self._drafts.after_write()

    def _take(self) -> list[_Job]:
        """All jobs that wait, and at least one; copies the logs when none comes for a while."""
        group: list[_Job] = []
        while not group:
            rested = self._log.is_clean and self._drafts.is_clean
            try:
                group.append(self._jobs.get(timeout=None if rested else REST))
            except queue.Empty:
                self._log.at_rest()
                self._drafts.at_rest()
        with contextlib.suppress(queue.Empty):
            while True:
                group.append(self._jobs.get(timeout=LINGER if _is_followed(group[-1]) else 0))
        return group

    def _work(self, group: list[_Job]) -> None:
        waiting: list[_Append] = []
        for job in group:
            if isinstance(job, _Append):
                waiting.append(job)
                continue
            self._commit(waiting)
            waiting = []
            match job:
                case _Probe():
                    _deliver([(job.answer, _attempt(partial(self._beat, job.tail)))])
                case _Delete():
                    _deliver([(job.answer, _attempt(partial(self._delete, job.key)))])
                case _Release():
                    _deliver([(job.answer, _attempt(job.lock.release))])
        self._commit(waiting)

    def _commit(self, jobs: Sequence[_Append]) -> None:
        ready = [job for job in jobs if job.batch.tail.fault is None]
        done: list[tuple[Answer, Outcome]] = [
            (job.answer, _rests_on(job.batch)) for job in jobs if job.batch.tail.fault is not None
        ]
        if ready:
            batches = [job.batch for job in ready]
            gaps = _attempt(partial(self._transactions.store, batches))
            if not isinstance(gaps, Exception):
                outcomes: list[Outcome] = [*gaps]
            elif len(batches) == 1 or is_locked(gaps):
                outcomes = [self._failed(batch, gaps) for batch in batches]
            else:
                # One session's fault does not fail another's.
                outcomes = [self._commit_alone(batch) for batch in batches]
            done += zip((job.answer for job in ready), outcomes, strict=True)
        if done:
            _deliver(done)

    def _commit_alone(self, batch: Batch) -> Outcome:
        if batch.tail.fault is not None:
            return _rests_on(batch)
        gaps = _attempt(partial(self._transactions.store, [batch]))
        return self._failed(batch, gaps) if isinstance(gaps, Exception) else gaps[0]

    def _failed(self, batch: Batch, error: Exception) -> Exception:
        """The error for whoever gave the batch; where the disk is to blame, later batches are refused from now on."""
        if isinstance(error, sqlite3.IntegrityError):
            return LogicError(f'session "{batch.tail.header.id}" holds one of these events already: {error}')
        error = self._in_words(error)
        if isinstance(error, StoreUnavailable):
            batch.tail.fault = str(error)
        return error

    def _in_words(self, error: Exception) -> Exception:
        if is_damage(error):
            _attempt(partial(mark, self._path))
        if isinstance(error, sqlite3.Error | OSError) and is_disk_fault(error):
            return unavailable(error, self._path)
        return error

    def _beat(self, tail: Tail) -> None:
        with self._said_in_words():
            self._transactions.beat()
        tail.fault = None

    def _delete(self, key: int) -> None:
        with self._said_in_words():
            self._transactions.delete(key)

    @contextlib.contextmanager
    def _said_in_words(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._in_words(error) from error

    def _close(self) -> None:
        self._transactions.close()
        self._drafts.close()


def _is_followed(job: _Job) -> bool:
    return isinstance(job, _Append) and job.batch.more


def _answer() -> Answer:
    return asyncio.get_running_loop().create_future()


def _attempt(act: Callable[[], T]) -> T | Exception:
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - the thread's boundary: it goes to whoever awaits the job
        return error


def _deliver(outcomes: Sequence[tuple[Answer, Outcome]]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Answer, Outcome]]] = {}
    for answer, outcome in outcomes:
        loops.setdefault(answer.get_loop(), []).append((answer, outcome))
    for loop, settled in loops.items():
        # A loop that is closed has nobody who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, settled)


def _settle(outcomes: Sequence[tuple[Answer, Outcome]]) -> None:
    for answer, outcome in outcomes:
        if not answer.done():
            answer.set_result(outcome)


def _rests_on(batch: Batch) -> StoreUnavailable:
    return StoreUnavailable(f"not stored, since it rests on events that could not be: {batch.tail.fault}")
