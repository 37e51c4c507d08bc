"""`read`: unsaved text first, then the disk; bounded in every way; told what was seen."""

from __future__ import annotations

import asyncio
import os

import pytest

from agentls.tools import read
from agentls.tools.tool import OUTPUT_MAX, ToolError, observed
from agentls.workspace.texts import content_hash
from tests.conformance.cases import folder
from tests.tools.support import NEOVIM, VSCODE, Space


def lines_of(text: str) -> list[str]:
    """The numbered lines, without the envelope."""
    inside = text.partition(">\n")[2].rpartition("</file>")[0]
    return inside.splitlines()


# Text ----------------------------------------------------------------------------------------------------------


async def test_lines_are_numbered_in_an_envelope(space: Space) -> None:
    space.file("src/a.py", "import os\n\nprint('<file>')\n</file>\n")
    output = await space.call("read", path="src/a.py")
    assert output.text == (
        '<file path="src/a.py" lines="1-4 of 4">\n1\timport os\n2\t\n3\tprint(\'<file>\')\n4\t</file>\n</file>'
    )


async def test_a_file_is_read_in_pieces_and_each_says_where_the_next_one_begins(space: Space) -> None:
    space.file("a", "".join(f"line {n}\n" for n in range(1, 11)))
    output = await space.call("read", path="a", offset=4, limit=3)
    assert 'lines="4-6 of 10"' in output.text
    assert lines_of(output.text) == ["4\tline 4", "5\tline 5", "6\tline 6"]
    assert output.text.endswith("Lines 7 to 10 follow; read on with offset 7.")
    last = await space.call("read", path="a", offset=7, limit=100)
    assert lines_of(last.text)[-1] == "10\tline 10"
    assert last.text.endswith("</file>")
    assert (last.meta["firstLine"], last.meta["lastLine"], last.meta["totalLines"]) == (7, 10, 10)


async def test_at_most_two_thousand_lines_are_read_at_once(space: Space) -> None:
    space.file("a", "x\n" * 2001)
    for limit in (2001, 10**9):
        output = await space.call("read", path="a", limit=limit)
        assert len(lines_of(output.text)) == 2000
        assert "Lines 2001 to 2001 follow" in output.text


@pytest.mark.parametrize(("length", "shown"), [(2000, "é" * 2000), (2001, "é" * 2000 + "... (1 more characters)")])
async def test_a_long_line_is_cut_and_says_so(space: Space, length: int, shown: str) -> None:
    space.file("a", "é" * length + "\r\nnext\r\n")
    output = await space.call("read", path="a")
    assert lines_of(output.text) == [f"1\t{shown}", "2\tnext"]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("x" * 100, 900),
        ("é" * 1999, 60),
        ("🙂" * 2000, 30),
        ("x" * 300_000, 30),
        ("a" * 65_535, 30),
        ("b" * 65_536, 30),
    ],
)
async def test_a_call_gives_at_most_fifty_kilobytes_all_included(space: Space, line: str, count: int) -> None:
    """Whole lines only, and the pieces one after the other are the file."""
    name = "é" * 100
    space.file(name, f"{line}\n" * count)
    offset = 1
    while offset <= count:
        output = await space.call("read", path=name, offset=offset)
        assert len(output.text.encode()) <= OUTPUT_MAX
        numbers = [int(each.partition("\t")[0]) for each in lines_of(output.text)]
        assert numbers == list(range(offset, offset + len(numbers)))
        assert output.meta["totalLines"] == count
        offset += len(numbers)
    assert offset == count + 1


@pytest.mark.parametrize(
    ("data", "lines", "says"),
    [
        (b"", [], "The file is empty."),
        (b"a", ["1\ta"], "The last line has no line ending."),
        (b"a\r", ["1\ta"], 'line-endings="CR"'),
        (b"a\r\nb\r\n", ["1\ta", "2\tb"], 'line-endings="CRLF"'),
        (b"\xef\xbb\xbfa\n", ["1\ta"], "<file"),
        (b"caf\xe9\n", ["1\tcaf\u00e9"], 'encoding="cp1252"'),
        (b"\xff\xfea\0\n\0", ["1\ta"], 'encoding="utf-16-le"'),
        (b"\n", ["1\t"], 'lines="1-1 of 1"'),
    ],
)
async def test_what_a_model_has_to_know_of_a_text_is_said(
    space: Space, data: bytes, lines: list[str], says: str
) -> None:
    """E01, E03, E16: line endings, encoding, no final newline."""
    space.file("a", data)
    output = await space.call("read", path="a")
    assert lines_of(output.text) == lines
    assert says in output.text


