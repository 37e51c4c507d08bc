"""What a person sees of a log, live and replayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentls.core.answer import error_result
from agentls.core.blocks import ContentBlock, ReasoningBlock, TextBlock, UnknownBlock
from agentls.core.events import (
    AssistantAttempt,
    AssistantMessage,
    CutCall,
    Dequeue,
    EventData,
    RequestSent,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from agentls.core.ids import BlockId, CallId, MessageId, SessionId, assistant_message
from agentls.core.messages import Message
from agentls.core.reasons import (
    Aborted,
    Completed,
    Failure,
    InjectionTrigger,
    MaxTokens,
    TurnAborted,
    TurnFailed,
)
from agentls.core.rows import Block
from agentls.core.sources import (
    Catalog,
    CatalogEntry,
    ContextForm,
    HookSource,
    MessageSource,
    ModelSource,
    Notice,
    OpaqueForm,
    PluginSource,
    Recall,
    Recalled,
    Relay,
    Section,
    Snapshot,
    UnknownSource,
)
from agentls.core.transcript import Append, Change, Drop, Put, Transcript
from tests.core.logs import answer, append, context, enqueue, opened, session, tool_call, user

ANSWER = assistant_message(1, 1, 1)


class Sheet:
    """Draws changes as a client does, and fails where a client would be lost."""

    def __init__(self) -> None:
        self.blocks: dict[BlockId, Block] = {}
        self.transcript = Transcript()

    def draw(self, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case Put(block):
                    self.blocks[block.id] = block
                case Append(block_id, text):
                    was = self.blocks[block_id]
                    assert was.state == "streaming"
                    self.blocks[block_id] = replace(was, body=was.body + text)
                case Drop(block_id):
                    del self.blocks[block_id]

    def log(self, *payloads: EventData) -> Sheet:
        for event in append(session(), *payloads):
            self.transcript, changes = self.transcript.apply(event)
            self.draw(changes)
        return self

    def draft(self, index: int, text: str, kind: str = "text") -> Sheet:
        self.transcript, changes = self.transcript.draft(ANSWER, index, kind, text)  # type: ignore[arg-type]
        self.draw(changes)
        return self

    def rows(self) -> list[Block]:
        return sorted(self.blocks.values(), key=lambda block: block.order)

    def kinds(self) -> list[str]:
        return [block.kind for block in self.rows()]

    def one(self, kind: str) -> Block:
        (block,) = (block for block in self.blocks.values() if block.kind == kind)
        return block


def closing(reason: object = None) -> tuple[EventData, ...]:
    return StepEnd(1, 1), TurnEnd(1, reason or Completed())  # type: ignore[arg-type]


def test_a_turn_draws_its_messages_in_order_and_one_row_for_its_end() -> None:
    sheet = Sheet().log(*opened("a"), answer(ReasoningBlock("why"), TextBlock("because")), *closing())
    assert sheet.kinds() == ["user", "reasoning", "assistant", "turn-end"]
    assert [block.id for block in sheet.rows()] == ["u:a", "a1.1.1/0", "a1.1.1/1", "turn1"]
    assert sheet.one("assistant").finish == "stop"
    assert sheet.one("reasoning").collapsed
    assert sheet.one("turn-end").reason == "completed"


def test_a_message_that_an_open_turn_takes_is_steering_and_one_that_starts_a_turn_is_not() -> None:
    promoted, queued, steering = map(MessageId, ("p", "q", "s"))
    sheet = Sheet().log(
        *(enqueue("p", "steering"), enqueue("q"), Dequeue(promoted, 1, 1), Dequeue(queued, 1, 1)),
        *(*opened("p", "q"), enqueue("s", "steering"), answer(), StepEnd(1, 1)),
        *(Dequeue(steering, 1, 2), StepStart(1, 2), user("s")),
    )
    titles = [(block.id, block.title) for block in sheet.rows() if block.kind == "user"]
    assert titles == [("u:p", "You"), ("u:q", "You"), ("u:s", "Steering")]


def finished(text: str, **facts: object) -> AssistantMessage:
    message = Message(ANSWER, "assistant", (TextBlock(text),), ModelSource("p", "m"), (0,))
    return AssistantMessage(1, 1, 1, message, Aborted(Failure("x", "ABORTED")), **facts)  # type: ignore[arg-type]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5), min_size=1, max_size=8))
def test_text_in_flight_and_the_finished_message_are_the_same_block(pieces: list[str]) -> None:
    """The same id, order and body, so that a client that saw every piece redraws nothing."""
    sheet = Sheet().log(*opened("a"))
    for piece in pieces:
        sheet.draft(0, piece)
    flying = {block.id: block for block in sheet.rows() if block.kind == "assistant"}
    (event,) = append(session(*opened("a")), answer(TextBlock("".join(pieces))))
    sheet.transcript, changes = sheet.transcript.apply(event)
    sheet.draw(changes)
    settled = {block.id: block for block in sheet.rows() if block.kind == "assistant"}
    assert list(flying) == list(settled)
    for block_id, block in flying.items():
        assert (block.body, block.order) == (settled[block_id].body, settled[block_id].order)
        assert (block.state, settled[block_id].state) == ("streaming", "done")


def test_blank_text_draws_no_row_until_it_is_more() -> None:
    sheet = Sheet().log(*opened("a")).draft(0, "\n").draft(0, "  ")
    assert sheet.kinds() == ["user"]
    sheet.draft(0, "x")
    assert sheet.one("assistant").body == "\n  x"


def test_an_interrupted_answer_keeps_its_text_and_says_so() -> None:
    sheet = Sheet().log(*opened("a"), finished("half", interrupted=True), *closing(TurnAborted("user")))
    assert (sheet.one("assistant").body, sheet.one("assistant").state) == ("half", "interrupted")
    assert (sheet.one("turn-end").reason, sheet.one("turn-end").title) == ("aborted", "Turn 1 stopped")


def test_text_in_flight_that_the_log_never_got_is_dropped_at_the_turns_end() -> None:
    sheet = Sheet().log(*opened("a")).draft(0, "lost")
    events = append(session(*opened("a")), *closing())
    for event in events:
        sheet.transcript, changes = sheet.transcript.apply(event)
        sheet.draw(changes)
    assert sheet.kinds() == ["user", "turn-end"]


def test_a_failed_attempt_is_drawn_as_failed_and_the_failure_says_what_to_do() -> None:
    shown = Message(ANSWER, "assistant", (TextBlock("half"),), ModelSource("p", "m"), (0,))
    failure = Failure("upstream ```is``` \x1b[2J full", "SERVER", 503, 2000, "req-7")
    sheet = Sheet().log(*opened("a"), AssistantAttempt(1, 1, 1, shown, failure), *closing(TurnFailed(failure)))
    assert sheet.one("assistant").state == "failed"
    error = sheet.one("error")
    assert error.title == "The provider has a problem"
    assert "send again in a moment" in error.body
    assert "wait 2 seconds" in error.body
    assert "````" in error.body, "the provider's own fence cannot close ours"
    assert "\x1b" not in error.body
    assert "HTTP 503" in error.body
    assert sheet.kinds() == ["user", "assistant", "error", "turn-end"]


def test_a_call_is_drawn_at_once_and_again_with_its_result() -> None:
    sheet = Sheet().log(*opened("a"), answer(), tool_call(arguments='{"path":"x"}'))
    running = sheet.one("tool")
    assert (running.id, running.state) == ("t1.1.1", "streaming")
    assert running.call is not None
    assert running.call.state == "running"
    sheet = Sheet().log(
        *opened("a"), answer(), tool_call(), error_result(tool_call(), "UNKNOWN_TOOL", "there is no tool"), *closing()
    )
    done = sheet.one("tool")
    assert done.call is not None
    assert (done.state, done.call.state, done.summary) == ("failed", "not-run", "there is no tool")


def test_a_call_cut_by_the_output_limit_is_a_failed_tool_row() -> None:
    cut = (CutCall(1, CallId("t1.1.1"), "write", '{"path": "x'),)
    message = answer(TextBlock("so"), finish=MaxTokens())
    sheet = Sheet().log(*opened("a"), AssistantMessage(1, 1, 1, message.message, MaxTokens(), cut=cut))
    row = sheet.one("tool")
    assert row.call is not None
    assert (row.id, row.state, row.call.state) == ("t1.1.1", "failed", "not-run")
    assert "output limit" in row.body
    assert sheet.kinds() == ["user", "assistant", "tool"]


def injected(source: MessageSource, *content: ContentBlock) -> Block:
    message = Message(MessageId("i"), "user", content or (TextBlock("the text"),), source)
    shot = (TurnStart(1, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(1, Completed()))
    sheet = Sheet().log(*shot)
    assert sheet.kinds() == ["context"], "an injection's turn draws its row and nothing else"
    return sheet.one("context")


def plugin(form: ContextForm) -> MessageSource:
    return PluginSource("git", form)


def test_a_snapshot_says_that_it_supersedes_another_one_where_there_is_one() -> None:
    sheet = Sheet()
    sources = [plugin(Snapshot((Section("n", str(n)),))) for n in range(3)]
    sources[1] = PluginSource("files", Snapshot((Section("n", "1"),)))
    log = session()
    for turn, source in enumerate(sources, start=1):
        message = Message(MessageId(f"i{turn}"), "user", (TextBlock("t"),), source)
        shot = (TurnStart(turn, InjectionTrigger(message.id)), UserMessage(message), TurnEnd(turn, Completed()))
        for event in append(log, *shot):
            sheet.transcript, changes = sheet.transcript.apply(event)
            sheet.draw(changes)
    bodies = [sheet.blocks[BlockId(f"c:i{turn}")].body for turn in (1, 2, 3)]
    assert [body.startswith("Supersedes earlier snapshots of git.") for body in bodies] == [False, False, True]


def test_a_notice_row_carries_producer_and_summary() -> None:
    """Statement 70."""
    row = injected(plugin(Notice("branch changed")))
    assert (row.id, row.title, row.producer, row.form) == ("c:i", "Notice", "git", "notice")
    assert (row.summary, row.body, row.collapsed) == ("branch changed", "the text", True)


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        (Snapshot((Section("branch", "main"), Section("files", "```x"))), ["**branch**", "main", "````"]),
        (Relay(SessionId("s-7")), ["From session s-7", "the text"]),
        (
            Recall((Recalled(SessionId("s"), "old talk", 3, 2, truncated=True),)),
            ["old talk: 3 messages kept, 2 left out, cut"],
        ),
        (Catalog((CatalogEntry("grep", "search"),)), ["- grep: search"]),
        (Catalog(()), ["(empty)"]),
        (Catalog(tuple(CatalogEntry(str(n), "d") for n in range(205))), ["- 5 more"]),
    ],
)
def test_each_form_is_drawn_from_its_facts(form: ContextForm, parts: list[str]) -> None:
    body = injected(plugin(form)).body
    assert [part for part in parts if part not in body] == []


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (plugin(OpaqueForm("weather", {"sky": "grey"})), ["the text", '"form":"weather"', '"sky":"grey"']),
        (UnknownSource("horoscope", {"sign": "leo"}), ["the text", '"sign":"leo"']),
        (HookSource("pre-commit"), ["the text", '"hook":"pre-commit"']),
    ],
)
def test_what_has_no_readable_form_is_opaque_and_shows_all_it_has(source: MessageSource, parts: list[str]) -> None:
    """Statements 70, 71 and 72."""
    row = injected(source)
    assert (row.form, row.summary) == ("opaque", None)
    assert [part for part in parts if part not in row.body] == []


def test_an_unknown_block_is_drawn_as_text() -> None:
    row = injected(plugin(Notice("n")), TextBlock("before "), UnknownBlock("chart", {"title": "t"}))
    assert row.body == 'before {"title":"t","type":"chart"}'


def test_a_long_context_is_a_preview_that_counts_the_rest() -> None:
    row = injected(plugin(Notice("n")), TextBlock("é" * 40_000))
    assert (len(row.body.encode()), row.more) == (65_536, 80_000 - 65_536)


def test_a_page_may_begin_at_any_turn() -> None:
    first = (*opened("a"), answer(TextBlock("one")), *closing())
    second = (*opened("b", turn=2), answer(TextBlock("two"), turn=2), StepEnd(2, 1), TurnEnd(2, Completed()))
    log = session()
    append(log, *first)
    later = append(log, *second)
    sheet = Sheet()
    for event in later:
        sheet.transcript, changes = sheet.transcript.apply(event)
        sheet.draw(changes)
    assert [block.id for block in sheet.rows()] == ["u:b", "a2.1.1/0", "turn2"]


def test_an_injection_into_a_running_turn_stands_after_the_answer_that_was_being_written() -> None:
    sheet = Sheet().log(*opened("a"), context("i"), answer(TextBlock("hi")), *closing())
    assert [block.id for block in sheet.rows()] == ["u:a", "a1.1.1/0", "c:i", "turn1"]


def test_blocks_of_a_second_step_stand_after_those_of_the_first() -> None:
    second = (StepStart(1, 2), user("s"), RequestSent(1, 2, 1, 0), answer(TextBlock("two"), step=2))
    sheet = Sheet().log(*opened("a"), answer(TextBlock("one")), StepEnd(1, 1), *second)
    assert [block.id for block in sheet.rows()] == ["u:a", "a1.1.1/0", "u:s", "a1.2.1/0"]


def test_what_the_model_reads_is_never_hidden_behind_the_facts_of_a_form() -> None:
    """A client declares facts and text apart: a person must see both, and where they differ."""
    snapshot = plugin(Snapshot((Section("branch", "main"), Section("files", "a.py"))))
    honest = injected(snapshot, TextBlock("branch: main\n\nfiles: a.py")).body
    assert "the model reads" not in honest
    assert "not told" not in honest
    other = injected(snapshot, TextBlock("Obey. branch: main")).body
    assert "Beside them the model reads:\n\n```\nObey. branch: …\n```" in other
    assert "**files** (not told to the model)" in other
    assert "Obey." in injected(plugin(Catalog((CatalogEntry("grep", "search"),))), TextBlock("Obey.")).body


@given(st.integers(1, 200_000), st.integers(0, 200_000))
def test_a_calls_row_is_bounded_and_counts_what_it_leaves_out(arguments: int, result: int) -> None:
    raw = '{"text":"' + "é`" * (arguments // 3) + '"}'
    answered = error_result(tool_call(), "X", "y" * result)
    row = Sheet().log(*opened("a"), answer(), tool_call(arguments=raw), answered).one("tool")
    assert len(row.body.encode()) <= 64 * 1024
    assert row.call is not None
    assert len(row.call.arguments.encode()) <= 32 * 1024
    left_out = arguments // 3 - row.body.count("é"), result - row.body.count("y")
    assert (row.more is None) == (left_out == (0, 0))
    assert (row.more or 0) >= 3 * left_out[0] + left_out[1]


def test_a_long_snapshot_leaves_no_fence_open() -> None:
    sections = tuple(Section(f"part {n}", "```\n" + "x" * 3000) for n in range(60))
    row = injected(plugin(Snapshot(sections)), TextBlock("".join(section.text for section in sections)))
    assert len(row.body.encode()) <= 64 * 1024
    assert row.more
    assert row.body.count("````") % 2 == 0
