"""How injected messages and long bodies are drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.answer import error_result
from agentls.core.blocks import TextBlock
from agentls.core.bodies import PREVIEW_BYTES, arguments_body, context_body, result_body, snapshot_lead
from agentls.core.ids import MessageId
from agentls.core.messages import Message
from agentls.core.sources import (
    Catalog,
    CatalogEntry,
    HookSource,
    Instructions,
    InstructionsSource,
    MessageSource,
    Notice,
    OpaqueForm,
    PluginSource,
    Section,
    Snapshot,
    UnknownSource,
)
from agentls.core.transcript import Transcript
from tests.core.logs import answer, append, opened, session, tool_call
from tests.core.test_transcript import Sheet, injected, plugin

MARK = "k7q2"
SECTIONS = (Section("branch", "main"), Section("files", "a.py\nb.py"))
FRAMED = "The main state now; it replaces earlier ones.\n\nbranch: main\n\nfiles:\na.py\nb.py"


@pytest.mark.parametrize(
    "source",
    [
        PluginSource("git", Notice("n"), MARK),
        PluginSource("git", Snapshot(SECTIONS), MARK),
        PluginSource("git", OpaqueForm("weather", {"sky": "grey"}), MARK),
        InstructionsSource(Instructions(("AGENTS.md",)), MARK),
        HookSource("pre-commit", MARK),
    ],
)
def test_the_mark_of_a_frame_is_not_shown(source: MessageSource) -> None:
    row = injected(source)
    assert MARK not in repr(row)
    assert '"mark"' not in row.body


def test_what_a_foreign_source_calls_a_mark_is_one_of_its_facts() -> None:
    assert '"mark":"x"' in injected(UnknownSource("horoscope", {"mark": "x"})).body


def test_a_snapshots_sections_are_drawn_once_and_the_sentence_around_them_beside() -> None:
    body = injected(plugin(Snapshot(SECTIONS)), TextBlock(FRAMED)).body
    assert body.count("b.py") == 1
    assert body.count("branch") == 2
    assert body.endswith("```\nThe main state now; it replaces earlier ones.\n\nbranch: …\n\nfiles:\n…\n```")
    assert "not told" not in body


def test_the_sentence_with_which_the_servers_own_snapshots_begin_is_not_repeated() -> None:
    text = "\n\n".join((snapshot_lead("git"), *(f"{section.name}:\n{section.text}" for section in SECTIONS)))
    body = injected(plugin(Snapshot(SECTIONS)), TextBlock(text)).body
    assert "How things stand" not in body
    assert "Beside them" not in body
    other = injected(plugin(Snapshot(SECTIONS)), TextBlock(text + "\n\nObey.")).body
    assert "Obey." in other


def test_no_text_hides_behind_sections_that_spell_it() -> None:
    letters = tuple(Section(char, char) for char in "abcdefghijklmnopqrstuvwxyz")
    body = injected(plugin(Snapshot(letters)), TextBlock("rm everything")).body
    assert "Beside them the model reads" in body
    assert len([part for part in "rm everything" if part in body.rpartition("reads:")[2]]) >= 10


@given(st.integers(1, 40), st.integers(0, 8000), st.booleans())
def test_a_snapshot_is_bounded_and_counts_every_byte_that_it_leaves_out(count: int, size: int, framed: bool) -> None:
    sections = tuple(Section(f"part {n}", "é" * (size // 2)) for n in range(count))
    text = ("Obey. " if framed else "") + "".join(section.text for section in sections)
    message = Message(MessageId("i"), "user", (TextBlock(text),), plugin(Snapshot(sections)))
    body = context_body(message)
    assert len(body.text.encode()) <= PREVIEW_BYTES
    assert body.text.count("```") % 2 == 0
    left_out = count * (size // 2) * 2 - 2 * body.text.count("é")
    assert body.more >= left_out
    assert (body.more > 0) == (left_out > 0 or (framed and "Obey" not in body.text))
    whole = context_body(message, None)
    assert (whole.text.count("é"), whole.more) == (count * (size // 2), 0)


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_a_long_run_of_backticks_does_not_break_the_bound(arguments: int, result: int) -> None:
    shown = arguments_body("`" * arguments)
    body = result_body(shown, (TextBlock("`" * result),))
    assert len(body.text.encode()) <= PREVIEW_BYTES
    whole = result_body(arguments_body("`" * arguments, None), (TextBlock("`" * result),), None)
    assert whole.more == 0
    assert whole.text.count("`") >= arguments + result


def test_a_long_catalog_counts_what_it_does_not_list() -> None:
    entries = tuple(CatalogEntry(f"tool{n}", "d") for n in range(205))
    message = Message(MessageId("i"), "user", (TextBlock("t"),), plugin(Catalog(entries)))
    body = context_body(message)
    assert "tool204" not in body.text
    assert body.more == 5 * len("- tool200: d")
    whole = context_body(message, None)
    assert "tool204" in whole.text
    assert (whole.more, " more" in whole.text) == (0, False)


@pytest.mark.parametrize("limit", range(200, 220))
def test_a_preview_is_never_cut_inside_a_character(limit: int) -> None:
    text = "aé€🙂" * 1000
    body = result_body(arguments_body("{}", limit), (TextBlock(text),), limit)
    assert len(body.text.encode()) <= limit
    shown = body.text.removeprefix("```json\n{}\n```\n\n```\n").removesuffix("\n```")
    assert shown
    assert text.startswith(shown)
    assert body.more == len(text.encode()) - len(shown.encode())


def test_a_transcript_without_a_limit_draws_everything() -> None:
    raw, result = '{"text":"' + "é" * 100_000 + '"}', "🙂" * 100_000
    log = session()
    events = append(log, *opened("a"), answer(), tool_call(arguments=raw), error_result(tool_call(), "X", result))
    sheet = Sheet()
    sheet.transcript = Transcript(preview_bytes=None)
    for event in events:
        sheet.transcript, changes = sheet.transcript.apply(event)
        sheet.draw(changes)
    row = sheet.one("tool")
    assert row.call is not None
    assert (row.call.arguments, row.more) == (raw, None)
    assert raw in row.body
    assert result in row.body
    assert sheet.transcript.preview_bytes is None
