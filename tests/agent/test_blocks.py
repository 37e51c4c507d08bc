"""A part of a block's body, whatever of it is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.agent.agent import UnknownBlock
from agentls.agent.host import RECENT_TURNS
from agentls.core.bodies import PREVIEW_BYTES
from agentls.core.ids import BlockId
from tests.agent.hands import asked, call, hands, over
from tests.harness import content, mid, notice, rig, rows, until

LONG = "línea 0123456789\n" * 9000
I1 = BlockId("c:i1")


async def test_what_is_left_out_of_a_long_body_can_be_read(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await on.agent()
        await agent.inject(content(LONG), id=mid("i1"), source=notice())
        (row,) = rows(agent.view)
        assert row.more
        assert len(row.body.encode()) <= PREVIEW_BYTES
        whole = await agent.block(I1)
        assert LONG in whole.text
        assert (whole.start, whole.end, whole.size) == (0, len(whole.text.encode()), len(whole.text.encode()))
        data = whole.text.encode()
        read, at = "", 0
        while at < whole.size:
            part = await agent.block(I1, at, at + 50_001)
            assert (part.start, part.size, part.text) == (at, whole.size, data[at : part.end].decode())
            read, at = read + part.text, part.end
        assert read == whole.text, "parts are cut between characters and fit together"


async def test_a_part_beyond_the_end_is_empty(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        await over(on, agent, 1, "né")
        block = BlockId("a1.1.1/0")
        for start, end, text, place in ((9, 12, "", 3), (2, 3, "é", 1), (1, 2, "", 1), (2, 1, "", 1), (0, 1, "n", 0)):
            part = await agent.block(block, start, end)
            assert (part.text, part.start, part.size) == (text, place, 3)


async def test_a_block_that_streams_is_read_as_it_is_drawn(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        on.model.text("half")
        await until(lambda: len(rows(agent.view)) == 2)
        assert (await agent.block(BlockId("a1.1.1/0"), 2)).text == "lf"
        call(on.model, ("look", "a"))
        await over(on, agent, 2)
        assert "did a" in (await agent.block(BlockId("t1.1.1"))).text


@pytest.mark.parametrize("name", ["t9.9.9", "", "u:nobody"])
async def test_a_block_that_is_not_there_says_so(tmp_path: Path, name: str) -> None:
    async with hands(tmp_path) as on:
        agent = await on.agent()
        with pytest.raises(UnknownBlock, match=f'"{name}"'):
            await agent.block(BlockId(name))


async def test_a_block_that_only_the_log_holds_is_read_from_there(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await on.agent()
        await agent.inject(content(LONG), id=mid("i1"), source=notice())
        for n in range(RECENT_TURNS):
            await agent.inject(content("later"), id=mid(f"later {n}"), source=notice())
        name = agent.id
    async with rig(tmp_path) as again:
        loaded = await again.host.get(name)
        assert loaded.view.drawn(I1) is None
        assert LONG in (await loaded.block(I1)).text
        with pytest.raises(UnknownBlock):
            await loaded.block(BlockId("c:i2"))