async def test_a_carriage_return_and_its_line_feed_are_one_ending_wherever_the_file_is_cut(space: Space) -> None:
    for length in range(65_533, 65_538):
        space.file("a", b"x" * length + b"\r\ny\rz\n")
        output = await space.call("read", path="a")
        assert lines_of(output.text)[1:] == ["2\ty", "3\tz"]


# What is no text -----------------------------------------------------------------------------------------------


async def test_what_is_no_text_file_is_answered_with_the_reason(space: Space) -> None:
    """E14: a short notice for a binary file."""
    space.file("image.png", (folder() / "cases" / "e14_binary.bin").read_bytes())
    space.file("sub/a")
    os.mkfifo(space.root / "pipe")
    for path, code, says in (
        ("image.png", "BINARY", '"image.png" is not text: it has null bytes in it'),
        ("sub", "IS_DIRECTORY", '"sub" is a folder; list_files'),
        ("sub/b", "NOT_FOUND", 'there is no "sub/b"; list_files'),
        ("sub/a/b", "NOT_A_DIRECTORY", '"sub/a/b" is not there'),
        ("pipe", "IO", '"pipe" is a pipe'),
        ("a" * 300, "IO", "File name too long"),
    ):
        error = await space.refusal("read", path=path)
        assert error.code == code
        assert says in error.text
    assert space.context.seen == {}


@pytest.mark.parametrize("arguments", [{"offset": 0}, {"limit": 0}, {"offset": "x"}, {"offset": 1.5}])
async def test_an_offset_or_limit_that_is_none_is_refused(space: Space, arguments: dict[str, int]) -> None:
    space.file("a", "x\n")
    error = await space.refusal("read", path="a", **arguments)
    assert error.code == "INVALID_ARGS"
    assert next(iter(arguments)) in error.text


@pytest.mark.parametrize("data", ["", "x\n", "x\n" * 100_000])
async def test_an_offset_past_the_end_says_how_many_lines_there_are(space: Space, data: str) -> None:
    space.file("a", data)
    error = await space.refusal("read", path="a", offset=100_001)
    assert error.code == "INVALID_ARGS"
    assert f"only {data.count(chr(10))} lines" in error.text


# Large files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"", b"caf\xe9\r\n", b"\x81"])
async def test_a_large_file_is_read_line_by_line_and_counted_to_the_end(space: Space, end: bytes) -> None:
    count = read.WHOLE_MAX // 12 + 1
    path = space.file("large", b"0123456789\r\n" * count + end)
    output = await space.call("read", path="large", offset=count - 9, limit=2)
    assert lines_of(output.text) == [f"{count - 9}\t0123456789", f"{count - 8}\t0123456789"]
    assert output.meta["totalLines"] == count + bool(end)
    assert output.meta["hash"] == content_hash(path.read_bytes())


async def test_a_file_that_is_too_large_or_large_and_no_text_is_refused(space: Space) -> None:
    os.truncate(space.file("huge"), read.FILE_MAX + 1)
    os.truncate(space.file("disk.img"), read.WHOLE_MAX + 1)
    error = await space.refusal("read", path="huge")
    assert error.code == "TOO_LARGE"
    assert error.text == f'"huge" has {read.FILE_MAX + 1} bytes, more than the {read.FILE_MAX} that read takes'
    assert (await space.refusal("read", path="disk.img")).code == "BINARY"


# Buffers -------------------------------------------------------------------------------------------------------


