"""What a person sets: mode, model and title of an agent, what comes of each, and from when on."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentls.agent.hooks import Hooks
from agentls.agent.modes import ReadOnlyMode
from agentls.agent.titles import TITLE_MAX, FirstTitle
from agentls.core.events import AgentConfig, ModelRef, RequestHeader, SessionTitle
from agentls.core.reasons import Completed
from agentls.models.model import ModelRequest
from tests.agent.hands import asked, call, codes, datas, ends, hands, over, request, results, state
from tests.harness import content, idle, mid, notice, types, until

READ_ONLY = ReadOnlyMode(frozenset({"look", "solo", "peek"}))
MODES = Hooks(request=(READ_ONLY,), pre_execute=(READ_ONLY,), guard=(READ_ONLY,))
TITLES = Hooks(turn_stopping=(FirstTitle(),))


def offered(sent: ModelRequest) -> list[str]:
    return [tool.name for tool in sent.tools]


# Mode ------------------------------------------------------------------------------------------------------------


async def test_a_read_only_agent_is_told_of_no_tool_that_changes_something(tmp_path: Path) -> None:
    async with hands(tmp_path, MODES) as on:
        agent = await on.agent()
        await agent.configure(mode="read-only")
        assert state(agent).mode == "read-only"
        await agent.followup(content("go"), id=mid("m1"))
        assert offered(await over(on, agent, 1)) == ["look", "peek", "solo"]
        await agent.configure(mode="ask")
        await agent.followup(content("and now"), id=mid("m2"))
        assert offered(await over(on, agent, 2)) == ["look", "peek", "solo", "touch"]
        headers = datas(await on.log(agent), RequestHeader)
        assert [header.reason for header in headers] == ["initial", "change"]  # type: ignore[attr-defined]


async def test_a_read_only_agent_that_changes_something_all_the_same_is_refused(tmp_path: Path) -> None:
    """Nobody is asked about it."""
    async with hands(tmp_path, MODES) as on:
        agent = await on.agent()
        await agent.configure(mode="read-only")
        await agent.followup(content("go"), id=mid("m1"))
        await on.model.asked(1)
        call(on.model, ("touch", "a"), ("look", "b"))
        ((_, refusal), looked) = results(await over(on, agent, 2))
        assert "may only read" in refusal
        assert looked == ("t1.1.2", "did b")
        log = await on.log(agent)
        assert codes(log) == [("t1.1.1", "READ_ONLY"), ("t1.1.2", None)]
        assert "approval/asked" not in types(log)
        assert (on.bodies.begun, ends(log)) == (["b"], [Completed()])


async def test_what_was_allowed_does_not_start_once_the_mode_forbids_it(tmp_path: Path) -> None:
    async with hands(tmp_path, MODES) as on:
        agent = await asked(on)
        call(on.model, ("touch", "a"))
        waiting = await request(agent)
        await agent.configure(mode="read-only")
        await agent.answer(waiting.request_id, "allow", shown=waiting.shown, by="vim")
        assert offered(await over(on, agent, 2)) == ["look", "peek", "solo"], "from the next step on"
        log = await on.log(agent)
        assert (codes(log), on.bodies.begun) == ([("t1.1.1", "READ_ONLY")], [])
        assert "tool/start" not in types(log)


# Settings in the log ---------------------------------------------------------------------------------------------


async def test_settings_are_whole_values_and_what_is_not_given_stays(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await on.agent()
        on.disk.acts.clear()
        await agent.configure()
        assert on.disk.acts == []
        await agent.configure(mode="read-only", title="A name")
        await agent.configure(model=ModelRef("hand", "other"))
        await agent.configure(title="Another name", by="agent")
        assert on.disk.acts == ["D agent/config, session/title", "D agent/config", "D session/title"]
        log = await on.log(agent)
        assert datas(log, AgentConfig)[-2:] == [
            AgentConfig(mode="read-only"),
            AgentConfig(model=ModelRef("hand", "other")),
        ]
        assert datas(log, SessionTitle) == [SessionTitle("A name", "person"), SessionTitle("Another name", "agent")]
        now = state(agent)
        assert (now.mode, now.model, now.model_usable, now.title) == (
            "read-only", ModelRef("hand", "other"), False, "Another name",
        )  # fmt: skip
        ((listed,), _) = await on.host.list()
        assert listed.summary.title == "Another name"


async def test_another_model_is_asked_from_the_next_step_on(tmp_path: Path) -> None:
    async with hands(tmp_path) as on:
        agent = await asked(on)
        await agent.configure(model=ModelRef("hand", "other"))
        on.model.text("hello")
        call(on.model, ("look", "a"))
        await idle(agent)
        log = await on.log(agent)
        assert [h.model.id for h in datas(log, RequestHeader)] == ["hand", "other"]  # type: ignore[attr-defined]
        assert codes(log) == [("t1.1.1", None)], "the open step was the first one's"


# Titles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why is the sky blue?", "Why is the sky blue?"),
        ("two\nlines\tand \x1b[2J", "two lines and ␛[2J"),
        ("long " * 40, f"{('long ' * 40)[: TITLE_MAX - 1]}…"),
        (" \n", None),
    ],
)
async def test_a_session_without_a_name_is_named_after_its_first_question(
    tmp_path: Path, text: str, title: str | None
) -> None:
    async with hands(tmp_path, TITLES) as on:
        agent = await on.agent()
        await agent.inject(content("main -> dev"), id=mid("i1"), source=notice())
        await agent.followup(content(text), id=mid("m1"))
        await over(on, agent, 1)
        assert state(agent).title == title
        assert datas(await on.log(agent), SessionTitle) == ([SessionTitle(title, "agent")] if title else [])
        if title:
            await agent.followup(content("Something else"), id=mid("m2"))
            await over(on, agent, 2)
            assert state(agent).title == title


async def test_a_name_that_a_person_gave_stays(tmp_path: Path) -> None:
    async with hands(tmp_path, TITLES) as on:
        agent = await asked(on)
        await agent.configure(title="Mine")
        await over(on, agent, 1)
        assert datas(await on.log(agent), SessionTitle) == [SessionTitle("Mine", "person")]


async def test_a_turn_that_is_stopped_names_nothing_and_the_next_one_does(tmp_path: Path) -> None:
    async with hands(tmp_path, TITLES) as on:
        agent = await asked(on)
        await agent.cancel("user")
        assert state(agent).title is None
        await agent.followup(content("then this"), id=mid("m2"))
        await over(on, agent, 2)
        await until(lambda: state(agent).title == "go")
