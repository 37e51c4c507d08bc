"""`runtime` and `time`: what they say, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agentls.context.producer import UNCHANGED
from agentls.context.runtime import Runtime
from agentls.context.time import Time
from agentls.workspace.roots import Roots
from tests.context.support import NOW, moment, retaining, text

BERLIN = datetime(2026, 3, 1, 14, 5, 59, tzinfo=ZoneInfo("Europe/Berlin"))


# runtime -------------------------------------------------------------------------------------------------------


async def test_the_platform_the_folders_and_the_editors_are_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    roots = Roots([tmp_path, tmp_path / "other"])
    now = replace(
        moment(tmp_path),
        roots=roots,
        attached=("neovim 0.11.4", "Visual\nStudio Code", "neovim 0.11.4"),
    )
    assert text(await Runtime("Linux 6.1 (x86_64)").read(now)) == {
        "platform": "Linux 6.1 (x86_64)",
        "workspace": f"{roots.folders[0]}\n{roots.folders[0]}/other",
        "editors": "Visual Studio Code\nneovim 0.11.4 (2 times)",
    }


async def test_the_order_in_which_editors_attach_is_no_news(tmp_path: Path) -> None:
    runtime = Runtime()
    one, other = (replace(moment(tmp_path), attached=names) for names in (("a", "b"), ("b", "a")))
    assert await runtime.read(one) == await runtime.read(other)
    assert set(text(await runtime.read(moment(tmp_path)))) == {"platform", "workspace"}


# time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "time", "zone"),
    [
        (BERLIN, "14:05 +01:00", "Europe/Berlin"),
        (NOW, "14:05 +01:00", "CET"),
        (NOW.replace(tzinfo=ZoneInfo("Asia/Kolkata")), "14:05 +05:30", "Asia/Kolkata"),
        (NOW.replace(tzinfo=UTC), "14:05 +00:00", "UTC"),
    ],
)
async def test_date_time_and_zone_are_told(tmp_path: Path, now: datetime, time: str, zone: str) -> None:
    told = text(await Time().read(replace(moment(tmp_path), now=now)))
    assert told == {"date": "2026-03-01 (Sunday)", "time": time, "zone": zone}


async def test_the_time_is_told_only_where_a_turn_begins(tmp_path: Path) -> None:
    now = moment(tmp_path, opens_turn=False)
    assert await Time().read(now) is UNCHANGED
    told = retaining(now, await Time().read(moment(tmp_path)))
    assert await Time().read(replace(told, now=NOW + timedelta(days=1))) is UNCHANGED


@pytest.mark.parametrize(
    ("later", "news"),
    [
        (BERLIN, False),
        (BERLIN + timedelta(minutes=9, seconds=59), False),
        (BERLIN + timedelta(minutes=10), True),
        (BERLIN - timedelta(minutes=10), True),
        (BERLIN + timedelta(days=1), True),
        (BERLIN.astimezone(ZoneInfo("Europe/Paris")), True),
    ],
)
async def test_the_time_is_told_again_after_ten_minutes_or_with_another_date_or_zone(
    tmp_path: Path, later: datetime, news: bool
) -> None:
    first = replace(moment(tmp_path), now=BERLIN)
    told = retaining(first, await Time().read(first), time=int(BERLIN.timestamp() * 1000))
    assert (await Time().read(replace(told, now=later)) is not UNCHANGED) == news


async def test_midnight_is_another_date(tmp_path: Path) -> None:
    evening = replace(moment(tmp_path), now=BERLIN.replace(hour=23, minute=59))
    told = retaining(evening, await Time().read(evening), time=int(evening.now.timestamp() * 1000))
    assert text(await Time().read(replace(told, now=evening.now + timedelta(minutes=1))))["date"].startswith(
        "2026-03-02"
    )
