"""`write`: only what was read, never under unsaved text, as the file stood; the diff is of what is on disk."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from agentls.core.json import JsonValue
from agentls.tools import write
from agentls.tools.tool import OUTPUT_MAX, ToolError, observed
from agentls.workspace.documents import Buffer, Documents
from agentls.workspace.texts import content_hash
from tests.conformance.cases import folder
from tests.tools.support import NEOVIM, VSCODE, Space, happened

P = ParamSpec("P")
T = TypeVar("T")


def case(name: str) -> bytes:
    return (folder() / "cases" / name).read_bytes()


async def assert_refused(space: Space, path: Path, code: str, content: str = "new\n") -> str:
    """Refused before anybody is asked and when it is to be done, and nothing has changed."""
    name = str(path.relative_to(space.root))
    before = space.bytes_of(name)
    error = await space.refusal("write", path=name, content=content)
    asked = await space.asking("write", path=name, content=content)
    assert (error.code, error.text) == (asked.code, asked.text)
    assert error.code == code, error
    assert space.bytes_of(name) == before
    return error.text


# What it does --------------------------------------------------------------------------------------------------


async def test_a_new_file_is_written_with_its_folders(space: Space) -> None:
    output = await space.call("write", path="src/new/a.py", content="x = 1\ny = 2")
    path = space.root / "src/new/a.py"
    assert path.read_bytes() == b"x = 1\ny = 2"
    assert output.text == "created src/new/a.py (+2 -0 lines)"
    assert observed(output.meta) == space.context.seen == {str(path): content_hash(path.read_bytes())}


async def test_a_file_that_was_read_is_replaced_and_the_result_carries_the_diff(space: Space) -> None:
    """Z18."""
    path = space.file("a.py", "one\ntwo\n")
    await space.call("read", path="a.py")
    output = await space.call("write", path="a.py", content="one\n2\n")
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert output.text == f"replaced a.py (+1 -1 lines)\n{diff}"
    assert (output.meta["diff"], output.meta["added"], output.meta["removed"]) == (diff, 1, 1)
    assert path.read_bytes() == b"one\n2\n"


async def test_what_the_agent_wrote_it_may_write_again(space: Space) -> None:
    for n in range(3):
        await space.call("write", path="a", content=f"{n}\n")
    assert (space.root / "a").read_text() == "2\n"


async def test_the_same_content_again_asks_nobody_and_writes_nothing(space: Space) -> None:
    """E16: no change."""
    path = space.seen("a", "abc\r\n")
    before = path.stat()
    assert await space.asks("write", path="a", content="abc\n") is None
    output = await space.call("write", path="a", content="abc\n")
    assert output.text == "a has this content already; nothing was written"
    assert output.meta["change"] == "none"
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_a_writes_result_is_bounded(space: Space) -> None:
    space.seen("a", "é\n" * 100_000)
    output = await space.call("write", path="a", content="x\n" * 100_000)
    assert len(output.text.encode()) <= OUTPUT_MAX
    assert output.text.endswith("more bytes are left out)")
    assert len(str(output.meta["diff"]).encode()) <= OUTPUT_MAX


# What it keeps -------------------------------------------------------------------------------------------------


async def test_a_models_line_feeds_become_the_files_line_endings(space: Space) -> None:
    """E01."""
    path = space.seen("a", case("e01_crlf.txt"))
    output = await space.call("write", path="a", content="a = 9\nb = 8\nc = 3\n")
    assert path.read_bytes() == case("e01_crlf.after.txt")
    assert "-a = 1\r\n-b = 2\r\n+a = 9\r\n+b = 8\r\n c = 3\r\n" in output.text


async def test_bytes_of_another_encoding_are_kept(space: Space) -> None:
    """E03."""
    path = space.seen("a", case("e03_latin1.txt"))
    await space.call("write", path="a", content="x = 2\n# café\n")
    assert path.read_bytes() == case("e03_latin1.after.txt")


async def test_no_newline_is_added_at_the_end(space: Space) -> None:
    """E16."""
    path = space.seen("a", case("e10_noeol.txt"))
    output = await space.call("write", path="a", content="final line")
    assert path.read_bytes() == case("e10_noeol.after.txt")
    assert output.text.endswith("-last line\n\\ No newline at end of file\n+final line\n\\ No newline at end of file\n")


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"\xef\xbb\xbfa\n", "\ufeffb\n", b"\xef\xbb\xbfb\n"),
        (b"\xff\xfea\0\r\0\n\0", "é\n", b"\xff\xfe\xe9\0\r\0\n\0"),
        (b"it\x92s\n", "it’s “new”\n", b"it\x92s \x93new\x94\n"),
        (b"a\rb\r", "c\nd\n", b"c\rd\r"),
        (b"a\r\nb\r\nc\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"", "a\r\n", b"a\n"),
    ],
)
async def test_mark_encoding_and_line_endings_stay(space: Space, before: bytes, content: str, after: bytes) -> None:
    path = space.seen("a", before)
    await space.call("write", path="a", content=content)
    assert path.read_bytes() == after


async def test_mode_links_and_hard_links_stay(space: Space) -> None:
    """E10, E11, E14."""
    path = space.seen("run.sh", "old\n")
    path.chmod(0o755)
    (space.root / "link").symlink_to("run.sh")
    await space.call("write", path="link", content="new\n")
    assert (space.root / "link").is_symlink()
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    os.link(path, space.root / "hard")
    await space.call("write", path="run.sh", content="newer\n")
    assert (space.root / "hard").read_text() == "newer\n"


# What it refuses -----------------------------------------------------------------------------------------------


async def test_a_file_that_was_not_read_is_not_overwritten(space: Space) -> None:
    text = await assert_refused(space, space.file("a", "theirs\n"), "STALE")
    assert text == '"a" exists and was not read; read it first, then write it'


async def test_a_file_that_has_changed_since_it_was_read_is_not_overwritten(space: Space) -> None:
    path = space.seen("a", "old\n")
    status = path.stat()
    path.write_text("new\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    text = await assert_refused(space, path, "STALE")
    assert text == '"a" has changed since it was read; read it again, then write it'


async def test_a_file_that_is_gone_since_it_was_read_is_made_anew(space: Space) -> None:
    space.seen("a", "old\n").unlink()
    assert (await space.call("write", path="a", content="new\n")).meta["change"] == "created"


async def test_a_file_with_unsaved_text_is_not_written_under_it(space: Space) -> None:
    """L16: refused with "unsaved", never a silent write; also when the agent has read the unsaved text."""
    path = space.file("a", "A\n")
    space.opened("a", "B\n", NEOVIM)
    space.opened("a", "A\n", VSCODE)
    await space.call("read", path="a")
    text = await assert_refused(space, path, "UNSAVED_BUFFER", "C\n")
    assert text == ('"a" has unsaved text in neovim 0.11.4; ask the person to save or discard it, then read it again')
    space.opened("a", "C\n", VSCODE)
    text = await assert_refused(space, path, "UNSAVED_BUFFER", "C\n")
    assert f"in {VSCODE.name}, {NEOVIM.name};" in text


async def test_a_new_file_is_not_written_under_a_buffer_that_nobody_has_saved_yet(space: Space) -> None:
    """L16."""
    space.opened("new.py", "mine\n")
    await assert_refused(space, space.root / "new.py", "UNSAVED_BUFFER")


async def test_once_unsaved_text_that_was_read_is_saved_it_may_be_written(space: Space) -> None:
    """L16."""
    path = space.file("a", "A\n")
    space.opened("a", "B\n")
    await space.call("read", path="a")
    path.write_text("B\n")
    await space.call("write", path="a", content="C\n")
    assert path.read_text() == "C\n"


async def test_an_open_buffer_without_unsaved_text_is_no_hindrance(space: Space) -> None:
    path = space.seen("a", "A\n")
    space.opened("a", "A\n")
    await space.call("write", path="a", content="B\n")
    assert path.read_text() == "B\n"


async def test_what_is_no_text_is_neither_overwritten_nor_written(space: Space) -> None:
    """E14: bytes unchanged."""
    await assert_refused(space, space.seen("a.png", case("e14_binary.bin")), "BINARY")
    await assert_refused(space, space.seen("a", "x\n"), "INVALID_ARGS", "a\0b")
    await assert_refused(space, space.seen("b", b"caf\xe9\n"), "INVALID_ARGS", "caf\u00e9\x01\n")


async def test_a_character_that_the_files_encoding_lacks_is_refused_and_named(space: Space) -> None:
    """E03: a refusal with bytes unchanged."""
    text = await assert_refused(space, space.seen("a", b"caf\xe9\n"), "INVALID_ARGS", "café → 日本\n")
    assert '"→" (U+2192) in it, which the encoding cp1252 of "a" lacks' in text


async def test_folders_pipes_and_paths_through_files_are_refused(space: Space) -> None:
    space.file("sub/a")
    os.mkfifo(space.root / "pipe")
    await assert_refused(space, space.root / "sub", "IS_DIRECTORY")
    await assert_refused(space, space.root / "pipe", "IO")
    await assert_refused(space, space.root / "sub/a/b", "NOT_A_DIRECTORY")


async def test_more_than_ten_megabytes_are_refused(space: Space) -> None:
    await assert_refused(space, space.seen("a", "x" * (write.FILE_MAX + 1)), "TOO_LARGE")
    await assert_refused(space, space.root / "b", "TOO_LARGE", "é" * (write.FILE_MAX // 2 + 1))


async def test_text_that_is_typed_while_the_file_is_looked_at_is_not_written_under(space: Space) -> None:
    """L16: asked again at the last moment."""
    path = space.seen("a", "A\n")
    space.opened("a", "A\n")
    allowed = await space.asks("write", path="a", content="B\n")
    call = asyncio.create_task(space.run("write", allowed, path="a", content="B\n"))
    await asyncio.sleep(0)  # It has begun, and what it waits for cannot be told to it before we let go.
    assert not call.done()
    space.opened("a", "typed\n")
    with pytest.raises(ToolError, match="UNSAVED_BUFFER"):
        await call
    assert path.read_text() == "A\n"


class Meddling(Documents):
    """Another program, at the moment between the last look at a file and writing it."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._meddle = meddle
        self._asked = 0

    def unsaved(self, path: Path) -> tuple[Buffer, ...]:
        self._asked += 1
        if self._asked == 2:
            self._meddle()
        return super().unsaved(path)


