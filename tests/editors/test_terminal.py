"""The plugin as a person has it: in a terminal, by the keys of a keyboard, and by what is on the screen."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editors.servers import local, on_socket, server_of, started_by
from tests.editors.terminals import Terminal, terminal

pytestmark = pytest.mark.timeout(180)

RED = re.compile(r"\x1b\[(\d+;)*31m")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Where a pipe is made by this name, a server starts only when somebody has opened it for writing."""
    return tmp_path / "gate"


@pytest.fixture
def vim(tmp_path: Path, work: Path, serve: tuple[str, ...], gate: Path) -> Iterator[Terminal]:
    """A terminal with a file in it; the agent is not opened yet."""
    command = ("sh", "-c", '[ ! -p "$0" ] || : <"$0"; exec "$@"', str(gate), *serve)
    with terminal(tmp_path / "home", work, started_by(command), ["a.txt"]) as shown:
        shown.shows("three", "a.txt")
        yield shown


def chat(vim: Terminal, text: str) -> None:
    """Open the agent, and send from the prompt without leaving Insert mode."""
    vim.keys(":Agent", "Enter")
    vim.shows("│prompt", " · idle")
    vim.keys("i", text, "C-s")


def leave(vim: Terminal) -> None:
    """Leave Insert mode. A key that comes right after Escape would make another key of it."""
    vim.keys("Escape")
    vim.until(lambda screen: "-- INSERT --" not in screen, "Normal mode")


def transcript(screen: str) -> list[str]:
    """The rows of the transcript's window, without the line above them and the bar below."""
    rows = [row.partition("│")[2] for row in screen.splitlines()]
    return rows[1 : next(n for n, row in enumerate(rows) if row.startswith(" agent "))]


def test_a_chat_is_on_the_screen_and_steered_while_it_streams(vim: Terminal) -> None:
    """A paragraph that is longer than the window is followed as well."""
    chat(vim, "hello there")
    vim.shows(
        "│hello there · script/script · idle",
        "│▌ You",
        "│◇ Snapshot · runtime  +",
        "│▌ Assistant",
        "│> hello there",
        "│─ Turn 1 completed",
    )
    vim.keys("talk at length", "C-s")
    vim.shows("│∴ Reasoning  +1", "│word0 word1 ", "running, turn 2 step 1", "-- INSERT --")
    vim.keys("now say hello", "C-g")
    vim.until(lambda screen: re.search(r"│word[12]\d\d .*\n.*│word", screen) and "running, turn 2 step 1" in screen)
    screen = vim.shows("│▌ Steering", "│now say hello", "│> now say hello", "│─ Turn 2 completed", " · idle")
    assert screen.index("word399") < screen.index("▌ Steering")


def test_a_selection_is_injected_and_read_in_its_fold(vim: Terminal) -> None:
    """Nothing runs for it."""
    vim.keys("jVj")
    vim.shows("-- VISUAL LINE --")
    vim.keys(":AgentInject look at these", "Enter", ":Agent", "Enter")
    vim.shows("│◇ Notice · neovim · selection of a.txt:2-3  +7", " · idle")
    vim.keys("C-w", "k", "gg", "Tab")
    vim.shows("│look at these", "│a.txt:2-3", "│two", "│three")
    vim.keys("Tab")
    vim.until(lambda screen: "│look at these" not in screen)


def test_a_write_is_allowed_by_the_key_that_is_shown(vim: Terminal, work: Path) -> None:
    """The key is there as long as it is asked."""
    chat(vim, "write it")
    vim.shows(
        "│? Allow write to made.txt?", "│[a] allow [d] deny [x] deny-and-stop", "│made", "waiting, turn 1", "needs you"
    )
    assert not (work / "made.txt").exists()
    leave(vim)
    vim.keys("C-w", "k", "a")
    screen = vim.shows("│I was told: created made.txt", "│─ Turn 1 completed", " · idle")
    assert (work / "made.txt").read_text() == "made\n"
    assert re.search(r"│\? Allowed: write to made.txt · by neovim [\d.]+$", screen, re.MULTILINE)
    assert "[a] allow" not in screen
    vim.keys("a")
    vim.shows("E21: Cannot make changes")


