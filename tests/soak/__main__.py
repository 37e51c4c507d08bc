"""Kill a server again and again, and look whether it kept what it promised: see `scripts/soak`."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.soak.model import SCRIPT, http_model
from tests.soak.soak import Failed, Soak

FAULTS_MAX = 10
FAULT_MAX = 4000
"""How many faults are printed, and how many characters of each."""


async def soak(kills: int, seed: int, folder: Path) -> int:
    """Run it; the status of the process."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    began = time.monotonic()
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    async with http_model(seed) as model:
        run = Soak(kills, seed, folder, model, script, say)
        try:
            await run.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it has to be told with the seed and the folder
            told = error.faults if isinstance(error, Failed) else ("".join(traceback.format_exception(error)),)
            (folder / "faults.txt").write_text("\n\n".join(told))
            say(f"soak: failed after {run.report.kills} kills, {len(told)} faults:")
            for fault in told[:FAULTS_MAX]:
                say(f"  - {fault[:FAULT_MAX]}")
            say(f'soak: seed {seed}; the state, and all faults in full, are kept in "{folder}"')
            return 1
    for line in run.report.lines(time.monotonic() - began):
        say(line)
    return 0


def say(line: str) -> None:
    """Print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--kill", type=_count, default=50, metavar="N", help="how often to kill (default 50)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the choices of an earlier run")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="agentls-soak-"))
    say(f"soak: {given.kill} kills, seed {seed}")
    try:
        status = asyncio.run(soak(given.kill, seed, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        status = 130
    if status != 1:
        shutil.rmtree(folder)
    return status


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of kills; give a whole number from 1')
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
