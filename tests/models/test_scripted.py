"""The model that reads a script: what it says follows from the request alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentls.core.blocks import ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from agentls.core.errors import UserError
from agentls.core.ids import CallId
from agentls.core.messages import Message, tool_result
from agentls.core.reasons import Failed, Failure, MaxTokens, Stop, ToolCalls
from agentls.core.sources import HookSource, Instructions, Notice, PluginSource, Section, Snapshot
from agentls.models.catalog import DEMO
from agentls.models.scripted import DEMO_SCRIPT, Script, Scripted, ScriptedModels, load
from tests.models.requests import asking, assemble, assistant, message, read, texts, user


class Clock:
    """Counts the seconds that are slept, and takes none."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def scripted(*replies: dict[str, Any], pace: int = 0, clock: Clock | None = None) -> Scripted:
    script = Script.model_validate({"pace": pace, "replies": list(replies)})
    return Scripted(DEMO, script, sleep=(clock or Clock()).sleep)


async def said(model: Scripted, *messages: Message | str) -> str:
    return "".join(texts(await read(model.stream(asking(*messages)))))


def reply(text: str, **conditions: Any) -> dict[str, Any]:
    return {"pieces": [{"text": text}], **conditions}


NOTICE = message("user", PluginSource("ci", Notice("tests are green")), "all 12 passed")


async def test_a_plain_list_is_a_conversation() -> None:
    model = scripted(reply("one"), reply("two"))
    assert await said(model, "a") == "one"
    assert await said(model, "a", assistant("one"), "b") == "two"


async def test_the_same_request_gets_the_same_answer() -> None:
    model = scripted(reply("one"), reply("two"))
    assert [await said(model, "a") for _ in range(3)] == ["one"] * 3


async def test_where_nothing_is_due_the_newest_text_of_a_person_is_quoted() -> None:
    assert await said(scripted(), "a", assistant("x"), "first\nsecond") == "You said:\n\n> first\n> second\n"


async def test_a_reply_is_chosen_by_what_a_person_said_last() -> None:
    model = scripted(reply("yes", when="(?i)tests?"), reply("plain"))
    assert await said(model, "run the TESTS") == "yes"
    assert await said(model, "run the tests", assistant("yes"), "thanks") == "You said:\n\n> thanks\n"
    assert await said(model, "hello") == "plain"


async def test_injected_text_is_not_what_a_person_said() -> None:
    model = scripted(reply("yes", when="12 passed"), reply("plain"))
    assert await said(model, "hello", NOTICE) == "plain"


async def test_a_reply_can_be_for_a_step_of_a_turn() -> None:
    """A tool call, then an answer to its result; a message of a person begins anew."""
    call = {"pieces": [{"call": {"name": "read", "arguments": {"p": 1}}}], "when": "go", "step": 0}
    model = scripted(call, reply("done", when="go", step=1))
    first = assemble(await read(model.stream(asking("go"))))
    assert first.finish == ToolCalls()
    (block,) = first.blocks()
    assert block == ToolCallBlock(CallId("call-0"), "read", '{"p":1}', "call-0")
    results = (assistant(block), tool_result(CallId("call-0"), (TextBlock("x"),)))
    assert await said(model, "go", *results) == "done"
    again = assemble(await read(model.stream(asking("go", *results, assistant("done"), "go"))))
    assert again.finish == ToolCalls()


async def test_a_reply_can_be_for_a_count_of_answers() -> None:
    model = scripted(reply("third", answers=2), reply("first"))
    assert await said(model, "a") == "first"
    assert await said(model, "a", assistant("x"), "b", assistant("y"), "c") == "third"


async def test_a_reply_can_be_for_a_context_and_name_it() -> None:
    model = scripted(reply("{producer} said {context}", context="^ci: tests"), reply("none", when=""))
    assert await said(model, "a", assistant("x"), NOTICE, "b") == "ci said tests are green"
    assert await said(model, "a", NOTICE) == "ci said tests are green"
    assert await said(model, "a", assistant("x"), "b") == "none"


async def test_a_context_counts_until_the_message_after_next() -> None:
    model = scripted(reply("seen", context=""), reply("none", when=""))
    assert await said(model, "a", NOTICE, assistant("x"), "b") == "seen"
    assert await said(model, "a", NOTICE, assistant("x"), "b", assistant("y"), "c") == "none"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        (PluginSource("ci", Notice("green")), "ci: green"),
        (PluginSource("editor", Snapshot((Section("cursor", "1"), Section("git", "2")))), "editor: cursor, git"),
        (PluginSource("rules", Instructions(("AGENTS.md",))), "rules: AGENTS.md"),
        (HookSource("lint"), "lint: the first line"),
    ],
)
async def test_the_title_of_a_context_is_made_of_its_facts(source: Any, title: str) -> None:
    context = message("user", source, "\n  the first line\nthe second")
    assert await said(scripted(reply("{producer}: {context}")), "a", context) == title


async def test_placeholders_are_one_line_and_nothing_else_is_replaced() -> None:
    model = scripted(reply("{user}|{previous}|{other}|{}"))
    assert await said(model, "a", "b\n {user} \u202ec") == "b {user} ⟨U+202E⟩c|a|{other}|{}"


async def test_text_comes_word_by_word_at_its_pace() -> None:
    clock = Clock()
    model = scripted(reply("a b  c\n", pace=100), pace=7, clock=clock)
    assert texts(await read(model.stream(asking()))) == ["a ", "b  ", "c\n"]
    assert clock.seconds == pytest.approx(0.3)


