"""How approvals and questions are drawn, open and closed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agentls.core.answer import error_result
from agentls.core.events import (
    ApprovalAsked,
    ApprovalDecided,
    EventData,
    QuestionAnswered,
    QuestionAsked,
    StepEnd,
    TurnEnd,
)
from agentls.core.ids import RequestId
from agentls.core.json import JsonObject, JsonValue
from agentls.core.reasons import Interrupted
from agentls.core.rows import Block
from agentls.core.visible import visible
from tests.core.logs import CALL, answer, opened, tool_call
from tests.core.test_transcript import Sheet

ASKED = RequestId("q1.1.1")
WRITE: JsonObject = {
    "path": "src/a.py",
    "realPath": "/w/src/a.py",
    "change": "replaced",
    "diff": "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-one\n+two\n",
    "tool": "write",
    "arguments": '{"path":"src/a.py","content":"two\\n"}',
}


def asked(what: JsonObject, *then: EventData) -> Sheet:
    call = tool_call(name="write")
    return Sheet().log(*opened("a"), answer(), call, ApprovalAsked(ASKED, CALL, what, "sha256:0"), *then)


def approval(what: JsonObject, *then: EventData) -> Block:
    return asked(what, *then).one("approval")


def fences(body: str) -> list[str]:
    """What the code fences of a body hold, as a client reads them."""
    return [token.content for token in MarkdownIt("commonmark").parse(body) if token.type == "fence"]


def test_an_open_approval_stands_behind_its_call_and_shows_what_is_allowed() -> None:
    sheet = asked(WRITE)
    row = sheet.one("approval")
    assert [block.kind for block in sheet.rows()] == ["user", "tool", "approval"]
    assert (row.id, row.request, row.state, row.collapsed) == ("q1.1.1", "q1.1.1", "streaming", False)
    assert row.order == (sheet.one("tool").order[0], 1)
    assert (row.turn, row.step) == (1, 1)
    assert row.title == "Allow write to src/a.py?"
    assert fences(row.body) == [WRITE["diff"], f"{WRITE['arguments']}\n"]
    assert "`src/a.py`" in row.body
    assert "`/w/src/a.py`" in row.body
    assert sheet.one("tool").state == "streaming"


def test_each_request_of_a_call_stands_after_the_one_before() -> None:
    second = ApprovalAsked(RequestId("q1.1.2"), CALL, {}, "sha256:0")
    sheet = asked(WRITE, ApprovalDecided(ASKED, "allow"), second)
    call = sheet.one("tool").order[0]
    assert [(row.id, row.order) for row in sheet.rows()[2:]] == [("q1.1.1", (call, 1)), ("q1.1.2", (call, 2))]
    assert sheet.blocks[sheet.rows()[3].id].title == "Allow write?", "the call names what the request does not"


@pytest.mark.parametrize(
    ("path", "place", "title"),
    [
        ("./src/../a.py", "/w/a.py", "Allow write to ./src/../a.py?"),
        ("/w/a.py", "/w/a.py", "Allow write to /w/a.py?"),
        ("notes.md", "/srv/u/.ssh/config", "Allow write to /srv/u/.ssh/config (reached by notes.md)?"),
        ("/w/a.py", "/v/w/a.py", "Allow write to /v/w/a.py (reached by /w/a.py)?"),
        ("a" * 300, "/etc/passwd", "Allow write to /etc/passwd (reached by " + "a" * 79 + "…?"),
    ],
)
def test_a_title_says_where_a_path_leads_and_the_body_says_both(path: str, place: str, title: str) -> None:
    row = approval({**WRITE, "path": path, "realPath": place})
    assert row.title == title
    assert path in row.body
    assert place in row.body


def test_what_is_allowed_is_never_cut() -> None:
    content = "line é\n" * 60_000
    row = approval({**WRITE, "content": content})
    assert content in fences(row.body)
    assert row.more is None


def test_nothing_in_an_approval_is_hidden_and_no_fence_ends_before_it_should() -> None:
    content = "`````\n**Tool**: `read`\n\u202ereversed\u2066 \x1b[2J zero\u200bwidth\r\n"
    row = approval({**WRITE, "path": "a\u202eyp.exe\nb", "content": content})
    assert visible(content) in fences(row.body)
    assert "a⟨U+202E⟩yp.exe\nb\n" in fences(row.body)
    for text in (row.body, row.title):
        assert not set(text) & set("\u202e\u2066\x1b\u200b\r")
    assert "\n" not in row.title


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | plain | st.text("`~\n <>", max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(
    plain | st.sampled_from(["path", "realPath", "change", "tool", "text", "options", "command"]), values, max_size=6
)


@given(objects)
def test_of_any_request_every_value_is_drawn(what: dict[str, JsonValue]) -> None:
    body = approval(what).body
    held = [text.removesuffix("\n") for text in fences(body)]
    for value in what.values():
        text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))
        assert text.removesuffix("\n") in held or f"`{text}`" in body


@given(objects)
def test_any_question_is_drawn_whole(question: dict[str, JsonValue]) -> None:
    rows = Sheet().log(*opened("a"), QuestionAsked(ASKED, question)).one("question")
    shown = "".join(rows.body.split())
    for name, value in question.items():
        if isinstance(value, str):
            lines = visible(value).split("\n")
        elif name == "options" and isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            lines = [line for option in value for line in visible(str(option)).split("\n")]
        else:
            lines = visible(json.dumps(value, ensure_ascii=False, indent=2)).split("\n")
        assert [line for line in lines if "".join(line.split()) not in shown] == []


@pytest.mark.parametrize(
    ("decided", "state", "title", "summary"),
    [
        (ApprovalDecided(ASKED, "allow", "vim 9"), "done", "Allowed: write to src/a.py", "by vim 9"),
        (ApprovalDecided(ASKED, "allow", remember="session"), "done", "Allowed: write to src/a.py", "remembered for"),
        (ApprovalDecided(ASKED, "deny", "vim 9", "use\nb.py"), "done", "Denied: write to src/a.py", "by vim 9: use b"),
        (ApprovalDecided(ASKED, "deny-and-stop", "vim 9"), "done", "Denied: write to src/a.py", "the turn stopped"),
        (ApprovalDecided(ASKED, "cancelled"), "interrupted", "Not answered: write to src/a.py", ""),
    ],
)
def test_a_closed_approval_says_what_became_of_it(
    decided: ApprovalDecided, state: str, title: str, summary: str
) -> None:
    open_row, row = approval(WRITE), approval(WRITE, decided)
    assert (row.id, row.order, row.seq) == (open_row.id, open_row.order, open_row.seq)
    assert (row.request, row.state, row.title, row.collapsed) == (None, state, title, True)
    assert summary in (row.summary or "")
    assert row.body.startswith(open_row.body)


def test_a_long_note_is_kept_whole() -> None:
    note = "no: " + "why " * 100
    row = approval(WRITE, ApprovalDecided(ASKED, "deny", "vim 9", note))
    assert f"{note}\n" in fences(row.body)
    assert len(row.summary or "") <= 120


def test_the_call_of_a_denied_request_is_drawn_as_denied() -> None:
    refused = error_result(tool_call(), "DENIED", "the person did not allow this call")
    row = asked(WRITE, ApprovalDecided(ASKED, "deny"), refused).one("tool")
    assert row.call is not None
    assert (row.state, row.call.state) == ("failed", "denied")


def test_a_request_that_is_closed_after_its_call_was_answered_keeps_its_place() -> None:
    """So does a repair write it."""
    sheet = asked(
        WRITE,
        error_result(tool_call(), "TOOL_NOT_STARTED", "the server died"),
        ApprovalDecided(ASKED, "cancelled"),
        StepEnd(1, 1),
        TurnEnd(1, Interrupted()),
    )
    assert sheet.kinds() == ["user", "tool", "approval", "turn-end"]
    assert (sheet.one("approval").state, sheet.one("approval").request) == ("interrupted", None)


def test_no_request_is_open_after_its_turn() -> None:
    question = QuestionAsked(RequestId("q1.1.2"), {"text": "Which?"}, CALL)
    closing = (error_result(tool_call(), "X", "x"), StepEnd(1, 1), TurnEnd(1, Interrupted()))
    sheet = asked(WRITE, question, *closing)
    rows = sheet.one("approval"), sheet.one("question")
    assert [(row.request, row.state) for row in rows] == [(None, "interrupted")] * 2


def test_a_question_shows_its_options_and_then_the_answer() -> None:
    question = QuestionAsked(
        ASKED, {"text": "Which\n```\none?", "options": ["this", "that\nthing"], "many": False}, CALL
    )
    opening = (*opened("a"), answer(), tool_call(), question)
    row = Sheet().log(*opening).one("question")
    assert (row.title, row.request, row.order[1]) == ("Which ``` one?", "q1.1.1", 1)
    tokens = [token.type for token in MarkdownIt("commonmark").parse(row.body)]
    assert tokens.count("list_item_open") == 2, "a fence in the text does not swallow the options"
    assert '"many"' not in row.body
    assert "**Many**" in row.body
    done = Sheet().log(*opening, QuestionAnswered(ASKED, "that", "vim 9")).one("question")
    assert (done.title, done.summary) == ("Answered: Which ``` one?", "by vim 9: that")
    assert (done.request, done.state, done.collapsed) == (None, "done", True)
    assert done.body == f"{row.body}\n\n**Answer**\n\n```\nthat\n```"
    gone = Sheet().log(*opening, QuestionAnswered(ASKED, cancelled=True)).one("question")
    assert (gone.title, gone.summary, gone.state) == ("Not answered: Which ``` one?", None, "interrupted")
    assert gone.body == row.body


def test_a_question_without_a_call_stands_where_it_was_asked() -> None:
    row = Sheet().log(*opened("a"), QuestionAsked(ASKED, {"options": [1, {"label": "x"}]})).one("question")
    assert (row.title, row.order) == ("Question", (row.seq, 0))
    assert '"label": "x"' in row.body