@pytest.mark.parametrize("exists", [True, False])
async def test_what_changes_at_the_last_moment_is_not_overwritten(space: Space, exists: bool) -> None:
    path = space.seen("a", "old\n") if exists else space.root / "a"
    allowed = await space.asks("write", path="a", content="new\n")
    space.meet(Meddling(lambda: path.write_text("theirs\n")))
    error = await space.refusal("write", allowed, path="a", content="new\n")
    assert error.code == "STALE"
    assert "changed by somebody else just now" in error.text
    assert path.read_text() == "theirs\n"


async def test_a_link_that_is_put_there_at_the_last_moment_is_not_followed(space: Space) -> None:
    """E10: not even then out of the workspace."""
    outside = space.root.parent / "outside"
    outside.write_text("old\n")
    path = space.seen("a", "old\n")

    def meddle() -> None:
        path.unlink()
        path.symlink_to(outside)

    allowed = await space.asks("write", path="a", content="new\n")
    space.meet(Meddling(meddle))
    assert (await space.refusal("write", allowed, path="a", content="new\n")).code == "STALE"
    assert outside.read_text() == "old\n"


# What a person is shown ----------------------------------------------------------------------------------------


async def test_a_person_is_shown_the_path_and_the_whole_new_content(space: Space) -> None:
    content = "é\r\n" * 50_000
    assert await space.asks("write", path="./sub/../a", content=content) == {
        "path": "./sub/../a",
        "realPath": str(space.root / "a"),
        "change": "created",
        "content": content,
    }
    assert not (space.root / "a").exists()


