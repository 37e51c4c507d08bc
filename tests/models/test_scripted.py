"""The model that reads a script: what it says follows from the request alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentls.core.blocks import ReasoningBlock, TextBlock, ToolCallBlock
from agentls.core.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from agentls.core.errors import UserError
from agentls.core.events import ToolSchema
from agentls.core.ids import CallId
from agentls.core.messages import Message, tool_result
from agentls.core.reasons import Failed, Failure, MaxTokens, Stop, ToolCalls
from agentls.core.sources import HookSource, Instructions, Notice, PluginSource, Section, Snapshot
from agentls.models.catalog import DEMO
from agentls.models.model import ModelRequest
from agentls.models.scripted import DEMO_SCRIPT, Script, Scripted, ScriptedModels, load
from agentls.tools.tool import ToolError
from tests.models.requests import asking, assemble, assistant, message, read, texts, user
from tests.tools.support import Space, registry


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


def answered(name: str, text: str, *, failed: bool = False) -> tuple[Message, Message]:
    """A call and its result."""
    call = ToolCallBlock(CallId(f"t-{name}"), name, "{}", "")
    return assistant(call), tool_result(CallId(f"t-{name}"), (TextBlock(text),), is_error=failed)


async def test_a_reply_can_be_for_a_tools_result_and_quote_it() -> None:
    model = scripted(
        reply("done: {result}", result="^read ok: .*lines$"),
        reply("failed: {result}", result="^read failed"),
        reply("none", when=""),
    )
    assert await said(model, "go", *answered("read", "3 lines")) == "done: 3 lines"
    assert await said(model, "go", *answered("read", "no\nsuch file", failed=True)) == "failed: no such file"
    assert await said(model, "go", *answered("write", "3 lines")) == "none"
    assert await said(model, "go", *answered("write", "x"), *answered("read", "3 lines")) == "done: 3 lines"
    assert await said(model, "go") == "none"


async def test_a_result_counts_until_a_person_says_something() -> None:
    model = scripted(reply("seen", result=""), reply("none", when=""))
    assert await said(model, "go", *answered("read", "x"), NOTICE) == "seen"
    assert await said(model, "go", *answered("read", "x"), "and now?") == "none"


async def test_a_reply_can_need_tools_that_the_request_offers() -> None:
    model = scripted(reply("both", offers=["read", "write"]), reply("one", offers=["read"]), reply("none", when=""))
    for offered, expected in ((["write", "read", "x"], "both"), (["read"], "one"), (["write"], "none"), ([], "none")):
        request = replace(asking(), tools=tuple(ToolSchema(name, "", {}) for name in offered))
        assert texts(await read(model.stream(request))) == [expected]


async def test_named_groups_of_conditions_are_placeholders() -> None:
    model = scripted(
        reply(
            "{file}: {n} of {user}{other}{gone}", when=r"read (?P<file>\S+)( x(?P<gone>y))?", result=r"(?P<n>\d+) lines"
        )
    )
    assert await said(model, "read a.md", *answered("read", "3 lines")) == "a.md: 3 of read a.md{other}"


async def test_what_is_quoted_in_arguments_cannot_break_them() -> None:
    call = {"name": "n", "arguments": {"a": ["{user}", {"b": "<{user}>\n"}], "c": 1, "d": None}}
    stream = assemble(await read(scripted({"pieces": [{"call": call}]}).stream(asking('say "x\\"'))))
    (block,) = stream.blocks()
    assert isinstance(block, ToolCallBlock)
    quoted = 'say "x\\"'
    assert json.loads(block.arguments) == {"a": [quoted, {"b": f"<{quoted}>\n"}], "c": 1, "d": None}


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
        ('{"replies": [{"pieces": [], "result": "["}]}', '"replies[0].result"'),
        ('{"replies": [{"pieces": [], "offers": [1]}]}', '"replies[0].offers[0]"'),
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
    assert ScriptedModels().problem(row) is not None
    with pytest.raises(UserError, match=r"gone\.json.* cannot be read: no such file or directory"):
        ScriptedModels().open(row)


async def test_a_row_can_name_a_script_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": [reply("mine")]}))
    row = DEMO.__class__("test", "mine", "scripted", base_url=str(path))
    assert ScriptedModels().problem(row) is None
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


PROMPT = "What is in notes.md? Then write a summary to summary.md."
NOTES = 'Say "hi" to the café.\n\nThe rest.\n'

Call = tuple[str, dict[str, str]]
READS = ("read", {"path": "notes.md"})
WRITES = ("write", {"path": "summary.md", "content": 'notes.md, line 1 of 3: Say "hi" to the café.\n'})
REPLACES = ("write", {"path": "notes.md", "content": "Replaced by the demo.\n"})


class Shown:
    """A turn of the demo with the real tools, in a workspace, and a person who allows what they are told to."""

    def __init__(self, root: Path, notes: str | None = NOTES) -> None:
        self.space = Space(root)
        if notes is not None:
            self.space.file("notes.md", notes)
        self.calls: list[Call] = []
        self.history: list[Message] = []
        self._model = Scripted(DEMO, load(DEMO_SCRIPT), sleep=Clock().sleep)

    async def ask(
        self, prompt: str = PROMPT, *, offers: set[str] | None = None, allows: Callable[[str], bool] = bool
    ) -> str:
        """The whole turn; what the model says at its end. `allows` is asked with the path of a write."""
        tools = tuple(tool for tool in registry().schemas() if offers is None or tool.name in offers)
        self.history.append(user(prompt))
        while True:
            stream = assemble(await read(self._model.stream(ModelRequest("", tuple(self.history), tools))))
            self.history.append(assistant(*stream.blocks()))
            calls = [block for block in stream.blocks() if isinstance(block, ToolCallBlock)]
            if not calls:
                return "".join(block.text for block in stream.blocks() if isinstance(block, TextBlock))
            for call in calls:
                assert call.name in {tool.name for tool in tools}
                arguments = json.loads(call.arguments)
                self.calls.append((call.name, arguments))
                self.history.append(await self._result(call, arguments, allows))

    async def _result(self, call: ToolCallBlock, arguments: dict[str, str], allows: Callable[[str], bool]) -> Message:
        text, failed = "the person said no", True
        if call.name == "read" or allows(arguments["path"]):
            try:
                text, failed = (await self.space.call(call.name, **arguments)).text, False
            except ToolError as error:
                text = error.text
        return tool_result(call.id, (TextBlock(text),), is_error=failed)


async def test_the_demo_reads_writes_and_accepts_a_denial(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    end = await shown.ask(allows=lambda path: path == "summary.md")
    assert shown.calls == [READS, WRITES, REPLACES]
    assert end == (
        "**notes.md** stays as it was; I was told: “the person said no”. I accept that. "
        "What I wrote is **summary.md**, and nothing else."
    )
    assert (tmp_path / "notes.md").read_text() == NOTES
    assert (tmp_path / "summary.md").read_text() == WRITES[1]["content"]


async def test_the_demo_can_be_asked_again_and_about_other_files(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    shown.space.file("docs/a-b.txt", "One line")
    first = await shown.ask(allows=lambda path: path == "summary.md")
    assert await shown.ask(allows=lambda path: path == "summary.md") == first
    assert shown.calls == [READS, WRITES, REPLACES] * 2
    await shown.ask(
        "what is in docs/a-b.txt, in short? Write it to notes/c.md", allows=lambda path: path == "notes/c.md"
    )
    assert (tmp_path / "notes/c.md").read_text() == "docs/a-b.txt, line 1 of 1: One line\n"


async def test_the_demo_tells_what_a_person_allowed_it(tmp_path: Path) -> None:
    end = await Shown(tmp_path).ask()
    assert end.startswith("You allowed it: **notes.md** now holds one line of mine")
    assert (tmp_path / "notes.md").read_text() == REPLACES[1]["content"]


async def test_the_demo_goes_no_further_when_its_summary_is_not_wanted(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    end = await shown.ask(allows=lambda path: False)
    assert end == "**summary.md** is not written; I was told: “the person said no”. I accept that and stop here."
    assert shown.calls == [READS, WRITES]


@pytest.mark.parametrize(
    ("notes", "end"),
    [
        (None, 'I did not get to read **notes.md**; I was told: “there is no "notes.md"; list_files shows'),
        ("", "**notes.md** is empty"),
    ],
)
async def test_the_demo_writes_nothing_where_there_is_nothing_to_sum_up(
    tmp_path: Path, notes: str | None, end: str
) -> None:
    shown = Shown(tmp_path, notes)
    assert (await shown.ask()).startswith(end)
    assert shown.calls == [READS]


async def test_the_demo_calls_no_tool_that_it_is_not_offered(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    assert (await shown.ask(offers={"read", "list_files"})).endswith("and I may not write it down.")
    assert shown.calls == [READS]
    shown = Shown(tmp_path)
    assert PROMPT in await shown.ask(offers=set())
    assert shown.calls == []


async def test_the_demo_that_is_steered_while_it_works_follows(tmp_path: Path) -> None:
    shown = Shown(tmp_path)
    await shown.ask(allows=lambda path: False)
    assert "“Stop that.”" in await shown.ask("Stop that.")
