"""The plugin in a real Neovim, against the real server; only the model is scripted."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.editors.neovims import PLUGIN, Neovim, neovim
from tests.editors.servers import WORDS, on_socket, server_of, started_by

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def vim(tmp_path: Path, work: Path, serve: tuple[str, ...]) -> Iterator[Neovim]:
    """A Neovim with a server of its own, and the agent opened."""
    with neovim(tmp_path / "home", work, started_by(serve), ["a.txt"]) as editor:
        editor.command("Agent")
        editor.state("s.status == 'idle'")
        yield editor


def send(vim: Neovim, text: str) -> None:
    """Write into the prompt and send it by its key."""
    vim.keys("<Esc>")
    vim.command("Agent")
    vim.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { ... })", text)
    vim.keys("<CR>")


def test_a_prompt_is_answered_in_the_transcript(vim: Neovim) -> None:
    """The prompt empties, the answer comes, and the line above says that all is at rest."""
    send(vim, "hello there")
    vim.shows("You said:\n\n> hello there")
    vim.state("s.lastTurn and s.lastTurn.number == 1 and s.status == 'idle'")
    assert vim.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)") == [""]
    vim.until("vim.wo[vim.fn.bufwinid('/transcript$')].winbar:find('script/script · idle', 1, true)")


def test_a_running_turn_is_steered(vim: Neovim) -> None:
    """What steers stands in the transcript as steering, and is answered in the same turn."""
    send(vim, "talk at length")
    vim.shows("word3")
    vim.command("AgentSteer stop and say hello")
    vim.shows("▌ Steering\nstop and say hello")
    vim.state("s.lastTurn and s.lastTurn.number == 1 and s.status == 'idle'")
    text = "\n".join(vim.transcript())
    assert WORDS in text
    assert text.index("word399") < text.index("▌ Steering")


def test_reasoning_is_a_fold_and_the_answer_is_not(vim: Neovim) -> None:
    """A fold shows what it is and how much is in it."""
    send(vim, "talk at length")
    vim.state("s.lastTurn and s.status == 'idle'")
    vim.shows("word399")
    lines = vim.transcript()
    row = next(n for n, line in enumerate(lines) if line.startswith("∴"))
    answer = next(n for n, line in enumerate(lines) if line.startswith("word0"))
    folds = (
        "return vim.api.nvim_win_call(vim.fn.bufwinid('/transcript$'), function()"
        " return { vim.fn.foldclosed(%d), vim.fn.foldclosed(%d), vim.fn.foldtextresult(%d) } end)"
    )
    first, open_, text = vim.lua(folds % (row + 1, answer + 1, row + 1))
    assert (first, open_) == (row + 1, -1)
    assert text.startswith("∴ Reasoning · Let me think.")


def test_folds_are_there_while_somebody_types_and_stay_as_the_reader_left_them(vim: Neovim) -> None:
    """Neovim works out no folds by itself in Insert mode. One that a reader has opened stays open while it grows."""
    window = "vim.fn.bufwinid('/transcript$')"
    closed = (
        f"(function() return vim.api.nvim_win_call({window}, function() local found = {{}}"
        " for n, line in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, true)) do"
        " if line:find('^◇') or line:find('^∴') then table.insert(found, vim.fn.foldclosed(n) == n) end end"
        " return found end) end)()"
    )
    vim.keys("italk at length<C-s>")
    vim.until("vim.fn.mode() == 'i'")
    vim.until(f"vim.deep_equal({closed}, {{ true, true, true, true }})")
    vim.lua(f"vim.api.nvim_win_call({window}, function() vim.fn.search('^∴'); vim.cmd('foldopen') end)")
    vim.state("s.lastTurn and s.status == 'idle'")
    assert vim.lua("return vim.fn.mode()") == "i"
    assert vim.lua(f"return {closed}") == [True, True, True, False]
    vim.keys("<Esc>")
    vim.command("AgentClose")
    vim.command("Agent")
    assert vim.lua(f"return {closed}") == [True, True, True, True], "another window folds all of it"


def test_a_selection_is_injected(vim: Neovim) -> None:
    """It starts nothing, is a row of its own that names the place, and the next answer comes after it."""
    vim.keys("<Esc>")
    vim.command("wincmd t")
    vim.command("2,3AgentInject look at this")
    vim.shows("selection of a.txt:2-3")
    vim.shows("two\nthree")
    vim.state("s.status == 'idle'")


def test_an_approval_is_answered_by_a_key(vim: Neovim, work: Path) -> None:
    """The keys are there while something is asked, and only then."""
    send(vim, "write it")
    vim.state("#s.requests == 1")
    assert not (work / "made.txt").exists()
    vim.lua("vim.api.nvim_set_current_win(vim.fn.bufwinid('/transcript$'))")
    vim.until("vim.fn.maparg('a', 'n'):find('AgentAnswer allow', 1, true)")
    vim.keys("a")
    vim.state("s.lastTurn and s.status == 'idle'")
    assert (work / "made.txt").read_text() == "made\n"
    vim.shows("I was told: ")
    vim.until("vim.fn.maparg('a', 'n') == ''")


def test_a_denied_call_is_told_with_the_note(vim: Neovim, work: Path) -> None:
    """`:AgentAnswer deny NOTE`."""
    send(vim, "write it")
    vim.state("#s.requests == 1")
    vim.command("AgentAnswer deny not today")
    vim.shows("not today")
    vim.state("s.lastTurn and s.status == 'idle'")
    assert not (work / "made.txt").exists()


def test_a_cancel_keeps_the_queue_which_is_edited_and_resumed(vim: Neovim) -> None:
    """What waited is held, is edited in a buffer of its own, and runs when it is let go."""
    send(vim, "talk for ever")
    vim.shows("It begins")
    vim.command("AgentSend the second message")
    vim.state("#s.inbox == 1")
    vim.command("AgentCancel")
    vim.state("s.hold and s.hold.cause == 'cancel' and s.status == 'idle'")
    bar = vim.lua("return vim.wo[vim.fn.bufwinid('/transcript$')].winbar")
    assert bar.endswith("script/script · idle · 1 waiting · held (cancel)")
    vim.command("AgentQueue")
    vim.keys("e")
    vim.until("vim.bo.buftype == 'acwrite'")
    vim.command("%s/second/edited/")
    vim.command("wq")
    vim.until("vim.bo.filetype == 'agentls-queue'")
    vim.until("vim.api.nvim_get_current_line():find('the edited message', 1, true)")
    vim.keys("R")
    vim.shows("> the edited message")
    vim.state("#s.inbox == 0 and s.status == 'idle'")


def test_a_server_that_was_killed_comes_back_with_the_agent(vim: Neovim) -> None:
    """The text that was shown is still there, what is sent meanwhile is sent once, and the plugin says what happens."""
    send(vim, "talk for ever")
    vim.shows("It begins")
    before = server_of(vim.pid)
    os.kill(before, signal.SIGKILL)
    vim.until("require('agentls.client').client() == nil")
    vim.command("AgentSend said without a server")
    vim.until("require('agentls.client').client() ~= nil")
    vim.shows("> said without a server")
    text = "\n".join(vim.transcript())
    assert text.count("▌ You\nsaid without a server") == 1
    assert "It begins" in text
    assert server_of(vim.pid) != before


def test_a_state_of_another_life_is_a_reason_to_attach_again(vim: Neovim) -> None:
    """It is not drawn, and what the answer brings is."""
    before = vim.lua("return require('agentls').state().rev")
    attaching = vim.lua("""
        local state = require("agentls").state()
        local drawn = require("agentls.session").get(state.agentId)
        drawn:receive("agent/state", vim.tbl_extend("force", state, { epoch = "another", rev = state.rev + 1000 }))
        return drawn.awaiting
    """)
    assert attaching
    vim.until("not require('agentls.session').get(require('agentls').state().agentId).awaiting")
    assert vim.lua("return require('agentls').state().rev") < before + 1000


def test_what_could_move_the_cursor_or_turn_the_text_round_is_made_visible(vim: Neovim) -> None:
    """Escapes and bidirectional controls never reach the screen."""
    send(vim, "talk badly")
    vim.state("s.lastTurn and s.status == 'idle'")
    vim.shows("[31m and ")
    assert not {"\x1b", "\u202e"} & set("".join(vim.transcript()))


def test_two_editors_on_one_socket_draw_the_same(tmp_path: Path, work: Path, serve: tuple[str, ...]) -> None:
    """The second one joins the agent of the first, and both draw each other's messages."""
    with on_socket(tmp_path, serve) as path:
        settings = f"{{ socket = {json.dumps(str(path))} }}"
        with neovim(tmp_path / "first", work, settings) as first, neovim(tmp_path / "second", work, settings) as second:
            first.command("Agent")
            first.state("s.status == 'idle'")
            send(first, "talk at length")
            second.command("Agent")
            second.state("#s.editors == 2")
            second.shows("word30")
            second.command("AgentSend from the second")
            for editor in (first, second):
                editor.shows("> from the second")
                editor.state("s.status == 'idle' and s.lastTurn.number == 2")
            first.until("require('agentls').state().rev == a[1]", second.lua("return require('agentls').state().rev"))
            first.state("s.status == 'idle'")
            shown = first.transcript()
            second.until(
                "vim.deep_equal(vim.api.nvim_buf_get_lines(vim.fn.bufnr('/transcript$'), 0, -1, false), a[1])", shown
            )


