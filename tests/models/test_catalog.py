"""Which models there are, and how a person names one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentls.core.errors import UserError
from agentls.core.events import ModelRef
from agentls.models.catalog import DEMO, LOCAL, Catalog, ModelRow, Opener, endpoint
from agentls.models.dialects.openai_chat import OpenAiChat
from agentls.models.http import HttpModel, HttpModels, Network
from agentls.models.local import LocalModels
from agentls.models.model import Model, ModelFacts, Models
from agentls.models.scripted import Scripted, ScriptedModels


class Openers:
    """Opens every row as a scripted model, and is usable as told."""

    def __init__(self, *usable: ModelRow) -> None:
        self._usable = usable
        self.opened = 0
        self.closed = 0

    def open(self, row: ModelRow) -> Model:
        self.opened += 1
        return ScriptedModels().open(replace(row, base_url=""))

    def problem(self, row: ModelRow) -> str | None:
        return None if row in self._usable else f"{row.name} lacks something"

    async def close(self) -> None:
        self.closed += 1


REMOTE = endpoint("https://api.example.com/v1/", "big", provider="example", key_variable="KEY")


def catalog(*usable: ModelRow, choice: str | None = None) -> Catalog:
    opener = Openers(*usable)
    return Catalog((REMOTE, LOCAL, DEMO), {"openai-chat": opener, "local": opener, "scripted": opener}, choice)


def test_the_default_is_the_first_row_that_is_usable() -> None:
    """The local model if it can run, else the demo; a configured endpoint goes before both."""
    assert catalog(LOCAL, DEMO).default() == LOCAL.ref
    assert catalog(DEMO).default() == DEMO.ref
    assert catalog(REMOTE, LOCAL, DEMO).default() == REMOTE.ref


def test_the_choice_of_a_person_wins_even_where_it_is_not_usable() -> None:
    assert catalog(LOCAL, DEMO, choice="example/big").default() == REMOTE.ref


def test_a_choice_that_is_no_model_lists_what_there_is() -> None:
    with pytest.raises(UserError, match='model "gpt-9" is not in the catalog; pick one of "example/big"'):
        catalog(choice="gpt-9").default()


def test_a_model_is_found_by_its_full_name_or_by_an_id_that_is_unique() -> None:
    assert catalog().find("local/smollm2") == catalog().find("smollm2") == LOCAL.ref


def test_an_id_that_two_providers_have_is_not_guessed() -> None:
    twin = replace(DEMO, id="big")
    twins = Catalog((REMOTE, twin), {"openai-chat": Openers(), "scripted": Openers()})
    assert twins.find("demo/big") == twin.ref
    with pytest.raises(UserError, match='model "big" is there more than once; pick one of "example/big", "demo/big"'):
        twins.find("big")


def test_an_id_may_hold_slashes() -> None:
    row = replace(REMOTE, id="vendor/big")
    found = Catalog((row,), {"openai-chat": Openers()})
    assert found.find("example/vendor/big") == found.find("vendor/big") == row.ref


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UserError) as caught:
        catalog().find("gpt-9")
    assert str(caught.value) == (
        'model "gpt-9" is not in the catalog; pick one of "example/big", "local/smollm2", "demo/demo"'
    )


def test_a_model_is_opened_once_and_shared() -> None:
    opener = Openers()
    shared = Catalog((DEMO,), {"scripted": opener})
    assert shared.open(DEMO.ref) is shared.open(DEMO.ref)
    assert opener.opened == 1


def test_a_ref_of_an_old_log_that_is_gone_is_an_error_and_not_usable() -> None:
    old = ModelRef("gone", "old")
    assert not catalog(DEMO).usable(old)
    with pytest.raises(UserError, match='model "gone/old" is not in the catalog any more; pick one of'):
        catalog().open(old)


def test_all_models_are_told_in_order_with_what_each_lacks() -> None:
    assert catalog(DEMO).all() == (
        ModelFacts(
            REMOTE.ref,
            usable=False,
            context_window=32_768,
            key_source="environment variable KEY",
            problem="example/big lacks something",
        ),
        ModelFacts(LOCAL.ref, usable=False, context_window=2048, problem="local/smollm2 lacks something"),
        ModelFacts(DEMO.ref, usable=True, context_window=8192),
    )


async def test_what_a_model_lacks_is_looked_up_anew_and_said_without_the_key(tmp_path: Path) -> None:
    network = Network()
    environ: dict[str, str] = {}
    script = tmp_path / "mine.json"
    rows = (REMOTE, endpoint("http://127.0.0.1:1/v1", "keyless"), ModelRow("s", "mine", "scripted", str(script)), LOCAL)
    models = Catalog(
        rows,
        {
            "openai-chat": HttpModels(OpenAiChat(), network, environ),
            "scripted": ScriptedModels(),
            "local": LocalModels(OpenAiChat(), network, tmp_path),
        },
    )

    def problems() -> list[str | None]:
        assert [facts.usable for facts in models.all()] == [facts.problem is None for facts in models.all()]
        assert [facts.usable for facts in models.all()] == [models.usable(row.ref) for row in rows]
        return [facts.problem for facts in models.all()]

    remote, keyless, mine, local = problems()
    assert remote == (
        'the environment variable "KEY" is not set; put the key for example/big into it and start agentls again'
    )
    assert keyless is None
    assert mine == f'there is no script "{script}"; write it there or name another one'
    assert local is not None
    assert "python -m agentls.models.weights fetch" in local
    script.touch()
    environ["KEY"] = " "
    assert str(problems()[0]).startswith('the environment variable "KEY" is empty; put the key')
    environ["KEY"] = "sk-secret sk-secret"
    assert str(problems()[0]).startswith('the environment variable "KEY" has a space')
    assert "sk-secret" not in str(models.all())
    environ["KEY"] = "sk-secret"
    assert problems()[:3] == [None, None, None]
    assert "sk-secret" not in str(models.all())
    await models.close()


async def test_closing_ends_what_the_openers_started() -> None:
    opener = Openers()
    await Catalog((DEMO,), {"scripted": opener}).close()
    assert opener.closed == 1


def test_mistakes_of_the_composition_are_found_at_once() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        Catalog((), {})
    with pytest.raises(ValueError, match="no opener for local, scripted"):
        Catalog((LOCAL, DEMO), {})
    with pytest.raises(UserError, match='model "demo/demo" is configured twice'):
        Catalog((DEMO, DEMO), {"scripted": Openers()})


def test_an_endpoint_is_a_row_whose_slash_at_the_end_does_not_matter() -> None:
    row = ModelRow("example", "big", "openai-chat", "https://api.example.com/v1", "KEY")
    assert row == REMOTE
    assert endpoint("http://127.0.0.1:8080", "m").ref == ModelRef("openai", "m")


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com/v1", "ftp://example.com", "http://", "http://h:99999/v1", "http://h:0", "http://h/v1?a=b"],
)
def test_an_address_that_cannot_be_right_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="base url"):
        endpoint(url, "m")


def test_a_key_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError) as caught:
        endpoint("https://user:sk-secret@example.com/v1", "m")
    assert "sk-secret" not in str(caught.value)
    assert "environment variable" in str(caught.value)


@pytest.mark.parametrize("model", ["", " m", "m\n"])
def test_a_model_id_that_cannot_be_right_is_refused(model: str) -> None:
    with pytest.raises(UserError, match="model id"):
        endpoint("http://h/v1", model)


async def test_the_real_openers_fit_the_catalog() -> None:
    network = Network()
    openers: dict[str, Opener] = {"openai-chat": HttpModels(OpenAiChat(), network, {}), "scripted": ScriptedModels()}
    models: Models = Catalog((REMOTE, DEMO), openers)
    assert models.default() == DEMO.ref
    assert isinstance(models.open(DEMO.ref), Scripted)
    assert isinstance(models.open(REMOTE.ref), HttpModel)
    assert models.open(REMOTE.ref).context_window == REMOTE.context_window
    await models.close()