async def test_the_pace_of_the_script_holds_where_a_reply_has_none() -> None:
    clock = Clock()
    pieces = [{"reasoning": "x y"}, {"wait": 1000}, {"text": "z"}, {"call": {"name": "n"}}]
    await read(scripted({"pieces": pieces}, pace=10, clock=clock).stream(asking()))
    assert clock.seconds == pytest.approx(1.04)


async def test_every_kind_of_piece() -> None:
    pieces = [
        {"reasoning": "hm "},
        {"reasoning": "hm"},
        {"text": "a"},
        {"text": "b"},
        {"call": {"name": "read", "arguments": "{broken", "id": "k"}},
        {"usage": {"inputTokens": 3, "outputTokens": 2, "cacheReadTokens": 1}},
        {"finish": "stop"},
        {"text": "never"},
    ]
    chunks: list[Chunk] = await read(scripted({"pieces": pieces}).stream(asking()))
    stream = assemble(chunks)
    call = ToolCallBlock(CallId("k"), "read", "{broken", "k")
    assert stream.blocks() == (ReasoningBlock("hm hm"), TextBlock("ab"), call)
    assert stream.usage == Usage(3, 2, 1)
    assert stream.finish == ToolCalls()
    pieces_sent = [chunk for chunk in chunks if isinstance(chunk, ReasoningDelta | TextDelta | ToolCallDelta)]
    assert [type(chunk) for chunk in pieces_sent] == [
        ReasoningDelta,
        ReasoningDelta,
        TextDelta,
        TextDelta,
        ToolCallDelta,
    ]


async def test_a_failure_keeps_what_was_said_before() -> None:
    failure = {"message": "full", "code": "RATE_LIMIT", "status": 429, "retryAfterMs": 3000}
    stream = assemble(await read(scripted({"pieces": [{"text": "ha"}, {"failure": failure}]}).stream(asking())))
    assert stream.finish == Failed(Failure("full", "RATE_LIMIT", 429, 3000))
    assert [placed.block for placed in stream.interrupted()] == [TextBlock("ha")]


@pytest.mark.parametrize(
    ("pieces", "finish"),
    [
        ([{"text": "a"}, {"finish": "length"}], MaxTokens()),
        ([{"text": "a"}], Stop()),
        ([{"text": "a"}, {"finish": "content_filter"}], None),
        ([], None),
    ],
)
async def test_how_a_reply_ends(pieces: list[dict[str, Any]], finish: object) -> None:
    found = assemble(await read(scripted({"pieces": pieces}).stream(asking()))).finish
    assert found == finish if finish else isinstance(found, Failed)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "is not JSON"),
        ('{"replies": 5}', '"replies"'),
        ('{"replies": [{"pieces": [{"txt": "a"}]}]}', '"replies[0].pieces[0].txt"'),
        ('{"replies": [{"pieces": [{"text": "a", "finish": "stop"}]}]}', "exactly one of text, reasoning"),
        ('{"replies": [{"pieces": [{"text": 5}]}]}', '"replies[0].pieces[0].text"'),
        ('{"replies": [{"pieces": [], "when": "("}]}', '"replies[0].when"'),
        ('{"replies": [{"pieces": [], "step": -1}]}', '"replies[0].step"'),
        ('{"replies": [], "pace": "5"}', '"pace"'),
        ("[]", '"its top"'),
    ],
)
def test_a_mistake_in_a_script_names_file_and_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert field in str(caught.value)


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    row = DEMO.__class__("test", "gone", "scripted", base_url=str(tmp_path / "gone.json"))
    assert not ScriptedModels().usable(row)
    with pytest.raises(UserError, match=r"gone\.json.* cannot be read: no such file or directory"):
        ScriptedModels().open(row)


async def test_a_row_can_name_a_script_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": [reply("mine")]}))
    row = DEMO.__class__("test", "mine", "scripted", base_url=str(path))
    assert ScriptedModels().usable(row)
    chunks = await read(ScriptedModels().open(row).stream(asking()))
    assert texts(chunks) == ["mine"]


# The demo


async def test_the_demo_leaves_time_to_steer() -> None:
    clock = Clock()
    model = Scripted(DEMO, load(DEMO_SCRIPT), sleep=clock.sleep)
    opening = await said(model, "What are you?")
    assert "“What are you?”" in opening
    assert 5 < clock.seconds < 8


async def test_the_demo_answers_a_steering_message_and_names_the_context() -> None:
    model = Scripted(DEMO, load(DEMO_SCRIPT), sleep=Clock().sleep)
    answer = await said(model, "What are you?", assistant("…"), NOTICE, "Shorter, please.")
    assert "“Shorter, please.”" in answer
    assert "**ci** tells me about “tests are green”" in answer


async def test_the_demo_answers_a_steering_message_without_a_context() -> None:
    model = Scripted(DEMO, load(DEMO_SCRIPT), sleep=Clock().sleep)
    answer = await said(model, "What are you?", assistant("…"), "Shorter, please.")
    assert "“Shorter, please.”" in answer
    assert "{" not in answer


async def test_the_demo_always_has_an_answer() -> None:
    model = Scripted(DEMO, load(DEMO_SCRIPT), sleep=Clock().sleep)
    history: list[Message] = []
    for number in range(5):
        history.append(user(f"message {number}"))
        answer = await said(model, *history)
        assert f"message {number}" in answer
        history += [assistant(answer), NOTICE]
