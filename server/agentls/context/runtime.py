"""`runtime`: the system that tools run on, the folders of the workspace, and who is attached."""

from __future__ import annotations

import platform
from collections import Counter

from agentls.context.producer import Moment, Producer, Reading
from agentls.core.sources import Section
from agentls.core.visible import one_line


class Runtime(Producer):
    """Changes when an editor comes or goes."""

    name = "runtime"

    def __init__(self, system: str | None = None) -> None:
        """`system` is what to call the platform, else what the platform calls itself."""
        self._system = f"{platform.system()} {platform.release()} ({platform.machine()})" if system is None else system

    async def read(self, moment: Moment) -> Reading:
        """All of it."""
        # Sorted, since the order in which they attached says nothing.
        editors = sorted(Counter(one_line(name) for name in moment.attached).items())
        return (
            Section("platform", one_line(self._system)),
            Section("workspace", "\n".join(_path(str(folder)) for folder in moment.roots.folders)),
            Section("editors", "\n".join(name if count == 1 else f"{name} ({count} times)" for name, count in editors)),
        )


def _path(path: str) -> str:
    # The whole of it, since a tool must find it by this.
    return one_line(path, len(path) * 10)
