"""A model is told of what it can do."""

from __future__ import annotations

from pathlib import Path

from agentls.agent.abilities import Abilities
from agentls.agent.hooks import Hooks
from agentls.core.events import RequestHeader
from tests.harness import HandModel, HandModels, Rig, content, idle, mid
from tests.tools.support import registry


class Small(HandModel):
    """One that cannot call tools."""

    takes_tools = False


async def test_a_model_that_cannot_call_tools_is_told_of_none(tmp_path: Path) -> None:
    model = Small()
    on = Rig(tmp_path, model, hooks=Hooks(request=(Abilities(HandModels(model)),)), registry=registry())
    agent = await on.agent()
    await agent.followup(content("go"), id=mid("m1"))
    assert (await model.answer("all by myself", 1)).tools == ()
    await idle(agent)
    (header,) = [event.data for event in await on.log(agent) if isinstance(event.data, RequestHeader)]
    assert header.tools == (), "the log says the same"
    await on.host.close()
