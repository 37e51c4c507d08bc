"""What all tools rest on: bounds that hold for everything, threads that end with their call, what was seen."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.json import JsonValue
from agentls.tools.tool import ToolError, bounded, check, in_thread, observed
from tests.tools.support import Space


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
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_call_that_is_cancelled_twice_waits_all_the_same(space: Space) -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        go_on.wait(10)
        ended.set()
        raise OSError("nobody is there to hear it")

    task = asyncio.create_task(in_thread(space.context, work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.to_thread(space.context.stop.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_threads_fault_is_its_calls(space: Space) -> None:
    def work() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await in_thread(space.context, work)


def test_a_stopped_call_is_aborted_where_its_thread_looks() -> None:
    stop = threading.Event()
    check(stop)
    stop.set()
    with pytest.raises(ToolError) as error:
        check(stop)
    assert error.value.code == "ABORTED"
