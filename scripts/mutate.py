"""Break one guard after the other in a copy of the server, and run the tests that have to notice.

The copy comes first on the path of a test run of its own, so that nothing here is touched. A guard that no test
misses is told as survived, and the status is 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_name("mutations.toml")
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Guard:
    """What a guard promises, where it stands, what takes its place, and the tests that notice."""

    promise: str
    file: str
    whole: str
    broken: str
    tests: tuple[str, ...]

    def break_in(self, package: Path) -> None:
        """Break it in a copy of the package; a ValueError where it does not stand there once."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.whole) != 1:
            raise ValueError(f'"{self.promise}" stands {text.count(self.whole)} times in {self.file}: {self.whole!r}')
        path.write_text(text.replace(self.whole, self.broken))


def guards() -> tuple[Guard, ...]:
    """All that the table has."""
    rows = tomllib.loads(TABLE.read_text())["guard"]
    return tuple(
        Guard(row["promise"], row["file"], row["from"], row["to"].lstrip("\n"), tuple(row["tests"])) for row in rows
    )


def noticed(guard: Guard) -> str | None:
    """The test that fails without the guard, or None where all of them pass."""
    with tempfile.TemporaryDirectory() as folder:
        server = Path(folder, "server")
        shutil.copytree(ROOT / "server", server, ignore=shutil.ignore_patterns("__pycache__"))
        guard.break_in(server / "agentls")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *guard.tests]
        environment = {**os.environ, "PYTHONPATH": str(server), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    found = _FAILED.search(done.stdout)
    if done.returncode != 1 or found is None:
        raise RuntimeError(f"pytest ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1]


def main(arguments: Sequence[str]) -> int:
    """Break all guards, or those whose promise holds the argument."""
    wanted = [guard for guard in guards() if not arguments or arguments[0] in guard.promise]
    survived = 0
    for guard in wanted:
        test = noticed(guard)
        survived += test is None
        sys.stdout.write(f"{'noticed ' if test else 'SURVIVED'}  {guard.promise}: {test or ', '.join(guard.tests)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(wanted) - survived} of {len(wanted)} guards were missed when they were gone\n")
    return 1 if survived or not wanted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