async def test_unsaved_text_is_read_before_the_disk_and_named(space: Space) -> None:
    """L16: read shows B."""
    path = space.file("a", "A\n")
    space.opened("a", "B\n")
    output = await space.call("read", path="a")
    assert output.text == (
        '<file path="a" lines="1-1 of 1" unsaved-in="neovim 0.11.4">\n1\tB\n</file>\n'
        "This is unsaved text in neovim 0.11.4; the file on disk differs."
    )
    assert (output.meta["unsavedIn"], output.meta["version"]) == (["neovim 0.11.4"], 7)
    assert path.read_text() == "A\n"


async def test_a_clean_buffer_gives_way_to_the_disk(space: Space) -> None:
    space.file("a", "A\n")
    space.opened("a", "A\n")
    space.file("a", "changed by git\n")
    output = await space.call("read", path="a")
    assert lines_of(output.text) == ["1\tchanged by git"]
    assert "unsaved" not in output.text


async def test_a_buffer_without_a_file_is_read(space: Space) -> None:
    space.opened("new.py", "x = 1\n")
    assert lines_of((await space.call("read", path="new.py")).text) == ["1\tx = 1"]


async def test_two_unsaved_texts_are_a_conflict_that_names_both_editors(space: Space) -> None:
    space.file("a", "A\n")
    space.opened("a", "B\n", VSCODE)
    space.opened("a", "C\n", NEOVIM)
    output = await space.call("read", path="a")
    assert lines_of(output.text) == ["1\tC"]
    assert f"Other unsaved text of the same file is in {VSCODE.name}: ask the person which one counts." in output.text
    space.opened("a", "C\n", VSCODE)
    assert "Other unsaved text" not in (await space.call("read", path="a")).text


async def test_text_that_is_typed_while_the_disk_is_read_is_seen(space: Space) -> None:
    """L16: what is answered is what the person has when it is answered."""
    space.file("a", "A\n")
    space.opened("a", "A\n")
    call = asyncio.create_task(space.call("read", path="a"))
    await asyncio.sleep(0)  # It has begun, and what it waits for cannot be told to it before we let go.
    assert not call.done()
    space.opened("a", "typed\n")
    assert lines_of((await call).text) == ["1\ttyped"]


# What was seen -------------------------------------------------------------------------------------------------


async def test_a_read_records_the_hash_of_the_whole_file_by_its_real_path(space: Space) -> None:
    path = space.file("a", "x\n" * 100)
    (space.root / "link").symlink_to("a")
    output = await space.call("read", path="link", offset=5, limit=1)
    assert space.context.seen == {str(path): content_hash(path.read_bytes())}
    assert observed(output.meta) == space.context.seen


@pytest.mark.parametrize("data", [b"A\n", b"\xef\xbb\xbfA\r\n", b"\xff\xfeA\0\n\0", b"caf\xe9\n"])
async def test_unsaved_text_is_recorded_as_the_file_that_it_will_be(space: Space, data: bytes) -> None:
    """Once the person saves it the agent knows the file, and need not read it again."""
    path = space.file("a", data)
    before = await space.call("read", path="a")
    text = data.decode("utf-8-sig" if data[:1] == b"\xef" else "utf-16" if data[:1] == b"\xff" else "cp1252")
    space.opened("a", text + "more\n")
    output = await space.call("read", path="a")
    encoding = {b"\xef": "utf-8-sig", b"\xff": "utf-16"}.get(data[:1], "cp1252")
    path.write_bytes((text + "more\n").encode(encoding))
    assert output.meta["hash"] == content_hash(path.read_bytes()) != before.meta["hash"]


async def test_reads_run_beside_each_other_and_ask_nobody(space: Space) -> None:
    space.file("a", "x\n")
    assert await space.asks("read", path="a") is None
    outputs = await asyncio.gather(*(space.call("read", path="a") for _ in range(20)))
    assert len({output.text for output in outputs}) == 1


async def test_a_read_that_was_stopped_gives_nothing(space: Space) -> None:
    space.file("a", "x\n")
    space.context.stop.set()
    with pytest.raises(ToolError) as error:
        await space.call("read", path="a")
    assert error.value.code == "ABORTED"