def test_the_agent_reads_what_is_not_saved(vim: Neovim, work: Path) -> None:
    """The text of the buffer goes to the server as it is typed."""
    vim.lua("vim.api.nvim_buf_set_lines(vim.fn.bufnr('a.txt'), 0, 1, true, { 'typed just now' })")
    send(vim, "read it")
    vim.shows("It says: typed just now")
    assert (work / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_what_streams_changes_only_the_last_lines(vim: Neovim) -> None:
    """Nothing above the answer is written again, and of the answer only its last line and what follows."""
    send(vim, "talk at length")
    vim.shows("word3")
    vim.lua("""
        _G.first, _G.changes = math.huge, 0
        vim.api.nvim_buf_attach(vim.fn.bufnr("/transcript$"), false, {
          on_lines = function(_, _, _, from)
            first, changes = math.min(first, from), changes + 1
          end,
        })
    """)
    vim.shows("word300")
    first, changes = vim.lua("return { first, changes }")
    assert changes > 10
    assert vim.transcript()[first].startswith("word0 ")


def test_the_agent_is_told_what_is_selected(vim: Neovim) -> None:
    """Cursor, selection and visible lines, in the units that the server has chosen."""
    vim.command("wincmd t")
    vim.lua("vim.api.nvim_buf_set_lines(0, 0, 1, true, { 'é🙂 one' })")
    vim.keys("gg0vl")
    vim.until("vim.fn.mode() == 'v' and vim.fn.col('.') > 2")
    vim.lua("require('agentls.editor').tell()")
    vim.command("AgentSend look")
    vim.shows("line 1, character 1, up to line 1, character 3")
    vim.shows("**selected text**\n\n````\n```\né🙂\n```\n````")
    vim.shows("**visible lines**\n\n```\n1 to 3\n```")
    vim.shows("**unsaved files**\n\n```\na.txt")


def test_the_view_stays_where_the_reader_is(vim: Neovim) -> None:
    """A cursor above the last line is left alone while text comes; one on the last line follows it."""
    window = "vim.fn.bufwinid('/transcript$')"
    send(vim, "talk at length")
    vim.shows("word3")
    vim.lua(f"vim.api.nvim_win_set_cursor({window}, {{ 2, 0 }})")
    vim.state("s.lastTurn and s.status == 'idle'")
    assert vim.lua(f"return vim.api.nvim_win_get_cursor({window})") == [2, 0]
    vim.lua(f"vim.api.nvim_win_set_cursor({window}, {{ vim.api.nvim_buf_line_count(vim.fn.winbufnr({window})), 0 }})")
    send(vim, "and more")
    vim.state("s.lastTurn.number == 2 and s.status == 'idle'")
    assert vim.lua(f"return vim.api.nvim_win_get_cursor({window})[1]") == len(vim.transcript())


def test_whoever_waits_elsewhere_is_told(vim: Neovim) -> None:
    """`User` autocommands say that a person is needed, and that a turn has ended."""
    vim.lua("""
        _G.told = {}
        for _, name in ipairs({ "AgentNeedsYou", "AgentTurnDone" }) do
          vim.api.nvim_create_autocmd("User", { pattern = name, callback = function(event)
            table.insert(told, event.match .. " " .. event.data.kind)
          end })
        end
    """)
    send(vim, "write it")
    vim.until("vim.deep_equal(told, { 'AgentNeedsYou needs-you' })")
    vim.command("AgentAnswer deny")
    vim.until("vim.deep_equal(told, { 'AgentNeedsYou needs-you', 'AgentTurnDone done' })")


def test_another_agent_is_chosen_from_a_list(vim: Neovim) -> None:
    """`:Agent!` makes a new one, and `:AgentSessions` goes back."""
    send(vim, "hello there")
    vim.state("s.lastTurn and s.status == 'idle'")
    first = vim.lua("return require('agentls').state().agentId")
    vim.command("Agent!")
    vim.state("s.lastTurn == nil")
    assert vim.lua("return require('agentls').state().agentId") != first
    vim.lua(
        """
        vim.ui.select = function(rows, options, choose)
          _G.offered = vim.tbl_map(options.format_item, rows)
          for _, row in ipairs(rows) do
            if row.id == ... then choose(row) end
          end
        end
    """.replace("...", json.dumps(first))
    )
    vim.command("AgentSessions")
    vim.state(f"s.agentId == '{first}'")
    assert any("hello there" in row for row in vim.lua("return offered"))


def test_commands_that_come_before_there_is_an_agent_are_for_one(
    tmp_path: Path, work: Path, serve: tuple[str, ...]
) -> None:
    """They wait for the connection, and for the agent that the first of them makes."""
    with neovim(tmp_path / "home", work, started_by(serve)) as vim:
        assert vim.lua("return package.loaded['agentls.client'] == nil"), "nothing is loaded before it is used"
        vim.lua("vim.cmd('Agent'); vim.cmd('AgentSend one'); vim.cmd('AgentSend two')")
        vim.state("s.lastTurn and s.lastTurn.number == 2 and s.status == 'idle'")
        text = "\n".join(vim.transcript())
        assert text.index("▌ You\none") < text.index("▌ You\ntwo")


def test_a_server_that_does_not_start_is_told_once(tmp_path: Path, work: Path) -> None:
    """With its status, and where to look; it is tried again all the same."""
    with neovim(tmp_path / "home", work, "{ cmd = { 'false' } }") as vim:
        vim.command("Agent")
        vim.until("vim.fn.execute('messages'):find('ended (status 1', 1, true)")
        vim.until("require('agentls.client').problem() ~= nil")
        assert vim.messages().count("the server has ended") == 1
        assert ":checkhealth agentls" in vim.messages()


def test_what_the_server_does_not_take_is_in_the_prompt(vim: Neovim) -> None:
    """No text is lost to a refusal, wherever it was written."""
    vim.lua("require('agentls.client').new_id = function() return 'a1.1.1' end")
    vim.command("AgentSend written in the command line")
    vim.until("vim.fn.execute('messages'):find('the text is in the prompt', 1, true)")
    assert vim.lua("return vim.api.nvim_buf_get_lines(vim.fn.bufnr('/prompt$'), 0, -1, true)") == [
        "written in the command line"
    ]


def test_the_help_has_every_command_and_map(vim: Neovim, tmp_path: Path) -> None:
    """A command without a tag in the help is one that nobody finds."""
    page = (PLUGIN / "doc" / "agentls.txt").read_text()
    commands = vim.lua(
        "return vim.tbl_filter(function(n) return n:find('^Agent') end, vim.fn.getcompletion('Agent', 'command'))"
    )
    assert len(commands) == 12
    assert [name for name in commands if f"*:{name}*" not in page] == []
    shutil.copytree(PLUGIN / "doc", tmp_path / "doc")
    vim.command(f"helptags {tmp_path / 'doc'}")
    maps = vim.lua("return vim.tbl_map(function(m) return m.lhs end, vim.api.nvim_get_keymap('n'))")
    named = sorted(one[len("<Plug>(agentls-") : -1] for one in maps if one.startswith("<Plug>(agentls-"))
    assert named == ["allow", "cancel", "deny", "open", "queue", "send", "sessions", "steer"]
    assert all(f"`{name}`" in page for name in named)


def test_health_says_what_is_there(vim: Neovim) -> None:
    """`:checkhealth agentls` names Neovim, the server and the models."""
    vim.command("checkhealth agentls")
    text = vim.screen()
    for part in ("Neovim 0.11", "agentls 0.1", "connected to agentls", "model demo/demo, needs no key"):
        assert part in text, text


def test_health_names_the_command_that_mends_it(tmp_path: Path, work: Path) -> None:
    """A program that is not there is named, with how to get it; and a command says the same in one line."""
    with neovim(tmp_path / "home", work, '{ cmd = { "/nowhere/agentls", "serve" } }') as vim:
        vim.command("checkhealth agentls")
        assert '"/nowhere/agentls" is no program that can be run' in vim.screen()
        assert "scripts/setup" in vim.screen()
        vim.command("Agent")
        vim.until("vim.fn.execute('messages'):find('cannot be started', 1, true)")