async def test_a_person_is_shown_where_a_link_leads_and_the_whole_diff(space: Space) -> None:
    path = space.seen("a", "1\r\n" * 40_000)
    (space.root / "link").symlink_to("a")
    asked = await space.asks("write", path="link", content="2\n" * 40_000)
    assert asked is not None
    assert (asked["path"], asked["realPath"], asked["change"]) == ("link", str(path), "replaced")
    assert str(asked["diff"]).count("\n-1\r") == str(asked["diff"]).count("\n+2\r") == 40_000
    assert path.read_bytes() == b"1\r\n" * 40_000


async def test_what_changes_between_the_question_and_the_answer_is_not_overwritten(space: Space) -> None:
    path = space.seen("a", "old\n")
    for name in ("a", "fresh"):
        allowed = await space.asks("write", path=name, content="new\n")
        (space.root / name).write_text("by the person, while they were asked\n")
        assert (await space.refusal("write", allowed, path=name, content="new\n")).code == "STALE"
    assert path.read_text() == "by the person, while they were asked\n"


async def test_a_folder_that_becomes_a_link_while_a_person_reads_is_not_followed(space: Space) -> None:
    """What they allowed was another file, also where both are in the workspace."""
    (space.root / ".git/hooks").mkdir(parents=True)
    (space.root / "docs").mkdir()
    new: dict[str, JsonValue] = {"path": "docs/post-checkout", "content": "#!/bin/sh\n"}
    allowed = await space.asks("write", **new)
    (space.root / "docs").rmdir()
    (space.root / "docs").symlink_to(".git/hooks")
    error = await space.refusal("write", allowed, **new)
    assert (error.code, "nobody has allowed" in error.text) == ("STALE", True)
    assert list((space.root / ".git/hooks").iterdir()) == []