def test_what_waits_is_held_by_a_cancel_edited_and_let_go(vim: Terminal) -> None:
    """The edit is sent by `:wq`, as any text is written."""
    chat(vim, "talk for ever")
    vim.shows("│It begins", "running, turn 1")
    vim.keys("the second message", "C-s")
    vim.shows("running, turn 1 step 1 · 1 waiting", "-- INSERT --")
    leave(vim)
    vim.shows("queued at place 1; :AgentQueue shows what waits")
    vim.keys("C-c")
    vim.shows("script/script · idle · 1 waiting · held (cancel)", "│▌ Assistant · interrupted", "│─ Turn 1 stopped\n")
    vim.keys(":AgentQueue", "Enter")
    vim.shows("e edit · dd remove", "queued   (held) the second message", "\n queue\n")
    vim.keys("e")
    vim.shows("\n message")
    vim.keys(":s/second/edited/", "Enter", ":wq", "Enter")
    vim.shows("queued   (held) the edited message")
    vim.until(lambda screen: "\n message" not in screen)
    vim.keys("R")
    screen = vim.shows("│> the edited message", "│─ Turn 2 completed", "nothing waits")
    assert "held" not in screen


def test_a_server_that_is_killed_comes_back(vim: Terminal, gate: Path) -> None:
    """What is said meanwhile is counted above, and sent once there is a server."""
    chat(vim, "talk for ever")
    vim.shows("│It begins", "running, turn 1")
    os.mkfifo(gate)
    before = server_of(vim.pid)
    os.kill(before, signal.SIGKILL)
    vim.shows("the server has ended (status 0, signal 9)")
    vim.keys("said without a server", "C-s")
    vim.shows("signal 9) · 1 unsent")
    gate.open("w").close()
    screen = vim.shows("script/script · idle", "│▌ Assistant · interrupted", "│It begins", "│> said without a server")
    assert screen.count("│said without a server") == 1
    assert server_of(vim.pid) not in (0, before)


def test_no_control_character_reaches_the_screen(vim: Terminal) -> None:
    """Neither one of the model, nor one that a person has typed."""
    chat(vim, "talk badly")
    vim.shows("│red ␛[31m and ⟨U+202E⟩ back", "│─ Turn 1 completed")
    vim.keys("talk for ever", "C-s")
    vim.shows("│It begins")
    vim.keys("mine ", "C-v", "u001b", "[31m ", "C-v", "u202e", " too", "C-s")
    vim.shows("1 waiting")
    leave(vim)
    vim.keys(":AgentQueue", "Enter")
    vim.shows("queued   mine <U+001B>[31m <U+202E> too")
    screen = vim.screen("-e")
    assert not RED.search(screen)
    assert "\u202e" not in screen


def test_two_terminals_show_the_same(tmp_path: Path, work: Path, serve: tuple[str, ...]) -> None:
    """What is typed in one is seen in the other while it runs, and in the end each has the same rows."""
    with on_socket(tmp_path, serve) as path:
        settings = f"{{ socket = {json.dumps(str(path))} }}"
        with (
            terminal(tmp_path / "first", work, settings, ["a.txt"]) as first,
            terminal(tmp_path / "second", work, settings, ["a.txt"]) as second,
        ):
            chat(first, "talk for ever")
            first.shows("│It begins")
            second.keys(":Agent", "Enter")
            second.shows("│talk for ever", "│It begins", "running, turn 1 step 1")
            second.keys("i", "from the second", "C-s")
            first.shows("running, turn 1 step 1 · 1 waiting")
            leave(first)
            first.keys("C-c")
            second.shows("idle · 1 waiting · held (cancel)", "│▌ Assistant · interrupted")
            leave(second)
            second.keys(":AgentQueue", "Enter", "R", "q")
            second.shows("│> from the second", "│─ Turn 2 completed", "│prompt")
            second.keys("i", "and more", "C-s")
            for one in (first, second):
                one.shows("│> and more", "│─ Turn 3 completed", " · idle")
            second.until(lambda screen: transcript(screen) == transcript(first.screen()), "the rows of the first")


@pytest.mark.local
@pytest.mark.timeout(400)
def test_a_local_model_streams_onto_the_screen_and_is_steered(tmp_path: Path, work: Path) -> None:
    """An answer that runs into its limit ends its turn, and what steered it opens the next one."""
    with terminal(tmp_path / "home", work, local(tmp_path), ["a.txt"], seconds=120) as vim:
        vim.shows("three", "a.txt")
        chat(vim, "Tell me what a text editor is.")
        vim.until(lambda screen: re.search(r"│▌ Assistant\n.*│\S", screen) and "running, turn 1" in screen, "an answer")
        vim.keys("Now say hello.", "C-g")
        vim.until(lambda screen: re.search(r"│Now say hello\.\n(.*\n)*.*│▌ Assistant\n.*│\S", screen), "another")
        leave(vim)
        vim.keys("C-c")
        vim.shows("local/smollm2 · idle")
