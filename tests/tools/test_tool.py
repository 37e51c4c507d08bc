"""What all tools rest on: bounds that hold for everything, threads that end with their call, what was seen."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentls.tools
from agentls.core.json import JsonValue
from agentls.tools.stopping import change_in_thread, check, in_thread, stoppable
from agentls.tools.tool import CODES, ToolError, bounded, observed
from tests.tools.support import Space, happened

T = TypeVar("T")


@given(st.text(alphabet="a\né🙂", max_size=200), st.integers(0, 900))
def test_a_bounded_text_is_never_over_its_limit_and_whole_when_it_fits(text: str, limit: int) -> None:
    cut = bounded(text, limit)
    assert len(cut.encode()) <= limit
    if len(text.encode()) <= limit:
        assert cut == text
    elif limit > 60:
        kept, _, notice = cut.rpartition("\n... (")
        assert text.startswith(kept)
        assert notice == f"{len(text.encode()) - len(kept.encode())} more bytes are left out)"


@pytest.mark.parametrize(
    ("meta", "seen"),
    [
        ({"uri": "file:///a%20b", "hash": "sha256:1"}, {"/a b": "sha256:1"}),
        ({"uri": "file:///a"}, {}),
        (None, {}),
        ([], {}),
        ({"uri": 1, "hash": 2}, {}),
    ],
)
def test_what_was_seen_is_told_by_the_meta_of_results(meta: JsonValue, seen: dict[str, str]) -> None:
    assert observed(meta) == seen


async def test_a_cancelled_call_ends_only_when_its_thread_has(space: Space) -> None:
    started, ended = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        space.context.stop.wait(10)
        ended.set()

    task = asyncio.create_task(in_thread(space.context, work))
    await happened(started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert space.context.stop.is_set()


async def test_a_call_that_is_cancelled_twice_waits_all_the_same(space: Space) -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go_on.wait(10)
        ended.set()
        raise OSError("nobody is there to hear it")

    task = asyncio.create_task(in_thread(space.context, work))
    await cancelled_twice(space, task, started, go_on)
    assert task.cancelled()
    assert ended.is_set()


async def test_what_a_stopped_thread_raises_is_not_reported_as_never_heard(space: Space) -> None:
    """A walk that is stopped says so by an error, which is for nobody once its call is cancelled."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    started = threading.Event()

    def work() -> None:
        started.set()
        space.context.stop.wait(10)
        check(space.context.stop)

    task = asyncio.create_task(in_thread(space.context, work))
    await happened(started)
    task.cancel()
    await asyncio.wait([task])
    del task  # It keeps whatever its frames held.
    gc.collect()
    assert reported == []


async def cancelled_twice(
    space: Space, task: asyncio.Task[T], started: threading.Event, go_on: threading.Event
) -> None:
    """Cancel a task twice while its thread runs, which it waits for; then let that end."""
    await happened(started)
    task.cancel()
    await happened(space.context.stop)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    await asyncio.wait([task])


async def cancelled_in_its_thread(space: Space, fails: Exception | None = None) -> asyncio.Task[str]:
    """A change that is cancelled, twice, while it is made, and then ends."""
    started, go_on = threading.Event(), threading.Event()

    def work() -> str:
        started.set()
        go_on.wait(10)
        if fails is not None:
            raise fails
        return "changed"

    task = asyncio.create_task(change_in_thread(space.context, work))
    await cancelled_twice(space, task, started, go_on)
    return task


async def test_a_change_that_was_made_is_told_although_its_call_was_cancelled(space: Space) -> None:
    task = await cancelled_in_its_thread(space)
    assert await task == "changed"
    assert not task.cancelled()


async def test_a_change_that_failed_is_told_although_its_call_was_cancelled(space: Space) -> None:
    task = await cancelled_in_its_thread(space, ToolError("IO", "half of it is there"))
    with pytest.raises(ToolError, match="half of it is there"):
        await task


async def test_a_change_that_stopped_where_it_looked_was_cancelled(space: Space) -> None:
    task = await cancelled_in_its_thread(space, ToolError("ABORTED", "nothing was changed"))
    assert task.cancelled()


