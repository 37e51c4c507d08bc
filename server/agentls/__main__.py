"""`agentls` and `python -m agentls`."""

from __future__ import annotations

import sys

from agentls.cli import run


def main() -> int:
    """Run the command that the arguments name; the exit status."""
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
