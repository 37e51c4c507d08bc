"""Starts the fake child as the server would, says its pid, and stays until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentls.models.local import LocalServer


async def main() -> None:
    server = LocalServer((sys.executable, str(Path(__file__).with_name("fake_child.py")), "serve"))
    await server.endpoint()
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
