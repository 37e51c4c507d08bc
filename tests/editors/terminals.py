"""A real terminal with Neovim in it, inside a tmux server of its own: keys go in, and the screen is looked at.

tmux is spoken to in its control mode, which tells when something is drawn: whoever waits looks again then. It goes
when its client does, so that nothing is left behind by a test that is killed.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.editors.neovims import command
from tests.editors.programs import tmux
from tests.processes import wait_gone

SECONDS = 30
"""How long a test waits, unless it says otherwise."""

_LOOK_AGAIN = 0.2
"""A condition may rest on more than what is drawn here."""

_SETTINGS = """
set -s exit-unattached on
"""


class Terminal:
    """What a person has of it: keys, and the text of its cells."""

    def __init__(self, control: subprocess.Popen[bytes], seconds: int) -> None:
        assert control.stdin is not None
        assert control.stdout is not None
        self._in, self._out = control.stdin.fileno(), control.stdout.fileno()
        self._unread = b""
        self._seconds = seconds
        self._answer()  # to what has started it
        self.pid = int(self._ask("display-message", "-p", "#{pane_pid}"))
        """The process in the terminal."""

    def keys(self, *keys: str) -> None:
        """Press each: a key that tmux has a name for, such as `Escape`, `Tab` or `C-s`, or else the keys of a text."""
        self._ask("send-keys", *keys)

    def screen(self, *options: str) -> str:
        """What is on the screen, a line a row; with `-e` its colours too, as escapes."""
        return self._ask("capture-pane", "-p", *options)

    def until(self, condition: Callable[[str], object], what: object = "what never came") -> str:
        """Wait until the screen fulfils a condition, and give that screen."""
        deadline = time.monotonic() + self._seconds
        while not condition(screen := self.screen()):
            assert time.monotonic() < deadline, f"waited {self._seconds} s for {what}; the screen:\n{screen}"
            with suppress(TimeoutError):
                while not self._line(time.monotonic() + _LOOK_AGAIN).startswith(b"%output "):
                    pass
        return screen

    def shows(self, *texts: str) -> str:
        """Wait until all of these are on the screen, each within one row, and give that screen."""
        return self.until(lambda screen: all(text in screen for text in texts), texts)

    def _ask(self, *words: str) -> str:
        os.write(self._in, shlex.join(words).encode() + b"\n")
        return self._answer()

    def _answer(self) -> str:
        """The lines between two marks with one number; what is told before them is passed over."""
        deadline = time.monotonic() + self._seconds
        while not (begin := self._line(deadline)).startswith(b"%begin "):
            pass
        done, failed = (begin.replace(b"%begin", mark) for mark in (b"%end", b"%error"))
        lines = []
        while (line := self._line(deadline)) not in (done, failed):
            lines.append(line)
        answer = b"\n".join(lines).decode()
        assert line == done, f"tmux: {answer}"
        return answer

    def _line(self, deadline: float) -> bytes:
        """The next line that tmux says, until the deadline."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._out], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("tmux says nothing")
            said = os.read(self._out, 1 << 16)
            assert said, "the terminal has closed"
            self._unread += said
        line, _, self._unread = self._unread.partition(b"\n")
        return line


@contextmanager
def terminal(
    home: Path,
    folder: Path,
    settings: str,
    arguments: Sequence[str] = (),
    size: tuple[int, int] = (120, 45),
    *,
    seconds: int = SECONDS,
) -> Iterator[Terminal]:
    """A terminal of so many columns and rows; its last screen is left in `home`, as text and with its colours."""
    program = command(home, folder, settings, *arguments)
    configuration = home / "tmux.conf"
    configuration.write_text(_SETTINGS, encoding="utf-8")
    columns, rows = map(str, size)
    # A path of a socket has to be short, and that of a test's folder need not be.
    with tempfile.TemporaryDirectory(prefix="agentls-") as place:
        server = [str(tmux()), "-S", f"{place}/tmux", "-u", "-f", str(configuration), "-C"]
        session = ["new-session", "-x", columns, "-y", rows, *program]
        control = subprocess.Popen([*server, *session], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with control:
            try:
                shown = Terminal(control, seconds)
                try:
                    yield shown
                finally:
                    (home / "screen.txt").write_text(shown.screen(), encoding="utf-8")
                    (home / "screen.ansi").write_text(shown.screen("-e"), encoding="utf-8")
                # Neovim leaves at once when it is told to, and after a second when its terminal has gone.
                os.kill(shown.pid, signal.SIGTERM)
                wait_gone(shown.pid)
            finally:
                control.kill()
