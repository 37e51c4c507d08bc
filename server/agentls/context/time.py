"""`time`: what day and what time it is where the person is."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from agentls.context.producer import UNCHANGED, Moment, Producer, Reading
from agentls.core.sources import Section

STALE_MS = 600_000
"""After how many milliseconds the time is told again."""

# In English whatever the locale is.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Time(Producer):
    """Speaks only where a turn begins: when the date or the zone is another one, or after ten minutes."""

    name = "time"

    async def read(self, moment: Moment) -> Reading:
        """Date, time to the minute and zone."""
        if not moment.opens_turn:
            return UNCHANGED
        now = moment.now
        sections = (
            Section("date", f"{now:%Y-%m-%d} ({_DAYS[now.weekday()]})"),
            Section("time", f"{now:%H:%M} {_offset(now)}"),
            Section("zone", _zone(now)),
        )
        retained = moment.retained
        if retained is not None and retained.sections:
            date, _, zone = sections
            # Both ways, since a clock may be set back.
            age = abs(now.timestamp() * 1000 - retained.time)
            if date in retained.sections and zone in retained.sections and age < STALE_MS:
                return UNCHANGED
        return sections


def _offset(now: datetime) -> str:
    text = f"{now:%z}"
    return f"{text[:3]}:{text[3:5]}"


def _zone(now: datetime) -> str:
    """Its IANA name, or what the system calls it; `+02:00` where it has no name."""
    if isinstance(now.tzinfo, ZoneInfo) and now.tzinfo.key is not None:
        return now.tzinfo.key
    return now.tzname() or _offset(now)