async def test_a_file_that_vanishes_while_a_person_reads_its_diff_is_not_made_anew(space: Space) -> None:
    path = space.seen("a", "1\n2\n")
    allowed = await space.asks("write", path="a", content="1\ntwo\n")
    path.unlink()
    assert (await space.refusal("write", allowed, path="a", content="1\ntwo\n")).code == "STALE"
    assert not path.exists()


@pytest.mark.parametrize("gone", [True, False])
async def test_nothing_is_written_that_nobody_was_asked_about(space: Space, gone: bool) -> None:
    """It had that content when it was looked at, so that there was nothing to ask."""
    path = space.seen("a", "same\n")
    assert await space.asks("write", path="a", content="same\n") is None
    if gone:
        path.unlink()
    else:
        space.seen("a", "other\n")
    assert (await space.refusal("write", path="a", content="same\n")).code == "STALE"
    assert space.bytes_of("a") == (None if gone else b"other\n")


async def test_leave_for_one_write_is_none_for_another(space: Space) -> None:
    allowed = await space.asks("write", path="a", content="this\n")
    assert (await space.refusal("write", allowed, path="a", content="that\n")).code == "STALE"
    assert (await space.refusal("write", allowed, path="b", content="this\n")).code == "STALE"
    assert list(space.root.iterdir()) == []


# Several at once -----------------------------------------------------------------------------------------------


async def test_of_several_agents_that_write_one_file_one_does_and_the_others_are_told(space: Space) -> None:
    space.seen("a", "old\n")
    sessions = [Space(space.root) for _ in range(6)]
    for session in sessions:
        session.context.seen.update(space.context.seen)
    writes = [{"path": "a", "content": f"{n}\n"} for n in range(len(sessions))]
    leave = [await session.asks("write", **write) for session, write in zip(sessions, writes, strict=True)]
    calls = (
        session.run("write", allowed, **write) for session, allowed, write in zip(sessions, leave, writes, strict=True)
    )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    (winner,) = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert (space.root / "a").read_text() == f"{winner}\n"
    assert [str(outcome)[:5] for outcome in outcomes if isinstance(outcome, BaseException)] == ["STALE"] * 5


async def test_a_write_runs_alone(space: Space) -> None:
    assert not space.prepared("write", path="a", content="x").parallel
    assert space.prepared("read", path="a").parallel
    assert space.prepared("list_files").parallel


# A call that is cancelled --------------------------------------------------------------------------------------


class Gate(ThreadPoolExecutor):
    """Threads of which the second piece of work, the write itself, is done but has not ended before it may."""

    def __init__(self) -> None:
        super().__init__(1)
        self.written, self.go_on = threading.Event(), threading.Event()
        self._works = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self._works += 1
        if self._works != 2:
            return super().submit(fn, *args, **kwargs)

        def held() -> T:
            result = fn(*args, **kwargs)
            self.written.set()
            self.go_on.wait(10)
            return result

        return super().submit(held)


async def test_a_file_that_was_written_is_told_although_the_call_was_cancelled(space: Space) -> None:
    path = space.seen("a", "old\n")
    allowed, gate = await space.asks("write", path="a", content="new\n"), Gate()
    space.context = replace(space.context, threads=gate)
    task = asyncio.create_task(space.run("write", allowed, path="a", content="new\n"))
    await happened(gate.written)
    task.cancel()
    await happened(space.context.stop)
    assert not task.done()
    gate.go_on.set()
    output = await task
    assert output.text.startswith("replaced a (+1 -1 lines)")
    assert path.read_text() == "new\n"
    assert observed(output.meta) == space.context.seen == {str(path): content_hash(b"new\n")}


@pytest.mark.parametrize("passes", range(0, 60, 3))
async def test_whenever_a_write_is_cancelled_it_is_told_exactly_where_it_was_done(space: Space, passes: int) -> None:
    allowed = await space.asks("write", path="a", content="new\n")
    task = asyncio.create_task(space.run("write", allowed, path="a", content="new\n"))
    for _ in range(passes):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() != (space.root / "a").exists()