async def test_a_change_that_is_cancelled_before_its_thread_begins_is_not_made(space: Space) -> None:
    space.context = replace(space.context, threads=ThreadPoolExecutor(1))
    busy, go_on = threading.Event(), threading.Event()
    changed: list[str] = []

    def other() -> None:
        busy.set()
        go_on.wait(10)

    before = asyncio.create_task(in_thread(space.context, other))
    await happened(busy)
    task = asyncio.create_task(change_in_thread(space.context, lambda: changed.append("changed")))
    await asyncio.sleep(0)
    task.cancel()
    await happened(space.context.stop)
    go_on.set()
    await asyncio.wait([task, before])
    assert task.cancelled()
    assert changed == []


async def test_a_change_that_nobody_cancels_gives_what_it_gives(space: Space) -> None:
    def fail() -> None:
        raise OSError("full")

    assert await change_in_thread(space.context, lambda: 1) == 1
    with pytest.raises(OSError, match="full"):
        await change_in_thread(space.context, fail)


async def test_a_threads_fault_is_its_calls(space: Space) -> None:
    def work() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await in_thread(space.context, work)


# What does not end ----------------------------------------------------------------------------------------------


@pytest.fixture
def stuck(space: Space) -> Iterator[threading.Event]:
    """What work waits for that never ends by itself; its time to end is over at once."""
    space.context = replace(space.context, grace=0.01)
    free = threading.Event()
    yield free
    free.set()


async def begun(started: threading.Event, task: asyncio.Task[T]) -> asyncio.Task[T]:
    """The task, once what it runs has begun; it is cancelled then, and ends."""
    await happened(started)
    task.cancel()
    await asyncio.wait([task])
    return task


async def test_a_thread_that_hangs_is_left_behind(space: Space, stuck: threading.Event) -> None:
    started = threading.Event()

    def work() -> None:
        started.set()
        stuck.wait(10)
        raise OSError("nobody is there to hear it")

    task = await begun(started, asyncio.create_task(in_thread(space.context, work)))
    assert task.cancelled()
    assert space.context.stop.is_set()
    assert not stuck.is_set()


async def test_a_change_that_hangs_is_left_behind_and_may_take_effect(space: Space, stuck: threading.Event) -> None:
    started = threading.Event()

    def work() -> None:
        started.set()
        stuck.wait(10)

    task = await begun(started, asyncio.create_task(change_in_thread(space.context, work)))
    with pytest.raises(ToolError, match="may still take effect") as error:
        await task
    assert error.value.code == "ABORTED"


async def test_threads_of_tools_that_hang_keep_nothing_else_waiting(space: Space, stuck: threading.Event) -> None:
    """Sessions are loaded on other threads."""
    hanging = [asyncio.create_task(in_thread(space.context, lambda: stuck.wait(10))) for _ in range(100)]
    assert await asyncio.to_thread(lambda: "loaded") == "loaded"
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)
    assert not stuck.is_set()


async def test_work_that_does_not_hear_of_its_end_is_left_behind(stuck: threading.Event) -> None:
    started, asked = threading.Event(), []
    free = asyncio.Event()

    async def work() -> None:
        started.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                asked.append("to end")

    task = await begun(started, asyncio.create_task(stoppable(work(), 0.01)))
    assert (task.cancelled(), asked) == (True, ["to end"])
    free.set()


async def test_work_that_cancels_itself_fails() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="by nobody but itself"):
        await stoppable(work(), 1)


def test_a_stopped_call_is_aborted_where_its_thread_looks() -> None:
    stop = threading.Event()
    check(stop)
    stop.set()
    with pytest.raises(ToolError) as error:
        check(stop)
    assert error.value.code == "ABORTED"


def test_every_code_of_a_tool_is_explained() -> None:
    (folder,) = agentls.tools.__path__
    used = {
        code for path in Path(folder).glob("*.py") for code in re.findall(r'ToolError\(\s*"(\w+)"', path.read_text())
    }
    assert len(used) > 5
    assert used <= CODES.keys()
